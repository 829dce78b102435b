//! Opens a pseudo-terminal, starts a program on it and ends what runs there.
//!
//! The master's own descriptor is used: the writer that portable-pty offers types a newline and an
//! end-of-file when it is dropped. The program is started here, not by portable-pty, which closes the
//! pipe that would report a failed exec.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use portable_pty::PtySystem;
use portable_pty::unix::UnixPtySystem;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    waitid,
};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcgetpgrp, tcsetwinsize};

use crate::base::limits;
use crate::platform::pty::{ProcessExit, Program, PtySize, Received, TerminalState};

/// A terminal with the program that was started on it.
pub struct Pty {
    master: OwnedFd,
    child: Pid,
    /// Readable once the child has ended.
    exit: OwnedFd,
}

impl Pty {
    /// Opens a terminal of this size and starts the program as leader of a session of its own, with
    /// default signals and no descriptor but the terminal. Errors: no terminal to be had, the working
    /// directory or the program missing.
    pub fn start(program: &Program, size: PtySize) -> io::Result<Self> {
        let pair = UnixPtySystem::default()
            .openpty(portable_pty::PtySize {
                rows: size.rows,
                cols: size.cols,
                pixel_width: 0,
                pixel_height: 0,
            })
            .map_err(|error| io::Error::other(format!("open a terminal: {error}")))?;
        let raw = pair
            .master
            .as_raw_fd()
            .ok_or_else(|| io::Error::other("the terminal has no descriptor"))?;
        // SAFETY: `pair` owns the descriptor and outlives the borrow.
        let master = unsafe { BorrowedFd::borrow_raw(raw) }.try_clone_to_owned()?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let name = pair
            .master
            .tty_name()
            .ok_or_else(|| io::Error::other("the terminal has no name"))?;
        let terminal = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(name)?;
        let child = spawn(program, &terminal)?;
        let exit = pidfd_open(child, PidfdFlags::empty())?;
        Ok(Self {
            master,
            child,
            exit,
        })
    }

    pub fn master(&self) -> BorrowedFd<'_> {
        self.master.as_fd()
    }

    pub fn exit(&self) -> BorrowedFd<'_> {
        self.exit.as_fd()
    }

    pub fn child(&self) -> u32 {
        self.child.as_raw_nonzero().get().unsigned_abs()
    }

    /// Takes output that is there. `Closed`: no process has the terminal open any more.
    pub fn read(&self, into: &mut [u8]) -> io::Result<Received> {
        match rustix::io::read(&self.master, into) {
            Ok(0) | Err(rustix::io::Errno::IO) => Ok(Received::Closed),
            Ok(length) => Ok(Received::Bytes(length)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives input; answers how much the terminal took, which may be nothing.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match rustix::io::write(&self.master, bytes) {
            Ok(length) => Ok(length),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    pub fn resize(&self, size: PtySize) -> io::Result<()> {
        let size = Winsize {
            ws_row: size.rows,
            ws_col: size.cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        Ok(tcsetwinsize(&self.master, size)?)
    }

    pub fn state(&self) -> TerminalState {
        let modes = tcgetattr(&self.master).ok().map(|all| all.local_modes);
        TerminalState {
            foreground: self
                .foreground()
                .map(|group| group.as_raw_nonzero().get().unsigned_abs()),
            echo: modes.map(|modes| modes.contains(LocalModes::ECHO)),
            canonical: modes.map(|modes| modes.contains(LocalModes::ICANON)),
        }
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.master).ok()
    }

    /// How the child ended, once it has. It stays a zombie, so that its number names nobody else while
    /// its session is still being ended.
    pub fn exit_status(&self) -> Option<ProcessExit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(self.exit.as_fd()), options).ok()??;
        status
            .exit_status()
            .map(ProcessExit::Code)
            .or_else(|| status.terminating_signal().map(ProcessExit::Signal))
    }

    /// Asks the child's group and the group in the foreground to end (TERM and HUP; CONT, so that a
    /// stopped one hears it). Answers how many groups were reached.
    pub fn ask_to_end(&self) -> u32 {
        let groups = [Some(self.child), self.foreground()];
        let groups: BTreeSet<i32> = groups
            .into_iter()
            .flatten()
            .map(|group| group.as_raw_nonzero().get())
            .collect();
        let reached = groups
            .into_iter()
            .filter_map(Pid::from_raw)
            .filter(|group| {
                let signals = [Signal::TERM, Signal::HUP, Signal::CONT];
                signals.map(|signal| kill_process_group(*group, signal).is_ok())[0]
            });
        u32::try_from(reached.count()).unwrap_or(u32::MAX)
    }

    /// Whether anything of the child's session still runs.
    pub fn session_runs(&self) -> bool {
        !session_members(self.child()).is_empty()
    }

    /// Kills every process of the child's session; answers how many those were.
    pub fn end_session(&self) -> u32 {
        let mut killed = BTreeSet::new();
        // A process may fork while the list is read, so it is read until it names nobody new.
        for _ in 0..limits::PROCESS_TREE_PASSES_MAX {
            let members = session_members(self.child());
            let before = killed.len();
            for pid in members {
                if let Some(id) = Pid::from_raw(pid)
                    && kill_process(id, Signal::KILL).is_ok()
                {
                    killed.insert(pid);
                }
            }
            if killed.len() == before {
                break;
            }
        }
        u32::try_from(killed.len()).unwrap_or(u32::MAX)
    }
}

fn spawn(program: &Program, terminal: &File) -> io::Result<Pid> {
    let (name, arguments) = program
        .argv
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program is named"))?;
    if !program.cwd.is_dir() {
        let text = format!("working directory {} does not exist", program.cwd.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let mut command = Command::new(name);
    command
        .args(arguments)
        .current_dir(&program.cwd)
        .env_clear()
        .envs(program.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(terminal.try_clone()?))
        .stdout(Stdio::from(terminal.try_clone()?))
        .stderr(Stdio::from(terminal.try_clone()?));
    // SAFETY: only system calls that are allowed between fork and exec.
    unsafe {
        command.pre_exec(prepare_child);
    }
    let child = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("start {name}: {error}")))?;
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("the program has no number"))
}

/// Runs in the child, between fork and exec.
fn prepare_child() -> io::Result<()> {
    reset_signals();
    rustix::process::setsid()?;
    rustix::process::ioctl_tiocsctty(io::stdin())?;
    // SAFETY: takes numbers only. Descriptors close at exec, so that a failed exec is still reported.
    let closed = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if closed == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Every signal to its default, none blocked.
pub(super) fn reset_signals() {
    // The kernel's own form of an action: default, no flags, nothing masked. The C library's call
    // refuses two signals that it keeps for itself, which a careless parent may have left ignored.
    let default = [0_usize; 4];
    // SAFETY: the action and the mask outlive the calls; KILL and STOP are refused, which does nothing.
    unsafe {
        for signal in 1..=64 {
            let old = std::ptr::null_mut::<usize>();
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                old,
                8_usize,
            );
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// How many live processes a session has; reads the whole process table.
pub fn session_processes(session: u32) -> Option<u32> {
    u32::try_from(session_members(session).len()).ok()
}

/// The live processes of a session, from one look at /proc.
fn session_members(session: u32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let member = |entry: io::Result<fs::DirEntry>| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything; the fields follow its last one.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let of: u32 = fields.nth(2)?.parse().ok()?;
        (of == session && !matches!(state, "Z" | "X")).then_some(pid)
    };
    entries.filter_map(member).collect()
}
