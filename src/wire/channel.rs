//! Byte channels of a wire, protocol 2 and local IPC: credit, order, and fair turns between them.
//!
//! ```text
//! Data frame of the link:  reserved = channel, seq = counts this channel's frames of one direction
//!   0     1
//!   |kind | bytes …        kind 0 bytes, 1 control JSON, 2 snapshot, 3 screen;  at most 32 KiB
//! ```
//!
//! The body, kind byte included, costs credit: 32 KiB at first; the reader gives more by
//! `channel.credit` as it drains. A writer without credit waits, which stops its own channel alone.
//! An answer's bytes go one way and are of kind 0; a stream goes both ways under one id. On the link
//! ids are odd when the connecting side opened the channel, even when the accepting side did.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::codes::{Code, Fault};
use super::stream::{Piece, PieceKind};
use crate::base::limits;

/// Bytes of a frame that are not its kind: with it they fit into the first credit.
const CHUNK_LEN_MAX: usize = limits::CHANNEL_CREDIT_FIRST - 1;
/// The reason of a regular end.
pub(crate) const DONE: &str = "done";

/// How much a reader lets its writer have under way.
///
/// The window follows the drain that was measured since the last grant: what drains in 250 ms, at
/// most twice the last window, never below the first nor above the largest credit.
#[derive(Debug)]
pub(crate) struct CreditWindow {
    window: usize,
    consumed: usize,
    since: Duration,
}

impl CreditWindow {
    /// `now` is any steadily growing time.
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            window: limits::CHANNEL_CREDIT_FIRST,
            consumed: 0,
            since: now,
        }
    }

    /// Notes bytes taken by the reader's owner; answers the credit to give, once half the window is
    /// used up.
    pub(crate) fn consume(&mut self, bytes: usize, now: Duration) -> Option<usize> {
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

/// What a reader expects of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// The bytes of an answer.
    Blob,
    /// Pieces of every kind.
    Stream,
}

/// The receiving ends by channel id.
#[derive(Debug, Default)]
struct Inlets {
    open: HashMap<u32, Inlet>,
}

#[derive(Debug)]
struct Inlet {
    /// Unbounded in count, bounded in bytes by the credit.
    sender: mpsc::UnboundedSender<Piece>,
    carries: Carries,
    credit: usize,
    next_sequence: u32,
}

impl Inlets {
    fn open(
        &mut self,
        channel: u32,
        carries: Carries,
    ) -> Result<mpsc::UnboundedReceiver<Piece>, Fault> {
        if self.open.len() >= limits::CHANNELS_OPEN_MAX {
            return Err(too_many());
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
                carries,
                credit: limits::CHANNEL_CREDIT_FIRST,
                next_sequence: 0,
            },
        );
        Ok(receiver)
    }

    /// Takes in a Data frame; one of a channel that is not open, as after a close that crossed it, is
    /// dropped. A frame that breaks the rules ends its channel.
    fn accept(
        &mut self,
        channel: u32,
        sequence: Option<u32>,
        kind: Option<u8>,
        body: Bytes,
    ) -> Result<(), Fault> {
        let Some(inlet) = self.open.get_mut(&channel) else {
            return Ok(());
        };
        let verdict = inlet.judge(channel, sequence, kind, body);
        if verdict.is_err() {
            self.open.remove(&channel);
        }
        verdict
    }
}

impl Inlet {
    fn judge(
        &mut self,
        channel: u32,
        sequence: Option<u32>,
        kind: Option<u8>,
        body: Bytes,
    ) -> Result<(), Fault> {
        let invalid =
            |why: &str| Fault::new(Code::ChannelInvalid, format!("channel {channel}: {why}"));
        if sequence.is_some_and(|sequence| sequence != self.next_sequence) {
            return Err(invalid("a frame is out of order"));
        }
        let kind = kind
            .and_then(PieceKind::of_byte)
            .filter(|kind| self.carries == Carries::Stream || *kind == PieceKind::Bytes)
            .ok_or_else(|| invalid("a frame is of no known kind"))?;
        let cost = body.len() + 1;
        if cost > self.credit {
            return Err(invalid("the credit is used up"));
        }
        self.next_sequence = self.next_sequence.wrapping_add(1);
        self.credit -= cost;
        // Nobody may be listening any more; then the close is on its way.
        let _ = self.sender.send(Piece { kind, body });
        Ok(())
    }
}

