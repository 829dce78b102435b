//! The registry of workstations: what is stored of each, what its live link says, and who may connect.
//!
//! ```text
//!            enrol                  two processes            split
//! (unknown) ───────► active ─────────────────────► quarantined ─────► active
//!                      │  revoke                       │ revoke
//!                      └────────────► revoked ◄────────┘      revoked ── enrol ──► active
//! ```
//!
//! Rows are kept in memory and written through: a change is on disk before it is seen. Live figures
//! (resources, link health, last heartbeat) are memory alone and end with their link.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::contract::LinkSink;
use crate::base::digest::sha256_hex;
use crate::base::ids::AgentId;
use crate::base::{Clock, EpochMillis, limits};
use crate::model::link::{Admission, DuplicateWatch};
use crate::store::agents::{self, AgentRow, Changed, Mark};
use crate::store::{Store, StoreError};
use crate::wire::capability;
use crate::wire::event::name;
use crate::wire::join::JoinString;
use crate::wire::link::Heartbeat;
use crate::wire::messages::agents::{
    Agent, AgentStatus, InviteParams, InviteReply, LinkHealth, ListParams, ListReply, Resources,
    SetTagsParams, SplitParams,
};
use crate::wire::peer::Peer;
use crate::wire::rawkey::PublicKey;
use crate::wire::{Code, Fault};

/// Tags per agent, and characters in one.
const TAGS_MAX: usize = 32;
const TAG_CHARS_MAX: usize = 64;
/// Longest text that an agent may say about itself; longer ones are cut.
const FACT_CHARS_MAX: usize = 256;

/// A link that is registered.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) epoch: u64,
    pub(super) instance: Option<String>,
    pub(super) peer: Peer,
    /// Fires when the session has told everybody that it ended.
    pub(super) ended: CancellationToken,
    /// The database token that let it in.
    pub(super) token: Option<String>,
    pub(super) resources: Option<Resources>,
    pub(super) health: Option<LinkHealth>,
    pub(super) current_task: Option<String>,
    pub(super) heard_at: EpochMillis,
}

pub(super) struct State {
    pub(super) rows: HashMap<AgentId, Changed>,
    pub(super) live: HashMap<AgentId, Live>,
    /// Agents whose registration is under way.
    pub(super) registering: HashSet<AgentId>,
    pub(super) watches: HashMap<AgentId, DuplicateWatch>,
    pub(super) admission: Admission,
    /// `agent.enroll` tries by address.
    pub(super) tries: HashMap<String, (u32, EpochMillis)>,
}

/// The registry; share it behind an `Arc`.
pub struct Registry {
    pub(super) store: Store,
    pub(super) clock: Arc<dyn Clock>,
    /// Numbers the changes of rows in the order of the database.
    pub(super) revisions: Arc<AtomicU64>,
    /// Who is told of changes; there once the gateway is.
    pub(super) sink: OnceLock<Arc<dyn LinkSink>>,
    pub(super) state: Mutex<State>,
}

/// Folds a database error; the caller learns no details of the schema.
pub(super) fn storage(error: StoreError) -> Fault {
    let code = match error {
        StoreError::Full => Code::StorageFull,
        _ => Code::StorageFailed,
    };
    Fault::new(code, error.to_string())
}

fn unknown(agent: &AgentId) -> Fault {
    Fault::new(Code::NotFound, format!("no agent {agent}"))
}

pub(super) fn quarantined(agent: &AgentId) -> Fault {
    Fault::new(
        Code::AgentQuarantined,
        format!("two processes hold the key of {agent}; a person has to split them"),
    )
}

/// Hostile text, cut and without control characters.
pub(super) fn fact(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(FACT_CHARS_MAX)
        .collect()
}

