//! Windows by query, and the foreground program.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::{Desktop, fault};
use crate::base::{EpochMillis, Rect, limits};
use crate::platform::{PlatformError, Process, Window, Windows};
use crate::wire::Fault;
use crate::wire::messages::desktop as msg;

impl Desktop {
    pub(super) fn window_system(&self) -> Result<&dyn Windows, Fault> {
        self.backend
            .windows
            .as_deref()
            .map_err(|error| fault(error.clone()))
    }

    /// Windows that fit the query, topmost first.
    pub fn windows(&self, query: &msg::WindowQuery) -> Result<Vec<msg::Window>, Fault> {
        let system = self.window_system()?;
        let listed = system.list().map_err(fault)?;
        let foreground = system.foreground().map_err(fault)?;
        let mut names = ProcessNames::new(self);
        let shown = listed
            .into_iter()
            .map(|window| names.describe(window, foreground));
        Ok(shown.filter(|window| fits(query, window)).collect())
    }

    /// One window.
    pub fn window(&self, handle: u64) -> Result<msg::Window, Fault> {
        let system = self.window_system()?;
        let window = system.get(handle).map_err(fault)?;
        let foreground = system.foreground().map_err(fault)?;
        Ok(ProcessNames::new(self).describe(window, foreground))
    }

    /// The window that has the keyboard.
    pub fn foreground_window(&self) -> Result<Option<msg::Window>, Fault> {
        let system = self.window_system()?;
        let Some(handle) = system.foreground().map_err(fault)? else {
            return Ok(None);
        };
        match system.get(handle) {
            Ok(window) => {
                let names = &mut ProcessNames::new(self);
                Ok(Some(names.describe(window, Some(handle))))
            }
            // It went away between the two questions.
            Err(PlatformError::WindowNotFound(_)) => Ok(None),
            Err(error) => Err(fault(error)),
        }
    }

    /// The foreground program's identity, or the first thing that keeps it from being known.
    pub fn foreground(&self) -> msg::ForegroundState {
        match self.identify_foreground() {
            Ok(foreground) => msg::ForegroundState::Known(foreground),
            Err(reason) => msg::ForegroundState::Unavailable { reason },
        }
    }

    fn identify_foreground(&self) -> Result<msg::Foreground, String> {
        let because = |error: Fault| error.message.into_owned();
        let system = self.window_system().map_err(because)?;
        let handle = system.foreground().map_err(|error| error.to_string())?;
        let observed_at = EpochMillis::now();
        let handle = handle.ok_or("no window is in the foreground")?;
        let window = system.get(handle).map_err(|error| error.to_string())?;
        let pid = window
            .pid
            .ok_or_else(|| format!("window {handle:#x} does not tell its process"))?;
        let process = self.process(pid).map_err(because)?;
        let path = process
            .path
            .as_ref()
            .ok_or_else(|| format!("the executable of process {pid} may not be read"))?;
        Ok(msg::Foreground {
            observed_at,
            process_id: pid,
            executable_name: executable_name(&process),
            executable_path: path.to_string_lossy().into_owned(),
            window_title: (!window.title.is_empty()).then_some(window.title),
        })
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
        let begun = Instant::now();
        let pause = Duration::from_millis(limits::WINDOW_POLL_MS);
        loop {
            if let Some(found) = self.windows(query)?.into_iter().next() {
                return Ok(Some(found));
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() || cancelled() {
                return Ok(None);
            }
            std::thread::sleep(pause.min(left));
        }
    }
}

/// Names of processes, each looked up once for a list of windows.
struct ProcessNames<'a> {
    desktop: &'a Desktop,
    known: HashMap<u32, Option<String>>,
}

impl<'a> ProcessNames<'a> {
    fn new(desktop: &'a Desktop) -> Self {
        Self {
            desktop,
            known: HashMap::new(),
        }
    }

    fn describe(&mut self, window: Window, foreground: Option<u64>) -> msg::Window {
        let process_name = window.pid.and_then(|pid| {
            let name = self.known.entry(pid).or_insert_with(|| {
                let process = self.desktop.process(pid).ok()?;
                Some(executable_name(&process))
            });
            name.clone()
        });
        msg::Window {
            handle: window.handle,
            is_foreground: foreground == Some(window.handle),
            title: window.title,
            class: window.class,
            process_id: window.pid,
            process_name,
            is_minimized: window.minimized,
            bounds: window.bounds,
        }
    }
}

