//! Output and sizes that broke terminal emulators before.

use std::path::{Path, PathBuf};

use wingman::terminal::grid::{
    Effect, Extent, Form, Grid, MouseEncoding, MouseMode, Options, Paint, Role, Scrollback, Size,
};

use crate::grid_state::{assert_same, copy, grid};

fn feed(grid: &mut Grid, bytes: impl AsRef<[u8]>) -> Vec<Effect> {
    let mut effects = Vec::new();
    grid.feed(bytes.as_ref(), &mut effects);
    assert_eq!(grid.panics(), 0);
    effects
}

fn resize(grid: &mut Grid, cols: u16, rows: u16) {
    grid.resize(Size { cols, rows });
    assert_eq!(grid.panics(), 0);
}

fn screen(grid: &Grid) -> String {
    grid.text(Extent::Screen, Form::Plain)
}

#[test]
fn a_wide_character_survives_a_resize_to_one_column_and_an_erase() {
    for erase in ["\x1b[K", "\x1b[1K", "\x1b[X", "\x1b[P", "\x1b[@", "\x1b[2J"] {
        let mut grid = grid(4, 2, Role::Host);
        feed(&mut grid, "ab世");
        resize(&mut grid, 1, 2);
        assert_eq!(grid.size(), Size { cols: 2, rows: 2 });
        feed(&mut grid, erase);
        feed(&mut grid, "世x世");
        resize(&mut grid, 4, 2);
        assert_same(&copy(&grid), &grid, erase);
    }
}

#[test]
fn a_one_column_screen_takes_a_wide_character() {
    let mut grid = grid(1, 1, Role::Host);
    feed(&mut grid, "世界\r\n😀e\u{301}");
    assert_eq!(grid.size(), Size { cols: 2, rows: 2 });
    assert_same(&copy(&grid), &grid, "one column");
}

#[test]
fn a_wide_character_at_the_right_edge_is_whole_or_gone_after_narrowing() {
    for alternate in ["", "\x1b[?1049h"] {
        let mut grid = grid(10, 3, Role::Host);
        feed(&mut grid, format!("{alternate}abcdefgh世"));
        for cols in [9, 8, 5, 3, 2, 12] {
            resize(&mut grid, cols, 3);
            for row in 0..3 {
                let cells: Vec<u8> = grid.row(row).cells().map(|cell| cell.width()).collect();
                for (index, width) in cells.iter().enumerate() {
                    assert_eq!(*width == 2, cells.get(index + 1) == Some(&0), "{cells:?}");
                }
            }
            assert_same(&copy(&grid), &grid, "narrowed");
        }
    }
}

#[test]
fn attaching_amid_an_unfinished_string_loses_nothing() {
    for (start, rest) in [
        ("\x1b]0;a ti", "tle\x07after"),
        ("\x1b]8;;https://exa", "mple.org\x1b\\linked"),
        ("\x1bP$q", "m\x1b\\after"),
        ("\x1b[38;2;1", ";2;3mafter"),
        ("\x1b]0;title\x1b", "\\after"),
        ("\x1b]0;title\x1b", "[31mafter"),
    ] {
        let mut grid = grid(20, 4, Role::Host);
        feed(&mut grid, format!("before {start}"));
        assert_eq!(grid.offset(), 7);
        let mut copy = copy(&grid);
        let pending = grid.pending().to_vec();
        feed(&mut copy, [&pending, rest.as_bytes()].concat());
        feed(&mut grid, rest);
        assert_same(&copy, &grid, start);
        assert_eq!(copy.offset(), grid.offset());
    }
}

#[test]
fn a_string_that_never_ends_is_dropped_and_attached_to_in_its_middle() {
    for start in ["\x1b]52;c;", "\x1bPq", "\x1b_G", "\x1b[1"] {
        let mut grid = grid(20, 4, Role::Host);
        feed(&mut grid, format!("before{start}"));
        let before = grid.memory_bytes();
        for _ in 0..100 {
            feed(&mut grid, [b'3'; 10_000]);
        }
        assert!(grid.memory_bytes() < before + 200_000);
        assert_eq!(grid.offset(), 1_000_000 + 6 + start.len() as u64);
        let mut copy = copy(&grid);
        assert_eq!(copy.offset(), grid.offset());
        let end = if start == "\x1b[1" { "m" } else { "\x1b\\" };
        for grid in [&mut grid, &mut copy] {
            assert_eq!(feed(grid, format!("333{end}after")), []);
        }
        assert_eq!(screen(&grid), "beforeafter\n");
        assert_same(&copy, &grid, start);
        assert_eq!(copy.offset(), grid.offset());
    }
}

