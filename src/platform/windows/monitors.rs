//! Monitors: bounds, scale and which is primary.

use windows::Win32::Foundation::{LPARAM, RECT};
use windows::Win32::Graphics::Gdi::{
    EnumDisplayMonitors, GetMonitorInfoW, HDC, HMONITOR, MONITORINFO, MONITORINFOEXW,
};
use windows::Win32::UI::HiDpi::{GetDpiForMonitor, MDT_EFFECTIVE_DPI};
use windows::Win32::UI::WindowsAndMessaging::{
    GetSystemMetrics, MONITORINFOF_PRIMARY, SM_CXVIRTUALSCREEN, SM_CYVIRTUALSCREEN,
    SM_XVIRTUALSCREEN, SM_YVIRTUALSCREEN,
};
use windows::core::BOOL;

use crate::base::Rect;
use crate::platform::{Monitor, PlatformError, Result};

/// Dots per inch at scale 1.0.
const DPI_UNSCALED: f64 = 96.0;

/// All monitors in the system's order, each with its handle.
pub fn list() -> Result<Vec<(HMONITOR, Monitor)>> {
    let mut handles: Vec<HMONITOR> = Vec::new();
    let target = LPARAM(&raw mut handles as isize);
    // SAFETY: the callback runs only during this call, with the pointer to `handles` given here.
    let done = unsafe { EnumDisplayMonitors(None, None, Some(collect), target) };
    if !done.as_bool() {
        return Err(PlatformError::DisplayUnavailable(
            "the monitors cannot be listed".to_owned(),
        ));
    }
    let described = handles
        .into_iter()
        .enumerate()
        .filter_map(|(index, handle)| {
            let monitor = describe(handle, u32::try_from(index).ok()?)?;
            Some((handle, monitor))
        });
    // A monitor unplugged between the two calls has no description and is left out.
    Ok(described.collect())
}

/// The bounding box of all monitors.
pub fn desktop_bounds() -> Result<Rect> {
    // SAFETY: takes constants and touches no memory of ours.
    let metric = |index| unsafe { GetSystemMetrics(index) };
    let (width, height) = (metric(SM_CXVIRTUALSCREEN), metric(SM_CYVIRTUALSCREEN));
    match (u32::try_from(width), u32::try_from(height)) {
        (Ok(width), Ok(height)) if width > 0 && height > 0 => Ok(Rect::new(
            metric(SM_XVIRTUALSCREEN),
            metric(SM_YVIRTUALSCREEN),
            width,
            height,
        )),
        _ => Err(PlatformError::DisplayUnavailable(
            "the desktop has no size".to_owned(),
        )),
    }
}

/// `RECT` as a half-open rectangle; an inverted one is empty.
pub fn rect(from: RECT) -> Rect {
    let side = |start: i32, end: i32| u32::try_from(i64::from(end) - i64::from(start)).unwrap_or(0);
    Rect::new(
        from.left,
        from.top,
        side(from.left, from.right),
        side(from.top, from.bottom),
    )
}

extern "system" fn collect(monitor: HMONITOR, _: HDC, _: *mut RECT, target: LPARAM) -> BOOL {
    // SAFETY: `target` is the vector that `list` lends for the time of the enumeration.
    let handles = unsafe { &mut *(target.0 as *mut Vec<HMONITOR>) };
    handles.push(monitor);
    true.into()
}

fn describe(handle: HMONITOR, id: u32) -> Option<Monitor> {
    let mut info = MONITORINFOEXW::default();
    info.monitorInfo.cbSize = size_of::<MONITORINFOEXW>() as u32;
    // SAFETY: `info` is as large as its size field says, and starts with MONITORINFO.
    let known = unsafe { GetMonitorInfoW(handle, (&raw mut info).cast::<MONITORINFO>()) };
    if !known.as_bool() {
        return None;
    }
    let (mut dpi_x, mut dpi_y) = (0u32, 0u32);
    // SAFETY: both results are our own variables.
    let dpi = unsafe { GetDpiForMonitor(handle, MDT_EFFECTIVE_DPI, &mut dpi_x, &mut dpi_y) };
    let scale = match dpi {
        Ok(()) if dpi_x > 0 => f64::from(dpi_x) / DPI_UNSCALED,
        _ => 1.0,
    };
    let name = info.szDevice;
    let len = name
        .iter()
        .position(|unit| *unit == 0)
        .unwrap_or(name.len());
    Some(Monitor {
        id,
        name: String::from_utf16_lossy(name.get(..len).unwrap_or_default()),
        primary: info.monitorInfo.dwFlags & MONITORINFOF_PRIMARY != 0,
        bounds: rect(info.monitorInfo.rcMonitor),
        scale,
        // The advanced colour state belongs to DXGI; GDI cannot tell.
        hdr: None,
    })
}
