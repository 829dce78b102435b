//! Executions and their output.

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::commands::{self, CommandState};
use super::{signed, unsigned};
use crate::store::StoreError;

/// An execution: its record as JSON, and the fields by which it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionRow {
    pub execution_id: String,
    pub status: String,
    pub agent_id: String,
    pub script_id: Option<String>,
    pub origin: String,
    pub created_at: i64,
    /// Absent while it has not ended.
    pub finished_at: Option<i64>,
    pub json: String,
}

/// Which executions; an absent field does not filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionFilter {
    pub status: Option<String>,
    pub agent_id: Option<String>,
    pub script_id: Option<String>,
    pub origin: Option<String>,
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionPage {
    pub rows: Vec<ExecutionRow>,
    /// How many there are in all.
    pub total: u64,
}

/// A line of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRow {
    /// From 0, both streams together.
    pub line: u64,
    pub at: i64,
    pub stream: String,
    pub level: String,
    pub text: String,
}

const COLUMNS: &str = "id, status, agent, script, origin, created_at, finished_at, json";

fn row_of(row: &Row<'_>) -> rusqlite::Result<ExecutionRow> {
    Ok(ExecutionRow {
        execution_id: row.get(0)?,
        status: row.get(1)?,
        agent_id: row.get(2)?,
        script_id: row.get(3)?,
        origin: row.get(4)?,
        created_at: row.get(5)?,
        finished_at: row.get(6)?,
        json: row.get(7)?,
    })
}

pub(super) fn insert(
    connection: &Connection,
    row: ExecutionRow,
    command_id: Option<String>,
) -> Result<CommandState, StoreError> {
    if let Some(id) = command_id {
        match commands::state(connection, &id)? {
            // Begun is the caller's own mark from before it knew the execution.
            CommandState::New | CommandState::Begun => {
                commands::lead(connection, &id, &row.execution_id)?;
            }
            known => return Ok(known),
        }
    }
    connection.execute(
        &format!("INSERT INTO execution ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"),
        params![
            row.execution_id,
            row.status,
            row.agent_id,
            row.script_id,
            row.origin,
            row.created_at,
            row.finished_at,
            row.json
        ],
    )?;
    Ok(CommandState::New)
}

pub(super) fn update(connection: &Connection, row: ExecutionRow) -> Result<bool, StoreError> {
    let changed = connection.execute(
        "UPDATE execution SET status = ?2, agent = ?3, script = ?4, origin = ?5, created_at = ?6,
             finished_at = ?7, json = ?8 WHERE id = ?1",
        params![
            row.execution_id,
            row.status,
            row.agent_id,
            row.script_id,
            row.origin,
            row.created_at,
            row.finished_at,
            row.json
        ],
    )?;
    Ok(changed > 0)
}

pub(super) fn get(connection: &Connection, id: String) -> Result<Option<ExecutionRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM execution WHERE id = ?1");
    Ok(connection.query_row(&sql, [id], row_of).optional()?)
}

pub(super) fn list(
    connection: &Connection,
    filter: ExecutionFilter,
    offset: u64,
    limit: u32,
) -> Result<ExecutionPage, StoreError> {
    let fields = [
        ("status", filter.status),
        ("agent", filter.agent_id),
        ("script", filter.script_id),
        ("origin", filter.origin),
    ];
    let mut condition = String::from("1");
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    for (column, value) in fields {
        if let Some(value) = value {
            values.push(Box::new(value));
            condition += &format!(" AND {column} = ?{}", values.len());
        }
    }
    let sql = format!("SELECT count(*) FROM execution WHERE {condition}");
    let total: i64 =
        connection.query_row(&sql, rusqlite::params_from_iter(values.iter()), |row| {
            row.get(0)
        })?;
    let (limit_at, offset_at) = (values.len() + 1, values.len() + 2);
    values.push(Box::new(limit));
    values.push(Box::new(signed("offset", offset)?));
    let sql = format!(
        "SELECT {COLUMNS} FROM execution WHERE {condition}
         ORDER BY number DESC LIMIT ?{limit_at} OFFSET ?{offset_at}"
    );
    let mut statement = connection.prepare(&sql)?;
    let rows = statement
        .query_map(rusqlite::params_from_iter(values.iter()), row_of)?
        .collect::<Result<_, _>>()?;
    Ok(ExecutionPage {
        rows,
        total: unsigned("count", total)?,
    })
}

pub(super) fn unfinished(connection: &Connection) -> Result<Vec<ExecutionRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM execution WHERE finished_at IS NULL ORDER BY number");
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map([], row_of)?.collect::<Result<_, _>>()?;
    Ok(rows)
}

pub(super) fn prune(connection: &Connection, keep: usize) -> Result<Vec<String>, StoreError> {
    let keep = i64::try_from(keep).unwrap_or(i64::MAX);
    let mut statement = connection.prepare(
        "DELETE FROM execution WHERE number IN (
             SELECT number FROM execution WHERE finished_at IS NOT NULL
             ORDER BY number DESC LIMIT -1 OFFSET ?1
         ) RETURNING id",
    )?;
    let ids = statement
        .query_map([keep], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    Ok(ids)
}

pub(super) fn append_lines(
    connection: &Connection,
    execution_id: String,
    lines: Vec<LogRow>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO execution_line (execution, line, at, stream, level, text)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for line in lines {
        statement.execute(params![
            execution_id,
            signed("line number", line.line)?,
            line.at,
            line.stream,
            line.level,
            line.text
        ])?;
    }
    Ok(())
}

