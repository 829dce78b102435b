//! Breaking lines anew when the width changes.
//!
//! Rows that run on are joined to logical lines, and these are cut into rows of the new width. The screen
//! then keeps its place: text that did not fill it stays at its top, text that did stays at its bottom.

use alacritty_terminal::term::cell::{Cell, Flags};

use super::view::is_blank;

/// A place in rows, followed from the old ones to the new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub row: usize,
    /// The number of columns when it is behind a full row.
    pub column: usize,
    /// Blanks in front of it count as text.
    pub holds_text: bool,
}

/// Appends a row to the logical line that it belongs to; whether the line goes on behind it.
pub(super) fn join(logical: &mut Vec<Cell>, mut row: Vec<Cell>) -> bool {
    let flags = row.last().map_or(Flags::empty(), |cell| cell.flags);
    if flags.contains(Flags::LEADING_WIDE_CHAR_SPACER) {
        row.pop();
    }
    for cell in &mut row {
        cell.flags.remove(Flags::WRAPLINE);
    }
    logical.append(&mut row);
    flags.contains(Flags::WRAPLINE)
}

/// Cuts a logical line into rows, given with the index of their first cell; blanks at its end are left out
/// as far as `keep` allows.
pub(super) fn split(
    logical: &mut Vec<Cell>,
    columns: usize,
    keep: usize,
    mut each: impl FnMut(usize, Vec<Cell>),
) {
    let end = logical.iter().rposition(|cell| !is_blank(cell));
    logical.resize(end.map_or(0, |end| end + 1).max(keep), Cell::default());
    let mut start = 0;
    loop {
        let mut end = (start + columns).min(logical.len());
        let goes_on = end < logical.len();
        let cuts_wide = goes_on && logical[end - 1].flags.contains(Flags::WIDE_CHAR);
        end -= usize::from(cuts_wide);
        let mut row = logical[start..end].to_vec();
        row.resize(columns, Cell::default());
        if goes_on {
            let last = &mut row[columns - 1].flags;
            last.insert(Flags::WRAPLINE);
            last.set(Flags::LEADING_WIDE_CHAR_SPACER, cuts_wide);
        }
        each(start, row);
        start = end;
        if !goes_on {
            break;
        }
    }
    logical.clear();
}

/// The same text in rows of another width; `places` move along.
pub(super) fn reflow(rows: Vec<Vec<Cell>>, columns: usize, places: &mut [Place]) -> Vec<Vec<Cell>> {
    let mut out: Vec<Vec<Cell>> = Vec::with_capacity(rows.len());
    let mut moved = places.to_vec();
    let mut logical = Vec::new();
    // The places in the logical line, with the index of the cell that each stands before.
    let mut inside: Vec<(usize, usize)> = Vec::new();
    let total = rows.len();
    for (index, row) in rows.into_iter().enumerate() {
        let base = logical.len();
        for (number, place) in places.iter().enumerate() {
            if place.row == index {
                inside.push((number, base + place.column));
            }
        }
        let goes_on = join(&mut logical, row);
        if goes_on && index + 1 < total {
            continue;
        }
        let held = inside
            .iter()
            .filter(|(number, _)| places[*number].holds_text);
        let keep = held.map(|(_, at)| *at).max().unwrap_or(0);
        let first = out.len();
        let mut starts = Vec::new();
        split(&mut logical, columns, keep, |start, row| {
            starts.push(start);
            out.push(row);
        });
        for (number, at) in inside.drain(..) {
            let row = starts.iter().rposition(|start| *start <= at).unwrap_or(0);
            moved[number].row = first + row;
            moved[number].column = (at - starts[row]).min(columns);
        }
        if goes_on && let Some(last) = out.last_mut().and_then(|row| row.last_mut()) {
            // The last row said that it runs on into nothing, and still does.
            last.flags.insert(Flags::WRAPLINE);
        }
    }
    places.copy_from_slice(&moved);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str, columns: usize, wrapped: bool) -> Vec<Cell> {
        let mut cells = vec![Cell::default(); columns];
        for (cell, c) in cells.iter_mut().zip(text.chars()) {
            cell.c = c;
        }
        cells[columns - 1].flags.set(Flags::WRAPLINE, wrapped);
        cells
    }

    fn text(rows: &[Vec<Cell>]) -> Vec<String> {
        rows.iter()
            .map(|row| row.iter().map(|cell| cell.c).collect())
            .collect()
    }

    #[test]
    fn lines_are_joined_and_cut_and_the_cursor_stays_at_its_character() {
        let rows = vec![
            row("abcd", 4, true),
            row("ef", 4, false),
            row("g", 4, false),
        ];
        let mut places = [
            Place {
                row: 1,
                column: 1,
                holds_text: true,
            },
            Place {
                row: 2,
                column: 3,
                holds_text: true,
            },
        ];
        let rows = reflow(rows, 3, &mut places);
        assert_eq!(text(&rows), ["abc", "def", "g  "]);
        assert_eq!((places[0].row, places[0].column), (1, 2));
        assert_eq!((places[1].row, places[1].column), (2, 3));
        let rows = reflow(rows, 6, &mut places);
        assert_eq!(text(&rows), ["abcdef", "g     "]);
        assert_eq!((places[0].row, places[0].column), (0, 5));
    }

    #[test]
    fn a_wide_character_is_never_cut() {
        let mut wide = row("ab世 ", 4, false);
        wide[2].flags.insert(Flags::WIDE_CHAR);
        wide[3].flags.insert(Flags::WIDE_CHAR_SPACER);
        let rows = reflow(vec![wide.clone()], 3, &mut []);
        assert_eq!(text(&rows), ["ab ", "世  "]);
        assert_eq!(reflow(rows, 4, &mut []), [wide]);
    }
}
