//! A row as a few bytes: text, runs of style, and whether it runs on in the next row.
//!
//! ```text
//! line    = varint payload length, payload
//! payload = flags (1 byte), [varint text length when STYLED], text in UTF-8, runs to the end
//! run     = varint columns, head (1 byte), the fields that head names
//! head    = bit 0 fg, 1 bg, 2 underline paint, 3 attributes (u16 le), 4 link (two varint strings)
//! paint   = 1 and an index, or 2 and three bytes
//! ```
//!
//! Blanks at the end of text are left out, and so are runs of the default style at the end. The second
//! column of a wide character has no byte: a character's width says how many columns it takes. The form
//! is canonical: rows that look the same are the same bytes.

use alacritty_terminal::term::cell::{Cell, Flags, Hyperlink};
use unicode_width::UnicodeWidthChar;
use vte::ansi::{Color, NamedColor};

use super::view::{Paint, STYLE_FLAGS, Style, Underline, is_blank};

const WRAPPED: u8 = 1;
const STYLED: u8 = 2;
/// The last column is empty because a wide character did not fit there.
const SPACER_END: u8 = 4;

/// Style and link of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ink {
    pub style: Style,
    pub link: Option<Hyperlink>,
}

impl Ink {
    pub(super) fn of(cell: &Cell) -> Self {
        Self {
            style: Style::of(cell),
            link: cell.extra.as_ref().and_then(|_| cell.hyperlink()),
        }
    }

    fn is_default(&self) -> bool {
        self.link.is_none() && self.style == Style::default()
    }

    pub(super) fn cell(&self) -> Cell {
        let mut cell = self.style.cell();
        if self.link.is_some() {
            cell.set_hyperlink(self.link.clone());
        }
        cell
    }
}

/// A stored row, its parts borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    pub wrapped: bool,
    pub spacer_end: bool,
    pub text: &'a str,
    runs: &'a [u8],
}

impl std::hash::Hash for Line<'_> {
    /// What can be seen of it; the empty column before a wide character cannot.
    fn hash<H: std::hash::Hasher>(&self, hash: &mut H) {
        (self.wrapped, self.text, self.runs).hash(hash);
    }
}

impl<'a> Line<'a> {
    /// Splits the first line off; `None` at the end and where the bytes are no line.
    pub(super) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (len, rest) = varint(bytes)?;
        let (payload, rest) = rest.split_at_checked(len)?;
        let (&flags, body) = payload.split_first()?;
        let (text, runs) = if flags & STYLED == 0 {
            (body, &[][..])
        } else {
            let (text_len, body) = varint(body)?;
            body.split_at_checked(text_len)?
        };
        let line = Self {
            wrapped: flags & WRAPPED != 0,
            spacer_end: flags & SPACER_END != 0,
            text: std::str::from_utf8(text).ok()?,
            runs,
        };
        Some((line, rest))
    }

    /// Whether every part can be read, for lines that come from outside.
    pub(super) fn is_valid(&self) -> bool {
        let mut runs = self.runs();
        runs.by_ref().for_each(drop);
        runs.rest.is_empty() && !self.text.chars().any(char::is_control)
    }

    /// Appends the line in its stored form.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let flags = [
            (self.wrapped, WRAPPED),
            (!self.runs.is_empty(), STYLED),
            (self.spacer_end, SPACER_END),
        ];
        let set = flags.iter().filter(|(on, _)| *on);
        let flags = set.fold(0, |sum, (_, flag)| sum | flag);
        out.extend_from_slice(&[0, flags]);
        if !self.runs.is_empty() {
            write_varint(self.text.len(), out);
        }
        out.extend_from_slice(self.text.as_bytes());
        out.extend_from_slice(self.runs);
        close(start, out);
    }

    pub(super) fn runs(&self) -> Runs<'a> {
        Runs { rest: self.runs }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.runs.is_empty()
    }

    /// Columns of the text.
    pub(super) fn columns(&self) -> usize {
        if self.text.is_ascii() {
            return self.text.len();
        }
        self.text.chars().filter_map(char::width).sum()
    }

    /// The cells of a row with that many columns.
    pub(super) fn cells(&self, columns: usize) -> Vec<Cell> {
        let mut cells = Vec::with_capacity(columns);
        let mut runs = self.runs();
        let mut run = runs.next();
        let mut left = run.as_ref().map_or(usize::MAX, |(columns, _)| *columns);
        let mut blank = run
            .as_ref()
            .map_or_else(Cell::default, |(_, ink)| ink.cell());
        for c in self.text.chars() {
            let width = c.width().unwrap_or(1);
            if width == 0 {
                push_mark(&mut cells, c);
                continue;
            }
            if left == 0 {
                run = runs.next();
                left = run.as_ref().map_or(usize::MAX, |(columns, _)| *columns);
                blank = run
                    .as_ref()
                    .map_or_else(Cell::default, |(_, ink)| ink.cell());
            }
            left = left.saturating_sub(width);
            let mut cell = Cell { c, ..blank.clone() };
            if width == 2 {
                cell.flags.insert(Flags::WIDE_CHAR);
                cells.push(cell);
                let mut spacer = blank.clone();
                spacer.flags.insert(Flags::WIDE_CHAR_SPACER);
                cells.push(spacer);
            } else {
                cells.push(cell);
            }
        }
        cells.resize(columns, Cell::default());
        if let Some(last) = cells.last_mut() {
            last.flags.set(Flags::WRAPLINE, self.wrapped);
            if self.spacer_end {
                last.flags.insert(Flags::LEADING_WIDE_CHAR_SPACER);
            }
        }
        cells
    }
}

