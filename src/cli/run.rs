//! `wingman run`: a script on a workstation, its output here.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::arguments::{duration_ms, pair};
use super::output::{self, clean};
use super::{Globals, Target};
use crate::base::error::exit;
use crate::base::ids::ExecutionId;
use crate::base::limits;
use crate::client::Caller;
use crate::wire::messages::executions::{
    Cancel, Execution, ExecutionRef, LogLine, Logs, LogsParams, Status, Stream, Wait, WaitParams,
};
use crate::wire::messages::scripts::{Language, Run, RunParams};
use crate::wire::{Code, Fault};

/// Waits between looks at a run that is shown live.
const LIVE_WAIT_MS: u64 = 100;
/// Waits between looks otherwise; the answer comes as soon as the run ends.
const QUIET_WAIT_MS: u64 = 20_000;
/// A run that takes longer is talked about on a terminal.
const PROGRESS_AFTER: Duration = Duration::from_secs(3);
/// How long an interrupted run may take to become final.
const CANCEL_WAIT_MS: u64 = 5_000;
const LOGS_PAGE: u32 = 500;

/// Run a script on a workstation and wait for its end.
///
/// The file is read here and runs there. What it prints comes to standard output, what it logs to
/// standard error, its result at the end. Ctrl-C cancels the run on the workstation.
///
/// Exit codes: 0 succeeded, 1 failed, 124 timed out, 130 cancelled, 69 lost.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    target: Target,
    /// The script: .lua, .luau or .rhai.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// An argument for the script; may be repeated.
    #[arg(long = "arg", value_name = "KEY=VALUE", value_parser = pair)]
    args: Vec<(String, String)>,
    /// End the run after this time, such as 500ms, 30s, 5m; without it there is no limit.
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    timeout: Option<u64>,
    /// Show output as it comes; without it, it comes at the end unless standard output is a terminal.
    #[arg(long)]
    follow: bool,
    /// Print the execution's id and do not wait.
    #[arg(long, conflicts_with = "follow")]
    detach: bool,
}

/// What `--json` prints: the execution and all that it printed.
#[derive(Serialize)]
struct Outcome<'a> {
    #[serde(flatten)]
    execution: &'a Execution,
    output: &'a [LogLine],
}

pub(super) async fn run(args: RunArgs, globals: &Globals) -> Result<u8, Fault> {
    let params = params(&args)?;
    let caller = globals.caller_for(&args.target).await?;
    let started = caller.call::<Run>(&params).await?;
    if args.detach {
        if globals.json {
            output::json(&started);
        } else {
            output::line(started.execution_id.as_str());
        }
        return Ok(exit::OK);
    }
    let mut watch = Watch::new(&caller, started.execution_id, globals.json, args.follow);
    let execution = watch.until_end().await?;
    Ok(watch.finish(&execution))
}

fn params(args: &RunArgs) -> Result<RunParams, Fault> {
    let shown = args.file.display();
    let language = Language::of_path(&args.file.to_string_lossy()).ok_or_else(|| {
        let text = format!("{shown}: scripts end in .lua, .luau or .rhai");
        Fault::new(Code::ScriptLanguageUnknown, text)
    })?;
    let source = std::fs::read_to_string(&args.file)
        .map_err(|error| Fault::new(Code::NotFound, format!("read {shown}: {error}")))?;
    if source.len() > limits::SCRIPT_SOURCE_LEN_MAX {
        let text = format!(
            "{shown} has {} bytes, more than {}",
            source.len(),
            limits::SCRIPT_SOURCE_LEN_MAX
        );
        return Err(Fault::new(Code::ScriptTooLarge, text));
    }
    let name = args
        .file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let mut pairs = BTreeMap::new();
    for (key, value) in &args.args {
        pairs.insert(key.clone(), value.clone());
    }
    Ok(RunParams {
        source: Some(source),
        name,
        language: Some(language),
        args: pairs,
        // 0 means none, also over REST.
        timeout_ms: Some(args.timeout.unwrap_or(0)),
        ..RunParams::default()
    })
}

/// What Ctrl-C does to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupt {
    Cancels,
    Leaves,
}

/// A run that is being watched.
pub(super) struct Watch<'a> {
    caller: &'a Caller,
    id: ExecutionId,
    json: bool,
    /// Whether lines are printed as they come.
    live: bool,
    /// Whether each line is a JSON object of its own.
    json_lines: bool,
    next_line: u64,
    kept: Vec<LogLine>,
    terminal: bool,
    interrupt: Interrupt,
}

