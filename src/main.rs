//! The executable: one role per run.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|role| role == "input-guard")
    {
        return wingman::platform::guard_main();
    }
    ExitCode::SUCCESS
}
