//! Journal records and the table of event types.
//!
//! A record is one JSON object a line; `crc` covers the line without it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::EpochMillis;
use crate::base::ids::EventId;

/// Which wires may carry an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Never sent to the server.
    Local,
    /// Sent to the server too.
    Shared,
}

/// Whether an event survives the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Durable,
    /// Kept in memory for readers that are connected; never numbered, never on disk.
    Volatile,
}

/// An event type as data.
#[derive(Clone, Copy, Debug)]
pub struct EventType {
    pub name: &'static str,
    pub stream: &'static str,
    pub scope: Scope,
    pub durability: Durability,
    pub doc: &'static str,
}

macro_rules! event_types {
    ($($name:ident = $text:literal, $stream:literal, $scope:ident, $durability:ident, $doc:literal;)+) => {
        /// The names of the event types.
        pub mod name {
            $(#[doc = $doc] pub const $name: &str = $text;)+
        }

        /// Every event type that this version writes. Names are open: readers keep unknown ones.
        pub const EVENT_TYPES: &[EventType] = &[$(EventType {
            name: $text,
            stream: $stream,
            scope: Scope::$scope,
            durability: Durability::$durability,
            doc: $doc,
        }),+];
    };
}

event_types! {
    NODE_STARTED = "node.started", "node", Shared, Durable, "The agent process started: version, instance, what recovery found.";
    NODE_STOPPED = "node.stopped", "node", Shared, Durable, "The agent process stopped in an orderly way.";
    EXECUTION_CREATED = "execution.created", "executions", Shared, Durable, "An execution exists: its first record.";
    EXECUTION_STATE = "execution.state_changed", "executions", Shared, Durable, "An execution changed state; a final state carries result, error, logs and artifacts.";
    EXECUTION_OUTPUT = "execution.output", "executions", Shared, Durable, "Lines that a run printed, in order, by line index.";
    EXECUTION_ARTIFACT = "execution.artifact", "executions", Shared, Durable, "A run stored a file; the bytes are fetched by name.";
    CAPTURE_STORED = "capture.stored", "captures", Shared, Durable, "A capture was stored as an artifact.";
    CAPTURE_QUARANTINED = "capture.quarantined", "captures", Shared, Durable, "A partial or altered capture was moved aside and is not served.";
    INPUT_RELEASED = "input.released", "input", Shared, Durable, "Keys or buttons still held were released because their owner ended.";
    CAPABILITIES_CHANGED = "capabilities.changed", "node", Shared, Durable, "What works on this host changed.";
    SESSION_STARTED = "session.started", "sessions", Shared, Durable, "A terminal session's program runs.";
    SESSION_EXITED = "session.exited", "sessions", Shared, Durable, "A terminal session's program ended: exit code or signal.";
    SESSION_FORGOTTEN = "session.forgotten", "sessions", Shared, Durable, "What was kept of a session that had ended is gone: somebody ended it a second time, or it grew old.";
    SESSION_ADOPTED = "session.adopted", "sessions", Shared, Durable, "A restarted agent took a running session over from its holder.";
    SESSION_STDOUT = "session.stdout_chunk", "sessions", Shared, Volatile, "A session put out bytes: how many, never which.";
    SESSION_STDIN = "session.stdin_chunk", "sessions", Shared, Volatile, "A console typed into a session: who and how many bytes, never which.";
    SESSION_RESIZED = "session.resize_applied", "sessions", Shared, Durable, "A session's terminal has a new size.";
    SESSION_UPDATED = "session.metadata_updated", "sessions", Shared, Durable, "A session's name or recording changed.";
    SESSION_ATTENTION = "session.attention", "sessions", Shared, Durable, "What a session's program is doing changed, with source and evidence.";
    SESSION_LEASE = "session.lease_changed", "sessions", Shared, Durable, "Who may type into a session changed.";
    CONSOLE_ATTACHED = "console.attached", "sessions", Shared, Durable, "A console attached to a session.";
    CONSOLE_DETACHED = "console.detached", "sessions", Shared, Durable, "A console left a session: why, and how much it typed.";
    CONSOLE_FOCUS = "console.focus_changed", "sessions", Shared, Volatile, "A console's person looks at a session, or away from it.";
    SCRIPTS_PAUSED = "scripts.paused", "executions", Shared, Durable, "Scripts were paused or let go on.";
    CONNECTION_STATE = "connection.state_changed", "connection", Local, Durable, "The link to the server changed state.";
    CONNECTION_IPC_CLIENT = "connection.ipc_client", "connection", Local, Volatile, "A local client connected or left.";
    LOG_LINE = "log.line", "log", Local, Volatile, "A line of the agent's own log, info and above.";
    AGENT_ENROLLED = "agent.enrolled", "agents", Shared, Durable, "Server: an agent's key was enrolled.";
    AGENT_CONNECTED = "agent.connected", "agents", Shared, Durable, "Server: an agent registered.";
    AGENT_DISCONNECTED = "agent.disconnected", "agents", Shared, Durable, "Server: an agent's link ended, with the reason.";
    AGENT_QUARANTINED = "agent.quarantined", "agents", Shared, Durable, "Server: two processes hold one agent's key.";
    AGENT_REVOKED = "agent.revoked", "agents", Shared, Durable, "Server: an agent was revoked.";
}

/// The row of an event type, where this version knows it.
pub fn event_type(name: &str) -> Option<&'static EventType> {
    EVENT_TYPES.iter().find(|row| row.name == name)
}

