//! A console without a terminal: places and streams are played by the test, frames are read back by an
//! emulator that is not ours.

use std::time::Instant;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

use super::app::{App, Attached, Effect, Happened, Left, Start};
use super::keymap::Command;
use super::paint::Painter;
use super::pane::SessionKey;
use super::view::View;
use crate::base::ids::{ConsoleId, TerminalId};
use crate::base::{EpochMillis, Timestamp};
use crate::config::ConsoleConfig;
use crate::wire::messages::attention::{Attention, State};
use crate::wire::messages::sessions::*;
use crate::wire::stream::{Piece, PieceKind, StreamEnd};

pub fn session(id: &str, name: &str, machine: &str, state: State) -> Session {
    Session {
        id: TerminalId::parse(id).unwrap(),
        machine: machine.into(),
        name: name.into(),
        base_path: "/home/ann/src/wingman".into(),
        base_kind: BaseKind::Home,
        shell: "/bin/bash".into(),
        args: Vec::new(),
        cwd: None,
        created_at: Timestamp(EpochMillis(1)),
        cols: 80,
        rows: 24,
        attached: 0,
        foreground: true,
        program: Some("claude".into()),
        pid: 7,
        exit_code: None,
        exit_signal: None,
        exited_at: None,
        incompatible: false,
        bytes_out: 0,
        title: None,
        last_output_at: None,
        last_input_at: None,
        attention: Attention {
            state,
            since: EpochMillis(1_000),
            revision: 1,
            ..Attention::default()
        },
        lease: Lease::default(),
        recording: false,
    }
}

pub fn reply(session_id: &str, offset: u64) -> AttachReply {
    AttachReply {
        console_id: ConsoleId::parse("me").unwrap(),
        offset,
        snapshot_bytes: 0,
        truncated: false,
        lease: Lease::default(),
        session: session(session_id, "x", "", State::Idle),
        holder: None,
    }
}

/// A console, the emulator that it paints to, and the far ends of its streams.
pub struct Stage {
    pub app: App,
    pub view: View,
    pub painter: Painter,
    pub outer: vt100::Parser,
    pub now: Instant,
    pub ends: Vec<(SessionKey, StreamEnd)>,
    pub left: Option<Left>,
    pub calls: Vec<(&'static str, serde_json::Value)>,
}

impl Stage {
    pub fn new(cols: u16, rows: u16, start: Start) -> Self {
        let now = Instant::now();
        let places = [("here".to_owned(), true), ("server".to_owned(), false)];
        let app = App::new(
            ConsoleConfig::default(),
            &places,
            start,
            (cols, rows),
            (now, 61_000),
        )
        .unwrap();
        Self {
            app,
            view: View::new(cols, rows),
            painter: Painter::new(cols, rows),
            outer: vt100::Parser::new(rows, cols, 0),
            now,
            ends: Vec::new(),
            left: None,
            calls: Vec::new(),
        }
    }

    /// Two sessions here and one at the server, whose first one waits.
    pub fn usual(cols: u16, rows: u16) -> Self {
        let mut stage = Self::new(cols, rows, Start::default());
        stage.list(
            0,
            vec![
                session("aaaa", "build", "", State::Working),
                session("bbbb", "agent", "", State::Waiting),
            ],
        );
        stage.list(1, vec![session("cccc", "far", "m1", State::Idle)]);
        stage
    }

    pub fn list(&mut self, place: usize, sessions: Vec<Session>) {
        let machines = (place == 1).then(|| {
            vec![MachineStatus {
                name: "m1".into(),
                hostname: Some("tower".into()),
                ok: true,
                fetched_at: None,
                error: None,
            }]
        });
        let list = SessionList { sessions, machines };
        self.app
            .happened(Happened::Listed(place, Ok(list)), self.now);
        self.run();
    }

    /// Carries effects out; every attachment succeeds with a snapshot of two lines.
    pub fn run(&mut self) {
        self.app.tick(self.now);
        while !self.app.effects.is_empty() {
            for effect in std::mem::take(&mut self.app.effects) {
                match effect {
                    Effect::Attach {
                        key,
                        attempt,
                        params,
                    } => self.attach(key, attempt, &params),
                    Effect::Leave(left) => self.left = Some(left),
                    Effect::Call { method, params, .. } => self.calls.push((method, params)),
                    _ => {}
                }
            }
        }
    }

    /// What the console asked for instead of `run`, which answers at once.
    pub fn asked_to_attach(&mut self) -> (SessionKey, u64, AttachParams) {
        let mut asked = self.app.effects.drain(..);
        let attach = asked.find_map(|effect| match effect {
            Effect::Attach {
                key,
                attempt,
                params,
            } => Some((key, attempt, params)),
            _ => None,
        });
        attach.expect("an attachment is asked for")
    }

