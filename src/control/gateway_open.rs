//! The opening of a link: enrolment, registration, and what happens when a key is connected twice.
//!
//! ```text
//! register ─► refused?  revoked, quarantined, busy ──────────────────► ack {success:false, code}
//!     │
//!     ├─ instances take turns ─────────────────────────────────────┐
//!     ├─ old link of another instance answers the 3 s probe ───────┴─► quarantine, both closed
//!     ├─ old link silent, or of this instance ─► closed, told, then:
//!     └─► epoch + 1 on disk ─► ack {epoch, heartbeatMs, resumeFrom} ─► session
//! ```

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::gateway::{Inner, Stream};
use super::gateway_session::Session;
use super::registry::Live;
use super::registry_admit::{Accepted, Registering};
use crate::base::ids::AgentId;
use crate::base::limits;
use crate::wire::event::name;
use crate::wire::frame::{Frame, FrameType, Protocol};
use crate::wire::framed::Framed;
use crate::wire::handler::{Handler, Origin};
use crate::wire::link::{
    ENROLL, Enroll, EnrollReply, Notice, PING, PONG, Register, RegisterAck, Response, object,
};
use crate::wire::peer::{Peer, Side};
use crate::wire::rawkey::PublicKey;
use crate::wire::{Answer, BoxFuture, Call, Code, Fault};

/// Largest body before a registration is accepted.
pub(super) const REGISTER_LEN_MAX: usize = 64 * 1024;

/// Who is at the door.
pub(super) enum Knock {
    Key {
        key: PublicKey,
        owner: Result<AgentId, Fault>,
        ip: String,
    },
    /// A part of this process.
    Trusted,
}

/// A registration as it is to be decided.
pub(super) struct Candidate {
    pub agent: AgentId,
    pub register: Register,
    pub ip: Option<String>,
    /// The database token that let it in.
    pub token: Option<String>,
}

/// Opens a link and runs its session to the end.
pub(super) async fn open<S: Stream>(inner: Arc<Inner>, framed: Framed<S>, knock: Knock) {
    if let Some(session) = admit(&inner, framed, knock).await {
        session.run(inner).await;
    }
}

/// Opens a link of protocol 2. `None`: it was refused, or it was an enrolment.
pub(super) async fn admit<S: Stream>(
    inner: &Arc<Inner>,
    mut framed: Framed<S>,
    knock: Knock,
) -> Option<Session> {
    let first = within(inner, first_message(&mut framed)).await;
    let first = match first {
        Ok(first) => first,
        Err(fault) => {
            framed.refuse(&fault).await;
            return None;
        }
    };
    match (first, knock) {
        (First::Enroll(sequence, message), Knock::Key { key, ip, .. }) => {
            enroll(inner, framed, sequence, message, key, ip).await;
            None
        }
        (First::Enroll(..), Knock::Trusted) => None,
        (First::Register(register), Knock::Key { owner, ip, .. }) => match owner {
            Ok(agent) => {
                let candidate = Candidate {
                    agent,
                    register: *register,
                    ip: Some(ip),
                    token: None,
                };
                register_link(inner, framed, candidate).await
            }
            Err(fault) => {
                refuse(framed, &fault, None).await;
                None
            }
        },
        (First::Register(register), Knock::Trusted) => {
            let agent = match AgentId::parse(register.agent_id.clone()) {
                Ok(agent) => agent,
                Err(error) => {
                    let fault = Fault::new(Code::InvalidMessage, error.to_string());
                    refuse(framed, &fault, None).await;
                    return None;
                }
            };
            let candidate = Candidate {
                agent,
                register: *register,
                ip: None,
                token: None,
            };
            register_link(inner, framed, candidate).await
        }
    }
}

/// Bounds an opening step by time and by the server's stop.
pub(super) async fn within<T>(
    inner: &Inner,
    step: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let time = Duration::from_millis(limits::LINK_OPEN_TIMEOUT_MS);
    tokio::select! {
        outcome = tokio::time::timeout(time, step) => outcome.unwrap_or_else(|_| {
            Err(Fault::new(Code::TimedOut, "no registration came in time"))
        }),
        () = inner.stop.cancelled() => Err(Fault::new(Code::LinkClosed, "shutdown")),
    }
}

enum First {
    Enroll(u32, Box<Enroll>),
    Register(Box<Register>),
}

