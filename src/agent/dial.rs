//! Dialling the server: TCP, TLS with the pinned key, or a pipe within the process; then registration.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

use super::plain;
use crate::base::limits;
use crate::config::RemoteConfig;
use crate::wire::frame::{Frame, FrameType, Protocol};
use crate::wire::framed::Framed;
use crate::wire::link::{CHALLENGE, LinkError, Notice, PING, PONG, Register, RegisterAck, object};
use crate::wire::rawkey::{self, AGENT_KEY_FILE, LinkKey, PublicKey};
use crate::wire::{Code, Fault};

/// Largest body of the opening exchange.
const OPENING_LEN_MAX: usize = 64 * 1024;
/// Bytes that a pipe within the process holds before its writer waits.
const PIPE_LEN: usize = 256 * 1024;

/// A connection, whatever it runs on.
pub(super) type Connection = Framed<Box<dyn Stream>>;

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Where links lead.
#[derive(Clone, Debug)]
pub enum Connector {
    /// The server that the configuration names.
    Tcp,
    /// A gateway of this process: it receives the far end of each link.
    Memory(mpsc::Sender<tokio::io::DuplexStream>),
}

/// Opens a TLS connection to a server whose key is `pin`: `pin_mismatch`, `link_closed`.
pub(super) async fn tls(
    host: &str,
    port: u16,
    key: &LinkKey,
    pin: PublicKey,
) -> Result<Connection, Fault> {
    let stream = tcp(host, port).await?;
    let connector = TlsConnector::from(rawkey::client_config(key, pin)?);
    let stream = connector
        .connect(rawkey::server_name(), stream)
        .await
        .map_err(|error| rawkey::handshake_fault(&error))?;
    if stream.get_ref().1.alpn_protocol() != Some(rawkey::ALPN) {
        return Err(Fault::new(
            Code::ProtocolUnsupported,
            "the server does not speak protocol 2 there",
        ));
    }
    Ok(Framed::new(Box::new(stream), Protocol::V2, OPENING_LEN_MAX))
}

async fn tcp(host: &str, port: u16) -> Result<TcpStream, Fault> {
    let stream = TcpStream::connect((host, port)).await.map_err(|error| {
        Fault::new(
            Code::EndpointUnavailable,
            format!("connect to {host}:{port}: {error}"),
        )
    })?;
    // Small frames must not wait for one another; a socket that cannot is still a link.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Bounds a step of the opening.
pub(super) async fn within<T>(
    time: Duration,
    what: &str,
    step: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::time::timeout(time, step).await.unwrap_or_else(|_| {
        Err(Fault::new(
            Code::TimedOut,
            format!("{what}: no answer within {} s", time.as_secs_f64()),
        ))
    })
}

/// Connects as the configuration says.
pub(super) async fn connect(
    connector: &Connector,
    remote: &RemoteConfig,
    data_dir: &Path,
) -> Result<Connection, Fault> {
    let gateway = match connector {
        Connector::Memory(gateway) => gateway,
        Connector::Tcp => {
            let time = Duration::from_secs(remote.connect_timeout);
            return within(time, "connect", connect_tcp(remote, data_dir)).await;
        }
    };
    let (near, far) = tokio::io::duplex(PIPE_LEN);
    gateway
        .send(far)
        .await
        .map_err(|_| Fault::new(Code::EndpointUnavailable, "the server has stopped"))?;
    Ok(Framed::new(Box::new(near), Protocol::V2, OPENING_LEN_MAX))
}

async fn connect_tcp(remote: &RemoteConfig, data_dir: &Path) -> Result<Connection, Fault> {
    if remote.protocol == 1 {
        let stream = tcp(&remote.server_ip, remote.server_port).await?;
        return Ok(Framed::new(Box::new(stream), Protocol::V1, OPENING_LEN_MAX));
    }
    let not_joined = || {
        Fault::new(
            Code::ConfigInvalid,
            "not joined to this server yet: run `wingman agent join` with a join string",
        )
    };
    let pin = PublicKey::parse_hex(&remote.server_key).ok_or_else(not_joined)?;
    let key = LinkKey::load(&data_dir.join(AGENT_KEY_FILE))?.ok_or_else(not_joined)?;
    tls(&remote.server_ip, remote.server_port, &key, pin).await
}

/// A refusal, with the time that the server asks to wait.
#[derive(Debug)]
pub(super) struct Refused {
    pub fault: Fault,
    pub retry_ms: Option<u64>,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            retry_ms: None,
        }
    }
}

/// Sends `agent.register` and waits for the ack, answering a challenge on the way.
pub(super) async fn register(
    connection: &mut Connection,
    register: &Register,
    remote: &RemoteConfig,
) -> Result<RegisterAck, Refused> {
    let time = Duration::from_millis(limits::REGISTER_TIMEOUT_MS);
    let exchange = async {
        connection.notify(register).await?;
        wait_for_ack(connection, remote).await
    };
    let ack = within(time, "register", exchange).await?;
    if ack.success {
        return Ok(ack);
    }
    let text = ack
        .error
        .unwrap_or_else(|| "the server gave no reason".to_owned());
    Err(Refused {
        fault: match ack.code {
            Some(code) => Fault::from_wire(Some(&code), text),
            // Old servers give a text alone, and refuse for one reason.
            None => Fault::new(Code::TokenInvalid, text),
        },
        retry_ms: ack.retry_ms,
    })
}

async fn wait_for_ack(
    connection: &mut Connection,
    remote: &RemoteConfig,
) -> Result<RegisterAck, Fault> {
    loop {
        let frame = connection.read().await?;
        match frame.frame_type {
            FrameType::Notify if frame.body == PING => {
                let pong = Frame::new(FrameType::Notify, 0, PONG);
                connection.write(&pong).await?;
            }
            FrameType::Notify => {
                // What else an old server tells before its ack is not for this exchange.
                if let Ok(notice) = Notice::parse(&frame.body)
                    && let Some(ack) = notice.read::<RegisterAck>()
                {
                    return ack;
                }
            }
            FrameType::Request => {
                let body = answer_challenge(&object(&frame.body)?, remote);
                let response = Frame::new(FrameType::Response, frame.sequence, body.to_string());
                connection.write(&response).await?;
            }
            FrameType::Error => {
                let fields = Value::Object(object(&frame.body)?);
                let error: LinkError = serde_json::from_value(fields)
                    .map_err(|error| Fault::new(Code::InvalidMessage, error.to_string()))?;
                return Err(error.into_fault());
            }
            FrameType::Response | FrameType::Data => {}
        }
    }
}

fn answer_challenge(request: &serde_json::Map<String, Value>, remote: &RemoteConfig) -> Value {
    let method = request.get("method").or(request.get("type"));
    if method.and_then(Value::as_str) != Some(CHALLENGE) {
        return json!({"success": false, "error": "not registered yet"});
    }
    let nonce = request.get("nonce").and_then(Value::as_str).unwrap_or("");
    if remote.register_token.is_empty() {
        let error = "no auth token configured";
        return json!({
            "success": false, "method": CHALLENGE, "error": error, "hmac": "",
            "data": {"hmac": "", "error": error},
        });
    }
    let hmac = plain::challenge_hmac(&remote.register_token, nonce);
    // Servers of protocol 1 read the answer in either place.
    json!({"success": true, "method": CHALLENGE, "hmac": hmac, "data": {"hmac": hmac}})
}
