//! A terminal of 120 by 40 with a program on it; bytes are read as they come, by one thread.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const PATIENCE: Duration = Duration::from_secs(60);
/// Silence after which what is waited for may have come in parts.
const QUIET: Duration = Duration::from_millis(500);
/// Of what was looked at in vain, so much is kept to be looked at once more in silence.
const KEPT_LEN: usize = 4 * 1024;

pub struct Screen {
    master: OwnedFd,
    child: Child,
    buffer: Vec<u8>,
    /// Bytes that no `wait_for` has looked at yet.
    unseen: Vec<u8>,
    received: usize,
}

impl Screen {
    pub fn command(program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("TERM", "xterm-256color")
            .env_remove("TMUX");
        command
    }

    pub fn start(command: &mut Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&master).expect("grant");
        unlockpt(&master).expect("unlock");
        let size = Winsize {
            ws_col: 120,
            ws_row: 40,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).expect("its size");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let path = std::path::PathBuf::from(name.to_str().expect("a path"));
        let open = || {
            std::fs::File::options()
                .read(true)
                .write(true)
                .open(&path)
                .map(Stdio::from)
                .expect("open the terminal")
        };
        command.stdin(open()).stdout(open()).stderr(open());
        // SAFETY: both calls are safe after a fork; they neither allocate nor lock.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().expect("start the program");
        Self {
            master,
            child,
            buffer: vec![0; 256 * 1024],
            unseen: Vec::new(),
            received: 0,
        }
    }

    pub fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let written = rustix::io::write(&self.master, bytes).expect("type");
            bytes = &bytes[written..];
        }
    }

    /// Reads once; false when nothing came in time.
    fn read(&mut self, patience: Duration) -> bool {
        let time = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        let fd = self.master.as_fd();
        let ready = poll(
            &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
            Some(&time),
        )
        .expect("poll");
        if ready == 0 {
            return false;
        }
        let length = rustix::io::read(&self.master, &mut self.buffer).unwrap_or(0);
        self.unseen.extend_from_slice(&self.buffer[..length]);
        self.received += length;
        length > 0
    }

    /// Waits until the bytes have come, and forgets everything up to them. A console may have painted them
    /// in two frames, with sequences in between; that is noticed in the silence after it.
    pub fn wait_for(&mut self, wanted: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = memchr::memmem::find(&self.unseen, wanted) {
                self.unseen.drain(..at + wanted.len());
                return;
            }
            let keep = self.unseen.len().saturating_sub(KEPT_LEN);
            self.unseen.drain(..keep);
            if self.read(QUIET) {
                continue;
            }
            if memchr::memmem::find(&without_sequences(&self.unseen), wanted).is_some() {
                self.unseen.clear();
                return;
            }
            assert!(
                Instant::now() < deadline,
                "waited in vain for {:?}",
                String::from_utf8_lossy(wanted)
            );
        }
    }

    /// Reads until nothing comes for a while.
    pub fn settle(&mut self) {
        while self.read(Duration::from_millis(250)) {}
        self.unseen.clear();
    }

    /// Reads what is there.
    pub fn drain(&mut self) {
        while self.read(Duration::ZERO) {}
        self.unseen.clear();
    }

    pub fn received(&self) -> usize {
        self.received
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Text and control characters alone.
fn without_sequences(mut bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    while let Some((&byte, rest)) = bytes.split_first() {
        bytes = rest;
        if byte != 0x1b {
            text.push(byte);
            continue;
        }
        let len = match rest.first() {
            Some(b'[') => rest
                .iter()
                .skip(1)
                .position(|byte| (0x40..0x7f).contains(byte))
                .map(|at| at + 2),
            // It ends with BEL or with ESC and a backslash, which is then a sequence of its own.
            Some(b']' | b'P') => rest.iter().position(|byte| matches!(byte, 7 | 0x1b)),
            _ => Some(1),
        };
        bytes = rest.get(len.unwrap_or(rest.len())..).unwrap_or_default();
    }
    text
}
