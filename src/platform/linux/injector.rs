//! The injecting connection: XTest events, and the table of what they hold down.
//!
//! Invariant: whatever goes down through here is in the table, so that it can be let up.

use x11rb::connection::{Connection, RequestConnection};
use x11rb::protocol::xkb::{self, ConnectionExt as _, MapPart};
use x11rb::protocol::xproto::{ConnectionExt as _, ModMask, Window};
use x11rb::protocol::xtest::{self, ConnectionExt as _};
use x11rb::protocol::{Event, xproto};
use x11rb::rust_connection::RustConnection;

use super::held::{Held, HeldTable};
use super::keyboard::{Keycode, Keymap, bits};
use super::typing::Borrowed;
use crate::base::Point;
use crate::base::limits::SCROLL_CLICKS_MAX;
use crate::platform::{Button, InputOwner, PlatformError, Press, Result, VirtualKey};

/// XKB's name for the keyboard of the core protocol.
pub const CORE_KEYBOARD: xkb::DeviceSpec = 0x100;

/// One display's injecting connection.
pub struct Injector {
    pub(super) connection: RustConnection,
    pub(super) display: String,
    pub(super) root: Window,
    pub(super) held: HeldTable,
    pub(super) borrowed: Borrowed,
    keymap: Option<Keymap>,
    /// Counts the changes of the keyboard's map, ours included.
    pub(super) map_changes: u64,
}

/// The keyboard's state as the server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyboardState {
    /// The current group (layout), from 0.
    pub group: u8,
    /// Real modifiers in effect, locked ones included.
    pub down: u8,
    pub locked: u8,
}

/// A broken connection, told apart from a request that the server refused.
pub fn lost(error: impl std::fmt::Display) -> PlatformError {
    PlatformError::DisplayUnavailable(error.to_string())
}

/// An answer that did not come: the display went away or refused the request.
pub fn unanswered(error: x11rb::errors::ReplyError) -> PlatformError {
    match error {
        x11rb::errors::ReplyError::ConnectionError(error) => lost(error),
        x11rb::errors::ReplyError::X11Error(error) => {
            PlatformError::InputFailed(format!("the display refused: {error:?}"))
        }
    }
}

impl Injector {
    /// Connects and checks that the display has what injecting needs.
    pub fn open(display: &str) -> Result<Self> {
        let (connection, screen) = RustConnection::connect(Some(display))
            .map_err(|error| lost(format!("{display}: {error}")))?;
        for name in [xtest::X11_EXTENSION_NAME, xkb::X11_EXTENSION_NAME] {
            let present = connection.extension_information(name).map_err(lost)?;
            if present.is_none() {
                return Err(PlatformError::Unsupported(format!(
                    "the display {display} has no {name} extension"
                )));
            }
        }
        let root = connection
            .setup()
            .roots
            .get(screen)
            .map(|screen| screen.root)
            .ok_or_else(|| lost(format!("{display} has no screen {screen}")))?;
        connection
            .xkb_use_extension(1, 0)
            .map_err(lost)?
            .reply()
            .map_err(unanswered)?;
        let events = xkb::EventType::MAP_NOTIFY | xkb::EventType::NEW_KEYBOARD_NOTIFY;
        let all_parts = MapPart::from(0xffu8);
        connection
            .xkb_select_events(
                CORE_KEYBOARD,
                xkb::EventType::from(0u8),
                events,
                all_parts,
                all_parts,
                &xkb::SelectEventsAux::new(),
            )
            .map_err(lost)?
            .check()
            .map_err(unanswered)?;
        Ok(Self {
            connection,
            display: display.to_owned(),
            root,
            held: HeldTable::default(),
            borrowed: Borrowed::default(),
            keymap: None,
            map_changes: 0,
        })
    }

    /// Takes in what the server said by itself: that the map changed, or that it is gone.
    pub fn drain_events(&mut self) -> Result<()> {
        while let Some(event) = self.connection.poll_for_event().map_err(lost)? {
            let changed = matches!(
                event,
                Event::XkbMapNotify(_) | Event::XkbNewKeyboardNotify(_) | Event::MappingNotify(_)
            );
            if changed {
                self.keymap = None;
                self.map_changes += 1;
            }
        }
        Ok(())
    }

    /// The map as of the last change.
    pub fn keymap(&mut self) -> Result<&Keymap> {
        self.drain_events()?;
        if self.keymap.is_none() {
            let parts = MapPart::KEY_TYPES | MapPart::KEY_SYMS | MapPart::MODIFIER_MAP;
            let none = MapPart::from(0u8);
            let reply = self
                .connection
                .xkb_get_map(
                    CORE_KEYBOARD,
                    parts,
                    none,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                    xkb::VMod::from(0u16),
                    0,
                    0,
                    0,
                    0,
                    0,
                    0,
                )
                .map_err(lost)?
                .reply()
                .map_err(unanswered)?;
            self.keymap = Some(Keymap::new(reply)?);
        }
        let missing = || PlatformError::InputFailed("no keymap".into());
        self.keymap.as_ref().ok_or_else(missing)
    }

    pub fn keyboard_state(&self) -> Result<KeyboardState> {
        let state = self
            .connection
            .xkb_get_state(CORE_KEYBOARD)
            .map_err(lost)?
            .reply()
            .map_err(unanswered)?;
        Ok(KeyboardState {
            group: u8::from(state.group),
            down: bits(state.mods),
            locked: bits(state.locked_mods),
        })
    }

