//! Windows: looked at and arranged. Bounds are client areas in desktop coordinates.

use std::time::{Duration, Instant};

use windows::Win32::Foundation::{HWND, LPARAM, POINT, RECT, WPARAM};
use windows::Win32::Graphics::Dwm::{DWMWA_CLOAKED, DwmGetWindowAttribute};
use windows::Win32::Graphics::Gdi::ClientToScreen;
use windows::Win32::System::Threading::{AttachThreadInput, GetCurrentThreadId};
use windows::Win32::UI::WindowsAndMessaging::{
    BringWindowToTop, EnumWindows, GWL_EXSTYLE, GetClassNameW, GetClientRect, GetForegroundWindow,
    GetWindowLongPtrW, GetWindowRect, GetWindowTextW, GetWindowThreadProcessId, IsIconic, IsWindow,
    IsWindowVisible, PostMessageW, SW_MINIMIZE, SW_RESTORE, SWP_ASYNCWINDOWPOS, SWP_NOACTIVATE,
    SWP_NOZORDER, SetForegroundWindow, SetWindowPos, ShowWindowAsync, WM_CLOSE, WS_EX_TOOLWINDOW,
};
use windows::core::BOOL;

use super::monitors::rect;
use crate::base::Rect;
use crate::base::limits::{WINDOW_EFFECT_TIMEOUT_MS, WINDOW_POLL_MS};
use crate::platform::{PlatformError, Result, Window, Windows};

/// Longest title read, in UTF-16 units; the rest of a longer one is left out.
const TITLE_LEN_MAX: usize = 1024;
/// Longest class name that Windows allows, with its terminator.
const CLASS_LEN_MAX: usize = 257;

/// The windows of this session's desktop.
pub struct DesktopWindows;

impl Windows for DesktopWindows {
    fn list(&self) -> Result<Vec<Window>> {
        let shown = top_level()?.into_iter().filter(|hwnd| is_listed(*hwnd));
        // A window that has closed since is left out.
        Ok(shown.filter_map(|hwnd| describe(hwnd).ok()).collect())
    }

    fn get(&self, handle: u64) -> Result<Window> {
        describe(existing(handle)?)
    }

    fn foreground(&self) -> Result<Option<u64>> {
        // SAFETY: takes nothing.
        let hwnd = unsafe { GetForegroundWindow() };
        Ok((!hwnd.is_invalid()).then(|| handle_of(hwnd)))
    }

    fn activate(&self, handle: u64) -> Result<()> {
        let hwnd = existing(handle)?;
        if is_minimized(hwnd) {
            // SAFETY: the request is posted; a handle that has become stale is refused.
            let _ = unsafe { ShowWindowAsync(hwnd, SW_RESTORE) };
        }
        take_foreground(hwnd);
        // SAFETY: takes nothing.
        let in_front = || unsafe { GetForegroundWindow() } == hwnd && !is_minimized(hwnd);
        seen(handle, "come to the front", in_front)
    }

    fn place(&self, handle: u64, bounds: Rect) -> Result<()> {
        let hwnd = existing(handle)?;
        if is_minimized(hwnd) {
            // SAFETY: as in `activate`.
            let _ = unsafe { ShowWindowAsync(hwnd, SW_RESTORE) };
            seen(handle, "restore", || !is_minimized(hwnd))?;
        }
        let before = client_bounds(hwnd)?;
        let outer = outer_for(hwnd, before, bounds)?;
        let flags = SWP_NOZORDER | SWP_NOACTIVATE | SWP_ASYNCWINDOWPOS;
        let (width, height) = (signed(outer.width), signed(outer.height));
        // SAFETY: the request is posted to the window's thread; no memory of ours is kept.
        unsafe { SetWindowPos(hwnd, None, outer.x, outer.y, width, height, flags) }
            .map_err(|error| PlatformError::WindowRefused(format!("move ({})", error.message())))?;
        // A program may round its size (a terminal to whole cells), so any new place counts.
        seen(handle, "take its new place", || {
            client_bounds(hwnd).is_ok_and(|now| now == bounds || now != before)
        })
    }

