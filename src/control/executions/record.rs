//! Runs between the wire, the state machine and the table.

use super::Fault;
use crate::base::EpochMillis;
use crate::model::execution::{NodeRecord, Outcome};
use crate::store::executions::{ArtifactRow, ExecutionRow, LogRow};
use crate::wire::messages::executions::{
    Artifact, Execution, LogExtent, LogLine, RunError, Status, Stream,
};

/// A row as the wire shows it.
pub fn shown(row: ExecutionRow, artifacts: Vec<ArtifactRow>) -> Result<Execution, Fault> {
    let corrupt = |what: &str| Fault::internal(format!("the database holds an unreadable {what}"));
    Ok(Execution {
        status: Status::parse(&row.status).ok_or_else(|| corrupt("status"))?,
        kind: word(&row.kind).ok_or_else(|| corrupt("kind"))?,
        origin: word(&row.origin).ok_or_else(|| corrupt("origin"))?,
        execution_id: row.execution_id,
        workflow_id: row.workflow_id,
        step_id: row.step_id,
        agent_id: row.agent_id,
        script_id: row.script_id,
        requested_by: row.requested_by,
        created_at: row.created_at,
        started_at: row.started_at,
        finished_at: row.finished_at,
        timeout: row.timeout_ms,
        retry: row.retry,
        args: serde_json::from_value(row.args).map_err(|_| corrupt("args"))?,
        logs: LogExtent {
            lines: row.log_lines,
            bytes: row.log_bytes,
            truncated: row.log_truncated,
        },
        artifacts: artifacts.into_iter().map(shown_artifact).collect(),
        result: row.result,
        error: row.error.map(|(code, message)| RunError { code, message }),
    })
}

/// A record as the table keeps it; artifacts have a table of their own.
pub fn row(record: &Execution) -> ExecutionRow {
    ExecutionRow {
        execution_id: record.execution_id.clone(),
        workflow_id: record.workflow_id.clone(),
        step_id: record.step_id.clone(),
        agent_id: record.agent_id.clone(),
        script_id: record.script_id.clone(),
        kind: text_of(&record.kind),
        origin: text_of(&record.origin),
        requested_by: record.requested_by.clone(),
        status: record.status.as_str().to_owned(),
        is_final: record.status.is_final(),
        created_at: record.created_at,
        started_at: record.started_at,
        finished_at: record.finished_at,
        timeout_ms: record.timeout,
        retry: record.retry,
        args: record
            .args
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        log_lines: record.logs.lines,
        log_bytes: record.logs.bytes,
        log_truncated: record.logs.truncated,
        result: record.result.clone(),
        error: record
            .error
            .as_ref()
            .map(|error| (error.code.clone(), error.message.clone())),
    }
}

pub fn shown_artifact(row: ArtifactRow) -> Artifact {
    Artifact {
        name: row.name,
        content_type: row.content_type,
        size: row.size,
        sha256: row.sha256,
        created_at: row.created_at,
    }
}

pub fn artifact_row(artifact: &Artifact) -> ArtifactRow {
    ArtifactRow {
        name: artifact.name.clone(),
        content_type: artifact.content_type.clone(),
        size: artifact.size,
        sha256: artifact.sha256.clone(),
        created_at: artifact.created_at,
        stored: false,
    }
}

pub fn log_row(line: &LogLine) -> LogRow {
    LogRow {
        line: line.index,
        at: line.at,
        stream: text_of(&line.stream),
        level: line.level.clone(),
        text: line.text.clone(),
    }
}

pub fn shown_line(row: LogRow) -> LogLine {
    LogLine {
        index: row.line,
        at: row.at,
        stream: word(&row.stream).unwrap_or(Stream::Stdout),
        level: row.level,
        text: row.text,
    }
}

/// What a workstation's own record says to the state machine.
pub fn node_record(record: &Execution, now: EpochMillis) -> NodeRecord {
    let failed = || RunError {
        code: "internal".into(),
        message: "the workstation gave no reason".into(),
    };
    let outcome = match record.status {
        Status::Pending | Status::Queued => return NodeRecord::Queued,
        Status::Running | Status::Stopping => {
            return NodeRecord::Running {
                started_at: record.started_at.unwrap_or(now),
            };
        }
        Status::Succeeded => Outcome::Succeeded {
            result: record.result.clone(),
        },
        Status::Cancelled => Outcome::Cancelled,
        Status::Timeout => Outcome::TimedOut,
        Status::Failed | Status::Lost => Outcome::Failed {
            error: record.error.clone().unwrap_or_else(failed),
        },
    };
    NodeRecord::Finished {
        outcome,
        started_at: record.started_at,
        finished_at: record.finished_at.unwrap_or(now),
    }
}

/// The text of an enum that serialises to one.
pub fn text_of<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        // INVARIANT: called with the unit enums of messages alone, which serialise to texts.
        _ => String::new(),
    }
}

fn word<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_value(text.into()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::executions::{RunKind, RunOrigin};

    #[test]
    fn row_and_record_are_one_another() {
        let record = Execution {
            execution_id: "0123".parse().unwrap(),
            workflow_id: Some("w".into()),
            step_id: None,
            agent_id: "desk".parse().unwrap(),
            script_id: Some("a.lua".into()),
            kind: RunKind::Script,
            origin: RunOrigin::Local,
            requested_by: None,
            status: Status::Failed,
            created_at: EpochMillis(1),
            started_at: Some(EpochMillis(2)),
            finished_at: Some(EpochMillis(3)),
            timeout: Some(30_000),
            retry: 1,
            args: [("a".to_owned(), "b".to_owned())].into(),
            logs: LogExtent::default(),
            artifacts: vec![],
            result: Some(serde_json::json!({"x": [1, null]})),
            error: Some(RunError {
                code: "script_error".into(),
                message: "boom".into(),
            }),
        };
        assert_eq!(shown(row(&record), vec![]).unwrap(), record);
    }
}
