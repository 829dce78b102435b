//! What an agent has stored of a session's screen, and the one being stored.
//!
//! ```text
//! begin ─▶ parts and blocks, in any order ─▶ commit: replaces the former one
//!   └────────── connection lost, or anything that does not fit: the former one stays
//! ```

use std::collections::VecDeque;
use std::rc::Rc;

use super::protocol::{FromHolder, PART_LEN, Position};
use crate::base::limits::{HOLDER_HISTORY_LEN_MAX, HOLDER_SCREEN_LEN_MAX};

/// One block of history. The agent numbers them, rising.
#[derive(Clone, Debug)]
struct Block {
    id: u64,
    bytes: Rc<[u8]>,
}

/// A stored screen with its history.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    pub at: Position,
    screen: Rc<[u8]>,
    history: VecDeque<Block>,
}

/// A checkpoint that is being taken in.
#[derive(Debug)]
pub struct Incoming {
    at: Position,
    screen_len: usize,
    keep_from: u64,
    screen: Vec<u8>,
    blocks: VecDeque<Block>,
    blocks_len: u64,
}

/// Why a checkpoint is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("no checkpoint was begun")]
    NotBegun,
    #[error("the checkpoint is not between the former one and the end of the stream")]
    OutOfPlace,
    #[error("the screen is longer than {HOLDER_SCREEN_LEN_MAX} bytes or than was announced")]
    ScreenTooLong,
    #[error("the screen is shorter than was announced")]
    ScreenCut,
    #[error("the history is longer than {HOLDER_HISTORY_LEN_MAX} bytes")]
    HistoryTooLong,
    #[error("the numbers of blocks do not rise")]
    BlockOutOfOrder,
}

impl Checkpoint {
    pub fn screen_len(&self) -> u64 {
        self.screen.len() as u64
    }

    /// Begins the next one. It may not lie before this one nor after `next`.
    pub fn begin(
        &self,
        at: Position,
        screen_len: u64,
        keep_from: u64,
        next: Position,
    ) -> Result<Incoming, Refused> {
        let after_former = at.offset >= self.at.offset && at.mark >= self.at.mark;
        if !after_former || at.offset > next.offset || at.mark > next.mark {
            return Err(Refused::OutOfPlace);
        }
        if screen_len > HOLDER_SCREEN_LEN_MAX {
            return Err(Refused::ScreenTooLong);
        }
        let screen_len = usize::try_from(screen_len).map_err(|_| Refused::ScreenTooLong)?;
        Ok(Incoming {
            at,
            screen_len,
            keep_from,
            screen: Vec::with_capacity(screen_len),
            blocks: VecDeque::new(),
            blocks_len: 0,
        })
    }

    /// Takes the place of this one what has come in.
    pub fn commit(&mut self, incoming: Incoming) -> Result<(), Refused> {
        if incoming.screen.len() != incoming.screen_len {
            return Err(Refused::ScreenCut);
        }
        let kept = self
            .history
            .partition_point(|block| block.id < incoming.keep_from);
        let last = self.history.iter().skip(kept).last().map(|block| block.id);
        if let (Some(last), Some(first)) = (last, incoming.blocks.front())
            && first.id <= last
        {
            return Err(Refused::BlockOutOfOrder);
        }
        let blocks = self.history.iter().skip(kept).chain(&incoming.blocks);
        if blocks.map(|block| block.bytes.len() as u64).sum::<u64>() > HOLDER_HISTORY_LEN_MAX {
            return Err(Refused::HistoryTooLong);
        }
        self.history.drain(..kept);
        self.history.extend(incoming.blocks);
        self.history.shrink_to_fit();
        self.screen = incoming.screen.into();
        self.at = incoming.at;
        Ok(())
    }
}

impl Incoming {
    pub fn screen(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        if self.screen.len() + bytes.len() > self.screen_len {
            return Err(Refused::ScreenTooLong);
        }
        self.screen.extend_from_slice(bytes);
        Ok(())
    }

    pub fn block(&mut self, id: u64, bytes: &[u8]) -> Result<(), Refused> {
        if self.blocks.back().is_some_and(|last| last.id >= id) {
            return Err(Refused::BlockOutOfOrder);
        }
        self.blocks_len += bytes.len() as u64;
        if self.blocks_len > HOLDER_HISTORY_LEN_MAX {
            return Err(Refused::HistoryTooLong);
        }
        self.blocks.push_back(Block {
            id,
            bytes: bytes.into(),
        });
        Ok(())
    }
}

