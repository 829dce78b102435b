//! The grid of a terminal session: a program's output in, screens, scrollback and effects out.
//!
//! ```text
//! bytes -> scan (whole sequences) -> osc, query (what the emulator does not know)
//!                                 -> vte parser -> handler -> emulator (alacritty_terminal)
//!                                                        '-> shadow (what the emulator hides)
//! rows that scroll out -> history (encoded)          state -> snapshot (escape sequences)
//! ```
//!
//! A grid never fails on its input: sequences, stacks, marks, links and scrollback are bounded, and a panic
//! in the emulator replaces it by an empty one that says so. Nothing here does I/O or knows the time.

mod checksum;
mod damage;
mod dispatch;
mod effect;
mod engine;
mod feed;
mod handler;
mod history;
mod line;
mod osc;
mod query;
mod reflow;
mod scan;
mod snapshot;
mod text;
mod view;

use std::panic::{AssertUnwindSafe, catch_unwind};

use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::Line as Row;
use alacritty_terminal::term::TermMode;
use vte::ansi::{CursorShape as EngineShape, Handler};

pub use damage::Damage;
pub use effect::{Effect, NoticeSource, ProgramStatus, Progress, PromptMark};
pub use history::{HistoryBlocks, HistoryError};
pub use osc::clipboard_answer;
pub use text::{Case, Extent, Form, Match};
pub use view::{
    CellView, CursorShape, CursorView, Link, Modes, MouseEncoding, MouseMode, OwnedRow, Paint,
    RowView, Style, Underline,
};

use crate::base::limits::{GRID_SCROLLBACK_DEFAULT, GRID_SIDE_MAX, GRID_SIDE_MIN};
use engine::Engine;
use scan::State;

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Size {
    pub cols: u16,
    pub rows: u16,
}

impl Size {
    /// Within `GRID_SIDE_MIN..=GRID_SIDE_MAX`, as every grid is.
    pub fn clamped(self) -> Self {
        Self {
            cols: self.cols.clamp(GRID_SIDE_MIN, GRID_SIDE_MAX),
            rows: self.rows.clamp(GRID_SIDE_MIN, GRID_SIDE_MAX),
        }
    }
}

/// Whether a grid answers queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Answers through `Effect::Reply`; there is one host for a program.
    Host,
    /// A copy, which never answers.
    Mirror,
}

/// What colour queries are answered with, as red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    pub foreground: [u8; 3],
    pub background: [u8; 3],
    pub cursor: [u8; 3],
    /// The first 16 colours; the others are xterm's cube and greys.
    pub colors: [[u8; 3]; 16],
}

impl Default for Palette {
    fn default() -> Self {
        Self {
            foreground: [0xe6, 0xe6, 0xe6],
            background: [0x12, 0x12, 0x12],
            cursor: [0xe6, 0xe6, 0xe6],
            colors: [
                [0x00, 0x00, 0x00],
                [0xcd, 0x31, 0x31],
                [0x0d, 0xbc, 0x79],
                [0xe5, 0xe5, 0x10],
                [0x24, 0x72, 0xc8],
                [0xbc, 0x3f, 0xbc],
                [0x11, 0xa8, 0xcd],
                [0xe5, 0xe5, 0xe5],
                [0x66, 0x66, 0x66],
                [0xf1, 0x4c, 0x4c],
                [0x23, 0xd1, 0x8b],
                [0xf5, 0xf5, 0x43],
                [0x3b, 0x8e, 0xea],
                [0xd6, 0x70, 0xd6],
                [0x29, 0xb8, 0xdb],
                [0xff, 0xff, 0xff],
            ],
        }
    }
}

/// How a grid is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub scrollback_lines: usize,
    pub role: Role,
    pub palette: Palette,
    /// Width and height of a cell in pixels, for programs that ask.
    pub cell_pixels: (u16, u16),
}

impl Options {
    pub fn new(role: Role) -> Self {
        Self {
            scrollback_lines: GRID_SCROLLBACK_DEFAULT,
            role,
            palette: Palette::default(),
            cell_pixels: (8, 16),
        }
    }
}

/// How much scrollback a snapshot carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrollback {
    None,
    /// The newest lines.
    Last(usize),
    All,
}

/// What a session needs of a terminal emulator.
pub trait Screen {
    /// Applies output; see [`Grid::feed`].
    fn feed(&mut self, bytes: &[u8], effects: &mut Vec<Effect>);
    fn resize(&mut self, size: Size);
    /// Escape sequences that rebuild the state.
    fn snapshot(&self, scrollback: Scrollback) -> Vec<u8>;
    /// Bytes of output that the state reflects.
    fn offset(&self) -> u64;
}

/// A terminal: both screens, scrollback, modes.
pub struct Grid {
    engine: Engine,
    options: Options,
    /// Bytes of an unfinished sequence or character.
    ///
    /// INVARIANT: at most `GRID_SEQUENCE_LEN_MAX` bytes, and no sequence is complete in it.
    pending: Vec<u8>,
    /// Where the unfinished sequence ends; `None` in plain text.
    state: Option<State>,
    /// The unfinished sequence is too long and is dropped to its end.
    discarding: bool,
    /// Absolute number of bytes fed.
    fed: u64,
    /// Bytes at the start of `pending` that `fed` does not count.
    uncounted: usize,
    notice: osc::Notice,
    damage: damage::Tracker,
    panics: u64,
}

