//! Input by SendInput, through enigo; pointer moves directly, as enigo knows one monitor only.
//!
//! Invariant: what the table says is held was told to the guard before it was pressed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use enigo::{Axis, Direction, Enigo, Key, Keyboard, Mouse, Settings};
use windows::Win32::Foundation::POINT;
use windows::Win32::UI::Input::KeyboardAndMouse::{
    INPUT, INPUT_0, INPUT_MOUSE, MOUSEEVENTF_ABSOLUTE, MOUSEEVENTF_MOVE, MOUSEEVENTF_VIRTUALDESK,
    MOUSEINPUT, SendInput,
};
use windows::Win32::UI::WindowsAndMessaging::GetCursorPos;

use super::guard::Guard;
use super::monitors::desktop_bounds;
use crate::base::{Point, Rect};
use crate::platform::{Button, Input, InputOwner, PlatformError, Press, Result, VirtualKey};

/// Windows maps the desktop to this many steps a side.
const ABSOLUTE_STEPS: i64 = 65_536;
/// Characters sent at once while nobody asks for a pause between them.
const TYPE_CHUNK_CHARS: usize = 32;

/// Opens the injector with its guard.
pub fn open(guard_program: Option<&Path>) -> Result<Box<dyn Input>> {
    let hands = Hands {
        enigo: injector()?,
        guard: Guard::start(guard_program)?,
        held: BTreeMap::new(),
    };
    Ok(Box::new(SessionInput(Mutex::new(hands))))
}

/// A key by its virtual-key number, or a button by its place in `BUTTONS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    Key(u8),
    Button(u8),
}

const BUTTONS: [(Button, enigo::Button); 5] = [
    (Button::Left, enigo::Button::Left),
    (Button::Middle, enigo::Button::Middle),
    (Button::Right, enigo::Button::Right),
    (Button::Back, enigo::Button::Back),
    (Button::Forward, enigo::Button::Forward),
];

/// Lets up one thing, with an injector of its own: the guard's last act.
pub fn let_up(what: Held) -> Result<()> {
    inject(&mut injector()?, what, Press::Up)
}

/// The lock is the burst: who has it types or chords to the end.
struct SessionInput(Mutex<Hands>);

struct Hands {
    enigo: Enigo,
    guard: Guard,
    held: BTreeMap<Held, BTreeSet<InputOwner>>,
}

impl Input for SessionInput {
    fn pointer(&self) -> Result<Point> {
        let mut at = POINT::default();
        // SAFETY: the result is our own variable.
        unsafe { GetCursorPos(&mut at) }.map_err(|error| {
            PlatformError::InputFailed(format!("find the pointer: {}", error.message()))
        })?;
        Ok(Point { x: at.x, y: at.y })
    }

    fn move_to(&self, to: Point) -> Result<()> {
        let _burst = self.hands();
        let (dx, dy) = absolute(to, desktop_bounds()?);
        let moved = INPUT {
            r#type: INPUT_MOUSE,
            Anonymous: INPUT_0 {
                mi: MOUSEINPUT {
                    dx,
                    dy,
                    dwFlags: MOUSEEVENTF_MOVE | MOUSEEVENTF_ABSOLUTE | MOUSEEVENTF_VIRTUALDESK,
                    ..MOUSEINPUT::default()
                },
            },
        };
        // SAFETY: one whole INPUT, its size named.
        let sent = unsafe { SendInput(&[moved], size_of::<INPUT>() as i32) };
        if sent == 1 {
            Ok(())
        } else {
            Err(PlatformError::InputFailed(format!(
                "move the pointer: {}",
                windows::core::Error::from_thread().message()
            )))
        }
    }

    fn button(&self, owner: InputOwner, button: Button, press: Press) -> Result<()> {
        let place = BUTTONS.iter().position(|(known, _)| *known == button);
        let code = place.and_then(|place| u8::try_from(place).ok());
        // INVARIANT: the table names every button.
        let code = code.unwrap_or_default();
        self.hands().set(owner, Held::Button(code), press)
    }

    fn scroll(&self, x: i32, y: i32) -> Result<()> {
        const CLICKS_MAX: i32 = 1_000;
        let bounded = |clicks: i32| clicks.clamp(-CLICKS_MAX, CLICKS_MAX);
        let mut hands = self.hands();
        if x != 0 {
            let done = hands.enigo.scroll(bounded(x), Axis::Horizontal);
            done.map_err(|error| failed("scroll", &error))?;
        }
        if y != 0 {
            // enigo counts down the page.
            let done = hands.enigo.scroll(-bounded(y), Axis::Vertical);
            done.map_err(|error| failed("scroll", &error))?;
        }
        Ok(())
    }

    fn key(&self, owner: InputOwner, key: VirtualKey, press: Press) -> Result<()> {
        self.hands().set(owner, Held::Key(key.0), press)
    }

