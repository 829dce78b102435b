//! The whole state as escape sequences, modes first.
//!
//! Any terminal that knows the sequences of xterm ends up with the same screens. What no sequence can say
//! is in a control string of our own, which others ignore: `ESC P = OPERATION ; NUMBERS w ESC \`.
//!
//! | Operation | Meaning |
//! |---|---|
//! | 1 | a wrap is due at the cursor, in the last column |
//! | 2 | the main screen's saved cursor is the cursor of the alternate screen |
//! | 3;row;… | these rows run on in the next one |
//! | 4;row;column | the cursor is here, margins or not |
//! | 5;code | the character that REP repeats, 0 for none |

use alacritty_terminal::grid::{Cursor, Dimensions, Grid as Cells};
use alacritty_terminal::index::{Column, Line as Row};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};
use std::io::Write as _;
use unicode_width::UnicodeWidthChar;
use vte::ansi::{CharsetIndex, CursorShape, CursorStyle, NamedColor, StandardCharset};

use super::Scrollback;
use super::engine::{Engine, SavedExtra, default_tabs};
use super::line::{self, Ink, Line};
use super::scan::State;
use super::view::{MouseMode, Paint, Style, Underline};

const CHARSETS: [CharsetIndex; 4] = [
    CharsetIndex::G0,
    CharsetIndex::G1,
    CharsetIndex::G2,
    CharsetIndex::G3,
];

/// Appends formatted text; a `Vec` takes everything.
macro_rules! put {
    ($out:expr, $($part:tt)*) => {{
        let _ = write!($out, $($part)*);
    }};
}

/// SGR for a style, from nothing.
pub(super) fn sgr(style: &Style, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x1b[0");
    let flags = [
        (style.bold, ";1"),
        (style.dim, ";2"),
        (style.italic, ";3"),
        (style.inverse, ";7"),
        (style.hidden, ";8"),
        (style.strikeout, ";9"),
    ];
    for (on, code) in flags {
        if on {
            out.extend_from_slice(code.as_bytes());
        }
    }
    out.extend_from_slice(match style.underline {
        Underline::None => b"",
        Underline::Single => b";4",
        Underline::Double => b";4:2",
        Underline::Curly => b";4:3",
        Underline::Dotted => b";4:4",
        Underline::Dashed => b";4:5",
    });
    paint(style.fg, 30, out);
    paint(style.bg, 40, out);
    match style.underline_paint {
        Paint::Default => {}
        Paint::Palette(index) => put!(out, ";58:5:{index}"),
        Paint::Rgb(r, g, b) => put!(out, ";58:2::{r}:{g}:{b}"),
    }
    out.push(b'm');
}

fn paint(paint: Paint, base: u8, out: &mut Vec<u8>) {
    match paint {
        Paint::Default => {}
        Paint::Palette(index @ 0..8) => put!(out, ";{}", base + index),
        Paint::Palette(index @ 8..16) => put!(out, ";{}", base + 52 + index),
        Paint::Palette(index) => put!(out, ";{};5;{index}", base + 8),
        Paint::Rgb(r, g, b) => put!(out, ";{};2;{r};{g};{b}", base + 8),
    }
}

/// The number of DECSCUSR, 0 for the default.
pub(super) fn cursor_style_number(style: Option<CursorStyle>) -> u8 {
    let Some(style) = style else { return 0 };
    let steady = match style.shape {
        CursorShape::Underline => 4,
        CursorShape::Beam => 6,
        _ => 2,
    };
    steady - u8::from(style.blinking)
}

/// Writes rows and remembers what the receiver's pen looks like.
pub(super) struct Painter<'a> {
    out: &'a mut Vec<u8>,
    columns: usize,
    ink: Ink,
    links: bool,
    /// Whether the row before runs on, and whether a wide character is due at its end.
    before: Option<(bool, bool)>,
}

