//! Cuts a stream of bytes into frames, in one buffer that is as large as it has to be.

use super::protocol::{ProtocolError, Raw, cut, frame_len};

/// What the buffer holds when little comes.
const SMALL_LEN: usize = 4 * 1024;

/// Bytes received and not yet taken.
pub struct FrameBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    large_len: usize,
}

impl FrameBuffer {
    /// A buffer that grows to `large_len` when that much comes at once, and beyond for a longer frame.
    pub const fn new(large_len: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            large_len,
        }
    }

    /// Whether it holds more memory than when little comes.
    pub fn is_large(&self) -> bool {
        self.bytes.len() > SMALL_LEN
    }

    /// Gives memory back that the bytes it holds do not need.
    pub fn shrink(&mut self) {
        if self.is_large() && self.end - self.start <= SMALL_LEN {
            let mut small = vec![0; SMALL_LEN];
            let rest = self.bytes.get(self.start..self.end).unwrap_or_default();
            small[..rest.len()].copy_from_slice(rest);
            self.end = rest.len();
            self.start = 0;
            self.bytes = small;
        }
    }

    /// Room for bytes to come, at least one.
    pub fn room(&mut self) -> Result<&mut [u8], ProtocolError> {
        let held = self.end - self.start;
        let frame = frame_len(self.bytes.get(self.start..self.end).unwrap_or_default())?;
        // A buffer that was filled to its end gets larger: more is on its way.
        let full = !self.bytes.is_empty() && self.end == self.bytes.len() && held > 0;
        let usual = if full { self.large_len } else { SMALL_LEN };
        let wanted = frame.unwrap_or(0).max(held + 1).max(usual);
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = held;
        }
        if wanted > self.bytes.len() {
            let mut larger = vec![0; wanted];
            larger[..held].copy_from_slice(&self.bytes[..held]);
            self.bytes = larger;
        }
        Ok(&mut self.bytes[self.end..])
    }

    /// The first `length` bytes of the room are there now.
    pub fn filled(&mut self, length: usize) {
        self.end = (self.end + length).min(self.bytes.len());
    }

    /// Whether a whole frame is there.
    pub fn has_frame(&self) -> Result<bool, ProtocolError> {
        self.peek().map(|raw| raw.is_some())
    }

    /// The next whole frame, which stays.
    pub fn peek(&self) -> Result<Option<Raw<'_>>, ProtocolError> {
        cut(self.bytes.get(self.start..self.end).unwrap_or_default())
    }

    /// Takes the next whole frame.
    pub fn take(&mut self) -> Result<Option<Raw<'_>>, ProtocolError> {
        let raw = cut(self.bytes.get(self.start..self.end).unwrap_or_default())?;
        if let Some(raw) = raw {
            self.start += super::protocol::HEADER_LEN + raw.body.len();
        }
        Ok(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::ToHolder;
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let mut stream = Vec::new();
        for length in [0, 3, 5_000, 100_000, 1] {
            ToHolder::Input(&vec![7; length]).put(&mut stream);
        }
        for piece in [1, 7, 4_096, 200_000] {
            let mut buffer = FrameBuffer::new(64 * 1024);
            let mut lengths = Vec::new();
            let mut rest = stream.as_slice();
            while !rest.is_empty() {
                let room = buffer.room().unwrap();
                let length = room.len().min(piece).min(rest.len());
                room[..length].copy_from_slice(&rest[..length]);
                buffer.filled(length);
                rest = &rest[length..];
                while let Some(raw) = buffer.take().unwrap() {
                    lengths.push(raw.body.len());
                }
            }
            assert_eq!(lengths, [0, 3, 5_000, 100_000, 1], "in pieces of {piece}");
            buffer.shrink();
            assert!(!buffer.is_large());
        }
    }
}
