//! What stands in the cells of a screen: the one picture that the painter compares and writes.
//!
//! Coordinates are cells, zero-based, x from the left and y from the top.

use std::sync::Arc;

use unicode_width::UnicodeWidthStr;

pub use crate::terminal::grid::{Paint as Color, Underline};

/// Attributes that are on or off, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes(u8);

impl Attributes {
    pub const BOLD: Self = Self(1);
    pub const DIM: Self = Self(2);
    pub const ITALIC: Self = Self(4);
    pub const BLINK: Self = Self(8);
    pub const REVERSE: Self = Self(16);
    pub const HIDDEN: Self = Self(32);
    pub const STRIKE: Self = Self(64);

    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn toggled(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    pub fn set(&mut self, other: Self, on: bool) {
        if on {
            self.0 |= other.0;
        } else {
            self.0 &= !other.0;
        }
    }
}

/// An OSC 8 hyperlink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// Joins the parts of one link; may be empty.
    pub id: String,
    pub uri: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub fg: Color,
    pub bg: Color,
    pub underline_color: Color,
    pub underline: Underline,
    pub attributes: Attributes,
    pub link: Option<Arc<Link>>,
}

impl Style {
    pub fn reversed(mut self) -> Self {
        self.attributes = self.attributes.toggled(Attributes::REVERSE);
        self
    }
}

const GLYPH_INLINE: usize = 15;

/// A character with what combines with it.
#[derive(Clone)]
pub struct Glyph(Text);

#[derive(Clone)]
enum Text {
    Inline(u8, [u8; GLYPH_INLINE]),
    Shared(Arc<str>),
}

impl Glyph {
    pub const SPACE: Self = {
        let mut bytes = [0; GLYPH_INLINE];
        bytes[0] = b' ';
        Self(Text::Inline(1, bytes))
    };

    pub fn new(text: &str) -> Self {
        if text.len() > GLYPH_INLINE {
            return Self(Text::Shared(text.into()));
        }
        let mut bytes = [0; GLYPH_INLINE];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Self(Text::Inline(text.len() as u8, bytes))
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            // INVARIANT: `new` and `SPACE` fill the bytes from whole texts.
            Text::Inline(len, bytes) => {
                std::str::from_utf8(&bytes[..usize::from(*len)]).expect("a glyph is text")
            }
            Text::Shared(text) => text,
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Text::Shared(text) => text.as_bytes(),
        }
    }
}

impl PartialEq for Glyph {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Glyph {}

impl std::fmt::Debug for Glyph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// One cell. The right half of a wide character has width 0 and an empty glyph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub glyph: Glyph,
    /// 1, 2, or 0 for the right half of the cell before it.
    pub width: u8,
    pub style: Style,
}

impl Default for Cell {
    fn default() -> Self {
        Self::blank(Style::default())
    }
}

impl Cell {
    pub fn blank(style: Style) -> Self {
        Self {
            glyph: Glyph::SPACE,
            width: 1,
            style,
        }
    }

    /// A cell with one character or cluster; its width is measured and kept to 1 or 2.
    pub fn of(text: &str, style: Style) -> Self {
        Self {
            glyph: Glyph::new(text),
            width: text.width().clamp(1, 2) as u8,
            style,
        }
    }

    fn right_half(style: Style) -> Self {
        Self {
            glyph: Glyph::new(""),
            width: 0,
            style,
        }
    }
}

/// A part of a screen, in cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Area {
    pub x: u16,
    pub y: u16,
    pub cols: u16,
    pub rows: u16,
}

impl Area {
    pub const fn new(x: u16, y: u16, cols: u16, rows: u16) -> Self {
        Self { x, y, cols, rows }
    }

    pub fn contains(&self, x: u16, y: u16) -> bool {
        x >= self.x && y >= self.y && x - self.x < self.cols && y - self.y < self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.cols == 0 || self.rows == 0
    }
}

/// A screen full of cells.
///
/// INVARIANT: a cell of width 2 is followed by its right half in the same row, and no right half
/// stands elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    cols: u16,
    rows: u16,
    cells: Vec<Cell>,
}

impl Buffer {
    pub fn new(cols: u16, rows: u16) -> Self {
        Self {
            cols,
            rows,
            cells: vec![Cell::default(); usize::from(cols) * usize::from(rows)],
        }
    }

    pub fn cols(&self) -> u16 {
        self.cols
    }

    pub fn rows(&self) -> u16 {
        self.rows
    }

    /// A row's cells; empty below the last row.
    pub fn row(&self, y: u16) -> &[Cell] {
        let start = usize::from(y) * usize::from(self.cols);
        self.cells
            .get(start..start + usize::from(self.cols))
            .unwrap_or(&[])
    }

    pub fn get(&self, x: u16, y: u16) -> Option<&Cell> {
        self.row(y).get(usize::from(x))
    }

    fn at(&mut self, x: u16, y: u16) -> Option<&mut Cell> {
        if x >= self.cols || y >= self.rows {
            return None;
        }
        let index = usize::from(y) * usize::from(self.cols) + usize::from(x);
        self.cells.get_mut(index)
    }

