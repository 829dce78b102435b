//! One end of a live link: requests both ways, notices, keep-alive, channels. Over any byte stream;
//! both ends are the same code.
//!
//! ```text
//!            ┌ pending requests ◄ Response ┐
//!   callers ─┤                             ├─ reader task ◄── stream
//!            └ notices, handler ◄ Request  ┘
//!   answers ─┬ control queue ─┐
//!   channels ┴ turns ─────────┴─ writer task ──► stream       (control first)
//! ```
//!
//! A malformed header or an oversize frame is answered by an Error frame and ends the link; a
//! malformed Notify is counted and ignored. A slow reader stops its own channel, never the link.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::blob_flow::OpenInlet;
use super::channel::Channels;
use super::codes::{Code, Fault};
use super::frame::{Frame, FrameType, Protocol};
use super::framed::Framed;
use super::handler::{Answer, Blob, Call, Handler, Origin};
use super::link::{Cancel, Message, Notice, PING, Response};
use super::peer_read::read_frames;
use super::peer_write::write_frames;
use super::stream_flow::OpenStream;
use super::{request, table};
use crate::base::limits;

/// The field name that says that the JSON result itself comes by channel.
pub(super) const RESULT_FIELD: &str = "data";
/// Fields of answers that bytes may stand for; a closed set.
const BLOB_FIELDS: &[&str] = &["image", "content", "bytes"];

/// Which end opened the connection; it decides who numbers channels odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Connecting,
    Accepting,
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerStats {
    /// Responses that no request waited for.
    pub orphans: u64,
    /// Notices that could not be read.
    pub malformed: u64,
}

/// A live link. Clones share it.
#[derive(Clone)]
pub struct Peer {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) protocol: Protocol,
    pub(super) origin: Origin,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) control: mpsc::Sender<Frame>,
    pub(super) pending: Mutex<HashMap<u32, oneshot::Sender<Reply>>>,
    pub(super) incoming: Mutex<HashMap<u32, CancellationToken>>,
    pub(super) channels: Arc<Channels>,
    pub(super) pong: Notify,
    pub(super) next_sequence: AtomicU32,
    pub(super) next_channel: AtomicU32,
    pub(super) slots: Arc<Semaphore>,
    pub(super) started: Instant,
    /// Milliseconds after `started`.
    pub(super) last_received: AtomicU64,
    pub(super) orphans: AtomicU64,
    pub(super) malformed: AtomicU64,
    /// Somebody decided to close; the writer says goodbye and ends.
    pub(super) closing: CancellationToken,
    /// Both tasks have ended.
    pub(super) closed: CancellationToken,
    pub(super) reason: OnceLock<(Fault, Tell)>,
}

/// Whether the reason for a close goes out as an Error frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tell {
    Peer,
    /// The peer has gone, or gave the reason itself.
    Nobody,
}

/// A response, with the channel that it opened.
pub(super) struct Reply {
    pub(super) response: Response,
    pub(super) beside: Beside,
}

/// What comes by channel beside a response. Dropping it ends the channel.
pub(super) enum Beside {
    Nothing,
    Bytes(OpenInlet),
    Stream(OpenStream),
}

