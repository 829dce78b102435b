//! Starting holders. Most of what a fresh process of this binary costs is relocations, so a small
//! process pays them once and forks a holder for each request.
//!
//! ```text
//! agent ──socketpair──▶ zygote ──fork──▶ holder (own session, own answer pipe)
//!   len u32 LE | folder      ◀── len u32 LE | 0 pid u32 LE, or 1 text ──┘
//! ```
//!
//! The zygote has one thread and ends when the agent's end closes; its holders stay. Under systemd it
//! runs in a scope of its own, so that stopping the agent's unit ends no session.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::base::limits;
use crate::platform::pty::Scope;

/// Runs a holder for a session's folder; it says through the second argument whether it stands.
pub type Hold = fn(&Path, Started);

/// The one word of a new holder to whoever asked for it.
pub struct Started(File);

impl Started {
    /// Tells the child's process number, or why there is none.
    pub fn tell(mut self, answer: &Result<u32, String>) {
        let bytes = match answer {
            Ok(pid) => [&[0][..], &pid.to_le_bytes()].concat(),
            Err(text) => {
                let length = text.floor_char_boundary(limits::HOLDER_ANSWER_LEN_MAX - 1);
                [&[1][..], &text.as_bytes()[..length]].concat()
            }
        };
        // Who asked may be gone; the session goes on all the same.
        let _ = self.0.write_all(&bytes);
    }
}

fn answer(bytes: &[u8]) -> Result<u32, String> {
    match bytes.split_first() {
        Some((0, pid)) => pid
            .try_into()
            .map(u32::from_le_bytes)
            .map_err(|_| "the holder's answer is cut".to_owned()),
        Some((_, text)) => Err(String::from_utf8_lossy(text).into_owned()),
        None => Err("the holder ended before it stood".to_owned()),
    }
}

/// The agent's end of a zygote. Dropping it ends the zygote, not its holders.
#[derive(Debug)]
pub struct Zygote {
    /// What was run, for words about its failure.
    program: PathBuf,
    child: Child,
    /// `None` only while it is being dropped.
    stream: Option<UnixStream>,
}

impl Zygote {
    /// Starts the zygote of this binary, in a scope of its own where the agent runs under systemd.
    pub fn start(executable: &Path, subcommand: &str) -> io::Result<(Self, Scope)> {
        let Some(systemd_run) = systemd_run() else {
            return Ok((
                Self::run(Command::new(executable), subcommand)?,
                Scope::Plain,
            ));
        };
        let manager = if rustix::process::geteuid().is_root() {
            "--system"
        } else {
            "--user"
        };
        let mut command = Command::new(systemd_run);
        command
            .args([manager, "--scope", "--quiet", "--collect"])
            .arg("--description=Wingman terminal sessions")
            .arg("--")
            .arg(executable);
        match Self::run(command, subcommand) {
            Ok(zygote) => Ok((zygote, Scope::Systemd)),
            Err(error) => {
                let zygote = Self::run(Command::new(executable), subcommand)?;
                Ok((zygote, Scope::Refused(error.to_string())))
            }
        }
    }

    fn run(mut command: Command, subcommand: &str) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        command
            .arg(subcommand)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        // SAFETY: one system call, allowed between fork and exec.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
        }
        let program = PathBuf::from(command.get_program());
        let child = command.spawn()?;
        // It keeps the other end, and the end of the stream would never be told.
        drop(command);
        let mut zygote = Self {
            program,
            child,
            stream: Some(ours),
        };
        let mut ready = [0];
        if zygote.stream()?.read(&mut ready)? == 0 {
            return Err(io::Error::other(format!(
                "{} ended before the zygote stood",
                zygote.program.display()
            )));
        }
        Ok(zygote)
    }

    fn stream(&mut self) -> io::Result<&mut UnixStream> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.set_read_timeout(Some(Duration::from_millis(limits::HOLDER_START_MS)))?;
        Ok(stream)
    }

    /// Asks for a holder of this folder. The outer error: the zygote is gone or does not answer; the
    /// inner one: the holder says why it could not start.
    pub fn spawn(&mut self, folder: &Path) -> io::Result<Result<u32, String>> {
        let stream = self.stream()?;
        write_frame(stream, folder.as_os_str().as_bytes())?;
        let bytes = read_frame(stream)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the zygote has ended"))?;
        Ok(answer(&bytes))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        self.stream = None;
        // It ends by itself once it sees the end; one that hangs is not worth waiting for.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// `systemd-run`, when this process was started by systemd and the program is there.
fn systemd_run() -> Option<PathBuf> {
    std::env::var_os("INVOCATION_ID")?;
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|dir| dir.join("systemd-run"))
        .find(|path| path.is_file())
}

