//! Reading a selection, and what reader and owner share.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use x11rb::connection::{Connection, RequestConnection};
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    Atom, AtomEnum, ConnectionExt as _, CreateWindowAux, EventMask, PropMode, Property, Timestamp,
    Window, WindowClass,
};
use x11rb::rust_connection::RustConnection;
use x11rb::wrapper::ConnectionExt as _;

use crate::base::limits::{CLIPBOARD_LEN_MAX, CLIPBOARD_SILENCE_MS};
use crate::platform::{PlatformError, Result};

/// One format of a content.
pub struct Offer {
    pub format: &'static str,
    pub bytes: Vec<u8>,
}

impl Offer {
    pub fn new(format: &'static str, bytes: Vec<u8>) -> Self {
        Self { format, bytes }
    }
}

/// The same content in each format that can be had.
pub struct Content(pub Vec<Offer>);

/// Any failure of the connection or a request.
pub fn lost(error: impl std::fmt::Display) -> PlatformError {
    PlatformError::ClipboardFailed(error.to_string())
}

/// A connection with a window that nobody sees, which selections are sent to.
pub struct Client {
    pub connection: RustConnection,
    pub window: Window,
}

/// The property that carries content to us.
const TRANSFER: &str = "WINGMAN_SELECTION";

impl Client {
    pub fn connect(display: &str) -> Result<Self> {
        let unavailable = |error: &dyn std::fmt::Display| {
            PlatformError::DisplayUnavailable(format!("{display}: {error}"))
        };
        let (connection, screen) =
            RustConnection::connect(Some(display)).map_err(|error| unavailable(&error))?;
        let root = connection
            .setup()
            .roots
            .get(screen)
            .map(|screen| screen.root)
            .ok_or_else(|| unavailable(&"it has no such screen"))?;
        let window = connection.generate_id().map_err(lost)?;
        connection
            .create_window(
                x11rb::COPY_DEPTH_FROM_PARENT,
                window,
                root,
                -1,
                -1,
                1,
                1,
                0,
                WindowClass::INPUT_ONLY,
                x11rb::COPY_FROM_PARENT,
                &CreateWindowAux::new().event_mask(EventMask::PROPERTY_CHANGE),
            )
            .map_err(lost)?;
        Ok(Self { connection, window })
    }

    pub fn atom(&self, name: &str) -> Result<Atom> {
        let cookie = self.connection.intern_atom(false, name.as_bytes());
        Ok(cookie.map_err(lost)?.reply().map_err(lost)?.atom)
    }

    /// The server's time, which ICCCM wants with every change of owner.
    pub fn time(&self) -> Result<Timestamp> {
        let property = self.atom(TRANSFER)?;
        self.connection
            .change_property8(
                PropMode::APPEND,
                self.window,
                property,
                AtomEnum::STRING,
                &[],
            )
            .map_err(lost)?;
        let deadline = silence_from_now();
        loop {
            if let Event::PropertyNotify(event) = self.event(deadline)? {
                return Ok(event.time);
            }
        }
    }

    /// The next event, or an error when the display or the other side is silent until then.
    fn event(&self, deadline: Instant) -> Result<Event> {
        self.connection.flush().map_err(lost)?;
        loop {
            if let Some(event) = self.connection.poll_for_event().map_err(lost)? {
                return Ok(event);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(PlatformError::ClipboardFailed(format!(
                    "its owner was silent for {CLIPBOARD_SILENCE_MS} ms"
                )));
            }
            wait_readable(&self.connection, left)?;
        }
    }

    /// The formats that the selection's owner gives; none when nobody owns it.
    pub fn formats(&self) -> Result<Vec<Atom>> {
        let bytes = self.convert("TARGETS")?.unwrap_or_default();
        Ok(bytes
            .chunks_exact(4)
            .filter_map(|chunk| chunk.first_chunk::<4>())
            .map(|chunk| u32::from_ne_bytes(*chunk))
            .collect())
    }

    /// The selection's content in a format; `None` when its owner does not give it or nobody owns it.
    pub fn convert(&self, format: &str) -> Result<Option<Vec<u8>>> {
        let (clipboard, property) = (self.atom("CLIPBOARD")?, self.atom(TRANSFER)?);
        let format = self.atom(format)?;
        self.connection
            .delete_property(self.window, property)
            .map_err(lost)?;
        self.connection
            .convert_selection(
                self.window,
                clipboard,
                format,
                property,
                x11rb::CURRENT_TIME,
            )
            .map_err(lost)?;
        let deadline = silence_from_now();
        let answer = loop {
            match self.event(deadline)? {
                Event::SelectionNotify(event) if event.target == format => break event,
                _ => {}
            }
        };
        if answer.property == x11rb::NONE {
            return Ok(None);
        }
        let (kind, content) = self.take(property)?;
        if kind == self.atom("INCR")? {
            return self.take_parts(property).map(Some);
        }
        Ok(Some(content))
    }

    /// Reads and deletes the property.
    fn take(&self, property: Atom) -> Result<(Atom, Vec<u8>)> {
        let words = (CLIPBOARD_LEN_MAX / 4) as u32;
        let reply = self
            .connection
            .get_property(true, self.window, property, AtomEnum::ANY, 0, words)
            .map_err(lost)?
            .reply()
            .map_err(lost)?;
        if reply.bytes_after > 0 {
            return Err(too_long());
        }
        Ok((reply.type_, reply.value))
    }

    /// Takes parts until an empty one ends them.
    fn take_parts(&self, property: Atom) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        let mut deadline = silence_from_now();
        loop {
            let Event::PropertyNotify(event) = self.event(deadline)? else {
                continue;
            };
            if event.atom != property || event.state != Property::NEW_VALUE {
                continue;
            }
            let (_, part) = self.take(property)?;
            if part.is_empty() {
                return Ok(whole);
            }
            if whole.len() + part.len() > CLIPBOARD_LEN_MAX {
                return Err(too_long());
            }
            whole.extend(part);
            deadline = silence_from_now();
        }
    }

    /// The most that one request may carry as a property.
    pub fn part_len_max(&self) -> usize {
        let request = self.connection.maximum_request_bytes();
        request.saturating_sub(1024).max(1024)
    }
}

/// Waits, at most for `left`, until the connection has something to read.
pub fn wait_readable(connection: &RustConnection, left: Duration) -> Result<()> {
    let mut watched = [PollFd::from_borrowed_fd(
        connection.stream().as_fd(),
        PollFlags::IN,
    )];
    let left = Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    match poll(&mut watched, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(lost(error)),
    }
}

fn silence_from_now() -> Instant {
    Instant::now() + Duration::from_millis(CLIPBOARD_SILENCE_MS)
}

fn too_long() -> PlatformError {
    PlatformError::ClipboardFailed(format!("it is longer than {CLIPBOARD_LEN_MAX} bytes"))
}
