//! Windows of a real X display, with and without a window manager.

use wingman::base::Rect;
use wingman::platform::{OpenOptions, PlatformError, Window, Windows, native};

use crate::support::{Painter, TestDisplay, wait_for};

fn open(display: &TestDisplay) -> Box<dyn Windows> {
    let options = OpenOptions {
        display: Some(display.name().to_owned()),
        ..OpenOptions::default()
    };
    native::open(&options).windows.expect("a window system")
}

fn titled(windows: &dyn Windows, title: &str) -> Window {
    wait_for(title, || {
        let listed = windows.list().expect("a list");
        listed.into_iter().find(|window| window.title == title)
    })
}

#[test]
fn a_managed_terminal_is_described_arranged_and_closed() {
    let mut display = TestDisplay::start(1000, 700).with_window_manager();
    let pid = display.spawn_xterm(&["-title", "first", "-geometry", "80x24+10+40"]);
    let windows = open(&display);
    let first = titled(&*windows, "first").handle;
    display.spawn_xterm(&["-title", "second", "-geometry", "80x24+200+200"]);
    let second = titled(&*windows, "second").handle;
    let described = windows.get(first).unwrap();
    assert_eq!(described.class, "XTerm");
    assert_eq!(described.pid, Some(pid));
    assert_eq!(described.minimized, Some(false));

    windows.activate(first).unwrap();
    assert_eq!(windows.foreground().unwrap(), Some(first));
    // The window manager may tell what is active before it has raised it.
    wait_for("the topmost window to come first", || {
        let list = windows.list().unwrap();
        let order: Vec<u64> = list.iter().map(|window| window.handle).collect();
        (order == [first, second]).then_some(())
    });

    let wanted = Rect::new(123, 145, 500, 300);
    let placed = windows.place(first, wanted);
    assert_eq!(placed, Ok(()), "{:?}", windows.get(first));
    let bounds = windows.get(first).unwrap().bounds;
    assert_eq!(bounds.origin(), wanted.origin());
    assert!(
        bounds.width.abs_diff(500) < 20 && bounds.height.abs_diff(300) < 20,
        "{bounds:?}"
    );

    windows.minimize(first).unwrap();
    assert_eq!(windows.get(first).unwrap().minimized, Some(true));
    assert_ne!(windows.foreground().unwrap(), Some(first));
    windows.activate(first).unwrap();
    assert_eq!(windows.get(first).unwrap().minimized, Some(false));

    windows.close(first).unwrap();
    assert_eq!(
        windows.get(first),
        Err(PlatformError::WindowNotFound(first))
    );
    let refused = windows.place(first, wanted);
    assert_eq!(refused, Err(PlatformError::WindowNotFound(first)));
}

#[test]
fn a_window_that_ignores_its_closing_is_refused_not_reported_closed() {
    let display = TestDisplay::start(300, 200).with_window_manager();
    let painter = Painter::new(&display);
    let stubborn = painter.window(Rect::new(0, 0, 50, 50), 0xff, Some("stubborn"));
    painter.atoms(stubborn, "WM_PROTOCOLS", &["WM_DELETE_WINDOW"]);
    let windows = open(&display);
    let handle = titled(&*windows, "stubborn").handle;
    let refused = windows.close(handle).unwrap_err();
    assert!(
        matches!(refused, PlatformError::WindowRefused(_)),
        "{refused}"
    );
    assert!(windows.get(handle).is_ok());
}

#[test]
fn without_a_window_manager_windows_come_from_the_tree() {
    let display = TestDisplay::start(300, 200);
    let painter = Painter::new(&display);
    let windows = open(&display);
    let low = painter.window(Rect::new(10, 10, 50, 50), 0xff, Some("низкий 世界"));
    let high = painter.window(Rect::new(20, 20, 50, 50), 0xff00, Some("high"));
    painter.window(Rect::new(0, 0, 1, 1), 0, Some("a point"));
    painter.window(Rect::new(0, 0, 9, 9), 0, None);
    painter.text(high, "WM_CLASS", "STRING", b"inst\0Klass\0");
    let listed = windows.list().unwrap();
    let titles: Vec<&str> = listed.iter().map(|window| window.title.as_str()).collect();
    assert_eq!(titles, ["high", "низкий 世界"]);
    assert_eq!(listed[0].class, "Klass");
    assert_eq!(listed[0].pid, Some(std::process::id()));
    assert_eq!(listed[0].minimized, None);

    windows.activate(low.into()).unwrap();
    assert_eq!(windows.foreground().unwrap(), Some(low.into()));
    assert_eq!(windows.list().unwrap()[0].handle, u64::from(low));
    let wanted = Rect::new(100, 90, 40, 30);
    windows.place(low.into(), wanted).unwrap();
    assert_eq!(windows.get(low.into()).unwrap().bounds, wanted);
    let unsupported = windows.minimize(low.into()).unwrap_err();
    assert!(
        matches!(unsupported, PlatformError::Unsupported(_)),
        "{unsupported}"
    );

    painter.text(high, "_NET_WM_NAME", "UTF8_STRING", b"");
    painter.text(high, "WM_NAME", "STRING", b"caf\xe9");
    assert_eq!(windows.get(high.into()).unwrap().title, "café");
    // The test's own windows do not take part in closing, so this cuts its connection off.
    windows.close(high.into()).unwrap();
    assert_eq!(windows.list().unwrap(), []);
}

#[test]
fn hostile_titles_are_cut_and_no_handle_from_outside_hurts() {
    let display = TestDisplay::start(300, 200);
    let painter = Painter::new(&display);
    let long = painter.window(Rect::new(10, 10, 50, 50), 0xff, Some("long"));
    painter.text(long, "_NET_WM_NAME", "UTF8_STRING", &[0xff; 100_000]);
    let windows = open(&display);
    let title = windows.get(long.into()).unwrap().title;
    assert!(title.len() <= 3 * wingman::base::limits::WINDOW_TEXT_LEN_MAX);
    for handle in [0, 1, u64::from(u32::MAX), u64::MAX] {
        let missing = PlatformError::WindowNotFound(handle);
        assert_eq!(windows.get(handle), Err(missing.clone()));
        assert_eq!(windows.activate(handle), Err(missing.clone()));
        assert_eq!(windows.close(handle), Err(missing));
    }
    let empty = Rect::new(0, 0, 0, 5);
    let refused = windows.place(long.into(), empty);
    assert_eq!(refused, Err(PlatformError::RegionInvalid(empty)));
}

#[test]
fn a_crashed_window_manager_leaves_the_tree_to_answer() {
    let mut display = TestDisplay::start(300, 200).with_window_manager();
    display.spawn_xterm(&["-title", "orphan"]);
    let windows = open(&display);
    let handle = titled(&*windows, "orphan").handle;
    display.crash_window_manager();
    let listed = wait_for("the terminal from the tree", || {
        let listed = windows.list().expect("a list");
        listed.into_iter().find(|window| window.handle == handle)
    });
    assert_eq!(listed.title, "orphan");
    windows.activate(handle).unwrap();
    assert_eq!(windows.foreground().unwrap(), Some(handle));
}
