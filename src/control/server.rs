//! The HTTP server put together and served.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::auth::{Auth, LoginString};
use super::contract::Links;
use super::events::Streams;
use super::executions::Executions;
use super::http::{self, Peer};
use super::methods::{Methods, ServerHandler};
use super::metrics::{Family, Metrics};
use super::registry::Registry;
use super::terminals::{self, Terminals};
use super::tls::HttpTls;
use super::{handlers, special};
use crate::base::limits::{HTTP_CONNECTIONS_MAX, HTTP_KEEPALIVE_MS, HTTP_SEND_BUFFER_LEN};
use crate::base::{Clock, Secret};
use crate::config::ServerConfig;
use crate::journal::Journal;
use crate::store::Store;
use crate::wire::messages::agents::ListParams;
use crate::wire::{Code, Fault};

/// A connection that has not finished its handshake or its request's head by then is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest head of a request, in bytes.
const HEAD_LEN_MAX: usize = 64 * 1024;
/// From the stop until connections are cut.
const SHUTDOWN_MAX: Duration = Duration::from_secs(15);

/// What the server is built from; roles make the parts.
pub struct ServerParts {
    pub config: ServerConfig,
    pub store: Store,
    pub journal: Journal,
    pub links: Arc<dyn Links>,
    pub registry: Arc<Registry>,
    pub executions: Arc<Executions>,
    pub clock: Arc<dyn Clock>,
}

/// What handlers share.
pub struct Shared {
    pub store: Store,
    pub journal: Journal,
    pub links: Arc<dyn Links>,
    pub registry: Arc<Registry>,
    pub executions: Arc<Executions>,
    pub terminals: Arc<Terminals>,
    pub clock: Arc<dyn Clock>,
    pub auth: Arc<Auth>,
    pub streams: Streams,
    pub hosts: Hosts,
    pub metrics: Metrics,
}

/// The routes' answers beside what they share.
pub struct App {
    pub shared: Arc<Shared>,
    /// By method name.
    pub handlers: HashMap<&'static str, ServerHandler>,
}

impl Shared {
    /// The text of `/metrics`.
    pub async fn metrics_text(&self) -> Result<String, Fault> {
        let range = self.journal.range();
        let plain = |figure: u64| vec![(String::new(), figure)];
        let agents = self.registry.list(&ListParams::default());
        let mut families = vec![
            Family {
                name: "wingman_registered_agents",
                kind: "gauge",
                help: "Workstations that are enrolled.",
                label: None,
                figures: plain(agents.total),
            },
            Family {
                name: "wingman_executions",
                kind: "gauge",
                help: "Executions kept, by state.",
                label: Some("status"),
                figures: self.executions.counts().await?,
            },
            Family {
                name: "wingman_connected_agents",
                kind: "gauge",
                help: "Workstations whose link is up.",
                label: None,
                figures: plain(self.executions.connected_agents()),
            },
            Family {
                name: "wingman_journal_records_total",
                kind: "counter",
                help: "Records written to the server's journal.",
                label: None,
                figures: plain(range.next_seq.saturating_sub(1)),
            },
            Family {
                name: "wingman_uptime_seconds",
                kind: "gauge",
                help: "Seconds since the server started.",
                label: None,
                figures: plain(self.metrics.uptime_seconds()),
            },
        ];
        families.extend(self.terminals.families());
        Ok(self.metrics.text(&families))
    }
}

/// Which host names a request may carry.
pub struct Hosts {
    names: Vec<String>,
    /// Bound to all addresses: any literal address is one of ours as far as we can tell, and a
    /// rebinding attack needs a name.
    any_address: bool,
    loopback: bool,
}

impl Hosts {
    pub fn new(listen: IpAddr, allowed: &[String]) -> Self {
        let mut names: Vec<_> = allowed
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect();
        names.push(listen.to_string());
        Self {
            names,
            any_address: listen.is_unspecified(),
            loopback: listen.is_loopback() || listen.is_unspecified(),
        }
    }

    /// Whether a `Host` header, with or without a port, is allowed.
    pub fn allow(&self, host: &str) -> bool {
        let Some(name) = host_name(host) else {
            return false;
        };
        let name = name.to_ascii_lowercase();
        if self.names.contains(&name) {
            return true;
        }
        match name.parse::<IpAddr>() {
            Ok(address) => self.any_address || (self.loopback && address.is_loopback()),
            Err(_) => self.loopback && name == "localhost",
        }
    }
}

/// The name without brackets and port; `None` for what is no host.
fn host_name(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let port = rest.strip_prefix(':').unwrap_or(rest);
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_');
    let whole = !name.is_empty() && name.chars().all(good);
    (whole && port.chars().all(|c| c.is_ascii_digit())).then_some(name)
}

/// The server, ready to serve. Clones share it.
#[derive(Clone)]
pub struct Server {
    app: Arc<App>,
    stopping: CancellationToken,
}

