//! One client of local IPC, owned by one task.
//!
//! ```text
//! greeting (loopback TCP alone: `ipc.hello` with the token) → open → closing → gone
//!   open:    reads requests, runs up to 64 of them, sends answers as they come, streams events and bytes
//!   closing: the agent stops; what is answered within a second still goes out
//!   gone:    calls are cancelled, the handler hears `disconnected`
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio_util::sync::CancellationToken;

use super::channels;
use super::events::{Drain, Follow};
use super::{BoxWire, server::Shared};
use crate::base::{Secret, limits};
use crate::wire::blob_flow::send_bytes;
use crate::wire::channel::Channels;
use crate::wire::envelope::{ChannelNote, Decoder, Envelope, Kind, Unit};
use crate::wire::messages::ipc::{HelloParams, HelloReply};
use crate::wire::stream_flow::OpenStream;
use crate::wire::{Answer, Blob, BoxFuture, Call, Code, Fault, Origin, StreamEnd, table};

struct Done {
    id: u64,
    method: &'static str,
    outcome: Result<Answer, Fault>,
}

/// Why the connection ends.
enum End {
    /// The client has gone, or reading or writing failed.
    Gone,
    /// The client broke the protocol; it was told.
    Refused,
    /// The agent stops.
    Stopping,
}

pub(super) struct Connection {
    read: ReadHalf<BoxWire>,
    write: WriteHalf<BoxWire>,
    inbox: BytesMut,
    outbox: BytesMut,
    decoder: Decoder,
    shared: Arc<Shared>,
    origin: Origin,
    /// What the client still has to prove.
    token: Option<Secret>,
    binary: bool,
    in_flight: FuturesUnordered<BoxFuture<Done>>,
    drain: Drain,
    follow: Option<Follow>,
    channels: Arc<Channels>,
    /// The last channel that was opened; this side opens them all.
    last_channel: u32,
    cancel: CancellationToken,
}

impl Connection {
    pub fn new(wire: BoxWire, shared: Arc<Shared>, number: u64, token: Option<Secret>) -> Self {
        let (read, write) = tokio::io::split(wire);
        Self {
            read,
            write,
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            decoder: Decoder::default(),
            drain: Drain::new(&shared.journal),
            shared,
            origin: Origin::Local { connection: number },
            token,
            binary: false,
            in_flight: FuturesUnordered::new(),
            follow: None,
            channels: Arc::default(),
            last_channel: 0,
            cancel: CancellationToken::new(),
        }
    }

    /// Serves the client until it goes, breaks the protocol, or `stop` fires.
    pub async fn run(mut self, stop: CancellationToken) {
        self.shared.handler.connected(self.origin);
        let end = self.serve(&stop).await;
        match end {
            End::Gone => {}
            End::Refused => self.flush_within_limit(false).await,
            End::Stopping => self.flush_within_limit(true).await,
        }
        self.channels.end();
        self.cancel.cancel();
        self.shared.handler.disconnected(self.origin);
    }

    async fn serve(&mut self, stop: &CancellationToken) -> End {
        loop {
            if let Err(end) = self.take_units() {
                return end;
            }
            if let Err(fault) = channels::pump(&self.channels, &mut self.outbox) {
                return self.refuse(&fault);
            }
            let room = self.outbox.len() < limits::IPC_SEND_BUFFER_LEN_MAX;
            let reading = self.inbox.len() < limits::IPC_READ_AHEAD_LEN_MAX
                || (room && self.in_flight.len() < limits::IPC_REQUESTS_IN_FLIGHT_MAX);
            tokio::select! {
                biased;
                written = self.write.write_buf(&mut self.outbox), if !self.outbox.is_empty() => {
                    if !matches!(written, Ok(1..)) {
                        return End::Gone;
                    }
                }
                Some(done) = self.in_flight.next(), if room => self.answer(done),
                () = stop.cancelled() => return End::Stopping,
                () = self.channels.turns.notified(), if room => {}
                read = self.read.read_buf(&mut self.inbox), if reading => {
                    if !matches!(read, Ok(1..)) {
                        return End::Gone;
                    }
                }
                (envelope, ended) = next_event(&mut self.follow), if room => {
                    if ended {
                        self.follow = None;
                    }
                    self.send(&envelope);
                }
            }
        }
    }

