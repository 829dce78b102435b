//! Monitors and frames.

use super::{Desktop, fault};
use crate::base::{Color, Point, Rect, Size};
use crate::platform::{Area, Capture, Cursor, Frame, PixelFormat};
use crate::vision::{Order, Pixels};
use crate::wire::messages::desktop as msg;
use crate::wire::{Code, Fault};

impl Desktop {
    pub(super) fn capturer(&self) -> Result<&dyn Capture, Fault> {
        self.backend
            .capture
            .as_deref()
            .map_err(|error| fault(error.clone()))
    }

    /// The monitors in the platform's order.
    pub fn monitors(&self) -> Result<Vec<msg::Monitor>, Fault> {
        let monitors = self.capturer()?.monitors().map_err(fault)?;
        Ok(monitors
            .into_iter()
            .map(|m| msg::Monitor {
                id: m.id,
                name: m.name,
                is_primary: m.primary,
                bounds: m.bounds,
                scale: m.scale,
                hdr: m.hdr,
            })
            .collect())
    }

    /// The primary monitor; the first where none is marked.
    pub fn primary_monitor(&self) -> Result<msg::Monitor, Fault> {
        let monitors = self.monitors()?;
        let primary = monitors
            .iter()
            .find(|m| m.is_primary)
            .or(monitors.first())
            .cloned();
        primary.ok_or_else(|| Fault::new(Code::DisplayUnavailable, "the desktop has no monitor"))
    }

    /// The bounding box of all monitors.
    pub fn bounds(&self) -> Result<Rect, Fault> {
        self.capturer()?.desktop_bounds().map_err(fault)
    }

    /// Grabs a region of the desktop, the whole of it when `region` is absent.
    pub fn frame(&self, region: Option<Rect>, cursor: Cursor) -> Result<Frame, Fault> {
        let capturer = self.capturer()?;
        let region = match region {
            Some(region) => region,
            None => capturer.desktop_bounds().map_err(fault)?,
        };
        capturer.grab(Area::Desktop(region), cursor).map_err(fault)
    }

    /// The colour at a point.
    pub fn pixel(&self, at: Point) -> Result<Color, Fault> {
        let frame = self.frame(Some(Rect::new(at.x, at.y, 1, 1)), Cursor::Hidden)?;
        frame.pixel(at).ok_or_else(|| {
            Fault::new(
                Code::CaptureRegionInvalid,
                format!("no pixel at {}, {}", at.x, at.y),
            )
        })
    }
}

/// A frame as pixels to search. Points found are relative to the frame's region.
pub fn pixels(frame: &Frame) -> Result<Pixels<'_>, Fault> {
    let order = match frame.format {
        PixelFormat::Bgrx => Order::Bgrx,
        PixelFormat::Rgba => Order::Rgba,
    };
    let Size { width, height } = frame.size();
    Pixels::new(width, height, frame.stride, frame.bytes(), order)
        .map_err(|error| Fault::internal(format!("look at a frame: {error}")))
}
