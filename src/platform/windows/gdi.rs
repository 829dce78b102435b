//! Capture by GDI: `BitBlt` from the screen, `PrintWindow` for a window's own content.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use windows::Win32::Graphics::Gdi::{
    BI_RGB, BITMAPINFO, BITMAPINFOHEADER, BitBlt, CAPTUREBLT, CreateCompatibleDC, CreateDIBSection,
    DIB_RGB_COLORS, DeleteDC, DeleteObject, GdiFlush, GetDC, HBITMAP, HDC, HGDIOBJ, ReleaseDC,
    SRCCOPY, SelectObject,
};
use windows::Win32::Storage::Xps::{PRINT_WINDOW_FLAGS, PW_CLIENTONLY, PrintWindow};
use windows::Win32::UI::WindowsAndMessaging::{
    CURSOR_SHOWING, CURSORINFO, DI_NORMAL, DrawIconEx, GetCursorInfo, GetIconInfo, ICONINFO,
    IsHungAppWindow, PW_RENDERFULLCONTENT,
};
use windows::core::Error;

use super::capture::in_window;
use super::window;
use crate::base::Rect;
use crate::base::limits::FRAME_PIXELS_MAX;
use crate::platform::{Cursor, Frame, PixelFormat, PlatformError, Result};

pub const NAME: &str = "gdi";
const BYTES_PER_PIXEL: usize = 4;

/// Grabs a region that lies on the desktop.
pub fn grab(region: Rect, cursor: Cursor) -> Result<Frame> {
    let canvas = Canvas::new(region)?;
    let screen = ScreenDc::open()?;
    // INVARIANT: `Bitmap::new` has refused sides that do not fit.
    let (width, height) = (region.width as i32, region.height as i32);
    // SAFETY: both device contexts live through the call; the target has the size that is copied.
    unsafe {
        BitBlt(
            canvas.context.dc,
            0,
            0,
            width,
            height,
            Some(screen.0),
            region.x,
            region.y,
            SRCCOPY | CAPTUREBLT,
        )
    }
    .map_err(|error| failed("copy the screen", &error))?;
    let cursor_included = cursor == Cursor::Drawn && canvas.draw_cursor()?;
    canvas.into_frame(region, cursor_included)
}

/// Grabs a window's client area as the window itself paints it, also where others cover it.
pub fn grab_window(handle: u64, region: Option<Rect>, cursor: Cursor) -> Result<Frame> {
    let hwnd = window::existing(handle)?;
    let client = window::client_bounds(hwnd)?;
    let wanted = in_window(client, region)?;
    // SAFETY: any handle may be asked about.
    if unsafe { IsHungAppWindow(hwnd) }.as_bool() {
        return Err(PlatformError::CaptureFailed(
            "the window does not answer, so it cannot paint itself".to_owned(),
        ));
    }
    let canvas = Canvas::new(client)?;
    let flags = PRINT_WINDOW_FLAGS(PW_CLIENTONLY.0 | PW_RENDERFULLCONTENT);
    // SAFETY: the device context holds a bitmap of the client area's size.
    let painted = unsafe { PrintWindow(hwnd, canvas.context.dc, flags) };
    if !painted.as_bool() {
        return Err(failed("print the window", &Error::from_thread()));
    }
    let cursor_included = cursor == Cursor::Drawn && canvas.draw_cursor()?;
    canvas.into_frame(wanted, cursor_included)
}

/// A bitmap in memory that shows a part of the desktop, with the context to draw on it.
struct Canvas {
    bounds: Rect,
    context: MemoryDc,
    bitmap: Bitmap,
}

impl Canvas {
    fn new(bounds: Rect) -> Result<Self> {
        let bitmap = Bitmap::new(bounds)?;
        let context = MemoryDc::over(&bitmap)?;
        Ok(Self {
            bounds,
            context,
            bitmap,
        })
    }

    /// Draws the pointer where it is now, when it is shown. `false` when its shape belongs to another
    /// process and may not be read (under Wine): the frame then says that it has no cursor.
    fn draw_cursor(&self) -> Result<bool> {
        let mut info = CURSORINFO {
            cbSize: size_of::<CURSORINFO>() as u32,
            ..CURSORINFO::default()
        };
        // SAFETY: `info` is as large as its size field says.
        unsafe { GetCursorInfo(&mut info) }.map_err(|error| failed("find the cursor", &error))?;
        if info.flags.0 & CURSOR_SHOWING.0 == 0 || info.hCursor.is_invalid() {
            return Ok(true);
        }
        let mut icon = ICONINFO::default();
        // SAFETY: the handle was given just now; both bitmaps that come back are freed below.
        if let Err(error) = unsafe { GetIconInfo(info.hCursor.into(), &mut icon) } {
            tracing::debug!(error = %error.message(), "the cursor's shape cannot be read");
            return Ok(false);
        }
        let hot_x = i32::try_from(icon.xHotspot).unwrap_or(0);
        let hot_y = i32::try_from(icon.yHotspot).unwrap_or(0);
        let x = info.ptScreenPos.x - self.bounds.x - hot_x;
        let y = info.ptScreenPos.y - self.bounds.y - hot_y;
        let (shape, dc) = (info.hCursor.into(), self.context.dc);
        // SAFETY: the context is ours; zero sizes mean the cursor's own size.
        let drawn = unsafe { DrawIconEx(dc, x, y, shape, 0, 0, 0, None, DI_NORMAL) };
        for mask in [icon.hbmMask, icon.hbmColor] {
            // SAFETY: GetIconInfo gave these bitmaps to us; an absent one is refused, not freed.
            let _ = unsafe { DeleteObject(mask.into()) };
        }
        drawn.map_err(|error| failed("draw the cursor", &error))?;
        Ok(true)
    }

