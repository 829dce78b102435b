//! What a console paints, read by an emulator that is not ours, shows what the owner's grid shows.

use proptest::prelude::*;
use wingman::base::limits::CONSOLE_MIRROR_LINES;
use wingman::console::cell::{Area, Buffer};
use wingman::console::mirror::Mirror;
use wingman::console::paint::{Damage, Painter};
use wingman::terminal::grid::{Grid, Options, Paint, Role, Scrollback, Size, Underline};

/// What a program, a person or the wire does.
#[derive(Clone, Debug)]
enum Step {
    Output(Vec<u8>),
    Resize(u16, u16),
    /// A console comes anew: its mirror starts from a snapshot, its terminal shows anything.
    Attach,
    /// The painter forgets what the terminal shows.
    Redraw,
    /// The mirror starts from a snapshot in the middle; the terminal keeps what it shows.
    Screen,
    Paint,
}

fn token() -> impl Strategy<Value = Vec<u8>> {
    let fixed = |text: &'static str| Just(text.as_bytes().to_vec()).boxed();
    let text = proptest::sample::select(vec![
        "a",
        "hello world",
        "漢字",
        "é",
        "e\u{301}",
        "─┐█",
        "한글",
        "Ж",
        "ｗｉｄｅ",
        "   ",
        "x漢",
    ]);
    let sgr = proptest::collection::vec(
        prop_oneof![
            Just("0".to_owned()),
            Just("1".to_owned()),
            Just("3".to_owned()),
            Just("4".to_owned()),
            Just("7".to_owned()),
            Just("22".to_owned()),
            Just("24".to_owned()),
            Just("27".to_owned()),
            (30..38u8).prop_map(|n| n.to_string()),
            (100..108u8).prop_map(|n| n.to_string()),
            any::<u8>().prop_map(|n| format!("38;5;{n}")),
            any::<[u8; 3]>().prop_map(|[r, g, b]| format!("48;2;{r};{g};{b}")),
        ],
        1..4,
    );
    prop_oneof![
        6 => text.prop_map(|text: &str| text.as_bytes().to_vec()),
        3 => sgr.prop_map(|codes| format!("\x1b[{}m", codes.join(";")).into_bytes()),
        3 => (1..14u16, 1..24u16).prop_map(|(y, x)| format!("\x1b[{y};{x}H").into_bytes()),
        2 => proptest::sample::select(vec![
            "\r\n", "\n", "\r", "\x08", "\t", "\x1b[K", "\x1b[1K", "\x1b[2J", "\x1b[J", "\x1bM",
            "\x1b[L", "\x1b[2M", "\x1b[3P", "\x1b[2@", "\x1b[4X", "\x1b[2S", "\x1b[T",
            "\x1b[?1049h", "\x1b[?1049l", "\x1b[2;5r", "\x1b[r", "\x1b[?25l", "\x1b[?25h",
            "\x1b7", "\x1b8", "\x1b[?5h", "\x1b[?5l", "\x1b]8;;http://x/\x1b\\", "\x1b]8;;\x1b\\",
        ]).prop_map(|text: &str| text.as_bytes().to_vec()),
        1 => fixed("0123456789012345678901234567890123456789"),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => proptest::collection::vec(token(), 1..12).prop_map(|parts| Step::Output(parts.concat())),
        1 => (2..30u16, 2..16u16).prop_map(|(cols, rows)| Step::Resize(cols, rows)),
        1 => Just(Step::Attach),
        1 => Just(Step::Redraw),
        1 => Just(Step::Screen),
        6 => Just(Step::Paint),
    ]
}

struct Stage {
    owner: Grid,
    mirror: Mirror,
    painter: Painter,
    buffer: Buffer,
    outer: vt100::Parser,
    all: bool,
    from_snapshot: bool,
}

impl Stage {
    fn new(cols: u16, rows: u16) -> Self {
        let size = Size { cols, rows };
        Self {
            owner: Grid::new(size, Options::new(Role::Host)),
            mirror: Mirror::new(cols, rows),
            painter: Painter::new(cols, rows),
            buffer: Buffer::new(cols, rows),
            outer: vt100::Parser::new(rows, cols, 0),
            all: true,
            from_snapshot: false,
        }
    }

    fn take_snapshot(&mut self) {
        self.from_snapshot = true;
        let size = self.owner.size();
        self.mirror = Mirror::new(size.cols, size.rows);
        self.mirror
            .feed(&self.owner.snapshot(Scrollback::Last(CONSOLE_MIRROR_LINES)));
        self.all = true;
    }

