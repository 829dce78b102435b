//! Taking over the outer terminal, and giving it back completely by whatever road the console ends.

use std::cell::Cell;
use std::io;
use std::panic;
use std::sync::Once;

use crate::platform::tty::{self, Tty};

use super::keys::{DISAMBIGUATE, EVENT_TYPES};

/// Alternate screen, kitty keyboard level 1, bracketed paste, focus events, the title put aside.
const ENTER: &[u8] = b"\x1b[22;0t\x1b[?1049h\x1b[>1u\x1b[?2004h\x1b[?1004h\x1b[?25l\x1b[0m\x1b[2J";

/// Everything that `ENTER` and painting may have changed, in the order in which it can be undone. Ends
/// a synchronized update and a hyperlink that a panic may have left open.
pub const LEAVE: &[u8] = b"\x1b[?2026l\x1b]8;;\x1b\\\x1b[0m\x1b[0 q\
\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[<1u\
\x1b[?1049l\x1b[?25h\x1b[23;0t";

thread_local! {
    /// Panics of this thread are caught by whoever set this.
    static SHIELDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs what catches its own panics: such a panic neither gives the terminal back nor is printed over
/// the screen.
pub fn shielded<T>(work: impl FnOnce() -> T) -> T {
    SHIELDED.set(true);
    let value = work();
    SHIELDED.set(false);
    value
}

/// The outer terminal while the console has it; dropping this gives it back.
pub struct Outer {
    pub tty: Tty,
}

impl Outer {
    pub fn enter() -> io::Result<Self> {
        let tty = Tty::open()?;
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if SHIELDED.get() {
                    return;
                }
                // First, so that the message stands on the person's own screen.
                tty::put_back(LEAVE);
                before(info);
            }));
        });
        let outer = Self { tty };
        outer.tty.raw()?;
        Ok(outer)
    }

    /// What has to be written before the first frame.
    pub fn opening(&self, mouse: bool) -> Vec<u8> {
        let mut bytes = ENTER.to_vec();
        if mouse {
            bytes.extend_from_slice(mouse_sequence(Mouse::Drags));
        }
        bytes
    }

    /// Gives the terminal back; more than once does nothing.
    pub fn leave(&self) {
        tty::put_back(LEAVE);
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Which mouse events the outer terminal sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mouse {
    #[default]
    Off,
    Drags,
    /// Also motion without a button: only while the focused program wants it.
    Motion,
}

pub fn mouse_sequence(mouse: Mouse) -> &'static [u8] {
    match mouse {
        Mouse::Off => b"\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?1006l",
        Mouse::Drags => b"\x1b[?1003l\x1b[?1000h\x1b[?1002h\x1b[?1006h",
        Mouse::Motion => b"\x1b[?1000h\x1b[?1002h\x1b[?1003h\x1b[?1006h",
    }
}

/// The keyboard level that the outer terminal needs for a program with these flags: enough to tell
/// keys apart, and releases only for a program that wants them.
pub fn keyboard_level(program_flags: u8) -> u8 {
    let passed =
        program_flags & (EVENT_TYPES | super::keys::ALL_AS_ESCAPES | super::keys::ALTERNATES);
    DISAMBIGUATE | passed
}

/// Sets the keyboard level in place of the one that `ENTER` pushed.
pub fn keyboard_sequence(level: u8) -> Vec<u8> {
    format!("\x1b[={level};1u").into_bytes()
}

/// OSC 52: the outer terminal's clipboard takes a text.
pub fn copy_sequence(text: &str) -> Vec<u8> {
    let encoded = data_encoding::BASE64.encode(text.as_bytes());
    format!("\x1b]52;c;{encoded}\x1b\\").into_bytes()
}

/// OSC 2 with a text that cannot end it.
pub fn title_sequence(text: &str) -> Vec<u8> {
    format!("\x1b]2;{}\x1b\\", super::cell::clean(text)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_that_is_set_is_reset() {
        let leave = String::from_utf8(LEAVE.to_vec()).unwrap();
        let mut entered = String::from_utf8(ENTER.to_vec()).unwrap();
        for mouse in [Mouse::Drags, Mouse::Motion] {
            entered.push_str(std::str::from_utf8(mouse_sequence(mouse)).unwrap());
        }
        for part in entered.split("\x1b[?").skip(1) {
            let number: String = part.chars().take_while(char::is_ascii_digit).collect();
            let last = part.chars().nth(number.len()).unwrap();
            let undone = if last == 'h' { 'l' } else { 'h' };
            let set_here = last == 'h' || number == "25";
            assert!(
                !set_here || leave.contains(&format!("\x1b[?{number}{undone}")),
                "{number}"
            );
        }
        assert!(leave.contains("\x1b[<1u") && leave.contains("\x1b[23;0t"));
    }

    #[test]
    fn a_title_cannot_end_itself() {
        assert_eq!(title_sequence("a\x07b\x1b\\c"), b"\x1b]2;ab\\c\x1b\\");
        assert_eq!(copy_sequence("hi"), b"\x1b]52;c;aGk=\x1b\\");
    }

    #[test]
    fn the_outer_keyboard_tells_what_the_program_wants() {
        assert_eq!(keyboard_level(0), 1);
        assert_eq!(keyboard_level(1), 1);
        assert_eq!(keyboard_level(31), 15);
    }
}