fn push_mark(cells: &mut [Cell], mark: char) {
    let wide = cells
        .last()
        .is_some_and(|cell| cell.flags.contains(Flags::WIDE_CHAR_SPACER));
    let index = cells.len().checked_sub(if wide { 2 } else { 1 });
    if let Some(cell) = index.and_then(|index| cells.get_mut(index)) {
        cell.push_zerowidth(mark);
    }
}

/// Columns and ink of each run; text behind the last run has the default ink.
pub(super) struct Runs<'a> {
    rest: &'a [u8],
}

impl Iterator for Runs<'_> {
    type Item = (usize, Ink);

    fn next(&mut self) -> Option<Self::Item> {
        let (columns, rest) = varint(self.rest)?;
        let (ink, rest) = read_ink(rest)?;
        self.rest = rest;
        Some((columns, ink))
    }
}

/// Appends a row.
pub(super) fn encode(cells: &[Cell], out: &mut Vec<u8>) {
    let Some(last) = cells.last() else { return };
    let mut flags = 0;
    if last.flags.contains(Flags::WRAPLINE) {
        flags |= WRAPPED;
    }
    let spacer_end = last.flags.contains(Flags::LEADING_WIDE_CHAR_SPACER);
    if spacer_end {
        flags |= SPACER_END;
    }
    let cells = &cells[..cells.len() - usize::from(spacer_end)];
    let end = cells
        .iter()
        .rposition(|cell| !is_blank(cell))
        .map_or(0, |at| at + 1);
    let cells = &cells[..end];
    let start = out.len();
    // A plain row of at most 126 columns, which is nearly every row, needs one byte of length.
    out.extend_from_slice(&[0, flags]);
    let mut plain = true;
    out.extend(cells.iter().map(|cell| {
        plain &= is_plain(cell);
        cell.c as u8
    }));
    if plain {
        close(start, out);
        return;
    }
    out.truncate(start + 1);
    let mut text = Vec::with_capacity(cells.len() * 2);
    let mut runs = Vec::new();
    write_cells(cells, &mut text, &mut runs);
    if runs.is_empty() {
        out.push(flags);
    } else {
        out.push(flags | STYLED);
        write_varint(text.len(), out);
    }
    out.extend_from_slice(&text);
    out.extend_from_slice(&runs);
    close(start, out);
}

