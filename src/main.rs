//! The executable: one role per run.

use std::ffi::OsStr;
use std::process::ExitCode;

fn main() -> ExitCode {
    // These children must be small and depend on nothing but what they are given, so they are told
    // before the command line is read.
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(OsStr::to_str) {
        Some("input-guard") => wingman::platform::guard_main(),
        Some("pty-zygote") => wingman::terminal::holder::zygote_main(),
        Some("holder") => wingman::terminal::holder::holder_main(words.next().as_deref()),
        _ => wingman::roles::main(std::env::args_os()),
    }
}
