//! The loop: one task that waits for keys, pieces, answers, signals and time, and paints.
//!
//! Everything runs on the task that calls `run`, so that a key goes to its stream and an echo to the
//! terminal without another thread in between. A frame is painted at once for an echo, and at most every
//! `CONSOLE_FRAME_MS` under a flood. While the terminal takes no bytes nothing is painted: what is
//! pending is at most one frame.

use std::future::poll_fn;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::mpsc;

use crate::base::{EpochMillis, limits};
use crate::platform::tty::{self, Signals, Told};
use crate::platform::{Output, Waited};
use crate::terminal::holder::{Early, Watcher};
use crate::wire::messages::sessions::{self, AttachReply, ListParams};
use crate::wire::stream::{Piece, StreamEnd};
use crate::wire::{Code, Fault, Method};

use super::Options;
use super::app::{App, Attached, Effect, Happened, Left, Start};
use super::backend::{Backend, Place};
use super::input::Reader;
use super::outer::{self, Outer};
use super::paint::{Damage, Painter};
use super::pane::{Came, How, Pane};
use super::view::{View, Wishes};

/// Frames of small output that may follow each other at once.
const ECHO_CREDIT_MAX: u32 = 4;
/// Chrome shows ages; it is drawn this often when nothing else happens.
const CHROME_EVERY: Duration = Duration::from_secs(1);
/// Messages of places that wait for the loop. Full: their tasks wait.
const HAPPENED_LEN_MAX: usize = 64;

/// Runs a console until it ends, and gives the terminal back.
///
/// Needs a tokio runtime; on a current-thread one an echo crosses no thread. Errors: standard input and
/// output are no terminal, or the configured keys conflict.
pub async fn run(options: Options) -> Result<Left, Fault> {
    let outer =
        Outer::enter().map_err(|error| fault(Code::InvalidParams, "open the terminal", &error))?;
    let size = outer
        .tty
        .size()
        .map_err(|error| fault(Code::Internal, "ask for the terminal's size", &error))?;
    let places: Vec<(String, bool)> = options
        .places
        .iter()
        .map(|place| (place.name.clone(), place.local))
        .collect();
    let start = Start {
        focus: options.focus,
        mode: options.mode,
        how: How {
            exclusive: options.exclusive,
            takeover: options.takeover,
            label: options.label,
            location: options.location,
        },
        folder: options.folder,
    };
    let now = Instant::now();
    let size = (size.0.max(1), size.1.max(1));
    let mut app = App::new(
        options.config,
        &places,
        start,
        size,
        (now, EpochMillis::now().0),
    )
    .map_err(|error| Fault::new(Code::InvalidParams, error.to_string()))?;
    app.full_screen = options.full_screen;
    let signals =
        Signals::new().map_err(|error| fault(Code::Internal, "listen for signals", &error))?;
    let (send, recv) = mpsc::channel(HAPPENED_LEN_MAX);
    let mut pending = outer.opening(app.mouse);
    pending.reserve(16 * 1024);
    let mut console = Console {
        view: View::new(size.0, size.1),
        painter: Painter::new(size.0, size.1),
        told: View::wishes(&app),
        app,
        outer,
        signals,
        places: options.places,
        send,
        recv,
        reader: Reader::default(),
        pending,
        written: 0,
        blocked: false,
        fed: 0,
        changed: true,
        credit: ECHO_CREDIT_MAX,
        painted_at: now,
        typed_at: None,
        paint_at: None,
        copy: None,
        bell: false,
        chrome_at: now + CHROME_EVERY,
        escape_at: None,
        left: None,
    };
    console.told = Wishes::default();
    let left = console.until_left().await;
    console.drain().await;
    console.outer.leave();
    Ok(left)
}

fn fault(code: Code, what: &str, error: &io::Error) -> Fault {
    Fault::new(code, format!("{what}: {error}"))
}

struct Console {
    app: App,
    view: View,
    painter: Painter,
    /// What the outer terminal was told last.
    told: Wishes,
    outer: Outer,
    signals: Signals,
    places: Vec<Place>,
    send: mpsc::Sender<Happened>,
    recv: mpsc::Receiver<Happened>,
    reader: Reader,
    /// Bytes for the outer terminal, and how many of them it has taken.
    pending: Vec<u8>,
    written: usize,
    /// The terminal took less than everything: wait until it takes more.
    blocked: bool,
    /// Bytes fed to mirrors since the last frame.
    fed: usize,
    /// Something may have to be painted.
    changed: bool,
    credit: u32,
    painted_at: Instant,
    /// When the person typed last: what follows at once is most likely the answer.
    typed_at: Option<Instant>,
    /// When a frame that had to wait may be painted, if nothing else happens before.
    paint_at: Option<Instant>,
    /// For the outer terminal's clipboard, with the next frame: the last text wins.
    copy: Option<String>,
    /// Ring with the next frame.
    bell: bool,
    chrome_at: Instant,
    escape_at: Option<Instant>,
    left: Option<Left>,
}

