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

mod effect;
mod engine;
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

use std::cell::Cell as Slot;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use alacritty_terminal::grid::{Cursor, Dimensions};
use alacritty_terminal::index::Line as Row;
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::Cell;
use vte::ansi::{CursorShape as EngineShape, Handler, Processor, Timeout};

pub use effect::{Effect, NoticeSource, ProgramStatus, Progress, PromptMark};
pub use history::{HistoryBlocks, HistoryError};
pub use osc::clipboard_answer;
pub use text::{Case, Extent, Form, Match};
pub use view::{
    CellView, CursorShape, CursorView, Link, Modes, MouseEncoding, MouseMode, OwnedRow, Paint,
    RowView, Style, Underline,
};

use crate::base::limits::{
    GRID_SCROLLBACK_DEFAULT, GRID_SEQUENCE_LEN_MAX, GRID_SIDE_MAX, GRID_SIDE_MIN,
};
use engine::Engine;
use handler::Dispatch;
use line::Ink;
use scan::{Scan, State};

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

/// The rows that look different from the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// From 0, ascending.
    pub rows: Vec<u16>,
    /// Lines that entered the scrollback since then.
    pub scrolled: u64,
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

/// The parser waits for the end of a synchronized update; this one never does, so that the state is
/// always that of the bytes.
#[derive(Default)]
struct Never;

impl Timeout for Never {
    fn set_timeout(&mut self, _: std::time::Duration) {}

    fn clear_timeout(&mut self) {}

    fn pending_timeout(&self) -> bool {
        false
    }
}

type Parser = Processor<Never>;

thread_local! {
    /// Between two sequences a parser has no state, so all grids of a thread share one: it reserves 2 MB.
    static PARSER: Slot<Option<Box<Parser>>> = const { Slot::new(None) };
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
    rows_seen: Vec<u64>,
    lines_seen: u64,
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
            rows_seen: Vec::new(),
            lines_seen: 0,
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
                let mut parser = PARSER.take().unwrap_or_default();
                let mut feeder = Feeder {
                    grid: self,
                    parser: &mut parser,
                    effects,
                };
                feeder.run(bytes, &mut at);
                self.engine.drain();
                PARSER.set(Some(parser));
            }));
            if run.is_err() {
                self.start_anew(effects);
            }
        }
    }

    /// Replaces the emulator after a panic in it; the scrollback is ours and stays.
    fn start_anew(&mut self, effects: &mut Vec<Effect>) {
        self.panics += 1;
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
        let cells = self.engine.cells();
        let fresh: Vec<u64> = (0..cells.screen_lines())
            .map(|row| hash_cells(&cells[Row(row as i32)][..]))
            .collect();
        let seen = std::mem::replace(&mut self.rows_seen, fresh);
        let same = seen.len() == self.rows_seen.len();
        let rows = (0..self.rows_seen.len())
            .filter(|row| !same || seen[*row] != self.rows_seen[*row])
            .map(|row| row as u16)
            .collect();
        let lines = self.first_line() + self.history_len() as u64;
        let before = std::mem::replace(&mut self.lines_seen, lines);
        Damage {
            rows,
            scrolled: lines.saturating_sub(before),
        }
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

    /// About how much memory the grid holds, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.engine.memory_bytes() + self.pending.capacity() + self.rows_seen.capacity() * 8
    }

    /// A hash of everything that can be observed: both screens, scrollback, cursors, modes, stacks.
    pub fn checksum(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        let engine = &self.engine;
        let shadow = &engine.shadow;
        (self.size(), self.modes(), self.cursor()).hash(&mut hash);
        (&shadow.title, &shadow.titles, &shadow.keyboards).hash(&mut hash);
        (&shadow.tabs, &shadow.margins, shadow.last).hash(&mut hash);
        (shadow.charset as u8, shadow.cursor_style).hash(&mut hash);
        (engine.mode(TermMode::URGENCY_HINTS)).hash(&mut hash);
        for saved in &shadow.saved {
            (saved.origin, saved.charset as u8).hash(&mut hash);
        }
        (0..=258).for_each(|index| self.color(index).hash(&mut hash));
        for line in engine.history.lines_from(0) {
            line.hash(&mut hash);
        }
        for cells in [Some(engine.cells()), engine.main.as_ref()].into_iter().flatten() {
            snapshot::screen_lines(cells, |line| line.hash(&mut hash));
            hash_cursor(&cells.cursor, &mut hash);
            hash_cursor(&cells.saved_cursor, &mut hash);
        }
        hash.finish()
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

fn hash_cursor(cursor: &Cursor<Cell>, hash: &mut impl Hasher) {
    use vte::ansi::CharsetIndex::{G0, G1, G2, G3};
    (cursor.point.line.0, cursor.point.column.0).hash(hash);
    cursor.input_needs_wrap.hash(hash);
    let ink = Ink::of(&cursor.template);
    ink.style.hash(hash);
    ink.link.map(|link| (link.id().to_owned(), link.uri().to_owned())).hash(hash);
    for index in [G0, G1, G2, G3] {
        (cursor.charsets[index] as u8).hash(hash);
    }
}

/// A quick hash of a row as it looks.
fn hash_cells(cells: &[Cell]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut mix = |value: u64| {
        hash = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    };
    for cell in cells {
        mix(u64::from(u32::from(cell.c)) << 16 | u64::from(cell.flags.bits()));
        mix(color_bits(cell.fg) << 32 | color_bits(cell.bg));
        if cell.extra.is_some() {
            let mut extra = DefaultHasher::new();
            cell.zerowidth().hash(&mut extra);
            cell.underline_color().map(color_bits).hash(&mut extra);
            cell.hyperlink().map(|link| link.uri().to_owned()).hash(&mut extra);
            mix(extra.finish());
        }
    }
    hash
}

fn color_bits(color: vte::ansi::Color) -> u64 {
    match Paint::of(color) {
        Paint::Default => 0,
        Paint::Palette(index) => 1 << 24 | u64::from(index),
        Paint::Rgb(r, g, b) => 2 << 24 | u64::from(r) << 16 | u64::from(g) << 8 | u64::from(b),
    }
}

/// One feed: cuts the bytes and hands out the pieces.
struct Feeder<'a> {
    grid: &'a mut Grid,
    parser: &'a mut Parser,
    effects: &'a mut Vec<Effect>,
}