/// Who wrote a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    pub module_id: String,
    pub instance_id: String,
    pub runtime: String,
}

/// The foreground program when the record was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForegroundRef {
    pub executable_name: String,
    pub revision: u64,
}

/// A record as its author gives it; the journal adds number, time and checksum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Draft {
    #[serde(rename = "type")]
    pub event_type: String,
    pub stream: String,
    /// Milliseconds; when it is written if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<EpochMillis>,
    /// What the record belongs to: an execution, an invocation, a terminal session.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub session_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground: Option<ForegroundRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    pub payload: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
}

impl Draft {
    /// A draft of a known type in its own stream.
    pub fn new(event_type: &str, payload: Value) -> Self {
        let stream = self::event_type(event_type).map_or("custom", |row| row.stream);
        Self {
            event_type: event_type.to_owned(),
            stream: stream.to_owned(),
            payload,
            ..Self::default()
        }
    }

    /// The same, belonging to `session_id`.
    pub fn in_session(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = session_id.into();
        self
    }
}

/// A record as it stands in the journal, without its checksum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    pub schema_version: u32,
    /// Contiguous from 1.
    pub sequence: u64,
    pub event_id: EventId,
    pub observed_at: EpochMillis,
    pub committed_at: EpochMillis,
    pub session_id: String,
    pub stream: String,
    #[serde(rename = "type")]
    pub event_type: String,
    pub source: Source,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground: Option<ForegroundRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    pub payload: Value,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
}

impl Record {
    /// The record format that this version writes.
    pub const SCHEMA_VERSION: u32 = 1;

    /// Whether the server may see it; types that this version does not know are shared.
    pub fn is_shared(&self) -> bool {
        event_type(&self.event_type).is_none_or(|row| row.scope == Scope::Shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_type_names_are_unique_and_explained() {
        let mut seen = std::collections::HashSet::new();
        for row in EVENT_TYPES {
            assert!(seen.insert(row.name), "{} twice", row.name);
            assert!(row.doc.ends_with('.'), "{}", row.name);
        }
    }

    #[test]
    fn drafts_reject_unknown_fields() {
        let text = r#"{"type":"x","stream":"s","payload":{},"typo":1}"#;
        assert!(serde_json::from_str::<Draft>(text).is_err());
    }
}
