//! What the handler does beyond handing calls on: writing text quickly, moving the cursor, modes, resets.

use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::{Cell, Flags};
use unicode_width::UnicodeWidthChar;
use vte::ansi::{Attr, CharsetIndex, Handler, NamedPrivateMode, PrivateMode, StandardCharset};

use super::engine::{Engine, SavedExtra, tidy_row};
use super::view::MouseMode;
use super::{Effect, Options, Role};
use crate::base::limits::{GRID_HOT_LINES, GRID_MARKS_MAX};

/// Characters below this one take one column.
pub(super) const FIRST_WIDE: char = '\u{1100}';

/// Whether a character takes one column, with a short way for letters that are common.
fn is_narrow(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{c0}'..='\u{24f}' | '\u{400}'..='\u{45f}') || c.width() == Some(1)
}

/// One feed's view of the grid.
pub(super) struct Dispatch<'a> {
    pub engine: &'a mut Engine,
    pub options: &'a Options,
    pub effects: &'a mut Vec<Effect>,
}

/// Characters below this one are never combining marks.
pub(super) const FIRST_MARK: char = '\u{a0}';

impl Dispatch<'_> {
    pub(super) fn reply(&mut self, bytes: impl Into<Vec<u8>>) {
        if self.options.role == Role::Host {
            self.effects.push(Effect::Reply(bytes.into()));
        }
    }

    /// Writes printable ASCII, which is nearly everything that programs print, straight into the row.
    pub(super) fn ascii(&mut self, mut run: &[u8]) {
        let Some(&last) = run.last() else { return };
        let cursor = &self.engine.cells().cursor;
        let plain = cursor.charsets[self.engine.shadow.charset] == StandardCharset::Ascii;
        if !plain || self.engine.mode(TermMode::INSERT) {
            for &byte in run {
                self.input(char::from(byte));
            }
            return;
        }
        while !run.is_empty() {
            let cells = self.engine.term.grid_mut();
            if cells.cursor.input_needs_wrap {
                self.input(char::from(run[0]));
                run = &run[1..];
                continue;
            }
            let columns = cells.columns();
            let (line, column) = (cells.cursor.point.line, cells.cursor.point.column.0);
            let template = cells.cursor.template.clone();
            let count = run.len().min(columns - column);
            let target = &mut cells[line][Column(column)..Column(column + count)];
            let mut written = 0;
            for (cell, &byte) in target.iter_mut().zip(run) {
                if cell
                    .flags
                    .intersects(Flags::WIDE_CHAR | Flags::WIDE_CHAR_SPACER)
                {
                    break;
                }
                cell.c = char::from(byte);
                cell.fg = template.fg;
                cell.bg = template.bg;
                cell.flags = template.flags;
                if cell.extra.is_some() || template.extra.is_some() {
                    cell.extra.clone_from(&template.extra);
                }
                written += 1;
            }
            if column + written < columns {
                cells.cursor.point.column = Column(column + written);
            } else {
                cells.cursor.point.column = Column(columns - 1);
                cells.cursor.input_needs_wrap = true;
            }
            run = &run[written..];
            if written < count {
                self.input(char::from(run[0]));
                run = &run[1..];
            }
        }
        self.engine.shadow.last = Some(char::from(last));
    }

    /// Writes text without control characters of C0.
    pub(super) fn text(&mut self, text: &str) {
        let cursor = &self.engine.cells().cursor;
        let ascii = cursor.charsets[self.engine.shadow.charset] == StandardCharset::Ascii;
        let direct = ascii && !self.engine.mode(TermMode::INSERT);
        for c in text.chars() {
            // Controls of C1 do nothing.
            let nothing = matches!(c, '\u{7f}'..='\u{9f}');
            let done = nothing || direct && is_narrow(c) && self.put(c);
            if !done {
                self.input(c);
            }
        }
    }

    /// Writes a character of one column into its cell, unless a wrap or a wide character is in the way.
    fn put(&mut self, c: char) -> bool {
        let cells = self.engine.term.grid_mut();
        if cells.cursor.input_needs_wrap {
            return false;
        }
        let last = cells.columns() - 1;
        let (line, column) = (cells.cursor.point.line, cells.cursor.point.column);
        let (fg, bg) = (cells.cursor.template.fg, cells.cursor.template.bg);
        let flags = cells.cursor.template.flags;
        let extra = cells.cursor.template.extra.clone();
        let cell = &mut cells[line][column];
        if cell
            .flags
            .intersects(Flags::WIDE_CHAR | Flags::WIDE_CHAR_SPACER)
        {
            return false;
        }
        *cell = Cell {
            c,
            fg,
            bg,
            flags,
            extra,
        };
        if column.0 < last {
            cells.cursor.point.column += 1;
        } else {
            cells.cursor.input_needs_wrap = true;
        }
        self.engine.shadow.last = Some(c);
        true
    }

    /// LF, VT or FF: a new line when mode 20 says so.
    pub(super) fn line_break(&mut self) {
        self.linefeed();
        if self.engine.mode(TermMode::LINE_FEED_NEW_LINE) {
            self.carriage_return();
        }
    }

    /// REP: the last character again, at most a screen full.
    pub(super) fn repeat(&mut self, count: usize) {
        let Some(c) = self.engine.shadow.last else {
            return;
        };
        let size = self.engine.size();
        for _ in 0..count.min(size.columns() * size.screen_lines()) {
            self.input(c);
        }
    }

    /// DECSTR.
    pub(super) fn soft_reset(&mut self) {
        for mode in [NamedPrivateMode::Origin, NamedPrivateMode::CursorKeys] {
            self.engine.term.unset_private_mode(mode.into());
        }
        for mode in [NamedPrivateMode::ShowCursor, NamedPrivateMode::LineWrap] {
            self.engine.term.set_private_mode(mode.into());
        }
        self.engine
            .term
            .unset_mode(vte::ansi::NamedMode::Insert.into());
        self.engine.term.unset_keypad_application_mode();
        self.terminal_attribute(Attr::Reset);
        self.set_hyperlink(None);
        for index in [
            CharsetIndex::G0,
            CharsetIndex::G1,
            CharsetIndex::G2,
            CharsetIndex::G3,
        ] {
            self.configure_charset(index, StandardCharset::Ascii);
        }
        self.set_active_charset(CharsetIndex::G0);
        let rows = self.engine.size().screen_lines();
        let point = self.engine.cells().cursor.point;
        self.set_scrolling_region(1, Some(rows));
        self.move_to(point.line.0, point.column.0);
        let screen = self.engine.screen();
        self.engine.shadow.saved[screen] = SavedExtra::default();
        self.engine.term.grid_mut().saved_cursor = Default::default();
    }

    /// Puts the cursor at a place counted from the screen's corner, margins or not.
    pub(super) fn move_to(&mut self, line: i32, column: usize) {
        let size = self.engine.size();
        let cursor = &mut self.engine.term.grid_mut().cursor;
        cursor.point.line = Line(line.clamp(0, size.screen_lines() as i32 - 1));
        cursor.point.column = Column(column.min(size.columns() - 1));
        cursor.input_needs_wrap = false;
    }

    /// Moves by rows; the margins stop a cursor that is not yet past them.
    pub(super) fn move_rows(&mut self, delta: i32) {
        let margins = &self.engine.shadow.margins;
        let (top, bottom) = (margins.start as i32, margins.end as i32 - 1);
        let last = self.engine.size().screen_lines() as i32 - 1;
        let point = self.engine.cells().cursor.point;
        let row = point.line.0;
        let low = if row >= top { top } else { 0 };
        let high = if row <= bottom { bottom } else { last };
        self.move_to(row.saturating_add(delta).clamp(low, high), point.column.0);
    }

    /// Repairs the cursor's row when an erase that began or ended before these columns, counted from the
    /// cursor, cut a wide character.
    pub(super) fn tidy_erased(&mut self, edges: [usize; 2]) {
        let cells = self.engine.cells();
        let (line, column) = (cells.cursor.point.line, cells.cursor.point.column.0);
        let row = &cells[line];
        let last = row.len() - 1;
        let wide = Flags::WIDE_CHAR | Flags::WIDE_CHAR_SPACER;
        let cut = edges.iter().any(|edge| {
            let behind = column.saturating_add(*edge).min(last);
            let before = behind.saturating_sub(1);
            (row[Column(before)].flags | row[Column(behind)].flags).intersects(wide)
        });
        if cut {
            self.tidy_cursor_row();
        }
    }

    pub(super) fn tidy_cursor_row(&mut self) {
        let cells = self.engine.term.grid_mut();
        let line = cells.cursor.point.line;
        tidy_row(&mut cells[line][..]);
    }

    /// Takes the style off the column that stays empty before a wide character that wrapped: it comes
    /// and goes with the width, and no sequence can set it.
    pub(super) fn blank_spacers(&mut self) {
        let cells = self.engine.term.grid_mut();
        let (line, last) = (cells.cursor.point.line, Column(cells.columns() - 1));
        for line in [line - 1_i32, line] {
            if line >= 0
                && cells[line][last]
                    .flags
                    .contains(Flags::LEADING_WIDE_CHAR_SPACER)
            {
                let cell = &mut cells[line][last];
                let flags = cell.flags & (Flags::WRAPLINE | Flags::LEADING_WIDE_CHAR_SPACER);
                *cell = Cell {
                    flags,
                    ..Cell::default()
                };
            }
        }
    }

    /// Whether another mark on the cell that would get it is one too many.
    pub(super) fn is_overloaded(&self) -> bool {
        let cells = self.engine.cells();
        let point = cells.cursor.point;
        let mut column = point.column.0;
        if !cells.cursor.input_needs_wrap {
            column = column.saturating_sub(1);
        }
        let row = &cells[point.line];
        if row[Column(column)].flags.contains(Flags::WIDE_CHAR_SPACER) {
            column = column.saturating_sub(1);
        }
        let marks = row[Column(column)].zerowidth();
        marks.is_some_and(|marks| marks.len() >= GRID_MARKS_MAX)
    }

    fn switch_screen(&mut self, alternate: bool, save_cursor: bool) {
        if self.engine.is_alternate() == alternate {
            return;
        }
        if alternate {
            self.engine.enter_alternate(save_cursor);
        } else {
            self.engine.leave_alternate();
        }
        self.effects.push(Effect::AlternateScreen(alternate));
    }

    fn set_mouse(&mut self, mode: MouseMode, on: bool) {
        let mouse = &mut self.engine.shadow.mouse;
        if on {
            *mouse = mode;
        } else if *mouse == mode {
            *mouse = MouseMode::Off;
        }
    }

    pub(super) fn set_any_private_mode(&mut self, mode: PrivateMode, on: bool) {
        use NamedPrivateMode as M;
        let PrivateMode::Named(named) = mode else {
            self.set_unnamed_mode(mode.raw(), on);
            return;
        };
        match named {
            M::SwapScreenAndSetRestoreCursor => self.switch_screen(on, true),
            M::ReportMouseClicks => self.set_mouse(MouseMode::Click, on),
            M::ReportCellMouseMotion => self.set_mouse(MouseMode::Drag, on),
            M::ReportAllMouseMotion => self.set_mouse(MouseMode::Motion, on),
            M::SyncUpdate => {
                if self.engine.shadow.synchronized != on {
                    self.engine.shadow.synchronized = on;
                    self.effects.push(Effect::Synchronized(on));
                }
            }
            M::BlinkingCursor => {
                let style = self.engine.shadow.cursor_style.get_or_insert_default();
                style.blinking = on;
            }
            M::ColumnMode => {
                self.set_scrolling_region(1, None);
                self.engine.term.grid_mut().reset_region(..);
            }
            M::Origin => {
                let term = &mut self.engine.term;
                if on {
                    term.set_private_mode(mode);
                } else {
                    term.unset_private_mode(mode);
                }
                self.goto(0, 0);
            }
            M::SgrMouse | M::Utf8Mouse => {
                if on {
                    self.engine.shadow.urxvt_mouse = false;
                    self.engine.term.set_private_mode(mode);
                } else {
                    self.engine.term.unset_private_mode(mode);
                }
            }
            _ if on => self.engine.term.set_private_mode(mode),
            _ => self.engine.term.unset_private_mode(mode),
        }
    }

    fn set_unnamed_mode(&mut self, mode: u16, on: bool) {
        match mode {
            5 => self.engine.shadow.reverse_screen = on,
            9 => self.set_mouse(MouseMode::X10, on),
            47 | 1047 => self.switch_screen(on, false),
            66 if on => self.set_keypad_application_mode(),
            66 => self.unset_keypad_application_mode(),
            1015 => {
                self.engine.shadow.urxvt_mouse = on;
                if on {
                    for mode in [NamedPrivateMode::SgrMouse, NamedPrivateMode::Utf8Mouse] {
                        self.engine.term.unset_private_mode(mode.into());
                    }
                }
            }
            1048 if on => self.save_cursor_position(),
            1048 => self.restore_cursor_position(),
            _ => {}
        }
    }

    /// Scrolls in steps that the counter of lines scrolled out can follow.
    pub(super) fn in_steps(
        &mut self,
        lines: usize,
        kept: bool,
        scroll: impl Fn(&mut Engine, usize),
    ) {
        self.engine.drain();
        let mut left = lines.min(self.engine.size().screen_lines());
        while left > 0 {
            let step = left.min(GRID_HOT_LINES - 1);
            scroll(self.engine, step);
            self.engine.move_out(if kept { step } else { 0 });
            left -= step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_to_a_width_agrees_with_the_table() {
        for c in (' '..='\u{1ffff}').filter(|c| is_narrow(*c)) {
            assert_eq!(c.width(), Some(1), "{c:?}");
        }
    }
}
