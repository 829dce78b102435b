//! The calling end of local IPC: one task owns the connection, callers talk to it.
//!
//! Calls may overlap; answers come in any order. Bytes and streams beside an answer come as Data
//! frames, for which the client gives credit as they are taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::events::STREAM_END;
use super::{BoxWire, Endpoint, channels, local_tcp};
use crate::base::{Secret, limits};
use crate::platform::{local_socket, local_stream};
use crate::wire::blob_flow::OpenInlet;
use crate::wire::channel::Channels;
use crate::wire::envelope::{ChannelNote, Decoder, Envelope, Kind, Unit};
use crate::wire::event::Record;
use crate::wire::messages::events::{FollowParams, FollowReply};
use crate::wire::messages::ipc::HelloParams;
use crate::wire::stream_flow::OpenStream;
use crate::wire::{Answer, Code, Fault, StreamEnd};

/// An answer and what came beside it.
#[derive(Debug, Default)]
pub struct Reply {
    pub data: Value,
    pub bytes: Option<ReplyBytes>,
    /// The caller's end of the stream that the call opened; it keeps the connection.
    pub stream: Option<StreamEnd>,
}

/// Bytes of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyBytes {
    pub content_type: String,
    /// The field of the answer that would carry them as a `data:` URL.
    pub field: String,
    pub bytes: Bytes,
}

struct Asked {
    method: String,
    params: Value,
    answer: oneshot::Sender<Result<Answered, Fault>>,
    /// Where the events of this call go.
    events: Option<mpsc::Sender<Result<Record, Fault>>>,
}

/// An answer with the channel that it opened; dropping it ends the channel.
struct Answered {
    data: Value,
    beside: Beside,
}

enum Beside {
    Nothing,
    Bytes {
        inlet: OpenInlet,
        size: u64,
        content_type: String,
        field: String,
    },
    Stream(OpenStream),
}

/// A connection to a local agent; clones share it. It closes when the last clone and stream are gone.
#[derive(Clone, Debug)]
pub struct Client {
    endpoint: Endpoint,
    calls: mpsc::Sender<Asked>,
}

/// A stream of records with its connection; dropping it ends both.
#[derive(Debug)]
pub struct EventStream {
    /// The first sequence that the stream sends.
    pub next_seq: u64,
    records: mpsc::Receiver<Result<Record, Fault>>,
    _client: Client,
}

impl EventStream {
    /// The next record; `None` when a stream that was not to follow has ended. `link_closed` when
    /// the agent went away.
    pub async fn next(&mut self) -> Option<Result<Record, Fault>> {
        self.records.recv().await
    }
}

impl Client {
    /// Connects and says hello. Errors: `endpoint_unavailable` when nothing listens there,
    /// `peer_denied`, `too_many_clients`.
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, Fault> {
        let (wire, token) = open(endpoint).await.map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::PermissionDenied => Code::PeerDenied,
                _ => Code::EndpointUnavailable,
            };
            Fault::new(code, format!("no agent answers at {endpoint}: {error}"))
        })?;
        let (calls, asked) = mpsc::channel(limits::IPC_CLIENT_QUEUE_LEN_MAX);
        tokio::spawn(Task::new(wire, asked).run());
        let client = Self {
            endpoint: endpoint.clone(),
            calls,
        };
        let hello = HelloParams {
            binary: true,
            token,
        };
        let hello = serde_json::to_value(&hello).map_err(Fault::internal)?;
        let limit = Duration::from_millis(limits::IPC_HELLO_TIMEOUT_MS);
        match tokio::time::timeout(limit, client.call("ipc.hello", hello)).await {
            Ok(answer) => answer.map(|_| client),
            Err(_) => {
                let text = format!("the agent at {endpoint} does not answer");
                Err(Fault::new(Code::EndpointUnavailable, text))
            }
        }
    }

    /// Calls a method and waits for its answer. Dropping the future abandons the wait, not the work.
    pub async fn call(&self, method: &str, params: Value) -> Result<Reply, Fault> {
        self.ask(method, params, None).await
    }

    /// Follows the journal over a connection of its own, so that a slow reader of events holds up
    /// no answer.
    pub async fn follow(&self, params: FollowParams) -> Result<EventStream, Fault> {
        Self::connect(&self.endpoint)
            .await?
            .into_stream(params)
            .await
    }

    async fn into_stream(self, params: FollowParams) -> Result<EventStream, Fault> {
        let (send, records) = mpsc::channel(limits::EVENT_STREAM_QUEUE_LEN_MAX);
        let params = serde_json::to_value(&params).map_err(Fault::internal)?;
        let reply = self.ask("events.follow", params, Some(send)).await?;
        let answer = Answer {
            data: reply.data,
            blob: None,
            stream: None,
        };
        let start: FollowReply = answer.read()?;
        Ok(EventStream {
            next_seq: start.next_seq,
            records,
            _client: self,
        })
    }

    async fn ask(
        &self,
        method: &str,
        params: Value,
        events: Option<mpsc::Sender<Result<Record, Fault>>>,
    ) -> Result<Reply, Fault> {
        let (answer, answered) = oneshot::channel();
        let asked = Asked {
            method: method.to_owned(),
            params,
            answer,
            events,
        };
        self.calls.send(asked).await.map_err(|_| gone())?;
        let Answered { data, beside } = answered.await.map_err(|_| gone())??;
        match beside {
            Beside::Nothing => Ok(Reply {
                data,
                ..Reply::default()
            }),
            Beside::Bytes {
                inlet,
                size,
                content_type,
                field,
            } => {
                let bytes = inlet.collect(size).await?;
                Ok(Reply {
                    data,
                    bytes: Some(ReplyBytes {
                        content_type,
                        field,
                        bytes,
                    }),
                    stream: None,
                })
            }
            Beside::Stream(stream) => {
                let (near, far) = StreamEnd::pair();
                let keep = self.clone();
                tokio::spawn(async move {
                    stream.carry(far).await;
                    drop(keep);
                });
                Ok(Reply {
                    data,
                    bytes: None,
                    stream: Some(near),
                })
            }
        }
    }
}