/// What the writer has to send for a channel.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Data {
        channel: u32,
        /// Counts the channel's frames.
        sequence: u32,
        piece: Piece,
    },
    /// More credit for the other side.
    Credit {
        channel: u32,
        bytes: usize,
    },
    Close {
        channel: u32,
        reason: &'static str,
    },
}

/// The credit of one sending end, in bytes.
#[derive(Debug)]
pub(crate) struct Credit {
    bytes: Semaphore,
    /// Fires when the other side wants no more, or the wire has ended.
    pub closed: CancellationToken,
}

/// The sending ends, with what each has queued; at most its credit.
#[derive(Debug, Default)]
struct Outlets {
    credits: HashMap<u32, Arc<Credit>>,
    /// Channels with frames to send, in turn.
    turns: VecDeque<(u32, VecDeque<Outgoing>)>,
    /// Grants and closes that wait for no turn. At most one grant for each channel.
    signals: VecDeque<Outgoing>,
}

impl Outlets {
    fn open(&mut self, channel: u32) -> Result<Arc<Credit>, Fault> {
        if self.credits.len() >= limits::CHANNELS_OPEN_MAX {
            return Err(too_many());
        }
        let credit = Arc::new(Credit {
            bytes: Semaphore::new(limits::CHANNEL_CREDIT_FIRST),
            closed: CancellationToken::new(),
        });
        self.credits.insert(channel, Arc::clone(&credit));
        Ok(credit)
    }

    /// Queues for a channel that is open.
    fn push(&mut self, channel: u32, item: Outgoing) {
        if !self.credits.contains_key(&channel) {
            return;
        }
        match self.turns.iter_mut().find(|(id, _)| *id == channel) {
            Some((_, items)) => items.push_back(item),
            None => self.turns.push_back((channel, VecDeque::from([item]))),
        }
    }

    fn signal(&mut self, signal: Outgoing) {
        if let Outgoing::Credit { channel, bytes } = &signal {
            for waiting in &mut self.signals {
                match waiting {
                    Outgoing::Credit {
                        channel: id,
                        bytes: sum,
                    } if id == channel => {
                        *sum += bytes;
                        return;
                    }
                    _ => {}
                }
            }
        }
        self.signals.push_back(signal);
    }

    /// The next one: signals first, then one from each channel that has any, round robin.
    fn pop(&mut self) -> Option<Outgoing> {
        if let Some(signal) = self.signals.pop_front() {
            return Some(signal);
        }
        let (channel, mut items) = self.turns.pop_front()?;
        let item = items.pop_front();
        if !items.is_empty() {
            self.turns.push_back((channel, items));
        }
        item
    }

    /// Adds credit that the reader gave; more than the largest credit is cut to it.
    fn grant(&self, channel: u32, bytes: usize) {
        if let Some(credit) = self.credits.get(&channel) {
            let room = limits::CHANNEL_CREDIT_MAX.saturating_sub(credit.bytes.available_permits());
            credit.bytes.add_permits(bytes.min(room));
        }
    }

    /// Drops what is queued and wakes the writer; what a finished channel has queued stays. Answers
    /// whether the channel was open.
    fn abort(&mut self, channel: u32) -> bool {
        match self.credits.remove(&channel) {
            Some(credit) => {
                credit.end();
                self.turns.retain(|(id, _)| *id != channel);
                true
            }
            None => false,
        }
    }
}

impl Credit {
    /// Pays for a frame of `least` to `wanted` bytes and its kind byte: answers how many the credit
    /// allows. `None` when the channel has closed.
    pub async fn pay(&self, least: usize, wanted: usize) -> Option<usize> {
        // INVARIANT: a frame is far below u32::MAX.
        let permits = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let paid = self.bytes.acquire_many(permits(least + 1)).await;
        paid.ok()?.forget();
        // Nobody else takes of this credit, so what is there stays there.
        let there = self.bytes.available_permits();
        let more = wanted.min(CHUNK_LEN_MAX).saturating_sub(least).min(there);
        self.bytes.try_acquire_many(permits(more)).ok()?.forget();
        Some(least + more)
    }

