//! The view of what has scrolled away: lines that the owner keeps, fetched as they are looked at.
//!
//! Lines are counted from the oldest one that the owner keeps. The live screen goes on below; the view
//! stands still.

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::wire::messages::sessions::{ReadReply, SearchMatch, SearchReply};

use super::cell::{Area, Buffer, Cell};
use super::mirror::Mirror;
use super::paint::Damage;
use super::select::{Place, Selection, Unit};

/// Lines asked for at once, above and below what is shown.
const CHUNK: u64 = 200;

/// A fetched line.
#[derive(Clone, Debug, Default)]
struct Line {
    cells: Vec<Cell>,
    text: String,
}

/// Lines that the view needs of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The first one; absent, the last lines are wanted.
    pub from: Option<u64>,
    pub lines: u32,
}

/// What a key did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The view takes no such key.
    Ignored,
    Moved,
    Leave,
    Copy(String),
    /// Ask the person for a text to search.
    AskText,
    Notice(String),
}

#[derive(Clone, Debug)]
pub struct ScrollView {
    lines: BTreeMap<u64, Line>,
    /// Lines that the owner keeps, its screen included; 0 before the first answer.
    total: u64,
    /// The first line shown.
    top: u64,
    rows: u16,
    cols: u16,
    /// The cell that keys move.
    cursor: Place,
    selection: Option<Selection>,
    matches: Vec<SearchMatch>,
    current: Option<usize>,
    pub query: String,
    asked: Option<Wanted>,
    /// Pages to move when the first answer tells how many lines there are.
    pending_pages: i64,
}

impl ScrollView {
    /// A view for a pane of this size, one page back.
    pub fn new(cols: u16, rows: u16) -> Self {
        Self {
            lines: BTreeMap::new(),
            total: 0,
            top: 0,
            rows: rows.max(1),
            cols: cols.max(1),
            cursor: (0, 0),
            selection: None,
            matches: Vec::new(),
            current: None,
            query: String::new(),
            asked: None,
            pending_pages: -1,
        }
    }

    pub fn resize(&mut self, cols: u16, rows: u16) {
        self.cols = cols.max(1);
        self.rows = rows.max(1);
        self.clamp();
    }

    /// First line shown, and how many there are in all.
    pub fn position(&self) -> (u64, u64) {
        (self.top, self.total)
    }

    /// Which match is the current one, from 1, and how many there are.
    pub fn found(&self) -> Option<(usize, usize)> {
        self.current.map(|at| (at + 1, self.matches.len()))
    }

    fn max_top(&self) -> u64 {
        self.total.saturating_sub(u64::from(self.rows))
    }

    fn clamp(&mut self) {
        self.top = self.top.min(self.max_top());
        let last = self.total.saturating_sub(1);
        self.cursor.0 = self.cursor.0.min(last);
        self.cursor.1 = self.cursor.1.min(self.cols - 1);
    }

    /// What has to be fetched to show what should be shown; each thing once.
    pub fn wanted(&mut self) -> Option<Wanted> {
        let known = self.total > 0;
        let shown = self.top..(self.top + u64::from(self.rows)).min(self.total);
        if known && shown.clone().all(|line| self.lines.contains_key(&line)) {
            return None;
        }
        let wanted = if known {
            Wanted {
                from: Some(self.top.saturating_sub(CHUNK)),
                lines: (u64::from(self.rows) + 2 * CHUNK) as u32,
            }
        } else {
            Wanted {
                from: None,
                lines: u32::from(self.rows) * 2 + CHUNK as u32,
            }
        };
        if self.asked == Some(wanted) {
            return None;
        }
        self.asked = Some(wanted);
        self.asked
    }

