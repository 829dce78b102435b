//! A descriptor whose task is woken by what it waits for alone.
//!
//! Tokio's own streams are registered for reading and for writing at once, so that each time the peer
//! takes bytes the task that sent them is woken for nothing, in the middle of a key's way. Here room to
//! write is asked for only while there is none.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A non-blocking descriptor. One task uses it.
#[derive(Debug)]
pub struct Watched {
    reads: AsyncFd<OwnedFd>,
    /// A duplicate, registered while room is waited for.
    room: Option<AsyncFd<OwnedFd>>,
}

impl Watched {
    /// Needs a tokio runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            reads: register(fd, Interest::READABLE)?,
            room: None,
        })
    }

    pub fn fd(&self) -> &OwnedFd {
        self.reads.get_ref()
    }

    /// Reads once there is something: `read` answers how many bytes of the `wanted` it took, 0 at the end.
    pub fn poll_read(
        &self,
        context: &mut Context<'_>,
        wanted: usize,
        mut read: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.reads.poll_read_ready(context))?;
            match read(ready.get_inner()) {
                Ok(length) => {
                    if length > 0 && length < wanted {
                        // That was all. What comes later is told anew, so asking again, for which a
                        // terminal's own work has to end, would only delay the key.
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(length));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Waits for room, after a write that would have blocked.
    pub fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.room.is_none() {
            let fd = self.fd().try_clone()?;
            self.room = Some(register(fd, Interest::WRITABLE)?);
        }
        if let Some(room) = &self.room {
            ready!(room.poll_write_ready(context))?.retain_ready();
        }
        self.room = None;
        Poll::Ready(Ok(()))
    }
}

fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` owns its descriptor and names the same one until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest)? })
}
