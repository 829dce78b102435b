//! Writes the differences between two screens to the outer terminal.
//!
//! Invariants: nothing reaches the outer terminal but text from cells, cursor positions and
//! attributes, so a program's bytes never pass through; a frame is one DEC 2026 update; what is
//! written is understood by every terminal since xterm, since no sequence here depends on which cells
//! an erasure colours.

use std::io::Write;

use super::cell::{Attributes, Buffer, Cell, Color, Link, Style, Underline};

/// The cursor as a program wants it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caret {
    pub x: u16,
    pub y: u16,
    pub visible: bool,
    /// DECSCUSR's number; 0 is the outer terminal's own choice.
    pub shape: u8,
}

/// Rows that may differ from what is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    All,
    Rows(Vec<u16>),
}

/// What the outer terminal shows, as far as this process knows.
#[derive(Debug)]
pub struct Painter {
    shown: Buffer,
    pen: Style,
    /// Where the outer cursor is; `None` where that depends on the terminal.
    at: Option<(u16, u16)>,
    caret: Caret,
    /// The next frame clears the screen first and takes nothing for granted.
    fresh: bool,
}

impl Painter {
    pub fn new(cols: u16, rows: u16) -> Self {
        Self {
            shown: Buffer::new(cols, rows),
            pen: Style::default(),
            at: None,
            caret: Caret::default(),
            fresh: true,
        }
    }

    /// Forgets what is shown: after a resize, a suspension, or output of somebody else.
    pub fn forget(&mut self, cols: u16, rows: u16) {
        *self = Self::new(cols, rows);
    }

    /// Appends what makes the outer terminal show `next`. Appends nothing when it does already.
    /// `next` has the size that the painter was made for.
    pub fn frame(&mut self, next: &Buffer, caret: Caret, damage: &Damage, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(b"\x1b[?2026h");
        let opened = out.len();
        if self.fresh {
            out.extend_from_slice(b"\x1b[?25l\x1b]8;;\x1b\\\x1b[0m\x1b[H\x1b[2J\x1b[0 q");
            self.at = Some((0, 0));
            self.caret.visible = false;
            self.fresh = false;
        }
        self.rows(next, damage, out);
        self.caret(caret, out);
        if out.len() == opened {
            out.truncate(start);
        } else {
            out.extend_from_slice(b"\x1b[?2026l");
        }
    }

    fn rows(&mut self, next: &Buffer, damage: &Damage, out: &mut Vec<u8>) {
        let start = out.len();
        let shown = self.caret.visible;
        let several = !matches!(damage, Damage::Rows(rows) if rows.len() < 2);
        if shown && several {
            // Terminals without DEC 2026 would show the cursor jumping over the screen.
            out.extend_from_slice(b"\x1b[?25l");
            self.caret.visible = false;
        }
        let opened = out.len();
        match damage {
            Damage::All => (0..next.rows()).for_each(|y| self.row(next, y, out)),
            Damage::Rows(rows) => rows.iter().for_each(|y| self.row(next, *y, out)),
        }
        if out.len() == opened {
            out.truncate(start);
            self.caret.visible = shown;
        }
    }

    fn caret(&mut self, caret: Caret, out: &mut Vec<u8>) {
        if caret.shape != self.caret.shape {
            let _ = write!(out, "\x1b[{} q", caret.shape);
        }
        // A hidden cursor is placed too: input methods put their window there.
        self.go(caret.x, caret.y, out);
        if caret.visible != self.caret.visible {
            out.extend_from_slice(if caret.visible {
                b"\x1b[?25h"
            } else {
                b"\x1b[?25l"
            });
        }
        self.caret = caret;
    }

    fn row(&mut self, next: &Buffer, y: u16, out: &mut Vec<u8>) {
        let cols = next.cols().min(self.shown.cols());
        if y >= self.shown.rows() || next.row(y) == self.shown.row(y) {
            return;
        }
        let mut x = 0;
        while x < cols {
            let index = usize::from(x);
            let cell = &next.row(y)[index];
            if cell.width == 0 {
                x += 1;
                continue;
            }
            let span = usize::from(cell.width);
            let same =
                next.row(y).get(index..index + span) == self.shown.row(y).get(index..index + span);
            if !same {
                self.put(cell, x, y, out);
                if self.cuts_wide(x, y, cell.width) {
                    // The outer terminal blanks the other half by itself, in its own colours: what
                    // follows is written again.
                    self.unknown(x + u16::from(cell.width), y);
                }
            }
            x += u16::from(cell.width);
        }
        self.shown.copy_row(y, next);
    }

