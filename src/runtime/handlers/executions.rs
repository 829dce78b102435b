//! `script.*`, `execution.*` and `events.append`.

use std::time::Duration;

use crate::base::ids::ExecutionId;
use crate::runtime::dispatcher::Dispatcher;
use crate::runtime::node::Node;
use crate::wire::Fault;
use crate::wire::event::{Draft, event_type};
use crate::wire::messages::{events, executions as msg, scripts};

/// `execution.wait` when it does not say, and at most.
const WAIT_DEFAULT_MS: u64 = 25_000;
const WAIT_MAX_MS: u64 = 60_000;

pub fn register(dispatcher: Dispatcher<Node>) -> Dispatcher<Node> {
    dispatcher
        .on::<scripts::Run, _, _>(|node, mut params: scripts::RunParams, context| async move {
            // Protocol 1 has no other way to hear of the end, and sends its patience as `timeout`.
            params.timeout_ms = params
                .timeout_ms
                .or(context.timeout_ms.filter(|_| params.wait));
            node.executions
                .run(params, context.origin, context.command_id)
                .await
        })
        .on::<scripts::Stop, _, _>(|node, params: scripts::StopParams, _| async move {
            let id = wanted(&params, "script.stop")?;
            let record = node.executions.stop(&id).await?;
            Ok(scripts::StopReply {
                execution_id: id,
                status: record.status,
            })
        })
        .on::<scripts::List, _, _>(|node, _, _| async move {
            Ok(scripts::ListReply {
                scripts: node.executions.scripts(),
            })
        })
        .on::<scripts::Pause, _, _>(|node, params: scripts::StopParams, _| async move {
            node.executions
                .set_paused(&wanted(&params, "script.pause")?, true)?;
            Ok(scripts::PausedReply { paused: true })
        })
        .on::<scripts::Resume, _, _>(|node, params: scripts::StopParams, _| async move {
            node.executions
                .set_paused(&wanted(&params, "script.resume")?, false)?;
            Ok(scripts::PausedReply { paused: false })
        })
        .on::<msg::List, _, _>(|node, params: msg::ListParams, _| async move {
            node.executions.list(&params).await
        })
        .on::<msg::Get, _, _>(|node, params: msg::ExecutionRef, _| async move {
            node.executions.get(&params.execution_id).await
        })
        .on::<msg::Wait, _, _>(|node, params: msg::WaitParams, _| async move {
            let wait = params.wait_ms.unwrap_or(WAIT_DEFAULT_MS).min(WAIT_MAX_MS);
            node.executions
                .wait(&params.execution_id, Duration::from_millis(wait))
                .await
        })
        .on::<msg::Logs, _, _>(|node, params: msg::LogsParams, _| async move {
            node.executions.logs(&params).await
        })
        .on_blob::<msg::GetArtifact, _, _>(|node, params: msg::ArtifactParams, _| async move {
            node.executions.artifact(&params).await
        })
        .on::<msg::Cancel, _, _>(|node, params: msg::ExecutionRef, _| async move {
            node.executions.stop(&params.execution_id).await
        })
        .on::<events::Append, _, _>(|node, draft: Draft, _| async move {
            if event_type(&draft.event_type).is_some() {
                let why = format!("{} is written by the agent alone", draft.event_type);
                return Err(Fault::invalid_params("events.append", why));
            }
            node.journal.append(draft).await
        })
}

fn wanted(params: &scripts::StopParams, method: &str) -> Result<ExecutionId, Fault> {
    params
        .id()
        .cloned()
        .ok_or_else(|| Fault::invalid_params(method, "missing executionId"))
}
