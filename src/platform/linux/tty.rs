//! The terminal that a console runs in: raw mode, bytes in and out that never block, its signals.
//!
//! The terminal is opened anew, so that non-blocking mode does not reach the shell that shares ours.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal as Number, kill_current_process_group};
use rustix::termios::{self, OptionalActions, Termios};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::watched::Watched;
use crate::platform::{Output, Waited};

/// What has to be put back, also by a panic hook that knows nothing else.
struct Changed {
    fd: OwnedFd,
    before: Termios,
}

static CHANGED: Mutex<Option<Changed>> = Mutex::new(None);

fn changed() -> MutexGuard<'static, Option<Changed>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The outer terminal. Needs a tokio runtime.
pub struct Tty {
    fd: Watched,
}

impl Tty {
    /// Opens the terminal of standard input and output; an error when they are none.
    pub fn open() -> io::Result<Self> {
        let (input, output) = (io::stdin(), io::stdout());
        if !termios::isatty(input.as_fd()) || !termios::isatty(output.as_fd()) {
            return Err(io::Error::other(
                "standard input and output are no terminal",
            ));
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let named = termios::ttyname(output.as_fd(), Vec::new())
            .and_then(|name| rustix::fs::open(name, flags, Mode::empty()));
        let fd = match named {
            Ok(fd) => fd,
            // A name of another mount namespace, as in a container.
            Err(_) => rustix::fs::open("/dev/tty", flags, Mode::empty())?,
        };
        let fd = Watched::new(fd)?;
        Ok(Self { fd })
    }

    /// Columns and rows.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        let size = termios::tcgetwinsize(self.fd.fd())?;
        Ok((size.ws_col, size.ws_row))
    }

    /// Turns raw mode on; the settings of before the first call are what `put_back` restores.
    pub fn raw(&self) -> io::Result<()> {
        let fd = self.fd.fd();
        let mut settings = termios::tcgetattr(fd)?;
        let mut changed = changed();
        if changed.is_none() {
            *changed = Some(Changed {
                fd: fd.try_clone()?,
                before: settings.clone(),
            });
        }
        settings.make_raw();
        termios::tcsetattr(fd, OptionalActions::Now, &settings)?;
        Ok(())
    }

    /// Writes what the terminal takes now; `WouldBlock` when that is nothing.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.fd.fd(), bytes)?)
    }

    /// Waits for input, which is appended, and with `output` also until the terminal takes bytes again,
    /// as it has to after `write` gave `WouldBlock`. `UnexpectedEof` when the terminal is gone. This
    /// platform gives bytes, never events. Dropping the future loses nothing.
    pub async fn wait(&mut self, output: Output, into: &mut Vec<u8>) -> io::Result<Waited> {
        let read = poll_fn(|context| {
            let room = 4096;
            into.reserve(room);
            let read = self.fd.poll_read(context, room, |fd| {
                rustix::io::read(fd, rustix::buffer::spare_capacity(into))
            });
            if let Poll::Ready(read) = read {
                return Poll::Ready(read.map(Some));
            }
            match output {
                Output::Wanted => self.fd.poll_room(context).map_ok(|()| None),
                Output::Unwanted => Poll::Pending,
            }
        });
        match read.await {
            Ok(None) => Ok(Waited::Writable),
            Ok(Some(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(Some(_)) => Ok(Waited::Bytes),
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Err(error) => Err(error),
        }
    }
}

/// Writes `sequence` and puts the settings back, once: later calls do nothing until `raw` is called
/// again. May be called from a panic hook; never blocks.
pub fn put_back(sequence: &[u8]) {
    let Some(Changed { fd, before }) = changed().take() else {
        return;
    };
    let mut rest = sequence;
    while !rest.is_empty() {
        match rustix::io::write(&fd, rest) {
            Ok(len) => rest = &rest[len..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    // Pending input may be the end of a mouse or key sequence: the shell must not read it.
    let _ = termios::tcflush(&fd, termios::QueueSelector::IFlush);
    let _ = termios::tcsetattr(&fd, OptionalActions::Now, &before);
}

/// What the system tells a console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Resized,
    /// Continued after a stop, maybe with the terminal changed by the shell.
    Continued,
    /// SIGTERM, SIGHUP or SIGINT.
    End,
}

pub struct Signals {
    resized: Signal,
    continued: Signal,
    stop: super::StopSignals,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            resized: signal(SignalKind::window_change())?,
            continued: signal(SignalKind::from_raw(libc::SIGCONT))?,
            stop: super::StopSignals::new()?,
        })
    }

    /// The next one. Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Told {
        tokio::select! {
            () = self.stop.recv() => Told::End,
            _ = self.resized.recv() => Told::Resized,
            _ = self.continued.recv() => Told::Continued,
        }
    }
}

/// Stops this job as Ctrl-Z does; returns when it is continued.
pub fn suspend() -> io::Result<()> {
    kill_current_process_group(Number::TSTP)?;
    Ok(())
}
