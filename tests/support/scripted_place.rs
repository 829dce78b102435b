//! A place of sessions for consoles: each session has its owner's grid and a program that answers keys
//! by rule. Attach, snapshots, streams and losses are as a node has them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use wingman::base::ids::{ConsoleId, TerminalId};
use wingman::base::{EpochMillis, Timestamp};
use wingman::console::backend::{Answer, Backend};
use wingman::terminal::grid::{Effect, Grid, Options, Role, Scrollback, Size};
use wingman::wire::messages::attention::{Attention, State};
use wingman::wire::messages::sessions::{
    AttachMode, AttachParams, AttachReply, Control, Lease, MachineStatus, ReadReply, SearchMatch,
    SearchReply, Session,
};
use wingman::wire::stream::{Piece, PieceKind, StreamEnd};
use wingman::wire::{Code, Fault};

/// What a session's program does with the bytes that it reads.
pub type Program = Arc<dyn Fn(&[u8]) -> Vec<Act> + std::marker::Send + Sync>;

/// What a program does.
pub enum Act {
    Print(Vec<u8>),
    Exit(i32),
    /// The wire to every console of this session breaks.
    Break,
}

struct Hosted {
    session: Session,
    grid: Grid,
    offset: u64,
    program: Program,
    consoles: Vec<mpsc::UnboundedSender<Piece>>,
}

#[derive(Clone, Default)]
pub struct ScriptedPlace {
    sessions: Arc<Mutex<BTreeMap<String, Hosted>>>,
    machines: Option<Vec<MachineStatus>>,
}

/// A session's record with the fields that lists show.
pub fn record(id: &str, name: &str, program: &str, state: State, since: EpochMillis) -> Session {
    let value = json!({
        "id": id, "name": name, "base_path": "/home/ann/src/wingman", "base_kind": "home",
        "shell": "/bin/bash", "created_at": "2026-11-30T22:23:07.004Z", "cols": 80, "rows": 24,
        "attached": 0, "foreground": true, "program": program, "pid": 7, "incompatible": false,
        "bytes_out": 0, "attention": Attention::default(), "lease": Lease::default(),
    });
    let mut session: Session = serde_json::from_value(value).unwrap();
    session.attention.state = state;
    session.attention.since = since;
    session.attention.revision = 1;
    session
}

/// Prints what is typed; Enter starts a line with a prompt.
pub fn echo() -> Program {
    Arc::new(|bytes| {
        let mut out = Vec::new();
        for byte in bytes {
            match byte {
                b'\r' => out.extend_from_slice(b"\r\n$ "),
                0x7f => out.extend_from_slice(b"\x08 \x08"),
                byte => out.push(*byte),
            }
        }
        vec![Act::Print(out)]
    })
}

