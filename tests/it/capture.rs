//! Grabbing a real X display.

use std::sync::Arc;

use wingman::base::{Color, Point, Rect, limits};
use wingman::platform::{Area, Capture, Cursor, Frame, OpenOptions, PlatformError, native};
use x11rb::connection::Connection;
use x11rb::protocol::composite::{ConnectionExt as _, Redirect};
use x11rb::protocol::randr::{ConnectionExt as _, MonitorInfo, Rotation};
use x11rb::protocol::xproto::{ConnectionExt as _, CreateGCAux, Rectangle};

use crate::support::{Painter, TestDisplay};

const RED: u32 = 0xff2010;
const BLUE: u32 = 0x1020ff;

fn open(display: &TestDisplay, backend: Option<&str>) -> Box<dyn Capture> {
    let options = OpenOptions {
        display: Some(display.name().to_owned()),
        capture_backend: backend.map(str::to_owned),
        guard_program: None,
    };
    native::open(&options).capture.expect("a capture")
}

fn grab(capture: &dyn Capture, region: Rect) -> Frame {
    let frame = capture.grab(Area::Desktop(region), Cursor::Hidden);
    frame.expect("a frame")
}

fn color(value: u32) -> Option<Color> {
    Color::from_rgb(value)
}

fn at(x: i32, y: i32) -> Point {
    Point { x, y }
}

#[test]
fn shared_memory_and_the_socket_give_the_same_pixels() {
    let display = TestDisplay::start(200, 100);
    let painter = Painter::new(&display);
    painter.window(Rect::new(30, 20, 50, 40), RED, None);
    painter.window(Rect::new(60, 40, 50, 40), BLUE, None);
    let shared = open(&display, None);
    let copied = open(&display, Some("x11-get-image"));
    let (fast, slow) = (
        grab(&*shared, shared.desktop_bounds().unwrap()),
        grab(&*copied, Rect::new(0, 0, 200, 100)),
    );
    assert_eq!((fast.backend, slow.backend), ("x11-shm", "x11-get-image"));
    assert_eq!(
        (shared.backend(), copied.backend()),
        ("x11-shm", "x11-get-image")
    );
    assert!(fast.bytes() == slow.bytes());
    assert_eq!(fast.pixel(at(30, 20)), color(RED));
    assert_eq!(fast.pixel(at(29, 20)), color(0));
    assert_eq!(fast.pixel(at(65, 45)), color(BLUE));
}

#[test]
fn regions_are_clipped_and_those_outside_refused() {
    let display = TestDisplay::start(200, 100);
    Painter::new(&display);
    let capture = open(&display, None);
    let clipped = grab(&*capture, Rect::new(-50, 90, 60, 500));
    assert_eq!(clipped.region, Rect::new(0, 90, 10, 10));
    for outside in [
        Rect::new(200, 0, 10, 10),
        Rect::new(i32::MIN, i32::MIN, 5, 5),
        Rect::new(5, 5, 0, 10),
    ] {
        let refused = capture.grab(Area::Desktop(outside), Cursor::Hidden);
        assert_eq!(refused.unwrap_err(), PlatformError::RegionInvalid(outside));
    }
}

#[test]
fn a_held_frame_keeps_its_pixels_while_the_screen_changes() {
    let display = TestDisplay::start(64, 64);
    let painter = Painter::new(&display);
    let window = painter.window(Rect::new(0, 0, 64, 64), RED, None);
    let capture = open(&display, None);
    let before = grab(&*capture, Rect::new(0, 0, 64, 64));
    painter.repaint(window, BLUE);
    let held: Vec<Frame> = (0..limits::FRAME_SEGMENTS_HELD_MAX + 8)
        .map(|_| grab(&*capture, Rect::new(0, 0, 64, 64)))
        .collect();
    assert_eq!(before.pixel(at(9, 9)), color(RED));
    assert!(
        held.iter()
            .all(|frame| frame.pixel(at(9, 9)) == color(BLUE))
    );
    drop(held);
    painter.repaint(window, RED);
    assert_eq!(grab(&*capture, before.region).pixel(at(9, 9)), color(RED));
}

