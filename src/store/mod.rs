//! SQLite: connection and migrations, one file per table family. No other module sees SQL.
//!
//! One thread owns the connection. Jobs queue to it (bounded, the caller waits) and are committed in
//! groups: each job runs in its own savepoint, the group in one transaction, and no job is answered
//! before its group is on disk.
//!
//! Invariants: names only `base`; a job that fails leaves nothing of itself behind; a database of a
//! newer version is refused, never opened.

pub mod accounts;
pub mod agents;
pub mod audit;
pub mod executions;
pub mod node;
mod rows;
pub mod server;
pub mod terminals;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// What a job works on; only the functions of this module know what to do with it.
pub use rusqlite::Connection;

use crate::base::limits;

/// Why the database did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("open the database {path}: {source}")]
    Open {
        path: PathBuf,
        source: rusqlite::Error,
    },
    /// Written by a newer version of this program.
    #[error("the database {path} has schema version {found}, this program knows up to {known}")]
    TooNew {
        path: PathBuf,
        found: usize,
        known: usize,
    },
    #[error("the disk is full")]
    Full,
    #[error("database: {0}")]
    Sql(rusqlite::Error),
    /// A stored value is not one that this program writes.
    #[error("the database holds an unreadable {what}: {why}")]
    Corrupt { what: &'static str, why: String },
    #[error("the database is closed")]
    Closed,
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::Full,
            _ => Self::Sql(error),
        }
    }
}

/// SQL that lifts the schema by one version; its place in the list is the version.
pub type Migration = &'static str;

type Job = Box<dyn FnOnce(&Connection) -> Commit + Send>;
/// What a job leaves behind: its answer, sent once the group is on disk (or has failed).
struct Commit {
    keep: bool,
    answer: Box<dyn FnOnce(Option<StoreError>) + Send>,
}

/// A database with its thread. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the thread was answered to its callers as `Closed` already.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Opens or creates the database (mode 0600 in a folder of the user's own) and lifts its schema.
    pub fn open(path: &Path, migrations: &'static [Migration]) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Open {
            path: path.to_owned(),
            source,
        };
        let connection = Connection::open(path).map_err(failed)?;
        connection
            .pragma_update(None, "journal_mode", "WAL")
            .map_err(failed)?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(failed)?;
        connection
            .pragma_update(None, "foreign_keys", true)
            .map_err(failed)?;
        // Pages held in memory, in KiB when negative: a node's tables are small.
        connection
            .pragma_update(None, "cache_size", -1024)
            .map_err(failed)?;
        migrate(&connection, path, migrations)?;
        let (jobs, queue) = sync_channel(limits::STORE_QUEUE_LEN_MAX);
        let thread = std::thread::Builder::new()
            .name("store".into())
            .spawn(move || serve(&connection, &queue))
            .map_err(|error| StoreError::Corrupt {
                what: "thread",
                why: error.to_string(),
            })?;
        Ok(Self {
            inner: Arc::new(Inner {
                jobs: Some(jobs),
                thread: Some(thread),
            }),
        })
    }

    /// Runs a job and waits until it is on disk; an error undoes what the job did.
    pub async fn call<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, outcome) = tokio::sync::oneshot::channel();
        let job = boxed(job, move |result| drop(answer.send(result)));
        let inner = Arc::clone(&self.inner);
        // The queue is bounded and its sender blocks, so a full queue waits off the async threads.
        let queued = match inner.sender()?.try_send(job) {
            Ok(()) => Ok(()),
            Err(std::sync::mpsc::TrySendError::Full(job)) => {
                let waiting = Arc::clone(&inner);
                tokio::task::spawn_blocking(move || {
                    waiting.sender()?.send(job).map_err(|_| StoreError::Closed)
                })
                .await
                .map_err(|_| StoreError::Closed)?
            }
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => Err(StoreError::Closed),
        };
        queued?;
        outcome.await.map_err(|_| StoreError::Closed)?
    }

    /// The same for threads that may block.
    pub fn call_blocking<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, outcome) = sync_channel(1);
        let job = boxed(job, move |result| drop(answer.send(result)));
        self.inner
            .sender()?
            .send(job)
            .map_err(|_| StoreError::Closed)?;
        outcome.recv().map_err(|_| StoreError::Closed)?
    }
}

impl Inner {
    fn sender(&self) -> Result<&SyncSender<Job>, StoreError> {
        self.jobs.as_ref().ok_or(StoreError::Closed)
    }
}