    /// Puts a cell; halves of wide characters that it cuts become blanks. A wide cell that does not
    /// fit before the right edge becomes a blank.
    pub fn put(&mut self, x: u16, y: u16, cell: Cell) {
        if x >= self.cols || y >= self.rows || cell.width == 0 {
            return;
        }
        let wide = cell.width == 2 && x + 1 < self.cols;
        let cell = if cell.width == 2 && !wide {
            Cell::blank(cell.style)
        } else {
            cell
        };
        self.cut(x, y);
        let style = cell.style.clone();
        if wide {
            self.cut(x + 1, y);
        }
        if let Some(slot) = self.at(x, y) {
            *slot = cell;
        }
        if wide && let Some(slot) = self.at(x + 1, y) {
            *slot = Cell::right_half(style);
        }
    }

    /// Blanks the other half of a wide character that has a half at `x`.
    fn cut(&mut self, x: u16, y: u16) {
        let width = self.get(x, y).map_or(1, |cell| cell.width);
        let other = match width {
            0 => x.checked_sub(1),
            2 => Some(x + 1),
            _ => None,
        };
        if let Some(other) = other
            && let Some(slot) = self.at(other, y)
        {
            *slot = Cell::blank(std::mem::take(&mut slot.style));
        }
    }

    pub fn fill(&mut self, area: Area, style: &Style) {
        for y in area.y..area.y.saturating_add(area.rows).min(self.rows) {
            for x in area.x..area.x.saturating_add(area.cols).min(self.cols) {
                self.put(x, y, Cell::blank(style.clone()));
            }
        }
    }

    /// Writes text from `x` on, at most `cols` columns, and answers the column after it.
    /// Control characters are left out.
    pub fn text(&mut self, x: u16, y: u16, cols: u16, text: &str, style: &Style) -> u16 {
        let end = x.saturating_add(cols).min(self.cols);
        let mut at = x;
        for c in text.chars().filter(|c| !is_hostile(*c)) {
            let mut utf8 = [0; 4];
            let cell = Cell::of(c.encode_utf8(&mut utf8), style.clone());
            let width = u16::from(cell.width);
            if at + width > end {
                break;
            }
            self.put(at, y, cell);
            at += width;
        }
        at
    }

    /// Changes the style of what stands in a cell.
    pub fn restyle(&mut self, x: u16, y: u16, change: impl Fn(&mut Style)) {
        if let Some(cell) = self.at(x, y) {
            change(&mut cell.style);
        }
    }

    /// Copies a row from another screen of the same width.
    pub fn copy_row(&mut self, y: u16, from: &Buffer) {
        let start = usize::from(y) * usize::from(self.cols);
        let cols = usize::from(self.cols);
        if from.cols == self.cols && y < self.rows && y < from.rows {
            self.cells[start..start + cols].clone_from_slice(&from.cells[start..start + cols]);
        }
    }
}

/// Whether a character from outside could change more than its own cell: controls, and characters
/// that reorder or hide the text around them.
pub fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text from outside as it may be shown in one line.
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            if matches!(c, '\t' | '\n' | '\r') {
                ' '
            } else {
                c
            }
        })
        .filter(|c| !is_hostile(*c))
        .collect()
}

/// Cuts a text to `cols` columns, with `…` in place of its end.
pub fn fit(text: &str, cols: usize) -> String {
    if text.width() <= cols {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        let mut utf8 = [0; 4];
        let width = c.encode_utf8(&mut utf8).width();
        if used + width + 1 > cols {
            break;
        }
        kept.push(c);
        used += width;
    }
    if cols > 0 {
        kept.push('…');
    }
    kept
}

/// Cuts a text to `cols` columns, with `…` in place of its start: the end of a path says more.
pub fn fit_end(text: &str, cols: usize) -> String {
    if text.width() <= cols {
        return text.to_owned();
    }
    let mut kept = Vec::new();
    let mut used = 0;
    for c in text.chars().rev() {
        let mut utf8 = [0; 4];
        let width = c.encode_utf8(&mut utf8).width();
        if used + width + 1 > cols {
            break;
        }
        kept.push(c);
        used += width;
    }
    if cols > 0 {
        kept.push('…');
    }
    kept.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwriting_half_of_a_wide_character_blanks_the_other_half() {
        let mut buffer = Buffer::new(4, 1);
        buffer.put(1, 0, Cell::of("漢", Style::default()));
        buffer.put(2, 0, Cell::of("x", Style::default()));
        let texts: Vec<&str> = buffer.row(0).iter().map(|c| c.glyph.as_str()).collect();
        assert_eq!(texts, [" ", " ", "x", " "]);
        buffer.put(0, 0, Cell::of("漢", Style::default()));
        buffer.put(0, 0, Cell::of("y", Style::default()));
        assert_eq!(buffer.get(1, 0).unwrap().width, 1);
    }

    #[test]
    fn a_wide_character_never_stands_half_outside() {
        let mut buffer = Buffer::new(2, 1);
        buffer.put(1, 0, Cell::of("漢", Style::default()));
        assert_eq!(buffer.get(1, 0).unwrap().glyph.as_str(), " ");
    }

    #[test]
    fn hostile_text_leaves_nothing_but_its_letters() {
        assert_eq!(clean("a\x1b[31mb\u{202e}c\u{7}\u{9b}d\ne"), "a[31mbcd e");
        let mut buffer = Buffer::new(8, 1);
        assert_eq!(buffer.text(0, 0, 8, "\x1b]0;x\x07", &Style::default()), 4);
    }

    #[test]
    fn cut_texts_keep_their_width() {
        assert_eq!(fit("abcdef", 4), "abc…");
        assert_eq!(fit("漢字漢", 4), "漢…");
        assert_eq!(fit_end("/home/ann/src", 8), "…ann/src");
        assert_eq!(fit("abc", 0), "");
    }
}
