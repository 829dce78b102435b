//! Capture by Windows Graphics Capture: one short session for each grab, its first frame taken.
//!
//! A session belongs to one monitor or one window. A region over several monitors is put together
//! from one session each; what no monitor shows stays black.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use windows::Win32::Foundation::{HWND, RECT};
use windows::Win32::Graphics::Dwm::{DWMWA_EXTENDED_FRAME_BOUNDS, DwmGetWindowAttribute};
use windows_capture::capture::{Context, GraphicsCaptureApiError, GraphicsCaptureApiHandler};
use windows_capture::frame::Frame as SessionFrame;
use windows_capture::graphics_capture_api::{GraphicsCaptureApi, InternalCaptureControl};
use windows_capture::monitor::Monitor as SessionMonitor;
use windows_capture::settings::{
    ColorFormat, CursorCaptureSettings, DirtyRegionSettings, DrawBorderSettings,
    GraphicsCaptureItemType, MinimumUpdateIntervalSettings, SecondaryWindowSettings, Settings,
};
use windows_capture::window::Window as SessionWindow;

use super::capture::in_window;
use super::monitors::{self, rect};
use super::window;
use crate::base::Rect;
use crate::base::limits::{CAPTURE_TIMEOUT_MS, WGC_SESSION_REBUILDS_MAX};
use crate::platform::{Cursor, Frame, PixelFormat, PlatformError, Result};

pub const NAME: &str = "wgc";
const BYTES_PER_PIXEL: usize = 4;

