//! Counts a client's reads of the keymap against the changes it was told of.
//!
//! Each change makes a client read at most twice when its turn comes among the client's events. So
//! the changes sent so far explain a bounded number of reads (`owed`); a read beyond those that were
//! owed when the markers were sent must come from a marker, whose turn comes after all keys before it.
//!
//! Xlib also reads out of turn: when a key is looked up while a change is known but not handled yet.
//! Such reads name the range of keys that changed, while those in turn name every key or one. The
//! markers are the lowest and the highest spare key, so that a range out of turn is neither.

use super::keymap_watch::MapRead;

/// Reads per change at most: one for XKB's event and one for the core protocol's.
const READS_PER_CHANGE_MAX: usize = 2;
/// Reads that may stay open without waiting for them to come.
const OWED_TOLERATED: usize = 2;

/// What a client may still read, and why.
#[derive(Debug, Default)]
pub struct ReadLedger {
    /// Reads that the changes sent so far may still cause.
    owed: usize,
    /// Of those, the ones caused by changes before the markers.
    before_markers: usize,
    reads_keys: bool,
    reads_whole: bool,
}

impl ReadLedger {
    /// Changes were sent.
    pub fn sent(&mut self, changes: usize) {
        self.owed += changes * READS_PER_CHANGE_MAX;
    }

    /// Markers follow; what is owed now is owed to changes before them.
    pub fn await_markers(&mut self) {
        self.before_markers = self.owed;
    }

    /// A read was seen; true when it must come from a marker.
    pub fn note(&mut self, read: MapRead) -> bool {
        if !self.in_turn(read) {
            return false;
        }
        self.owed = self.owed.saturating_sub(1);
        if self.before_markers == 0 {
            return true;
        }
        self.before_markers -= 1;
        false
    }

    /// Whether more reads than a few are owed.
    pub fn owes(&self) -> bool {
        self.owed > OWED_TOLERATED
    }

    /// Whether the markers so far have likely been read, so that further ones are due.
    pub fn round_is_read(&self) -> bool {
        self.owed <= self.before_markers
    }

    /// No more reads come: the client reads less often than it might.
    pub fn forgive(&mut self) {
        if self.owes() {
            self.owed = 0;
        }
    }

    /// A client is counted by its most telling kind of read: toolkits on Xlib read through the core
    /// protocol as well.
    fn in_turn(&mut self, read: MapRead) -> bool {
        match read {
            MapRead::Keys { first, count } => {
                self.reads_keys = true;
                count == 1
                    || usize::from(first) + usize::from(count) > usize::from(u8::MAX) && first <= 8
            }
            MapRead::Whole => {
                self.reads_whole = true;
                !self.reads_keys
            }
            MapRead::Core => !self.reads_keys && !self.reads_whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: MapRead = MapRead::Keys {
        first: 8,
        count: 248,
    };

    #[test]
    fn read_of_an_earlier_change_proves_nothing() {
        let mut ledger = ReadLedger::default();
        ledger.sent(2);
        assert!(!ledger.note(MapRead::Keys {
            first: 97,
            count: 30
        }));
        assert!(!ledger.note(ALL));
        ledger.await_markers();
        ledger.sent(2);
        assert!((0..3).all(|_| !ledger.note(ALL)));
        assert!(ledger.note(ALL));
    }

    proptest! {
        /// A client handles changes in order and reads up to twice for each.
        #[test]
        fn proof_comes_only_once_a_marker_was_handled(
            changes in 0usize..20,
            reads in proptest::collection::vec(0usize..=2, 60),
            early in 0usize..50,
        ) {
            let mut ledger = ReadLedger::default();
            ledger.sent(changes);
            let of_change: Vec<usize> = reads
                .iter()
                .enumerate()
                .flat_map(|(change, count)| std::iter::repeat_n(change, *count))
                .collect();
            let early = early.min(of_change.iter().filter(|change| **change < changes).count());
            for _ in 0..early {
                ledger.note(ALL);
            }
            ledger.await_markers();
            ledger.sent(reads.len() - changes);
            for change in &of_change[early..] {
                if ledger.note(ALL) {
                    prop_assert!(*change >= changes);
                    break;
                }
            }
        }
    }
}
