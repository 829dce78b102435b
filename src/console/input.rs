//! The outer terminal's bytes, read as keys, pastes, mouse and focus events.
//!
//! ```text
//! CSI … letter   arrows, Home, End, F1-F4; I and O: focus; M and m after <: mouse
//! CSI … ~        Delete, Page Up, F5-F24; 200~ … 201~: paste
//! CSI … u        kitty keyboard protocol
//! SS3 letter     arrows and F1-F4 in application mode
//! ESC key        Alt with the key
//! ```
//!
//! Answers to queries and unknown sequences are dropped: this process asks nothing of its terminal.
//! Our own reader is needed because crossterm's blocks on half a sequence and spins on a closed
//! terminal; the events are crossterm's, which its Windows reader gives directly.

use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyEventState, KeyModifiers, MediaKeyCode,
    ModifierKeyCode, MouseButton, MouseEvent, MouseEventKind,
};

use crate::base::limits;

const PASTE_END: &[u8] = b"\x1b[201~";

/// Bytes in, events out. Holds at most one unfinished sequence or paste.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: Vec<u8>,
    /// The text of a paste whose end has not come.
    paste: Option<Vec<u8>>,
}

/// What stands at the start of the buffer.
enum Step {
    Event(Event, usize),
    Skip(usize),
    PasteStart(usize),
    /// More bytes are needed.
    Partial,
}

impl Reader {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether an unfinished sequence waits: after a short silence, `settle` ends it.
    pub fn is_unsettled(&self) -> bool {
        self.paste.is_none() && !self.buffer.is_empty()
    }

    /// The terminal went silent: what waits was keys, not the start of a sequence.
    pub fn settle(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        if !self.is_unsettled() {
            return events;
        }
        let mut bytes = std::mem::take(&mut self.buffer);
        if bytes == b"\x1b" {
            events.push(key(KeyCode::Esc, KeyModifiers::NONE));
            return events;
        }
        if bytes.len() == 2 && bytes[0] == 0x1b {
            // Alt with `[` or `O`.
            let code = KeyCode::Char(char::from(bytes[1]));
            events.push(key(code, KeyModifiers::ALT));
            return events;
        }
        bytes.clear();
        events
    }

    fn read_paste(&mut self) -> Option<Event> {
        let text = self.paste.as_mut()?;
        let (taken, ended) = match find(&self.buffer, PASTE_END) {
            Some(at) => (at, true),
            None => (whole_part(&self.buffer), false),
        };
        text.extend(self.buffer.drain(..taken));
        if ended {
            self.buffer.drain(..PASTE_END.len());
        }
        if ended || text.len() >= limits::CONSOLE_PASTE_LEN_MAX {
            let text = String::from_utf8_lossy(text).into_owned();
            self.paste = (!ended).then(Vec::new);
            return Some(Event::Paste(text));
        }
        None
    }
}

