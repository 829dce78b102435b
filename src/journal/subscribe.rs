//! What `events.drain` reads: one cursor per local connection over durable and volatile events.
//!
//! Durable events stay in the journal; a cursor is their next sequence. Volatile ones are counted
//! and kept in one shared, bounded buffer; each remembers how far the journal was when it came, which
//! gives the order of arrival. A number missing from the buffer is an event that was dropped.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Shared;
use crate::base::EpochMillis;
use crate::base::limits::{VOLATILE_EVENTS_BYTES_MAX, VOLATILE_EVENTS_LEN_MAX};
use crate::wire::event::{Draft, Record, name};
use crate::wire::messages::events::{DrainReply, DrainedEvent};
use crate::wire::{Code, Fault};

/// A volatile event in the buffer.
#[derive(Clone)]
struct Event {
    /// Counts volatile events from 0; not a sequence.
    number: u64,
    /// The sequence that the journal would have given next when it came.
    before_seq: u64,
    event_type: String,
    /// JSON text, so that its size is known.
    payload: String,
    timestamp: EpochMillis,
}

/// The shared buffer; empty while nobody subscribes.
#[derive(Default)]
pub(super) struct Volatile {
    events: VecDeque<Event>,
    bytes: usize,
    next_number: u64,
    subscribers: usize,
}

impl Volatile {
    fn push(&mut self, event: Event) {
        self.next_number += 1;
        if event.payload.len() > VOLATILE_EVENTS_BYTES_MAX {
            // Its number is missing now, which is how readers learn of it.
            return;
        }
        self.bytes += event.payload.len();
        self.events.push_back(event);
        while self.events.len() > VOLATILE_EVENTS_LEN_MAX || self.bytes > VOLATILE_EVENTS_BYTES_MAX
        {
            self.drop_one();
        }
    }

    /// The oldest `log.line` goes first, then the oldest of all.
    fn drop_one(&mut self) {
        let line = self
            .events
            .iter()
            .position(|event| event.event_type == name::LOG_LINE);
        if let Some(event) = self.events.remove(line.unwrap_or(0)) {
            self.bytes -= event.payload.len();
        }
    }

    /// Up to `max` events from `number` on, and how many there are.
    fn from(&self, number: u64, max: usize) -> (VecDeque<Event>, usize) {
        let at = self.events.partition_point(|event| event.number < number);
        let found = self.events.range(at..).take(max).cloned().collect();
        (found, self.events.len() - at)
    }
}

impl Shared {
    pub(super) fn publish_volatile(&self, draft: Draft) {
        let timestamp = draft.observed_at.unwrap_or_else(EpochMillis::now);
        let payload = draft.payload.to_string();
        let before_seq = self.index().next_seq();
        let mut volatile = self.volatile();
        if volatile.subscribers == 0 {
            return;
        }
        let number = volatile.next_number;
        volatile.push(Event {
            number,
            before_seq,
            event_type: draft.event_type,
            payload,
            timestamp,
        });
    }
}

/// One reader of durable and volatile events. Its state is two numbers; the events are shared.
pub struct Subscriber {
    shared: Arc<Shared>,
    next_seq: u64,
    next_number: u64,
}

impl Subscriber {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let index = shared.index();
        let mut volatile = shared.volatile();
        volatile.subscribers += 1;
        let (next_seq, next_number) = (index.next_seq(), volatile.next_number);
        drop((volatile, index));
        Self {
            shared,
            next_seq,
            next_number,
        }
    }

    /// Takes up to `max` events in order of arrival; never waits for new ones, but reads the disk
    /// when this reader is far behind.
    ///
    /// Durable events that retention deleted and volatile ones that were dropped are counted in
    /// `dropped`. Errors: `journal_corrupt`, `storage_failed`; the cursor then stays.
    pub fn drain(&mut self, max: usize) -> Result<DrainReply, Fault> {
        let (range, volatile, volatile_ready, volatile_end) = {
            let index = self.shared.index();
            let volatile = self.shared.volatile();
            let (found, ready) = volatile.from(self.next_number, max);
            (index.range(), found, ready, volatile.next_number)
        };
        let mut reply = DrainReply::default();
        if self.next_seq < range.first_seq {
            reply.dropped += range.first_seq - self.next_seq;
            self.next_seq = range.first_seq;
        }
        // Not beyond what was there a moment ago, lest a record overtake a volatile event.
        let there = usize::try_from(range.next_seq - self.next_seq).unwrap_or(max);
        let records = match self.shared.read(self.next_seq, max.min(there)) {
            Ok(records) => records,
            // Retention passed by just now; the next drain counts what it took.
            Err(fault) if fault.code == Code::CursorExpired => Vec::new(),
            Err(fault) => return Err(fault),
        };
        let volatile_taken = self.merge(records, volatile, max, &mut reply);
        if volatile_taken == volatile_ready {
            // All that is left was handed out; numbers up to the end that were not are gone.
            reply.dropped += volatile_end - self.next_number;
            self.next_number = volatile_end;
        }
        reply.remaining =
            range.next_seq.saturating_sub(self.next_seq) + (volatile_ready - volatile_taken) as u64;
        Ok(reply)
    }

    /// Hands out in order of arrival; answers how many volatile events went.
    fn merge(
        &mut self,
        records: Vec<Record>,
        mut volatile: VecDeque<Event>,
        max: usize,
        reply: &mut DrainReply,
    ) -> usize {
        let mut records = VecDeque::from(records);
        let mut volatile_taken = 0;
        while reply.events.len() < max {
            let volatile_next = volatile
                .front()
                .is_some_and(|event| event.before_seq <= self.next_seq);
            if volatile_next && let Some(event) = volatile.pop_front() {
                reply.dropped += event.number - self.next_number;
                self.next_number = event.number + 1;
                volatile_taken += 1;
                reply.events.push(drained(event));
            } else if let Some(record) = records.pop_front() {
                self.next_seq = record.sequence + 1;
                reply.events.push(DrainedEvent {
                    method: record.event_type,
                    payload: record.payload,
                    timestamp: record.observed_at,
                    seq: Some(record.sequence),
                });
            } else {
                break;
            }
        }
        volatile_taken
    }
}

fn drained(event: Event) -> DrainedEvent {
    DrainedEvent {
        method: event.event_type,
        // INVARIANT: the text was written by serde_json from a value (`publish_volatile`).
        payload: serde_json::from_str(&event.payload).unwrap_or_default(),
        timestamp: event.timestamp,
        seq: None,
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut volatile = self.shared.volatile();
        volatile.subscribers -= 1;
        if volatile.subscribers == 0 {
            volatile.events.clear();
            volatile.bytes = 0;
        }
    }
}
