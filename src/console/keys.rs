//! Keys, pastes and focus, encoded for a program from the modes that it has set.
//!
//! The legacy encoding is xterm's with its modifier parameters; the other one is the kitty keyboard
//! protocol at whatever level the program pushed. modifyOtherKeys stays off: no program that needs
//! it lacks the kitty protocol.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyEventState, KeyModifiers};

use super::input::{MEDIA, MODIFIERS};

/// The modes of a program that decide about its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyModes {
    pub application_cursor: bool,
    pub application_keypad: bool,
    pub bracketed_paste: bool,
    /// The flags of the kitty keyboard protocol; 0 is the legacy encoding.
    pub kitty_flags: u8,
}

/// Kitty keyboard protocol flags.
pub const DISAMBIGUATE: u8 = 1;
pub const EVENT_TYPES: u8 = 2;
pub const ALTERNATES: u8 = 4;
pub const ALL_AS_ESCAPES: u8 = 8;
pub const TEXT: u8 = 16;

/// Appends what the program reads for a key; nothing for one that has no encoding in its modes.
pub fn encode(event: &KeyEvent, modes: KeyModes, out: &mut Vec<u8>) {
    if modes.kitty_flags != 0 {
        return kitty(event, modes, out);
    }
    if event.kind == KeyEventKind::Release {
        return;
    }
    legacy(event, modes, out);
}

