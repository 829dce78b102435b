//! Text of the grid, and search in it.

use alacritty_terminal::grid::Dimensions;
use unicode_width::UnicodeWidthChar;

use super::engine::Engine;
use super::line::Line;
use super::snapshot::{Painter, screen_lines};
use crate::base::limits::GRID_MATCHES_MAX;

/// Which part of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The active screen.
    Screen,
    /// The newest lines of scrollback, then the active screen.
    ScreenAndHistory(usize),
    /// All scrollback, then the active screen.
    All,
    /// Lines of both, counted from the oldest one kept.
    Lines { from: usize, count: usize },
}

/// In which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line for each row.
    Plain,
    /// Rows that run on in the next one are one line.
    Joined,
    /// Rows with their colours and attributes as escape sequences.
    Ansi,
}

/// How letters compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Sensitive,
    Insensitive,
}

/// A place in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Absolute number of the line where the match begins; the screen's first row follows the newest line
    /// of scrollback.
    pub line: u64,
    /// First column.
    pub column: u16,
    /// Absolute number of the line where it ends, which is later when it runs over a wrap.
    pub last_line: u64,
    /// The column behind it.
    pub end: u16,
}

fn lines(engine: &Engine, from: usize, count: usize, mut each: impl FnMut(&Line<'_>)) {
    let history = &engine.history;
    for line in history.lines_from(from).take(count) {
        each(&line);
    }
    let end = from.saturating_add(count);
    let mut at = history.len();
    screen_lines(engine.cells(), |line| {
        if (from..end).contains(&at) {
            each(line);
        }
        at += 1;
    });
}

fn each_line(engine: &Engine, what: Extent, mut each: impl FnMut(&Line<'_>)) {
    let history = &engine.history;
    let kept = match what {
        Extent::Lines { from, count } => return lines(engine, from, count, each),
        Extent::Screen => 0,
        Extent::ScreenAndHistory(lines) => lines.min(history.len()),
        Extent::All => history.len(),
    };
    for line in history.lines_from(history.len() - kept) {
        each(&line);
    }
    screen_lines(engine.cells(), each);
}

/// Lines end with a line feed; blank ones at the end are left out.
pub(super) fn text(engine: &Engine, what: Extent, form: Form) -> String {
    let columns = engine.cells().columns();
    let mut out = Vec::new();
    each_line(engine, what, |line| match form {
        Form::Ansi => {
            let mut painter = Painter::new(&mut out, columns, true);
            let mut single = *line;
            single.wrapped = false;
            painter.row(&single);
            painter.plain_ink();
            out.push(b'\n');
        }
        Form::Plain => {
            out.extend_from_slice(line.text.trim_end_matches(' ').as_bytes());
            out.push(b'\n');
        }
        Form::Joined if line.wrapped => {
            out.extend_from_slice(line.text.as_bytes());
            let due = columns - usize::from(line.spacer_end);
            let missing = due.saturating_sub(line.columns());
            out.resize(out.len() + missing, b' ');
        }
        Form::Joined => {
            out.extend_from_slice(line.text.trim_end_matches(' ').as_bytes());
            out.push(b'\n');
        }
    });
    // What is written is text from lines, which is UTF-8, and ASCII.
    let mut text = String::from_utf8(out).unwrap_or_default();
    let end = text.trim_end_matches('\n').len();
    text.truncate((end + 1).min(text.len()));
    if end == 0 {
        text.clear();
    }
    text
}

#[derive(Clone, Copy)]
struct Place {
    c: char,
    line: u64,
    column: u16,
    width: u16,
}

pub(super) fn search(engine: &Engine, needle: &str, case: Case) -> Vec<Match> {
    let fold = |c: char| match case {
        Case::Sensitive => c,
        Case::Insensitive => c.to_lowercase().next().unwrap_or(c),
    };
    let needle: Vec<char> = needle.chars().map(fold).collect();
    let mut found = Vec::new();
    if needle.is_empty() {
        return found;
    }
    let columns = engine.cells().columns();
    let mut number = engine.history.first_line();
    let mut logical: Vec<Place> = Vec::new();
    each_line(engine, Extent::All, |line| {
        let mut column = 0;
        for c in line.text.chars() {
            let width = c.width().unwrap_or(1) as u16;
            logical.push(Place {
                c: fold(c),
                line: number,
                column: if width == 0 {
                    column.max(1) - 1
                } else {
                    column
                },
                width,
            });
            column += width;
        }
        if line.wrapped {
            let due = (columns - usize::from(line.spacer_end)) as u16;
            logical.extend((column..due).map(|column| Place {
                c: ' ',
                line: number,
                column,
                width: 1,
            }));
        } else {
            matches(&logical, &needle, &mut found);
            logical.clear();
        }
        number += 1;
    });
    matches(&logical, &needle, &mut found);
    let excess = found.len().saturating_sub(GRID_MATCHES_MAX);
    found.drain(..excess);
    found
}

fn matches(logical: &[Place], needle: &[char], found: &mut Vec<Match>) {
    let mut at = 0;
    while at + needle.len() <= logical.len() {
        let window = &logical[at..at + needle.len()];
        if !window
            .iter()
            .map(|place| place.c)
            .eq(needle.iter().copied())
        {
            at += 1;
            continue;
        }
        if let (Some(first), Some(last)) = (window.first(), window.last()) {
            found.push(Match {
                line: first.line,
                column: first.column,
                last_line: last.line,
                end: last.column + last.width.max(1),
            });
        }
        at += needle.len();
    }
}
