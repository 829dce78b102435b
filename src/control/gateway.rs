//! The gateway: where agents' links arrive, and through which the rest of the server calls them.
//!
//! ```text
//! TLS listener ──── handshake ── key known? ─┬ yes: agent.register ─┐
//!                                            └ no:  agent.enroll    │
//! plain listener ── token or challenge ── agent.register ───────────┼─► session (one per agent)
//! in-process pipe ─ agent.register ─────────────────────────────────┘
//! ```
//!
//! Invariants: at most one live link per agent; an epoch is on disk before its ack; frames of an old
//! epoch are never applied; nothing of an unregistered connection waits longer than a few seconds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::contract::{LinkSink, Links};
use super::gateway_open::{self, Knock};
use super::plain;
use super::registry::Registry;
use crate::base::ids::AgentId;
use crate::base::{Secret, limits};
use crate::wire::frame::Protocol;
use crate::wire::framed::Framed;
use crate::wire::messages::agents::{InviteParams, InviteReply};
use crate::wire::rawkey::{self, KeyError, LinkKey};
use crate::wire::{Answer, BoxFuture, Call, Code, Fault};

/// What a gateway is built from.
pub struct GatewayOptions {
    pub registry: Arc<Registry>,
    pub sink: Arc<dyn LinkSink>,
    /// The server's key, which join strings pin.
    pub key: LinkKey,
    /// The period that agents of protocol 2 are told.
    pub heartbeat_ms: u64,
    /// The shared tokens of protocol-1 agents besides those in the database.
    pub plain_tokens: Vec<Secret>,
    /// Host and port that join strings carry.
    pub public_address: String,
}

/// The gateway. Clones share it.
#[derive(Clone)]
pub struct Gateway {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub registry: Arc<Registry>,
    pub sink: Arc<dyn LinkSink>,
    pub heartbeat_ms: u64,
    pub plain_tokens: Vec<Secret>,
    public_address: String,
    key: LinkKey,
    tls: TlsAcceptor,
    /// Bounds connections that are not registered yet.
    pub opening: Arc<Semaphore>,
    tasks: TaskTracker,
    pub stop: CancellationToken,
}

impl Gateway {
    pub fn new(options: GatewayOptions) -> Result<Self, KeyError> {
        let tls = TlsAcceptor::from(rawkey::server_config(&options.key)?);
        options.registry.tell_to(Arc::clone(&options.sink));
        Ok(Self {
            inner: Arc::new(Inner {
                registry: options.registry,
                sink: options.sink,
                heartbeat_ms: options.heartbeat_ms,
                plain_tokens: options.plain_tokens,
                public_address: options.public_address,
                key: options.key,
                tls,
                opening: Arc::new(Semaphore::new(limits::LINKS_OPENING_MAX)),
                tasks: TaskTracker::new(),
                stop: CancellationToken::new(),
            }),
        })
    }

    /// Accepts agents of protocol 2 on a bound listener until shutdown.
    pub fn serve_tls(&self, listener: TcpListener) {
        let inner = Arc::clone(&self.inner);
        self.inner.tasks.spawn(accept_loop(
            Arc::clone(&inner),
            listener,
            move |stream, from| open_tls(Arc::clone(&inner), stream, from),
        ));
    }

    /// Accepts agents of protocol 1, without TLS, on a bound listener until shutdown.
    pub fn serve_plain(&self, listener: TcpListener) {
        let inner = Arc::clone(&self.inner);
        self.inner.tasks.spawn(accept_loop(
            Arc::clone(&inner),
            listener,
            move |stream, from| {
                let framed = Framed::new(stream, Protocol::V1, gateway_open::REGISTER_LEN_MAX);
                plain::open(Arc::clone(&inner), framed, from)
            },
        ));
    }

    /// Takes the far end of an in-process agent's link. The process is trusted: no key is asked for.
    pub fn accept_memory(&self, stream: DuplexStream) {
        let framed = Framed::new(stream, Protocol::V2, gateway_open::REGISTER_LEN_MAX);
        let inner = Arc::clone(&self.inner);
        self.inner
            .tasks
            .spawn(gateway_open::open(inner, framed, Knock::Trusted));
    }