impl<'a> Painter<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, columns: usize, links: bool) -> Self {
        Self {
            out,
            columns,
            ink: Ink::default(),
            links,
            before: None,
        }
    }

    fn set_ink(&mut self, ink: Ink) {
        if ink.style != self.ink.style {
            sgr(&ink.style, self.out);
        }
        if ink.link != self.ink.link && self.links {
            match &ink.link {
                None => self.out.extend_from_slice(b"\x1b]8;;\x1b\\"),
                Some(link) if link.id().is_empty() => {
                    put!(self.out, "\x1b]8;;{}\x1b\\", link.uri())
                }
                Some(link) => put!(self.out, "\x1b]8;id={};{}\x1b\\", link.id(), link.uri()),
            }
        }
        self.ink = ink;
    }

    pub(super) fn plain_ink(&mut self) {
        self.set_ink(Ink::default());
    }

    /// Writes the next row. Rows that run on are written without a break, so that the receiver wraps.
    pub(super) fn row(&mut self, line: &Line<'_>) {
        let mut wraps_in = false;
        match self.before {
            None => {}
            Some((false, _)) => {
                // A scroll fills the new row with the pen's background.
                if self.ink.style.bg != Paint::Default {
                    self.plain_ink();
                }
                self.out.extend_from_slice(b"\r\n");
            }
            Some((true, spacer_end)) => {
                wraps_in = true;
                let wide = line.text.chars().next().and_then(char::width) == Some(2);
                if spacer_end && !wide {
                    self.plain_ink();
                    self.out.push(b' ');
                }
            }
        }
        let written = self.text(line, wraps_in);
        let due = if line.wrapped {
            self.columns - usize::from(line.spacer_end)
        } else {
            usize::from(wraps_in)
        };
        if written < due {
            self.plain_ink();
            self.out.resize(self.out.len() + due - written, b' ');
        }
        self.before = Some((line.wrapped, line.spacer_end));
    }

    /// Writes a row's text and says how many columns it took.
    fn text(&mut self, line: &Line<'_>, wraps_in: bool) -> usize {
        if line.is_plain() {
            self.plain_ink();
            self.out.extend_from_slice(line.text.as_bytes());
            return line.columns();
        }
        let mut written = 0;
        let mut chars = line.text.chars().peekable();
        for (columns, ink) in line.runs() {
            let end = written + columns;
            self.set_ink(ink.clone());
            while let Some(&c) = chars.peek() {
                let width = c.width().unwrap_or(1);
                if width > 0 && written >= end {
                    break;
                }
                if wraps_in && width > 0 {
                    self.clear_wrapped_row(written, line);
                    self.set_ink(ink.clone());
                }
                self.push(c);
                written += width;
                chars.next();
            }
        }
        if wraps_in {
            self.clear_wrapped_row(written, line);
        }
        if chars.peek().is_some() {
            self.plain_ink();
        }
        for c in chars {
            self.push(c);
            written += c.width().unwrap_or(1);
        }
        written
    }

    /// The row that a wrap at the bottom brings in has the background of the character that wrapped.
    fn clear_wrapped_row(&mut self, written: usize, line: &Line<'_>) {
        let first = line.text.chars().next().and_then(char::width).unwrap_or(1);
        let colored = line
            .runs()
            .next()
            .is_some_and(|(_, ink)| ink.style.bg != Paint::Default);
        if written == first && colored && written < self.columns {
            self.plain_ink();
            self.out.extend_from_slice(b"\x1b[K");
        }
    }

    fn push(&mut self, c: char) {
        let mut buffer = [0; 4];
        self.out
            .extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
    }
}