impl Iterator for Reader {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if self.paste.is_some() {
                return self.read_paste();
            }
            match step(&self.buffer) {
                Step::Event(event, len) => {
                    self.buffer.drain(..len);
                    return Some(event);
                }
                Step::Skip(len) => {
                    self.buffer.drain(..len);
                }
                Step::PasteStart(len) => {
                    self.buffer.drain(..len);
                    self.paste = Some(Vec::new());
                }
                Step::Partial => {
                    if self.buffer.len() > limits::CONSOLE_SEQUENCE_LEN_MAX {
                        self.buffer.clear();
                    }
                    return None;
                }
            }
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// How much of a paste can be taken without cutting a possible end mark.
fn whole_part(buffer: &[u8]) -> usize {
    let kept = (1..PASTE_END.len())
        .rev()
        .find(|len| buffer.ends_with(&PASTE_END[..*len]))
        .unwrap_or(0);
    buffer.len() - kept
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
    Event::Key(KeyEvent::new(code, modifiers))
}

fn step(bytes: &[u8]) -> Step {
    match bytes {
        [] => Step::Partial,
        [0x1b] => Step::Partial,
        [0x1b, b'[', rest @ ..] => csi(rest),
        [0x1b, b'O', rest @ ..] => ss3(rest),
        [0x1b, b']' | b'P' | b'_' | b'^', rest @ ..] if !rest.is_empty() => string(rest),
        // Escape twice is Alt with Escape; Escape before a sequence is Escape and then that.
        [0x1b, 0x1b, b'[' | b'O', ..] => Step::Event(key(KeyCode::Esc, KeyModifiers::NONE), 1),
        [0x1b, 0x1b] => Step::Event(key(KeyCode::Esc, KeyModifiers::ALT), 2),
        [0x1b, rest @ ..] => match plain(rest) {
            Step::Event(Event::Key(mut event), len) => {
                event.modifiers |= KeyModifiers::ALT;
                Step::Event(Event::Key(event), len + 1)
            }
            Step::Skip(len) => Step::Skip(len + 1),
            other => other,
        },
        _ => plain(bytes),
    }
}

/// A key without a sequence: a control byte or a character.
fn plain(bytes: &[u8]) -> Step {
    let Some(first) = bytes.first().copied() else {
        return Step::Partial;
    };
    let control = KeyModifiers::CONTROL;
    let (code, modifiers) = match first {
        0 => (KeyCode::Char(' '), control),
        b'\r' => (KeyCode::Enter, KeyModifiers::NONE),
        b'\t' => (KeyCode::Tab, KeyModifiers::NONE),
        0x7f => (KeyCode::Backspace, KeyModifiers::NONE),
        0x1b => (KeyCode::Esc, KeyModifiers::NONE),
        0x01..=0x1a => (KeyCode::Char(char::from(first - 1 + b'a')), control),
        0x1c..=0x1f => (KeyCode::Char(char::from(first + 0x40)), control),
        _ => return character(bytes),
    };
    Step::Event(key(code, modifiers), 1)
}

fn character(bytes: &[u8]) -> Step {
    let len = match bytes[0] {
        0x20..=0x7e => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Step::Skip(1),
    };
    let Some(text) = bytes.get(..len) else {
        return Step::Partial;
    };
    match std::str::from_utf8(text)
        .ok()
        .and_then(|t| t.chars().next())
    {
        Some(c) if c.is_uppercase() => Step::Event(key(KeyCode::Char(c), KeyModifiers::SHIFT), len),
        Some(c) => Step::Event(key(KeyCode::Char(c), KeyModifiers::NONE), len),
        None => Step::Skip(1),
    }
}

/// An answer in a string sequence: skipped to its end.
fn string(rest: &[u8]) -> Step {
    let bell = rest.iter().position(|b| *b == 7).map(|at| at + 1);
    let st = find(rest, b"\x1b\\").map(|at| at + 2);
    match bell.into_iter().chain(st).min() {
        Some(len) => Step::Skip(2 + len),
        None => Step::Partial,
    }
}

fn ss3(rest: &[u8]) -> Step {
    let Some(letter) = rest.first() else {
        return Step::Partial;
    };
    let keypad = |c: char| {
        let mut event = KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
        event.state = KeyEventState::KEYPAD;
        Event::Key(event)
    };
    let event = match letter {
        b'M' => key(KeyCode::Enter, KeyModifiers::NONE),
        b'j'..=b'y' => keypad(char::from(letter - b'j' + b'*')),
        b'X' => keypad('='),
        _ => match letter_key(*letter) {
            Some(code) => key(code, KeyModifiers::NONE),
            None => return Step::Skip(3),
        },
    };
    Step::Event(event, 3)
}

fn letter_key(letter: u8) -> Option<KeyCode> {
    Some(match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'E' => KeyCode::KeypadBegin,
        b'F' => KeyCode::End,
        b'H' => KeyCode::Home,
        b'P' => KeyCode::F(1),
        b'Q' => KeyCode::F(2),
        b'R' => KeyCode::F(3),
        b'S' => KeyCode::F(4),
        _ => return None,
    })
}

fn csi(rest: &[u8]) -> Step {
    if rest.first() == Some(&b'M') {
        return match rest.get(1..4) {
            Some(body) => classic_mouse(body),
            None => Step::Partial,
        };
    }
    if rest.first() == Some(&b'[') {
        // The Linux console's F1 to F5.
        return match rest.get(1) {
            Some(letter @ b'A'..=b'E') => {
                Step::Event(key(KeyCode::F(letter - b'A' + 1), KeyModifiers::NONE), 4)
            }
            Some(_) => Step::Skip(4),
            None => Step::Partial,
        };
    }
    let Some(end) = rest.iter().position(|b| (0x40..=0x7e).contains(b)) else {
        // A control byte inside means that the sequence was broken off.
        return match rest.iter().position(|b| *b < 0x20) {
            Some(at) => Step::Skip(2 + at),
            None => Step::Partial,
        };
    };
    let len = end + 3;
    let body = std::str::from_utf8(&rest[..end]).unwrap_or("?");
    match sequence(body, rest[end]) {
        Some(Event::FocusGained) => Step::Event(Event::FocusGained, len),
        Some(event) => Step::Event(event, len),
        None if body == "200" && rest[end] == b'~' => Step::PasteStart(len),
        None => Step::Skip(len),
    }
}

