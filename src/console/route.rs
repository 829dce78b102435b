//! Where input goes: to a popup, a binding, the view of the scrollback, or the focused program.

use std::time::{Duration, Instant};

use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use crate::base::limits;
use crate::wire::messages::sessions;

use super::app::{App, Effect, Left, Marked, Mode, Then};
use super::keymap::Meaning;
use super::keys;
use super::layout;
use super::mouse;
use super::pane::{NotTyped, Status};
use super::popup;
use super::roster::Row;
use super::scroll::{Outcome, ScrollView};
use super::select::{Selection, Unit};

/// Lines that one turn of the wheel moves.
const WHEEL_LINES: i64 = 3;

impl App {
    /// Takes in an event of the outer terminal.
    pub fn input(&mut self, event: Event, now: Instant) {
        match event {
            Event::Key(key) => self.key(&key, now),
            Event::Paste(text) => self.paste(&text, now),
            Event::Mouse(mouse) => self.mouse(&mouse, now),
            Event::FocusGained => {
                self.outer_focused = true;
                self.announce_focus(true);
            }
            Event::FocusLost => {
                self.outer_focused = false;
                self.announce_focus(false);
            }
            Event::Resize(cols, rows) => self.resized((cols, rows), now),
        }
    }

    fn key(&mut self, key: &KeyEvent, now: Instant) {
        let held = matches!(key.code, KeyCode::Modifier(_)) || key.kind == KeyEventKind::Release;
        if held {
            // Neither a binding nor typing, but some programs ask for them.
            if self.mode == Mode::Plain && self.popup.is_none() && self.scroll.is_none() {
                self.type_key(key, now);
            }
            return;
        }
        if let Some(mut popup) = self.popup.take() {
            self.dirty = true;
            let outcome = popup.key(key);
            return self.popup_done(popup, outcome, now);
        }
        match self.mode {
            Mode::Literal => {
                self.set_mode(Mode::Plain);
                self.type_key(key, now);
            }
            Mode::Prefix => {
                self.set_mode(Mode::Plain);
                match self.keymap.meaning(key, true) {
                    Meaning::Command(command) => self.command(command, now),
                    Meaning::SendPrefix => self.type_key(key, now),
                    _ => {
                        let hint = format!(
                            "that key does nothing; {} ? lists all",
                            self.keymap.prefix()
                        );
                        self.tell(hint, now);
                    }
                }
            }
            Mode::Choose(at) => self.choose_key(at, key, now),
            Mode::Plain => match self.keymap.meaning(key, false) {
                Meaning::Command(command) => self.command(command, now),
                Meaning::Prefix => self.set_mode(Mode::Prefix),
                _ if self.scroll.is_some() => self.scroll_key(key, now),
                _ if self.offers() => self.offer_key(key, now),
                _ => self.type_key(key, now),
            },
        }
    }

    pub fn set_mode(&mut self, mode: Mode) {
        if self.mode != mode {
            self.mode = mode;
            self.dirty = true;
        }
    }

    /// Whether candidates are offered below a session that ended, or in place of one.
    pub fn offers(&self) -> bool {
        let ended = self
            .pane()
            .is_none_or(|pane| matches!(pane.status, Status::Ended(_) | Status::Refused(_)));
        ended && self.offer.is_some()
    }

    fn offer_key(&mut self, key: &KeyEvent, now: Instant) {
        let quiet = Duration::from_millis(limits::CONSOLE_OFFER_QUIET_MS);
        if self
            .offer_pressed
            .is_some_and(|at| now.duration_since(at) < quiet)
        {
            self.offer_pressed = Some(now);
            return;
        }
        self.offer_pressed = None;
        let candidates = self.scheduler.candidates();
        let at = self
            .offer
            .unwrap_or(0)
            .min(candidates.len().saturating_sub(1));
        let last = candidates.len().saturating_sub(1);
        self.dirty = true;
        match key.code {
            KeyCode::Up => self.offer = Some(at.checked_sub(1).unwrap_or(last)),
            KeyCode::Down | KeyCode::Tab => self.offer = Some(if at == last { 0 } else { at + 1 }),
            KeyCode::Enter => match candidates.get(at) {
                Some(candidate) => self.focus(&candidate.session.clone(), now),
                None if self.pane().is_some() => self.effects.push(Effect::Leave(Left::AllEnded)),
                None => self.command(super::keymap::Command::New, now),
            },
            KeyCode::Char(c @ '1'..='9') => {
                if let Some(candidate) = candidates.get(c as usize - '1' as usize) {
                    self.focus(&candidate.session.clone(), now);
                }
            }
            KeyCode::Esc if self.pane().is_some() => self.offer = None,
            _ => {}
        }
    }

