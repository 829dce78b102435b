//! Calls over HTTP: the method's row gives the request, the answer's envelope gives the outcome.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method as Verb, Request, Response, StatusCode, Uri, header};
use serde_json::Value;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config, tungstenite};

use super::caller::Blob;
use super::pool::{Lease, Pool, Wire};
use super::request::{Shape, shape};
use crate::base::ids::AgentId;
use crate::base::{Secret, limits};
use crate::wire::event::Record;
use crate::wire::method::{self, Body};
use crate::wire::{Code, Fault, MethodRow};

/// An open WebSocket to a server.
pub(super) type Socket = WebSocketStream<Box<dyn Wire>>;

/// A server and the right to call it.
#[derive(Clone)]
pub struct HttpCaller {
    base: Uri,
    pool: Arc<Pool>,
    token: Option<Secret>,
}

impl HttpCaller {
    /// A caller of the server at `base`, such as `https://host:9527`; it connects when first used.
    /// `pin` is the SHA-256 of the server's own certificate.
    pub fn new(base: &str, token: Option<Secret>, pin: Option<&str>) -> Result<Self, Fault> {
        let base: Uri = base.parse().map_err(|error| {
            Fault::new(Code::InvalidParams, format!("server {base:?}: {error}"))
        })?;
        let pool = Arc::new(Pool::new(&base, pin)?);
        Ok(Self { base, pool, token })
    }

    /// The server's address.
    pub fn server(&self) -> String {
        self.base.to_string().trim_end_matches('/').to_owned()
    }

    pub(super) async fn call(
        &self,
        row: &MethodRow,
        params: Value,
        agent: Option<&AgentId>,
    ) -> Result<(Value, Option<Blob>), Fault> {
        let shape = shape(row, params, agent)?;
        let patience = row.timeout_ms.map(|ms| ms + limits::HTTP_EXTRA_PATIENCE_MS);
        let asking = async {
            let (response, lease) = self.send(&shape).await?;
            let answer = read(response, shape.answer).await?;
            lease.give_back();
            Ok(answer)
        };
        match patience {
            None => asking.await,
            Some(ms) => tokio::time::timeout(Duration::from_millis(ms), asking)
                .await
                .unwrap_or_else(|_| {
                    let text = format!("{} was not answered within {ms} ms", row.name);
                    Err(Fault::new(Code::TimedOut, text))
                }),
        }
    }

    /// Opens a stream of records.
    pub(super) async fn follow(
        &self,
        row: &MethodRow,
        params: Value,
    ) -> Result<RecordStream, Fault> {
        let shape = shape(row, params, None)?;
        let (response, lease) = self.send(&shape).await?;
        if !response.status().is_success() {
            return Err(failure(response).await);
        }
        Ok(RecordStream {
            body: response.into_body(),
            line: BytesMut::new(),
            ended: false,
            _lease: lease,
        })
    }

    fn bearer(&self) -> Result<Option<header::HeaderValue>, Fault> {
        let Some(token) = &self.token else {
            return Ok(None);
        };
        let bearer = format!("Bearer {}", token.expose());
        let mut value = header::HeaderValue::try_from(bearer).map_err(|_| {
            Fault::new(
                Code::InvalidParams,
                "the token has characters that no token has",
            )
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Opens a WebSocket at `target`, a path with its query. Refusals are told as the server gave them.
    pub(super) async fn socket(&self, target: &str) -> Result<Socket, Fault> {
        let host = self
            .base
            .authority()
            .map_or("", |authority| authority.as_str());
        let prefix = self.base.path().trim_end_matches('/');
        // The scheme says nothing here: the connection is open already, with TLS where there is any.
        let mut request = format!("ws://{host}{prefix}{target}")
            .into_client_request()
            .map_err(|error| Fault::internal(format!("build the request: {error}")))?;
        if let Some(value) = self.bearer()? {
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let wire = self.pool.open().await?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(limits::SOCKET_MESSAGE_LEN_MAX))
            .max_frame_size(Some(limits::SOCKET_MESSAGE_LEN_MAX));
        let limit = Duration::from_millis(limits::HTTP_CONNECT_TIMEOUT_MS);
        let opening = client_async_with_config(request, wire, Some(config));
        match tokio::time::timeout(limit, opening).await {
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(tungstenite::Error::Http(response))) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err(told(response.status(), body))
            }
            Ok(Err(error)) => {
                let text = format!("open a WebSocket: {error}");
                Err(Fault::new(Code::LinkClosed, text))
            }
            Err(_) => {
                let text = "the server does not open the WebSocket";
                Err(Fault::new(Code::EndpointUnavailable, text))
            }
        }
    }

    async fn send(&self, shape: &Shape) -> Result<(Response<Incoming>, Lease), Fault> {
        let verb = match shape.verb {
            method::Verb::Get => Verb::GET,
            method::Verb::Post => Verb::POST,
            method::Verb::Put => Verb::PUT,
            method::Verb::Delete => Verb::DELETE,
        };
        let host = self
            .base
            .authority()
            .map_or("", |authority| authority.as_str());
        let prefix = self.base.path().trim_end_matches('/');
        let mut request = Request::builder()
            .method(verb)
            .uri(format!("{prefix}{}", shape.target))
            .header(header::HOST, host)
            .header(
                header::USER_AGENT,
                concat!("wingman/", env!("CARGO_PKG_VERSION")),
            );
        if let Some(value) = self.bearer()? {
            request = request.header(header::AUTHORIZATION, value);
        }
        let body = match &shape.body {
            None => Bytes::new(),
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
        };
        let request = request
            .body(Full::new(body))
            .map_err(|error| Fault::internal(format!("build the request: {error}")))?;
        self.pool.send(request).await
    }
}

/// Reads an answer by its shape.
async fn read(response: Response<Incoming>, answer: Body) -> Result<(Value, Option<Blob>), Fault> {
    if !response.status().is_success() {
        return Err(failure(response).await);
    }
    let content_type = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("application/octet-stream")
        .to_owned();
    let bytes = collect(response).await?;
    if answer == Body::Bytes {
        let blob = Blob {
            content_type,
            bytes,
            field: None,
        };
        return Ok((Value::Null, Some(blob)));
    }
    let value = if bytes.is_empty() {
        Value::Object(serde_json::Map::new())
    } else {
        serde_json::from_slice(&bytes).map_err(|error| not_ours(format!("is no JSON: {error}")))?
    };
    match answer {
        Body::Enveloped => match value {
            Value::Object(mut fields) if fields.get("success") == Some(&Value::Bool(true)) => {
                Ok((fields.remove("data").unwrap_or(Value::Null), None))
            }
            _ => Err(not_ours("has no envelope")),
        },
        _ => Ok((value, None)),
    }
}

async fn collect(response: Response<Incoming>) -> Result<Bytes, Fault> {
    Limited::new(response.into_body(), limits::ARTIFACT_LEN_MAX)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| Fault::new(Code::LinkClosed, format!("read the answer: {error}")))
}

