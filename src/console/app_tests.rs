//! The whole console on a stage.

use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::app::{Attached, Effect, Happened, Left, Mode, Start};
use super::keymap::Command;
use super::paint::Damage;
use super::pane::{SessionKey, Status};
use super::popup::Popup;
use super::stage::{Stage, session};
use crate::base::ids::{ConsoleId, TerminalId};
use crate::base::limits;
use crate::wire::messages::attention::State;
use crate::wire::messages::sessions::*;
use crate::wire::stream::PieceKind;
use crate::wire::{Code, Fault};

fn here(id: &str) -> SessionKey {
    SessionKey {
        place: 0,
        id: TerminalId::parse(id).unwrap(),
    }
}

#[test]
fn the_session_that_waits_gets_the_first_focus_and_the_list_shows_all() {
    let mut stage = Stage::usual(120, 40);
    assert_eq!(stage.focused(), "bbbb");
    let text = stage.shown();
    for wanted in [
        "hello from bbbb",
        "build",
        "agent",
        "far",
        "here",
        "tower",
        "working 1m",
        "claude",
    ] {
        assert!(text.contains(wanted), "{wanted}:\n{text}");
    }
}

#[test]
fn a_small_terminal_shows_the_session_and_one_line() {
    let mut stage = Stage::usual(40, 10);
    let text = stage.shown();
    assert!(
        text.contains("hello from bbbb") && text.contains("agent"),
        "{text}"
    );
    assert!(!text.contains("tower"), "no sidebar: {text}");
}

#[test]
fn marks_lists_and_ends_never_move_the_focus() {
    let mut stage = Stage::usual(120, 40);
    stage.command(Command::Number(2));
    let before = stage.focused().to_owned();
    stage.list(
        0,
        vec![
            session("aaaa", "build", "", State::Waiting),
            session("bbbb", "agent", "", State::Waiting),
            session("dddd", "new", "", State::Error),
        ],
    );
    assert_eq!(stage.focused(), before);
    stage.list(0, vec![session("dddd", "new", "", State::Waiting)]);
    assert_eq!(
        stage.focused(),
        before,
        "its session is gone, its screen stays"
    );
    let footer = stage.shown();
    let footer = footer.trim_end().lines().last().unwrap_or_default();
    assert!(footer.contains("build"), "{footer}");
    let key = stage.app.pane().unwrap().key.clone();
    stage.control(
        &key,
        &Control::Exit {
            exit_code: Some(3),
            exit_signal: None,
        },
    );
    stage.run();
    assert_eq!(stage.focused(), before);
    let text = stage.shown();
    assert!(
        text.contains("ended with 3") && text.contains("1 new"),
        "{text}"
    );
    assert!(text.contains(&format!("hello from {before}")), "{text}");
    stage.press(KeyCode::Enter, KeyModifiers::NONE);
    assert_eq!(
        stage.focused(),
        before,
        "that key was meant for the program"
    );
    stage.now += Duration::from_secs(1);
    stage.press(KeyCode::Enter, KeyModifiers::NONE);
    assert_eq!(stage.focused(), "dddd", "a person chose it");
}

#[test]
fn keys_reach_the_focused_program_and_nobody_else() {
    let mut stage = Stage::usual(120, 40);
    let far = SessionKey {
        place: 1,
        id: TerminalId::parse("cccc").unwrap(),
    };
    stage.app.split(&far, stage.now);
    stage.run();
    stage.sent("bbbb");
    stage.sent("cccc");
    stage.type_text("ls");
    stage.press(KeyCode::Char('b'), KeyModifiers::CONTROL);
    assert_eq!(stage.sent("bbbb").0, b"ls\x02");
    assert_eq!(stage.sent("cccc"), (Vec::new(), Vec::new()));
    let text = stage.shown();
    assert!(
        text.contains("hello from bbbb") && text.contains("hello from cccc"),
        "{text}"
    );
}

