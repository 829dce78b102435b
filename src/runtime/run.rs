//! One active run: its stop flag, its output, what it stored; and the host that its script sees.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::artifacts::{self, Artifacts};
use super::desktop_slot::DesktopSlot;
use super::output::Output;
use super::pause::PauseGate;
use crate::base::ids::ExecutionId;
use crate::base::{EpochMillis, limits};
use crate::desktop::Desktop;
use crate::model::execution::{self, Effect, Input, Refused};
use crate::platform::InputOwner;
use crate::script::host::{Kv, Level};
use crate::script::{Host, StopReason};
use crate::wire::messages::executions::{Artifact, Execution, Stream};
use crate::wire::{Code, Fault};

/// What a run of a script is made of, fixed when it is created.
pub struct RunParts {
    pub id: ExecutionId,
    pub owner: InputOwner,
    pub args: BTreeMap<String, String>,
    pub script_dir: Option<PathBuf>,
    pub file_roots: Vec<PathBuf>,
    pub private_paths: Vec<PathBuf>,
    pub desktop: Arc<DesktopSlot>,
    pub kv: Arc<dyn Kv>,
    pub artifacts: Artifacts,
    pub gate: Arc<PauseGate>,
}

/// A run that is queued or running.
pub struct Run {
    parts: RunParts,
    /// 0: go on, 1: cancelled, 2: timed out. Set once.
    stop: AtomicU8,
    stopped: tokio::sync::Notify,
    paused: AtomicBool,
    pub output: Output,
    stored: Mutex<Stored>,
    /// Decides which state follows from what happens.
    machine: Mutex<execution::Run>,
    /// The record as it is on disk; watchers see every change.
    pub record: watch::Sender<Execution>,
}

#[derive(Default)]
struct Stored {
    artifacts: Vec<Artifact>,
    /// Stored since the last look, to be announced.
    fresh: Vec<Artifact>,
    result: Option<Value>,
}

impl Run {
    pub fn new(parts: RunParts, record: Execution) -> Self {
        Self {
            parts,
            stop: AtomicU8::new(0),
            stopped: tokio::sync::Notify::new(),
            paused: AtomicBool::new(false),
            output: Output::default(),
            stored: Mutex::default(),
            machine: Mutex::new(execution::Run::new(record.clone())),
            record: watch::Sender::new(record),
        }
    }

    pub fn id(&self) -> &ExecutionId {
        &self.parts.id
    }

    pub fn owner(&self) -> InputOwner {
        self.parts.owner
    }

    /// Asks the run to end; the first reason counts. Answers whether this call was the first.
    pub fn request_stop(&self, reason: StopReason) -> bool {
        let code = match reason {
            StopReason::Cancelled => 1,
            StopReason::TimedOut => 2,
        };
        let first = self
            .stop
            .compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        self.stopped.notify_one();
        self.parts.gate.wake();
        first
    }

    pub fn stop_requested(&self) -> Option<StopReason> {
        match self.stop.load(Ordering::Acquire) {
            0 => None,
            1 => Some(StopReason::Cancelled),
            _ => Some(StopReason::TimedOut),
        }
    }

    /// Waits until a stop is asked for. One waiter: the run's supervisor.
    pub async fn stop_signal(&self) {
        while self.stop_requested().is_none() {
            self.stopped.notified().await;
        }
    }

