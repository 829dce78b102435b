//! The emulator with what it keeps to itself: both screens, margins, tab stops, stacks and scrollback.
//!
//! The emulator holds only the active screen. While the alternate one is shown, the main screen stands
//! aside in `main`, so that a snapshot can read it; the emulator's own second screen is a token of two
//! cells. Scrollback leaves the emulator at once: its history is a ring of `GRID_HOT_LINES` rows that is
//! always full, so that scrolling never allocates, and its display offset, which counts the lines that
//! scroll by while it is not 0, says how many of them are new.

use std::mem;
use std::ops::Range;

use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::{Cursor, Dimensions, Grid as Cells, Row, Scroll};
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::cell::{Cell, Flags};
use alacritty_terminal::term::{Config, Term, TermMode};
use vte::ansi::{CharsetIndex, CursorStyle, Handler as _};

use super::Size;
use super::history::History;
use super::reflow::{Place, reflow};
use super::view::{MouseMode, is_blank};
use crate::base::limits::{GRID_HOT_LINES, GRID_STACK_LEN_MAX};

/// Columns between the first tab stops.
const TAB_INTERVAL: usize = 8;

impl Dimensions for Size {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        usize::from(self.rows)
    }

    fn columns(&self) -> usize {
        usize::from(self.cols)
    }
}

/// One screen's flags of the kitty keyboard protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Keyboard {
    pub flags: u8,
    pub stack: Vec<u8>,
}

impl Keyboard {
    pub(super) fn push(&mut self, flags: u8) {
        if self.stack.len() >= GRID_STACK_LEN_MAX {
            self.stack.remove(0);
        }
        self.stack.push(mem::replace(&mut self.flags, flags));
    }

    pub(super) fn pop(&mut self, count: usize) {
        for _ in 0..count.min(self.stack.len() + 1) {
            self.flags = self.stack.pop().unwrap_or(0);
        }
    }
}

/// What DECSC saves beside the emulator's cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SavedExtra {
    pub origin: bool,
    pub charset: CharsetIndex,
}

/// State that the emulator does not have or does not show.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    pub title: Option<String>,
    pub titles: Vec<Option<String>>,
    /// Of the main screen and of the alternate one.
    pub keyboards: [Keyboard; 2],
    pub saved: [SavedExtra; 2],
    pub tabs: Vec<bool>,
    /// First row of the scrolling region and the one behind it.
    pub margins: Range<usize>,
    pub charset: CharsetIndex,
    pub cursor_style: Option<CursorStyle>,
    pub mouse: MouseMode,
    pub urxvt_mouse: bool,
    pub synchronized: bool,
    pub reverse_screen: bool,
    pub modify_other_keys: u8,
    /// What REP repeats.
    pub last: Option<char>,
}

impl Shadow {
    fn new(size: Size) -> Self {
        Self {
            title: None,
            titles: Vec::new(),
            keyboards: Default::default(),
            saved: Default::default(),
            tabs: default_tabs(0..size.columns()),
            margins: 0..size.screen_lines(),
            charset: CharsetIndex::default(),
            cursor_style: None,
            mouse: MouseMode::Off,
            urxvt_mouse: false,
            synchronized: false,
            reverse_screen: false,
            modify_other_keys: 0,
            last: None,
        }
    }
}

pub(super) fn default_tabs(columns: Range<usize>) -> Vec<bool> {
    columns.map(|column| column % TAB_INTERVAL == 0).collect()
}

pub(super) struct Engine {
    pub term: Term<VoidListener>,
    /// The main screen while the alternate one is shown.
    pub main: Option<Cells<Cell>>,
    pub shadow: Shadow,
    pub history: History,
}

impl Engine {
    pub(super) fn new(size: Size, scrollback_lines: usize) -> Self {
        let config = Config {
            scrolling_history: 0,
            ..Config::default()
        };
        let mut engine = Self {
            term: Term::new(config, &Token, VoidListener),
            main: None,
            shadow: Shadow::new(size),
            history: History::new(scrollback_lines),
        };
        engine.term.resize(size);
        engine.forget_inactive();
        *engine.term.grid_mut() = main_cells(size, GRID_HOT_LINES);
        engine
    }

