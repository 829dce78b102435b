//! The socket between an agent and the holder of a session.
//!
//! Invariants: both ends check that the other runs as this user; a path that is too long for the
//! kernel moves to a short folder of this user's own (`local_socket::usable_path`).

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt::socket_peercred};

use super::local_socket::{private_dir, usable_path};
use crate::platform::pty::Received;

/// A connection; reading and sending may happen at once.
#[derive(Debug)]
pub struct SessionStream(UnixStream);

impl SessionStream {
    /// Connects to the holder that listens on `path`; `PermissionDenied` when another user serves it.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(usable_path(path))?;
        if !same_user(&stream) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self(stream))
    }

    /// Waits for bytes and takes those that are there; 0 at the end.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(&self.0, &mut *into, RecvFlags::empty()) {
                Ok((length, _)) => return Ok(length),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes bytes that are there, without waiting.
    pub fn try_receive(&self, into: &mut [u8]) -> io::Result<Received> {
        match recv(&self.0, into, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => Ok(Received::Closed),
            Ok((length, _)) => Ok(Received::Bytes(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives what goes without waiting; answers how much that was, which may be nothing.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        match send(&self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(length) => Ok(length),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// The same for several pieces in one call.
    pub fn try_send_all(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::sendmsg(&self.0, pieces, &mut Default::default(), flags) {
            Ok(length) => Ok(length),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until all is given.
    pub fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether bytes, or the end, came within `limit`.
    pub fn wait_readable(&self, limit: Duration) -> io::Result<bool> {
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut fds, Some(&limit)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends both directions, so that a reader in another thread comes back.
    pub fn shutdown(&self) {
        // It may have ended already, which is what is wanted.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl AsFd for SessionStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn same_user(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// The holder's end. Dropping it removes the socket.
pub(super) struct SessionListener {
    listener: UnixListener,
    path: PathBuf,
}

impl SessionListener {
    /// Binds `path` for this user alone. The caller holds the session's lock, so a socket that is there
    /// already is stale.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let path = usable_path(path);
        if let Some(dir) = path.parent() {
            private_dir(dir)?;
        }
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path })
    }

    /// The next connection of this user; others are closed unheard.
    pub fn accept(&self) -> Option<SessionStream> {
        let (stream, _) = self.listener.accept().ok()?;
        same_user(&stream).then_some(SessionStream(stream))
    }
}

impl AsFd for SessionListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for SessionListener {
    fn drop(&mut self) {
        // Whoever scans goes by the lock; a socket that stays behind misleads nobody.
        let _ = std::fs::remove_file(&self.path);
    }
}
