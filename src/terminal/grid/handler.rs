//! The handler between the parser and the emulator: applies what the emulator does right, corrects what
//! it does not, tracks what it hides, and answers queries in its place.

use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::TermMode;
use alacritty_terminal::term::cell::Hyperlink as CellLink;
use unicode_width::UnicodeWidthChar;
use vte::ansi::cursor_icon::CursorIcon;
use vte::ansi::{
    Attr, CharsetIndex, ClearMode, CursorShape, CursorStyle, Handler, Hyperlink, KeyboardModes,
    KeyboardModesApplyBehavior, LineClearMode, Mode, ModifyOtherKeys, NamedPrivateMode,
    PrivateMode, Rgb, ScpCharPath, ScpUpdateMode, StandardCharset, TabulationClearMode,
};

use super::dispatch::{Dispatch, FIRST_MARK, FIRST_WIDE};
use super::engine::{SavedExtra, default_tabs, used_rows};
use super::{Effect, Role, osc, query};
use crate::base::limits::{GRID_LINK_ID_LEN_MAX, GRID_LINK_LEN_MAX, GRID_STACK_LEN_MAX};

impl Handler for Dispatch<'_> {
    fn set_title(&mut self, title: Option<String>) {
        let title = title.map(|title| osc::clean_title(&title));
        if self.engine.shadow.title != title {
            self.engine.shadow.title.clone_from(&title);
            self.effects.push(Effect::Title(title));
        }
    }

    fn set_cursor_style(&mut self, style: Option<CursorStyle>) {
        self.engine.shadow.cursor_style = style;
    }

    fn set_cursor_shape(&mut self, shape: CursorShape) {
        let style = self.engine.shadow.cursor_style.get_or_insert_default();
        style.shape = shape;
    }

    #[inline]
    fn input(&mut self, c: char) {
        if c >= FIRST_MARK && c.width() == Some(0) && self.is_overloaded() {
            return;
        }
        self.engine.shadow.last = Some(c);
        self.engine.term.input(c);
        if c >= FIRST_WIDE {
            self.blank_spacers();
        }
        if self.engine.mode(TermMode::INSERT) {
            self.tidy_cursor_row();
        }
        self.engine.drain_when_full();
    }

    fn goto(&mut self, line: i32, column: usize) {
        let rows = self.engine.size().screen_lines() as i32;
        if self.engine.mode(TermMode::ORIGIN) {
            let margins = self.engine.shadow.margins.clone();
            let (top, bottom) = (margins.start as i32, margins.end as i32 - 1);
            self.move_to(line.saturating_add(top).clamp(top, bottom), column);
        } else {
            self.move_to(line.min(rows - 1), column);
        }
    }

    fn goto_line(&mut self, line: i32) {
        let column = self.engine.cells().cursor.point.column.0;
        self.goto(line, column);
    }

    fn goto_col(&mut self, column: usize) {
        let line = self.engine.cells().cursor.point.line.0;
        self.move_to(line, column);
    }

    fn insert_blank(&mut self, count: usize) {
        self.engine.term.insert_blank(count);
        self.tidy_cursor_row();
    }

    fn move_up(&mut self, rows: usize) {
        self.move_rows(-(rows as i32));
    }

    fn move_down(&mut self, rows: usize) {
        self.move_rows(rows as i32);
    }

    fn identify_terminal(&mut self, intermediate: Option<char>) {
        if let Some(answer) = query::device_attributes(intermediate) {
            self.reply(answer);
        }
    }

    fn device_status(&mut self, kind: usize) {
        if let Some(answer) = query::device_status(self.engine, kind) {
            self.reply(answer);
        }
    }

    fn move_forward(&mut self, columns: usize) {
        self.engine.term.move_forward(columns);
    }

    fn move_backward(&mut self, columns: usize) {
        self.engine.term.move_backward(columns);
    }

    fn move_down_and_cr(&mut self, rows: usize) {
        self.move_rows(rows as i32);
        self.carriage_return();
    }

    fn move_up_and_cr(&mut self, rows: usize) {
        self.move_rows(-(rows as i32));
        self.carriage_return();
    }

    fn put_tab(&mut self, count: u16) {
        // The emulator would write the tab into the cell, and wrap at the right edge.
        self.move_forward_tabs(count);
    }

    fn backspace(&mut self) {
        self.engine.term.backspace();
    }

    #[inline]
    fn carriage_return(&mut self) {
        let cursor = &mut self.engine.term.grid_mut().cursor;
        cursor.point.column = Column(0);
        cursor.input_needs_wrap = false;
    }

    #[inline]
    fn linefeed(&mut self) {
        self.engine.term.linefeed();
        self.engine.drain_when_full();
    }

    fn bell(&mut self) {
        self.effects.push(Effect::Bell);
    }

    fn substitute(&mut self) {}

    fn newline(&mut self) {
        self.line_break();
    }

    fn set_horizontal_tabstop(&mut self) {
        let column = self.engine.cells().cursor.point.column.0;
        if let Some(tab) = self.engine.shadow.tabs.get_mut(column) {
            *tab = true;
        }
    }

    fn scroll_up(&mut self, lines: usize) {
        let full = self.engine.shadow.margins == (0..self.engine.size().screen_lines());
        if full && !self.engine.is_alternate() {
            self.engine.scroll_out(lines);
            return;
        }
        let kept = self.engine.shadow.margins.start == 0;
        self.in_steps(lines, kept, |engine, step| engine.term.scroll_up(step));
    }

    fn scroll_down(&mut self, lines: usize) {
        self.engine.term.scroll_down(lines);
    }

    fn insert_blank_lines(&mut self, lines: usize) {
        self.engine.term.insert_blank_lines(lines);
    }

    fn delete_lines(&mut self, lines: usize) {
        let kept = self.engine.cells().cursor.point.line == 0;
        self.in_steps(lines, kept, |engine, step| engine.term.delete_lines(step));
    }

    fn erase_chars(&mut self, count: usize) {
        self.engine.term.erase_chars(count);
        self.tidy_erased([0, count]);
    }

    fn delete_chars(&mut self, count: usize) {
        // More than what is right of the cursor would erase what is left of it.
        let cells = self.engine.cells();
        let right = cells.columns() - cells.cursor.point.column.0;
        self.engine.term.delete_chars(count.min(right));
        self.tidy_cursor_row();
    }

    fn move_backward_tabs(&mut self, count: u16) {
        let mut column = self.engine.cells().cursor.point.column.0;
        for _ in 0..count {
            let tabs = &self.engine.shadow.tabs[..column];
            match tabs.iter().rposition(|tab| *tab) {
                Some(stop) => column = stop,
                None => {
                    column = 0;
                    break;
                }
            }
        }
        self.goto_col(column);
    }

    fn move_forward_tabs(&mut self, count: u16) {
        let cursor = &self.engine.cells().cursor;
        if cursor.input_needs_wrap {
            return;
        }
        let mut column = cursor.point.column.0;
        let last = self.engine.size().columns() - 1;
        for _ in 0..count {
            let next = column + 1;
            let tabs = self.engine.shadow.tabs.get(next..).unwrap_or_default();
            match tabs.iter().position(|tab| *tab) {
                Some(skip) => column = next + skip,
                None => {
                    column = last;
                    break;
                }
            }
        }
        self.goto_col(column);
    }

    fn save_cursor_position(&mut self) {
        let screen = self.engine.screen();
        self.engine.shadow.saved[screen] = SavedExtra {
            origin: self.engine.mode(TermMode::ORIGIN),
            charset: self.engine.shadow.charset,
        };
        self.engine.term.save_cursor_position();
    }

    fn restore_cursor_position(&mut self) {
        let screen = self.engine.screen();
        let SavedExtra { origin, charset } = self.engine.shadow.saved[screen];
        let mode = NamedPrivateMode::Origin.into();
        if origin {
            self.engine.term.set_private_mode(mode);
        } else {
            self.engine.term.unset_private_mode(mode);
        }
        self.set_active_charset(charset);
        self.engine.term.restore_cursor_position();
    }

    fn clear_line(&mut self, mode: LineClearMode) {
        self.engine.term.clear_line(mode);
        self.tidy_erased([0, 1]);
    }

    fn clear_screen(&mut self, mode: ClearMode) {
        match mode {
            ClearMode::Above => {
                // The emulator forgets the first row when the cursor is on the second.
                if self.engine.cells().cursor.point.line == 1 {
                    self.engine.term.grid_mut().reset_region(..Line(1));
                }
                self.engine.term.clear_screen(mode);
                self.tidy_erased([0, 1]);
            }
            ClearMode::Below => {
                self.engine.term.clear_screen(mode);
                self.tidy_erased([0, 1]);
            }
            ClearMode::All => {
                if !self.engine.is_alternate() {
                    let used = used_rows(self.engine.cells());
                    self.engine.scroll_out(used);
                }
                self.engine.term.grid_mut().reset_region(..);
            }
            ClearMode::Saved if self.engine.is_alternate() => {}
            ClearMode::Saved => {
                self.engine.drain();
                self.engine.history.clear();
            }
        }
    }

    fn clear_tabs(&mut self, mode: TabulationClearMode) {
        let column = self.engine.cells().cursor.point.column.0;
        let tabs = &mut self.engine.shadow.tabs;
        match mode {
            TabulationClearMode::Current => {
                if let Some(tab) = tabs.get_mut(column) {
                    *tab = false;
                }
            }
            TabulationClearMode::All => tabs.fill(false),
        }
    }

    fn set_tabs(&mut self, _interval: u16) {
        self.engine.shadow.tabs = default_tabs(0..self.engine.size().columns());
    }

    fn reset_state(&mut self) {
        let alternate = self.engine.is_alternate();
        let titled = self.engine.shadow.title.is_some();
        let synchronized = self.engine.shadow.synchronized;
        self.engine.reset();
        if synchronized {
            self.effects.push(Effect::Synchronized(false));
        }
        if alternate {
            self.effects.push(Effect::AlternateScreen(false));
        }
        if titled {
            self.effects.push(Effect::Title(None));
        }
        self.effects.push(Effect::Reset);
    }

    fn reverse_index(&mut self) {
        self.engine.term.reverse_index();
    }

    #[inline]
    fn terminal_attribute(&mut self, attr: Attr) {
        // SGR 21, which the parser takes for the end of bold.
        let attr = match attr {
            Attr::CancelBold => Attr::DoubleUnderline,
            attr => attr,
        };
        self.engine.term.terminal_attribute(attr);
    }

    fn set_mode(&mut self, mode: Mode) {
        self.engine.term.set_mode(mode);
    }

    fn unset_mode(&mut self, mode: Mode) {
        self.engine.term.unset_mode(mode);
    }

    fn report_mode(&mut self, mode: Mode) {
        let answer = query::mode_report(self.engine, mode);
        self.reply(answer);
    }

    fn set_private_mode(&mut self, mode: PrivateMode) {
        self.set_any_private_mode(mode, true);
    }

    fn unset_private_mode(&mut self, mode: PrivateMode) {
        self.set_any_private_mode(mode, false);
    }

    fn report_private_mode(&mut self, mode: PrivateMode) {
        let answer = query::private_mode_report(self.engine, mode.raw());
        self.reply(answer);
    }

    fn set_scrolling_region(&mut self, top: usize, bottom: Option<usize>) {
        let rows = self.engine.size().screen_lines();
        let bottom = bottom.unwrap_or(rows).min(rows);
        if top == 0 || top >= bottom {
            return;
        }
        self.engine.drain();
        self.engine.term.set_scrolling_region(top, Some(bottom));
        self.engine.shadow.margins = top - 1..bottom;
        self.goto(0, 0);
    }

    fn set_keypad_application_mode(&mut self) {
        self.engine.term.set_keypad_application_mode();
    }

    fn unset_keypad_application_mode(&mut self) {
        self.engine.term.unset_keypad_application_mode();
    }

    fn set_active_charset(&mut self, index: CharsetIndex) {
        self.engine.shadow.charset = index;
        self.engine.term.set_active_charset(index);
    }

    fn configure_charset(&mut self, index: CharsetIndex, charset: StandardCharset) {
        self.engine.term.configure_charset(index, charset);
    }

    fn set_color(&mut self, index: usize, color: Rgb) {
        self.engine.term.set_color(index, color);
    }

    fn dynamic_color_sequence(&mut self, prefix: String, index: usize, terminator: &str) {
        let color = query::color(self.engine, self.options, index);
        let text = osc::color_report(&prefix, color, terminator);
        self.reply(text);
    }

    fn reset_color(&mut self, index: usize) {
        self.engine.term.reset_color(index);
    }

    fn clipboard_store(&mut self, selection: u8, base64: &[u8]) {
        if let Some(text) = osc::decode_base64(base64) {
            let selection = char::from(selection);
            self.effects.push(Effect::ClipboardSet { selection, text });
        }
    }

    fn clipboard_load(&mut self, selection: u8, terminator: &str) {
        if self.options.role == Role::Host {
            self.effects.push(Effect::ClipboardQuery {
                selection: char::from(selection),
                terminator: terminator.to_owned(),
            });
        }
    }

    fn decaln(&mut self) {
        self.set_scrolling_region(1, None);
        self.engine.term.decaln();
        self.move_to(0, 0);
    }

    fn push_title(&mut self) {
        let shadow = &mut self.engine.shadow;
        if shadow.titles.len() >= GRID_STACK_LEN_MAX {
            shadow.titles.remove(0);
        }
        shadow.titles.push(shadow.title.clone());
    }

    fn pop_title(&mut self) {
        if let Some(title) = self.engine.shadow.titles.pop() {
            self.set_title(title);
        }
    }

    fn text_area_size_pixels(&mut self) {
        let answer = query::window_report(self.engine, self.options, 14);
        self.reply(answer.unwrap_or_default());
    }

    fn text_area_size_chars(&mut self) {
        let answer = query::window_report(self.engine, self.options, 18);
        self.reply(answer.unwrap_or_default());
    }

    fn set_hyperlink(&mut self, link: Option<Hyperlink>) {
        let link = link.filter(|link| link.uri.len() <= GRID_LINK_LEN_MAX);
        let link = link.map(|link| {
            let id = link.id.filter(|id| id.len() <= GRID_LINK_ID_LEN_MAX);
            CellLink::new(Some(id.unwrap_or_default()), link.uri)
        });
        let template = &mut self.engine.term.grid_mut().cursor.template;
        template.set_hyperlink(link);
    }

    fn set_mouse_cursor_icon(&mut self, _icon: CursorIcon) {}

    fn report_keyboard_mode(&mut self) {
        let flags = self.engine.keyboard().flags;
        self.reply(format!("\x1b[?{flags}u"));
    }

    fn push_keyboard_mode(&mut self, mode: KeyboardModes) {
        self.engine.keyboard().push(mode.bits());
    }

    fn pop_keyboard_modes(&mut self, count: u16) {
        self.engine.keyboard().pop(usize::from(count));
    }

    fn set_keyboard_mode(&mut self, mode: KeyboardModes, behavior: KeyboardModesApplyBehavior) {
        let flags = &mut self.engine.keyboard().flags;
        match behavior {
            KeyboardModesApplyBehavior::Replace => *flags = mode.bits(),
            KeyboardModesApplyBehavior::Union => *flags |= mode.bits(),
            KeyboardModesApplyBehavior::Difference => *flags &= !mode.bits(),
        }
    }

    fn set_modify_other_keys(&mut self, mode: ModifyOtherKeys) {
        self.engine.shadow.modify_other_keys = mode as u8;
    }

    fn report_modify_other_keys(&mut self) {
        let mode = self.engine.shadow.modify_other_keys;
        self.reply(format!("\x1b[>4;{mode}m"));
    }

    fn set_scp(&mut self, _path: ScpCharPath, _update: ScpUpdateMode) {}
}
