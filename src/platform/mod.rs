//! What an operating system has to supply, and the only place with OS `cfg`.
//!
//! Every backend folder has the same file names; `native` is the one that this build uses.
//! `virtual_display` needs no server: scripted frames for pure tests. A backend that cannot do a
//! thing answers `Unsupported` with the reason; it never pretends.
//!
//! Invariants: coordinates are physical pixels of the whole desktop; all calls block and may be made
//! from any thread; nothing here knows agents, scripts or wires.

pub mod display;
pub mod frame;
pub mod paths;
pub mod pty;

#[cfg(target_os = "linux")]
pub mod linux;
#[cfg(not(any(target_os = "linux", target_os = "windows")))]
pub mod macos;
#[path = "virtual/mod.rs"]
pub mod virtual_display;
#[cfg(target_os = "windows")]
pub mod windows;

use std::path::PathBuf;
use std::time::Duration;

pub use frame::{Frame, PixelFormat};

use crate::base::{Point, Rect};

pub use native::{local_socket, local_stream, tty};

#[cfg(target_os = "linux")]
pub use linux as native;
#[cfg(not(any(target_os = "linux", target_os = "windows")))]
pub use macos as native;
#[cfg(target_os = "windows")]
pub use windows as native;

/// Runs `input-guard`, the child process that owns injected input, until its input closes.
pub fn guard_main() -> std::process::ExitCode {
    native::guard_main()
}

/// Whether a wait for the outer terminal ends when it takes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Wanted,
    Unwanted,
}

/// What a wait for the outer terminal ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Input was appended.
    Bytes,
    /// Input came as an event.
    Event(crossterm::event::Event),
    Writable,
}

/// What all processors together have done since boot, in the platform's own ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    pub busy: u64,
    pub total: u64,
}

/// Why the platform did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlatformError {
    /// There is no display, or its connection broke.
    #[error("no display: {0}")]
    DisplayUnavailable(String),
    /// This platform or host cannot do it.
    #[error("not supported here: {0}")]
    Unsupported(String),
    /// The region is empty or outside of the desktop.
    #[error("region {0:?} is empty or outside of the desktop")]
    RegionInvalid(Rect),
    #[error("no monitor {0}")]
    MonitorNotFound(i32),
    #[error("no window {0:#x}")]
    WindowNotFound(u64),
    /// The window manager did not do it in time.
    #[error("the window did not {0} in time")]
    WindowRefused(String),
    #[error("no key {0:?}")]
    KeyUnknown(String),
    /// Input was sent, but nothing shows that the target took it.
    #[error("input was sent but not seen to arrive: {0}")]
    Unverifiable(String),
    #[error("inject input: {0}")]
    InputFailed(String),
    #[error("the clipboard holds no {0}")]
    ClipboardEmpty(&'static str),
    #[error("clipboard: {0}")]
    ClipboardFailed(String),
    #[error("no process {0}")]
    ProcessNotFound(u32),
    #[error("process: {0}")]
    ProcessFailed(String),
    #[error("grab the screen: {0}")]
    CaptureFailed(String),
    #[error("{what}: {source_text}")]
    Io { what: String, source_text: String },
}

pub type Result<T> = std::result::Result<T, PlatformError>;

/// A monitor in the platform's order.
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor {
    pub id: u32,
    pub name: String,
    pub primary: bool,
    pub bounds: Rect,
    /// 1.0 is 96 dots per inch.
    pub scale: f64,
    /// `None` where the platform cannot tell.
    pub hdr: Option<bool>,
}

/// What to grab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// A region of the desktop; clipped to it.
    Desktop(Rect),
    /// A window's own content, also where others cover it when the platform can.
    Window { handle: u64, region: Option<Rect> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    Hidden,
    Drawn,
}

/// Grabs pixels. One per display connection; calls queue on it.
pub trait Capture: Send + Sync {
    fn monitors(&self) -> Result<Vec<Monitor>>;
    /// The bounding box of all monitors.
    fn desktop_bounds(&self) -> Result<Rect>;
    fn grab(&self, area: Area, cursor: Cursor) -> Result<Frame>;
    /// `x11-shm`, `x11-get-image`, `gdi`, `wgc` or `virtual`.
    fn backend(&self) -> &'static str;
}

/// A top-level window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub handle: u64,
    pub title: String,
    pub class: String,
    pub pid: Option<u32>,
    pub minimized: Option<bool>,
    pub bounds: Rect,
}

