//! Where things stand: sidebar, panes and footer for every size of the outer terminal.
//!
//! ```text
//! +---------+---------------------------+
//! | sidebar | pane          | pane      |
//! |         |---------------|           |
//! |         | pane          |           |
//! +---------+---------------------------+
//! | footer                              |
//! +-------------------------------------+
//! ```
//!
//! Chrome gives way first: the sidebar below 70 columns, the footer below 4 rows. Panes are never
//! smaller than one cell; panes that do not fit are not shown.

use crate::config::Side;

use super::cell::Area;

/// Below this the sidebar hides by itself.
pub const SIDEBAR_COLS_MIN: u16 = 70;
/// Below this the footer hides by itself.
const FOOTER_ROWS_MIN: u16 = 4;
/// A pane in a split has at least this much.
const SPLIT_COLS_MIN: u16 = 20;
const SPLIT_ROWS_MIN: u16 = 5;

/// How panes stand to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Side by side.
    #[default]
    Columns,
    /// One above the other.
    Rows,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    pub cols: u16,
    pub rows: u16,
    pub side: Side,
    pub sidebar: bool,
    pub sidebar_width: u16,
    pub full_screen: bool,
    pub panes: usize,
    /// The pane that has to be seen when not all fit.
    pub focused: usize,
    pub direction: Direction,
}

/// What is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub sidebar: Option<Area>,
    pub footer: Option<Area>,
    /// One for each pane; empty for those that do not fit.
    pub panes: Vec<Area>,
    /// Lines between things, one cell thick.
    pub lines: Vec<Area>,
}

/// Lays everything out.
pub fn lay_out(wish: &Wish) -> Layout {
    let mut layout = Layout::default();
    let mut rest = Area::new(0, 0, wish.cols, wish.rows);
    if !wish.full_screen && wish.rows >= FOOTER_ROWS_MIN {
        rest.rows -= 1;
        layout.footer = Some(Area::new(0, rest.rows, wish.cols, 1));
    }
    if wish.sidebar && !wish.full_screen && wish.cols >= SIDEBAR_COLS_MIN {
        let width = wish.sidebar_width.min(wish.cols / 2);
        let (x, line) = match wish.side {
            Side::Left => (0, width),
            Side::Right => (wish.cols - width, wish.cols - width - 1),
        };
        if wish.side == Side::Left {
            rest.x = width + 1;
        }
        layout.sidebar = Some(Area::new(x, 0, width, rest.rows));
        rest.cols -= width + 1;
        layout.lines.push(Area::new(line, 0, 1, rest.rows));
    }
    split(wish, rest, &mut layout);
    layout
}

fn split(wish: &Wish, rest: Area, layout: &mut Layout) {
    let (length, least) = match wish.direction {
        Direction::Columns => (rest.cols, SPLIT_COLS_MIN),
        Direction::Rows => (rest.rows, SPLIT_ROWS_MIN),
    };
    layout.panes = vec![Area::default(); wish.panes];
    let fitting = usize::from((length + 1) / (least + 1)).clamp(1, wish.panes.max(1));
    // A run of panes that holds the focused one.
    let first = wish.focused.saturating_sub(fitting - 1);
    let shown = first..(first + fitting).min(wish.panes);
    let count = shown.len() as u16;
    if count == 0 {
        return;
    }
    let room = length.saturating_sub(count - 1);
    let mut at = 0;
    for (order, index) in shown.enumerate() {
        let order = order as u16;
        let own = room / count + u16::from(order < room % count);
        layout.panes[index] = match wish.direction {
            Direction::Columns => Area::new(rest.x + at, rest.y, own, rest.rows),
            Direction::Rows => Area::new(rest.x, rest.y + at, rest.cols, own),
        };
        at += own;
        if order + 1 < count {
            layout.lines.push(match wish.direction {
                Direction::Columns => Area::new(rest.x + at, rest.y, 1, rest.rows),
                Direction::Rows => Area::new(rest.x, rest.y + at, rest.cols, 1),
            });
            at += 1;
        }
    }
}