#[test]
fn the_pointer_is_drawn_only_when_asked_for() {
    let display = TestDisplay::start(100, 100);
    let painter = Painter::new(&display);
    let window = painter.window(Rect::new(0, 0, 100, 100), BLUE, None);
    let connection = &painter.connection;
    let shape = connection.generate_id().unwrap();
    connection.create_pixmap(1, shape, window, 8, 8).unwrap();
    let pen = connection.generate_id().unwrap();
    let ink = CreateGCAux::new().foreground(1);
    connection.create_gc(pen, shape, &ink).unwrap();
    let whole = Rectangle {
        x: 0,
        y: 0,
        width: 8,
        height: 8,
    };
    connection
        .poly_fill_rectangle(shape, pen, &[whole])
        .unwrap();
    let cursor = connection.generate_id().unwrap();
    connection
        .create_cursor(cursor, shape, shape, !0, 0, 0, 0, 0, 0, 4, 4)
        .unwrap();
    let look = x11rb::protocol::xproto::ChangeWindowAttributesAux::new().cursor(cursor);
    connection.change_window_attributes(window, &look).unwrap();
    connection
        .warp_pointer(x11rb::NONE, window, 0, 0, 0, 0, 50, 50)
        .unwrap();
    painter.sync();
    for backend in ["x11-shm", "x11-get-image"] {
        let capture = open(&display, Some(backend));
        let area = Area::Desktop(Rect::new(48, 0, 52, 100));
        let hidden = capture.grab(area, Cursor::Hidden).unwrap();
        let drawn = capture.grab(area, Cursor::Drawn).unwrap();
        assert!(drawn.cursor_included && !hidden.cursor_included);
        assert_eq!(hidden.pixel(at(50, 50)), color(BLUE));
        assert_eq!(drawn.pixel(at(50, 50)), color(0xff0000), "{backend}");
        assert_eq!(drawn.pixel(at(53, 53)), color(0xff0000));
        assert_eq!(drawn.pixel(at(54, 54)), color(BLUE));
    }
}

#[test]
fn a_window_is_grabbed_by_itself_and_says_why_it_cannot_be() {
    let display = TestDisplay::start(200, 100);
    let painter = Painter::new(&display);
    let below = painter.window(Rect::new(-10, 20, 50, 40), RED, None);
    painter.window(Rect::new(0, 40, 50, 40), BLUE, None);
    let capture = open(&display, None);
    let window = |handle, region| capture.grab(Area::Window { handle, region }, Cursor::Hidden);
    let plain = window(below.into(), None).unwrap();
    assert_eq!(plain.region, Rect::new(0, 20, 40, 40));
    assert_eq!(plain.pixel(at(5, 25)), color(RED));
    let part = window(below.into(), Some(Rect::new(15, 5, 10, 500))).unwrap();
    assert_eq!(part.region, Rect::new(5, 25, 10, 35));
    // What a compositor does: from then on the window's pixels are kept apart.
    let connection = &painter.connection;
    connection.composite_query_version(0, 4).unwrap();
    connection
        .composite_redirect_window(below, Redirect::AUTOMATIC)
        .unwrap();
    painter.repaint(below, RED);
    let apart = window(below.into(), None).unwrap();
    assert_eq!(apart.region, Rect::new(-10, 20, 50, 40));
    assert_eq!(apart.pixel(at(20, 50)), color(RED));
    connection.unmap_window(below).unwrap();
    painter.sync();
    let hidden = window(below.into(), None).unwrap_err();
    assert!(
        hidden.to_string().contains("minimised or hidden"),
        "{hidden}"
    );
    connection.destroy_window(below).unwrap();
    painter.sync();
    for handle in [u64::from(below), 0, u64::MAX] {
        let gone = window(handle, None).unwrap_err();
        assert_eq!(gone, PlatformError::WindowNotFound(handle));
    }
}

#[test]
fn monitors_follow_randr_and_the_configured_scale() {
    let display = TestDisplay::start(300, 100);
    let painter = Painter::new(&display);
    let capture = open(&display, None);
    let one = capture.monitors().unwrap();
    assert_eq!(one.len(), 1);
    assert_eq!(
        (one[0].bounds, one[0].scale),
        (Rect::new(0, 0, 300, 100), 1.0)
    );
    let connection = &painter.connection;
    connection.randr_query_version(1, 5).unwrap();
    for (name, x, width, primary) in [("left", 0, 100, false), ("right", 100, 200, true)] {
        let name = connection.intern_atom(false, name.as_bytes()).unwrap();
        let monitor = MonitorInfo {
            name: name.reply().unwrap().atom,
            primary,
            automatic: false,
            x,
            y: 0,
            width,
            height: 100,
            width_in_millimeters: 0,
            height_in_millimeters: 0,
            outputs: Vec::new(),
        };
        connection
            .randr_set_monitor(painter.root, monitor)
            .unwrap()
            .check()
            .unwrap();
    }
    painter.text(
        painter.root,
        "RESOURCE_MANAGER",
        "STRING",
        b"Xft.dpi:\t192\n",
    );
    let found = capture.monitors().unwrap();
    let right = found
        .iter()
        .find(|m| m.name == "right")
        .expect("the right monitor");
    assert!(right.primary);
    assert_eq!(right.bounds, Rect::new(100, 0, 200, 100));
    assert_eq!(right.scale, 2.0);
    let ids: Vec<u32> = found.iter().map(|monitor| monitor.id).collect();
    assert_eq!(ids, (0..found.len() as u32).collect::<Vec<_>>());
    assert_eq!(capture.desktop_bounds().unwrap(), Rect::new(0, 0, 300, 100));
}

