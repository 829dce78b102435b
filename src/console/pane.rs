//! One session in this console: its mirror, its stream, and what waits on either.
//!
//! ```text
//! Parked -> Connecting -> Live -> Lost -> Connecting …
//!               |           |
//!               v           v
//!            Refused      Ended
//! ```
//!
//! No I/O here but pushing pieces into the stream's bounded queue, and taking what the holder tells.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

use crate::base::ids::{ConsoleId, TerminalId};
use crate::base::{Kind, limits};
use crate::terminal::holder::{Early, Watcher};
use crate::wire::messages::sessions::{
    AttachMode, AttachParams, AttachReply, Control, Lease, LeaseMode, Location,
};
use crate::wire::stream::{Piece, PieceKind, StreamEnd};
use crate::wire::{Code, Fault};

use super::mirror::{Asked, Mirror};

/// A session of a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// Index into the places that the console was given.
    pub place: usize,
    pub id: TerminalId,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub exit_code: Option<i32>,
    pub exit_signal: Option<i32>,
}

impl Ended {
    /// For people.
    pub fn text(&self) -> String {
        match (self.exit_signal, self.exit_code) {
            (Some(signal), _) => format!("ended by signal {signal}"),
            (None, Some(0)) => "ended".into(),
            (None, Some(code)) => format!("ended with {code}"),
            (None, None) => "ended".into(),
        }
    }
}

/// How the pane stands to its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Kept for its screen; not attached.
    Parked,
    Connecting,
    Live,
    Lost {
        why: String,
        retry_at: Instant,
    },
    /// Asking again would not help.
    Refused(String),
    Ended(Ended),
}

/// What came for a pane.
pub enum Came {
    /// `None` is the end of the stream.
    Piece(Option<Piece>),
    /// `None`: the holder tells no more.
    Early(Option<Early>),
}

struct Stream {
    send: PollSender<Piece>,
    recv: mpsc::Receiver<Piece>,
}

/// What a piece did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Bytes that were fed to the mirror.
    pub fed: usize,
    pub asked: Asked,
    /// Something other than the screen changed: the footer should be painted.
    pub status_changed: bool,
    /// For the footer.
    pub notice: Option<String>,
    pub ended: bool,
    /// Somebody sent this console away.
    pub dismissed: bool,
}

/// Why typing was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTyped {
    /// This console only watches.
    Observing,
    /// Another console types alone.
    Held,
    /// There is no stream.
    NotAttached,
    /// The link does not take more.
    Full,
}

pub struct Pane {
    pub key: SessionKey,
    /// The session's name before the list of its place was read last: a session that is forgotten goes
    /// by it.
    pub last_name: Option<String>,
    pub mirror: Mirror,
    pub status: Status,
    pub mode: AttachMode,
    /// The person wants to watch this session, also while it has the focus.
    pub watch_only: bool,
    pub lease: Lease,
    pub console_id: Option<ConsoleId>,
    /// The byte position that the mirror shows.
    pub offset: u64,
    /// The byte position up to which the stream has come; what it brings below `offset` was told early.
    streamed: u64,
    /// Counts attempts to attach, so that a late answer to an old one is known.
    pub attempt: u64,
    /// Who else types, and until when that is shown.
    pub typing: Option<(String, Instant)>,
    /// From a key to the next output, smoothed.
    pub latency: Option<Duration>,
    asked_at: Option<Instant>,
    stream: Option<Stream>,
    watcher: Option<Watcher>,
    /// The size of the terminal, which the mirror has not yet: early output waits for the screen of that
    /// size.
    resizing: Option<(u16, u16)>,
    outbox: VecDeque<Piece>,
    outbox_len: usize,
    /// Bytes of a snapshot or a screen that are still to come.
    collecting: u64,
    /// Bytes of this stream that were taken in, and how many of them the owner was told of.
    taken: u64,
    acked: u64,
    /// The mirror holds something: a reconnect may go on from `offset`.
    filled: bool,
    sent_size: Option<(u16, u16)>,
    /// Input waited for an attachment that failed or was given up.
    dropped_input: bool,
    retry_ms: u64,
    held_since: Option<Instant>,
}

