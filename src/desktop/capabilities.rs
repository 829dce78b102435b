//! What this desktop can do now, found by trying.

use super::Desktop;
use crate::base::Rect;
use crate::platform::{Area, Capture, Cursor, PlatformError};
use crate::wire::capability;

impl Desktop {
    /// The capability names that hold on this host now. Each part is really tried, so this blocks for
    /// a few milliseconds, and for seconds when a display hangs.
    pub fn capabilities(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        if let Ok(capture) = &self.backend.capture {
            if capture.monitors().is_ok_and(|found| !found.is_empty()) {
                names.push(capability::SCREEN_LIST_MONITORS);
            }
            if grabs(capture.as_ref()) {
                names.push(capability::SCREEN_CAPTURE);
                names.push(capability::VISION_IMAGE);
                names.push(capability::VISION_COLOR);
            }
        }
        if let Ok(input) = &self.backend.input
            && input.pointer().is_ok()
        {
            names.push(capability::INPUT_MOUSE);
            names.push(capability::INPUT_KEYBOARD);
        }
        if let Ok(windows) = &self.backend.windows
            && windows.list().is_ok()
        {
            names.push(capability::WINDOW_ENUMERATE);
            names.push(capability::WINDOW_ACTIVATE);
        }
        if let Ok(clipboard) = &self.backend.clipboard
            && matches!(
                clipboard.text(),
                Ok(_) | Err(PlatformError::ClipboardEmpty(_))
            )
        {
            names.push(capability::CLIPBOARD);
        }
        // One process tells; the whole table would cost more the more a machine runs.
        let own = self.backend.processes.get(std::process::id());
        if matches!(own, Ok(_) | Err(PlatformError::ProcessNotFound(_))) {
            names.push(capability::PROCESS_SPAWN);
        }
        names
    }
}

/// Grabs one pixel.
fn grabs(capture: &dyn Capture) -> bool {
    let Ok(bounds) = capture.desktop_bounds() else {
        return false;
    };
    let pixel = Rect::new(bounds.x, bounds.y, 1, 1);
    capture.grab(Area::Desktop(pixel), Cursor::Hidden).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Color, Size};
    use crate::platform::virtual_display::{Picture, VirtualDisplay};

    #[test]
    fn a_dead_display_has_no_capabilities_and_a_missing_part_takes_only_its_own() {
        let size = Size {
            width: 2,
            height: 2,
        };
        let display = VirtualDisplay::new([Picture::filled(size, Color::default())]);
        let mut backend = display.backend();
        backend.input = Err(PlatformError::Unsupported("no XTEST".into()));
        let desktop = Desktop::with_backend(backend);
        let names = desktop.capabilities();
        assert!(names.contains(&capability::SCREEN_CAPTURE));
        assert!(names.contains(&capability::CLIPBOARD));
        assert!(!names.contains(&capability::INPUT_MOUSE));
        assert!(names.iter().all(|name| capability::is_known(name)));
        display.state().failure = Some(PlatformError::DisplayUnavailable("gone".into()));
        assert_eq!(desktop.capabilities(), Vec::<&str>::new());
    }
}
