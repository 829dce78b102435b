//! A display that needs no server: scripted frames for pure tests.
//!
//! The desktop is a picture that tests set (or a list of them, one per grab), with windows and
//! processes as plain values. Input is recorded, in order, for tests to read.

mod parts;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    Backend, Button, InputOwner, Launch, Monitor, PlatformError, Press, Process, Result, RgbaImage,
    VirtualKey, Window,
};
use crate::base::{Color, Point, Rect, Size};

pub use parts::VirtualProcesses;

/// A picture of the whole virtual desktop, BGRX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    size: Size,
    pixels: Vec<u8>,
}

impl Picture {
    /// One colour everywhere.
    pub fn filled(size: Size, color: Color) -> Self {
        let pixels = [color.b, color.g, color.r, 0].repeat(size.area() as usize);
        Self { size, pixels }
    }

    /// The same picture with a rectangle painted over; parts outside are cut off.
    pub fn with_rect(mut self, rect: Rect, color: Color) -> Self {
        let whole = Rect::new(0, 0, self.size.width, self.size.height);
        if let Some(part) = whole.intersection(rect) {
            for y in part.y..part.y + part.height as i32 {
                for x in part.x..part.x + part.width as i32 {
                    self.set(x as usize, y as usize, color);
                }
            }
        }
        self
    }

    fn set(&mut self, x: usize, y: usize, color: Color) {
        let start = (y * self.size.width as usize + x) * 4;
        // INVARIANT: callers clip to the picture.
        self.pixels[start..start + 4].copy_from_slice(&[color.b, color.g, color.r, 0]);
    }

    pub fn size(&self) -> Size {
        self.size
    }
}

/// One call to the virtual input, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputEvent {
    Move(Point),
    Button(InputOwner, Button, Press),
    Scroll { x: i32, y: i32 },
    Key(InputOwner, VirtualKey, Press),
    Text(InputOwner, String),
}

/// Everything on the virtual desktop; tests read and change it while the backend is in use.
#[derive(Debug)]
pub struct State {
    /// Shown one per grab; the last one stays.
    pub pictures: Vec<Picture>,
    pub monitors: Vec<Monitor>,
    /// Topmost first.
    pub windows: Vec<Window>,
    pub foreground: Option<u64>,
    pub pointer: Point,
    /// Every input call, in order.
    pub input: Vec<InputEvent>,
    pub clipboard_text: Option<String>,
    pub clipboard_image: Option<RgbaImage>,
    pub processes: Vec<Process>,
    /// Every program that was started.
    pub launched: Vec<Launch>,
    /// When set, every call answers this: the display has died.
    pub failure: Option<PlatformError>,
    held: Vec<(InputOwner, Held)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Button(Button),
    Key(VirtualKey),
}

/// A handle on a virtual desktop, for the test that owns it.
#[derive(Clone, Debug)]
pub struct VirtualDisplay(Arc<Mutex<State>>);

impl VirtualDisplay {
    /// A desktop of one monitor that shows `pictures` in turn.
    ///
    /// Panics without a picture, since a display without pixels is none.
    pub fn new(pictures: impl IntoIterator<Item = Picture>) -> Self {
        let pictures: Vec<Picture> = pictures.into_iter().collect();
        let size = pictures
            .first()
            .expect("a virtual display shows something")
            .size;
        let monitor = Monitor {
            id: 0,
            name: "virtual".into(),
            primary: true,
            bounds: Rect::new(0, 0, size.width, size.height),
            scale: 1.0,
            hdr: Some(false),
        };
        Self(Arc::new(Mutex::new(State {
            pictures,
            monitors: vec![monitor],
            windows: Vec::new(),
            foreground: None,
            pointer: Point::default(),
            input: Vec::new(),
            clipboard_text: None,
            clipboard_image: None,
            processes: Vec::new(),
            launched: Vec::new(),
            failure: None,
            held: Vec::new(),
        })))
    }

    /// The desktop's state, to read or to change.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless the display has died.
    fn alive(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(state),
        }
    }

    /// The parts that a desktop is built from.
    pub fn backend(&self) -> Backend {
        Backend {
            capture: Ok(Box::new(parts::VirtualCapture(self.clone()))),
            windows: Ok(Box::new(parts::VirtualWindows(self.clone()))),
            input: Ok(Box::new(parts::VirtualInput(self.clone()))),
            clipboard: Ok(Box::new(parts::VirtualClipboard(self.clone()))),
            processes: Box::new(VirtualProcesses(self.clone())),
            display: Some("virtual".into()),
        }
    }
}

/// A backend over pictures that no test needs to look into afterwards.
pub fn backend(pictures: impl IntoIterator<Item = Picture>) -> Backend {
    VirtualDisplay::new(pictures).backend()
}