#[test]
fn what_is_typed_while_a_session_is_being_attached_reaches_it() {
    let mut stage = Stage::usual(80, 24);
    stage.app.focus(&here("aaaa"), stage.now);
    let (key, attempt, params) = stage.asked_to_attach();
    stage.type_text("early");
    stage.attach(key, attempt, &params);
    let (typed, controls) = stage.sent("aaaa");
    assert_eq!(typed, b"early");
    assert_eq!(controls[0], Control::Generation { generation: 0 });
    stage.app.focus(&here("bbbb"), stage.now);
    stage.app.effects.clear();
    stage.type_text("lost");
    let failed = Attached {
        key: here("bbbb"),
        attempt: stage.app.pane().unwrap().attempt,
        answer: Err(Fault::new(Code::Internal, "gone")),
        watcher: None,
    };
    let failed = Happened::Attached(Box::new(failed));
    stage.app.happened(failed, stage.now);
    assert!(stage.shown().contains("what was typed is not sent"));
}

#[test]
fn what_is_typed_while_connecting_waits_for_the_next_attempt_or_is_told_to_be_lost() {
    let mut stage = Stage::usual(80, 24);
    stage.app.focus(&here("aaaa"), stage.now);
    stage.asked_to_attach();
    stage.type_text("early");
    stage.app.attach(0, stage.now);
    let (key, attempt, params) = stage.asked_to_attach();
    stage.attach(key, attempt, &params);
    assert_eq!(stage.sent("aaaa").0, b"early");
    stage.app.focus(&here("bbbb"), stage.now);
    stage.asked_to_attach();
    stage.type_text("lost");
    assert!(!stage.shown().contains("what was typed is not sent"));
    stage.app.focus(&here("aaaa"), stage.now);
    assert!(stage.shown().contains("what was typed is not sent"));
}

#[test]
fn the_prefix_twice_and_the_literal_key_go_through() {
    let mut stage = Stage::usual(80, 24);
    stage.sent("bbbb");
    for _ in 0..2 {
        stage.press(KeyCode::Char('\\'), KeyModifiers::CONTROL);
    }
    assert_eq!(stage.sent("bbbb").0, b"\x1c");
    stage.prefix('e');
    assert_eq!(stage.app.mode, Mode::Literal);
    stage.press(KeyCode::Char('\\'), KeyModifiers::CONTROL);
    assert_eq!(stage.sent("bbbb").0, b"\x1c");
    stage.prefix('d');
    assert_eq!(stage.left, Some(Left::Detached));
}

#[test]
fn the_focused_pane_alone_has_a_size() {
    let mut stage = Stage::usual(120, 40);
    let sizes = |controls: Vec<Control>| -> Vec<(u16, u16)> {
        controls
            .into_iter()
            .filter_map(|control| match control {
                Control::Resize { cols, rows, .. } => Some((cols, rows)),
                _ => None,
            })
            .collect()
    };
    assert_eq!(sizes(stage.sent("bbbb").1), [(89, 39)]);
    stage.app.resized((100, 30), stage.now);
    assert_eq!(sizes(stage.sent("bbbb").1), [(69, 29)]);
    stage.app.split(&here("aaaa"), stage.now);
    stage.run();
    assert_eq!(sizes(stage.sent("aaaa").1), []);
    assert_eq!(sizes(stage.sent("bbbb").1), [(34, 29)]);
    stage.command(Command::NextPane);
    assert_eq!(stage.focused(), "aaaa");
    assert_eq!(sizes(stage.sent("aaaa").1), [(34, 29)]);
}

