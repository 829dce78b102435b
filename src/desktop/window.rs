//! Windows by query, and the foreground program.

use std::time::Duration;

use super::{Desktop, fault};
use crate::base::Rect;
use crate::platform::Windows;
use crate::wire::Fault;
use crate::wire::messages::desktop as msg;

impl Desktop {
    fn window_system(&self) -> Result<&dyn Windows, Fault> {
        self.backend
            .windows
            .as_deref()
            .map_err(|error| fault(error.clone()))
    }

    /// Windows that fit the query, topmost first.
    pub fn windows(&self, query: &msg::WindowQuery) -> Result<Vec<msg::Window>, Fault> {
        let _ = (query, self.window_system()?);
        todo!("desktop helper A")
    }

    /// One window.
    pub fn window(&self, handle: u64) -> Result<msg::Window, Fault> {
        let _ = handle;
        todo!("desktop helper A")
    }

    /// The window that has the keyboard.
    pub fn foreground_window(&self) -> Result<Option<msg::Window>, Fault> {
        todo!("desktop helper A")
    }

    /// The foreground program's identity.
    pub fn foreground(&self) -> msg::ForegroundState {
        todo!("desktop helper A")
    }

    pub fn activate_window(&self, handle: u64) -> Result<(), Fault> {
        self.window_system()?.activate(handle).map_err(fault)
    }

    /// Moves and resizes; the new bounds as the window system reports them.
    pub fn place_window(&self, handle: u64, bounds: Rect) -> Result<msg::Window, Fault> {
        self.window_system()?.place(handle, bounds).map_err(fault)?;
        self.window(handle)
    }

    pub fn minimize_window(&self, handle: u64) -> Result<(), Fault> {
        self.window_system()?.minimize(handle).map_err(fault)
    }

    pub fn close_window(&self, handle: u64) -> Result<(), Fault> {
        self.window_system()?.close(handle).map_err(fault)
    }

    /// Waits until a window fits; `None` when the time has passed or `cancelled` answered true.
    pub fn wait_window(
        &self,
        query: &msg::WindowQuery,
        timeout: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<msg::Window>, Fault> {
        let _ = (query, timeout, cancelled);
        todo!("desktop helper A")
    }
}