impl ScriptedPlace {
    /// A server's place has machines; the agent's on this one has none.
    pub fn of_server(machines: Vec<MachineStatus>) -> Self {
        Self {
            machines: Some(machines),
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Hosted>> {
        self.sessions.lock().unwrap()
    }

    pub fn add(&self, session: Session, first: &[u8], program: Program) {
        let size = Size {
            cols: session.cols,
            rows: session.rows,
        };
        let hosted = Hosted {
            grid: Grid::new(size, Options::new(Role::Host)),
            offset: 0,
            program,
            consoles: Vec::new(),
            session,
        };
        let id = hosted.session.id.as_str().to_owned();
        self.lock().insert(id.clone(), hosted);
        self.print(&id, first);
    }

    /// Output of a session's program.
    pub fn print(&self, id: &str, bytes: &[u8]) {
        if let Some(hosted) = self.lock().get_mut(id) {
            hosted.print(bytes);
        }
    }

    fn typed(&self, id: &str, bytes: &[u8]) {
        let Some(program) = self.lock().get(id).map(|hosted| hosted.program.clone()) else {
            return;
        };
        for act in program(bytes) {
            let mut sessions = self.lock();
            let Some(hosted) = sessions.get_mut(id) else {
                return;
            };
            match act {
                Act::Print(bytes) => hosted.print(&bytes),
                Act::Break => hosted.consoles.clear(),
                Act::Exit(code) => {
                    hosted.session.exit_code = Some(code);
                    hosted.session.attention.state = State::Exited;
                    hosted.session.attention.revision += 1;
                    hosted.tell(&Control::Exit {
                        exit_code: Some(code),
                        exit_signal: None,
                    });
                    hosted.consoles.clear();
                }
            }
        }
    }

    fn control(&self, id: &str, control: Control) {
        if let (Some(hosted), Control::Resize { cols, rows, .. }) =
            (self.lock().get_mut(id), control)
        {
            hosted.grid.resize(Size { cols, rows });
            let offset = Some(hosted.offset);
            hosted.tell(&Control::Resize { cols, rows, offset });
        }
    }

    /// The owner's side of one attachment.
    fn open(&self, params: &AttachParams) -> Result<(AttachReply, StreamEnd), Fault> {
        let mut sessions = self.lock();
        let Some(hosted) = sessions.get_mut(&params.session_id) else {
            return Err(Fault::new(
                Code::SessionNotFound,
                "there is no such session",
            ));
        };
        let (queue, mut outgoing) = mpsc::unbounded_channel();
        if params.mode == AttachMode::Control {
            hosted.grid.resize(Size {
                cols: params.cols,
                rows: params.rows,
            });
        }
        let size = hosted.grid.size();
        let known = params.since == Some(hosted.offset);
        let snapshot = if known {
            Vec::new()
        } else {
            hosted.grid.snapshot(Scrollback::None)
        };
        let lease = Lease::default();
        let control = |control: &Control| {
            Piece::new(PieceKind::Control, serde_json::to_vec(control).unwrap())
        };
        let _ = queue.send(control(&Control::Attached {
            since: hosted.offset,
            truncated: !known && params.since.is_some(),
            snapshot_bytes: snapshot.len() as u64,
            cols: size.cols,
            rows: size.rows,
            console_id: None,
            lease: lease.clone(),
        }));
        for part in snapshot.chunks(8 * 1024) {
            let _ = queue.send(Piece::new(PieceKind::Snapshot, part.to_vec()));
        }
        if let Some(code) = hosted.session.exit_code {
            let _ = queue.send(control(&Control::Exit {
                exit_code: Some(code),
                exit_signal: None,
            }));
        } else {
            hosted.consoles.push(queue);
        }
        let reply = AttachReply {
            console_id: params.console_id.clone().unwrap_or_else(ConsoleId::random),
            offset: hosted.offset,
            snapshot_bytes: snapshot.len() as u64,
            truncated: false,
            lease,
            session: hosted.session.clone(),
            holder: None,
        };
        drop(sessions);
        let (ours, theirs) = StreamEnd::pair();
        let (place, id) = (self.clone(), params.session_id.clone());
        let StreamEnd { send, mut recv } = ours;
        tokio::spawn(async move {
            while let Some(piece) = recv.recv().await {
                match piece.kind {
                    PieceKind::Control => {
                        place.control(&id, serde_json::from_slice(&piece.body).unwrap())
                    }
                    _ => place.typed(&id, &piece.body),
                }
            }
        });
        tokio::spawn(async move {
            while let Some(piece) = outgoing.recv().await {
                if send.send(piece).await.is_err() {
                    return;
                }
            }
        });
        Ok((reply, theirs))
    }

    fn answer(&self, method: &str, params: &Value) -> Result<Value, Fault> {
        let id = params["id"].as_str().unwrap_or_default();
        let mut sessions = self.lock();
        let missing = || Fault::new(Code::SessionNotFound, "there is no such session");
        match method {
            "session.list" => Ok(json!({
                "sessions": sessions.values().map(|hosted| &hosted.session).collect::<Vec<_>>(),
                "machines": self.machines,
            })),
            "session.create" => {
                let id = TerminalId::random();
                let name = params["name"].as_str().unwrap_or("shell").to_owned();
                let session = record(id.as_str(), &name, "bash", State::Idle, EpochMillis::now());
                drop(sessions);
                self.add(session.clone(), b"$ ", echo());
                Ok(serde_json::to_value(session).unwrap())
            }
            "session.rename" => {
                let hosted = sessions.get_mut(id).ok_or_else(missing)?;
                hosted.session.name = params["name"].as_str().unwrap_or_default().to_owned();
                Ok(serde_json::to_value(&hosted.session).unwrap())
            }
            "session.kill" => {
                let hosted = sessions.remove(id).ok_or_else(missing)?;
                Ok(serde_json::to_value(&hosted.session).unwrap())
            }
            "session.read" => {
                let hosted = sessions.get(id).ok_or_else(missing)?;
                Ok(serde_json::to_value(hosted.read(params)).unwrap())
            }
            "session.search" => {
                let hosted = sessions.get(id).ok_or_else(missing)?;
                let text = params["text"].as_str().unwrap_or_default();
                Ok(serde_json::to_value(hosted.search(text)).unwrap())
            }
            _ => Err(Fault::new(Code::UnknownMethod, format!("no {method} here"))),
        }
    }
}

impl Hosted {
    fn tell(&mut self, control: &Control) {
        let body = serde_json::to_vec(control).unwrap();
        self.consoles.retain(|console| {
            console
                .send(Piece::new(PieceKind::Control, body.clone()))
                .is_ok()
        });
    }

    fn print(&mut self, bytes: &[u8]) {
        let mut effects: Vec<Effect> = Vec::new();
        self.grid.feed(bytes, &mut effects);
        self.offset += bytes.len() as u64;
        self.session.last_output_at = Some(Timestamp(EpochMillis::now()));
        for part in bytes.chunks(64 * 1024) {
            let piece = Piece::new(PieceKind::Bytes, part.to_vec());
            self.consoles
                .retain(|console| console.send(piece.clone()).is_ok());
        }
    }

    fn lines(&self) -> Vec<String> {
        let history = (0..self.grid.history_len()).map(|index| {
            self.grid
                .history_row(index)
                .map(|row| row.view().text())
                .unwrap_or_default()
        });
        let screen = (0..self.grid.size().rows).map(|row| self.grid.row(row).text());
        history.chain(screen).collect()
    }

    fn read(&self, params: &Value) -> ReadReply {
        let lines = self.lines();
        let count = params["lines"]
            .as_u64()
            .unwrap_or(u64::MAX)
            .min(lines.len() as u64) as usize;
        let from = match params["from"].as_u64() {
            Some(from) => (from as usize).min(lines.len()),
            None => lines.len() - count,
        };
        let to = (from + count).min(lines.len());
        let size = self.grid.size();
        ReadReply {
            text: lines[from..to].join("\n"),
            cols: size.cols,
            rows: size.rows,
            history: self.grid.history_len() as u64,
            from: from as u64,
            ..ReadReply::default()
        }
    }

    fn search(&self, text: &str) -> SearchReply {
        let found = |(line, content): (usize, String)| {
            content.find(text).map(|at| SearchMatch {
                line: line as u64,
                col: at as u16,
                last_line: line as u64,
                end: (at + text.len()) as u16,
            })
        };
        SearchReply {
            matches: self
                .lines()
                .into_iter()
                .enumerate()
                .filter_map(found)
                .collect(),
            history: self.grid.history_len() as u64,
        }
    }
}

impl Backend for ScriptedPlace {
    fn call(&self, method: &'static str, params: Value) -> Answer<Value> {
        let answer = self.answer(method, &params);
        Box::pin(async move { answer })
    }

    fn attach(&self, params: AttachParams) -> Answer<(AttachReply, StreamEnd)> {
        assert_ne!(
            params.session_id, "panic",
            "this session makes the console panic"
        );
        let place = self.clone();
        Box::pin(async move { place.open(&params) })
    }

    fn follow(&self, changed: mpsc::Sender<()>) -> Answer<()> {
        Box::pin(async move {
            changed.closed().await;
            Ok(())
        })
    }
}
