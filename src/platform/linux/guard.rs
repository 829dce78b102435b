//! The input guard: a small process that owns the injecting connection.
//!
//! It outlives whatever happens to the agent. When its standard input closes (the agent ended, was
//! killed, or let go of it), it lets up every key and button that it holds, gives borrowed keycodes
//! back, and ends:
//!
//! ```text
//!  start ──▶ display open? ──no──▶ error, exit
//!                 │ yes
//!                 ▼           request          ┌───────────┐
//!              serving ───────────────────────▶│  typing   │ cancel, release and the end of
//!                 │ ▲                          └───────────┘ input are heard between strokes
//!                 │ └───────────────────────────────┘
//!                 │ input closed            │ display lost
//!                 ▼                         ▼
//!         release all, exit 0          reason on standard error, exit 69
//! ```
//!
//! One thread and no runtime, so that an idle guard costs next to nothing.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::guard_protocol::{GREETING_ID, Reply, Request, take_frame};
use super::injector::Injector;
use super::typing::Flow;
use crate::base::error::exit;
use crate::base::limits::GUARD_QUEUE_LEN_MAX;
use crate::platform::{InputOwner, PlatformError, Result};

/// Runs the guard until its standard input closes or its display goes.
pub fn guard_main() -> ExitCode {
    // Its life hangs on the pipe alone: a signal to the agent's process group, a hang-up or a Ctrl-C
    // must not end it while keys are down. The session of its own fails only where it leads one.
    let _ = rustix::process::setsid();
    ignore_signals();
    let Some(display) = std::env::var("DISPLAY")
        .ok()
        .filter(|name| !name.is_empty())
    else {
        return give_up(&PlatformError::DisplayUnavailable(
            "DISPLAY is not set".into(),
        ));
    };
    let injector = match Injector::open(&display) {
        Ok(injector) => injector,
        Err(error) => return give_up(&error),
    };
    match Guard::default().serve(injector) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(error) => {
            eprintln!("input guard: {error}");
            ExitCode::from(exit::UNAVAILABLE)
        }
    }
}

fn ignore_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: ignoring a signal installs no handler; these four may be ignored.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Tells the agent why there will be no guard.
fn give_up(error: &PlatformError) -> ExitCode {
    let greeting = Reply::Error(error.clone()).encode(GREETING_ID);
    // An agent that is gone already needs no reason.
    let _ = std::io::stdout().write_all(&greeting);
    ExitCode::from(exit::UNAVAILABLE)
}

/// The guard's own state, apart from what the display holds.
#[derive(Default)]
struct Guard {
    inbox: Inbox,
}

/// Requests as they arrive.
#[derive(Default)]
struct Inbox {
    buffer: Vec<u8>,
    waiting: VecDeque<(u32, Request)>,
    closed: bool,
}

/// The text being typed, and whether it was called off.
struct Typing {
    id: u32,
    owner: InputOwner,
    stopped: bool,
}

impl Guard {
    fn serve(&mut self, mut injector: Injector) -> Result<()> {
        answer(GREETING_ID, Ok(Reply::Done(0)));
        while !self.inbox.closed {
            let due = injector.borrowed.restore_due();
            let wait = due.map(|due| due.saturating_duration_since(Instant::now()));
            if self.inbox.waiting.is_empty() {
                self.inbox.fill(&injector, wait)?;
            }
            injector.drain_events()?;
            if due.is_some_and(|due| due <= Instant::now()) {
                injector.restore_borrowed()?;
            }
            while let Some((id, request)) = self.inbox.waiting.pop_front() {
                self.handle(&mut injector, id, request)?;
            }
        }
        injector.release_all()
    }

    /// Carries one request out. The display's loss is told to the caller and ends the guard.
    fn handle(&mut self, injector: &mut Injector, id: u32, request: Request) -> Result<()> {
        let outcome = match request {
            Request::Pointer => injector.pointer().map(Reply::Point),
            Request::Move(to) => done(injector.move_to(to)),
            Request::Button(owner, button, press) => done(injector.button(owner, button, press)),
            Request::Scroll { x, y } => done(injector.scroll(x, y)),
            Request::Keys(owner, strokes) => done(injector.keys(owner, &strokes)),
            Request::Release(owner) => injector.release(owner).map(Reply::Done),
            Request::Type {
                owner,
                between_us,
                text,
            } => {
                let between = Duration::from_micros(u64::from(between_us));
                let typing = Typing {
                    id,
                    owner,
                    stopped: false,
                };
                done(self.type_text(injector, typing, &text, between))
            }
            // Its text is typed already.
            Request::Cancel => return Ok(()),
        };
        let lost = match &outcome {
            Err(error @ PlatformError::DisplayUnavailable(_)) => Some(error.clone()),
            _ => None,
        };
        answer(id, outcome);
        lost.map_or(Ok(()), Err)
    }