    /// Whether writing over these cells leaves half of a wide character that is shown to their right.
    fn cuts_wide(&self, x: u16, y: u16, width: u8) -> bool {
        self.shown
            .get(x + u16::from(width), y)
            .is_some_and(|cell| cell.width == 0)
    }

    /// Marks a shown cell so that no cell equals it.
    fn unknown(&mut self, x: u16, y: u16) {
        self.shown.put(
            x,
            y,
            Cell {
                glyph: super::cell::Glyph::new("\0"),
                width: 1,
                style: Style::default(),
            },
        );
    }

    fn put(&mut self, cell: &Cell, x: u16, y: u16, out: &mut Vec<u8>) {
        self.go(x, y, out);
        self.style(&cell.style, out);
        let text = cell.glyph.as_str();
        if text.is_empty() || text.starts_with(|c: char| c.is_control()) {
            out.push(b' ');
        } else {
            out.extend_from_slice(text.as_bytes());
        }
        let end = x + u16::from(cell.width);
        // Past the last column the cursor waits for a wrap, and terminals disagree on the width of
        // clusters: after either its place is not known.
        self.at = (end < self.shown.cols() && agreed_width(text)).then_some((end, y));
    }

    fn go(&mut self, x: u16, y: u16, out: &mut Vec<u8>) {
        if self.at == Some((x, y)) {
            return;
        }
        let _ = match self.at {
            Some((from, row)) if row == y && x > from && x - from == 1 => out.write_all(b"\x1b[C"),
            Some((from, row)) if row == y && x > from => write!(out, "\x1b[{}C", x - from),
            Some((_, row)) if x == 0 && y == row + 1 => out.write_all(b"\r\n"),
            _ => write!(out, "\x1b[{};{}H", y + 1, x + 1),
        };
        self.at = Some((x, y));
    }

    fn style(&mut self, style: &Style, out: &mut Vec<u8>) {
        if *style == self.pen {
            return;
        }
        if style.link != self.pen.link {
            write_link(style.link.as_deref(), out);
        }
        let same = Style {
            link: self.pen.link.clone(),
            ..style.clone()
        } == self.pen;
        if !same {
            write_sgr(&self.pen, style, out);
        }
        self.pen = style.clone();
    }
}

/// Whether every terminal gives this text the same number of columns.
fn agreed_width(text: &str) -> bool {
    let mut chars = text.chars();
    let (Some(first), None) = (chars.next(), chars.next()) else {
        return false;
    };
    matches!(u32::from(first),
        0x20..=0x7e
        // Box drawing and blocks, in which agents draw their frames.
        | 0x2500..=0x259f
        // Latin letters with accents, Greek, Cyrillic.
        | 0xc0..=0x17f | 0x391..=0x44f
        // Kana, ideographs, Hangul, full-width forms.
        | 0x3041..=0x3096 | 0x30a1..=0x30fa | 0x4e00..=0x9fff | 0xac00..=0xd7a3 | 0xff01..=0xff60)
}

fn write_link(link: Option<&Link>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x1b]8;");
    if let Some(link) = link {
        let safe = |text: &str, out: &mut Vec<u8>| {
            out.extend(text.bytes().filter(|b| (0x21..0x7f).contains(b)));
        };
        if !link.id.is_empty() {
            out.extend_from_slice(b"id=");
            let id: String = link.id.chars().filter(|c| !";:".contains(*c)).collect();
            safe(&id, out);
        }
        out.push(b';');
        safe(&link.uri, out);
    } else {
        out.push(b';');
    }
    out.extend_from_slice(b"\x1b\\");
}

