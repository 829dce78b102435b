//! Starting holders on Windows, which cannot fork: each is a fresh process of this binary.
//!
//! Its one word to whoever asked for it comes on its standard output: `len u32 LE | 0 pid u32 LE`, or
//! `len u32 LE | 1 text`.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::windows::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use windows::Win32::System::Threading::{CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW};

use crate::base::limits;
use crate::platform::pty::Scope;

/// Runs a holder for a session's folder; it says through the second argument whether it stands.
pub type Hold = fn(&Path, Started);

/// The one word of a new holder to whoever asked for it.
pub struct Started(());

impl Started {
    /// Tells the child's process number, or why there is none.
    pub fn tell(self, answer: &Result<u32, String>) {
        let body = match answer {
            Ok(pid) => [&[0][..], &pid.to_le_bytes()].concat(),
            Err(text) => {
                let length = text.floor_char_boundary(limits::HOLDER_ANSWER_LEN_MAX - 1);
                [&[1][..], &text.as_bytes()[..length]].concat()
            }
        };
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut output = io::stdout().lock();
        // Who asked may be gone; the session goes on all the same.
        let _ = output
            .write_all(&length)
            .and_then(|()| output.write_all(&body))
            .and_then(|()| output.flush());
    }
}

/// Stands for a zygote; every request is a fresh process.
#[derive(Debug)]
pub struct Zygote {
    executable: PathBuf,
}

impl Zygote {
    pub fn start(executable: &Path, _subcommand: &str) -> io::Result<(Self, Scope)> {
        let executable = executable.to_owned();
        Ok((Self { executable }, Scope::Plain))
    }

    pub fn spawn(&mut self, folder: &Path) -> io::Result<Result<u32, String>> {
        spawn_detached(&self.executable, "holder", folder)
    }

    /// There is no such process.
    pub const fn pid(&self) -> u32 {
        0
    }
}

/// Starts a holder and hears its word.
pub fn spawn_detached(
    executable: &Path,
    subcommand: &str,
    folder: &Path,
) -> io::Result<Result<u32, String>> {
    let mut child = Command::new(executable)
        .arg(subcommand)
        .arg(folder)
        // The agent's Ctrl-C must not end its sessions.
        .creation_flags(CREATE_NO_WINDOW.0 | CREATE_NEW_PROCESS_GROUP.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut output = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("the holder has no output"))?;
    let mut length = [0; 4];
    output.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > limits::HOLDER_ANSWER_LEN_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the answer is too long",
        ));
    }
    let mut body = vec![0; length];
    output.read_exact(&mut body)?;
    Ok(match body.split_first() {
        Some((0, pid)) => pid
            .try_into()
            .map(u32::from_le_bytes)
            .map_err(|_| "the holder's answer is cut".to_owned()),
        Some((_, text)) => Err(String::from_utf8_lossy(text).into_owned()),
        None => Err("the holder ended before it stood".to_owned()),
    })
}

/// There is no zygote here.
pub fn zygote_main(_warm: fn(), _hold: Hold) -> ExitCode {
    ExitCode::FAILURE
}

/// `holder FOLDER`.
pub fn holder_main(folder: &OsStr, hold: Hold) -> ExitCode {
    hold(Path::new(folder), Started(()));
    ExitCode::SUCCESS
}

/// The allocator decides.
pub const fn release_memory() {}

/// As above.
pub const fn map_large_pieces() {}
