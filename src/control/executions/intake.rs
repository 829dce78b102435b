//! What the gateway tells: events of the workstations' journals, arrivals and departures.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Executions, artifacts, record};
use crate::base::EpochMillis;
use crate::base::ids::{AgentId, ExecutionId, TerminalId};
use crate::base::limits::{
    EXECUTION_ARTIFACTS_MAX, EXECUTION_LOG_LEN_MAX, EXECUTION_RESULT_LEN_MAX,
};
use crate::control::auth::cut;
use crate::control::contract::LinkSink;
use crate::control::fault::stored;
use crate::model::execution::{Input, Run};
use crate::store::executions as table;
use crate::store::{Connection, StoreError, audit, terminals};
use crate::wire::event::{Record, name};
use crate::wire::messages::executions::{Artifact, Execution, LogLine, RunOrigin, Status};
use crate::wire::messages::sessions::Lease;
use crate::wire::{BoxFuture, Code, Fault};

/// The gateway's sink.
pub struct Intake(Arc<Executions>);

impl Executions {
    /// This as the gateway's sink.
    pub fn sink(self: &Arc<Self>) -> Arc<dyn LinkSink> {
        Arc::new(Intake(Arc::clone(self)))
    }

    async fn take(self: Arc<Self>, agent: AgentId, records: Vec<Record>) -> Result<u64, Fault> {
        let of = agent.clone();
        let cursor = self.store.call(move |c| table::cursor(c, &of));
        let cursor = cursor.await.map_err(stored)?;
        let Some(last) = records.last().map(|record| record.sequence) else {
            return Ok(cursor);
        };
        if !records.is_sorted_by(|a, b| a.sequence < b.sequence) {
            let text = "the journal's records are out of order";
            return Err(Fault::new(Code::InvalidMessage, text));
        }
        let fresh = |record: &Record| record.sequence > cursor && record.is_shared();
        let fresh: Vec<_> = records.into_iter().filter(fresh).collect();
        self.mirror(&agent, &fresh).await?;
        let (of, now) = (agent.clone(), self.clock.now());
        let applied = self
            .store
            .call(move |c| {
                let mut applied = Applied::default();
                for record in &fresh {
                    apply(c, &of, record, now, &mut applied)?;
                }
                table::set_cursor(c, &of, last)?;
                Ok(applied)
            })
            .await
            .map_err(stored)?;
        self.follow_up(&agent, applied);
        Ok(last.max(cursor))
    }

    /// Applies what a workstation answered about a run.
    pub(super) async fn learn(
        self: &Arc<Self>,
        agent: &AgentId,
        told: Execution,
    ) -> Result<bool, Fault> {
        let (of, now) = (agent.clone(), self.clock.now());
        let applied = self
            .store
            .call(move |c| {
                let mut applied = Applied::default();
                apply_execution(c, &of, told, now, &mut applied)?;
                Ok(applied)
            })
            .await
            .map_err(stored)?;
        let changed = applied.changed;
        self.follow_up(agent, applied);
        Ok(changed)
    }

    fn follow_up(self: &Arc<Self>, agent: &AgentId, applied: Applied) {
        if applied.changed {
            self.changed.send_modify(|n| *n += 1);
        }
        for id in applied.unwanted {
            let (this, agent) = (Arc::clone(self), agent.clone());
            self.spawn(async move {
                if let Err(fault) = this.send_cancel(&agent, &id).await {
                    tracing::info!(execution = %id, error = %fault, "cancel after reconnect");
                }
            });
        }
        self.fetch_later(agent, applied.artifacts);
    }
}

impl LinkSink for Intake {
    fn resume_from(&self, agent: &AgentId) -> BoxFuture<Result<u64, Fault>> {
        let (store, agent) = (self.0.store.clone(), agent.clone());
        Box::pin(async move {
            let cursor = store.call(move |c| table::cursor(c, &agent)).await;
            Ok(cursor.map_err(stored)? + 1)
        })
    }

    fn events(&self, agent: &AgentId, records: Vec<Record>) -> BoxFuture<Result<u64, Fault>> {
        Box::pin(Arc::clone(&self.0).take(agent.clone(), records))
    }

    fn plain_event(&self, agent: &AgentId, event: String, data: Value) -> BoxFuture<()> {
        Box::pin(Arc::clone(&self.0).take_plain(agent.clone(), event, data))
    }

