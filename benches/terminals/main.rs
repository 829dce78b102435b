//! Terminals side by side: a bare pseudo-terminal, tmux and Wingman in one run, at 120 by 40.
//! Prints `figure NAME VALUE UNIT` lines. Run it by `cargo xtask bench terminals` on a quiet machine.

mod host;
mod screen;

use std::path::Path;
use std::time::{Duration, Instant};

use host::{Machine, SlowLink, pss_kib, ticks};
use screen::Screen;

const KEYS: usize = 300;
const ASCII_LEN: usize = 20 * 1024 * 1024;
const FRAMES_LEN: usize = 10 * 1024 * 1024;
const SESSIONS: usize = 50;
const IDLE_SESSIONS: usize = 100;
const IDLE: Duration = Duration::from_secs(20);
/// No letter of it stands in the data, so every cell of it is painted.
const MARK: &[u8] = b"QZXJQZXJ";
/// The mark of every second round: a console that shows the same twice paints nothing.
const OTHER_MARK: &[u8] = b"ZQJXZQJX";
/// Keys that stand in no escape sequence that is sent.
const LETTERS: &[u8] = b"QZVY";

fn main() {
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wants = |name: &str| only.is_empty() || only.iter().any(|one| one == name);
    if wants("echo") {
        echo();
    }
    if wants("flood") {
        flood("ascii", &ascii());
        flood("frames", &frames());
    }
    if wants("attach") {
        attach();
    }
    if wants("new") {
        new_session();
    }
    if wants("memory") {
        memory();
    }
    if wants("idle") {
        idle();
    }
    if wants("interrupt") {
        interrupt();
    }
}

fn figure(name: &str, value: f64, unit: &str) {
    println!("figure {name} {value:.3} {unit}");
}

/// Numbered lines of 80 columns.
fn ascii() -> Vec<u8> {
    let mut data = Vec::with_capacity(ASCII_LEN + 100);
    for line in 0.. {
        if data.len() >= ASCII_LEN {
            break;
        }
        data.extend_from_slice(
            format!(
                "{line:08} the quick brown fox jumps over the lazy dog and runs away from it\n"
            )
            .as_bytes(),
        );
    }
    data
}

/// What coding agents draw: a synchronized update that moves up, erases and draws a box in colours.
fn frames() -> Vec<u8> {
    let mut data = Vec::with_capacity(FRAMES_LEN + 10_000);
    for frame in 0_usize.. {
        if data.len() >= FRAMES_LEN {
            break;
        }
        data.extend_from_slice(b"\x1b[?2026h\x1b[12A\r");
        for row in 0..12 {
            let shade = (frame * 7 + row * 20) % 256;
            data.extend_from_slice(
                format!(
                    "\x1b[2K\x1b[38;2;{shade};120;{}m\u{2502} \x1b[1mstep {:06}\x1b[22m \x1b[48;2;20;20;{shade}mreading file number {} of many\x1b[0m done \u{2502}\r\n",
                    255 - shade,
                    frame * 12 + row,
                    frame % 97,
                )
                .as_bytes(),
            );
        }
        data.extend_from_slice(b"\x1b[?2026l");
    }
    data
}

fn percentile(times: &mut [Duration], part: f64) -> f64 {
    times.sort_unstable();
    let at = ((times.len() - 1) as f64 * part).round() as usize;
    times[at].as_secs_f64() * 1e3
}

/// Types keys one after another, each once the one before has been painted.
fn keys(screen: &mut Screen) -> Vec<Duration> {
    let mut times = Vec::with_capacity(KEYS);
    for at in 0..KEYS {
        let key = LETTERS[at % LETTERS.len()];
        let started = Instant::now();
        screen.write(&[key]);
        screen.wait_for(&[key]);
        times.push(started.elapsed());
        if at % 60 == 59 {
            screen.write(b"\r");
            screen.settle();
        }
        // As a person types: nothing of the key before is under way any more.
        std::thread::sleep(Duration::from_millis(5));
    }
    times
}

