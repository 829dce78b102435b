//! The `.test` files of libvterm: what to write, and what must show.
//!
//! ```text
//! PUSH "text"            write; Perl's string syntax with `x N` and `.`
//! RESIZE rows,cols       INIT, RESET: a fresh terminal
//! ?cursor = row,col      checks begin with a question mark
//! output "text"          what the terminal answered to the last PUSH
//! $SEQ 1 3: line         the line for each number in place of \#; $REP n: line n times
//! ```

use std::path::Path;

use wingman::terminal::grid::{
    Effect, Grid, Options, Paint, Role, RowView, Size, Style, Underline,
};

use super::Outcome;

const SIZE: Size = Size { cols: 80, rows: 25 };

struct Run {
    grid: Grid,
    outcome: Outcome,
    number: usize,
    /// Answers to the last PUSH that no `output` line took yet; `None` after other commands.
    answers: Option<Vec<u8>>,
    /// Checks of this file are of the parser or encoder.
    skipped: bool,
}

pub fn run(dir: &Path) -> Vec<Outcome> {
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "test"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 40, "test files are missing");
    paths.iter().map(|path| file(path)).collect()
}

fn fresh(size: Size) -> Grid {
    Grid::new(size, Options::new(Role::Host))
}

fn file(path: &Path) -> Outcome {
    let mut run = Run {
        grid: fresh(SIZE),
        outcome: Outcome {
            file: path.file_name().unwrap().to_string_lossy().into_owned(),
            ..Outcome::default()
        },
        number: 0,
        answers: None,
        skipped: false,
    };
    for line in std::fs::read_to_string(path).unwrap().lines() {
        run.number += 1;
        let line = line.trim();
        if line == "__END__" {
            break;
        }
        if !line.is_empty() && !line.starts_with('#') && !line.starts_with('!') {
            run.line(line);
        }
    }
    run.flush();
    run.outcome
}

impl Run {
    fn line(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("$SEQ ") {
            let (range, inner) = rest.split_once(':').unwrap();
            let mut ends = range.split_whitespace().map(|n| n.parse::<u32>().unwrap());
            let (low, high) = (ends.next().unwrap(), ends.next().unwrap());
            for n in low..=high {
                self.line(inner.trim().replace("\\#", &n.to_string()).trim());
            }
        } else if let Some(rest) = line.strip_prefix("$REP ") {
            let (count, inner) = rest.split_once(':').unwrap();
            for _ in 0..count.trim().parse::<u32>().unwrap() {
                self.line(inner.trim());
            }
        } else if let Some(check) = line.strip_prefix('?') {
            self.flush();
            let (what, expected) = check.split_once('=').unwrap();
            self.check(what.trim(), expected.trim());
        } else if let Some(expected) = line.strip_prefix("output ") {
            self.output(&perl(expected));
        } else if line.starts_with(|c: char| c.is_ascii_uppercase()) {
            self.flush();
            self.command(line);
        }
    }

    fn command(&mut self, line: &str) {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        self.answers = None;
        match command {
            "INIT" => self.grid = fresh(SIZE),
            "RESET" => self.grid = fresh(self.grid.size()),
            "WANTPARSER" | "WANTENCODING" => self.skipped = true,
            "RESIZE" => {
                let mut sides = rest.split(',').map(|side| side.trim().parse().unwrap());
                let (rows, cols) = (sides.next().unwrap(), sides.next().unwrap());
                self.grid.resize(Size { cols, rows });
            }
            "PUSH" => {
                let mut effects = Vec::new();
                self.grid.feed(&perl(rest), &mut effects);
                let replies = effects.into_iter().filter_map(|effect| match effect {
                    Effect::Reply(bytes) => Some(bytes),
                    _ => None,
                });
                self.answers = Some(replies.collect::<Vec<_>>().concat());
            }
            _ => {}
        }
    }

    /// Answers that nothing expected are a difference as well.
    fn flush(&mut self) {
        let left = self.answers.take().filter(|left| !left.is_empty());
        if let Some(left) = left.filter(|_| !self.skipped) {
            let number = self.number;
            self.outcome.check(false, || {
                format!("before line {number}: answers `{}`", left.escape_ascii())
            });
        }
    }

