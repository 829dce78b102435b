//! `ipc.*`: what a local client and the node agree on before they work.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::Secret;
use crate::method;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HelloParams {
    /// Whether bytes may come as Data frames instead of `data:` URLs.
    #[serde(default)]
    pub binary: bool,
    /// The text of `ipc-token` in the state directory; needed on loopback TCP alone, where the
    /// system does not tell who the peer is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelloReply {
    /// Always `wingman`.
    pub server: String,
    pub version: String,
    pub binary: bool,
    /// Largest message in bytes.
    pub message_len_max: u64,
}

method! {
    /// Introduces a client: agrees on binary frames and, on loopback TCP, proves who asks.
    Hello = "ipc.hello" (HelloParams) -> HelloReply;
    NodeLocal, AgentsView;
    example r#"{"binary":true}"#;
}
