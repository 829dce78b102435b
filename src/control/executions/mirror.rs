//! Copies of the workstations' events in the server's own journal, each once.
//!
//! A copy is written before the cursor moves. A crash between the two makes the workstation send
//! those records again; the highest sequence that the end of our journal holds for each agent tells
//! which of them stand there already.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::Executions;
use crate::base::ids::AgentId;
use crate::journal::Journal;
use crate::store::executions as table;
use crate::wire::event::{Draft, Record, name};
use crate::wire::{Code, Fault};

/// Records read back at start. One batch of each of many agents fits in it.
const TAIL_LEN: u64 = 8_192;
const AGENT: &str = "agentId";
const SEQUENCE: &str = "agentSequence";

/// The highest sequence of each agent in the end of the journal. Blocks on the disk.
pub fn high_water(journal: &Journal) -> HashMap<AgentId, u64> {
    let mut found = HashMap::new();
    let range = journal.range();
    let mut next = range
        .first_seq
        .max(range.next_seq.saturating_sub(TAIL_LEN))
        .max(1);
    while next < range.next_seq {
        let records = match journal.read(next, 512) {
            Ok(records) if !records.is_empty() => records,
            Ok(_) => break,
            Err(fault) => {
                tracing::error!(error = %fault, "read the journal's end");
                break;
            }
        };
        for record in records {
            next = record.sequence + 1;
            let agent = record.payload[AGENT].as_str().map(AgentId::parse);
            if let (Some(Ok(agent)), Some(sequence)) = (agent, record.payload[SEQUENCE].as_u64()) {
                let highest = found.entry(agent).or_insert(0);
                *highest = sequence.max(*highest);
            }
        }
    }
    found
}

impl Executions {
    /// Copies records and waits until the copies are on disk.
    pub(super) async fn mirror(&self, agent: &AgentId, records: &[Record]) -> Result<(), Fault> {
        let from = self.presence().mirrored.get(agent).copied().unwrap_or(0);
        let mut waiting = Vec::with_capacity(records.len());
        let mut last = from;
        for record in records.iter().filter(|record| record.sequence > from) {
            last = record.sequence;
            if self.is_told_already(record).await? {
                continue;
            }
            if let Some(draft) = copy(agent, record) {
                waiting.push((record, self.journal.append(draft)));
            }
        }
        for (record, append) in waiting {
            match append.await {
                Ok(_) => {}
                // The fields that name the agent took it over the limit: what happened is still told.
                Err(fault) if fault.code == Code::EventTooLarge => {
                    let short = json!({AGENT: agent, SEQUENCE: record.sequence, "cut": true});
                    let draft = Draft {
                        payload: short,
                        ..Draft::new(&record.event_type, Value::Null)
                    };
                    self.journal.append(draft).await?;
                }
                Err(fault) => return Err(fault),
            }
        }
        self.presence().mirrored.insert(agent.clone(), last);
        Ok(())
    }

    /// The creation of a run that this server issued was told when it was issued.
    async fn is_told_already(&self, record: &Record) -> Result<bool, Fault> {
        let id = record.payload["execution"]["executionId"].as_str();
        let id = id.and_then(|id| id.parse().ok());
        let (true, Some(id)) = (record.event_type == name::EXECUTION_CREATED, id) else {
            return Ok(false);
        };
        let row = self.store.call(move |c| table::get(c, &id)).await;
        Ok(row.map_err(super::stored)?.is_some())
    }
}

/// A record as our journal tells it; `None` for the types that are this server's own.
fn copy(agent: &AgentId, record: &Record) -> Option<Draft> {
    if record.stream == "agents" || record.event_type.starts_with("agent.") {
        tracing::warn!(agent = %agent, event = record.event_type,
            "event of the server's own kind from a workstation is dropped");
        return None;
    }
    let mut payload = match &record.payload {
        Value::Object(fields) => fields.clone(),
        other => Map::from_iter([("value".to_owned(), other.clone())]),
    };
    payload.insert(AGENT.into(), agent.as_str().into());
    payload.insert(SEQUENCE.into(), record.sequence.into());
    Some(Draft {
        event_type: record.event_type.clone(),
        stream: record.stream.clone(),
        observed_at: Some(record.observed_at),
        session_id: record.session_id.clone(),
        source: Some(record.source.clone()),
        foreground: record.foreground.clone(),
        correlation_id: record.correlation_id.clone(),
        causation_id: record.causation_id.clone(),
        payload: Value::Object(payload),
        artifacts: record.artifacts.clone(),
    })
}
