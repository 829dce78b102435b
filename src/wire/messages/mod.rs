//! Messages by family. Field names are camelCase; absent, null and zero are three answers.

pub mod agents;
pub mod attention;
pub mod auth;
pub mod config;
pub mod desktop;
pub mod events;
pub mod executions;
pub mod http;
pub mod ipc;
pub mod scripts;
pub mod system;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// No parameters, or nothing to tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// Build facts; an empty text means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildInfo {
    pub version: String,
    /// Source revision.
    pub revision: String,
    /// Build time, RFC 3339 UTC.
    pub time: String,
    /// Whether the source tree had changes: `true`, `false` or empty for unknown.
    pub modified: String,
    pub compiler: String,
    /// Target triple.
    pub platform: String,
}