fn boxed<T, F, A>(job: F, answer: A) -> Job
where
    T: Send + 'static,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    A: FnOnce(Result<T, StoreError>) + Send + 'static,
{
    Box::new(move |connection| {
        let result = job(connection);
        Commit {
            keep: result.is_ok(),
            answer: Box::new(move |group_error| match group_error {
                Some(error) => answer(Err(error)),
                None => answer(result),
            }),
        }
    })
}

fn serve(connection: &Connection, queue: &Receiver<Job>) {
    while let Ok(first) = queue.recv() {
        let mut group = vec![first];
        while group.len() < limits::STORE_GROUP_LEN_MAX {
            match queue.try_recv() {
                Ok(job) => group.push(job),
                Err(_) => break,
            }
        }
        commit_group(connection, group);
    }
}

fn commit_group(connection: &Connection, group: Vec<Job>) {
    let mut commits = Vec::with_capacity(group.len());
    let mut outcome = connection.execute_batch("BEGIN IMMEDIATE");
    if outcome.is_ok() {
        for job in group {
            let savepoint = connection.execute_batch("SAVEPOINT job");
            let commit = job(connection);
            let end = if commit.keep {
                "RELEASE job"
            } else {
                "ROLLBACK TO job; RELEASE job"
            };
            outcome = outcome.and(savepoint).and(connection.execute_batch(end));
            commits.push(commit);
        }
        outcome = outcome.and_then(|()| connection.execute_batch("COMMIT"));
        if outcome.is_err() && !connection.is_autocommit() {
            // The group's own error is the one to report; a failed rollback ends with the connection.
            let _ = connection.execute_batch("ROLLBACK");
        }
    }
    let error = outcome.err();
    for commit in commits {
        (commit.answer)(error.as_ref().map(copy_error));
    }
}

fn copy_error(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => StoreError::Full,
        _ => StoreError::Corrupt {
            what: "transaction",
            why: error.to_string(),
        },
    }
}

fn migrate(
    connection: &Connection,
    path: &Path,
    migrations: &'static [Migration],
) -> Result<(), StoreError> {
    let found: usize = connection
        .pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))
        .map(|version| usize::try_from(version).unwrap_or(usize::MAX))
        .map_err(|source| StoreError::Open {
            path: path.to_owned(),
            source,
        })?;
    if found > migrations.len() {
        return Err(StoreError::TooNew {
            path: path.to_owned(),
            found,
            known: migrations.len(),
        });
    }
    for (index, sql) in migrations.iter().enumerate().skip(found) {
        let version = index + 1;
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {version}; COMMIT;"
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIGRATIONS: &[Migration] = &[
        "CREATE TABLE t (a INTEGER)",
        "ALTER TABLE t ADD COLUMN b TEXT",
    ];

    fn count(store: &Store) -> i64 {
        store
            .call_blocking(|c| Ok(c.query_row("SELECT count(*) FROM t", [], |r| r.get(0))?))
            .unwrap()
    }

    #[test]
    fn failed_job_leaves_nothing_and_others_stand() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("x.db"), MIGRATIONS).unwrap();
        let failed = store.call_blocking(|c| {
            c.execute("INSERT INTO t (a) VALUES (1)", [])?;
            c.execute("INSERT INTO nowhere VALUES (1)", [])?;
            Ok(())
        });
        assert!(failed.is_err());
        assert_eq!(count(&store), 0);
        store
            .call_blocking(|c| Ok(c.execute("INSERT INTO t (a) VALUES (1)", [])?))
            .unwrap();
        assert_eq!(count(&store), 1);
    }

    #[tokio::test]
    async fn many_callers_are_all_answered() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("x.db"), MIGRATIONS).unwrap();
        let calls = (0..500).map(|n| {
            let store = store.clone();
            tokio::spawn(async move {
                store
                    .call(move |c| Ok(c.execute("INSERT INTO t (a) VALUES (?1)", [n])?))
                    .await
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.unwrap().unwrap();
        }
        assert_eq!(count(&store), 500);
    }

    #[test]
    fn newer_database_is_refused_and_older_is_lifted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        drop(Store::open(&path, &MIGRATIONS[..1]).unwrap());
        drop(Store::open(&path, MIGRATIONS).unwrap());
        assert!(matches!(
            Store::open(&path, &MIGRATIONS[..1]),
            Err(StoreError::TooNew {
                found: 2,
                known: 1,
                ..
            })
        ));
    }
}