#[test]
fn a_lost_stream_is_shown_and_tried_again_from_where_it_was() {
    let mut stage = Stage::usual(80, 24);
    let key = here("bbbb");
    stage.piece(&key, PieceKind::Bytes, b"0123456789");
    let index = stage.app.focused;
    stage.app.piece(index, None, stage.now);
    assert!(matches!(
        stage.app.pane().unwrap().status,
        Status::Lost { .. }
    ));
    let text = stage.shown();
    assert!(
        text.contains("lost") && text.contains("0123456789"),
        "{text}"
    );
    stage.type_text("x");
    assert!(stage.shown().contains("not connected"));
    stage.now += Duration::from_secs(1);
    stage.app.tick(stage.now);
    let attach = stage.app.effects.iter().find_map(|effect| match effect {
        Effect::Attach { params, .. } => Some(params.clone()),
        _ => None,
    });
    let params = attach.unwrap();
    assert_eq!(params.since, Some(15));
    assert_eq!(params.console_id, Some(ConsoleId::parse("me").unwrap()));
}

#[test]
fn a_lost_server_is_shown_while_local_sessions_stay_usable() {
    let mut stage = Stage::usual(120, 40);
    let fault = Fault::new(Code::Internal, "no route to host");
    stage
        .app
        .happened(Happened::Listed(1, Err(fault)), stage.now);
    let text = stage.shown();
    assert!(text.contains("lost") && text.contains("far"), "{text}");
    stage.sent("bbbb");
    stage.type_text("ok");
    assert_eq!(stage.sent("bbbb").0, b"ok");
}

#[test]
fn typing_is_refused_while_another_console_types_alone() {
    let mut stage = Stage::usual(80, 24);
    let key = here("bbbb");
    let lease = Lease {
        mode: LeaseMode::Exclusive,
        holder: Some(ConsoleId::parse("other").unwrap()),
        size_owner: None,
        generation: 4,
    };
    stage.control(&key, &Control::Lease { lease });
    let (_, controls) = stage.sent("bbbb");
    assert!(
        controls.contains(&Control::Generation { generation: 4 }),
        "{controls:?}"
    );
    stage.type_text("x");
    assert_eq!(stage.sent("bbbb").0, b"");
    assert!(stage.shown().contains("another console types alone"));
    stage.prefix('T');
    assert_eq!(stage.sent("bbbb").1, [Control::Take { takeover: true }]);
    let typing = Control::Typing {
        console_id: ConsoleId::parse("o").unwrap(),
        label: "bob\x1b[2J".into(),
    };
    stage.control(&key, &typing);
    stage.now += Duration::from_secs(5);
    stage.app.tick(stage.now);
    stage.control(&key, &typing);
    stage.app.resized((120, 24), stage.now);
    assert!(stage.shown().contains("bob[2J types"));
}

#[test]
fn kill_asks_first_and_names_what_runs() {
    let mut stage = Stage::usual(80, 24);
    stage.prefix('x');
    let text = stage.shown();
    assert!(text.contains("claude is running"), "{text}");
    stage.press(KeyCode::Char('n'), KeyModifiers::NONE);
    assert!(stage.calls.is_empty());
    stage.prefix('x');
    stage.press(KeyCode::Char('y'), KeyModifiers::NONE);
    let (method, params) = stage.calls.last().unwrap();
    assert_eq!(
        (*method, params["id"].as_str()),
        ("session.kill", Some("bbbb"))
    );
}

#[test]
fn a_new_session_starts_beside_the_focused_one() {
    let mut stage = Stage::usual(80, 24);
    stage.prefix('c');
    stage.type_text("claude --resume 'a b'");
    assert!(stage.shown().contains("claude --resume"));
    stage.press(KeyCode::Enter, KeyModifiers::NONE);
    let (method, params) = stage.calls.last().unwrap();
    assert_eq!(*method, "session.create");
    assert_eq!(
        params["command"],
        serde_json::json!(["claude", "--resume", "a b"])
    );
}

