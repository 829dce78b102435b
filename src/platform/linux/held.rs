//! Which keys and buttons are down, and for whom.
//!
//! Invariant: a key is in the table exactly while the guard has it pressed on the display; it goes
//! up when its last owner lets go.

use std::collections::BTreeSet;

use crate::platform::InputOwner;

/// A key or a button by its number on the X server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Key(u8),
    Button(u8),
}

/// All that is held, in the order in which it went down.
#[derive(Debug, Default)]
pub struct HeldTable(Vec<(Held, BTreeSet<InputOwner>)>);

impl HeldTable {
    /// Adds an owner; true when the key has to go down now.
    pub fn press(&mut self, owner: InputOwner, held: Held) -> bool {
        if let Some((_, owners)) = self.0.iter_mut().find(|(h, _)| *h == held) {
            owners.insert(owner);
            return false;
        }
        self.0.push((held, BTreeSet::from([owner])));
        true
    }

    /// Takes an owner away; true when the key has to go up now. A key that nobody here holds goes up
    /// as well, so that a caller can free one that something else left down.
    pub fn let_up(&mut self, owner: InputOwner, held: Held) -> bool {
        let Some(at) = self.0.iter().position(|(h, _)| *h == held) else {
            return true;
        };
        let owners = &mut self.0[at].1;
        owners.remove(&owner);
        if !owners.is_empty() {
            return false;
        }
        self.0.remove(at);
        true
    }

    /// Takes an owner away everywhere; what has to go up now, last pressed first.
    pub fn release(&mut self, owner: InputOwner) -> Vec<Held> {
        for (_, owners) in &mut self.0 {
            owners.remove(&owner);
        }
        self.take(|owners| owners.is_empty())
    }

    /// Empties the table; what has to go up now, last pressed first.
    pub fn release_all(&mut self) -> Vec<Held> {
        self.take(|_| true)
    }

    /// The keys that are down, in the order in which they went down.
    pub fn keys(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().filter_map(|(held, _)| match held {
            Held::Key(keycode) => Some(*keycode),
            Held::Button(_) => None,
        })
    }

    fn take(&mut self, goes: impl Fn(&BTreeSet<InputOwner>) -> bool) -> Vec<Held> {
        let mut gone = Vec::new();
        self.0.retain(|(held, owners)| {
            let goes = goes(owners);
            if goes {
                gone.push(*held);
            }
            !goes
        });
        gone.reverse();
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn key_of_two_owners_goes_up_with_the_last() {
        let (a, b) = (InputOwner(1), InputOwner(2));
        let mut table = HeldTable::default();
        assert!(table.press(a, Held::Key(50)));
        assert!(!table.press(b, Held::Key(50)));
        assert!(!table.let_up(a, Held::Key(50)));
        assert_eq!(table.release(a), []);
        assert_eq!(table.release(b), [Held::Key(50)]);
    }

    proptest! {
        #[test]
        fn table_agrees_with_a_plain_model(
            steps in proptest::collection::vec((0u64..3, 0u8..3, 0u8..3), 0..60)
        ) {
            let mut table = HeldTable::default();
            let mut down: BTreeSet<u8> = BTreeSet::new();
            let mut model: BTreeMap<u8, BTreeSet<u64>> = BTreeMap::new();
            for (owner, key, act) in steps {
                match act {
                    0 => {
                        if table.press(InputOwner(owner), Held::Key(key)) {
                            prop_assert!(down.insert(key));
                        }
                        model.entry(key).or_default().insert(owner);
                    }
                    1 => {
                        if table.let_up(InputOwner(owner), Held::Key(key)) {
                            down.remove(&key);
                        }
                        model.entry(key).or_default().remove(&owner);
                    }
                    _ => {
                        for held in table.release(InputOwner(owner)) {
                            let Held::Key(key) = held else { unreachable!() };
                            prop_assert!(down.remove(&key));
                        }
                        model.values_mut().for_each(|owners| { owners.remove(&owner); });
                    }
                }
                model.retain(|_, owners| !owners.is_empty());
                prop_assert!(down.iter().eq(model.keys()));
                prop_assert!(table.keys().collect::<BTreeSet<_>>() == down);
            }
        }
    }
}