/// Appends a paste: in brackets when the program asked for that, as typed lines otherwise. End marks
/// inside the text are taken out, so that a paste cannot end itself and type the rest.
pub fn encode_paste(text: &str, modes: KeyModes, out: &mut Vec<u8>) {
    if !modes.bracketed_paste {
        let typed = text.replace("\r\n", "\r").replace('\n', "\r");
        out.extend_from_slice(typed.as_bytes());
        return;
    }
    let mut text = text.to_owned();
    for mark in ["\x1b[201~", "\u{9b}201~", "\x1b[200~"] {
        // Taking one out may join the halves of another.
        while text.contains(mark) {
            text = text.replace(mark, "");
        }
    }
    out.extend_from_slice(b"\x1b[200~");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\x1b[201~");
}

/// The byte that Ctrl makes of a character; `None` where it makes none.
pub fn control_byte(c: char) -> Option<u8> {
    Some(match c {
        'a'..='z' => c as u8 - b'a' + 1,
        'A'..='Z' => c as u8 - b'A' + 1,
        ' ' | '@' | '2' | '`' => 0,
        '[' | '3' | '{' => 0x1b,
        '\\' | '4' | '|' => 0x1c,
        ']' | '5' | '}' => 0x1d,
        '^' | '6' | '~' => 0x1e,
        '_' | '7' | '/' => 0x1f,
        '?' | '8' => 0x7f,
        _ => return None,
    })
}

/// xterm's modifier parameter: 1 and the sum of the modifiers.
fn parameter(modifiers: KeyModifiers) -> u8 {
    let mut sum = 1;
    for (one, value) in [
        (KeyModifiers::SHIFT, 1),
        (KeyModifiers::ALT, 2),
        (KeyModifiers::CONTROL, 4),
        (KeyModifiers::SUPER, 8),
        (KeyModifiers::HYPER, 16),
        (KeyModifiers::META, 32),
    ] {
        if modifiers.contains(one) {
            sum += value;
        }
    }
    sum
}

/// How a key without a character is written.
enum Form {
    /// `CSI letter`, `CSI 1;m letter`; SS3 without modifiers where `ss3`.
    Letter { letter: u8, ss3: bool },
    /// `CSI number ~`.
    Tilde(u8),
}

fn form(code: KeyCode, modes: KeyModes) -> Option<Form> {
    let cursor = |letter| Form::Letter {
        letter,
        ss3: modes.application_cursor,
    };
    Some(match code {
        KeyCode::Up => cursor(b'A'),
        KeyCode::Down => cursor(b'B'),
        KeyCode::Right => cursor(b'C'),
        KeyCode::Left => cursor(b'D'),
        KeyCode::KeypadBegin => cursor(b'E'),
        KeyCode::End => cursor(b'F'),
        KeyCode::Home => cursor(b'H'),
        KeyCode::Insert => Form::Tilde(2),
        KeyCode::Delete => Form::Tilde(3),
        KeyCode::PageUp => Form::Tilde(5),
        KeyCode::PageDown => Form::Tilde(6),
        KeyCode::F(n @ 1..=4) => Form::Letter {
            letter: b'P' + n - 1,
            ss3: true,
        },
        KeyCode::F(5) => Form::Tilde(15),
        KeyCode::F(n @ 6..=10) => Form::Tilde(n + 11),
        KeyCode::F(n @ 11..=14) => Form::Tilde(n + 12),
        KeyCode::F(n @ 15..=16) => Form::Tilde(n + 13),
        KeyCode::F(n @ 17..=20) => Form::Tilde(n + 14),
        // xterm has no numbers of its own for these: they are Shift with F9 to F12.
        KeyCode::F(21) => Form::Tilde(20),
        KeyCode::F(n @ 22..=24) => Form::Tilde(n - 1),
        KeyCode::Menu => Form::Tilde(29),
        _ => return None,
    })
}

fn legacy(event: &KeyEvent, modes: KeyModes, out: &mut Vec<u8>) {
    let modifiers = event.modifiers;
    let alt = modifiers.intersects(KeyModifiers::ALT | KeyModifiers::META);
    let control = modifiers.contains(KeyModifiers::CONTROL);
    let keypad = event.state.contains(KeyEventState::KEYPAD) && modes.application_keypad;
    let escape = |out: &mut Vec<u8>| {
        if alt {
            out.push(0x1b);
        }
    };
    match event.code {
        KeyCode::Char(c @ '*'..='9') if keypad && modifiers.is_empty() => {
            out.extend_from_slice(&[0x1b, b'O', c as u8 - b'*' + b'j']);
        }
        KeyCode::Enter if keypad && modifiers.is_empty() => out.extend_from_slice(b"\x1bOM"),
        KeyCode::Char(c) => {
            escape(out);
            match control_byte(c).filter(|_| control) {
                Some(byte) => out.push(byte),
                None => push_char(c, out),
            }
        }
        KeyCode::Enter => {
            escape(out);
            out.push(b'\r');
        }
        KeyCode::Tab => {
            escape(out);
            out.push(b'\t');
        }
        KeyCode::BackTab => {
            escape(out);
            out.extend_from_slice(b"\x1b[Z");
        }
        KeyCode::Backspace => {
            escape(out);
            out.push(if control { 0x08 } else { 0x7f });
        }
        KeyCode::Esc => {
            escape(out);
            out.push(0x1b);
        }
        code => {
            let mut modifiers = modifiers;
            if matches!(code, KeyCode::F(21..=24)) {
                modifiers |= KeyModifiers::SHIFT;
            }
            if let Some(form) = form(code, modes) {
                write_form(&form, parameter(modifiers), out);
            }
        }
    }
}

fn push_char(c: char, out: &mut Vec<u8>) {
    let mut utf8 = [0; 4];
    out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
}

fn write_form(form: &Form, parameter: u8, out: &mut Vec<u8>) {
    let text = match (form, parameter) {
        (Form::Letter { letter, ss3: true }, 1) => format!("\x1bO{}", char::from(*letter)),
        (Form::Letter { letter, .. }, 1) => format!("\x1b[{}", char::from(*letter)),
        (Form::Letter { letter, .. }, m) => format!("\x1b[1;{m}{}", char::from(*letter)),
        (Form::Tilde(number), 1) => format!("\x1b[{number}~"),
        (Form::Tilde(number), m) => format!("\x1b[{number};{m}~"),
    };
    out.extend_from_slice(text.as_bytes());
}

/// The number of a key in the kitty keyboard protocol, for keys written with `u`.
fn kitty_number(event: &KeyEvent) -> Option<u32> {
    let keypad = event.state.contains(KeyEventState::KEYPAD);
    Some(match event.code {
        KeyCode::Enter if keypad => 57414,
        KeyCode::Char(c) if keypad => {
            match b"0123456789./*-+".iter().position(|b| char::from(*b) == c) {
                Some(at) => 57399 + at as u32,
                None if c == '=' => 57415,
                None => 57416,
            }
        }
        KeyCode::Char(c) => u32::from(unshifted(c)),
        KeyCode::Esc => 27,
        KeyCode::Enter => 13,
        KeyCode::Tab | KeyCode::BackTab => 9,
        KeyCode::Backspace => 127,
        KeyCode::CapsLock => 57358,
        KeyCode::ScrollLock => 57359,
        KeyCode::NumLock => 57360,
        KeyCode::PrintScreen => 57361,
        KeyCode::Pause => 57362,
        KeyCode::Menu => 57363,
        KeyCode::F(n @ 13..=35) => 57376 + u32::from(n) - 13,
        KeyCode::Media(media) => 57428 + MEDIA.iter().position(|m| *m == media)? as u32,
        KeyCode::Modifier(code) => 57441 + MODIFIERS.iter().position(|m| *m == code)? as u32,
        _ => return None,
    })
}

fn unshifted(c: char) -> char {
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

fn kitty(event: &KeyEvent, modes: KeyModes, out: &mut Vec<u8>) {
    let flags = modes.kitty_flags;
    let all = flags & ALL_AS_ESCAPES != 0;
    let released = event.kind == KeyEventKind::Release;
    if released && flags & EVENT_TYPES == 0 {
        return;
    }
    let shift_alone = event.modifiers.difference(KeyModifiers::SHIFT).is_empty();
    match event.code {
        KeyCode::Modifier(_) if !all => return,
        KeyCode::Char(c) if !all && shift_alone => {
            if !released {
                push_char(c, out);
            }
            return;
        }
        KeyCode::Enter | KeyCode::Tab | KeyCode::Backspace
            if !all && event.modifiers.is_empty() =>
        {
            if !released {
                legacy(event, KeyModes::default(), out);
            }
            return;
        }
        _ => {}
    }
    let mut modifiers = event.modifiers;
    if event.code == KeyCode::BackTab {
        modifiers |= KeyModifiers::SHIFT;
    }
    let field = modifier_field(modifiers, event.kind, flags);
    let Some(number) = kitty_number(event) else {
        return kitty_form(event.code, &field, out);
    };
    let mut text = format!("\x1b[{number}");
    let character = match event.code {
        KeyCode::Char(c) => Some(c),
        _ => None,
    };
    if flags & ALTERNATES != 0
        && let Some(c) = character.filter(|c| u32::from(*c) != number)
        && modifiers.contains(KeyModifiers::SHIFT)
    {
        text.push_str(&format!(":{}", u32::from(c)));
    }
    let with_text = all && flags & TEXT != 0 && !released && shift_alone;
    match character.filter(|_| with_text) {
        Some(c) => text.push_str(&format!(";{field};{}u", u32::from(c))),
        None if field.is_empty() => text.push('u'),
        None => text.push_str(&format!(";{field}u")),
    }
    out.extend_from_slice(text.as_bytes());
}

/// Empty when there is nothing to say.
fn modifier_field(modifiers: KeyModifiers, kind: KeyEventKind, flags: u8) -> String {
    let parameter = parameter(modifiers);
    let kind = match kind {
        KeyEventKind::Press => 1,
        KeyEventKind::Repeat => 2,
        KeyEventKind::Release => 3,
    };
    if kind != 1 && flags & EVENT_TYPES != 0 {
        return format!("{parameter}:{kind}");
    }
    if parameter == 1 {
        String::new()
    } else {
        parameter.to_string()
    }
}

/// Keys that keep their legacy letter or number under the kitty protocol.
fn kitty_form(code: KeyCode, field: &str, out: &mut Vec<u8>) {
    let form = match code {
        // `CSI R` would be an answer to a cursor query.
        KeyCode::F(3) => Some(Form::Tilde(13)),
        _ => form(code, KeyModes::default()),
    };
    let text = match form {
        Some(Form::Letter { letter, .. }) if field.is_empty() => {
            format!("\x1b[{}", char::from(letter))
        }
        Some(Form::Letter { letter, .. }) => format!("\x1b[1;{field}{}", char::from(letter)),
        Some(Form::Tilde(number)) if field.is_empty() => format!("\x1b[{number}~"),
        Some(Form::Tilde(number)) => format!("\x1b[{number};{field}~"),
        None => return,
    };
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: KeyModifiers = KeyModifiers::CONTROL;
    const S: KeyModifiers = KeyModifiers::SHIFT;
    const A: KeyModifiers = KeyModifiers::ALT;
    const N: KeyModifiers = KeyModifiers::NONE;

    fn bytes(code: KeyCode, modifiers: KeyModifiers, modes: KeyModes) -> String {
        let mut out = Vec::new();
        encode(&KeyEvent::new(code, modifiers), modes, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn with_flags(kitty_flags: u8) -> KeyModes {
        KeyModes {
            kitty_flags,
            ..KeyModes::default()
        }
    }

    #[test]
    fn legacy_keys_are_xterms() {
        let table = [
            (KeyCode::Char('a'), N, "a"),
            (KeyCode::Char('A'), S, "A"),
            (KeyCode::Char('é'), A, "\x1bé"),
            (KeyCode::Char('b'), C, "\x02"),
            (KeyCode::Char('\\'), C, "\x1c"),
            (KeyCode::Char(' '), C, "\0"),
            (KeyCode::Char('x'), C | A, "\x1b\x18"),
            (KeyCode::Enter, N, "\r"),
            (KeyCode::Enter, A, "\x1b\r"),
            (KeyCode::Tab, N, "\t"),
            (KeyCode::BackTab, S, "\x1b[Z"),
            (KeyCode::Backspace, N, "\x7f"),
            (KeyCode::Backspace, C, "\x08"),
            (KeyCode::Esc, N, "\x1b"),
            (KeyCode::Up, N, "\x1b[A"),
            (KeyCode::Left, C, "\x1b[1;5D"),
            (KeyCode::Home, S | A | C, "\x1b[1;8H"),
            (KeyCode::Delete, N, "\x1b[3~"),
            (KeyCode::PageUp, S, "\x1b[5;2~"),
            (KeyCode::F(1), N, "\x1bOP"),
            (KeyCode::F(1), C, "\x1b[1;5P"),
            (KeyCode::F(4), N, "\x1bOS"),
            (KeyCode::F(5), N, "\x1b[15~"),
            (KeyCode::F(6), N, "\x1b[17~"),
            (KeyCode::F(10), N, "\x1b[21~"),
            (KeyCode::F(11), N, "\x1b[23~"),
            (KeyCode::F(12), A, "\x1b[24;3~"),
            (KeyCode::F(13), N, "\x1b[25~"),
            (KeyCode::F(15), N, "\x1b[28~"),
            (KeyCode::F(20), N, "\x1b[34~"),
            (KeyCode::F(21), N, "\x1b[20;2~"),
            (KeyCode::F(24), N, "\x1b[23;2~"),
        ];
        for (code, modifiers, expected) in table {
            let found = bytes(code, modifiers, KeyModes::default());
            assert_eq!(found, expected, "{code:?} {modifiers:?}");
        }
    }

    #[test]
    fn application_modes_change_cursor_and_keypad() {
        let modes = KeyModes {
            application_cursor: true,
            application_keypad: true,
            ..KeyModes::default()
        };
        assert_eq!(bytes(KeyCode::Up, N, modes), "\x1bOA");
        assert_eq!(bytes(KeyCode::Up, S, modes), "\x1b[1;2A");
        assert_eq!(bytes(KeyCode::End, N, modes), "\x1bOF");
        let mut event = KeyEvent::new(KeyCode::Char('5'), N);
        event.state = KeyEventState::KEYPAD;
        let mut out = Vec::new();
        encode(&event, modes, &mut out);
        assert_eq!(out, b"\x1bOu");
    }

    #[test]
    fn kitty_levels_are_followed() {
        let table = [
            (KeyCode::Esc, N, 1, "\x1b[27u"),
            (KeyCode::Char('a'), N, 1, "a"),
            (KeyCode::Char('A'), S, 1, "A"),
            (KeyCode::Char('c'), C, 1, "\x1b[99;5u"),
            (KeyCode::Char('i'), C, 1, "\x1b[105;5u"),
            (KeyCode::Enter, N, 1, "\r"),
            (KeyCode::Enter, S, 1, "\x1b[13;2u"),
            (KeyCode::BackTab, S, 1, "\x1b[9;2u"),
            (KeyCode::Up, C, 1, "\x1b[1;5A"),
            (KeyCode::F(3), N, 1, "\x1b[13~"),
            (KeyCode::F(13), N, 1, "\x1b[57376u"),
            (KeyCode::Char('a'), N, 9, "\x1b[97u"),
            (KeyCode::Char('A'), S, 13, "\x1b[97:65;2u"),
            (KeyCode::Char('A'), S, 25, "\x1b[97;2;65u"),
            (KeyCode::Enter, N, 9, "\x1b[13u"),
        ];
        for (code, modifiers, flags, expected) in table {
            let found = bytes(code, modifiers, with_flags(flags));
            assert_eq!(found, expected, "{code:?} {modifiers:?} {flags}");
        }
    }

    #[test]
    fn releases_reach_only_programs_that_asked() {
        let mut event = KeyEvent::new(KeyCode::Up, N);
        event.kind = KeyEventKind::Release;
        for (flags, expected) in [(0, ""), (1, ""), (3, "\x1b[1;1:3A")] {
            let mut out = Vec::new();
            encode(&event, with_flags(flags), &mut out);
            assert_eq!(out, expected.as_bytes(), "{flags}");
        }
    }

    #[test]
    fn a_paste_cannot_end_itself() {
        let modes = KeyModes {
            bracketed_paste: true,
            ..KeyModes::default()
        };
        let mut out = Vec::new();
        encode_paste("a\x1b[20\x1b[201~1~rm\n", modes, &mut out);
        assert_eq!(out, b"\x1b[200~arm\n\x1b[201~");
        let mut out = Vec::new();
        encode_paste("a\r\nb\nc", KeyModes::default(), &mut out);
        assert_eq!(out, b"a\rb\rc");
    }

    #[test]
    fn what_is_read_is_what_is_written() {
        for bytes in [
            &b"\x1b[1;5D"[..],
            b"\x1b[24~",
            b"\x1bx",
            b"\x02",
            b"\x1c",
            b"\x1b[1;2P",
            b"\x1b[5;3~",
            b"\x1b[Z",
            b"\x7f",
        ] {
            let mut reader = super::super::input::Reader::default();
            reader.push(bytes);
            let mut out = Vec::new();
            match reader.next() {
                Some(crossterm::event::Event::Key(event)) => {
                    encode(&event, KeyModes::default(), &mut out);
                }
                other => panic!("{bytes:?}: {other:?}"),
            }
            assert_eq!(out, bytes);
        }
    }
}
