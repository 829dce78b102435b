//! The task of a running session: what its holder says goes to grid, consoles and attention.
//!
//! ```text
//! task ── FEED_TURN_LEN came at once, a place is free ──► thread
//!   ▲                                                       │
//!   └────────────── nothing came for FEED_REST_MS ──────────┘
//! ```
//!
//! The task runs on the threads that serve the consoles, so that a key's echo passes through this process
//! without waking another thread. A flood would keep those threads busy, and be cut into turns by them: it is
//! fed on a thread of its own while it lasts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;

use super::checkpoint;
use super::grid::{Effect, Size};
use super::holder::{ErrorCode, Filled, FromHolder, HolderError, Position, Reader, Stat};
use super::session::{Life, Screen, Session, lock};
use crate::base::{EpochMillis, limits};
use crate::model::attention::{Effects, Input};
use crate::platform::pty::{ProcessExit, PtySize, process_facts};
use crate::wire::event::name;
use crate::wire::messages::sessions::Control;

/// Reads a holder to its end. The session keeps its last screen.
pub(super) async fn run(session: Arc<Session>, reader: Reader) {
    let why = match feed(&session, reader).await {
        Ok(()) | Err(HolderError::Closed) => "its holder has gone".to_owned(),
        Err(error) => error.to_string(),
    };
    if session.is_running() && !session.hub.stopping() {
        tracing::warn!(session = %session.id, why, "lost a session's holder");
        session.ended(None, EpochMillis::now());
    }
}

async fn feed(session: &Arc<Session>, mut reader: Reader) -> Result<(), HolderError> {
    while let Some(place) = follow(session, &mut reader).await? {
        let session = Arc::clone(session);
        let flooded = tokio::task::spawn_blocking(move || {
            let outcome = flood(&session, &mut reader);
            drop(place);
            outcome.map(|()| reader)
        });
        // The thread's panic is told by its hook; its connection has gone with it.
        reader = flooded.await.map_err(|_| HolderError::Closed)??;
    }
    Ok(())
}

/// Feeds what comes now and then; answers the place on a thread where a flood has begun, `None` at the end.
async fn follow(
    session: &Arc<Session>,
    reader: &mut Reader,
) -> Result<Option<OwnedSemaphorePermit>, HolderError> {
    let Some(readiness) = reader.readiness()? else {
        return Ok(None);
    };
    loop {
        let filled = reader.try_fill()?;
        if take_all(session, reader)? >= limits::FEED_TURN_LEN {
            if !session.hub.stopping()
                && let Ok(place) = Arc::clone(&session.hub.floods).try_acquire_owned()
            {
                return Ok(Some(place));
            }
            tokio::task::yield_now().await;
        }
        match filled {
            Filled::More => {}
            Filled::All => reader.readable(&readiness).await?,
            Filled::Closed => return Ok(None),
        }
    }
}

/// Feeds until nothing came for a while, the connection has ended or the agent ends: a runtime that is
/// dropped waits for its threads.
fn flood(session: &Arc<Session>, reader: &mut Reader) -> Result<(), HolderError> {
    let rest = Duration::from_millis(limits::FEED_REST_MS);
    let spin = Duration::from_micros(limits::FEED_SPIN_US);
    let mut spin_until = Instant::now();
    loop {
        let filled = reader.try_fill()?;
        let fed = take_all(session, reader)?;
        if fed >= limits::FEED_SPIN_LEN && session.hub.may_spin() {
            spin_until = Instant::now() + spin;
        }
        if filled == Filled::Closed || session.hub.stopping() {
            return Ok(());
        }
        if filled == Filled::More || fed > 0 {
            continue;
        }
        if Instant::now() < spin_until {
            std::hint::spin_loop();
        } else if !reader.wait_readable(rest)? {
            return Ok(());
        }
    }
}

/// Takes the frames that are there; answers how much output those were.
fn take_all(session: &Arc<Session>, reader: &mut Reader) -> Result<usize, HolderError> {
    let mut fed = 0;
    while reader.has_frame()?
        && let Some(frame) = reader.next()?
    {
        if let FromHolder::Output { bytes, .. } = frame {
            fed += bytes.len();
        }
        take(session, frame);
    }
    Ok(fed)
}