    fn type_text(
        &mut self,
        injector: &mut Injector,
        mut typing: Typing,
        text: &str,
        between: Duration,
    ) -> Result<()> {
        let inbox = &mut self.inbox;
        let mut failed = None;
        let typed = injector.type_text(text, between, &mut |injector, wait| match inbox.listen(
            injector,
            &mut typing,
            wait,
        ) {
            Ok(flow) => flow,
            Err(error) => {
                failed = Some(error);
                Flow::Stop
            }
        });
        failed.map_or(typed, Err)
    }
}

impl Inbox {
    /// Waits, at most for `wait`, until bytes are there or the display has something to say.
    fn fill(&mut self, injector: &Injector, wait: Option<Duration>) -> Result<()> {
        let stdin = std::io::stdin();
        let failed = |error: rustix::io::Errno| PlatformError::InputFailed(error.to_string());
        let mut watched = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::from_borrowed_fd(injector.connection.stream().as_fd(), PollFlags::IN),
        ];
        let timeout = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        if watched[0].revents().is_empty() {
            return Ok(());
        }
        let mut chunk = [0; 4096];
        match rustix::io::read(&stdin, &mut chunk) {
            Ok(0) => self.closed = true,
            Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => self.closed = true,
        }
        self.parse();
        Ok(())
    }

    fn parse(&mut self) {
        loop {
            let parsed = match take_frame(&mut self.buffer) {
                Ok(None) => return,
                Ok(Some((id, kind, body))) => Request::decode(kind, &body).map(|r| (id, r)),
                Err(error) => Err(error),
            };
            match parsed {
                Ok(request) => self.waiting.push_back(request),
                Err(error) => {
                    // Nothing after a broken message can be trusted: let go of all and end.
                    eprintln!("input guard: {error}");
                    self.closed = true;
                    return;
                }
            }
        }
    }

    /// Between strokes: hears what calls the typing off, lets others release, keeps the rest waiting.
    fn listen(
        &mut self,
        injector: &mut Injector,
        typing: &mut Typing,
        wait: Duration,
    ) -> Result<Flow> {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = if typing.stopped || self.closed {
                Duration::ZERO
            } else {
                left
            };
            self.fill(injector, Some(left))?;
            injector.drain_events()?;
            self.sort_out(injector, typing)?;
            if typing.stopped || self.closed {
                return Ok(Flow::Stop);
            }
            if Instant::now() >= until {
                return Ok(Flow::Go);
            }
        }
    }

    fn sort_out(&mut self, injector: &mut Injector, typing: &mut Typing) -> Result<()> {
        for (id, request) in std::mem::take(&mut self.waiting) {
            match request {
                Request::Cancel => {
                    typing.stopped |= id == typing.id;
                    self.drop_texts(|waiting, _| waiting == id);
                }
                Request::Release(owner) => {
                    typing.stopped |= owner == typing.owner;
                    self.drop_texts(|_, of| of == owner);
                    answer(id, Ok(Reply::Done(injector.release(owner)?)));
                }
                other if self.waiting.len() < GUARD_QUEUE_LEN_MAX => {
                    self.waiting.push_back((id, other));
                }
                _ => answer(
                    id,
                    Err(PlatformError::InputFailed(format!(
                        "{GUARD_QUEUE_LEN_MAX} calls wait already for a text to be typed"
                    ))),
                ),
            }
        }
        Ok(())
    }

    /// Answers waiting texts that are called off before their turn.
    fn drop_texts(&mut self, called_off: impl Fn(u32, InputOwner) -> bool) {
        self.waiting.retain(|(id, request)| match request {
            Request::Type { owner, .. } if called_off(*id, *owner) => {
                answer(*id, Ok(Reply::Done(0)));
                false
            }
            _ => true,
        });
    }
}

fn done(outcome: Result<()>) -> Result<Reply> {
    outcome.map(|()| Reply::Done(0))
}

fn answer(id: u32, outcome: Result<Reply>) {
    let bytes = outcome.unwrap_or_else(Reply::Error).encode(id);
    let mut stdout = std::io::stdout().lock();
    // An agent that is gone closes the input as well, and that is what ends the guard.
    let _ = stdout.write_all(&bytes).and_then(|()| stdout.flush());
}