/// No lock here is held while anything can panic, so a poisoned one is still whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peer {
    /// Makes a link live: starts its two tasks and answers it with its notices, which end when the
    /// link does. Requests of the other side go to `handler` as calls of `origin`.
    pub fn start<S>(
        mut framed: Framed<S>,
        side: Side,
        origin: Origin,
        handler: Arc<dyn Handler>,
    ) -> (Self, mpsc::Receiver<Notice>)
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        framed.decoder.lift_limit();
        let (control, control_queue) = mpsc::channel(limits::LINK_SEND_QUEUE_LEN_MAX);
        let (notices, notice_queue) = mpsc::channel(limits::LINK_NOTICES_LEN_MAX);
        let shared = Arc::new(Shared {
            protocol: framed.protocol,
            origin,
            handler,
            control,
            pending: Mutex::default(),
            incoming: Mutex::default(),
            channels: Arc::default(),
            pong: Notify::new(),
            next_sequence: AtomicU32::new(0),
            next_channel: AtomicU32::new(match side {
                Side::Connecting => 1,
                Side::Accepting => 2,
            }),
            slots: Arc::new(Semaphore::new(limits::LINK_REQUESTS_IN_FLIGHT_MAX)),
            started: Instant::now(),
            last_received: AtomicU64::new(0),
            orphans: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
            reason: OnceLock::new(),
        });
        let (read_half, write_half) = tokio::io::split(framed.stream);
        let mut writer = tokio::spawn(write_frames(Arc::clone(&shared), write_half, control_queue));
        let mut reader = tokio::spawn(read_frames(
            Arc::clone(&shared),
            read_half,
            framed.decoder,
            notices,
        ));
        let ended = Arc::clone(&shared);
        tokio::spawn(async move {
            // Either task's panic ends the link as its return does.
            let reader_ended = tokio::select! {
                _ = &mut reader => true,
                _ = &mut writer => false,
            };
            ended.begin_close(Fault::new(Code::LinkClosed, "the link ended"), Tell::Nobody);
            let other = if reader_ended { writer } else { reader };
            let _ = other.await;
            ended.end();
        });
        (Self { shared }, notice_queue)
    }

    pub fn protocol(&self) -> Protocol {
        self.shared.protocol
    }

    /// Sends a call and waits for its answer: `busy` with too many under way, `timed_out` after the
    /// call's patience (its method's when it has none), `link_closed` when the link ends first,
    /// `cancelled` by its token. A caller that gives up says so to the other side.
    pub async fn request(&self, call: Call) -> Result<Answer, Fault> {
        let patience = match call.timeout_ms {
            Some(0) => None,
            Some(given) => Some(given),
            None => table::find(&call.method)
                .map_or(Some(limits::COMMAND_TIMEOUT_MS), |row| row.timeout_ms),
        };
        let cancel = call.cancel.clone();
        let method = call.method.clone();
        let work = self.exchange(call, patience);
        let late = async {
            match patience {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = work => answer,
            () = late => Err(Fault::new(
                Code::TimedOut,
                format!("{method}: command timeout after {} ms", patience.unwrap_or_default()),
            )),
            () = cancel.cancelled() => {
                Err(Fault::new(Code::Cancelled, format!("{method}: the caller gave up")))
            }
        }
    }

    async fn exchange(&self, call: Call, patience: Option<u64>) -> Result<Answer, Fault> {
        let (sender, receiver) = oneshot::channel();
        let sequence = self.shared.next_sequence.fetch_add(1, Ordering::Relaxed);
        let body = request::encode(self.shared.protocol, sequence, &call, patience)?;
        {
            let mut pending = lock(&self.shared.pending);
            if pending.len() >= limits::LINK_REQUESTS_IN_FLIGHT_MAX {
                return Err(Fault::new(
                    Code::Busy,
                    "too many requests are under way on this link",
                ));
            }
            pending.insert(sequence, sender);
        }
        // From here on leaving early tells the other side.
        let waiting = Waiting {
            shared: &self.shared,
            sequence,
        };
        self.shared
            .send(Frame::new(FrameType::Request, sequence, body))
            .await?;
        let reply = receiver.await.map_err(|_| self.shared.why_closed())?;
        drop(waiting);
        self.read_reply(reply).await
    }

    async fn read_reply(&self, reply: Reply) -> Result<Answer, Fault> {
        let size = reply.response.size;
        let field = reply.response.field.clone().unwrap_or_default();
        let content_type = reply.response.content_type.clone();
        let data = reply.response.into_result()?;
        let inlet = match reply.beside {
            Beside::Nothing => {
                return Ok(Answer {
                    data,
                    ..Answer::default()
                });
            }
            Beside::Stream(stream) => {
                return Ok(Answer {
                    data,
                    stream: Some(stream.into_end()),
                    ..Answer::default()
                });
            }
            Beside::Bytes(inlet) => inlet,
        };
        let bytes = inlet.collect(size.unwrap_or(0)).await?;
        if field == RESULT_FIELD {
            let data = serde_json::from_slice(&bytes).map_err(|error| {
                Fault::new(Code::InvalidMessage, format!("read the result: {error}"))
            })?;
            return Ok(Answer {
                data,
                ..Answer::default()
            });
        }
        let field = BLOB_FIELDS
            .iter()
            .find(|known| **known == field)
            .ok_or_else(|| {
                Fault::new(
                    Code::InvalidMessage,
                    format!("bytes came for the unknown field {field:?}"),
                )
            })?;
        let blob = Blob {
            content_type: content_type.unwrap_or_else(|| "application/octet-stream".to_owned()),
            bytes,
            field,
        };
        Ok(Answer {
            data,
            blob: Some(blob),
            ..Answer::default()
        })
    }

    /// Sends a Notify; waits while the queue is full.
    pub async fn notify<M: Message>(&self, message: &M) -> Result<(), Fault> {
        self.shared
            .send(Frame::new(FrameType::Notify, 0, message.to_body()?))
            .await
    }

    /// Asks for a sign of life; false when none came in time or the link is gone.
    pub async fn ping(&self, patience: Duration) -> bool {
        let pong = self.shared.pong.notified();
        let asked = self.shared.send(Frame::new(FrameType::Notify, 0, PING));
        let heard = async {
            asked.await.is_ok() && {
                pong.await;
                true
            }
        };
        tokio::select! {
            heard = heard => heard,
            () = tokio::time::sleep(patience) => false,
            () = self.shared.closed.cancelled() => false,
        }
    }

    /// How long nothing has come from the other side.
    pub fn silence(&self) -> Duration {
        let last = self.shared.last_received.load(Ordering::Relaxed);
        self.shared
            .started
            .elapsed()
            .saturating_sub(Duration::from_millis(last))
    }

    /// Whether nobody has decided to close the link yet. Its streams end after that.
    pub fn is_open(&self) -> bool {
        !self.shared.closing.is_cancelled()
    }

    /// How long the link has been live.
    pub fn age(&self) -> Duration {
        self.shared.started.elapsed()
    }

    pub fn stats(&self) -> PeerStats {
        PeerStats {
            orphans: self.shared.orphans.load(Ordering::Relaxed),
            malformed: self.shared.malformed.load(Ordering::Relaxed),
        }
    }

    /// Ends the link: the reason goes out as an Error frame, then the stream closes. The first
    /// reason stands.
    pub fn close(&self, fault: Fault) {
        self.shared.begin_close(fault, Tell::Peer);
    }

    /// Resolves when the link has ended, with the reason.
    pub async fn closed(&self) -> Fault {
        self.shared.closed.cancelled().await;
        match self.shared.reason.get() {
            Some((fault, _)) => fault.clone(),
            None => self.shared.why_closed(),
        }
    }
}