/// A checkpoint on its way out, frame by frame; a later commit does not disturb it.
#[derive(Debug)]
pub struct Transfer {
    checkpoint: Checkpoint,
    begun: bool,
    screen_sent: usize,
}

impl Transfer {
    pub const fn new(checkpoint: Checkpoint) -> Self {
        Self {
            checkpoint,
            begun: false,
            screen_sent: 0,
        }
    }

    /// Appends the next frame; `false` once the last one was appended.
    pub fn put_next(&mut self, out: &mut Vec<u8>) -> bool {
        let checkpoint = &mut self.checkpoint;
        if !self.begun {
            self.begun = true;
            FromHolder::CheckpointBegin {
                at: checkpoint.at,
                screen_len: checkpoint.screen_len(),
            }
            .put(out);
        } else if let Some(rest) = checkpoint.screen.get(self.screen_sent..)
            && !rest.is_empty()
        {
            let part = &rest[..rest.len().min(PART_LEN)];
            self.screen_sent += part.len();
            FromHolder::CheckpointScreen(part).put(out);
        } else if let Some(block) = checkpoint.history.pop_front() {
            FromHolder::CheckpointBlock {
                id: block.id,
                bytes: &block.bytes,
            }
            .put(out);
        } else {
            FromHolder::CheckpointEnd.put(out);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Position {
        Position { offset, mark: 0 }
    }

    fn sent(checkpoint: &Checkpoint) -> (Vec<u8>, Vec<u64>) {
        let (mut out, mut screen, mut ids) = (Vec::new(), Vec::new(), Vec::new());
        let mut transfer = Transfer::new(checkpoint.clone());
        while transfer.put_next(&mut out) {}
        let mut rest = out.as_slice();
        while let Some(raw) = super::super::protocol::cut(rest).unwrap() {
            match super::super::protocol::from_holder(raw).unwrap() {
                FromHolder::CheckpointScreen(bytes) => screen.extend_from_slice(bytes),
                FromHolder::CheckpointBlock { id, .. } => ids.push(id),
                _ => {}
            }
            rest = &rest[raw.body.len() + 5..];
        }
        (screen, ids)
    }

    #[test]
    fn history_grows_and_is_cut_from_its_start() {
        let mut checkpoint = Checkpoint::default();
        let mut first = checkpoint.begin(at(5), 3, 0, at(9)).unwrap();
        first.block(1, b"one").unwrap();
        first.block(2, b"two").unwrap();
        first.screen(b"abc").unwrap();
        checkpoint.commit(first).unwrap();
        let mut second = checkpoint.begin(at(7), 2, 2, at(9)).unwrap();
        second.screen(b"de").unwrap();
        second.block(3, b"three").unwrap();
        checkpoint.commit(second).unwrap();
        assert_eq!(sent(&checkpoint), (b"de".to_vec(), vec![2, 3]));
    }

    #[test]
    fn what_does_not_fit_leaves_the_former_one() {
        let mut checkpoint = Checkpoint::default();
        let mut first = checkpoint.begin(at(5), 1, 0, at(9)).unwrap();
        first.screen(b"x").unwrap();
        first.block(4, b"four").unwrap();
        checkpoint.commit(first).unwrap();
        let begin = |offset| checkpoint.begin(at(offset), 1, 0, at(9)).map(drop);
        assert_eq!(begin(4), Err(Refused::OutOfPlace));
        assert_eq!(begin(10), Err(Refused::OutOfPlace));
        let cut = checkpoint.begin(at(6), 1, 0, at(9)).unwrap();
        assert_eq!(checkpoint.commit(cut), Err(Refused::ScreenCut));
        let mut again = checkpoint.begin(at(6), 1, 0, at(9)).unwrap();
        again.screen(b"y").unwrap();
        assert_eq!(again.screen(b"z"), Err(Refused::ScreenTooLong));
        again.block(4, b"again").unwrap();
        assert_eq!(checkpoint.commit(again), Err(Refused::BlockOutOfOrder));
        assert_eq!(sent(&checkpoint), (b"x".to_vec(), vec![4]));
    }
}
