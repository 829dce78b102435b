//! Finding a display, starting one, and surviving its end.

use std::process::Command;
use std::time::Duration;

use wingman::base::Size;
use wingman::desktop::{CaptureStore, Desktop};
use wingman::platform::OpenOptions;
use wingman::platform::display::OwnDisplay;
use wingman::wire::messages::desktop::{CaptureParams, ForegroundState, WindowQuery};
use wingman::wire::{Code, capability};
use x11rb::protocol::xproto::{ConnectionExt, Family};
use x11rb::rust_connection::RustConnection;

use crate::support::{TestDisplay, wait_for};

#[test]
fn a_test_display_holds_a_managed_terminal_until_it_crashes() {
    let mut display = TestDisplay::start(320, 240).with_window_manager();
    display.spawn_xterm(&["-title", "hello"]);
    assert!(display.name().starts_with(':'));
    let (connection, root) = display.connect();
    wait_for("a top-level window", || {
        let tree = connection.query_tree(root).ok()?.reply().ok()?;
        (!tree.children.is_empty()).then_some(())
    });
    display.crash();
    wait_for("the connection to break", || {
        connection.query_tree(root).ok()?.reply().err()
    });
}

fn desktop_on(name: &str) -> Desktop {
    Desktop::open(&OpenOptions {
        display: Some(name.to_owned()),
        ..OpenOptions::default()
    })
}

#[test]
fn an_own_display_is_managed_private_and_gone_when_dropped() {
    let size = Size {
        width: 640,
        height: 400,
    };
    let own = OwnDisplay::start(size).expect("a display of our own");
    assert_eq!(own.window_manager(), Some("openbox"));
    let name = own.name().to_owned();
    let (connection, _) = RustConnection::connect(Some(&name)).expect("it answers its own user");
    let access = connection.list_hosts().unwrap().reply().unwrap();
    assert_eq!(u8::from(access.mode), 1, "access control is on");
    let others = access
        .hosts
        .iter()
        .filter(|host| host.family != Family::SERVER_INTERPRETED);
    assert_eq!(others.count(), 0, "no other local user is let in");
    let desktop = desktop_on(&name);
    assert_eq!(desktop.bounds().unwrap().size(), size);
    let mut xterm = Command::new("xterm");
    let mut xterm = xterm.env("DISPLAY", &name).spawn().expect("xterm");
    let query = WindowQuery {
        class: Some("xterm".into()),
        ..WindowQuery::default()
    };
    let window = desktop.wait_window(&query, Duration::from_secs(60), &|| false);
    assert_eq!(window.unwrap().unwrap().is_minimized, Some(false));
    drop(own);
    xterm.wait().expect("xterm ends with its display");
    let fault = desktop.bounds().unwrap_err();
    assert_eq!(fault.code, Code::DisplayUnavailable);
    assert!(!std::path::Path::new(&format!("/tmp/.X11-unix/X{}", &name[1..])).exists());
}

#[test]
fn a_stored_capture_names_the_program_in_the_foreground() {
    let mut display = TestDisplay::start(400, 300).with_window_manager();
    let desktop = desktop_on(display.name());
    let folder = tempfile::tempdir().unwrap();
    let store = CaptureStore::open(folder.path(), 5, |report| panic!("{report:?}")).unwrap();
    let params = CaptureParams {
        include_cursor: Some(true),
        ..CaptureParams::default()
    };
    let refused = store.store(&desktop, &params).unwrap_err();
    assert_eq!(refused.code, Code::ForegroundProcessUnavailable);
    let (plain, _) = desktop.screenshot(&params, "native-png").unwrap();
    assert!(matches!(
        plain.foreground,
        ForegroundState::Unavailable { .. }
    ));
    let pid = display.spawn_xterm(&["-title", "front"]);
    wait_for("xterm in the foreground", || {
        let window = desktop.foreground_window().expect("a window system")?;
        (window.title == "front").then_some(())
    });
    let (capture, bytes) = store.store(&desktop, &params).unwrap();
    let ForegroundState::Known(foreground) = &capture.foreground else {
        panic!("{:?}", capture.foreground);
    };
    assert_eq!(foreground.process_id, pid);
    assert_eq!(foreground.executable_name, "xterm");
    assert!(foreground.executable_path.ends_with("/xterm"));
    assert_eq!(foreground.window_title.as_deref(), Some("front"));
    assert!(foreground.observed_at >= capture.created_at);
    assert_eq!(capture.backend, "x11-shm");
    assert_eq!(capture.monitor.as_ref().map(|m| m.is_primary), Some(true));
    let image = image::load_from_memory(&bytes).unwrap();
    assert_eq!((image.width(), image.height()), (400, 300));
    let listed = store.list().unwrap().items;
    assert_eq!(listed, [capture]);
}

#[test]
fn capabilities_follow_the_display() {
    let mut display = TestDisplay::start(100, 100);
    let desktop = desktop_on(display.name());
    let names = desktop.capabilities();
    for name in [
        capability::SCREEN_CAPTURE,
        capability::SCREEN_LIST_MONITORS,
        capability::WINDOW_ENUMERATE,
        capability::PROCESS_SPAWN,
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    display.crash();
    assert_eq!(desktop.capabilities(), [capability::PROCESS_SPAWN]);
}