/// Hands every visible row to `each`, in its stored form.
pub(super) fn screen_lines(cells: &Cells<Cell>, mut each: impl FnMut(&Line<'_>)) {
    let mut buffer = Vec::new();
    for row in 0..cells.screen_lines() {
        buffer.clear();
        line::encode(&cells[Row(row as i32)][..], &mut buffer);
        if let Some((line, _)) = Line::split(&buffer) {
            each(&line);
        }
    }
}

/// Writes the sequences.
pub(super) fn write(engine: &Engine, scrollback: Scrollback, open: Option<State>) -> Vec<u8> {
    let kept = match scrollback {
        Scrollback::None => 0,
        Scrollback::Last(count) => count.min(engine.history.len()),
        Scrollback::All => engine.history.len(),
    };
    let mut out = Vec::with_capacity(16 * 1024 + kept * 64);
    out.extend_from_slice(b"\x1bc");
    write_modes(engine, &mut out);
    write_titles(engine, &mut out);
    write_colors(engine, &mut out);
    let main = engine.main_cells();
    let mut painter = Painter::new(&mut out, main.columns(), true);
    for line in engine.history.lines_from(engine.history.len() - kept) {
        painter.row(&line);
    }
    write_screen(painter, main);
    write_wraps(main, &mut out);
    write_keyboard(engine, 0, &mut out);
    let mut pen = Pen::new(engine, &mut out);
    if engine.is_alternate() {
        pen.place(&main.cursor, SavedExtra::default());
        pen.out.extend_from_slice(b"\x1b[?1049h");
        pen.place(&main.saved_cursor, engine.shadow.saved[0]);
        pen.out.extend_from_slice(b"\x1bP=2w\x1b\\");
        pen.place(&Cursor::default(), SavedExtra::default());
        pen.out.extend_from_slice(b"\x1b[2J");
        write_screen(Painter::new(pen.out, main.columns(), true), engine.cells());
        write_wraps(engine.cells(), pen.out);
        write_keyboard(engine, 1, pen.out);
    }
    pen.place(
        &engine.cells().saved_cursor,
        engine.shadow.saved[engine.screen()],
    );
    pen.out.extend_from_slice(b"\x1b7");
    pen.finish();
    // A sequence whose end is swallowed here has to be swallowed by the receiver as well.
    out.extend_from_slice(match open {
        None => b"",
        Some(State::Osc) => b"\x1b]!",
        Some(State::Text) => b"\x1bX",
        Some(State::End) => b"\x1bX\x1b",
        Some(_) => b"\x1b[0<",
    });
    out
}

fn write_screen(mut painter: Painter<'_>, cells: &Cells<Cell>) {
    screen_lines(cells, |line| painter.row(line));
    painter.plain_ink();
}

fn write_wraps(cells: &Cells<Cell>, out: &mut Vec<u8>) {
    // Only the last row can run on into nothing.
    let last = cells.screen_lines() - 1;
    if wraps(cells, last) {
        put!(out, "\x1bP=3;{last}w\x1b\\");
    }
}

fn wraps(cells: &Cells<Cell>, row: usize) -> bool {
    let row = &cells[Row(row as i32)];
    row.last()
        .is_some_and(|cell| cell.flags.contains(Flags::WRAPLINE))
}

/// The modes that do not change how the rest of a snapshot is read.
fn write_modes(engine: &Engine, out: &mut Vec<u8>) {
    let shadow = &engine.shadow;
    let has = |flag: TermMode| engine.mode(flag);
    let private = [
        (1, has(TermMode::APP_CURSOR)),
        (5, shadow.reverse_screen),
        (9, shadow.mouse == MouseMode::X10),
        (1000, shadow.mouse == MouseMode::Click),
        (1002, shadow.mouse == MouseMode::Drag),
        (1003, shadow.mouse == MouseMode::Motion),
        (1004, has(TermMode::FOCUS_IN_OUT)),
        (1005, has(TermMode::UTF8_MOUSE)),
        (1006, has(TermMode::SGR_MOUSE)),
        (1015, shadow.urxvt_mouse),
        (2004, has(TermMode::BRACKETED_PASTE)),
    ];
    for (mode, on) in private {
        if on {
            put!(out, "\x1b[?{mode}h");
        }
    }
    for (mode, on) in [
        (25, has(TermMode::SHOW_CURSOR)),
        (1007, has(TermMode::ALTERNATE_SCROLL)),
        (1042, has(TermMode::URGENCY_HINTS)),
    ] {
        put!(out, "\x1b[?{mode}{}", if on { 'h' } else { 'l' });
    }
    if has(TermMode::APP_KEYPAD) {
        out.extend_from_slice(b"\x1b=");
    }
    if shadow.modify_other_keys > 0 {
        put!(out, "\x1b[>4;{}m", shadow.modify_other_keys);
    }
    if shadow.cursor_style.is_some() {
        put!(out, "\x1b[{} q", cursor_style_number(shadow.cursor_style));
    }
}

fn write_titles(engine: &Engine, out: &mut Vec<u8>) {
    let set = |title: &Option<String>, out: &mut Vec<u8>| {
        if let Some(title) = title {
            put!(out, "\x1b]2;{title}\x1b\\");
        }
    };
    for title in &engine.shadow.titles {
        set(title, out);
        out.extend_from_slice(b"\x1b[22;0t");
    }
    set(&engine.shadow.title, out);
}

fn write_colors(engine: &Engine, out: &mut Vec<u8>) {
    let colors = engine.term.colors();
    for index in 0..=NamedColor::Cursor as usize {
        let Some(color) = colors[index] else { continue };
        if index < 256 {
            put!(out, "\x1b]4;{index}");
        } else {
            put!(out, "\x1b]{}", index - 256 + 10);
        }
        put!(
            out,
            ";rgb:{:02x}/{:02x}/{:02x}\x1b\\",
            color.r,
            color.g,
            color.b
        );
    }
}

/// The keyboard flags of the screen that is active by then.
fn write_keyboard(engine: &Engine, screen: usize, out: &mut Vec<u8>) {
    let keyboard = &engine.shadow.keyboards[screen];
    let mut flags = keyboard.stack.iter().chain([&keyboard.flags]);
    if let Some(first) = flags.next().filter(|first| **first != 0) {
        put!(out, "\x1b[={first}u");
    }
    for flags in flags {
        put!(out, "\x1b[>{flags}u");
    }
}

/// Places cursors, and remembers what of their state the receiver has.
struct Pen<'a> {
    engine: &'a Engine,
    out: &'a mut Vec<u8>,
    charsets: [StandardCharset; 4],
    charset: CharsetIndex,
    origin: bool,
}