impl Server {
    /// Wires the parts and makes the admin account at the first start.
    pub async fn build(parts: ServerParts) -> Result<Self, Fault> {
        let listen: SocketAddr = parts.config.http.listen.parse().map_err(|_| {
            Fault::new(Code::ConfigInvalid, "http.listen is no address with a port")
        })?;
        let auth = Arc::new(Auth::new(parts.store.clone(), Arc::clone(&parts.clock)));
        auth.prepare().await?;
        parts.executions.attach(&parts.links);
        parts.executions.start().await?;
        let stopping = CancellationToken::new();
        let terminals = Terminals::new(
            parts.store.clone(),
            Arc::clone(&parts.clock),
            Arc::clone(&parts.links),
            Arc::clone(&parts.registry),
        );
        let shared = Arc::new(Shared {
            streams: Streams {
                journal: parts.journal.clone(),
                auth: Arc::clone(&auth),
                clock: Arc::clone(&parts.clock),
                stopping: stopping.clone(),
            },
            store: parts.store,
            journal: parts.journal,
            links: parts.links,
            registry: parts.registry,
            executions: parts.executions,
            terminals: Arc::new(terminals),
            clock: parts.clock,
            auth,
            hosts: Hosts::new(listen.ip(), &parts.config.http.allowed_hosts),
            metrics: Metrics::default(),
        });
        let mut methods = Methods::default();
        special::register(&mut methods, &shared);
        handlers::register(&mut methods, &shared);
        terminals::register(&mut methods, &shared.terminals);
        let handlers = methods.finish()?;
        let app = Arc::new(App { shared, handlers });
        Ok(Self { app, stopping })
    }

    /// A single-use login string while the admin has never signed in.
    pub async fn first_start_login(&self) -> Result<Option<LoginString>, Fault> {
        self.app.shared.auth.first_start_login().await
    }

    /// An API token for the record of a running `wingman up`; the last one's ends.
    pub async fn mint_local_token(&self) -> Result<Secret, Fault> {
        self.app.shared.auth.mint_local_token().await
    }

    /// Serves until `shutdown` fires, then at most 15 s longer for what is under way.
    pub async fn serve(
        &self,
        listener: TcpListener,
        tls: Option<HttpTls>,
        shutdown: CancellationToken,
    ) -> Result<(), Fault> {
        let router = http::router(&self.app);
        let connections = Arc::new(Semaphore::new(HTTP_CONNECTIONS_MAX));
        let tasks = TaskTracker::new();
        loop {
            // A full house waits in the operating system's backlog.
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = accept(&listener, &connections) => accepted,
            };
            let (stream, address, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (router, tls, shutdown) = (router.clone(), tls.clone(), shutdown.clone());
            tasks.spawn(async move {
                let _permit = permit;
                let peer = Peer {
                    address: address.ip().to_canonical(),
                    secure: tls.is_some(),
                };
                match tls {
                    None => serve_connection(stream, peer, router, shutdown).await,
                    Some(tls) => {
                        let handshake = tls.acceptor.accept(stream);
                        match tokio::time::timeout(HEAD_TIMEOUT, handshake).await {
                            Ok(Ok(stream)) => {
                                serve_connection(stream, peer, router, shutdown).await;
                            }
                            Ok(Err(error)) => tracing::debug!(%error, "TLS handshake"),
                            Err(_) => tracing::debug!("TLS handshake took too long"),
                        }
                    }
                }
            });
        }
        drop(listener);
        self.stopping.cancel();
        self.app.shared.executions.stop().await;
        tasks.close();
        if tokio::time::timeout(SHUTDOWN_MAX, tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("requests still under way at the end of the shutdown are cut");
        }
        Ok(())
    }
}

/// Binds an address; a taken one is `address_in_use` naming the flag or setting that changes it.
pub async fn bind(address: &str, flag: &str) -> Result<TcpListener, Fault> {
    TcpListener::bind(address).await.map_err(|error| {
        if error.kind() == std::io::ErrorKind::AddrInUse {
            let text = format!("{address} is taken by another program; choose another with {flag}");
            Fault::new(Code::AddressInUse, text)
        } else {
            let text = format!("listen on {address} ({flag}): {error}");
            Fault::new(Code::ConfigInvalid, text)
        }
    })
}

/// Where a listener listens.
pub fn listening_address(listener: &TcpListener) -> Result<SocketAddr, Fault> {
    let address = listener.local_addr();
    address.map_err(|error| Fault::internal(format!("read the listening address: {error}")))
}

type Accepted = (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit);

async fn accept(listener: &TcpListener, connections: &Arc<Semaphore>) -> std::io::Result<Accepted> {
    let permit = Arc::clone(connections)
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, address) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_send_buffer_size(HTTP_SEND_BUFFER_LEN)?;
    let keepalive = TcpKeepalive::new().with_time(Duration::from_millis(HTTP_KEEPALIVE_MS));
    socket.set_tcp_keepalive(&keepalive)?;
    Ok((stream, address, permit))
}

async fn serve_connection<S>(
    stream: S,
    peer: Peer,
    router: axum::Router,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request)
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LEN_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            match tokio::time::timeout(SHUTDOWN_MAX, connection).await {
                Ok(outcome) => outcome,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_of_others_are_refused() {
        let hosts = Hosts::new("127.0.0.1".parse().unwrap(), &["desk.example".into()]);
        for good in [
            "127.0.0.1:9527",
            "localhost",
            "LOCALHOST:1",
            "[::1]:5",
            "desk.example:80",
        ] {
            assert!(hosts.allow(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "localhost:x",
            "a b",
        ] {
            assert!(!hosts.allow(bad), "{bad}");
        }
        let open = Hosts::new("0.0.0.0".parse().unwrap(), &[]);
        assert!(open.allow("10.0.0.1:9527") && !open.allow("evil.example"));
    }
}
