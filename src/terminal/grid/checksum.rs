//! Hashes: of a row, to see whether it changed, and of a whole grid, to compare copies.

use std::hash::{DefaultHasher, Hash, Hasher};

use alacritty_terminal::grid::Cursor;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::Cell;
use vte::ansi::Color;

use super::line::Ink;
use super::view::Paint;
use super::{Grid, snapshot};

/// A hash of everything that can be observed.
pub(super) fn whole(grid: &Grid) -> u64 {
    let mut hash = DefaultHasher::new();
    let engine = &grid.engine;
    let shadow = &engine.shadow;
    (grid.size(), grid.modes(), grid.cursor()).hash(&mut hash);
    (&shadow.title, &shadow.titles, &shadow.keyboards).hash(&mut hash);
    (&shadow.tabs, &shadow.margins, shadow.last).hash(&mut hash);
    (shadow.charset as u8, shadow.cursor_style).hash(&mut hash);
    engine.mode(TermMode::URGENCY_HINTS).hash(&mut hash);
    for saved in &shadow.saved {
        (saved.origin, saved.charset as u8).hash(&mut hash);
    }
    (0..=258).for_each(|index| grid.color(index).hash(&mut hash));
    for line in engine.history.lines_from(0) {
        line.hash(&mut hash);
    }
    let screens = [Some(engine.cells()), engine.main.as_ref()];
    for cells in screens.into_iter().flatten() {
        snapshot::screen_lines(cells, |line| line.hash(&mut hash));
        hash_cursor(&cells.cursor, &mut hash);
        hash_cursor(&cells.saved_cursor, &mut hash);
    }
    hash.finish()
}

fn hash_cursor(cursor: &Cursor<Cell>, hash: &mut impl Hasher) {
    use vte::ansi::CharsetIndex::{G0, G1, G2, G3};
    (cursor.point.line.0, cursor.point.column.0).hash(hash);
    cursor.input_needs_wrap.hash(hash);
    let ink = Ink::of(&cursor.template);
    ink.style.hash(hash);
    ink.link
        .map(|link| (link.id().to_owned(), link.uri().to_owned()))
        .hash(hash);
    for index in [G0, G1, G2, G3] {
        (cursor.charsets[index] as u8).hash(hash);
    }
}

/// A quick hash of a row as it looks. A console asks for that of every row at every frame, so four
/// cells are mixed side by side.
pub(super) fn row(cells: &[Cell]) -> u64 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [SPREAD, !SPREAD, SPREAD << 7, SPREAD >> 7];
    for (index, cell) in cells.iter().enumerate() {
        let lane = &mut lanes[index % 4];
        let text = u64::from(u32::from(cell.c)) << 16 | u64::from(cell.flags.bits());
        let colors = color_bits(cell.fg) << 32 | color_bits(cell.bg);
        *lane = (*lane ^ text).wrapping_mul(SPREAD).rotate_left(29) ^ colors.wrapping_mul(!SPREAD);
        if cell.extra.is_some() {
            let mut extra = DefaultHasher::new();
            cell.zerowidth().hash(&mut extra);
            cell.underline_color().map(color_bits).hash(&mut extra);
            cell.hyperlink()
                .map(|link| link.uri().to_owned())
                .hash(&mut extra);
            *lane ^= extra.finish();
        }
    }
    lanes.into_iter().fold(0, |hash, lane| {
        (hash ^ lane).wrapping_mul(SPREAD).rotate_left(31)
    })
}

fn color_bits(color: Color) -> u64 {
    match Paint::of(color) {
        // What most cells have costs nothing.
        Paint::Default => 0,
        Paint::Palette(index) => 1 << 24 | u64::from(index),
        Paint::Rgb(r, g, b) => 2 << 24 | u64::from(r) << 16 | u64::from(g) << 8 | u64::from(b),
    }
}
