//! Who may connect: enrolment by invitation, and the steps of a registration.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::gateway_open::Candidate;
use super::registry::{Live, Registry, bounded, fact, fresh_row, quarantined, storage};
use crate::base::digest::sha256_hex;
use crate::base::ids::AgentId;
use crate::base::{Secret, limits};
use crate::store::agents::{self, AgentRow, InviteUse, Mark};
use crate::wire::link::{Enroll, Register};
use crate::wire::peer::Peer;
use crate::wire::rawkey::PublicKey;
use crate::wire::{Code, Fault};

/// A registration that was let in.
pub(super) struct Accepted {
    pub agent: AgentId,
    pub epoch: u64,
}

/// A registration under way; dropping it lets the next one begin.
pub(super) struct Registering {
    registry: Arc<Registry>,
    agent: AgentId,
}

impl Drop for Registering {
    fn drop(&mut self) {
        self.registry.state().registering.remove(&self.agent);
    }
}

impl Registering {
    /// Notes the instance; answers its rival when the two take turns.
    pub(super) fn rival(&self, instance: &str) -> Option<String> {
        let now = self.registry.clock.now();
        let mut state = self.registry.state();
        let watch = state.watches.entry(self.agent.clone()).or_default();
        watch.observe(instance, now)
    }

    /// Raises the epoch and writes what the agent says of itself.
    pub(super) async fn accept(
        &self,
        register: &Register,
        protocol: u8,
        ip: Option<String>,
    ) -> Result<Accepted, Fault> {
        let now = self.registry.clock.now();
        let (agent, register) = (self.agent.clone(), register.clone());
        let row = self
            .registry
            .change(&self.agent, move |row| {
                let mut row = row.unwrap_or_else(|| fresh_row(&agent, now));
                // It may have been revoked or quarantined since the registration began.
                refusal(&agent, &row, register.instance_id.as_deref())?;
                row.hostname = fact(&register.hostname);
                row.platform = fact(&register.platform);
                row.arch = register.arch.as_deref().map(fact);
                row.version = register.version.as_deref().map(fact);
                row.protocol = Some(protocol);
                row.instance_id = register.instance_id.as_deref().map(fact);
                row.ip = ip;
                row.epoch += 1;
                row.capabilities = bounded(register.capabilities);
                row.last_seen = Some(now);
                Ok(row)
            })
            .await?;
        Ok(Accepted {
            agent: self.agent.clone(),
            epoch: row.epoch,
        })
    }

    /// Makes the link the agent's current one.
    pub(super) fn go_live(
        &self,
        accepted: &Accepted,
        candidate: Candidate,
        peer: Peer,
        ended: CancellationToken,
    ) {
        let live = Live {
            epoch: accepted.epoch,
            instance: candidate.register.instance_id,
            peer,
            ended,
            token: candidate.token,
            resources: None,
            health: None,
            current_task: None,
            heard_at: self.registry.clock.now(),
        };
        self.registry
            .state()
            .live
            .insert(accepted.agent.clone(), live);
    }
}