impl Registry {
    /// Reads all rows.
    pub async fn open(store: Store, clock: Arc<dyn Clock>) -> Result<Self, Fault> {
        let mut rows = HashMap::new();
        for row in agents::load_all(&store).await.map_err(storage)? {
            let id = AgentId::parse(row.agent_id.clone())
                .map_err(|error| Fault::internal(format!("stored agent id: {error}")))?;
            rows.insert(id, Changed { row, revision: 0 });
        }
        let admission = Admission::new(clock.now());
        Ok(Self {
            store,
            clock,
            revisions: Arc::default(),
            sink: OnceLock::new(),
            state: Mutex::new(State {
                rows,
                live: HashMap::new(),
                registering: HashSet::new(),
                watches: HashMap::new(),
                admission,
                tries: HashMap::new(),
            }),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held, so a poisoned lock is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn now(&self) -> EpochMillis {
        self.clock.now()
    }

    /// Has changes told to `sink` from now on; the first one stays.
    pub(super) fn tell_to(&self, sink: Arc<dyn LinkSink>) {
        let _ = self.sink.set(sink);
    }

    pub(super) async fn tell(&self, event: &'static str, payload: Value) {
        if let Some(sink) = self.sink.get() {
            sink.noted(event, payload).await;
        }
    }

    /// Shows a change that is on disk, unless a later one is shown already.
    pub(super) fn show_changed(&self, agent: &AgentId, changed: Changed) {
        let mut state = self.state();
        match state.rows.get(agent) {
            Some(shown) if shown.revision >= changed.revision => {}
            _ => drop(state.rows.insert(agent.clone(), changed)),
        }
    }

    /// Changes a row: on disk first, then in memory. Changes of one row never overlap.
    pub(super) async fn change(
        &self,
        agent: &AgentId,
        change: impl FnOnce(Option<AgentRow>) -> Result<AgentRow, Fault> + Send + 'static,
    ) -> Result<AgentRow, Fault> {
        let revisions = Arc::clone(&self.revisions);
        let changed = agents::change(&self.store, agent.to_string(), revisions, change)
            .await
            .map_err(storage)??;
        self.show_changed(agent, changed.clone());
        Ok(changed.row)
    }

    /// The same for an agent that must exist.
    async fn edit(
        &self,
        agent: &AgentId,
        edit: impl FnOnce(&mut AgentRow) -> Result<(), Fault> + Send + 'static,
    ) -> Result<AgentRow, Fault> {
        let missing = unknown(agent);
        self.change(agent, move |row| {
            let mut row = row.ok_or(missing)?;
            edit(&mut row)?;
            Ok(row)
        })
        .await
    }

    // What people ask (`agents.*`).

    /// All workstations by name, or those that fit.
    pub fn list(&self, params: &ListParams) -> ListReply {
        let now = self.clock.now();
        let state = self.state();
        let mut items: Vec<Agent> = state
            .rows
            .iter()
            .filter(|(_, shown)| {
                let tag = params.tag.as_ref();
                tag.is_none_or(|tag| shown.row.tags.contains(tag))
            })
            .map(|(id, shown)| show(id, &shown.row, state.live.get(id), now))
            .filter(|agent| params.status.is_none_or(|status| agent.status == status))
            .collect();
        items.sort_by(|a, b| a.agent_id.cmp(&b.agent_id));
        ListReply {
            total: items.len() as u64,
            items,
        }
    }

    /// One workstation: `not_found`.
    pub fn show(&self, agent: &AgentId) -> Result<Agent, Fault> {
        let now = self.clock.now();
        let state = self.state();
        let shown = state.rows.get(agent).ok_or_else(|| unknown(agent))?;
        Ok(show(agent, &shown.row, state.live.get(agent), now))
    }

    /// Replaces the tags: `invalid_params` for too many or bad ones.
    pub async fn set_tags(&self, params: SetTagsParams) -> Result<Agent, Fault> {
        let good = |tag: &String| {
            let count = tag.chars().count();
            (1..=TAG_CHARS_MAX).contains(&count) && !tag.chars().any(char::is_control)
        };
        if params.tags.len() > TAGS_MAX || !params.tags.iter().all(good) {
            return Err(Fault::invalid_params(
                "agents.setTags",
                format!("at most {TAGS_MAX} tags of 1 to {TAG_CHARS_MAX} characters"),
            ));
        }
        let mut tags = params.tags;
        tags.sort();
        tags.dedup();
        self.edit(&params.agent_id, move |row| {
            row.tags = tags;
            Ok(())
        })
        .await?;
        self.show(&params.agent_id)
    }

    /// Deletes the agent's key and closes its link at once.
    pub async fn revoke(&self, agent: &AgentId) -> Result<(), Fault> {
        self.edit(agent, |row| {
            row.revoked_key = row.public_key.take().map(|key| sha256_hex(&key));
            row.mark = Mark::Revoked;
            row.rivals.clear();
            Ok(())
        })
        .await?;
        self.close_link(
            agent,
            Fault::new(Code::AgentRevoked, format!("{agent} was revoked")),
        );
        self.tell(name::AGENT_REVOKED, json!({"agentId": agent}))
            .await;
        Ok(())
    }

    /// Ends a quarantine in favour of one instance: `conflict` when there is none or it is not one of
    /// the two.
    pub async fn split(&self, params: SplitParams) -> Result<Agent, Fault> {
        let keep = params.keep_instance;
        self.edit(&params.agent_id, move |row| {
            if row.mark != Mark::Quarantined {
                return Err(Fault::new(
                    Code::Conflict,
                    format!("{} is not quarantined", row.agent_id),
                ));
            }
            if !row.rivals.contains(&keep) {
                return Err(Fault::new(
                    Code::Conflict,
                    format!("the rivals are {}", row.rivals.join(" and ")),
                ));
            }
            let lost = std::mem::take(&mut row.rivals);
            row.refused
                .extend(lost.into_iter().filter(|id| *id != keep));
            row.mark = Mark::Active;
            Ok(())
        })
        .await?;
        if let Some(watch) = self.state().watches.get_mut(&params.agent_id) {
            watch.clear();
        }
        self.show(&params.agent_id)
    }

    /// Makes an invitation; only the hash of its secret is stored.
    pub async fn invite(
        &self,
        params: &InviteParams,
        own_address: &str,
        pin: PublicKey,
    ) -> Result<InviteReply, Fault> {
        let address = params.address.as_deref().unwrap_or(own_address);
        let join = JoinString::create(address, pin.0)
            .map_err(|error| Fault::invalid_params("agents.invite", error))?;
        let now = self.clock.now();
        let expires_at = now.plus_ms(limits::INVITE_LIFE_MS);
        agents::add_invitation(
            &self.store,
            join.invite.to_string(),
            sha256_hex(join.secret.expose()),
            now,
            expires_at,
        )
        .await
        .map_err(storage)?;
        Ok(InviteReply {
            join: join.to_text()?.expose().to_owned(),
            invite_id: join.invite.to_string(),
            expires_at,
        })
    }

    // What links do.

    pub(super) fn link(&self, agent: &AgentId) -> Option<Live> {
        self.state().live.get(agent).cloned()
    }

    /// Every link that is open, with its protocol.
    pub(super) fn connected(&self) -> Vec<(AgentId, u8)> {
        let state = self.state();
        let link =
            |(agent, live): (&AgentId, &Live)| (agent.clone(), live.peer.protocol().number());
        let open = |(_, live): &(&AgentId, &Live)| live.peer.is_open();
        state.live.iter().filter(open).map(link).collect()
    }

    /// Whether frames of this epoch may still be applied.
    pub(super) fn is_current(&self, agent: &AgentId, epoch: u64) -> bool {
        self.state()
            .live
            .get(agent)
            .is_some_and(|live| live.epoch == epoch)
    }

    /// Ends an agent's link, if it has one, with the reason.
    pub(super) fn close_link(&self, agent: &AgentId, reason: Fault) {
        if let Some(live) = self.link(agent) {
            live.peer.close(reason);
        }
    }

    /// Ends the links that a token let in.
    pub(super) fn close_links_of_token(&self, token: &str, reason: &Fault) {
        let state = self.state();
        let let_in = |live: &&Live| live.token.as_deref() == Some(token);
        for live in state.live.values().filter(let_in) {
            live.peer.close(reason.clone());
        }
    }

    /// Whose key it is: `agent_revoked` or `agent_unknown` when nobody's.
    pub(super) fn by_key(&self, key: PublicKey) -> Result<AgentId, Fault> {
        let hex = key.to_hex();
        let state = self.state();
        let owner = state
            .rows
            .iter()
            .find(|(_, shown)| shown.row.public_key.as_deref() == Some(&hex));
        if let Some((agent, _)) = owner {
            return Ok(agent.clone());
        }
        let hash = sha256_hex(&hex);
        let was = |shown: &Changed| shown.row.revoked_key.as_deref() == Some(&hash);
        match state.rows.iter().find(|(_, shown)| was(shown)) {
            Some((agent, _)) => Err(Fault::new(
                Code::AgentRevoked,
                format!("{agent} was revoked"),
            )),
            None => Err(Fault::new(
                Code::AgentUnknown,
                "the key belongs to no enrolled agent",
            )),
        }
    }

    /// Whether the agent has a key of its own, so that nothing weaker may speak for it.
    pub(super) fn has_key(&self, agent: &AgentId) -> bool {
        let state = self.state();
        let shown = state.rows.get(agent);
        shown.is_some_and(|shown| shown.row.public_key.is_some())
    }

    /// Puts an agent under quarantine and closes its link.
    pub(super) async fn quarantine(
        &self,
        agent: &AgentId,
        rivals: [String; 2],
    ) -> Result<Fault, Fault> {
        let payload = json!({"agentId": agent, "rivals": rivals});
        self.edit(agent, move |row| {
            row.mark = Mark::Quarantined;
            row.rivals = rivals.to_vec();
            Ok(())
        })
        .await?;
        let fault = quarantined(agent);
        self.close_link(agent, fault.clone());
        self.tell(name::AGENT_QUARANTINED, payload).await;
        Ok(fault)
    }

    /// Notes a heartbeat.
    pub(super) fn heartbeat(&self, agent: &AgentId, epoch: u64, beat: Heartbeat) {
        let now = self.clock.now();
        let mut state = self.state();
        if let Some(live) = state.live.get_mut(agent).filter(|live| live.epoch == epoch) {
            live.heard_at = now;
            live.resources = Some(beat.resources);
            live.health = beat.link.map(|mut health| {
                health.last_disconnect_reason = health.last_disconnect_reason.map(|r| fact(&r));
                health
            });
            live.current_task = beat.current_task.map(|task| fact(&task));
        }
    }

    /// Replaces the advertised capabilities.
    pub(super) async fn set_capabilities(
        &self,
        agent: &AgentId,
        names: Vec<String>,
    ) -> Result<(), Fault> {
        self.edit(agent, move |row| {
            row.capabilities = bounded(names);
            Ok(())
        })
        .await
        .map(drop)
    }

    /// Takes a link out, if it is still the current one.
    pub(super) async fn disconnect(&self, agent: &AgentId, epoch: u64) -> Result<(), Fault> {
        let heard = {
            let mut state = self.state();
            match state.live.get(agent) {
                Some(live) if live.epoch == epoch => {
                    let heard = live.heard_at;
                    state.live.remove(agent);
                    heard
                }
                _ => return Ok(()),
            }
        };
        self.edit(agent, move |row| {
            row.last_seen = Some(heard);
            Ok(())
        })
        .await
        .map(drop)
    }
}

pub(super) fn bounded(mut names: Vec<String>) -> Vec<String> {
    names.truncate(limits::CAPABILITIES_LEN_MAX);
    names.iter().map(|name| fact(name)).collect()
}

pub(super) fn fresh_row(agent: &AgentId, now: EpochMillis) -> AgentRow {
    AgentRow {
        agent_id: agent.to_string(),
        public_key: None,
        revoked_key: None,
        mark: Mark::Active,
        hostname: String::new(),
        platform: String::new(),
        arch: None,
        version: None,
        protocol: None,
        instance_id: None,
        ip: None,
        epoch: 0,
        tags: Vec::new(),
        capabilities: Vec::new(),
        rivals: Vec::new(),
        refused: Vec::new(),
        enrolled_at: now,
        last_seen: None,
    }
}

fn show(id: &AgentId, row: &AgentRow, live: Option<&Live>, now: EpochMillis) -> Agent {
    let names = row.capabilities.iter().map(String::as_str);
    let (capabilities, unknown_capabilities) = capability::split(names);
    let status = match (row.mark, live) {
        (Mark::Quarantined, _) => AgentStatus::Quarantined,
        (Mark::Revoked, _) => AgentStatus::Revoked,
        (Mark::Active, None) => AgentStatus::Offline,
        (Mark::Active, Some(live)) => match live.current_task.as_deref() {
            None => AgentStatus::Online,
            Some("") => AgentStatus::Idle,
            Some(_) => AgentStatus::Busy,
        },
    };
    let health = live.map(|live| {
        let mut health = live.health.clone().unwrap_or_default();
        health.heartbeat_age_ms = Some(now.since(live.heard_at));
        if live.health.is_none() {
            health.session_uptime_ms = as_ms(live.peer.age());
        }
        health
    });
    Agent {
        agent_id: id.clone(),
        hostname: row.hostname.clone(),
        ip: row.ip.clone(),
        status,
        platform: row.platform.clone(),
        arch: row.arch.clone(),
        version: row.version.clone(),
        protocol: row.protocol,
        instance_id: row.instance_id.clone(),
        epoch: row.epoch,
        resources: live.and_then(|live| live.resources.clone()),
        link: health,
        last_seen: live.map(|live| live.heard_at).or(row.last_seen),
        current_task: live
            .and_then(|live| live.current_task.clone())
            .unwrap_or_default(),
        tags: row.tags.clone(),
        capabilities,
        unknown_capabilities,
        rivals: row.rivals.clone(),
    }
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