impl Grid {
    pub fn new(size: Size, options: Options) -> Self {
        Self {
            engine: Engine::new(size.clamped(), options.scrollback_lines),
            options,
            pending: Vec::new(),
            state: None,
            discarding: false,
            fed: 0,
            uncounted: 0,
            notice: osc::Notice::default(),
            damage: damage::Tracker::default(),
            panics: 0,
        }
    }

    /// Applies output. Only whole sequences and characters are applied: an unfinished one waits in
    /// [`Self::pending`] and is not part of the state yet. Effects are appended in the order of the bytes.
    pub fn feed(&mut self, bytes: &[u8], effects: &mut Vec<Effect>) {
        self.fed += bytes.len() as u64;
        let mut at = 0;
        while at < bytes.len() {
            let run = catch_unwind(AssertUnwindSafe(|| {
                feed::run(self, bytes, &mut at, effects)
            }));
            if run.is_err() {
                self.start_anew(effects);
            }
        }
    }

    /// Replaces the emulator after a panic in it; the scrollback is ours and stays.
    fn start_anew(&mut self, effects: &mut Vec<Effect>) {
        self.panics += 1;
        self.damage.touch_all();
        let size = self.engine.size().clamped();
        let fresh = Engine::new(size, self.options.scrollback_lines);
        let broken = std::mem::replace(&mut self.engine, fresh);
        self.engine.history = broken.history;
        effects.push(Effect::Failed);
        for c in "[the terminal emulator failed here; the screen starts anew]".chars() {
            self.engine.term.input(c);
        }
        self.engine.term.linefeed();
        self.engine.term.carriage_return();
        self.engine.drain();
    }

    /// How often the emulator failed and was replaced.
    pub fn panics(&self) -> u64 {
        self.panics
    }

    /// Absolute number of the bytes that the state reflects: all that were fed, less the pending ones.
    pub fn offset(&self) -> u64 {
        self.fed - (self.pending.len() - self.uncounted) as u64
    }

    /// Says how many bytes the state reflects, after a snapshot was fed.
    pub fn set_offset(&mut self, offset: u64) {
        self.fed = offset;
        self.uncounted = self.pending.len();
    }

    /// The unfinished sequence or character at the end of what was fed.
    pub fn pending(&self) -> &[u8] {
        &self.pending
    }

    pub fn size(&self) -> Size {
        self.engine.size()
    }

    /// Changes the size; the main screen is reflowed, lines move to and from the scrollback.
    pub fn resize(&mut self, size: Size) {
        let size = size.clamped();
        self.damage.touch_all();
        let resized = catch_unwind(AssertUnwindSafe(|| self.engine.resize(size)));
        if resized.is_err() {
            self.start_anew(&mut Vec::new());
            self.engine.resize(size);
        }
    }

    /// Escape sequences that rebuild this state in a fresh grid or any capable terminal of this size.
    /// Pending bytes are not part of it: they follow from [`Self::offset`] on.
    pub fn snapshot(&self, scrollback: Scrollback) -> Vec<u8> {
        let open = self.state.filter(|_| self.discarding);
        snapshot::write(&self.engine, scrollback, open)
    }

    /// The visible rows that look different since the last call; all of them at first.
    pub fn take_damage(&mut self) -> Damage {
        self.damage.take(&self.engine)
    }

