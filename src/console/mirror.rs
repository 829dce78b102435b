//! A session's screen as this console has it: the one file that knows the terminal emulator.
//!
//! The mirror never answers queries: its role is told so, and its replies have nowhere to go.

use std::sync::Arc;

use crate::base::limits;
use crate::terminal::grid::{
    CellView, CursorShape, Effect, Grid, MouseEncoding, MouseMode, Options, Role, Size,
    Style as GridStyle,
};

use super::cell::{Area, Attributes, Buffer, Cell, Glyph, Link, Style};
use super::keys::KeyModes;
use super::mouse::{Encoding, MouseModes, Tracking};
use super::outer::shielded;
use super::paint::{Caret, Damage};

/// What output asked of the person's own terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    pub bell: bool,
    /// OSC 52.
    pub copy: Option<String>,
    /// The emulator failed on the output and began anew.
    pub failed: bool,
}

pub struct Mirror {
    grid: Grid,
    effects: Vec<Effect>,
    /// Whether the colours of the whole screen were swapped when damage was last taken.
    reversed: bool,
}

impl Mirror {
    pub fn new(cols: u16, rows: u16) -> Self {
        let options = Options {
            scrollback_lines: limits::CONSOLE_MIRROR_LINES,
            ..Options::new(Role::Mirror)
        };
        Self {
            grid: Grid::new(Size { cols, rows }.clamped(), options),
            effects: Vec::new(),
            reversed: false,
        }
    }

    /// Columns and rows.
    pub fn size(&self) -> (u16, u16) {
        let size = self.grid.size();
        (size.cols, size.rows)
    }