/// Appends the shortest of: only what is added, or a reset with everything.
fn write_sgr(from: &Style, to: &Style, out: &mut Vec<u8>) {
    let removed = (0..7).any(|bit| {
        let one = attribute(bit).0;
        from.attributes.has(one) && !to.attributes.has(one)
    }) || (from.underline != Underline::None && to.underline == Underline::None);
    let plain = Style::default();
    let base = if removed { &plain } else { from };
    out.extend_from_slice(b"\x1b[");
    let mut first = true;
    let mut add = |text: &str, out: &mut Vec<u8>| {
        if !std::mem::take(&mut first) {
            out.push(b';');
        }
        out.extend_from_slice(text.as_bytes());
    };
    if removed {
        add("0", out);
    }
    for bit in 0..7 {
        let (one, code) = attribute(bit);
        if to.attributes.has(one) && !base.attributes.has(one) {
            add(code, out);
        }
    }
    if to.underline != base.underline {
        add(underline(to.underline), out);
    }
    if to.fg != base.fg {
        add(&color(to.fg, 30), out);
    }
    if to.bg != base.bg {
        add(&color(to.bg, 40), out);
    }
    if to.underline_color != base.underline_color {
        add(&color(to.underline_color, 50), out);
    }
    if first {
        // Nothing but the link differs: an empty SGR would be a reset.
        out.truncate(out.len() - 2);
    } else {
        out.push(b'm');
    }
}

fn attribute(bit: u8) -> (Attributes, &'static str) {
    match bit {
        0 => (Attributes::BOLD, "1"),
        1 => (Attributes::DIM, "2"),
        2 => (Attributes::ITALIC, "3"),
        3 => (Attributes::BLINK, "5"),
        4 => (Attributes::REVERSE, "7"),
        5 => (Attributes::HIDDEN, "8"),
        _ => (Attributes::STRIKE, "9"),
    }
}

fn underline(kind: Underline) -> &'static str {
    match kind {
        Underline::None => "24",
        Underline::Single => "4",
        // The forms with a colon are ignored where they are not known; `21` would mean "not bold".
        Underline::Double => "4:2",
        Underline::Curly => "4:3",
        Underline::Dotted => "4:4",
        Underline::Dashed => "4:5",
    }
}

/// `base` is 30 for text, 40 for the ground, 50 for underlines (58 and 59).
fn color(color: Color, base: u8) -> String {
    match color {
        Color::Default => (base + 9).to_string(),
        Color::Palette(index @ 0..=7) if base < 50 => (base + index).to_string(),
        Color::Palette(index @ 8..=15) if base < 50 => (base + 52 + index).to_string(),
        Color::Palette(index) if base == 50 => format!("58:5:{index}"),
        Color::Rgb(r, g, b) if base == 50 => format!("58:2::{r}:{g}:{b}"),
        Color::Palette(index) => format!("{};5;{index}", base + 8),
        Color::Rgb(r, g, b) => format!("{};2;{r};{g};{b}", base + 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn painted(buffer: &Buffer, painter: &mut Painter) -> String {
        let mut out = Vec::new();
        painter.frame(buffer, Caret::default(), &Damage::All, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_unchanged_screen_costs_nothing() {
        let mut buffer = Buffer::new(10, 2);
        buffer.text(0, 0, 10, "hello", &Style::default());
        let mut painter = Painter::new(10, 2);
        assert!(painted(&buffer, &mut painter).contains("hello"));
        assert_eq!(painted(&buffer, &mut painter), "");
    }

    #[test]
    fn one_changed_cell_costs_one_cell() {
        let mut buffer = Buffer::new(40, 5);
        let mut painter = Painter::new(40, 5);
        painted(&buffer, &mut painter);
        buffer.text(7, 3, 1, "x", &Style::default());
        let text = painted(&buffer, &mut painter);
        assert!(text.contains("\x1b[4;8Hx") && text.len() < 40, "{text:?}");
    }

    #[test]
    fn a_link_cannot_carry_a_sequence_out() {
        let mut out = Vec::new();
        let link = Link {
            id: "a\x1b;b".into(),
            uri: "http://x/\x1b\\\x07\u{9c}y z".into(),
        };
        write_link(Some(&link), &mut out);
        assert_eq!(out, b"\x1b]8;id=ab;http://x/\\yz\x1b\\");
    }

    #[test]
    fn every_attribute_has_its_code() {
        let to = Style {
            fg: Color::Palette(9),
            bg: Color::Rgb(1, 2, 3),
            underline_color: Color::Palette(4),
            underline: Underline::Curly,
            attributes: Attributes::BOLD.with(Attributes::STRIKE),
            link: None,
        };
        let mut out = Vec::new();
        write_sgr(&Style::default(), &to, &mut out);
        assert_eq!(out, b"\x1b[1;9;4:3;91;48;2;1;2;3;58:5:4m");
        let mut out = Vec::new();
        write_sgr(&to, &Style::default(), &mut out);
        assert_eq!(out, b"\x1b[0m");
    }
}
