//! Which rows look different from the last time: rows that output may have touched are hashed, and those
//! whose hash differs are told. A key's echo touches one row, and only that one is read.

use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::Line;

use super::checksum;
use super::engine::Engine;

/// The rows that look different from the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// From 0, ascending.
    pub rows: Vec<u16>,
    /// Lines that entered the scrollback since then.
    pub scrolled: u64,
}

/// Rows that may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touched {
    All,
    /// From the first to the last one; none when the first comes after it.
    Rows(usize, usize),
}

const NOTHING: Touched = Touched::Rows(usize::MAX, 0);

/// What happened to the cells in one piece of output, told by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// No cell: the cursor, colours, modes.
    None,
    /// Rows from the cursor before to the cursor after, while nothing scrolled.
    Cursor,
    Anywhere,
}

impl Reach {
    /// Of a whole sequence, from its ESC on.
    pub fn of(sequence: &[u8]) -> Self {
        match sequence {
            [0x1b, b']', ..] => Self::None,
            [0x1b, b'[', parameters @ .., last] => Self::of_control(parameters, *last),
            _ => Self::Anywhere,
        }
    }

    fn of_control(parameters: &[u8], last: u8) -> Self {
        let plain = parameters
            .iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'));
        match (parameters, last) {
            (_, b'm' | b'A'..=b'H' | b'd' | b'f') if plain => Self::None,
            (_, b'K' | b'X' | b'P' | b'@') if plain => Self::Cursor,
            (b"?25" | b"?2026" | b"?2004" | b"?12" | b"?1", b'h' | b'l') => Self::None,
            _ => Self::Anywhere,
        }
    }
}

/// Where the cursor stands, and how many columns are left in its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    row: usize,
    room: usize,
}

