//! Watches one client read the keyboard's map, through the RECORD extension.
//!
//! A client that is told of a new map reads it with `GetKeyboardMapping` or XKB's `GetMap`. RECORD
//! copies those requests to a connection of our own, on which a thread waits.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use x11rb::connection::RequestConnection;
use x11rb::protocol::record::{
    self, ConnectionExt as _, EnableContextReply, ExtRange, Range, Range8, Range16,
};
use x11rb::protocol::{xkb, xproto};
use x11rb::rust_connection::RustConnection;

use super::keyboard::Keycode;
use crate::base::limits::{GUARD_QUEUE_LEN_MAX, KEYMAP_READ_TIMEOUT_MS};

/// A client read the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapRead {
    /// All of it, through XKB.
    Whole,
    /// The symbols of these keys alone, as Xlib does for each change.
    Keys { first: Keycode, count: u8 },
    /// Through the core protocol.
    Core,
}

/// A recording of one client's reads; it ends when this is dropped and its thread sees that.
pub struct KeymapWatch {
    context: record::Context,
    reads: Receiver<Option<MapRead>>,
}

impl KeymapWatch {
    /// Watches the client that owns `window`; `None` when the server does not let us.
    pub fn start(control: &RustConnection, display: &str, window: xproto::Window) -> Option<Self> {
        let xkb_opcode = control
            .extension_information(xkb::X11_EXTENSION_NAME)
            .ok()??
            .major_opcode;
        control
            .extension_information(record::X11_EXTENSION_NAME)
            .ok()??;
        let context = x11rb::connection::Connection::generate_id(control).ok()?;
        let range = Range {
            core_requests: Range8 {
                first: xproto::GET_KEYBOARD_MAPPING_REQUEST,
                last: xproto::GET_KEYBOARD_MAPPING_REQUEST,
            },
            ext_requests: ExtRange {
                major: Range8 {
                    first: xkb_opcode,
                    last: xkb_opcode,
                },
                minor: Range16 {
                    first: u16::from(xkb::GET_MAP_REQUEST),
                    last: u16::from(xkb::GET_MAP_REQUEST),
                },
            },
            ..Range::default()
        };
        control
            .record_create_context(context, 0, &[window], &[range])
            .ok()?
            .check()
            .ok()?;
        let (data, _) = RustConnection::connect(Some(display)).ok()?;
        data.extension_information(record::X11_EXTENSION_NAME)
            .ok()??;
        let (sender, reads) = sync_channel(GUARD_QUEUE_LEN_MAX);
        std::thread::Builder::new()
            .name("keymap-watch".into())
            .spawn(move || follow(&data, context, xkb_opcode, &sender))
            .ok()?;
        let watch = Self { context, reads };
        // The first word says that recording has begun; requests before it would be missed.
        let begun = watch
            .reads
            .recv_timeout(Duration::from_millis(KEYMAP_READ_TIMEOUT_MS));
        begun.is_ok().then_some(watch)
    }

    /// Waits for the next read.
    pub fn next(&self, timeout: Duration) -> Option<MapRead> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.reads.recv_timeout(left) {
                Ok(Some(read)) => return Some(read),
                Ok(None) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Ends the recording.
    pub fn stop(self, control: &RustConnection) {
        // A display that has gone has ended the recording by itself.
        if let Ok(cookie) = control.record_disable_context(self.context) {
            cookie.ignore_error();
        }
        if let Ok(cookie) = control.record_free_context(self.context) {
            cookie.ignore_error();
        }
    }
}

/// Runs on the watch's thread until the context is disabled, the display goes or nobody listens.
/// A full queue blocks it; the server then buffers.
fn follow(
    data: &RustConnection,
    context: record::Context,
    xkb_opcode: u8,
    sender: &SyncSender<Option<MapRead>>,
) {
    const FROM_CLIENT: u8 = 1;
    const START_OF_DATA: u8 = 4;
    let Ok(replies) = data.record_enable_context(context) else {
        return;
    };
    for reply in replies {
        let Ok(reply) = reply else { return };
        let sent = match reply.category {
            START_OF_DATA => sender.send(None),
            FROM_CLIENT => requests(&reply, xkb_opcode)
                .into_iter()
                .try_for_each(|read| sender.send(Some(read))),
            _ => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// The reads among recorded requests; one reply may hold several.
fn requests(reply: &EnableContextReply, xkb_opcode: u8) -> Vec<MapRead> {
    let mut rest = reply.data.as_slice();
    let mut reads = Vec::new();
    let number = |at: usize, bytes: &[u8]| -> Option<u16> {
        let pair = *bytes.get(at..)?.first_chunk::<2>()?;
        Some(if reply.client_swapped {
            u16::from_ne_bytes(pair).swap_bytes()
        } else {
            u16::from_ne_bytes(pair)
        })
    };
    while let Some(major) = rest.first().copied() {
        let length = usize::from(number(2, rest).unwrap_or(0)) * 4;
        let symbols = u16::from(xkb::MapPart::KEY_SYMS);
        if major != xkb_opcode {
            reads.push(MapRead::Core);
        } else if number(6, rest).is_some_and(|full| full & symbols != 0) {
            reads.push(MapRead::Whole);
        } else if let (Some(first), Some(count)) = (rest.get(12), rest.get(13)) {
            reads.push(MapRead::Keys {
                first: *first,
                count: *count,
            });
        }
        match rest.get(length..) {
            Some(after) if length > 0 => rest = after,
            _ => break,
        }
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_requests_are_told_apart() {
        let mut data = vec![101, 0, 2, 0, 8, 248, 0, 0];
        let mut partial = vec![135, 8, 7, 0, 0, 1, 0, 0, 2, 0, 0, 0, 93, 1];
        partial.resize(28, 0);
        let mut whole = vec![135, 8, 7, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0];
        whole.resize(28, 0);
        data.extend(partial);
        data.extend(whole);
        let reply = EnableContextReply {
            data,
            ..EnableContextReply::default()
        };
        let expected = [
            MapRead::Core,
            MapRead::Keys {
                first: 93,
                count: 1,
            },
            MapRead::Whole,
        ];
        assert_eq!(requests(&reply, 135), expected);
    }
}