impl Pane {
    pub fn new(key: SessionKey, size: (u16, u16), mode: AttachMode) -> Self {
        Self {
            key,
            last_name: None,
            mirror: Mirror::new(size.0, size.1),
            status: Status::Parked,
            mode,
            watch_only: false,
            lease: Lease::default(),
            console_id: None,
            offset: 0,
            streamed: 0,
            attempt: 0,
            typing: None,
            latency: None,
            asked_at: None,
            stream: None,
            watcher: None,
            resizing: None,
            outbox: VecDeque::new(),
            outbox_len: 0,
            collecting: 0,
            taken: 0,
            acked: 0,
            filled: false,
            sent_size: None,
            dropped_input: false,
            retry_ms: limits::CONSOLE_RETRY_MS_MIN,
            held_since: None,
        }
    }

    /// Begins an attempt and gives its parameters. Any stream of before is dropped.
    pub fn connect(&mut self, size: (u16, u16), how: &How) -> AttachParams {
        // What was typed during an attempt waits for the next one as well.
        let typed = match self.status {
            Status::Connecting => std::mem::take(&mut self.outbox),
            _ => VecDeque::new(),
        };
        self.drop_stream();
        typed.into_iter().for_each(|piece| self.queue(piece));
        self.attempt += 1;
        self.status = Status::Connecting;
        AttachParams {
            session_id: self.key.id.as_str().to_owned(),
            cols: size.0,
            rows: size.1,
            mode: self.mode,
            since: self.filled.then_some(self.offset),
            exclusive: how.exclusive && self.mode == AttachMode::Control,
            takeover: how.takeover,
            console_id: self.console_id.clone(),
            label: how.label.clone(),
            location: how.location,
            acks: true,
        }
    }

    /// Takes the answer to an attempt; false when it is not the last one's.
    pub fn connected(
        &mut self,
        attempt: u64,
        answer: Result<(AttachReply, StreamEnd), Fault>,
    ) -> bool {
        if attempt != self.attempt || self.status != Status::Connecting {
            return false;
        }
        match answer {
            Ok((reply, end)) => {
                (self.taken, self.acked) = (0, 0);
                self.stream = Some(Stream {
                    send: PollSender::new(end.send),
                    recv: end.recv,
                });
                self.status = Status::Live;
                self.retry_ms = limits::CONSOLE_RETRY_MS_MIN;
                self.console_id = Some(reply.console_id);
                self.sent_size = None;
                // What was typed meanwhile goes after the word that the lease was seen.
                let typed = std::mem::take(&mut self.outbox);
                self.outbox_len = 0;
                self.seen(reply.lease);
                typed.into_iter().for_each(|piece| self.push(piece));
            }
            Err(fault) => {
                self.refused(&fault, Instant::now());
            }
        }
        true
    }

    fn refused(&mut self, fault: &Fault, now: Instant) {
        let gone = fault.code == Code::SessionIncompatible;
        if gone || matches!(fault.code.kind(), Kind::User | Kind::Denied | Kind::Config) {
            self.status = Status::Refused(fault.message.to_string());
        } else {
            self.lost(fault.message.to_string(), now);
        }
    }

    /// Another attempt follows after a wait that doubles.
    pub fn lost(&mut self, why: String, now: Instant) {
        self.drop_stream();
        let retry_at = now + Duration::from_millis(self.retry_ms);
        self.retry_ms = (self.retry_ms * 2).min(limits::CONSOLE_RETRY_MS_MAX);
        self.status = Status::Lost { why, retry_at };
    }

