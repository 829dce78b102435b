//! Finding a display, starting one, and surviving its end.

use x11rb::protocol::xproto::ConnectionExt;

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