    fn type_text(
        &self,
        _owner: InputOwner,
        text: &str,
        between: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut hands = self.hands();
        let text = text.replace("\r\n", "\n");
        let characters: Vec<char> = text.chars().collect();
        let at_once = if between.is_zero() {
            TYPE_CHUNK_CHARS
        } else {
            1
        };
        for (index, chunk) in characters.chunks(at_once).enumerate() {
            if cancelled() {
                return Ok(());
            }
            if index > 0 && !between.is_zero() {
                std::thread::sleep(between);
            }
            hands.type_chunk(chunk)?;
        }
        Ok(())
    }

    fn release(&self, owner: InputOwner) -> Result<usize> {
        self.hands().release(owner)
    }
}

impl SessionInput {
    fn hands(&self) -> MutexGuard<'_, Hands> {
        // A panic between press and table entry leaves at most a key that the guard knows.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hands {
    fn set(&mut self, owner: InputOwner, what: Held, press: Press) -> Result<()> {
        match press {
            Press::Down => {
                let held = self.held.keys().copied();
                self.guard.tell(Press::Down, what, held)?;
                inject(&mut self.enigo, what, Press::Down)?;
                self.held.entry(what).or_default().insert(owner);
                Ok(())
            }
            Press::Up => {
                if let Some(owners) = self.held.get_mut(&what) {
                    owners.remove(&owner);
                    if !owners.is_empty() {
                        return Ok(());
                    }
                }
                self.held.remove(&what);
                inject(&mut self.enigo, what, Press::Up)?;
                let held = self.held.keys().copied();
                self.guard.tell(Press::Up, what, held)
            }
        }
    }

    fn release(&mut self, owner: InputOwner) -> Result<usize> {
        let mine = self.held.iter();
        let mine: Vec<Held> = mine
            .filter(|(_, owners)| owners.contains(&owner))
            .map(|(what, _)| *what)
            .collect();
        let mut released = 0;
        let mut first_failure = None;
        for what in mine {
            let alone = self.held.get(&what).is_some_and(|owners| owners.len() == 1);
            // One that fails must not keep the others down.
            match self.set(owner, what, Press::Up) {
                Ok(()) => released += usize::from(alone),
                Err(error) => first_failure = first_failure.or(Some(error)),
            }
        }
        first_failure.map_or(Ok(released), Err)
    }

    /// Control characters are keys; all else is sent as the character itself, whatever the layout.
    fn type_chunk(&mut self, chunk: &[char]) -> Result<()> {
        let mut plain = String::new();
        for &character in chunk {
            let key = match character {
                '\n' | '\r' => Key::Return,
                '\t' => Key::Tab,
                '\u{8}' => Key::Backspace,
                '\u{1b}' => Key::Escape,
                '\0' => {
                    return Err(PlatformError::InputFailed(
                        "type a null character".to_owned(),
                    ));
                }
                _ => {
                    plain.push(character);
                    continue;
                }
            };
            self.send_text(&mut plain)?;
            let typed = self.enigo.key(key, Direction::Click);
            typed.map_err(|error| failed("type", &error))?;
        }
        self.send_text(&mut plain)
    }

    fn send_text(&mut self, plain: &mut String) -> Result<()> {
        let typed = self.enigo.text(&std::mem::take(plain));
        typed.map_err(|error| failed("type", &error))
    }
}

fn injector() -> Result<Enigo> {
    let settings = Settings {
        // The table and the guard decide what is let up.
        release_keys_when_dropped: false,
        ..Settings::default()
    };
    Enigo::new(&settings).map_err(|error| PlatformError::InputFailed(error.to_string()))
}

fn inject(enigo: &mut Enigo, what: Held, press: Press) -> Result<()> {
    let direction = match press {
        Press::Down => Direction::Press,
        Press::Up => Direction::Release,
    };
    let done = match what {
        Held::Key(key) => enigo.key(Key::Other(u32::from(key)), direction),
        Held::Button(place) => match BUTTONS.get(usize::from(place)) {
            Some((_, button)) => enigo.button(*button, direction),
            None => return Err(PlatformError::InputFailed(format!("no button {place}"))),
        },
    };
    done.map_err(|error| failed("press or release", &error))
}

/// The point in Windows' steps, rounded up, so that rounding down on the other side meets the pixel.
fn absolute(to: Point, desktop: Rect) -> (i32, i32) {
    let steps = |at: i32, start: i32, length: u32| {
        let length = i64::from(length.max(1));
        let inside = (i64::from(at) - i64::from(start)).clamp(0, length - 1);
        // INVARIANT: below ABSOLUTE_STEPS, as `inside` is below `length`.
        ((inside * ABSOLUTE_STEPS + length - 1) / length) as i32
    };
    (
        steps(to.x, desktop.x, desktop.width),
        steps(to.y, desktop.y, desktop.height),
    )
}

fn failed(what: &str, error: &enigo::InputError) -> PlatformError {
    PlatformError::InputFailed(format!("{what}: {error}"))
}