#[test]
fn a_smaller_screen_clips_the_next_frame() {
    let display = TestDisplay::start(1024, 768);
    let painter = Painter::new(&display);
    let capture = open(&display, None);
    let whole = Rect::new(0, 0, 1024, 768);
    assert_eq!(grab(&*capture, whole).region, whole);
    let connection = &painter.connection;
    connection.randr_query_version(1, 5).unwrap();
    let resources = connection.randr_get_screen_resources(painter.root);
    let resources = resources.unwrap().reply().unwrap();
    connection
        .randr_set_crtc_config(
            resources.crtcs[0],
            x11rb::CURRENT_TIME,
            resources.config_timestamp,
            0,
            0,
            x11rb::NONE,
            Rotation::ROTATE0,
            &[],
        )
        .unwrap()
        .reply()
        .unwrap();
    connection
        .randr_set_screen_size(painter.root, 640, 480, 170, 127)
        .unwrap()
        .check()
        .unwrap();
    assert_eq!(grab(&*capture, whole).region, Rect::new(0, 0, 640, 480));
}

#[test]
fn screens_of_other_pixels_and_unknown_backends_are_unsupported() {
    let display = TestDisplay::start_with("64x64x16", &[]);
    let capture = open(&display, None);
    let refused = capture.grab(Area::Desktop(Rect::new(0, 0, 9, 9)), Cursor::Hidden);
    assert!(
        matches!(refused, Err(PlatformError::Unsupported(_))),
        "{refused:?}"
    );
    let options = OpenOptions {
        display: Some(display.name().to_owned()),
        capture_backend: Some("wgc".into()),
        guard_program: None,
    };
    let backend = native::open(&options).capture;
    assert!(matches!(backend, Err(PlatformError::Unsupported(_))));
}

#[test]
fn without_shared_memory_the_socket_is_used_and_named() {
    let display = TestDisplay::start_with("64x64x24", &["-extension", "MIT-SHM"]);
    let area = Area::Desktop(Rect::new(0, 0, 9, 9));
    let frame = open(&display, None).grab(area, Cursor::Hidden).unwrap();
    assert_eq!(frame.backend, "x11-get-image");
    let named = open(&display, Some("x11-shm")).grab(area, Cursor::Hidden);
    assert!(
        matches!(named, Err(PlatformError::Unsupported(_))),
        "{named:?}"
    );
}

#[test]
fn frames_outlive_their_display_and_calls_recover_when_it_returns() {
    let mut display = TestDisplay::start_restartable(100, 80);
    let capture: Arc<dyn Capture> = Arc::from(open(&display, None));
    let area = Area::Desktop(Rect::new(0, 0, 500, 500));
    let kept = capture.grab(area, Cursor::Hidden).unwrap();
    display.crash();
    for _ in 0..3 {
        let dead = capture.grab(area, Cursor::Hidden);
        assert!(
            matches!(dead, Err(PlatformError::DisplayUnavailable(_))),
            "{dead:?}"
        );
        let dead = capture.monitors();
        assert!(
            matches!(dead, Err(PlatformError::DisplayUnavailable(_))),
            "{dead:?}"
        );
    }
    assert_eq!(kept.pixel(at(99, 79)), color(0));
    display.restart("120x90x24");
    let back = capture.grab(area, Cursor::Hidden).unwrap();
    assert_eq!(back.region, Rect::new(0, 0, 120, 90));
}

#[test]
fn a_hung_server_costs_a_bounded_wait() {
    let display = TestDisplay::start(64, 64);
    let capture = open(&display, None);
    let area = Area::Desktop(Rect::new(0, 0, 64, 64));
    capture.grab(area, Cursor::Hidden).unwrap();
    display.signal("-STOP");
    let hung = capture.grab(area, Cursor::Hidden);
    display.signal("-CONT");
    assert!(
        matches!(hung, Err(PlatformError::DisplayUnavailable(_))),
        "{hung:?}"
    );
    capture.grab(area, Cursor::Hidden).unwrap();
}
