//! Top-level windows: through the window manager's EWMH properties, or the window tree where there
//! is no window manager.

use std::time::{Duration, Instant};

use x11rb::properties::WmSizeHints;
use x11rb::protocol::xproto::{
    ClientMessageEvent, ConfigureWindowAux, ConnectionExt as _, EventMask, InputFocus, MapState,
    StackMode, Window as XWindow,
};

use super::capture::top_level;
use super::properties::{Atoms32, Description, Wanted};
use super::x11::{Link, Session, Trouble};
use crate::base::{Point, Rect, limits};
use crate::platform::{PlatformError, Result, Window, Windows};

type Answer<T> = std::result::Result<T, Trouble>;

/// EWMH: the request comes from a pager or another program that acts for the person.
const SOURCE_PAGER: u32 = 2;
/// ICCCM: the state that WM_CHANGE_STATE asks for.
const ICONIC_STATE: u32 = 3;
/// EWMH: x and y of _NET_MOVERESIZE_WINDOW mean the client area.
const GRAVITY_STATIC: u32 = 10;
/// EWMH: x, y, width and height are all given.
const MOVERESIZE_ALL: u32 = 0b1111 << 8;

/// A window that stands elsewhere this long after it was asked is asked again.
const SETTLE: Duration = Duration::from_millis(150);

/// The windows of one X display.
pub struct X11Windows {
    link: Link<()>,
}

/// Names the display whose windows to arrange; it is connected to on the first call.
pub fn open(display: &str) -> Result<Box<dyn Windows>> {
    Ok(Box::new(X11Windows {
        link: Link::new(display, |_| Ok(())),
    }))
}

impl Windows for X11Windows {
    fn list(&self) -> Result<Vec<Window>> {
        self.link.run("list the windows", |session, ()| {
            let managed = client_list(session)?;
            let (handles, wanted) = match managed {
                Some(clients) => (clients, Wanted::Managed),
                None => (children(session)?, Wanted::Unmanaged),
            };
            describe_all(session, &handles, wanted)
        })
    }

    fn get(&self, handle: u64) -> Result<Window> {
        self.on(handle, "look at the window", |session, window| {
            let described = Description::ask(session, window)?.read(session)?;
            Ok(described.window)
        })
    }

    fn foreground(&self) -> Result<Option<u64>> {
        self.link.run("find the foreground window", |session, ()| {
            Ok(foreground(session)?.map(u64::from))
        })
    }

    fn activate(&self, handle: u64) -> Result<()> {
        self.on(handle, "activate the window", |session, window| {
            if manages(session, session.atoms._NET_ACTIVE_WINDOW)? {
                let data = [SOURCE_PAGER, x11rb::CURRENT_TIME, 0, 0, 0];
                ask_manager(session, window, session.atoms._NET_ACTIVE_WINDOW, data)
            } else {
                raise(session, window)
            }
        })?;
        self.until(handle, "come to the front", |session, window| {
            let viewable = is_viewable(session, window)?;
            Ok(viewable && foreground(session)? == Some(window))
        })
    }

    fn place(&self, handle: u64, bounds: Rect) -> Result<()> {
        if bounds.is_empty() {
            return Err(PlatformError::RegionInvalid(bounds));
        }
        let mut aim = bounds;
        let mut asked_at = None::<Instant>;
        self.until(handle, "take its place", |session, window| {
            let settled = asked_at.is_none_or(|at| at.elapsed() >= SETTLE);
            if has_place(session, window, bounds)? {
                return Ok(true);
            }
            if settled {
                if asked_at.is_some() {
                    // Window managers differ in what they make of borders: correct by what is seen.
                    let seen = origin(session, window)?;
                    aim.x = aim.x.saturating_add(bounds.x.saturating_sub(seen.x));
                    aim.y = aim.y.saturating_add(bounds.y.saturating_sub(seen.y));
                }
                place(session, window, aim)?;
                asked_at = Some(Instant::now());
            }
            Ok(false)
        })
    }

