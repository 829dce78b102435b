//! The door through which every front door (local IPC, the link, in-process callers) reaches a node.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::codes::{Code, Fault};
use super::method::Method;
use super::stream::StreamEnd;
use crate::base::ids::CommandId;

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Where a call came from. Held keys and cursors belong to an origin and end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A connection of local IPC, numbered per agent process.
    Local { connection: u64 },
    /// The link to the server, by its registration epoch.
    Server { epoch: u64 },
}

impl Origin {
    pub fn is_local(self) -> bool {
        matches!(self, Self::Local { .. })
    }
}

/// One method call.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: String,
    /// Always an object; typed JSON, never strings of JSON.
    pub params: Value,
    pub origin: Origin,
    /// Present on protocol 2: a repeated id is answered with the recorded outcome.
    pub command_id: Option<CommandId>,
    /// The caller's patience in milliseconds; the method's default when absent.
    pub timeout_ms: Option<u64>,
    /// Fires when the caller has gone or has cancelled.
    pub cancel: CancellationToken,
}

impl Call {
    /// A call with default options.
    pub fn new(method: impl Into<String>, params: Value, origin: Origin) -> Self {
        Self {
            method: method.into(),
            params,
            origin,
            command_id: None,
            timeout_ms: None,
            cancel: CancellationToken::new(),
        }
    }

    /// A typed call with default options.
    pub fn of<M: Method>(params: &M::Params, origin: Origin) -> Result<Self, Fault> {
        let params =
            serde_json::to_value(params).map_err(|error| Fault::invalid_params(M::NAME, error))?;
        Ok(Self::new(M::NAME, params, origin))
    }
}

/// Bytes that travel beside a JSON answer: by channel where the wire has channels, else inline as
/// base64 in the field that the method names (`Blob::field`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    pub content_type: String,
    pub bytes: Bytes,
    /// The JSON field that carries a `data:` URL on wires without channels.
    pub field: &'static str,
}

/// The outcome of a successful call.
#[derive(Debug, Default)]
pub struct Answer {
    pub data: Value,
    pub blob: Option<Blob>,
    /// The answering side's end of a stream that the call opened; on a wire without channels such
    /// an answer is refused.
    pub stream: Option<StreamEnd>,
}

impl Answer {
    /// An answer without bytes.
    pub fn of<T: serde::Serialize>(data: &T) -> Result<Self, Fault> {
        let data = serde_json::to_value(data)
            .map_err(|error| Fault::internal(format!("encode the answer: {error}")))?;
        Ok(Self {
            data,
            ..Self::default()
        })
    }

    /// Reads the JSON part.
    pub fn read<T: serde::de::DeserializeOwned>(self) -> Result<T, Fault> {
        serde_json::from_value(self.data)
            .map_err(|error| Fault::new(Code::InvalidMessage, format!("read the answer: {error}")))
    }

    /// The JSON part with the bytes inlined as a `data:` URL.
    pub fn into_inline(self) -> Value {
        let Answer { mut data, blob, .. } = self;
        if let (Some(blob), Value::Object(fields)) = (blob, &mut data) {
            let encoded = data_encoding::BASE64.encode(&blob.bytes);
            let url = format!("data:{};base64,{encoded}", blob.content_type);
            fields.insert(blob.field.to_owned(), Value::String(url));
        }
        data
    }
}

/// Whoever answers calls. Dropping the returned future abandons the wait, not the work: work that
/// must end with its caller watches `Call::cancel`.
pub trait Handler: Send + Sync + 'static {
    fn call(&self, call: Call) -> BoxFuture<Result<Answer, Fault>>;

    /// A connection begins. Handlers that count callers override it.
    fn connected(&self, origin: Origin) {
        let _ = origin;
    }

    /// The origin is gone: release what it held.
    fn disconnected(&self, origin: Origin);
}
