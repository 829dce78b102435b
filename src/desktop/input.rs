//! Pointer and keyboard on behalf of an owner.

use std::time::{Duration, Instant};

use super::keys::parse_key;
use super::{Desktop, fault};
use crate::base::Point;
use crate::base::limits::{CANCEL_POLL_MS, CHORD_KEYS_MAX, POINTER_MOVE_MS_MAX, POINTER_STEP_MS};
use crate::platform::{Button, Input, InputOwner, Press, VirtualKey};
use crate::wire::{Code, Fault};

/// Keys that go down in order and up in reverse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chord(pub Vec<VirtualKey>);

impl Chord {
    /// Reads `ctrl+shift+t`, `0x41`, `enter`, `ctrl++`; an unknown name is `key_unknown`.
    ///
    /// A `+` where a key has to stand is the plus key itself.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let unknown = |why: String| Fault::new(Code::KeyUnknown, why);
        let mut keys = Vec::new();
        let mut rest = text;
        loop {
            let first = rest.trim_start();
            // The separator is searched after the key's first character, which may be a plus.
            let from = first.chars().next().map_or(0, char::len_utf8);
            let end = first[from..].find('+').map_or(first.len(), |at| from + at);
            let name = first[..end].trim_end();
            let key =
                parse_key(name).ok_or_else(|| unknown(format!("no key {name:?} in {text:?}")))?;
            if keys.contains(&key) {
                return Err(unknown(format!("{name:?} stands twice in {text:?}")));
            }
            if keys.len() == CHORD_KEYS_MAX {
                return Err(unknown(format!(
                    "more than {CHORD_KEYS_MAX} keys in {text:?}"
                )));
            }
            keys.push(key);
            match first.get(end + 1..) {
                Some(after) => rest = after,
                None => return Ok(Self(keys)),
            }
        }
    }

    fn down(&self) -> impl Iterator<Item = (VirtualKey, Press)> + '_ {
        self.0.iter().map(|key| (*key, Press::Down))
    }

    fn up(&self) -> impl Iterator<Item = (VirtualKey, Press)> + '_ {
        self.0.iter().rev().map(|key| (*key, Press::Up))
    }
}

/// One owner's hands on the desktop. What it holds stays held, over sessions, until it is let up or
/// `Desktop::release_input` ends the owner.
pub struct InputSession<'a> {
    input: &'a dyn Input,
    owner: InputOwner,
}

impl Desktop {
    /// Opens a session for an owner; `owner` numbers are the caller's to give out, one per script run
    /// or caller connection.
    pub fn input(&self, owner: InputOwner) -> Result<InputSession<'_>, Fault> {
        let input = self
            .backend
            .input
            .as_deref()
            .map_err(|error| fault(error.clone()))?;
        Ok(InputSession { input, owner })
    }

    /// Lets up all that an owner holds; answers how many keys and buttons that were.
    pub fn release_input(&self, owner: InputOwner) -> Result<usize, Fault> {
        match &self.backend.input {
            Ok(input) => input.release(owner).map_err(fault),
            Err(_) => Ok(0),
        }
    }
}