impl<'a> Watch<'a> {
    pub fn new(caller: &'a Caller, id: ExecutionId, json: bool, follow: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        Self {
            caller,
            id,
            json,
            live: follow || (terminal && !json),
            json_lines: json && follow,
            next_line: 0,
            kept: Vec::new(),
            terminal,
            interrupt: Interrupt::Cancels,
        }
    }

    /// Watches a run that goes on whatever happens here.
    pub fn attached(caller: &'a Caller, id: ExecutionId, json: bool) -> Self {
        Self {
            interrupt: Interrupt::Leaves,
            ..Self::new(caller, id, json, true)
        }
    }

    /// Waits for the end; Ctrl-C cancels the run on the workstation.
    pub async fn until_end(&mut self) -> Result<Execution, Fault> {
        let interrupted = tokio::select! {
            ended = self.wait() => return ended,
            signal = tokio::signal::ctrl_c() => signal,
        };
        interrupted.map_err(|error| Fault::internal(format!("wait for Ctrl-C: {error}")))?;
        if self.interrupt == Interrupt::Leaves {
            return Err(Fault::new(Code::Cancelled, "interrupted; the run goes on"));
        }
        if !self.json {
            output::note("cancelling");
        }
        self.cancel().await
    }

    async fn wait(&mut self) -> Result<Execution, Fault> {
        let wait_ms = if self.live {
            LIVE_WAIT_MS
        } else {
            QUIET_WAIT_MS
        };
        let started = tokio::time::Instant::now();
        let mut told = !std::io::stderr().is_terminal() || self.json || self.live;
        loop {
            let quiet = !told && started.elapsed() < PROGRESS_AFTER;
            let params = WaitParams {
                execution_id: self.id.clone(),
                wait_ms: Some(if quiet { 1_000 } else { wait_ms }),
            };
            let execution = self.caller.call::<Wait>(&params).await?;
            if self.live {
                self.print_new_lines().await?;
            }
            if execution.status.is_final() {
                self.print_new_lines().await?;
                return Ok(execution);
            }
            if !told && started.elapsed() >= PROGRESS_AFTER {
                told = true;
                output::note(&format!("{} is {}", self.id, execution.status.as_str()));
            }
        }
    }

    async fn cancel(&mut self) -> Result<Execution, Fault> {
        let reference = ExecutionRef {
            execution_id: self.id.clone(),
        };
        let mut execution = match self.caller.call::<Cancel>(&reference).await {
            Ok(execution) => execution,
            // It ended by itself just now; how, the wait tells.
            Err(fault) if fault.code == Code::ExecutionFinished => self.look(0).await?,
            Err(fault) => return Err(fault),
        };
        if !execution.status.is_final() {
            execution = self.look(CANCEL_WAIT_MS).await?;
        }
        self.print_new_lines().await?;
        Ok(execution)
    }

    async fn look(&self, wait_ms: u64) -> Result<Execution, Fault> {
        let params = WaitParams {
            execution_id: self.id.clone(),
            wait_ms: Some(wait_ms),
        };
        self.caller.call::<Wait>(&params).await
    }

    async fn print_new_lines(&mut self) -> Result<(), Fault> {
        loop {
            let params = LogsParams {
                execution_id: self.id.clone(),
                offset: self.next_line,
                limit: Some(LOGS_PAGE),
            };
            let page = self.caller.call::<Logs>(&params).await?;
            let progressed = page.next_offset > self.next_line;
            self.next_line = page.next_offset.max(self.next_line);
            for line in page.lines {
                self.print_line(line);
            }
            if !progressed || self.next_line >= page.total {
                return Ok(());
            }
        }
    }

    fn print_line(&mut self, line: LogLine) {
        if self.json_lines {
            output::json_line(&line);
        } else if self.json {
            self.kept.push(line);
        } else {
            print_line(&line, self.terminal);
        }
    }

    /// Prints the end and answers the exit code.
    pub fn finish(&self, execution: &Execution) -> u8 {
        if self.json_lines {
            output::json_line(execution);
        } else if self.json {
            output::json(&Outcome {
                execution,
                output: &self.kept,
            });
        } else {
            print_end(execution);
        }
        exit_code(execution.status)
    }
}

/// Output to stdout as it is, log lines to stderr with their level.
pub(super) fn print_line(line: &LogLine, terminal: bool) {
    match line.stream {
        Stream::Stdout => output::line(&output::clean_for(terminal, &line.text)),
        Stream::Stderr => output::note(&format!("[{}] {}", clean(&line.level), clean(&line.text))),
    }
}

fn print_end(execution: &Execution) {
    match &execution.result {
        None | Some(Value::Null) => {}
        Some(result) => output::json(result),
    }
    for artifact in &execution.artifacts {
        if !matches!(artifact.name.as_str(), "stdout" | "stderr" | "result.json") {
            output::note(&format!(
                "artifact {} ({}, {} bytes)",
                clean(&artifact.name),
                clean(&artifact.content_type),
                artifact.size
            ));
        }
    }
    if execution.logs.truncated {
        output::note("the output passed its limit and was cut");
    }
    if let Some(error) = &execution.error {
        for (at, line) in error.message.lines().enumerate() {
            let head = if at == 0 { "error: " } else { "  " };
            output::note(&format!("{head}{}", clean(line)));
        }
    }
    let status = execution.status;
    if status != Status::Succeeded {
        let code = execution
            .error
            .as_ref()
            .map_or("", |error| error.code.as_str());
        output::note(&format!(
            "{} {} {}",
            execution.execution_id,
            status.as_str(),
            clean(code)
        ));
    }
}

/// The exit code that a run's state means.
pub(super) const fn exit_code(status: Status) -> u8 {
    match status {
        Status::Succeeded => exit::OK,
        Status::Failed => exit::FAILED,
        Status::Timeout => exit::TIMED_OUT,
        Status::Cancelled | Status::Stopping => exit::INTERRUPTED,
        Status::Lost | Status::Pending | Status::Queued | Status::Running => exit::UNAVAILABLE,
    }
}