    fn minimize(&self, handle: u64) -> Result<()> {
        let hwnd = existing(handle)?;
        // SAFETY: as in `activate`.
        let _ = unsafe { ShowWindowAsync(hwnd, SW_MINIMIZE) };
        seen(handle, "minimize", || is_minimized(hwnd))
    }

    fn close(&self, handle: u64) -> Result<()> {
        let hwnd = existing(handle)?;
        ask_to_close(hwnd)?;
        wait_until(|| existing(handle).is_err())
            .then_some(())
            .ok_or_else(|| PlatformError::WindowRefused("close".to_owned()))
    }
}

/// The window of a handle from outside, if there is one.
pub fn existing(handle: u64) -> Result<HWND> {
    let not_found = PlatformError::WindowNotFound(handle);
    let Ok(address) = usize::try_from(handle) else {
        return Err(not_found);
    };
    let hwnd = HWND(std::ptr::without_provenance_mut(address));
    // SAFETY: any value may be asked about.
    if address != 0 && unsafe { IsWindow(Some(hwnd)) }.as_bool() {
        Ok(hwnd)
    } else {
        Err(not_found)
    }
}

/// The client area in desktop coordinates.
pub fn client_bounds(hwnd: HWND) -> Result<Rect> {
    let gone = |_| PlatformError::WindowNotFound(handle_of(hwnd));
    let mut client = RECT::default();
    // SAFETY: the result is our own variable.
    unsafe { GetClientRect(hwnd, &mut client) }.map_err(gone)?;
    let mut origin = POINT::default();
    // SAFETY: the result is our own variable.
    if !unsafe { ClientToScreen(hwnd, &mut origin) }.as_bool() {
        return Err(PlatformError::WindowNotFound(handle_of(hwnd)));
    }
    let size = rect(client).size();
    Ok(Rect::new(origin.x, origin.y, size.width, size.height))
}

/// The whole window, frame included.
pub fn outer_bounds(hwnd: HWND) -> Result<Rect> {
    let mut outer = RECT::default();
    // SAFETY: the result is our own variable.
    unsafe { GetWindowRect(hwnd, &mut outer) }
        .map_err(|_| PlatformError::WindowNotFound(handle_of(hwnd)))?;
    Ok(rect(outer))
}

/// Every top-level window, topmost first.
pub fn top_level() -> Result<Vec<HWND>> {
    let mut found: Vec<HWND> = Vec::new();
    // SAFETY: the callback runs only during this call, with the pointer to `found` given here.
    unsafe { EnumWindows(Some(collect), LPARAM(&raw mut found as isize)) }.map_err(|error| {
        PlatformError::DisplayUnavailable(format!("list the windows: {}", error.message()))
    })?;
    Ok(found)
}

/// The process that a window belongs to.
pub fn pid_of(hwnd: HWND) -> Option<u32> {
    let mut pid = 0;
    // SAFETY: the result is our own variable.
    let thread = unsafe { GetWindowThreadProcessId(hwnd, Some(&mut pid)) };
    (thread != 0 && pid != 0).then_some(pid)
}

/// Whether a window is shown to the person, on this virtual desktop or minimised.
pub fn is_listed(hwnd: HWND) -> bool {
    // SAFETY: any handle may be asked about.
    let (visible, style) = unsafe {
        (
            IsWindowVisible(hwnd).as_bool(),
            GetWindowLongPtrW(hwnd, GWL_EXSTYLE),
        )
    };
    visible && style & WS_EX_TOOLWINDOW.0 as isize == 0 && !is_cloaked(hwnd)
}

/// Posts what the close button posts.
pub fn ask_to_close(hwnd: HWND) -> Result<()> {
    // SAFETY: the message carries no pointers.
    unsafe { PostMessageW(Some(hwnd), WM_CLOSE, WPARAM(0), LPARAM(0)) }
        .map_err(|error| PlatformError::WindowRefused(format!("close ({})", error.message())))
}

