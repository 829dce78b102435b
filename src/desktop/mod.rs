//! The automation core: monitors, capture and encoding profiles, input, windows, clipboard,
//! processes. It knows no agent, user, workflow or server.
//!
//! Invariants: every error is a `Fault` with a stable code; held keys belong to an owner and are
//! released with it; one stored capture at a time, while plain frames are shared.

mod capabilities;
mod capture;
mod captures;
mod clipboard;
mod encode;
mod fault;
mod input;
mod jpeg;
mod keys;
mod process;
mod screen;
mod window;

use crate::platform::{self, Backend, OpenOptions};

pub use captures::{CaptureReport, CaptureStore};
pub use encode::{Chroma, Encoded, Format, PROFILES, Profile, encode};
pub use fault::fault;
pub use input::{Chord, InputSession};
pub use keys::parse_key;
pub use screen::pixels;

/// One display with all that can be done on it. Shared by scripts, callers and conditions; every
/// method blocks and may be called from any thread.
pub struct Desktop {
    backend: Backend,
}

impl Desktop {
    /// Opens the host's desktop. It never fails: a part that is missing answers with its reason.
    pub fn open(options: &OpenOptions) -> Self {
        Self::with_backend(platform::native::open(options))
    }

    /// A desktop over given parts (tests use the virtual display).
    pub fn with_backend(backend: Backend) -> Self {
        Self { backend }
    }

    /// The display's name, such as `:0`.
    pub fn display(&self) -> Option<&str> {
        self.backend.display.as_deref()
    }
}
