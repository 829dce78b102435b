//! Terminal sessions as the server sees them: where each one lives, who may do what with it, and the
//! consoles that are attached through here.
//!
//! Sessions are the workstations' own. The server keeps the last good list of each, with its age, and
//! asks again whenever somebody wants to know. Calls go to the node that owns the session.
//!
//! Invariants: an answer from memory is marked as such; nobody sees or touches a session without a
//! permission of the role or a grant; what is typed is counted and never kept.

mod access;
mod attach;
mod counters;
mod handlers;
mod socket;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use serde_json::json;

pub use access::grants_may_allow;
pub use attach::router;
pub use handlers::register;

use access::Attachments;
use counters::Counters;

use super::auth::Identity;
use super::contract::Links;
use super::registry::Registry;
use crate::base::ids::{AgentId, TerminalId};
use crate::base::{Clock, EpochMillis, Timestamp, limits};
use crate::store::Store;
use crate::wire::frame::Protocol;
use crate::wire::messages::agents::{self, AgentStatus};
use crate::wire::messages::sessions::{
    Footprint, GetFootprint, List, ListParams, MachineStatus, Session, SessionList,
};
use crate::wire::{Call, Code, Fault, Method, Origin, Permission};

/// Workstations asked at once for one answer; the others wait their turn.
const ASKED_AT_ONCE: usize = 64;
/// The value of `scope` for every workstation.
const SCOPE_ALL: &str = "all";

/// The terminal sessions of every workstation.
pub struct Terminals {
    store: Store,
    clock: Arc<dyn Clock>,
    links: Arc<dyn Links>,
    registry: Arc<Registry>,
    /// The last good list of each workstation.
    known: Mutex<HashMap<AgentId, Known>>,
    attachments: Attachments,
    counters: Counters,
}

struct Known {
    sessions: Vec<Session>,
    fetched_at: EpochMillis,
}

/// A workstation that may have sessions.
struct Machine {
    id: AgentId,
    hostname: Option<String>,
    /// Connected, and by which protocol.
    protocol: Option<u8>,
}

/// A session and where it lives.
#[derive(Clone, Debug)]
struct Place {
    agent: AgentId,
    session: Session,
}