#[test]
fn the_wanted_session_gets_the_focus_or_the_console_says_that_there_is_none() {
    for (wanted, expected) in [("build", "aaaa"), ("aa", "aaaa"), ("cccc", "cccc")] {
        let start = Start {
            focus: Some(wanted.into()),
            ..Start::default()
        };
        let mut stage = Stage::new(80, 24, start);
        stage.list(0, vec![session("aaaa", "build", "", State::Idle)]);
        stage.list(1, vec![session("cccc", "far", "m1", State::Waiting)]);
        assert_eq!(stage.focused(), expected);
    }
    let start = Start {
        focus: Some("nope".into()),
        ..Start::default()
    };
    let mut stage = Stage::new(80, 24, start);
    stage.list(0, vec![session("aaaa", "build", "", State::Idle)]);
    assert_eq!(stage.left, None, "the server was not heard yet");
    stage.list(1, Vec::new());
    assert_eq!(stage.left, Some(Left::NoSuchSession("nope".into())));
}

#[test]
fn the_mouse_is_the_programs_if_it_asked_and_selects_otherwise() {
    let mut stage = Stage::usual(80, 24);
    let key = here("bbbb");
    let area = stage.app.focused_area();
    let event = |kind, column| {
        Event::Mouse(MouseEvent {
            kind,
            column: area.x + column,
            row: area.y,
            modifiers: KeyModifiers::NONE,
        })
    };
    let left = MouseButton::Left;
    stage
        .app
        .input(event(MouseEventKind::Down(left), 0), stage.now);
    stage
        .app
        .input(event(MouseEventKind::Drag(left), 4), stage.now);
    stage.shown();
    stage
        .app
        .input(event(MouseEventKind::Up(left), 4), stage.now);
    assert_eq!(stage.app.copied, "hello");
    stage.piece(&key, PieceKind::Bytes, b"\x1b[?1000h\x1b[?1006h");
    stage.sent("bbbb");
    stage
        .app
        .input(event(MouseEventKind::Down(left), 3), stage.now);
    assert_eq!(stage.sent("bbbb").0, b"\x1b[<0;4;1M");
    stage.app.input(Event::Paste("a\nb".into()), stage.now);
    assert_eq!(stage.sent("bbbb").0, b"a\rb");
}

#[test]
fn hostile_names_cannot_draw_outside_of_their_line() {
    let mut stage = Stage::new(120, 40, Start::default());
    let mut evil = session("aaaa", "a\x1b[2J\u{202e}b\nc", "", State::Idle);
    evil.title = Some("\x1b]0;x\x07".into());
    evil.program = Some("p\x07q".into());
    stage.list(0, vec![evil]);
    stage.list(1, Vec::new());
    let text = stage.shown();
    assert!(text.contains("a[2Jb c") && text.contains("pq"), "{text}");
}

#[test]
fn every_command_at_every_size_draws_without_a_fault() {
    let commands: Vec<Command> = Stage::usual(80, 24)
        .app
        .keymap
        .rows()
        .iter()
        .map(|row| row.command)
        .collect();
    for (cols, rows) in [
        (1, 1),
        (2, 2),
        (5, 3),
        (12, 4),
        (20, 5),
        (40, 10),
        (60, 20),
        (80, 24),
        (200, 60),
    ] {
        let mut stage = Stage::usual(cols, rows);
        stage.shown();
        for command in &commands {
            stage.command(*command);
            stage.shown();
            for code in [
                KeyCode::Down,
                KeyCode::Char('a'),
                KeyCode::Tab,
                KeyCode::PageDown,
            ] {
                stage.press(code, KeyModifiers::NONE);
                stage.shown();
            }
            if stage.app.popup.is_some() {
                stage.press(KeyCode::Esc, KeyModifiers::NONE);
            }
            stage.app.leave_scroll();
        }
        stage.app.resized((rows, cols), stage.now);
        stage.shown();
    }
}

