//! The bounded queue between those who append and the writer thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{Item, closed};
use crate::base::limits::{JOURNAL_QUEUE_BYTES_MAX, JOURNAL_QUEUE_LEN_MAX};
use crate::wire::Fault;

/// Why an item was not taken.
pub(super) enum Refused {
    /// There is no room; the item comes back.
    Full(Box<Item>),
    Closed,
}

#[derive(Default)]
struct State {
    items: Vec<Item>,
    bytes: usize,
    closed: bool,
}

impl State {
    /// An item always fits in an empty queue, so that none can wait for ever.
    fn has_room(&self, len: usize) -> bool {
        self.items.is_empty()
            || (self.items.len() < JOURNAL_QUEUE_LEN_MAX
                && self.bytes + len <= JOURNAL_QUEUE_BYTES_MAX)
    }
}

/// Many authors, one writer; the writer takes all that is there. Full: authors wait.
pub(super) struct Queue {
    state: Mutex<State>,
    /// Rung when the first item comes, and at close.
    filled: Condvar,
    /// Rung when the writer has taken all: for threads …
    emptied: Condvar,
    /// … and for tasks.
    room: Notify,
}

impl Queue {
    pub fn new() -> Self {
        Self {
            state: Mutex::new(State::default()),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            room: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, mut state: MutexGuard<'_, State>, item: Item) {
        let first = state.items.is_empty();
        state.bytes += item.line.len_max();
        state.items.push(item);
        drop(state);
        if first {
            self.filled.notify_one();
        }
    }

    pub fn try_push(&self, item: Item) -> Result<(), Refused> {
        let state = self.state();
        if state.closed {
            return Err(Refused::Closed);
        }
        if !state.has_room(item.line.len_max()) {
            return Err(Refused::Full(Box::new(item)));
        }
        self.put(state, item);
        Ok(())
    }

    /// Waits for room on this thread.
    pub fn push_blocking(&self, item: Item) -> Result<(), Fault> {
        let len = item.line.len_max();
        let mut state = self.state();
        while !state.closed && !state.has_room(len) {
            state = self
                .emptied
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return Err(closed());
        }
        self.put(state, item);
        Ok(())
    }

    /// Waits for room without holding a thread.
    pub async fn push(&self, item: Item) -> Result<(), Fault> {
        let mut item = item;
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            // Registered before the attempt, so that room made between the two is not missed.
            room.as_mut().enable();
            item = match self.try_push(item) {
                Ok(()) => return Ok(()),
                Err(Refused::Closed) => return Err(closed()),
                Err(Refused::Full(item)) => *item,
            };
            room.await;
        }
    }

    /// Sleeps until there is something, and takes all of it; `None` once closed and empty.
    pub fn take(&self) -> Option<Vec<Item>> {
        let mut state = self.state();
        while state.items.is_empty() {
            if state.closed {
                return None;
            }
            state = self
                .filled
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes = 0;
        let items = std::mem::take(&mut state.items);
        drop(state);
        self.emptied.notify_all();
        self.room.notify_waiters();
        Some(items)
    }

    /// Refuses what comes from now on; what is queued is still taken.
    pub fn close(&self) {
        self.state().closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
        self.room.notify_waiters();
    }
}