    /// Makes a join string for this server.
    pub async fn invite(&self, params: &InviteParams) -> Result<InviteReply, Fault> {
        let inner = &self.inner;
        if inner.public_address.is_empty() && params.address.is_none() {
            return Err(Fault::new(
                Code::Unsupported,
                "this server has no port for agents, as `wingman up` has none; join them to a `wingman server`",
            ));
        }
        inner
            .registry
            .invite(params, &inner.public_address, inner.key.public())
            .await
    }

    /// Ends all links and waits until every session has been told.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

impl Links for Gateway {
    fn call(&self, agent: &AgentId, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        let live = self.inner.registry.link(agent);
        let agent = agent.clone();
        Box::pin(async move {
            let live = live.ok_or_else(|| {
                Fault::new(Code::AgentOffline, format!("{agent} is not connected"))
            })?;
            match live.peer.protocol() {
                Protocol::V1 => plain::call(&live.peer, call).await,
                Protocol::V2 => live.peer.request(call).await,
            }
        })
    }

    fn protocol(&self, agent: &AgentId) -> Option<u8> {
        let peer = self.inner.registry.link(agent)?.peer;
        peer.is_open().then(|| peer.protocol().number())
    }

    fn connected(&self) -> Vec<(AgentId, u8)> {
        self.inner.registry.connected()
    }

    fn close(&self, agent: &AgentId, reason: &str) {
        let fault = Fault::new(Code::LinkClosed, reason.to_owned());
        self.inner.registry.close_link(agent, fault);
    }

    fn invite(&self, params: InviteParams) -> BoxFuture<Result<InviteReply, Fault>> {
        let gateway = self.clone();
        Box::pin(async move { Gateway::invite(&gateway, &params).await })
    }
}

async fn accept_loop<F, W>(inner: Arc<Inner>, listener: TcpListener, open: F)
where
    F: Fn(TcpStream, SocketAddr) -> W,
    W: Future<Output = ()> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            () = inner.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, from)) => {
                // Small frames must not wait for one another; a socket that cannot is still a link.
                let _ = stream.set_nodelay(true);
                inner.tasks.spawn(open(stream, from));
            }
            Err(error) => {
                tracing::warn!(%error, "accept an agent's connection");
                // Out of descriptors, most likely: time heals it, a tight loop does not.
                tokio::time::sleep(Duration::from_millis(limits::ACCEPT_PAUSE_MS)).await;
            }
        }
    }
}

async fn open_tls(inner: Arc<Inner>, stream: TcpStream, from: SocketAddr) {
    let Ok(slot) = Arc::clone(&inner.opening).try_acquire_owned() else {
        tracing::warn!(%from, "too many links are opening; closing one more");
        return;
    };
    let handshake = tokio::time::timeout(
        Duration::from_millis(limits::LINK_OPEN_TIMEOUT_MS),
        inner.tls.accept(stream),
    );
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%from, %error, "TLS handshake");
            return;
        }
        Err(_) => return,
    };
    let connection = stream.get_ref().1;
    if connection.alpn_protocol() != Some(rawkey::ALPN) {
        return;
    }
    let Some(key) = rawkey::peer_key(connection.peer_certificates()) else {
        return;
    };
    let knock = Knock::Key {
        owner: inner.registry.by_key(key),
        key,
        ip: from.ip().to_string(),
    };
    let limit = match &knock {
        Knock::Key { owner: Err(_), .. } => limits::ENROLL_LEN_MAX,
        _ => gateway_open::REGISTER_LEN_MAX,
    };
    let framed = Framed::new(stream, Protocol::V2, limit);
    let opened = gateway_open::admit(&inner, framed, knock).await;
    drop(slot);
    if let Some(session) = opened {
        session.run(inner).await;
    }
}

/// A byte stream of a link.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}
