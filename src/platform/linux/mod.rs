//! Linux with X11. Wayland answers `Unsupported`.

pub mod clipboard;
mod guard;
mod guard_protocol;
mod held;
mod injector;
pub mod input;
mod keyboard;
mod keymap_watch;
mod keysyms;
pub mod process;
mod read_ledger;
mod selection;
mod selection_owner;
mod typing;

pub use guard::guard_main;

use super::{Backend, OpenOptions, PlatformError};

/// Opens the display that the options or the environment name.
pub fn open(options: &OpenOptions) -> Backend {
    let _ = options;
    let _ = PlatformError::DisplayUnavailable(String::new());
    todo!("platform helpers")
}