impl Terminals {
    pub fn new(
        store: Store,
        clock: Arc<dyn Clock>,
        links: Arc<dyn Links>,
        registry: Arc<Registry>,
    ) -> Self {
        Self {
            store,
            clock,
            links,
            registry,
            known: Mutex::default(),
            attachments: Attachments::default(),
            counters: Counters::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<AgentId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every workstation that is enrolled or connected, by id; revoked ones are forgotten.
    fn machines(&self) -> Vec<Machine> {
        let connected: HashMap<_, _> = self.links.connected().into_iter().collect();
        let mut found: HashMap<AgentId, Option<String>> = connected
            .keys()
            .map(|agent| (agent.clone(), None))
            .collect();
        for agent in self.registry.list(&agents::ListParams::default()).items {
            if agent.status != AgentStatus::Revoked {
                found.insert(
                    agent.agent_id,
                    Some(agent.hostname).filter(|h| !h.is_empty()),
                );
            }
        }
        self.known().retain(|agent, _| found.contains_key(agent));
        let machine = |(id, hostname): (AgentId, Option<String>)| Machine {
            protocol: connected.get(&id).copied(),
            id,
            hostname,
        };
        let mut machines: Vec<_> = found.into_iter().map(machine).collect();
        machines.sort_by(|a, b| a.id.cmp(&b.id));
        machines
    }

    /// `session.list`, as far as the caller may see.
    async fn list(&self, who: &Identity, params: &ListParams) -> Result<SessionList, Fault> {
        self.may_anywhere(who, Permission::SessionsView).await?;
        let sight = self.sight(who).await?;
        let every = match params.scope.as_deref() {
            None | Some("") => false,
            Some(SCOPE_ALL) => true,
            Some(other) => {
                let text = format!("scope is {SCOPE_ALL} or absent, not {other:?}");
                return Err(Fault::invalid_params(List::NAME, text));
            }
        };
        if !every {
            let machine = self.choose(params.machine.as_ref().map(AgentId::as_str))?;
            let mut sessions = self.fetch(&machine).await?;
            sessions.retain(|session| sight.sees(&session.id));
            return Ok(SessionList {
                sessions,
                machines: None,
            });
        }
        let mut all = SessionList {
            sessions: Vec::new(),
            machines: Some(Vec::new()),
        };
        let asked = self.refresh_all(self.machines()).await;
        for (machine, outcome) in asked {
            let (sessions, fetched_at) = match self.known().get(&machine.id) {
                Some(known) => (known.sessions.clone(), Some(Timestamp(known.fetched_at))),
                None => (Vec::new(), None),
            };
            all.sessions
                .extend(sessions.into_iter().filter(|s| sight.sees(&s.id)));
            let status = MachineStatus {
                name: machine.id.to_string(),
                hostname: machine.hostname,
                ok: outcome.is_ok(),
                fetched_at,
                error: outcome.err().map(|fault| fault.code_text().to_owned()),
            };
            all.machines.get_or_insert_default().push(status);
        }
        Ok(all)
    }

    /// Asks all of them for their lists, and answers in their order how each went.
    async fn refresh_all(&self, machines: Vec<Machine>) -> Vec<(Machine, Result<(), Fault>)> {
        futures_util::stream::iter(machines)
            .map(|machine| async {
                let outcome = self.refresh(&machine).await;
                (machine, outcome)
            })
            .buffered(ASKED_AT_ONCE)
            .collect()
            .await
    }

    /// Asks a workstation for its list, if it can be asked.
    async fn refresh(&self, machine: &Machine) -> Result<(), Fault> {
        match machine.protocol {
            Some(protocol) if protocol >= Protocol::V2.number() => {
                self.fetch(&machine.id).await.map(drop)
            }
            Some(_) => Err(Fault::new(
                Code::Unsupported,
                "protocol 1 has no terminal sessions",
            )),
            None => Err(offline(&machine.id)),
        }
    }

    /// A workstation's own list, kept for when it is away.
    async fn fetch(&self, agent: &AgentId) -> Result<Vec<Session>, Fault> {
        let mut call = Call::new(List::NAME, json!({}), Origin::Server { epoch: 0 });
        call.timeout_ms = Some(limits::SESSION_LIST_TIMEOUT_MS);
        let answer = self.links.call(agent, call).await?;
        if answer.data.to_string().len() > limits::SESSION_LIST_LEN_MAX {
            let text = format!("the list of {agent}'s sessions is too long");
            return Err(Fault::new(Code::InvalidMessage, text));
        }
        let mut sessions = answer.read::<SessionList>()?.sessions;
        sessions.truncate(limits::SESSIONS_PER_MACHINE_MAX);
        for session in &mut sessions {
            session.machine = agent.to_string();
        }
        let known = Known {
            sessions: sessions.clone(),
            fetched_at: self.clock.now(),
        };
        self.known().insert(agent.clone(), known);
        Ok(sessions)
    }

    /// The workstation that is named by id or host name, or the only one that has terminals.
    fn choose(&self, name: Option<&str>) -> Result<AgentId, Fault> {
        let machines = self.machines();
        if let Some(name) = name {
            return named(&machines, name);
        }
        let speaks = |machine: &&Machine| machine.protocol >= Some(Protocol::V2.number());
        let able: Vec<_> = machines.iter().filter(speaks).collect();
        match able.as_slice() {
            [machine] => Ok(machine.id.clone()),
            [] => Err(Fault::new(
                Code::AgentOffline,
                "no workstation with terminals is connected",
            )),
            several => {
                let names: Vec<_> = several.iter().map(|m| m.id.as_str()).collect();
                let text = format!("several workstations are connected: {}", names.join(", "));
                Err(Fault::new(Code::AgentAmbiguous, text))
            }
        }
    }

    /// Finds a session by id, an unambiguous start of one, or name, on one workstation or on all.
    /// `machine/name` names the workstation as well. Errors: `session_not_found`, `session_ambiguous`
    /// with every fitting `machine/id`, `agent_offline` when it lives on a workstation that is away.
    async fn find(&self, id: &str, machine: Option<&str>) -> Result<Place, Fault> {
        let machines = self.machines();
        let (id, machine) = match (machine, id.split_once('/')) {
            (Some(machine), _) => (id, Some(named(&machines, machine)?)),
            (None, Some((before, after))) => match named(&machines, before) {
                Ok(agent) => (after, Some(agent)),
                Err(fault) if fault.code == Code::AgentAmbiguous => return Err(fault),
                Err(_) => (id, None),
            },
            (None, None) => (id, None),
        };
        if let Some(place) = self.connected_place(id, machine.as_ref()) {
            return Ok(place);
        }
        let asked = machines
            .into_iter()
            .filter(|known| machine.as_ref().is_none_or(|wanted| known.id == *wanted))
            .collect();
        let mut outcomes = self.refresh_all(asked).await.into_iter();
        let place = self.pick(id, machine.as_ref())?;
        // The workstation of the session says why it cannot be used, as does the one that was named.
        let concerned = match &place {
            Some(place) => outcomes.find(|(machine, _)| machine.id == place.agent),
            None if machine.is_some() => outcomes.next(),
            None => None,
        };
        if let Some((_, outcome)) = concerned {
            outcome?;
        }
        place.ok_or_else(|| not_found(id))
    }

    /// A session whose whole id is known and whose workstation is connected: nobody need be asked.
    fn connected_place(&self, id: &str, machine: Option<&AgentId>) -> Option<Place> {
        if id.len() != TERMINAL_ID_LEN {
            return None;
        }
        let place = self.pick(id, machine).ok()??;
        let whole = place.session.id.as_str() == id;
        (whole && self.links.protocol(&place.agent).is_some()).then_some(place)
    }

    /// What fits among the lists that are known.
    fn pick(&self, id: &str, machine: Option<&AgentId>) -> Result<Option<Place>, Fault> {
        let known = self.known();
        let places = || {
            known
                .iter()
                .filter(|(agent, _)| machine.is_none_or(|wanted| *agent == wanted))
                .flat_map(|(agent, known)| known.sessions.iter().map(move |s| (agent, s)))
        };
        let fits: [&dyn Fn(&Session) -> bool; 3] = [
            &|session| session.id.as_str() == id,
            &|session| session.name == id,
            &|session| !id.is_empty() && session.id.as_str().starts_with(id),
        ];
        for fits in fits {
            let found: Vec<_> = places().filter(|(_, session)| fits(session)).collect();
            match found.as_slice() {
                [] => {}
                [(agent, session)] => {
                    return Ok(Some(Place {
                        agent: (*agent).clone(),
                        session: (*session).clone(),
                    }));
                }
                several => {
                    let mut names: Vec<_> = several
                        .iter()
                        .map(|(agent, session)| format!("{agent}/{}", session.id))
                        .collect();
                    names.sort();
                    let text = format!("several sessions fit {id:?}: {}", names.join(", "));
                    return Err(Fault::new(Code::SessionAmbiguous, text));
                }
            }
        }
        Ok(None)
    }

    /// `footprint.get`: one workstation's, or all that answer with `scope=all`.
    async fn footprint(&self, who: &Identity, params: &ListParams) -> Result<Footprint, Fault> {
        self.may_anywhere(who, Permission::SessionsView).await?;
        let sight = self.sight(who).await?;
        let every = params.scope.as_deref() == Some(SCOPE_ALL);
        let ask = |agent: AgentId| async move {
            let mut call = Call::new(GetFootprint::NAME, json!({}), Origin::Server { epoch: 0 });
            call.timeout_ms = Some(limits::SESSION_LIST_TIMEOUT_MS);
            self.links.call(&agent, call).await?.read::<Footprint>()
        };
        let mut whole = Footprint::default();
        if !every && params.machine.is_some() {
            let agent = self.choose(params.machine.as_ref().map(AgentId::as_str))?;
            whole = ask(agent).await?;
        } else {
            let speaks = |m: &Machine| m.protocol >= Some(Protocol::V2.number());
            let answers = futures_util::stream::iter(self.machines().into_iter().filter(speaks))
                .map(|machine| ask(machine.id))
                .buffered(ASKED_AT_ONCE)
                .collect::<Vec<_>>()
                .await;
            for part in answers.into_iter().flatten() {
                whole.rows.extend(part.rows);
                whole.pty.extend(part.pty);
            }
        }
        whole.pty.retain(|row| sight.sees(&row.id));
        Ok(whole)
    }

    /// Sessions known by workstation, for the metrics.
    fn known_counts(&self) -> Vec<(String, u64)> {
        let known = self.known();
        let mut counts: Vec<_> = known
            .iter()
            .map(|(agent, known)| (agent.to_string(), known.sessions.len() as u64))
            .collect();
        counts.sort();
        counts
    }
}

/// Characters of a session's whole id.
const TERMINAL_ID_LEN: usize = 32;

fn is_whole(id: &TerminalId) -> bool {
    id.as_str().len() == TERMINAL_ID_LEN
}

fn named(machines: &[Machine], name: &str) -> Result<AgentId, Fault> {
    if let Some(machine) = machines.iter().find(|machine| machine.id.as_str() == name) {
        return Ok(machine.id.clone());
    }
    let called = |machine: &&Machine| machine.hostname.as_deref() == Some(name);
    let found: Vec<_> = machines.iter().filter(called).collect();
    match found.as_slice() {
        [machine] => Ok(machine.id.clone()),
        [] => Err(Fault::new(
            Code::AgentOffline,
            format!("no workstation {name:?} is known"),
        )),
        several => {
            let names: Vec<_> = several.iter().map(|m| m.id.as_str()).collect();
            let text = format!("several workstations are {name:?}: {}", names.join(", "));
            Err(Fault::new(Code::AgentAmbiguous, text))
        }
    }
}

fn offline(agent: &AgentId) -> Fault {
    Fault::new(Code::AgentOffline, format!("{agent} is not connected"))
}

fn not_found(id: &str) -> Fault {
    Fault::new(
        Code::SessionNotFound,
        format!("there is no session {id:?} on a workstation that answers"),
    )
}
