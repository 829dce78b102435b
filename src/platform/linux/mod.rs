//! Linux with X11. Wayland answers `Unsupported`.

pub mod local_socket;

use super::{Backend, OpenOptions, PlatformError};

/// Opens the display that the options or the environment name.
pub fn open(options: &OpenOptions) -> Backend {
    let _ = options;
    let _ = PlatformError::DisplayUnavailable(String::new());
    todo!("platform helpers")
}
