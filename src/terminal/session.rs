//! One terminal session of this node: its grid, its consoles, its lease and its attention.
//!
//! ```text
//! holder ──► feed task ──► grid ──► outbox of each console ──► its stream
//!    ▲            └──► attention, recording, checkpoints
//!    └── input, size ◄── lease ◄── consoles, commands
//! ```
//!
//! Invariants: output is fed in order, by one task; whoever holds `screen` and then `seats` sees a
//! grid and outboxes of the same offset; locks are taken in the order screen, seats, attention and
//! never across an await. What a program shows is never logged.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use super::checkpoint::Sent;
use super::grid::Grid;
use super::holder::{Position, Writer};
use super::hub::Hub;
use super::outbox::Outbox;
use super::recording::Recording;
use super::said::Said;
use super::stored::Stored;
use crate::base::ids::{ConsoleId, TerminalId};
use crate::base::{EpochMillis, Timestamp, limits};
use crate::model::attention::SessionAttention;
use crate::model::lease::LeaseState;
use crate::wire::event::{Draft, name};
use crate::wire::messages::attention::State;
use crate::wire::messages::sessions::{Console, Control, Location, Session as Record};
use crate::wire::{Code, Fault};

/// What became of a session's program.
#[derive(Clone, Debug, PartialEq)]
pub enum Life {
    Running,
    /// It ended; code and signal are absent when the machine went down with it.
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
        at: EpochMillis,
    },
    /// Its holder speaks another protocol, or cannot be reached.
    Unreachable {
        why: String,
    },
}

/// The grid and what keeps pace with it.
pub(super) struct Screen {
    pub grid: Grid,
    /// The end of what was fed, unfinished sequences included.
    pub next: Position,
    pub checkpointed: Position,
    /// What the holder has of the history.
    pub sent: Sent,
    /// Queries up to here were answered by a former agent.
    pub answered: u64,
    pub recording: Option<Recording>,
    /// When the program's synchronized update began.
    pub sync_since: Option<EpochMillis>,
    /// What the program and its shell said last of what they are doing.
    pub said: Said,
}

/// An attached console.
pub(super) struct Seat {
    pub outbox: Arc<Outbox>,
    pub location: Location,
    pub label: String,
    pub focused: bool,
    pub attached_at: EpochMillis,
    pub last_input: Option<EpochMillis>,
    pub input_bytes: u64,
    /// When the others were last told that it types.
    pub typing_told: EpochMillis,
    /// Tells this attachment from a later one of the same console.
    pub serial: u64,
}

pub(super) struct Seats {
    pub lease: LeaseState,
    pub consoles: BTreeMap<ConsoleId, Seat>,
    pub serial: u64,
}

/// What is told of the program besides its grid.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub cwd: Option<String>,
    pub title: Option<String>,
    pub program: Option<String>,
    pub foreground: bool,
}

/// Figures for debug views and metrics.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub bytes_out: AtomicU64,
    pub bytes_in: AtomicU64,
    pub checkpoints: AtomicU64,
    pub replies: AtomicU64,
}

/// When the session wants to be looked at.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub look: Option<EpochMillis>,
    pub checkpoint: Option<EpochMillis>,
    pub runs: bool,
}

pub struct Session {
    pub(super) id: TerminalId,
    pub(super) folder: PathBuf,
    pub(super) argv: Vec<String>,
    pub(super) created_at: EpochMillis,
    pub(super) pid: u32,
    pub(super) hub: Arc<Hub>,
    pub(super) stored: Mutex<Stored>,
    pub(super) screen: Mutex<Screen>,
    pub(super) seats: Mutex<Seats>,
    pub(super) attention: Mutex<SessionAttention>,
    pub(super) facts: Mutex<Facts>,
    pub(super) due: Mutex<Due>,
    pub(super) fetches: Mutex<Vec<Fetch>>,
    pub(super) writer: Option<Writer>,
    pub(super) life: watch::Sender<Life>,
    /// Rises when somebody who waits should look again.
    pub(super) changed: watch::Sender<u64>,
    pub(super) text_waiters: AtomicUsize,
    pub(super) last_output: AtomicI64,
    pub(super) last_input: AtomicI64,
    pub(super) told: Told,
    pub(super) counters: Counters,
}

