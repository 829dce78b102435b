//! The agent's end of a session's pipe.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::local_socket;
use super::pipe::{Bell, Pipe, name_of, runtime};
use crate::platform::pty::Received;

/// A connection; reading and sending may happen at once, by one thread each.
pub struct SessionStream {
    pipe: Pipe,
    readable: Arc<Bell>,
}

impl SessionStream {
    /// Connects to the holder whose socket would be at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let name = name_of(path);
        let stream = runtime()?.block_on(local_socket::connect(&name))?;
        let readable = Arc::new(Bell::default());
        let pipe = {
            let _entered = runtime()?.enter();
            Pipe::new(stream, readable.clone())?
        };
        Ok(Self { pipe, readable })
    }

    /// Waits for bytes and takes those that are there; 0 at the end.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.pipe.receive(into) {
                Received::Bytes(length) => return Ok(length),
                Received::Closed => return Ok(0),
                Received::Nothing => self.readable.wait(None),
            }
        }
    }

    /// As `receive`; a holder cannot send its pseudo-console along.
    pub fn receive_terminal(&self, into: &mut [u8]) -> io::Result<(usize, Option<TerminalInput>)> {
        Ok((self.receive(into)?, None))
    }

    /// Takes bytes that are there, without waiting.
    pub fn try_receive(&self, into: &mut [u8]) -> io::Result<Received> {
        Ok(self.pipe.receive(into))
    }

    /// Gives what goes without waiting; answers how much that was, which may be nothing.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.pipe.send(bytes)
    }

    /// Waits until all is taken.
    pub fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.pipe.send(bytes)?;
            bytes = bytes.get(taken..).unwrap_or_default();
            if taken == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Whether bytes, or the end, came within `limit`.
    pub fn wait_readable(&self, limit: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + limit;
        while !self.pipe.is_readable() {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            self.readable.wait(Some(deadline));
        }
        Ok(true)
    }

    /// Ends both directions, so that a reader in another thread comes back.
    pub fn shutdown(&self) {
        self.pipe.shutdown();
    }
}

/// Tells a task when a connection has bytes, or has ended.
pub struct Readiness(Arc<SessionStream>);

impl Readiness {
    /// Needs a tokio runtime.
    pub fn new(stream: &Arc<SessionStream>) -> io::Result<Self> {
        Ok(Self(Arc::clone(stream)))
    }

    /// Waits until there are bytes, or the end.
    pub async fn wait(&self) -> io::Result<()> {
        while !self.0.pipe.is_readable() {
            self.0.readable.heard().await;
        }
        Ok(())
    }
}

/// A terminal's way in past its holder, which this system does not have.
#[derive(Debug)]
pub enum TerminalInput {}

impl TerminalInput {
    pub fn write(&self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }
}
