//! A connection to an X server that every component opens for itself: bounded in every wait, and
//! opened anew once after it broke.
//!
//! ```text
//!            first call                     io error, or no answer in time
//!  closed ───────────────▶ open(Session) ─────────────────────────────────▶ closed
//!     ▲                                                                       │
//!     └────────────── connect fails: display_unavailable ◀────────────────────┘ next call
//! ```

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use x11rb::connection::Connection;
use x11rb::errors::{ConnectionError, ReplyError, ReplyOrIdError};
use x11rb::protocol::ErrorKind;
use x11rb::protocol::xproto::{ImageOrder, Screen, Window as XWindow};
use x11rb::reexports::x11rb_protocol::parse_display::parse_display;
use x11rb::reexports::x11rb_protocol::xauth::get_auth;
use x11rb::rust_connection::{DefaultStream, PollMode, RustConnection, Stream};
use x11rb::utils::RawFdContainer;
use x11rb::x11_utils::X11Error;

use crate::base::limits;
use crate::platform::PlatformError;

x11rb::atom_manager! {
    /// The atoms that windows and monitors are described with.
    pub Atoms: AtomsCookie {
        UTF8_STRING,
        COMPOUND_TEXT,
        WM_CHANGE_STATE,
        WM_DELETE_WINDOW,
        WM_PROTOCOLS,
        WM_STATE,
        _NET_ACTIVE_WINDOW,
        _NET_CLIENT_LIST,
        _NET_CLIENT_LIST_STACKING,
        _NET_CLOSE_WINDOW,
        _NET_MOVERESIZE_WINDOW,
        _NET_SUPPORTED,
        _NET_SUPPORTING_WM_CHECK,
        _NET_WM_NAME,
        _NET_WM_PID,
        _NET_WM_STATE,
        _NET_WM_STATE_HIDDEN,
        _NET_WM_STATE_MAXIMIZED_HORZ,
        _NET_WM_STATE_MAXIMIZED_VERT,
    }
}

/// What a request to the X server came to when it did not work.
#[derive(Debug)]
pub enum Trouble {
    /// The connection is of no more use.
    Lost(String),
    /// The server refused the request.
    Refused(Box<X11Error>),
    /// It cannot be done for another reason.
    Other(PlatformError),
}

impl Trouble {
    /// Whether the thing that the request named is not there.
    pub fn names_nothing(&self) -> bool {
        matches!(self, Self::Refused(error)
            if matches!(error.error_kind, ErrorKind::Window | ErrorKind::Drawable))
    }

    /// Whether the request did not fit what it named.
    pub fn mismatches(&self) -> bool {
        matches!(self, Self::Refused(error) if error.error_kind == ErrorKind::Match)
    }

    /// The platform's error; `what` was attempted.
    pub fn into_error(self, what: &str) -> PlatformError {
        match self {
            Self::Lost(reason) => PlatformError::DisplayUnavailable(reason),
            Self::Refused(error) => PlatformError::CaptureFailed(format!(
                "{what}: the X server answered {:?}",
                error.error_kind
            )),
            Self::Other(error) => error,
        }
    }
}

impl From<PlatformError> for Trouble {
    fn from(error: PlatformError) -> Self {
        Self::Other(error)
    }
}

impl From<ConnectionError> for Trouble {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::UnsupportedExtension => Self::Other(PlatformError::Unsupported(
                "the X server lacks an extension".into(),
            )),
            other => Self::Lost(other.to_string()),
        }
    }
}

impl From<ReplyError> for Trouble {
    fn from(error: ReplyError) -> Self {
        match error {
            ReplyError::ConnectionError(error) => error.into(),
            ReplyError::X11Error(error) => Self::Refused(Box::new(error)),
        }
    }
}

impl From<ReplyOrIdError> for Trouble {
    fn from(error: ReplyOrIdError) -> Self {
        match error {
            ReplyOrIdError::IdsExhausted => Self::Lost("no resource identifiers are left".into()),
            ReplyOrIdError::ConnectionError(error) => error.into(),
            ReplyOrIdError::X11Error(error) => Self::Refused(Box::new(error)),
        }
    }
}

/// The socket, with a bound on every wait so that a hung server cannot hang a caller.
#[derive(Debug)]
pub struct BoundedStream(DefaultStream);

