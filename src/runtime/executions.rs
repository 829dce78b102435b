//! Executions of this node: admission, the active ones, and the answers about them.
//!
//! ```text
//! script.run ─ row + event on disk ─ queued ─ slot ─ running ─┬─ script ends ────────── succeeded | failed
//!                                      │                      ├─ stop, then 100 ms ──── cancelled
//!                                      └─ stop: cancelled     └─ time over, then 100 ms timeout
//! ```
//!
//! Invariants: nothing is answered before its row and its event are on disk; a command id runs once;
//! whatever was unfinished when the process died is `failed` with `agent_restarted` at the next start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::{Semaphore, watch};

use super::artifacts::{self, Artifacts};
use super::desktop_slot::DesktopSlot;
use super::pause::PauseGate;
use super::records::{Inserted, Records};
use super::run::{Run, RunParts};
use super::supervisor;
use crate::base::ids::{AgentId, CommandId, ExecutionId};
use crate::base::{EpochMillis, limits};
use crate::journal::Journal;
use crate::platform::InputOwner;
use crate::script::host::Kv;
use crate::script::{Script, StopReason};
use crate::wire::event::{Draft, name};
use crate::wire::messages::executions as msg;
use crate::wire::messages::scripts::{Language, RunParams, RunReply, ScriptRow};
use crate::wire::{Blob, Code, Fault, Origin};

/// What the executions of a node need.
pub struct Parts {
    pub agent_id: AgentId,
    pub records: Records,
    pub journal: Journal,
    pub artifacts: Artifacts,
    pub desktop: Arc<DesktopSlot>,
    pub kv: Arc<dyn Kv>,
    /// Where relative script paths start.
    pub scripts_dir: PathBuf,
    pub file_roots: Vec<PathBuf>,
    /// Canonical paths that no script's file function touches.
    pub private_paths: Vec<PathBuf>,
    pub memory_max: usize,
    pub running_max: usize,
}

/// All executions of one node.
pub struct Executions {
    pub(super) parts: Parts,
    pub(super) gate: Arc<PauseGate>,
    pub(super) slots: Arc<Semaphore>,
    active: Mutex<HashMap<ExecutionId, Arc<Run>>>,
    next_owner: AtomicU64,
    current_task: watch::Sender<String>,
}

/// Owners of runs begin here; below are the callers' connections.
const FIRST_RUN_OWNER: u64 = 1 << 48;

