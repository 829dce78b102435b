//! `script.*`: running scripts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::executions::Status;
use crate::base::EpochMillis;
use crate::base::ids::ExecutionId;
use crate::base::limits;
use crate::method;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// Luau, the only Lua that a host can always stop and bound.
    Lua,
    Rhai,
}

impl Language {
    /// From a file name's ending.
    pub fn of_path(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "lua" | "luau" => Some(Self::Lua),
            "rhai" => Some(Self::Rhai),
            _ => None,
        }
    }
}

/// Exactly one of `source` and `path` is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunParams {
    /// The script's text, at most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "content")]
    pub source: Option<String>,
    /// A file on the workstation, absolute or below its script folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Told from the file name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<Language>,
    /// What to show as the script's name; the file name when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the script reads as `args`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, String>,
    /// Ends the run as `timeout`; absent: none for a local run, 30 s over REST. 0 means none.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "timeout")]
    pub timeout_ms: Option<u64>,
    /// The execution's id where the caller (a server) has issued one already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// Answers only when the run has ended (protocol 1 callers).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wait: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunReply {
    pub execution_id: ExecutionId,
    /// The same text, under the name that older callers read.
    pub script_id: String,
    pub status: Status,
    /// Whether a repeated command id was answered from its record.
    pub reused: bool,
}

/// One of the two ids is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StopParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<ExecutionId>,
    /// Protocol 1's name for the same.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "script_id")]
    pub script_id: Option<ExecutionId>,
}

impl StopParams {
    pub fn id(&self) -> Option<&ExecutionId> {
        self.execution_id.as_ref().or(self.script_id.as_ref())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StopReply {
    pub execution_id: ExecutionId,
    /// The state after the stop: final, or `stopping` where it is not final yet.
    pub status: Status,
}

/// A script that runs or waits its turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScriptRow {
    pub id: ExecutionId,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub size: u64,
    pub is_running: bool,
    /// loaded | running | paused | stopped | error | unknown.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub loaded_at: EpochMillis,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListReply {
    pub scripts: Vec<ScriptRow>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PausedReply {
    pub paused: bool,
}

method! {
    /// Starts a script and answers at once with its execution; `wait` holds the answer until it ends.
    Run = "script.run" | "script.start" | "run_script" (RunParams) -> RunReply;
    Each, ScriptsRun;
    rest Post "/api/agents/{agentId}/scripts/run" Enveloped;
    timeout Some(limits::RUN_SCRIPT_TIMEOUT_MS);
    example r#"{"source":"log.info('hello')","language":"lua","name":"hello.lua","args":{"who":"you"}}"#;
}
method! {
    /// Stops a running or queued script: its execution ends as `cancelled`.
    Stop = "script.stop" | "stop_script" (StopParams) -> StopReply;
    Each, ScriptsRun;
    rest Post "/api/agents/{agentId}/scripts/stop" Enveloped;
    example r#"{"executionId":"0123456789abcdef0123456789abcdef"}"#;
}
method! {
    /// Lists the scripts that run or wait on this node.
    List = "script.list" (super::Empty) -> ListReply;
    Node, ScriptsView;
    rest Get "/api/agents/{agentId}/scripts" Enveloped;
    example "{}";
}
method! {
    /// Pauses one script at its next host call.
    Pause = "script.pause" (StopParams) -> PausedReply;
    Node, ScriptsRun;
    example r#"{"executionId":"0123456789abcdef0123456789abcdef"}"#;
}
method! {
    /// Lets a paused script go on.
    Resume = "script.resume" (StopParams) -> PausedReply;
    Node, ScriptsRun;
    example r#"{"executionId":"0123456789abcdef0123456789abcdef"}"#;
}