impl Stream for BoundedStream {
    fn poll(&self, mode: PollMode) -> io::Result<()> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, mode.readable());
        flags.set(PollFlags::OUT, mode.writable());
        let timeout = Timespec {
            tv_sec: (limits::DISPLAY_REPLY_TIMEOUT_MS / 1000) as i64,
            tv_nsec: (limits::DISPLAY_REPLY_TIMEOUT_MS % 1000 * 1_000_000) as i64,
        };
        let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), flags)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the X server does not answer",
            )),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn read(&self, buf: &mut [u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.0.read(buf, fds)
    }

    fn write(&self, buf: &[u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.0.write(buf, fds)
    }

    fn write_vectored(
        &self,
        bufs: &[io::IoSlice<'_>],
        fds: &mut Vec<RawFdContainer>,
    ) -> io::Result<usize> {
        self.0.write_vectored(bufs, fds)
    }
}

pub type XConnection = RustConnection<BoundedStream>;

/// Connects to a display by name; the answer is the connection and its screen's number.
pub fn connect(display: &str) -> Result<(XConnection, usize), PlatformError> {
    let unavailable = |why: &dyn std::fmt::Display| {
        PlatformError::DisplayUnavailable(format!("{display}: {why}"))
    };
    let parsed = parse_display(Some(display)).map_err(|error| unavailable(&error))?;
    let screen = usize::from(parsed.screen);
    let mut last = "no address".to_owned();
    for address in parsed.connect_instruction() {
        let (stream, (family, peer)) = match DefaultStream::connect(&address) {
            Ok(connected) => connected,
            Err(error) => {
                last = error.to_string();
                continue;
            }
        };
        // Without a readable authority file the server decides whether it lets us in.
        let (name, data) = get_auth(family, &peer, parsed.display)
            .ok()
            .flatten()
            .unwrap_or_default();
        let stream = BoundedStream(stream);
        return RustConnection::connect_to_stream_with_auth_info(stream, screen, name, data)
            .map(|connection| (connection, screen))
            .map_err(|error| unavailable(&error));
    }
    Err(unavailable(&last))
}

/// An open connection with what every component needs of its screen.
pub struct Session {
    pub connection: Arc<XConnection>,
    pub screen: Screen,
    pub atoms: Atoms,
}

impl Session {
    fn open(display: &str) -> Result<Self, PlatformError> {
        let (connection, number) = connect(display)?;
        let atoms = Atoms::new(&connection)
            .map_err(Trouble::from)
            .and_then(|cookie| cookie.reply().map_err(Trouble::from))
            .map_err(|trouble| trouble.into_error("intern atoms"))?;
        // INVARIANT: connecting checked that the screen exists.
        let screen = connection.setup().roots[number].clone();
        Ok(Self {
            connection: Arc::new(connection),
            screen,
            atoms,
        })
    }

    pub fn root(&self) -> XWindow {
        self.screen.root
    }

    /// Whether images come with the lowest byte first.
    pub fn little_endian(&self) -> bool {
        self.connection.setup().image_byte_order == ImageOrder::LSB_FIRST
    }
}

/// A display by name, with a session that is opened when it is needed. `T` is what a component
/// keeps per session; it goes with it.
pub struct Link<T> {
    display: String,
    prepare: fn(&Session) -> Result<T, Trouble>,
    current: Mutex<Current<T>>,
}

enum Current<T> {
    Closed,
    Open(Arc<(Session, T)>),
    /// The last attempt to open failed, at this time.
    Failed(Instant, PlatformError),
}

impl<T> Link<T> {
    /// Names a display; nothing is opened yet. `prepare` runs for every new session.
    pub fn new(display: impl Into<String>, prepare: fn(&Session) -> Result<T, Trouble>) -> Self {
        Self {
            display: display.into(),
            prepare,
            current: Mutex::new(Current::Closed),
        }
    }

    fn session(&self) -> Result<(Arc<(Session, T)>, Age), PlatformError> {
        let asked = Instant::now();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Current::Open(session) => return Ok((session.clone(), Age::Old)),
            // Callers that waited for an attempt share its outcome: with a hung server each attempt
            // takes seconds, and they would come one after the other.
            Current::Failed(at, error) if *at >= asked => return Err(error.clone()),
            Current::Failed(..) | Current::Closed => {}
        }
        let opened = Session::open(&self.display).and_then(|session| {
            let kept = (self.prepare)(&session);
            let kept = kept.map_err(|trouble| trouble.into_error("prepare the display"))?;
            Ok(Arc::new((session, kept)))
        });
        *current = match &opened {
            Ok(session) => Current::Open(session.clone()),
            Err(error) => Current::Failed(Instant::now(), error.clone()),
        };
        Ok((opened?, Age::New))
    }

    fn forget(&self, broken: &Arc<(Session, T)>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*current, Current::Open(kept) if Arc::ptr_eq(kept, broken)) {
            *current = Current::Closed;
        }
    }

    /// Runs requests on the session. Where an older session turns out to be broken they run once
    /// more on a new one, so they must bear repetition.
    pub fn run<R>(
        &self,
        what: &str,
        mut requests: impl FnMut(&Session, &T) -> Result<R, Trouble>,
    ) -> Result<R, PlatformError> {
        loop {
            let (session, age) = self.session()?;
            match requests(&session.0, &session.1) {
                Ok(result) => return Ok(result),
                Err(Trouble::Lost(reason)) => {
                    self.forget(&session);
                    if age == Age::New {
                        return Err(PlatformError::DisplayUnavailable(reason));
                    }
                }
                Err(trouble) => return Err(trouble.into_error(what)),
            }
        }
    }
}

/// Whether a session was open before the call that uses it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Old,
    New,
}
