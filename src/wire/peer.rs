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

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::channel::{self, CreditWindow, Inlets, Outlets};
use super::codes::{Code, Fault};
use super::frame::{Decoder, Frame, FrameType, Protocol};
use super::handler::{Answer, Blob, Call, Handler, Origin};
use super::link::{
    Cancel, ChannelClose, ChannelCredit, LinkError, Message, Notice, PING, PONG, Response, object,
};
use super::{request, table};
use crate::base::limits;

/// Bytes that one write gathers at most, unless a single frame is longer.
const WRITE_GATHER_LEN: usize = 64 * 1024;
/// The field name that says that the JSON result itself comes by channel.
const RESULT_FIELD: &str = "data";
/// Fields of answers that bytes may stand for; a closed set.
const BLOB_FIELDS: &[&str] = &["image", "content", "bytes", "body"];

/// A stream of frames before the link is live: the opening exchange reads and writes one by one.
#[derive(Debug)]
pub struct Framed<S> {
    stream: S,
    decoder: Decoder,
    protocol: Protocol,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Framed<S> {
    /// Bodies may have `body_len_max` bytes until the link goes live.
    pub fn new(stream: S, protocol: Protocol, body_len_max: usize) -> Self {
        Self {
            stream,
            decoder: Decoder::new(protocol, body_len_max),
            protocol,
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Allows bodies up to the protocol's own limit.
    pub fn lift_limit(&mut self) {
        self.decoder.lift_limit();
    }

    /// The next frame; `link_closed` at the end of the stream. Cancel safe.
    pub async fn read(&mut self) -> Result<Frame, Fault> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(frame);
            }
            let read = self.stream.read_buf(self.decoder.buffer()).await;
            match read {
                Ok(0) => {
                    self.decoder.finish()?;
                    return Err(Fault::new(Code::LinkClosed, "the peer closed the link"));
                }
                Ok(_) => {}
                Err(error) => return Err(closed_by(&error)),
            }
        }
    }

    pub async fn write(&mut self, frame: &Frame) -> Result<(), Fault> {
        let mut out = BytesMut::new();
        frame.encode(&mut out)?;
        let written = async {
            self.stream.write_all(&out).await?;
            self.stream.flush().await
        };
        written.await.map_err(|error| closed_by(&error))
    }

    /// Sends a Notify.
    pub async fn notify<M: Message>(&mut self, message: &M) -> Result<(), Fault> {
        self.write(&Frame::new(FrameType::Notify, 0, message.to_body()?))
            .await
    }

    /// Sends the Error frame and closes; what the peer does meanwhile does not matter.
    pub async fn refuse(mut self, fault: &Fault) {
        if let Ok(frame) = error_frame(fault) {
            let goodbye = async {
                self.write(&frame).await?;
                self.stream.shutdown().await.map_err(|e| closed_by(&e))
            };
            // The reason is a courtesy; the close is what counts.
            let _ =
                tokio::time::timeout(Duration::from_millis(limits::LINK_CLOSE_MS), goodbye).await;
        }
    }
}

fn closed_by(error: &std::io::Error) -> Fault {
    Fault::new(Code::LinkClosed, format!("the link broke: {error}"))
}

fn error_frame(fault: &Fault) -> Result<Frame, Fault> {
    let body = serde_json::to_vec(&LinkError::of(fault))
        .map_err(|error| Fault::internal(format!("encode an error: {error}")))?;
    Ok(Frame::new(FrameType::Error, 0, body))
}

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

struct Shared {
    protocol: Protocol,
    origin: Origin,
    handler: Arc<dyn Handler>,
    control: mpsc::Sender<Frame>,
    pending: Mutex<HashMap<u32, oneshot::Sender<Reply>>>,
    incoming: Mutex<HashMap<u32, CancellationToken>>,
    inlets: Mutex<Inlets>,
    outlets: Mutex<Outlets>,
    /// Wakes the writer when a channel has something to send.
    turns: Notify,
    pong: Notify,
    next_sequence: AtomicU32,
    next_channel: AtomicU32,
    slots: Arc<Semaphore>,
    started: Instant,
    /// Milliseconds after `started`.
    last_received: AtomicU64,
    orphans: AtomicU64,
    malformed: AtomicU64,
    /// Somebody decided to close; the writer says goodbye and ends.
    closing: CancellationToken,
    /// Both tasks have ended.
    closed: CancellationToken,
    reason: OnceLock<(Fault, Tell)>,
}

/// Whether the reason for a close goes out as an Error frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tell {
    Peer,
    /// The peer has gone, or gave the reason itself.
    Nobody,
}

