//! Windows: GDI or Windows Graphics Capture, SendInput, the window and process lists.

pub mod local_socket;

use super::{Backend, OpenOptions};

/// Opens the desktop of this session.
pub fn open(options: &OpenOptions) -> Backend {
    let _ = options;
    todo!("platform helpers")
}