/// Looks at and arranges windows. Mutations wait, bounded, until the window system shows the effect.
pub trait Windows: Send + Sync {
    /// Topmost first.
    fn list(&self) -> Result<Vec<Window>>;
    fn get(&self, handle: u64) -> Result<Window>;
    fn foreground(&self) -> Result<Option<u64>>;
    fn activate(&self, handle: u64) -> Result<()>;
    fn place(&self, handle: u64, bounds: Rect) -> Result<()>;
    fn minimize(&self, handle: u64) -> Result<()>;
    fn close(&self, handle: u64) -> Result<()>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Button {
    Left,
    Middle,
    Right,
    Back,
    Forward,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Press {
    Down,
    Up,
}

/// A physical key by its Windows virtual-key number, which every platform maps to its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VirtualKey(pub u8);

/// Whose keys and buttons are held. Releasing an owner lets up what it alone still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InputOwner(pub u64);

/// Injects pointer and keyboard input. Calls of one burst (`type_text`, a chord) are not interleaved
/// with others'.
pub trait Input: Send + Sync {
    fn pointer(&self) -> Result<Point>;
    fn move_to(&self, to: Point) -> Result<()>;
    fn button(&self, owner: InputOwner, button: Button, press: Press) -> Result<()>;
    /// Wheel clicks: positive x right, positive y up.
    fn scroll(&self, x: i32, y: i32) -> Result<()>;
    fn key(&self, owner: InputOwner, key: VirtualKey, press: Press) -> Result<()>;
    /// Presses and lets up keys as one burst; none of them when one is unknown, where the platform can.
    fn keys(&self, owner: InputOwner, strokes: &[(VirtualKey, Press)]) -> Result<()> {
        strokes
            .iter()
            .try_for_each(|(key, press)| self.key(owner, *key, *press))
    }
    /// Types text whatever the layout; `between` characters it waits. Stops early, with what it has
    /// typed released, when `cancelled` answers true.
    fn type_text(
        &self,
        owner: InputOwner,
        text: &str,
        between: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()>;
    /// Lets up all that the owner holds; answers how many keys and buttons that were.
    fn release(&self, owner: InputOwner) -> Result<usize>;
}

/// 8-bit RGBA, row-major, no padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbaImage {
    pub width: u32,
    pub height: u32,
    pub pixels: Vec<u8>,
}

pub trait Clipboard: Send + Sync {
    fn text(&self) -> Result<String>;
    fn set_text(&self, text: &str) -> Result<()>;
    fn image(&self) -> Result<RgbaImage>;
    fn set_image(&self, image: RgbaImage) -> Result<()>;
    fn clear(&self) -> Result<()>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: Option<u32>,
    pub name: String,
    /// `None` where it may not be read.
    pub path: Option<PathBuf>,
}

/// A program to start; its streams go nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub program: String,
    pub args: Vec<String>,
    pub working_dir: Option<PathBuf>,
    /// Added to the environment.
    pub env: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminate {
    /// Ask (TERM, WM_CLOSE).
    Ask,
    /// End at once (KILL, TerminateProcess).
    Force,
    /// End it and all that descend from it, leaves last.
    Tree,
}

pub trait Processes: Send + Sync {
    fn list(&self) -> Result<Vec<Process>>;
    fn get(&self, pid: u32) -> Result<Process>;
    /// Starts a program; it is reaped when it ends.
    fn start(&self, launch: &Launch) -> Result<u32>;
    /// Waits until the process has ended; `Ok(false)` when `timeout` passed first. Polls `cancelled`.
    fn wait(&self, pid: u32, timeout: Duration, cancelled: &dyn Fn() -> bool) -> Result<bool>;
    fn terminate(&self, pid: u32, how: Terminate) -> Result<()>;
}

/// All of one display's parts. A part that this host lacks is absent with its reason.
pub struct Backend {
    pub capture: Result<Box<dyn Capture>>,
    pub windows: Result<Box<dyn Windows>>,
    pub input: Result<Box<dyn Input>>,
    pub clipboard: Result<Box<dyn Clipboard>>,
    pub processes: Box<dyn Processes>,
    /// The display's name, such as `:0`.
    pub display: Option<String>,
}

/// How to open the desktop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// The display's name; the environment's when absent.
    pub display: Option<String>,
    /// `auto`, or a backend's name; an unavailable one is an error, never another one silently.
    pub capture_backend: Option<String>,
    /// The executable that runs `input-guard`; this one when absent.
    pub guard_program: Option<PathBuf>,
}
