//! The one journal of a node: append, read from a cursor, follow, rotate, recover.
//!
//! Records are lines of JSON (`record`) in segment files named by their first sequence
//! (`segment`). One thread owns the file (`writer`): it takes all that waits in the `queue`, writes
//! it at once, syncs once, and only then acknowledges each record. Readers (`read`, `follow`,
//! `subscribe`) see what was synced and nothing else; the newest records come from memory.
//!
//! Invariants: sequences are contiguous from 1; an acknowledged record survives the death of the
//! process and of the machine; a failed append leaves nothing behind; damage is reported with file,
//! line and byte offset and never skipped; one process writes a folder.
//!
//! What opening checks: the last segment line by line, of each older one the first and last record
//! and that the numbers meet. Damage inside an older segment is refused when it is read.

mod error;
mod follow;
mod pending;
mod queue;
mod read;
pub mod record;
mod recover;
mod segment;
mod subscribe;
mod writer;

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::watch;

use crate::base::ids::InstanceId;
use crate::base::limits;
use crate::wire::event::{Draft, Durability, Record, event_type};
use crate::wire::messages::system::JournalRange;
use crate::wire::{Code, Fault};

pub use error::JournalError;
pub use follow::Follower;
pub use pending::Pending;
pub use recover::RecoveryReport;
pub use subscribe::Subscriber;

use pending::Item;
use queue::Queue;
use read::Index;
use record::Prepared;
use subscribe::Volatile;

/// Where a journal lies and how much it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The folder of the segments; made when missing.
    pub dir: PathBuf,
    /// Written as the source of records that name none.
    pub instance_id: InstanceId,
    /// A segment is closed once it has passed this length, in bytes.
    pub segment_len: u64,
    /// Closed segments are deleted, oldest first, past this total, in bytes.
    pub total_len_max: u64,
}

impl Options {
    /// The usual lengths.
    pub fn new(dir: impl Into<PathBuf>, instance_id: InstanceId) -> Self {
        Self {
            dir: dir.into(),
            instance_id,
            segment_len: limits::JOURNAL_SEGMENT_LEN,
            total_len_max: limits::JOURNAL_TOTAL_LEN_MAX,
        }
    }
}

/// How far the journal has come; followers watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    next_seq: u64,
    closed: bool,
}