    fn output(&mut self, expected: &[u8]) {
        let Some(answers) = self.answers.as_mut().filter(|_| !self.skipped) else {
            return;
        };
        let number = self.number;
        let passed = answers.starts_with(expected);
        let shown = answers.escape_ascii().to_string();
        if passed {
            answers.drain(..expected.len());
        } else {
            answers.clear();
        }
        self.outcome.check(passed, || {
            let expected = expected.escape_ascii();
            format!("line {number}: answers `{shown}`, not `{expected}`")
        });
    }

    fn check(&mut self, what: &str, expected: &str) {
        if self.skipped {
            return;
        }
        let (kind, place) = what.split_once(' ').unwrap_or((what, ""));
        let numbers: Vec<u16> = place
            .split(',')
            .filter_map(|number| number.trim().parse().ok())
            .collect();
        let rows = self.grid.size().rows;
        if kind != "pen" && kind != "cursor" && numbers.first().is_none_or(|row| *row >= rows) {
            return;
        }
        let (actual, expected) = match kind {
            "cursor" => {
                let cursor = self.grid.cursor();
                (
                    format!("{},{}", cursor.row, cursor.column),
                    expected.to_owned(),
                )
            }
            "pen" => match pen(self.grid.pen(), place.trim()) {
                Some(actual) => (actual, expected.to_owned()),
                None => return,
            },
            "screen_row" => (row_text(self.grid.row(numbers[0])), text(expected)),
            "screen_chars" | "screen_text" => (self.area(&numbers), text(expected)),
            "screen_cell" => (self.cell(numbers[0], numbers[1]), expected.to_owned()),
            "screen_eol" => {
                let blank = self.tail_is_blank(numbers[0], numbers[1]);
                (u8::from(blank).to_string(), expected.to_owned())
            }
            "lineinfo" => {
                let above = numbers[0].checked_sub(1);
                let continues = above.is_some_and(|row| self.grid.row(row).wrapped());
                let actual = if continues { "cont" } else { "" };
                (actual.to_owned(), expected.to_owned())
            }
            _ => return,
        };
        let number = self.number;
        self.outcome.check(actual == expected, || {
            let actual = actual.escape_debug();
            format!(
                "line {number}: {what} is `{actual}`, not `{}`",
                expected.escape_debug()
            )
        });
    }

