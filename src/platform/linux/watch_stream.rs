//! The connection of a console to a holder on its machine.

use std::io;
use std::path::Path;
use std::task::{Context, Poll};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};

use super::local_socket::usable_path;
use super::session_socket::same_user;
use super::watched::Watched;

/// A connection that is only read, by a task. Needs a tokio runtime.
pub struct WatchStream(Watched);

impl WatchStream {
    /// Connects to the holder that listens on `path` and says `hello`, without waiting for it;
    /// `PermissionDenied` when another user serves it.
    pub fn connect(path: &Path, hello: &[u8]) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&fd, &SocketAddrUnix::new(usable_path(path))?)?;
        if !same_user(&fd) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if send(&fd, hello, SendFlags::NOSIGNAL)? < hello.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(Self(Watched::new(fd)?))
    }

    /// Takes bytes once some are there; 0 at the end.
    pub fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read(context, into.len(), |fd| {
            let (length, _) = recv(fd, &mut *into, RecvFlags::DONTWAIT)?;
            Ok(length)
        })
    }
}
