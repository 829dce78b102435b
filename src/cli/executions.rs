//! `wingman executions`: the runs that the server or the local agent knows.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::output::{self, time};
use super::run::{Watch, exit_code, print_line};
use super::{Globals, screenshot};
use crate::base::error::exit;
use crate::base::ids::{AgentId, ExecutionId};
use crate::client::Caller;
use crate::wire::messages::executions::{
    ArtifactParams, Cancel, Execution, ExecutionRef, Get, GetArtifact, List, ListParams, Logs,
    LogsParams, RunOrigin, Status,
};
use crate::wire::{Code, Fault};

const LOGS_PAGE: u32 = 500;

/// List executions, or look at one.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ExecutionsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    filter: Filter,
}

#[derive(Clone, Debug, Args)]
struct Filter {
    /// Only those in this state: queued, running, succeeded, failed, cancelled, timeout, lost.
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<Status>,
    /// Only those of this workstation, by its id.
    #[arg(long, value_name = "ID", value_parser = agent_id)]
    agent: Option<AgentId>,
    /// Only those of this script, by its name.
    #[arg(long, value_name = "NAME")]
    script: Option<String>,
    /// Only those that the server or that the workstation itself started.
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    origin: Option<RunOrigin>,
    /// Which page, from 1.
    #[arg(long, value_name = "N")]
    page: Option<u32>,
    /// How many a page, at most 100.
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Show one execution.
    Show {
        /// The execution's id.
        #[arg(value_name = "ID", value_parser = execution_id)]
        id: ExecutionId,
    },
    /// Print what an execution has printed.
    Logs {
        /// The execution's id.
        #[arg(value_name = "ID", value_parser = execution_id)]
        id: ExecutionId,
        /// Go on until it ends, and exit as it did.
        #[arg(long)]
        follow: bool,
    },
    /// Cancel an execution.
    Cancel {
        /// The execution's id.
        #[arg(value_name = "ID", value_parser = execution_id)]
        id: ExecutionId,
    },
    /// Fetch a file that an execution stored.
    Artifact {
        /// The execution's id.
        #[arg(value_name = "ID", value_parser = execution_id)]
        id: ExecutionId,
        /// The artifact's name, such as stdout or result.json.
        #[arg(value_name = "NAME")]
        name: String,
        /// The file to write; standard output when absent.
        #[arg(long, short = 'o', value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

fn status(text: &str) -> Result<Status, String> {
    Status::parse(text).ok_or_else(|| {
        let all: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
        format!("is none of {}", all.join(", "))
    })
}

fn origin(text: &str) -> Result<RunOrigin, String> {
    match text {
        "server" => Ok(RunOrigin::Server),
        "local" => Ok(RunOrigin::Local),
        _ => Err("is neither server nor local".to_owned()),
    }
}

fn agent_id(text: &str) -> Result<AgentId, String> {
    AgentId::parse(text).map_err(|error| error.to_string())
}

fn execution_id(text: &str) -> Result<ExecutionId, String> {
    ExecutionId::parse(text).map_err(|error| error.to_string())
}

pub(super) async fn run(args: ExecutionsArgs, globals: &Globals) -> Result<u8, Fault> {
    let caller = globals.caller().await?;
    match args.action {
        None => list(&caller, args.filter, globals.json).await,
        Some(Action::Show { id }) => {
            let params = ExecutionRef { execution_id: id };
            show(&caller.call::<Get>(&params).await?, globals.json);
            Ok(exit::OK)
        }
        Some(Action::Cancel { id }) => {
            let params = ExecutionRef { execution_id: id };
            show(&caller.call::<Cancel>(&params).await?, globals.json);
            Ok(exit::OK)
        }
        Some(Action::Logs { id, follow: true }) => {
            let mut watch = Watch::attached(&caller, id, globals.json);
            match watch.until_end().await {
                Ok(execution) => Ok(exit_code(execution.status)),
                Err(fault) if fault.code == Code::Cancelled => Ok(exit::INTERRUPTED),
                Err(fault) => Err(fault),
            }
        }
        Some(Action::Logs { id, follow: false }) => logs(&caller, id, globals.json).await,
        Some(Action::Artifact { id, name, out }) => {
            let params = ArtifactParams {
                execution_id: id,
                name,
            };
            let blob = caller.call_blob::<GetArtifact>(&params).await?;
            match out {
                Some(path) => screenshot::save(&path, &blob.bytes)?,
                None => output::bytes(&blob.bytes),
            }
            Ok(exit::OK)
        }
    }
}

async fn list(caller: &Caller, filter: Filter, json: bool) -> Result<u8, Fault> {
    let params = ListParams {
        status: filter.status,
        agent_id: filter.agent,
        script_id: filter.script,
        origin: filter.origin,
        page: filter.page,
        page_size: filter.page_size,
    };
    let reply = caller.call::<List>(&params).await?;
    if json {
        output::json(&reply);
        return Ok(exit::OK);
    }
    let shown = reply.items.len() as u64;
    let rows = reply.items.iter().map(row).collect();
    output::table(
        &["ID", "STATUS", "SCRIPT", "AGENT", "STARTED", "TOOK"],
        rows,
    );
    if reply.total > shown {
        output::note(&format!("{shown} of {}; --page shows more", reply.total));
    }
    Ok(exit::OK)
}

fn row(execution: &Execution) -> Vec<String> {
    vec![
        execution.execution_id.to_string(),
        execution.status.as_str().to_owned(),
        execution.script_id.clone().unwrap_or_else(|| "-".into()),
        execution.agent_id.to_string(),
        time(execution.started_at),
        took(execution),
    ]
}

fn took(execution: &Execution) -> String {
    match (execution.started_at, execution.finished_at) {
        (Some(start), Some(end)) => output::span(end.since(start)),
        _ => "-".to_owned(),
    }
}

fn show(execution: &Execution, json: bool) {
    if json {
        output::json(execution);
        return;
    }
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let mut rows = vec![
        vec!["id".into(), execution.execution_id.to_string()],
        vec!["status".into(), execution.status.as_str().into()],
        vec!["script".into(), optional(&execution.script_id)],
        vec!["agent".into(), execution.agent_id.to_string()],
        vec!["asked by".into(), optional(&execution.requested_by)],
        vec!["created".into(), time(Some(execution.created_at))],
        vec!["started".into(), time(execution.started_at)],
        vec!["finished".into(), time(execution.finished_at)],
        vec!["took".into(), took(execution)],
        vec!["lines".into(), execution.logs.lines.to_string()],
    ];
    if let Some(result) = &execution.result {
        rows.push(vec!["result".into(), result.to_string()]);
    }
    if let Some(error) = &execution.error {
        rows.push(vec![
            "error".into(),
            format!("{} ({})", error.message, error.code),
        ]);
    }
    for artifact in &execution.artifacts {
        let text = format!(
            "{} ({}, {} bytes)",
            artifact.name, artifact.content_type, artifact.size
        );
        rows.push(vec!["artifact".into(), text]);
    }
    output::table(&[], rows);
}

async fn logs(caller: &Caller, id: ExecutionId, json: bool) -> Result<u8, Fault> {
    let terminal = std::io::stdout().is_terminal();
    let mut offset = 0;
    loop {
        let params = LogsParams {
            execution_id: id.clone(),
            offset,
            limit: Some(LOGS_PAGE),
        };
        let page = caller.call::<Logs>(&params).await?;
        for line in &page.lines {
            if json {
                output::json_line(line);
            } else {
                print_line(line, terminal);
            }
        }
        if page.next_offset <= offset && page.next_offset < page.total {
            let text = "the logs do not go on where they should";
            return Err(Fault::new(Code::InvalidMessage, text));
        }
        offset = page.next_offset;
        if offset >= page.total {
            return Ok(exit::OK);
        }
    }
}