/// The executable's file name; the process's own name, which systems cut short, without it.
fn executable_name(process: &Process) -> String {
    let file = process.path.as_ref().and_then(|path| path.file_name());
    file.map_or_else(
        || process.name.clone(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn fits(query: &msg::WindowQuery, window: &msg::Window) -> bool {
    let text = |wanted: &Option<String>, given: Option<&str>| match (wanted, given) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wanted), Some(given)) if query.exact => wanted == given,
        (Some(wanted), Some(given)) => given.to_lowercase().contains(&wanted.to_lowercase()),
    };
    text(&query.title, Some(&window.title))
        && text(&query.class, Some(&window.class))
        && text(&query.process, window.process_name.as_deref())
        && (query.process_id.is_none() || query.process_id == window.process_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Color, Size};
    use crate::platform::virtual_display::{Picture, VirtualDisplay};
    use crate::wire::Code;

    fn display() -> (VirtualDisplay, Desktop) {
        let size = Size {
            width: 8,
            height: 8,
        };
        let display = VirtualDisplay::new([Picture::filled(size, Color::default())]);
        {
            let mut state = display.state();
            for (handle, title, pid) in [(1, "Editor – a.txt", Some(10)), (2, "Terminal", None)] {
                state.windows.push(Window {
                    handle,
                    title: title.into(),
                    class: "App".into(),
                    pid,
                    minimized: Some(false),
                    bounds: Rect::new(0, 0, 4, 4),
                });
            }
            state.processes.push(Process {
                pid: 10,
                parent: None,
                name: "very-long-nam".into(),
                path: Some("/opt/very-long-name".into()),
            });
            state.foreground = Some(1);
        }
        let desktop = Desktop::with_backend(display.backend());
        (display, desktop)
    }

    #[test]
    fn queries_match_case_insensitive_parts_unless_exact() {
        let (_display, desktop) = display();
        let query = |title: &str, exact| msg::WindowQuery {
            title: Some(title.into()),
            exact,
            ..Default::default()
        };
        assert_eq!(desktop.windows(&query("EDITOR", false)).unwrap().len(), 1);
        assert_eq!(desktop.windows(&query("EDITOR", true)).unwrap().len(), 0);
        assert_eq!(desktop.windows(&query("Terminal", true)).unwrap().len(), 1);
        let by_process = msg::WindowQuery {
            process: Some("long-name".into()),
            ..Default::default()
        };
        let found = desktop.windows(&by_process).unwrap();
        assert_eq!(found[0].process_name.as_deref(), Some("very-long-name"));
        assert!(found[0].is_foreground);
        let both = msg::WindowQuery {
            title: Some("terminal".into()),
            ..by_process
        };
        assert!(desktop.windows(&both).unwrap().is_empty());
    }

    #[test]
    fn foreground_says_why_it_is_unknown() {
        let (display, desktop) = display();
        let msg::ForegroundState::Known(known) = desktop.foreground() else {
            panic!("the foreground is known");
        };
        assert_eq!(known.executable_path, "/opt/very-long-name");
        assert_eq!(known.window_title.as_deref(), Some("Editor – a.txt"));
        display.state().foreground = Some(2);
        let msg::ForegroundState::Unavailable { reason } = desktop.foreground() else {
            panic!("window 2 has no process");
        };
        assert!(reason.contains("does not tell its process"), "{reason}");
        display.state().foreground = None;
        assert_eq!(desktop.foreground_window().unwrap(), None);
    }

    #[test]
    fn waiting_ends_with_the_window_the_time_or_the_caller() {
        let (display, desktop) = display();
        let query = msg::WindowQuery {
            title: Some("late".into()),
            ..Default::default()
        };
        let none = desktop.wait_window(&query, Duration::ZERO, &|| false);
        assert_eq!(none.unwrap(), None);
        let hour = Duration::from_secs(3600);
        assert_eq!(desktop.wait_window(&query, hour, &|| true).unwrap(), None);
        let arrives = || {
            display.state().windows[0].title = "Late".into();
            false
        };
        let found = desktop.wait_window(&query, hour, &arrives).unwrap();
        assert_eq!(found.map(|window| window.handle), Some(1));
        display.state().failure = Some(crate::platform::PlatformError::DisplayUnavailable(
            "gone".into(),
        ));
        let error = desktop.wait_window(&query, hour, &|| false).unwrap_err();
        assert_eq!(error.code, Code::DisplayUnavailable);
    }
}