impl Registry {
    /// Whether an address may try again to show an invitation or a token: `rate_limited`.
    pub(super) fn check_tries(&self, address: &str) -> Result<(), Fault> {
        let now = self.clock.now();
        let state = self.state();
        match state.tries.get(address) {
            Some((count, since))
                if *count >= limits::ENROLL_TRIES_MAX
                    && now.since(*since) < limits::ENROLL_WINDOW_MS =>
            {
                Err(Fault::new(
                    Code::RateLimited,
                    "too many tries from this address",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Counts an address's try: `rate_limited` beyond the limit.
    pub(super) fn count_try(&self, address: &str) -> Result<(), Fault> {
        self.check_tries(address)?;
        let now = self.clock.now();
        let mut state = self.state();
        state
            .tries
            .retain(|_, (_, since)| now.since(*since) < limits::ENROLL_WINDOW_MS);
        if state.tries.len() >= limits::ENROLL_ADDRESSES_MAX {
            let tries = state.tries.iter();
            let oldest = tries.min_by_key(|(_, (_, since))| *since);
            if let Some(oldest) = oldest.map(|(address, _)| address.clone()) {
                state.tries.remove(&oldest);
            }
        }
        let (count, _) = state.tries.entry(address.to_owned()).or_insert((0, now));
        *count += 1;
        Ok(())
    }

    /// Enrols a key by an invitation. The id wished for is kept unless another key holds it.
    pub(super) async fn enrol(
        &self,
        message: Enroll,
        key: PublicKey,
        ip: Option<String>,
    ) -> Result<AgentId, Fault> {
        if let Ok(agent) = self.by_key(key) {
            return Err(Fault::new(
                Code::Conflict,
                format!("this key is enrolled as {agent} already"),
            ));
        }
        let wish = message.agent_id.clone();
        match self.try_enrol(&message, wish, key, ip.clone()).await? {
            InviteUse::IdTaken => {}
            used => return invite_outcome(used),
        }
        // The id that the agent would like is another's: it gets one of its own.
        let keep = limits::ID_LEN_MAX - 9;
        let stem: String = message.agent_id.as_str().chars().take(keep).collect();
        let derived = format!("{stem}-{}", crate::base::ids::random_hex(4));
        let derived = AgentId::parse(derived)
            .map_err(|error| Fault::internal(format!("derive an agent id: {error}")))?;
        invite_outcome(self.try_enrol(&message, derived, key, ip).await?)
    }

    async fn try_enrol(
        &self,
        message: &Enroll,
        agent: AgentId,
        key: PublicKey,
        ip: Option<String>,
    ) -> Result<InviteUse, Fault> {
        let now = self.clock.now();
        let shown = Secret::new(sha256_hex(message.secret.expose()));
        let (hostname, platform) = (fact(&message.hostname), fact(&message.platform));
        let id = agent.clone();
        let enrolment = agents::Enrolment {
            invite_id: message.invite_id.to_string(),
            fits: move |stored: &str| shown.equals(stored),
            agent_id: agent.to_string(),
            admit: move |old: Option<AgentRow>| {
                let mut row = match old {
                    None => fresh_row(&id, now),
                    Some(row) if row.mark == Mark::Revoked => row,
                    Some(_) => return None,
                };
                row.public_key = Some(key.to_hex());
                row.revoked_key = None;
                row.mark = Mark::Active;
                row.refused.clear();
                row.hostname = hostname;
                row.platform = platform;
                row.ip = ip;
                row.enrolled_at = now;
                Some(row)
            },
            now,
        };
        let revisions = Arc::clone(&self.revisions);
        let used = agents::enrol(&self.store, revisions, enrolment)
            .await
            .map_err(storage)?;
        if let InviteUse::Accepted(changed) = &used {
            self.show_changed(&agent, (**changed).clone());
        }
        Ok(used)
    }

    /// Reserves an agent's registration: `busy` while another one is under way or the herd is large
    /// (with the time to wait), `agent_quarantined`, `agent_revoked`.
    pub(super) fn begin(
        self: &Arc<Self>,
        agent: &AgentId,
        instance: Option<&str>,
    ) -> Result<Registering, (Fault, Option<u64>)> {
        let now = self.clock.now();
        let mut state = self.state();
        if let Some(shown) = state.rows.get(agent) {
            refusal(agent, &shown.row, instance).map_err(|fault| (fault, None))?;
        }
        let busy = |why: &'static str, wait| Err((Fault::new(Code::Busy, why), Some(wait)));
        if state.registering.contains(agent) {
            return busy(
                "another registration of this agent is under way",
                limits::DUPLICATE_PROBE_MS,
            );
        }
        if let Err(wait_ms) = state.admission.admit(now) {
            return busy("too many agents register at once", wait_ms);
        }
        state.registering.insert(agent.clone());
        Ok(Registering {
            registry: Arc::clone(self),
            agent: agent.clone(),
        })
    }
}

/// Why this instance of an agent may not register.
fn refusal(agent: &AgentId, row: &AgentRow, instance: Option<&str>) -> Result<(), Fault> {
    let refused = instance.is_some_and(|id| row.refused.iter().any(|lost| lost == id));
    match row.mark {
        Mark::Revoked => Err(Fault::new(
            Code::AgentRevoked,
            format!("{agent} was revoked"),
        )),
        Mark::Quarantined => Err(quarantined(agent)),
        Mark::Active if refused => Err(quarantined(agent)),
        Mark::Active => Ok(()),
    }
}

fn invite_outcome(used: InviteUse) -> Result<AgentId, Fault> {
    let (code, why) = match used {
        InviteUse::Accepted(changed) => {
            return AgentId::parse(changed.row.agent_id)
                .map_err(|error| Fault::internal(format!("stored agent id: {error}")));
        }
        InviteUse::IdTaken => (Code::Conflict, "the agent id is taken"),
        InviteUse::Invalid => (
            Code::InviteInvalid,
            "the invitation is unknown or its secret is wrong",
        ),
        InviteUse::Used => (Code::InviteUsed, "the invitation was used before"),
        InviteUse::Expired => (Code::InviteExpired, "the invitation's time has passed"),
    };
    Err(Fault::new(code, why))
}
