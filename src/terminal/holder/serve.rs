//! The holder's one loop.
//!
//! ```text
//!            output ◀── terminal ◀── input queue ◀── input
//!              │                                       ▲
//!              ▼                                       │
//!            ring ──▶ outgoing ──▶ agent ──▶ frames ───┴──▶ checkpoint, resize, kill, …
//!
//! running ──child ended, all output read, no kill under way──▶ ended: exit.json and last.screen written
//! ended ──agent took the end and left, or forgot the session, or HOLDER_LINGER_MS──▶ the process ends
//! ```
//!
//! After the child's end its terminal hangs up, so output ends by itself on Linux; where a grandchild keeps
//! the terminal open, what comes within HOLDER_DRAIN_MS still counts.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::buffer::FrameBuffer;
use super::checkpoint::{Checkpoint, Incoming, Transfer};
use super::folder::{self, Ended, Meta, Spec};
use super::outgoing::{Outgoing, Pumped, StreamEnd};
use super::protocol::{self, ErrorCode, FromHolder, Hello, PROTOCOL, Position, Stat, ToHolder};
use super::ring::Ring;
use super::{HolderError, environment};
use crate::base::{EpochMillis, limits};
use crate::platform::pty::{
    HolderIo, ProcessExit, Program, PtySize, Ready, Received, Slot, Waiting, Wanted, process_facts,
};
use crate::terminal::lately::Lately;

/// How long a step that has to be repeated waits: a hung-up terminal, a survivor, a full disk.
const AGAIN: Duration = Duration::from_millis(250);

/// A kill under way.
struct Kill {
    asked: u32,
    forced: u32,
    /// When the session is killed; `None` once it was.
    deadline: Option<Instant>,
}

/// A session and everything about it that lives in this process.
pub struct Holder {
    folder: PathBuf,
    io: HolderIo,
    size: PtySize,
    ring: Ring,
    checkpoint: Checkpoint,
    incoming: Option<Incoming>,
    /// Bytes from the agent that is served, and from one that has not said hello.
    inbound: FrameBuffer,
    candidate: FrameBuffer,
    out: Outgoing,
    blocked: bool,
    /// Output that came just now: watchers are told what is little.
    lately: Lately,
    input: VecDeque<u8>,
    /// Bytes of input and replies that this connection's agent gave, and of how many it was told last
    /// that they wait here no more.
    heard: u64,
    told: Option<u64>,
    /// Up to where the terminal's queries have been answered.
    answered: u64,
    /// The terminal has hung up; it is looked at again, since the program may open it anew.
    hung_up: bool,
    exit: Option<(ProcessExit, Instant)>,
    kill: Option<Kill>,
    end: Option<StreamEnd>,
    /// When memory that nobody needed since goes back.
    release: Option<Instant>,
    /// When the process ends although an agent is connected, or tries again to write its last files.
    linger: Option<Instant>,
    saved: bool,
    /// An agent has come. A program that ends at once waits for it, so that the agent which asked for the
    /// session need not look into its folder.
    greeted: bool,
    forgotten: bool,
    /// Held, never read: the lock ends with the file.
    _lock: File,
}

impl Holder {
    /// Locks the folder, starts the program of its specification and listens.
    pub fn start(folder: &Path) -> Result<Self, HolderError> {
        let lock = folder::lock(folder).map_err(folder::file_error(&folder.join(folder::LOCK)))?;
        let spec = Spec::read(folder)?;
        let program = Program {
            env: environment::of_session(std::env::vars_os(), &spec.id, &spec.env),
            argv: spec.argv,
            cwd: spec.cwd,
        };
        let io = HolderIo::start(&folder::socket_of(folder), &program, spec.size)
            .map_err(HolderError::io("start the program"))?;
        let mut holder = Self {
            folder: folder.to_owned(),
            io,
            size: spec.size,
            ring: Ring::default(),
            checkpoint: Checkpoint::default(),
            incoming: None,
            inbound: FrameBuffer::new(limits::HOLDER_CHUNK_LEN),
            candidate: FrameBuffer::new(limits::HOLDER_CHUNK_LEN),
            out: Outgoing::default(),
            blocked: false,
            lately: Lately::default(),
            input: VecDeque::new(),
            heard: 0,
            told: None,
            answered: 0,
            hung_up: false,
            exit: None,
            kill: None,
            end: None,
            release: None,
            linger: None,
            saved: false,
            greeted: false,
            forgotten: false,
            _lock: lock,
        };
        let meta = Meta {
            protocol: PROTOCOL,
            holder: std::process::id(),
            child: holder.io.child(),
            started_at: EpochMillis::now(),
        };
        if let Err(error) = folder::write_json(&folder.join(folder::META), &meta) {
            // A session that nobody could find again must not run.
            holder.io.end_session();
            return Err(error);
        }
        Ok(holder)
    }

