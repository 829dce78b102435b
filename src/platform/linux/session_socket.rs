//! The socket between an agent and the holder of a session.
//!
//! Invariants: both ends check that the other runs as this user; a path that is too long for the
//! kernel moves to a short folder of this user's own (`local_socket::usable_path`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, send, sendmsg, sockopt::socket_peercred,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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

    /// As `receive`, with the terminal that the holder sent along, where it did.
    pub fn receive_terminal(&self, into: &mut [u8]) -> io::Result<(usize, Option<TerminalInput>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        loop {
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut pieces = [IoSliceMut::new(into)];
            match recvmsg(&self.0, &mut pieces, &mut beside, RecvFlags::CMSG_CLOEXEC) {
                Ok(message) => {
                    let mut terminals = beside.drain().filter_map(|message| match message {
                        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                        _ => None,
                    });
                    return Ok((message.bytes, terminals.next().map(TerminalInput)));
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives bytes together with a descriptor, without waiting; answers how many went.
    pub(super) fn try_send_with(&self, bytes: &[u8], fd: BorrowedFd<'_>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let fds = [fd];
        // INVARIANT: the space was made for one descriptor.
        beside.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(sendmsg(
            &self.0,
            &[IoSlice::new(bytes)],
            &mut beside,
            flags,
        )?)
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
        match sendmsg(&self.0, pieces, &mut Default::default(), flags) {
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

/// Tells a task when a connection has bytes, or has ended.
pub struct Readiness(AsyncFd<OwnedFd>);

impl Readiness {
    /// Needs a tokio runtime.
    pub fn new(stream: &Arc<SessionStream>) -> io::Result<Self> {
        let fd = stream.as_fd().try_clone_to_owned()?;
        // Room to send is of no interest here, and would wake the task at each byte that the holder takes.
        // SAFETY: an `OwnedFd` owns its descriptor and names the same one until it is dropped.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
        Ok(Self(fd))
    }

    /// Waits; what came before the last time that all was taken is not told again.
    pub async fn wait(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

/// A terminal's way in, past the holder that has the terminal. Closing it is no hang-up while the holder
/// lives.
#[derive(Debug)]
pub struct TerminalInput(OwnedFd);

impl TerminalInput {
    /// Gives input without waiting; answers how much the terminal took, which may be nothing.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match rustix::io::write(&self.0, bytes) {
            Ok(length) => Ok(length),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) fn same_user(stream: impl AsFd) -> bool {
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