/// A response, with the channel that its bytes come by.
struct Reply {
    response: Response,
    bytes: Option<mpsc::UnboundedReceiver<Bytes>>,
}

/// No lock here is held while anything can panic, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
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
            inlets: Mutex::default(),
            outlets: Mutex::default(),
            turns: Notify::new(),
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
        let writer = tokio::spawn(write_frames(Arc::clone(&shared), write_half, control_queue));
        let reader = tokio::spawn(read_frames(
            Arc::clone(&shared),
            read_half,
            framed.decoder,
            notices,
        ));
        let ended = Arc::clone(&shared);
        tokio::spawn(async move {
            // Either task's panic ends the link as its return does.
            let _ = reader.await;
            ended.begin_close(Fault::new(Code::LinkClosed, "the link ended"), Tell::Nobody);
            let _ = writer.await;
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
        let (size, channel) = (reply.response.size, reply.response.channel);
        let field = reply.response.field.clone().unwrap_or_default();
        let content_type = reply.response.content_type.clone();
        let data = reply.response.into_result()?;
        let (Some(bytes), Some(channel)) = (reply.bytes, channel) else {
            return Ok(Answer { data, blob: None });
        };
        let inlet = OpenInlet {
            shared: &self.shared,
            channel,
            bytes,
        };
        let bytes = inlet.collect(size.unwrap_or(0)).await?;
        if field == RESULT_FIELD {
            let data = serde_json::from_slice(&bytes).map_err(|error| {
                Fault::new(Code::InvalidMessage, format!("read the result: {error}"))
            })?;
            return Ok(Answer { data, blob: None });
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

/// The receiving end of a channel; dropping it before the end stops the writer.
struct OpenInlet<'a> {
    shared: &'a Arc<Shared>,
    channel: u32,
    bytes: mpsc::UnboundedReceiver<Bytes>,
}

impl OpenInlet<'_> {
    async fn collect(mut self, size: u64) -> Result<Bytes, Fault> {
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= limits::ARTIFACT_LEN_MAX)
            .ok_or_else(|| {
                Fault::new(
                    Code::ArtifactTooLarge,
                    format!("the answer announces {size} bytes"),
                )
            })?;
        let mut window = CreditWindow::new(self.shared.started.elapsed());
        let mut all = BytesMut::new();
        while all.len() < size {
            let part = self
                .bytes
                .recv()
                .await
                .ok_or_else(|| Fault::new(Code::LinkClosed, "the bytes ended early"))?;
            all.extend_from_slice(&part);
            let now = self.shared.started.elapsed();
            if let Some(grant) = window.consume(part.len() + 1, now) {
                lock(&self.shared.inlets).grant(self.channel, grant);
                let credit = ChannelCredit {
                    channel: self.channel,
                    bytes: u32::try_from(grant).unwrap_or(u32::MAX),
                };
                let body = credit.to_body()?;
                self.shared
                    .send(Frame::new(FrameType::Notify, 0, body))
                    .await?;
            }
        }
        if all.len() > size {
            return Err(Fault::new(
                Code::ChannelInvalid,
                "more bytes came than were announced",
            ));
        }
        Ok(all.freeze())
    }
}

impl Drop for OpenInlet<'_> {
    fn drop(&mut self) {
        self.shared.refuse_channel(self.channel, channel::DONE);
    }
}

impl Shared {
    async fn send(&self, frame: Frame) -> Result<(), Fault> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => Err(self.why_closed()),
            sent = self.control.send(frame) => sent.map_err(|_| self.why_closed()),
        }
    }

    fn why_closed(&self) -> Fault {
        let reason = self.reason.get();
        let text = reason.map_or("connection closed", |(fault, _)| fault.message.as_ref());
        Fault::new(Code::LinkClosed, text.to_owned())
    }

    fn begin_close(&self, fault: Fault, tell: Tell) {
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
        lock(&self.outlets).close_all();
        *lock(&self.inlets) = Inlets::default();
        self.handler.disconnected(self.origin);
        self.closed.cancel();
    }

    /// Stops a channel that the other side writes; quiet when it has ended already.
    fn refuse_channel(&self, channel: u32, reason: &str) {
        if lock(&self.inlets).close(channel) {
            let close = ChannelClose {
                channel,
                reason: reason.to_owned(),
            };
            if let Ok(body) = close.to_body() {
                // With a full queue the writer stops when its credit is used up.
                let _ = self
                    .control
                    .try_send(Frame::new(FrameType::Notify, 0, body));
            }
        }
    }

    /// Sends bytes by a channel of its own, credit by credit, then its regular end.
    async fn send_bytes(
        &self,
        channel: u32,
        credit: &Semaphore,
        bytes: &Bytes,
    ) -> Result<(), Fault> {
        for (sequence, body) in channel::chunks(bytes).enumerate() {
            let cost = u32::try_from(body.len()).unwrap_or(u32::MAX);
            let paid = credit.acquire_many(cost).await;
            paid.map_err(|_| Fault::new(Code::ChannelInvalid, "the reader closed the channel"))?
                .forget();
            let frame = Frame {
                frame_type: FrameType::Data,
                sequence: u32::try_from(sequence).unwrap_or(u32::MAX),
                channel,
                body,
            };
            lock(&self.outlets).push(channel, frame);
            self.turns.notify_one();
        }
        lock(&self.outlets).finish(channel, channel::DONE)?;
        self.turns.notify_one();
        Ok(())
    }
}

