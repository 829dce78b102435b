//! Everything that a holder waits for, in one `poll`: its terminal, its child, its listener, one
//! connection and one candidate.
//!
//! ```text
//! accept ──▶ candidate ──hello──▶ current ──▶ closed
//!               └─ the next one takes its place, unless it came just now
//! ```

use std::io::{self, IoSlice};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::pty::Pty;
use super::session_socket::{SessionListener, SessionStream};
use crate::base::limits;
use crate::platform::pty::{
    ProcessExit, Program, PtySize, Ready, Received, Slot, TerminalState, Wanted,
};

/// A holder's descriptors. One thread uses it.
pub struct HolderIo {
    pty: Pty,
    listener: SessionListener,
    stop: OwnedFd,
    current: Option<SessionStream>,
    candidate: Option<SessionStream>,
    /// Until when no other takes the candidate's place.
    candidate_until: Instant,
    watchers: Vec<SessionStream>,
    exit_told: bool,
}

impl HolderIo {
    /// Whether `send_terminal` sends one.
    pub const SENDS_TERMINAL: bool = true;
    /// Whether `watch` takes watchers.
    pub const IS_WATCHABLE: bool = true;

    /// Listens on `socket`, opens a terminal and starts the program on it. From here on TERM is told
    /// by `wait`, and the signals that a terminal or a dying parent sends do nothing.
    pub fn start(socket: &Path, program: &Program, size: PtySize) -> io::Result<Self> {
        super::pty::reset_signals();
        let listener = SessionListener::bind(socket)?;
        let pty = Pty::start(program, size)?;
        Ok(Self {
            pty,
            listener,
            stop: settle_signals()?,
            current: None,
            candidate: None,
            candidate_until: Instant::now(),
            watchers: Vec::new(),
            exit_told: false,
        })
    }

