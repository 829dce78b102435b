//! Pointer and keyboard on a real display, and what happens to held keys when things die.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wingman::base::Point;
use wingman::desktop::{Chord, Desktop};
use wingman::platform::{Button, Input, InputOwner, PlatformError, Press, VirtualKey};
use wingman::wire::Code;
use x11rb::connection::Connection;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    ConnectionExt, CreateWindowAux, EventMask, InputFocus, KeyButMask, WindowClass,
};
use x11rb::rust_connection::RustConnection;

use crate::support::{TestDisplay, wait_for};
use crate::typing::open_backend;

const FIRST: InputOwner = InputOwner(1);
const SECOND: InputOwner = InputOwner(2);
const SHIFT: VirtualKey = VirtualKey(0x10);
const SHIFT_KEYCODE: u8 = 50;

fn open_input(display: &TestDisplay) -> Box<dyn Input> {
    open_backend(display).input.expect("input opens")
}

/// The keycodes that are down on the display.
fn keys_down(connection: &RustConnection) -> Vec<u8> {
    let keys = connection.query_keymap().unwrap().reply().unwrap().keys;
    (0..=u8::MAX)
        .filter(|key| keys[usize::from(key / 8)] & (1 << (key % 8)) != 0)
        .collect()
}

/// A window over the whole screen that takes keys and buttons.
fn event_window(connection: &RustConnection, root: u32) -> u32 {
    let window = connection.generate_id().unwrap();
    let events = EventMask::KEY_PRESS
        | EventMask::KEY_RELEASE
        | EventMask::BUTTON_PRESS
        | EventMask::BUTTON_RELEASE
        | EventMask::STRUCTURE_NOTIFY;
    connection
        .create_window(
            0,
            window,
            root,
            0,
            0,
            640,
            480,
            0,
            WindowClass::INPUT_OUTPUT,
            0,
            &CreateWindowAux::new().event_mask(events),
        )
        .unwrap();
    connection.map_window(window).unwrap();
    connection.flush().unwrap();
    wait_for("the window to be mapped", || {
        let event = connection.poll_for_event().unwrap()?;
        matches!(event, Event::MapNotify(_)).then_some(())
    });
    connection
        .set_input_focus(InputFocus::PARENT, window, x11rb::CURRENT_TIME)
        .unwrap()
        .check()
        .unwrap();
    window
}

/// The next events of keys (+ down, - up) and buttons (likewise, from 1000 on).
fn next_events(connection: &RustConnection, count: usize) -> Vec<i32> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let event = wait_for("a key or a button", || connection.poll_for_event().unwrap());
        seen.extend(match event {
            Event::KeyPress(event) => Some(i32::from(event.detail)),
            Event::KeyRelease(event) => Some(-i32::from(event.detail)),
            Event::ButtonPress(event) => Some(1000 + i32::from(event.detail)),
            Event::ButtonRelease(event) => Some(-1000 - i32::from(event.detail)),
            _ => None,
        });
    }
    seen
}

/// A `keys` request of the guard's protocol: one key down.
fn key_down_request(id: u32, owner: u64, key: u8) -> Vec<u8> {
    let mut message = vec![15, 0, 0, 0];
    message.extend(id.to_le_bytes());
    message.push(5);
    message.extend(owner.to_le_bytes());
    message.extend([key, 1]);
    message
}