// The writer.

async fn write_frames<W: AsyncWrite + Unpin>(
    shared: Arc<Shared>,
    mut stream: W,
    mut control: mpsc::Receiver<Frame>,
) {
    let mut out = BytesMut::new();
    loop {
        let gathered = tokio::select! {
            biased;
            () = shared.closing.cancelled() => break,
            gathered = gather(&shared, &mut control, &mut out) => gathered,
        };
        let written = match gathered {
            Ok(()) => tokio::select! {
                written = write_out(&mut stream, &mut out) => written,
                () = shared.closing.cancelled() => break,
            },
            Err(fault) => Err(fault),
        };
        if let Err(fault) = written {
            shared.begin_close(fault, Tell::Nobody);
            break;
        }
    }
    let goodbye = async {
        // What stands in `out` may be half written; a whole frame can follow only whole frames.
        if out.is_empty()
            && let Some((reason, Tell::Peer)) = shared.reason.get()
        {
            error_frame(reason)?.encode(&mut out)?;
            write_out(&mut stream, &mut out).await?;
        }
        stream.shutdown().await.map_err(|error| closed_by(&error))
    };
    // The reason is a courtesy; the close is what counts.
    let _ = tokio::time::timeout(Duration::from_millis(limits::LINK_CLOSE_MS), goodbye).await;
}

/// Waits for something to send, then takes what is ready: one channel's frame at a time, and all
/// control frames before it. A response is queued before its channel's first frame, so it goes first.
async fn gather(
    shared: &Shared,
    control: &mut mpsc::Receiver<Frame>,
    out: &mut BytesMut,
) -> Result<(), Fault> {
    while out.is_empty() {
        while out.len() < WRITE_GATHER_LEN {
            let data = lock(&shared.outlets).pop();
            let mut idle = data.is_none();
            while let Ok(frame) = control.try_recv() {
                frame.encode(out)?;
                idle = false;
            }
            if let Some(frame) = data {
                frame.encode(out)?;
            }
            if idle {
                break;
            }
        }
        if out.is_empty() {
            tokio::select! {
                frame = control.recv() => match frame {
                    Some(frame) => frame.encode(out)?,
                    None => return Err(shared.why_closed()),
                },
                () = shared.turns.notified() => {}
            }
        }
    }
    Ok(())
}

async fn write_out<W: AsyncWrite + Unpin>(stream: &mut W, out: &mut BytesMut) -> Result<(), Fault> {
    let written = async {
        stream.write_all_buf(out).await?;
        stream.flush().await
    };
    written.await.map_err(|error| closed_by(&error))
}

// The reader.

async fn read_frames<R: AsyncRead + Unpin>(
    shared: Arc<Shared>,
    mut stream: R,
    mut decoder: Decoder,
    notices: mpsc::Sender<Notice>,
) {
    loop {
        let step = async {
            while let Some(frame) = decoder.next_frame()? {
                let passed = shared.started.elapsed().as_millis();
                shared
                    .last_received
                    .store(u64::try_from(passed).unwrap_or(u64::MAX), Ordering::Relaxed);
                take_in(&shared, frame, &notices).await;
            }
            match stream.read_buf(decoder.buffer()).await {
                Ok(0) => {
                    decoder.finish()?;
                    Err(Fault::new(Code::LinkClosed, "the peer closed the link"))
                }
                Ok(_) => Ok(()),
                Err(error) => Err(closed_by(&error)),
            }
        };
        let outcome = tokio::select! {
            biased;
            () = shared.closing.cancelled() => return,
            outcome = step => outcome,
        };
        if let Err(fault) = outcome {
            let tell = match fault.code {
                Code::LinkClosed => Tell::Nobody,
                _ => Tell::Peer,
            };
            shared.begin_close(fault, tell);
            return;
        }
    }
}