/// Takes in what the holder has had for a former agent, up to an offset.
pub(super) fn catch_up(session: &Arc<Session>, reader: &mut Reader, end: u64) {
    while lock(&session.screen).next.offset < end {
        match reader.next() {
            Ok(Some(frame)) => take(session, frame),
            // The task finds the same and says it.
            Ok(None) | Err(_) => return,
        }
    }
}

fn take(session: &Arc<Session>, frame: FromHolder<'_>) {
    match frame {
        FromHolder::Output { offset, bytes } => session.output(offset, bytes),
        FromHolder::Resized { at, size } => session.resized(at, size),
        FromHolder::Exit { exit, .. } => session.ended(Some(exit), EpochMillis::now()),
        FromHolder::Stat(stat) => session.looked(&stat),
        FromHolder::Fetched { from, last, bytes } => session.fetched(from, last, bytes),
        FromHolder::Stored(_) | FromHolder::Killed { .. } => {}
        FromHolder::Error { code, text } => session.holder_error(code, text),
        // Hello and checkpoints come before the task begins, `taken` is the reader's own, unknown kinds
        // are of a later version.
        FromHolder::Hello(_)
        | FromHolder::Incompatible { .. }
        | FromHolder::CheckpointBegin { .. }
        | FromHolder::CheckpointScreen(_)
        | FromHolder::CheckpointBlock { .. }
        | FromHolder::CheckpointEnd
        | FromHolder::Taken(_)
        | FromHolder::Unknown(_) => {}
    }
}

impl Session {
    fn output(self: &Arc<Self>, offset: u64, bytes: &[u8]) {
        let now = EpochMillis::now();
        let effects = {
            let mut screen = lock(&self.screen);
            let screen = &mut *screen;
            if offset != screen.next.offset {
                tracing::error!(session = %self.id, offset, expected = screen.next.offset, "the holder's output is not contiguous");
                return;
            }
            let effects = screen.feed(bytes, now);
            {
                let seats = lock(&self.seats);
                let mut wanting = seats
                    .consoles
                    .values()
                    .filter(|seat| seat.outbox.wants_bytes())
                    .peekable();
                if wanting.peek().is_some() {
                    let shared = Bytes::copy_from_slice(bytes);
                    wanting.for_each(|seat| seat.outbox.push_bytes(&shared));
                }
            }
            if screen.next.offset - screen.checkpointed.offset >= limits::CHECKPOINT_BYTES {
                checkpoint::store(self, screen);
            }
            effects
        };
        self.last_output.store(now.0, Ordering::Relaxed);
        self.counters
            .bytes_out
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let replies = self.act_on(effects, now);
        if !replies.is_empty() {
            self.reply(&replies, offset + bytes.len() as u64);
        }
        self.attend(
            Input::Output {
                bytes: bytes.len() as u64,
            },
            now,
        );
        self.due_for_checkpoint(now);
        let told = &self.told;
        self.tell_bytes(
            name::SESSION_STDOUT,
            &told.output,
            &told.output_at,
            bytes.len() as u64,
            now,
        );
        if self.text_waiters.load(Ordering::Acquire) > 0 {
            self.bump();
        }
    }

    /// Acts on what the program asked of its terminal; answers the replies to its queries.
    fn act_on(self: &Arc<Self>, effects: Vec<Effect>, now: EpochMillis) -> Vec<u8> {
        let mut replies = Vec::new();
        for effect in effects {
            let input = match effect {
                Effect::Reply(bytes) => {
                    replies.extend_from_slice(&bytes);
                    continue;
                }
                Effect::Bell => Input::Bell,
                Effect::Title(title) => {
                    lock(&self.facts).title.clone_from(&title);
                    Input::Title(title)
                }
                Effect::WorkingDirectory(place) => {
                    if let Some(path) = super::translate::folder(&place) {
                        lock(&self.facts).cwd = Some(path);
                    }
                    continue;
                }
                Effect::Notify {
                    source,
                    title,
                    body,
                } => Input::Notify(super::translate::notify(source, title, body)),
                Effect::ProgramStatus(status) => match super::translate::program_status(status) {
                    Some(status) => Input::ProgramStatus(status),
                    None => continue,
                },
                Effect::PromptMark(mark) => Input::PromptMark(super::translate::prompt_mark(mark)),
                _ => continue,
            };
            self.attend(input, now);
        }
        replies
    }