fn echo() {
    let tell = |name: &str, mut times: Vec<Duration>| {
        figure(
            &format!("echo_{name}_p50"),
            percentile(&mut times, 0.5),
            "ms",
        );
        figure(
            &format!("echo_{name}_p95"),
            percentile(&mut times, 0.95),
            "ms",
        );
    };
    let mut bare = Screen::start(&mut Screen::command("cat", &[]));
    bare.settle();
    tell("bare", keys(&mut bare));
    drop(bare);
    let mut tmux = host::tmux(&["cat"]);
    tmux.settle();
    tell("tmux", keys(&mut tmux));
    drop(tmux);
    let machine = Machine::agent();
    machine.new_session("echo", &["cat"]);
    let mut ours = machine.console("echo", &[]);
    ours.settle();
    tell("wingman", keys(&mut ours));
    drop(ours);
    drop(machine);
    let machine = Machine::server();
    machine.new_session("echo", &["cat"]);
    let address = machine.address();
    let mut ours = machine.console("echo", &["--server", &address]);
    ours.settle();
    tell("server", keys(&mut ours));
}

/// Best of three: how fast the data goes through, and what reaches the terminal.
fn flood(name: &str, data: &[u8]) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("data");
    std::fs::write(&file, data).expect("write the data");
    let script = script(&file);
    let program = ["sh", "-c", &script];
    let run = |who: &str, screen: &mut Screen| {
        let mut best = (Duration::MAX, 0);
        for mark in [MARK, OTHER_MARK, MARK] {
            screen.settle();
            let (started, before) = (Instant::now(), screen.received());
            screen.write(b"\r");
            screen.wait_for(mark);
            let took = started.elapsed();
            screen.settle();
            best = best.min((took, screen.received() - before));
        }
        let rate = data.len() as f64 / 1e6 / best.0.as_secs_f64();
        figure(&format!("{name}_{who}"), rate, "MB/s");
        figure(&format!("{name}_{who}_sent"), best.1 as f64 / 1e6, "MB");
    };
    run(
        "bare",
        &mut Screen::start(&mut Screen::command("sh", &program[1..])),
    );
    run("tmux", &mut host::tmux(&program));
    let machine = Machine::agent();
    machine.new_session("flood", &program);
    run("wingman", &mut machine.console("flood", &[]));
}

/// Sends the data at every Enter, and one of two marks after it, in turn.
fn script(file: &Path) -> String {
    let text = |mark: &[u8]| String::from_utf8_lossy(mark).into_owned();
    let (one, other) = (text(MARK), text(OTHER_MARK));
    let (one, other) = (one.split_at(4), other.split_at(4));
    format!(
        "stty -echo; printf ready; a={} b={} c={} d={}; while read -r line; do cat {}; \
         printf '\\033[2J\\033[H%s%s\\r\\n' $a $b; e=$a; a=$c; c=$e; e=$b; b=$d; d=$e; done",
        one.0,
        one.1,
        other.0,
        other.1,
        file.display()
    )
}

/// From the start of the command until the screen of a session with 10,000 lines is there.
fn attach() {
    let mark = String::from_utf8_lossy(MARK).into_owned();
    let fill = format!("seq 1 10100; echo {mark}; exec cat");
    let measure = |mut start: Box<dyn FnMut() -> Screen>| {
        let mut times: Vec<Duration> = (0..9)
            .map(|_| {
                let started = Instant::now();
                let mut screen = start();
                screen.wait_for(MARK);
                started.elapsed()
            })
            .collect();
        percentile(&mut times, 0.5)
    };
    let mut first = host::tmux(&["sh", "-c", &fill]);
    first.wait_for(MARK);
    first.settle();
    figure("attach_tmux", measure(Box::new(host::tmux_attach)), "ms");
    drop(first);
    let machine = Machine::agent();
    machine.new_session("full", &["sh", "-c", &fill]);
    machine.wait_for_text("full", &mark);
    figure(
        "attach_wingman",
        measure(Box::new(|| machine.console("full", &[]))),
        "ms",
    );
}

