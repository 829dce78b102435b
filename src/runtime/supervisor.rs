//! One task per run: it waits for a slot, starts the script's thread, enforces stop and timeout, and
//! makes the final record, whether or not the thread has come back.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::artifacts;
use super::executions::{Executions, STREAMS, seal_streams};
use super::run::Run;
use crate::base::ids::ExecutionId;
use crate::base::limits;
use crate::model::execution::{self as model, Input};
use crate::script::{self, Host, Outcome, Profile, Script, StopReason};
use crate::wire::event::{Draft, name};
use crate::wire::messages::executions::{Artifact, LogLine, RunError, Stream};
use crate::wire::{Code, Fault};

/// From a stop to the final state, when the thread does not come back by itself.
const FINALISE_AFTER: Duration = Duration::from_millis(limits::STOP_GRACE_MS / 2);

/// How a run ended.
enum End {
    Returned(Outcome),
    /// The thread panicked.
    Crashed,
    Stopped(StopReason),
}

/// Takes a queued run to its end.
pub async fn supervise(executions: Arc<Executions>, run: Arc<Run>, script: Script) {
    let flusher = tokio::spawn(flush_output(Arc::clone(&executions), Arc::clone(&run)));
    let slot = tokio::select! {
        slot = Arc::clone(&executions.slots).acquire_owned() => slot.ok(),
        () = run.stop_signal() => None,
    };
    let end = match slot {
        Some(slot) => run_to_end(&executions, &run, script, slot).await,
        None => End::Stopped(run.stop_requested().unwrap_or(StopReason::Cancelled)),
    };
    run.output.close();
    if let Err(error) = flusher.await {
        tracing::error!(run = %run.id(), %error, "the output task of a run failed");
    }
    release_input(&executions, &run).await;
    finish(&executions, &run, end).await;
    executions.retire(run.id());
    if let Err(fault) = executions.prune().await {
        tracing::warn!(%fault, "cannot remove old executions");
    }
}

