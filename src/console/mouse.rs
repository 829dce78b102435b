//! Mouse events, encoded for a program from the tracking mode and encoding that it has set.

use crossterm::event::{KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

/// Which events a program wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    #[default]
    Off,
    /// Mode 9.
    Presses,
    /// Mode 1000.
    Clicks,
    /// Mode 1002.
    Drags,
    /// Mode 1003.
    Motion,
}

/// How it wants them written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Normal,
    /// Mode 1005.
    Utf8,
    /// Mode 1006.
    Sgr,
    /// Mode 1015.
    Urxvt,
}

/// The mouse modes of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MouseModes {
    pub tracking: Tracking,
    pub encoding: Encoding,
    /// The wheel is arrow keys on the alternate screen (mode 1007).
    pub alternate_scroll: bool,
    pub alternate_screen: bool,
}

/// Appends an event whose place is relative to the program's screen. Answers whether the program
/// wants such events at all; if so, the console leaves them alone.
pub fn encode(event: &MouseEvent, modes: MouseModes, out: &mut Vec<u8>) -> bool {
    let wanted = match event.kind {
        MouseEventKind::Moved => modes.tracking == Tracking::Motion,
        MouseEventKind::Up(_) => !matches!(modes.tracking, Tracking::Off | Tracking::Presses),
        MouseEventKind::Drag(_) => matches!(modes.tracking, Tracking::Drags | Tracking::Motion),
        _ => modes.tracking != Tracking::Off,
    };
    if !wanted {
        return modes.tracking != Tracking::Off;
    }
    let released = matches!(event.kind, MouseEventKind::Up(_));
    let mut code = match event.kind {
        MouseEventKind::Down(button) | MouseEventKind::Up(button) => number(button),
        MouseEventKind::Drag(button) => number(button) + 32,
        MouseEventKind::Moved => 35,
        MouseEventKind::ScrollUp => 64,
        MouseEventKind::ScrollDown => 65,
        MouseEventKind::ScrollLeft => 66,
        MouseEventKind::ScrollRight => 67,
    };
    if released && modes.encoding != Encoding::Sgr {
        // Only SGR says which button was let up.
        code = 3;
    }
    for (modifier, value) in [
        (KeyModifiers::SHIFT, 4),
        (KeyModifiers::ALT, 8),
        (KeyModifiers::CONTROL, 16),
    ] {
        if event.modifiers.contains(modifier) {
            code += value;
        }
    }
    write(
        code,
        released,
        event.column + 1,
        event.row + 1,
        modes.encoding,
        out,
    );
    true
}

fn number(button: MouseButton) -> u8 {
    match button {
        MouseButton::Left => 0,
        MouseButton::Middle => 1,
        MouseButton::Right => 2,
    }
}

fn write(code: u8, released: bool, x: u16, y: u16, encoding: Encoding, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Sgr => {
            let last = if released { 'm' } else { 'M' };
            out.extend_from_slice(format!("\x1b[<{code};{x};{y}{last}").as_bytes());
        }
        Encoding::Urxvt => {
            out.extend_from_slice(format!("\x1b[{};{x};{y}M", code + 32).as_bytes());
        }
        Encoding::Utf8 => {
            out.extend_from_slice(b"\x1b[M");
            for value in [u16::from(code), x, y] {
                let c = char::from_u32(u32::from(value.min(2_015)) + 32).unwrap_or(' ');
                let mut utf8 = [0; 4];
                out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
            }
        }
        // A place that the bytes cannot hold is not sent: a wrong one would click elsewhere.
        Encoding::Normal if x > 223 || y > 223 => {}
        Encoding::Normal => {
            out.extend_from_slice(&[0x1b, b'[', b'M', code + 32, x as u8 + 32, y as u8 + 32]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: MouseEventKind, column: u16, row: u16) -> MouseEvent {
        MouseEvent {
            kind,
            column,
            row,
            modifiers: KeyModifiers::NONE,
        }
    }

    fn written(event: &MouseEvent, tracking: Tracking, encoding: Encoding) -> Vec<u8> {
        let modes = MouseModes {
            tracking,
            encoding,
            ..MouseModes::default()
        };
        let mut out = Vec::new();
        encode(event, modes, &mut out);
        out
    }

    #[test]
    fn each_encoding_writes_place_and_button() {
        let down = event(MouseEventKind::Down(MouseButton::Right), 2, 4);
        let up = event(MouseEventKind::Up(MouseButton::Right), 2, 4);
        let clicks = Tracking::Clicks;
        assert_eq!(written(&down, clicks, Encoding::Sgr), b"\x1b[<2;3;5M");
        assert_eq!(written(&up, clicks, Encoding::Sgr), b"\x1b[<2;3;5m");
        assert_eq!(written(&down, clicks, Encoding::Urxvt), b"\x1b[34;3;5M");
        assert_eq!(written(&down, clicks, Encoding::Normal), b"\x1b[M\"#%");
        assert_eq!(written(&up, clicks, Encoding::Normal), b"\x1b[M##%");
        assert_eq!(written(&down, clicks, Encoding::Utf8), b"\x1b[M\"#%");
    }

    #[test]
    fn a_program_gets_only_what_it_asked_for() {
        let moved = event(MouseEventKind::Moved, 0, 0);
        let drag = event(MouseEventKind::Drag(MouseButton::Left), 0, 0);
        assert_eq!(written(&moved, Tracking::Drags, Encoding::Sgr), b"");
        assert_eq!(
            written(&moved, Tracking::Motion, Encoding::Sgr),
            b"\x1b[<35;1;1M"
        );
        assert_eq!(written(&drag, Tracking::Clicks, Encoding::Sgr), b"");
        assert_eq!(
            written(&drag, Tracking::Drags, Encoding::Sgr),
            b"\x1b[<32;1;1M"
        );
        let mut out = Vec::new();
        assert!(!encode(&moved, MouseModes::default(), &mut out));
    }

    #[test]
    fn a_place_beyond_the_normal_encoding_is_not_sent() {
        let down = event(MouseEventKind::Down(MouseButton::Left), 300, 4);
        assert_eq!(written(&down, Tracking::Clicks, Encoding::Normal), b"");
    }
}