/// `cancelled` is asked between steps of every slow call; a call that it ends answers `cancelled`.
impl InputSession<'_> {
    pub fn pointer(&self) -> Result<Point, Fault> {
        self.input.pointer().map_err(fault)
    }

    /// At once when `over` is zero, else along a straight, eased path.
    pub fn move_to(
        &self,
        to: Point,
        over: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        check_duration(over)?;
        if !over.is_zero() {
            self.glide(to, over, cancelled)?;
        }
        self.input.move_to(to).map_err(fault)
    }

    /// Moves along the path by the clock, so that a slow display skips steps and arrives in time.
    fn glide(&self, to: Point, over: Duration, cancelled: &dyn Fn() -> bool) -> Result<(), Fault> {
        let from = self.pointer()?;
        let started = Instant::now();
        loop {
            let left = over.saturating_sub(started.elapsed());
            let step = left.min(Duration::from_millis(POINTER_STEP_MS));
            pause(step, cancelled)?;
            let done = started.elapsed().as_secs_f64() / over.as_secs_f64();
            if done >= 1.0 {
                return Ok(());
            }
            self.input
                .move_to(between(from, to, ease(done)))
                .map_err(fault)?;
        }
    }

    /// Moves, then clicks `count` times (1 to 3).
    pub fn click(&self, at: Point, button: Button, count: u8) -> Result<(), Fault> {
        if !(1..=3).contains(&count) {
            return Err(Fault::new(
                Code::InvalidParams,
                format!("click count is {count}, not 1 to 3"),
            ));
        }
        self.input.move_to(at).map_err(fault)?;
        for _ in 0..count {
            self.button(button, Press::Down)?;
            self.button(button, Press::Up)?;
        }
        Ok(())
    }

    /// Presses at `from`, moves over the time given, and lets go at `to`; lets go where it is when
    /// something fails on the way.
    pub fn drag(
        &self,
        from: Point,
        to: Point,
        button: Button,
        over: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        check_duration(over)?;
        self.input.move_to(from).map_err(fault)?;
        self.button(button, Press::Down)?;
        let moved = self.move_to(to, over, cancelled);
        let let_go = self.button(button, Press::Up);
        moved.and(let_go)
    }

    pub fn scroll(&self, x: i32, y: i32) -> Result<(), Fault> {
        self.input.scroll(x, y).map_err(fault)
    }

    pub fn button(&self, button: Button, press: Press) -> Result<(), Fault> {
        self.input.button(self.owner, button, press).map_err(fault)
    }

    /// Presses and releases a chord.
    pub fn press(&self, chord: &Chord) -> Result<(), Fault> {
        let strokes: Vec<_> = chord.down().chain(chord.up()).collect();
        self.input.keys(self.owner, &strokes).map_err(fault)
    }

    /// Every key of the chord goes down, in order, and stays.
    pub fn hold(&self, chord: &Chord) -> Result<(), Fault> {
        let strokes: Vec<_> = chord.down().collect();
        self.input.keys(self.owner, &strokes).map_err(fault)
    }

    /// Every key of the chord goes up, in reverse.
    pub fn let_up(&self, chord: &Chord) -> Result<(), Fault> {
        let strokes: Vec<_> = chord.up().collect();
        self.input.keys(self.owner, &strokes).map_err(fault)
    }

    /// Types any Unicode text.
    pub fn type_text(
        &self,
        text: &str,
        between: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        self.input
            .type_text(self.owner, text, between, cancelled)
            .map_err(fault)?;
        if cancelled() {
            return Err(called_off());
        }
        Ok(())
    }
}

fn check_duration(over: Duration) -> Result<(), Fault> {
    if over > Duration::from_millis(POINTER_MOVE_MS_MAX) {
        return Err(Fault::new(
            Code::InvalidParams,
            format!("a pointer move takes {POINTER_MOVE_MS_MAX} ms at most"),
        ));
    }
    Ok(())
}

fn called_off() -> Fault {
    Fault::new(Code::Cancelled, "the input was cancelled")
}

/// Sleeps, asking `cancelled` at least every `CANCEL_POLL_MS`.
fn pause(time: Duration, cancelled: &dyn Fn() -> bool) -> Result<(), Fault> {
    let until = Instant::now() + time;
    loop {
        if cancelled() {
            return Err(called_off());
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(CANCEL_POLL_MS)));
    }
}

/// Slow at both ends; from 0 to 1 for `done` from 0 to 1.
fn ease(done: f64) -> f64 {
    done * done * (3.0 - 2.0 * done)
}

fn between(from: Point, to: Point, part: f64) -> Point {
    let along =
        |a: i32, b: i32| (f64::from(a) + (f64::from(b) - f64::from(a)) * part).round() as i32;
    Point {
        x: along(from.x, to.x),
        y: along(from.y, to.y),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<u8> {
        let chord = Chord::parse(text).unwrap();
        chord.0.into_iter().map(|key| key.0).collect()
    }

    #[test]
    fn chords_are_read_with_the_plus_key_among_them() {
        assert_eq!(keys("ctrl+shift+t"), [0x11, 0x10, 0x54]);
        assert_eq!(keys("ctrl++"), [0x11, 0xBB]);
        assert_eq!(keys("+"), [0xBB]);
        assert_eq!(keys("++a"), [0xBB, 0x41]);
        assert_eq!(keys(" Ctrl + 0x41 "), [0x11, 0x41]);
        for text in ["", "ctrl+", "ctrl+bogus", "a+a", "é"] {
            let refused = Chord::parse(text).map_err(|fault| fault.code);
            assert_eq!(refused, Err(Code::KeyUnknown), "{text:?}");
        }
        let many = "a+b+c+d+e+f+g+h+i";
        assert_eq!(Chord::parse(many).unwrap_err().code, Code::KeyUnknown);
    }

    #[test]
    fn eased_path_starts_and_ends_where_asked() {
        let (from, to) = (
            Point { x: -5, y: 9 },
            Point {
                x: i32::MAX,
                y: i32::MIN,
            },
        );
        assert_eq!(between(from, to, ease(0.0)), from);
        assert_eq!(between(from, to, ease(1.0)), to);
        let steps: Vec<f64> = (0..=10).map(|n| ease(f64::from(n) / 10.0)).collect();
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
