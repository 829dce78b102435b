//! Runs on workstations of protocol 1: no journal, no cursor, no record of what ended.
//!
//! Such an agent answers a command once it has started, names the run in its own way, and tells of
//! output and states by `script_output {scriptId, message, level}` and `script_state {scriptId, state,
//! error}`. What is not told while the link is up is never told: the runs of a link that ended are
//! lost, a run past its limit is taken to have timed out.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Executions, record};
use crate::base::EpochMillis;
use crate::base::ids::{AgentId, ExecutionId};
use crate::base::limits::{EXECUTION_LOG_LEN_MAX, LOG_LINE_CHARS_MAX};
use crate::control::auth::cut;
use crate::control::fault::stored;
use crate::model::execution::{Input, Outcome};
use crate::store::executions as table;
use crate::store::{Connection, StoreError};
use crate::wire::event::Draft;
use crate::wire::messages::executions::{Execution, RunError, Stream};
use crate::wire::messages::scripts::{RunReply, Stop};
use crate::wire::{Call, Code, Fault, Method, Origin};

/// Names remembered at once. More: the run is found by its script's name alone.
const NAMES_MAX: usize = 10_000;

impl Executions {
    /// Remembers what a protocol-1 agent calls a run.
    pub(super) fn remember_plain(&self, record: &Execution, reply: &RunReply) {
        if reply.script_id == record.execution_id.as_str() {
            return;
        }
        let mut presence = self.presence();
        if presence.plain.len() < NAMES_MAX {
            let name = (record.agent_id.clone(), reply.script_id.clone());
            presence.plain.insert(name, record.execution_id.clone());
        }
    }

    pub(super) async fn stop_plain(&self, agent: &AgentId, id: &ExecutionId) -> Result<(), Fault> {
        let named = {
            let presence = self.presence();
            let mut names = presence.plain.iter();
            names
                .find(|((of, _), run)| of == agent && *run == id)
                .map(|((_, name), _)| name.clone())
        };
        let name = match named {
            Some(name) => name,
            None => self.get(id.clone()).await?.script_id.unwrap_or_default(),
        };
        let params = json!({"scriptId": name});
        let call = Call::new(Stop::NAME, params, Origin::Server { epoch: 0 });
        match self.links()?.call(agent, call).await {
            // A name that is no identifier of ours has no place in the typed reply.
            Ok(_) => Ok(()),
            Err(fault) if fault.code == Code::InvalidParams => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// An event of a protocol-1 agent.
    pub(super) async fn take_plain(self: Arc<Self>, agent: AgentId, event: String, data: Value) {
        let payload = json!({"agentId": agent, "data": data});
        let copy = Draft::new(&format!("plain.{}", cut(&event)), payload);
        if let Err(fault) = self.journal.append(copy).await {
            tracing::error!(error = %fault, "event could not be written");
        }
        let taken = match event.as_str() {
            "script_output" => self.take_output(&agent, &data).await,
            "script_state" => self.take_state(&agent, &data).await,
            _ => Ok(()),
        };
        if let Err(fault) = taken {
            tracing::error!(error = %fault, agent = %agent, event, "event could not be applied");
        }
    }

    async fn take_output(&self, agent: &AgentId, data: &Value) -> Result<(), Fault> {
        let Some(id) = self.named(agent, data).await? else {
            return Ok(());
        };
        let level = cut(data["level"].as_str().unwrap_or("info"));
        let message = data["message"].as_str().unwrap_or_default();
        let text = message.chars().take(LOG_LINE_CHARS_MAX).collect();
        let now = self.clock.now();
        self.store
            .call(move |c| append_line(c, &id, level, text, now))
            .await
            .map_err(stored)?;
        self.changed.send_modify(|n| *n += 1);
        Ok(())
    }

    async fn take_state(&self, agent: &AgentId, data: &Value) -> Result<(), Fault> {
        let Some(id) = self.named(agent, data).await? else {
            return Ok(());
        };
        let input = match data["state"].as_str() {
            Some("running") => Input::Started,
            Some("stopped" | "completed" | "finished") => {
                Input::Finished(Outcome::Succeeded { result: None })
            }
            Some("error") => Input::Finished(Outcome::Failed {
                error: RunError {
                    code: Code::ScriptError.as_str().into(),
                    message: cut(data["error"].as_str().unwrap_or_default()),
                },
            }),
            _ => return Ok(()),
        };
        // An end is told after a start, whatever order the two came in.
        if matches!(input, Input::Finished(_)) {
            self.step(&id, Some(Input::Started)).await?;
        }
        self.step(&id, Some(input)).await.map(drop)
    }

    /// The open run that an event is about: by its remembered name, by its script's name, or the only one.
    async fn named(&self, agent: &AgentId, data: &Value) -> Result<Option<ExecutionId>, Fault> {
        let name = data["scriptId"].as_str().unwrap_or_default().to_owned();
        let key = (agent.clone(), name.clone());
        if let Some(id) = self.presence().plain.get(&key) {
            return Ok(Some(id.clone()));
        }
        let of = agent.clone();
        let open = self.store.call(move |c| table::open_of(c, &of));
        let open = open.await.map_err(stored)?;
        let fits = |row: &&table::ExecutionRow| {
            row.script_id.as_deref() == Some(&name) || row.execution_id.as_str() == name
        };
        let only = if open.len() == 1 { open.first() } else { None };
        let found = open.iter().rev().find(fits).or(only);
        Ok(found.map(|row| row.execution_id.clone()))
    }
}

fn append_line(
    c: &Connection,
    id: &ExecutionId,
    level: String,
    text: String,
    now: EpochMillis,
) -> Result<(), StoreError> {
    let Some(mut row) = table::get(c, id)? else {
        return Ok(());
    };
    if row.log_bytes >= EXECUTION_LOG_LEN_MAX {
        row.log_truncated = true;
        return table::put(c, &row);
    }
    let line = table::LogRow {
        line: row.log_lines,
        at: now,
        stream: record::text_of(&Stream::Stdout),
        level,
        text,
    };
    let (_, bytes) = table::add_lines(c, id, &[line])?;
    row.log_lines += 1;
    row.log_bytes += bytes;
    table::put(c, &row)
}
