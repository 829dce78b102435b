//! `system.*`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;

use crate::runtime::dispatcher::{Context, Dispatcher};
use crate::runtime::node::Node;
use crate::wire::Fault;
use crate::wire::event::{Draft, name};
use crate::wire::messages::Empty;
use crate::wire::messages::system as msg;

pub fn register(dispatcher: Dispatcher<Node>) -> Dispatcher<Node> {
    dispatcher
        .on::<msg::GetStatus, _, _>(
            |node, _: Empty, context| async move { status(&node, &context) },
        )
        .on::<msg::GetVersion, _, _>(|node, _, _| async move { Ok(version(&node)) })
        .on::<msg::TogglePause, _, _>(|node, _, _| async move {
            let paused = !node.executions.all_paused();
            set_paused(&node, paused).await
        })
        .on::<msg::PauseAll, _, _>(|node, _, _| async move { set_paused(&node, true).await })
        .on::<msg::ResumeAll, _, _>(|node, _, _| async move { set_paused(&node, false).await })
        .on::<msg::StopAll, _, _>(|node, _, _| async move {
            let stopped_scripts = node.executions.stop_all() as u32;
            Ok(msg::StopAllReply { stopped_scripts })
        })
        .on::<msg::IsPaused, _, _>(|node, _, _| async move {
            Ok(msg::Paused {
                paused: node.executions.all_paused(),
            })
        })
        .on::<msg::Shutdown, _, _>(|node, _, _| async move {
            let token = node.shutdown_token();
            // The answer leaves before the process begins to end.
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                token.cancel();
            });
            Ok(Empty {})
        })
}

fn status(node: &Arc<Node>, context: &Context) -> Result<msg::Status, Fault> {
    let (running_scripts, queued_scripts) = node.executions.counts();
    let remote = node.remote.get();
    let state = remote.map(|remote| remote.state());
    let local = context.origin.is_local();
    let enabled = matches!(&state, Some((state, _)) if *state != msg::RemoteState::Disabled);
    let display = node.desktop.display();
    Ok(msg::Status {
        server: "wingman".into(),
        version: node.build.version.clone(),
        build: node.build.clone(),
        uptime: node.started.elapsed().as_secs(),
        agent_id: node.agent_id.to_string(),
        instance_id: node.instance_id.to_string(),
        hostname: node.hostname.clone(),
        running_scripts,
        queued_scripts,
        paused: node.executions.all_paused(),
        remote_connected: local.then_some(matches!(state, Some((msg::RemoteState::Connected, _)))),
        remote_state: local.then(|| {
            state
                .as_ref()
                .map_or(msg::RemoteState::Disabled, |(state, _)| *state)
        }),
        remote_message: state.filter(|_| local).and_then(|(_, message)| message),
        ipc_client_connected: local.then(|| node.local_clients.load(Ordering::Relaxed) > 0),
        mode: if enabled { 3 } else { 2 },
        capabilities: node.capabilities().borrow().clone(),
        display: display.as_ref().ok().cloned(),
        display_message: display.err(),
        journal: node.journal.range(),
    })
}

fn version(node: &Node) -> msg::Version {
    msg::Version {
        server: "wingman".into(),
        version: node.build.version.clone(),
        build_date: node.build.time.clone(),
        build: node.build.clone(),
    }
}

async fn set_paused(node: &Node, paused: bool) -> Result<msg::PauseReply, Fault> {
    let changed_scripts = node.executions.set_all_paused(paused) as u32;
    let payload = json!({ "paused": paused, "changedScripts": changed_scripts });
    node.journal
        .append(Draft::new(name::SCRIPTS_PAUSED, payload))
        .await?;
    Ok(msg::PauseReply {
        paused,
        changed_scripts,
    })
}
