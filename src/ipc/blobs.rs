//! Bytes that go beside answers as Data frames, with credit, round robin.
//!
//! ```text
//! note in the response → [credit 32 KiB] → frames … → credit used up → waits for channel.credit → …
//!                                              └ all sent → channel.close {reason:"complete"}
//! ```

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use serde_json::json;

use crate::base::limits;
use crate::wire::envelope::{ChannelNote, Envelope, put_data};
use crate::wire::{Blob, Code, Fault};

/// The kind byte of plain bytes.
pub(super) const KIND_BYTES: u8 = 0;
/// Body bytes per frame, the kind byte apart.
const CHUNK_LEN: usize = limits::LINK_DATA_LEN_MAX - 1;

struct Blobbing {
    channel: u32,
    rest: Bytes,
    credit: usize,
}

/// The outgoing channels of one connection.
#[derive(Default)]
pub(super) struct Blobs {
    next_channel: u32,
    queue: VecDeque<Blobbing>,
}

impl Blobs {
    /// Opens a channel for a blob; `too_many_channels` at the bound.
    pub fn open(&mut self, blob: Blob) -> Result<ChannelNote, Fault> {
        if self.queue.len() >= limits::CHANNELS_OPEN_MAX {
            let text = format!("{} channels are open", limits::CHANNELS_OPEN_MAX);
            return Err(Fault::new(Code::TooManyChannels, text));
        }
        self.next_channel = self.next_channel.wrapping_add(1);
        let note = ChannelNote::of(self.next_channel, &blob);
        self.queue.push_back(Blobbing {
            channel: self.next_channel,
            rest: blob.bytes,
            credit: limits::CHANNEL_CREDIT_FIRST,
        });
        Ok(note)
    }

    /// Adds credit; a channel that has ended in the meantime is no error.
    pub fn credit(&mut self, channel: u32, bytes: u64) {
        if let Some(blob) = self.queue.iter_mut().find(|blob| blob.channel == channel) {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            blob.credit = blob
                .credit
                .saturating_add(bytes)
                .min(limits::CHANNEL_CREDIT_MAX);
        }
    }

    /// The reader wants no more of it.
    pub fn close(&mut self, channel: u32) {
        self.queue.retain(|blob| blob.channel != channel);
    }

    /// Appends frames of all channels in turn while there is credit and room in `out`.
    pub fn pump(&mut self, out: &mut BytesMut) -> Result<(), Fault> {
        let mut blocked = 0;
        while blocked < self.queue.len() && out.len() < limits::IPC_SEND_BUFFER_LEN_MAX {
            let Some(mut blob) = self.queue.pop_front() else {
                break;
            };
            let length = CHUNK_LEN.min(blob.credit).min(blob.rest.len());
            if length > 0 {
                put_data(blob.channel, KIND_BYTES, &blob.rest.split_to(length), out);
                blob.credit -= length;
                blocked = 0;
            }
            if blob.rest.is_empty() {
                let payload = json!({"channel": blob.channel, "reason": "complete"});
                Envelope::event("channel.close", payload).put(out)?;
                continue;
            }
            if length == 0 {
                blocked += 1;
            }
            self.queue.push_back(blob);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(length: usize) -> Blob {
        Blob {
            content_type: "image/png".into(),
            bytes: Bytes::from(vec![7; length]),
            field: "image",
        }
    }

    #[test]
    fn frames_stop_at_the_credit_and_go_on_with_more() {
        let mut blobs = Blobs::default();
        let note = blobs.open(blob(100_000)).unwrap();
        let mut out = BytesMut::new();
        blobs.pump(&mut out).unwrap();
        let first = out.len();
        assert_eq!(first, limits::CHANNEL_CREDIT_FIRST + 9);
        blobs.pump(&mut out).unwrap();
        assert_eq!(out.len(), first);
        blobs.credit(note.channel, 1 << 40);
        blobs.pump(&mut out).unwrap();
        assert!(out.len() > 100_000);
        assert!(blobs.queue.is_empty());
    }

    #[test]
    fn channels_take_turns_and_their_number_is_bounded() {
        let mut blobs = Blobs::default();
        let first = blobs.open(blob(10)).unwrap();
        for _ in 1..limits::CHANNELS_OPEN_MAX {
            blobs.open(blob(10)).unwrap();
        }
        assert_eq!(
            blobs.open(blob(10)).unwrap_err().code,
            Code::TooManyChannels
        );
        blobs.close(first.channel);
        assert!(blobs.open(blob(10)).is_ok());
    }
}
