//! Reading committed records from a cursor: the newest from memory, the others from disk.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Shared;
use super::error::JournalError;
use super::record::{decode_checked, decode_line};
use super::segment::{Lines, Mark, Segment, expect};
use crate::base::limits::{JOURNAL_READ_BYTES_MAX, JOURNAL_TAIL_BYTES_MAX};
use crate::wire::event::Record;
use crate::wire::messages::system::JournalRange;
use crate::wire::{Code, Fault};

/// A committed group in memory.
struct Group {
    first_seq: u64,
    lines: Bytes,
    /// Where each line ends in `lines`, its newline included.
    ends: Vec<usize>,
}

/// The committed part of the journal. It never is empty: the last segment is the one written to.
pub(super) struct Index {
    segments: VecDeque<Segment>,
    /// The newest groups without a gap, at most `JOURNAL_TAIL_BYTES_MAX`.
    tail: VecDeque<Group>,
    tail_bytes: usize,
    first_seq: u64,
    next_seq: u64,
}

/// Where the records from a cursor on are found.
enum Source {
    Memory(Vec<Bytes>),
    Disk(Box<Segment>, Mark),
}

impl Index {
    pub fn new(segments: Vec<Segment>) -> Self {
        Self {
            first_seq: segments.first().map_or(1, |segment| segment.first_seq),
            next_seq: segments.last().map_or(1, |segment| segment.next_seq),
            segments: segments.into(),
            tail: VecDeque::new(),
            tail_bytes: 0,
        }
    }

    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    pub fn range(&self) -> JournalRange {
        JournalRange {
            first_seq: self.first_seq,
            next_seq: self.next_seq,
        }
    }

    /// Takes in a group that was synced; `ends` are the ends of its lines in `lines`.
    pub fn commit(&mut self, lines: Bytes, ends: Vec<usize>) {
        let first_seq = self.next_seq;
        if let Some(active) = self.segments.back_mut() {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            for (seq, start) in (first_seq..).zip(starts.take(ends.len())) {
                active.mark(seq, active.len + start as u64);
            }
            active.len += lines.len() as u64;
            active.next_seq += ends.len() as u64;
        }
        self.next_seq += ends.len() as u64;
        self.tail_bytes += lines.len();
        self.tail.push_back(Group {
            first_seq,
            lines,
            ends,
        });
        while self.tail_bytes > JOURNAL_TAIL_BYTES_MAX {
            let Some(oldest) = self.tail.pop_front() else {
                break;
            };
            self.tail_bytes -= oldest.lines.len();
        }
    }

    /// Goes on in a new segment.
    pub fn rotate(&mut self, segment: Segment) {
        self.segments.push_back(segment);
    }

    /// Forgets the oldest closed segment if all together are longer than `total_len_max`.
    pub fn expire_oldest(&mut self, total_len_max: u64) -> Option<Segment> {
        let total: u64 = self.segments.iter().map(|segment| segment.len).sum();
        if total <= total_len_max || self.segments.len() < 2 {
            return None;
        }
        let oldest = self.segments.pop_front()?;
        self.first_seq = oldest.next_seq;
        Some(oldest)
    }

    /// Takes back a segment whose file could not be deleted.
    pub fn restore_oldest(&mut self, segment: Segment) {
        self.first_seq = segment.first_seq;
        self.segments.push_front(segment);
    }

    pub fn check_cursor(&self, from_seq: u64) -> Result<(), Fault> {
        let JournalRange {
            first_seq,
            next_seq,
        } = self.range();
        if from_seq == 0 || from_seq > next_seq {
            let why = format!("the cursor {from_seq} is not within 1 to {next_seq}");
            return Err(Fault::new(Code::CursorInvalid, why));
        }
        if from_seq < first_seq {
            let why = format!("records before {first_seq} are gone, {from_seq} was asked for");
            return Err(Fault::new(Code::CursorExpired, why));
        }
        Ok(())
    }

    /// Where to read from `seq` on; `None` when nothing is there yet.
    fn source(&self, seq: u64, max: usize) -> Result<Option<Source>, Fault> {
        self.check_cursor(seq)?;
        if seq == self.next_seq {
            return Ok(None);
        }
        if self
            .tail
            .front()
            .is_some_and(|group| group.first_seq <= seq)
        {
            return Ok(Some(Source::Memory(self.tail_lines(seq, max))));
        }
        let after = self
            .segments
            .partition_point(|segment| segment.first_seq <= seq);
        let segment = after
            .checked_sub(1)
            .and_then(|at| self.segments.get(at))
            .ok_or_else(|| Fault::internal(format!("no journal segment holds {seq}")))?;
        let place = segment.place_before(seq);
        Ok(Some(Source::Disk(Box::new(segment.without_marks()), place)))
    }

