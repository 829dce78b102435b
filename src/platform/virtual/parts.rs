//! The parts of the virtual display, each a view of its one state.

use std::sync::Arc;
use std::time::Duration;

use super::{Held, InputEvent, State, VirtualDisplay};
use crate::base::{Point, Rect};
use crate::platform::{
    Area, Button, Capture, Clipboard, Cursor, Frame, Input, InputOwner, Launch, Monitor,
    PixelFormat, PlatformError, Press, Process, Processes, Result, RgbaImage, Terminate,
    VirtualKey, Window, Windows,
};

const BACKEND: &str = "virtual";

/// Grabs from the scripted pictures.
pub struct VirtualCapture(pub(super) VirtualDisplay);

impl Capture for VirtualCapture {
    fn monitors(&self) -> Result<Vec<Monitor>> {
        Ok(self.0.alive()?.monitors.clone())
    }

    fn desktop_bounds(&self) -> Result<Rect> {
        let state = self.0.alive()?;
        let size = state.pictures.first().map(super::Picture::size);
        let size = size.unwrap_or_default();
        Ok(Rect::new(0, 0, size.width, size.height))
    }

    fn grab(&self, area: Area, cursor: Cursor) -> Result<Frame> {
        let mut state = self.0.alive()?;
        let region = match area {
            Area::Desktop(region) => region,
            Area::Window { handle, region } => {
                let bounds = find(&state, handle)?.bounds;
                let part = region.map_or(bounds, |part| part.translated(bounds.origin()));
                bounds
                    .intersection(part)
                    .ok_or(PlatformError::RegionInvalid(part))?
            }
        };
        let picture = match state.pictures.len() {
            0 => return Err(PlatformError::CaptureFailed("no picture is left".into())),
            1 => state.pictures[0].clone(),
            _ => state.pictures.remove(0),
        };
        let whole = Rect::new(0, 0, picture.size.width, picture.size.height);
        let region = whole
            .intersection(region)
            .ok_or(PlatformError::RegionInvalid(region))?;
        let stride = picture.size.width as usize * 4;
        let start = region.y as usize * stride + region.x as usize * 4;
        let pixels = Arc::new(picture.pixels[start..].to_vec());
        let drawn = cursor == Cursor::Drawn;
        Frame::new(region, stride, PixelFormat::Bgrx, BACKEND, drawn, pixels)
            .map_err(|short| PlatformError::CaptureFailed(short.to_string()))
    }

    fn backend(&self) -> &'static str {
        BACKEND
    }
}

fn find(state: &State, handle: u64) -> Result<&Window> {
    let found = state.windows.iter().find(|window| window.handle == handle);
    found.ok_or(PlatformError::WindowNotFound(handle))
}

fn find_mut(state: &mut State, handle: u64) -> Result<&mut Window> {
    let mut windows = state.windows.iter_mut();
    windows
        .find(|window| window.handle == handle)
        .ok_or(PlatformError::WindowNotFound(handle))
}

/// Arranges the scripted windows at once.
pub struct VirtualWindows(pub(super) VirtualDisplay);

impl Windows for VirtualWindows {
    fn list(&self) -> Result<Vec<Window>> {
        Ok(self.0.alive()?.windows.clone())
    }

    fn get(&self, handle: u64) -> Result<Window> {
        find(&*self.0.alive()?, handle).cloned()
    }

    fn foreground(&self) -> Result<Option<u64>> {
        Ok(self.0.alive()?.foreground)
    }

    fn activate(&self, handle: u64) -> Result<()> {
        let mut state = self.0.alive()?;
        find_mut(&mut state, handle)?.minimized = Some(false);
        state.windows.sort_by_key(|window| window.handle != handle);
        state.foreground = Some(handle);
        Ok(())
    }

    fn place(&self, handle: u64, bounds: Rect) -> Result<()> {
        find_mut(&mut *self.0.alive()?, handle)?.bounds = bounds;
        Ok(())
    }

    fn minimize(&self, handle: u64) -> Result<()> {
        let mut state = self.0.alive()?;
        find_mut(&mut state, handle)?.minimized = Some(true);
        if state.foreground == Some(handle) {
            state.foreground = None;
        }
        Ok(())
    }

    fn close(&self, handle: u64) -> Result<()> {
        let mut state = self.0.alive()?;
        find(&state, handle)?;
        state.windows.retain(|window| window.handle != handle);
        if state.foreground == Some(handle) {
            state.foreground = None;
        }
        Ok(())
    }
}

/// Records input instead of injecting it.
pub struct VirtualInput(pub(super) VirtualDisplay);

impl VirtualInput {
    fn held(state: &mut State, owner: InputOwner, what: Held, press: Press) {
        state.held.retain(|held| *held != (owner, what));
        if press == Press::Down {
            state.held.push((owner, what));
        }
    }
}

impl Input for VirtualInput {
    fn pointer(&self) -> Result<Point> {
        Ok(self.0.alive()?.pointer)
    }