#[test]
fn an_echo_repaints_its_row_alone() {
    let mut stage = Stage::usual(80, 24);
    stage.shown();
    stage.piece(&here("bbbb"), PieceKind::Bytes, b"x");
    assert!(!stage.app.dirty);
    let damage = stage.view.draw(&mut stage.app, stage.now);
    assert_eq!(damage, Damage::Rows(vec![1]));
    let mut out = Vec::new();
    stage
        .painter
        .frame(&stage.view.buffer, stage.view.caret, &damage, &mut out);
    assert!(out.len() < 40, "{:?}", String::from_utf8_lossy(&out));
}

#[test]
fn an_update_holds_the_screen_back_until_its_end_or_a_while() {
    let mut stage = Stage::usual(80, 24);
    let key = here("bbbb");
    stage.piece(&key, PieceKind::Bytes, b"\x1b[?2026hhalf");
    let now = stage.now;
    let pane = stage.app.pane_mut().unwrap();
    assert!(!pane.may_paint(now));
    let deadline = pane.paint_deadline().unwrap();
    assert!(pane.may_paint(deadline));
    stage.piece(&key, PieceKind::Bytes, b"\x1b[?2026l");
    let pane = stage.app.pane_mut().unwrap();
    assert!(pane.may_paint(now));
    assert_eq!(pane.paint_deadline(), None);
}

#[test]
fn the_filter_and_the_palette_find_sessions() {
    let mut stage = Stage::usual(120, 40);
    stage.prefix('f');
    stage.type_text("tower");
    stage.press(KeyCode::Enter, KeyModifiers::NONE);
    let text = stage.shown();
    assert!(text.contains("far") && !text.contains("build"), "{text}");
    stage.command(Command::Filter);
    stage.press(KeyCode::Char('u'), KeyModifiers::CONTROL);
    stage.press(KeyCode::Enter, KeyModifiers::NONE);
    stage.prefix('p');
    stage.type_text("build");
    assert!(matches!(stage.app.popup, Some(Popup::Picker(_))));
    stage.press(KeyCode::Enter, KeyModifiers::NONE);
    assert_eq!(stage.focused(), "aaaa");
    stage.prefix('l');
    assert_eq!(stage.focused(), "bbbb");
}

#[test]
fn what_was_taken_in_is_acknowledged_at_each_screen_and_now_and_then() {
    let mut stage = Stage::usual(120, 40);
    let key = stage.ends[0].0.clone();
    let id = key.id.as_str().to_owned();
    let acks = |controls: Vec<Control>| -> Vec<u64> {
        let bytes = |control: &Control| match control {
            Control::Ack { bytes } => Some(*bytes),
            _ => None,
        };
        controls.iter().filter_map(bytes).collect()
    };
    stage.sent(&id);
    stage.piece(&key, PieceKind::Bytes, b"a few");
    assert_eq!(stage.sent(&id).1, []);
    let screen = Control::Screen {
        offset: 100,
        length: 6,
        cols: 80,
        rows: 24,
    };
    stage.control(&key, &screen);
    stage.piece(&key, PieceKind::Screen, b"half");
    assert_eq!(stage.sent(&id).1, []);
    stage.piece(&key, PieceKind::Screen, b"ed");
    assert_eq!(acks(stage.sent(&id).1), [11]);
    let every = limits::CONSOLE_ACK_EVERY;
    stage.piece(&key, PieceKind::Bytes, &vec![b'x'; every as usize - 1]);
    assert_eq!(stage.sent(&id).1, []);
    stage.piece(&key, PieceKind::Bytes, b"x");
    assert_eq!(acks(stage.sent(&id).1), [11 + every]);
}

#[test]
fn the_first_session_is_offered_where_the_console_was_started() {
    let start = Start {
        folder: Some("/src/wingman".into()),
        ..Start::default()
    };
    let mut stage = Stage::new(80, 24, start);
    stage.list(0, Vec::new());
    stage.command(Command::New);
    assert!(stage.shown().contains("/src/wingman"), "{}", stage.shown());
}
