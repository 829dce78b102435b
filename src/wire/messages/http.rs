//! What the server answers over HTTP beside the method table: signing in and out, health, metrics
//! and the description of the API. These rows are routes, never methods of another wire.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Empty;
use super::auth::Me;
use crate::base::{EpochMillis, Secret};
use crate::method;

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoginParams {
    pub username: String,
    pub password: Secret,
    /// What the session is called in lists; told from the user agent when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TicketParams {
    pub ticket: Secret,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedeemParams {
    /// A login string or a ticket; it works once.
    pub ticket: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Redeemed {
    /// The session's bearer text, in this answer alone.
    pub token: Secret,
    pub session_id: String,
    pub expires_at: EpochMillis,
    pub me: Me,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PasswordParams {
    /// Not needed while no password is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Secret>,
    /// 8 to 256 characters.
    pub new: Secret,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Always `ok`: a server that cannot work does not answer.
    pub status: String,
    pub version: String,
    /// Seconds since the server started.
    pub uptime: u64,
}

method! {
    /// Tells that the server answers.
    GetHealth = "server.health" (Empty) -> Health;
    Server, AgentsView;
    rest Get "/health" Enveloped;
    example "{}";
}
method! {
    /// Counters and gauges in Prometheus' text format.
    GetMetrics = "server.metrics" (Empty) -> String;
    Server, MonitorView;
    rest Get "/metrics" Bytes;
    example "{}";
}
method! {
    /// Describes every route as OpenAPI 3.1.
    GetOpenApi = "server.openapi" (Empty) -> serde_json::Value;
    Server, AgentsView;
    rest Get "/api/openapi.json" Bare;
    example "{}";
}
method! {
    /// Signs in with a password and sets the session's cookie.
    Login = "auth.login" (LoginParams) -> Me;
    Server, AgentsView;
    rest Post "/api/auth/login" Enveloped;
    example r#"{"username":"admin","password":"correct horse"}"#;
}
method! {
    /// Ends the session of the caller and clears its cookie.
    Logout = "auth.logout" (Empty) -> Empty;
    Server, AgentsView;
    rest Post "/api/auth/logout" Enveloped;
    example "{}";
}
method! {
    /// Opens a session in a browser from a single-use ticket, sets its cookie and redirects.
    OpenTicket = "auth.openTicket" (TicketParams) -> Empty;
    Server, AgentsView;
    rest Get "/login" Bytes;
    example r#"{"ticket":"wml_example"}"#;
}
method! {
    /// Exchanges a login string or a ticket for the bearer text of a session (command line).
    Redeem = "auth.redeem" (RedeemParams) -> Redeemed;
    Server, AgentsView;
    rest Post "/api/auth/redeem" Enveloped;
    example r#"{"ticket":"wml_example","deviceName":"desk"}"#;
}
method! {
    /// Sets the caller's own password and ends all of their other sessions.
    SetPassword = "auth.setPassword" (PasswordParams) -> Empty;
    Server, AgentsView;
    rest Put "/api/auth/password" Enveloped;
    example r#"{"new":"correct horse battery"}"#;
}
