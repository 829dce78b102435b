//! Input on X11: the agent's side of the guard process that injects it.
//!
//! The guard starts with the first use, so a node that never touches its desktop has none. When it or
//! the display ends, the call under way fails with the reason and the next one starts a new guard.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::guard_protocol::{GREETING_ID, Reply, Request, take_frame};
use crate::base::Point;
use crate::base::limits::{
    CANCEL_POLL_MS, GUARD_REPLY_TIMEOUT_MS, GUARD_START_TIMEOUT_MS, TYPE_TEXT_LEN_MAX,
};
use crate::platform::{
    Button, Input, InputOwner, OpenOptions, PlatformError, Press, Result, VirtualKey,
};

/// The argument that makes the executable a guard.
const GUARD_COMMAND: &str = "input-guard";

/// Prepares input on a display; nothing starts yet.
///
/// Errors: `InputFailed` when this executable's own path cannot be told.
pub fn open(display: &str, options: &OpenOptions) -> Result<Box<dyn Input>> {
    let program = match &options.guard_program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|error| {
            PlatformError::InputFailed(format!("find the guard's program: {error}"))
        })?,
    };
    Ok(Box::new(GuardedInput {
        display: display.to_owned(),
        program,
        link: Mutex::new(None),
    }))
}

struct GuardedInput {
    display: String,
    program: PathBuf,
    /// The guard in use; replaced once it is found dead.
    link: Mutex<Option<Arc<GuardLink>>>,
}

/// One running guard. Dropping it closes its input, upon which it releases all and ends.
struct GuardLink {
    requests: Mutex<ChildStdin>,
    shared: Arc<Shared>,
    next_id: AtomicU32,
    /// Texts that are being typed or wait for it.
    types: AtomicUsize,
}

/// What the reading thread and the callers share.
struct Shared {
    state: Mutex<State>,
}