/// Fails, naming the setting that would help, where this host cannot do it.
pub fn check_supported() -> Result<()> {
    let reason = match GraphicsCaptureApi::is_supported() {
        Ok(true) => return Ok(()),
        Ok(false) => "this version of Windows lacks it".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(PlatformError::Unsupported(format!(
        "Windows Graphics Capture ({reason}); set capture_backend = \"gdi\" to use GDI"
    )))
}

/// Grabs a region that lies on the desktop.
pub fn grab(region: Rect, cursor: Cursor) -> Result<Frame> {
    let mut canvas = Canvas::black(region);
    for (handle, monitor) in monitors::list()? {
        let Some(common) = monitor.bounds.intersection(region) else {
            continue;
        };
        let handle = handle.0.expose_provenance();
        let item = move || {
            let raw = std::ptr::with_exposed_provenance_mut(handle);
            SessionMonitor::from_raw_hmonitor(raw)
        };
        canvas.paint(&first_frame(item, cursor)?, monitor.bounds, common);
    }
    canvas.into_frame(cursor)
}

/// Grabs a window's client area, also where others cover it.
pub fn grab_window(handle: u64, region: Option<Rect>, cursor: Cursor) -> Result<Frame> {
    let hwnd = window::existing(handle)?;
    let wanted = in_window(window::client_bounds(hwnd)?, region)?;
    let shown = visible_bounds(hwnd)?;
    let address = hwnd.0.expose_provenance();
    let item = move || {
        let raw = std::ptr::with_exposed_provenance_mut(address);
        SessionWindow::from_raw_hwnd(raw)
    };
    let mut canvas = Canvas::black(wanted);
    let common = wanted
        .intersection(shown)
        .ok_or(PlatformError::RegionInvalid(wanted))?;
    canvas.paint(&first_frame(item, cursor)?, shown, common);
    canvas.into_frame(cursor)
}

/// What the session of a window shows: the frame without its invisible borders.
fn visible_bounds(hwnd: HWND) -> Result<Rect> {
    let mut bounds = RECT::default();
    let target = (&raw mut bounds).cast();
    let size = size_of::<RECT>() as u32;
    // SAFETY: the result is our own variable, of the size given.
    match unsafe { DwmGetWindowAttribute(hwnd, DWMWA_EXTENDED_FRAME_BOUNDS, target, size) } {
        Ok(()) => Ok(rect(bounds)),
        Err(_) => window::outer_bounds(hwnd),
    }
}

/// A frame's bytes, rows without padding.
struct Grabbed {
    width: usize,
    pixels: Vec<u8>,
}

/// Why a session gave no frame.
enum Fault {
    /// Another session may give one: the source changed or the device was reset meanwhile.
    Transient(String),
    Lasting(String),
}

/// The first frame of a session, after at most `WGC_SESSION_REBUILDS_MAX` new sessions for faults
/// that pass.
fn first_frame<T>(item: impl Fn() -> T, cursor: Cursor) -> Result<Grabbed>
where
    T: TryInto<GraphicsCaptureItemType> + Send + 'static,
{
    let mut rebuilds = 0;
    loop {
        match session(item(), cursor) {
            Ok(grabbed) => return Ok(grabbed),
            Err(Fault::Transient(reason)) if rebuilds < WGC_SESSION_REBUILDS_MAX => {
                rebuilds += 1;
                tracing::warn!(rebuilds, %reason, "capture session is built again");
            }
            Err(Fault::Transient(reason)) => {
                return Err(PlatformError::CaptureFailed(format!(
                    "{reason}, also in {rebuilds} more sessions"
                )));
            }
            Err(Fault::Lasting(reason)) => return Err(PlatformError::CaptureFailed(reason)),
        }
    }
}

fn session<T>(item: T, cursor: Cursor) -> std::result::Result<Grabbed, Fault>
where
    T: TryInto<GraphicsCaptureItemType> + Send + 'static,
{
    let (sender, receiver) = sync_channel(1);
    let pointer = match cursor {
        Cursor::Drawn => CursorCaptureSettings::WithCursor,
        Cursor::Hidden => CursorCaptureSettings::WithoutCursor,
    };
    let border = match GraphicsCaptureApi::is_border_settings_supported() {
        Ok(true) => DrawBorderSettings::WithoutBorder,
        // Before Windows 11 the yellow border cannot be switched off.
        _ => DrawBorderSettings::Default,
    };
    let settings = Settings::new(
        item,
        pointer,
        border,
        SecondaryWindowSettings::Default,
        MinimumUpdateIntervalSettings::Default,
        DirtyRegionSettings::Default,
        ColorFormat::Bgra8,
        sender,
    );
    let control = FirstFrame::start_free_threaded(settings).map_err(classify)?;
    let received = receiver.recv_timeout(Duration::from_millis(CAPTURE_TIMEOUT_MS));
    if let Err(error) = control.stop() {
        tracing::debug!(%error, "capture session ended with an error");
    }
    match received {
        Ok(grabbed) => grabbed.map_err(Fault::Transient),
        Err(RecvTimeoutError::Timeout) => Err(Fault::Lasting(format!(
            "no frame in {CAPTURE_TIMEOUT_MS} ms"
        ))),
        Err(RecvTimeoutError::Disconnected) => Err(Fault::Transient(
            "the session ended without a frame".to_owned(),
        )),
    }
}

/// What the graphics device says may pass; what the system or the item says does not.
fn classify(error: GraphicsCaptureApiError<String>) -> Fault {
    let text = error.to_string();
    match error {
        GraphicsCaptureApiError::DirectXError(_)
        | GraphicsCaptureApiError::FailedToStartCaptureThread
        | GraphicsCaptureApiError::FrameHandlerError(_) => Fault::Transient(text),
        _ => Fault::Lasting(text),
    }
}

/// Sends the first frame and ends its session.
struct FirstFrame(SyncSender<std::result::Result<Grabbed, String>>);

impl GraphicsCaptureApiHandler for FirstFrame {
    type Flags = SyncSender<std::result::Result<Grabbed, String>>;
    type Error = String;

    fn new(context: Context<Self::Flags>) -> std::result::Result<Self, String> {
        Ok(Self(context.flags))
    }

    fn on_frame_arrived(
        &mut self,
        frame: &mut SessionFrame<'_>,
        control: InternalCaptureControl,
    ) -> std::result::Result<(), String> {
        let grabbed = frame.buffer().map(|buffer| {
            let mut spare = Vec::new();
            let pixels = buffer.as_nopadding_buffer(&mut spare).to_vec();
            Grabbed {
                width: buffer.width() as usize,
                pixels,
            }
        });
        // A second frame may come before the session has ended; the first one is what counts.
        let _ = self.0.try_send(grabbed.map_err(|error| error.to_string()));
        control.stop();
        Ok(())
    }
}

/// The region asked for, painted from one source after the other.
struct Canvas {
    region: Rect,
    pixels: Vec<u8>,
}

impl Canvas {
    fn black(region: Rect) -> Self {
        let len = region.width as usize * region.height as usize * BYTES_PER_PIXEL;
        Self {
            region,
            pixels: vec![0; len],
        }
    }

    /// Copies `common`, which both have, from a grab that shows `source`.
    fn paint(&mut self, grabbed: &Grabbed, source: Rect, common: Rect) {
        let at = |inner: i32, outer: i32| (i64::from(inner) - i64::from(outer)).max(0) as usize;
        let from_stride = grabbed.width * BYTES_PER_PIXEL;
        let to_stride = self.region.width as usize * BYTES_PER_PIXEL;
        let left = at(common.x, source.x) * BYTES_PER_PIXEL;
        let target_left = at(common.x, self.region.x) * BYTES_PER_PIXEL;
        // The source may have shrunk since it was measured; what it lost stays black.
        let len = (common.width as usize * BYTES_PER_PIXEL).min(from_stride.saturating_sub(left));
        for row in 0..common.height as usize {
            let from = (at(common.y, source.y) + row) * from_stride + left;
            let to = (at(common.y, self.region.y) + row) * to_stride + target_left;
            if let (Some(from), Some(to)) = (
                grabbed.pixels.get(from..from + len),
                self.pixels.get_mut(to..to + len),
            ) {
                to.copy_from_slice(from);
            }
        }
    }

    fn into_frame(self, cursor: Cursor) -> Result<Frame> {
        Frame::new(
            self.region,
            self.region.width as usize * BYTES_PER_PIXEL,
            PixelFormat::Bgrx,
            NAME,
            cursor == Cursor::Drawn,
            Arc::new(self.pixels),
        )
        .map_err(|error| PlatformError::CaptureFailed(error.to_string()))
    }
}
