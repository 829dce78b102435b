//! Snapshots of a terminal grid rebuild it: random programs, cut anywhere, resized in between.

use proptest::prelude::*;
use wingman::terminal::grid::{Effect, Extent, Form, Grid, Options, Paint, Role, Scrollback, Size};

pub fn grid(cols: u16, rows: u16, role: Role) -> Grid {
    Grid::new(Size { cols, rows }, Options::new(role))
}

/// A copy of a grid by way of its snapshot.
pub fn copy(of: &Grid) -> Grid {
    let Size { cols, rows } = of.size();
    let mut copy = grid(cols, rows, Role::Mirror);
    copy.feed(&of.snapshot(Scrollback::All), &mut Vec::new());
    copy.set_offset(of.offset());
    copy
}

pub fn assert_same(copy: &Grid, of: &Grid, what: &str) {
    let dump = |grid: &Grid| {
        format!(
            "{:?}\n{:?}\n{:?} {:?}\n{}",
            grid.modes(),
            grid.cursor(),
            grid.title(),
            grid.history_len(),
            grid.text(Extent::ScreenAndHistory(50), Form::Ansi)
        )
    };
    assert!(
        copy.checksum() == of.checksum(),
        "{what}: the copy differs\n--- copy\n{}\n--- original\n{}\n--- snapshots\n{}\n{}",
        dump(copy),
        dump(of),
        copy.snapshot(Scrollback::Last(20)).escape_ascii(),
        of.snapshot(Scrollback::Last(20)).escape_ascii()
    );
}

fn mode() -> impl Strategy<Value = Vec<u8>> {
    (
        prop::sample::select(vec![
            "?1", "?5", "?6", "?7", "?9", "?12", "?25", "?47", "?1000", "?1002", "?1003", "?1004",
            "?1005", "?1006", "?1007", "?1015", "?1042", "?1048", "?1049", "?2004", "?2026", "4",
            "20",
        ]),
        prop::bool::weighted(0.6),
    )
        .prop_map(|(mode, on)| format!("\x1b[{mode}{}", if on { 'h' } else { 'l' }).into_bytes())
}

fn style() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        "\x1b[m",
        "\x1b[1;31m",
        "\x1b[4:3;58:2::1:2:3m",
        "\x1b[48;5;200m",
        "\x1b[38;2;10;20;30;48;2;40;50;60m",
        "\x1b[7;9;2;3m",
        "\x1b[44m",
        "\x1b[91;105m",
    ])
    .prop_map(|text| text.as_bytes().to_vec())
}

fn odd() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        "\x1b7",
        "\x1b8",
        "\x1bM",
        "\x1bD",
        "\x1bE",
        "\x1bH",
        "\x1b=",
        "\x1b>",
        "\x1b(0",
        "\x1b(B",
        "\x1b)0",
        "\x0e",
        "\x0f",
        "\x1bn",
        "\x1b#8",
        "\x1b[!p",
        "\x1b[3g",
        "\x1b[?5W",
        "\x1b]0;a title\x07",
        "\x1b]2;another\x1b\\",
        "\x1b[22;0t",
        "\x1b[23;0t",
        "\x1b[>5u",
        "\x1b[=3;2u",
        "\x1b[<2u",
        "\x1b[>4;2m",
        "\x1b[5 q",
        "\x1b[2J",
        "\x1b[3J",
        "\x1b[K",
        "\x1b]8;;https://example.org/a\x1b\\",
        "\x1b]8;id=x;https://example.org/b\x1b\\",
        "\x1b]8;;\x1b\\",
        "\x1b]4;1;rgb:11/22/33\x1b\\",
        "\x1b]104\x1b\\",
        "\x1b]11;#102030\x07",
        "\x1b[2;4r",
        "\x1b[r",
        "\x1b[999;999H",
        "\x1b[1;1H",
        "\x1b[3b",
        "\x1b[40S",
        "\x1bc",
        "\x1b]unfinished",
        "\x1bPq",
        "\x1b[12",
        "\x18",
        "\x1b\\",
        "\x1b_Gi=31,a=q;AAAA\x1b\\",
        "\x1bP$qm\x1b\\",
    ])
    .prop_map(|text| text.as_bytes().to_vec())
}

