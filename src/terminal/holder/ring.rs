//! A session's recent output, by absolute offset, and the changes of size in between.
//!
//! Invariants: the kept bytes are contiguous from `first` to `next`; a chunk's memory is taken when
//! output comes, is spare when all of it is too old, and goes back by `release`.

use std::collections::VecDeque;

use super::protocol::Position;
use crate::base::limits::{HOLDER_CHUNK_LEN, HOLDER_RESIZES_MAX};
use crate::platform::pty::PtySize;

struct Chunk {
    /// Offset of its first byte.
    start: u64,
    /// Bytes of it that are output.
    filled: usize,
    bytes: Box<[u8]>,
}

impl Chunk {
    const fn end(&self) -> u64 {
        self.start + self.filled as u64
    }
}

/// A change of size at its place in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub at: Position,
    pub size: PtySize,
}

/// Output and changes of size since some offset.
#[derive(Default)]
pub struct Ring {
    chunks: VecDeque<Chunk>,
    next: Position,
    marks: VecDeque<Mark>,
    /// Memory of former chunks: during a flood, taking fresh pages costs more than reading into them.
    spare: Vec<Box<[u8]>>,
}

impl Ring {
    /// The oldest offset that is kept.
    pub fn first(&self) -> u64 {
        self.chunks
            .front()
            .map_or(self.next.offset, |chunk| chunk.start)
    }

    /// The end of the stream so far.
    pub const fn next(&self) -> Position {
        self.next
    }

    /// Room for output to come, at least one byte.
    pub fn room(&mut self) -> &mut [u8] {
        let full = self
            .chunks
            .back()
            .is_none_or(|chunk| chunk.filled == chunk.bytes.len());
        if full {
            let bytes = self.spare.pop();
            self.chunks.push_back(Chunk {
                start: self.next.offset,
                filled: 0,
                bytes: bytes.unwrap_or_else(|| vec![0; HOLDER_CHUNK_LEN].into_boxed_slice()),
            });
        }
        match self.chunks.back_mut() {
            Some(chunk) => &mut chunk.bytes[chunk.filled..],
            None => &mut [],
        }
    }

    /// The first `length` bytes of the room are output now.
    pub fn filled(&mut self, length: usize) {
        if let Some(chunk) = self.chunks.back_mut() {
            let length = length.min(chunk.bytes.len() - chunk.filled);
            chunk.filled += length;
            self.next.offset += length as u64;
        }
    }

    /// The piece that starts at `from` and ends where its chunk or the stream ends; empty when nothing
    /// is there.
    pub fn piece(&self, from: u64) -> &[u8] {
        let at = self.chunks.partition_point(|chunk| chunk.end() <= from);
        self.chunks
            .get(at)
            .and_then(|chunk| {
                let skip = usize::try_from(from.checked_sub(chunk.start)?).ok()?;
                chunk.bytes.get(skip..chunk.filled)
            })
            .unwrap_or_default()
    }

    /// Lets go of whole chunks that end at or before `offset`.
    pub fn trim(&mut self, offset: u64) {
        while self
            .chunks
            .front()
            .is_some_and(|chunk| chunk.end() <= offset && chunk.filled == chunk.bytes.len())
        {
            let chunk = self.chunks.pop_front();
            self.spare.extend(chunk.map(|chunk| chunk.bytes));
        }
    }

    /// Gives spare memory back.
    pub fn release(&mut self) {
        self.spare = Vec::new();
        self.chunks.shrink_to_fit();
    }

    /// The size changes here; `None` when too many changes are kept already.
    pub fn mark(&mut self, size: PtySize) -> Option<Mark> {
        if self.marks.len() >= HOLDER_RESIZES_MAX {
            return None;
        }
        self.next.mark += 1;
        let mark = Mark {
            at: self.next,
            size,
        };
        self.marks.push_back(mark);
        Some(mark)
    }

    /// The first change of size after the one numbered `mark`.
    pub fn mark_after(&self, mark: u64) -> Option<&Mark> {
        let at = self.marks.partition_point(|kept| kept.at.mark <= mark);
        self.marks.get(at)
    }

    /// Lets go of changes up to the one numbered `mark`.
    pub fn trim_marks(&mut self, mark: u64) {
        while self.marks.front().is_some_and(|kept| kept.at.mark <= mark) {
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(ring: &mut Ring, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = ring.room();
            let length = room.len().min(bytes.len());
            room[..length].copy_from_slice(&bytes[..length]);
            ring.filled(length);
            bytes = &bytes[length..];
        }
    }

    fn all(ring: &Ring, mut from: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while from < ring.next().offset {
            let piece = ring.piece(from);
            bytes.extend_from_slice(piece);
            from += piece.len() as u64;
        }
        bytes
    }

    #[test]
    fn any_kept_offset_reads_on_to_the_end() {
        let mut ring = Ring::default();
        let bytes: Vec<u8> = (0..3 * HOLDER_CHUNK_LEN + 5)
            .map(|at| (at % 251) as u8)
            .collect();
        put(&mut ring, &bytes);
        for from in [
            0,
            1,
            HOLDER_CHUNK_LEN,
            2 * HOLDER_CHUNK_LEN + 7,
            bytes.len(),
        ] {
            assert_eq!(all(&ring, from as u64), &bytes[from..]);
        }
        ring.trim(HOLDER_CHUNK_LEN as u64 + 9);
        assert_eq!(ring.first(), HOLDER_CHUNK_LEN as u64);
        assert!(ring.piece(5).is_empty());
        assert_eq!(all(&ring, ring.first()), &bytes[HOLDER_CHUNK_LEN..]);
    }

    #[test]
    fn a_chunk_that_is_still_filled_is_not_let_go() {
        let mut ring = Ring::default();
        put(&mut ring, b"abc");
        ring.trim(3);
        put(&mut ring, b"def");
        assert_eq!(all(&ring, 0), b"abcdef");
    }

    #[test]
    fn memory_of_old_output_is_used_again_until_it_is_released() {
        let mut ring = Ring::default();
        let bytes = vec![7; 4 * HOLDER_CHUNK_LEN];
        put(&mut ring, &bytes);
        ring.trim(ring.next().offset);
        assert_eq!((ring.chunks.len(), ring.spare.len()), (0, 4));
        put(&mut ring, &[1, 2, 3]);
        assert_eq!(ring.spare.len(), 3);
        assert_eq!(all(&ring, ring.first()), [1, 2, 3]);
        ring.release();
        assert_eq!(ring.spare.capacity(), 0);
        assert_eq!(all(&ring, ring.first()), [1, 2, 3]);
    }

    #[test]
    fn changes_of_size_are_numbered_and_bounded() {
        let mut ring = Ring::default();
        let size = PtySize { cols: 80, rows: 24 };
        put(&mut ring, b"ab");
        let first = ring.mark(size).unwrap();
        let second = ring.mark(size).unwrap();
        assert_eq!((first.at.offset, first.at.mark, second.at.mark), (2, 1, 2));
        assert_eq!(ring.mark_after(1), Some(&second));
        ring.trim_marks(1);
        assert_eq!(ring.mark_after(0), Some(&second));
        for _ in 1..HOLDER_RESIZES_MAX {
            assert!(ring.mark(size).is_some());
        }
        assert!(ring.mark(size).is_none());
    }
}