async fn first_message<S: Stream>(framed: &mut Framed<S>) -> Result<First, Fault> {
    loop {
        let frame = framed.read().await?;
        match frame.frame_type {
            FrameType::Notify if frame.body == PING => {
                framed
                    .write(&Frame::new(FrameType::Notify, 0, PONG))
                    .await?;
            }
            FrameType::Notify => return read_register(&frame.body).map(First::Register),
            FrameType::Request => {
                let fields = object(&frame.body)?;
                let method = fields.get("method").or(fields.get("type"));
                if method.and_then(Value::as_str) != Some(ENROLL) {
                    return Err(unexpected());
                }
                // Protocol 2 keeps parameters apart.
                let params = fields.get("params").cloned().unwrap_or_default();
                let message = serde_json::from_value(params)
                    .map_err(|error| Fault::invalid_params(ENROLL, error))?;
                return Ok(First::Enroll(frame.sequence, Box::new(message)));
            }
            _ => return Err(unexpected()),
        }
    }
}

fn unexpected() -> Fault {
    Fault::new(
        Code::InvalidMessage,
        "a link opens with agent.register or agent.enroll",
    )
}

/// Reads `agent.register` from a Notify body.
pub(super) fn read_register(body: &[u8]) -> Result<Box<Register>, Fault> {
    let notice = Notice::parse(body)?;
    match notice.read::<Register>() {
        Some(register) => register.map(Box::new),
        None => Err(unexpected()),
    }
}

async fn enroll<S: Stream>(
    inner: &Inner,
    mut framed: Framed<S>,
    sequence: u32,
    message: Box<Enroll>,
    key: PublicKey,
    ip: String,
) {
    let outcome = match inner.registry.count_try(&ip) {
        Ok(()) => inner.registry.enrol(*message, key, Some(ip)).await,
        Err(fault) => Err(fault),
    };
    let response = match outcome {
        Ok(agent_id) => {
            tracing::info!(agent = %agent_id, "enrolled");
            let payload = json!({"agentId": agent_id});
            inner.registry.tell(name::AGENT_ENROLLED, payload).await;
            match Answer::of(&EnrollReply { agent_id }) {
                Ok(answer) => Response {
                    success: true,
                    method: Some(ENROLL.to_owned()),
                    data: answer.data,
                    ..Response::default()
                },
                Err(fault) => Response::refused(Some(ENROLL), &fault),
            }
        }
        Err(fault) => {
            tracing::warn!(code = fault.code_text(), %fault, "refused to enrol");
            Response::refused(Some(ENROLL), &fault)
        }
    };
    if let Ok(body) = serde_json::to_vec(&response) {
        let frame = Frame::new(FrameType::Response, sequence, body);
        let sent = within(inner, framed.write(&frame)).await;
        if sent.is_ok() {
            // The agent closes once it has the answer; a bounded wait, so that nothing is cut off.
            let _ = within(inner, framed.read()).await;
        }
    }
}

/// Sends the refusing ack, then closes.
pub(super) async fn refuse<S: Stream>(mut framed: Framed<S>, fault: &Fault, retry_ms: Option<u64>) {
    let ack = RegisterAck {
        success: false,
        error: Some(fault.message.to_string()),
        code: Some(fault.code_text().to_owned()),
        retry_ms,
        ..RegisterAck::default()
    };
    let goodbye = framed.notify(&ack);
    // The peer may be gone already; the close is what counts.
    let _ = tokio::time::timeout(Duration::from_millis(limits::LINK_CLOSE_MS), goodbye).await;
    framed.refuse(fault).await;
}