    /// Answers queries once; the holder remembers up to where they were answered.
    fn reply(&self, replies: &[u8], answered: u64) {
        self.counters.replies.fetch_add(1, Ordering::Relaxed);
        let Ok(writer) = self.live() else { return };
        if let Err(error) = writer.reply(answered, replies) {
            tracing::debug!(session = %self.id, %error, "a terminal query stays unanswered");
        }
    }

    fn resized(self: &Arc<Self>, at: Position, size: PtySize) {
        let now = EpochMillis::now();
        {
            let mut screen = lock(&self.screen);
            screen.resize(at, size, now);
            let seats = lock(&self.seats);
            if !seats.consoles.is_empty() {
                let (announcement, image, pending) = Self::image(&screen);
                for seat in seats.consoles.values() {
                    seat.outbox.push_control(Control::Resize {
                        cols: size.cols,
                        rows: size.rows,
                        offset: Some(at.offset),
                    });
                    seat.outbox
                        .push_screen(announcement.clone(), &image, &pending);
                }
            }
        }
        self.due_for_checkpoint(now);
        self.tell(
            name::SESSION_RESIZED,
            json!({"cols": size.cols, "rows": size.rows, "offset": at.offset}),
        );
        // Whoever asked for the size waits for it.
        self.bump();
    }

    /// The program has ended, or its holder has: the last screen stays.
    pub(super) fn ended(self: &Arc<Self>, exit: Option<ProcessExit>, at: EpochMillis) {
        let (code, signal) = parts_of(exit);
        {
            let mut screen = lock(&self.screen);
            checkpoint::store(self, &mut screen);
            if let Some(mut recording) = screen.recording.take()
                && let Err(error) = recording.flush()
            {
                tracing::warn!(session = %self.id, %error, "the recording's end is lost");
            }
            let seats = lock(&self.seats);
            for seat in seats.consoles.values() {
                seat.outbox.push_control(Control::Exit {
                    exit_code: code,
                    exit_signal: signal,
                });
            }
        }
        lock(&self.fetches).clear();
        self.life.send_replace(Life::Exited { code, signal, at });
        self.attend(Input::Exited { code, signal }, at);
        let payload = json!({"name": self.name(), "exitCode": code, "exitSignal": signal});
        self.tell(name::SESSION_EXITED, payload);
        self.bump();
    }

    fn holder_error(&self, code: ErrorCode, text: &str) {
        if code == ErrorCode::InputQueueFull {
            let seats = lock(&self.seats);
            for seat in seats.consoles.values() {
                seat.outbox.push_control(Control::Error {
                    code: crate::wire::Code::InputQueueFull.as_str().to_owned(),
                    message: "the program does not read its input; what was typed last is lost"
                        .to_owned(),
                });
            }
        }
        tracing::warn!(session = %self.id, ?code, text, "the session's holder refused something");
    }

    /// Part of an answer to `fetch`; parts come with rising positions.
    fn fetched(&self, from: u64, last: bool, bytes: &[u8]) {
        let mut fetches = lock(&self.fetches);
        let found = fetches.iter().position(|fetch| fetch.next == from);
        let Some(at) = found else { return };
        let fetch = &mut fetches[at];
        fetch.bytes.extend_from_slice(bytes);
        fetch.next += bytes.len() as u64;
        if last {
            let fetch = fetches.remove(at);
            // Whoever asked may have gone.
            let _ = fetch.done.send(fetch.bytes);
        }
    }

    /// Looks at the terminal and its foreground process, as attention asked for.
    fn looked(self: &Arc<Self>, stat: &Stat) {
        let now = EpochMillis::now();
        let found = stat
            .foreground
            .and_then(|group| process_facts(group, stat.child));
        {
            let mut facts = lock(&self.facts);
            facts.foreground = stat.foreground.is_some_and(|group| group != stat.child);
            if let Some(found) = &found {
                facts.program = Some(found.name.clone());
                if let Some(cwd) = &found.cwd {
                    facts.cwd = Some(cwd.to_string_lossy().into_owned());
                }
            }
        }
        let probe = super::translate::probe(stat, found.as_ref());
        let rows = {
            let screen = lock(&self.screen);
            super::translate::screen_facts(&screen.grid)
        };
        self.attend(Input::Probe(probe), now);
        self.attend(Input::Screen(rows), now);
        self.attend(Input::Tick, now);
    }