impl Feeder<'_> {
    fn dispatch(&mut self) -> (Dispatch<'_>, &mut Parser, &mut osc::Notice) {
        let dispatch = Dispatch {
            engine: &mut self.grid.engine,
            options: &self.grid.options,
            effects: self.effects,
        };
        (dispatch, self.parser, &mut self.grid.notice)
    }

    /// Applies `bytes` from `at` on. `at` is past a piece before the piece is applied, so that a panic
    /// skips it.
    fn run(&mut self, bytes: &[u8], at: &mut usize) {
        while *at < bytes.len() {
            match self.grid.state {
                None if self.grid.pending.is_empty() => self.ground(bytes, at),
                None => self.character(bytes, at),
                Some(state) => self.sequence(state, bytes, at),
            }
        }
    }

    fn ground(&mut self, bytes: &[u8], at: &mut usize) {
        let rest = &bytes[*at..];
        match memchr::memchr(0x1b, rest) {
            Some(0) => {
                self.grid.state = Some(State::Escape);
                self.open(bytes, at);
            }
            Some(escape) => {
                *at += escape;
                self.plain(&rest[..escape]);
            }
            None => {
                *at = bytes.len();
                let whole = rest.len() - scan::unfinished_utf8(rest);
                self.grid.pending.extend_from_slice(&rest[whole..]);
                self.plain(&rest[..whole]);
            }
        }
    }

    /// A sequence that begins at `at`; nothing is copied when all of it is there.
    fn open(&mut self, bytes: &[u8], at: &mut usize) {
        let rest = &bytes[*at..];
        match scan::scan(State::Escape, &rest[1..]) {
            Scan::Complete(len) => {
                self.grid.state = None;
                *at += 1 + len;
                self.whole(&rest[..1 + len]);
            }
            Scan::Aborted(_) | Scan::Ended(_) | Scan::Open(_) => {
                self.grid.pending.push(0x1b);
                *at += 1;
                self.sequence(State::Escape, bytes, at);
            }
        }
    }

    /// Goes on with the sequence in `pending`.
    fn sequence(&mut self, state: State, bytes: &[u8], at: &mut usize) {
        let rest = &bytes[*at..];
        match scan::scan(state, rest) {
            Scan::Open(state) => {
                *at = bytes.len();
                self.grid.state = Some(state);
                self.keep(rest);
            }
            Scan::Complete(len) => {
                *at += len;
                self.grid.state = None;
                if let Some(sequence) = self.finished(&rest[..len]) {
                    self.whole(&sequence);
                }
            }
            Scan::Aborted(len) => {
                *at += len;
                self.grid.state = None;
                if let Some(mut sequence) = self.finished(&rest[..len]) {
                    // Control characters inside count; CAN brings the parser back to plain text.
                    sequence.push(0x18);
                    let (mut dispatch, parser, _) = self.dispatch();
                    parser.advance(&mut dispatch, &sequence);
                }
            }
            Scan::Ended(len) => {
                *at += len;
                let sequence = self.finished(&rest[..len]);
                self.grid.pending.push(0x1b);
                self.grid.state = Some(State::Escape);
                if let Some(mut sequence) = sequence {
                    sequence.push(b'\\');
                    self.whole(&sequence);
                }
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let grid = &mut *self.grid;
        if grid.discarding {
            return;
        }
        if grid.pending.len() + bytes.len() > GRID_SEQUENCE_LEN_MAX {
            grid.discarding = true;
            grid.pending = Vec::new();
            grid.uncounted = 0;
        } else {
            grid.pending.extend_from_slice(bytes);
        }
    }

    /// The pending sequence with its last bytes, unless it was too long.
    fn finished(&mut self, last: &[u8]) -> Option<Vec<u8>> {
        self.keep(last);
        self.grid.uncounted = 0;
        let sequence = std::mem::take(&mut self.grid.pending);
        (!std::mem::take(&mut self.grid.discarding)).then_some(sequence)
    }

    /// Goes on with the character in `pending`.
    fn character(&mut self, bytes: &[u8], at: &mut usize) {
        let byte = bytes[*at];
        self.grid.pending.push(byte);
        let error = std::str::from_utf8(&self.grid.pending).err();
        match error.map(|error| error.error_len()) {
            Some(None) => *at += 1,
            None => {
                *at += 1;
                self.grid.uncounted = 0;
                let character = std::mem::take(&mut self.grid.pending);
                self.plain(&character);
            }
            Some(Some(_)) => {
                // The byte does not belong to the character, which is broken.
                self.grid.pending.clear();
                self.grid.uncounted = 0;
                self.dispatch().0.input(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    fn plain(&mut self, mut bytes: &[u8]) {
        // A character that an escape cuts short is broken.
        let cut = scan::unfinished_utf8(bytes);
        let (mut dispatch, parser, _) = self.dispatch();
        let whole = bytes.len() - cut;
        bytes = &bytes[..whole];
        while let Some(&first) = bytes.first() {
            let printable = |byte: &u8| (0x20..0x7f).contains(byte);
            let len = match first {
                0x20..0x7f => {
                    let len = bytes.iter().position(|byte| !printable(byte));
                    let len = len.unwrap_or(bytes.len());
                    dispatch.ascii(&bytes[..len]);
                    len
                }
                b'\n' | 0x0b | 0x0c => {
                    dispatch.line_break();
                    1
                }
                b'\r' => {
                    dispatch.carriage_return();
                    1
                }
                _ => {
                    let other = |byte: &u8| printable(byte) || (0x0a..=0x0d).contains(byte);
                    let len = bytes.iter().position(other).unwrap_or(bytes.len());
                    let len = len.max(1);
                    for chunk in bytes[..len].utf8_chunks() {
                        parser.advance(&mut dispatch, chunk.valid().as_bytes());
                        // The parser would wait for the rest of a character that has none; bytes that
                        // are controls in Latin 1 show nothing.
                        if !matches!(chunk.invalid(), [] | [..=0x9f]) {
                            dispatch.input(char::REPLACEMENT_CHARACTER);
                        }
                    }
                    len
                }
            };
            bytes = &bytes[len..];
        }
        if cut > 0 {
            dispatch.input(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Applies a sequence from its ESC to its end.
    fn whole(&mut self, sequence: &[u8]) {
        let (mut dispatch, parser, notice) = self.dispatch();
        let last = sequence.last().copied().unwrap_or_default();
        let handled = match sequence.get(1) {
            Some(b'[') => query::control(&sequence[2..], &mut dispatch),
            Some(b'P' | b']' | b'X' | b'^' | b'_') if matches!(last, 0x18 | 0x1a) => true,
            Some(b']') => osc::dispatch(string_body(sequence), notice, &mut dispatch),
            Some(b'P') => {
                query::device_control(string_body(sequence), &mut dispatch);
                true
            }
            // Kitty graphics and private messages; a window manager's title is not among them.
            Some(b'X' | b'^' | b'_') => true,
            Some(&byte) if sequence.len() == 2 => query::escape(byte, &mut dispatch),
            _ => false,
        };
        if !handled {
            parser.advance(&mut dispatch, sequence);
        }
    }
}

/// What stands between introducer and terminator of a string.
fn string_body(sequence: &[u8]) -> &[u8] {
    let body = &sequence[2..];
    body.strip_suffix(b"\x1b\\")
        .or_else(|| body.strip_suffix(b"\x07"))
        .unwrap_or(body)
}