    pub fn attach(&mut self, key: SessionKey, attempt: u64, params: &AttachParams) {
        let (ours, theirs) = StreamEnd::pair();
        let reply = reply(key.id.as_str(), 5);
        self.ends.retain(|(other, _)| *other != key);
        self.ends.push((key.clone(), theirs));
        let answer = Ok((reply, ours));
        self.app.happened(
            Happened::Attached(Box::new(Attached {
                key: key.clone(),
                attempt,
                answer,
                watcher: None,
            })),
            self.now,
        );
        if params.since.is_none() {
            let text = format!("hello from {}\r\n", key.id);
            self.control(
                &key,
                &Control::Attached {
                    since: 5,
                    truncated: false,
                    snapshot_bytes: text.len() as u64,
                    cols: params.cols,
                    rows: params.rows,
                    console_id: None,
                    lease: Lease::default(),
                },
            );
            self.piece(&key, PieceKind::Snapshot, text.as_bytes());
        }
    }

    pub fn control(&mut self, key: &SessionKey, control: &Control) {
        self.piece(
            key,
            PieceKind::Control,
            &serde_json::to_vec(control).unwrap(),
        );
    }

    pub fn piece(&mut self, key: &SessionKey, kind: PieceKind, body: &[u8]) {
        let index = self
            .app
            .panes
            .iter()
            .position(|pane| pane.key == *key)
            .unwrap();
        self.app
            .piece(index, Some(Piece::new(kind, body.to_vec())), self.now);
    }

    /// What the console sent to a session since the last call: typed bytes, then controls.
    pub fn sent(&mut self, id: &str) -> (Vec<u8>, Vec<Control>) {
        let mut typed = Vec::new();
        let mut controls = Vec::new();
        loop {
            // The queue is short: what waits behind it follows when there is room.
            for pane in &mut self.app.panes {
                let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                let _ = pane.poll(&mut context);
            }
            let end = self.ends.iter_mut().find(|(key, _)| key.id.as_str() == id);
            let Some(piece) = end.and_then(|(_, end)| end.recv.try_recv().ok()) else {
                break;
            };
            match piece.kind {
                PieceKind::Bytes => typed.extend_from_slice(&piece.body),
                _ => controls.push(serde_json::from_slice(&piece.body).unwrap()),
            }
        }
        (typed, controls)
    }

    pub fn press(&mut self, code: KeyCode, modifiers: KeyModifiers) {
        let event = Event::Key(KeyEvent::new(code, modifiers));
        self.app.input(event, self.now);
        self.run();
    }

    pub fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            self.press(KeyCode::Char(c), KeyModifiers::NONE);
        }
    }

    pub fn prefix(&mut self, key: char) {
        self.press(KeyCode::Char('\\'), KeyModifiers::CONTROL);
        self.press(KeyCode::Char(key), KeyModifiers::NONE);
    }

    pub fn command(&mut self, command: Command) {
        self.app.command(command, self.now);
        self.run();
    }

    /// Paints, and checks that the emulator shows what the frame holds.
    pub fn shown(&mut self) -> String {
        let size = self.app.size;
        if (self.view.buffer.cols(), self.view.buffer.rows()) != size {
            self.painter.forget(size.0, size.1);
            self.outer.screen_mut().set_size(size.1, size.0);
        }
        let damage = self.view.draw(&mut self.app, self.now);
        let mut out = Vec::new();
        self.painter
            .frame(&self.view.buffer, self.view.caret, &damage, &mut out);
        self.outer.process(&out);
        self.check_shown();
        self.outer.screen().contents()
    }

    pub fn check_shown(&self) {
        let screen = self.outer.screen();
        for y in 0..self.view.buffer.rows() {
            for (x, cell) in self.view.buffer.row(y).iter().enumerate() {
                let shown = screen.cell(y, x as u16).unwrap();
                if cell.width > 0 {
                    let text = if shown.has_contents() {
                        shown.contents()
                    } else {
                        " "
                    };
                    assert_eq!(text, cell.glyph.as_str(), "at {x},{y}");
                }
            }
        }
        assert_eq!(screen.hide_cursor(), !self.view.caret.visible);
        if self.view.caret.visible {
            assert_eq!(
                screen.cursor_position(),
                (self.view.caret.y, self.view.caret.x)
            );
        }
    }

    pub fn focused(&self) -> &str {
        self.app.pane().map_or("", |pane| pane.key.id.as_str())
    }
}