impl<'a> Pen<'a> {
    fn new(engine: &'a Engine, out: &'a mut Vec<u8>) -> Self {
        Self {
            engine,
            out,
            charsets: [StandardCharset::Ascii; 4],
            charset: CharsetIndex::G0,
            origin: false,
        }
    }

    /// A cursor in full, while the margins are those of a fresh terminal.
    fn place(&mut self, cursor: &Cursor<Cell>, extra: SavedExtra) {
        self.origin(extra.origin);
        let (row, column) = (cursor.point.line.0 + 1, cursor.point.column.0 + 1);
        put!(self.out, "\x1b[{row};{column}H");
        if cursor.input_needs_wrap {
            self.out.extend_from_slice(b"\x1bP=1w\x1b\\");
        }
        self.template(cursor, extra.charset);
    }

    fn origin(&mut self, origin: bool) {
        if self.origin != origin {
            put!(self.out, "\x1b[?6{}", if origin { 'h' } else { 'l' });
            self.origin = origin;
        }
    }

    fn template(&mut self, cursor: &Cursor<Cell>, charset: CharsetIndex) {
        for (slot, index) in CHARSETS.into_iter().enumerate() {
            let wanted = cursor.charsets[index];
            if self.charsets[slot] != wanted {
                let designator = char::from(b"()*+"[slot]);
                let name = match wanted {
                    StandardCharset::Ascii => 'B',
                    StandardCharset::SpecialCharacterAndLineDrawing => '0',
                };
                put!(self.out, "\x1b{designator}{name}");
                self.charsets[slot] = wanted;
            }
        }
        if self.charset != charset {
            self.out.extend_from_slice(match charset {
                CharsetIndex::G0 => b"\x0f",
                CharsetIndex::G1 => b"\x0e",
                CharsetIndex::G2 => b"\x1bn",
                CharsetIndex::G3 => b"\x1bo",
            });
            self.charset = charset;
        }
        self.out.extend_from_slice(b"\x1b[m\x1b]8;;\x1b\\");
        let ink = Ink::of(&cursor.template);
        Painter::new(self.out, 0, true).set_ink(ink);
    }