    fn area(&self, numbers: &[u16]) -> String {
        let &[top, left, bottom, right] = numbers else {
            panic!("an area has four numbers: {numbers:?}");
        };
        let lines = (top..bottom).map(|row| {
            let mut line = String::new();
            for column in left..right {
                if let Some(cell) = self.grid.row(row).cell(column) {
                    cell.push_to(&mut line);
                }
            }
            line.truncate(line.trim_end().len());
            line
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn tail_is_blank(&self, row: u16, column: u16) -> bool {
        let row = self.grid.row(row);
        row.cells()
            .skip(usize::from(column))
            .all(|cell| cell.character() == ' ')
    }

    fn cell(&self, row: u16, column: u16) -> String {
        let cell = self.grid.row(row).cell(column).unwrap();
        let mut chars = Vec::new();
        if cell.character() != ' ' {
            chars.push(cell.character());
            chars.extend(cell.marks());
        }
        let chars: Vec<String> = chars.iter().map(|c| format!("{:#x}", *c as u32)).collect();
        let style = cell.style();
        let mut attributes = String::new();
        let underline = match style.underline {
            Underline::None => "",
            Underline::Single => "U1",
            Underline::Double => "U2",
            _ => "U3",
        };
        for (on, name) in [
            (style.bold, "B"),
            (style.underline != Underline::None, underline),
            (style.italic, "I"),
            (style.inverse != self.grid.modes().reverse_screen, "R"),
            (style.strikeout, "S"),
        ] {
            if on {
                attributes.push_str(name);
            }
        }
        format!(
            "{{{}}} width={} attrs={{{attributes}}} fg={} bg={}",
            chars.join(","),
            cell.width(),
            color(style.fg, [240; 3]),
            color(style.bg, [0; 3])
        )
    }
}

fn row_text(row: RowView<'_>) -> String {
    let text = row.text();
    text.trim_end().to_owned()
}

/// libvterm's colours.
fn color(paint: Paint, default: [u8; 3]) -> String {
    let levels = [0, 0x33, 0x66, 0x99, 0xcc, 0xff];
    let [r, g, b] = match paint {
        Paint::Default => default,
        Paint::Rgb(r, g, b) => [r, g, b],
        Paint::Palette(7) => [224; 3],
        Paint::Palette(8) => [128; 3],
        Paint::Palette(index @ 0..16) => {
            let (low, high) = if index < 8 { (0, 224) } else { (64, 255) };
            let bit = |n: u8| if index & n != 0 { high } else { low };
            [bit(1), bit(2), bit(4)]
        }
        Paint::Palette(index @ 16..232) => {
            let cube = usize::from(index - 16);
            [levels[cube / 36], levels[cube / 6 % 6], levels[cube % 6]]
        }
        Paint::Palette(index) => [(index - 232) * 11; 3],
    };
    format!("rgb({r},{g},{b})")
}

/// The pen's attribute in libvterm's words; `None` for those that only it has.
fn pen(style: Style, name: &str) -> Option<String> {
    let on = |flag: bool| String::from(if flag { "on" } else { "off" });
    let paint = |paint: Paint, default: &str| match paint {
        Paint::Default => default.to_owned(),
        Paint::Palette(index) => format!("idx({index})"),
        Paint::Rgb(r, g, b) => format!("rgb({r},{g},{b})"),
    };
    Some(match name {
        "bold" => on(style.bold),
        "italic" => on(style.italic),
        "reverse" => on(style.inverse),
        "underline" => match style.underline {
            Underline::None => "0".into(),
            Underline::Single => "1".into(),
            Underline::Double => "2".into(),
            _ => "3".into(),
        },
        "foreground" => paint(style.fg, "rgb(240,240,240,is_default_fg)"),
        "background" => paint(style.bg, "rgb(0,0,0,is_default_bg)"),
        "blink" | "small" => on(false),
        "font" => "0".into(),
        "baseline" => "normal".into(),
        _ => return None,
    })
}

/// The expected text of a check: a string, or numbers that are bytes or code points.
fn text(expected: &str) -> String {
    let text = if expected.starts_with('"') {
        String::from_utf8_lossy(&perl(expected)).into_owned()
    } else {
        let numbers: Vec<u32> = expected
            .split(',')
            .filter_map(|number| {
                u32::from_str_radix(number.trim().trim_start_matches("0x"), 16).ok()
            })
            .collect();
        let bytes: Option<Vec<u8>> = numbers.iter().map(|n| u8::try_from(*n).ok()).collect();
        match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
            Some(text) => text,
            None => numbers.iter().filter_map(|n| char::from_u32(*n)).collect(),
        }
    };
    let lines: Vec<&str> = text.split('\n').map(str::trim_end).collect();
    lines.join("\n")
}

/// A Perl expression of strings, `.` and `x N`.
fn perl(source: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = source.trim();
    while let Some(body) = rest.trim_start().strip_prefix('"') {
        let (piece, after) = quoted(body);
        rest = after.trim_start();
        let mut count = 1;
        if let Some(times) = rest.strip_prefix('x') {
            let digits = times.trim_start();
            let end = digits.find(|c: char| !c.is_ascii_digit());
            let (digits, after) = digits.split_at(end.unwrap_or(digits.len()));
            count = digits.parse().unwrap();
            rest = after.trim_start();
        }
        out.extend(piece.repeat(count));
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    out
}

/// A string up to its closing quote, and what follows.
fn quoted(body: &str) -> (Vec<u8>, &str) {
    let mut out = Vec::new();
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (out, &body[at + 1..]),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('e') => out.push(0x1b),
                Some('n') => out.push(b'\n'),
                Some('r') => out.push(b'\r'),
                Some('t') => out.push(b'\t'),
                Some('b') => out.push(8),
                Some('a') => out.push(7),
                Some('f') => out.push(12),
                Some('0') => out.push(0),
                Some('x') => {
                    let rest = chars.as_str();
                    let (digits, skip) = match rest.strip_prefix('{') {
                        Some(braced) => {
                            let len = braced.find('}').unwrap();
                            (&braced[..len], len + 2)
                        }
                        None => (&rest[..2], 2),
                    };
                    let number = u32::from_str_radix(digits, 16).unwrap();
                    match u8::try_from(number) {
                        Ok(byte) => out.push(byte),
                        Err(_) => out.extend(char::from_u32(number).unwrap().to_string().bytes()),
                    }
                    chars = rest[skip..].char_indices();
                    let tail = chars.as_str();
                    let (piece, after) = quoted(tail);
                    out.extend(piece);
                    return (out, after);
                }
                Some(other) => out.extend(other.to_string().bytes()),
                None => break,
            },
            other => out.extend(other.to_string().bytes()),
        }
    }
    (out, "")
}