fn sequence(body: &str, last: u8) -> Option<Event> {
    if let Some(body) = body.strip_prefix('<') {
        return sgr_mouse(body, last);
    }
    if body.starts_with(['?', '>', '=']) {
        return None;
    }
    match (body, last) {
        ("", b'I') => return Some(Event::FocusGained),
        ("", b'O') => return Some(Event::FocusLost),
        ("", b'Z') => return Some(key(KeyCode::BackTab, KeyModifiers::SHIFT)),
        _ => {}
    }
    let mut fields = body.split(';');
    let first = fields.next().unwrap_or("");
    let (modifiers, kind, state) = modifier_field(fields.next().unwrap_or(""));
    let code = match last {
        b'u' => return kitty(first, modifiers, kind, state),
        b'~' => tilde_key(first.parse().ok()?)?,
        letter => letter_key(letter)?,
    };
    Some(Event::Key(KeyEvent::new_with_kind_and_state(
        code, modifiers, kind, state,
    )))
}

fn modifier_field(field: &str) -> (KeyModifiers, KeyEventKind, KeyEventState) {
    let (mask, kind) = field.split_once(':').unwrap_or((field, "1"));
    let mask = mask.parse::<u8>().unwrap_or(1).saturating_sub(1);
    let mut modifiers = KeyModifiers::NONE;
    for (bit, one) in [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
        (8, KeyModifiers::SUPER),
        (16, KeyModifiers::HYPER),
        (32, KeyModifiers::META),
    ] {
        modifiers.set(one, mask & bit != 0);
    }
    let mut state = KeyEventState::NONE;
    state.set(KeyEventState::CAPS_LOCK, mask & 64 != 0);
    state.set(KeyEventState::NUM_LOCK, mask & 128 != 0);
    let kind = match kind {
        "2" => KeyEventKind::Repeat,
        "3" => KeyEventKind::Release,
        _ => KeyEventKind::Press,
    };
    (modifiers, kind, state)
}

fn tilde_key(number: u8) -> Option<KeyCode> {
    Some(match number {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        11..=15 => KeyCode::F(number - 10),
        17..=21 => KeyCode::F(number - 11),
        23..=26 => KeyCode::F(number - 12),
        28 | 29 => KeyCode::F(number - 13),
        31..=34 => KeyCode::F(number - 14),
        _ => return None,
    })
}

/// `code[:shifted[:base]]` of the kitty keyboard protocol.
fn kitty(
    codes: &str,
    modifiers: KeyModifiers,
    kind: KeyEventKind,
    mut state: KeyEventState,
) -> Option<Event> {
    let mut parts = codes.split(':');
    let number: u32 = parts.next()?.parse().ok()?;
    let shifted: Option<u32> = parts.next().and_then(|part| part.parse().ok());
    let code = match number {
        27 => KeyCode::Esc,
        13 => KeyCode::Enter,
        9 if modifiers.contains(KeyModifiers::SHIFT) => KeyCode::BackTab,
        9 => KeyCode::Tab,
        127 => KeyCode::Backspace,
        57358..=57454 => {
            let (code, keypad) = functional(number)?;
            state.set(KeyEventState::KEYPAD, keypad);
            code
        }
        _ => {
            let c = char::from_u32(number)?;
            let shown = match shifted.and_then(char::from_u32) {
                Some(shifted) if modifiers.contains(KeyModifiers::SHIFT) => shifted,
                _ if modifiers.contains(KeyModifiers::SHIFT) && c.is_lowercase() => {
                    c.to_uppercase().next().unwrap_or(c)
                }
                _ => c,
            };
            KeyCode::Char(shown)
        }
    };
    Some(Event::Key(KeyEvent::new_with_kind_and_state(
        code, modifiers, kind, state,
    )))
}

/// The private-use numbers of the kitty keyboard protocol, and whether the key is on the keypad.
fn functional(number: u32) -> Option<(KeyCode, bool)> {
    const NAMED: [KeyCode; 6] = [
        KeyCode::CapsLock,
        KeyCode::ScrollLock,
        KeyCode::NumLock,
        KeyCode::PrintScreen,
        KeyCode::Pause,
        KeyCode::Menu,
    ];
    const KEYPAD: [KeyCode; 12] = [
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::Insert,
        KeyCode::Delete,
        KeyCode::KeypadBegin,
        KeyCode::Null,
    ];
    let index = |start: u32| (number - start) as usize;
    Some(match number {
        57358..=57363 => (NAMED[index(57358)], false),
        57376..=57398 => (KeyCode::F((number - 57376) as u8 + 13), false),
        57399..=57413 => {
            let c = b"0123456789./*-+"[index(57399)];
            (KeyCode::Char(char::from(c)), true)
        }
        57414 => (KeyCode::Enter, true),
        57415 => (KeyCode::Char('='), true),
        57416 => (KeyCode::Char(','), true),
        57417..=57427 => (KEYPAD[index(57417)], true),
        57428..=57440 => (KeyCode::Media(MEDIA[index(57428)]), false),
        57441..=57454 => (KeyCode::Modifier(MODIFIERS[index(57441)]), false),
        _ => return None,
    })
}