/// What one wait ended with.
enum Woken {
    Terminal(io::Result<Waited>),
    Came(usize, Came),
    Happened(Happened),
    Told(Told),
    Time,
}

impl Console {
    async fn until_left(&mut self) -> Left {
        let mut input = Vec::new();
        loop {
            let now = Instant::now();
            self.app.tick(now);
            self.effects(now);
            self.paint_if_due(now);
            if let Some(left) = self.left.take() {
                return left;
            }
            match self.wait(&mut input).await {
                Woken::Terminal(Ok(Waited::Writable)) => {
                    self.blocked = false;
                    self.write();
                }
                Woken::Terminal(Ok(Waited::Bytes)) => self.take_input(None, &mut input),
                Woken::Terminal(Ok(Waited::Event(event))) => {
                    self.take_input(Some(event), &mut input);
                }
                Woken::Terminal(Err(_)) => return Left::TerminalGone,
                Woken::Came(index, Came::Piece(piece)) => self.take_pieces(index, piece),
                Woken::Came(index, Came::Early(early)) => self.take_early(index, early),
                Woken::Happened(happened) => {
                    self.changed = true;
                    self.app.happened(happened, Instant::now());
                }
                Woken::Told(Told::End) => return Left::Told,
                Woken::Told(Told::Resized) => self.resized(),
                Woken::Told(Told::Continued) => self.enter_again(),
                Woken::Time => self.time(),
            }
        }
    }

    async fn wait(&mut self, input: &mut Vec<u8>) -> Woken {
        let deadline = self.deadline();
        let panes = &mut self.app.panes;
        let pieces = poll_fn(|context| {
            for (index, pane) in panes.iter_mut().enumerate() {
                if let Poll::Ready(came) = pane.poll(context) {
                    return Poll::Ready((index, came));
                }
            }
            Poll::Pending
        });
        let output = if self.blocked {
            Output::Wanted
        } else {
            Output::Unwanted
        };
        tokio::select! {
            biased;
            waited = self.outer.tty.wait(output, input) => Woken::Terminal(waited),
            told = self.signals.recv() => Woken::Told(told),
            (index, came) = pieces => Woken::Came(index, came),
            Some(happened) = self.recv.recv() => Woken::Happened(happened),
            () = until(deadline) => Woken::Time,
        }
    }

    fn deadline(&self) -> Instant {
        let mut at = self.chrome_at;
        let others = [self.app.deadline(), self.escape_at, self.paint_at];
        for other in others.into_iter().flatten() {
            at = at.min(other);
        }
        at
    }

    fn time(&mut self) {
        let now = Instant::now();
        if self.escape_at.is_some_and(|at| at <= now) {
            self.escape_at = None;
            for event in self.reader.settle() {
                self.app.input(event, now);
            }
            self.changed = true;
        }
        if self.chrome_at <= now {
            self.chrome_at = now + CHROME_EVERY;
            self.app.dirty = true;
        }
    }

    fn take_input(&mut self, event: Option<crossterm::event::Event>, input: &mut Vec<u8>) {
        let now = Instant::now();
        self.reader.push(input);
        input.clear();
        let events: Vec<_> = event.into_iter().chain(self.reader.by_ref()).collect();
        for event in events {
            self.app.input(event, now);
            self.typed_at = Some(now);
        }
        let wait = Duration::from_millis(limits::CONSOLE_ESCAPE_MS);
        self.escape_at = self.reader.is_unsettled().then(|| now + wait);
        self.changed |= self.app.dirty;
    }

    /// Takes a piece and what else has come of the same pane, within bounds.
    fn take_pieces(&mut self, index: usize, piece: Option<Piece>) {
        let now = Instant::now();
        self.changed = true;
        let mut turn = self.app.piece(index, piece, now);
        while turn < limits::CONSOLE_TURN_LEN_MAX {
            let Some(piece) = self
                .app
                .panes
                .get_mut(index)
                .and_then(|pane| pane.try_next())
            else {
                break;
            };
            turn += self.app.piece(index, Some(piece), now).max(1);
        }
        self.fed += turn;
    }

