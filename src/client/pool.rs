//! Connections to one server: HTTP/1 made when needed, kept while idle, at most one idle; and bare
//! ones for WebSockets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::base::limits;
use crate::wire::{Code, Fault};

type Sender = SendRequest<Full<Bytes>>;

/// A byte stream with or without TLS.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Where to connect and how.
pub(super) struct Pool {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    idle: Mutex<Option<Sender>>,
}

impl Pool {
    /// Reads `http://host:port` or `https://host:port`; `invalid_params` for anything else.
    pub fn new(base: &Uri, pin: Option<&str>) -> Result<Self, Fault> {
        let bad = |why: &str| Fault::new(Code::InvalidParams, format!("server {base}: {why}"));
        let host = base.host().ok_or_else(|| bad("names no host"))?;
        let bare = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let secure = match base.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("must begin with http:// or https://")),
        };
        let tls = if secure {
            let name = ServerName::try_from(bare.clone())
                .map_err(|_| bad("names a host that TLS cannot check"))?;
            Some((TlsConnector::from(super::tls::config(pin)?), name))
        } else {
            None
        };
        Ok(Self {
            port: base.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            host: bare,
            tls,
            idle: Mutex::new(None),
        })
    }

    /// Sends a request over an idle connection or a new one. `endpoint_unavailable` when the server
    /// cannot be reached, `link_closed` when it goes before the answer.
    pub async fn send(
        self: &Arc<Self>,
        request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Lease), Fault> {
        let mut request = request;
        let mut sender = match self.take_idle().await {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let response = loop {
            match sender.try_send_request(request).await {
                Ok(response) => break response,
                Err(mut error) => match error.take_message() {
                    // An idle connection that the server closed just now: nothing was sent.
                    Some(unsent) => {
                        request = unsent;
                        sender = self.connect().await?;
                    }
                    None => {
                        let text = format!("ask {}: {}", self.host, error.into_error());
                        return Err(Fault::new(Code::LinkClosed, text));
                    }
                },
            }
        };
        let lease = Lease {
            pool: Arc::clone(self),
            sender,
        };
        Ok((response, lease))
    }

    async fn take_idle(&self) -> Option<Sender> {
        let mut sender = self.lock().take()?;
        // A connection that the server has closed meanwhile says so here.
        sender.ready().await.ok()?;
        Some(sender)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Sender>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Sender, Fault> {
        handshake(self.open().await?).await
    }

    /// A connection of its own: `endpoint_unavailable` when the server cannot be reached,
    /// `pin_mismatch` when it shows another certificate.
    pub async fn open(&self) -> Result<Box<dyn Wire>, Fault> {
        let limit = Duration::from_millis(limits::HTTP_CONNECT_TIMEOUT_MS);
        let away = |why: String| {
            let text = format!("no server answers at {}:{}: {why}", self.host, self.port);
            Fault::new(Code::EndpointUnavailable, text)
        };
        let connecting = async {
            let tcp = TcpStream::connect((self.host.as_str(), self.port))
                .await
                .map_err(|error| away(error.to_string()))?;
            tcp.set_nodelay(true)
                .map_err(|error| away(error.to_string()))?;
            let wire: Box<dyn Wire> = match &self.tls {
                None => Box::new(tcp),
                Some((connector, name)) => {
                    let stream = connector.connect(name.clone(), tcp).await;
                    Box::new(stream.map_err(|error| self.tls_fault(&error))?)
                }
            };
            Ok(wire)
        };
        tokio::time::timeout(limit, connecting)
            .await
            .unwrap_or_else(|_| Err(away("no answer in time".to_owned())))
    }

    fn tls_fault(&self, error: &std::io::Error) -> Fault {
        let refused = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
            .is_some_and(|error| matches!(error, rustls::Error::InvalidCertificate(_)));
        let code = if refused {
            Code::PinMismatch
        } else {
            Code::EndpointUnavailable
        };
        Fault::new(code, format!("TLS with {}: {error}", self.host))
    }
}

/// A connection in use; give it back once the answer's body was read.
pub(super) struct Lease {
    pool: Arc<Pool>,
    sender: Sender,
}

impl Lease {
    pub fn give_back(self) {
        *self.pool.lock() = Some(self.sender);
    }
}

async fn handshake(stream: Box<dyn Wire>) -> Result<Sender, Fault> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Fault::new(Code::LinkClosed, format!("speak HTTP: {error}")))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the server ended");
        }
    });
    Ok(sender)
}