/// In the protocol's order, from 57428.
pub(super) const MEDIA: [MediaKeyCode; 13] = [
    MediaKeyCode::Play,
    MediaKeyCode::Pause,
    MediaKeyCode::PlayPause,
    MediaKeyCode::Reverse,
    MediaKeyCode::Stop,
    MediaKeyCode::FastForward,
    MediaKeyCode::Rewind,
    MediaKeyCode::TrackNext,
    MediaKeyCode::TrackPrevious,
    MediaKeyCode::Record,
    MediaKeyCode::LowerVolume,
    MediaKeyCode::RaiseVolume,
    MediaKeyCode::MuteVolume,
];

/// In the protocol's order, from 57441.
pub(super) const MODIFIERS: [ModifierKeyCode; 14] = [
    ModifierKeyCode::LeftShift,
    ModifierKeyCode::LeftControl,
    ModifierKeyCode::LeftAlt,
    ModifierKeyCode::LeftSuper,
    ModifierKeyCode::LeftHyper,
    ModifierKeyCode::LeftMeta,
    ModifierKeyCode::RightShift,
    ModifierKeyCode::RightControl,
    ModifierKeyCode::RightAlt,
    ModifierKeyCode::RightSuper,
    ModifierKeyCode::RightHyper,
    ModifierKeyCode::RightMeta,
    ModifierKeyCode::IsoLevel3Shift,
    ModifierKeyCode::IsoLevel5Shift,
];

fn sgr_mouse(body: &str, last: u8) -> Option<Event> {
    let mut fields = body.split(';').map(|field| field.parse::<u16>().ok());
    let (code, x, y) = (fields.next()??, fields.next()??, fields.next()??);
    mouse(code, last == b'm', x, y)
}

fn classic_mouse(body: &[u8]) -> Step {
    let [code, x, y] = *body else {
        return Step::Partial;
    };
    let code = u16::from(code.saturating_sub(32));
    let place = |byte: u8| u16::from(byte.saturating_sub(32));
    match mouse(code, code & 3 == 3 && code < 64, place(x), place(y)) {
        Some(event) => Step::Event(event, 6),
        None => Step::Skip(6),
    }
}

