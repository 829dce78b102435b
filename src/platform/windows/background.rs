//! Programs that outlive the terminal that they were started from.

use std::io;
use std::os::windows::process::CommandExt;
use std::process::Command;

use windows::Win32::System::Threading::{CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW};

/// Starts a program without a console window, in a process group of its own.
pub fn spawn(command: &mut Command) -> io::Result<()> {
    command.creation_flags(CREATE_NO_WINDOW.0 | CREATE_NEW_PROCESS_GROUP.0);
    command.spawn().map(drop)
}
