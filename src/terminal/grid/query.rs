//! Answers to what programs ask a terminal, and the sequences that the parser underneath does not know.

use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::Flags;
use data_encoding::HEXUPPER_PERMISSIVE;
use vte::ansi::{CharsetIndex, Handler as _, Mode, NamedColor, NamedMode, Rgb};

use super::dispatch::Dispatch;
use super::engine::Engine;
use super::snapshot::sgr;
use super::view::{MouseMode, Style};
use super::{Options, snapshot};

/// Device attributes: a VT220 with colours; 1 and the version in the secondary ones.
pub(super) fn device_attributes(intermediate: Option<char>) -> Option<&'static str> {
    match intermediate {
        None => Some("\x1b[?62;22c"),
        Some('>') => Some("\x1b[>1;100;0c"),
        Some('=') => Some("\x1bP!|00000000\x1b\\"),
        _ => None,
    }
}

/// Row and column from 1; the row counts from the margin in origin mode.
fn position(engine: &Engine) -> (usize, usize) {
    let point = engine.cells().cursor.point;
    let row = point.line.0 as usize;
    let top = if engine.mode(TermMode::ORIGIN) {
        engine.shadow.margins.start
    } else {
        0
    };
    (row.saturating_sub(top) + 1, point.column.0 + 1)
}

pub(super) fn device_status(engine: &Engine, kind: usize) -> Option<String> {
    match kind {
        5 => Some("\x1b[0n".into()),
        6 => {
            let (row, column) = position(engine);
            Some(format!("\x1b[{row};{column}R"))
        }
        _ => None,
    }
}

fn private_device_status(engine: &Engine, options: &Options, kind: u16) -> Option<String> {
    Some(match kind {
        6 => {
            let (row, column) = position(engine);
            format!("\x1b[?{row};{column}R")
        }
        // No printer, locked user keys, a North American keyboard, no locator.
        15 => "\x1b[?13n".into(),
        25 => "\x1b[?21n".into(),
        26 => "\x1b[?27;1;0;0n".into(),
        53 | 55 => "\x1b[?50n".into(),
        996 => {
            let Rgb { r, g, b } = color(engine, options, NamedColor::Background as usize);
            let light = u32::from(r) * 3 + u32::from(g) * 6 + u32::from(b) > 1_280;
            format!("\x1b[?997;{}n", 1 + u8::from(light))
        }
        _ => return None,
    })
}

const fn set(on: bool) -> u8 {
    if on { 1 } else { 2 }
}

pub(super) fn mode_report(engine: &Engine, mode: Mode) -> String {
    let state = match mode {
        Mode::Named(NamedMode::Insert) => set(engine.mode(TermMode::INSERT)),
        Mode::Named(NamedMode::LineFeedNewLine) => set(engine.mode(TermMode::LINE_FEED_NEW_LINE)),
        Mode::Unknown(_) => 0,
    };
    format!("\x1b[{};{state}$y", mode.raw())
}

pub(super) fn private_mode_report(engine: &Engine, mode: u16) -> String {
    let shadow = &engine.shadow;
    let flag = |flag: TermMode| set(engine.mode(flag));
    let state = match mode {
        1 => flag(TermMode::APP_CURSOR),
        5 => set(shadow.reverse_screen),
        6 => flag(TermMode::ORIGIN),
        7 => flag(TermMode::LINE_WRAP),
        9 => set(shadow.mouse == MouseMode::X10),
        12 => set(shadow.cursor_style.is_some_and(|style| style.blinking)),
        25 => flag(TermMode::SHOW_CURSOR),
        47 | 1047 | 1049 => set(engine.is_alternate()),
        66 => flag(TermMode::APP_KEYPAD),
        1000 => set(shadow.mouse == MouseMode::Click),
        1002 => set(shadow.mouse == MouseMode::Drag),
        1003 => set(shadow.mouse == MouseMode::Motion),
        1004 => flag(TermMode::FOCUS_IN_OUT),
        1005 => flag(TermMode::UTF8_MOUSE),
        1006 => flag(TermMode::SGR_MOUSE),
        1007 => flag(TermMode::ALTERNATE_SCROLL),
        1015 => set(shadow.urxvt_mouse),
        1042 => flag(TermMode::URGENCY_HINTS),
        2004 => flag(TermMode::BRACKETED_PASTE),
        2026 => set(shadow.synchronized),
        _ => 0,
    };
    format!("\x1b[?{mode};{state}$y")
}

/// A colour as it is now: what the program set, or the palette's.
pub(super) fn color(engine: &Engine, options: &Options, index: usize) -> Rgb {
    if let Some(color) = engine.term.colors()[index] {
        return color;
    }
    let palette = &options.palette;
    let [r, g, b] = match index {
        0..16 => palette.colors[index],
        16..232 => {
            let level = |n: usize| if n == 0 { 0 } else { (n * 40 + 55) as u8 };
            let cube = index - 16;
            [level(cube / 36), level(cube / 6 % 6), level(cube % 6)]
        }
        232..=255 => [((index - 232) * 10 + 8) as u8; 3],
        257 => palette.background,
        258 => palette.cursor,
        _ => palette.foreground,
    };
    Rgb { r, g, b }
}

