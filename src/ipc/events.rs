//! `events.drain` and `events.follow` on one connection: two cursors over the node's journal.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::base::limits;
use crate::journal::{Follower, Journal, Subscriber};
use crate::wire::envelope::Envelope;
use crate::wire::event::Record;
use crate::wire::messages::events::{DrainParams, FollowParams, FollowReply};
use crate::wire::{Answer, BoxFuture, Code, Fault};

/// Ends a stream of events; the payload says where it stopped and, after a failure, why.
pub(super) const STREAM_END: &str = "events.end";

/// The drain cursor of a connection. The lock is taken on a blocking thread alone.
pub(super) struct Drain(Arc<Mutex<Subscriber>>);

impl Drain {
    pub fn new(journal: &Journal) -> Self {
        Self(Arc::new(Mutex::new(journal.subscribe())))
    }

    /// Takes the events that are ready; `max` is cut to the limit.
    pub fn take(&self, params: DrainParams) -> BoxFuture<Result<Answer, Fault>> {
        let subscriber = Arc::clone(&self.0);
        let max = params
            .max
            .map_or(limits::EVENTS_DRAIN_DEFAULT, |max| max as usize)
            .min(limits::EVENTS_DRAIN_MAX);
        Box::pin(async move {
            let drained = tokio::task::spawn_blocking(move || {
                let mut subscriber = subscriber.lock().unwrap_or_else(PoisonError::into_inner);
                subscriber.drain(max)
            });
            let reply = drained
                .await
                .map_err(|error| Fault::internal(format!("drain events: {error}")))??;
            Answer::of(&reply)
        })
    }
}

/// A running `events.follow`.
///
/// ```text
/// searching (tail of one type: the last fitting records are gathered) → sending → ended
/// ```
pub(super) struct Follow {
    follower: Follower,
    prefix: String,
    /// The stream ends before this sequence; absent: it goes on.
    until_seq: Option<u64>,
    search: Option<Search>,
    found: VecDeque<Record>,
}

/// Looks for the last fitting records before the stream's beginning.
struct Search {
    until_seq: u64,
    wanted: usize,
}

impl Follow {
    /// Finds where the stream starts. Errors: `cursor_expired`, `cursor_invalid`.
    pub fn start(journal: &Journal, params: FollowParams) -> Result<(Self, FollowReply), Fault> {
        let range = journal.range();
        let prefix = params.prefix.unwrap_or_default();
        let before_end = |records: u64| range.next_seq.saturating_sub(records).max(range.first_seq);
        let mut search = None;
        let from = match (params.after, params.tail) {
            (Some(first), _) => first,
            (None, Some(tail)) if tail > 0 && !prefix.is_empty() => {
                search = Some(Search {
                    until_seq: range.next_seq,
                    wanted: usize::try_from(tail)
                        .unwrap_or(usize::MAX)
                        .min(limits::EVENTS_DRAIN_MAX),
                });
                before_end(limits::EVENTS_TAIL_SEARCH_MAX)
            }
            (None, Some(tail)) => before_end(tail),
            (None, None) => range.next_seq,
        };
        let follow = Self {
            follower: journal.follow(from)?,
            prefix,
            until_seq: (!params.follow).then_some(range.next_seq),
            search,
            found: VecDeque::new(),
        };
        Ok((follow, FollowReply { next_seq: from }))
    }

    /// The next envelope of the stream; the second part tells whether the stream has ended with it.
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> (Envelope, bool) {
        if let Err(fault) = self.search().await {
            return (end(self.follower.next_seq(), Some(&fault)), true);
        }
        if let Some(record) = self.found.pop_front() {
            return (event(&record), false);
        }
        loop {
            let next_seq = self.follower.next_seq();
            if self.until_seq.is_some_and(|until| next_seq >= until) {
                return (end(next_seq, None), true);
            }
            match self.follower.next().await {
                Ok(record) if record.event_type.starts_with(&self.prefix) => {
                    return (event(&record), false);
                }
                Ok(_) => {}
                Err(fault) => return (end(self.follower.next_seq(), Some(&fault)), true),
            }
        }
    }

    async fn search(&mut self) -> Result<(), Fault> {
        while let Some(search) = &self.search {
            if self.follower.next_seq() >= search.until_seq {
                self.search = None;
                break;
            }
            let record = self.follower.next().await?;
            if record.event_type.starts_with(&self.prefix) {
                if self.found.len() >= search.wanted {
                    self.found.pop_front();
                }
                self.found.push_back(record);
            }
        }
        Ok(())
    }
}

fn event(record: &Record) -> Envelope {
    match serde_json::to_value(record) {
        Ok(payload) => Envelope::event(&record.event_type, payload),
        Err(error) => {
            let fault = Fault::new(Code::Internal, format!("encode an event: {error}"));
            end(record.sequence, Some(&fault))
        }
    }
}

fn end(next_seq: u64, fault: Option<&Fault>) -> Envelope {
    let mut payload = json!({"nextSeq": next_seq});
    if let (Some(fault), Value::Object(fields)) = (fault, &mut payload) {
        fields.insert("code".to_owned(), fault.code_text().into());
        fields.insert("error".to_owned(), fault.message.as_ref().into());
    }
    Envelope::event(STREAM_END, payload)
}