    fn take_early(&mut self, index: usize, early: Option<Early>) {
        let fed = self.app.early(index, early, Instant::now());
        // What the stream has brought already changes nothing.
        self.changed |= fed > 0;
        self.fed += fed;
    }

    fn effects(&mut self, now: Instant) {
        for effect in std::mem::take(&mut self.app.effects) {
            match effect {
                Effect::List(place) => self.list(place),
                Effect::Follow(place) => self.follow(place),
                Effect::Call {
                    place,
                    method,
                    params,
                    then,
                } => {
                    let Some(backend) = self.backend(place) else {
                        continue;
                    };
                    let answer = backend.call(method, params);
                    self.spawn(async move {
                        Happened::Answered {
                            place,
                            then,
                            answer: answer.await,
                        }
                    });
                }
                Effect::Attach {
                    key,
                    attempt,
                    params,
                } => {
                    let Some(backend) = self.backend(key.place) else {
                        continue;
                    };
                    let answer = backend.attach(params);
                    self.spawn(async move {
                        let answer = answer.await;
                        Happened::Attached(Box::new(Attached {
                            key,
                            attempt,
                            watcher: watch(&answer),
                            answer,
                        }))
                    });
                }
                Effect::Copy(text) => self.copy = Some(text),
                Effect::Bell => self.bell = true,
                Effect::Redraw => self.repaint(),
                Effect::Suspend => self.suspend(now),
                Effect::Leave(left) => self.left = Some(left),
            }
        }
    }

    fn backend(&self, place: usize) -> Option<Arc<dyn Backend>> {
        self.places.get(place).map(|place| place.backend.clone())
    }

    fn spawn(&self, work: impl Future<Output = Happened> + Send + 'static) {
        let send = self.send.clone();
        tokio::spawn(async move {
            // A panic here has given the terminal back already: the loop has to end too.
            let happened = AssertUnwindSafe(work).catch_unwind().await;
            let happened = happened.unwrap_or(Happened::Panicked);
            // The loop ended: nobody wants to know.
            let _ = send.send(happened).await;
        });
    }

    fn list(&self, index: usize) {
        let Some(place) = self.places.get(index) else {
            return;
        };
        let params = ListParams {
            scope: (!place.local).then(|| "all".to_owned()),
            machine: None,
        };
        // INVARIANT: two optional texts are JSON.
        let params = serde_json::to_value(params).expect("parameters are JSON");
        let answer = place.backend.call(sessions::List::NAME, params);
        self.spawn(async move {
            let list = answer.await.and_then(|value| {
                serde_json::from_value(value)
                    .map_err(|error| Fault::new(Code::InvalidMessage, error.to_string()))
            });
            Happened::Listed(index, list)
        });
    }

    fn follow(&self, index: usize) {
        let Some(backend) = self.backend(index) else {
            return;
        };
        let (changed, mut changes) = mpsc::channel(1);
        let told = self.send.clone();
        let stream = backend.follow(changed);
        self.spawn(async move {
            let forward = async {
                while changes.recv().await.is_some() {
                    if told.send(Happened::Changed(index)).await.is_err() {
                        return;
                    }
                }
            };
            tokio::join!(forward, async {
                // How the stream ended is the next list's to tell.
                let _ = stream.await;
            });
            Happened::FollowEnded(index)
        });
    }

    /// Forgets what the terminal shows, and paints everything.
    fn repaint(&mut self) {
        let (cols, rows) = self.app.size;
        self.painter.forget(cols, rows);
        self.app.dirty = true;
        self.changed = true;
    }

    fn resized(&mut self) {
        if let Ok((cols, rows)) = self.outer.tty.size()
            && (cols, rows) != self.app.size
        {
            self.app.resized((cols, rows), Instant::now());
            self.repaint();
        }
    }

    /// Takes the terminal over again after somebody else had it.
    fn enter_again(&mut self) {
        if self.outer.tty.raw().is_err() {
            self.left = Some(Left::TerminalGone);
            return;
        }
        // Half a frame may be pending: the terminal was reset, so it begins anew.
        self.pending = self.outer.opening(self.app.mouse);
        self.written = 0;
        self.told = Wishes::default();
        self.resized();
        self.repaint();
    }