async fn run_to_end(
    executions: &Arc<Executions>,
    run: &Arc<Run>,
    script: Script,
    slot: OwnedSemaphorePermit,
) -> End {
    advance(executions, run, Input::Started, Vec::new()).await;
    executions.show_current_task();
    let deadline = run
        .record
        .borrow()
        .timeout
        .map(|ms| Instant::now() + Duration::from_millis(ms));
    let mut done = start_thread(executions, run, script, slot);
    let timer = async {
        match deadline {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = &mut done => return returned(outcome, run),
        () = timer => { run.request_stop(StopReason::TimedOut); }
        () = run.stop_signal() => {}
    }
    let reason = run.stop_requested().unwrap_or(StopReason::Cancelled);
    let input = match reason {
        StopReason::Cancelled => Input::StopRequested,
        StopReason::TimedOut => Input::TimedOut,
    };
    let final_by = Instant::now() + FINALISE_AFTER;
    advance(executions, run, input, Vec::new()).await;
    match tokio::time::timeout_at(final_by, &mut done).await {
        Ok(outcome) => returned(outcome, run),
        Err(_) => End::Stopped(reason),
    }
}

fn returned(outcome: Result<Outcome, oneshot::error::RecvError>, run: &Run) -> End {
    match (outcome, run.stop_requested()) {
        (Ok(outcome), _) => End::Returned(outcome),
        (Err(_), Some(reason)) => End::Stopped(reason),
        (Err(_), None) => End::Crashed,
    }
}

/// Starts the script on a thread of its own. The slot is held until the thread is really over.
fn start_thread(
    executions: &Executions,
    run: &Arc<Run>,
    script: Script,
    slot: OwnedSemaphorePermit,
) -> oneshot::Receiver<Outcome> {
    let (tell, done) = oneshot::channel();
    let host: Arc<dyn Host> = Arc::clone(run) as Arc<dyn Host>;
    let mut profile = Profile::script();
    profile.limits.memory = executions.parts.memory_max;
    let spawned = std::thread::Builder::new()
        .name("script".into())
        .stack_size(limits::SCRIPT_STACK_LEN)
        .spawn(move || {
            let outcome = script::run(&script, &profile, &host);
            // The supervisor may have finished the run without this thread.
            let _ = tell.send(outcome);
            drop(slot);
        });
    if let Err(error) = spawned {
        // The sender went with the closure, so the supervisor sees a crash; this says why.
        tracing::error!(run = %run.id(), %error, "cannot start a script thread");
    }
    done
}

async fn release_input(executions: &Executions, run: &Run) {
    let desktop = Arc::clone(&executions.parts.desktop);
    let owner = run.owner();
    let released = super::blocking(move || desktop.current().release_input(owner)).await;
    let draft = match released {
        Ok(0) => return,
        Ok(count) => json!({ "executionId": run.id(), "count": count }),
        Err(fault) => json!({ "executionId": run.id(), "error": fault.message }),
    };
    let draft = Draft::new(name::INPUT_RELEASED, draft).in_session(run.id().as_str());
    if let Err(fault) = executions.parts.journal.append(draft).await {
        tracing::error!(%fault, "cannot journal released input");
    }
}

async fn finish(executions: &Executions, run: &Run, end: End) {
    let (mut files, set_result) = run.outcome_parts();
    let store = executions.parts.artifacts.clone();
    let id = run.id().clone();
    match super::blocking(move || seal_streams(&store, &id)).await {
        Ok(streams) => files.extend(streams),
        Err(fault) => tracing::error!(run = %run.id(), %fault, "cannot seal a run's output"),
    }
    if let Some(result) = &set_result {
        match store_result(executions, run, result).await {
            Ok(artifact) => files.push(artifact),
            Err(fault) => tracing::error!(run = %run.id(), %fault, "cannot store a run's result"),
        }
    }
    let outcome = match end {
        End::Returned(Outcome::Succeeded) => model::Outcome::Succeeded { result: set_result },
        End::Returned(Outcome::Failed { code, message, .. }) => failed(code, message),
        End::Returned(Outcome::Stopped(reason)) | End::Stopped(reason) => match reason {
            StopReason::Cancelled => model::Outcome::Cancelled,
            StopReason::TimedOut => model::Outcome::TimedOut,
        },
        End::Crashed => failed(Code::Internal, "the script's thread crashed".into()),
    };
    advance(executions, run, Input::Finished(outcome), files).await;
}

fn failed(code: Code, message: String) -> model::Outcome {
    model::Outcome::Failed {
        error: RunError {
            code: code.as_str().into(),
            message,
        },
    }
}

async fn store_result(
    executions: &Executions,
    run: &Run,
    result: &serde_json::Value,
) -> Result<Artifact, Fault> {
    let text = serde_json::to_vec_pretty(result)
        .map_err(|error| Fault::internal(format!("encode the result: {error}")))?;
    let store = executions.parts.artifacts.clone();
    let id = run.id().clone();
    super::blocking(move || store.store(&id, artifacts::RESULT, "application/json", &text)).await
}

/// Takes one input of the state machine: on disk and in the journal first, then for watchers.
async fn advance(executions: &Executions, run: &Run, input: Input, files: Vec<Artifact>) {
    let mut record = match run.step(input) {
        Ok(Some(record)) => record,
        Ok(None) => return,
        Err(refused) => {
            tracing::error!(run = %run.id(), %refused, "a run's state did not follow");
            return;
        }
    };
    record.logs = run.output.extent();
    record.artifacts = files;
    if let Err(fault) = executions.store_and_announce(&record).await {
        // The outcome is still told to those who watch; the log says why the next start will end the
        // run as interrupted.
        tracing::error!(run = %run.id(), %fault, "cannot record a run's state");
        if record.status.is_final() && record.error.is_none() {
            record.error = Some(RunError {
                code: fault.code_text().to_owned(),
                message: format!("the outcome could not be stored: {fault}"),
            });
        }
    }
    run.record.send_replace(record);
}

/// Moves output to the store, the journal and the stream files until the buffer is closed and empty.
async fn flush_output(executions: Arc<Executions>, run: Arc<Run>) {
    loop {
        let pieces = run.output.take();
        let fresh = run.take_fresh_artifacts();
        if pieces.is_empty() && fresh.is_empty() {
            if run.output.is_closed() {
                return;
            }
            run.output.ready().await;
            tokio::time::sleep(Duration::from_millis(limits::OUTPUT_GATHER_MS)).await;
            continue;
        }
        if let Err(fault) = flush(&executions, &run, pieces, fresh).await {
            tracing::error!(run = %run.id(), %fault, "cannot store a run's output");
        }
    }
}

async fn flush(
    executions: &Executions,
    run: &Run,
    pieces: Vec<super::output::Piece>,
    fresh: Vec<Artifact>,
) -> Result<(), Fault> {
    let id = run.id().clone();
    if !pieces.is_empty() {
        let lines: Vec<LogLine> = pieces.iter().map(|piece| piece.line.clone()).collect();
        let files = executions.parts.artifacts.clone();
        let file_id = id.clone();
        super::blocking(move || append_streams(&files, &file_id, &pieces)).await?;
        executions.parts.records.append_lines(&id, &lines).await?;
        let payload = json!({ "executionId": id, "lines": lines });
        let draft = Draft::new(name::EXECUTION_OUTPUT, payload).in_session(id.as_str());
        executions.parts.journal.append(draft).await?;
    }
    for artifact in fresh {
        let payload = json!({ "executionId": id, "artifact": artifact });
        let draft = Draft::new(name::EXECUTION_ARTIFACT, payload).in_session(id.as_str());
        executions.parts.journal.append(draft).await?;
    }
    Ok(())
}

fn append_streams(
    files: &artifacts::Artifacts,
    id: &ExecutionId,
    pieces: &[super::output::Piece],
) -> Result<(), Fault> {
    for (name, stream) in STREAMS {
        let mut text = String::new();
        for piece in pieces.iter().filter(|piece| piece.line.stream == stream) {
            if stream == Stream::Stderr && piece.starts_line {
                text.push_str(&format!("[{}] ", piece.line.level));
            }
            text.push_str(&piece.line.text);
            if piece.ends_line {
                text.push('\n');
            }
        }
        if !text.is_empty() {
            files
                .stream_file(id, name)?
                .write_all(text.as_bytes())
                .map_err(|error| {
                    Fault::new(
                        Code::StorageFailed,
                        format!("write a run's output: {error}"),
                    )
                })?;
        }
    }
    Ok(())
}
