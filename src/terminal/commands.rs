//! What commands and API calls do with one session: type, size, read, search, wait, explain, record.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::attach::clamp;
use super::grid::{Case, Extent, Form, Grid};
use super::picture;
use super::recording::Recording;
use super::session::{Life, Session, lock};
use super::sessions::fault_of;
use crate::base::{EpochMillis, limits};
use crate::platform::pty::{PtySize, session_processes};
use crate::wire::event::name;
use crate::wire::messages::attention::State;
use crate::wire::messages::sessions::{
    ExplainReply, FootprintRow, ReadParams, ReadReply, RecordReply, SearchMatch, SearchParams,
    SearchReply, SendParams, TextForm, WaitFor,
};
use crate::wire::{Code, Fault};

/// Ends a bracketed paste; inside of a text it would let the rest be typed.
const PASTE_END: &str = "\x1b[201~";
const PASTE_START: &str = "\x1b[200~";

impl Session {
    /// Types a text: as one bracketed paste where the program asked for that, and Enter apart, after
    /// a pause that lets programs tell a paste from a line.
    pub async fn send(self: &Arc<Self>, params: &SendParams) -> Result<(), Fault> {
        let text = params.text.expose();
        if text.len() > limits::SESSION_SEND_LEN_MAX {
            let why = format!(
                "{} bytes are more than {}",
                text.len(),
                limits::SESSION_SEND_LEN_MAX
            );
            return Err(Fault::new(Code::BodyTooLarge, why));
        }
        let bracketed = !params.raw && lock(&self.screen).grid.modes().bracketed_paste;
        let bytes = match bracketed {
            true => format!("{PASTE_START}{}{PASTE_END}", text.replace(PASTE_END, "")).into_bytes(),
            false => text.as_bytes().to_vec(),
        };
        if !text.is_empty() {
            self.type_in(&bytes, params.generation)?;
        }
        if params.enter {
            if !text.is_empty() {
                tokio::time::sleep(Duration::from_millis(limits::SEND_ENTER_PAUSE_MS)).await;
            }
            self.type_in(b"\r", params.generation)?;
        }
        Ok(())
    }

    fn type_in(self: &Arc<Self>, bytes: &[u8], generation: Option<u64>) -> Result<(), Fault> {
        let writer = self.live()?;
        {
            let seats = lock(&self.seats);
            seats.lease.check_outsider(generation)?;
            writer.input(bytes).map_err(|error| fault_of(&error))?;
        }
        self.note_input(bytes, EpochMillis::now());
        Ok(())
    }

    /// Sets the terminal's size and waits until it has it.
    pub async fn set_size(
        &self,
        cols: u16,
        rows: u16,
        generation: Option<u64>,
    ) -> Result<(), Fault> {
        let writer = self.live()?;
        let (cols, rows) = clamp(cols, rows);
        {
            let mut seats = lock(&self.seats);
            seats.lease.check_outsider(generation)?;
            seats.lease.sized((cols, rows));
            writer
                .resize(PtySize { cols, rows })
                .map_err(|error| fault_of(&error))?;
        }
        let mut changed = self.changed.subscribe();
        let applied = async {
            loop {
                let size = lock(&self.screen).grid.size();
                if (size.cols, size.rows) == (cols, rows) || !self.is_running() {
                    return;
                }
                // INVARIANT: the sender lives as long as the session.
                let _ = changed.changed().await;
            }
        };
        let limit = Duration::from_millis(limits::SESSION_KILL_TIMEOUT_MS);
        tokio::time::timeout(limit, applied)
            .await
            .map_err(|_| Fault::new(Code::TimedOut, "the terminal did not take its size in time"))
    }

