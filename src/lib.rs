//! Wingman: one executable that looks after terminals, desktops and the work handed to them.
//!
//! Modules stand lowest layer first; docs/architecture.md says who may name whom.

pub mod base;
pub mod wire;
pub mod config;
pub mod store;
pub mod platform;
pub mod vision;
pub mod journal;
pub mod model;
pub mod desktop;
pub mod script;
pub mod runtime;
pub mod agent;
pub mod ipc;
pub mod client;
pub mod control;
pub mod ops;
pub mod roles;
pub mod cli;
