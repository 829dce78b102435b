//! Starting holders, and the two hidden subcommands that are one.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::serve::Holder;
use super::{HolderError, folder};
use crate::platform::pty::zygote;

pub use crate::platform::pty::Scope;

/// The hidden subcommands of this binary.
const ZYGOTE: &str = "pty-zygote";
const HOLDER: &str = "holder";

/// Starts holders out of one small process. Dropping it ends that process, not its holders.
#[derive(Debug)]
pub struct Zygote {
    executable: PathBuf,
    zygote: zygote::Zygote,
    scope: Scope,
}

impl Zygote {
    /// Starts the zygote of this executable, in a systemd scope of its own where the agent runs under
    /// systemd. Blocks until it stands, some milliseconds. On Windows there is none; `spawn` then runs
    /// a fresh process each time.
    pub fn start(executable: &Path) -> Result<Self, HolderError> {
        let (zygote, scope) = zygote::Zygote::start(executable, ZYGOTE)
            .map_err(HolderError::io("start the zygote of sessions"))?;
        Ok(Self {
            executable: executable.to_owned(),
            zygote,
            scope,
        })
    }

    /// Where its holders live; `Refused` is worth a line in the log.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The zygote's own process number.
    pub fn pid(&self) -> u32 {
        self.zygote.pid()
    }

    /// Starts a holder for a folder with a specification; answers the program's process number. The holder
    /// listens by then. A zygote that has ended is replaced once.
    pub fn spawn(&mut self, folder: &Path) -> Result<u32, HolderError> {
        let answer = match self.zygote.spawn(folder) {
            Ok(answer) => answer,
            Err(_) => {
                let (zygote, scope) = zygote::Zygote::start(&self.executable, ZYGOTE)
                    .map_err(HolderError::io("start the zygote of sessions again"))?;
                (self.zygote, self.scope) = (zygote, scope);
                self.zygote
                    .spawn(folder)
                    .map_err(HolderError::io("ask the zygote for a holder"))?
            }
        };
        answer.map_err(HolderError::NotStarted)
    }
}

/// Starts a holder as a fresh process, without a zygote; otherwise as `Zygote::spawn`.
pub fn spawn_direct(executable: &Path, folder: &Path) -> Result<u32, HolderError> {
    zygote::spawn_detached(executable, HOLDER, folder)
        .map_err(HolderError::io("start a holder"))?
        .map_err(HolderError::NotStarted)
}

/// `pty-zygote`.
pub fn zygote_main() -> ExitCode {
    zygote::zygote_main(warm, hold)
}

/// `holder FOLDER`.
pub fn holder_main(folder: Option<&OsStr>) -> ExitCode {
    folder.map_or(ExitCode::FAILURE, |folder| {
        zygote::holder_main(folder, hold)
    })
}

/// Touches once what every holder will need, so that its pages are shared.
fn warm() {
    zygote::map_large_pieces();
    // The outcome is of no interest.
    let _ = serde_json::from_slice::<folder::Spec>(b"{}");
}

/// A holder's whole life.
fn hold(folder: &Path, started: zygote::Started) {
    log_panics(folder);
    zygote::map_large_pieces();
    match Holder::start(folder) {
        Ok(holder) => {
            started.tell(&Ok(holder.child()));
            if let Err(error) = holder.run() {
                log(folder, &format!("the holder ended early: {error}"));
            }
        }
        Err(error) => started.tell(&Err(error.to_string())),
    }
}

fn log_panics(folder: &Path) {
    let folder = folder.to_owned();
    std::panic::set_hook(Box::new(move |panic| log(&folder, &panic.to_string())));
}

fn log(folder: &Path, text: &str) {
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join(folder::LOG));
    // There is nowhere else to say it.
    let _ = file.and_then(|mut file| writeln!(file, "{text}"));
}
