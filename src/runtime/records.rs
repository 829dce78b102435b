//! Executions as records in the node's database.
//!
//! The row's `finished_at` column is set when the end has been announced in the journal, not when the
//! run ended: so what a crash left between the two is found again at the next start.

use crate::base::EpochMillis;
use crate::base::ids::{CommandId, ExecutionId};
use crate::base::limits;
use crate::store::StoreError;
use crate::store::node::NodeStore;
use crate::store::node::commands::CommandState;
use crate::store::node::executions::{ExecutionFilter, ExecutionRow, LogRow};
use crate::wire::messages::executions::{
    Execution, ListParams, ListReply, LogLine, RunOrigin, Stream,
};
use crate::wire::{Code, Fault};

/// What became of an insert.
pub enum Inserted {
    New,
    /// The command or execution id was known.
    Existing(Box<Execution>),
}

/// The records of one node.
#[derive(Clone)]
pub struct Records {
    store: NodeStore,
}

/// Whether the journal knows of an execution's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Announced {
    Yes,
    No,
}

impl Records {
    pub fn new(store: NodeStore) -> Self {
        Self { store }
    }

    /// Adds a record, unless its command or its own id is known.
    pub async fn insert(
        &self,
        record: &Execution,
        command_id: Option<&CommandId>,
    ) -> Result<Inserted, Fault> {
        if let Some(known) = self.get(&record.execution_id).await? {
            return Ok(Inserted::Existing(Box::new(known)));
        }
        let command = command_id.map(ToString::to_string);
        let row = to_row(record, Announced::No)?;
        match self
            .store
            .insert_execution(row, command)
            .await
            .map_err(fault)?
        {
            CommandState::New | CommandState::Begun => Ok(Inserted::New),
            CommandState::Execution(id) => {
                let known = self.store.execution(id).await.map_err(fault)?;
                let known = known.ok_or_else(|| {
                    Fault::new(
                        Code::ExecutionNotFound,
                        "the command's execution is no longer kept",
                    )
                })?;
                Ok(Inserted::Existing(Box::new(from_row(&known)?)))
            }
            CommandState::Answered(_) => Err(Fault::new(
                Code::Conflict,
                "the command id was used by a call of another kind",
            )),
        }
    }

    /// Replaces a record; its end still has to be announced.
    pub async fn update(&self, record: &Execution) -> Result<(), Fault> {
        self.replace(record, Announced::No).await
    }

    /// Notes that the journal knows the record's end.
    pub async fn mark_announced(&self, record: &Execution) -> Result<(), Fault> {
        self.replace(record, Announced::Yes).await
    }

    async fn replace(&self, record: &Execution, announced: Announced) -> Result<(), Fault> {
        let row = to_row(record, announced)?;
        if self.store.update_execution(row).await.map_err(fault)? {
            return Ok(());
        }
        Err(Fault::new(
            Code::ExecutionNotFound,
            format!("no record of execution {}", record.execution_id),
        ))
    }

    pub async fn get(&self, id: &ExecutionId) -> Result<Option<Execution>, Fault> {
        let row = self.store.execution(id.to_string()).await.map_err(fault)?;
        row.as_ref().map(from_row).transpose()
    }

    pub async fn list(&self, params: &ListParams) -> Result<ListReply, Fault> {
        let size = params.page_size.unwrap_or(limits::PAGE_SIZE_DEFAULT);
        let size = size.clamp(1, limits::PAGE_SIZE_MAX);
        let page = u64::from(params.page.unwrap_or(1).max(1));
        let filter = ExecutionFilter {
            status: params.status.map(|status| status.as_str().to_owned()),
            agent_id: params.agent_id.as_ref().map(ToString::to_string),
            script_id: params.script_id.clone(),
            origin: params.origin.map(|origin| origin_text(origin).to_owned()),
        };
        let found = self
            .store
            .executions(filter, (page - 1) * u64::from(size), size)
            .await;
        let found = found.map_err(fault)?;
        let items = found.rows.iter().map(from_row).collect::<Result<_, _>>()?;
        Ok(ListReply {
            items,
            total: found.total,
        })
    }

    /// Records whose end is not in the journal, oldest first: unfinished ones, and those that ended
    /// just before a crash.
    pub async fn unannounced(&self) -> Result<Vec<Execution>, Fault> {
        let rows = self.store.unfinished_executions().await.map_err(fault)?;
        rows.iter().map(from_row).collect()
    }

    /// Deletes the oldest finished records beyond `keep`; answers their ids.
    pub async fn prune(&self, keep: usize) -> Result<Vec<ExecutionId>, Fault> {
        let ids = self.store.prune_executions(keep).await.map_err(fault)?;
        let parse = |id: String| ExecutionId::parse(id).map_err(|error| corrupt("id", error));
        ids.into_iter().map(parse).collect()
    }

    pub async fn append_lines(&self, id: &ExecutionId, lines: &[LogLine]) -> Result<(), Fault> {
        let rows = lines
            .iter()
            .map(|line| LogRow {
                line: line.index,
                at: line.at.0,
                stream: stream_text(line.stream).to_owned(),
                level: line.level.clone(),
                text: line.text.clone(),
            })
            .collect();
        self.store
            .append_lines(id.to_string(), rows)
            .await
            .map_err(fault)
    }

    /// Lines from `offset` on, and how many there are in all.
    pub async fn lines(
        &self,
        id: &ExecutionId,
        offset: u64,
        limit: u32,
    ) -> Result<(Vec<LogLine>, u64), Fault> {
        let rows = self
            .store
            .lines(id.to_string(), offset, limit)
            .await
            .map_err(fault)?;
        let total = self.store.line_count(id.to_string()).await.map_err(fault)?;
        let lines = rows.into_iter().map(to_line).collect::<Result<_, _>>()?;
        Ok((lines, total))
    }
}

fn to_line(row: LogRow) -> Result<LogLine, Fault> {
    let stream = match row.stream.as_str() {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        other => return Err(corrupt("stream", other)),
    };
    Ok(LogLine {
        index: row.line,
        at: EpochMillis(row.at),
        stream,
        level: row.level,
        text: row.text,
    })
}

fn to_row(record: &Execution, announced: Announced) -> Result<ExecutionRow, Fault> {
    let json = serde_json::to_string(record)
        .map_err(|error| Fault::internal(format!("encode an execution: {error}")))?;
    Ok(ExecutionRow {
        execution_id: record.execution_id.to_string(),
        status: record.status.as_str().to_owned(),
        agent_id: record.agent_id.to_string(),
        script_id: record.script_id.clone(),
        origin: origin_text(record.origin).to_owned(),
        created_at: record.created_at.0,
        finished_at: record
            .finished_at
            .filter(|_| announced == Announced::Yes)
            .map(|at| at.0),
        json,
    })
}

fn from_row(row: &ExecutionRow) -> Result<Execution, Fault> {
    serde_json::from_str(&row.json).map_err(|error| corrupt("execution", error))
}

fn origin_text(origin: RunOrigin) -> &'static str {
    match origin {
        RunOrigin::Server => "server",
        RunOrigin::Local => "local",
    }
}

fn stream_text(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

fn corrupt(what: &'static str, why: impl std::fmt::Display) -> Fault {
    fault(StoreError::Corrupt {
        what,
        why: why.to_string(),
    })
}

/// A database error as a fault.
pub(super) fn fault(error: StoreError) -> Fault {
    let code = match &error {
        StoreError::Full => Code::StorageFull,
        _ => Code::StorageFailed,
    };
    Fault::new(code, error.to_string())
}
