//! Puts a frame together: panes from their mirrors, chrome over and around them.

use std::time::Instant;

use super::app::App;
use super::cell::{Area, Buffer, Style};
use super::chrome;
use super::layout::{self, Layout};
use super::outer::{self, Mouse};
use super::paint::{Caret, Damage};
use super::pane::Pane;

/// A frame that is about to be shown.
#[derive(Debug)]
pub struct View {
    pub buffer: Buffer,
    pub caret: Caret,
    layout: Layout,
    /// Where each pane's part of its mirror begins, in the last frame.
    windows: Vec<(u16, u16)>,
}

/// What the outer terminal has to be told besides cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    pub mouse: Mouse,
    pub keyboard: u8,
    pub title: String,
}

impl View {
    pub fn new(cols: u16, rows: u16) -> Self {
        Self {
            buffer: Buffer::new(cols, rows),
            caret: Caret::default(),
            layout: Layout::default(),
            windows: Vec::new(),
        }
    }

    /// Brings the frame up to date; answers which rows may differ from the frame before.
    pub fn draw(&mut self, app: &mut App, now: Instant) -> Damage {
        let size = (app.size.0, app.size.1);
        let layout = app.layout();
        let resized = (self.buffer.cols(), self.buffer.rows()) != size;
        let windows: Vec<(u16, u16)> = app
            .panes
            .iter()
            .zip(&layout.panes)
            .map(|(pane, area)| window_of(pane, *area))
            .collect();
        let moved = layout != self.layout || windows != self.windows;
        let all = app.dirty || resized || moved || app.scroll.is_some();
        if resized {
            self.buffer = Buffer::new(size.0, size.1);
        }
        self.layout = layout;
        self.windows = windows;
        if all {
            self.draw_all(app, now);
            app.dirty = false;
            return Damage::All;
        }
        let mut rows = Vec::new();
        for (index, pane) in app.panes.iter_mut().enumerate() {
            let damage = pane.mirror.take_damage();
            let area = self.layout.panes.get(index).copied().unwrap_or_default();
            let from = self.windows.get(index).copied().unwrap_or_default();
            pane.mirror.copy(from, area, &damage, &mut self.buffer);
            match damage {
                Damage::All => rows.extend(area.y..area.y + area.rows),
                Damage::Rows(changed) => rows.extend(
                    changed
                        .into_iter()
                        .filter(|row| *row >= from.1 && row - from.1 < area.rows)
                        .map(|row| area.y + row - from.1),
                ),
            }
        }
        if app.popup.is_some() || app.offers() {
            // They stand over the panes.
            chrome::overlay(app, now, &self.layout, &mut self.buffer);
        }
        self.caret = self.caret_of(app, None);
        Damage::Rows(rows)
    }

    fn draw_all(&mut self, app: &mut App, now: Instant) {
        let screen = Area::new(0, 0, self.buffer.cols(), self.buffer.rows());
        self.buffer.fill(screen, &Style::default());
        for (index, pane) in app.panes.iter_mut().enumerate() {
            pane.mirror.take_damage();
            let area = self.layout.panes.get(index).copied().unwrap_or_default();
            let from = self.windows.get(index).copied().unwrap_or_default();
            pane.mirror.copy(from, area, &Damage::All, &mut self.buffer);
        }
        let area = self
            .layout
            .panes
            .get(app.focused)
            .copied()
            .unwrap_or_default();
        let mut scroll_caret = None;
        if let Some(scroll) = &app.scroll {
            scroll_caret = Some(scroll.draw(area, &mut self.buffer));
        } else {
            self.draw_marked(app, area);
        }
        let popup_caret = chrome::draw(app, now, &self.layout, &mut self.buffer);
        self.caret = match popup_caret {
            Some((x, y)) => Caret {
                x: x.min(screen.cols - 1),
                y: y.min(screen.rows - 1),
                visible: true,
                shape: 0,
            },
            None => self.caret_of(app, scroll_caret),
        };
    }

    fn draw_marked(&mut self, app: &App, area: Area) {
        let (Some(marked), Some(pane)) = (app.marked, app.pane()) else {
            return;
        };
        let from = self.windows.get(app.focused).copied().unwrap_or_default();
        let cols = pane.mirror.size().0;
        let line = |at: u64| pane.mirror.text(at as u16, 0, cols);
        for y in 0..area.rows {
            let row = u64::from(y + from.1);
            let Some((first, last)) = marked.selection.columns(row, &line) else {
                continue;
            };
            for x in first.max(from.0)..=last.min(from.0 + area.cols.max(1) - 1) {
                self.buffer
                    .restyle(area.x + x - from.0, area.y + y, |style| {
                        *style = style.clone().reversed();
                    });
            }
        }
    }

    fn caret_of(&self, app: &App, scroll: Option<(u16, u16)>) -> Caret {
        let hidden = Caret {
            visible: false,
            ..self.caret
        };
        if let Some((x, y)) = scroll {
            return Caret {
                x,
                y,
                visible: true,
                shape: 2,
            };
        }
        let area = self
            .layout
            .panes
            .get(app.focused)
            .copied()
            .unwrap_or_default();
        let from = self.windows.get(app.focused).copied().unwrap_or_default();
        let Some(pane) = app.pane().filter(|_| !area.is_empty()) else {
            return hidden;
        };
        let caret = pane.mirror.caret();
        if app.offers() || caret.x < from.0 || caret.y < from.1 {
            return hidden;
        }
        let (x, y) = (caret.x - from.0, caret.y - from.1);
        if x >= area.cols || y >= area.rows {
            return hidden;
        }
        Caret {
            x: area.x + x,
            y: area.y + y,
            ..caret
        }
    }

    /// What the outer terminal should send and show besides.
    pub fn wishes(app: &App) -> Wishes {
        let pane = app.pane();
        let motion = pane.is_some_and(|pane| {
            pane.mirror.mouse_modes().tracking == super::mouse::Tracking::Motion
        });
        let flags = pane.map_or(0, |pane| pane.mirror.key_modes().kitty_flags);
        let session = pane.and_then(|pane| app.roster.session(&pane.key));
        Wishes {
            mouse: match (app.mouse, motion) {
                (false, _) => Mouse::Off,
                (true, true) => Mouse::Motion,
                (true, false) => Mouse::Drags,
            },
            keyboard: outer::keyboard_level(flags),
            title: match session {
                Some(session) => format!("{} - wingman", session.name),
                None => "wingman".into(),
            },
        }
    }
}

fn window_of(pane: &Pane, area: Area) -> (u16, u16) {
    let caret = pane.mirror.caret();
    layout::window(
        pane.mirror.size(),
        (area.cols, area.rows),
        (caret.x, caret.y),
    )
}
