//! Text typed into a real xterm arrives as it was meant, whatever the layout.

use std::time::Duration;

use tempfile::TempDir;
use wingman::platform::{Backend, Input, InputOwner, OpenOptions, Press, VirtualKey, native};

use crate::support::{TestDisplay, wait_for};

const OWNER: InputOwner = InputOwner(1);

/// A test's display, its input injected by this build's own guard.
pub fn open_backend(display: &TestDisplay) -> Backend {
    native::open(&OpenOptions {
        display: Some(display.name().to_owned()),
        guard_program: Some(env!("CARGO_BIN_EXE_wingman").into()),
        ..OpenOptions::default()
    })
}

/// An xterm that writes what is typed into a file.
struct Typewriter {
    folder: TempDir,
    _display: TestDisplay,
    input: Box<dyn Input>,
}

impl Typewriter {
    fn start(layout: &[&str]) -> Self {
        let mut display = TestDisplay::start(640, 480).with_window_manager();
        let folder = TempDir::new().expect("a folder");
        let status = display.command("setxkbmap").args(layout).status();
        assert!(status.expect("setxkbmap (x11-xkb-utils) runs").success());
        let script = format!(
            "stty -echo; touch {0}/ready; exec cat > {0}/typed",
            folder.path().display()
        );
        let mut command = display.command("xterm");
        command
            .env("LC_ALL", "C.UTF-8")
            .args(["-u8", "-e", "sh", "-c", &script]);
        display.spawn_program(&mut command, "xterm");
        wait_for("the terminal to be ready", || {
            folder.path().join("ready").exists().then_some(())
        });
        let (connection, _) = display.connect();
        wait_for("the terminal to have the keyboard", || {
            use x11rb::protocol::xproto::ConnectionExt;
            let focus = connection.get_input_focus().ok()?.reply().ok()?.focus;
            (focus > 1).then_some(())
        });
        let input = open_backend(&display).input.expect("input opens");
        Self {
            folder,
            _display: display,
            input,
        }
    }

    fn type_text(&self, text: &str) {
        self.input
            .type_text(OWNER, text, Duration::ZERO, &|| false)
            .expect("the text is typed");
    }

    fn typed(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join("typed")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Types a line and answers what arrived.
    fn line(&self, text: &str) -> String {
        let before = self.typed();
        self.type_text(&format!("{text}\n"));
        let arrived = wait_for("the line to arrive", || {
            Some(self.typed()).filter(|typed| typed.len() > before.len() && typed.ends_with('\n'))
        });
        arrived[before.len()..].trim_end_matches('\n').to_owned()
    }
}

const LINES: [&str; 5] = [
    "Hello, World! The quick brown Fox (jumps) over 13 lazy dogs.",
    "~`!@#$%^&*()_+-={}[]|:;\"'<>,.?/",
    "äöü ÄÖÜ ß é è ê ç ñ € £ § µ ø Ł",
    "世界 こんにちは 안녕 Привет Ελληνικά",
    "🙂 mixed 世界 with plain text, and 🚀 again 🙂🙂",
];

fn types_all_lines(layout: &[&str]) {
    let typewriter = Typewriter::start(layout);
    for line in LINES {
        assert_eq!(typewriter.line(line), line, "layout {layout:?}");
    }
}

#[test]
fn any_text_arrives_on_the_us_layout() {
    types_all_lines(&["us"]);
}

#[test]
fn any_text_arrives_on_the_german_layout() {
    types_all_lines(&["de"]);
}

#[test]
fn any_text_arrives_on_the_french_layout() {
    types_all_lines(&["fr"]);
}

#[test]
fn more_new_symbols_than_spare_keycodes_arrive_in_order() {
    let typewriter = Typewriter::start(&["us"]);
    let line: String = ('一'..).take(120).collect();
    assert_eq!(typewriter.line(&line), line);
}

#[test]
fn caps_lock_and_held_shift_do_not_change_what_is_typed() {
    let typewriter = Typewriter::start(&["us"]);
    let keys = &typewriter.input;
    let (caps_lock, shift) = (VirtualKey(0x14), VirtualKey(0x10));
    let tap = [(caps_lock, Press::Down), (caps_lock, Press::Up)];
    keys.keys(OWNER, &tap).expect("caps lock is on");
    let line = "Caps lock is On: 1 ä Ж";
    assert_eq!(typewriter.line(line), line);
    keys.keys(OWNER, &tap).expect("caps lock is off");
    keys.key(OWNER, shift, Press::Down).expect("shift is down");
    let line = "shift is Held: 1 ä ж";
    assert_eq!(typewriter.line(line), line);
    assert_eq!(keys.release(OWNER), Ok(1), "shift went down again");
}
