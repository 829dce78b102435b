//! The audit trail: who asked for what, from where, and how it ended.

use rusqlite::{Connection, Row, params};

use super::{StoreError, rows};
use crate::base::EpochMillis;

pub const SCHEMA: &str = "
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    address TEXT,
    target TEXT,
    outcome TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_actor ON audit (actor, id);
CREATE INDEX audit_by_kind ON audit (kind, id)";

/// Rows kept; the oldest go first.
const AUDIT_ROWS_KEPT: i64 = 200_000;

#[derive(Clone, Debug)]
pub struct AuditRow {
    pub id: u64,
    pub at: EpochMillis,
    pub kind: String,
    pub actor: String,
    pub address: Option<String>,
    pub target: Option<String>,
    pub outcome: String,
    pub detail: serde_json::Value,
}

/// Appends a row; `row.id` is given by the database.
pub fn insert(c: &Connection, row: &AuditRow) -> Result<(), StoreError> {
    c.prepare_cached(
        "INSERT INTO audit (at, kind, actor, address, target, outcome, detail)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![
        row.at.0,
        row.kind,
        row.actor,
        row.address,
        row.target,
        row.outcome,
        row.detail.to_string(),
    ])?;
    let id = c.last_insert_rowid();
    c.prepare_cached("DELETE FROM audit WHERE id <= ?1")?
        .execute([id - AUDIT_ROWS_KEPT])?;
    Ok(())
}

/// One page, newest first, with the number of rows that fit.
pub fn list(
    c: &Connection,
    actor: Option<&str>,
    kind: Option<&str>,
    offset: u64,
    limit: u32,
) -> Result<(Vec<AuditRow>, u64), StoreError> {
    const FITS: &str = "(?1 IS NULL OR actor = ?1) AND (?2 IS NULL OR kind = ?2)";
    let total: i64 = c
        .prepare_cached(&format!("SELECT count(*) FROM audit WHERE {FITS}"))?
        .query_row(params![actor, kind], |row| row.get(0))?;
    let mut statement = c.prepare_cached(&format!(
        "SELECT * FROM audit WHERE {FITS} ORDER BY id DESC LIMIT ?3 OFFSET ?4"
    ))?;
    let found = statement.query_map(params![actor, kind, limit, rows::signed(offset)], read)?;
    Ok((
        found.collect::<Result<_, _>>()?,
        u64::try_from(total).unwrap_or(0),
    ))
}

fn read(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        id: rows::unsigned(row, "id")?,
        at: EpochMillis(row.get("at")?),
        kind: row.get("kind")?,
        actor: row.get("actor")?,
        address: row.get("address")?,
        target: row.get("target")?,
        outcome: row.get("outcome")?,
        detail: rows::json(row, "detail")?,
    })
}