    /// Steps attention and publishes what changed.
    pub(super) fn attend(self: &Arc<Self>, input: Input, now: EpochMillis) {
        let Effects {
            changed, look_at, ..
        } = lock(&self.attention).step(input, now);
        if let Some(attention) = changed {
            self.tell(
                name::SESSION_ATTENTION,
                json!({"attention": attention.for_event(), "name": self.name()}),
            );
            self.bump();
        }
        self.due(|due| due.look = look_at);
    }

    fn due_for_checkpoint(self: &Arc<Self>, now: EpochMillis) {
        self.due(|due| due.checkpoint = Some(now.plus_ms(limits::CHECKPOINT_QUIET_MS)));
    }

    /// Changes when the session is to be looked at; a task waits for that only while there is a time.
    fn due(self: &Arc<Self>, change: impl FnOnce(&mut super::session::Due)) {
        let mut due = lock(&self.due);
        change(&mut due);
        if !due.runs && (due.look.is_some() || due.checkpoint.is_some()) {
            due.runs = true;
            self.hub.runtime.spawn(wait_until_due(Arc::clone(self)));
        }
    }
}

/// Code and signal; both are absent where nobody knows how the program ended.
pub(super) fn parts_of(exit: Option<ProcessExit>) -> (Option<i32>, Option<i32>) {
    match exit {
        Some(ProcessExit::Code(code)) => (Some(code), None),
        Some(ProcessExit::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    }
}

async fn wait_until_due(session: Arc<Session>) {
    loop {
        let now = EpochMillis::now();
        let (look, checkpoint, wait) = {
            let mut due = lock(&session.due);
            let next = due.look.into_iter().chain(due.checkpoint).min();
            let Some(next) = next else {
                due.runs = false;
                return;
            };
            let wait = next.since(now);
            let came = |at: &mut Option<EpochMillis>| at.take_if(|at| at.since(now) <= 0).is_some();
            (came(&mut due.look), came(&mut due.checkpoint), wait)
        };
        if checkpoint {
            let session = Arc::clone(&session);
            // Not worth a thread of its own, but too long for one of the runtime's.
            let _ = tokio::task::spawn_blocking(move || {
                let mut screen = lock(&session.screen);
                checkpoint::store(&session, &mut screen);
                screen.flush_recording(&session.id);
            })
            .await;
        }
        if look
            && session.is_running()
            && let Ok(writer) = session.live()
        {
            // The answer comes to the feed task; a holder that has gone is noticed there.
            let _ = writer.stat();
        }
        if !look && !checkpoint {
            let wait = u64::try_from(wait).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(wait.max(1))).await;
        }
    }
}

impl Screen {
    /// Feeds output; answers what it asks of its owner. Queries that a former agent has answered give
    /// no replies.
    pub(super) fn feed(&mut self, bytes: &[u8], now: EpochMillis) -> Vec<Effect> {
        let mut effects = Vec::new();
        let answered = self.answered.saturating_sub(self.next.offset);
        let answered = usize::try_from(answered)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let (old, new) = bytes.split_at(answered);
        if !old.is_empty() {
            self.grid.feed(old, &mut effects);
            effects.retain(|effect| !matches!(effect, Effect::Reply(_)));
        }
        self.grid.feed(new, &mut effects);
        self.next.offset += bytes.len() as u64;
        effects.iter().for_each(|effect| self.said.note(effect));
        self.sync_since = match (self.grid.modes().synchronized, self.sync_since) {
            (true, since) => since.or(Some(now)),
            (false, _) => None,
        };
        if let Some(recording) = &mut self.recording
            && let Err(error) = recording.output(bytes, now)
        {
            tracing::warn!(%error, "a recording ends early");
            self.recording = None;
        }
        effects
    }

    pub(super) fn resize(&mut self, at: Position, size: PtySize, now: EpochMillis) {
        self.next.mark = at.mark;
        self.grid.resize(Size {
            cols: size.cols,
            rows: size.rows,
        });
        if let Some(recording) = &mut self.recording
            && recording.resized(size.cols, size.rows, now).is_err()
        {
            self.recording = None;
        }
    }

    fn flush_recording(&mut self, id: &crate::base::ids::TerminalId) {
        if let Some(recording) = &mut self.recording
            && let Err(error) = recording.flush()
        {
            tracing::warn!(session = %id, %error, "a recording ends early");
            self.recording = None;
        }
    }
}