    /// Locks or unlocks modifiers (Caps Lock) without touching keys.
    pub fn lock_modifiers(&self, affected: ModMask, locked: ModMask) -> Result<()> {
        self.connection
            .xkb_latch_lock_state(
                CORE_KEYBOARD,
                affected,
                locked,
                false,
                xkb::Group::M1,
                ModMask::from(0u8),
                false,
                0,
            )
            .map_err(lost)?;
        self.flush()
    }

    pub fn flush(&self) -> Result<()> {
        self.connection.flush().map_err(lost)
    }

    /// Waits until the server has handled all that was sent.
    pub fn sync(&self) -> Result<()> {
        self.connection
            .get_input_focus()
            .map_err(lost)?
            .reply()
            .map(drop)
            .map_err(unanswered)
    }

    fn fake(&self, kind: u8, detail: u8, at: Point) -> Result<()> {
        let coordinate = |value: i32| value.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16;
        self.connection
            .xtest_fake_input(
                kind,
                detail,
                x11rb::CURRENT_TIME,
                self.root,
                coordinate(at.x),
                coordinate(at.y),
                0,
            )
            .map(drop)
            .map_err(lost)
    }

    /// Sends a key event past the table; typing pairs its presses and releases itself.
    pub fn fake_key(&self, keycode: Keycode, press: Press) -> Result<()> {
        let kind = match press {
            Press::Down => xproto::KEY_PRESS_EVENT,
            Press::Up => xproto::KEY_RELEASE_EVENT,
        };
        self.fake(kind, keycode, Point { x: 0, y: 0 })
    }

    fn fake_button(&self, number: u8, press: Press) -> Result<()> {
        let kind = match press {
            Press::Down => xproto::BUTTON_PRESS_EVENT,
            Press::Up => xproto::BUTTON_RELEASE_EVENT,
        };
        self.fake(kind, number, Point { x: 0, y: 0 })
    }

    fn fake_held(&self, held: Held, press: Press) -> Result<()> {
        match held {
            Held::Key(keycode) => self.fake_key(keycode, press),
            Held::Button(number) => self.fake_button(number, press),
        }
    }

    fn change(&mut self, owner: InputOwner, held: Held, press: Press) -> Result<()> {
        let due = match press {
            Press::Down => self.held.press(owner, held),
            Press::Up => self.held.let_up(owner, held),
        };
        if due {
            self.fake_held(held, press)
        } else {
            Ok(())
        }
    }

    pub fn pointer(&self) -> Result<Point> {
        let reply = self
            .connection
            .query_pointer(self.root)
            .map_err(lost)?
            .reply()
            .map_err(unanswered)?;
        Ok(Point {
            x: i32::from(reply.root_x),
            y: i32::from(reply.root_y),
        })
    }

    pub fn move_to(&self, to: Point) -> Result<()> {
        self.fake(xproto::MOTION_NOTIFY_EVENT, 0, to)?;
        self.sync()
    }

    pub fn button(&mut self, owner: InputOwner, button: Button, press: Press) -> Result<()> {
        let number = match button {
            Button::Left => 1,
            Button::Middle => 2,
            Button::Right => 3,
            Button::Back => 8,
            Button::Forward => 9,
        };
        self.change(owner, Held::Button(number), press)?;
        self.sync()
    }

    /// X11 knows the wheel as four buttons.
    pub fn scroll(&self, x: i32, y: i32) -> Result<()> {
        if x.unsigned_abs().max(y.unsigned_abs()) > SCROLL_CLICKS_MAX {
            return Err(PlatformError::InputFailed(format!(
                "more than {SCROLL_CLICKS_MAX} wheel clicks"
            )));
        }
        let vertical = if y > 0 { 4 } else { 5 };
        let horizontal = if x > 0 { 7 } else { 6 };
        for (number, clicks) in [(vertical, y.unsigned_abs()), (horizontal, x.unsigned_abs())] {
            for _ in 0..clicks {
                self.fake_button(number, Press::Down)?;
                self.fake_button(number, Press::Up)?;
            }
        }
        self.sync()
    }

    /// Presses and lets up keys in order, all or, when one is unknown, none of them.
    pub fn keys(&mut self, owner: InputOwner, strokes: &[(VirtualKey, Press)]) -> Result<()> {
        let group = self.keyboard_state()?.group;
        let keymap = self.keymap()?;
        let keycodes = strokes
            .iter()
            .map(|(key, press)| Ok((keymap.keycode_of(*key, group)?, *press)))
            .collect::<Result<Vec<_>>>()?;
        for (keycode, press) in keycodes {
            self.change(owner, Held::Key(keycode), press)?;
        }
        self.sync()
    }

    /// Lets up what the owner alone holds.
    pub fn release(&mut self, owner: InputOwner) -> Result<u32> {
        let gone = self.held.release(owner);
        self.let_all_up(&gone)
    }

    /// Lets up everything and gives borrowed keycodes back.
    pub fn release_all(&mut self) -> Result<()> {
        let gone = self.held.release_all();
        self.let_all_up(&gone)?;
        self.restore_borrowed()?;
        self.sync()
    }

    fn let_all_up(&self, gone: &[Held]) -> Result<u32> {
        for held in gone {
            self.fake_held(*held, Press::Up)?;
        }
        if !gone.is_empty() {
            self.sync()?;
        }
        Ok(gone.len() as u32)
    }
}