    fn minimize(&self, handle: u64) -> Result<()> {
        self.on(handle, "minimise the window", |session, window| {
            if client_list(session)?.is_none() {
                let reason = "no window manager runs that could minimise a window".into();
                return Err(PlatformError::Unsupported(reason).into());
            }
            let data = [ICONIC_STATE, 0, 0, 0, 0];
            ask_manager(session, window, session.atoms.WM_CHANGE_STATE, data)
        })?;
        self.until(handle, "minimise", |session, window| {
            let described = Description::ask(session, window)?.read(session)?;
            Ok(described.window.minimized == Some(true))
        })
    }

    fn close(&self, handle: u64) -> Result<()> {
        self.on(handle, "close the window", |session, window| {
            if manages(session, session.atoms._NET_CLOSE_WINDOW)? {
                let data = [x11rb::CURRENT_TIME, SOURCE_PAGER, 0, 0, 0];
                ask_manager(session, window, session.atoms._NET_CLOSE_WINDOW, data)
            } else {
                close_unmanaged(session, window)
            }
        })?;
        let closed = self.until(handle, "close", |session, window| {
            Ok(match client_list(session)? {
                Some(clients) => !clients.contains(&window),
                None => !is_viewable(session, window)?,
            })
        });
        match closed {
            Err(PlatformError::WindowNotFound(_)) => Ok(()),
            other => other,
        }
    }
}

impl X11Windows {
    /// Runs requests about one window, with a clear answer when it is none.
    fn on<R>(
        &self,
        handle: u64,
        what: &str,
        mut requests: impl FnMut(&Session, XWindow) -> Answer<R>,
    ) -> Result<R> {
        let missing = || PlatformError::WindowNotFound(handle);
        let window = XWindow::try_from(handle).map_err(|_| missing())?;
        self.link.run(what, |session, ()| {
            requests(session, window).map_err(|trouble| match trouble {
                trouble if trouble.names_nothing() => missing().into(),
                trouble => trouble,
            })
        })
    }

    /// Waits, bounded, until a window shows what was asked of it.
    fn until(
        &self,
        handle: u64,
        effect: &str,
        mut shows: impl FnMut(&Session, XWindow) -> Answer<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + Duration::from_millis(limits::WINDOW_EFFECT_TIMEOUT_MS);
        loop {
            if self.on(handle, effect, &mut shows)? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(PlatformError::WindowRefused(effect.to_owned()));
            }
            std::thread::sleep(Duration::from_millis(limits::WINDOW_POLL_MS));
        }
    }
}

/// The window manager's clients, topmost first; `None` where no window manager keeps a list.
fn client_list(session: &Session) -> Answer<Option<Vec<XWindow>>> {
    if !manager_lives(session)? {
        return Ok(None);
    }
    let atoms = &session.atoms;
    let stacking = Atoms32::ask(session, session.root(), atoms._NET_CLIENT_LIST_STACKING)?;
    let mapping = Atoms32::ask(session, session.root(), atoms._NET_CLIENT_LIST)?;
    let (stacking, mapping) = (stacking.read()?, mapping.read()?);
    Ok(stacking.or(mapping).map(|mut clients| {
        clients.reverse();
        clients.truncate(limits::WINDOWS_LISTED_MAX);
        clients
    }))
}

/// Whether a window manager runs: its properties stay behind when it crashes, its check window does
/// not.
fn manager_lives(session: &Session) -> Answer<bool> {
    let check = session.atoms._NET_SUPPORTING_WM_CHECK;
    let Some(window) = first(Atoms32::ask(session, session.root(), check)?.read()?) else {
        return Ok(false);
    };
    match Atoms32::ask(session, window, check)?.read() {
        Ok(itself) => Ok(first(itself) == Some(window)),
        Err(trouble) if trouble.names_nothing() => Ok(false),
        Err(trouble) => Err(trouble),
    }
}

fn first(values: Option<Vec<u32>>) -> Option<u32> {
    values?
        .first()
        .copied()
        .filter(|value| *value != x11rb::NONE)
}

