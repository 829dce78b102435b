//! `config.*`: the node's own settings, on the local wire alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Empty;
use crate::method;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteConfig {
    pub enabled: bool,
    pub server_ip: String,
    pub server_port: u16,
    /// Whether a token is set; the token itself is never told.
    pub register_token_set: bool,
    /// 1 or 2.
    pub protocol: u8,
    /// The pinned server key of protocol 2, as hexadecimal; absent before joining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_key: Option<String>,
}

/// A partial update; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteUpdate {
    /// Not empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_ip: Option<String>,
    /// 1 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_port: Option<u32>,
    /// At most 256 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register_token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// 1 (old servers) or 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Joins the server that issued it: a new address on protocol 2 needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<String>,
}

method! {
    /// Tells where this agent's server is.
    GetRemote = "config.getRemote" (Empty) -> RemoteConfig;
    NodeLocal, SettingsView;
    example "{}";
}
method! {
    /// Changes where the server is: checked, applied at once, written back to agent.toml.
    SetRemote = "config.setRemote" (RemoteUpdate) -> RemoteConfig;
    NodeLocal, SettingsEdit;
    example r#"{"serverIp":"127.0.0.1","serverPort":8888}"#;
}
