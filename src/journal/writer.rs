//! The writer thread: group commit, rotation, retention.
//!
//! ```text
//!          queue not empty                     synced
//! asleep ─────────────────▶ one write, one sync ─────▶ index, wake followers, acknowledge ─▶ asleep
//!                                  │ failed
//!                                  ▼
//!                         cut back to the committed length ─▶ refuse the group ─▶ asleep
//! ```
//!
//! A write or sync that failed is never taken for done: the file is cut back to its committed
//! length, and while that does not work either (`torn`), each group tries it first.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;

use super::error::JournalError;
use super::pending::{Item, Stamp};
use super::recover::{self, Active};
use super::{Options, Shared, segment};
use crate::base::EpochMillis;
use crate::wire::Fault;

struct Writer {
    shared: Arc<Shared>,
    options: Options,
    active: Active,
    /// Whether bytes beyond the committed length may lie in the file.
    torn: bool,
}

/// Starts the thread that owns the file. It ends at `close`, and with it the lock.
pub(super) fn spawn(
    shared: Arc<Shared>,
    active: Active,
    lock: File,
    options: Options,
) -> Result<JoinHandle<()>, JournalError> {
    let dir = options.dir.clone();
    let mut writer = Writer {
        shared,
        options,
        active,
        torn: false,
    };
    thread::Builder::new()
        .name("journal".to_owned())
        .spawn(move || {
            writer.expire();
            while let Some(items) = writer.shared.queue.take() {
                writer.commit(items);
            }
            writer.shared.progress.send_modify(|progress| {
                progress.closed = true;
            });
            drop(lock);
        })
        .map_err(JournalError::io("start the writer of", &dir))
}

impl Writer {
    fn commit(&mut self, items: Vec<Item>) {
        let committed_at = EpochMillis::now();
        let first_seq = self.active.segment.next_seq;
        let mut lines = Vec::with_capacity(items.iter().map(|item| item.line.len_max()).sum());
        let mut ends = Vec::with_capacity(items.len());
        for (sequence, item) in (first_seq..).zip(&items) {
            item.line.encode(sequence, committed_at, &mut lines);
            ends.push(lines.len());
        }
        if let Err(error) = self.store(&lines, ends.len()) {
            let fault = Fault::from(error);
            tracing::warn!(code = %fault.code, "append to the journal: {fault}");
            for item in items {
                // An author that no longer waits does not need the answer.
                let _ = item.ack.send(Err(fault.clone()));
            }
            return;
        }
        let next_seq = first_seq + ends.len() as u64;
        self.shared.index().commit(Bytes::from(lines), ends);
        self.shared.progress.send_modify(|progress| {
            progress.next_seq = next_seq;
        });
        for (sequence, item) in (first_seq..).zip(items) {
            let stamp = Stamp {
                sequence,
                committed_at,
            };
            let _ = item.ack.send(Ok(stamp));
        }
    }

    /// Writes and syncs a group; after an error nothing of it is left.
    fn store(&mut self, lines: &[u8], count: usize) -> Result<(), JournalError> {
        if self.torn {
            self.cut_back()?;
        }
        if self.active.segment.len >= self.options.segment_len {
            self.rotate()?;
        }
        let file = &mut self.active.file;
        if let Err(source) = file.write_all(lines).and_then(|()| file.sync_data()) {
            self.torn = true;
            // Tried at once so that the disk is whole even if nobody appends again.
            if let Err(error) = self.cut_back() {
                tracing::error!("cut the journal back after a failed write: {error}");
            }
            return Err(JournalError::io("write", &self.active.segment.path)(source));
        }
        self.active.segment.len += lines.len() as u64;
        self.active.segment.next_seq += count as u64;
        Ok(())
    }

    fn cut_back(&mut self) -> Result<(), JournalError> {
        let Active { file, segment } = &mut self.active;
        file.set_len(segment.len)
            .and_then(|()| file.seek(SeekFrom::Start(segment.len)))
            .and_then(|_| file.sync_all())
            .map_err(JournalError::io("cut back", &segment.path))?;
        self.torn = false;
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), JournalError> {
        let next_seq = self.active.segment.next_seq;
        self.active = recover::create(&self.options.dir, next_seq)?;
        self.shared.index().rotate(self.active.segment.clone());
        self.expire();
        Ok(())
    }

    /// Deletes the oldest segments past the total length, one by one, so that no gap can arise.
    fn expire(&mut self) {
        loop {
            let oldest = self
                .shared
                .index()
                .expire_oldest(self.options.total_len_max);
            let Some(oldest) = oldest else { return };
            let removed = match fs::remove_file(&oldest.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(JournalError::io("delete", &oldest.path)(error))
                }
                _ => segment::sync_dir(&self.options.dir),
            };
            if let Err(error) = removed {
                // Kept, and tried again at the next rotation.
                tracing::warn!("retention of the journal: {error}");
                self.shared.index().restore_oldest(oldest);
                return;
            }
        }
    }
}
