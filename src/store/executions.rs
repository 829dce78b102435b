//! Tables of tracked runs: executions, their output, their artifacts, and how far each agent's
//! journal has been applied.
//!
//! Invariants: an output line is stored once whatever is sent again (its index is the key); a cursor
//! moves in the transaction that applies what it counts.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{StoreError, rows};
use crate::base::EpochMillis;
use crate::base::ids::{AgentId, ExecutionId};

pub const SCHEMA: &str = "
CREATE TABLE executions (
    execution_id TEXT PRIMARY KEY,
    workflow_id TEXT,
    step_id TEXT,
    agent_id TEXT NOT NULL,
    script_id TEXT,
    kind TEXT NOT NULL,
    origin TEXT NOT NULL,
    requested_by TEXT,
    status TEXT NOT NULL,
    final INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    timeout_ms INTEGER,
    retry INTEGER NOT NULL,
    args TEXT NOT NULL,
    log_lines INTEGER NOT NULL,
    log_bytes INTEGER NOT NULL,
    log_truncated INTEGER NOT NULL,
    result TEXT,
    error_code TEXT,
    error_message TEXT
) STRICT;
CREATE INDEX executions_by_age ON executions (created_at DESC);
CREATE INDEX executions_by_agent ON executions (agent_id, created_at DESC);
CREATE INDEX executions_open ON executions (agent_id) WHERE NOT final;
CREATE TABLE execution_logs (
    execution_id TEXT NOT NULL REFERENCES executions ON DELETE CASCADE,
    line INTEGER NOT NULL,
    at INTEGER NOT NULL,
    stream TEXT NOT NULL,
    level TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (execution_id, line)
) STRICT, WITHOUT ROWID;
CREATE TABLE execution_artifacts (
    execution_id TEXT NOT NULL REFERENCES executions ON DELETE CASCADE,
    name TEXT NOT NULL,
    content_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    stored INTEGER NOT NULL,
    PRIMARY KEY (execution_id, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE agent_cursors (
    agent_id TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL
) STRICT, WITHOUT ROWID";

/// A run as it is kept; texts are those of the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutionRow {
    pub execution_id: ExecutionId,
    pub workflow_id: Option<String>,
    pub step_id: Option<String>,
    pub agent_id: AgentId,
    pub script_id: Option<String>,
    pub kind: String,
    pub origin: String,
    pub requested_by: Option<String>,
    pub status: String,
    /// Whether `status` is an end.
    pub is_final: bool,
    pub created_at: EpochMillis,
    pub started_at: Option<EpochMillis>,
    pub finished_at: Option<EpochMillis>,
    pub timeout_ms: Option<u64>,
    pub retry: u32,
    pub args: serde_json::Value,
    pub log_lines: u64,
    pub log_bytes: u64,
    pub log_truncated: bool,
    pub result: Option<serde_json::Value>,
    /// Code and message.
    pub error: Option<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRow {
    pub line: u64,
    pub at: EpochMillis,
    pub stream: String,
    pub level: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactRow {
    pub name: String,
    pub content_type: String,
    pub size: u64,
    pub sha256: String,
    pub created_at: EpochMillis,
    /// Whether this server holds the bytes.
    pub stored: bool,
}

/// What a list is narrowed to; absent parts fit everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub status: Option<String>,
    pub agent_id: Option<String>,
    pub script_id: Option<String>,
    pub origin: Option<String>,
}

/// Inserts a run or replaces all of its columns.
pub fn put(c: &Connection, row: &ExecutionRow) -> Result<(), StoreError> {
    let (code, message) = match &row.error {
        Some((code, message)) => (Some(code), Some(message)),
        None => (None, None),
    };
    c.prepare_cached(
        "INSERT INTO executions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13,
             ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)
         ON CONFLICT (execution_id) DO UPDATE SET
             script_id = excluded.script_id, status = excluded.status, final = excluded.final,
             started_at = excluded.started_at, finished_at = excluded.finished_at,
             timeout_ms = excluded.timeout_ms, retry = excluded.retry, args = excluded.args,
             log_lines = excluded.log_lines, log_bytes = excluded.log_bytes,
             log_truncated = excluded.log_truncated, result = excluded.result,
             error_code = excluded.error_code, error_message = excluded.error_message",
    )?
    .execute(params![
        row.execution_id.as_str(),
        row.workflow_id,
        row.step_id,
        row.agent_id.as_str(),
        row.script_id,
        row.kind,
        row.origin,
        row.requested_by,
        row.status,
        row.is_final,
        row.created_at.0,
        row.started_at.map(|at| at.0),
        row.finished_at.map(|at| at.0),
        row.timeout_ms.map(rows::signed),
        row.retry,
        row.args.to_string(),
        rows::signed(row.log_lines),
        rows::signed(row.log_bytes),
        row.log_truncated,
        row.result.as_ref().map(ToString::to_string),
        code,
        message,
    ])?;
    Ok(())
}

pub fn get(c: &Connection, id: &ExecutionId) -> Result<Option<ExecutionRow>, StoreError> {
    Ok(
        c.prepare_cached("SELECT * FROM executions WHERE execution_id = ?1")?
            .query_row([id.as_str()], read)
            .optional()?,
    )
}

/// A run with its artifacts.
pub fn get_whole(
    c: &Connection,
    id: &ExecutionId,
) -> Result<Option<(ExecutionRow, Vec<ArtifactRow>)>, StoreError> {
    match get(c, id)? {
        Some(row) => Ok(Some((row, artifacts(c, id)?))),
        None => Ok(None),
    }
}

/// One page, newest first, with the number of rows that fit.
pub fn list(
    c: &Connection,
    filter: &Filter,
    offset: u64,
    limit: u32,
) -> Result<(Vec<ExecutionRow>, u64), StoreError> {
    const FITS: &str = "(?1 IS NULL OR status = ?1) AND (?2 IS NULL OR agent_id = ?2)
        AND (?3 IS NULL OR script_id = ?3) AND (?4 IS NULL OR origin = ?4)";
    let total: i64 = c
        .prepare_cached(&format!("SELECT count(*) FROM executions WHERE {FITS}"))?
        .query_row(
            params![
                filter.status,
                filter.agent_id,
                filter.script_id,
                filter.origin
            ],
            |row| row.get(0),
        )?;
    let mut statement = c.prepare_cached(&format!(
        "SELECT * FROM executions WHERE {FITS}
         ORDER BY created_at DESC, rowid DESC LIMIT ?5 OFFSET ?6"
    ))?;
    let found = statement.query_map(
        params![
            filter.status,
            filter.agent_id,
            filter.script_id,
            filter.origin,
            limit,
            rows::signed(offset)
        ],
        read,
    )?;
    Ok((
        found.collect::<Result<_, _>>()?,
        u64::try_from(total).unwrap_or(0),
    ))
}

/// Runs of an agent that have not ended, oldest first.
pub fn open_of(c: &Connection, agent: &AgentId) -> Result<Vec<ExecutionRow>, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT * FROM executions WHERE agent_id = ?1 AND NOT final ORDER BY created_at",
    )?;
    let found = statement.query_map([agent.as_str()], read)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Agents that have runs which have not ended.