    /// Gives the stream up and keeps the screen.
    pub fn park(&mut self) {
        self.drop_stream();
        if !matches!(self.status, Status::Ended(_)) {
            self.status = Status::Parked;
        }
    }

    /// Takes early what the holder of a session on this machine tells.
    pub fn watch(&mut self, watcher: Option<Watcher>) {
        self.watcher = watcher.filter(|_| self.stream.is_some());
    }

    fn drop_stream(&mut self) {
        self.stream = None;
        self.watcher = None;
        self.resizing = None;
        self.dropped_input |= self
            .outbox
            .iter()
            .any(|piece| piece.kind == PieceKind::Bytes);
        self.outbox.clear();
        self.outbox_len = 0;
        self.typing = None;
        self.asked_at = None;
        self.held_since = None;
        if self.collecting > 0 {
            // Half a snapshot is no state to go on from.
            self.collecting = 0;
            self.filled = false;
        }
    }

    /// Whether the mirror shows a whole state, and no update of the program is half done. Neither holds
    /// the screen back for long.
    pub fn may_paint(&mut self, now: Instant) -> bool {
        if self.collecting == 0 && !self.mirror.is_synchronized() {
            self.held_since = None;
            return true;
        }
        let since = *self.held_since.get_or_insert(now);
        now.duration_since(since).as_millis() >= u128::from(limits::CONSOLE_SYNC_TIMEOUT_MS)
    }

    /// When `may_paint` changes without further output.
    pub fn paint_deadline(&self) -> Option<Instant> {
        let since = self.held_since?;
        Some(since + Duration::from_millis(limits::CONSOLE_SYNC_TIMEOUT_MS))
    }