/// A request that waits for its response; dropping it early cancels it on the other side.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    sequence: u32,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let unanswered = lock(&self.shared.pending).remove(&self.sequence).is_some();
        if unanswered && self.shared.protocol == Protocol::V2 {
            let cancel = Cancel {
                sequence: self.sequence,
            };
            if let Ok(body) = cancel.to_body() {
                // With a full queue the work runs on and its answer is an orphan.
                let _ = self
                    .shared
                    .control
                    .try_send(Frame::new(FrameType::Notify, 0, body));
            }
        }
    }
}

impl Shared {
    pub(super) async fn send(&self, frame: Frame) -> Result<(), Fault> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => Err(self.why_closed()),
            sent = self.control.send(frame) => sent.map_err(|_| self.why_closed()),
        }
    }

    pub(super) fn why_closed(&self) -> Fault {
        let reason = self.reason.get();
        let text = reason.map_or("connection closed", |(fault, _)| fault.message.as_ref());
        Fault::new(Code::LinkClosed, text.to_owned())
    }

    pub(super) fn begin_close(&self, fault: Fault, tell: Tell) {
        // The first reason is the true one.
        let _ = self.reason.set((fault, tell));
        self.closing.cancel();
    }

    /// Both tasks are gone: nobody waits for ever.
    fn end(&self) {
        lock(&self.pending).clear();
        for (_, token) in lock(&self.incoming).drain() {
            token.cancel();
        }
        self.channels.end();
        self.handler.disconnected(self.origin);
        self.closed.cancel();
    }
}