    /// A visible row, from 0 at the top; the last one past the end.
    pub fn row(&self, row: u16) -> RowView<'_> {
        let cells = self.engine.cells();
        let row = usize::from(row).min(cells.screen_lines() - 1);
        RowView::of(&cells[Row(row as i32)])
    }

    /// Lines of scrollback.
    pub fn history_len(&self) -> usize {
        self.engine.history.len()
    }

    /// Absolute number of the oldest line of scrollback; grows as lines are dropped or cleared.
    pub fn first_line(&self) -> u64 {
        self.engine.history.first_line()
    }

    /// Changes whenever absolute numbers lose their meaning: the width changed, or the history was cleared.
    pub fn history_epoch(&self) -> u64 {
        self.engine.history.epoch()
    }

    /// A line of scrollback, from 0 for the oldest.
    pub fn history_row(&self, index: usize) -> Option<OwnedRow> {
        let columns = self.engine.cells().columns();
        let line = self.engine.history.lines_from(index).next()?;
        Some(OwnedRow(line.cells(columns)))
    }

    pub fn cursor(&self) -> CursorView {
        let point = self.engine.cells().cursor.point;
        let style = self.engine.shadow.cursor_style.unwrap_or_default();
        CursorView {
            row: point.line.0 as u16,
            column: point.column.0 as u16,
            visible: self.engine.mode(TermMode::SHOW_CURSOR),
            shape: match style.shape {
                EngineShape::Underline => CursorShape::Underline,
                EngineShape::Beam => CursorShape::Beam,
                _ => CursorShape::Block,
            },
            blinking: style.blinking,
        }
    }

    pub fn modes(&self) -> Modes {
        let engine = &self.engine;
        let shadow = &engine.shadow;
        let has = |flag: TermMode| engine.mode(flag);
        Modes {
            alternate_screen: engine.is_alternate(),
            application_cursor: has(TermMode::APP_CURSOR),
            application_keypad: has(TermMode::APP_KEYPAD),
            bracketed_paste: has(TermMode::BRACKETED_PASTE),
            focus_reporting: has(TermMode::FOCUS_IN_OUT),
            mouse: shadow.mouse,
            mouse_encoding: if has(TermMode::SGR_MOUSE) {
                MouseEncoding::Sgr
            } else if has(TermMode::UTF8_MOUSE) {
                MouseEncoding::Utf8
            } else if shadow.urxvt_mouse {
                MouseEncoding::Urxvt
            } else {
                MouseEncoding::X10
            },
            alternate_scroll: has(TermMode::ALTERNATE_SCROLL),
            kitty_flags: shadow.keyboards[engine.screen()].flags,
            modify_other_keys: shadow.modify_other_keys,
            synchronized: shadow.synchronized,
            reverse_screen: shadow.reverse_screen,
            auto_wrap: has(TermMode::LINE_WRAP),
            origin: has(TermMode::ORIGIN),
            insert: has(TermMode::INSERT),
            newline: has(TermMode::LINE_FEED_NEW_LINE),
        }
    }

    pub fn title(&self) -> Option<&str> {
        self.engine.shadow.title.as_deref()
    }

    /// A colour that the program set by OSC 4 (0 to 255), 10, 11 or 12 (256 to 258).
    pub fn color(&self, index: usize) -> Option<[u8; 3]> {
        if index > 258 {
            return None;
        }
        self.engine.term.colors()[index].map(|color| [color.r, color.g, color.b])
    }

    /// The style that the next character gets.
    pub fn pen(&self) -> Style {
        Style::of(&self.engine.cells().cursor.template)
    }

    /// Text of a part of the grid.
    pub fn text(&self, what: Extent, form: Form) -> String {
        text::text(&self.engine, what, form)
    }

    /// Where `needle` stands in scrollback and screen, oldest first. Matches run over wraps.
    pub fn search(&self, needle: &str, case: Case) -> Vec<Match> {
        text::search(&self.engine, needle, case)
    }

    /// Scrollback from an absolute line on, in an encoding that [`Self::import_history`] takes back.
    pub fn export_history(&self, from_line: u64) -> HistoryBlocks {
        let columns = self.engine.cells().columns() as u16;
        self.engine.history.export(from_line, columns)
    }

    /// Replaces the scrollback by an exported one, broken anew if its width is another.
    ///
    /// # Errors
    /// On damaged blocks, which leave the grid as it was.
    pub fn import_history(&mut self, blocks: &HistoryBlocks) -> Result<(), HistoryError> {
        let columns = self.engine.cells().columns();
        self.engine.history.import(blocks, columns)
    }

    /// Forgets lines of scrollback with smaller absolute numbers.
    pub fn forget_history_before(&mut self, line: u64) {
        self.engine.history.forget_before(line);
    }

    /// About how much memory the grid holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.engine.memory_bytes() + self.pending.capacity() + self.damage.memory_bytes()
    }

    /// A hash of everything that can be observed: both screens, scrollback, cursors, modes, stacks.
    pub fn checksum(&self) -> u64 {
        checksum::whole(self)
    }
}

impl Screen for Grid {
    fn feed(&mut self, bytes: &[u8], effects: &mut Vec<Effect>) {
        Grid::feed(self, bytes, effects);
    }

    fn resize(&mut self, size: Size) {
        Grid::resize(self, size);
    }

    fn snapshot(&self, scrollback: Scrollback) -> Vec<u8> {
        Grid::snapshot(self, scrollback)
    }

    fn offset(&self) -> u64 {
        Grid::offset(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_may_move_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<Grid>();
    }

    #[test]
    fn a_panic_in_the_emulator_costs_one_screen() {
        let size = Size { cols: 20, rows: 4 };
        let mut grid = Grid::new(size, Options::new(Role::Host));
        let mut effects = Vec::new();
        let before = b"one\r\ntwo\r\nthree\r\nfour\r\nfive";
        let broken = b"\x1b[31mlost\x1b[0m and \xd0\xb6";
        let after = b"\r\n\x1b[32mthe next line";
        grid.feed(before, &mut effects);
        grid.engine.term.grid_mut().cursor.point.line = Row(4_000);
        grid.feed(broken, &mut effects);
        assert_eq!(grid.panics(), 1);
        assert_eq!(effects, [Effect::Failed]);
        grid.feed(after, &mut effects);
        let text = grid.text(Extent::All, Form::Plain);
        assert!(text.starts_with("one\n[the terminal emul"), "{text}");
        assert!(text.ends_with("the next line\n"), "{text}");
        assert_eq!(grid.panics(), 1);
        let fed = before.len() + broken.len() + after.len();
        assert_eq!(grid.offset(), fed as u64);
    }
}