impl Spot {
    pub fn of(engine: &Engine) -> Self {
        let cells = engine.cells();
        let point = cells.cursor.point;
        Self {
            row: usize::try_from(point.line.0).unwrap_or(0),
            room: cells.columns() - point.column.0,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Tracker {
    touched: Touched,
    seen: Vec<u64>,
    lines: u64,
}

impl Default for Tracker {
    fn default() -> Self {
        Self {
            touched: Touched::All,
            seen: Vec::new(),
            lines: 0,
        }
    }
}

impl Tracker {
    pub fn memory_bytes(&self) -> usize {
        self.seen.capacity() * size_of::<u64>()
    }

    pub fn touch_all(&mut self) {
        self.touched = Touched::All;
    }

    /// Text was put at the cursor, which stood at `before`.
    pub fn text(&mut self, bytes: &[u8], before: Spot, engine: &Engine) {
        if self.touched == Touched::All {
            return;
        }
        let after = Spot::of(engine);
        let bottom = after.row + 1 == engine.shadow.margins.end
            || after.row + 1 == engine.size().screen_lines();
        let breaks =
            bytes.len() >= before.room || memchr::memchr3(b'\n', 0x0b, 0x0c, bytes).is_some();
        if bottom && breaks {
            return self.touch_all();
        }
        self.rows(before, after);
    }

    /// A sequence was applied.
    pub fn sequence(&mut self, reach: Reach, before: Spot, engine: &Engine) {
        match reach {
            Reach::None => {}
            Reach::Cursor => self.rows(before, Spot::of(engine)),
            Reach::Anywhere => self.touch_all(),
        }
    }

    fn rows(&mut self, before: Spot, after: Spot) {
        if let Touched::Rows(first, last) = &mut self.touched {
            // A wide character that is overwritten or wraps changes a mark in the row beside it.
            *first = (*first).min(before.row.min(after.row).saturating_sub(1));
            *last = (*last).max(before.row.max(after.row) + 1);
        }
    }

    /// The rows that look different since the last call; all of them at first.
    pub fn take(&mut self, engine: &Engine) -> Damage {
        let cells = engine.cells();
        let count = cells.screen_lines();
        let touched = std::mem::replace(&mut self.touched, NOTHING);
        let (first, last) = match touched {
            Touched::Rows(first, last) if self.seen.len() == count => (first, last.min(count - 1)),
            _ => (0, count - 1),
        };
        let known = self.seen.len() == count;
        self.seen.resize(count, 0);
        let mut rows = Vec::new();
        for row in first..=last {
            let hash = checksum::row(&cells[Line(row as i32)][..]);
            let before = std::mem::replace(&mut self.seen[row], hash);
            if !known || before != hash {
                rows.push(row as u16);
            }
        }
        let lines = engine.history.first_line() + engine.history.len() as u64;
        let before = std::mem::replace(&mut self.lines, lines);
        Damage {
            rows,
            scrolled: lines.saturating_sub(before),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Grid, Options, Role, Size};
    use super::*;

    /// What programs send, and what the rows of each of them have to be looked at for.
    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let text = prop_oneof![
            "[a-z ]{1,30}",
            "[a-zé世ä\u{301}🙂]{1,12}",
            Just("\r\n".to_owned()),
            Just("\n".to_owned()),
            Just("\r".to_owned()),
            Just("\x08".to_owned()),
            Just("\t".to_owned()),
            Just("\x1bM".to_owned()),
            Just("\x1bD".to_owned()),
            Just("\x1b7".to_owned()),
            Just("\x1b8".to_owned()),
            Just("\x1bc".to_owned()),
            Just("\x1b#8".to_owned()),
            Just("\x1b]8;;http://a\x07".to_owned()),
            (0u16..14, 0u16..24).prop_map(|(row, column)| format!("\x1b[{row};{column}H")),
            (0u16..12, "[@A-MPSTXZbdefrsu]").prop_map(|(n, last)| format!("\x1b[{n}{last}")),
            (0u16..12, 0u16..12).prop_map(|(top, bottom)| format!("\x1b[{top};{bottom}r")),
            prop_oneof![Just(4u16), Just(7), Just(31), Just(44), Just(0)]
                .prop_map(|n| format!("\x1b[{n}m")),
            (
                prop_oneof![
                    Just("?1"),
                    Just("?5"),
                    Just("?6"),
                    Just("?7"),
                    Just("?25"),
                    Just("?45"),
                    Just("?47"),
                    Just("?1049"),
                    Just("?2004"),
                    Just("?2026"),
                    Just("4"),
                    Just("20"),
                ],
                "[hl]",
            )
                .prop_map(|(mode, last)| format!("\x1b[{mode}{last}")),
            (0u16..8, 0u16..20, 0u16..12, 0u16..30)
                .prop_map(|(t, l, b, r)| format!("\x1b[42;{t};{l};{b};{r}$x")),
            Just("\x1b[!p".to_owned()),
        ];
        text.prop_map(String::into_bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_500))]
        #[test]
        fn no_row_that_changed_is_missed(
            steps in prop::collection::vec((piece(), 0u8..4, 2u16..9, 4u16..20), 1..60),
        ) {
            let mut grid = Grid::new(Size { cols: 12, rows: 6 }, Options::new(Role::Host));
            for (bytes, what, rows, cols) in steps {
                match what {
                    0 => drop(grid.take_damage()),
                    1 if rows == 8 => grid.resize(Size { cols, rows }),
                    _ => {}
                }
                grid.feed(&bytes, &mut Vec::new());
                let mut all = grid.damage.clone();
                let told = grid.damage.clone().take(&grid.engine);
                all.touch_all();
                prop_assert_eq!(told, all.take(&grid.engine));
            }
        }
    }

    #[test]
    fn an_echo_touches_its_row_and_its_neighbours() {
        let mut grid = Grid::new(Size { cols: 80, rows: 24 }, Options::new(Role::Host));
        grid.take_damage();
        grid.feed(
            b"\x1b[?25l\x1b[10;5Hx\x1b[K\x1b[m\x1b[?25h",
            &mut Vec::new(),
        );
        assert_eq!(grid.damage.touched, Touched::Rows(8, 10));
        assert_eq!(grid.take_damage().rows, [9]);
    }
}