async fn take_in(shared: &Arc<Shared>, frame: Frame, notices: &mpsc::Sender<Notice>) {
    match frame.frame_type {
        FrameType::Request => take_request(shared, frame).await,
        FrameType::Response => take_response(shared, frame.sequence, &frame.body),
        FrameType::Notify => take_notify(shared, &frame.body, notices).await,
        FrameType::Error => take_error(shared, &frame.body),
        FrameType::Data => {
            let accepted = lock(&shared.inlets).accept(&frame);
            if let Err(fault) = accepted {
                tracing::warn!(%fault, "closing a channel");
                let close = ChannelClose {
                    channel: frame.channel,
                    reason: fault.code_text().to_owned(),
                };
                if let Ok(body) = close.to_body() {
                    let _ = shared
                        .control
                        .try_send(Frame::new(FrameType::Notify, 0, body));
                }
            }
        }
    }
}

fn take_response(shared: &Arc<Shared>, sequence: u32, body: &[u8]) {
    let parsed = object(body).and_then(|fields| {
        serde_json::from_value::<Response>(Value::Object(fields))
            .map_err(|error| Fault::new(Code::InvalidMessage, format!("read a response: {error}")))
    });
    let mut response = match parsed {
        Ok(response) => response,
        Err(fault) => Response::refused(None, &fault),
    };
    let waiting = lock(&shared.pending).remove(&sequence);
    let Some(waiting) = waiting else {
        shared.orphans.fetch_add(1, Ordering::Relaxed);
        if let Some(channel) = response.channel
            && lock(&shared.inlets).open(channel).is_ok()
        {
            shared.refuse_channel(channel, "orphan");
        }
        return;
    };
    let bytes = match response.channel {
        Some(channel) if shared.protocol == Protocol::V2 => {
            match lock(&shared.inlets).open(channel) {
                Ok(receiver) => Some(receiver),
                Err(fault) => {
                    response = Response::refused(None, &fault);
                    None
                }
            }
        }
        _ => None,
    };
    // A caller that has just given up leaves the reply to nobody.
    if let Err(reply) = waiting.send(Reply { response, bytes })
        && let Some(channel) = reply.response.channel
    {
        shared.refuse_channel(channel, "orphan");
    }
}

async fn take_notify(shared: &Arc<Shared>, body: &[u8], notices: &mpsc::Sender<Notice>) {
    if body == PING {
        // A flood of questions gets as many answers as the queue has room for.
        let _ = shared
            .control
            .try_send(Frame::new(FrameType::Notify, 0, PONG));
        return;
    }
    if body == PONG {
        shared.pong.notify_waiters();
        return;
    }
    let notice = match Notice::parse(body) {
        Ok(notice) => notice,
        Err(fault) => {
            shared.malformed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%fault, "ignoring a malformed notify");
            return;
        }
    };
    if shared.protocol == Protocol::V2 {
        if let Some(credit) = notice.read::<ChannelCredit>() {
            match credit {
                Ok(credit) => lock(&shared.outlets).grant(credit.channel, credit.bytes as usize),
                Err(_) => drop(shared.malformed.fetch_add(1, Ordering::Relaxed)),
            }
            return;
        }
        if let Some(close) = notice.read::<ChannelClose>() {
            match close {
                Ok(close) => {
                    lock(&shared.outlets).abort(close.channel);
                    lock(&shared.inlets).close(close.channel);
                }
                Err(_) => drop(shared.malformed.fetch_add(1, Ordering::Relaxed)),
            }
            return;
        }
        if let Some(Ok(cancel)) = notice.read::<Cancel>() {
            if let Some(token) = lock(&shared.incoming).get(&cancel.sequence) {
                token.cancel();
            }
            return;
        }
    }
    // The owner has gone only while the link ends.
    let _ = notices.send(notice).await;
}

fn take_error(shared: &Arc<Shared>, body: &[u8]) {
    let parsed = object(body)
        .ok()
        .and_then(|fields| serde_json::from_value::<LinkError>(Value::Object(fields)).ok());
    match parsed {
        Some(error) => {
            let sequence = error.sequence;
            let fault = error.into_fault();
            match sequence.and_then(|sequence| lock(&shared.pending).remove(&sequence)) {
                Some(waiting) => {
                    let response = Response::refused(None, &fault);
                    let _ = waiting.send(Reply {
                        response,
                        bytes: None,
                    });
                }
                None => {
                    tracing::info!(code = fault.code_text(), %fault, "the peer reports an error");
                    // It is the reason if the peer closes now; else the first reason stands open.
                    if sequence.is_none() && shared.protocol == Protocol::V2 {
                        shared.begin_close(fault, Tell::Nobody);
                    }
                }
            }
        }
        None => drop(shared.malformed.fetch_add(1, Ordering::Relaxed)),
    }
}