async fn open(endpoint: &Endpoint) -> std::io::Result<(BoxWire, Option<Secret>)> {
    match endpoint {
        Endpoint::Local(path) => {
            let stream = local_socket::connect(path).await?;
            Ok((Box::new(local_stream::own(stream)?), None))
        }
        Endpoint::Tcp { address, token } => {
            let (stream, secret) = local_tcp::connect(*address, token).await?;
            Ok((Box::new(stream), Some(secret)))
        }
    }
}

fn gone() -> Fault {
    Fault::new(Code::LinkClosed, "the agent closed the connection")
}

struct Task {
    read: ReadHalf<BoxWire>,
    write: WriteHalf<BoxWire>,
    inbox: BytesMut,
    outbox: BytesMut,
    decoder: Decoder,
    asked: mpsc::Receiver<Asked>,
    next_id: u64,
    waiting: HashMap<u64, Asked>,
    channels: Arc<Channels>,
    events: Option<mpsc::Sender<Result<Record, Fault>>>,
    /// A record that its reader has no room for yet; nothing else is read meanwhile.
    held: Option<Result<Record, Fault>>,
}

impl Task {
    fn new(wire: BoxWire, asked: mpsc::Receiver<Asked>) -> Self {
        let (read, write) = tokio::io::split(wire);
        let mut decoder = Decoder::default();
        decoder.allow_binary();
        Self {
            read,
            write,
            inbox: BytesMut::new(),
            outbox: BytesMut::new(),
            decoder,
            asked,
            next_id: 1,
            waiting: HashMap::new(),
            channels: Arc::default(),
            events: None,
            held: None,
        }
    }

    async fn run(mut self) {
        let ended = self.serve().await;
        let fault = match ended {
            Ok(()) => {
                self.flush().await;
                self.channels.end();
                return;
            }
            Err(fault) => fault,
        };
        self.channels.end();
        for (_, asked) in self.waiting.drain() {
            // A caller that stopped waiting needs no answer; so below.
            let _ = asked.answer.send(Err(fault.clone()));
        }
        if let Some(events) = self.events.take() {
            let _ = events.send(Err(fault)).await;
        }
    }

    /// What streams sent before their ends were dropped still goes out.
    async fn flush(&mut self) {
        let limit = Duration::from_millis(limits::IPC_FLUSH_MS);
        let flushing = async {
            loop {
                channels::pump(&self.channels, &mut self.outbox)?;
                if self.outbox.is_empty() {
                    return Ok::<(), Fault>(());
                }
                let written = self.write.write_all_buf(&mut self.outbox).await;
                written.map_err(|_| gone())?;
            }
        };
        if !matches!(tokio::time::timeout(limit, flushing).await, Ok(Ok(()))) {
            tracing::debug!("the agent did not take the last bytes");
        }
    }