    /// Waits until something of it is there. Never returns early without a reason, except for a signal, and
    /// when a candidate has said nothing in its time.
    pub fn wait(&mut self, wanted: &Wanted) -> io::Result<Ready> {
        let flags = |read, write| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, read);
            flags.set(PollFlags::OUT, write);
            flags
        };
        let terminal = flags(wanted.pty_read, wanted.pty_write);
        let served = flags(wanted.current_read, wanted.current_write);
        // A descriptor of which nothing is wanted is left out: its hang-up would be told without end.
        let mut fds = Vec::with_capacity(6);
        // A candidate is given time to say its hello: calls wait that long for their turn.
        let hears = self.candidate.is_some() && Instant::now() < self.candidate_until;
        fds.push(PollFd::new(&self.listener, flags(!hears, false)));
        fds.push(PollFd::new(&self.stop, PollFlags::IN));
        let exit = (!self.exit_told).then(|| self.pty.exit());
        let master = (!terminal.is_empty()).then(|| self.pty.master());
        let current = self.current.as_ref().filter(|_| !served.is_empty());
        let at_exit = exit
            .as_ref()
            .map(|fd| push(&mut fds, PollFd::new(fd, PollFlags::IN)));
        let at_master = master
            .as_ref()
            .map(|fd| push(&mut fds, PollFd::new(fd, terminal)));
        let at_current = current.map(|fd| push(&mut fds, PollFd::new(fd, served)));
        let at_candidate = self
            .candidate
            .as_ref()
            .map(|fd| push(&mut fds, PollFd::new(fd, PollFlags::IN)));
        let turn = hears.then_some(self.candidate_until);
        let limit = wanted.until.into_iter().chain(turn).min().map(until);
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let told = |at: Option<usize>| {
            at.and_then(|at| fds.get(at))
                .map_or(PollFlags::empty(), PollFd::revents)
        };
        let ended = PollFlags::HUP | PollFlags::ERR;
        let (master, current) = (told(at_master), told(at_current));
        let mut ready = Ready {
            pty_read: wanted.pty_read && master.intersects(PollFlags::IN | ended),
            pty_write: wanted.pty_write && master.intersects(PollFlags::OUT | ended),
            exited: !told(at_exit).is_empty(),
            stop: !told(Some(1)).is_empty(),
            accepted: false,
            current_read: wanted.current_read && current.intersects(PollFlags::IN | ended),
            current_write: wanted.current_write && current.intersects(PollFlags::OUT | ended),
            candidate_read: !told(at_candidate).is_empty(),
        };
        let calls = !told(Some(0)).is_empty();
        drop(fds);
        self.exit_told |= ready.exited;
        if calls && let Some(stream) = self.listener.accept() {
            self.candidate = Some(stream);
            self.candidate_until =
                Instant::now() + Duration::from_millis(limits::HOLDER_CANDIDATE_MS);
            ready.accepted = true;
            ready.candidate_read = false;
        }
        if ready.stop {
            self.take_stop();
        }
        Ok(ready)
    }

    fn take_stop(&self) {
        let mut signal = [0; std::mem::size_of::<libc::signalfd_siginfo>()];
        // Only that it came is of interest.
        let _ = rustix::io::read(&self.stop, &mut signal);
    }

    pub fn child(&self) -> u32 {
        self.pty.child()
    }

    /// Takes output of the program.
    pub fn read_pty(&mut self, into: &mut [u8]) -> io::Result<Received> {
        self.pty.read(into)
    }

    /// Gives input to the program; answers how much was taken.
    pub fn write_pty(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pty.write(bytes)
    }

    pub fn resize(&mut self, size: PtySize) -> io::Result<()> {
        self.pty.resize(size)
    }

    pub fn state(&self) -> TerminalState {
        self.pty.state()
    }

    /// How the child ended, once it has.
    pub fn exit_status(&self) -> Option<ProcessExit> {
        self.pty.exit_status()
    }

    /// See `Pty::ask_to_end`.
    pub fn ask_to_end(&mut self) -> u32 {
        self.pty.ask_to_end()
    }

    pub fn session_runs(&self) -> bool {
        self.pty.session_runs()
    }

    /// See `Pty::end_session`.
    pub fn end_session(&mut self) -> u32 {
        self.pty.end_session()
    }

    pub const fn has(&self, slot: Slot) -> bool {
        match slot {
            Slot::Current => self.current.is_some(),
            Slot::Candidate => self.candidate.is_some(),
        }
    }

    /// The candidate becomes the connection that is served; the former one is closed.
    pub fn promote(&mut self) {
        self.current = self.candidate.take();
    }

    /// The candidate becomes a watcher, which is told things and never heard.
    pub fn watch(&mut self) {
        if self.watchers.len() >= limits::HOLDER_WATCHERS_MAX {
            self.watchers.remove(0);
        }
        self.watchers.extend(self.candidate.take());
    }

    pub const fn is_watched(&self) -> bool {
        !self.watchers.is_empty()
    }

    /// Tells every watcher that takes all of it at once; one that takes a part, or has gone, is closed.
    pub fn tell_watchers(&mut self, pieces: &[&[u8]]) {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let pieces: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        self.watchers
            .retain(|watcher| match watcher.try_send_all(&pieces) {
                Ok(sent) => sent == 0 || sent == length,
                Err(_) => false,
            });
    }

    pub fn close(&mut self, slot: Slot) {
        match slot {
            Slot::Current => self.current = None,
            Slot::Candidate => self.candidate = None,
        }
    }

    const fn stream(&self, slot: Slot) -> Option<&SessionStream> {
        match slot {
            Slot::Current => self.current.as_ref(),
            Slot::Candidate => self.candidate.as_ref(),
        }
    }

    /// Takes bytes of a connection that are there.
    pub fn receive(&mut self, slot: Slot, into: &mut [u8]) -> io::Result<Received> {
        self.stream(slot)
            .map_or(Ok(Received::Closed), |stream| stream.try_receive(into))
    }

    /// Gives bytes to a connection and with them the terminal; answers how much it took.
    pub fn send_terminal(&mut self, slot: Slot, bytes: &[u8]) -> io::Result<usize> {
        self.stream(slot).map_or_else(
            || Err(io::ErrorKind::NotConnected.into()),
            |stream| stream.try_send_with(bytes, self.pty.master()),
        )
    }

    /// Gives bytes to a connection; answers how much it took.
    pub fn send(&mut self, slot: Slot, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream(slot).map_or_else(
            || Err(io::ErrorKind::NotConnected.into()),
            |stream| stream.try_send_all(pieces),
        )
    }
}

fn push<'a>(fds: &mut Vec<PollFd<'a>>, fd: PollFd<'a>) -> usize {
    fds.push(fd);
    fds.len() - 1
}

fn until(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now());
    Timespec::try_from(left).unwrap_or(Timespec {
        tv_sec: i64::from(i32::MAX),
        tv_nsec: 0,
    })
}

/// Ignores what terminals and dying parents send, and turns TERM into something to wait for.
fn settle_signals() -> io::Result<OwnedFd> {
    let ignored = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGPIPE,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ];
    // SAFETY: numbers and a mask on the stack; the new descriptor is owned by nobody else.
    unsafe {
        for signal in ignored {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut term: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut term);
        libc::sigaddset(&raw mut term, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const term, std::ptr::null_mut());
        let fd = libc::signalfd(-1, &raw const term, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
