//! Finds the host's display, or starts one of our own: Xvfb with a window manager where one is
//! installed.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process, set_parent_process_death_signal};
use x11rb::connection::{Connection, RequestConnection};
use x11rb::protocol::xproto::{
    AccessControl, AtomEnum, ConnectionExt as _, CreateWindowAux, Family, HostMode, WindowClass,
};

use super::x11;
use crate::base::{Size, limits};
use crate::platform::display::DisplayFinding;
use crate::platform::{PlatformError, Result};

const XVFB: &str = "Xvfb";
const WINDOW_MANAGER: &str = "openbox";
/// Xwayland announces itself by this extension, or by its monitors' names where it is older.
const XWAYLAND: &str = "XWAYLAND";

/// The session's Wayland variables.
fn wayland_session() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    set("WAYLAND_DISPLAY") || std::env::var("XDG_SESSION_TYPE").is_ok_and(|kind| kind == "wayland")
}

fn display_variable() -> Option<String> {
    std::env::var("DISPLAY")
        .ok()
        .filter(|name| !name.is_empty())
}

/// Looks for the environment's display and tries it; blocks for a few seconds at most.
pub fn find() -> DisplayFinding {
    let display = display_variable();
    let probe = display.as_deref().map(probe);
    judge(display, wayland_session(), probe)
}

/// What a server that answers is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Plain,
    Xwayland,
}

fn probe(display: &str) -> Result<Server> {
    let (connection, _) = x11::connect(display)?;
    let broken = |error: &dyn std::fmt::Display| {
        PlatformError::DisplayUnavailable(format!("{display}: {error}"))
    };
    let extension = connection
        .extension_information(XWAYLAND)
        .map_err(|error| broken(&error))?;
    if extension.is_some() {
        return Ok(Server::Xwayland);
    }
    let monitors = x11::Link::new(display, super::monitors::monitors)
        .run("list the monitors", |_, monitors| Ok(monitors.clone()))?;
    let wayland = monitors.iter().any(|m| m.name.starts_with(XWAYLAND));
    Ok(if wayland {
        Server::Xwayland
    } else {
        Server::Plain
    })
}

fn judge(display: Option<String>, wayland: bool, probe: Option<Result<Server>>) -> DisplayFinding {
    match (display, probe) {
        _ if wayland => DisplayFinding::Wayland,
        (Some(_), Some(Ok(Server::Xwayland))) => DisplayFinding::Wayland,
        (Some(display), Some(Ok(Server::Plain))) => DisplayFinding::Usable(display),
        (Some(display), Some(Err(error))) => DisplayFinding::Stale {
            display,
            reason: error.to_string(),
        },
        _ => DisplayFinding::Absent,
    }
}

/// The display to open: the one named, which is trusted, else the environment's unless the session
/// is Wayland.
pub(super) fn chosen(named: Option<&str>) -> Result<String> {
    if let Some(name) = named {
        return Ok(name.to_owned());
    }
    if wayland_session() {
        return Err(PlatformError::Unsupported(
            "the session is Wayland, where captures through XWayland are black; name an X11 display"
                .into(),
        ));
    }
    display_variable().ok_or_else(|| {
        PlatformError::DisplayUnavailable("DISPLAY is not set, so there is no desktop".into())
    })
}

/// An X server of our own. It ends, with its window manager, when this is dropped or this process
/// dies.
#[derive(Debug)]
pub struct OwnDisplay {
    name: String,
    window_manager: Option<&'static str>,
    stop: Option<mpsc::Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

/// What the keeper thread tells once the display is up.
struct Started {
    name: String,
    window_manager: Option<&'static str>,
}

impl OwnDisplay {
    /// Starts Xvfb on a free display number, reachable by this user alone, and openbox where it is
    /// installed. Blocks until the server answers; an absent Xvfb is `Unsupported` naming its
    /// package.
    pub fn start(size: Size) -> Result<Self> {
        let (report, reported) = mpsc::sync_channel(1);
        let (stop, stopped) = mpsc::channel();
        // The kernel ends the children when the thread that started them ends, so that thread stays
        // for as long as the display does.
        let keeper = std::thread::Builder::new()
            .name("own-display".into())
            .spawn(move || keep(size, &report, &stopped))
            .map_err(|error| io("start a thread for the display", &error))?;
        let patience = Duration::from_millis(limits::DISPLAY_START_TIMEOUT_MS);
        let started = match reported.recv_timeout(patience) {
            Ok(started) => started?,
            Err(_) => {
                return Err(PlatformError::DisplayUnavailable(format!(
                    "{XVFB} did not start within {} s",
                    patience.as_secs()
                )));
            }
        };
        Ok(Self {
            name: started.name,
            window_manager: started.window_manager,
            stop: Some(stop),
            keeper: Some(keeper),
        })
    }

    /// The display's name, such as `:99`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The window manager that was started; `None` where none is installed.
    pub fn window_manager(&self) -> Option<&'static str> {
        self.window_manager
    }
}

impl Drop for OwnDisplay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            // A keeper that panicked has dropped, and so ended, its children.
            let _ = keeper.join();
        }
    }
}

/// A child that is ended and reaped when dropped: asked first, since a killed X server leaves its
/// lock and its socket behind.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_millis(limits::DISPLAY_STOP_TIMEOUT_MS);
        // One that has ended already has only its status to collect.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(limits::WINDOW_POLL_MS));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the display's programs until `stopped` hangs up.
