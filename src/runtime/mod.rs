//! The node: dispatcher, executions, hosts for scripts, event fan-out.
//!
//! `Node` has one dispatcher; local IPC, the link to the server and in-process callers are front doors
//! to it. It owns the truth of what happens on this workstation: journal, executions, artifacts,
//! captures, held keys.
//!
//! Invariants: one process per data folder; every change of an execution is on disk before it is
//! told; what an origin holds ends with the origin.

mod artifacts;
mod desktop_slot;
mod dispatcher;
mod executions;
mod handlers;
mod kv;
mod node;
mod output;
mod pause;
mod records;
mod run;
mod supervisor;

pub use desktop_slot::DesktopSlot;
pub use node::{Node, NodeOptions, Remote, Terminals};

use crate::wire::Fault;

/// Runs work that blocks off the asynchronous threads; a panic there is a defect of ours.
async fn blocking<T, F>(work: F) -> Result<T, Fault>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Fault> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Fault::internal(format!("blocking work failed: {error}"))),
    }
}
