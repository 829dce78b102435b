//! `execution.*`: the one kind of tracked run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::EpochMillis;
use crate::base::ids::{AgentId, ExecutionId};
use crate::method;

/// `pending → queued → running → succeeded | failed | cancelled | timeout | lost`; `stopping` is
/// between running and an end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pending,
    Queued,
    Running,
    Stopping,
    Succeeded,
    Failed,
    Cancelled,
    Timeout,
    Lost,
}

impl Status {
    pub const ALL: &'static [Status] = &[
        Self::Pending,
        Self::Queued,
        Self::Running,
        Self::Stopping,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
        Self::Lost,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|status| status.as_str() == text)
    }

    /// Whether no more work is done. `lost` is final until the node returns with the outcome.
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Timeout | Self::Lost
        )
    }
}

/// Who issued a run and owns its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOrigin {
    Server,
    Local,
}

/// What kind of work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    Script,
    Capture,
}

/// Why a run did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunError {
    /// A stable code.
    pub code: String,
    pub message: String,
}

/// A stored file of a run, addressed `execution/{id}/artifacts/{name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// `stdout`, `stderr`, `result.json`, or a name that the script gave.
    pub name: String,
    pub content_type: String,
    pub size: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
    pub created_at: EpochMillis,
}

/// How much a run has printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogExtent {
    pub lines: u64,
    pub bytes: u64,
    /// Whether the limit cut the output.
    pub truncated: bool,
}

/// One attempt at a piece of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Execution {
    pub execution_id: ExecutionId,
    #[serde(default)]
    pub workflow_id: Option<String>,
    #[serde(default)]
    pub step_id: Option<String>,
    pub agent_id: AgentId,
    /// The script's name or path; absent for other kinds.
    #[serde(default)]
    pub script_id: Option<String>,
    pub kind: RunKind,
    pub origin: RunOrigin,
    /// The account that asked; absent for a local run.
    #[serde(default)]
    pub requested_by: Option<String>,
    pub status: Status,
    pub created_at: EpochMillis,
    #[serde(default)]
    pub started_at: Option<EpochMillis>,
    #[serde(default)]
    pub finished_at: Option<EpochMillis>,
    /// Milliseconds; absent means none.
    #[serde(default)]
    pub timeout: Option<u64>,
    /// 0 for the first attempt.
    pub retry: u32,
    pub args: BTreeMap<String, String>,
    pub logs: LogExtent,
    pub artifacts: Vec<Artifact>,
    #[serde(default)]
    pub result: Option<Value>,
    #[serde(default)]
    pub error: Option<RunError>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<RunOrigin>,
    /// From 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u32>,
    /// At most 100; 20 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListReply {
    /// Newest first.
    pub items: Vec<Execution>,
    pub total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionRef {
    pub execution_id: ExecutionId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitParams {
    pub execution_id: ExecutionId,
    /// Answers with the state reached so far when it passes; 25 s when absent, 60 s at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

/// One line of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// Counts the run's lines from 0, both streams together.
    pub index: u64,
    pub at: EpochMillis,
    pub stream: Stream,
    /// debug | info | warn | error.
    pub level: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogsParams {
    pub execution_id: ExecutionId,
    /// The first line wanted, from 0.
    #[serde(default)]
    pub offset: u64,
    /// 1 to 500; 100 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogsReply {
    pub lines: Vec<LogLine>,
    pub next_offset: u64,
    pub total: u64,
    /// Whether the run has ended, so that no more lines come.
    pub complete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactParams {
    pub execution_id: ExecutionId,
    pub name: String,
}

method! {
    /// Lists executions, newest first, with filters.
    List = "execution.list" (ListParams) -> ListReply;
    Each, ScriptsView;
    rest Get "/api/executions" Enveloped;
    example r#"{"status":"running","pageSize":20}"#;
}
method! {
    /// Shows one execution.
    Get = "execution.get" (ExecutionRef) -> Execution;
    Each, ScriptsView;
    rest Get "/api/executions/{executionId}" Enveloped;
    example r#"{"executionId":"0123456789abcdef0123456789abcdef"}"#;
}
method! {
    /// Waits until an execution has ended, or until the wait is over, and shows it.
    Wait = "execution.wait" (WaitParams) -> Execution;
    Each, ScriptsView;
    rest Get "/api/executions/{executionId}/wait" Enveloped;
    timeout Some(70_000);
    example r#"{"executionId":"0123456789abcdef0123456789abcdef","waitMs":25000}"#;
}
method! {
    /// Reads a run's output by line number.
    Logs = "execution.logs" (LogsParams) -> LogsReply;
    Each, ScriptsView;
    rest Get "/api/executions/{executionId}/logs" Enveloped;
    example r#"{"executionId":"0123456789abcdef0123456789abcdef","offset":0,"limit":100}"#;
}
method! {
    /// Serves a stored file of a run; its hash was checked against the record.
    GetArtifact = "execution.artifact" (ArtifactParams) -> Artifact;
    Each, ScriptsView;
    rest Get "/api/executions/{executionId}/artifacts/{name}" Bytes;
    timeout Some(60_000);
    example r#"{"executionId":"0123456789abcdef0123456789abcdef","name":"stdout"}"#;
}
method! {
    /// Cancels a run: queued ones end at once, running ones within 200 ms.
    Cancel = "execution.cancel" (ExecutionRef) -> Execution;
    Each, ScriptsRun;
    rest Post "/api/executions/{executionId}/cancel" Enveloped;
    example r#"{"executionId":"0123456789abcdef0123456789abcdef"}"#;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_texts_round_trip() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(*status));
            let json = serde_json::to_value(status).unwrap();
            assert_eq!(json, status.as_str());
        }
        assert!(serde_json::from_value::<Status>("done".into()).is_err());
    }
}
