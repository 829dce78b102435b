//! Runs as the server sees them: issued here, executed on a workstation, mirrored back.
//!
//! Invariants: a run is on disk before it is dispatched; its outcome arrives by the workstation's
//! journal, keyed by its id, and is applied once in the transaction that moves the cursor; an answer
//! whose fate is unknown leaves the row open for the reconciliation, never a guess; nothing stays
//! open for ever (`lease`).

mod artifacts;
mod dispatch;
mod intake;
mod lease;
mod mirror;
mod plain;
mod record;

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::audit::page;
use super::contract::Links;
use super::fault::stored;
use crate::base::ids::{AgentId, ExecutionId};
use crate::base::{Clock, EpochMillis};
use crate::config::ExecutionsConfig;
use crate::journal::Journal;
use crate::model::execution::{Input, Outcome, Run};
use crate::store::executions::{self as table, Filter};
use crate::store::{Store, StoreError};
use crate::wire::event::{Draft, name};
use crate::wire::messages::executions::{
    Execution, ListParams, ListReply, LogsParams, LogsReply, RunError, WaitParams,
};
use crate::wire::{Code, Fault};

use artifacts::ArtifactFiles;

/// `execution.wait` when it does not say, and its end.
const WAIT_DEFAULT_MS: u64 = 25_000;
const WAIT_MAX_MS: u64 = 60_000;
const LOG_LINES_DEFAULT: u32 = 100;
const LOG_LINES_MAX: u32 = 500;
/// Artifacts fetched at once. More wait.
const FETCHES_AT_ONCE: usize = 4;
/// Output of a run that has ended is waited for this long.
const LATE_OUTPUT_MS: i64 = 60_000;

/// What the executions are built from.
pub struct ExecutionsParts {
    pub store: Store,
    pub journal: Journal,
    pub clock: Arc<dyn Clock>,
    pub config: ExecutionsConfig,
    /// The folder below which artifacts are kept.
    pub data_dir: std::path::PathBuf,
}

/// The server's runs; `LinkSink` for the gateway, handlers for the routes.
pub struct Executions {
    store: Store,
    journal: Journal,
    clock: Arc<dyn Clock>,
    lease_ms: i64,
    kept: u64,
    files: ArtifactFiles,
    /// Weak, since the gateway holds this as its sink.
    links: OnceLock<Weak<dyn Links>>,
    /// Rises whenever a run changes state; waiters look again.
    changed: watch::Sender<u64>,
    presence: Mutex<Presence>,
    fetches: Semaphore,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

/// What is known of agents and commands right now.
#[derive(Default)]
struct Presence {
    /// Commands on their way: the reconciliation leaves them alone.
    in_flight: HashSet<ExecutionId>,
    /// When the runs of an agent that is gone become lost.
    leases: HashMap<AgentId, EpochMillis>,
    /// The epoch of each connected agent.
    connected: HashMap<AgentId, u64>,
    /// What protocol-1 agents call the runs of their present connections.
    plain: HashMap<(AgentId, String), ExecutionId>,
    /// Up to where each agent's events stand in our own journal.
    mirrored: HashMap<AgentId, u64>,
}

impl Executions {
    pub fn new(parts: ExecutionsParts) -> Arc<Self> {
        let mirrored = mirror::high_water(&parts.journal);
        Arc::new(Self {
            store: parts.store,
            journal: parts.journal,
            clock: parts.clock,
            lease_ms: i64::try_from(parts.config.lease.saturating_mul(1000)).unwrap_or(i64::MAX),
            kept: parts.config.kept,
            files: ArtifactFiles::new(parts.data_dir.join("artifacts")),
            links: OnceLock::new(),
            changed: watch::Sender::new(0),
            presence: Mutex::new(Presence {
                mirrored,
                ..Presence::default()
            }),
            fetches: Semaphore::new(FETCHES_AT_ONCE),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })
    }

    /// Names the gateway; before that every agent is offline.
    pub fn attach(&self, links: &Arc<dyn Links>) {
        // A second gateway would be a defect of the composition; the first one stays.
        let _ = self.links.set(Arc::downgrade(links));
    }