fn keep(size: Size, report: &mpsc::SyncSender<Result<Started>>, stopped: &mpsc::Receiver<()>) {
    let (server, name) = match start_server(size) {
        Ok(started) => started,
        Err(error) => {
            // The caller may have given up waiting.
            let _ = report.send(Err(error));
            return;
        }
    };
    let manager = start_window_manager(&name);
    let started = Started {
        name,
        window_manager: manager.as_ref().map(|_| WINDOW_MANAGER),
    };
    if report.send(Ok(started)).is_ok() {
        // Nothing is ever sent: the other end is dropped when the display should end.
        let _ = stopped.recv();
    }
    drop(manager);
    drop(server);
}

fn start_server(size: Size) -> Result<(Owned, String)> {
    let screen = format!("{}x{}x24", size.width, size.height);
    let mut server = spawn(
        Command::new(XVFB)
            .args(["-displayfd", "1", "-screen", "0", &screen, "-dpi", "96"])
            // No screen saver, or the desktop turns black after ten minutes.
            .args(["-nolisten", "tcp", "-noreset", "-s", "0"])
            .stdout(Stdio::piped()),
    )?;
    let mut number = String::new();
    if let Some(stdout) = server.0.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut number)
            .map_err(|error| io("read the display's number", &error))?;
    }
    let number: u32 = number.trim().parse().map_err(|_| {
        PlatformError::DisplayUnavailable(format!("{XVFB} ended before it was ready"))
    })?;
    let name = format!(":{number}");
    admit_own_user(&name)?;
    Ok((server, name))
}

/// Xvfb without an authority file lets every local user in. This admits our own user alone.
fn admit_own_user(display: &str) -> Result<()> {
    let (connection, _) = x11::connect(display)?;
    let restrict = || -> std::result::Result<(), x11::Trouble> {
        let user = format!("localuser\0#{}", geteuid().as_raw());
        let family = Family::SERVER_INTERPRETED;
        connection
            .change_hosts(HostMode::INSERT, family, user.as_bytes())?
            .check()?;
        for host in connection.list_hosts()?.reply()?.hosts {
            if host.family != family {
                connection
                    .change_hosts(HostMode::DELETE, host.family, &host.address)?
                    .check()?;
            }
        }
        connection
            .set_access_control(AccessControl::ENABLE)?
            .check()?;
        Ok(())
    };
    restrict().map_err(|trouble| trouble.into_error("restrict the display to this user"))
}

fn start_window_manager(display: &str) -> Option<Owned> {
    let mut command = Command::new(WINDOW_MANAGER);
    // What it says of its menus is for the owner of a desktop, not of this process.
    command
        .arg("--sm-disable")
        .env("DISPLAY", display)
        .stdout(Stdio::null());
    let started = spawn(&mut command);
    let manager = match started {
        Ok(manager) => manager,
        Err(error) => {
            tracing::warn!(%error, "the display has no window manager");
            return None;
        }
    };
    if let Err(error) = await_management(display) {
        tracing::warn!(%error, "the window manager does not manage windows");
        return None;
    }
    Some(manager)
}

/// Waits until the window manager manages. Openbox can leave a window that appears while it starts
/// unmanaged until something else happens, so windows of our own are shown, one after the other,
/// until one is taken.
fn await_management(display: &str) -> Result<()> {
    let (connection, screen) = x11::connect(display)?;
    // INVARIANT: connecting checked that the screen exists.
    let root = connection.setup().roots[screen].root;
    let deadline = Instant::now() + Duration::from_millis(limits::DISPLAY_START_TIMEOUT_MS) / 2;
    let managed = || -> std::result::Result<bool, x11::Trouble> {
        let state = connection.intern_atom(false, b"WM_STATE")?.reply()?.atom;
        let window = connection.generate_id()?;
        let look = CreateWindowAux::new();
        let class = WindowClass::INPUT_OUTPUT;
        connection.create_window(0, window, root, 0, 0, 9, 9, 0, class, 0, &look)?;
        connection.map_window(window)?;
        connection.flush()?;
        std::thread::sleep(Duration::from_millis(limits::WINDOW_POLL_MS));
        let state = connection.get_property(false, window, state, AtomEnum::ANY, 0, 2)?;
        let found = state.reply()?.length > 0;
        connection.destroy_window(window)?.check()?;
        Ok(found)
    };
    loop {
        if managed().map_err(|trouble| trouble.into_error("wait for the window manager"))? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(PlatformError::WindowRefused("get managed".into()));
        }
    }
}

fn spawn(command: &mut Command) -> Result<Owned> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the closure makes one system call and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            set_parent_process_death_signal(Some(Signal::TERM)).map_err(std::io::Error::from)
        });
    }
    command.spawn().map(Owned).map_err(|error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            let package = program.to_lowercase();
            PlatformError::Unsupported(format!(
                "{program} is not installed (Debian: apt-get install {package})"
            ))
        } else {
            io(&format!("start {program}"), &error)
        }
    })
}

fn io(what: &str, error: &dyn std::fmt::Display) -> PlatformError {
    PlatformError::Io {
        what: what.to_owned(),
        source_text: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wayland_outweighs_a_display_that_answers() {
        let named = || Some(":0".to_owned());
        let dead = || Err(PlatformError::DisplayUnavailable("refused".into()));
        assert_eq!(judge(None, false, None), DisplayFinding::Absent);
        assert_eq!(
            judge(named(), false, Some(Ok(Server::Plain))),
            DisplayFinding::Usable(":0".into())
        );
        assert_eq!(
            judge(named(), true, Some(Ok(Server::Plain))),
            DisplayFinding::Wayland
        );
        assert_eq!(
            judge(named(), false, Some(Ok(Server::Xwayland))),
            DisplayFinding::Wayland
        );
        assert!(matches!(
            judge(named(), false, Some(dead())),
            DisplayFinding::Stale { .. }
        ));
    }
}