/// From asking for a session until its prompt shows, less what the shell itself takes.
fn new_session() {
    let shell = ["sh", "-c", "printf %s%s QZXJ QZXJ; exec cat"];
    let mut bare: Vec<Duration> = (0..15)
        .map(|_| {
            let started = Instant::now();
            Screen::start(&mut Screen::command(shell[0], &shell[1..])).wait_for(MARK);
            started.elapsed()
        })
        .collect();
    let bare = percentile(&mut bare, 0.5);
    figure("new_bare", bare, "ms");
    let mut tmux: Vec<Duration> = (0..15)
        .map(|_| {
            let started = Instant::now();
            host::tmux(&shell).wait_for(MARK);
            started.elapsed()
        })
        .collect();
    figure("new_tmux", percentile(&mut tmux, 0.5) - bare, "ms");
    let machine = Machine::agent();
    let mut ours = machine.create_times(&shell, MARK, 15);
    figure("new_wingman", percentile(&mut ours, 0.5) - bare, "ms");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn memory() {
    for (name, script, mark) in [
        ("empty", "printf %s%s QZXJ QZXJ; exec cat", "QZXJQZXJ"),
        (
            "full",
            "i=10100; while [ $i -gt 0 ]; do echo \"$i the quick brown fox jumps over the lazy dog, and over what else lies in its way to the wood\"; i=$((i-1)); done; printf %s%s QZXJ QZXJ; exec cat",
            "QZXJQZXJ",
        ),
    ] {
        let machine = Machine::agent();
        let before = pss_kib(machine.agent_pid());
        for at in 0..SESSIONS {
            machine.new_session(&format!("s{at}"), &["sh", "-c", script]);
        }
        for at in 0..SESSIONS {
            machine.wait_for_text(&format!("s{at}"), mark);
        }
        // Checkpoints are made once output is quiet.
        std::thread::sleep(Duration::from_secs(3));
        let agent = (pss_kib(machine.agent_pid()) - before) / SESSIONS as f64;
        let holders = median(machine.holder_pids().into_iter().map(pss_kib).collect());
        figure(&format!("memory_{name}_agent"), agent / 1024.0, "MB");
        figure(&format!("memory_{name}_holder"), holders / 1024.0, "MB");
        figure(&format!("memory_{name}"), (agent + holders) / 1024.0, "MB");
        drop(machine);
        let tmux = host::tmux_memory(SESSIONS, script, mark);
        figure(&format!("memory_{name}_tmux"), tmux / 1024.0, "MB");
    }
}

fn idle() {
    let spent = |pids: &[u32]| {
        let before: u64 = pids.iter().map(|pid| ticks(*pid)).sum();
        std::thread::sleep(IDLE);
        pids.iter().map(|pid| ticks(*pid)).sum::<u64>() - before
    };
    let machine = Machine::agent();
    std::thread::sleep(Duration::from_secs(5));
    let none = spent(&[machine.agent_pid()]) as f64;
    figure("idle_none", none, "ticks");
    for at in 0..IDLE_SESSIONS {
        machine.new_session(
            &format!("s{at}"),
            &["sh", "-c", "printf %s%s QZXJ QZXJ; exec cat"],
        );
    }
    for at in 0..IDLE_SESSIONS {
        machine.wait_for_text(&format!("s{at}"), "QZXJQZXJ");
    }
    std::thread::sleep(Duration::from_secs(6));
    let mut pids = machine.holder_pids();
    pids.push(machine.agent_pid());
    let sessions = spent(&pids) as f64;
    figure("idle_sessions", sessions, "ticks");
    figure("idle_more", sessions - none, "ticks");
}

/// Ctrl-C into a flood behind a link of 100 KB/s, until its effect shows.
fn interrupt() {
    let machine = Machine::server();
    let script = "trap 'printf %s%s QZXJ QZXJ; exec cat' INT; yes 'the quick brown fox jumps over the lazy dog'";
    machine.new_session("flood", &["sh", "-c", script]);
    let link = SlowLink::start(&machine.address(), 100_000);
    let mut screen = machine.console("flood", &["--server", &link.address()]);
    std::thread::sleep(Duration::from_secs(5));
    screen.drain();
    let started = Instant::now();
    screen.write(b"\x03");
    screen.wait_for(MARK);
    figure("interrupt_wingman", started.elapsed().as_secs_f64(), "s");
}