extern "system" fn collect(hwnd: HWND, target: LPARAM) -> BOOL {
    // SAFETY: `target` is the vector that `top_level` lends for the time of the enumeration.
    let found = unsafe { &mut *(target.0 as *mut Vec<HWND>) };
    found.push(hwnd);
    true.into()
}

fn handle_of(hwnd: HWND) -> u64 {
    hwnd.0.addr() as u64
}

fn describe(hwnd: HWND) -> Result<Window> {
    let bounds = client_bounds(hwnd)?;
    let mut title = [0u16; TITLE_LEN_MAX];
    let mut class = [0u16; CLASS_LEN_MAX];
    // SAFETY: the buffers' lengths go with them. Titles of other processes are read from the
    // window system, so a window that hangs cannot hold this up.
    let (title_len, class_len) = unsafe {
        (
            GetWindowTextW(hwnd, &mut title),
            GetClassNameW(hwnd, &mut class),
        )
    };
    Ok(Window {
        handle: handle_of(hwnd),
        title: text(&title, title_len),
        class: text(&class, class_len),
        pid: pid_of(hwnd),
        minimized: Some(is_minimized(hwnd)),
        bounds,
    })
}

fn text(units: &[u16], len: i32) -> String {
    let len = usize::try_from(len).unwrap_or(0);
    String::from_utf16_lossy(units.get(..len).unwrap_or_default())
}

fn is_minimized(hwnd: HWND) -> bool {
    // SAFETY: any handle may be asked about.
    unsafe { IsIconic(hwnd) }.as_bool()
}

/// Windows of suspended store programs and of other virtual desktops are "visible" but cloaked.
fn is_cloaked(hwnd: HWND) -> bool {
    let mut cloaked = 0u32;
    let target = (&raw mut cloaked).cast();
    // SAFETY: the result is our own variable, of the size given.
    let known =
        unsafe { DwmGetWindowAttribute(hwnd, DWMWA_CLOAKED, target, size_of::<u32>() as u32) };
    known.is_ok() && cloaked != 0
}

/// Where the whole window has to be so that its client area is at `client`.
fn outer_for(hwnd: HWND, now: Rect, client: Rect) -> Result<Rect> {
    let outer = outer_bounds(hwnd)?;
    let wider = outer.width.saturating_sub(now.width);
    let higher = outer.height.saturating_sub(now.height);
    Ok(Rect::new(
        client.x.saturating_sub(now.x.saturating_sub(outer.x)),
        client.y.saturating_sub(now.y.saturating_sub(outer.y)),
        client.width.saturating_add(wider),
        client.height.saturating_add(higher),
    ))
}

/// Windows lets only the thread with the keyboard pass it on; joined to that thread we may.
fn take_foreground(hwnd: HWND) {
    // SAFETY: handles and thread numbers may be stale; every call then refuses. The threads are
    // parted again before this returns.
    unsafe {
        let owner = GetWindowThreadProcessId(GetForegroundWindow(), None);
        let own = GetCurrentThreadId();
        let joined = owner != 0 && owner != own && AttachThreadInput(own, owner, true).as_bool();
        let _ = BringWindowToTop(hwnd);
        let _ = SetForegroundWindow(hwnd);
        if joined {
            let _ = AttachThreadInput(own, owner, false);
        }
    }
}

/// Waits until the window shows the effect; a window that goes meanwhile is not found.
fn seen(handle: u64, what: &str, yes: impl Fn() -> bool) -> Result<()> {
    let shown = wait_until(|| yes() || existing(handle).is_err());
    existing(handle)?;
    if shown {
        Ok(())
    } else {
        Err(PlatformError::WindowRefused(what.to_owned()))
    }
}

fn wait_until(yes: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_millis(WINDOW_EFFECT_TIMEOUT_MS);
    while !yes() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(WINDOW_POLL_MS));
    }
    true
}

fn signed(length: u32) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}
