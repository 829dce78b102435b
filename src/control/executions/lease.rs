//! Nothing stays open for ever: leases of agents that are gone, and what is asked of agents that
//! are back.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Executions, record};
use crate::base::EpochMillis;
use crate::base::ids::{AgentId, ExecutionId};
use crate::control::fault::stored;
use crate::model::execution::{Input, NodeRecord, Run};
use crate::store::executions as table;
use crate::wire::event::{Draft, name};
use crate::wire::messages::executions::{Execution, ExecutionRef, Get, Status};
use crate::wire::{Call, Code, Fault, Origin};

/// A run is overdue so long after its own limit.
const OVERDUE_AFTER_MS: i64 = 30_000;
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// Old runs are deleted once in so many sweeps.
const PRUNE_EVERY: u32 = 120;
/// Artifacts asked for when an agent is back.
const FETCH_AT_RETURN: u32 = 256;

impl Executions {
    /// Starts the sweeper. The runs that a dead server left open get a fresh lease.
    pub async fn start(self: &Arc<Self>) -> Result<(), Fault> {
        let open = self.store.call(table::agents_with_open);
        let open = open.await.map_err(stored)?;
        for agent in open {
            self.start_lease(agent);
        }
        let this = Arc::clone(self);
        self.spawn(async move {
            let mut sweeps = 0_u32;
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                sweeps = sweeps.wrapping_add(1);
                if let Err(fault) = this.sweep().await {
                    tracing::error!(error = %fault, "leases could not be checked");
                }
                if sweeps % PRUNE_EVERY == 1
                    && let Err(fault) = this.prune().await
                {
                    tracing::error!(error = %fault, "old executions could not be deleted");
                }
            }
        });
        Ok(())
    }

    /// The lease of an agent that is not connected, unless it runs already.
    pub(super) fn start_lease(&self, agent: AgentId) {
        let until = self.clock.now().plus_ms(self.lease_ms);
        let mut presence = self.presence();
        if !presence.connected.contains_key(&agent) {
            presence.leases.entry(agent).or_insert(until);
        }
    }

    /// Loses the runs of agents whose lease has passed.
    pub async fn sweep(self: &Arc<Self>) -> Result<(), Fault> {
        let now = self.clock.now();
        let passed: Vec<_> = self
            .presence()
            .leases
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(agent, until)| (agent.clone(), *until))
            .collect();
        for (agent, until) in passed {
            self.lose(&agent, until).await?;
            // It may have come back meanwhile with a new lease in between.
            let mut presence = self.presence();
            if presence.leases.get(&agent) == Some(&until) {
                presence.leases.remove(&agent);
            }
        }
        self.settle_overdue(now).await
    }

    /// Loses the open runs of an agent that will not come back.
    pub async fn give_up(&self, agent: &AgentId) -> Result<(), Fault> {
        self.lose(agent, self.clock.now()).await
    }

    async fn lose(&self, agent: &AgentId, until: EpochMillis) -> Result<(), Fault> {
        let (of, now) = (agent.clone(), self.clock.now());
        let lost = self
            .store
            .call(move |c| {
                let mut lost = Vec::new();
                for row in table::open_of(c, &of)? {
                    let Ok(known) = record::shown(row, Vec::new()) else {
                        continue;
                    };
                    let mut run = Run::new(known).with_lease(until);
                    if run.step(Input::LeaseExpired, now).is_ok() {
                        table::put(c, &record::row(&run.record))?;
                        lost.push(run.record);
                    }
                }
                Ok(lost)
            })
            .await
            .map_err(stored)?;
        for run in &lost {
            self.tell(name::EXECUTION_STATE, run);
        }
        Ok(())
    }

    /// Runs whose own time is long over while their agent is connected: the agent is asked, and one
    /// of protocol 1, which keeps no record, is taken at its limit.
    async fn settle_overdue(self: &Arc<Self>, now: EpochMillis) -> Result<(), Fault> {
        let before = now.plus_ms(-OVERDUE_AFTER_MS);
        let overdue = self.store.call(move |c| table::overdue(c, before));
        let overdue = overdue.await.map_err(stored)?;
        let mut asked = HashSet::new();
        for (id, agent) in overdue {
            match self.links().ok().and_then(|links| links.protocol(&agent)) {
                Some(1) => {
                    self.step(&id, Some(Input::TimedOut)).await?;
                    self.step(&id, Some(Input::GraceOver)).await?;
                }
                Some(_) if asked.insert(agent.clone()) => self.reconcile_later(agent),
                _ => {}
            }
        }
        Ok(())
    }

    async fn prune(&self) -> Result<(), Fault> {
        let kept = self.kept;
        let gone = self.store.call(move |c| table::prune(c, kept));
        let gone = gone.await.map_err(stored)?;
        let files = self.files.clone();
        tokio::task::spawn_blocking(move || gone.iter().for_each(|id| files.remove(id)))
            .await
            .map_err(|error| Fault::internal(format!("delete artifacts: {error}")))
    }

    pub(super) async fn arrived(self: Arc<Self>, agent: AgentId, epoch: u64, protocol: u8) {
        {
            let mut presence = self.presence();
            presence.leases.remove(&agent);
            presence.connected.insert(agent.clone(), epoch);
        }
        let payload = json!({"agentId": agent, "epoch": epoch, "protocol": protocol});
        self.note(name::AGENT_CONNECTED, payload).await;
        self.reconcile_later(agent);
    }

    pub(super) async fn departed(self: Arc<Self>, agent: AgentId, epoch: u64, reason: &str) {
        let current = {
            let mut presence = self.presence();
            let current = presence.connected.get(&agent) == Some(&epoch);
            if current {
                presence.connected.remove(&agent);
                // Protocol 1 names runs by connection.
                presence.plain.retain(|(of, _), _| *of != agent);
            }
            current
        };
        if current {
            self.start_lease(agent.clone());
        }
        let payload = json!({"agentId": agent, "epoch": epoch, "reason": reason});
        self.note(name::AGENT_DISCONNECTED, payload).await;
    }

    pub(super) async fn note(&self, event: &str, payload: serde_json::Value) {
        if let Err(fault) = self.journal.append(Draft::new(event, payload)).await {
            tracing::error!(error = %fault, event, "event could not be written");
        }
    }

    /// Asks a connected agent about the runs that are open here, in the background.
    pub(super) fn reconcile_later(self: &Arc<Self>, agent: AgentId) {
        let this = Arc::clone(self);
        self.spawn(async move {
            if let Err(fault) = this.reconcile(&agent).await {
                tracing::info!(agent = %agent, error = %fault, "reconciliation ends early");
            }
        });
    }

    async fn reconcile(self: &Arc<Self>, agent: &AgentId) -> Result<(), Fault> {
        let of = agent.clone();
        let open = self.store.call(move |c| {
            let missing = table::unfetched(c, &of, FETCH_AT_RETURN)?;
            Ok((table::open_of(c, &of)?, missing))
        });
        let (open, missing) = open.await.map_err(stored)?;
        for row in open {
            let id = row.execution_id;
            if self.presence().in_flight.contains(&id) {
                continue;
            }
            let stopping = row.status == Status::Stopping.as_str();
            match self.ask_about(agent, &id, stopping).await {
                Ok(()) => {}
                Err(fault) if fault.code == Code::ExecutionNotFound => {
                    let unknown = Input::Reconciled(NodeRecord::Unknown);
                    self.step(&id, Some(unknown)).await?;
                }
                Err(fault) if fault.code == Code::ExecutionFinished => {
                    self.ask_about(agent, &id, false).await?;
                }
                Err(fault) => return Err(fault),
            }
        }
        self.fetch_later(agent, missing);
        Ok(())
    }

    async fn ask_about(
        self: &Arc<Self>,
        agent: &AgentId,
        id: &ExecutionId,
        stopping: bool,
    ) -> Result<(), Fault> {
        let links = self.links()?;
        if links.protocol(agent) == Some(1) {
            // Protocol 1 knows a command by its connection, which is gone.
            return Err(Fault::new(
                Code::ExecutionNotFound,
                "protocol 1 keeps no record",
            ));
        }
        if stopping {
            return self.send_cancel(agent, id).await;
        }
        let params = ExecutionRef {
            execution_id: id.clone(),
        };
        let call = Call::of::<Get>(&params, Origin::Server { epoch: 0 })?;
        let told: Execution = links.call(agent, call).await?.read()?;
        self.learn(agent, told).await.map(drop)
    }
}