    /// The program's process number.
    pub fn child(&self) -> u32 {
        self.io.child()
    }

    /// Holds until the session has ended and its end is on disk or forgotten.
    pub fn run(mut self) -> io::Result<()> {
        loop {
            self.settle();
            self.pump();
            if self.is_over() {
                break;
            }
            let ready = self.io.wait(&self.wanted())?;
            self.step(&ready);
        }
        if self.forgotten {
            // What cannot be removed is found as an ended session.
            let _ = folder::remove(&self.folder);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        if self.forgotten {
            return true;
        }
        if self.end.is_none() || !self.saved {
            return false;
        }
        let alone = !self.io.has(Slot::Current) && !self.io.has(Slot::Candidate);
        (alone && self.greeted) || self.linger.is_some_and(|until| until <= Instant::now())
    }

    /// Output that the ring takes before a checkpoint has to come.
    fn has_room(&self) -> bool {
        let unsaved = self.ring.next().offset - self.checkpoint.at.offset;
        // What a dead program left in its terminal is bounded by the kernel.
        unsaved < limits::HOLDER_RING_LEN_MAX || self.exit.is_some()
    }

    fn wanted(&self) -> Wanted {
        let deadlines = [
            self.kill.as_ref().and_then(|kill| kill.deadline),
            self.kill
                .as_ref()
                .filter(|_| self.exit.is_some())
                .map(|_| Instant::now() + AGAIN),
            self.exit
                .filter(|_| self.end.is_none() && !self.hung_up)
                .map(|(_, until)| until),
            self.linger,
            self.release,
            (self.hung_up && self.exit.is_none()).then(|| Instant::now() + AGAIN),
        ];
        Wanted {
            pty_read: self.end.is_none() && !self.hung_up && self.has_room(),
            pty_write: !self.input.is_empty() && !self.hung_up && self.end.is_none(),
            current_read: !self.out.is_full(),
            current_write: self.blocked,
            until: deadlines.into_iter().flatten().min(),
        }
    }

    fn step(&mut self, ready: &Ready) {
        if ready.exited
            && let Some(exit) = self.io.exit_status()
        {
            let until = Instant::now() + Duration::from_millis(limits::HOLDER_DRAIN_MS);
            self.exit = Some((exit, until));
            // What the terminal still holds is read whatever came before.
            self.hung_up = false;
        } else if self.hung_up && self.exit.is_none() {
            self.hung_up = false;
        }
        if ready.pty_read {
            self.read_output();
        }
        if ready.accepted {
            self.candidate = FrameBuffer::new(limits::HOLDER_CHUNK_LEN);
        }
        if ready.candidate_read {
            self.hear_candidate();
        }
        if ready.current_read {
            self.hear_agent();
        }
        if ready.pty_write {
            self.write_input();
        }
        if ready.stop {
            self.begin_kill();
        }
    }

    /// Reads what the terminal has, up to one chunk, so that a flood does not keep the agent waiting.
    fn read_output(&mut self) {
        let from = self.ring.next().offset;
        let mut left = limits::HOLDER_CHUNK_LEN;
        while left > 0 {
            let room = self.ring.room();
            let length = room.len().min(left);
            match self.io.read_pty(&mut room[..length]) {
                Ok(Received::Bytes(length)) => {
                    self.ring.filled(length);
                    left = left.saturating_sub(length);
                }
                Ok(Received::Nothing) => break,
                // A terminal that cannot be read any more gives no more output.
                Ok(Received::Closed) | Err(_) => {
                    self.hung_up = true;
                    break;
                }
            }
        }
        self.tell_watchers(from);
        self.trim();
    }

    /// Tells watchers what came since `from`, before the agent: they are the ones that wait for an echo.
    fn tell_watchers(&mut self, mut from: u64) {
        let end = self.ring.next().offset;
        let came = usize::try_from(end - from).unwrap_or(usize::MAX);
        if !self.io.is_watched()
            || self.lately.count(came, Instant::now()) > limits::HOLDER_TEE_LEN_MAX
        {
            return;
        }
        while from < end {
            let piece = self.ring.piece(from);
            let header = protocol::output_header(from, piece.len());
            self.io.tell_watchers(&[&header, piece]);
            from += piece.len() as u64;
        }
    }

    fn trim(&mut self) {
        let kept = self
            .checkpoint
            .at
            .offset
            .saturating_sub(limits::HOLDER_RING_KEPT_LEN);
        let under_way = self.out.needs_from().unwrap_or(u64::MAX);
        self.ring.trim(kept.min(under_way));
    }

    fn write_input(&mut self) {
        while !self.input.is_empty() {
            let (first, _) = self.input.as_slices();
            match self.io.write_pty(first) {
                Ok(0) => break,
                Ok(length) => drop(self.input.drain(..length)),
                // Nobody reads this terminal any more; output tells how it ended.
                Err(_) => self.input.clear(),
            }
        }
        if self.input.is_empty() {
            if self.input.capacity() > 4 * 1024 {
                self.input = VecDeque::new();
            }
            if HolderIo::SENDS_TERMINAL && self.told != Some(self.heard) {
                self.told = Some(self.heard);
                self.out.answer(FromHolder::Taken(self.heard));
            }
        }
    }

    /// Moves the session on to its end where it has come to it.
    fn settle(&mut self) {
        let now = Instant::now();
        self.settle_kill(now);
        if self.release.is_some_and(|at| at <= now) {
            self.release_memory();
        }
        if let Some((exit, until)) = self.exit
            && self.end.is_none()
            && self.kill.is_none()
            && (self.hung_up || until <= now)
        {
            self.input.clear();
            self.end = Some(StreamEnd {
                offset: self.ring.next().offset,
                exit,
            });
            self.linger = Some(now + Duration::from_millis(limits::HOLDER_LINGER_MS));
            self.save();
        } else if self.end.is_some() && !self.saved && self.linger.is_some_and(|at| at <= now) {
            self.save();
        }
    }

    fn settle_kill(&mut self, now: Instant) {
        let Some(kill) = &mut self.kill else {
            return;
        };
        if kill.deadline.is_some_and(|deadline| deadline <= now) {
            kill.deadline = None;
            kill.forced = self.io.end_session();
        }
        let gone = self.exit.is_some() && !self.io.session_runs();
        if gone {
            self.out.answer(FromHolder::Killed {
                asked: kill.asked,
                forced: kill.forced,
            });
            self.kill = None;
        }
    }

    fn begin_kill(&mut self) {
        if self.end.is_some() {
            self.out.answer(FromHolder::Killed {
                asked: 0,
                forced: 0,
            });
        } else if self.kill.is_none() {
            let grace = Duration::from_millis(limits::HOLDER_KILL_GRACE_MS);
            self.kill = Some(Kill {
                asked: self.io.ask_to_end(),
                forced: 0,
                deadline: Some(Instant::now() + grace),
            });
        }
    }

    /// Writes the last files. A disk that is full is tried again; a folder that is gone was forgotten.
    fn save(&mut self) {
        let Some(end) = self.end else {
            return;
        };
        let ended = Ended {
            exit: end.exit,
            at: EpochMillis::now(),
        };
        let screen = self.folder.join(folder::LAST_SCREEN);
        let written = folder::write_file(&screen, |file| self.write_last(file, end)).is_ok()
            && folder::write_json(&self.folder.join(folder::EXIT), &ended).is_ok();
        self.saved = written;
        if !written {
            self.forgotten = !self.folder.exists();
            self.linger = Some(Instant::now() + AGAIN);
        }
    }

    /// Writes what an agent would be told that connects now.
    fn write_last(&self, file: &mut File, end: StreamEnd) -> io::Result<()> {
        let mut out = Outgoing::default();
        out.answer(FromHolder::Hello(self.hello()));
        out.transfer(Transfer::new(self.checkpoint.clone()));
        out.subscribe(self.checkpoint.at);
        out.pump(&self.ring, Some(end), &mut |pieces| {
            file.write_vectored(pieces)
        })?;
        Ok(())
    }

    fn pump(&mut self) {
        if !self.io.has(Slot::Current) {
            return;
        }
        let (io, out) = (&mut self.io, &mut self.out);
        let sent = out.pump(&self.ring, self.end, &mut |pieces| {
            io.send(Slot::Current, pieces)
        });
        match sent {
            Ok(pumped) => self.blocked = pumped == Pumped::Blocked,
            Err(_) => self.lose_agent(),
        }
    }

    fn lose_agent(&mut self) {
        self.io.close(Slot::Current);
        self.forget_connection();
    }

    fn forget_connection(&mut self) {
        self.out = Outgoing::default();
        // Input of an agent that has gone may still wait: the next one is told once it does not.
        (self.heard, self.told) = (0, None);
        self.incoming = None;
        self.inbound = FrameBuffer::new(limits::HOLDER_CHUNK_LEN);
        self.blocked = false;
        self.trim();
        self.release_memory();
    }

    fn release_memory(&mut self) {
        self.release = None;
        self.ring.release();
        crate::platform::pty::zygote::release_memory();
    }

    /// Waits for the hello of a new connection. One that speaks this protocol takes the place of the agent
    /// that is served; another is told the version and closed.
    fn hear_candidate(&mut self) {
        match receive(&mut self.io, Slot::Candidate, &mut self.candidate) {
            Ok(true) => {}
            Ok(false) => return,
            Err(Lost) => return self.io.close(Slot::Candidate),
        }
        let hello = match self.candidate.take() {
            Ok(None) => return,
            Ok(Some(raw)) => protocol::to_holder(raw),
            Err(error) => Err(error),
        };
        match hello {
            Ok(ToHolder::Hello { protocol }) if protocol == PROTOCOL => {
                self.io.promote();
                self.greeted = true;
                self.forget_connection();
                std::mem::swap(&mut self.inbound, &mut self.candidate);
                let mut hello = Vec::new();
                FromHolder::Hello(self.hello()).put(&mut hello);
                // The first bytes of a connection: they go at once, or nothing will.
                match self.io.send_terminal(Slot::Current, &hello) {
                    Ok(sent) if sent == hello.len() => self.hear_frames(),
                    _ => self.lose_agent(),
                }
            }
            Ok(ToHolder::Hello { .. }) => {
                let mut answer = Vec::new();
                FromHolder::Hello(self.hello()).put(&mut answer);
                // A peer that does not take these few bytes learns it from meta.json.
                let _ = self.io.send(Slot::Candidate, &[io::IoSlice::new(&answer)]);
                self.io.close(Slot::Candidate);
            }
            Ok(ToHolder::Watch { protocol }) if protocol == PROTOCOL => self.io.watch(),
            _ => self.io.close(Slot::Candidate),
        }
    }

    fn hear_agent(&mut self) {
        match receive(&mut self.io, Slot::Current, &mut self.inbound) {
            Ok(true) => self.hear_frames(),
            Ok(false) => {}
            Err(Lost) => self.lose_agent(),
        }
    }

    fn hear_frames(&mut self) {
        let mut inbound = std::mem::replace(&mut self.inbound, FrameBuffer::new(0));
        loop {
            let frame = match inbound.take() {
                Ok(None) => break,
                Ok(Some(raw)) => protocol::to_holder(raw),
                Err(error) => Err(error),
            };
            match frame {
                Ok(frame) => self.obey(frame),
                Err(_) => return self.lose_agent(),
            }
        }
        inbound.shrink();
        self.inbound = inbound;
        self.write_input();
    }

    fn obey(&mut self, frame: ToHolder<'_>) {
        match frame {
            ToHolder::Subscribe(from) => self.out.subscribe(from),
            ToHolder::Input(bytes) => self.take_input(bytes),
            ToHolder::Reply { answered, bytes } => {
                self.take_input(bytes);
                self.answered = self.answered.max(answered);
            }
            ToHolder::Resize(size) => self.resize(size),
            ToHolder::CheckpointBegin {
                at,
                screen_len,
                keep_from,
            } => {
                let next = self.ring.next();
                let begun = self.checkpoint.begin(at, screen_len, keep_from, next);
                self.checkpoint_step(|_| begun.map(Some));
            }
            ToHolder::CheckpointScreen(bytes) => {
                self.checkpoint_step(|incoming| {
                    let mut incoming = incoming.ok_or(super::checkpoint::Refused::NotBegun)?;
                    incoming.screen(bytes).map(|()| Some(incoming))
                });
            }
            ToHolder::CheckpointBlock { id, bytes } => {
                self.checkpoint_step(|incoming| {
                    let mut incoming = incoming.ok_or(super::checkpoint::Refused::NotBegun)?;
                    incoming.block(id, bytes).map(|()| Some(incoming))
                });
            }
            ToHolder::CheckpointCommit => self.commit(),
            ToHolder::Fetch { from, length } => self.out.fetch(from, length.into()),
            ToHolder::FetchCheckpoint => {
                self.out.transfer(Transfer::new(self.checkpoint.clone()));
            }
            ToHolder::Stat => {
                let stat = self.stat();
                self.out.answer(FromHolder::Stat(stat));
            }
            ToHolder::Kill => self.begin_kill(),
            ToHolder::Forget if self.end.is_some() => self.forgotten = true,
            ToHolder::Forget => self
                .out
                .error(ErrorCode::StillRunning, "the program still runs"),
            ToHolder::Hello { .. } | ToHolder::Watch { .. } | ToHolder::Unknown(_) => {}
        }
    }

    fn take_input(&mut self, bytes: &[u8]) {
        self.heard += bytes.len() as u64;
        if self.input.len() + bytes.len() > limits::HOLDER_INPUT_LEN_MAX {
            let text = "the program does not read its input";
            return self.out.error(ErrorCode::InputQueueFull, text);
        }
        if self.end.is_none() {
            self.input.extend(bytes);
        }
    }

    fn resize(&mut self, size: PtySize) {
        // Output that was written for the former size comes before the mark.
        if self.end.is_none() && !self.hung_up && self.has_room() {
            self.read_output();
        }
        if size == self.size || self.end.is_some() {
            return;
        }
        let Some(mark) = self.ring.mark(size) else {
            let text = "too many changes of size since the last checkpoint";
            return self.out.error(ErrorCode::Busy, text);
        };
        self.size = size;
        if self.io.is_watched() {
            let mut resized = Vec::new();
            FromHolder::Resized { at: mark.at, size }.put(&mut resized);
            self.io.tell_watchers(&[&resized]);
        }
        if let Err(error) = self.io.resize(size) {
            self.out
                .error(ErrorCode::Failed, &format!("resize: {error}"));
        }
    }

    /// One step of a checkpoint; after a refusal the rest of it is refused too.
    fn checkpoint_step(
        &mut self,
        step: impl FnOnce(Option<Incoming>) -> Result<Option<Incoming>, super::checkpoint::Refused>,
    ) {
        match step(self.incoming.take()) {
            Ok(incoming) => self.incoming = incoming,
            Err(refused) => self
                .out
                .error(ErrorCode::CheckpointInvalid, &refused.to_string()),
        }
    }

    fn commit(&mut self) {
        self.checkpoint_step_commit();
        self.trim();
        let at = Instant::now() + Duration::from_millis(limits::HOLDER_RELEASE_MS);
        self.release.get_or_insert(at);
    }

    fn checkpoint_step_commit(&mut self) {
        let stored = self
            .incoming
            .take()
            .ok_or(super::checkpoint::Refused::NotBegun)
            .and_then(|incoming| self.checkpoint.commit(incoming));
        match stored {
            Ok(()) => {
                self.ring.trim_marks(self.checkpoint.at.mark);
                self.out.answer(FromHolder::Stored(self.checkpoint.at));
                if self.end.is_some() {
                    self.save();
                }
            }
            Err(refused) => self
                .out
                .error(ErrorCode::CheckpointInvalid, &refused.to_string()),
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            child: self.io.child(),
            size: self.size,
            first: self.ring.first(),
            next: self.ring.next(),
            checkpoint: self.checkpoint.at,
            screen_len: self.checkpoint.screen_len(),
            exit: self.end.map(|end| end.exit),
            answered: self.answered,
        }
    }

    fn stat(&self) -> Stat {
        let child = self.io.child();
        let foreground = self.io.state().foreground;
        let waiting = foreground
            .and_then(|group| process_facts(group, child))
            .map_or(Waiting::Unknown, |facts| facts.waiting);
        // After that: a program that reads by then has set its terminal up before.
        let state = self.io.state();
        let next: Position = self.ring.next();
        Stat {
            child,
            foreground: state.foreground,
            waiting,
            echo: state.echo,
            canonical: state.canonical,
            size: self.size,
            first: self.ring.first(),
            next,
            checkpoint: self.checkpoint.at,
            input_pending: u32::try_from(self.input.len()).unwrap_or(u32::MAX),
        }
    }
}

/// The connection has ended or sends what cannot be read.
struct Lost;

/// Takes what is there; `Ok(false)` when that is nothing.
fn receive(io: &mut HolderIo, slot: Slot, buffer: &mut FrameBuffer) -> Result<bool, Lost> {
    let room = buffer.room().map_err(|_| Lost)?;
    match io.receive(slot, room) {
        Ok(Received::Bytes(length)) => {
            buffer.filled(length);
            Ok(true)
        }
        Ok(Received::Nothing) => Ok(false),
        Ok(Received::Closed) | Err(_) => Err(Lost),
    }
}
