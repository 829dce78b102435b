//! `GET /ws/pty`: a console attaches to a session through this server.
//!
//! ```text
//! host, credential, origin, permission ─► upgrade ─► session found, grant checked ─► attach on the node
//!      └ HTTP error                                        └ close 1008, the code as its reason
//! ```
//!
//! Both ends of an attachment are audited: who, from where, for how long, how many bytes typed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Query};
use axum::http::Request;
use axum::http::request::Parts;
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::access::Entry;
use super::socket::{self, Reason, Rights, Terms};
use super::{Place, Terminals};
use crate::base::ids::{ConsoleId, RequestId};
use crate::base::{EpochMillis, limits};
use crate::control::auth::{Identity, Watched, cut};
use crate::control::methods::Caller;
use crate::control::server::Shared;
use crate::control::{answer, audit, fault::stored, http};
use crate::store::terminals as table;
use crate::wire::messages::sessions::{Attach, AttachMode, AttachParams, AttachReply, Location};
use crate::wire::{Call, Code, Fault, Method, Origin, Permission, StreamEnd};

/// The route's path.
const PATH: &str = "/ws/pty";
/// How often the expiry of the credential is looked at.
const EXPIRY_CHECK: Duration = Duration::from_secs(1);

/// The parameters of the route.
#[derive(Clone, Debug, Deserialize)]
struct AttachQuery {
    /// An id, an unambiguous start of one, a name, or `machine/name`.
    session: String,
    machine: Option<String>,
    #[serde(default)]
    cols: u16,
    #[serde(default)]
    rows: u16,
    #[serde(default)]
    mode: AttachMode,
    since: Option<u64>,
    #[serde(default)]
    exclusive: bool,
    #[serde(default)]
    takeover: bool,
    console_id: Option<ConsoleId>,
    #[serde(default)]
    label: String,
    /// The console gives credit from the start.
    #[serde(default)]
    credit: bool,
    /// The console acknowledges what it has taken in.
    #[serde(default)]
    acks: bool,
}

impl AttachQuery {
    fn permission(&self) -> Permission {
        match (self.mode, self.exclusive && self.takeover) {
            (AttachMode::Observe, _) => Permission::SessionsView,
            (AttachMode::Control, false) => Permission::SessionsControl,
            (AttachMode::Control, true) => Permission::SessionsManage,
        }
    }
}

/// The route of consoles.
pub fn router(shared: &Arc<Shared>) -> Router {
    let shared = Arc::clone(shared);
    Router::new().route(
        PATH,
        get(move |request: Request<Body>| answer_request(Arc::clone(&shared), request)),
    )
}

async fn answer_request(shared: Arc<Shared>, request: Request<Body>) -> Response {
    let request_id = RequestId::random();
    let (mut parts, _) = request.into_parts();
    let opened = upgrade(&shared, &mut parts, &request_id).await;
    let mut response = opened.unwrap_or_else(|fault| answer::fault(&fault, &request_id));
    answer::common_headers(response.headers_mut(), &request_id);
    shared
        .metrics
        .request("GET", PATH, response.status().as_u16());
    response
}

async fn upgrade(
    shared: &Arc<Shared>,
    parts: &mut Parts,
    request_id: &RequestId,
) -> Result<Response, Fault> {
    let caller = http::socket_caller(shared, parts, request_id).await?;
    let Query(query) = Query::<AttachQuery>::try_from_uri(&parts.uri)
        .map_err(|error| Fault::invalid_params(Attach::NAME, error.body_text()))?;
    let identity = caller.identity()?.clone();
    let terminals = &shared.terminals;
    terminals
        .may_anywhere(&identity, query.permission())
        .await?;
    let upgrade = WebSocketUpgrade::from_request_parts(parts, &())
        .await
        .map_err(|error| Fault::new(Code::InvalidMessage, error.body_text()))?;
    let console = Console {
        shared: Arc::clone(shared),
        caller,
        identity,
        query,
    };
    Ok(upgrade
        .max_message_size(limits::SOCKET_MESSAGE_LEN_MAX)
        .max_frame_size(limits::SOCKET_MESSAGE_LEN_MAX)
        .on_upgrade(move |socket| console.serve(socket)))
}

