//! `events.*`: reads of the one journal from a cursor.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::EpochMillis;
use crate::method;
use crate::wire::event::{Draft, Record};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainParams {
    /// At most this many; 500 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

/// An event as local clients have always read it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrainedEvent {
    /// The event's type.
    pub method: String,
    pub payload: Value,
    pub timestamp: EpochMillis,
    /// The journal sequence; absent for volatile events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DrainReply {
    pub events: Vec<DrainedEvent>,
    /// Events that are ready beyond these.
    pub remaining: u64,
    /// Events that this connection lost since its last drain.
    pub dropped: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FollowParams {
    /// The first sequence wanted; absent: only new ones.
    #[serde(default, skip_serializing_if = "Option::is_none", alias = "from")]
    pub after: Option<u64>,
    /// Starts this many records before the end; wins over nothing, loses to `after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    /// Only types that begin with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Keep the stream open for new records.
    #[serde(default)]
    pub follow: bool,
}

/// Where a stream of events begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FollowReply {
    /// The first sequence that will be sent.
    pub next_seq: u64,
}

method! {
    /// Pulls events that this connection has not seen, from its own bounded cursor.
    Drain = "events.drain" (DrainParams) -> DrainReply;
    NodeLocal, MonitorView;
    example r#"{"max":500}"#;
}
method! {
    /// Streams records: as type 2 envelopes on local IPC, as NDJSON over HTTP.
    /// A cursor before the oldest kept record is answered `cursor_expired`.
    Follow = "events.follow" (FollowParams) -> FollowReply;
    Each, MonitorView;
    rest Get "/api/events" Ndjson;
    timeout None;
    example r#"{"tail":10,"follow":true}"#;
}
method! {
    /// Appends a record to the journal; answers when it is on disk.
    Append = "events.append" (Draft) -> Record;
    NodeLocal, ScriptsRun;
    example r#"{"type":"custom.note","stream":"notes","payload":{"text":"hello"}}"#;
}
