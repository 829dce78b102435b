//! `agents.*`: the server's registry of workstations, over HTTP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::base::EpochMillis;
use crate::base::ids::AgentId;
use crate::method;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    Online,
    Idle,
    Busy,
    Offline,
    Error,
    /// Two processes hold its key.
    Quarantined,
    Revoked,
}

/// Resource figures; what could not be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    pub cpu: Cpu,
    pub memory: Amounts,
    pub disk: Amounts,
    pub network: Network,
    pub system: SystemFacts,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cpu {
    /// Percent of all cores.
    pub usage: Option<f64>,
    pub cores: Option<u32>,
    pub model: Option<String>,
}

/// Bytes, and percent used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Amounts {
    pub total: Option<u64>,
    pub available: Option<u64>,
    pub usage: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// Bytes per second since the last figure.
    pub up: Option<f64>,
    pub down: Option<f64>,
    pub local_ip: Option<String>,
    pub public_ip: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SystemFacts {
    pub temperature: Option<f64>,
    pub os: Option<String>,
    pub arch: Option<String>,
}

/// The health of an agent's link, from the agent's side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LinkHealth {
    pub reconnects: u64,
    pub dropped: u64,
    pub outbox_pending: u64,
    pub last_disconnect_reason: Option<String>,
    pub session_uptime_ms: u64,
    /// Milliseconds since the last heartbeat, filled in by the server.
    pub heartbeat_age_ms: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    pub agent_id: AgentId,
    pub hostname: String,
    /// Remote address without port; absent for an in-process agent.
    #[serde(default)]
    pub ip: Option<String>,
    pub status: AgentStatus,
    pub platform: String,
    #[serde(default)]
    pub arch: Option<String>,
    #[serde(default)]
    pub version: Option<String>,
    /// 1 or 2; absent before the first registration.
    #[serde(default)]
    pub protocol: Option<u8>,
    #[serde(default)]
    pub instance_id: Option<String>,
    pub epoch: u64,
    #[serde(default)]
    pub resources: Option<Resources>,
    #[serde(default)]
    pub link: Option<LinkHealth>,
    #[serde(default)]
    pub last_seen: Option<EpochMillis>,
    /// The script that runs now; empty for none.
    pub current_task: String,
    pub tags: Vec<String>,
    pub capabilities: Vec<String>,
    pub unknown_capabilities: Vec<String>,
    /// The two instances that a quarantine is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AgentStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListReply {
    pub items: Vec<Agent>,
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentRef {
    pub agent_id: AgentId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetTagsParams {
    pub agent_id: AgentId,
    /// At most 32, each 1 to 64 characters.
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InviteParams {
    /// The address that the agent will dial, where it is not the one that the server listens on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InviteReply {
    /// Single use; it holds a secret and is shown once.
    pub join: String,
    pub invite_id: String,
    pub expires_at: EpochMillis,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SplitParams {
    pub agent_id: AgentId,
    /// The instance that may go on; the other must be enrolled anew.
    pub keep_instance: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenParams {
    pub label: String,
    /// Binds the token to one agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenRow {
    pub id: String,
    pub label: String,
    /// `wt_` and six characters.
    pub prefix: String,
    #[serde(default)]
    pub agent_id: Option<AgentId>,
    pub created_at: EpochMillis,
    #[serde(default)]
    pub last_seen_at: Option<EpochMillis>,
    #[serde(default)]
    pub revoked_at: Option<EpochMillis>,
    /// The token itself, in the answer that creates it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenList {
    pub items: Vec<TokenRow>,
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenRef {
    pub id: String,
}

method! {
    /// Lists the workstations that this server knows, with their state and its age.
    List = "agents.list" (ListParams) -> ListReply;
    Server, AgentsView;
    rest Get "/api/agents" Enveloped;
    example r#"{"tag":"lab"}"#;
}
method! {
    /// Shows one workstation.
    Show = "agents.show" (AgentRef) -> Agent;
    Server, AgentsView;
    rest Get "/api/agents/{agentId}" Enveloped;
    example r#"{"agentId":"desk-1"}"#;
}
method! {
    /// Replaces a workstation's tags.
    SetTags = "agents.setTags" (SetTagsParams) -> Agent;
    Server, AgentsManage;
    rest Put "/api/agents/{agentId}/tags" Enveloped;
    example r#"{"agentId":"desk-1","tags":["lab","x11"]}"#;
}
method! {
    /// Deletes a workstation's key and closes its link at once; its runs become `lost`.
    Revoke = "agents.revoke" (AgentRef) -> Empty;
    Server, AgentsManage;
    rest Delete "/api/agents/{agentId}" Enveloped;
    example r#"{"agentId":"desk-1"}"#;
}
method! {
    /// Ends a quarantine: one instance may go on, the other is refused until it enrols anew.
    Split = "agents.split" (SplitParams) -> Agent;
    Server, AgentsManage;
    rest Post "/api/agents/{agentId}/split" Enveloped;
    example r#"{"agentId":"desk-1","keepInstance":"0123456789abcdef0123456789abcdef"}"#;
}
method! {
    /// Makes a join string: single use, 15 minutes, only its hash is stored.
    Invite = "agents.invite" (InviteParams) -> InviteReply;
    Server, AgentTokensManage;
    rest Post "/api/agents/invitations" Enveloped;
    example "{}";
}
method! {
    /// Lists the tokens of protocol-1 agents.
    TokenListing = "agentTokens.list" (Empty) -> TokenList;
    Server, AgentTokensManage;
    rest Get "/api/agent-tokens" Enveloped;
    example "{}";
}
method! {
    /// Creates a token for protocol-1 agents; its text is in this answer alone.
    TokenCreate = "agentTokens.create" (TokenParams) -> TokenRow;
    Server, AgentTokensManage;
    rest Post "/api/agent-tokens" Enveloped;
    example r#"{"label":"old desk"}"#;
}
method! {
    /// Revokes a token; an agent that used it is disconnected.
    TokenRevoke = "agentTokens.revoke" (TokenRef) -> Empty;
    Server, AgentTokensManage;
    rest Delete "/api/agent-tokens/{id}" Enveloped;
    example r#"{"id":"0123456789abcdef"}"#;
}
