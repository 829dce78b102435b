//! The one way in which the command line asks: the same call over HTTP or local IPC.

use bytes::Bytes;
use serde_json::Value;

use super::attach;
use super::http::{HttpCaller, RecordStream};
use crate::base::ids::AgentId;
use crate::ipc;
use crate::wire::event::Record;
use crate::wire::messages::events::{self, FollowParams};
use crate::wire::messages::sessions::{self, AttachParams, AttachReply, SessionRef};
use crate::wire::{Code, Fault, Method, MethodRow, StreamEnd, table};

/// Bytes of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    pub content_type: String,
    pub bytes: Bytes,
    /// The field of the answer that would carry them; HTTP has none.
    pub field: Option<String>,
}

/// A way to a node: through its server, or directly on this machine.
#[derive(Clone)]
pub enum Caller {
    Http {
        http: HttpCaller,
        /// The workstation that methods of a node go to.
        agent: Option<AgentId>,
    },
    Ipc(ipc::Client),
}

impl Caller {
    /// Calls a method. Dropping the future abandons the wait, not the work.
    pub async fn call<M: Method>(&self, params: &M::Params) -> Result<M::Reply, Fault> {
        let row = MethodRow::of::<M>();
        let params = serde_json::to_value(params).map_err(Fault::internal)?;
        let (data, _) = self.ask(&row, params).await?;
        serde_json::from_value(data).map_err(|error| {
            Fault::new(
                Code::InvalidMessage,
                format!("read the answer of {}: {error}", M::NAME),
            )
        })
    }

    /// Calls a method whose answer is bytes.
    pub async fn call_blob<M: Method>(&self, params: &M::Params) -> Result<Blob, Fault> {
        let row = MethodRow::of::<M>();
        let params = serde_json::to_value(params).map_err(Fault::internal)?;
        let (_, blob) = self.ask(&row, params).await?;
        blob.ok_or_else(|| {
            Fault::new(
                Code::InvalidMessage,
                format!("the answer of {} came without its bytes", M::NAME),
            )
        })
    }

    /// Calls a method by name with parameters as they are.
    pub async fn call_named(
        &self,
        method: &str,
        params: Value,
    ) -> Result<(Value, Option<Blob>), Fault> {
        match table::find(method) {
            Some(row) => self.ask(row, params).await,
            None => {
                let text = format!("unknown method {method}; --list shows them all");
                Err(Fault::new(Code::UnknownMethod, text))
            }
        }
    }

    async fn ask(&self, row: &MethodRow, params: Value) -> Result<(Value, Option<Blob>), Fault> {
        match self {
            Self::Http { http, agent } => http.call(row, params, agent.as_ref()).await,
            Self::Ipc(client) => {
                let reply = client.call(row.name, params).await?;
                let blob = reply.bytes.map(|bytes| Blob {
                    content_type: bytes.content_type,
                    bytes: bytes.bytes,
                    field: Some(bytes.field),
                });
                Ok((reply.data, blob))
            }
        }
    }

    /// Streams events of the server's journal, or of the local node's.
    pub async fn follow_events(&self, params: FollowParams) -> Result<EventStream, Fault> {
        match self {
            Self::Http { http, .. } => {
                let row = MethodRow::of::<events::Follow>();
                let params = serde_json::to_value(&params).map_err(Fault::internal)?;
                Ok(EventStream::Http(http.follow(&row, params).await?))
            }
            Self::Ipc(client) => Ok(EventStream::Ipc(client.follow(params).await?)),
        }
    }

    /// The workstation that calls are pointed at, where a server is asked and one was named.
    pub fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::Http { agent, .. } => agent.as_ref(),
            Self::Ipc(_) => None,
        }
    }

    /// Attaches a console to a terminal session: the answer, and the console's end of the stream, whose
    /// first piece is the control `attached`. Dropping the end detaches.
    pub async fn attach(&self, params: &AttachParams) -> Result<(AttachReply, StreamEnd), Fault> {
        match self {
            Self::Http { http, agent } => {
                let opened = attach::open(http, params, agent.as_ref()).await?;
                let id = params.session_id.clone();
                let session = self.call::<sessions::Get>(&SessionRef { id }).await?;
                Ok((attach::reply(opened.attached, session)?, opened.end))
            }
            Self::Ipc(client) => {
                let params = serde_json::to_value(params).map_err(Fault::internal)?;
                let reply = client.call(sessions::Attach::NAME, params).await?;
                let end = reply.stream.ok_or_else(|| {
                    Fault::new(Code::InvalidMessage, "the answer came without its stream")
                })?;
                let data = serde_json::from_value(reply.data).map_err(|error| {
                    Fault::new(Code::InvalidMessage, format!("read the answer: {error}"))
                })?;
                Ok((data, end))
            }
        }
    }

    /// Whether calls go to the agent on this machine.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Ipc(_))
    }
}

/// Records as they come.
pub enum EventStream {
    Http(RecordStream),
    Ipc(ipc::EventStream),
}

impl EventStream {
    /// The next record; `None` at the orderly end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<Record, Fault>> {
        match self {
            Self::Http(stream) => stream.next().await,
            Self::Ipc(stream) => stream.next().await,
        }
    }
}