pub(super) fn lines(
    connection: &Connection,
    execution_id: String,
    offset: u64,
    limit: u32,
) -> Result<Vec<LogRow>, StoreError> {
    let Ok(offset) = i64::try_from(offset) else {
        return Ok(Vec::new());
    };
    let mut statement = connection.prepare_cached(
        "SELECT line, at, stream, level, text FROM execution_line
         WHERE execution = ?1 AND line >= ?2 ORDER BY line LIMIT ?3",
    )?;
    let mut rows = statement.query(params![execution_id, offset, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(LogRow {
            line: unsigned("line number", row.get(0)?)?,
            at: row.get(1)?,
            stream: row.get(2)?,
            level: row.get(3)?,
            text: row.get(4)?,
        });
    }
    Ok(found)
}

pub(super) fn line_count(connection: &Connection, execution_id: String) -> Result<u64, StoreError> {
    let count = connection.query_row(
        "SELECT count(*) FROM execution_line WHERE execution = ?1",
        [execution_id],
        |row| row.get(0),
    )?;
    unsigned("count", count)
}

#[cfg(test)]
mod tests {
    use super::super::temporary;
    use super::*;

    fn row(n: i64, status: &str) -> ExecutionRow {
        ExecutionRow {
            execution_id: format!("e{n}"),
            status: status.to_owned(),
            agent_id: "desk".to_owned(),
            script_id: (n % 2 == 0).then(|| "even.lua".to_owned()),
            origin: "local".to_owned(),
            created_at: n,
            finished_at: (status != "running").then_some(n + 1),
            json: format!("{{\"n\":{n}}}"),
        }
    }

    fn line(n: u64) -> LogRow {
        LogRow {
            line: n,
            at: 5,
            stream: "stdout".to_owned(),
            level: "info".to_owned(),
            text: format!("line {n}"),
        }
    }

    fn ids(rows: &[ExecutionRow]) -> Vec<&str> {
        rows.iter().map(|row| row.execution_id.as_str()).collect()
    }

    #[test]
    fn list_filters_and_pages_newest_first() {
        let (_dir, store) = temporary();
        for n in 0..6 {
            let status = if n < 4 { "failed" } else { "running" };
            store
                .insert_execution_blocking(row(n, status), None)
                .unwrap();
        }
        let all = store
            .executions_blocking(ExecutionFilter::default(), 1, 2)
            .unwrap();
        assert_eq!((ids(&all.rows), all.total), (vec!["e4", "e3"], 6));
        let filter = ExecutionFilter {
            status: Some("failed".into()),
            script_id: Some("even.lua".into()),
            ..ExecutionFilter::default()
        };
        let some = store.executions_blocking(filter, 0, 10).unwrap();
        assert_eq!((ids(&some.rows), some.total), (vec!["e2", "e0"], 2));
        let open = store.unfinished_executions_blocking().unwrap();
        assert_eq!(ids(&open), ["e4", "e5"]);
    }

    #[test]
    fn update_replaces_the_row_and_misses_are_told() {
        let (_dir, store) = temporary();
        store
            .insert_execution_blocking(row(1, "running"), None)
            .unwrap();
        assert!(store.update_execution_blocking(row(1, "failed")).unwrap());
        assert!(!store.update_execution_blocking(row(2, "failed")).unwrap());
        let found = store.execution_blocking("e1".into()).unwrap();
        assert_eq!(found, Some(row(1, "failed")));
        assert_eq!(store.execution_blocking("e2".into()).unwrap(), None);
    }

    #[test]
    fn command_leads_to_one_execution_however_often_it_comes() {
        let (_dir, store) = temporary();
        let insert = |n| {
            store
                .insert_execution_blocking(row(n, "running"), Some("c1".into()))
                .unwrap()
        };
        assert_eq!(insert(1), CommandState::New);
        assert_eq!(insert(2), CommandState::Execution("e1".into()));
        assert_eq!(store.execution_blocking("e2".into()).unwrap(), None);
        let begun = store.begin_command_blocking("c1".into()).unwrap();
        assert_eq!(begun, CommandState::Execution("e1".into()));
    }

    #[test]
    fn pruning_takes_the_oldest_finished_with_their_output() {
        let (_dir, store) = temporary();
        store
            .insert_execution_blocking(row(0, "running"), None)
            .unwrap();
        for n in 1..5 {
            store
                .insert_execution_blocking(row(n, "failed"), None)
                .unwrap();
            store
                .append_lines_blocking(format!("e{n}"), vec![line(0)])
                .unwrap();
        }
        let mut gone = store.prune_executions_blocking(2).unwrap();
        gone.sort();
        assert_eq!(gone, ["e1", "e2"]);
        assert_eq!(store.line_count_blocking("e1".into()).unwrap(), 0);
        assert_eq!(store.line_count_blocking("e3".into()).unwrap(), 1);
        assert!(store.execution_blocking("e0".into()).unwrap().is_some());
    }

    #[test]
    fn lines_are_read_from_an_offset_and_a_double_is_refused() {
        let (_dir, store) = temporary();
        store
            .insert_execution_blocking(row(1, "running"), None)
            .unwrap();
        let lines = (0..10).map(line).collect();
        store.append_lines_blocking("e1".into(), lines).unwrap();
        let read = |offset, limit| store.lines_blocking("e1".into(), offset, limit).unwrap();
        assert_eq!(read(7, 2), [line(7), line(8)]);
        assert_eq!(read(u64::MAX, 2), []);
        let again = vec![line(10), line(3)];
        assert!(store.append_lines_blocking("e1".into(), again).is_err());
        assert_eq!(store.line_count_blocking("e1".into()).unwrap(), 10);
        assert!(
            store
                .append_lines_blocking("e9".into(), vec![line(0)])
                .is_err()
        );
    }
}
