//! A console on a real terminal: what it shows, and that the terminal is as it was however it ends.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use wingman::base::EpochMillis;
use wingman::console::{self, LEAVE, Left, Options, Place};
use wingman::wire::messages::attention::State;
use wingman::wire::messages::sessions::MachineStatus;

use crate::support::scripted_place::{Act, ScriptedPlace, echo, record};

const CHILD: &str = "WINGMAN_TEST_CONSOLE";

/// Not a test of its own: the console process of the tests below.
#[test]
fn the_console_process_of_these_tests() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let left = runtime.block_on(async {
        console::run(Options {
            places: places(),
            focus: Some("first".into()),
            mode: Default::default(),
            exclusive: false,
            takeover: false,
            full_screen: false,
            label: "test".into(),
            location: Default::default(),
            folder: None,
            config: Default::default(),
        })
        .await
    });
    println!("left: {left:?}");
}

fn places() -> Vec<Place> {
    let now = EpochMillis::now();
    let local = ScriptedPlace::default();
    let program = Arc::new(|bytes: &[u8]| match bytes {
        b"F" => {
            let line = "0123456789 the quick brown fox jumps over the lazy dog 0123456789\r\n";
            vec![
                Act::Print(line.repeat(300_000).into_bytes()),
                Act::Print(b"flood over\r\n".to_vec()),
            ]
        }
        b"B" => vec![Act::Break],
        b"X" => vec![Act::Exit(0)],
        _ => echo()(bytes),
    });
    local.add(
        record("1111", "first", "bash", State::Idle, now),
        b"ready$ ",
        program,
    );
    local.add(
        record("panic", "second", "claude", State::Waiting, now),
        b"",
        echo(),
    );
    let machines = vec![MachineStatus {
        name: "m1".into(),
        hostname: Some("tower".into()),
        ok: true,
        fetched_at: None,
        error: None,
    }];
    let server = ScriptedPlace::of_server(machines);
    let mut far = record("2222", "third", "codex", State::Working, now);
    far.machine = "m1".into();
    server.add(far, b"far away$ ", echo());
    vec![
        Place {
            name: "here".into(),
            local: true,
            backend: Arc::new(local),
        },
        Place {
            name: "server".into(),
            local: false,
            backend: Arc::new(server),
        },
    ]
}

/// A console process on a terminal of its own.
struct Terminal {
    master: Option<Box<dyn MasterPty + Send>>,
    input: Option<Box<dyn Write + Send>>,
    child: Box<dyn Child + Send + Sync>,
    output: Receiver<Vec<u8>>,
    bytes: Vec<u8>,
    screen: vt100::Parser,
    before: Settings,
}

type Settings = (u32, u32, u32, u32);

fn settings(master: &dyn MasterPty) -> Settings {
    use std::os::fd::BorrowedFd;
    let fd = master.as_raw_fd().unwrap();
    // SAFETY: the master outlives this call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let read = rustix::termios::tcgetattr(fd).unwrap();
    (
        read.input_modes.bits(),
        read.output_modes.bits(),
        read.control_modes.bits(),
        read.local_modes.bits(),
    )
}

impl Terminal {
    fn open(cols: u16, rows: u16) -> Self {
        let size = PtySize {
            rows,
            cols,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let before = settings(&*pair.master);
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        command.args([
            "the_console_process_of_these_tests",
            "--nocapture",
            "--test-threads=1",
        ]);
        command.env(CHILD, "1");
        command.env("TERM", "xterm-256color");
        command.env("RUST_BACKTRACE", "0");
        let child = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            while let Ok(len @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        let input = pair.master.take_writer().unwrap();
        // The slave stays open here, so that the settings can be read after the child.
        std::mem::forget(pair.slave);
        let mut terminal = Self {
            master: Some(pair.master),
            input: Some(input),
            child,
            output,
            bytes: Vec::new(),
            screen: vt100::Parser::new(rows, cols, 0),
            before,
        };
        terminal.wait_for("ready$");
        terminal
    }

    fn type_bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    /// Reads until the screen shows a text.
    fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |terminal| {
            terminal.screen.screen().contents().contains(text)
        });
    }