    /// Takes up whole units while there is room for what they ask.
    fn take_units(&mut self) -> Result<(), End> {
        while self.in_flight.len() < limits::IPC_REQUESTS_IN_FLIGHT_MAX
            && self.outbox.len() < limits::IPC_SEND_BUFFER_LEN_MAX
        {
            match self.decoder.decode(&mut self.inbox) {
                Ok(None) => break,
                Ok(Some(Unit::Message(bytes))) => self.message(&bytes)?,
                Ok(Some(Unit::Data {
                    channel,
                    kind,
                    body,
                })) => self.channels.accept(channel, None, Some(kind), body),
                Err(error) => return Err(self.refuse(&Fault::from(&error))),
            }
        }
        Ok(())
    }

    /// Tells the client why it is cut off.
    fn refuse(&mut self, fault: &Fault) -> End {
        self.send(&Envelope::error(fault));
        End::Refused
    }

    fn send(&mut self, envelope: &Envelope) {
        if let Err(fault) = envelope.put(&mut self.outbox) {
            // INVARIANT: a failure's text is far below the limit.
            let refusal = Envelope::failure(envelope.id, &envelope.method, &fault);
            let _ = refusal.put(&mut self.outbox);
        }
    }

    fn message(&mut self, bytes: &[u8]) -> Result<(), End> {
        let envelope = match Envelope::parse(bytes) {
            Ok(envelope) => envelope,
            Err(unreadable) => {
                let answer = match unreadable.id {
                    Some(id) => Envelope::failure(id, "", &unreadable.fault),
                    None => Envelope::error(&unreadable.fault),
                };
                self.send(&answer);
                return Ok(());
            }
        };
        match envelope.kind {
            Kind::Request => self.request(envelope),
            Kind::Event => {
                // Events of other names are of no interest here.
                channels::take(&self.channels, &envelope);
                Ok(())
            }
            Kind::Response | Kind::Error => {
                let fault = Fault::new(Code::InvalidMessage, "a client sends requests and events");
                self.send(&Envelope::failure(envelope.id, &envelope.method, &fault));
                Ok(())
            }
        }
    }

    fn request(&mut self, envelope: Envelope) -> Result<(), End> {
        let Envelope {
            id,
            method,
            payload,
            ..
        } = envelope;
        if method.is_empty() {
            let fault = Fault::new(Code::InvalidMessage, "the request names no method");
            self.send(&Envelope::failure(id, "", &fault));
            return Ok(());
        }
        if self.token.is_some() && method != "ipc.hello" {
            return Err(self.refuse(&unproven()));
        }
        let row = match table::find(&method) {
            Some(row) if row.owner.on_ipc() => row,
            found => {
                let fault = unknown_method(&method, found.is_some());
                self.send(&Envelope::failure(id, &method, &fault));
                return Ok(());
            }
        };
        match row.name {
            "ipc.hello" => {
                let outcome = self.hello(payload);
                let proven = self.token.is_none();
                self.answer(Done {
                    id,
                    method: row.name,
                    outcome,
                });
                return if proven { Ok(()) } else { Err(End::Refused) };
            }
            "events.follow" => {
                let outcome = self.start_following(payload);
                self.answer(Done {
                    id,
                    method: row.name,
                    outcome,
                });
            }
            "events.drain" => {
                let outcome = params("events.drain", payload).map(|params| self.drain.take(params));
                self.in_flight.push(Box::pin(async move {
                    let outcome = match outcome {
                        Ok(taking) => taking.await,
                        Err(fault) => Err(fault),
                    };
                    Done {
                        id,
                        method: "events.drain",
                        outcome,
                    }
                }));
            }
            name => self.call(id, name, payload),
        }
        Ok(())
    }

    fn call(&mut self, id: u64, method: &'static str, params: Value) {
        let mut call = Call::new(method, params, self.origin);
        call.cancel = self.cancel.child_token();
        let answering = self.shared.handler.call(call);
        self.in_flight.push(Box::pin(async move {
            Done {
                id,
                method,
                outcome: answering.await,
            }
        }));
    }

    fn hello(&mut self, payload: Value) -> Result<Answer, Fault> {
        let asked: HelloParams = params("ipc.hello", payload)?;
        if let Some(token) = &self.token {
            let given = asked.token.unwrap_or_default();
            if !token.equals(given.expose()) {
                return Err(unproven());
            }
            self.token = None;
        }
        self.binary = asked.binary;
        if asked.binary {
            self.decoder.allow_binary();
        }
        Answer::of(&HelloReply {
            server: "wingman".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            binary: asked.binary,
            message_len_max: limits::IPC_BODY_LEN_MAX as u64,
        })
    }