/// One console that attaches.
struct Console {
    shared: Arc<Shared>,
    caller: Caller,
    identity: Identity,
    query: AttachQuery,
}

/// An attachment that the node has accepted.
struct Opened {
    place: Place,
    reply: AttachReply,
    end: StreamEnd,
    entry: Entry,
    watched: Watched,
    takeover: bool,
}

impl Console {
    async fn serve(self, socket: WebSocket) {
        let opened = match self.open().await {
            Ok(opened) => opened,
            Err((target, fault)) => {
                let code = fault.code_text().to_owned();
                let written = self.note("session.attach", &target, &code, json!({})).await;
                if let Err(fault) = written {
                    tracing::error!(%fault, "write the audit row of a refused console");
                }
                return socket::refuse(socket, &code).await;
            }
        };
        let place = &opened.place;
        let target = format!("{}/{}", place.agent, place.session.id);
        let started = self.shared.clock.now();
        let detail = json!({"console": opened.reply.console_id, "mode": self.query.mode});
        if let Err(fault) = self.note("session.attach", &target, "ok", detail).await {
            // Nothing happens that the trail cannot tell of.
            return socket::refuse(socket, fault.code_text()).await;
        }
        self.run(socket, opened, target, started).await;
    }

    async fn run(&self, socket: WebSocket, opened: Opened, target: String, started: EpochMillis) {
        let terminals = &self.shared.terminals;
        let counters = &terminals.counters;
        let Opened {
            place,
            reply,
            end,
            entry,
            watched,
            takeover,
        } = opened;
        let rights = Rights {
            control: self.query.mode == AttachMode::Control,
            takeover: takeover && self.query.mode == AttachMode::Control,
        };
        let typed = AtomicU64::new(0);
        counters.attached.fetch_add(1, Ordering::Relaxed);
        let ended = self.ended(&entry.ended, &watched);
        let terms = Terms {
            rights,
            bounded: self.query.credit,
            counters,
            typed: &typed,
            away: || terminals.links.protocol(&place.agent).is_none(),
        };
        let reason = socket::carry(socket, end, terms, ended).await;
        counters.attached.fetch_sub(1, Ordering::Relaxed);
        counters.closed(reason.word());
        let detail = json!({
            "console": reply.console_id,
            "durationMs": self.shared.clock.now().since(started),
            "typedBytes": typed.load(Ordering::Relaxed),
            "reason": reason.word(),
        });
        if let Err(fault) = self.note("session.detach", &target, "ok", detail).await {
            tracing::error!(%fault, target, "write the audit row of a console that left");
        }
    }

    /// Resolves when the account may no longer be attached, or the server stops.
    async fn ended(&self, grant: &CancellationToken, watched: &Watched) -> Reason {
        let mut expiry = tokio::time::interval(EXPIRY_CHECK);
        loop {
            tokio::select! {
                () = watched.ended.cancelled() => return Reason::Credential,
                () = grant.cancelled() => return Reason::Grant,
                () = self.shared.streams.stopping.cancelled() => return Reason::Stopping,
                _ = expiry.tick() => {
                    let now = self.shared.clock.now();
                    if self.identity.expires_at.is_some_and(|at| at <= now) {
                        return Reason::Credential;
                    }
                }
            }
        }
    }

    /// Finds the session, checks the right to it and attaches on its node. An error names what the
    /// attempt was for.
    async fn open(&self) -> Result<Opened, (String, Fault)> {
        let query = &self.query;
        let asked = cut(&query.session);
        let terminals = &self.shared.terminals;
        // Before anything is looked up, so that no revocation falls between.
        let watched = self.shared.auth.watch(&self.identity);
        let place = terminals
            .find(&query.session, query.machine.as_deref())
            .await
            .map_err(|fault| (asked, fault))?;
        let target = format!("{}/{}", place.agent, place.session.id);
        match self.attach(place, watched).await {
            Ok(opened) => Ok(opened),
            Err(fault) => Err((target, fault)),
        }
    }