/// What the writer thread and the readers share.
struct Shared {
    queue: Queue,
    index: Mutex<Index>,
    /// Taken after `index` where both are held.
    volatile: Mutex<Volatile>,
    progress: watch::Sender<Progress>,
    instance_id: InstanceId,
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volatile(&self) -> MutexGuard<'_, Volatile> {
        self.volatile.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the journal when its last handle goes.
struct Handle {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Handle {
    fn close(&self) {
        self.shared.queue.close();
        let writer = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(writer) = writer {
            // The writer answers what is queued, then ends; it does not panic.
            let _ = writer.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

/// A handle on the journal; clones share it. The last one to go closes it.
#[derive(Clone)]
pub struct Journal {
    handle: Arc<Handle>,
}

impl Journal {
    /// Opens or makes a journal, takes its lock and cuts back a torn tail. Blocks on the disk.
    ///
    /// Errors: `Locked` when another process or handle has the folder, `Corrupt` when a record is
    /// damaged anywhere but at the very end (nothing is changed then), `Io`.
    pub fn open(options: Options) -> Result<(Self, RecoveryReport), JournalError> {
        let opened = recover::open(&options)?;
        let report = opened.report.clone();
        let next_seq = opened.index.next_seq();
        let shared = Arc::new(Shared {
            queue: Queue::new(),
            index: Mutex::new(opened.index),
            volatile: Mutex::new(Volatile::default()),
            progress: watch::Sender::new(Progress {
                next_seq,
                closed: false,
            }),
            instance_id: options.instance_id.clone(),
        });
        let writer = writer::spawn(Arc::clone(&shared), opened.active, opened.lock, options)?;
        let handle = Arc::new(Handle {
            shared,
            writer: Mutex::new(Some(writer)),
        });
        Ok((Self { handle }, report))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    fn prepare(&self, draft: Draft) -> Result<Prepared, Fault> {
        if is_volatile(&draft) {
            let why = format!("{} is a volatile event and has no number", draft.event_type);
            return Err(Fault::new(Code::InvalidParams, why));
        }
        Prepared::new(draft, &self.shared().instance_id)
    }

    /// Appends a record; the future resolves once it is on disk.
    ///
    /// The record is queued by this call when there is room, else when the future is polled and
    /// room has come. Dropping the future does not withdraw a queued record.
    pub fn append(
        &self,
        draft: Draft,
    ) -> impl Future<Output = Result<Record, Fault>> + Send + 'static + use<> {
        let shared = Arc::clone(self.shared());
        let first_try = self.prepare(draft).and_then(|prepared| {
            let (item, pending) = pending::pair(prepared);
            match shared.queue.try_push(item) {
                Ok(()) => Ok((None, pending)),
                Err(queue::Refused::Full(item)) => Ok((Some(item), pending)),
                Err(queue::Refused::Closed) => Err(closed()),
            }
        });
        async move {
            let (waiting, pending) = first_try?;
            if let Some(item) = waiting {
                shared.queue.push(*item).await?;
            }
            pending.await
        }
    }

    /// Appends a record and blocks until it is on disk.
    pub fn append_blocking(&self, draft: Draft) -> Result<Record, Fault> {
        self.submit(draft).wait()
    }

    /// Queues a record; the order of calls is the order of sequences. Blocks while the queue is
    /// full, which lasts as long as the disk takes.
    pub fn submit(&self, draft: Draft) -> Pending {
        match self.prepare(draft) {
            Ok(prepared) => {
                let (item, pending) = pending::pair(prepared);
                match self.shared().queue.push_blocking(item) {
                    Ok(()) => pending,
                    Err(fault) => Pending::refused(fault),
                }
            }
            Err(fault) => Pending::refused(fault),
        }
    }

    /// The sequences that can be read.
    pub fn range(&self) -> JournalRange {
        self.shared().index().range()
    }

    /// Reads records in order from `from_seq` on: at most `max`, and no more than
    /// `JOURNAL_READ_BYTES_MAX` beyond the first. Blocks on the disk for older records.
    ///
    /// Errors: `cursor_expired` before the oldest kept record, `cursor_invalid` past the next one
    /// or 0, `journal_corrupt`, `storage_failed`.
    pub fn read(&self, from_seq: u64, max: usize) -> Result<Vec<Record>, Fault> {
        self.shared().read(from_seq, max)
    }

    /// Follows the journal from `from_seq` on; errors as for `read`.
    pub fn follow(&self, from_seq: u64) -> Result<Follower, Fault> {
        self.shared().index().check_cursor(from_seq)?;
        Ok(Follower::new(Arc::clone(self.shared()), from_seq))
    }

    /// Hands a volatile event to the subscribers of now; without one it is gone at once.
    ///
    /// A draft of a durable type is queued for the journal instead, so that a wrong call loses
    /// nothing.
    pub fn publish_volatile(&self, draft: Draft) {
        if is_volatile(&draft) {
            self.shared().publish_volatile(draft);
        } else {
            drop(self.submit(draft));
        }
    }

    /// A cursor over durable and volatile events from now on, in order of arrival.
    pub fn subscribe(&self) -> Subscriber {
        Subscriber::new(Arc::clone(self.shared()))
    }

    /// Writes what is queued, ends the writer thread and gives up the lock. Blocks until done.
    /// Later appends are refused; reads go on.
    pub fn close(&self) {
        self.handle.close();
    }
}

/// Types that this version does not know are durable.
fn is_volatile(draft: &Draft) -> bool {
    event_type(&draft.event_type).is_some_and(|row| row.durability == Durability::Volatile)
}

/// The answer to an append after `close`.
fn closed() -> Fault {
    Fault::new(Code::StorageFailed, "the journal is closed")
}
