//! Byte channels of a link, protocol 2: credit, order, and fair turns between them.
//!
//! ```text
//! Data frame:  reserved = channel, seq = counts this channel's frames
//!   0     1
//!   |kind | bytes …        kind 0: bytes;  at most 32 KiB
//! ```
//!
//! The body, kind byte included, costs credit: 32 KiB at first; the reader gives more by
//! `channel.credit` as it drains. A writer without credit waits, which stops its own channel alone.
//! Ids are odd when the connecting side opened the channel, even when the accepting side did.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::{Semaphore, mpsc};

use super::codes::{Code, Fault};
use super::frame::{Frame, FrameType};
use super::link::{ChannelClose, Message};
use crate::base::limits;

/// The kind byte of plain bytes.
const KIND_BYTES: u8 = 0;
/// Bytes of a frame that are not its kind: with it they fit into the first credit.
const CHUNK_LEN_MAX: usize = limits::CHANNEL_CREDIT_FIRST - 1;
/// The reason of a regular end.
pub(super) const DONE: &str = "done";

/// How much a reader lets its writer have under way.
///
/// The window follows the drain that was measured since the last grant: what drains in 250 ms, at
/// most twice the last window, never below the first nor above the largest credit.
#[derive(Debug)]
pub(super) struct CreditWindow {
    window: usize,
    consumed: usize,
    since: Duration,
}

impl CreditWindow {
    /// `now` is any steadily growing time.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            window: limits::CHANNEL_CREDIT_FIRST,
            consumed: 0,
            since: now,
        }
    }

    /// Notes bytes taken by the reader's owner; answers the credit to give, once half the window is
    /// used up.
    pub(super) fn consume(&mut self, bytes: usize, now: Duration) -> Option<usize> {
        self.consumed += bytes;
        if self.consumed < self.window / 2 {
            return None;
        }
        let elapsed_us = now.saturating_sub(self.since).as_micros().max(1);
        let drained =
            self.consumed as u128 * u128::from(limits::CHANNEL_DRAIN_MAX_MS) * 1000 / elapsed_us;
        let target = usize::try_from(drained)
            .unwrap_or(usize::MAX)
            .min(self.window * 2)
            .clamp(limits::CHANNEL_CREDIT_FIRST, limits::CHANNEL_CREDIT_MAX);
        let grant = (target + self.consumed).saturating_sub(self.window);
        if grant == 0 {
            // The window shrinks: what is owed stays counted until it covers the difference.
            return None;
        }
        self.since = now;
        self.consumed = 0;
        self.window = target;
        Some(grant)
    }
}

/// The receiving ends by channel id.
#[derive(Debug, Default)]
pub(super) struct Inlets {
    open: HashMap<u32, Inlet>,
}

#[derive(Debug)]
struct Inlet {
    /// Unbounded in count, bounded in bytes by the credit.
    sender: mpsc::UnboundedSender<Bytes>,
    credit: usize,
    next_sequence: u32,
}