    pub fn feed(&mut self, bytes: &[u8]) -> Asked {
        self.effects.clear();
        shielded(|| self.grid.feed(bytes, &mut self.effects));
        let mut asked = Asked::default();
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Bell => asked.bell = true,
                Effect::Failed => asked.failed = true,
                Effect::ClipboardSet { text, .. } => asked.copy = Some(text),
                _ => {}
            }
        }
        asked
    }

    pub fn resize(&mut self, cols: u16, rows: u16) {
        shielded(|| self.grid.resize(Size { cols, rows }.clamped()));
    }

    pub fn is_synchronized(&self) -> bool {
        self.grid.modes().synchronized
    }

    pub fn wants_focus_events(&self) -> bool {
        self.grid.modes().focus_reporting
    }

    pub fn key_modes(&self) -> KeyModes {
        let modes = self.grid.modes();
        KeyModes {
            application_cursor: modes.application_cursor,
            application_keypad: modes.application_keypad,
            bracketed_paste: modes.bracketed_paste,
            kitty_flags: modes.kitty_flags,
        }
    }

    pub fn mouse_modes(&self) -> MouseModes {
        let modes = self.grid.modes();
        MouseModes {
            tracking: match modes.mouse {
                MouseMode::Off => Tracking::Off,
                MouseMode::X10 => Tracking::Presses,
                MouseMode::Click => Tracking::Clicks,
                MouseMode::Drag => Tracking::Drags,
                MouseMode::Motion => Tracking::Motion,
            },
            encoding: match modes.mouse_encoding {
                MouseEncoding::X10 => Encoding::Normal,
                MouseEncoding::Utf8 => Encoding::Utf8,
                MouseEncoding::Sgr => Encoding::Sgr,
                MouseEncoding::Urxvt => Encoding::Urxvt,
            },
            alternate_scroll: modes.alternate_scroll,
            alternate_screen: modes.alternate_screen,
        }
    }

    /// The cursor in the mirror's own coordinates.
    pub fn caret(&self) -> Caret {
        let cursor = self.grid.cursor();
        let steady = u8::from(!cursor.blinking);
        Caret {
            x: cursor.column,
            y: cursor.row,
            visible: cursor.visible,
            shape: match cursor.shape {
                CursorShape::Block if cursor.blinking => 0,
                CursorShape::Block => 2,
                CursorShape::Underline => 3 + steady,
                CursorShape::Beam => 5 + steady,
            },
        }
    }

    /// What changed since the last call.
    pub fn take_damage(&mut self) -> Damage {
        let rows = self.grid.take_damage().rows;
        let reversed = self.grid.modes().reverse_screen;
        if std::mem::replace(&mut self.reversed, reversed) != reversed {
            return Damage::All;
        }
        Damage::Rows(rows)
    }

    /// Copies rows of the part of the mirror that starts at `from` into `area` of a screen.
    /// `rows` are the mirror's rows; what the mirror does not cover becomes blank.
    pub fn copy(&self, from: (u16, u16), area: Area, rows: &Damage, into: &mut Buffer) {
        let all: Vec<u16>;
        let rows = match rows {
            Damage::Rows(rows) => rows,
            Damage::All => {
                all = (from.1..from.1.saturating_add(area.rows)).collect();
                &all
            }
        };
        for row in rows {
            if *row >= from.1 && row - from.1 < area.rows {
                self.copy_row(*row, from.0, area, area.y + row - from.1, into);
            }
        }
    }

    fn copy_row(&self, row: u16, from: u16, area: Area, y: u16, into: &mut Buffer) {
        let (cols, rows) = self.size();
        let reversed = self.grid.modes().reverse_screen;
        let mut links = LinkCache::default();
        let mut x = 0;
        if row < rows {
            let view = self.grid.row(row);
            for cell in view
                .cells()
                .skip(usize::from(from))
                .take(usize::from(area.cols.min(cols)))
            {
                let right_half = cell.width() == 0;
                if !right_half || x == 0 {
                    let mut cell = cell_of(&cell, &mut links);
                    if right_half || x + u16::from(cell.width) > area.cols {
                        // Half of a wide character at an edge.
                        cell = Cell::blank(cell.style);
                    }
                    if reversed {
                        cell.style = cell.style.reversed();
                    }
                    into.put(area.x + x, y, cell);
                }
                x += 1;
            }
        }
        for x in x..area.cols {
            into.put(area.x + x, y, Cell::default());
        }
    }

    /// The text of a row from one column to another, without blanks at its end.
    pub fn text(&self, row: u16, from: u16, to: u16) -> String {
        let mut text = String::new();
        if row < self.size().1 {
            let view = self.grid.row(row);
            let cells = view.cells().skip(usize::from(from));
            for cell in cells.take(usize::from(to.saturating_sub(from))) {
                cell.push_to(&mut text);
            }
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Neighbouring cells share their link.
#[derive(Default)]
struct LinkCache {
    last: Option<Arc<Link>>,
}

impl LinkCache {
    fn get(&mut self, cell: &CellView<'_>) -> Option<Arc<Link>> {
        let link = cell.link()?;
        match &self.last {
            Some(last) if last.uri == link.address() && last.id == link.id() => {}
            _ => {
                self.last = Some(Arc::new(Link {
                    id: link.id().to_owned(),
                    uri: link.address().to_owned(),
                }));
            }
        }
        self.last.clone()
    }
}

fn cell_of(cell: &CellView<'_>, links: &mut LinkCache) -> Cell {
    let mut style = style_of(&cell.style());
    style.link = links.get(cell);
    let marks = cell.marks();
    let mut utf8 = [0; 4];
    let glyph = if marks.is_empty() {
        let c = cell.character();
        let c = if c.is_control() { ' ' } else { c };
        Glyph::new(c.encode_utf8(&mut utf8))
    } else {
        let mut text = String::new();
        cell.push_to(&mut text);
        Glyph::new(&text)
    };
    Cell {
        glyph,
        width: cell.width().clamp(1, 2),
        style,
    }
}

fn style_of(style: &GridStyle) -> Style {
    let mut attributes = Attributes::default();
    for (one, on) in [
        (Attributes::BOLD, style.bold),
        (Attributes::DIM, style.dim),
        (Attributes::ITALIC, style.italic),
        (Attributes::REVERSE, style.inverse),
        (Attributes::HIDDEN, style.hidden),
        (Attributes::STRIKE, style.strikeout),
    ] {
        attributes.set(one, on);
    }
    Style {
        fg: style.fg,
        bg: style.bg,
        underline_color: style.underline_paint,
        underline: style.underline,
        attributes,
        link: None,
    }
}