#[test]
fn modes_of_a_program_on_the_alternate_screen_are_all_restored() {
    let mut grid = grid(80, 24, Role::Host);
    for n in 0..500 {
        feed(
            &mut grid,
            format!("\x1b[3{}mline {n}\x1b[0m of the shell\r\n", n % 8),
        );
    }
    feed(
        &mut grid,
        "\x1b[?1049h\x1b[?1003h\x1b[?1006h\x1b[?2004h\x1b[?1004h\x1b[?25l\x1b[>5u\x1b[?1h\x1b=",
    );
    feed(
        &mut grid,
        "\x1b]2;editor\x07\x1b[2;20r\x1b[6 q\x1b[48;5;17m\x1b[2J\x1b[5;5Htext",
    );
    let copy = copy(&grid);
    assert_same(&copy, &grid, "modes");
    let modes = copy.modes();
    assert!(modes.alternate_screen && modes.bracketed_paste && modes.focus_reporting);
    assert!(modes.application_cursor && modes.application_keypad);
    assert_eq!(modes.mouse, MouseMode::Motion);
    assert_eq!(modes.mouse_encoding, MouseEncoding::Sgr);
    assert_eq!(modes.kitty_flags, 5);
    assert!(!copy.cursor().visible);
    assert_eq!(copy.title(), Some("editor"));
    assert_eq!(copy.row(0).cell(0).unwrap().style().bg, Paint::Palette(17));
    let mut back = copy;
    feed(&mut back, "\x1b[?1049l");
    assert!(screen(&back).contains("line 499 of the shell"));
    assert_eq!(back.modes().kitty_flags, 0);
}

#[test]
fn a_program_that_dies_on_the_alternate_screen_leaves_its_last_screen() {
    let mut grid = grid(40, 5, Role::Host);
    feed(
        &mut grid,
        "$ tui\r\n\x1b[?1049h\x1b[H\x1b[2Jlast words\x1b[3;1Hpanic at line 3",
    );
    assert_eq!(screen(&copy(&grid)), "last words\n\npanic at line 3\n");
}

#[test]
fn the_keyboard_stack_is_bounded_and_the_title_stack_too() {
    let mut grid = grid(20, 4, Role::Host);
    feed(&mut grid, "\x1b[>1u".repeat(5_000));
    feed(&mut grid, "\x1b]2;t\x07\x1b[22t".repeat(5_000));
    assert_eq!(grid.modes().kitty_flags, 1);
    assert!(grid.snapshot(Scrollback::None).len() < 4_000);
    feed(&mut grid, "\x1b[<33u");
    assert_eq!(grid.modes().kitty_flags, 0);
    assert_same(&copy(&grid), &grid, "stacks");
}

#[test]
fn blank_lines_scrolled_out_are_no_history() {
    let mut grid = grid(80, 40, Role::Host);
    feed(&mut grid, "one\r\ntwo");
    feed(&mut grid, "\x1b[40S".repeat(820));
    assert_eq!(grid.history_len(), 2);
    assert_eq!(grid.history_row(1).unwrap().view().text(), "two");
}

#[test]
fn marks_and_links_do_not_grow_without_bound() {
    let mut grid = grid(80, 24, Role::Host);
    let before = grid.memory_bytes();
    feed(&mut grid, format!("e{}", "\u{301}".repeat(500_000)));
    assert!(grid.row(0).cell(0).unwrap().marks().len() <= 16);
    feed(
        &mut grid,
        format!("\x1b]8;;https://{}\x07x", "a".repeat(50_000)),
    );
    assert_eq!(grid.row(0).cell(1).unwrap().link(), None);
    for n in 0..30_000 {
        let address = format!("https://{n}.example.org/{}", "b".repeat(1_900));
        feed(&mut grid, format!("\x1b]8;;{address}\x07{n}\r\n"));
    }
    assert!(grid.memory_bytes() < before + 17 * 1024 * 1024);
    assert!(grid.history_len() > 7_000);
}

#[test]
fn binary_data_leaves_a_grid_that_can_be_copied() {
    let mut grid = grid(80, 24, Role::Host);
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(2_000_000);
    while bytes.len() < 2_000_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    for chunk in bytes.chunks(4_093) {
        feed(&mut grid, chunk);
    }
    assert!(grid.memory_bytes() < 20 * 1024 * 1024);
    assert!(grid.pending().len() <= 64 * 1024);
    assert_same(&copy(&grid), &grid, "binary data");
}

#[test]
fn the_kitty_graphics_query_is_no_title() {
    let mut grid = grid(80, 24, Role::Host);
    let effects = feed(
        &mut grid,
        "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1bkscreen title\x1b\\x",
    );
    assert_eq!(effects, []);
    assert_eq!(grid.title(), None);
}

#[test]
fn erasing_and_deleting_stay_in_their_place() {
    let mut grid = grid(10, 3, Role::Host);
    feed(&mut grid, "0123456789\r\nabcdefghij\x1b[1;9H\x1b[5P");
    assert_eq!(screen(&grid), "01234567\nabcdefghij\n");
    feed(&mut grid, "\x1b[2;3H\x1b[1J");
    assert_eq!(screen(&grid), "\n   defghij\n");
}

#[test]
fn a_repeat_count_is_bounded_by_the_screen() {
    let mut grid = grid(10, 4, Role::Host);
    feed(&mut grid, "x\x1b[65535b");
    assert!(grid.history_len() <= 5);
}

/// Recorded output of agents, which the fuzz target starts from.
fn recordings() -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/grid");
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    found.sort();
    assert!(found.len() > 10, "recordings are missing");
    found
}

#[test]
fn recorded_agents_can_be_attached_to_at_any_cut() {
    for (path, bytes) in recordings() {
        let mut grid = Grid::new(
            Size {
                cols: 120,
                rows: 36,
            },
            Options::new(Role::Host),
        );
        let step = (bytes.len() / 40).max(1);
        for chunk in bytes.chunks(step) {
            feed(&mut grid, chunk);
            assert_same(&copy(&grid), &grid, &path.display().to_string());
        }
    }
}