pub fn agents_with_open(c: &Connection) -> Result<Vec<AgentId>, StoreError> {
    let mut statement =
        c.prepare_cached("SELECT DISTINCT agent_id FROM executions WHERE NOT final")?;
    let found = statement.query_map([], |row| rows::id(row, "agent_id", AgentId::parse))?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Open runs whose own time limit passed before `before`, with their agents.
pub fn overdue(
    c: &Connection,
    before: EpochMillis,
) -> Result<Vec<(ExecutionId, AgentId)>, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT execution_id, agent_id FROM executions
         WHERE NOT final AND started_at + timeout_ms < ?1 LIMIT 100",
    )?;
    let found = statement.query_map([before.0], |row| {
        Ok((
            rows::id(row, "execution_id", ExecutionId::parse)?,
            rows::id(row, "agent_id", AgentId::parse)?,
        ))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// How many runs are in each state.
pub fn counts(c: &Connection) -> Result<Vec<(String, u64)>, StoreError> {
    let mut statement =
        c.prepare_cached("SELECT status, count(*) AS n FROM executions GROUP BY status")?;
    let found = statement.query_map([], |row| {
        Ok((row.get("status")?, rows::unsigned(row, "n")?))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Adds output; a line already there stays as it is. Tells how many lines and bytes were new.
pub fn add_lines(
    c: &Connection,
    id: &ExecutionId,
    lines: &[LogRow],
) -> Result<(u64, u64), StoreError> {
    let mut insert = c.prepare_cached(
        "INSERT INTO execution_logs VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING",
    )?;
    let (mut added, mut bytes) = (0, 0);
    for line in lines {
        let new = insert.execute(params![
            id.as_str(),
            rows::signed(line.line),
            line.at.0,
            line.stream,
            line.level,
            line.text
        ])?;
        if new == 1 {
            added += 1;
            bytes += line.text.len() as u64 + 1;
        }
    }
    Ok((added, bytes))
}

/// Output from line `from` on.
pub fn lines(
    c: &Connection,
    id: &ExecutionId,
    from: u64,
    limit: u32,
) -> Result<Vec<LogRow>, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT * FROM execution_logs WHERE execution_id = ?1 AND line >= ?2 ORDER BY line LIMIT ?3",
    )?;
    let found = statement.query_map(params![id.as_str(), rows::signed(from), limit], |row| {
        Ok(LogRow {
            line: rows::unsigned(row, "line")?,
            at: EpochMillis(row.get("at")?),
            stream: row.get("stream")?,
            level: row.get("level")?,
            text: row.get("text")?,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Lines kept, counted by the highest index.
pub fn line_count(c: &Connection, id: &ExecutionId) -> Result<u64, StoreError> {
    Ok(c.prepare_cached(
        "SELECT coalesce(max(line) + 1, 0) AS n FROM execution_logs WHERE execution_id = ?1",
    )?
    .query_row([id.as_str()], |row| rows::unsigned(row, "n"))?)
}

/// The texts of one stream with their levels.
pub fn stream_lines(
    c: &Connection,
    id: &ExecutionId,
    stream: &str,
) -> Result<Vec<(String, String)>, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT level, text FROM execution_logs
         WHERE execution_id = ?1 AND stream = ?2 ORDER BY line",
    )?;
    let found = statement.query_map(params![id.as_str(), stream], |row| {
        Ok((row.get("level")?, row.get("text")?))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Notes an artifact. A record that differs from the one kept replaces it, and its bytes are wanted anew.
pub fn put_artifact(
    c: &Connection,
    id: &ExecutionId,
    artifact: &ArtifactRow,
) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO execution_artifacts VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)
         ON CONFLICT DO UPDATE SET
             content_type = excluded.content_type, size = excluded.size,
             created_at = excluded.created_at,
             stored = stored AND sha256 = excluded.sha256, sha256 = excluded.sha256",
    )?
    .execute(params![
        id.as_str(),
        artifact.name,
        artifact.content_type,
        rows::signed(artifact.size),
        artifact.sha256,
        artifact.created_at.0,
    ])?;
    Ok(())
}

/// Notes whether this server holds an artifact's bytes.
pub fn set_stored(
    c: &Connection,
    id: &ExecutionId,
    name: &str,
    sha256: &str,
    stored: bool,
) -> Result<(), StoreError> {
    c.execute(
        "UPDATE execution_artifacts SET stored = ?4
         WHERE execution_id = ?1 AND name = ?2 AND sha256 = ?3",
        params![id.as_str(), name, sha256, stored],
    )?;
    Ok(())
}

pub fn artifacts(c: &Connection, id: &ExecutionId) -> Result<Vec<ArtifactRow>, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT * FROM execution_artifacts WHERE execution_id = ?1 ORDER BY created_at, name",
    )?;
    let found = statement.query_map([id.as_str()], |row| {
        Ok(ArtifactRow {
            name: row.get("name")?,
            content_type: row.get("content_type")?,
            size: rows::unsigned(row, "size")?,
            sha256: row.get("sha256")?,
            created_at: EpochMillis(row.get("created_at")?),
            stored: row.get("stored")?,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Artifacts of an agent whose bytes are still on the workstation, newest runs first.
pub fn unfetched(
    c: &Connection,
    agent: &AgentId,
    limit: u32,
) -> Result<Vec<(ExecutionId, String)>, StoreError> {
    let mut statement = c.prepare_cached(
        "SELECT a.execution_id, a.name FROM execution_artifacts a
         JOIN executions e ON e.execution_id = a.execution_id
         WHERE e.agent_id = ?1 AND NOT a.stored ORDER BY a.created_at DESC LIMIT ?2",
    )?;
    let found = statement.query_map(params![agent.as_str(), limit], |row| {
        Ok((
            rows::id(row, "execution_id", ExecutionId::parse)?,
            row.get("name")?,
        ))
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Deletes ended runs beyond the newest `kept`, at most 200 at once; tells which.
pub fn prune(c: &Connection, kept: u64) -> Result<Vec<ExecutionId>, StoreError> {
    let mut statement = c.prepare_cached(
        "DELETE FROM executions WHERE execution_id IN (
             SELECT execution_id FROM executions WHERE final
             ORDER BY created_at DESC, rowid DESC LIMIT 200 OFFSET ?1)
         RETURNING execution_id",
    )?;
    let gone = statement.query_map([rows::signed(kept)], |row| {
        rows::id(row, "execution_id", ExecutionId::parse)
    })?;
    Ok(gone.collect::<Result<_, _>>()?)
}

/// The last journal sequence of an agent that was applied; 0 before the first.
pub fn cursor(c: &Connection, agent: &AgentId) -> Result<u64, StoreError> {
    let found = c
        .prepare_cached("SELECT sequence FROM agent_cursors WHERE agent_id = ?1")?
        .query_row([agent.as_str()], |row| rows::unsigned(row, "sequence"))
        .optional()?;
    Ok(found.unwrap_or(0))
}

/// Moves a cursor on; it never goes back.
pub fn set_cursor(c: &Connection, agent: &AgentId, sequence: u64) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO agent_cursors VALUES (?1, ?2)
         ON CONFLICT DO UPDATE SET sequence = max(sequence, excluded.sequence)",
    )?
    .execute(params![agent.as_str(), rows::signed(sequence)])?;
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<ExecutionRow> {
    let code: Option<String> = row.get("error_code")?;
    let message: Option<String> = row.get("error_message")?;
    let result: Option<String> = row.get("result")?;
    Ok(ExecutionRow {
        execution_id: rows::id(row, "execution_id", ExecutionId::parse)?,
        workflow_id: row.get("workflow_id")?,
        step_id: row.get("step_id")?,
        agent_id: rows::id(row, "agent_id", AgentId::parse)?,
        script_id: row.get("script_id")?,
        kind: row.get("kind")?,
        origin: row.get("origin")?,
        requested_by: row.get("requested_by")?,
        status: row.get("status")?,
        is_final: row.get("final")?,
        created_at: EpochMillis(row.get("created_at")?),
        started_at: rows::millis(row, "started_at")?,
        finished_at: rows::millis(row, "finished_at")?,
        timeout_ms: row
            .get::<_, Option<i64>>("timeout_ms")?
            .and_then(|ms| u64::try_from(ms).ok()),
        retry: row.get("retry")?,
        args: rows::json(row, "args")?,
        log_lines: rows::unsigned(row, "log_lines")?,
        log_bytes: rows::unsigned(row, "log_bytes")?,
        log_truncated: row.get("log_truncated")?,
        result: result.map(|_| rows::json(row, "result")).transpose()?,
        error: code.map(|code| (code, message.unwrap_or_default())),
    })
}
