//! The server: routes table, authentication, permissions, registry, executions, audit, gateway,
//! events. It reaches a desktop only through `wire`.
//!
//! Invariants: nothing is dispatched before its row is committed; every route has a permission; what
//! an agent sends is hostile text; a copy of a node's truth carries its source and its age.

mod answer;
mod audit;
pub mod auth;
pub mod contract;
mod events;
pub mod executions;
mod fault;
pub mod gateway;
mod gateway_open;
mod gateway_session;
mod handlers;
mod http;
mod limits;
pub mod methods;
mod metrics;
pub mod openapi;
mod params;
mod plain;
pub mod registry;
mod registry_admit;
mod registry_tokens;
pub mod routes;
pub mod server;
mod special;
mod terminals;
pub mod tls;