    fn choose_key(&mut self, at: usize, key: &KeyEvent, now: Instant) {
        let entries = self.entries(now);
        let last = entries.len().saturating_sub(1);
        let at = at.min(last);
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => self.set_mode(Mode::Choose(at.saturating_sub(1))),
            KeyCode::Down | KeyCode::Char('j') => self.set_mode(Mode::Choose((at + 1).min(last))),
            KeyCode::Home | KeyCode::Char('g') => self.set_mode(Mode::Choose(0)),
            KeyCode::End | KeyCode::Char('G') => self.set_mode(Mode::Choose(last)),
            KeyCode::Enter | KeyCode::Right => {
                self.set_mode(Mode::Plain);
                if let Some(entry) = entries.get(at) {
                    self.focus(&entry.key.clone(), now);
                }
            }
            _ => self.set_mode(Mode::Plain),
        }
    }

    fn type_key(&mut self, key: &KeyEvent, now: Instant) {
        let Some(pane) = self.pane_mut() else { return };
        let mut bytes = Vec::new();
        keys::encode(key, pane.mirror.key_modes(), &mut bytes);
        self.type_bytes(bytes, key.code == KeyCode::Enter, now);
    }

    fn type_bytes(&mut self, bytes: Vec<u8>, enter: bool, now: Instant) {
        if bytes.is_empty() {
            return;
        }
        if self.marked.take().is_some() {
            self.dirty = true;
        }
        let Some(pane) = self.pane_mut() else { return };
        let key = pane.key.clone();
        let refused = pane.type_bytes(bytes, now);
        let waiting = |app: &Self| app.scheduler.waiting_count();
        match refused {
            Ok(()) => {
                let before = waiting(self);
                self.scheduler.typed(&key, enter);
                self.dirty |= waiting(self) != before;
            }
            Err(why) => {
                let text = match why {
                    NotTyped::Observing => "only watching: typing is not sent",
                    NotTyped::Held => "another console types alone here; take over to type",
                    NotTyped::NotAttached => "not connected: typing is not sent",
                    NotTyped::Full => "the link takes no more: typing is not sent",
                };
                self.tell(text, now);
            }
        }
    }

    /// Pastes into a popup's field, or into the focused program.
    pub fn paste(&mut self, text: &str, now: Instant) {
        if let Some(popup) = &mut self.popup {
            popup.paste(text);
            self.dirty = true;
            return;
        }
        self.leave_scroll();
        let Some(pane) = self.pane_mut() else { return };
        let mut bytes = Vec::new();
        keys::encode_paste(text, pane.mirror.key_modes(), &mut bytes);
        self.type_bytes(bytes, false, now);
    }

    fn scroll_key(&mut self, key: &KeyEvent, now: Instant) {
        let Some(scroll) = &mut self.scroll else {
            return;
        };
        let down = matches!(key.code, KeyCode::PageDown | KeyCode::Char(' '));
        if down && scroll.is_at_end() {
            return self.leave_scroll();
        }
        self.dirty = true;
        match scroll.key(key) {
            Outcome::Ignored | Outcome::Moved => {}
            Outcome::Leave => self.leave_scroll(),
            Outcome::Copy(text) => self.copy(text, now),
            Outcome::AskText => self.open_search(),
            Outcome::Notice(text) => self.tell(text, now),
        }
    }

    /// Looks back in the focused session.
    pub fn open_scroll(&mut self) {
        let area = self.focused_area();
        if self.pane().is_some() && self.scroll.is_none() {
            self.scroll = Some(ScrollView::new(area.cols, area.rows));
            self.marked = None;
            self.dirty = true;
        }
    }

    /// Searches the focused session's scrollback.
    pub fn search(&mut self, text: String) {
        self.open_scroll();
        let Some(key) = self.pane().map(|pane| pane.key.clone()) else {
            return;
        };
        if let Some(scroll) = &mut self.scroll {
            scroll.query.clone_from(&text);
        }
        let params = sessions::SearchParams {
            id: key.id.as_str().to_owned(),
            case_sensitive: text.chars().any(char::is_uppercase),
            text,
        };
        self.call::<sessions::Search>(key.place, &params, Then::Matches(key));
    }

    fn mouse(&mut self, event: &MouseEvent, now: Instant) {
        if self.popup.is_some() {
            return self.popup_mouse(event, now);
        }
        let layout = self.layout();
        let (x, y) = (event.column, event.row);
        let pressed = matches!(event.kind, MouseEventKind::Down(_));
        if let Some(area) = layout.sidebar.filter(|area| area.contains(x, y)) {
            if event.kind == MouseEventKind::Down(MouseButton::Left) {
                self.click_sidebar(y - area.y, now);
            }
            return;
        }
        let hit = layout.panes.iter().position(|area| area.contains(x, y));
        if let Some(index) = hit.filter(|index| *index != self.focused && pressed) {
            return self.focus_pane(index, now);
        }
        let dragging = self.marked.is_some_and(|marked| marked.dragging) || self.scroll.is_some();
        if hit != Some(self.focused) && !dragging {
            return;
        }
        self.pane_mouse(event, now);
    }

    fn popup_mouse(&mut self, event: &MouseEvent, now: Instant) {
        let code = match event.kind {
            MouseEventKind::ScrollUp => KeyCode::Up,
            MouseEventKind::ScrollDown => KeyCode::Down,
            _ => return,
        };
        if let Some(mut popup) = self.popup.take() {
            let outcome = popup.key(&KeyEvent::new(code, KeyModifiers::NONE));
            self.dirty = true;
            self.popup_done(popup, outcome, now);
        }
    }

    fn click_sidebar(&mut self, y: u16, now: Instant) {
        if let Some(key) = super::chrome::sidebar_hit(self, y, now) {
            self.focus(&key, now);
        }
    }

    /// A mouse event in the focused pane: the program's if it wants it and Shift is not down.
    fn pane_mouse(&mut self, event: &MouseEvent, now: Instant) {
        let area = self.focused_area();
        let clamp = |at: u16, from: u16, len: u16| at.clamp(from, from + len.max(1) - 1) - from;
        let x = clamp(event.column, area.x, area.cols);
        let y = clamp(event.row, area.y, area.rows);
        if self.scroll.is_some() {
            return self.scroll_mouse(event, x, y, now);
        }
        let offers = self.offers();
        let Some(pane) = self.pane_mut() else { return };
        let caret = pane.mirror.caret();
        let from = layout::window(
            pane.mirror.size(),
            (area.cols, area.rows),
            (caret.x, caret.y),
        );
        let (x, y) = (x + from.0, y + from.1);
        let modes = pane.mirror.mouse_modes();
        let own = event.modifiers.contains(KeyModifiers::SHIFT) || offers;
        if !own {
            let inside = MouseEvent {
                column: x,
                row: y,
                ..*event
            };
            let mut bytes = Vec::new();
            if mouse::encode(&inside, modes, &mut bytes) {
                return self.type_bytes(bytes, false, now);
            }
            let wheel = match event.kind {
                MouseEventKind::ScrollUp => Some(KeyCode::Up),
                MouseEventKind::ScrollDown => Some(KeyCode::Down),
                _ => None,
            };
            if let Some(code) = wheel.filter(|_| modes.alternate_screen) {
                if modes.alternate_scroll {
                    let modes = pane.mirror.key_modes();
                    for _ in 0..WHEEL_LINES {
                        keys::encode(&KeyEvent::new(code, KeyModifiers::NONE), modes, &mut bytes);
                    }
                    self.type_bytes(bytes, false, now);
                }
                return;
            }
        }
        match event.kind {
            MouseEventKind::ScrollUp => self.open_scroll(),
            MouseEventKind::Down(MouseButton::Left) => self.press(x, y, now),
            MouseEventKind::Drag(MouseButton::Left) => self.drag(x, y),
            MouseEventKind::Up(MouseButton::Left) => self.let_up(now),
            _ => {}
        }
    }

    fn scroll_mouse(&mut self, event: &MouseEvent, x: u16, y: u16, now: Instant) {
        let unit = self.click_unit(event, now);
        let Some(scroll) = &mut self.scroll else {
            return;
        };
        self.dirty = true;
        match event.kind {
            MouseEventKind::ScrollUp => scroll.scroll(-WHEEL_LINES),
            MouseEventKind::ScrollDown if scroll.is_at_end() => self.leave_scroll(),
            MouseEventKind::ScrollDown => scroll.scroll(WHEEL_LINES),
            MouseEventKind::Down(MouseButton::Left) => scroll.press(x, y, unit),
            MouseEventKind::Drag(MouseButton::Left) => scroll.drag(x, y),
            MouseEventKind::Up(MouseButton::Left) => {
                let text = scroll.selected().filter(|text| text.chars().count() > 1);
                if let Some(text) = text {
                    self.copy(text, now);
                }
            }
            _ => {}
        }
    }

    /// Cells, words or lines, by how many clicks came together.
    fn click_unit(&mut self, event: &MouseEvent, now: Instant) -> Unit {
        if event.kind != MouseEventKind::Down(MouseButton::Left) {
            return Unit::Cell;
        }
        let soon = Duration::from_millis(limits::CONSOLE_CLICK_MS);
        let count = match self.last_click {
            Some((at, x, y, count))
                if (x, y) == (event.column, event.row) && now.duration_since(at) < soon =>
            {
                count % 3 + 1
            }
            _ => 1,
        };
        self.last_click = Some((now, event.column, event.row, count));
        match count {
            1 => Unit::Cell,
            2 => Unit::Word,
            _ => Unit::Line,
        }
    }

    fn press(&mut self, x: u16, y: u16, now: Instant) {
        let place = MouseEvent {
            kind: MouseEventKind::Down(MouseButton::Left),
            column: x,
            row: y,
            modifiers: KeyModifiers::NONE,
        };
        let unit = self.click_unit(&place, now);
        self.marked = Some(Marked {
            selection: Selection::at((u64::from(y), x), unit),
            dragging: true,
        });
        self.dirty = true;
    }

    fn drag(&mut self, x: u16, y: u16) {
        if let Some(marked) = self.marked.as_mut().filter(|marked| marked.dragging) {
            marked.selection.to = (u64::from(y), x);
            self.dirty = true;
        }
    }

    fn let_up(&mut self, now: Instant) {
        let Some(marked) = &mut self.marked else {
            return;
        };
        marked.dragging = false;
        let selection = marked.selection;
        if selection.unit == Unit::Cell && selection.from == selection.to {
            self.marked = None;
            self.dirty = true;
            return;
        }
        let Some(pane) = self.pane() else { return };
        let cols = pane.mirror.size().0;
        let line = |at: u64| pane.mirror.text(at as u16, 0, cols);
        let text = selection.text(&line);
        self.copy(text, now);
    }

    pub(super) fn popup_done(
        &mut self,
        popup: popup::Popup,
        outcome: popup::Outcome,
        now: Instant,
    ) {
        use popup::{Choice, Outcome, Purpose};
        match outcome {
            Outcome::Stay => self.popup = Some(popup),
            Outcome::Close => {}
            Outcome::Chosen(Choice::Command(command), _) => self.command(command, now),
            Outcome::Chosen(Choice::Session(key), Purpose::Do) => self.focus(&key, now),
            Outcome::Chosen(Choice::Session(key), Purpose::Split) => self.split(&key, now),
            Outcome::Submit(dialogue) => self.submit(dialogue, now),
            Outcome::Yes(question) => self.confirmed(&question, now),
        }
    }

    /// The session on a line of the list, counted over all rows.
    pub fn session_of_row(rows: &[Row], index: usize) -> Option<super::pane::SessionKey> {
        match rows.get(index)? {
            Row::Session(entry) => Some(entry.key.clone()),
            Row::Machine { .. } => None,
        }
    }
}