impl Executions {
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(parts.running_max)),
            parts,
            gate: Arc::new(PauseGate::default()),
            active: Mutex::default(),
            next_owner: AtomicU64::new(FIRST_RUN_OWNER),
            current_task: watch::Sender::default(),
        })
    }

    /// Ends what a former process left unfinished, and announces ends that it could not.
    pub async fn recover(&self) -> Result<usize, Fault> {
        let mut ended = 0;
        for mut record in self.parts.records.unannounced().await? {
            if !record.status.is_final() {
                record.status = msg::Status::Failed;
                record.finished_at = Some(EpochMillis::now());
                record.error = Some(msg::RunError {
                    code: Code::AgentRestarted.as_str().into(),
                    message: "the agent stopped while the run was under way".into(),
                });
                self.salvage(&mut record).await?;
                ended += 1;
            }
            self.store_and_announce(&record).await?;
        }
        Ok(ended)
    }

    /// Describes the output that an interrupted run left on disk.
    async fn salvage(&self, record: &mut msg::Execution) -> Result<(), Fault> {
        let id = record.execution_id.clone();
        let (_, lines) = self.parts.records.lines(&id, 0, 1).await?;
        let files = self.parts.artifacts.clone();
        let streams = super::blocking(move || seal_streams(&files, &id)).await?;
        record.logs.lines = lines;
        record.logs.bytes = streams.iter().map(|stream| stream.size).sum();
        record
            .artifacts
            .retain(|artifact| streams.iter().all(|s| s.name != artifact.name));
        record.artifacts.extend(streams);
        Ok(())
    }

    /// Admits a run of a script. A repeated command or execution id answers with its record.
    pub async fn run(
        self: &Arc<Self>,
        params: RunParams,
        origin: Origin,
        command_id: Option<CommandId>,
    ) -> Result<RunReply, Fault> {
        let wait = params.wait;
        let (script, dir) = self.resolve(&params).await?;
        let record = self.new_record(&params, &script, origin);
        if self.active().len() >= self.parts.running_max + limits::SCRIPTS_QUEUED_MAX {
            return Err(Fault::new(
                Code::Busy,
                "too many scripts run and wait on this node",
            ));
        }
        let id = record.execution_id.clone();
        let reply = |status, reused| RunReply {
            execution_id: id.clone(),
            script_id: id.to_string(),
            status,
            reused,
        };
        let inserted = self
            .parts
            .records
            .insert(&record, command_id.as_ref())
            .await?;
        if let Inserted::Existing(known) = inserted {
            let status = known.status;
            let mut reused = reply(status, true);
            reused.script_id = known.execution_id.to_string();
            reused.execution_id = known.execution_id;
            return Ok(reused);
        }
        let run = Arc::new(Run::new(self.run_parts(&record, dir), record.clone()));
        self.active().insert(id.clone(), Arc::clone(&run));
        let created = Draft::new(name::EXECUTION_CREATED, json!({ "execution": record }))
            .in_session(id.as_str());
        if let Err(fault) = self.parts.journal.append(created).await {
            self.active().remove(&id);
            // The row stays and is ended by the next start, should the database be out of reach too.
            let mut record = record;
            record.status = msg::Status::Failed;
            record.finished_at = Some(EpochMillis::now());
            let message = fault.to_string();
            record.error = Some(msg::RunError {
                code: fault.code_text().to_owned(),
                message,
            });
            self.parts.records.update(&record).await?;
            return Err(fault);
        }
        tokio::spawn(supervisor::supervise(
            Arc::clone(self),
            Arc::clone(&run),
            script,
        ));
        if wait {
            let mut watch = run.record.subscribe();
            // The sender lives in `run`, which this scope holds.
            let _ = watch.wait_for(|record| record.status.is_final()).await;
        }
        let status = run.record.borrow().status;
        Ok(reply(status, false))
    }

    /// Reads the script's text and tells its language. The folder is the script's own, if it has one.
    async fn resolve(&self, params: &RunParams) -> Result<(Script, Option<PathBuf>), Fault> {
        let bad = |why: &str| Fault::invalid_params("script.run", why);
        let name = params
            .name
            .as_deref()
            .or(params.path.as_deref())
            .unwrap_or("script");
        let language = params
            .language
            .or_else(|| Language::of_path(params.path.as_deref().unwrap_or(name)))
            .ok_or_else(|| {
                Fault::new(
                    Code::ScriptLanguageUnknown,
                    format!(
                        "the language of {name:?} is not told by its ending: name it lua or rhai"
                    ),
                )
            })?;
        let (source, dir) = match (&params.source, &params.path) {
            (Some(_), Some(_)) => return Err(bad("source and path exclude one another")),
            (None, None) => return Err(bad("missing source or path")),
            (Some(source), None) => (source.clone(), None),
            (None, Some(path)) => {
                let path = self.parts.scripts_dir.join(path);
                let source = read_script(&path).await?;
                (source, path.parent().map(Path::to_owned))
            }
        };
        if source.len() > limits::SCRIPT_SOURCE_LEN_MAX {
            return Err(Fault::new(
                Code::ScriptTooLarge,
                format!(
                    "the script has {} bytes, more than {}",
                    source.len(),
                    limits::SCRIPT_SOURCE_LEN_MAX
                ),
            ));
        }
        Ok((
            Script {
                language,
                name: name.to_owned(),
                source,
            },
            dir,
        ))
    }

    fn new_record(&self, params: &RunParams, script: &Script, origin: Origin) -> msg::Execution {
        msg::Execution {
            execution_id: params
                .execution_id
                .clone()
                .unwrap_or_else(ExecutionId::random),
            workflow_id: None,
            step_id: None,
            agent_id: self.parts.agent_id.clone(),
            script_id: Some(script.name.clone()),
            kind: msg::RunKind::Script,
            origin: if origin.is_local() {
                msg::RunOrigin::Local
            } else {
                msg::RunOrigin::Server
            },
            requested_by: None,
            status: msg::Status::Queued,
            created_at: EpochMillis::now(),
            started_at: None,
            finished_at: None,
            timeout: params.timeout_ms.filter(|ms| *ms > 0),
            retry: 0,
            args: params.args.clone(),
            logs: msg::LogExtent::default(),
            artifacts: Vec::new(),
            result: None,
            error: None,
        }
    }

    fn run_parts(&self, record: &msg::Execution, script_dir: Option<PathBuf>) -> RunParts {
        RunParts {
            id: record.execution_id.clone(),
            owner: InputOwner(self.next_owner.fetch_add(1, Ordering::Relaxed)),
            args: record.args.clone(),
            script_dir,
            file_roots: self.parts.file_roots.clone(),
            private_paths: self.parts.private_paths.clone(),
            desktop: Arc::clone(&self.parts.desktop),
            kv: Arc::clone(&self.parts.kv),
            artifacts: self.parts.artifacts.clone(),
            gate: Arc::clone(&self.gate),
        }
    }

    /// Stops a run and waits, at most its grace, for the final state.
    pub async fn stop(&self, id: &ExecutionId) -> Result<msg::Execution, Fault> {
        let Some(run) = self.find_active(id) else {
            let record = self.get(id).await?;
            return Err(Fault::new(
                Code::ExecutionFinished,
                format!("execution {id} has ended as {}", record.status.as_str()),
            ));
        };
        run.request_stop(StopReason::Cancelled);
        let mut watch = run.record.subscribe();
        let grace = Duration::from_millis(limits::STOP_GRACE_MS * 5);
        // When the grace is over the answer is `stopping`, which is true then.
        let _ = tokio::time::timeout(grace, watch.wait_for(|r| r.status.is_final())).await;
        let record = run.record.borrow().clone();
        Ok(record)
    }

    /// Stops all runs; answers how many there were.
    pub fn stop_all(&self) -> usize {
        let runs: Vec<Arc<Run>> = self.active().values().cloned().collect();
        for run in &runs {
            run.request_stop(StopReason::Cancelled);
        }
        runs.len()
    }

    /// Waits until no run is active.
    pub async fn idle(&self) {
        while let Some(run) = self.any_active() {
            let mut watch = run.record.subscribe();
            // The record's sender lives in `run`, which this scope holds.
            let _ = watch.wait_for(|record| record.status.is_final()).await;
            // Its supervisor takes it off the list in the next moment.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn any_active(&self) -> Option<Arc<Run>> {
        self.active().values().next().cloned()
    }

    /// Pauses or resumes one run.
    pub fn set_paused(&self, id: &ExecutionId, paused: bool) -> Result<(), Fault> {
        let run = self.find_active(id).ok_or_else(|| not_found(id))?;
        run.set_paused(paused);
        Ok(())
    }

    /// Pauses or resumes all runs; answers how many that touched.
    pub fn set_all_paused(&self, paused: bool) -> usize {
        let running = self.active().len();
        if self.gate.set(paused) { running } else { 0 }
    }

    pub fn all_paused(&self) -> bool {
        self.gate.is_paused()
    }

    /// Running and queued runs, counted.
    pub fn counts(&self) -> (u32, u32) {
        let active = self.active();
        let queued = active
            .values()
            .filter(|run| run.record.borrow().status == msg::Status::Queued)
            .count();
        ((active.len() - queued) as u32, queued as u32)
    }

    /// The active scripts.
    pub fn scripts(&self) -> Vec<ScriptRow> {
        let mut rows: Vec<ScriptRow> = self
            .active()
            .values()
            .map(|run| {
                let record = run.record.borrow();
                let state = match record.status {
                    msg::Status::Queued => "loaded",
                    _ if run.is_paused() => "paused",
                    msg::Status::Running | msg::Status::Stopping => "running",
                    _ => "stopped",
                };
                ScriptRow {
                    id: record.execution_id.clone(),
                    name: record.script_id.clone().unwrap_or_default(),
                    path: None,
                    size: record.logs.bytes,
                    is_running: record.status == msg::Status::Running,
                    state: state.into(),
                    error: None,
                    loaded_at: record.created_at,
                }
            })
            .collect();
        rows.sort_by_key(|row| row.loaded_at);
        rows
    }

    pub async fn get(&self, id: &ExecutionId) -> Result<msg::Execution, Fault> {
        if let Some(run) = self.find_active(id) {
            return Ok(live_record(&run));
        }
        self.parts
            .records
            .get(id)
            .await?
            .ok_or_else(|| not_found(id))
    }

    pub async fn list(&self, params: &msg::ListParams) -> Result<msg::ListReply, Fault> {
        let mut reply = self.parts.records.list(params).await?;
        for item in &mut reply.items {
            if let Some(run) = self.find_active(&item.execution_id) {
                *item = live_record(&run);
            }
        }
        Ok(reply)
    }

    /// Waits until the run has ended, at most `wait`.
    pub async fn wait(&self, id: &ExecutionId, wait: Duration) -> Result<msg::Execution, Fault> {
        let Some(run) = self.find_active(id) else {
            return self.get(id).await;
        };
        let mut watch = run.record.subscribe();
        let _ = tokio::time::timeout(wait, watch.wait_for(|r| r.status.is_final())).await;
        Ok(live_record(&run))
    }

    pub async fn logs(&self, params: &msg::LogsParams) -> Result<msg::LogsReply, Fault> {
        let record = self.get(&params.execution_id).await?;
        let limit = params.limit.unwrap_or(100).clamp(1, 500);
        let (lines, total) = self
            .parts
            .records
            .lines(&params.execution_id, params.offset, limit)
            .await?;
        let next_offset = lines.last().map_or(params.offset, |line| line.index + 1);
        let complete = record.status.is_final() && next_offset >= total;
        Ok(msg::LogsReply {
            lines,
            next_offset,
            total,
            complete,
        })
    }

    /// A stored file with its bytes.
    pub async fn artifact(
        &self,
        params: &msg::ArtifactParams,
    ) -> Result<(msg::Artifact, Blob), Fault> {
        let id = params.execution_id.clone();
        let record = self.get(&id).await?;
        let artifact = record
            .artifacts
            .into_iter()
            .find(|artifact| artifact.name == params.name)
            .ok_or_else(|| {
                Fault::new(
                    Code::ArtifactNotFound,
                    format!("execution {id} has no artifact {:?}", params.name),
                )
            })?;
        let files = self.parts.artifacts.clone();
        let wanted = artifact.clone();
        let bytes = super::blocking(move || files.read(&id, &wanted)).await?;
        let blob = Blob {
            content_type: artifact.content_type.clone(),
            bytes: bytes.into(),
            field: "content",
        };
        Ok((artifact, blob))
    }

    /// Puts a record on disk, then tells the journal.
    pub(super) async fn store_and_announce(&self, record: &msg::Execution) -> Result<(), Fault> {
        self.parts.records.update(record).await?;
        self.announce(record).await
    }

    async fn announce(&self, record: &msg::Execution) -> Result<(), Fault> {
        let draft = Draft::new(name::EXECUTION_STATE, json!({ "execution": record }))
            .in_session(record.execution_id.as_str());
        self.parts.journal.append(draft).await?;
        if record.status.is_final() {
            self.parts.records.mark_announced(record).await?;
        }
        Ok(())
    }

    /// Forgets the oldest finished executions beyond what is kept.
    pub(super) async fn prune(&self) -> Result<(), Fault> {
        for id in self.parts.records.prune(limits::EXECUTIONS_KEPT).await? {
            let files = self.parts.artifacts.clone();
            super::blocking(move || files.remove(&id)).await?;
        }
        Ok(())
    }

    pub(super) fn retire(&self, id: &ExecutionId) {
        self.active().remove(id);
        self.show_current_task();
    }

    /// The script that runs now, the first where several do; empty for none.
    pub fn current_task(&self) -> watch::Receiver<String> {
        self.current_task.subscribe()
    }

    pub(super) fn show_current_task(&self) {
        let rows = self.scripts();
        let name = rows
            .into_iter()
            .find(|row| row.is_running)
            .map(|row| row.name);
        self.current_task.send_replace(name.unwrap_or_default());
    }

    fn find_active(&self, id: &ExecutionId) -> Option<Arc<Run>> {
        self.active().get(id).cloned()
    }

    fn active(&self) -> std::sync::MutexGuard<'_, HashMap<ExecutionId, Arc<Run>>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run's record with what it has printed and stored up to now.
fn live_record(run: &Run) -> msg::Execution {
    let mut record = run.record.borrow().clone();
    if !record.status.is_final() {
        record.logs = run.output.extent();
        record.artifacts = run.outcome_parts().0;
    }
    record
}

async fn read_script(path: &Path) -> Result<String, Fault> {
    let size = tokio::fs::metadata(path).await.map(|meta| meta.len());
    let too_large = matches!(size, Ok(size) if size > limits::SCRIPT_SOURCE_LEN_MAX as u64);
    if too_large {
        return Err(Fault::new(
            Code::ScriptTooLarge,
            format!(
                "{} is larger than {} bytes",
                path.display(),
                limits::SCRIPT_SOURCE_LEN_MAX
            ),
        ));
    }
    tokio::fs::read_to_string(path).await.map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => Code::NotFound,
            std::io::ErrorKind::InvalidData => Code::ScriptSyntax,
            _ => Code::StorageFailed,
        };
        Fault::new(code, format!("read the script {}: {error}", path.display()))
    })
}

fn not_found(id: &ExecutionId) -> Fault {
    Fault::new(Code::ExecutionNotFound, format!("no execution {id}"))
}

/// Describes what the streams of a run have on disk.
pub(super) fn seal_streams(
    files: &Artifacts,
    id: &ExecutionId,
) -> Result<Vec<msg::Artifact>, Fault> {
    let mut sealed = Vec::new();
    for (name, _) in STREAMS {
        sealed.extend(files.seal_stream(id, name)?);
    }
    Ok(sealed)
}

/// The names that belong to a run's own output, with where they come from.
pub(super) const STREAMS: [(&str, msg::Stream); 2] = [
    (artifacts::STDOUT, msg::Stream::Stdout),
    (artifacts::STDERR, msg::Stream::Stderr),
];