/// Starts a holder without a zygote and hears its word.
pub fn spawn_detached(
    executable: &Path,
    subcommand: &str,
    folder: &Path,
) -> io::Result<Result<u32, String>> {
    let mut child = Command::new(executable)
        .arg(subcommand)
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut bytes = Vec::new();
    if let Some(output) = child.stdout.take() {
        let limit = limits::HOLDER_ANSWER_LEN_MAX as u64;
        output.take(limit).read_to_end(&mut bytes)?;
    }
    // The process that was started ends at once; the holder is its child.
    child.wait()?;
    Ok(answer(&bytes))
}

/// `pty-zygote`: reads requests from standard input until it ends.
pub fn zygote_main(warm: fn(), hold: Hold) -> ExitCode {
    close_inherited();
    // SAFETY: numbers only. Holders that end are reaped by the kernel.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
    }
    warm();
    match serve(hold) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(hold: Hold) -> io::Result<()> {
    let mut stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    stream.write_all(&[1])?;
    while let Some(request) = read_frame(&mut stream)? {
        let folder = PathBuf::from(OsString::from_vec(request));
        let (answers, word) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: this process has one thread, so the child may do anything.
        match unsafe { libc::fork() } {
            0 => {
                drop((stream, answers));
                become_holder()?;
                hold(&folder, Started(File::from(word)));
                // SAFETY: ends the process without the zygote's own clean-up.
                unsafe { libc::_exit(0) }
            }
            -1 => {
                let text = format!("fork a holder: {}", io::Error::last_os_error());
                write_frame(&mut stream, &[&[1], text.as_bytes()].concat())?;
            }
            _ => {
                drop(word);
                let mut bytes = Vec::new();
                let limit = limits::HOLDER_ANSWER_LEN_MAX as u64;
                File::from(answers).take(limit).read_to_end(&mut bytes)?;
                write_frame(&mut stream, &bytes)?;
            }
        }
    }
    Ok(())
}

/// `holder FOLDER`: leaves its parent behind and holds, saying its word on standard output.
pub fn holder_main(folder: &OsStr, hold: Hold) -> ExitCode {
    close_inherited();
    let Ok(word) = std::io::stdout().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    // SAFETY: this process has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        0 if become_holder().is_ok() => {
            hold(Path::new(folder), Started(File::from(word)));
            ExitCode::SUCCESS
        }
        0 | -1 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// Closes what a careless parent left open; a holder would keep it for as long as it lives.
fn close_inherited() {
    // SAFETY: numbers only. At the start of the process nothing of ours is open beyond the streams.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32);
    }
}

/// Cuts a new holder off from its parent: a session of its own, no streams.
fn become_holder() -> io::Result<()> {
    rustix::process::setsid()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for stream in 0..=2 {
        // SAFETY: numbers only; the standard streams are open and nobody holds a reference to them.
        if unsafe { libc::dup2(null.as_raw_fd(), stream) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // It shows in process lists; without it a holder is called what its zygote is called.
    Ok(rustix::thread::set_name(c"wingman-holder")?)
}

fn write_frame(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_le_bytes(), bytes].concat())
}

/// `None` at the end of the stream.
fn read_frame(stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > limits::HOLDER_ANSWER_LEN_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a frame is too long",
        ));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}

/// Gives memory back that was used and is not needed any more.
pub fn release_memory() {
    // SAFETY: no pointer is involved; the allocator returns whole free pages.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// From here on large pieces of memory are pages of their own and go back when they are freed.
pub fn map_large_pieces() {
    // SAFETY: numbers only.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 * 1024);
    }
}