/// Bytes that volatile events have not told yet.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub output: AtomicU64,
    pub output_at: AtomicI64,
    pub input: AtomicU64,
    pub input_at: AtomicI64,
}

/// Somebody who waits for old bytes of the ring.
pub(super) struct Fetch {
    /// Position of the next part.
    pub next: u64,
    pub bytes: Vec<u8>,
    pub done: oneshot::Sender<Vec<u8>>,
}

/// No lock here is held while anything can panic but the grid, which contains its panics.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub fn id(&self) -> &TerminalId {
        &self.id
    }

    pub fn name(&self) -> String {
        lock(&self.stored).name.clone()
    }

    /// What became of the program, now and at every change.
    pub fn life(&self) -> watch::Receiver<Life> {
        self.life.subscribe()
    }

    pub(super) fn is_running(&self) -> bool {
        *self.life.borrow() == Life::Running
    }

    /// The writer to a running program: `session_exited` or `session_incompatible` otherwise.
    pub(super) fn live(&self) -> Result<&Writer, Fault> {
        match (&*self.life.borrow(), &self.writer) {
            (Life::Running, Some(writer)) => Ok(writer),
            (Life::Unreachable { why }, _) => Err(Fault::new(
                Code::SessionIncompatible,
                format!("session {}: {why}", self.id),
            )),
            _ => Err(Fault::new(
                Code::SessionExited,
                format!("session {} has ended", self.id),
            )),
        }
    }

    /// The record that lists and answers show. `machine` is the asker's to fill.
    pub fn record(&self) -> Record {
        let (cols, rows, bytes_out, recording) = {
            let screen = lock(&self.screen);
            let size = screen.grid.size();
            (
                size.cols,
                size.rows,
                screen.next.offset,
                screen.recording.is_some(),
            )
        };
        let (lease, attached) = {
            let seats = lock(&self.seats);
            (seats.lease.lease().clone(), seats.consoles.len())
        };
        let attention = lock(&self.attention).current().clone();
        let facts = lock(&self.facts).clone();
        let stored = lock(&self.stored).clone();
        let life = self.life.borrow().clone();
        let (exit_code, exit_signal, exited_at) = match &life {
            Life::Exited { code, signal, at } => (*code, *signal, Some(Timestamp(*at))),
            _ => (None, None, None),
        };
        let at = |millis: &AtomicI64| match millis.load(Ordering::Relaxed) {
            0 => None,
            at => Some(Timestamp(EpochMillis(at))),
        };
        Record {
            id: self.id.clone(),
            machine: String::new(),
            name: stored.name,
            base_path: stored.base_path.to_string_lossy().into_owned(),
            base_kind: stored.base_kind,
            shell: self.argv.first().cloned().unwrap_or_default(),
            args: self.argv.iter().skip(1).cloned().collect(),
            cwd: facts.cwd,
            created_at: Timestamp(self.created_at),
            cols,
            rows,
            attached: u32::try_from(attached).unwrap_or(u32::MAX),
            foreground: facts.foreground && life == Life::Running,
            program: facts.program,
            pid: self.pid,
            exit_code,
            exit_signal,
            exited_at,
            incompatible: matches!(life, Life::Unreachable { .. }),
            bytes_out,
            title: facts.title,
            last_output_at: at(&self.last_output),
            last_input_at: at(&self.last_input),
            attention,
            lease,
            recording,
        }
    }

    /// Gives the session another name; the registry has checked it.
    pub(super) fn rename(&self, name: &str) -> Result<(), Fault> {
        {
            let mut stored = lock(&self.stored);
            let renamed = Stored {
                name: name.to_owned(),
                ..stored.clone()
            };
            renamed.write(&self.folder)?;
            *stored = renamed;
        }
        self.tell(name::SESSION_UPDATED, json!({"name": name}));
        Ok(())
    }

    /// Writes the generation of the lease, so that no later agent falls below it.
    pub(super) fn store_generation(&self, generation: u64) {
        let mut stored = lock(&self.stored);
        stored.generation = generation;
        if let Err(fault) = stored.write(&self.folder) {
            tracing::warn!(session = %self.id, %fault, "cannot store the lease's generation");
        }
    }

    /// Journals an event of this session.
    pub(super) fn tell(&self, event: &str, payload: Value) {
        self.hub
            .sink
            .tell(Draft::new(event, payload).in_session(self.id.as_str()));
    }

    /// Tells readers that are connected, about bytes that went out or in: at most once a second.
    pub(super) fn tell_bytes(
        &self,
        event: &str,
        sum: &AtomicU64,
        at: &AtomicI64,
        bytes: u64,
        now: EpochMillis,
    ) {
        let before = sum.fetch_add(bytes, Ordering::Relaxed);
        if now.0.saturating_sub(at.load(Ordering::Relaxed)) < limits::SESSION_NOTICE_PAUSE_MS {
            return;
        }
        at.store(now.0, Ordering::Relaxed);
        sum.fetch_sub(before + bytes, Ordering::Relaxed);
        let draft = Draft::new(event, json!({"bytes": before + bytes}));
        self.hub
            .sink
            .tell_volatile(draft.in_session(self.id.as_str()));
    }

    /// Wakes everybody who waits for a change of this session.
    pub(super) fn bump(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Whether the program's state is one of those.
    pub(super) fn state(&self) -> State {
        lock(&self.attention).current().state
    }

    /// The consoles that are attached.
    pub fn consoles(&self) -> Vec<Console> {
        let seats = lock(&self.seats);
        let rows = seats.consoles.iter().filter_map(|(id, seat)| {
            let stats = seat.outbox.stats();
            let (mode, (cols, rows)) = seats.lease.seat(id)?;
            Some(Console {
                console_id: id.clone(),
                location: seat.location,
                label: seat.label.clone(),
                session: self.id.clone(),
                mode,
                focused: seat.focused,
                cols,
                rows,
                attached_at: Timestamp(seat.attached_at),
                last_input_at: seat.last_input.map(Timestamp),
                input_bytes: seat.input_bytes,
                output_bytes: stats.sent,
                queued_bytes: stats.waiting,
                screens: stats.screens,
            })
        });
        rows.collect()
    }

    /// Old bytes from `from` on, as far as the ring still has them without a gap up to now.
    pub(super) async fn fetch(&self, from: u64, length: u32) -> Option<Vec<u8>> {
        let writer = self.live().ok()?;
        let (done, answer) = oneshot::channel();
        {
            let mut fetches = lock(&self.fetches);
            // Of a holder that refused one, or did not answer in time.
            fetches.retain(|fetch| !fetch.done.is_closed());
            fetches.push(Fetch {
                next: from,
                bytes: Vec::new(),
                done,
            });
        }
        writer.fetch(from, length).ok()?;
        let limit = Duration::from_millis(limits::SESSION_FETCH_MS);
        tokio::time::timeout(limit, answer).await.ok()?.ok()
    }

    /// A screen piece as it is announced, and the bytes after it.
    pub(super) fn image(screen: &Screen) -> (Control, Bytes, Bytes) {
        let (offset, snapshot, pending) = Self::snapshot(screen);
        let size = screen.grid.size();
        let announcement = Control::Screen {
            offset,
            length: snapshot.len() as u64,
            cols: size.cols,
            rows: size.rows,
        };
        (announcement, snapshot, pending)
    }

    /// The screen and the bytes after it, for a console that comes or lags.
    pub(super) fn snapshot(screen: &Screen) -> (u64, Bytes, Bytes) {
        let snapshot = screen.grid.snapshot(super::grid::Scrollback::None);
        let pending = Bytes::copy_from_slice(screen.grid.pending());
        (screen.grid.offset(), Bytes::from(snapshot), pending)
    }
}
