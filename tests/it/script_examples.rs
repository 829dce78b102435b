//! Every function's example runs in every engine.

use std::sync::Arc;

use wingman::base::{Color, Rect, Size};
use wingman::desktop::Desktop;
use wingman::platform::Window;
use wingman::platform::virtual_display::{InputEvent, Picture, VirtualDisplay};
use wingman::script::{Outcome, modules};

use crate::script_host::{LANGUAGES, TestHost, run};

const RED: Color = Color {
    r: 255,
    g: 0,
    b: 0,
    a: 255,
};

/// A desktop with a red square and an xterm.
pub fn virtual_desktop() -> VirtualDisplay {
    let size = Size {
        width: 400,
        height: 300,
    };
    let picture = Picture::filled(size, Color::default()).with_rect(Rect::new(20, 30, 4, 4), RED);
    let display = VirtualDisplay::new([picture]);
    display.state().windows.push(Window {
        handle: 77,
        title: "xterm".to_owned(),
        class: "XTerm".to_owned(),
        pid: None,
        minimized: Some(false),
        bounds: Rect::new(10, 10, 100, 80),
    });
    display
}

pub fn host_on(display: &VirtualDisplay, dir: &std::path::Path) -> Arc<TestHost> {
    let mut host = TestHost::in_dir(dir);
    host.desktop = Some(Arc::new(Desktop::with_backend(display.backend())));
    Arc::new(host)
}

#[test]
fn every_example_runs_in_every_engine() {
    for language in LANGUAGES {
        for function in modules::functions() {
            let dir = tempfile::tempdir().unwrap();
            let host = host_on(&virtual_desktop(), dir.path());
            let source = function.example.render(language);
            let outcome = run(&host, language, &source);
            assert_eq!(
                outcome,
                Outcome::Succeeded,
                "{language:?} {}:\n{source}",
                function.full_name()
            );
        }
    }
}

#[test]
fn what_a_run_holds_down_is_let_up_when_it_ends() {
    for language in LANGUAGES {
        let dir = tempfile::tempdir().unwrap();
        let display = virtual_desktop();
        let host = host_on(&display, dir.path());
        let source = "input.keyDown(\"shift\"); input.buttonDown(0); input.keyDown(\"a\")";
        assert_eq!(run(&host, language, source), Outcome::Succeeded);
        let events = display.state().input.clone();
        let ups = events
            .iter()
            .filter(|event| {
                matches!(
                    event,
                    InputEvent::Key(_, _, wingman::platform::Press::Up)
                        | InputEvent::Button(_, _, wingman::platform::Press::Up)
                )
            })
            .count();
        assert_eq!(ups, 3, "{events:?}");
        // They stayed down until then: the last press comes before the first release.
        assert!(matches!(
            events[2],
            InputEvent::Key(_, _, wingman::platform::Press::Down)
        ));
    }
}
