//! The server: routes table, authentication, permissions, registry, executions, audit, gateway,
//! events. It reaches a desktop only through `wire`.
//!
//! Invariants: nothing is dispatched before its row is committed; every route has a permission; what
//! an agent sends is hostile text; a copy of a node's truth carries its source and its age.

pub mod contract;
pub mod gateway;
mod gateway_open;
mod gateway_session;
mod plain;
pub mod registry;
mod registry_admit;
mod registry_tokens;
