//! The recordings of alacritty_terminal: bytes, and the grid that they end in.

use std::path::Path;

use serde::Deserialize;
use wingman::terminal::grid::{
    Grid, Options, OwnedRow, Paint, Role, RowView, Size, Style, Underline,
};

use super::Outcome;

#[derive(Deserialize)]
struct RefSize {
    columns: u16,
    screen_lines: u16,
}

#[derive(Deserialize)]
struct RefGrid {
    raw: RefRows,
}

#[derive(Deserialize)]
struct RefRows {
    /// From the bottom up.
    inner: Vec<RefRow>,
}

#[derive(Deserialize)]
struct RefRow {
    inner: Vec<RefCell>,
}

#[derive(Deserialize)]
struct RefCell {
    c: char,
    fg: RefColor,
    bg: RefColor,
    flags: String,
    extra: Option<RefExtra>,
}

#[derive(Deserialize)]
struct RefExtra {
    zerowidth: Vec<char>,
    hyperlink: Option<RefLink>,
}

#[derive(Deserialize)]
struct RefLink {
    inner: RefLinkInner,
}

#[derive(Deserialize)]
struct RefLinkInner {
    uri: String,
}

#[derive(Deserialize)]
enum RefColor {
    Named(String),
    Spec { r: u8, g: u8, b: u8 },
    Indexed(u8),
}

const NAMES: [&str; 16] = [
    "Black",
    "Red",
    "Green",
    "Yellow",
    "Blue",
    "Magenta",
    "Cyan",
    "White",
    "BrightBlack",
    "BrightRed",
    "BrightGreen",
    "BrightYellow",
    "BrightBlue",
    "BrightMagenta",
    "BrightCyan",
    "BrightWhite",
];

impl RefColor {
    fn paint(&self) -> Paint {
        match self {
            Self::Spec { r, g, b } => Paint::Rgb(*r, *g, *b),
            Self::Indexed(index) => Paint::Palette(*index),
            Self::Named(name) => NAMES
                .iter()
                .position(|known| known == name)
                .map_or(Paint::Default, |index| Paint::Palette(index as u8)),
        }
    }
}

impl RefCell {
    fn text(&self) -> String {
        let c = if self.c == '\t' { ' ' } else { self.c };
        let marks = self.extra.iter().flat_map(|extra| &extra.zerowidth);
        std::iter::once(c).chain(marks.copied()).collect()
    }

    fn style(&self) -> Style {
        let has = |name: &str| self.flags.split(" | ").any(|flag| flag == name);
        let underlines = [
            ("UNDERLINE", Underline::Single),
            ("DOUBLE_UNDERLINE", Underline::Double),
            ("UNDERCURL", Underline::Curly),
            ("DOTTED_UNDERLINE", Underline::Dotted),
            ("DASHED_UNDERLINE", Underline::Dashed),
        ];
        let underline = underlines.iter().find(|(name, _)| has(name));
        Style {
            fg: self.fg.paint(),
            bg: self.bg.paint(),
            underline_paint: Paint::Default,
            underline: underline.map_or(Underline::None, |(_, kind)| *kind),
            bold: has("BOLD") || has("BOLD_ITALIC") || has("DIM_BOLD"),
            dim: has("DIM") || has("DIM_BOLD"),
            italic: has("ITALIC") || has("BOLD_ITALIC"),
            inverse: has("INVERSE"),
            hidden: has("HIDDEN"),
            strikeout: has("STRIKEOUT"),
        }
    }
}

fn row_differs(row: RowView<'_>, expected: &RefRow) -> bool {
    expected
        .inner
        .iter()
        .zip(row.cells())
        .any(|(expected, cell)| {
            let mut text = String::from(cell.character());
            text.extend(cell.marks());
            let mut style = cell.style();
            style.underline_paint = Paint::Default;
            let link = expected
                .extra
                .as_ref()
                .and_then(|extra| extra.hyperlink.as_ref());
            text != expected.text()
                || style != expected.style()
                || cell.link().map(|link| link.address().to_owned())
                    != link.map(|link| link.inner.uri.clone())
        })
}

/// The rows from the bottom of the screen up into the scrollback that differ.
fn differing_rows(grid: &Grid, expected: &[RefRow]) -> Vec<i64> {
    let rows = usize::from(grid.size().rows);
    let mut differing = Vec::new();
    for (up, expected) in expected.iter().enumerate() {
        let differs = if up < rows {
            row_differs(grid.row((rows - 1 - up) as u16), expected)
        } else {
            let index = grid.history_len().checked_sub(up - rows + 1);
            match index.and_then(|index| grid.history_row(index)) {
                Some(row) => row_differs(OwnedRow::view(&row), expected),
                None => expected.inner.iter().any(|cell| cell.text() != " "),
            }
        };
        if differs {
            differing.push(rows as i64 - 1 - up as i64);
        }
    }
    differing
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> T {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn replay(dir: &Path) -> Outcome {
    let size: RefSize = read(&dir.join("size.json"));
    let expected: RefGrid = read(&dir.join("grid.json"));
    let size = Size {
        cols: size.columns,
        rows: size.screen_lines,
    };
    let mut grid = Grid::new(size, Options::new(Role::Host));
    let recording = std::fs::read(dir.join("alacritty.recording")).unwrap();
    grid.feed(&recording, &mut Vec::new());
    let mut outcome = Outcome {
        file: dir.file_name().unwrap().to_string_lossy().into_owned(),
        ..Outcome::default()
    };
    let differing = differing_rows(&grid, &expected.raw.inner);
    outcome.check(differing.is_empty(), || {
        let first = &differing[..differing.len().min(8)];
        format!("{} rows differ, among them {first:?}", differing.len())
    });
    outcome
}

pub fn run(dir: &Path) -> Vec<Outcome> {
    let mut dirs: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("alacritty.recording").exists())
        .collect();
    dirs.sort();
    assert!(dirs.len() >= 40, "recordings are missing");
    dirs.iter().map(|dir| replay(dir)).collect()
}
