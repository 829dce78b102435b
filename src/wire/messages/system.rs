//! `system.*`: what a node is and does as a whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BuildInfo, Empty};
use crate::method;

/// The state of the link to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemoteState {
    Disabled,
    Disconnected,
    Connecting,
    Connected,
    Reconnecting,
    Error,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Always `wingman`.
    pub server: String,
    pub version: String,
    pub build: BuildInfo,
    /// Seconds since the process started.
    pub uptime: u64,
    pub agent_id: String,
    pub instance_id: String,
    pub hostname: String,
    pub running_scripts: u32,
    pub queued_scripts: u32,
    pub paused: bool,
    /// Told on local IPC alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_connected: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_state: Option<RemoteState>,
    /// Why the link is not connected, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipc_client_connected: Option<bool>,
    /// 0 unknown, 1 remote, 2 standalone, 3 hybrid.
    pub mode: u8,
    pub capabilities: Vec<String>,
    /// The display in use, such as `:0`; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    /// Why there is no display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_message: Option<String>,
    pub journal: JournalRange,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JournalRange {
    /// The oldest sequence still kept.
    pub first_seq: u64,
    /// The sequence that the next record gets.
    pub next_seq: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    pub server: String,
    pub version: String,
    pub build_date: String,
    pub build: BuildInfo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PauseReply {
    pub paused: bool,
    /// Running scripts that this call paused or resumed.
    pub changed_scripts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Paused {
    pub paused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StopAllReply {
    pub stopped_scripts: u32,
}

method! {
    /// Reports what this node is and does now. The link's own state is told on local IPC alone.
    GetStatus = "system.getStatus" | "get_status" (Empty) -> Status;
    Node, AgentsView;
    rest Get "/api/agents/{agentId}/status" Enveloped;
    example "{}";
}
method! {
    /// Tells the version and build of the running process.
    GetVersion = "system.getVersion" (Empty) -> Version;
    Node, AgentsView;
    example "{}";
}
method! {
    /// Pauses every running script at its next host call, or lets all go on.
    TogglePause = "system.togglePause" (Empty) -> PauseReply;
    Node, ScriptsRun;
    example "{}";
}
method! {
    /// Pauses every running script at its next host call.
    PauseAll = "system.pauseAll" (Empty) -> PauseReply;
    Node, ScriptsRun;
    example "{}";
}
method! {
    /// Lets paused scripts go on.
    ResumeAll = "system.resumeAll" (Empty) -> PauseReply;
    Node, ScriptsRun;
    example "{}";
}
method! {
    /// Stops every running and queued script.
    StopAll = "system.stopAll" (Empty) -> StopAllReply;
    Node, ScriptsRun;
    example "{}";
}
method! {
    /// Tells whether scripts are paused.
    IsPaused = "system.isPaused" (Empty) -> Paused;
    Node, AgentsView;
    example "{}";
}
method! {
    /// Acknowledges, then stops the agent process; running scripts are stopped first.
    Shutdown = "system.shutdown" (Empty) -> Empty;
    Node, AgentsManage;
    rest Post "/api/agents/{agentId}/shutdown" Enveloped;
    example "{}";
}