    /// Takes lines in. `reply.text` has a line for each from `reply.from` on.
    pub fn took(&mut self, reply: &ReadReply) {
        let total = reply.history + u64::from(reply.rows);
        let first = self.total == 0;
        if total < self.total {
            self.lines.clear();
        }
        self.total = total;
        self.asked = None;
        let texts: Vec<&str> = reply.text.split('\n').collect();
        // INVARIANT: each line is drawn on a mirror of its own height, so that none scrolls away.
        for (index, chunk) in texts.chunks(256).enumerate() {
            let mut mirror = Mirror::new(reply.cols.max(1), chunk.len() as u16);
            let mut bytes = Vec::new();
            for (row, text) in chunk.iter().enumerate() {
                bytes.extend_from_slice(format!("\x1b[{};1H\x1b[0m", row + 1).as_bytes());
                bytes.extend_from_slice(text.trim_end_matches('\r').as_bytes());
            }
            mirror.feed(&bytes);
            let mut buffer = Buffer::new(reply.cols.max(1), chunk.len() as u16);
            let area = Area::new(0, 0, buffer.cols(), buffer.rows());
            mirror.copy((0, 0), area, &Damage::All, &mut buffer);
            for row in 0..chunk.len() as u16 {
                let at = reply.from + (index * 256) as u64 + u64::from(row);
                let line = Line {
                    cells: buffer.row(row).to_vec(),
                    text: mirror.text(row, 0, reply.cols),
                };
                if at < self.total {
                    self.lines.insert(at, line);
                }
            }
        }
        if first {
            // The last lines were asked for: what stands below them is blank.
            for at in reply.from + texts.len() as u64..total {
                self.lines.insert(at, Line::default());
            }
            self.top = self.max_top();
            self.cursor = (self.total.saturating_sub(1), 0);
            let pages = std::mem::take(&mut self.pending_pages);
            self.scroll(pages * i64::from(self.rows));
        }
        self.clamp();
    }

    /// Takes search results in and goes to the last match above the cursor.
    pub fn found_all(&mut self, reply: SearchReply) -> Outcome {
        self.matches = reply.matches;
        if self.matches.is_empty() {
            self.current = None;
            return Outcome::Notice(format!("{:?} is not there", self.query));
        }
        let after = self
            .matches
            .partition_point(|m| (m.line, m.col) <= self.cursor);
        self.current = Some(after.checked_sub(1).unwrap_or(self.matches.len() - 1));
        self.show_current()
    }

    fn show_current(&mut self) -> Outcome {
        let Some(found) = self.current.and_then(|at| self.matches.get(at)) else {
            return Outcome::Notice("nothing was searched".into());
        };
        self.cursor = (found.line, found.col);
        let middle = u64::from(self.rows) / 2;
        self.top = found.line.saturating_sub(middle).min(self.max_top());
        Outcome::Moved
    }

    fn step_match(&mut self, step: i64) -> Outcome {
        let len = self.matches.len() as i64;
        self.current = match self.current {
            Some(at) if len > 0 => Some((at as i64 + step).rem_euclid(len) as usize),
            _ => None,
        };
        self.show_current()
    }

    /// Moves what is shown; the cursor stays on the screen.
    pub fn scroll(&mut self, lines: i64) {
        if self.total == 0 {
            self.pending_pages = if lines < 0 { -1 } else { 0 };
            return;
        }
        self.top = self.top.saturating_add_signed(lines).min(self.max_top());
        let last = self.top + u64::from(self.rows) - 1;
        self.cursor.0 = self.cursor.0.clamp(self.top, last);
        self.grow();
    }

    /// Whether the last line is shown: scrolling further down leaves the view.
    pub fn is_at_end(&self) -> bool {
        self.total > 0 && self.top >= self.max_top()
    }

    fn move_cursor(&mut self, lines: i64, columns: i32) {
        let last = self.total.saturating_sub(1);
        self.cursor.0 = self.cursor.0.saturating_add_signed(lines).min(last);
        let column = i32::from(self.cursor.1) + columns;
        self.cursor.1 = column.clamp(0, i32::from(self.cols) - 1) as u16;
        if self.cursor.0 < self.top {
            self.top = self.cursor.0;
        }
        let rows = u64::from(self.rows);
        if self.cursor.0 >= self.top + rows {
            self.top = self.cursor.0 + 1 - rows;
        }
        self.grow();
    }