    fn wait_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !done(self) {
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => {
                    self.screen.process(&bytes);
                    self.bytes.extend_from_slice(&bytes);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("no {what:?} on:\n{}", self.screen.screen().contents());
                }
            }
        }
    }

    fn kill(&self, signal: rustix::process::Signal) {
        let pid = self.child.process_id().unwrap() as i32;
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end; everything that the console changed has to be as before.
    fn assert_restored(mut self, says: &str) {
        self.child.wait().unwrap();
        self.wait_until(says, |terminal| {
            String::from_utf8_lossy(&terminal.bytes).contains(says)
        });
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen());
        assert!(!screen.hide_cursor());
        assert!(!screen.bracketed_paste());
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        let times = self
            .bytes
            .windows(LEAVE.len())
            .filter(|part| *part == LEAVE)
            .count();
        assert_eq!(times, 1, "the terminal is given back once");
        assert_eq!(settings(self.master.as_deref().unwrap()), self.before);
    }
}

fn said(left: Left) -> String {
    format!("left: Ok({left:?})")
}

#[test]
fn detaching_restores_the_terminal() {
    let mut terminal = Terminal::open(100, 30);
    terminal.type_bytes(b"typed");
    terminal.wait_for("typed");
    terminal.type_bytes(b"\x1cd");
    terminal.assert_restored(&said(Left::Detached));
}

#[test]
fn being_told_to_end_restores_the_terminal() {
    use rustix::process::Signal;
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let terminal = Terminal::open(80, 24);
        terminal.kill(signal);
        terminal.assert_restored(&said(Left::Told));
    }
}

#[test]
fn a_panic_restores_the_terminal_before_its_message() {
    let mut terminal = Terminal::open(80, 24);
    terminal.type_bytes(b"\x1cw");
    terminal.wait_until("the end", |terminal| {
        String::from_utf8_lossy(&terminal.bytes).contains("makes the console panic")
    });
    let text = String::from_utf8_lossy(&terminal.bytes).into_owned();
    let leave = text.find(std::str::from_utf8(LEAVE).unwrap()).unwrap();
    assert!(leave < text.find("makes the console panic").unwrap());
    terminal.assert_restored("makes the console panic");
}

#[test]
fn a_closed_terminal_ends_the_console() {
    let mut terminal = Terminal::open(80, 24);
    // Without a slave of ours the terminal is gone when its master is.
    terminal.input = None;
    terminal.master = None;
    let mut child = terminal.child;
    drop(terminal.output);
    assert!(child.wait().is_ok());
}

#[test]
fn sessions_are_switched_lost_and_found_by_keys() {
    let mut terminal = Terminal::open(120, 30);
    terminal.wait_for("tower");
    terminal.type_bytes(b"B");
    terminal.wait_for("lost");
    terminal.type_bytes(b"\x1cR");
    terminal.wait_until("the session again", |terminal| {
        !terminal.screen.screen().contents().contains("lost")
    });
    terminal.type_bytes(b"typed");
    terminal.wait_for("ready$ typed");
    terminal.type_bytes(b"\x1cn");
    terminal.wait_for("far away$");
    terminal.type_bytes(b"\x1cl");
    terminal.wait_for("ready$ typed");
    terminal.type_bytes(b"X");
    terminal.wait_for("This session ended");
    terminal.type_bytes(b"\x1cd");
    terminal.assert_restored(&said(Left::Detached));
}

#[test]
fn a_new_size_is_taken_at_once() {
    let mut terminal = Terminal::open(100, 30);
    let size = PtySize {
        rows: 10,
        cols: 40,
        pixel_width: 0,
        pixel_height: 0,
    };
    terminal.master.as_ref().unwrap().resize(size).unwrap();
    terminal.screen.screen_mut().set_size(10, 40);
    terminal.type_bytes(b"small");
    terminal.wait_until("the small screen", |terminal| {
        let rows: Vec<String> = terminal.screen.screen().rows(0, 40).collect();
        rows[0].starts_with("ready$ small") && rows[9].contains("first")
    });
    terminal.type_bytes(b"\x1cd");
    terminal.assert_restored(&said(Left::Detached));
}

#[test]
fn a_flood_writes_little_and_ends_on_its_last_line() {
    let mut terminal = Terminal::open(120, 40);
    let before = terminal.bytes.len();
    let began = Instant::now();
    terminal.type_bytes(b"F");
    terminal.wait_for("flood over");
    // About sixty frames a second, each at most a screen with its colours.
    let frames = began.elapsed().as_millis() as usize / 16 + 8;
    let written = terminal.bytes.len() - before;
    assert!(
        written < frames * 8 * 1024,
        "{written} bytes in {:?}",
        began.elapsed()
    );
    terminal.type_bytes(b"\x1cd");
    terminal.assert_restored(&said(Left::Detached));
}
