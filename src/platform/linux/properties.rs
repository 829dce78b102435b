//! What a window says of itself. All of it is other programs' text: bounded, and never trusted.

use x11rb::connection::RequestConnection;
use x11rb::cookie::Cookie;
use x11rb::protocol::res::{self, ClientIdMask, ClientIdSpec, ConnectionExt as _};
use x11rb::protocol::xproto::{
    AtomEnum, ConnectionExt as _, GetGeometryReply, GetPropertyReply, GetWindowAttributesReply,
    MapState, TranslateCoordinatesReply, Window as XWindow,
};

use super::x11::{Session, Trouble, XConnection};
use crate::base::{Rect, limits};
use crate::platform::Window;

type Answer<T> = std::result::Result<T, Trouble>;

/// ICCCM's WM_STATE values.
const WITHDRAWN: u32 = 0;
const ICONIC: u32 = 3;
/// Words of a list property that are read.
const LIST_WORDS_MAX: u32 = 4 * 1024;

/// Whose windows are described.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A window manager's clients.
    Managed,
    /// Children of the root, some of which are no windows to a person.
    Unmanaged,
}

/// A property of 32-bit values under way.
pub struct Atoms32<'a>(Cookie<'a, XConnection, GetPropertyReply>);

impl<'a> Atoms32<'a> {
    pub fn ask(session: &'a Session, window: XWindow, property: u32) -> Answer<Self> {
        let any = AtomEnum::ANY;
        let connection = &*session.connection;
        let cookie = connection.get_property(false, window, property, any, 0, LIST_WORDS_MAX)?;
        Ok(Self(cookie))
    }

    /// `None` when the window has no such property.
    pub fn read(self) -> Answer<Option<Vec<u32>>> {
        let reply = self.0.reply()?;
        Ok(reply.value32().map(Iterator::collect))
    }
}

/// The questions about one window, sent together.
pub struct Questions<'a> {
    window: XWindow,
    net_name: Cookie<'a, XConnection, GetPropertyReply>,
    name: Cookie<'a, XConnection, GetPropertyReply>,
    class: Cookie<'a, XConnection, GetPropertyReply>,
    pid: Atoms32<'a>,
    state: Atoms32<'a>,
    net_state: Atoms32<'a>,
    attributes: Cookie<'a, XConnection, GetWindowAttributesReply>,
    geometry: Cookie<'a, XConnection, GetGeometryReply>,
    place: Cookie<'a, XConnection, TranslateCoordinatesReply>,
}

/// A window as it describes itself.
pub struct Description {
    pub window: Window,
    pub override_redirect: bool,
    viewable: bool,
}

impl Description {
    /// Sends the questions without waiting for answers.
    pub fn ask(session: &Session, window: XWindow) -> Answer<Questions<'_>> {
        let connection = &*session.connection;
        let atoms = &session.atoms;
        let words = (limits::WINDOW_TEXT_LEN_MAX / 4) as u32;
        let text = |property: u32| {
            connection.get_property(false, window, property, AtomEnum::ANY, 0, words)
        };
        Ok(Questions {
            window,
            net_name: text(atoms._NET_WM_NAME)?,
            name: text(AtomEnum::WM_NAME.into())?,
            class: text(AtomEnum::WM_CLASS.into())?,
            pid: Atoms32::ask(session, window, atoms._NET_WM_PID)?,
            state: Atoms32::ask(session, window, atoms.WM_STATE)?,
            net_state: Atoms32::ask(session, window, atoms._NET_WM_STATE)?,
            attributes: connection.get_window_attributes(window)?,
            geometry: connection.get_geometry(window)?,
            place: connection.translate_coordinates(window, session.root(), 0, 0)?,
        })
    }

    /// Whether a person would call it a window: seen, named and more than a point.
    pub fn is_shown_to_people(&self) -> bool {
        let Window { title, bounds, .. } = &self.window;
        self.viewable && !title.is_empty() && bounds.width > 1 && bounds.height > 1
    }
}