    /// Runs until no caller is left (`Ok`) or the connection ends.
    async fn serve(&mut self) -> Result<(), Fault> {
        loop {
            self.take_units()?;
            channels::pump(&self.channels, &mut self.outbox)?;
            let room = self.outbox.len() < limits::IPC_SEND_BUFFER_LEN_MAX;
            let reading = self.held.is_none();
            tokio::select! {
                biased;
                written = self.write.write_buf(&mut self.outbox), if !self.outbox.is_empty() => {
                    if !matches!(written, Ok(1..)) {
                        return Err(self.last_words().await);
                    }
                }
                read = self.read.read_buf(&mut self.inbox), if reading => {
                    if !matches!(read, Ok(1..)) {
                        return Err(gone());
                    }
                }
                () = self.channels.turns.notified(), if room => {}
                permit = place(self.events.clone()), if !reading => self.hand_over(permit),
                asked = self.asked.recv(), if room => match asked {
                    Some(asked) => self.ask(asked),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Why the agent takes nothing more: it may have said so before it closed.
    async fn last_words(&mut self) -> Fault {
        let reading = async {
            while self.held.is_none() {
                if let Err(fault) = self.take_units() {
                    return fault;
                }
                if !matches!(self.read.read_buf(&mut self.inbox).await, Ok(1..)) {
                    break;
                }
            }
            gone()
        };
        let limit = Duration::from_millis(limits::IPC_FLUSH_MS);
        let said = tokio::time::timeout(limit, reading).await;
        said.unwrap_or_else(|_| gone())
    }

    /// Gives the held record to its reader; a reader that has gone gets no more.
    fn hand_over(&mut self, permit: Option<mpsc::OwnedPermit<Result<Record, Fault>>>) {
        let ended = !matches!(self.held, Some(Ok(_))) || permit.is_none();
        if let (Some(permit), Some(record)) = (permit, self.held.take()) {
            permit.send(record);
        }
        self.held = None;
        if ended {
            self.events = None;
        }
    }

    fn ask(&mut self, mut asked: Asked) {
        let id = self.next_id;
        self.next_id += 1;
        let params = std::mem::take(&mut asked.params);
        match Envelope::request(id, &asked.method, params).put(&mut self.outbox) {
            Ok(()) => {
                self.waiting.insert(id, asked);
            }
            Err(fault) => {
                // A caller that stopped waiting needs no answer; so below.
                let _ = asked.answer.send(Err(fault));
            }
        }
    }

    fn take_units(&mut self) -> Result<(), Fault> {
        while self.held.is_none() {
            match self
                .decoder
                .decode(&mut self.inbox)
                .map_err(|e| Fault::from(&e))?
            {
                None => break,
                Some(Unit::Message(bytes)) => self.message(&bytes)?,
                Some(Unit::Data {
                    channel,
                    kind,
                    body,
                }) => self.channels.accept(channel, None, Some(kind), body),
            }
        }
        Ok(())
    }

    fn message(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let envelope = Envelope::parse(bytes).map_err(|unreadable| unreadable.fault)?;
        match envelope.kind {
            Kind::Response => self.response(envelope),
            // It belongs to no call: the agent closes next.
            Kind::Error => Err(match envelope.into_outcome() {
                Err(fault) => fault,
                Ok(_) => gone(),
            }),
            Kind::Event => self.event(envelope),
            Kind::Request => Ok(()),
        }
    }

    fn response(&mut self, envelope: Envelope) -> Result<(), Fault> {
        let Some(mut asked) = self.waiting.remove(&envelope.id) else {
            return Ok(());
        };
        let (answer, note) = match envelope.into_outcome() {
            Ok(outcome) => outcome,
            Err(fault) => {
                let _ = asked.answer.send(Err(fault));
                return Ok(());
            }
        };
        if let Some(events) = asked.events.take() {
            self.events = Some(events);
        }
        let answered = self.open(note).map(|beside| Answered {
            data: answer.data,
            beside,
        });
        // For a caller that stopped waiting the channel ends here.
        let _ = asked.answer.send(answered);
        Ok(())
    }

    /// Opens the channel of an answer at once: its frames may be the next thing that comes.
    fn open(&self, note: Option<ChannelNote>) -> Result<Beside, Fault> {
        match note {
            None => Ok(Beside::Nothing),
            Some(ChannelNote::Stream { channel }) => {
                OpenStream::new(&self.channels, channel).map(Beside::Stream)
            }
            Some(ChannelNote::Bytes {
                channel,
                size,
                content_type,
                field,
            }) => Ok(Beside::Bytes {
                inlet: OpenInlet::new(&self.channels, channel)?,
                size,
                content_type,
                field,
            }),
        }
    }

    fn event(&mut self, envelope: Envelope) -> Result<(), Fault> {
        match envelope.method.as_str() {
            STREAM_END => {
                let text = |key: &str| envelope.payload.get(key).and_then(Value::as_str);
                match text("error") {
                    Some(error) => {
                        self.held = Some(Err(Fault::from_wire(text("code"), error)));
                    }
                    None => self.events = None,
                }
            }
            _ if channels::take(&self.channels, &envelope) => {}
            _ => {
                let record: Record = serde_json::from_value(envelope.payload).map_err(|error| {
                    Fault::new(Code::InvalidMessage, format!("read an event: {error}"))
                })?;
                if self.events.is_some() {
                    self.held = Some(Ok(record));
                }
            }
        }
        Ok(())
    }
}

/// A place for one record; `None` when its reader has gone.
async fn place(
    events: Option<mpsc::Sender<Result<Record, Fault>>>,
) -> Option<mpsc::OwnedPermit<Result<Record, Fault>>> {
    events?.reserve_owned().await.ok()
}