#[test]
fn held_keys_are_released_when_the_agents_process_group_is_killed() {
    let display = TestDisplay::start(640, 480);
    let (connection, _) = display.connect();
    // `cat` stands for the agent: it holds the guard's pipe and dies with its whole group.
    let mut agent = display
        .command("sh")
        .args([
            "-c",
            "cat | exec \"$0\" input-guard",
            env!("CARGO_BIN_EXE_wingman"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("sh starts");
    let mut pipe = agent.stdin.take().expect("the pipe was asked for");
    pipe.write_all(&key_down_request(1, 1, 0x10)).unwrap();
    pipe.write_all(&key_down_request(2, 1, 0x41)).unwrap();
    wait_for("two keys to be down", || {
        (keys_down(&connection).len() == 2).then_some(())
    });
    let group = format!("-{}", agent.id());
    let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
    assert!(killed.expect("kill runs").success());
    wait_for("all keys to be up", || {
        keys_down(&connection).is_empty().then_some(())
    });
    agent.wait().expect("the group has ended");
}

#[test]
fn key_of_two_owners_stays_down_until_both_let_go() {
    let display = TestDisplay::start(640, 480);
    let (connection, _) = display.connect();
    let input = open_input(&display);
    input.key(FIRST, SHIFT, Press::Down).unwrap();
    input.key(SECOND, SHIFT, Press::Down).unwrap();
    input.button(FIRST, Button::Left, Press::Down).unwrap();
    assert_eq!(keys_down(&connection), [SHIFT_KEYCODE]);
    assert_eq!(input.release(FIRST).unwrap(), 1, "the button alone goes up");
    assert_eq!(keys_down(&connection), [SHIFT_KEYCODE]);
    assert_eq!(input.release(SECOND).unwrap(), 1);
    assert!(keys_down(&connection).is_empty());
    assert_eq!(input.release(SECOND).unwrap(), 0);
}

#[test]
fn unknown_key_is_named_and_nothing_goes_down() {
    let display = TestDisplay::start(640, 480);
    let (connection, _) = display.connect();
    let input = open_input(&display);
    let strokes = [(SHIFT, Press::Down), (VirtualKey(0x07), Press::Down)];
    let refused = input.keys(FIRST, &strokes);
    assert_eq!(refused, Err(PlatformError::KeyUnknown("0x07".into())));
    assert!(keys_down(&connection).is_empty());
}

#[test]
fn chords_and_buttons_arrive_in_order() {
    let display = TestDisplay::start(640, 480);
    let (connection, root) = display.connect();
    event_window(&connection, root);
    let desktop = Desktop::with_backend(open_backend(&display));
    let session = desktop.input(FIRST).unwrap();
    let chord = Chord::parse("ctrl+shift+t").unwrap();
    session.press(&chord).unwrap();
    assert_eq!(next_events(&connection, 6), [37, 50, 28, -28, -50, -37]);
    let at = Point { x: 300, y: 200 };
    for (button, number) in [
        (Button::Left, 1001),
        (Button::Middle, 1002),
        (Button::Right, 1003),
        (Button::Back, 1008),
        (Button::Forward, 1009),
    ] {
        session.click(at, button, 1).unwrap();
        assert_eq!(next_events(&connection, 2), [number, -number]);
    }
    session.click(at, Button::Left, 2).unwrap();
    assert_eq!(next_events(&connection, 4), [1001, -1001, 1001, -1001]);
    session.scroll(0, 2).unwrap();
    session.scroll(1, -1).unwrap();
    let wheel = [1004, -1004, 1004, -1004, 1005, -1005, 1007, -1007];
    assert_eq!(next_events(&connection, 8), wheel);
    let refused = session.click(at, Button::Left, 4).unwrap_err();
    assert_eq!(refused.code, Code::InvalidParams);
}

#[test]
fn smooth_move_and_drag_end_where_asked_and_stop_when_cancelled() {
    let display = TestDisplay::start(640, 480);
    let (connection, root) = display.connect();
    let desktop = Desktop::with_backend(open_backend(&display));
    let session = desktop.input(FIRST).unwrap();
    let (from, to) = (Point { x: 10, y: 10 }, Point { x: 600, y: 400 });
    let over = Duration::from_millis(60);
    session.move_to(from, Duration::ZERO, &|| false).unwrap();
    session.move_to(to, over, &|| false).unwrap();
    assert_eq!(session.pointer().unwrap(), to);
    session
        .drag(to, from, Button::Left, over, &|| false)
        .unwrap();
    assert_eq!(session.pointer().unwrap(), from);
    let cancelled = session.drag(from, to, Button::Left, Duration::from_secs(50), &|| {
        session.pointer().unwrap().x > 12
    });
    assert_eq!(cancelled.unwrap_err().code, Code::Cancelled);
    let pointer = connection.query_pointer(root).unwrap().reply().unwrap();
    assert!(!pointer.mask.contains(KeyButMask::BUTTON1));
    let too_long = session.move_to(to, Duration::from_secs(3600), &|| false);
    assert_eq!(too_long.unwrap_err().code, Code::InvalidParams);
}

#[test]
fn what_a_session_holds_stays_until_its_owner_is_released() {
    let display = TestDisplay::start(640, 480);
    let (connection, _) = display.connect();
    let desktop = Desktop::with_backend(open_backend(&display));
    let chord = Chord::parse("alt+f4").unwrap();
    desktop.input(FIRST).unwrap().hold(&chord).unwrap();
    assert_eq!(keys_down(&connection), [64, 70]);
    assert_eq!(desktop.release_input(FIRST).unwrap(), 2);
    assert!(keys_down(&connection).is_empty());
}

#[test]
fn cancelled_typing_stops_with_nothing_held() {
    let display = TestDisplay::start(640, 480);
    let (connection, root) = display.connect();
    event_window(&connection, root);
    let desktop = Desktop::with_backend(open_backend(&display));
    let session = desktop.input(FIRST).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let typing = scope.spawn(|| {
            let text = "A".repeat(10_000);
            session.type_text(&text, Duration::from_secs(1), &|| {
                stop.load(Ordering::Relaxed)
            })
        });
        next_events(&connection, 4);
        stop.store(true, Ordering::Relaxed);
        let stopped = typing.join().expect("typing does not panic");
        assert_eq!(stopped.unwrap_err().code, Code::Cancelled);
    });
    assert!(keys_down(&connection).is_empty());
}

#[test]
fn release_by_another_thread_ends_the_owners_typing() {
    let display = TestDisplay::start(640, 480);
    let (connection, root) = display.connect();
    event_window(&connection, root);
    let input = open_input(&display);
    std::thread::scope(|scope| {
        let typing = scope.spawn(|| {
            let text = "a".repeat(10_000);
            input.type_text(FIRST, &text, Duration::from_secs(1), &|| false)
        });
        next_events(&connection, 2);
        input.release(FIRST).unwrap();
        typing.join().expect("typing does not panic").unwrap();
    });
}

#[test]
fn display_that_dies_while_typing_is_one_clear_error() {
    let mut display = TestDisplay::start(640, 480);
    let (connection, root) = display.connect();
    event_window(&connection, root);
    let input = open_input(&display);
    std::thread::scope(|scope| {
        let typing = scope.spawn(|| {
            let text = "a".repeat(10_000);
            input.type_text(FIRST, &text, Duration::from_millis(20), &|| false)
        });
        next_events(&connection, 2);
        display.crash();
        let failed = typing.join().expect("typing does not panic");
        assert!(
            matches!(failed, Err(PlatformError::DisplayUnavailable(_))),
            "{failed:?}"
        );
    });
    let again = input.pointer();
    assert!(
        matches!(again, Err(PlatformError::DisplayUnavailable(_))),
        "{again:?}"
    );
    assert_eq!(input.release(FIRST), Ok(0));
}

#[test]
fn borrowed_keycodes_go_back_when_the_guard_ends() {
    let display = TestDisplay::start(640, 480);
    let (connection, root) = display.connect();
    event_window(&connection, root);
    let map = || {
        let setup = connection.setup();
        let count = setup.max_keycode - setup.min_keycode + 1;
        let reply = connection.get_keyboard_mapping(setup.min_keycode, count);
        let reply = reply.unwrap().reply().unwrap();
        let per_key = usize::from(reply.keysyms_per_keycode);
        let keys: Vec<Vec<u32>> = reply.keysyms.chunks(per_key).map(<[u32]>::to_vec).collect();
        keys.into_iter()
            .map(|key| {
                key.into_iter()
                    .filter(|keysym| *keysym != 0)
                    .collect::<Vec<u32>>()
            })
            .collect::<Vec<_>>()
    };
    let before = map();
    let input = open_input(&display);
    // This test's own window never reads the map, so the text counts as typed but not verified.
    let typed = input.type_text(FIRST, "世", Duration::ZERO, &|| false);
    assert!(
        matches!(typed, Err(PlatformError::Unverifiable(_))),
        "{typed:?}"
    );
    drop(input);
    wait_for("the map to be as before", || {
        (map() == before).then_some(())
    });
}
