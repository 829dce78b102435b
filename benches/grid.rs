//! The terminal grid: parsing rates, memory and snapshots. Prints `figure NAME VALUE UNIT` lines; the
//! targets are 60 MB/s of lines and of agents' frames (goal for lines 120), 2 MB for a session with 10,000
//! lines of scrollback, 0.3 MB for an empty one, and 1 and 10 ms for a snapshot.

use std::time::Instant;

use wingman::script::memory::Meter;
use wingman::terminal::grid::{Case, Effect, Grid, Options, Role, Scrollback, Size};

const TOTAL_LEN: usize = 20 * 1024 * 1024;
const CHUNK_LEN: usize = 64 * 1024;
const SIZE: Size = Size {
    cols: 120,
    rows: 40,
};

fn grid() -> Grid {
    Grid::new(SIZE, Options::new(Role::Host))
}

/// Lines of 80 to 100 characters.
fn lines(total_len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(total_len + 128);
    let mut number = 0;
    while bytes.len() < total_len {
        let text = "the quick brown fox jumps over the lazy dog while nobody looks at the terminal";
        let width = 80 + number % 21;
        bytes.extend_from_slice(format!("{number:06} {text:<width$.width$}\r\n").as_bytes());
        number += 1;
    }
    bytes
}

/// Frames as agents draw them: a synchronized update that goes up, erases and paints in true colour.
fn frames(total_len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(total_len + 4096);
    let mut number = 0_u32;
    while bytes.len() < total_len {
        bytes.extend_from_slice(b"\x1b[?2026h\x1b[12A\r");
        for row in 0..12_u32 {
            let shade = (number * 7 + row * 20) % 256;
            bytes.extend_from_slice(
                format!(
                    "\x1b[2K\x1b[38;2;{shade};120;80m│ \x1b[1mworking\x1b[22m on step {number} of the plan \
                     \x1b[38;2;200;{shade};10mesc to interrupt\x1b[39m\x1b[48;2;30;30;30m  {row} tokens \x1b[0m\r\n"
                )
                .as_bytes(),
            );
        }
        bytes.extend_from_slice(b"\x1b[?25l\x1b[?2026l");
        number += 1;
    }
    bytes
}

fn feed_all(grid: &mut Grid, bytes: &[u8]) {
    let mut effects: Vec<Effect> = Vec::new();
    for chunk in bytes.chunks(CHUNK_LEN) {
        grid.feed(chunk, &mut effects);
        effects.clear();
    }
}

fn rate(name: &str, bytes: &[u8]) {
    let best = (0..3)
        .map(|_| {
            let mut grid = grid();
            let started = Instant::now();
            feed_all(&mut grid, bytes);
            bytes.len() as f64 / started.elapsed().as_secs_f64() / 1e6
        })
        .fold(0.0, f64::max);
    println!("figure {name} {best:.0} MB/s");
}

fn time<T>(name: &str, mut work: impl FnMut() -> T) {
    let best = (0..20)
        .map(|_| {
            let started = Instant::now();
            std::hint::black_box(work());
            started.elapsed().as_secs_f64() * 1e3
        })
        .fold(f64::MAX, f64::min);
    println!("figure {name} {best:.2} ms");
}

fn main() {
    let text = lines(TOTAL_LEN);
    rate("grid_ascii_lines", &text);
    rate("grid_agent_frames", &frames(TOTAL_LEN));
    rate(
        "grid_cyrillic_lines",
        "съешь ещё этих мягких французских булок да выпей чаю\r\n"
            .repeat(TOTAL_LEN / 100)
            .as_bytes(),
    );
    // The parser that all grids of a thread share is not part of any of them.
    let mut warm = grid();
    feed_all(&mut warm, b"\x1b[mx");
    let meter = Meter::start();
    let mut full = grid();
    println!(
        "figure grid_empty_memory {:.2} MB",
        meter.held() as f64 / 1e6
    );
    {
        let text = lines(1_100_000);
        feed_all(&mut full, &text);
    }
    assert_eq!(full.history_len(), 10_000);
    println!(
        "figure grid_full_memory {:.2} MB",
        meter.held() as f64 / 1e6
    );
    println!(
        "figure grid_full_memory_estimate {:.2} MB",
        full.memory_bytes() as f64 / 1e6
    );
    time("grid_snapshot_screen", || full.snapshot(Scrollback::None));
    time("grid_snapshot_all", || full.snapshot(Scrollback::All));
    time("grid_checksum", || full.checksum());
    time("grid_damage", || full.take_damage());
    time("grid_search", || {
        full.search("nobody looks", Case::Sensitive)
    });
    let mut cols = 120;
    time("grid_resize", || {
        cols = 219 - cols;
        full.resize(Size { cols, rows: 40 });
    });
}