fn not_ours(why: impl std::fmt::Display) -> Fault {
    Fault::new(Code::InvalidMessage, format!("the server's answer {why}"))
}

/// Reads an error; one without our shape is told by its status.
async fn failure(response: Response<Incoming>) -> Fault {
    let status = response.status();
    let body = match collect(response).await {
        Ok(body) => body,
        Err(fault) => return fault,
    };
    told(status, &body)
}

fn told(status: StatusCode, body: &[u8]) -> Fault {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = value.get("error").unwrap_or(&value);
    let text = |key: &str| error.get(key).and_then(Value::as_str);
    match (text("code"), text("message")) {
        (Some(code), Some(message)) => Fault::from_wire(Some(code), message),
        _ => {
            let code = match status.as_u16() {
                401 => Code::Unauthenticated,
                403 => Code::PermissionDenied,
                404 => Code::RouteNotFound,
                400..=499 => Code::InvalidMessage,
                _ => Code::EndpointUnavailable,
            };
            Fault::new(code, format!("the server answered {status}"))
        }
    }
}

/// Records as they come, one JSON object a line.
pub struct RecordStream {
    body: Incoming,
    line: BytesMut,
    ended: bool,
    /// Keeps the connection to itself while the stream lasts.
    _lease: Lease,
}

impl RecordStream {
    /// The next record; `None` at the orderly end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<Record, Fault>> {
        loop {
            if let Some(at) = self.line.iter().position(|byte| *byte == b'\n') {
                let line = self.line.split_to(at);
                self.line.advance(1);
                match parse_line(&line) {
                    None => continue,
                    found => return found,
                }
            }
            if self.ended {
                return None;
            }
            if self.line.len() > limits::IPC_BODY_LEN_MAX {
                self.ended = true;
                self.line.clear();
                return Some(Err(Fault::new(Code::FrameTooLarge, "an event has no end")));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.line.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    self.ended = true;
                    let text = format!("the stream of events broke: {error}");
                    return Some(Err(Fault::new(Code::LinkClosed, text)));
                }
                None => {
                    self.ended = true;
                    if !self.line.is_empty() {
                        self.line.extend_from_slice(b"\n");
                    }
                }
            }
        }
    }
}

/// An empty line keeps the connection alive and is no record.
fn parse_line(line: &[u8]) -> Option<Result<Record, Fault>> {
    if line.trim_ascii().is_empty() {
        return None;
    }
    let value: Value = match serde_json::from_slice(line) {
        Ok(value) => value,
        Err(error) => return Some(Err(not_ours(format!("has a bad line: {error}")))),
    };
    if let Some(error) = value.get("error") {
        let text = |key: &str| error.get(key).and_then(Value::as_str);
        return Some(Err(Fault::from_wire(
            text("code"),
            text("message").unwrap_or("the stream of events ended"),
        )));
    }
    Some(
        serde_json::from_value(value)
            .map_err(|error| not_ours(format!("has a bad event: {error}"))),
    )
}