    /// Ends the background work and waits for it.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn links(&self) -> Result<Arc<dyn Links>, Fault> {
        self.links
            .get()
            .and_then(Weak::upgrade)
            .ok_or_else(|| Fault::new(Code::AgentOffline, "no workstation can connect yet"))
    }

    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stopping = self.stopping.clone();
        self.tasks.spawn(async move {
            let _ = stopping.run_until_cancelled(work).await;
        });
    }

    /// `execution.get`.
    pub async fn get(&self, id: ExecutionId) -> Result<Execution, Fault> {
        let wanted = id.clone();
        let found = self
            .store
            .call(move |c| table::get_whole(c, &wanted))
            .await
            .map_err(stored)?;
        let (row, artifacts) = found.ok_or_else(|| not_found(&id))?;
        record::shown(row, artifacts)
    }

    /// `execution.list`.
    pub async fn list(&self, params: ListParams) -> Result<ListReply, Fault> {
        let (offset, limit) = page(params.page, params.page_size);
        let filter = Filter {
            status: params.status.map(|status| status.as_str().to_owned()),
            agent_id: params.agent_id.map(|id| id.to_string()),
            script_id: params.script_id,
            origin: params.origin.map(|origin| record::text_of(&origin)),
        };
        let (rows, total) = self
            .store
            .call(move |c| {
                let (rows, total) = table::list(c, &filter, offset, limit)?;
                let rows = rows.into_iter().map(|row| {
                    let artifacts = table::artifacts(c, &row.execution_id)?;
                    Ok((row, artifacts))
                });
                Ok((rows.collect::<Result<Vec<_>, StoreError>>()?, total))
            })
            .await
            .map_err(stored)?;
        let items = rows
            .into_iter()
            .map(|(row, artifacts)| record::shown(row, artifacts));
        Ok(ListReply {
            items: items.collect::<Result<_, _>>()?,
            total,
        })
    }

    /// `execution.wait`: until the end or until the wait is over.
    pub async fn wait(&self, params: WaitParams) -> Result<Execution, Fault> {
        let wait_ms = params.wait_ms.unwrap_or(WAIT_DEFAULT_MS).min(WAIT_MAX_MS);
        let deadline = tokio::time::Instant::now() + Duration::from_millis(wait_ms);
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let record = self.get(params.execution_id.clone()).await?;
            if record.status.is_final() {
                return Ok(record);
            }
            tokio::select! {
                moved = changed.changed() => {
                    moved.map_err(|_| Fault::new(Code::Cancelled, "the server stops"))?;
                }
                () = tokio::time::sleep_until(deadline) => return Ok(record),
                () = self.stopping.cancelled() => return Ok(record),
            }
        }
    }

    /// `execution.logs`.
    pub async fn logs(&self, params: LogsParams) -> Result<LogsReply, Fault> {
        let LogsParams {
            execution_id,
            offset,
            limit,
        } = params;
        let limit = limit.unwrap_or(LOG_LINES_DEFAULT).clamp(1, LOG_LINES_MAX);
        let id = execution_id.clone();
        let found = self
            .store
            .call(move |c| {
                let lines = table::lines(c, &id, offset, limit)?;
                let held = table::line_count(c, &id)?;
                Ok(table::get(c, &id)?.map(|row| (row, lines, held)))
            })
            .await
            .map_err(stored)?;
        let (row, lines, held) = found.ok_or_else(|| not_found(&execution_id))?;
        // An answer to the reconciliation may be ahead of the output, which comes by the journal.
        let waited = row.finished_at.map_or(0, |at| self.clock.now().since(at));
        let complete = row.is_final && (held >= row.log_lines || waited > LATE_OUTPUT_MS);
        let next_offset = lines.last().map_or(offset, |line| line.line + 1);
        Ok(LogsReply {
            lines: lines.into_iter().map(record::shown_line).collect(),
            next_offset,
            total: row.log_lines,
            complete,
        })
    }

    /// Runs by state, for the metrics.
    pub async fn counts(&self) -> Result<Vec<(String, u64)>, Fault> {
        self.store.call(table::counts).await.map_err(stored)
    }

    /// Workstations whose link is up, for the metrics.
    pub fn connected_agents(&self) -> u64 {
        self.presence().connected.len() as u64
    }

    /// Ends a run that its workstation did not take.
    async fn fail(&self, id: &ExecutionId, fault: &Fault) -> Result<bool, Fault> {
        let error = run_error(fault);
        let input = Input::Finished(Outcome::Failed { error });
        let moved = self.step(id, Some(input)).await;
        self.landed(id);
        moved
    }

    /// Steps a row in one transaction; tells of it once it is on disk. An input that the state does
    /// not take changes nothing: what came first stands.
    async fn step(&self, id: &ExecutionId, input: Option<Input>) -> Result<bool, Fault> {
        let Some(input) = input else {
            return Ok(false);
        };
        let (id, now) = (id.clone(), self.clock.now());
        let moved = self
            .store
            .call(move |c| {
                let Some((row, artifacts)) = table::get_whole(c, &id)? else {
                    return Ok(None);
                };
                let Ok(record) = record::shown(row, artifacts) else {
                    return Ok(None);
                };
                let mut run = Run::new(record);
                match run.step(input, now) {
                    Ok(effects) if !effects.is_empty() => {
                        table::put(c, &record::row(&run.record))?;
                        Ok(Some(run.record))
                    }
                    _ => Ok(None),
                }
            })
            .await
            .map_err(stored)?;
        if let Some(record) = &moved {
            self.tell(name::EXECUTION_STATE, record);
        }
        Ok(moved.is_some())
    }

    /// Tells waiters and the journal of a state that this server decided.
    fn tell(&self, event: &str, record: &Execution) {
        self.changed.send_modify(|n| *n += 1);
        let draft = Draft::new(event, serde_json::json!({"execution": record}))
            .in_session(record.execution_id.as_str());
        let append = self.journal.append(draft);
        self.tasks.spawn(async move {
            if let Err(fault) = append.await {
                tracing::error!(error = %fault, "event could not be written");
            }
        });
    }
}

fn run_error(fault: &Fault) -> RunError {
    RunError {
        code: fault.code_text().to_owned(),
        message: fault.message.to_string(),
    }
}

fn not_found(id: &ExecutionId) -> Fault {
    Fault::new(
        Code::ExecutionNotFound,
        format!("there is no execution {id}"),
    )
}
