//! macOS, and every other system without a backend yet: each part says that it is not there.
//!
//! The server, the command line and the journal work on such a host; its agent has no desktop.

// Unix domain sockets and signals are the same on every Unix.
#[path = "../linux/background.rs"]
pub mod background;
#[path = "../linux/local_socket.rs"]
pub mod local_socket;
#[path = "../windows/local_stream.rs"]
pub mod local_stream;
pub mod sessions;
#[path = "../linux/signals.rs"]
mod signals;
#[path = "../linux/tty.rs"]
pub mod tty;
#[path = "../windows/watch_stream.rs"]
pub mod watch_stream;
#[path = "../linux/watched.rs"]
mod watched;

use std::process::ExitCode;
use std::time::Duration;

pub use sessions as foreground;
pub use sessions as holder_io;
pub use sessions as pty;
pub use sessions as session_socket;
pub use sessions::zygote;
pub use signals::StopSignals;

use super::{Backend, Launch, OpenOptions, PlatformError, Process, Processes, Result, Terminate};

/// A desktop whose parts all answer with the reason why they are missing.
pub fn open(_options: &OpenOptions) -> Backend {
    Backend {
        capture: Err(unsupported("screen capture")),
        windows: Err(unsupported("the window list")),
        input: Err(unsupported("input")),
        clipboard: Err(unsupported("the clipboard")),
        processes: Box::new(NoProcesses),
        display: None,
    }
}

/// Nothing is ever pressed here, so there is nothing to let up.
pub fn guard_main() -> ExitCode {
    ExitCode::SUCCESS
}

fn unsupported(what: &str) -> PlatformError {
    PlatformError::Unsupported(format!(
        "{what} on {}; Wingman has it on Linux with X11 and on Windows",
        std::env::consts::OS
    ))
}

struct NoProcesses;

impl Processes for NoProcesses {
    fn list(&self) -> Result<Vec<Process>> {
        Err(unsupported("the process list"))
    }

    fn get(&self, _pid: u32) -> Result<Process> {
        Err(unsupported("the process list"))
    }

    fn start(&self, _launch: &Launch) -> Result<u32> {
        Err(unsupported("starting processes"))
    }

    fn wait(&self, _pid: u32, _timeout: Duration, _cancelled: &dyn Fn() -> bool) -> Result<bool> {
        Err(unsupported("waiting for processes"))
    }

    fn terminate(&self, _pid: u32, _how: Terminate) -> Result<()> {
        Err(unsupported("ending processes"))
    }
}

/// Not read here: the figure is absent.
pub fn cpu_times() -> Option<super::CpuTimes> {
    None
}
