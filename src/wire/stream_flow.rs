//! Carries a stream over a channel: pieces in, pieces out, until either side ends it.
//!
//! ```text
//! owner ── send ─► queue ─► cut to frames, paid with credit ─► Channels ─► wire
//! owner ◄─ recv ── queue ◄── one piece at a time ◄──────────── Channels ◄─ wire
//!                    └ taken by the owner: credit for the other side
//! ```
//!
//! Credit is given back only for what the owner has taken out of its end, so that whoever stops
//! reading stops the program at the other end of the stream and nobody else. The stream ends for both
//! when one owner drops its sender (what it sent before still arrives), when a rule of the channel is
//! broken, or when the connection goes.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::channel::{Carries, Channels, Credit, CreditWindow, DONE};
use super::codes::{Code, Fault};
use super::stream::{Piece, PieceKind, StreamEnd};
use crate::base::limits;

/// A channel of a stream, open both ways; dropping it ends the channel.
#[derive(Debug)]
pub(crate) struct OpenStream {
    open: Open,
    pieces: mpsc::UnboundedReceiver<Piece>,
    credit: Arc<Credit>,
}

#[derive(Debug)]
struct Open {
    channels: Arc<Channels>,
    channel: u32,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.channels.refuse(self.channel, DONE);
    }
}

/// Why nothing more goes to the owner.
enum Inward {
    /// The channel has ended, and the owner has everything that came by it.
    Ended,
    /// The owner reads no more.
    NoReader,
}

impl OpenStream {
    /// Opens both directions of a channel: `too_many_channels`, or `channel_invalid` for an id that is
    /// in use.
    pub fn new(channels: &Arc<Channels>, channel: u32) -> Result<Self, Fault> {
        let pieces = channels.open_inlet(channel, Carries::Stream)?;
        let open = Open {
            channels: Arc::clone(channels),
            channel,
        };
        match channels.open_outlet(channel) {
            Ok(credit) => Ok(Self {
                open,
                pieces,
                credit,
            }),
            Err(fault) => {
                channels.stop_reading(channel);
                Err(fault)
            }
        }
    }

    /// The near end of a new stream that this channel carries, in a task of its own.
    pub fn into_end(self) -> StreamEnd {
        let (near, far) = StreamEnd::pair();
        tokio::spawn(self.carry(far));
        near
    }

    /// Carries pieces between the channel and `end` until the stream has ended.
    pub async fn carry(self, end: StreamEnd) {
        let StreamEnd { send, recv } = end;
        let Self {
            open,
            pieces,
            credit,
        } = self;
        let mut inward = pin!(open.take_in(pieces, send));
        let mut outward = pin!(open.send_out(&credit, recv));
        tokio::select! {
            ended = &mut inward => if let Inward::NoReader = ended {
                open.channels.stop_reading(open.channel);
                outward.await;
            },
            () = &mut outward => {
                inward.await;
            }
        }
    }
}

/// Puts pieces into an owner's queue and tells what the owner has taken out of it.
///
/// It must be the only sender of that queue.
#[derive(Debug)]
pub(crate) struct Delivery {
    send: mpsc::Sender<Piece>,
    /// What each piece cost that stands in the queue.
    standing: VecDeque<usize>,
}

impl Delivery {
    pub fn new(send: mpsc::Sender<Piece>) -> Self {
        Self {
            send,
            standing: VecDeque::new(),
        }
    }

    pub fn has_room(&self) -> bool {
        self.standing.len() < self.send.max_capacity()
    }

    /// Queues a piece while there is room; false when the owner has gone.
    pub fn deliver(&mut self, piece: Piece, cost: usize) -> bool {
        self.standing.push_back(cost);
        self.send.try_send(piece).is_ok()
    }

    /// Waits until the owner takes something, and answers its cost; `None` when the owner has gone.
    /// Dropping the future loses nothing.
    pub async fn taken(&mut self) -> Option<usize> {
        if self.standing.is_empty() {
            self.send.closed().await;
            return None;
        }
        // So many places are free once the owner has taken one of those that stand there.
        let places = self.send.max_capacity();
        let free_then = places.saturating_sub(self.standing.len()) + 1;
        drop(self.send.reserve_many(free_then).await.ok()?);
        let left = places - self.send.capacity();
        let taken = self.standing.len().saturating_sub(left);
        Some(self.standing.drain(..taken).sum())
    }
}

impl Open {
    async fn take_in(
        &self,
        mut pieces: mpsc::UnboundedReceiver<Piece>,
        send: mpsc::Sender<Piece>,
    ) -> Inward {
        let mut window = CreditWindow::new(self.channels.elapsed());
        let mut delivery = Delivery::new(send);
        loop {
            tokio::select! {
                biased;
                taken = delivery.taken() => match taken {
                    Some(cost) => {
                        if let Some(grant) = window.consume(cost, self.channels.elapsed()) {
                            self.channels.give_credit(self.channel, grant);
                        }
                    }
                    None => return Inward::NoReader,
                },
                piece = pieces.recv(), if delivery.has_room() => {
                    let Some(piece) = piece else { return Inward::Ended };
                    let cost = piece.body.len() + 1;
                    if !delivery.deliver(piece, cost) {
                        return Inward::NoReader;
                    }
                }
            }
        }
    }

    async fn send_out(&self, credit: &Credit, mut recv: mpsc::Receiver<Piece>) {
        let mut sequence = 0u32;
        loop {
            let piece = tokio::select! {
                biased;
                () = credit.closed.cancelled() => return,
                piece = recv.recv() => piece,
            };
            let Some(Piece { kind, mut body }) = piece else {
                break;
            };
            let whole = kind == PieceKind::Control;
            if whole && body.len() > limits::STREAM_CONTROL_LEN_MAX {
                tracing::warn!(
                    bytes = body.len(),
                    "a control piece is too long; its stream ends"
                );
                self.channels
                    .refuse(self.channel, Code::InvalidMessage.as_str());
                return;
            }
            while !body.is_empty() {
                let least = if whole { body.len() } else { 1 };
                let Some(length) = credit.pay(least, body.len()).await else {
                    return;
                };
                let piece = Piece {
                    kind,
                    body: body.split_to(length),
                };
                self.channels.push(self.channel, sequence, piece);
                sequence = sequence.wrapping_add(1);
            }
        }
        self.channels.finish(self.channel);
    }
}