/// The part of a mirror that a pane shows when the sizes differ: its first column and row. The
/// cursor stays in view; otherwise the top left corner, as far down as the pane allows.
pub fn window(mirror: (u16, u16), pane: (u16, u16), cursor: (u16, u16)) -> (u16, u16) {
    let one = |mirror: u16, pane: u16, cursor: u16| {
        if mirror <= pane {
            return 0;
        }
        (cursor + 1).saturating_sub(pane).min(mirror - pane)
    };
    (
        one(mirror.0, pane.0, cursor.0),
        one(mirror.1, pane.1, cursor.1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(cols: u16, rows: u16, panes: usize) -> Wish {
        Wish {
            cols,
            rows,
            side: Side::Left,
            sidebar: true,
            sidebar_width: 30,
            full_screen: false,
            panes,
            focused: 0,
            direction: Direction::Columns,
        }
    }

    #[test]
    fn a_small_terminal_has_the_session_and_one_footer_line() {
        let layout = lay_out(&wish(40, 10, 1));
        assert_eq!(layout.sidebar, None);
        assert_eq!(layout.panes, [Area::new(0, 0, 40, 9)]);
        assert_eq!(layout.footer, Some(Area::new(0, 9, 40, 1)));
    }

    #[test]
    fn a_wide_terminal_has_the_sidebar_on_its_side() {
        let layout = lay_out(&wish(120, 40, 1));
        assert_eq!(layout.sidebar, Some(Area::new(0, 0, 30, 39)));
        assert_eq!(layout.panes, [Area::new(31, 0, 89, 39)]);
        let right = Wish {
            side: Side::Right,
            ..wish(120, 40, 1)
        };
        let layout = lay_out(&right);
        assert_eq!(layout.sidebar, Some(Area::new(90, 0, 30, 39)));
        assert_eq!(layout.panes, [Area::new(0, 0, 89, 39)]);
    }

    #[test]
    fn full_screen_is_the_session_alone() {
        let layout = lay_out(&Wish {
            full_screen: true,
            ..wish(120, 40, 1)
        });
        assert_eq!(layout.panes, [Area::new(0, 0, 120, 40)]);
        assert_eq!((layout.sidebar, layout.footer), (None, None));
    }

    #[test]
    fn nothing_overlaps_or_leaves_the_screen_at_any_size() {
        let mut cases = 0;
        for cols in (1..140).step_by(3) {
            for rows in 1..50 {
                for panes in 1..6 {
                    for focused in [0, panes - 1] {
                        for direction in [Direction::Columns, Direction::Rows] {
                            for side in [Side::Left, Side::Right] {
                                check(&Wish {
                                    focused,
                                    direction,
                                    side,
                                    ..wish(cols, rows, panes)
                                });
                                cases += 1;
                            }
                        }
                    }
                }
            }
        }
        assert!(cases > 10_000);
    }

    fn check(wish: &Wish) {
        let layout = lay_out(wish);
        let mut taken = vec![false; usize::from(wish.cols) * usize::from(wish.rows)];
        let areas = layout.sidebar.iter().chain(&layout.footer);
        for area in areas.chain(&layout.panes).chain(&layout.lines) {
            for y in area.y..area.y + area.rows {
                for x in area.x..area.x + area.cols {
                    assert!(x < wish.cols && y < wish.rows, "{wish:?} {layout:?}");
                    let cell = &mut taken[usize::from(y) * usize::from(wish.cols) + usize::from(x)];
                    assert!(!std::mem::replace(cell, true), "{wish:?} {layout:?}");
                }
            }
        }
        assert!(taken.iter().all(|cell| *cell), "{wish:?} {layout:?}");
        assert!(
            !layout.panes[wish.focused].is_empty(),
            "{wish:?} {layout:?}"
        );
    }

    #[test]
    fn the_cursor_stays_in_view_of_a_smaller_pane() {
        assert_eq!(window((80, 24), (80, 24), (5, 23)), (0, 0));
        assert_eq!(window((80, 24), (40, 10), (5, 23)), (0, 14));
        assert_eq!(window((80, 24), (40, 10), (79, 0)), (40, 0));
        assert_eq!(window((10, 5), (40, 10), (9, 4)), (0, 0));
    }
}
