//! The executable: one role per run.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The guard is a child that must be small and must not depend on anything but its pipe, so it is
    // told before the command line is read.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|role| role == "input-guard")
    {
        return wingman::platform::guard_main();
    }
    wingman::roles::main(std::env::args_os())
}