pub(super) fn window_report(engine: &Engine, options: &Options, kind: u16) -> Option<String> {
    let size = engine.size();
    let (columns, rows) = (u32::from(size.cols), u32::from(size.rows));
    let (width, height) = (
        u32::from(options.cell_pixels.0),
        u32::from(options.cell_pixels.1),
    );
    Some(match kind {
        11 => "\x1b[1t".into(),
        13 => "\x1b[3;0;0t".into(),
        14 => format!("\x1b[4;{};{}t", rows * height, columns * width),
        15 => format!("\x1b[5;{};{}t", rows * height, columns * width),
        16 => format!("\x1b[6;{height};{width}t"),
        18 => format!("\x1b[8;{rows};{columns}t"),
        19 => format!("\x1b[9;{rows};{columns}t"),
        _ => return None,
    })
}

/// A control sequence taken apart: private marker, numbers, intermediate, final byte.
struct Control {
    marker: Option<u8>,
    numbers: [u16; 8],
    given: usize,
    intermediate: Option<u8>,
    last: u8,
}

impl Control {
    /// `None` for forms that none of our sequences has, such as sub-parameters.
    fn parse(body: &[u8]) -> Option<Self> {
        let (&last, mut rest) = body.split_last()?;
        let marker = rest
            .first()
            .copied()
            .filter(|byte| matches!(byte, b'<'..=b'?'));
        rest = &rest[usize::from(marker.is_some())..];
        let intermediate = rest
            .last()
            .copied()
            .filter(|byte| matches!(byte, b' '..=b'/'));
        rest = &rest[..rest.len() - usize::from(intermediate.is_some())];
        let mut control = Self {
            marker,
            numbers: [0; 8],
            given: 0,
            intermediate,
            last,
        };
        if rest.is_empty() {
            return Some(control);
        }
        for part in rest.split(|byte| *byte == b';') {
            // The grammar passes over controls and what is not ASCII.
            let counted = part.iter().filter(|byte| (0x20..0x7f).contains(*byte));
            let number = counted.into_iter().try_fold(0_u16, |sum, byte| {
                let digit = u16::from(byte.wrapping_sub(b'0'));
                (digit < 10).then(|| sum.saturating_mul(10).saturating_add(digit))
            })?;
            *control.numbers.get_mut(control.given)? = number;
            control.given += 1;
        }
        Some(control)
    }

    fn number(&self, index: usize, default: u16) -> u16 {
        match self.numbers.get(index) {
            Some(&number) if number != 0 => number,
            _ => default,
        }
    }
}

/// Handles a control sequence, `body` without `ESC [`; false when the parser shall see it.
pub(super) fn control(body: &[u8], to: &mut Dispatch<'_>) -> bool {
    // The sequences that make up nearly all output are none of ours.
    let Some(b'b' | b'j' | b'k' | b'n' | b'p' | b'q' | b't' | b'x' | b'y' | b'S') = body.last()
    else {
        return false;
    };
    let Some(control) = Control::parse(body) else {
        // The parser would repeat the last character of whichever grid it served before.
        return body.ends_with(b"b");
    };
    let first = control.number(0, 0);
    let answer = match (control.marker, control.intermediate, control.last) {
        (None, None, b'b') => {
            to.repeat(usize::from(control.number(0, 1)));
            None
        }
        (None, None, b'j') => {
            to.move_backward(usize::from(control.number(0, 1)));
            None
        }
        (None, None, b'k') => {
            to.move_up(usize::from(control.number(0, 1)));
            None
        }
        (Some(b'?'), None, b'n') => private_device_status(to.engine, to.options, first),
        (None, Some(b'!'), b'p') => {
            to.soft_reset();
            None
        }
        (Some(b'>'), None, b'q') if first == 0 => Some(version()),
        (None, None, b't') if !matches!(first, 22 | 23) => {
            window_report(to.engine, to.options, first)
        }
        (None, None, b'x') if first < 2 => Some(format!("\x1b[{};1;1;128;128;1;0x", first + 2)),
        (None, Some(b'*'), b'y') => Some(area_checksum(to.engine, &control)),
        // XTSMGRAPHICS: there are no graphics.
        (Some(b'?'), None, b'S') => Some(format!("\x1b[?{first};1;0S")),
        (_, _, b'b') => None,
        _ => return false,
    };
    if let Some(answer) = answer {
        to.reply(answer);
    }
    true
}

fn version() -> String {
    format!("\x1bP>|wingman {}\x1b\\", env!("CARGO_PKG_VERSION"))
}

