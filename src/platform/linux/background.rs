//! Programs that outlive the terminal that they were started from.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts a program in a session of its own, which no terminal's hang-up reaches.
pub fn spawn(command: &mut Command) -> io::Result<()> {
    // SAFETY: setsid is safe after a fork; it neither allocates nor locks.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from));
    }
    command.spawn().map(drop)
}
