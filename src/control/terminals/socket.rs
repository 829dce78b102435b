//! Carries a console's stream over its WebSocket: binary frames are terminal bytes, text is control.
//!
//! ```text
//! node ─ pieces ─► paid with the console's credit ─► frames ─► socket (30 s without progress: closed)
//! node ◄─ pieces ◄── queue of at most 1 MiB ◄── rights checked ◄── frames ◄─ socket
//! ```
//!
//! Reading goes on while writing waits and the other way round. Once the queue of typed bytes is full
//! nothing more is read, credit included; until it drains the socket alone bounds what is sent, so that
//! a program which stops reading until its output is taken cannot block itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::{mpsc, watch};

use super::counters::Counters;
use crate::base::limits;
use crate::wire::messages::sessions::Control;
use crate::wire::{Code, Piece, PieceKind, StreamEnd};

/// Texts of our own that wait for a console. Full: the next one is dropped, the console has enough.
const NOTES_WAITING_MAX: usize = 8;
/// For the goodbye.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What the console may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    /// Type, resize, take the lease.
    pub control: bool,
    /// Take the lease from another holder.
    pub takeover: bool,
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The console closed it.
    Console,
    /// The session's owner closed it.
    Session,
    /// The workstation's link is gone.
    Offline,
    /// The socket took nothing for too long.
    Slow,
    /// The credential was revoked or expired.
    Credential,
    /// The grant was taken back.
    Grant,
    /// The server stops.
    Stopping,
}

impl Reason {
    /// A word for audit and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Console => "console",
            Self::Session => "session",
            Self::Offline => "offline",
            Self::Slow => "slow",
            Self::Credential => "credential",
            Self::Grant => "grant",
            Self::Stopping => "stopping",
        }
    }

    fn goodbye(self) -> CloseFrame {
        let (code, reason) = match self {
            Self::Console | Self::Session => (close_code::NORMAL, "done"),
            Self::Offline => (close_code::AGAIN, Code::AgentOffline.as_str()),
            Self::Slow => (close_code::POLICY, Code::ConsoleTooSlow.as_str()),
            Self::Credential => (close_code::POLICY, Code::Unauthenticated.as_str()),
            Self::Grant => (close_code::POLICY, Code::PermissionDenied.as_str()),
            Self::Stopping => (close_code::AWAY, "stopping"),
        };
        CloseFrame {
            code,
            reason: reason.into(),
        }
    }
}

/// How much may be sent to a console beyond what it has taken.
#[derive(Clone, Copy, Debug, Default)]
struct Allowance {
    /// The console gives credit.
    bounded: bool,
    granted: u64,
    /// Typed bytes fill their queue, so that credit cannot be read.
    deaf: bool,
}

impl Allowance {
    fn room(self, sent: u64) -> usize {
        if !self.bounded || self.deaf {
            return limits::CHANNEL_CREDIT_MAX;
        }
        let all = (limits::CHANNEL_CREDIT_FIRST as u64).saturating_add(self.granted);
        let room = usize::try_from(all.saturating_sub(sent)).unwrap_or(usize::MAX);
        room.min(limits::CHANNEL_CREDIT_MAX)
    }
}

/// What a stream is carried by.
pub(super) struct Terms<'a, A> {
    pub rights: Rights,
    /// The console gives credit from the start.
    pub bounded: bool,
    pub counters: &'a Counters,
    /// Counts the bytes that the console typed.
    pub typed: &'a AtomicU64,
    /// Whether the workstation has gone.
    pub away: A,
}

/// Runs until either side ends the stream or `ended` resolves, then closes the socket. Answers why.
pub(super) async fn carry<A: Fn() -> bool>(
    socket: WebSocket,
    end: StreamEnd,
    terms: Terms<'_, A>,
    ended: impl Future<Output = Reason>,
) -> Reason {
    let Terms {
        rights,
        bounded,
        counters,
        typed,
        away,
    } = terms;
    let (mut sink, stream) = socket.split();
    let (allowance, allowed) = watch::channel(Allowance {
        bounded,
        ..Allowance::default()
    });
    let (notes, noted) = mpsc::channel(NOTES_WAITING_MAX);
    let reader = Reader {
        send: end.send,
        queue: VecDeque::new(),
        queued: 0,
        rights,
        allowance,
        notes,
    };
    let mut writer = Writer {
        sink: &mut sink,
        sent: 0,
        allowed,
        counters,
    };
    let mut reason = tokio::select! {
        () = reader.run(stream, counters, typed) => Reason::Console,
        reason = writer.run(end.recv, noted) => reason,
        reason = ended => reason,
    };
    if reason == Reason::Session && away() {
        reason = Reason::Offline;
    }
    let goodbye = sink.send(Message::Close(Some(reason.goodbye())));
    // A socket that is gone or full needs no goodbye.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, goodbye).await;
    reason
}