    fn end(&self) {
        self.bytes.close();
        self.closed.cancel();
    }
}

fn too_many() -> Fault {
    Fault::new(
        Code::TooManyChannels,
        "too many channels are open on this connection",
    )
}

/// All channels of one connection. The connection's reader feeds it, its writer empties it.
#[derive(Debug)]
pub(crate) struct Channels {
    inlets: Mutex<Inlets>,
    outlets: Mutex<Outlets>,
    /// Wakes the connection's writer when there is something to send.
    pub turns: Notify,
    started: Instant,
}

impl Default for Channels {
    fn default() -> Self {
        Self {
            inlets: Mutex::default(),
            outlets: Mutex::default(),
            turns: Notify::new(),
            started: Instant::now(),
        }
    }
}

/// No lock here is held while anything can panic, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channels {
    /// A steadily growing time for credit windows.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Opens the receiving end of a channel: `too_many_channels`, or `channel_invalid` for an id that
    /// is in use.
    pub fn open_inlet(
        &self,
        channel: u32,
        carries: Carries,
    ) -> Result<mpsc::UnboundedReceiver<Piece>, Fault> {
        lock(&self.inlets).open(channel, carries)
    }

    /// Opens the sending end of a channel; `too_many_channels` at the bound.
    pub fn open_outlet(&self, channel: u32) -> Result<Arc<Credit>, Fault> {
        lock(&self.outlets).open(channel)
    }

    /// Takes in a Data frame. One that breaks the rules ends its channel, which the other side is
    /// told, and nothing else.
    pub fn accept(&self, channel: u32, sequence: Option<u32>, kind: Option<u8>, body: Bytes) {
        let accepted = lock(&self.inlets).accept(channel, sequence, kind, body);
        if let Err(fault) = accepted {
            tracing::warn!(%fault, "closing a channel");
            let mut outlets = lock(&self.outlets);
            outlets.abort(channel);
            outlets.signal(Outgoing::Close {
                channel,
                reason: Code::ChannelInvalid.as_str(),
            });
            drop(outlets);
            self.turns.notify_one();
        }
    }

    /// The other side gave credit.
    pub fn granted(&self, channel: u32, bytes: usize) {
        lock(&self.outlets).grant(channel, bytes);
    }

    /// The other side closed the channel. What has arrived before can still be taken.
    pub fn closed(&self, channel: u32) {
        lock(&self.outlets).abort(channel);
        lock(&self.inlets).open.remove(&channel);
    }

    /// Gives the other side credit.
    pub fn give_credit(&self, channel: u32, bytes: usize) {
        match lock(&self.inlets).open.get_mut(&channel) {
            Some(inlet) => inlet.credit += bytes,
            None => return,
        }
        lock(&self.outlets).signal(Outgoing::Credit { channel, bytes });
        self.turns.notify_one();
    }

    /// Queues a frame of a channel that is open; its credit was paid.
    pub fn push(&self, channel: u32, sequence: u32, piece: Piece) {
        let item = Outgoing::Data {
            channel,
            sequence,
            piece,
        };
        lock(&self.outlets).push(channel, item);
        self.turns.notify_one();
    }

    /// The writing end is done: the close follows what is queued, and nothing more is taken in.
    pub fn finish(&self, channel: u32) {
        let mut outlets = lock(&self.outlets);
        let close = Outgoing::Close {
            channel,
            reason: DONE,
        };
        outlets.push(channel, close);
        outlets.credits.remove(&channel);
        drop(outlets);
        lock(&self.inlets).open.remove(&channel);
        self.turns.notify_one();
    }

    /// Nothing more of this channel is taken in; its other direction goes on.
    pub fn stop_reading(&self, channel: u32) {
        lock(&self.inlets).open.remove(&channel);
    }

    /// Ends a channel at once, both directions; quiet when it has ended already.
    pub fn refuse(&self, channel: u32, reason: &'static str) {
        let read = lock(&self.inlets).open.remove(&channel).is_some();
        let mut outlets = lock(&self.outlets);
        if outlets.abort(channel) || read {
            outlets.signal(Outgoing::Close { channel, reason });
            drop(outlets);
            self.turns.notify_one();
        }
    }

    /// The next thing to send.
    pub fn pop(&self) -> Option<Outgoing> {
        lock(&self.outlets).pop()
    }

    /// The connection is gone: wakes every writer and ends every reader.
    pub fn end(&self) {
        let mut outlets = lock(&self.outlets);
        outlets.turns.clear();
        outlets.signals.clear();
        for (_, credit) in outlets.credits.drain() {
            credit.end();
        }
        drop(outlets);
        lock(&self.inlets).open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn channels(ids: &[u32]) -> (Channels, Vec<mpsc::UnboundedReceiver<Piece>>) {
        let channels = Channels::default();
        let open = |id: &u32| channels.open_inlet(*id, Carries::Stream).unwrap();
        let readers = ids.iter().map(open).collect();
        (channels, readers)
    }

    fn order(channels: &Channels) -> Vec<String> {
        std::iter::from_fn(|| channels.pop())
            .map(|item| match item {
                Outgoing::Data {
                    channel, sequence, ..
                } => format!("{channel}#{sequence}"),
                Outgoing::Credit { channel, bytes } => format!("{channel}+{bytes}"),
                Outgoing::Close { channel, reason } => format!("{channel} {reason}"),
            })
            .collect()
    }

    #[test]
    fn channels_take_turns_and_signals_go_first() {
        let (channels, _readers) = channels(&[1]);
        for channel in [1, 2] {
            channels.open_outlet(channel).unwrap();
        }
        let piece = || Piece::new(PieceKind::Bytes, &b"a"[..]);
        for sequence in 0..3 {
            channels.push(1, sequence, piece());
        }
        channels.push(2, 0, piece());
        channels.finish(2);
        channels.give_credit(1, 5);
        channels.give_credit(1, 6);
        channels.push(2, 1, piece());
        assert_eq!(
            order(&channels),
            ["1+11", "1#0", "2#0", "1#1", "2 done", "1#2"]
        );
    }

    #[test]
    fn writer_beyond_its_credit_loses_its_channel_alone() {
        let (channels, mut readers) = channels(&[1, 3]);
        let chunk = Bytes::from(vec![0; CHUNK_LEN_MAX]);
        let x = Bytes::from_static(b"x");
        channels.accept(1, Some(0), Some(0), chunk.clone());
        channels.accept(1, Some(1), Some(0), x.clone());
        assert_eq!(order(&channels), ["1 channel_invalid"]);
        channels.accept(1, Some(2), Some(0), x.clone());
        channels.accept(3, Some(0), Some(3), x.clone());
        assert_eq!(order(&channels), [""; 0]);
        assert_eq!(readers[1].try_recv().unwrap().kind, PieceKind::Screen);
        assert_eq!(readers[0].try_recv().unwrap().body, chunk);
        assert!(readers[0].try_recv().is_err());
    }

    #[test]
    fn frames_out_of_order_or_of_unknown_kind_are_refused() {
        let (channels, _readers) = channels(&[1, 3, 5]);
        let _blob = channels.open_inlet(7, Carries::Blob).unwrap();
        let x = Bytes::from_static(b"x");
        channels.accept(1, Some(1), Some(0), x.clone());
        channels.accept(3, Some(0), Some(9), x.clone());
        channels.accept(5, Some(0), None, Bytes::new());
        channels.accept(7, Some(0), Some(2), x);
        let refused = [1, 3, 5, 7].map(|channel| format!("{channel} channel_invalid"));
        assert_eq!(order(&channels), refused);
    }

    #[test]
    fn closed_channel_wakes_its_writer_and_takes_nothing_more() {
        let (channels, mut readers) = channels(&[1]);
        let credit = channels.open_outlet(1).unwrap();
        channels.push(1, 0, Piece::new(PieceKind::Bytes, &b"a"[..]));
        channels.closed(1);
        assert!(credit.closed.is_cancelled());
        assert!(credit.bytes.try_acquire().is_err());
        channels.refuse(1, DONE);
        assert_eq!(order(&channels), [""; 0]);
        assert!(readers[0].try_recv().is_err());
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