    pub(super) fn cells(&self) -> &Cells<Cell> {
        self.term.grid()
    }

    pub(super) fn main_cells(&self) -> &Cells<Cell> {
        self.main.as_ref().unwrap_or(self.term.grid())
    }

    pub(super) fn size(&self) -> Size {
        let cells = self.cells();
        Size {
            cols: cells.columns() as u16,
            rows: cells.screen_lines() as u16,
        }
    }

    pub(super) fn is_alternate(&self) -> bool {
        self.main.is_some()
    }

    /// Index of the active screen in pairs of state.
    pub(super) fn screen(&self) -> usize {
        usize::from(self.is_alternate())
    }

    pub(super) fn mode(&self, mode: TermMode) -> bool {
        self.term.mode().contains(mode)
    }

    pub(super) fn keyboard(&mut self) -> &mut Keyboard {
        let screen = self.screen();
        &mut self.shadow.keyboards[screen]
    }

    /// Makes the emulator's second screen a token again.
    fn forget_inactive(&mut self) {
        self.term.swap_alt();
        *self.term.grid_mut() = token();
        self.term.swap_alt();
    }

    pub(super) fn enter_alternate(&mut self, save_cursor: bool) {
        if self.is_alternate() {
            return;
        }
        self.drain();
        let size = self.size();
        let mut alternate = Cells::new(size.screen_lines(), size.columns(), 0);
        let active = self.term.grid_mut();
        if save_cursor {
            active.saved_cursor = active.cursor.clone();
            self.shadow.saved[0] = SavedExtra {
                origin: self.term.mode().contains(TermMode::ORIGIN),
                charset: self.shadow.charset,
            };
        }
        let active = self.term.grid_mut();
        alternate.cursor = active.cursor.clone();
        alternate.reset_region(..);
        let main = mem::replace(active, token());
        self.term.swap_alt();
        *self.term.grid_mut() = alternate;
        self.main = Some(main);
    }

    pub(super) fn leave_alternate(&mut self) {
        let Some(main) = self.main.take() else { return };
        // What a program leaves behind on the alternate screen is nothing to the next one.
        self.shadow.keyboards[1] = Keyboard::default();
        self.shadow.saved[1] = SavedExtra::default();
        *self.term.grid_mut() = token();
        self.term.swap_alt();
        *self.term.grid_mut() = main;
    }

    /// Lines that scrolled out and are still in the emulator.
    #[inline]
    fn hot(&self) -> usize {
        self.term.grid().display_offset().saturating_sub(1)
    }

    /// Moves lines out before the emulator would lose count of them.
    #[inline]
    pub(super) fn drain_when_full(&mut self) {
        if self.term.grid().display_offset() >= GRID_HOT_LINES {
            self.drain();
        }
    }

    /// Moves the lines out that scrolled since the last time.
    pub(super) fn drain(&mut self) {
        // The emulator counts scrolls below a fixed top as well, whose lines are gone.
        let kept = self.shadow.margins.start == 0;
        self.move_out(if kept { usize::MAX } else { 0 });
    }

    /// Moves the oldest `count` lines out; newer ones are dropped.
    pub(super) fn move_out(&mut self, count: usize) {
        let hot = self.hot();
        if hot == 0 {
            return;
        }
        let cells = self.term.grid_mut();
        for back in (1..=hot).rev().take(count) {
            let row = &cells[Line(-(back as i32))];
            self.history.push(&row[..]);
        }
        cells.scroll_display(Scroll::Delta(-(hot as i32)));
    }

    /// Scrolls the whole main screen up by `lines`; only those with something on or below them are kept.
    pub(super) fn scroll_out(&mut self, lines: usize) {
        self.drain();
        let size = self.size();
        let mut used = used_rows(self.cells());
        let mut left = lines.min(size.screen_lines());
        let region = Line(0)..Line(size.screen_lines() as i32);
        while left > 0 {
            // One less than the ring, where the display offset would be cut.
            let step = left.min(GRID_HOT_LINES - 1);
            self.term.grid_mut().scroll_up(&region, step);
            self.move_out(used);
            used = used.saturating_sub(step);
            left -= step;
        }
    }