/// Whether a window manager runs and takes this request.
fn manages(session: &Session, request: u32) -> Answer<bool> {
    if !manager_lives(session)? {
        return Ok(false);
    }
    let supported = Atoms32::ask(session, session.root(), session.atoms._NET_SUPPORTED)?;
    Ok(supported
        .read()?
        .is_some_and(|atoms| atoms.contains(&request)))
}

/// The root's children, topmost first.
fn children(session: &Session) -> Answer<Vec<XWindow>> {
    let mut children = session
        .connection
        .query_tree(session.root())?
        .reply()?
        .children;
    children.reverse();
    children.truncate(limits::WINDOWS_LISTED_MAX);
    Ok(children)
}

/// Describes windows in two passes, so that the server's answers do not wait for each other. A
/// window that goes away meanwhile is left out.
fn describe_all(session: &Session, handles: &[XWindow], wanted: Wanted) -> Answer<Vec<Window>> {
    let mut asked = Vec::with_capacity(handles.len());
    for handle in handles {
        asked.push(Description::ask(session, *handle)?);
    }
    let mut described = Vec::with_capacity(asked.len());
    for question in asked {
        match question.read(session) {
            Ok(description) => described.push(description),
            Err(trouble) if trouble.names_nothing() => {}
            Err(trouble) => return Err(trouble),
        }
    }
    if wanted == Wanted::Unmanaged {
        described.retain(Description::is_shown_to_people);
        // Menus and tooltips are the windows that no window manager would manage.
        described.sort_by_key(|description| description.override_redirect);
    }
    Ok(described.into_iter().map(|found| found.window).collect())
}