/// Writes the length in front of a payload, whose first byte is kept free for it.
fn close(start: usize, out: &mut Vec<u8>) {
    let len = out.len() - start - 1;
    if len < 0x80 {
        out[start] = len as u8;
        return;
    }
    let mut prefix = Vec::with_capacity(4);
    write_varint(len, &mut prefix);
    out.splice(start..=start, prefix);
}

fn is_plain(cell: &Cell) -> bool {
    cell.c.is_ascii()
        && matches!(cell.fg, Color::Named(NamedColor::Foreground))
        && matches!(cell.bg, Color::Named(NamedColor::Background))
        && (cell.flags - Flags::WRAPLINE).is_empty()
        && cell.extra.is_none()
}

fn write_cells(cells: &[Cell], text: &mut Vec<u8>, runs: &mut Vec<u8>) {
    let mut ink = Ink::default();
    let mut ink_cell = &Cell::default();
    let mut columns = 0;
    let mut buffer = [0; 4];
    for cell in cells {
        let same = cell.fg == ink_cell.fg
            && cell.bg == ink_cell.bg
            && (cell.flags & STYLE_FLAGS) == (ink_cell.flags & STYLE_FLAGS)
            && match (&cell.extra, &ink_cell.extra) {
                (None, None) => true,
                (Some(a), Some(b)) => std::sync::Arc::ptr_eq(a, b),
                _ => false,
            };
        if !same {
            let next = Ink::of(cell);
            ink_cell = cell;
            if next != ink && !cell.flags.contains(Flags::WIDE_CHAR_SPACER) {
                if columns > 0 {
                    write_run(columns, &ink, runs);
                }
                ink = next;
                columns = 0;
            }
        }
        columns += 1;
        if cell.flags.contains(Flags::WIDE_CHAR_SPACER) {
            continue;
        }
        text.extend_from_slice(cell.c.encode_utf8(&mut buffer).as_bytes());
        for mark in cell.zerowidth().into_iter().flatten() {
            text.extend_from_slice(mark.encode_utf8(&mut buffer).as_bytes());
        }
    }
    if columns > 0 && !ink.is_default() {
        write_run(columns, &ink, runs);
    }
}

fn write_run(columns: usize, ink: &Ink, out: &mut Vec<u8>) {
    write_varint(columns, out);
    let style = &ink.style;
    let attributes = attributes(style);
    let paints = [style.fg, style.bg, style.underline_paint];
    let mut head = 0;
    for (bit, paint) in paints.iter().enumerate() {
        head |= u8::from(*paint != Paint::Default) << bit;
    }
    head |= u8::from(attributes != 0) << 3;
    head |= u8::from(ink.link.is_some()) << 4;
    out.push(head);
    for paint in paints {
        match paint {
            Paint::Default => {}
            Paint::Palette(index) => out.extend_from_slice(&[1, index]),
            Paint::Rgb(r, g, b) => out.extend_from_slice(&[2, r, g, b]),
        }
    }
    if attributes != 0 {
        out.extend_from_slice(&attributes.to_le_bytes());
    }
    if let Some(link) = &ink.link {
        for part in [link.id(), link.uri()] {
            write_varint(part.len(), out);
            out.extend_from_slice(part.as_bytes());
        }
    }
}

fn attributes(style: &Style) -> u16 {
    let bits = [
        style.bold,
        style.dim,
        style.italic,
        style.inverse,
        style.hidden,
        style.strikeout,
    ];
    let bits = bits
        .iter()
        .rev()
        .fold(0, |sum, bit| sum << 1 | u16::from(*bit));
    bits | (style.underline as u16) << 8
}