    pub(super) fn reset(&mut self) {
        self.leave_alternate();
        self.term.reset_state();
        for index in 0..alacritty_terminal::term::color::COUNT {
            self.term.reset_color(index);
        }
        let size = self.size();
        *self.term.grid_mut() = main_cells(size, GRID_HOT_LINES);
        self.shadow = Shadow::new(size);
        self.history.clear();
    }

    pub(super) fn resize(&mut self, size: Size) {
        let old = self.size();
        if old == size {
            return;
        }
        self.drain();
        let alternate = self
            .main
            .take()
            .map(|main| mem::replace(self.term.grid_mut(), main));
        let mut main = mem::replace(self.term.grid_mut(), token());
        self.term.resize(size);
        self.forget_inactive();
        main = self.reflow(main, size);
        *self.term.grid_mut() = match alternate {
            None => main,
            Some(mut cells) => {
                self.main = Some(main);
                cells.resize(false, size.screen_lines(), size.columns());
                compact(cells)
            }
        };
        settle(self.term.grid_mut());
        if let Some(main) = &mut self.main {
            settle(main);
        }
        self.shadow.margins = 0..size.screen_lines();
        let tabs = default_tabs(self.shadow.tabs.len()..size.columns());
        self.shadow.tabs.truncate(size.columns());
        self.shadow.tabs.extend(tabs);
    }

    /// The main screen in another size, with the lines that come back from the scrollback.
    fn reflow(&mut self, mut main: Cells<Cell>, size: Size) -> Cells<Cell> {
        let (columns, rows) = (main.columns(), main.screen_lines());
        let (wide, tall) = (size.columns(), size.screen_lines());
        // Rows below text and cursor are nobody's; a screen without such rows is full.
        let used = used_rows(&main).max(main.cursor.point.line.0 as usize + 1);
        let count = match (columns == wide, used == rows) {
            (true, true) => tall.saturating_sub(rows),
            (true, false) => 0,
            (false, _) => rows + tall * (1 + wide.div_ceil(columns)),
        };
        let mut lines = self.history.take_tail(count, columns);
        let mut places = [
            Place {
                row: lines.len(),
                ..Place::default()
            },
            place(&main.cursor, lines.len()),
            Place {
                holds_text: false,
                ..place(&main.saved_cursor, lines.len())
            },
        ];
        for row in (0..used).map(|row| Line(row as i32)) {
            lines.push(main[row][..].to_vec());
        }
        if columns != wide {
            self.history.rewrap(columns, wide);
            lines = reflow(lines, wide, &mut places);
        }
        let [top, cursor, saved] = places;
        let bottom_up = lines.len().saturating_sub(tall);
        let first = if used == rows {
            bottom_up
        } else {
            top.row.max(bottom_up)
        };
        let first = first.min(cursor.row);
        let mut fresh = main_cells(size, GRID_HOT_LINES);
        for (index, line) in lines.into_iter().enumerate() {
            if index < first {
                self.history.push(&line);
            } else if index < first + tall {
                fresh[Line((index - first) as i32)] = Row::from_vec(line, wide);
            }
        }
        for (from, to, place) in [
            (&mut main.cursor, &mut fresh.cursor, cursor),
            (&mut main.saved_cursor, &mut fresh.saved_cursor, saved),
        ] {
            *to = mem::take(from);
            to.point.line = Line(place.row.saturating_sub(first) as i32);
            to.point.column = Column(place.column.min(wide - 1));
            to.input_needs_wrap = place.column == wide;
        }
        fresh
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let screen = |cells: &Cells<Cell>, hot: usize| {
            (cells.screen_lines() + hot)
                * (cells.columns() * size_of::<Cell>() + size_of::<Row<Cell>>())
        };
        let alternate = if self.is_alternate() {
            screen(self.cells(), 0)
        } else {
            0
        };
        size_of::<Self>()
            + screen(self.main_cells(), GRID_HOT_LINES)
            + alternate
            + self.history.memory_bytes()
            + self.shadow.tabs.capacity()
            + self
                .shadow
                .titles
                .iter()
                .flatten()
                .map(String::len)
                .sum::<usize>()
    }
}

/// The dimensions of a screen that only has to exist.
struct Token;

impl Dimensions for Token {
    fn total_lines(&self) -> usize {
        1
    }

    fn screen_lines(&self) -> usize {
        1
    }