    /// The state that goes on from here: tab stops, margins, cursor, modes.
    fn finish(mut self) {
        let engine = self.engine;
        let shadow = &engine.shadow;
        let cells = engine.cells();
        self.template(&Cursor::default(), CharsetIndex::G0);
        if shadow.tabs != default_tabs(0..cells.columns()) {
            self.out.extend_from_slice(b"\x1b[3g");
            let stops = shadow.tabs.iter().enumerate().filter(|(_, tab)| **tab);
            for (column, _) in stops {
                put!(self.out, "\x1b[{}G\x1bH", column + 1);
            }
        }
        let margins = shadow.margins.clone();
        if margins != (0..cells.screen_lines()) {
            put!(self.out, "\x1b[{};{}r", margins.start + 1, margins.end);
        }
        let origin = engine.mode(TermMode::ORIGIN);
        self.origin(origin);
        let (row, column) = (
            cells.cursor.point.line.0 as usize,
            cells.cursor.point.column.0,
        );
        let top = if origin { margins.start } else { 0 };
        put!(
            self.out,
            "\x1b[{};{}H",
            row.saturating_sub(top) + 1,
            column + 1
        );
        if origin && !margins.contains(&row) {
            put!(self.out, "\x1bP=4;{row};{column}w\x1b\\");
        } else if cells.cursor.input_needs_wrap {
            self.print_again(row, column);
        }
        if cells.cursor.input_needs_wrap {
            self.out.extend_from_slice(b"\x1bP=1w\x1b\\");
        }
        self.template(&cells.cursor, shadow.charset);
        let modes = [
            (TermMode::INSERT, true, "\x1b[4h"),
            (TermMode::LINE_FEED_NEW_LINE, true, "\x1b[20h"),
            (TermMode::LINE_WRAP, false, "\x1b[?7l"),
        ];
        for (mode, on, sequence) in modes {
            if engine.mode(mode) == on {
                self.out.extend_from_slice(sequence.as_bytes());
            }
        }
        let last = shadow.last.map_or(0, u32::from);
        put!(self.out, "\x1bP=5;{last}w\x1b\\");
        if shadow.synchronized {
            self.out.extend_from_slice(b"\x1b[?2026h");
        }
    }

    /// Prints the last cell of the row once more, which leaves other terminals about to wrap.
    fn print_again(&mut self, row: usize, column: usize) {
        let cells = &self.engine.cells()[Row(row as i32)];
        let mut cell = &cells[Column(column)];
        if cell.flags.contains(Flags::WIDE_CHAR_SPACER) {
            if column < 2 {
                // Printing over a wide character at the left edge would touch the row above.
                return;
            }
            cell = &cells[Column(column - 1)];
            self.out.push(b'\x08');
        }
        let mut painter = Painter::new(self.out, 0, true);
        painter.set_ink(Ink::of(cell));
        painter.push(cell.c);
        for mark in cell.zerowidth().into_iter().flatten() {
            painter.push(*mark);
        }
        painter.plain_ink();
        if wraps(self.engine.cells(), row) {
            put!(self.out, "\x1bP=3;{row}w\x1b\\");
        }
    }
}

/// Carries out an operation of our own control string; numbers that make no sense are ignored.
pub(super) fn restore(operation: &[u8], engine: &mut Engine) {
    let Ok(text) = std::str::from_utf8(operation) else {
        return;
    };
    let mut numbers = text.split(';').map_while(|part| part.parse::<u32>().ok());
    let Some(kind) = numbers.next() else { return };
    let size = engine.size();
    let (rows, columns) = (size.screen_lines(), size.columns());
    match kind {
        1 => {
            let cursor = &mut engine.term.grid_mut().cursor;
            cursor.input_needs_wrap = cursor.point.column.0 + 1 == columns;
        }
        2 => {
            let extra = SavedExtra {
                origin: engine.mode(TermMode::ORIGIN),
                charset: engine.shadow.charset,
            };
            let cursor = engine.cells().cursor.clone();
            if let Some(main) = &mut engine.main {
                main.saved_cursor = cursor;
                engine.shadow.saved[0] = extra;
            }
        }
        3 => {
            let cells = engine.term.grid_mut();
            for row in numbers.filter(|row| (*row as usize) < rows) {
                let last = &mut cells[Row(row as i32)][Column(columns - 1)];
                last.flags.insert(Flags::WRAPLINE);
            }
        }
        4 => {
            let (Some(row), Some(column)) = (numbers.next(), numbers.next()) else {
                return;
            };
            let cursor = &mut engine.term.grid_mut().cursor;
            cursor.point.line = Row((row as usize).min(rows - 1) as i32);
            cursor.point.column = Column((column as usize).min(columns - 1));
            cursor.input_needs_wrap = false;
        }
        5 => {
            engine.shadow.last = numbers
                .next()
                .and_then(char::from_u32)
                .filter(|c| *c != '\0')
        }
        _ => {}
    }
}