/// Tells a console why nothing was attached: close 1008 with the code.
pub(super) async fn refuse(mut socket: WebSocket, code: &str) {
    let frame = CloseFrame {
        code: close_code::POLICY,
        reason: code.into(),
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, socket.send(Message::Close(Some(frame)))).await;
}

enum Step {
    Room { listening: bool },
    Message(Option<Result<Message, axum::Error>>),
}

struct Reader {
    send: mpsc::Sender<Piece>,
    queue: VecDeque<Piece>,
    /// Bytes in `queue`.
    queued: usize,
    rights: Rights,
    allowance: watch::Sender<Allowance>,
    notes: mpsc::Sender<Piece>,
}

impl Reader {
    /// Until the console has gone.
    async fn run(
        mut self,
        mut stream: SplitStream<WebSocket>,
        counters: &Counters,
        typed: &AtomicU64,
    ) {
        loop {
            let reading = self.queued < limits::CONSOLE_INPUT_QUEUED_LEN_MAX;
            let step = tokio::select! {
                permit = self.send.reserve(), if !self.queue.is_empty() => {
                    Step::Room { listening: permit.is_ok() }
                }
                message = stream.next(), if reading => Step::Message(message),
            };
            match step {
                // This is the only sender, so that the room is still there.
                Step::Room { listening: true } => {
                    if let Some(piece) = self.queue.pop_front() {
                        self.queued -= piece.body.len();
                        let _ = self.send.try_send(piece);
                    }
                }
                // The owner listens no more; what it still sends goes out, and then it ends.
                Step::Room { listening: false } => {
                    self.queue.clear();
                    self.queued = 0;
                }
                Step::Message(Some(Ok(message))) => match message {
                    Message::Binary(bytes) => {
                        let length = bytes.len() as u64;
                        if self.keys(bytes) {
                            typed.fetch_add(length, Ordering::Relaxed);
                            counters.bytes_in.fetch_add(length, Ordering::Relaxed);
                        }
                    }
                    Message::Text(text) => self.control(text.as_str()),
                    Message::Ping(_) | Message::Pong(_) => {}
                    Message::Close(_) => return,
                },
                Step::Message(Some(Err(_)) | None) => return,
            }
            let deaf = self.queued >= limits::CONSOLE_INPUT_QUEUED_LEN_MAX;
            self.allowance.send_if_modified(|allowance| {
                let changed = allowance.deaf != deaf;
                allowance.deaf = deaf;
                changed
            });
        }
    }

    /// Queues what was typed; answers whether the console may type.
    fn keys(&mut self, bytes: Bytes) -> bool {
        if !self.rights.control {
            self.refuse(Code::PermissionDenied, "this console only watches");
            return false;
        }
        self.put(Piece::new(PieceKind::Bytes, bytes));
        true
    }

    fn put(&mut self, piece: Piece) {
        if self.send.is_closed() {
            return;
        }
        self.queued += piece.body.len();
        self.queue.push_back(piece);
    }

    fn control(&mut self, text: &str) {
        let control = match serde_json::from_str::<Control>(text) {
            Ok(control) => control,
            Err(error) => {
                return self.refuse(Code::InvalidMessage, &format!("read the control: {error}"));
            }
        };
        let allowed = match &control {
            Control::Credit { bytes } => {
                self.allowance.send_modify(|allowance| {
                    allowance.bounded = true;
                    allowance.granted = allowance.granted.saturating_add(*bytes);
                });
                return;
            }
            Control::Focus { .. } | Control::Ack { .. } => true,
            Control::Take { takeover: true } => self.rights.takeover,
            Control::Resize { .. }
            | Control::Generation { .. }
            | Control::Take { takeover: false }
            | Control::Release {} => self.rights.control,
            _ => return self.refuse(Code::InvalidMessage, "a console does not send this control"),
        };
        if !allowed {
            return self.refuse(
                Code::PermissionDenied,
                "the account may not do this to the session",
            );
        }
        if let Ok(text) = serde_json::to_vec(&control) {
            self.put(Piece::new(PieceKind::Control, text));
        }
    }