    fn columns(&self) -> usize {
        2
    }
}

fn token() -> Cells<Cell> {
    Cells::new(1, 2, 0)
}

/// A main screen that counts the lines that scroll out, with a full ring of `hot` rows for its history.
fn main_cells(size: Size, hot: usize) -> Cells<Cell> {
    // A screen that was taller keeps its rows, so the history grows into them instead of by a thousand.
    let (rows, columns) = (size.screen_lines(), size.columns());
    let mut cells = Cells::new(rows + hot, columns, hot);
    cells.resize(false, rows, columns);
    let region = Line(0)..Line(rows as i32);
    let mut left = hot;
    while left > 0 {
        let step = left.min(rows);
        cells.scroll_up(&region, step);
        left -= step;
    }
    cells.scroll_display(Scroll::Delta(1));
    cells
}

fn size_of_cells(cells: &Cells<Cell>) -> Size {
    Size {
        cols: cells.columns() as u16,
        rows: cells.screen_lines() as u16,
    }
}

/// The same screen in no more memory than it needs.
fn compact(mut cells: Cells<Cell>) -> Cells<Cell> {
    let size = size_of_cells(&cells);
    let mut fresh = Cells::new(size.screen_lines(), size.columns(), 0);
    for line in (0..size.screen_lines()).map(|row| Line(row as i32)) {
        mem::swap(&mut cells[line], &mut fresh[line]);
    }
    fresh.cursor = mem::take(&mut cells.cursor);
    fresh.saved_cursor = mem::take(&mut cells.saved_cursor);
    fresh
}

/// Rows from the top down to the last one that shows something.
pub(super) fn used_rows(cells: &Cells<Cell>) -> usize {
    (0..cells.screen_lines())
        .rev()
        .find(|row| {
            cells[Line(*row as i32)]
                .into_iter()
                .any(|cell| !is_blank(cell))
        })
        .map_or(0, |row| row + 1)
}

fn place(cursor: &Cursor<Cell>, above: usize) -> Place {
    Place {
        row: above + cursor.point.line.0 as usize,
        column: cursor.point.column.0 + usize::from(cursor.input_needs_wrap),
        holds_text: true,
    }
}

fn clamp_cursor(cursor: &mut Cursor<Cell>, size: Size) {
    let (bottom, right) = (size.screen_lines() - 1, size.columns() - 1);
    if cursor.input_needs_wrap && cursor.point.column.0 < right {
        // The right edge moved away from a cursor that was about to wrap there.
        cursor.input_needs_wrap = false;
        cursor.point.column += 1;
    }
    cursor.point.line = cursor.point.line.clamp(Line(0), Line(bottom as i32));
    cursor.point.column = cursor.point.column.min(Column(right));
}

/// Puts a resized screen in order: cursors inside, no halves of wide characters.
fn settle(cells: &mut Cells<Cell>) {
    let size = size_of_cells(cells);
    clamp_cursor(&mut cells.cursor, size);
    clamp_cursor(&mut cells.saved_cursor, size);
    for line in (0..size.screen_lines()).map(|row| Line(row as i32)) {
        tidy_row(&mut cells[line][..]);
    }
}

/// Repairs a row whose cells were moved or erased one by one.
///
/// Halves of wide characters become blanks, and marks that only the last cell may carry go elsewhere.
pub(super) fn tidy_row(cells: &mut [Cell]) {
    let last = cells.len() - 1;
    let edge = Flags::WRAPLINE | Flags::LEADING_WIDE_CHAR_SPACER;
    for index in 0..cells.len() {
        if index < last {
            cells[index].flags.remove(edge);
        }
        let flags = cells[index].flags;
        if !flags.intersects(Flags::WIDE_CHAR | Flags::WIDE_CHAR_SPACER) {
            continue;
        }
        let whole = if flags.contains(Flags::WIDE_CHAR) {
            index < last && cells[index + 1].flags.contains(Flags::WIDE_CHAR_SPACER)
        } else {
            index > 0 && cells[index - 1].flags.contains(Flags::WIDE_CHAR)
        };
        if !whole {
            cells[index].clear_wide();
            cells[index].flags.remove(Flags::WIDE_CHAR_SPACER);
        }
    }
}