async fn take_request(shared: &Arc<Shared>, frame: Frame) {
    let sequence = frame.sequence;
    let Ok(slot) = Arc::clone(&shared.slots).try_acquire_owned() else {
        let busy = Fault::new(Code::Busy, "too many requests are under way on this link");
        respond(shared, sequence, Response::refused(None, &busy)).await;
        return;
    };
    let parsed = object(&frame.body)
        .and_then(|fields| request::parse(shared.protocol, fields, shared.origin));
    let call = match parsed {
        Ok(call) => call,
        Err(fault) => {
            shared.malformed.fetch_add(1, Ordering::Relaxed);
            respond(shared, sequence, Response::refused(None, &fault)).await;
            return;
        }
    };
    lock(&shared.incoming).insert(sequence, call.cancel.clone());
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let method = call.method.clone();
        let cancel = call.cancel.clone();
        // Its own task, so that a panic of the handler is an answer too.
        let work = tokio::spawn(shared.handler.call(call));
        let outcome = work
            .await
            .unwrap_or_else(|error| Err(Fault::internal(format!("{method}: {error}"))));
        answer(&shared, sequence, &method, outcome, &cancel).await;
        lock(&shared.incoming).remove(&sequence);
        drop(slot);
    });
}

async fn answer(
    shared: &Arc<Shared>,
    sequence: u32,
    method: &str,
    outcome: Result<Answer, Fault>,
    cancel: &CancellationToken,
) {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(fault) => {
            respond(shared, sequence, Response::refused(Some(method), &fault)).await;
            return;
        }
    };
    let mut response = Response {
        success: true,
        method: Some(method.to_owned()),
        ..Response::default()
    };
    if shared.protocol == Protocol::V1 {
        response.data = answer.into_inline();
        respond(shared, sequence, response).await;
        return;
    }
    let (blob, data) = match answer.blob {
        Some(blob) => (Some(blob), answer.data),
        None => match serde_json::to_vec(&answer.data) {
            Ok(text) if text.len() > limits::LINK_INLINE_RESULT_LEN_MAX => (
                Some(Blob {
                    content_type: "application/json".to_owned(),
                    bytes: text.into(),
                    field: RESULT_FIELD,
                }),
                Value::Null,
            ),
            _ => (None, answer.data),
        },
    };
    response.data = data;
    let Some(blob) = blob else {
        respond(shared, sequence, response).await;
        return;
    };
    let channel = shared.next_channel.fetch_add(2, Ordering::Relaxed);
    let opened = lock(&shared.outlets).open(channel);
    let credit = match opened {
        Ok(credit) => credit,
        Err(fault) => {
            respond(shared, sequence, Response::refused(Some(method), &fault)).await;
            return;
        }
    };
    response.channel = Some(channel);
    response.size = Some(blob.bytes.len() as u64);
    response.content_type = Some(blob.content_type);
    response.field = Some(blob.field.to_owned());
    respond(shared, sequence, response).await;
    tokio::select! {
        // The reader's close ends the wait for credit as well.
        sent = shared.send_bytes(channel, &credit, &blob.bytes) => {
            if let Err(fault) = sent {
                tracing::debug!(%fault, method, "the answer's bytes were not all wanted");
            }
        }
        () = cancel.cancelled() => drop(lock(&shared.outlets).abort(channel)),
    }
}

/// Sends a response; one that passes the frame limit becomes a refusal.
async fn respond(shared: &Arc<Shared>, sequence: u32, response: Response) {
    let too_large = |length: usize| {
        Response::refused(
            response.method.as_deref(),
            &Fault::new(
                Code::BodyTooLarge,
                format!("the answer has {length} bytes, more than one frame carries"),
            ),
        )
    };
    let encoded = match serde_json::to_vec(&response) {
        Ok(body) if body.len() > limits::LINK_BODY_LEN_MAX => {
            serde_json::to_vec(&too_large(body.len()))
        }
        other => other,
    };
    match encoded {
        // A link that is gone needs no answer.
        Ok(body) => drop(
            shared
                .send(Frame::new(FrameType::Response, sequence, body))
                .await,
        ),
        Err(error) => tracing::error!(%error, "encode a response"),
    }
}
