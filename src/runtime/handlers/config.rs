//! `config.*`: the link's settings, on the local wire alone.

use std::sync::Arc;

use crate::runtime::dispatcher::Dispatcher;
use crate::runtime::node::{Node, Remote};
use crate::wire::messages::Empty;
use crate::wire::messages::config as msg;
use crate::wire::{Code, Fault};

pub fn register(dispatcher: Dispatcher<Node>) -> Dispatcher<Node> {
    dispatcher
        .on::<msg::GetRemote, _, _>(|node, _: Empty, _| async move { Ok(remote(&node)?.config()) })
        .on::<msg::SetRemote, _, _>(|node, update: msg::RemoteUpdate, _| async move {
            remote(&node)?.update(update).await
        })
}

fn remote(node: &Node) -> Result<Arc<dyn Remote>, Fault> {
    node.remote.get().cloned().ok_or_else(|| {
        Fault::new(
            Code::Unsupported,
            "this agent runs inside its server and has no settings of its own for it",
        )
    })
}