    fn go(&mut self, step: &Step) {
        let size = self.owner.size();
        match step {
            Step::Output(bytes) => {
                self.owner.feed(bytes, &mut Vec::new());
                // A wire cuts anywhere.
                let cut = bytes.len() / 2;
                self.mirror.feed(&bytes[..cut]);
                self.mirror.feed(&bytes[cut..]);
            }
            Step::Resize(cols, rows) => {
                self.owner.resize(Size {
                    cols: *cols,
                    rows: *rows,
                });
                self.mirror.resize(*cols, *rows);
                if self.from_snapshot {
                    // Wraps that a snapshot does not tell apart may reflow otherwise: after a new size
                    // the owner's screen stands for it.
                    self.take_snapshot();
                }
                self.painter.forget(*cols, *rows);
                self.buffer = Buffer::new(*cols, *rows);
                // A fresh one: vt100 panics on wide characters that its own resize cut in half.
                self.outer = vt100::Parser::new(*rows, *cols, 0);
                self.all = true;
            }
            Step::Attach => {
                self.take_snapshot();
                self.painter = Painter::new(size.cols, size.rows);
                self.outer
                    .process(b"\x1b[31mrubbish\x1b[5;5H\x1b[?25lof before");
            }
            Step::Redraw => {
                self.painter.forget(size.cols, size.rows);
                self.all = true;
            }
            Step::Screen => self.take_snapshot(),
            Step::Paint => self.paint(),
        }
    }

    fn paint(&mut self) {
        let mut damage = self.mirror.take_damage();
        if std::mem::take(&mut self.all) {
            damage = Damage::All;
        }
        let area = Area::new(0, 0, self.buffer.cols(), self.buffer.rows());
        self.mirror.copy((0, 0), area, &damage, &mut self.buffer);
        let mut out = Vec::new();
        self.painter
            .frame(&self.buffer, self.mirror.caret(), &damage, &mut out);
        self.outer.process(&out);
    }

    fn check(&self) {
        let screen = self.outer.screen();
        let size = self.owner.size();
        for y in 0..size.rows {
            let row = self.owner.row(y);
            for x in 0..size.cols {
                let cell = row.cell(x).unwrap();
                if cell.width() > 0 {
                    self.check_cell(&cell, screen.cell(y, x).unwrap(), x, y);
                }
            }
        }
        let cursor = self.owner.cursor();
        assert_eq!(screen.hide_cursor(), !cursor.visible, "cursor");
        assert_eq!(
            screen.cursor_position(),
            (cursor.row, cursor.column),
            "cursor"
        );
    }

    fn check_cell(
        &self,
        cell: &wingman::terminal::grid::CellView<'_>,
        shown: &vt100::Cell,
        x: u16,
        y: u16,
    ) {
        let mut text = String::new();
        cell.push_to(&mut text);
        let seen = if shown.has_contents() {
            shown.contents()
        } else {
            " "
        };
        assert_eq!(seen, text, "text at {x},{y}");
        let style = cell.style();
        let inverse = style.inverse != self.owner.modes().reverse_screen;
        assert_eq!(shown.inverse(), inverse, "inverse at {x},{y}");
        assert_eq!(color(shown.fgcolor()), style.fg, "text colour at {x},{y}");
        assert_eq!(color(shown.bgcolor()), style.bg, "ground at {x},{y}");
        assert_eq!(
            (shown.bold(), shown.italic(), shown.underline()),
            (style.bold, style.italic, style.underline != Underline::None),
            "attributes at {x},{y}"
        );
    }
}

fn color(color: vt100::Color) -> Paint {
    match color {
        vt100::Color::Default => Paint::Default,
        vt100::Color::Idx(index) => Paint::Palette(index),
        vt100::Color::Rgb(r, g, b) => Paint::Rgb(r, g, b),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_painted_screen_is_the_owners(
        steps in proptest::collection::vec(step(), 1..40),
        cols in 2..30u16,
        rows in 2..16u16,
    ) {
        let mut stage = Stage::new(cols, rows);
        for step in &steps {
            stage.go(step);
            if matches!(step, Step::Paint) {
                stage.check();
            }
        }
        stage.paint();
        stage.check();
    }
}

#[test]
fn a_flood_of_lines_paints_no_more_than_its_frames() {
    let mut stage = Stage::new(120, 40);
    let line = format!("{}\r\n", "0123456789 the quick brown fox ".repeat(3));
    let bytes = line.repeat(20 * 1024 * 1024 / line.len());
    let mut written = 0;
    // What twenty-five frames of 16 ms take of 20 MB in 0.4 s.
    for part in bytes.as_bytes().chunks(bytes.len() / 25) {
        stage.mirror.feed(part);
        let damage = stage.mirror.take_damage();
        let area = Area::new(0, 0, 120, 40);
        stage.mirror.copy((0, 0), area, &damage, &mut stage.buffer);
        let mut out = Vec::new();
        stage
            .painter
            .frame(&stage.buffer, stage.mirror.caret(), &damage, &mut out);
        written += out.len();
    }
    assert!(written <= 2 * 1024 * 1024, "{written} bytes");
}
