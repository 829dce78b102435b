//! The channels of a connection in the words of local IPC: Data frames, `channel.credit`,
//! `channel.close`. The same code serves both ends.

use bytes::BytesMut;
use serde_json::{Value, json};

use crate::base::limits;
use crate::wire::Fault;
use crate::wire::channel::{Channels, Outgoing};
use crate::wire::envelope::{Envelope, put_data};

const CREDIT: &str = "channel.credit";
const CLOSE: &str = "channel.close";

/// Appends what the channels have to send, in their turns, while there is room in `out`.
pub(super) fn pump(channels: &Channels, out: &mut BytesMut) -> Result<(), Fault> {
    while out.len() < limits::IPC_SEND_BUFFER_LEN_MAX {
        match channels.pop() {
            None => break,
            Some(Outgoing::Data { channel, piece, .. }) => {
                put_data(channel, piece.kind as u8, &piece.body, out);
            }
            Some(Outgoing::Credit { channel, bytes }) => {
                let payload = json!({"channel": channel, "bytes": bytes});
                Envelope::event(CREDIT, payload).put(out)?;
            }
            Some(Outgoing::Close { channel, reason }) => {
                let payload = json!({"channel": channel, "reason": reason});
                Envelope::event(CLOSE, payload).put(out)?;
            }
        }
    }
    Ok(())
}

/// Does what an event says of a channel; answers whether it was such an event.
pub(super) fn take(channels: &Channels, event: &Envelope) -> bool {
    let number = |key: &str| event.payload.get(key).and_then(Value::as_u64);
    let channel = number("channel").and_then(|channel| u32::try_from(channel).ok());
    match (event.method.as_str(), channel) {
        (CREDIT, Some(channel)) => {
            let bytes = number("bytes").unwrap_or(0);
            channels.granted(channel, usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        (CLOSE, Some(channel)) => channels.closed(channel),
        (CREDIT | CLOSE, None) => {}
        _ => return false,
    }
    true
}
