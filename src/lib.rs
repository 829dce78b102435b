//! Wingman: one executable that looks after terminals, desktops and the work handed to them.
//!
//! Modules stand lowest layer first; docs/architecture.md says who may name whom.

pub mod agent;
pub mod base;
pub mod cli;
pub mod client;
pub mod config;
pub mod console;
pub mod control;
pub mod desktop;
pub mod ipc;
pub mod journal;
pub mod model;
pub mod ops;
pub mod platform;
pub mod roles;
pub mod runtime;
pub mod script;
pub mod store;
pub mod terminal;
pub mod vision;
pub mod wire;