    /// Lines of the tail from `seq` on, within the bounds of one read.
    fn tail_lines(&self, seq: u64, max: usize) -> Vec<Bytes> {
        let mut found = Vec::new();
        let mut bytes = 0;
        let from = self.tail.partition_point(|group| group.first_seq <= seq) - 1;
        for group in self.tail.range(from..) {
            let mut start = 0;
            for (number, end) in (group.first_seq..).zip(&group.ends) {
                let line = start..*end;
                start = *end;
                if number < seq {
                    continue;
                }
                bytes += line.len();
                if found.len() == max || (bytes > JOURNAL_READ_BYTES_MAX && !found.is_empty()) {
                    return found;
                }
                found.push(group.lines.slice(line));
            }
        }
        found
    }
}

impl Shared {
    /// Reads records from `from_seq` on (see `Journal::read`).
    pub(super) fn read(&self, from_seq: u64, max: usize) -> Result<Vec<Record>, Fault> {
        self.index().check_cursor(from_seq)?;
        let mut records = Vec::new();
        let mut bytes_left = JOURNAL_READ_BYTES_MAX;
        let mut seq = from_seq;
        while records.len() < max && bytes_left > 0 {
            let wanted = max - records.len();
            let source = match self.index().source(seq, wanted) {
                Ok(Some(source)) => source,
                Ok(None) => break,
                // Retention overtook a read under way; what was read so far stands.
                Err(_) if !records.is_empty() => break,
                Err(fault) => return Err(fault),
            };
            let before = records.len();
            match source {
                Source::Memory(lines) => {
                    for line in lines {
                        bytes_left = bytes_left.saturating_sub(line.len());
                        records.push(from_memory(&line)?);
                    }
                }
                Source::Disk(segment, place) => {
                    match from_disk(&segment, place, seq, wanted, &mut bytes_left, &mut records) {
                        Ok(()) => {}
                        // Deleted between the look-up and the opening: look again.
                        Err(error) if error.is_not_found() && self.expired(seq) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            if records.len() == before {
                return Err(Fault::internal(format!("the journal has no record {seq}")));
            }
            seq += (records.len() - before) as u64;
        }
        Ok(records)
    }

    /// What memory holds from `seq` on; `None` when the disk has to be read.
    pub(super) fn read_memory(&self, seq: u64, max: usize) -> Option<Result<Vec<Record>, Fault>> {
        let source = match self.index().source(seq, max) {
            Ok(source) => source,
            Err(fault) => return Some(Err(fault)),
        };
        match source {
            Some(Source::Memory(lines)) => {
                Some(lines.iter().map(|line| from_memory(line)).collect())
            }
            Some(Source::Disk(..)) => None,
            None => Some(Ok(Vec::new())),
        }
    }

    fn expired(&self, seq: u64) -> bool {
        seq < self.index().first_seq()
    }
}

fn from_memory(line: &[u8]) -> Result<Record, Fault> {
    decode_line(line.strip_suffix(b"\n").unwrap_or(line))
        .map_err(|why| Fault::internal(format!("read back a journal record: {why}")))
}

/// Reads up to `max` records of one segment from `seq` on; every line on the way is checked.
fn from_disk(
    segment: &Segment,
    place: Mark,
    seq: u64,
    max: usize,
    bytes_left: &mut usize,
    records: &mut Vec<Record>,
) -> Result<(), JournalError> {
    let mut lines = Lines::open(segment, place.offset)?;
    let mut number = place.seq;
    while number < segment.next_seq && number - seq.min(number) < max as u64 {
        let Some(line) = lines.next_line()? else {
            let why = format!("the file ends before sequence {number}");
            return Err(segment.corrupt(number, segment.len, why));
        };
        expect(segment, &line, number)?;
        if number >= seq {
            let record = decode_checked(line.bytes)
                .map_err(|why| segment.corrupt(number, line.offset, why))?;
            if number > seq && line.bytes.len() > *bytes_left {
                *bytes_left = 0;
                return Ok(());
            }
            *bytes_left = bytes_left.saturating_sub(line.bytes.len());
            records.push(record);
        }
        number += 1;
    }
    Ok(())
}