struct State {
    /// Why there will be no more replies.
    ended: Option<PlatformError>,
    waiting: HashMap<u32, SyncSender<Reply>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GuardedInput {
    /// The guard in use, started when there is none.
    fn link(&self) -> Result<Arc<GuardLink>> {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = link.as_ref().filter(|link| link.ended().is_none()) {
            return Ok(Arc::clone(link));
        }
        *link = None;
        let fresh = Arc::new(GuardLink::start(&self.program, &self.display)?);
        *link = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    fn call(&self, request: &Request) -> Result<Reply> {
        let link = self.link()?;
        let (_, reply) = link.send(request)?;
        loop {
            match reply.recv_timeout(Duration::from_millis(GUARD_REPLY_TIMEOUT_MS)) {
                Ok(reply) => return answered(reply),
                Err(RecvTimeoutError::Disconnected) => return Err(link.why_ended()),
                // Another caller's text has its turn; how long that takes is up to the text.
                Err(RecvTimeoutError::Timeout) if link.types.load(Ordering::Relaxed) > 0 => {}
                Err(RecvTimeoutError::Timeout) => return Err(self.give_up(&link)),
            }
        }
    }

    fn done(&self, request: &Request) -> Result<u32> {
        match self.call(request)? {
            Reply::Done(count) => Ok(count),
            other => Err(unexpected(&other)),
        }
    }

    /// Types on a guard and hears the caller out meanwhile.
    fn type_on(
        &self,
        link: &Arc<GuardLink>,
        request: &Request,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (id, reply) = link.send(request)?;
        // As long as the text takes; once it is called off, as long as any other answer.
        let mut left_ms = None;
        loop {
            match reply.recv_timeout(Duration::from_millis(CANCEL_POLL_MS)) {
                Ok(reply) => return answered(reply).map(drop),
                Err(RecvTimeoutError::Disconnected) => return Err(link.why_ended()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            left_ms = match left_ms {
                None if cancelled() => {
                    link.write(&Request::Cancel.encode(id))?;
                    Some(GUARD_REPLY_TIMEOUT_MS)
                }
                None => None,
                Some(left) if left <= CANCEL_POLL_MS => return Err(self.give_up(link)),
                Some(left) => Some(left - CANCEL_POLL_MS),
            };
        }
    }

    /// Lets go of a guard that does not answer; it releases what it holds when it comes round.
    fn give_up(&self, silent: &Arc<GuardLink>) -> PlatformError {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if link.as_ref().is_some_and(|link| Arc::ptr_eq(link, silent)) {
            *link = None;
        }
        PlatformError::InputFailed(format!(
            "the input guard did not answer in {GUARD_REPLY_TIMEOUT_MS} ms"
        ))
    }
}

impl Input for GuardedInput {
    fn pointer(&self) -> Result<Point> {
        match self.call(&Request::Pointer)? {
            Reply::Point(at) => Ok(at),
            other => Err(unexpected(&other)),
        }
    }

    fn move_to(&self, to: Point) -> Result<()> {
        self.done(&Request::Move(to)).map(drop)
    }

    fn button(&self, owner: InputOwner, button: Button, press: Press) -> Result<()> {
        self.done(&Request::Button(owner, button, press)).map(drop)
    }

    fn scroll(&self, x: i32, y: i32) -> Result<()> {
        self.done(&Request::Scroll { x, y }).map(drop)
    }

    fn key(&self, owner: InputOwner, key: VirtualKey, press: Press) -> Result<()> {
        self.keys(owner, &[(key, press)])
    }

    fn keys(&self, owner: InputOwner, strokes: &[(VirtualKey, Press)]) -> Result<()> {
        self.done(&Request::Keys(owner, strokes.to_vec())).map(drop)
    }

    fn type_text(
        &self,
        owner: InputOwner,
        text: &str,
        between: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        if text.len() > TYPE_TEXT_LEN_MAX {
            return Err(PlatformError::InputFailed(format!(
                "the text is longer than {TYPE_TEXT_LEN_MAX} bytes"
            )));
        }
        let request = Request::Type {
            owner,
            between_us: between.as_micros().try_into().unwrap_or(u32::MAX),
            text: text.to_owned(),
        };
        let link = self.link()?;
        link.types.fetch_add(1, Ordering::Relaxed);
        let typed = self.type_on(&link, &request, cancelled);
        link.types.fetch_sub(1, Ordering::Relaxed);
        typed
    }

    fn release(&self, owner: InputOwner) -> Result<usize> {
        let running = {
            let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            link.as_ref().is_some_and(|link| link.ended().is_none())
        };
        // Without a guard nothing is held, and none is started to find that out.
        if !running {
            return Ok(0);
        }
        self.done(&Request::Release(owner))
            .map(|count| count as usize)
    }
}

fn answered(reply: Reply) -> Result<Reply> {
    match reply {
        Reply::Error(error) => Err(error),
        reply => Ok(reply),
    }
}

fn unexpected(reply: &Reply) -> PlatformError {
    PlatformError::InputFailed(format!("the input guard answered with {reply:?}"))
}

impl GuardLink {
    /// Starts a guard and waits until its display is open.
    fn start(program: &PathBuf, display: &str) -> Result<Self> {
        let mut child = Command::new(program)
            .arg(GUARD_COMMAND)
            .env("DISPLAY", display)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                PlatformError::InputFailed(format!(
                    "start the input guard {}: {error}",
                    program.display()
                ))
            })?;
        let (Some(requests), Some(replies)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(PlatformError::InputFailed("the guard has no pipes".into()));
        };
        let (greeting_sender, greeting) = sync_channel(1);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                ended: None,
                waiting: HashMap::from([(GREETING_ID, greeting_sender)]),
            }),
        });
        let reader = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("input-guard".into())
            .spawn(move || read_replies(child, replies, &reader))
            .map_err(|error| PlatformError::InputFailed(format!("start a thread: {error}")))?;
        let link = Self {
            requests: Mutex::new(requests),
            shared,
            next_id: AtomicU32::new(GREETING_ID + 1),
            types: AtomicUsize::new(0),
        };
        match greeting.recv_timeout(Duration::from_millis(GUARD_START_TIMEOUT_MS)) {
            Ok(reply) => answered(reply).map(|_| link),
            Err(RecvTimeoutError::Disconnected) => Err(link.why_ended()),
            Err(RecvTimeoutError::Timeout) => Err(PlatformError::InputFailed(format!(
                "the input guard did not start in {GUARD_START_TIMEOUT_MS} ms"
            ))),
        }
    }

    fn ended(&self) -> Option<PlatformError> {
        self.shared.state().ended.clone()
    }

    fn why_ended(&self) -> PlatformError {
        let fallback = || PlatformError::InputFailed("the input guard ended".into());
        self.ended().unwrap_or_else(fallback)
    }

    fn send(&self, request: &Request) -> Result<(u32, Receiver<Reply>)> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = sync_channel(1);
        {
            let mut state = self.shared.state();
            if let Some(why) = &state.ended {
                return Err(why.clone());
            }
            state.waiting.insert(id, sender);
        }
        self.write(&request.encode(id)).inspect_err(|_| {
            self.shared.state().waiting.remove(&id);
        })?;
        Ok((id, reply))
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let written = requests.write_all(bytes).and_then(|()| requests.flush());
        written.map_err(|error| {
            let fallback = PlatformError::InputFailed(format!("write to the input guard: {error}"));
            self.ended().unwrap_or(fallback)
        })
    }
}

/// Hands replies to their callers until the guard ends, then tells all who wait why, and reaps it.
fn read_replies(mut child: Child, mut replies: ChildStdout, shared: &Shared) {
    let mut buffer = Vec::new();
    let mut chunk = [0; 4096];
    let mut why = PlatformError::InputFailed("the input guard ended".into());
    'reading: loop {
        match replies.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => buffer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                why = PlatformError::InputFailed(format!("read from the input guard: {error}"));
                break;
            }
        }
        loop {
            let (id, reply) = match take_frame(&mut buffer) {
                Ok(None) => break,
                Ok(Some((id, kind, body))) => match Reply::decode(kind, &body) {
                    Ok(reply) => (id, reply),
                    Err(error) => {
                        why = PlatformError::InputFailed(format!("input guard: {error}"));
                        break 'reading;
                    }
                },
                Err(error) => {
                    why = PlatformError::InputFailed(format!("input guard: {error}"));
                    break 'reading;
                }
            };
            let mut state = shared.state();
            if let Reply::Error(lost @ PlatformError::DisplayUnavailable(_)) = &reply {
                // The guard ends after this; callers from here on start a new one.
                state.ended = Some(lost.clone());
            }
            if let Some(caller) = state.waiting.remove(&id) {
                // A caller that no longer waits has had its answer: it timed out.
                let _ = caller.try_send(reply);
            }
        }
    }
    {
        let mut state = shared.state();
        state.ended.get_or_insert(why);
        // Dropping the senders wakes every caller.
        state.waiting.clear();
    }
    // It has ended or ends by itself, since nobody reads it any more; this only collects its status.
    let _ = child.wait();
}