    /// Pauses or resumes this run alone.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
        self.parts.gate.wake();
    }

    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire) || self.parts.gate.is_paused()
    }

    /// Takes one input of the state machine; the record that follows, where it changed.
    pub fn step(&self, input: Input) -> Result<Option<Execution>, Refused> {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let effects = machine.step(input, EpochMillis::now())?;
        let changed = effects
            .iter()
            .any(|effect| matches!(effect, Effect::Changed { .. }));
        Ok(changed.then(|| machine.record.clone()))
    }

    /// Artifacts stored since the last call.
    pub fn take_fresh_artifacts(&self) -> Vec<Artifact> {
        std::mem::take(&mut self.stored().fresh)
    }

    /// What the run has stored and set so far.
    pub fn outcome_parts(&self) -> (Vec<Artifact>, Option<Value>) {
        let stored = self.stored();
        (stored.artifacts.clone(), stored.result.clone())
    }

    fn stored(&self) -> std::sync::MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse_when_over(&self) -> Result<(), Fault> {
        if self.output.is_closed() || self.stop_requested().is_some() {
            return Err(Fault::new(Code::Cancelled, "the run has ended"));
        }
        Ok(())
    }
}

impl Host for Run {
    fn stop_reason(&self) -> Option<StopReason> {
        self.stop_requested()
    }

    fn pause_point(&self) {
        if self.is_paused() {
            self.parts
                .gate
                .wait_while(&|| self.is_paused() && self.stop_requested().is_none());
        }
    }

    fn sleep(&self, time: Duration) {
        self.parts
            .gate
            .sleep(time, &|| self.stop_requested().is_some());
    }

    fn output(&self, stream: Stream, level: Level, text: &str) {
        let level = match level {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        };
        self.output
            .push(stream, level, text, &|| self.stop_requested().is_none());
    }

    fn desktop(&self) -> Result<Arc<Desktop>, Fault> {
        self.refuse_when_over()?;
        Ok(self.parts.desktop.current())
    }

    fn input_owner(&self) -> InputOwner {
        self.parts.owner
    }

    fn kv(&self) -> &dyn Kv {
        &*self.parts.kv
    }

    fn store_artifact(
        &self,
        name: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<Artifact, Fault> {
        self.refuse_when_over()?;
        if [artifacts::STDOUT, artifacts::STDERR, artifacts::RESULT].contains(&name) {
            return Err(Fault::new(
                Code::InvalidParams,
                format!("artifact name {name} belongs to the run's own output"),
            ));
        }
        let known = |stored: &Stored| stored.artifacts.iter().any(|a| a.name == name);
        {
            let stored = self.stored();
            if !known(&stored) && stored.artifacts.len() >= limits::EXECUTION_ARTIFACTS_MAX {
                return Err(Fault::new(
                    Code::StorageFull,
                    format!(
                        "a run stores at most {} artifacts",
                        limits::EXECUTION_ARTIFACTS_MAX
                    ),
                ));
            }
        }
        let artifact = self
            .parts
            .artifacts
            .store(&self.parts.id, name, content_type, bytes)?;
        // A stop may have come while the disk was busy: then the record is closed already.
        self.refuse_when_over()?;
        let mut stored = self.stored();
        stored.artifacts.retain(|a| a.name != artifact.name);
        stored.artifacts.push(artifact.clone());
        stored.fresh.push(artifact.clone());
        Ok(artifact)
    }

    fn set_result(&self, result: Value) -> Result<(), Fault> {
        self.refuse_when_over()?;
        let size = serde_json::to_vec(&result).map_or(usize::MAX, |text| text.len());
        if size > limits::EXECUTION_RESULT_LEN_MAX {
            return Err(Fault::new(
                Code::InvalidParams,
                format!(
                    "the result has {size} bytes, more than {}",
                    limits::EXECUTION_RESULT_LEN_MAX
                ),
            ));
        }
        self.stored().result = Some(result);
        Ok(())
    }

    fn args(&self) -> &BTreeMap<String, String> {
        &self.parts.args
    }

    fn script_dir(&self) -> Option<PathBuf> {
        self.parts.script_dir.clone()
    }

    fn file_roots(&self) -> &[PathBuf] {
        &self.parts.file_roots
    }

    fn private_paths(&self) -> &[PathBuf] {
        &self.parts.private_paths
    }

    fn execution_id(&self) -> &str {
        self.parts.id.as_str()
    }
}
