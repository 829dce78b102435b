//! Scripts on a real X server with a window manager and a terminal.

use std::sync::Arc;

use serde_json::json;
use wingman::desktop::Desktop;
use wingman::platform::OpenOptions;
use wingman::script::{Outcome, StopReason};
use wingman::wire::messages::scripts::Language;

use crate::script_host::{LANGUAGES, TestHost, run, start};
use crate::support::{TestDisplay, wait_for};

fn desktop_of(display: &TestDisplay) -> Arc<Desktop> {
    Arc::new(Desktop::open(&OpenOptions {
        display: Some(display.name().to_owned()),
        guard_program: Some(env!("CARGO_BIN_EXE_wingman").into()),
        ..OpenOptions::default()
    }))
}

#[test]
fn the_first_script_drives_a_terminal() {
    for (language, source) in [
        (
            Language::Lua,
            include_str!("../../assets/scripts/first.lua"),
        ),
        (
            Language::Rhai,
            include_str!("../../assets/scripts/first.rhai"),
        ),
    ] {
        let display = TestDisplay::start(800, 600).with_window_manager();
        let mut host = TestHost::default();
        host.desktop = Some(desktop_of(&display));
        let host = Arc::new(host);
        let outcome = run(&host, language, source);
        assert_eq!(outcome, Outcome::Succeeded, "{:?}", host.lines());
        assert_eq!(
            host.result(),
            Some(json!({"hello": "world", "picture": "first.png"}))
        );
        assert_eq!(host.lines()[0], "the screen has 800 x 600 pixels");
        let (content_type, bytes) = host.artifact("first.png").expect("the picture is stored");
        assert_eq!(content_type, "image/png");
        let picture = image::load_from_memory(&bytes).expect("it is a picture");
        assert_eq!((picture.width(), picture.height()), (800, 600));
    }
}

#[test]
fn colours_and_pictures_are_found_where_they_are() {
    for language in LANGUAGES {
        let display = TestDisplay::start(320, 240);
        let painted = crate::support::Painter::new(&display);
        painted.window(wingman::base::Rect::new(40, 50, 20, 10), 0x00ff_0000, None);
        painted.sync();
        let dir = tempfile::tempdir().unwrap();
        let mut host = TestHost::in_dir(dir.path());
        host.desktop = Some(desktop_of(&display));
        let host = Arc::new(host);
        let source = match language {
            Language::Lua => {
                "local at, found = screen.findColor(0xff0000)
                 image.save(screen.grab({x = 38, y = 48, width = 8, height = 8}), 'corner.png')
                 local where, seen = screen.findImage('corner.png')
                 result.set({found, at.x, at.y, seen, where.x, where.y, #screen.findColors('#ff0000'),
                   screen.getPixel(59, 59).r, select(2, screen.findColor(0x00ff00))})"
            }
            Language::Rhai => {
                "let f = screen.findColor(0xff0000);
                 image.save(screen.grab(#{x: 38, y: 48, width: 8, height: 8}), \"corner.png\");
                 let w = screen.findImage(\"corner.png\");
                 result.set([f[1], f[0].x, f[0].y, w[1], w[0].x, w[0].y, screen.findColors(\"#ff0000\").len(),
                   screen.getPixel(59, 59).r, screen.findColor(0x00ff00)[1]])"
            }
        };
        assert_eq!(
            run(&host, language, source),
            Outcome::Succeeded,
            "{:?}",
            host.lines()
        );
        let wanted = json!([true, 40, 50, true, 38, 48, 200, 255, false]);
        assert_eq!(host.result(), Some(wanted), "{language:?}");
    }
}

#[test]
fn a_stop_lets_up_held_keys_on_the_real_server() {
    let display = TestDisplay::start(320, 240);
    let mut host = TestHost::default();
    host.desktop = Some(desktop_of(&display));
    let host = Arc::new(host);
    let source = "input.keyDown('shift') print('held') util.sleep(1e9)";
    let running = start(
        &host,
        Language::Lua,
        source,
        wingman::script::Profile::script(),
    );
    host.wait_for_line("held");
    let (connection, _) = display.connect();
    let keys_down = || {
        use x11rb::protocol::xproto::ConnectionExt;
        let map = connection.query_keymap().unwrap().reply().unwrap();
        map.keys.iter().map(|byte| byte.count_ones()).sum::<u32>()
    };
    wait_for("shift to be down", || (keys_down() == 1).then_some(()));
    host.stop(StopReason::Cancelled);
    assert_eq!(
        running.join().unwrap(),
        Outcome::Stopped(StopReason::Cancelled)
    );
    wait_for("shift to be up", || (keys_down() == 0).then_some(()));
}
