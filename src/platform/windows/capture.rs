//! Capture: the configured backend, and what both backends share.
//!
//! `auto` is Windows Graphics Capture. Where that does not work the answer is an error that names
//! the setting, never GDI by itself: the two see different things (protected and accelerated
//! content, HDR), and who reads the picture has to know.

use crate::base::Rect;
use crate::base::limits::FRAME_PIXELS_MAX;
use crate::platform::{Area, Capture, Cursor, Frame, Monitor, PlatformError, Result};

use super::{gdi, monitors, wgc};

/// Opens the backend of a name: `auto`, `wgc` or `gdi`.
pub fn open(backend: Option<&str>) -> Result<Box<dyn Capture>> {
    match backend.unwrap_or("auto") {
        "auto" | "wgc" => {
            wgc::check_supported()?;
            Ok(Box::new(DesktopCapture(Backend::Wgc)))
        }
        "gdi" => Ok(Box::new(DesktopCapture(Backend::Gdi))),
        other => Err(PlatformError::Unsupported(format!(
            "capture backend {other:?}; Windows has wgc and gdi"
        ))),
    }
}

#[derive(Clone, Copy)]
enum Backend {
    Gdi,
    Wgc,
}

struct DesktopCapture(Backend);

impl Capture for DesktopCapture {
    fn monitors(&self) -> Result<Vec<Monitor>> {
        let listed = monitors::list()?;
        Ok(listed.into_iter().map(|(_, monitor)| monitor).collect())
    }

    fn desktop_bounds(&self) -> Result<Rect> {
        monitors::desktop_bounds()
    }

    fn grab(&self, area: Area, cursor: Cursor) -> Result<Frame> {
        match (self.0, area) {
            (Backend::Gdi, Area::Desktop(region)) => gdi::grab(on_desktop(region)?, cursor),
            (Backend::Gdi, Area::Window { handle, region }) => {
                gdi::grab_window(handle, region, cursor)
            }
            (Backend::Wgc, Area::Desktop(region)) => wgc::grab(on_desktop(region)?, cursor),
            (Backend::Wgc, Area::Window { handle, region }) => {
                wgc::grab_window(handle, region, cursor)
            }
        }
    }

    fn backend(&self) -> &'static str {
        match self.0 {
            Backend::Gdi => gdi::NAME,
            Backend::Wgc => wgc::NAME,
        }
    }
}

/// The part of a region that the desktop has.
fn on_desktop(region: Rect) -> Result<Rect> {
    let bounds = monitors::desktop_bounds()?;
    region
        .intersection(bounds)
        .filter(|common| common.size().area() <= FRAME_PIXELS_MAX)
        .ok_or(PlatformError::RegionInvalid(region))
}

/// The part of a window, in desktop coordinates, that a region relative to it names.
pub fn in_window(client: Rect, region: Option<Rect>) -> Result<Rect> {
    let Some(region) = region else {
        return Ok(client);
    };
    region
        .translated(client.origin())
        .intersection(client)
        .ok_or(PlatformError::RegionInvalid(region))
}