/// Pieces that programs are made of, often broken on purpose.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let fixed = |text: &'static str| Just(text.as_bytes().to_vec());
    let text = prop_oneof![
        "[ -~]{1,30}".prop_map(String::into_bytes),
        "[a-z世界é́\u{1f600}]{1,12}".prop_map(String::into_bytes),
        fixed("\r\n"),
        fixed("\n"),
        fixed("\t"),
        fixed("\x08"),
    ];
    let number = prop_oneof![4 => 0_u16..12, 1 => 0_u16..400];
    let control = (
        prop_oneof![Just(""), Just("?"), Just(">"), Just("=")],
        number.clone(),
        number,
        "[@A-HJ-MPSTXZabcdefghlmnpqrstux`]",
    )
        .prop_map(|(marker, a, b, last)| format!("\x1b[{marker}{a};{b}{last}").into_bytes());
    prop_oneof![
        6 => text,
        4 => control,
        2 => mode(),
        3 => style(),
        4 => odd(),
        1 => prop::collection::vec(any::<u8>(), 1..12),
    ]
}

/// Bytes that a failure shows as text.
#[derive(Clone)]
struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

fn pieces(most: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(piece(), 1..most).prop_map(|pieces| Bytes(pieces.concat()))
}

#[derive(Clone, Debug)]
enum Step {
    Feed(Bytes),
    Resize(u16, u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let feed = pieces(12).prop_map(Step::Feed);
    let resize = (1_u16..30, 1_u16..12).prop_map(|(cols, rows)| Step::Resize(cols, rows));
    prop::collection::vec(prop_oneof![5 => feed, 1 => resize], 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_rebuilds_the_grid_and_both_go_on_alike(
        steps in steps(),
        tail in pieces(6),
        cols in 2_u16..20,
        rows in 2_u16..8,
    ) {
        let mut grid = grid(cols, rows, Role::Mirror);
        let mut effects = Vec::new();
        for step in &steps {
            match step {
                Step::Feed(bytes) => grid.feed(&bytes.0, &mut effects),
                Step::Resize(cols, rows) => grid.resize(Size { cols: *cols, rows: *rows }),
            }
            prop_assert_eq!(grid.panics(), 0);
        }
        let mut copy = copy(&grid);
        assert_same(&copy, &grid, "after the snapshot");
        let tail = [grid.pending(), &tail.0].concat();
        copy.feed(&tail, &mut effects);
        let pending = grid.pending().len();
        grid.feed(&tail[pending..], &mut effects);
        assert_same(&copy, &grid, "after more output");
        prop_assert_eq!(copy.offset(), grid.offset());
    }

    #[test]
    fn cuts_between_feeds_change_nothing(
        bytes in pieces(30),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let bytes = bytes.0;
        let mut whole = grid(20, 6, Role::Host);
        let mut expected = Vec::new();
        whole.feed(&bytes, &mut expected);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let mut cut_up = grid(20, 6, Role::Host);
        let mut effects = Vec::new();
        let mut from = 0;
        for cut in cuts {
            cut_up.feed(&bytes[from..cut], &mut effects);
            from = cut;
        }
        assert_same(&cut_up, &whole, "fed in parts");
        prop_assert_eq!(effects, expected);
        prop_assert_eq!(cut_up.offset(), whole.offset());
        prop_assert_eq!(cut_up.pending(), whole.pending());
    }

    #[test]
    fn a_snapshot_shows_the_same_in_an_independent_terminal(
        bytes in pieces(30),
    ) {
        let mut grid = grid(20, 6, Role::Mirror);
        grid.feed(&bytes.0, &mut Vec::new());
        // vt100 does not show the replacement character.
        if grid.text(Extent::All, Form::Plain).contains('\u{fffd}') {
            return Ok(());
        }
        let mut other = vt100::Parser::new(6, 20, 0);
        other.process(&grid.snapshot(Scrollback::None));
        same_in_vt100(&grid, other.screen());
    }
}

fn same_in_vt100(grid: &Grid, screen: &vt100::Screen) {
    let color = |color: vt100::Color| match color {
        vt100::Color::Default => Paint::Default,
        vt100::Color::Idx(index) => Paint::Palette(index),
        vt100::Color::Rgb(r, g, b) => Paint::Rgb(r, g, b),
    };
    let Size { cols, rows } = grid.size();
    for row in 0..rows {
        let view = grid.row(row);
        for column in 0..cols {
            let ours = view.cell(column).unwrap();
            let theirs = screen.cell(row, column).unwrap();
            let mut text = String::new();
            ours.push_to(&mut text);
            if !ours.marks().is_empty() || ours.width() == 0 {
                continue;
            }
            let shown = if theirs.has_contents() {
                theirs.contents()
            } else {
                " "
            };
            let style = ours.style();
            // The column left empty before a wide character that wrapped is coloured by nobody's rule.
            let edge = column + 1 == cols && view.wrapped() && text == " ";
            if edge {
                continue;
            }
            assert_eq!(shown, text, "text at {row},{column}");
            assert_eq!(color(theirs.fgcolor()), style.fg, "fg at {row},{column}");
            assert_eq!(color(theirs.bgcolor()), style.bg, "bg at {row},{column}");
            // vt100 knows one intensity at a time.
            assert!(
                style.dim || theirs.bold() == style.bold,
                "bold at {row},{column}"
            );
            assert_eq!(theirs.italic(), style.italic, "italic at {row},{column}");
            assert_eq!(theirs.inverse(), style.inverse, "inverse at {row},{column}");
        }
    }
    let cursor = grid.cursor();
    let at = screen.cursor_position();
    assert_eq!(at.0, cursor.row, "cursor row");
    assert_eq!(at.1.min(cols - 1), cursor.column, "cursor column");
    assert_eq!(screen.hide_cursor(), !cursor.visible);
    assert_eq!(screen.alternate_screen(), grid.modes().alternate_screen);
    assert_eq!(screen.bracketed_paste(), grid.modes().bracketed_paste);
    assert_eq!(screen.application_cursor(), grid.modes().application_cursor);
}

#[test]
fn effects_of_a_mirror_hold_no_replies() {
    let mut mirror = grid(20, 5, Role::Mirror);
    let mut effects = Vec::new();
    mirror.feed(
        b"\x1b[c\x1b[>c\x1b[=c\x1b[5n\x1b[6n\x1b[?6n\x1b[?u\x1b[?2026$p\x1bP$qm\x1b\\\x1b[>q\x1b]11;?\x07\
          \x1b]52;c;?\x07\x1b]7501;?\x07\x1bP+q4d73\x1b\\\x1b[14t\x1b[1;1;1;1;2;2*y\x1b]99;i=1:p=?;\x1b\\",
        &mut effects,
    );
    assert_eq!(effects, Vec::<Effect>::new());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_change_of_size_loses_text(
        lines in prop::collection::vec("([a-z世界][a-z世界 ]{0,60}[a-z世界])?", 1..60),
        sizes in prop::collection::vec((2_u16..60, 2_u16..20), 1..6),
        half_empty in any::<bool>(),
    ) {
        let mut grid = grid(30, 10, Role::Mirror);
        let mut effects = Vec::new();
        let lines = if half_empty { &lines[..lines.len().min(4)] } else { &lines[..] };
        grid.feed(lines.join("\r\n").as_bytes(), &mut effects);
        let expected = lines.join("\n");
        let expected = expected.trim_end_matches('\n');
        for (cols, rows) in sizes {
            grid.resize(Size { cols, rows });
            prop_assert_eq!(grid.panics(), 0);
            let text = grid.text(Extent::All, Form::Joined);
            prop_assert_eq!(text.trim_end_matches('\n'), expected, "at {}x{}", cols, rows);
            let cursor = grid.cursor();
            let blank_below = (cursor.row + 1..rows).all(|row| grid.row(row).text().is_empty());
            prop_assert!(blank_below, "the cursor is on the last line");
            assert_same(&copy(&grid), &grid, "resized");
        }
    }
}