fn read_ink(bytes: &[u8]) -> Option<(Ink, &[u8])> {
    let (&head, mut rest) = bytes.split_first()?;
    let mut ink = Ink::default();
    let style = &mut ink.style;
    let paints = [&mut style.fg, &mut style.bg, &mut style.underline_paint];
    for (bit, paint) in paints.into_iter().enumerate() {
        if head & 1 << bit != 0 {
            (*paint, rest) = match rest {
                [1, index, rest @ ..] => (Paint::Palette(*index), rest),
                [2, r, g, b, rest @ ..] => (Paint::Rgb(*r, *g, *b), rest),
                _ => return None,
            };
        }
    }
    if head & 8 != 0 {
        let [low, high, after @ ..] = rest else {
            return None;
        };
        set_attributes(style, u16::from_le_bytes([*low, *high]))?;
        rest = after;
    }
    if head & 16 != 0 {
        let (id, after) = read_text(rest)?;
        let (uri, after) = read_text(after)?;
        ink.link = Some(Hyperlink::new(Some(id), uri.to_owned()));
        rest = after;
    }
    Some((ink, rest))
}

fn set_attributes(style: &mut Style, bits: u16) -> Option<()> {
    style.bold = bits & 1 != 0;
    style.dim = bits & 2 != 0;
    style.italic = bits & 4 != 0;
    style.inverse = bits & 8 != 0;
    style.hidden = bits & 16 != 0;
    style.strikeout = bits & 32 != 0;
    style.underline = match bits >> 8 {
        0 => Underline::None,
        1 => Underline::Single,
        2 => Underline::Double,
        3 => Underline::Curly,
        4 => Underline::Dotted,
        5 => Underline::Dashed,
        _ => return None,
    };
    Some(())
}

fn read_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (len, rest) = varint(bytes)?;
    let (text, rest) = rest.split_at_checked(len)?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

pub(super) fn write_varint(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    if let [first @ 0..0x80, rest @ ..] = bytes {
        return Some((usize::from(*first), rest));
    }
    let mut value = 0;
    for (index, byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(cells: &[Cell]) -> Vec<Cell> {
        let mut bytes = Vec::new();
        encode(cells, &mut bytes);
        let (line, rest) = Line::split(&bytes).unwrap();
        assert!(rest.is_empty() && line.is_valid());
        line.cells(cells.len())
    }

    #[test]
    fn a_plain_row_costs_two_bytes_and_its_text() {
        let mut cells = vec![Cell::default(); 80];
        for (cell, c) in cells.iter_mut().zip("fn main".chars()) {
            cell.c = c;
        }
        let mut bytes = Vec::new();
        encode(&cells, &mut bytes);
        assert_eq!(bytes.len(), 2 + 7);
        assert_eq!(round(&cells), cells);
    }

    #[test]
    fn styles_links_marks_and_wide_characters_come_back() {
        let mut cells = vec![Cell::default(); 10];
        let style = Style {
            fg: Paint::Rgb(1, 2, 3),
            bg: Paint::Palette(200),
            underline: Underline::Curly,
            underline_paint: Paint::Palette(9),
            bold: true,
            strikeout: true,
            ..Style::default()
        };
        for cell in &mut cells[2..5] {
            *cell = style.cell();
            cell.set_hyperlink(Some(Hyperlink::new(Some("a"), "https://b".into())));
        }
        cells[2].c = '世';
        cells[2].flags.insert(Flags::WIDE_CHAR);
        cells[3].flags.insert(Flags::WIDE_CHAR_SPACER);
        cells[4].c = 'e';
        cells[4].push_zerowidth('\u{301}');
        cells[9].flags.insert(Flags::WRAPLINE);
        let back = round(&cells);
        assert_eq!(back, cells);
    }

    #[test]
    fn long_rows_and_broken_bytes() {
        let cells = vec![
            Cell {
                c: 'x',
                ..Cell::default()
            };
            1_000
        ];
        assert_eq!(round(&cells), cells);
        assert!(Line::split(&[]).is_none());
        assert!(Line::split(&[5, 0, b'a']).is_none());
        assert!(Line::split(&[2, 0, 0xff]).is_none());
        assert!(Line::split(&[0xff; 8]).is_none());
    }
}