    fn suspend(&mut self, now: Instant) {
        self.write();
        self.outer.leave();
        let stopped = tty::suspend();
        self.enter_again();
        if stopped.is_err() {
            self.app.tell("there is no job control here", now);
        }
    }

    fn paint_if_due(&mut self, now: Instant) {
        self.paint_at = None;
        if self.blocked {
            return;
        }
        if let Some(text) = self.copy.take() {
            self.pending.extend(outer::copy_sequence(&text));
        }
        if std::mem::take(&mut self.bell) {
            self.pending.push(7);
        }
        if !self.changed && !self.app.dirty {
            return self.write();
        }
        let popup = self.app.popup.is_some();
        let ready = self
            .app
            .panes
            .iter_mut()
            .fold(true, |ready, pane| pane.may_paint(now) & ready);
        if !ready && !popup {
            self.paint_at = self.app.panes.iter().filter_map(Pane::paint_deadline).min();
            return;
        }
        let frame = Duration::from_millis(limits::CONSOLE_FRAME_MS);
        let passed = now.duration_since(self.painted_at).as_micros() / frame.as_micros();
        // INVARIANT: at most the credit's bound, which fits.
        let frames = passed.min(u128::from(ECHO_CREDIT_MAX)) as u32;
        let answer = Duration::from_millis(limits::CONSOLE_ANSWER_MS);
        let answers = self
            .typed_at
            .is_some_and(|at| now.duration_since(at) < answer);
        let small = self.fed <= limits::CONSOLE_ECHO_LEN_MAX;
        let echo = small && (answers || self.credit + frames > 0);
        if frames == 0 && !echo {
            self.paint_at = Some(self.painted_at + frame);
            return;
        }
        self.credit = (self.credit + frames)
            .min(ECHO_CREDIT_MAX)
            .saturating_sub(1);
        self.paint(now);
    }

    fn paint(&mut self, now: Instant) {
        self.painted_at = now;
        self.changed = false;
        self.fed = 0;
        self.tell_wishes();
        let forgotten = self.app.size != (self.view.buffer.cols(), self.view.buffer.rows());
        let damage = self.view.draw(&mut self.app, now);
        let damage = if forgotten { Damage::All } else { damage };
        self.painter.frame(
            &self.view.buffer,
            self.view.caret,
            &damage,
            &mut self.pending,
        );
        self.write();
    }

    fn tell_wishes(&mut self) {
        let wishes = View::wishes(&self.app);
        if wishes.mouse != self.told.mouse {
            self.pending
                .extend_from_slice(outer::mouse_sequence(wishes.mouse));
        }
        if wishes.keyboard != self.told.keyboard {
            self.pending
                .extend(outer::keyboard_sequence(wishes.keyboard));
        }
        if wishes.title != self.told.title {
            self.pending.extend(outer::title_sequence(&wishes.title));
        }
        self.told = wishes;
    }

    /// Writes what is pending as far as the terminal takes it.
    fn write(&mut self) {
        while self.written < self.pending.len() {
            match self.outer.tty.write(&self.pending[self.written..]) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return;
                }
                Err(_) => {
                    self.left = Some(Left::TerminalGone);
                    self.blocked = false;
                    break;
                }
            }
        }
        self.pending.clear();
        self.written = 0;
    }

    /// Gives a slow terminal a moment to take what is pending, so that the restoring sequence does not
    /// land inside another one.
    async fn drain(&mut self) {
        let end = Instant::now() + Duration::from_millis(limits::CONSOLE_RESTORE_TIMEOUT_MS);
        self.write();
        let mut ignored = Vec::new();
        while self.blocked && self.written < self.pending.len() {
            tokio::select! {
                waited = self.outer.tty.wait(Output::Wanted, &mut ignored) => match waited {
                    Ok(Waited::Writable) => {
                        self.blocked = false;
                        self.write();
                    }
                    Ok(_) => ignored.clear(),
                    Err(_) => return,
                },
                () = until(end) => return,
            }
        }
    }
}

/// The holder of a session on this machine. Nothing depends on it: all comes by the stream as well.
fn watch(answer: &Result<(AttachReply, StreamEnd), Fault>) -> Option<Watcher> {
    let (reply, _) = answer.as_ref().ok()?;
    let socket = reply.holder.as_ref()?;
    Watcher::connect(Path::new(socket))
        .inspect_err(|error| tracing::debug!(%error, "echoes come by way of the agent"))
        .ok()
}

async fn until(at: Instant) {
    tokio::time::sleep_until(at.into()).await;
}
