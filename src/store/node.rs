//! A node's tables: executions with their output, answered commands, what scripts keep, and the
//! few numbers that outlive a process.
//!
//! Rows are plain texts and numbers; the JSON in them belongs to the caller. Times are milliseconds
//! since the Unix epoch, passed in. Each method is one transaction and answers when it is on disk;
//! the `_blocking` ones are for threads that may block.

pub mod commands;
pub mod executions;
pub mod kv;
mod meta;

use std::path::Path;

use super::{Migration, Store, StoreError};
use commands::CommandState;
use executions::{ExecutionFilter, ExecutionPage, ExecutionRow, LogRow};

const MIGRATIONS: &[Migration] = &["CREATE TABLE execution (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        status TEXT NOT NULL,
        agent TEXT NOT NULL,
        script TEXT,
        origin TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        finished_at INTEGER,
        json TEXT NOT NULL
    ) STRICT;
    CREATE INDEX execution_status ON execution (status, number);
    CREATE INDEX execution_unfinished ON execution (number) WHERE finished_at IS NULL;
    CREATE TABLE execution_line (
        execution TEXT NOT NULL REFERENCES execution (id) ON DELETE CASCADE,
        line INTEGER NOT NULL,
        at INTEGER NOT NULL,
        stream TEXT NOT NULL,
        level TEXT NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (execution, line)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE command (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        execution TEXT,
        answer TEXT
    ) STRICT;
    CREATE INDEX command_unanswered ON command (number) WHERE answer IS NULL;
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE kv_text (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE kv_hash (
        key TEXT NOT NULL,
        field TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (key, field)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE kv_list (
        key TEXT NOT NULL,
        position INTEGER NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (key, position)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE kv_expiry (
        key TEXT NOT NULL,
        kind TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        PRIMARY KEY (key, kind)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX kv_expiry_time ON kv_expiry (expires_at);"];

/// The node's database; clones share it. Errors of every method: `StoreError`.
#[derive(Clone)]
pub struct NodeStore {
    store: Store,
}

/// Declares, for a function over the connection, the method that awaits it and the one that blocks.
macro_rules! methods {
    ($($(#[$doc:meta])+ $name:ident, $blocking:ident ($($arg:ident: $type:ty),*) -> $reply:ty = $function:path;)+) => {
        impl NodeStore {$(
            $(#[$doc])+
            pub async fn $name(&self, $($arg: $type),*) -> Result<$reply, StoreError> {
                self.store.call(move |connection| $function(connection, $($arg),*)).await
            }

            $(#[$doc])+
            ///
            /// Blocks.
            pub fn $blocking(&self, $($arg: $type),*) -> Result<$reply, StoreError> {
                self.store.call_blocking(move |connection| $function(connection, $($arg),*))
            }
        )+}
    };
}

impl NodeStore {
    /// Opens or creates the database and lifts its schema. Blocks.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let store = Store::open(path, MIGRATIONS)?;
        Ok(Self { store })
    }
}

methods! {
    /// Adds an execution. With a command id that is new, that command now leads to it; with one
    /// that is known nothing is added, and its state is answered.
    insert_execution, insert_execution_blocking(row: ExecutionRow, command_id: Option<String>) -> CommandState = executions::insert;
    /// Replaces an execution's row; answers whether there was one.
    update_execution, update_execution_blocking(row: ExecutionRow) -> bool = executions::update;
    /// Reads an execution.
    execution, execution_blocking(id: String) -> Option<ExecutionRow> = executions::get;
    /// Lists executions, newest first: `limit` of them after `offset`.
    executions, executions_blocking(filter: ExecutionFilter, offset: u64, limit: u32) -> ExecutionPage = executions::list;
    /// Every execution without an end, oldest first.
    unfinished_executions, unfinished_executions_blocking() -> Vec<ExecutionRow> = executions::unfinished;
    /// Deletes the oldest finished executions beyond `keep`, with their output; answers their ids.
    prune_executions, prune_executions_blocking(keep: usize) -> Vec<String> = executions::prune;
    /// Adds lines of output; a line number that is there already is an error.
    append_lines, append_lines_blocking(execution_id: String, lines: Vec<LogRow>) -> () = executions::append_lines;
    /// Reads lines of output from number `offset` on, at most `limit`.
    lines, lines_blocking(execution_id: String, offset: u64, limit: u32) -> Vec<LogRow> = executions::lines;
    /// How many lines of output an execution has.
    line_count, line_count_blocking(execution_id: String) -> u64 = executions::line_count;

    /// Notes that a command is being worked on, or answers what became of it before.
    begin_command, begin_command_blocking(id: String) -> CommandState = commands::begin;
    /// Records a command's answer (JSON) and forgets the oldest beyond the limit.
    answer_command, answer_command_blocking(id: String, answer: String) -> () = commands::answer;
    /// Gives every command that has neither answer nor execution this one, at start; answers how
    /// many there were.
    abandon_commands, abandon_commands_blocking(answer: String) -> usize = commands::abandon;

    /// The epoch of the last registration at the server; 0 before the first.
    epoch, epoch_blocking() -> u64 = meta::epoch;
    /// Records the epoch.
    set_epoch, set_epoch_blocking(epoch: u64) -> () = meta::set_epoch;
    /// The journal sequence that the server has acknowledged; 0 before the first.
    acked_seq, acked_seq_blocking() -> u64 = meta::acked_seq;
    /// Records the acknowledged sequence; a lower one than before changes nothing.
    set_acked_seq, set_acked_seq_blocking(seq: u64) -> () = meta::set_acked_seq;
}

/// SQLite's integers are signed; what we count never reaches the sign.
fn signed(what: &'static str, number: u64) -> Result<i64, StoreError> {
    i64::try_from(number).map_err(|error| StoreError::Corrupt {
        what,
        why: error.to_string(),
    })
}

fn unsigned(what: &'static str, number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|error| StoreError::Corrupt {
        what,
        why: error.to_string(),
    })
}

#[cfg(test)]
fn temporary() -> (tempfile::TempDir, NodeStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = NodeStore::open(&dir.path().join("node.db")).unwrap();
    (dir, store)
}