    fn connected(&self, agent: &AgentId, epoch: u64, protocol: u8) -> BoxFuture<()> {
        let (this, agent) = (Arc::clone(&self.0), agent.clone());
        Box::pin(async move { this.arrived(agent, epoch, protocol).await })
    }

    fn disconnected(&self, agent: &AgentId, epoch: u64, reason: &str) -> BoxFuture<()> {
        let (this, agent, reason) = (Arc::clone(&self.0), agent.clone(), reason.to_owned());
        Box::pin(async move { this.departed(agent, epoch, &reason).await })
    }

    fn noted(&self, event: &'static str, payload: Value) -> BoxFuture<()> {
        let this = Arc::clone(&self.0);
        Box::pin(async move { this.note(event, payload).await })
    }
}

/// What has to be done once a batch is on disk.
#[derive(Default)]
struct Applied {
    changed: bool,
    /// Artifacts whose bytes are still on the workstation.
    artifacts: Vec<(ExecutionId, String)>,
    /// Runs that go on there though they were cancelled here.
    unwanted: Vec<ExecutionId>,
}

#[derive(Deserialize)]
struct StatePayload {
    execution: Execution,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OutputPayload {
    execution_id: ExecutionId,
    lines: Vec<LogLine>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactPayload {
    execution_id: ExecutionId,
    artifact: Artifact,
}

fn apply(
    c: &Connection,
    agent: &AgentId,
    record: &Record,
    now: EpochMillis,
    applied: &mut Applied,
) -> Result<(), StoreError> {
    let payload = || record.payload.clone();
    let read = match record.event_type.as_str() {
        name::EXECUTION_CREATED | name::EXECUTION_STATE => {
            match serde_json::from_value::<StatePayload>(payload()) {
                Ok(told) => return apply_execution(c, agent, told.execution, now, applied),
                Err(error) => error,
            }
        }
        name::EXECUTION_OUTPUT => match serde_json::from_value::<OutputPayload>(payload()) {
            Ok(told) => return apply_output(c, agent, told, applied),
            Err(error) => error,
        },
        name::EXECUTION_ARTIFACT => match serde_json::from_value::<ArtifactPayload>(payload()) {
            Ok(told) => {
                if owned(c, agent, &told.execution_id)?.is_some() {
                    keep_artifacts(c, &told.execution_id, vec![told.artifact], applied)?;
                }
                return Ok(());
            }
            Err(error) => error,
        },
        name::SESSION_LEASE => return note_lease(c, agent, record, now),
        name::SESSION_FORGOTTEN => {
            return match TerminalId::parse(&record.session_id) {
                Ok(session) => terminals::drop_grants_to(c, &session),
                Err(_) => Ok(()),
            };
        }
        _ => return Ok(()),
    };
    // The copy in our journal keeps the record; a run must not stall the link for it.
    tracing::warn!(agent = %agent, event = record.event_type, sequence = record.sequence,
        error = %read, "event from a workstation cannot be read");
    Ok(())
}

/// Who may type into a terminal session changed: a row of the audit trail, by the account whose
/// console holds it now.
fn note_lease(
    c: &Connection,
    agent: &AgentId,
    record: &Record,
    now: EpochMillis,
) -> Result<(), StoreError> {
    let told = serde_json::from_value::<Lease>(record.payload["lease"].clone());
    let holder = told.as_ref().ok().and_then(|lease| lease.holder.clone());
    let owner = match &holder {
        Some(console) => terminals::console_owner(c, console)?,
        None => None,
    };
    let detail = match told {
        Ok(lease) => {
            json!({"mode": lease.mode, "holder": lease.holder, "generation": lease.generation})
        }
        Err(_) => json!({}),
    };
    let row = audit::AuditRow {
        id: 0,
        at: now,
        kind: "session.lease_changed".to_owned(),
        actor: owner.map(|(_, name)| name).unwrap_or_default(),
        address: None,
        target: Some(format!("{agent}/{}", cut(&record.session_id))),
        outcome: "ok".to_owned(),
        detail,
    };
    audit::insert(c, &row)
}

fn apply_execution(
    c: &Connection,
    agent: &AgentId,
    mut told: Execution,
    now: EpochMillis,
    applied: &mut Applied,
) -> Result<(), StoreError> {
    let too_long = |value: &Value| value.to_string().len() > EXECUTION_RESULT_LEN_MAX;
    if told.result.as_ref().is_some_and(too_long) {
        tracing::warn!(agent = %agent, execution = %told.execution_id, "result over its limit is dropped");
        told.result = None;
    }
    let id = told.execution_id.clone();
    let stored_artifacts = std::mem::take(&mut told.artifacts);
    match table::get(c, &id)? {
        None => {
            let mut row = record::row(&told);
            row.agent_id = agent.clone();
            row.requested_by = None;
            // Lines count as they come.
            (row.log_lines, row.log_bytes) = (0, 0);
            table::put(c, &row)?;
            applied.changed = true;
        }
        Some(row) if row.agent_id != *agent => {
            tracing::warn!(agent = %agent, execution = %id, "report about another workstation's run");
            return Ok(());
        }
        Some(row) => update(c, row, &told, now, applied)?,
    }
    keep_artifacts(c, &id, stored_artifacts, applied)
}

fn update(
    c: &Connection,
    row: table::ExecutionRow,
    told: &Execution,
    now: EpochMillis,
    applied: &mut Applied,
) -> Result<(), StoreError> {
    let lines = row.log_lines;
    let Ok(mut known) = record::shown(row, Vec::new()) else {
        return Err(StoreError::Corrupt {
            what: "execution",
            why: told.execution_id.to_string(),
        });
    };
    known.logs.truncated |= told.logs.truncated;
    if known.origin == RunOrigin::Local {
        known.script_id.clone_from(&told.script_id);
        known.args.clone_from(&told.args);
        known.timeout = told.timeout;
    }
    if known.status == Status::Cancelled && !told.status.is_final() {
        applied.unwanted.push(known.execution_id.clone());
    }
    let mut run = Run::new(known);
    let input = Input::Reconciled(record::node_record(told, now));
    // A run that has ended here stays as it is; what was told besides is kept.
    if let Ok(effects) = run.step(input, now) {
        applied.changed |= !effects.is_empty();
    }
    if run.record.status.is_final() {
        run.record.logs.lines = lines.max(told.logs.lines);
    }
    table::put(c, &record::row(&run.record))
}

/// The run's row when it is this workstation's.
fn owned(
    c: &Connection,
    agent: &AgentId,
    id: &ExecutionId,
) -> Result<Option<table::ExecutionRow>, StoreError> {
    let row = table::get(c, id)?.filter(|row| row.agent_id == *agent);
    if row.is_none() {
        tracing::warn!(agent = %agent, execution = %id, "report about a run that is not known");
    }
    Ok(row)
}

fn apply_output(
    c: &Connection,
    agent: &AgentId,
    told: OutputPayload,
    applied: &mut Applied,
) -> Result<(), StoreError> {
    let Some(mut row) = owned(c, agent, &told.execution_id)? else {
        return Ok(());
    };
    if row.log_bytes >= EXECUTION_LOG_LEN_MAX {
        row.log_truncated = true;
        return table::put(c, &row);
    }
    let lines: Vec<_> = told.lines.iter().map(record::log_row).collect();
    let (_, bytes) = table::add_lines(c, &row.execution_id, &lines)?;
    row.log_bytes += bytes;
    row.log_lines = row.log_lines.max(table::line_count(c, &row.execution_id)?);
    applied.changed |= bytes > 0;
    table::put(c, &row)
}

fn keep_artifacts(
    c: &Connection,
    id: &ExecutionId,
    told: Vec<Artifact>,
    applied: &mut Applied,
) -> Result<(), StoreError> {
    if told.is_empty() {
        return Ok(());
    }
    let (good, bad): (Vec<_>, Vec<_>) = told.into_iter().partition(artifacts::acceptable);
    for artifact in bad {
        tracing::warn!(execution = %id, artifact = ?artifact.name, "artifact record is refused");
    }
    let mut known = table::artifacts(c, id)?;
    for artifact in good {
        let row = record::artifact_row(&artifact);
        let same = known.iter().find(|known| known.name == row.name);
        if same.is_some_and(|known| known.sha256 == row.sha256) {
            continue;
        }
        if same.is_none() && known.len() >= EXECUTION_ARTIFACTS_MAX {
            tracing::warn!(execution = %id, "more artifacts than a run may have");
            break;
        }
        table::put_artifact(c, id, &row)?;
        applied.changed = true;
        applied.artifacts.push((id.clone(), row.name.clone()));
        known.push(row);
    }
    Ok(())
}
