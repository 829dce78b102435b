//! Windows: GDI or Windows Graphics Capture, SendInput, the window and process lists.
//!
//! Invariants: the process is per-monitor DPI aware before the first call, so that every coordinate
//! is a physical pixel; a handle from outside is checked before it is used.

pub mod background;
mod capture;
mod clipboard;
mod cpu;
pub mod foreground;
mod gdi;
mod guard;
pub mod holder_io;
mod input;
mod monitors;
mod pipe;
mod process;
pub mod pty;
pub mod session_socket;
mod signals;
pub mod tty;
mod wgc;
mod window;
pub mod zygote;

use windows::Win32::UI::HiDpi::{
    DPI_AWARENESS_CONTEXT_PER_MONITOR_AWARE_V2, SetProcessDpiAwarenessContext,
};

pub mod local_socket;
pub mod local_stream;
pub mod watch_stream;

use super::{Backend, OpenOptions};

pub use cpu::cpu_times;
pub use guard::guard_main;
pub use signals::StopSignals;

/// Opens the desktop of this session.
pub fn open(options: &OpenOptions) -> Backend {
    become_dpi_aware();
    Backend {
        capture: capture::open(options.capture_backend.as_deref()),
        windows: Ok(Box::new(window::DesktopWindows)),
        input: input::open(options.guard_program.as_deref()),
        clipboard: Ok(Box::new(clipboard::SystemClipboard)),
        processes: Box::new(process::SystemProcesses),
        display: Some(SESSION_DISPLAY.to_owned()),
    }
}

/// The one display of a Windows session has no name of its own.
const SESSION_DISPLAY: &str = "default";

/// Asks for physical pixels. It fails only where a manifest has decided already; then that holds.
fn become_dpi_aware() {
    // SAFETY: takes a constant and touches no memory of ours.
    let asked =
        unsafe { SetProcessDpiAwarenessContext(DPI_AWARENESS_CONTEXT_PER_MONITOR_AWARE_V2) };
    if let Err(error) = asked {
        tracing::debug!(%error, "dpi awareness was set before");
    }
}
