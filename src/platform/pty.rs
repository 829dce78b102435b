//! Pseudo-terminals, the process that holds one, and its sockets: the values that every system shares.
//!
//! The functions stand in the native folder under the same names: `HolderIo` (everything that a
//! holder waits for), `SessionStream` (the agent's end), `TerminalInput` (the way
//! to a terminal past its holder), `zygote` (starting holders), `foreground`
//! (what a program at a terminal is doing).
//!
//! Invariant: the size, the program and its environment come from outside; nothing here decides them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

pub use super::native::foreground::process_facts;
pub use super::native::holder_io::HolderIo;
pub use super::native::pty::session_processes;
pub use super::native::session_socket::{Readiness, SessionStream, TerminalInput};
pub use super::native::watch_stream::WatchStream;
pub use super::native::zygote;

/// A terminal's size in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtySize {
    pub cols: u16,
    pub rows: u16,
}

/// A program to run on a terminal.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments; never empty.
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// Its whole environment. Values are secrets, so this type has no debug print.
    pub env: Vec<(OsString, OsString)>,
}

/// Where a holder's processes live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In a systemd scope of their own.
    Systemd,
    /// In whatever control group the agent runs in.
    Plain,
    /// As `Plain`, because systemd did not give a scope, with the reason.
    Refused(String),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessExit {
    Code(i32),
    /// The number of the signal that ended it.
    Signal(i32),
}

/// What a terminal says of itself; `None` where the system cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalState {
    /// The process group in the foreground.
    pub foreground: Option<u32>,
    pub echo: Option<bool>,
    /// Whether input is gathered to lines.
    pub canonical: Option<bool>,
}

/// The two connections that a holder has at most: the one it serves, and one that has not said hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    Current,
    Candidate,
}

/// What a holder waits for, beside its child, its listener and the candidate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub pty_read: bool,
    pub pty_write: bool,
    pub current_read: bool,
    pub current_write: bool,
    /// Wake up by then in any case.
    pub until: Option<Instant>,
}

/// What came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ready {
    pub pty_read: bool,
    pub pty_write: bool,
    /// The child has ended; told once.
    pub exited: bool,
    /// The holder itself is asked to end.
    pub stop: bool,
    /// Another process of this user has connected and is the candidate now.
    pub accepted: bool,
    pub current_read: bool,
    pub current_write: bool,
    pub candidate_read: bool,
}

/// One try to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes(usize),
    /// Nothing is there yet.
    Nothing,
    /// Nothing will ever come again.
    Closed,
}

/// What a process waits for, as far as the system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// It uses a processor, or would if it got one.
    Running,
    /// It reads its terminal.
    TerminalRead,
    /// It waits for several things at once (poll, select, epoll), as full-screen programs do.
    Events,
    /// It waits for its children.
    Children,
    /// It sleeps for a time or for something else.
    Other,
    /// It was stopped by a signal.
    Stopped,
    Unknown,
}

/// A process as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    pub pid: u32,
    /// The kernel's short name of the program.
    pub name: String,
    /// May hold secrets; never logged.
    pub argv: Vec<String>,
    pub cwd: Option<PathBuf>,
    pub waiting: Waiting,
    /// Processor time used so far, in clock ticks (100 a second on Linux).
    pub cpu_ticks: u64,
}
