//! Following the journal: every record from a cursor on, then each new one as it is committed.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Progress, Shared, closed};
use crate::base::limits::JOURNAL_FOLLOW_RECORDS_MAX;
use crate::wire::Fault;
use crate::wire::event::Record;

/// A cursor that waits for what is not there yet.
pub struct Follower {
    shared: Arc<Shared>,
    progress: watch::Receiver<Progress>,
    /// The sequence after the last one handed out.
    next_seq: u64,
    ready: VecDeque<Record>,
}

impl Follower {
    pub(super) fn new(shared: Arc<Shared>, next_seq: u64) -> Self {
        Self {
            progress: shared.progress.subscribe(),
            shared,
            next_seq,
            ready: VecDeque::new(),
        }
    }

    /// The sequence that `next` answers next.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The next record; waits for it. Dropping the future loses nothing.
    ///
    /// Needs a tokio runtime. Errors: `cursor_expired` when retention has overtaken this follower,
    /// `storage_failed` once the journal is closed and all was handed out, and those of `read`.
    pub async fn next(&mut self) -> Result<Record, Fault> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                self.next_seq = record.sequence + 1;
                return Ok(record);
            }
            let progress = *self.progress.borrow_and_update();
            if self.next_seq < progress.next_seq {
                self.ready = self.load().await?.into();
            } else if progress.closed {
                return Err(closed());
            } else if self.progress.changed().await.is_err() {
                // INVARIANT: `shared` holds the sender, so this arm is not reached.
                return Err(closed());
            }
        }
    }

    async fn load(&self) -> Result<Vec<Record>, Fault> {
        let (from, max) = (self.next_seq, JOURNAL_FOLLOW_RECORDS_MAX);
        if let Some(found) = self.shared.read_memory(from, max) {
            return found;
        }
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || shared.read(from, max))
            .await
            .map_err(|error| Fault::internal(format!("read the journal: {error}")))?
    }
}