impl Questions<'_> {
    /// Waits for the answers; a window that is gone is an error that names nothing.
    pub fn read(self, session: &Session) -> Answer<Description> {
        let attributes = self.attributes.reply()?;
        let geometry = self.geometry.reply()?;
        let place = self.place.reply()?;
        let net_name = self.net_name.reply()?;
        let name = self.name.reply()?;
        let title = match net_name.value.is_empty() {
            false => String::from_utf8_lossy(&net_name.value).into_owned(),
            true => legacy_text(session, &name),
        };
        let pid = match self.pid.read()?.unwrap_or_default().first() {
            Some(pid) => Some(*pid),
            None => pid_of_client(session, self.window)?,
        };
        let state = self.state.read()?.and_then(|state| state.first().copied());
        let hidden = self
            .net_state
            .read()?
            .map(|list| list.contains(&session.atoms._NET_WM_STATE_HIDDEN));
        let window = Window {
            handle: self.window.into(),
            title,
            class: class_name(&self.class.reply()?.value),
            pid: pid.filter(|pid| *pid > 0),
            minimized: minimized(state, hidden),
            bounds: Rect::new(
                place.dst_x.into(),
                place.dst_y.into(),
                geometry.width.into(),
                geometry.height.into(),
            ),
        };
        Ok(Description {
            window,
            override_redirect: attributes.override_redirect,
            viewable: attributes.map_state == MapState::VIEWABLE,
        })
    }
}

/// Unknown where no window manager keeps the state.
fn minimized(state: Option<u32>, hidden: Option<bool>) -> Option<bool> {
    match (state, hidden) {
        (_, Some(true)) | (Some(ICONIC), _) => Some(true),
        (Some(WITHDRAWN), _) | (None, None) => None,
        _ => Some(false),
    }
}

/// The server knows the process behind a local connection even where the window does not say.
fn pid_of_client(session: &Session, window: XWindow) -> Answer<Option<u32>> {
    let connection = &*session.connection;
    if connection
        .extension_information(res::X11_EXTENSION_NAME)?
        .is_none()
    {
        return Ok(None);
    }
    let version = connection.res_query_version(1, 2)?.reply()?;
    if (version.server_major, version.server_minor) < (1, 2) {
        return Ok(None);
    }
    let spec = ClientIdSpec {
        client: window,
        mask: ClientIdMask::LOCAL_CLIENT_PID,
    };
    let ids = connection.res_query_client_ids(&[spec])?.reply()?.ids;
    let pid = ids
        .iter()
        .find(|id| id.spec.mask == ClientIdMask::LOCAL_CLIENT_PID);
    Ok(pid.and_then(|id| id.value.first().copied()))
}

/// The class part of WM_CLASS (`instance\0class\0`), the instance where there is no class.
fn class_name(value: &[u8]) -> String {
    let mut parts = value.split(|byte| *byte == 0);
    let instance = parts.next().unwrap_or_default();
    let class = parts.next().filter(|class| !class.is_empty());
    latin1(class.unwrap_or(instance))
}

fn legacy_text(session: &Session, reply: &GetPropertyReply) -> String {
    let atoms = &session.atoms;
    if reply.type_ == atoms.UTF8_STRING {
        String::from_utf8_lossy(&reply.value).into_owned()
    } else if reply.type_ == atoms.COMPOUND_TEXT {
        compound_text(&reply.value)
    } else {
        latin1(&reply.value)
    }
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// Reads compound text as far as titles need it: Latin-1, and UTF-8 between `ESC % G` and
/// `ESC % @`. Other character sets come out as `\u{fffd}` a byte.
fn compound_text(bytes: &[u8]) -> String {
    const ESCAPE: u8 = 0x1b;
    let mut text = String::new();
    let mut parts = bytes.split(|byte| *byte == ESCAPE);
    text.push_str(&latin1(parts.next().unwrap_or_default()));
    for part in parts {
        // An escape sequence: intermediate bytes, then one final byte.
        let middle = part
            .iter()
            .take_while(|b| (0x20..0x30).contains(*b))
            .count();
        let (sequence, rest) = part.split_at((middle + 1).min(part.len()));
        match sequence {
            b"%G" => text.push_str(&String::from_utf8_lossy(rest)),
            b"%@" | b"(B" | b"-A" => text.push_str(&latin1(rest)),
            _ => text.extend(rest.iter().map(|_| char::REPLACEMENT_CHARACTER)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_in_old_encodings_are_read_lossily() {
        assert_eq!(latin1(b"caf\xe9"), "café");
        assert_eq!(compound_text(b"a\xe9\x1b%G\xe4\xb8\x96\x1b%@z"), "aé世z");
        assert_eq!(compound_text(b"\x1b$(B\x24\x22"), "\u{fffd}\u{fffd}");
        assert_eq!(compound_text(b"\x1b"), "");
        assert_eq!(class_name(b"xterm\0XTerm\0"), "XTerm");
        assert_eq!(class_name(b"alone"), "alone");
        assert_eq!(class_name(b""), "");
    }

    #[test]
    fn minimised_is_unknown_without_a_window_manager() {
        assert_eq!(minimized(None, None), None);
        assert_eq!(minimized(Some(1), Some(false)), Some(false));
        assert_eq!(minimized(Some(ICONIC), Some(false)), Some(true));
        assert_eq!(minimized(Some(1), Some(true)), Some(true));
    }
}
