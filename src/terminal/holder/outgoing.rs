//! What goes to one agent: answers, a checkpoint, old output that it asked for, and the stream.
//!
//! Output is sent from where it lies in the ring; only its header is made. Order: a piece under way is
//! finished first, then answers go, then the next piece. So answers never cut a frame, and a change of size
//! stands in the stream where it happened.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use super::checkpoint::Transfer;
use super::protocol::{ErrorCode, FromHolder, OUTPUT_HEADER_LEN, Position, output_header};
use super::ring::Ring;
use crate::base::limits::{HOLDER_ANSWERS_LEN_MAX, HOLDER_CHUNK_LEN, HOLDER_FETCHES_MAX};
use crate::platform::pty::ProcessExit;

/// The end of a session's stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamEnd {
    pub offset: u64,
    pub exit: ProcessExit,
}

/// A piece of output under way.
struct Piece {
    header: [u8; OUTPUT_HEADER_LEN],
    from: u64,
    length: usize,
    /// Header and output bytes that went.
    sent: usize,
}

/// Everything that waits for one agent.
#[derive(Default)]
pub struct Outgoing {
    answers: Vec<u8>,
    answers_sent: usize,
    /// Where the stream goes on for this agent; `None` before it subscribes.
    cursor: Option<Position>,
    piece: Option<Piece>,
    transfer: Option<Transfer>,
    fetches: VecDeque<(u64, u64)>,
    exit_sent: bool,
}

/// What has become of a try to send all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    AllSent,
    /// The other end takes no more for now.
    Blocked,
}

impl Outgoing {
    pub fn answer(&mut self, frame: FromHolder<'_>) {
        frame.put(&mut self.answers);
    }

    pub fn error(&mut self, code: ErrorCode, text: &str) {
        self.answer(FromHolder::Error { code, text });
    }

    /// Sends the stream from here on.
    pub fn subscribe(&mut self, from: Position) {
        self.cursor = Some(from);
        self.exit_sent = false;
    }

    /// Sends a checkpoint before anything else of the stream.
    pub fn transfer(&mut self, transfer: Transfer) {
        self.transfer = Some(transfer);
    }

    /// Sends old output; refused when too many requests wait.
    pub fn fetch(&mut self, from: u64, length: u64) {
        if self.fetches.len() >= HOLDER_FETCHES_MAX {
            self.error(ErrorCode::Busy, "too many requests for output wait");
        } else {
            self.fetches.push_back((from, length));
        }
    }

    /// Whether the agent should take answers before it asks for more.
    pub fn is_full(&self) -> bool {
        self.answers.len() - self.answers_sent > HOLDER_ANSWERS_LEN_MAX
    }

    /// Output from here on must stay in the ring.
    pub fn needs_from(&self) -> Option<u64> {
        self.piece.as_ref().map(|piece| piece.from)
    }

    /// Sends all there is, as far as the other end takes it.
    pub fn pump(
        &mut self,
        ring: &Ring,
        end: Option<StreamEnd>,
        send: &mut dyn FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Pumped> {
        loop {
            if self.piece.is_none() {
                self.prepare(ring, end);
            }
            let answers = self.answers.get(self.answers_sent..).unwrap_or_default();
            let (header, output) = self.piece_rest(ring);
            let under_way = self.piece.as_ref().is_some_and(|piece| piece.sent > 0);
            let pieces = if under_way {
                [
                    IoSlice::new(header),
                    IoSlice::new(output),
                    IoSlice::new(&[]),
                ]
            } else {
                [
                    IoSlice::new(answers),
                    IoSlice::new(header),
                    IoSlice::new(output),
                ]
            };
            if pieces.iter().all(|piece| piece.is_empty()) {
                return Ok(Pumped::AllSent);
            }
            let sent = send(&pieces)?;
            if sent == 0 {
                return Ok(Pumped::Blocked);
            }
            self.went(sent, under_way);
        }
    }

    fn piece_rest<'a>(&'a self, ring: &'a Ring) -> (&'a [u8], &'a [u8]) {
        let Some(piece) = &self.piece else {
            return (&[], &[]);
        };
        let header = piece.header.get(piece.sent..).unwrap_or_default();
        let gone = piece.sent.saturating_sub(OUTPUT_HEADER_LEN);
        let output = ring.piece(piece.from + gone as u64);
        (
            header,
            output.get(..piece.length - gone).unwrap_or_default(),
        )
    }

    fn went(&mut self, mut sent: usize, under_way: bool) {
        if !under_way {
            let answers = sent.min(self.answers.len() - self.answers_sent);
            self.answers_sent += answers;
            sent -= answers;
            if self.answers_sent == self.answers.len() {
                self.answers_sent = 0;
                // A large answer's memory goes back.
                self.answers = Vec::new();
            }
        }
        if let Some(piece) = &mut self.piece {
            piece.sent += sent;
            if piece.sent >= OUTPUT_HEADER_LEN + piece.length {
                self.piece = None;
            }
        }
    }

    /// Makes what comes next ready, when there is anything.
    fn prepare(&mut self, ring: &Ring, end: Option<StreamEnd>) {
        if self.answers.is_empty() {
            if let Some(transfer) = &mut self.transfer {
                if !transfer.put_next(&mut self.answers) {
                    self.transfer = None;
                }
                return;
            }
            self.prepare_fetched(ring);
        }
        if self.transfer.is_none() {
            self.prepare_piece(ring, end);
        }
    }

    fn prepare_fetched(&mut self, ring: &Ring) {
        let Some((asked, length)) = self.fetches.pop_front() else {
            return;
        };
        // What is too old is left out, which the offset of the answer tells.
        let from = asked.max(ring.first());
        let length = length.saturating_sub(from - asked);
        let piece = ring.piece(from);
        let taken = usize::try_from(length).map_or(piece.len(), |length| piece.len().min(length));
        let left = length - taken as u64;
        let last = left == 0 || taken == 0;
        self.answer(FromHolder::Fetched {
            from,
            last,
            bytes: &piece[..taken],
        });
        if !last {
            self.fetches.push_front((from + taken as u64, left));
        }
    }

    fn prepare_piece(&mut self, ring: &Ring, end: Option<StreamEnd>) {
        let Some(cursor) = &mut self.cursor else {
            return;
        };
        cursor.offset = cursor.offset.max(ring.first());
        let mut limit = ring.next().offset;
        while let Some(mark) = ring.mark_after(cursor.mark) {
            if mark.at.offset > cursor.offset {
                limit = mark.at.offset;
                break;
            }
            cursor.mark = mark.at.mark;
            FromHolder::Resized {
                at: mark.at,
                size: mark.size,
            }
            .put(&mut self.answers);
        }
        let piece = ring.piece(cursor.offset);
        let until = usize::try_from(limit.saturating_sub(cursor.offset)).unwrap_or(usize::MAX);
        let length = piece.len().min(until).min(HOLDER_CHUNK_LEN);
        if length > 0 {
            self.piece = Some(Piece {
                header: output_header(cursor.offset, length),
                from: cursor.offset,
                length,
                sent: 0,
            });
            cursor.offset += length as u64;
        } else if let Some(end) = end
            && !self.exit_sent
        {
            self.exit_sent = true;
            FromHolder::Exit {
                offset: end.offset,
                exit: end.exit,
            }
            .put(&mut self.answers);
        }
    }
}