/// Decides a registration and makes its link live.
pub(super) async fn register_link<S: Stream>(
    inner: &Arc<Inner>,
    framed: Framed<S>,
    candidate: Candidate,
) -> Option<Session> {
    let protocol = framed.protocol();
    let spoken = candidate.register.protocol.unwrap_or(1);
    if protocol == Protocol::V2 && (spoken < 2 || candidate.register.instance_id.is_none()) {
        let fault = Fault::new(
            Code::ProtocolUnsupported,
            "this link speaks protocol 2, with an instance id",
        );
        refuse(framed, &fault, None).await;
        return None;
    }
    let instance = candidate.register.instance_id.as_deref();
    let registering = match inner.registry.begin(&candidate.agent, instance) {
        Ok(registering) => registering,
        Err((fault, retry_ms)) => {
            refuse(framed, &fault, retry_ms).await;
            return None;
        }
    };
    let decided = async {
        settle_rivals(inner, &candidate, &registering).await?;
        let accepted = registering
            .accept(&candidate.register, protocol.number(), candidate.ip.clone())
            .await?;
        let resume_from = inner.sink.resume_from(&accepted.agent).await?;
        Ok((accepted, resume_from))
    };
    match decided.await {
        Ok((accepted, resume_from)) => Some(
            go_live(
                inner,
                framed,
                candidate,
                &registering,
                accepted,
                resume_from,
            )
            .await,
        ),
        Err(fault) => {
            refuse(framed, &fault, None).await;
            None
        }
    }
}

async fn go_live<S: Stream>(
    inner: &Arc<Inner>,
    framed: Framed<S>,
    candidate: Candidate,
    registering: &Registering,
    accepted: Accepted,
    resume_from: u64,
) -> Session {
    let protocol = framed.protocol();
    let ack = RegisterAck {
        success: true,
        agent_id: accepted.agent.to_string(),
        ..RegisterAck::default()
    };
    let ack = match protocol {
        Protocol::V1 => ack,
        Protocol::V2 => RegisterAck {
            protocol: Some(2),
            epoch: Some(accepted.epoch),
            heartbeat_ms: Some(inner.heartbeat_ms),
            resume_from: Some(resume_from),
            ..ack
        },
    };
    let origin = Origin::Server {
        epoch: accepted.epoch,
    };
    let handler = Arc::new(NothingToAsk { protocol });
    let (peer, notices) = Peer::start(framed, Side::Accepting, origin, handler);
    // Queued before anybody can call the agent. A link that ended meanwhile shows in the session.
    let _ = peer.notify(&ack).await;
    let ended = CancellationToken::new();
    registering.go_live(&accepted, candidate, peer.clone(), ended.clone());
    Session {
        agent: accepted.agent,
        epoch: accepted.epoch,
        peer,
        notices,
        ended,
    }
}

/// Deals with a link that the agent has already: `agent_quarantined` when two processes hold its key.
async fn settle_rivals(
    inner: &Inner,
    candidate: &Candidate,
    registering: &Registering,
) -> Result<(), Fault> {
    let (registry, agent) = (&inner.registry, &candidate.agent);
    let old = registry.link(agent);
    if let Some(instance) = candidate.register.instance_id.as_deref() {
        if let Some(rival) = registering.rival(instance) {
            let rivals = [rival, instance.to_owned()];
            return Err(registry.quarantine(agent, rivals).await?);
        }
        if let Some(old) = &old
            && old.instance.as_deref() != Some(instance)
            && answers(old).await
        {
            let other = old.instance.clone().unwrap_or_default();
            let rivals = [other, instance.to_owned()];
            return Err(registry.quarantine(agent, rivals).await?);
        }
    } else if let Some(old) = &old
        && answers(old).await
    {
        return Err(Fault::new(
            Code::Conflict,
            format!("another agent is connected as {agent}"),
        ));
    }
    if let Some(old) = old {
        old.peer.close(Fault::new(Code::LinkClosed, "replaced"));
        // Its end is told before the new link's beginning; a session that hangs is not waited for.
        let patience = Duration::from_millis(limits::DUPLICATE_PROBE_MS);
        let _ = tokio::time::timeout(patience, old.ended.cancelled()).await;
    }
    Ok(())
}

async fn answers(old: &Live) -> bool {
    let patience = Duration::from_millis(limits::DUPLICATE_PROBE_MS);
    old.peer.ping(patience).await
}

/// An agent has nothing to ask of a server today. Protocol 1 is answered as it always was.
struct NothingToAsk {
    protocol: Protocol,
}

impl Handler for NothingToAsk {
    fn call(&self, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        let protocol = self.protocol;
        Box::pin(async move {
            match protocol {
                Protocol::V1 => Ok(Answer::default()),
                Protocol::V2 => Err(Fault::new(
                    Code::UnknownMethod,
                    format!("a server has no method {}", call.method),
                )),
            }
        })
    }

    fn disconnected(&self, _origin: Origin) {}
}