impl Inlets {
    /// Opens the receiving end of `channel`.
    pub(super) fn open(&mut self, channel: u32) -> Result<mpsc::UnboundedReceiver<Bytes>, Fault> {
        if self.open.len() >= limits::CHANNELS_OPEN_MAX {
            return Err(Fault::new(
                Code::TooManyChannels,
                "too many channels are open on this link",
            ));
        }
        if self.open.contains_key(&channel) {
            return Err(Fault::new(
                Code::ChannelInvalid,
                format!("channel {channel} is open already"),
            ));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        self.open.insert(
            channel,
            Inlet {
                sender,
                credit: limits::CHANNEL_CREDIT_FIRST,
                next_sequence: 0,
            },
        );
        Ok(receiver)
    }

    /// Takes in a Data frame. `Ok(false)`: no such channel, as after a close that crossed it.
    pub(super) fn accept(&mut self, frame: &Frame) -> Result<bool, Fault> {
        let Some(inlet) = self.open.get_mut(&frame.channel) else {
            return Ok(false);
        };
        let verdict = inlet.judge(frame);
        if verdict.is_err() {
            self.open.remove(&frame.channel);
        }
        verdict.map(|()| true)
    }

    /// Adds to a channel's credit, as was told to its writer.
    pub(super) fn grant(&mut self, channel: u32, bytes: usize) {
        if let Some(inlet) = self.open.get_mut(&channel) {
            inlet.credit += bytes;
        }
    }

    /// Forgets a channel; answers whether it was open.
    pub(super) fn close(&mut self, channel: u32) -> bool {
        self.open.remove(&channel).is_some()
    }
}

impl Inlet {
    fn judge(&mut self, frame: &Frame) -> Result<(), Fault> {
        let invalid = |why: &str| {
            Fault::new(
                Code::ChannelInvalid,
                format!("channel {}: {why}", frame.channel),
            )
        };
        if frame.sequence != self.next_sequence {
            return Err(invalid("a frame is out of order"));
        }
        if frame.body.len() > self.credit {
            return Err(invalid("the credit is used up"));
        }
        if frame.body.first() != Some(&KIND_BYTES) {
            return Err(invalid("a frame is of no known kind"));
        }
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.credit -= frame.body.len();
        // A reader that has gone says so by `channel.close`; until that arrives bytes go nowhere.
        let _ = self.sender.send(frame.body.slice(1..));
        Ok(())
    }
}

/// The sending ends, with what each has queued; at most its credit.
#[derive(Debug, Default)]
pub(super) struct Outlets {
    credits: HashMap<u32, Arc<Semaphore>>,
    /// Channels with frames to send, in turn.
    turns: VecDeque<(u32, VecDeque<Frame>)>,
}

impl Outlets {
    /// Opens the sending end of `channel`; the semaphore counts its credit in bytes.
    pub(super) fn open(&mut self, channel: u32) -> Result<Arc<Semaphore>, Fault> {
        if self.credits.len() >= limits::CHANNELS_OPEN_MAX {
            return Err(Fault::new(
                Code::TooManyChannels,
                "too many channels are open on this link",
            ));
        }
        let credit = Arc::new(Semaphore::new(limits::CHANNEL_CREDIT_FIRST));
        self.credits.insert(channel, Arc::clone(&credit));
        Ok(credit)
    }

    /// Queues a frame of a channel that is open; answers whether it is.
    pub(super) fn push(&mut self, channel: u32, frame: Frame) -> bool {
        if !self.credits.contains_key(&channel) {
            return false;
        }
        match self.turns.iter_mut().find(|(id, _)| *id == channel) {
            Some((_, frames)) => frames.push_back(frame),
            None => self.turns.push_back((channel, VecDeque::from([frame]))),
        }
        true
    }

    /// The next frame in turn: one from each channel that has any, round robin.
    pub(super) fn pop(&mut self) -> Option<Frame> {
        let (channel, mut frames) = self.turns.pop_front()?;
        let frame = frames.pop_front();
        if !frames.is_empty() {
            self.turns.push_back((channel, frames));
        }
        frame
    }

    /// Adds credit that the reader gave; more than the largest credit is cut to it.
    pub(super) fn grant(&self, channel: u32, bytes: usize) {
        if let Some(credit) = self.credits.get(&channel) {
            let room = limits::CHANNEL_CREDIT_MAX.saturating_sub(credit.available_permits());
            credit.add_permits(bytes.min(room));
        }
    }

    /// The reader wants no more: drops what is queued and wakes the writer. Answers whether the
    /// channel was open.
    pub(super) fn abort(&mut self, channel: u32) -> bool {
        self.turns.retain(|(id, _)| *id != channel);
        match self.credits.remove(&channel) {
            Some(credit) => {
                credit.close();
                true
            }
            None => false,
        }
    }

    /// The writer is done: its close follows the bytes in their own queue.
    pub(super) fn finish(&mut self, channel: u32, reason: &str) -> Result<(), Fault> {
        let body = ChannelClose {
            channel,
            reason: reason.to_owned(),
        }
        .to_body()?;
        self.push(channel, Frame::new(FrameType::Notify, 0, body));
        self.credits.remove(&channel);
        Ok(())
    }

