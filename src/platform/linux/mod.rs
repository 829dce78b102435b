//! Linux with X11. A Wayland session answers `Unsupported`, since captures through its XWayland are
//! black.

mod capture;
mod cursor;
pub mod display;
mod monitors;
mod properties;
mod shm;
mod window;
pub mod x11;

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

pub mod local_socket;

use super::{Backend, OpenOptions, PlatformError};

/// Opens the display that the options or the environment name. Nothing is connected to yet: parts
/// connect when they are used, and again when the display comes back.
pub fn open(options: &OpenOptions) -> Backend {
    match display::chosen(options.display.as_deref()) {
        Ok(name) => Backend {
            capture: capture::open(&name, options),
            windows: window::open(&name),
            input: Err(PlatformError::Unsupported("input".into())),
            clipboard: Err(PlatformError::Unsupported("the clipboard".into())),
            processes: super::virtual_display::backend([super::virtual_display::Picture::filled(
                crate::base::Size {
                    width: 1,
                    height: 1,
                },
                Default::default(),
            )])
            .processes,
            display: Some(name),
        },
        Err(reason) => Backend {
            capture: Err(reason.clone()),
            windows: Err(reason.clone()),
            input: Err(reason.clone()),
            clipboard: Err(reason),
            processes: super::virtual_display::backend([super::virtual_display::Picture::filled(
                crate::base::Size {
                    width: 1,
                    height: 1,
                },
                Default::default(),
            )])
            .processes,
            display: None,
        },
    }
}
