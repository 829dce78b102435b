//! The input guard: a child that lets up what a killed agent leaves pressed.
//!
//! On Windows what is pressed belongs to the session, not to the process that pressed it. So the
//! agent injects by itself and tells the guard: before a press and after a release. The guard's
//! standard input ends when the agent ends, however it ends; then the guard lets up what is left.
//! A kill between word and deed lets up a key that is up already, which does nothing.
//!
//! ```text
//! 0      1      2
//! | what | code |   what: 1 key down, 2 key up, 3 button down, 4 button up
//! ```

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::windows::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use windows::Win32::System::Threading::CREATE_NO_WINDOW;

use super::input::{Held, let_up};
use crate::platform::{PlatformError, Press, Result};

/// The hidden subcommand that runs `guard_main`.
const SUBCOMMAND: &str = "input-guard";

/// The guard's whole life: reads until the agent has ended, then lets up what is still pressed.
pub fn guard_main() -> ExitCode {
    let mut held = BTreeSet::new();
    let mut input = std::io::stdin().lock();
    let mut message = [0; 2];
    while input.read_exact(&mut message).is_ok() {
        match decode(message) {
            Some((Press::Down, what)) => {
                held.insert(what);
            }
            Some((Press::Up, what)) => {
                held.remove(&what);
            }
            // Only a broken agent writes this; what it holds is let up as if it had ended.
            None => break,
        }
    }
    let failed = held.into_iter().filter(|what| let_up(*what).is_err());
    if failed.count() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The agent's end.
pub struct Guard {
    program: PathBuf,
    running: Option<(Child, ChildStdin)>,
}

impl Guard {
    /// Starts the guard; without one nothing may be pressed.
    pub fn start(program: Option<&Path>) -> Result<Self> {
        let program = match program {
            Some(program) => program.to_path_buf(),
            None => std::env::current_exe().map_err(|error| {
                PlatformError::InputFailed(format!("find the guard's program: {error}"))
            })?,
        };
        let mut guard = Self {
            program,
            running: None,
        };
        guard.restart(std::iter::empty())?;
        Ok(guard)
    }

    /// Tells the guard of a press to come or a release done. A guard that has ended is replaced, and
    /// its successor hears of all that is `held`.
    pub fn tell(
        &mut self,
        press: Press,
        what: Held,
        held: impl Iterator<Item = Held>,
    ) -> Result<()> {
        if let Some((_, input)) = &mut self.running
            && input.write_all(&encode(press, what)).is_ok()
        {
            return Ok(());
        }
        tracing::warn!("the input guard has ended; another one is started");
        self.restart(held)?;
        self.write(press, what)
    }

    fn restart(&mut self, held: impl Iterator<Item = Held>) -> Result<()> {
        self.running = None;
        let mut child = Command::new(&self.program)
            .arg(SUBCOMMAND)
            // A console of its own, unseen: the agent's Ctrl-C must not end its guard.
            .creation_flags(CREATE_NO_WINDOW.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(&error))?;
        let input = child
            .stdin
            .take()
            .ok_or_else(|| PlatformError::InputFailed("the guard has no input".to_owned()))?;
        self.running = Some((child, input));
        for what in held {
            self.write(Press::Down, what)?;
        }
        Ok(())
    }

    fn write(&mut self, press: Press, what: Held) -> Result<()> {
        match &mut self.running {
            Some((_, input)) => input
                .write_all(&encode(press, what))
                .map_err(|error| failed(&error)),
            None => Err(PlatformError::InputFailed("no guard runs".to_owned())),
        }
    }
}

fn failed(error: &std::io::Error) -> PlatformError {
    PlatformError::InputFailed(format!("run the input guard: {error}"))
}

fn encode(press: Press, what: Held) -> [u8; 2] {
    match (what, press) {
        (Held::Key(key), Press::Down) => [1, key],
        (Held::Key(key), Press::Up) => [2, key],
        (Held::Button(button), Press::Down) => [3, button],
        (Held::Button(button), Press::Up) => [4, button],
    }
}

fn decode([what, code]: [u8; 2]) -> Option<(Press, Held)> {
    match what {
        1 => Some((Press::Down, Held::Key(code))),
        2 => Some((Press::Up, Held::Key(code))),
        3 => Some((Press::Down, Held::Button(code))),
        4 => Some((Press::Up, Held::Button(code))),
        _ => None,
    }
}
