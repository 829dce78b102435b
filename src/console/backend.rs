//! What a console asks of a place that has sessions: the agent on this machine, or a server.
//!
//! Several places are asked side by side; one that is lost leaves the others as they are.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::{Mutex, mpsc};

use crate::client::{self, Caller};
use crate::wire::event::name;
use crate::wire::messages::events::FollowParams;
use crate::wire::messages::sessions::{AttachParams, AttachReply};
use crate::wire::stream::StreamEnd;
use crate::wire::{Code, Fault};

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

/// The real wire. A connection that has ended is made anew by the next call, so that a console
/// outlives the agent that it talked to.
#[derive(Clone)]
pub struct Remote {
    place: client::Place,
    caller: Arc<Mutex<Option<Caller>>>,
}

impl Remote {
    /// A place, and the connection to it that stands.
    pub fn new(place: client::Place, caller: Caller) -> Self {
        Self {
            place,
            caller: Arc::new(Mutex::new(Some(caller))),
        }
    }

    async fn caller(&self) -> Result<Caller, Fault> {
        let mut slot = self.caller.lock().await;
        if let Some(caller) = &*slot {
            return Ok(caller.clone());
        }
        let caller = client::connect(self.place.clone()).await?;
        Ok(slot.insert(caller).clone())
    }

    /// Forgets a connection that a fault shows to be gone.
    async fn judge<T>(&self, outcome: Result<T, Fault>) -> Result<T, Fault> {
        if let Err(fault) = &outcome
            && [Code::LinkClosed, Code::EndpointUnavailable]
                .iter()
                .any(|code| code.as_str() == fault.code_text())
        {
            *self.caller.lock().await = None;
        }
        outcome
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
        let remote = self.clone();
        Box::pin(async move {
            let answer = remote.caller().await?.call_named(method, params).await;
            Ok(remote.judge(answer).await?.0)
        })
    }

    fn attach(&self, params: AttachParams) -> Answer<(AttachReply, StreamEnd)> {
        let remote = self.clone();
        Box::pin(async move {
            let attached = remote.caller().await?.attach(&params).await;
            remote.judge(attached).await
        })
    }

    fn follow(&self, changed: mpsc::Sender<()>) -> Answer<()> {
        let remote = self.clone();
        Box::pin(async move {
            let params = FollowParams {
                follow: true,
                ..FollowParams::default()
            };
            let events = remote.caller().await?.follow_events(params).await;
            let mut events = remote.judge(events).await?;
            while let Some(record) = events.next().await {
                let record = remote.judge(record).await?;
                if CHANGES.contains(&record.event_type.as_str()) {
                    // A full queue tells the same already.
                    let _ = changed.try_send(());
                }
            }
            Ok(())
        })
    }
}