/// DECRQCRA as xterm computes it: the negative sum of characters and attributes.
fn area_checksum(engine: &Engine, control: &Control) -> String {
    let size = engine.size();
    let id = control.number(0, 0);
    let top = usize::from(control.number(2, 1)) - 1;
    let left = usize::from(control.number(3, 1)) - 1;
    let bottom = usize::from(control.number(4, size.rows)).min(size.screen_lines());
    let right = usize::from(control.number(5, size.cols)).min(size.columns());
    let mut sum = 0_u16;
    for row in top..bottom {
        for column in left..right {
            let cell = &engine.cells()[Line(row as i32)][Column(column)];
            let marks = cell.zerowidth().into_iter().flatten();
            for c in std::iter::once(&cell.c).chain(marks) {
                sum = sum.wrapping_add(*c as u32 as u16);
            }
            let attributes = [
                (Flags::HIDDEN, 0x08),
                (Flags::ALL_UNDERLINES, 0x10),
                (Flags::INVERSE, 0x20),
                (Flags::BOLD, 0x80),
            ];
            for (flag, value) in attributes {
                if cell.flags.intersects(flag) {
                    sum = sum.wrapping_add(value);
                }
            }
        }
    }
    format!("\x1bP{id}!~{:04X}\x1b\\", 0_u16.wrapping_sub(sum))
}

/// Handles an escape sequence of two bytes; false when the parser shall see it.
pub(super) fn escape(last: u8, to: &mut Dispatch<'_>) -> bool {
    match last {
        b'n' => to.set_active_charset(CharsetIndex::G2),
        b'o' => to.set_active_charset(CharsetIndex::G3),
        _ => return false,
    }
    true
}

/// Handles a device control string, `body` without introducer and terminator.
pub(super) fn device_control(body: &[u8], to: &mut Dispatch<'_>) {
    if let Some(asked) = body.strip_prefix(b"$q") {
        let answer = setting(asked, to);
        to.reply(match answer {
            Some(setting) => format!("\x1bP1$r{setting}\x1b\\"),
            None => "\x1bP0$r\x1b\\".into(),
        });
    } else if let Some(names) = body.strip_prefix(b"+q") {
        for name in names.split(|byte| *byte == b';') {
            let answer = capability(name);
            to.reply(answer);
        }
    } else if let Some(restored) = body
        .strip_prefix(b"=")
        .and_then(|rest| rest.strip_suffix(b"w"))
    {
        snapshot::restore(restored, to.engine);
    }
}

/// DECRQSS.
fn setting(asked: &[u8], to: &Dispatch<'_>) -> Option<String> {
    let engine = &*to.engine;
    Some(match asked {
        b"m" => {
            let template = &engine.cells().cursor.template;
            let mut out = Vec::new();
            sgr(&Style::of(template), &mut out);
            let inner = out.get(2..).unwrap_or_default();
            String::from_utf8_lossy(inner).into_owned()
        }
        b"r" => {
            let margins = &engine.shadow.margins;
            format!("{};{}r", margins.start + 1, margins.end)
        }
        b" q" => format!(
            "{} q",
            snapshot::cursor_style_number(engine.shadow.cursor_style)
        ),
        b"\"p" => "62;1\"p".into(),
        b"\"q" => "0\"q".into(),
        b"t" => format!("{}t", engine.size().rows),
        b"$|" => format!("{}$|", engine.size().cols),
        b"s" => format!("1;{}s", engine.size().cols),
        _ => return None,
    })
}

/// XTGETTCAP for one name in hexadecimal.
fn capability(name: &[u8]) -> String {
    let value = match HEXUPPER_PERMISSIVE.decode(name).as_deref() {
        Ok(b"TN" | b"name") => Some("xterm-256color"),
        Ok(b"Co" | b"colors") => Some("256"),
        Ok(b"RGB") => Some("8/8/8"),
        Ok(b"Tc") => Some(""),
        Ok(b"Su") => Some(""),
        Ok(b"Ms") => Some("\x1b]52;%p1%s;%p2%s\x07"),
        Ok(b"Ss") => Some("\x1b[%p1%d q"),
        Ok(b"Se") => Some("\x1b[0 q"),
        _ => None,
    };
    // The name comes back as it was given; what is not hexadecimal does not.
    let shown = name.iter().filter(|byte| byte.is_ascii_hexdigit());
    let shown: String = shown.take(64).map(|byte| char::from(*byte)).collect();
    match value {
        Some("") => format!("\x1bP1+r{shown}\x1b\\"),
        Some(value) => {
            let value = HEXUPPER_PERMISSIVE.encode(value.as_bytes());
            format!("\x1bP1+r{shown}={value}\x1b\\")
        }
        None => format!("\x1bP0+r{shown}\x1b\\"),
    }
}