    /// The link is gone: wakes every writer.
    pub(super) fn close_all(&mut self) {
        self.turns.clear();
        for (_, credit) in self.credits.drain() {
            credit.close();
        }
    }
}

/// Cuts bytes into the bodies of Data frames.
pub(super) fn chunks(bytes: &Bytes) -> impl Iterator<Item = Bytes> + '_ {
    bytes.chunks(CHUNK_LEN_MAX).map(|part| {
        let mut body = BytesMut::with_capacity(part.len() + 1);
        body.put_u8(KIND_BYTES);
        body.put_slice(part);
        body.freeze()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(channel: u32, sequence: u32, bytes: &[u8]) -> Frame {
        let mut body = vec![KIND_BYTES];
        body.extend_from_slice(bytes);
        Frame {
            frame_type: FrameType::Data,
            sequence,
            channel,
            body: body.into(),
        }
    }

    #[test]
    fn channels_take_turns() {
        let mut outlets = Outlets::default();
        for channel in [1, 2] {
            outlets.open(channel).unwrap();
        }
        for sequence in 0..3 {
            outlets.push(1, data(1, sequence, b"a"));
        }
        outlets.push(2, data(2, 0, b"b"));
        let order: Vec<u32> = std::iter::from_fn(|| outlets.pop())
            .map(|frame| frame.channel)
            .collect();
        assert_eq!(order, [1, 2, 1, 1]);
    }

    #[test]
    fn writer_beyond_its_credit_loses_its_channel_alone() {
        let mut inlets = Inlets::default();
        let _first = inlets.open(1).unwrap();
        let mut second = inlets.open(3).unwrap();
        let chunk = vec![0; 32 * 1024 - 1];
        assert_eq!(inlets.accept(&data(1, 0, &chunk)), Ok(true));
        let fault = inlets.accept(&data(1, 1, b"x")).unwrap_err();
        assert_eq!(fault.code, Code::ChannelInvalid);
        assert_eq!(inlets.accept(&data(1, 2, b"x")), Ok(false));
        assert_eq!(inlets.accept(&data(3, 0, b"x")), Ok(true));
        assert_eq!(second.try_recv().unwrap(), &b"x"[..]);
    }

    #[test]
    fn frames_out_of_order_or_of_unknown_kind_are_refused() {
        let mut inlets = Inlets::default();
        let _one = inlets.open(1).unwrap();
        assert!(inlets.accept(&data(1, 1, b"x")).is_err());
        let _three = inlets.open(3).unwrap();
        let mut unknown = data(3, 0, b"x");
        unknown.body = Bytes::from_static(b"\x09x");
        assert!(inlets.accept(&unknown).is_err());
        let _five = inlets.open(5).unwrap();
        let mut empty = data(5, 0, b"");
        empty.body = Bytes::new();
        assert!(inlets.accept(&empty).is_err());
    }

    #[test]
    fn fast_drain_grows_the_window_to_its_bound_and_slow_drain_does_not() {
        let mut fast = CreditWindow::new(Duration::ZERO);
        let mut slow = CreditWindow::new(Duration::ZERO);
        for step in 1..2_000u64 {
            fast.consume(32 * 1024, Duration::from_millis(step));
            slow.consume(1024, Duration::from_millis(step * 100));
        }
        assert_eq!(fast.window, limits::CHANNEL_CREDIT_MAX);
        assert_eq!(slow.window, limits::CHANNEL_CREDIT_FIRST);
    }

    proptest! {
        #[test]
        fn credit_under_way_never_passes_the_largest_and_never_dries_up(
            steps in prop::collection::vec((1usize..40_000, 0u64..400), 1..300),
        ) {
            let mut window = CreditWindow::new(Duration::ZERO);
            let mut credit = limits::CHANNEL_CREDIT_FIRST;
            let mut now = Duration::ZERO;
            for (bytes, wait_ms) in steps {
                now += Duration::from_millis(wait_ms);
                let bytes = bytes.min(credit);
                credit -= bytes;
                credit += window.consume(bytes, now).unwrap_or(0);
                prop_assert!(credit <= limits::CHANNEL_CREDIT_MAX);
                prop_assert!(credit > 0, "the writer could never go on");
            }
        }
    }
}