    fn move_to(&self, to: Point) -> Result<()> {
        let mut state = self.0.alive()?;
        state.pointer = to;
        state.input.push(InputEvent::Move(to));
        Ok(())
    }

    fn button(&self, owner: InputOwner, button: Button, press: Press) -> Result<()> {
        let mut state = self.0.alive()?;
        Self::held(&mut state, owner, Held::Button(button), press);
        state.input.push(InputEvent::Button(owner, button, press));
        Ok(())
    }

    fn scroll(&self, x: i32, y: i32) -> Result<()> {
        self.0.alive()?.input.push(InputEvent::Scroll { x, y });
        Ok(())
    }

    fn key(&self, owner: InputOwner, key: VirtualKey, press: Press) -> Result<()> {
        let mut state = self.0.alive()?;
        Self::held(&mut state, owner, Held::Key(key), press);
        state.input.push(InputEvent::Key(owner, key, press));
        Ok(())
    }

    fn type_text(
        &self,
        owner: InputOwner,
        text: &str,
        between: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut typed = String::new();
        for character in text.chars() {
            if cancelled() {
                break;
            }
            typed.push(character);
            std::thread::sleep(between);
        }
        let mut state = self.0.alive()?;
        state.input.push(InputEvent::Text(owner, typed));
        Ok(())
    }

    fn release(&self, owner: InputOwner) -> Result<usize> {
        let mut state = self.0.alive()?;
        let held = std::mem::take(&mut state.held);
        let (mine, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|(by, _)| *by == owner);
        state.held = others;
        for (owner, what) in &mine {
            state.input.push(match what {
                Held::Button(button) => InputEvent::Button(*owner, *button, Press::Up),
                Held::Key(key) => InputEvent::Key(*owner, *key, Press::Up),
            });
        }
        Ok(mine.len())
    }
}

/// A clipboard that holds a text or an image.
pub struct VirtualClipboard(pub(super) VirtualDisplay);

impl VirtualClipboard {
    fn replace(&self, text: Option<String>, image: Option<RgbaImage>) -> Result<()> {
        let mut state = self.0.alive()?;
        state.clipboard_text = text;
        state.clipboard_image = image;
        Ok(())
    }
}

impl Clipboard for VirtualClipboard {
    fn text(&self) -> Result<String> {
        let text = self.0.alive()?.clipboard_text.clone();
        text.ok_or(PlatformError::ClipboardEmpty("text"))
    }

    fn set_text(&self, text: &str) -> Result<()> {
        self.replace(Some(text.to_owned()), None)
    }

    fn image(&self) -> Result<RgbaImage> {
        let image = self.0.alive()?.clipboard_image.clone();
        image.ok_or(PlatformError::ClipboardEmpty("image"))
    }

    fn set_image(&self, image: RgbaImage) -> Result<()> {
        self.replace(None, Some(image))
    }

    fn clear(&self) -> Result<()> {
        self.replace(None, None)
    }
}

/// The scripted process list; nothing is really started.
pub struct VirtualProcesses(pub(super) VirtualDisplay);

impl Processes for VirtualProcesses {
    fn list(&self) -> Result<Vec<Process>> {
        Ok(self.0.alive()?.processes.clone())
    }

    fn get(&self, pid: u32) -> Result<Process> {
        let state = self.0.alive()?;
        let found = state.processes.iter().find(|process| process.pid == pid);
        found.cloned().ok_or(PlatformError::ProcessNotFound(pid))
    }

    fn start(&self, launch: &Launch) -> Result<u32> {
        let mut state = self.0.alive()?;
        let highest = state.processes.iter().map(|process| process.pid).max();
        let pid = highest.unwrap_or(0).saturating_add(1);
        state.processes.push(Process {
            pid,
            parent: None,
            name: launch.program.clone(),
            path: Some(launch.program.clone().into()),
        });
        state.launched.push(launch.clone());
        Ok(pid)
    }

    fn wait(&self, pid: u32, timeout: Duration, cancelled: &dyn Fn() -> bool) -> Result<bool> {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let runs = self.0.alive()?.processes.iter().any(|p| p.pid == pid);
            if !runs {
                return Ok(true);
            }
            if cancelled() || std::time::Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn terminate(&self, pid: u32, how: Terminate) -> Result<()> {
        let mut state = self.0.alive()?;
        let mut ended = vec![pid];
        if !state.processes.iter().any(|process| process.pid == pid) {
            return Err(PlatformError::ProcessNotFound(pid));
        }
        if how == Terminate::Tree {
            // Parents come before their children, as they do where processes are really started.
            for process in &state.processes {
                if process.parent.is_some_and(|parent| ended.contains(&parent)) {
                    ended.push(process.pid);
                }
            }
        }
        state
            .processes
            .retain(|process| !ended.contains(&process.pid));
        Ok(())
    }
}
