//! Processes: started on the desktop's display, reaped, waited for, and ended with their children.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use wingman::desktop::Desktop;
use wingman::platform::{Launch, OpenOptions, Terminate, native};
use wingman::wire::Code;

use crate::support::wait_for;

fn desktop() -> Desktop {
    Desktop::with_backend(native::open(&OpenOptions {
        display: Some(":4711".into()),
        ..OpenOptions::default()
    }))
}

fn shell(script: &str) -> Launch {
    Launch {
        program: "sh".into(),
        args: vec!["-c".into(), script.into()],
        working_dir: None,
        env: Vec::new(),
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn started_program_sees_the_display_folder_and_environment_given() {
    let desktop = desktop();
    let folder = TempDir::new().unwrap();
    let mut launch = shell("echo \"$DISPLAY $GREETING\" > out.part; mv out.part out");
    launch.working_dir = Some(folder.path().into());
    launch.env = vec![("GREETING".into(), "hello".into())];
    let pid = desktop.start_process(&launch).unwrap();
    assert!(desktop.wait_process(pid, PATIENCE, &|| false).unwrap());
    let said = std::fs::read_to_string(folder.path().join("out")).unwrap();
    assert_eq!(said, ":4711 hello\n");
    let gone = wait_for("the process to be reaped", || desktop.process(pid).err());
    assert_eq!(gone.code, Code::ProcessNotFound);
    wait_for("no zombie to stay", || {
        (!std::path::Path::new(&format!("/proc/{pid}")).exists()).then_some(())
    });
}

#[test]
fn missing_program_and_folder_are_named() {
    let desktop = desktop();
    let mut launch = shell("true");
    launch.program = "no-such-program-here".into();
    let fault = desktop.start_process(&launch).unwrap_err();
    assert_eq!(fault.code, Code::ProcessFailed);
    assert!(fault.message.contains("no-such-program-here"), "{fault}");
    let mut launch = shell("true");
    launch.working_dir = Some("/no/such/folder".into());
    let fault = desktop.start_process(&launch).unwrap_err();
    assert!(fault.message.contains("/no/such/folder"), "{fault}");
}

#[test]
fn wait_ends_by_time_and_by_cancellation() {
    let desktop = desktop();
    let pid = desktop.start_process(&shell("exec sleep 600")).unwrap();
    let found = wait_for("the program to be listed", || {
        let found = desktop.processes(Some("SLEEP")).unwrap();
        found.into_iter().find(|process| process.pid == pid)
    });
    assert_eq!(found.parent, Some(std::process::id()));
    let soon = Duration::from_millis(30);
    assert!(!desktop.wait_process(pid, soon, &|| false).unwrap());
    let started = Instant::now();
    let cancelled = || started.elapsed() > soon;
    assert!(!desktop.wait_process(pid, PATIENCE, &cancelled).unwrap());
    desktop.terminate_process(pid, Terminate::Ask).unwrap();
    assert!(desktop.wait_process(pid, PATIENCE, &|| false).unwrap());
}

#[test]
fn tree_ends_with_grandchildren_that_ignore_the_polite_signal() {
    let desktop = desktop();
    let folder = TempDir::new().unwrap();
    let mut launch = shell(
        "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > pid.part; mv pid.part pid; sleep 600; :' & wait",
    );
    launch.working_dir = Some(folder.path().into());
    let root = desktop.start_process(&launch).unwrap();
    let grandchild: u32 = wait_for("the grandchild", || {
        let text = std::fs::read_to_string(folder.path().join("pid")).ok()?;
        text.trim().parse().ok()
    });
    wait_for("the grandchild's sleep", || {
        let all = desktop.processes(Some("sleep")).unwrap();
        all.into_iter()
            .find(|process| process.parent == Some(grandchild))
    });
    desktop.terminate_process(root, Terminate::Tree).unwrap();
    for pid in [root, grandchild] {
        assert!(desktop.wait_process(pid, PATIENCE, &|| false).unwrap());
    }
    wait_for("no child to be left", || {
        let all = desktop.processes(None).unwrap();
        let left = all.iter().any(|process| process.parent == Some(grandchild));
        (!left).then_some(())
    });
}

#[test]
fn process_that_never_was_cannot_be_ended() {
    let desktop = desktop();
    for pid in [0, 1, std::process::id(), u32::MAX] {
        for how in [Terminate::Ask, Terminate::Force, Terminate::Tree] {
            assert!(
                desktop.terminate_process(pid, how).is_err(),
                "{pid} {how:?}"
            );
        }
    }
}
