//! Terminal sessions of a node: holders that outlive the agent, grids, consoles, leases, attention.
//!
//! ```text
//! Sessions ── Session ─┬─ holder (a process of its own, which has the terminal)
//!                      ├─ grid, checkpoints, recording
//!                      ├─ lease and consoles, each with an outbox
//!                      └─ attention
//! ```
//!
//! Invariants: the node alone decides leases; a console that does not read stalls nobody; what a
//! program shows or a person types is never logged and never an event.

mod attach;
mod checkpoint;
mod commands;
mod feed;
pub mod grid;
pub mod holder;
mod hub;
mod lately;
pub mod launch;
mod outbox;
mod picture;
mod recording;
mod said;
mod session;
mod sessions;
mod stored;
mod translate;

pub use hub::{Sink, TerminalOptions};
pub use session::{Life, Session};
pub use sessions::{Sessions, SessionsOptions};
