//! Remote identity: enrolment, the outbound link, capabilities.
//!
//! The agent dials, it never listens. It receives its `Handler` as a parameter and reads the node's
//! journal; who runs scripts or grabs screens is none of its business.
//!
//! Invariants: local events never leave; a record counts as delivered only by the server's cursor;
//! nothing that a server sends reaches agent.toml.

mod dial;
pub mod enrol;
mod events;
pub mod identity;
mod link;
mod plain;
mod resources;
mod session;

pub use link::{Connector, Link, LinkHandle, LinkOptions, LinkState};
