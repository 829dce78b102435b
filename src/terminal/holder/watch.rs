//! Output beside the agent's way: what a holder tells a console of its own machine at once.
//!
//! ```text
//! program ─► holder ─► agent ─► console    everything, in order, screens where it lags
//!               └─────────────► console    a few bytes at a time, as they come; the rest is left out
//! ```
//!
//! It saves the echo of a key the way through the agent, and nothing depends on it: whoever watches takes
//! bytes that follow what it has, and has everything from the agent all the same.

use std::path::Path;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::HolderError;
use super::buffer::FrameBuffer;
use super::protocol::{self, FromHolder, PROTOCOL, ToHolder};
use crate::base::limits;
use crate::platform::pty::{PtySize, WatchStream};

/// What a holder tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Early {
    Output { offset: u64, bytes: Bytes },
    Resized(PtySize),
}

/// A console's end.
pub struct Watcher {
    stream: WatchStream,
    buffer: FrameBuffer,
}

impl Watcher {
    /// Connects to the holder that listens on `socket`, without waiting for it. Needs a tokio runtime.
    /// One that does not know watchers ends the connection.
    pub fn connect(socket: &Path) -> Result<Self, HolderError> {
        let mut hello = Vec::new();
        ToHolder::Watch { protocol: PROTOCOL }.put(&mut hello);
        let stream = WatchStream::connect(socket, &hello)
            .map_err(HolderError::io("connect to the holder"))?;
        Ok(Self {
            stream,
            buffer: FrameBuffer::new(2 * limits::HOLDER_TEE_LEN_MAX),
        })
    }

    /// What came next; `None` at the end.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Early>> {
        loop {
            let frame = match self.buffer.take() {
                Ok(None) => None,
                Ok(Some(raw)) => Some(protocol::from_holder(raw)),
                Err(error) => Some(Err(error)),
            };
            match frame {
                Some(Ok(FromHolder::Output { offset, bytes })) => {
                    let bytes = Bytes::copy_from_slice(bytes);
                    return Poll::Ready(Some(Early::Output { offset, bytes }));
                }
                Some(Ok(FromHolder::Resized { size, .. })) => {
                    return Poll::Ready(Some(Early::Resized(size)));
                }
                Some(Ok(_)) => continue,
                Some(Err(_)) => return Poll::Ready(None),
                None => {}
            }
            let Ok(room) = self.buffer.room() else {
                return Poll::Ready(None);
            };
            match ready!(self.stream.poll_receive(context, room)) {
                Ok(length) if length > 0 => self.buffer.filled(length),
                Ok(_) | Err(_) => return Poll::Ready(None),
            }
        }
    }
}
