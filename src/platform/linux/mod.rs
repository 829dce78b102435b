//! Linux with X11. A Wayland session answers `Unsupported`, since captures through its XWayland are
//! black.

pub mod background;
mod capture;
mod client_process;
mod clipboard;
mod cpu;
mod cursor;
pub mod display;
pub mod foreground;
mod guard;
mod guard_protocol;
mod held;
pub mod holder_io;
mod injector;
mod input;
mod keyboard;
mod keymap_watch;
mod keysyms;
pub mod local_socket;
pub mod local_stream;
mod monitors;
mod process;
mod properties;
pub mod pty;
mod selection;
mod selection_owner;
pub mod session_socket;
mod shm;
mod signals;
pub mod tty;
mod typing;
pub mod watch_stream;
mod watched;
mod window;
pub mod x11;
pub mod zygote;

pub use cpu::cpu_times;
pub use guard::guard_main;
pub use signals::StopSignals;

use super::{Backend, OpenOptions};

/// Opens the display that the options or the environment name. Nothing is connected to yet: parts
/// connect when they are used, and again when the display comes back.
pub fn open(options: &OpenOptions) -> Backend {
    match display::chosen(options.display.as_deref()) {
        Ok(name) => Backend {
            capture: capture::open(&name, options),
            windows: window::open(&name),
            input: input::open(&name, options),
            clipboard: clipboard::open(&name),
            processes: process::open(Some(&name)),
            display: Some(name),
        },
        Err(reason) => Backend {
            capture: Err(reason.clone()),
            windows: Err(reason.clone()),
            input: Err(reason.clone()),
            clipboard: Err(reason),
            processes: process::open(None),
            display: None,
        },
    }
}
