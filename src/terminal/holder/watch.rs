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
use std::time::{Duration, Instant};

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

/// Says which output is few enough to be told to watchers.
#[derive(Default)]
pub(super) struct Tee {
    /// When the span began in which bytes are counted, and how many came in it.
    since: Option<Instant>,
    came: usize,
}

impl Tee {
    /// Counts bytes that came; answers whether they are told.
    pub fn admits(&mut self, bytes: usize, now: Instant) -> bool {
        let span = Duration::from_millis(limits::CONSOLE_SCREEN_PAUSE_MS);
        if self.since.is_none_or(|since| now - since >= span) {
            self.since = Some(now);
            self.came = 0;
        }
        self.came = self.came.saturating_add(bytes);
        self.came <= limits::HOLDER_TEE_LEN_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_told_and_a_flood_is_not() {
        let mut tee = Tee::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let most = limits::HOLDER_TEE_LEN_MAX;
        assert!(tee.admits(1, at(0)));
        assert!(tee.admits(most - 1, at(1)));
        assert!(!tee.admits(1, at(2)));
        assert!(!tee.admits(usize::MAX, at(15)));
        assert!(tee.admits(most, at(16)));
    }
}