    async fn attach(&self, place: Place, watched: Watched) -> Result<Opened, Fault> {
        let terminals = &self.shared.terminals;
        let who = &self.identity;
        let basis = terminals.may(who, self.query.permission(), &place).await?;
        let session = place.session.id.clone();
        let entry = terminals
            .attachments
            .enter(session, who.account_id.clone(), basis);
        // Once more, now that a grant which is taken back ends the entry: none falls between.
        terminals.may(who, self.query.permission(), &place).await?;
        let manage = terminals.may(who, Permission::SessionsManage, &place).await;
        let params = self.params(&place).await?;
        let mut call = Call::of::<Attach>(&params, Origin::Server { epoch: 0 })?;
        // The stream outlives the call; a console that goes away ends the stream.
        call.cancel = CancellationToken::new();
        let mut answer = terminals.links.call(&place.agent, call).await?;
        let end = answer.stream.take().ok_or_else(|| {
            Fault::new(
                Code::InvalidMessage,
                "the workstation attached without a stream",
            )
        })?;
        let reply: AttachReply = answer.read()?;
        terminals.claim(&reply.console_id, who).await?;
        Ok(Opened {
            place,
            reply,
            end,
            entry,
            watched,
            takeover: manage.is_ok(),
        })
    }

    async fn params(&self, place: &Place) -> Result<AttachParams, Fault> {
        let query = &self.query;
        let console_id = match &query.console_id {
            Some(console) => {
                let terminals = &self.shared.terminals;
                terminals.own_console(console, &self.identity).await?
            }
            None => None,
        };
        let (name, label) = (&self.identity.username, cut(&query.label));
        Ok(AttachParams {
            session_id: place.session.id.to_string(),
            cols: query.cols,
            rows: query.rows,
            mode: query.mode,
            since: query.since,
            exclusive: query.exclusive,
            takeover: query.takeover,
            console_id,
            label: if label.is_empty() {
                name.clone()
            } else {
                format!("{name} ({label})")
            },
            location: if self.caller.address.is_loopback() {
                Location::Server
            } else {
                Location::RemoteAttach
            },
            acks: query.acks,
        })
    }

    async fn note(
        &self,
        kind: &'static str,
        target: &str,
        outcome: &str,
        mut detail: Value,
    ) -> Result<(), Fault> {
        detail["requestId"] = self.caller.request_id.as_str().into();
        let now = self.shared.clock.now();
        audit::note(
            &self.shared.store,
            now,
            kind,
            &self.caller,
            target,
            outcome,
            detail,
        )
        .await
    }
}

impl Terminals {
    /// The id, if it is this account's from a former attachment. Any other is not passed on: the
    /// console gets a new one.
    async fn own_console(
        &self,
        console: &ConsoleId,
        who: &Identity,
    ) -> Result<Option<ConsoleId>, Fault> {
        let wanted = console.clone();
        let owner = self.store.call(move |c| table::console_owner(c, &wanted));
        let owned = owner.await.map_err(stored)?;
        Ok(owned
            .filter(|(owner, _)| *owner == who.account_id)
            .map(|_| console.clone()))
    }

    /// Remembers whose console it is; one that a workstation gave out twice stays the first one's.
    async fn claim(&self, console: &ConsoleId, who: &Identity) -> Result<(), Fault> {
        let (id, account, now) = (console.clone(), who.account_id.clone(), self.clock.now());
        let claimed = self
            .store
            .call(move |c| table::claim_console(c, &id, &account, now));
        if claimed.await.map_err(stored)? == who.account_id {
            return Ok(());
        }
        let text = "the workstation gave this console the id of another account's";
        Err(Fault::new(Code::Conflict, text))
    }
}
