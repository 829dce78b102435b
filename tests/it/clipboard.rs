//! The clipboard against itself and against a real other client.

use std::io::Write;
use std::process::Stdio;

use wingman::platform::{Clipboard, PlatformError, RgbaImage};

use crate::support::{TestDisplay, wait_for};
use crate::typing::open_backend;

fn open_clipboard(display: &TestDisplay) -> Box<dyn Clipboard> {
    open_backend(display)
        .clipboard
        .expect("the clipboard opens")
}

/// Larger than any part, so that both directions go in parts.
fn long_text() -> String {
    "wingman 世界🙂 ".repeat(200_000)
}

fn checkers(width: u32, height: u32) -> RgbaImage {
    let pixels = (0..height)
        .flat_map(|y| (0..width).flat_map(move |x| [x as u8, y as u8, (x ^ y) as u8, 200]))
        .collect();
    RgbaImage {
        width,
        height,
        pixels,
    }
}

#[test]
fn text_goes_from_one_client_to_another_whatever_its_length() {
    let display = TestDisplay::start(640, 480);
    let (giver, taker) = (open_clipboard(&display), open_clipboard(&display));
    for text in ["plain", "", "äöü 世界 🙂\nsecond line", &long_text()] {
        giver.set_text(text).unwrap();
        assert!(taker.text().unwrap() == text, "{} bytes", text.len());
        assert!(giver.text().unwrap() == text, "{} bytes, own", text.len());
    }
}

#[test]
fn image_keeps_its_pixels() {
    let display = TestDisplay::start(640, 480);
    let (giver, taker) = (open_clipboard(&display), open_clipboard(&display));
    for image in [checkers(1, 1), checkers(700, 500)] {
        giver.set_image(image.clone()).unwrap();
        assert!(taker.image().unwrap() == image);
    }
    assert_eq!(taker.text(), Err(PlatformError::ClipboardEmpty("text")));
    let mut broken = checkers(4, 4);
    broken.pixels.pop();
    assert!(giver.set_image(broken).is_err());
}

#[test]
fn empty_and_cleared_clipboards_say_so() {
    let display = TestDisplay::start(640, 480);
    let (giver, taker) = (open_clipboard(&display), open_clipboard(&display));
    let empty = Err(PlatformError::ClipboardEmpty("text"));
    assert_eq!(taker.text(), empty);
    giver.set_text("x").unwrap();
    assert_eq!(taker.image(), Err(PlatformError::ClipboardEmpty("image")));
    taker.clear().unwrap();
    wait_for("the owner to have let go", || {
        (taker.text() == empty).then_some(())
    });
}

#[test]
fn another_program_reads_and_takes_over_in_parts() {
    let display = TestDisplay::start(640, 480);
    let clipboard = open_clipboard(&display);
    let xclip = |args: &[&str]| {
        let mut command = display.command("xclip");
        command.args(["-selection", "clipboard"]).args(args);
        command
    };
    let text = long_text();
    clipboard.set_text(&text).unwrap();
    let read = xclip(&["-o", "-target", "UTF8_STRING"])
        .output()
        .expect("xclip is missing; install it with: apt-get install xclip");
    assert!(
        read.stdout == text.as_bytes(),
        "{} bytes",
        read.stdout.len()
    );
    let mut writer = xclip(&["-i"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let theirs = text.to_uppercase();
    writer
        .stdin
        .take()
        .unwrap()
        .write_all(theirs.as_bytes())
        .unwrap();
    assert!(writer.wait().unwrap().success());
    // xclip becomes the owner a moment after its first process has ended.
    wait_for("xclip's text", || {
        (clipboard.text().as_deref() == Ok(theirs.as_str())).then_some(())
    });
    clipboard.set_text("ours again").unwrap();
    assert_eq!(clipboard.text().unwrap(), "ours again");
}

#[test]
fn display_that_has_gone_is_named() {
    let mut display = TestDisplay::start(640, 480);
    let clipboard = open_clipboard(&display);
    clipboard.set_text("x").unwrap();
    display.crash();
    let gone = clipboard.text();
    assert!(
        matches!(gone, Err(PlatformError::DisplayUnavailable(_))),
        "{gone:?}"
    );
}
