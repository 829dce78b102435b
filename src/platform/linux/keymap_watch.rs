//! Watches one client read the keyboard's map, through the RECORD extension.
//!
//! A client that is told of a new map reads it with `GetKeyboardMapping` or XKB's `GetMap`. RECORD
//! copies those requests to a connection of our own, on which a thread waits.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use x11rb::connection::RequestConnection;
use x11rb::protocol::record::{self, ConnectionExt as _, ExtRange, Range, Range8, Range16};
use x11rb::protocol::{xkb, xproto};
use x11rb::rust_connection::RustConnection;

use crate::base::limits::{GUARD_QUEUE_LEN_MAX, KEYMAP_READ_TIMEOUT_MS};

/// What the recording thread has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Begun,
    Read,
}

/// A recording of one client's reads; it ends when this is dropped and its thread sees that.
pub struct KeymapWatch {
    context: record::Context,
    words: Receiver<Word>,
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
        let (sender, words) = sync_channel(GUARD_QUEUE_LEN_MAX);
        std::thread::Builder::new()
            .name("keymap-watch".into())
            .spawn(move || follow(&data, context, &sender))
            .ok()?;
        let watch = Self { context, words };
        // The first word says that recording has begun; requests before it would be missed.
        let begun = watch
            .words
            .recv_timeout(Duration::from_millis(KEYMAP_READ_TIMEOUT_MS));
        begun.is_ok().then_some(watch)
    }

    /// Whether the client has read the map once more since this was last asked.
    pub fn has_read(&self) -> bool {
        matches!(self.words.try_recv(), Ok(Word::Read))
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
/// A full queue drops reads: the ones in it say the same.
fn follow(data: &RustConnection, context: record::Context, sender: &SyncSender<Word>) {
    const FROM_CLIENT: u8 = 1;
    const START_OF_DATA: u8 = 4;
    let Ok(replies) = data.record_enable_context(context) else {
        return;
    };
    for reply in replies {
        let word = match reply.map(|reply| reply.category) {
            Ok(START_OF_DATA) => Word::Begun,
            Ok(FROM_CLIENT) => Word::Read,
            Ok(_) => continue,
            Err(_) => return,
        };
        if let Err(TrySendError::Disconnected(_)) = sender.try_send(word) {
            return;
        }
    }
}
