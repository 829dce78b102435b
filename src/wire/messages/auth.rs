//! `auth.*`: sessions, tickets and API tokens, over HTTP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::base::{EpochMillis, Secret};
use crate::method;
use crate::wire::permission::{Permission, Role};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Me {
    pub account_id: String,
    pub username: String,
    pub role: Role,
    pub permissions: Vec<Permission>,
}

/// A session of a browser or of the command line; snake_case as its family has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    pub id: String,
    pub device_name: String,
    /// RFC 3339 UTC, as all times of this record.
    pub created_at: String,
    pub expires_at: String,
    pub last_seen_at: Option<String>,
    pub revoked_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ticket {
    /// Opens a session once, within 60 s.
    pub url: String,
    pub expires_at: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenParams {
    pub label: String,
    /// Defaults to all permissions of the account; never more than those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<Permission>>,
    /// Days until it ends; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Token {
    pub id: String,
    pub label: String,
    pub prefix: String,
    pub scopes: Vec<Permission>,
    pub created_at: String,
    pub expires_at: Option<String>,
    pub last_seen_at: Option<String>,
    pub revoked_at: Option<String>,
    /// In the answer that creates it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ref {
    pub id: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditRow {
    pub id: u64,
    pub at: EpochMillis,
    /// Such as `login`, `login_fail`, `script.run`, `agent.revoke`.
    pub kind: String,
    pub actor: String,
    pub address: Option<String>,
    pub target: Option<String>,
    /// `ok` or the stable error code.
    pub outcome: String,
    pub detail: serde_json::Value,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditReply {
    pub events: Vec<AuditRow>,
    pub total: u64,
}

method! {
    /// Tells who the caller is and what they may do.
    Whoami = "auth.me" (Empty) -> Me;
    Server, AgentsView;
    rest Get "/api/auth/me" Enveloped;
    example "{}";
}
method! {
    /// Makes a single-use address that opens a session in a browser within 60 s.
    TicketCreate = "auth.ticket" (Empty) -> Ticket;
    Server, AgentsView;
    rest Post "/api/auth/tickets" Bare;
    example "{}";
}
method! {
    /// Lists the caller's own sessions.
    SessionList = "auth.sessions" (Empty) -> Vec<Session>;
    Server, AgentsView;
    rest Get "/api/auth/sessions" Bare;
    example "{}";
}
method! {
    /// Ends one of the caller's own sessions at once.
    SessionRevoke = "auth.revokeSession" (Ref) -> Empty;
    Server, AgentsView;
    rest Delete "/api/auth/sessions/{id}" Bare;
    example r#"{"id":"0123456789abcdef0123456789abcdef"}"#;
}
method! {
    /// Lists the caller's own API tokens, never their text.
    TokenList = "auth.tokens" (Empty) -> Vec<Token>;
    Server, AgentsView;
    rest Get "/api/auth/tokens" Bare;
    example "{}";
}
method! {
    /// Creates an API token for programs; its text is in this answer alone.
    TokenCreate = "auth.createToken" (TokenParams) -> Token;
    Server, AgentsView;
    rest Post "/api/auth/tokens" Bare;
    example r#"{"label":"nightly","scopes":["agents:view"],"days":30}"#;
}
method! {
    /// Ends one of the caller's own API tokens at once.
    TokenRevoke = "auth.revokeToken" (Ref) -> Empty;
    Server, AgentsView;
    rest Delete "/api/auth/tokens/{id}" Bare;
    example r#"{"id":"0123456789abcdef0123456789abcdef"}"#;
}
method! {
    /// Reads the audit trail, newest first.
    Audit = "audit.list" (AuditParams) -> AuditReply;
    Server, AuditView;
    rest Get "/api/audit" Enveloped;
    example r#"{"kind":"login"}"#;
}