    fn grow(&mut self) {
        if let Some(selection) = &mut self.selection {
            selection.to = self.cursor;
        }
    }

    /// Begins a selection at a cell of the pane, or ends one that is there.
    pub fn press(&mut self, x: u16, y: u16, unit: Unit) {
        self.cursor = (self.top + u64::from(y), x);
        self.selection = Some(Selection::at(self.cursor, unit));
    }

    pub fn drag(&mut self, x: u16, y: u16) {
        self.cursor = (self.top + u64::from(y), x);
        self.grow();
    }

    /// The selected text; `None` without a selection.
    pub fn selected(&self) -> Option<String> {
        let line = |at: u64| self.text(at);
        self.selection.map(|selection| selection.text(&line))
    }

    fn text(&self, at: u64) -> String {
        self.lines
            .get(&at)
            .map(|line| line.text.clone())
            .unwrap_or_default()
    }

    pub fn key(&mut self, event: &KeyEvent) -> Outcome {
        let page = i64::from(self.rows.saturating_sub(1).max(1));
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        match event.code {
            KeyCode::Char('u') if control => self.scroll(-page / 2),
            KeyCode::Char('d') if control => self.scroll(page / 2),
            KeyCode::Char('b') if control => self.scroll(-page),
            KeyCode::Char('f') if control => self.scroll(page),
            KeyCode::Char('c') if control => return Outcome::Leave,
            KeyCode::Char(_) if control => return Outcome::Ignored,
            KeyCode::PageUp => self.scroll(-page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll(page),
            KeyCode::Up | KeyCode::Char('k') => self.move_cursor(-1, 0),
            KeyCode::Down | KeyCode::Char('j') => self.move_cursor(1, 0),
            KeyCode::Left | KeyCode::Char('h') => self.move_cursor(0, -1),
            KeyCode::Right | KeyCode::Char('l') => self.move_cursor(0, 1),
            KeyCode::Home | KeyCode::Char('0') => {
                self.move_cursor(0, i32::from(u16::MAX).wrapping_neg())
            }
            KeyCode::End | KeyCode::Char('$') => self.move_cursor(0, i32::from(u16::MAX)),
            KeyCode::Char('g') => self.move_cursor(i64::MIN / 2, 0),
            KeyCode::Char('G') => self.move_cursor(i64::MAX / 2, 0),
            KeyCode::Char('/' | '?') => return Outcome::AskText,
            KeyCode::Char('n') => return self.step_match(-1),
            KeyCode::Char('N') => return self.step_match(1),
            KeyCode::Char('v') => self.toggle(Unit::Cell),
            KeyCode::Char('V') => self.toggle(Unit::Line),
            KeyCode::Char('y') | KeyCode::Enter => {
                let text = self.selected().unwrap_or_else(|| self.text(self.cursor.0));
                self.selection = None;
                return Outcome::Copy(text);
            }
            KeyCode::Esc if self.selection.is_some() => self.selection = None,
            KeyCode::Char('q') | KeyCode::Esc => return Outcome::Leave,
            _ => return Outcome::Ignored,
        }
        Outcome::Moved
    }

    fn toggle(&mut self, unit: Unit) {
        self.selection = match self.selection {
            Some(selection) if selection.unit == unit => None,
            _ => Some(Selection::at(self.cursor, unit)),
        };
    }

    /// Draws the view; answers where the cursor is.
    pub fn draw(&self, area: Area, into: &mut Buffer) -> (u16, u16) {
        let line = |at: u64| self.text(at);
        for y in 0..area.rows {
            let at = self.top + u64::from(y);
            let cells = self.lines.get(&at).map_or(&[][..], |line| &line.cells);
            for x in 0..area.cols {
                let cell = cells.get(usize::from(x)).cloned().unwrap_or_default();
                if cell.width > 0 {
                    into.put(area.x + x, area.y + y, cell);
                }
            }
            let selected = self.selection.and_then(|s| s.columns(at, &line));
            let mut marks: Vec<(u16, u16)> = selected.into_iter().collect();
            // One that runs over a wrap covers the end of one line and the start of the next.
            let found = self.matches.partition_point(|m| m.last_line < at);
            let here = self.matches[found..].iter().take_while(|m| m.line <= at);
            marks.extend(here.map(|m| {
                let from = if m.line == at { m.col } else { 0 };
                let end = if m.last_line == at { m.end } else { area.cols };
                (from, end.max(from + 1) - 1)
            }));
            for (from, to) in marks {
                for x in from..=to.min(area.cols.saturating_sub(1)) {
                    into.restyle(area.x + x, area.y + y, |style| {
                        *style = style.clone().reversed();
                    });
                }
            }
        }
        let y = self
            .cursor
            .0
            .saturating_sub(self.top)
            .min(u64::from(area.rows.max(1) - 1));
        (
            area.x + self.cursor.1.min(area.cols.max(1) - 1),
            area.y + y as u16,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(from: u64, lines: std::ops::Range<u64>, history: u64) -> ReadReply {
        let text: Vec<String> = lines.map(|n| format!("\x1b[31mline {n}\x1b[0m")).collect();
        ReadReply {
            text: text.join("\n"),
            cols: 20,
            rows: 5,
            history,
            from,
            ..ReadReply::default()
        }
    }

    fn view() -> ScrollView {
        let mut view = ScrollView::new(20, 5);
        assert!(matches!(view.wanted(), Some(Wanted { from: None, .. })));
        assert_eq!(view.wanted(), None, "asked once");
        view.took(&reply(0, 0..100, 95));
        view
    }

    fn press(view: &mut ScrollView, code: KeyCode) -> Outcome {
        view.key(&KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn first_line(view: &ScrollView) -> String {
        let mut buffer = Buffer::new(20, 5);
        view.draw(Area::new(0, 0, 20, 5), &mut buffer);
        buffer
            .row(0)
            .iter()
            .map(|cell| cell.glyph.as_str().to_owned())
            .collect::<String>()
            .trim_end()
            .to_owned()
    }

    #[test]
    fn it_opens_one_page_back_and_moves_to_both_ends() {
        let mut view = view();
        assert_eq!(first_line(&view), "line 90");
        press(&mut view, KeyCode::Char('g'));
        assert_eq!(first_line(&view), "line 0");
        press(&mut view, KeyCode::Char('G'));
        assert_eq!(first_line(&view), "line 95");
        assert!(view.is_at_end());
        assert_eq!(press(&mut view, KeyCode::Char('q')), Outcome::Leave);
    }

    #[test]
    fn lines_that_are_not_there_are_asked_for() {
        let mut view = ScrollView::new(20, 5);
        view.wanted();
        view.took(&reply(900, 900..1_000, 995));
        press(&mut view, KeyCode::Char('g'));
        assert!(matches!(view.wanted(), Some(Wanted { from: Some(0), .. })));
    }

    #[test]
    fn a_selection_is_copied_as_text() {
        let mut view = view();
        press(&mut view, KeyCode::Char('g'));
        press(&mut view, KeyCode::Char('v'));
        press(&mut view, KeyCode::Down);
        press(&mut view, KeyCode::Right);
        assert_eq!(
            press(&mut view, KeyCode::Char('y')),
            Outcome::Copy("line 0\nli".into())
        );
    }

    #[test]
    fn matches_are_walked_round_and_round() {
        let mut view = view();
        view.query = "line".into();
        let found = |line| SearchMatch {
            line,
            col: 0,
            last_line: line,
            end: 4,
        };
        let reply = SearchReply {
            matches: vec![found(3), found(50)],
            history: 95,
        };
        assert_eq!(view.found_all(reply), Outcome::Moved);
        assert_eq!(view.found(), Some((2, 2)));
        press(&mut view, KeyCode::Char('n'));
        assert_eq!(view.found(), Some((1, 2)));
        assert_eq!(first_line(&view), "line 1");
        press(&mut view, KeyCode::Char('n'));
        assert_eq!(view.found(), Some((2, 2)));
        let none = view.found_all(SearchReply::default());
        assert!(matches!(none, Outcome::Notice(_)));
    }
}