    /// What comes next. Also moves waiting input into the stream.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Came> {
        self.poll_send(context);
        if let Some(watcher) = &mut self.watcher
            && let Poll::Ready(early) = watcher.poll_next(context)
        {
            return Poll::Ready(Came::Early(early));
        }
        match &mut self.stream {
            Some(stream) => stream.recv.poll_recv(context).map(Came::Piece),
            None => Poll::Pending,
        }
    }

    /// The next piece, if it is there already.
    pub fn try_next(&mut self) -> Option<Piece> {
        self.stream.as_mut()?.recv.try_recv().ok()
    }

    fn poll_send(&mut self, context: &mut Context<'_>) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        while !self.outbox.is_empty() {
            match stream.send.poll_reserve(context) {
                Poll::Ready(Ok(())) => {
                    if let Some(piece) = self.outbox.pop_front() {
                        self.outbox_len -= piece.body.len();
                        let _ = stream.send.send_item(piece);
                    }
                }
                // The receiving side tells the end of the stream.
                Poll::Ready(Err(_)) | Poll::Pending => return,
            }
        }
    }

    /// Applies what `poll` gave; `None` is the end of the stream.
    pub fn apply(&mut self, piece: Option<Piece>, now: Instant) -> Applied {
        let mut applied = Applied::default();
        let Some(piece) = piece else {
            applied.status_changed = true;
            match self.status {
                Status::Ended(_) => self.drop_stream(),
                _ => self.lost("the connection ended".into(), now),
            }
            return applied;
        };
        let len = piece.body.len();
        match piece.kind {
            PieceKind::Control => self.control(&piece.body, now, &mut applied),
            PieceKind::Bytes => {
                let start = self.streamed;
                self.streamed += len as u64;
                self.feed(start, &piece.body, now, &mut applied);
            }
            PieceKind::Snapshot | PieceKind::Screen => {
                // What rings or copies in a replay has done so before.
                self.mirror.feed(&piece.body);
                applied.fed = len;
                self.collecting = self.collecting.saturating_sub(len as u64);
            }
        }
        let screen = piece.kind == PieceKind::Screen && self.collecting == 0;
        if screen {
            self.measure(now);
        }
        if piece.kind.is_acknowledged() {
            self.taken += len as u64;
            if screen || self.taken - self.acked >= limits::CONSOLE_ACK_EVERY {
                self.acked = self.taken;
                self.tell(&Control::Ack { bytes: self.taken });
            }
        }
        applied
    }

    /// Applies what the holder told: bytes that follow what the mirror shows. After a gap, and while the
    /// mirror stands for another state, they come by the stream alone.
    pub fn apply_early(&mut self, early: Option<Early>, now: Instant) -> Applied {
        let mut applied = Applied::default();
        match early {
            None => self.watcher = None,
            Some(Early::Resized(size)) => {
                let size = (size.cols, size.rows);
                self.resizing = (size != self.mirror.size()).then_some(size);
            }
            Some(Early::Output { offset, bytes }) => {
                let fits = self.filled && self.collecting == 0 && self.resizing.is_none();
                if fits && offset <= self.offset {
                    self.feed(offset, &bytes, now, &mut applied);
                }
            }
        }
        applied
    }

    /// Feeds the part of bytes from `start` on that the mirror does not show yet.
    fn feed(&mut self, start: u64, bytes: &[u8], now: Instant, applied: &mut Applied) {
        let known = usize::try_from(self.offset.saturating_sub(start)).unwrap_or(usize::MAX);
        let Some(bytes) = bytes.get(known..).filter(|bytes| !bytes.is_empty()) else {
            return;
        };
        applied.asked = self.mirror.feed(bytes);
        self.offset += bytes.len() as u64;
        applied.fed = bytes.len();
        self.measure(now);
    }

    fn measure(&mut self, now: Instant) {
        if let Some(asked) = self.asked_at.take() {
            let took = now.duration_since(asked);
            self.latency = Some(match self.latency {
                Some(before) => (before * 3 + took) / 4,
                None => took,
            });
        }
    }

    fn control(&mut self, body: &[u8], now: Instant, applied: &mut Applied) {
        applied.status_changed = true;
        // A control piece of a newer owner that this version does not know changes nothing here.
        let Ok(control) = serde_json::from_slice::<Control>(body) else {
            return;
        };
        match control {
            Control::Attached {
                since,
                snapshot_bytes,
                cols,
                rows,
                console_id,
                lease,
                ..
            } => {
                (self.offset, self.streamed) = (since, since);
                if console_id.is_some() {
                    self.console_id = console_id;
                }
                if snapshot_bytes > 0 {
                    self.begin(snapshot_bytes, cols, rows);
                } else {
                    self.filled = true;
                    self.mirror.resize(cols, rows);
                }
                self.seen(lease);
            }
            Control::Resize { cols, rows, .. } => self.mirror.resize(cols, rows),
            Control::Lease { lease } => self.seen(lease),
            Control::Typing { label, .. } => {
                let until = now + Duration::from_millis(limits::CONSOLE_TYPING_MS);
                self.typing = Some((super::cell::clean(&label), until));
            }
            Control::Screen {
                offset,
                length,
                cols,
                rows,
            } => {
                (self.offset, self.streamed) = (offset, offset);
                self.begin(length, cols, rows);
            }
            Control::Exit {
                exit_code,
                exit_signal,
            } => {
                self.status = Status::Ended(Ended {
                    exit_code,
                    exit_signal,
                });
                applied.ended = true;
            }
            Control::Error { code, message } => {
                if code == Code::ConsoleDetached.as_str() {
                    // It comes back only when its person wants that.
                    applied.dismissed = true;
                    applied.status_changed = true;
                    self.drop_stream();
                    self.status = Status::Refused(super::cell::clean(&message));
                }
                applied.notice = Some(super::cell::clean(&message));
            }
            Control::Generation { .. }
            | Control::Take { .. }
            | Control::Release {}
            | Control::Focus { .. }
            | Control::Ack { .. }
            | Control::Credit { .. } => {}
        }
    }

    fn begin(&mut self, length: u64, cols: u16, rows: u16) {
        self.mirror = Mirror::new(cols, rows);
        self.resizing = self.resizing.filter(|size| *size != (cols, rows));
        self.collecting = length;
        self.filled = true;
    }

    fn seen(&mut self, lease: Lease) {
        let news = lease.generation != self.lease.generation || self.sent_size.is_none();
        self.lease = lease;
        if news && self.mode == AttachMode::Control {
            let generation = self.lease.generation;
            self.tell(&Control::Generation { generation });
        }
    }

    /// Who types alone, if not this console.
    pub fn held_by_other(&self) -> bool {
        self.lease.mode == LeaseMode::Exclusive && self.lease.holder != self.console_id
    }

    /// Whether this console types alone.
    pub fn holds(&self) -> bool {
        self.lease.mode == LeaseMode::Exclusive
            && self.lease.holder.is_some()
            && self.lease.holder == self.console_id
    }

    /// Whether the terminal has another console's size.
    pub fn sized_by_other(&self) -> bool {
        self.lease.size_owner.is_some() && self.lease.size_owner != self.console_id
    }

    /// Types bytes, or says why not.
    pub fn type_bytes(&mut self, bytes: Vec<u8>, now: Instant) -> Result<(), NotTyped> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.mode == AttachMode::Observe {
            return Err(NotTyped::Observing);
        }
        if !matches!(self.status, Status::Live | Status::Connecting) {
            return Err(NotTyped::NotAttached);
        }
        if self.held_by_other() {
            return Err(NotTyped::Held);
        }
        if self.outbox_len + bytes.len() > limits::CONSOLE_INPUT_QUEUED_MAX {
            return Err(NotTyped::Full);
        }
        let piece = Piece::new(PieceKind::Bytes, bytes);
        if self.status == Status::Connecting {
            self.queue(piece);
            return Ok(());
        }
        self.asked_at.get_or_insert(now);
        self.push(piece);
        Ok(())
    }

    /// Types what nobody pressed, such as a focus event: refused without a word.
    pub fn type_quietly(&mut self, bytes: &[u8]) {
        if self.mode == AttachMode::Control && !self.held_by_other() {
            self.push(Piece::new(PieceKind::Bytes, bytes.to_vec()));
        }
    }

    /// Sends a control piece.
    pub fn tell(&mut self, control: &Control) {
        // INVARIANT: a `Control` has only texts, numbers and booleans, which JSON can hold.
        let body = serde_json::to_vec(control).expect("a control piece is JSON");
        self.push(Piece::new(PieceKind::Control, body));
    }

    fn push(&mut self, piece: Piece) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        if self.outbox.is_empty()
            && let Some(sender) = stream.send.get_ref()
        {
            match sender.try_send(piece) {
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(piece)) => self.queue(piece),
            }
        } else {
            self.queue(piece);
        }
    }

    fn queue(&mut self, piece: Piece) {
        self.outbox_len += piece.body.len();
        self.outbox.push_back(piece);
    }

    /// Asks for a size, once. Only the pane with the focus does.
    pub fn want_size(&mut self, size: (u16, u16)) {
        let live = self.status == Status::Live && self.mode == AttachMode::Control;
        if live && self.sent_size != Some(size) && !self.held_by_other() {
            self.sent_size = Some(size);
            self.tell(&Control::Resize {
                cols: size.0,
                rows: size.1,
                offset: None,
            });
        }
    }

    /// Whether typed text was lost with an attachment that failed, broke or was left; told once.
    pub fn take_dropped_input(&mut self) -> bool {
        std::mem::take(&mut self.dropped_input)
    }

    /// The next call of `want_size` sends again.
    pub fn forget_size(&mut self) {
        self.sent_size = None;
    }
}

/// How this console attaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct How {
    pub exclusive: bool,
    pub takeover: bool,
    /// Shown to others.
    pub label: String,
    pub location: Location,
}