/// `x` and `y` count from 1.
fn mouse(code: u16, released: bool, x: u16, y: u16) -> Option<Event> {
    let button = match code & 3 {
        0 => MouseButton::Left,
        1 => MouseButton::Middle,
        _ => MouseButton::Right,
    };
    let kind = match (code & 64 != 0, code & 32 != 0) {
        (true, _) => match code & 3 {
            0 => MouseEventKind::ScrollUp,
            1 => MouseEventKind::ScrollDown,
            2 => MouseEventKind::ScrollLeft,
            _ => MouseEventKind::ScrollRight,
        },
        (false, true) if code & 3 == 3 => MouseEventKind::Moved,
        (false, true) => MouseEventKind::Drag(button),
        (false, false) if released => MouseEventKind::Up(button),
        (false, false) if code & 3 == 3 => return None,
        (false, false) => MouseEventKind::Down(button),
    };
    let mut modifiers = KeyModifiers::NONE;
    modifiers.set(KeyModifiers::SHIFT, code & 4 != 0);
    modifiers.set(KeyModifiers::ALT, code & 8 != 0);
    modifiers.set(KeyModifiers::CONTROL, code & 16 != 0);
    Some(Event::Mouse(MouseEvent {
        kind,
        column: x.checked_sub(1)?,
        row: y.checked_sub(1)?,
        modifiers,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<Event> {
        let mut reader = Reader::default();
        reader.push(bytes);
        let mut events: Vec<Event> = reader.by_ref().collect();
        events.extend(reader.settle());
        events
    }

    fn one(bytes: &[u8]) -> Event {
        let events = read(bytes);
        assert_eq!(events.len(), 1, "{bytes:?}: {events:?}");
        events.into_iter().next().unwrap()
    }

    #[test]
    fn keys_of_every_form_are_read() {
        let none = KeyModifiers::NONE;
        let table: &[(&[u8], KeyCode, KeyModifiers)] = &[
            (b"a", KeyCode::Char('a'), none),
            ("ß".as_bytes(), KeyCode::Char('ß'), none),
            (b"\x1c", KeyCode::Char('\\'), KeyModifiers::CONTROL),
            (b"\x02", KeyCode::Char('b'), KeyModifiers::CONTROL),
            (b"\x1bx", KeyCode::Char('x'), KeyModifiers::ALT),
            (b"\x1b[", KeyCode::Char('['), KeyModifiers::ALT),
            (b"\x1b", KeyCode::Esc, none),
            (b"\x1b\x1b", KeyCode::Esc, KeyModifiers::ALT),
            (b"\x1bOP", KeyCode::F(1), none),
            (b"\x1b[24~", KeyCode::F(12), none),
            (b"\x1b[34~", KeyCode::F(20), none),
            (b"\x1b[1;5C", KeyCode::Right, KeyModifiers::CONTROL),
            (b"\x1b[3;3~", KeyCode::Delete, KeyModifiers::ALT),
            (b"\x1b[Z", KeyCode::BackTab, KeyModifiers::SHIFT),
            (b"\x1b[27u", KeyCode::Esc, none),
            (b"\x1b[92;5u", KeyCode::Char('\\'), KeyModifiers::CONTROL),
            (b"\x1b[97:65;2u", KeyCode::Char('A'), KeyModifiers::SHIFT),
            (b"\x1b[57376u", KeyCode::F(13), none),
            (b"\x1b[[A", KeyCode::F(1), none),
        ];
        for (bytes, code, modifiers) in table {
            assert_eq!(one(bytes), key(*code, *modifiers), "{bytes:?}");
        }
    }

    #[test]
    fn a_sequence_may_come_byte_by_byte() {
        for bytes in ["\x1b[1;5C", "\x1b[<0;3;4M", "漢", "\x1b[200~x\x1b[201~"] {
            let mut reader = Reader::default();
            let mut events = Vec::new();
            for byte in bytes.bytes() {
                reader.push(&[byte]);
                events.extend(reader.by_ref());
            }
            assert_eq!(events, read(bytes.as_bytes()));
            assert_eq!(events.len(), 1);
        }
    }

    #[test]
    fn a_paste_is_one_event_with_whatever_it_holds() {
        let text = "a\x1b[A\r\n\x1b[20é";
        let event = one(format!("\x1b[200~{text}\x1b[201~").as_bytes());
        assert_eq!(event, Event::Paste(text.into()));
    }

    #[test]
    fn an_endless_paste_is_given_in_parts() {
        let mut reader = Reader::default();
        reader.push(b"\x1b[200~");
        reader.push(&vec![b'x'; limits::CONSOLE_PASTE_LEN_MAX + 1]);
        assert!(matches!(reader.next(), Some(Event::Paste(_))));
        reader.push(b"y\x1b[201~z");
        assert_eq!(reader.next(), Some(Event::Paste("y".into())));
        assert_eq!(
            reader.next(),
            Some(key(KeyCode::Char('z'), KeyModifiers::NONE))
        );
    }

    #[test]
    fn answers_and_rubbish_are_dropped() {
        for bytes in [
            &b"\x1b[?62;4c"[..],
            b"\x1b]11;rgb:0/0/0\x07",
            b"\x1bP1+r\x1b\\",
            b"\x1b[?1u",
            b"\xff\xfe",
            b"\x1b[999~",
        ] {
            assert_eq!(read(bytes), [], "{bytes:?}");
        }
        assert_eq!(
            read(b"\x1b[12\x01").len(),
            1,
            "the key after a broken sequence"
        );
    }

    #[test]
    fn mouse_events_carry_place_and_modifiers() {
        let event = |kind, column, row, modifiers| {
            Event::Mouse(MouseEvent {
                kind,
                column,
                row,
                modifiers,
            })
        };
        let none = KeyModifiers::NONE;
        let left = MouseButton::Left;
        assert_eq!(
            one(b"\x1b[<0;3;4M"),
            event(MouseEventKind::Down(left), 2, 3, none)
        );
        assert_eq!(
            one(b"\x1b[<0;3;4m"),
            event(MouseEventKind::Up(left), 2, 3, none)
        );
        assert_eq!(
            one(b"\x1b[<80;1;1M"),
            event(MouseEventKind::ScrollUp, 0, 0, KeyModifiers::CONTROL)
        );
        assert_eq!(
            one(b"\x1b[<35;300;1M"),
            event(MouseEventKind::Moved, 299, 0, none)
        );
        assert_eq!(
            one(b"\x1b[M !!"),
            event(MouseEventKind::Down(left), 0, 0, none)
        );
    }
}