    fn refuse(&self, code: Code, message: &str) {
        let error = Control::Error {
            code: code.as_str().to_owned(),
            message: message.to_owned(),
        };
        if let Ok(text) = serde_json::to_vec(&error) {
            let _ = self.notes.try_send(Piece::new(PieceKind::Control, text));
        }
    }
}

struct Writer<'a> {
    sink: &'a mut SplitSink<WebSocket, Message>,
    sent: u64,
    allowed: watch::Receiver<Allowance>,
    counters: &'a Counters,
}

impl Writer<'_> {
    /// Until the owner has sent everything, or the socket does not take it.
    async fn run(
        &mut self,
        mut recv: mpsc::Receiver<Piece>,
        mut noted: mpsc::Receiver<Piece>,
    ) -> Reason {
        loop {
            let piece = tokio::select! {
                biased;
                Some(note) = noted.recv() => note,
                piece = recv.recv() => match piece {
                    Some(piece) => piece,
                    None => return Reason::Session,
                },
            };
            let idle = recv.is_empty() && noted.is_empty();
            if let Err(reason) = self.piece(piece, idle).await {
                return reason;
            }
        }
    }

    async fn piece(&mut self, piece: Piece, flush: bool) -> Result<(), Reason> {
        let Piece { kind, mut body } = piece;
        let whole = kind == PieceKind::Control;
        while !body.is_empty() {
            let least = if whole { body.len() } else { 1 };
            let room = self.room(least).await?;
            let length = if whole {
                body.len()
            } else {
                body.len().min(room).min(limits::CHANNEL_CREDIT_FIRST)
            };
            let part = body.split_to(length);
            self.sent += length as u64;
            let counted = &self.counters.bytes_out;
            counted.fetch_add(length as u64, Ordering::Relaxed);
            let message = if whole {
                match String::from_utf8(part.into()) {
                    Ok(text) => Message::text(text),
                    // A workstation that sends no text as text is not worth a closed console.
                    Err(_) => continue,
                }
            } else {
                Message::Binary(part)
            };
            in_time(self.sink.feed(message)).await?;
        }
        if flush {
            in_time(self.sink.flush()).await?;
        }
        Ok(())
    }

    /// Waits until the console allows `least` bytes; answers how many it allows.
    async fn room(&mut self, least: usize) -> Result<usize, Reason> {
        let mut flushed = false;
        loop {
            let room = self.allowed.borrow_and_update().room(self.sent);
            if room >= least {
                return Ok(room);
            }
            if !flushed {
                in_time(self.sink.flush()).await?;
                flushed = true;
                continue;
            }
            // The reader that gives allowances ends with this writer.
            if self.allowed.changed().await.is_err() {
                return Err(Reason::Console);
            }
        }
    }
}

async fn in_time<E>(write: impl Future<Output = Result<(), E>>) -> Result<(), Reason> {
    let limit = Duration::from_millis(limits::CONSOLE_WRITE_TIMEOUT_MS);
    match tokio::time::timeout(limit, write).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Reason::Console),
        Err(_) => Err(Reason::Slow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_that_gives_credit_is_bounded_by_it_unless_it_cannot_be_heard() {
        let first = limits::CHANNEL_CREDIT_FIRST;
        let mut allowance = Allowance::default();
        assert_eq!(allowance.room(1 << 40), limits::CHANNEL_CREDIT_MAX);
        allowance.bounded = true;
        assert_eq!(allowance.room(0), first);
        assert_eq!(allowance.room(first as u64), 0);
        assert_eq!(allowance.room(first as u64 * 3), 0);
        allowance.granted = 100;
        assert_eq!(allowance.room(first as u64), 100);
        allowance.granted = u64::MAX;
        assert_eq!(allowance.room(7), limits::CHANNEL_CREDIT_MAX);
        allowance.granted = 0;
        allowance.deaf = true;
        assert_eq!(allowance.room(1 << 40), limits::CHANNEL_CREDIT_MAX);
    }
}