    /// Reads text of the screen or of the scrollback with it.
    pub fn read(&self, params: &ReadParams) -> ReadReply {
        let screen = lock(&self.screen);
        let grid = &screen.grid;
        let size = grid.size();
        let history = grid.history_len() as u64;
        let all = history + u64::from(size.rows);
        let (from, end) = match (params.from, params.lines) {
            (Some(from), Some(lines)) => (from, from.saturating_add(lines.into())),
            (Some(from), None) => (from, all),
            (None, Some(lines)) => {
                // The screen below what was written is nobody's last lines.
                let end = history + u64::from(written_rows(grid));
                (end.saturating_sub(lines.into()), end)
            }
            (None, None) if params.scrollback => (0, all),
            (None, None) => (history, all),
        };
        let from = from.min(all);
        let count = end.min(all) - from;
        let form = match params.form {
            TextForm::Plain => Form::Plain,
            TextForm::Ansi => Form::Ansi,
        };
        let cursor = grid.cursor();
        ReadReply {
            text: grid.text(
                Extent::Lines {
                    from: index(from),
                    count: index(count),
                },
                form,
            ),
            cols: size.cols,
            rows: size.rows,
            history,
            from,
            cursor_row: cursor.row,
            cursor_col: cursor.column,
            offset: grid.offset(),
        }
    }

    /// Finds a text in scrollback and screen.
    pub fn search(&self, params: &SearchParams) -> SearchReply {
        let screen = lock(&self.screen);
        let case = match params.case_sensitive {
            true => Case::Sensitive,
            false => Case::Insensitive,
        };
        let first = screen.grid.first_line();
        let found = screen.grid.search(&params.text, case);
        let matches = found.into_iter().map(|found| SearchMatch {
            line: found.line.saturating_sub(first),
            col: found.column,
            last_line: found.last_line.saturating_sub(first),
            end: found.end,
        });
        SearchReply {
            matches: matches.collect(),
            history: screen.grid.history_len() as u64,
        }
    }

    /// The screen as a PNG picture.
    pub fn picture(&self) -> Result<Vec<u8>, Fault> {
        let image = {
            let screen = lock(&self.screen);
            picture::draw(&screen.grid)
        };
        image.png()
    }

    /// Waits for what is named. `session_exited` when the program ends first.
    pub async fn wait_for(&self, what: &WaitFor) -> Result<(), Fault> {
        let mut changed = self.changed.subscribe();
        let _watching = matches!(what, WaitFor::Text(_)).then(|| TextWatch::new(self));
        loop {
            changed.borrow_and_update();
            if self.has(what) {
                return Ok(());
            }
            if !self.is_running() {
                let text = format!("session {} ended before that", self.id);
                return Err(Fault::new(Code::SessionExited, text));
            }
            // INVARIANT: the sender lives as long as the session.
            let _ = changed.changed().await;
            if matches!(what, WaitFor::Text(_)) {
                // Under a flood the screen is read now and then, not at every chunk.
                tokio::time::sleep(Duration::from_millis(limits::CONSOLE_SCREEN_PAUSE_MS)).await;
            }
        }
    }

    fn has(&self, what: &WaitFor) -> bool {
        match what {
            WaitFor::Waiting => self.state() == State::Waiting,
            WaitFor::Idle => matches!(self.state(), State::Idle | State::Done | State::Error),
            WaitFor::Exit => !self.is_running(),
            WaitFor::Text(text) => {
                let screen = lock(&self.screen);
                // A text that wraps stands there as well.
                let shown = screen.grid.text(Extent::Screen, Form::Joined);
                shown.contains(text.as_str())
            }
        }
    }

    pub fn explain(&self) -> ExplainReply {
        ExplainReply {
            id: self.id.clone(),
            explanation: lock(&self.attention).explain(),
        }
    }