fn foreground(session: &Session) -> Answer<Option<XWindow>> {
    let atoms = &session.atoms;
    if manager_lives(session)? {
        let active = Atoms32::ask(session, session.root(), atoms._NET_ACTIVE_WINDOW)?.read()?;
        return Ok(first(active));
    }
    let connection = &*session.connection;
    let focus = connection.get_input_focus()?.reply()?.focus;
    let focused = if focus == u32::from(InputFocus::POINTER_ROOT) {
        // The keyboard goes to whatever is under the pointer.
        connection.query_pointer(session.root())?.reply()?.child
    } else {
        focus
    };
    if focused == x11rb::NONE || focused == session.root() {
        return Ok(None);
    }
    match top_level(session, focused) {
        Ok(top) => Ok(Some(top)),
        Err(trouble) if trouble.names_nothing() => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// Where a window's inside begins on the desktop.
fn origin(session: &Session, window: XWindow) -> Answer<Point> {
    let connection = &*session.connection;
    let place = connection.translate_coordinates(window, session.root(), 0, 0)?;
    let place = place.reply()?;
    Ok(Point {
        x: place.dst_x.into(),
        y: place.dst_y.into(),
    })
}

fn is_viewable(session: &Session, window: XWindow) -> Answer<bool> {
    let attributes = session.connection.get_window_attributes(window)?.reply()?;
    Ok(attributes.map_state == MapState::VIEWABLE)
}

/// Sends a client message about `window` to the window manager.
fn ask_manager(session: &Session, window: XWindow, kind: u32, data: [u32; 5]) -> Answer<()> {
    let connection = &*session.connection;
    // A message about a window that is gone would be swallowed without an answer.
    connection.get_window_attributes(window)?.reply()?;
    let message = ClientMessageEvent::new(32, window, kind, data);
    let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
    connection
        .send_event(false, session.root(), mask, message)?
        .check()?;
    Ok(())
}

fn raise(session: &Session, window: XWindow) -> Answer<()> {
    let connection = &*session.connection;
    connection.map_window(window)?.check()?;
    let above = ConfigureWindowAux::new().stack_mode(StackMode::ABOVE);
    connection.configure_window(window, &above)?.check()?;
    connection
        .set_input_focus(InputFocus::PARENT, window, x11rb::CURRENT_TIME)?
        .check()?;
    Ok(())
}

fn place(session: &Session, window: XWindow, bounds: Rect) -> Answer<()> {
    let connection = &*session.connection;
    let atoms = &session.atoms;
    if manages(session, atoms._NET_MOVERESIZE_WINDOW)? {
        unmaximize(session, window)?;
        let flags = GRAVITY_STATIC | MOVERESIZE_ALL | SOURCE_PAGER << 12;
        let data = [
            flags,
            bounds.x as u32,
            bounds.y as u32,
            bounds.width,
            bounds.height,
        ];
        return ask_manager(session, window, atoms._NET_MOVERESIZE_WINDOW, data);
    }
    let parent = connection.query_tree(window)?.reply()?.parent;
    let border = i32::from(connection.get_geometry(window)?.reply()?.border_width);
    let origin = connection
        .translate_coordinates(session.root(), parent, 0, 0)?
        .reply()?;
    let wanted = ConfigureWindowAux::new()
        .x(bounds.x.saturating_add(i32::from(origin.dst_x)) - border)
        .y(bounds.y.saturating_add(i32::from(origin.dst_y)) - border)
        .width(bounds.width)
        .height(bounds.height);
    connection.configure_window(window, &wanted)?.check()?;
    Ok(())
}

/// A maximised window would not take a place.
fn unmaximize(session: &Session, window: XWindow) -> Answer<()> {
    let atoms = &session.atoms;
    let state = Atoms32::ask(session, window, atoms._NET_WM_STATE)?.read()?;
    let maximized = [
        atoms._NET_WM_STATE_MAXIMIZED_HORZ,
        atoms._NET_WM_STATE_MAXIMIZED_VERT,
    ];
    let state = state.unwrap_or_default();
    if !state.iter().any(|atom| maximized.contains(atom)) {
        return Ok(());
    }
    const REMOVE: u32 = 0;
    let data = [REMOVE, maximized[0], maximized[1], SOURCE_PAGER, 0];
    ask_manager(session, window, atoms._NET_WM_STATE, data)
}

/// Whether a window stands where it was asked to. Its size may differ by what its own hints demand:
/// a terminal takes whole characters.
fn has_place(session: &Session, window: XWindow, wanted: Rect) -> Answer<bool> {
    let connection = &*session.connection;
    let geometry = connection.get_geometry(window)?;
    let hints = WmSizeHints::get_normal_hints(connection, window)?;
    let at = origin(session, window)?;
    let (geometry, hints) = (geometry.reply()?, hints.reply()?.unwrap_or_default());
    let bounds = |pair: Option<(i32, i32)>, axis: fn((i32, i32)) -> i32| pair.map(axis);
    let fits = |got: u16, asked: u32, axis: fn((i32, i32)) -> i32| {
        let least = bounds(hints.min_size.or(hints.base_size), axis).unwrap_or(1);
        let most = bounds(hints.max_size, axis).filter(|max| *max > 0);
        let step = bounds(hints.size_increment, axis).unwrap_or(1).max(1);
        let asked = i64::from(asked).max(least.into());
        let asked = most.map_or(asked, |most| asked.min(most.into()));
        (i64::from(got) - asked).abs() < i64::from(step)
    };
    Ok(at == wanted.origin()
        && fits(geometry.width, wanted.width, |pair| pair.0)
        && fits(geometry.height, wanted.height, |pair| pair.1))
}

/// What a window manager would do: ask where the window takes part in that protocol, else cut its
/// program off.
fn close_unmanaged(session: &Session, window: XWindow) -> Answer<()> {
    let connection = &*session.connection;
    let atoms = &session.atoms;
    let protocols = Atoms32::ask(session, window, atoms.WM_PROTOCOLS)?.read()?;
    if protocols.is_some_and(|list| list.contains(&atoms.WM_DELETE_WINDOW)) {
        let data = [atoms.WM_DELETE_WINDOW, x11rb::CURRENT_TIME, 0, 0, 0];
        let message = ClientMessageEvent::new(32, window, atoms.WM_PROTOCOLS, data);
        connection
            .send_event(false, window, EventMask::NO_EVENT, message)?
            .check()?;
    } else {
        connection.kill_client(window)?.check()?;
    }
    Ok(())
}