    fn start_following(&mut self, payload: Value) -> Result<Answer, Fault> {
        if self.follow.is_some() {
            return Err(Fault::new(
                Code::Conflict,
                "this connection follows events already",
            ));
        }
        let params = params("events.follow", payload)?;
        let (follow, reply) = Follow::start(&self.shared.journal, params)?;
        self.follow = Some(follow);
        Answer::of(&reply)
    }

    fn answer(&mut self, done: Done) {
        let Done {
            id,
            method,
            outcome,
        } = done;
        let envelope = match outcome.and_then(|answer| self.with_channel(answer)) {
            Ok((data, note)) => Envelope::success(id, method, data, note),
            Err(fault) => Envelope::failure(id, method, &fault),
        };
        self.send(&envelope);
    }

    /// Opens the channel that the answer needs, where it needs one.
    fn with_channel(&mut self, mut answer: Answer) -> Result<(Value, Option<ChannelNote>), Fault> {
        if let Some(end) = answer.stream.take() {
            let note = self.open_stream(end)?;
            return Ok((answer.data, Some(note)));
        }
        match answer.blob.take() {
            Some(blob) if self.binary => {
                let note = self.open_blob(blob)?;
                Ok((answer.data, Some(note)))
            }
            blob => {
                answer.blob = blob;
                Ok((answer.into_inline(), None))
            }
        }
    }

    fn open_stream(&mut self, end: StreamEnd) -> Result<ChannelNote, Fault> {
        if !self.binary {
            let text = "a stream needs Data frames: say ipc.hello with binary:true first";
            return Err(Fault::new(Code::Unsupported, text));
        }
        let channel = self.next_channel();
        let stream = OpenStream::new(&self.channels, channel)?;
        tokio::spawn(stream.carry(end));
        Ok(ChannelNote::Stream { channel })
    }

    fn open_blob(&mut self, blob: Blob) -> Result<ChannelNote, Fault> {
        let channel = self.next_channel();
        let credit = self.channels.open_outlet(channel)?;
        let note = ChannelNote::of(channel, &blob);
        let channels = Arc::clone(&self.channels);
        tokio::spawn(async move {
            if let Err(fault) = send_bytes(&channels, channel, &credit, &blob.bytes).await {
                tracing::debug!(%fault, "the answer's bytes were not all wanted");
            }
        });
        Ok(note)
    }

    fn next_channel(&mut self) -> u32 {
        self.last_channel = self.last_channel.wrapping_add(1);
        self.last_channel
    }

    /// Sends what is buffered, and answers that come in time when `answers` are still wanted.
    async fn flush_within_limit(&mut self, answers: bool) {
        let limit = Duration::from_millis(limits::IPC_FLUSH_MS);
        let flushing = async {
            self.write.write_all_buf(&mut self.outbox).await?;
            if answers {
                self.cancel.cancel();
                while let Some(done) = self.in_flight.next().await {
                    self.answer(done);
                    self.write.write_all_buf(&mut self.outbox).await?;
                }
            }
            self.write.shutdown().await
        };
        let flushed: Result<io::Result<()>, _> = tokio::time::timeout(limit, flushing).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::debug!("a local client did not take its last answers");
        }
    }
}

/// Waits for ever when nothing is followed.
async fn next_event(follow: &mut Option<Follow>) -> (Envelope, bool) {
    match follow {
        Some(follow) => follow.next().await,
        None => std::future::pending().await,
    }
}

fn params<T: DeserializeOwned>(method: &str, payload: Value) -> Result<T, Fault> {
    serde_json::from_value(payload).map_err(|error| Fault::invalid_params(method, error))
}

fn unproven() -> Fault {
    Fault::new(
        Code::PeerDenied,
        "on loopback TCP ipc.hello comes first, with the text of ipc-token",
    )
}

fn unknown_method(method: &str, elsewhere: bool) -> Fault {
    let text: String = method.chars().take(limits::ID_LEN_MAX).collect();
    let why = if elsewhere {
        format!("{text} is not a method of the local wire; ask the server")
    } else {
        format!("unknown method {text}")
    };
    Fault::new(Code::UnknownMethod, why)
}
