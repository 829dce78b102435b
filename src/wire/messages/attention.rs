//! Who waits for a person, and how that is known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::EpochMillis;

/// What a session's program is doing, as far as anything shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Working,
    Waiting,
    Idle,
    Done,
    Error,
    /// There is no evidence.
    #[default]
    Unknown,
    Exited,
}

/// What a waiting program wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    Question,
    Permission,
    Auth,
}

/// Where evidence came from, the strongest first.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Lifecycle,
    ProgramStatus,
    Marks,
    Notification,
    Bell,
    Terminal,
    Process,
    Screen,
    #[default]
    None,
}

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    pub source: Source,
    /// A sentence for people.
    pub what: String,
    pub at: EpochMillis,
}

/// A session's published state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attention {
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WaitKind>,
    pub source: Source,
    pub since: EpochMillis,
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    pub revision: u64,
}
