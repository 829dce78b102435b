//! What a console asks of a place that has sessions: the agent on this machine, or a server.
//!
//! Several places are asked side by side; one that is lost leaves the others as they are.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::client::Caller;
use crate::wire::Fault;
use crate::wire::event::name;
use crate::wire::messages::events::FollowParams;
use crate::wire::messages::sessions::{AttachParams, AttachReply};
use crate::wire::stream::StreamEnd;

/// An answer that will come.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send>>;

/// One place's wire.
pub trait Backend: Send + Sync {
    /// Calls a method by its name.
    fn call(&self, method: &'static str, params: Value) -> Answer<Value>;

    /// Attaches to a session.
    fn attach(&self, params: AttachParams) -> Answer<(AttachReply, StreamEnd)>;

    /// Tells, by a unit each, that the list of sessions may have changed, until the wire ends. A unit
    /// that finds the queue full is dropped: another one waits there already.
    fn follow(&self, changed: mpsc::Sender<()>) -> Answer<()>;
}

/// Where sessions are.
#[derive(Clone)]
pub struct Place {
    /// For people: `this machine`, or the server's name.
    pub name: String,
    /// The agent on this machine: its sessions have no workstation of their own.
    pub local: bool,
    pub backend: Arc<dyn Backend>,
}

/// The real wire.
pub struct Remote {
    caller: Caller,
}

impl Remote {
    pub fn new(caller: Caller) -> Self {
        Self { caller }
    }
}

/// Events after which the list of sessions differs.
const CHANGES: &[&str] = &[
    name::SESSION_STARTED,
    name::SESSION_EXITED,
    name::SESSION_ADOPTED,
    name::SESSION_UPDATED,
    name::SESSION_RESIZED,
    name::SESSION_ATTENTION,
    name::SESSION_LEASE,
    name::CONSOLE_ATTACHED,
    name::CONSOLE_DETACHED,
    name::AGENT_CONNECTED,
    name::AGENT_DISCONNECTED,
];

impl Backend for Remote {
    fn call(&self, method: &'static str, params: Value) -> Answer<Value> {
        let caller = self.caller.clone();
        Box::pin(async move { Ok(caller.call_named(method, params).await?.0) })
    }

    fn attach(&self, params: AttachParams) -> Answer<(AttachReply, StreamEnd)> {
        let caller = self.caller.clone();
        Box::pin(async move { caller.attach(&params).await })
    }

    fn follow(&self, changed: mpsc::Sender<()>) -> Answer<()> {
        let caller = self.caller.clone();
        Box::pin(async move {
            let params = FollowParams {
                follow: true,
                ..FollowParams::default()
            };
            let mut events = caller.follow_events(params).await?;
            while let Some(record) = events.next().await {
                if CHANGES.contains(&record?.event_type.as_str()) {
                    let _ = changed.try_send(());
                }
            }
            Ok(())
        })
    }
}