    /// Starts or ends the recording.
    pub fn record_to_file(&self, on: bool) -> Result<RecordReply, Fault> {
        let failed =
            |error: std::io::Error| Fault::new(Code::StorageFailed, format!("recording: {error}"));
        let now = EpochMillis::now();
        let reply = {
            let mut screen = lock(&self.screen);
            match (on, &mut screen.recording) {
                (true, Some(recording)) => RecordReply {
                    recording: true,
                    path: Some(recording.path().to_string_lossy().into_owned()),
                },
                (true, None) => {
                    self.live()?;
                    let dir = &self.hub.options.recordings_dir;
                    crate::platform::local_socket::private_dir(dir).map_err(failed)?;
                    let path = dir.join(format!("{}-{}.cast", self.id, now.0));
                    let size = screen.grid.size();
                    let title = self.name();
                    let mut recording = Recording::start(&path, size.cols, size.rows, &title, now)
                        .map_err(failed)?;
                    // A player starts with an empty screen: what is there now comes first.
                    let shown = screen.grid.snapshot(super::grid::Scrollback::None);
                    recording.output(&shown, now).map_err(failed)?;
                    recording
                        .output(screen.grid.pending(), now)
                        .map_err(failed)?;
                    screen.recording = Some(recording);
                    RecordReply {
                        recording: true,
                        path: Some(path.to_string_lossy().into_owned()),
                    }
                }
                (false, _) => {
                    let path = match screen.recording.take() {
                        Some(mut recording) => {
                            recording.flush().map_err(failed)?;
                            Some(recording.path().to_string_lossy().into_owned())
                        }
                        None => None,
                    };
                    RecordReply {
                        recording: false,
                        path,
                    }
                }
            }
        };
        self.tell(name::SESSION_UPDATED, json!({"recording": reply.recording}));
        Ok(reply)
    }

    /// The session's processes; `None` for one that runs no more.
    pub fn footprint(&self) -> Option<FootprintRow> {
        self.is_running().then(|| FootprintRow {
            id: self.id.clone(),
            base_path: lock(&self.stored).base_path.to_string_lossy().into_owned(),
            pid: self.pid,
            procs: session_processes(self.pid),
            foreground: lock(&self.facts).foreground,
        })
    }

    /// The session as the debug view shows it.
    pub fn debug_row(&self) -> Value {
        let (offset, pending, checkpointed, history, memory, mark) = {
            let screen = lock(&self.screen);
            let grid = &screen.grid;
            (
                grid.offset(),
                grid.pending().len(),
                screen.checkpointed.offset,
                grid.history_len(),
                grid.memory_bytes(),
                screen.next.mark,
            )
        };
        let life = match &*self.life.borrow() {
            Life::Running => "running".to_owned(),
            Life::Exited { code, signal, .. } => format!("exited {code:?} {signal:?}"),
            Life::Unreachable { why } => why.clone(),
        };
        let counters = &self.counters;
        json!({
            "id": self.id, "name": self.name(), "pid": self.pid, "life": life, "offset": offset,
            "pending": pending, "checkpoint": checkpointed, "mark": mark, "history": history, "gridBytes": memory,
            "bytesOut": counters.bytes_out.load(Ordering::Relaxed),
            "bytesIn": counters.bytes_in.load(Ordering::Relaxed),
            "checkpoints": counters.checkpoints.load(Ordering::Relaxed),
            "replies": counters.replies.load(Ordering::Relaxed),
        })
    }

    /// The session's attention as the debug view shows it.
    pub fn attention_row(&self) -> Value {
        let (attention, look) = {
            let look = lock(&self.due).look;
            (lock(&self.attention).current().clone(), look)
        };
        json!({
            "id": self.id, "name": self.name(), "state": attention.state, "kind": attention.kind,
            "source": attention.source, "app": attention.app, "since": attention.since.rfc3339(),
            "revision": attention.revision, "nextLook": look.map(EpochMillis::rfc3339),
        })
    }
}

/// Rows of the screen down to the last one that is not blank.
fn written_rows(grid: &Grid) -> u16 {
    let blank = |row: &u16| grid.row(*row).cells().all(|cell| cell.is_blank());
    (0..grid.size().rows)
        .rev()
        .find(|row| !blank(row))
        .map_or(0, |row| row + 1)
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// While one exists, the feed task tells of every output.
struct TextWatch<'a>(&'a Session);

impl<'a> TextWatch<'a> {
    fn new(session: &'a Session) -> Self {
        session.text_waiters.fetch_add(1, Ordering::AcqRel);
        Self(session)
    }
}

impl Drop for TextWatch<'_> {
    fn drop(&mut self) {
        self.0.text_waiters.fetch_sub(1, Ordering::AcqRel);
    }
}