    /// The pixels as a frame, cut to `wanted`, which lies inside of the canvas.
    fn into_frame(self, wanted: Rect, cursor_included: bool) -> Result<Frame> {
        // SAFETY: waits until the drawing has reached the memory; takes nothing.
        let _ = unsafe { GdiFlush() };
        let Self {
            bounds,
            context,
            bitmap,
        } = self;
        drop(context);
        let stride = bounds.width as usize * BYTES_PER_PIXEL;
        let from_top = i64::from(wanted.y) - i64::from(bounds.y);
        let from_left = i64::from(wanted.x) - i64::from(bounds.x);
        // INVARIANT: neither is negative, as `wanted` lies inside of the canvas.
        let offset_bytes = from_top as usize * stride + from_left as usize * BYTES_PER_PIXEL;
        let pixels = Arc::new(Pixels {
            bitmap,
            offset_bytes,
        });
        Frame::new(
            wanted,
            stride,
            PixelFormat::Bgrx,
            NAME,
            cursor_included,
            pixels,
        )
        .map_err(|error| PlatformError::CaptureFailed(error.to_string()))
    }
}

/// A context in memory with a bitmap selected into it.
struct MemoryDc {
    dc: HDC,
    before: HGDIOBJ,
}

impl MemoryDc {
    fn over(bitmap: &Bitmap) -> Result<Self> {
        // SAFETY: no context is given, so one that fits the screen is made.
        let dc = unsafe { CreateCompatibleDC(None) };
        if dc.is_invalid() {
            return Err(failed("make a device context", &Error::from_thread()));
        }
        // SAFETY: both are ours and alive; `Drop` puts the former object back.
        let before = unsafe { SelectObject(dc, bitmap.handle.into()) };
        Ok(Self { dc, before })
    }
}

impl Drop for MemoryDc {
    fn drop(&mut self) {
        // SAFETY: the context is ours and nobody draws on it any more.
        unsafe {
            SelectObject(self.dc, self.before);
            let _ = DeleteDC(self.dc);
        }
    }
}

/// The screen's context, given back when dropped.
struct ScreenDc(HDC);

impl ScreenDc {
    fn open() -> Result<Self> {
        // SAFETY: no window means the whole screen.
        let dc = unsafe { GetDC(None) };
        if dc.is_invalid() {
            return Err(PlatformError::DisplayUnavailable(
                "the screen gives no device context".to_owned(),
            ));
        }
        Ok(Self(dc))
    }
}

impl Drop for ScreenDc {
    fn drop(&mut self) {
        // SAFETY: the context came from GetDC with no window.
        unsafe { ReleaseDC(None, self.0) };
    }
}

/// A top-down bitmap of 32 bits a pixel whose memory this process sees.
struct Bitmap {
    handle: HBITMAP,
    bits: NonNull<u8>,
    len: usize,
}

// SAFETY: the handle and its memory belong to this value alone; GDI allows any thread to free it.
unsafe impl Send for Bitmap {}
// SAFETY: once a frame owns the bitmap nothing writes to its memory.
unsafe impl Sync for Bitmap {}

impl Bitmap {
    fn new(bounds: Rect) -> Result<Self> {
        let refused = || PlatformError::RegionInvalid(bounds);
        let width = i32::try_from(bounds.width).map_err(|_| refused())?;
        let height = i32::try_from(bounds.height).map_err(|_| refused())?;
        if bounds.is_empty() || bounds.size().area() > FRAME_PIXELS_MAX {
            return Err(refused());
        }
        let info = BITMAPINFO {
            bmiHeader: BITMAPINFOHEADER {
                biSize: size_of::<BITMAPINFOHEADER>() as u32,
                biWidth: width,
                // Negative: the first row is the top one.
                biHeight: -height,
                biPlanes: 1,
                biBitCount: 32,
                biCompression: BI_RGB.0,
                ..BITMAPINFOHEADER::default()
            },
            ..BITMAPINFO::default()
        };
        let mut bits = std::ptr::null_mut::<c_void>();
        // SAFETY: `info` describes the bitmap fully and `bits` is our own variable.
        let handle = unsafe { CreateDIBSection(None, &info, DIB_RGB_COLORS, &mut bits, None, 0) }
            .map_err(|error| failed("make a bitmap", &error))?;
        let Some(bits) = NonNull::new(bits.cast::<u8>()) else {
            return Err(failed("make a bitmap", &Error::from_thread()));
        };
        Ok(Self {
            handle,
            bits,
            len: bounds.width as usize * bounds.height as usize * BYTES_PER_PIXEL,
        })
    }
}

impl Drop for Bitmap {
    fn drop(&mut self) {
        // SAFETY: the bitmap is ours and selected into no context any more.
        let _ = unsafe { DeleteObject(self.handle.into()) };
    }
}

/// The bitmap's memory from the first wanted pixel on.
struct Pixels {
    bitmap: Bitmap,
    offset_bytes: usize,
}

impl AsRef<[u8]> for Pixels {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: CreateDIBSection gave `len` bytes at `bits`, and they live as long as the bitmap.
        let all = unsafe { std::slice::from_raw_parts(self.bitmap.bits.as_ptr(), self.bitmap.len) };
        all.get(self.offset_bytes..).unwrap_or_default()
    }
}

fn failed(what: &str, error: &Error) -> PlatformError {
    PlatformError::CaptureFailed(format!("{what}: {}", error.message()))
}
