//! A workstation with terminal sessions, as a server's tests need it.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::mpsc;
use wingman::base::ids::{ConsoleId, TerminalId};
use wingman::base::{EpochMillis, Timestamp};
use wingman::wire::messages::sessions::{AttachReply, Control, Session, SessionList};
use wingman::wire::{
    Answer, Blob, BoxFuture, Call, Code, Fault, Handler, Origin, Piece, PieceKind, StreamEnd,
};

/// Answers calls about its sessions; a session's name says what its stream does: `echo` sends back
/// what is typed, `flood` never stops, `brief` ends by itself, `full` takes no console.
pub struct TerminalNode {
    pub sessions: Vec<Session>,
    pub calls: Mutex<Vec<Call>>,
    log: mpsc::UnboundedSender<String>,
    pub seen: Mutex<mpsc::UnboundedReceiver<String>>,
}

pub fn session(id: &TerminalId, name: &str) -> Session {
    serde_json::from_value(json!({
        "id": id, "name": name, "base_path": "/home/ann", "base_kind": "home", "shell": "bash",
        "created_at": "2026-01-01T00:00:00.000Z", "cols": 80, "rows": 24, "attached": 0,
        "foreground": false, "pid": 7, "incompatible": false, "bytes_out": 0,
        "attention": {"state": "unknown", "source": "none", "since": 0, "revision": 0},
        "lease": {"mode": "shared", "generation": 0},
    }))
    .unwrap()
}

impl TerminalNode {
    pub fn new(names: &[&str]) -> Arc<Self> {
        let (log, seen) = mpsc::unbounded_channel();
        let made = |name: &&str| session(&TerminalId::random(), name);
        Arc::new(Self {
            sessions: names.iter().map(made).collect(),
            calls: Mutex::default(),
            log,
            seen: Mutex::new(seen),
        })
    }

    pub fn id(&self, name: &str) -> String {
        let found = self.sessions.iter().find(|session| session.name == name);
        found.unwrap().id.to_string()
    }

    /// The parameters of the last call of a method.
    pub fn last(&self, method: &str) -> Option<Value> {
        let calls = self.calls.lock().unwrap();
        let found = calls.iter().rev().find(|call| call.method == method);
        found.map(|call| call.params.clone())
    }

    /// Waits for a line of the log.
    pub fn saw(&self, wanted: &str) {
        let mut seen = self.seen.lock().unwrap();
        loop {
            let line = seen.blocking_recv().unwrap();
            if line == wanted {
                return;
            }
        }
    }

    fn attach(&self, call: &Call, session: &Session) -> Result<Answer, Fault> {
        if session.name == "full" {
            return Err(Fault::new(Code::TooManySessions, "too many consoles"));
        }
        let given = call.params["consoleId"].as_str();
        let console = given.map_or_else(ConsoleId::random, |id| ConsoleId::parse(id).unwrap());
        let snapshot = if session.name == "echo" { 5 } else { 0 };
        let attached = Control::Attached {
            since: 100,
            truncated: false,
            snapshot_bytes: snapshot,
            cols: 80,
            rows: 24,
            console_id: Some(console.clone()),
            lease: session.lease.clone(),
        };
        let (near, far) = StreamEnd::pair();
        let log = self.log.clone();
        tokio::spawn(play(session.name.clone(), near, attached, log));
        let reply = AttachReply {
            console_id: console,
            offset: 100,
            snapshot_bytes: snapshot,
            truncated: false,
            lease: session.lease.clone(),
            session: session.clone(),
            holder: None,
        };
        Ok(Answer {
            stream: Some(far),
            ..Answer::of(&reply)?
        })
    }
}

async fn play(
    name: String,
    mut end: StreamEnd,
    attached: Control,
    log: mpsc::UnboundedSender<String>,
) {
    let bytes = |text: &str| Piece::new(PieceKind::Bytes, text.to_owned());
    let control = Piece::new(PieceKind::Control, serde_json::to_vec(&attached).unwrap());
    let _ = end.send.send(control).await;
    match name.as_str() {
        "flood" => {
            let flood = || Piece::new(PieceKind::Bytes, vec![b'x'; 5_000]);
            while end.send.send(flood()).await.is_ok() {}
        }
        "brief" => {
            let exit = Control::Exit {
                exit_code: Some(3),
                exit_signal: None,
            };
            let exit = Piece::new(PieceKind::Control, serde_json::to_vec(&exit).unwrap());
            let _ = end.send.send(bytes("bye")).await;
            let _ = end.send.send(exit).await;
        }
        _ => {
            let snapshot = Piece::new(PieceKind::Snapshot, &b"shown"[..]);
            let _ = end.send.send(snapshot).await;
            while let Some(piece) = end.recv.recv().await {
                let text = String::from_utf8_lossy(&piece.body);
                let _ = log.send(format!("{:?} {text}", piece.kind));
                if piece.kind == PieceKind::Bytes && end.send.send(piece).await.is_err() {
                    break;
                }
            }
        }
    }
    let _ = log.send(format!("{name} gone"));
}

/// What the handler shares with the test.
pub struct Served(pub Arc<TerminalNode>);

impl Handler for Served {
    fn call(&self, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        let node = Arc::clone(&self.0);
        Box::pin(async move {
            node.calls.lock().unwrap().push(call.clone());
            let id = match call.method.as_str() {
                "session.attach" => &call.params["sessionId"],
                _ => &call.params["id"],
            };
            let session = node.sessions.iter().find(|s| *id == s.id.as_str());
            let gone = || Fault::new(Code::SessionNotFound, "no such session");
            match call.method.as_str() {
                "session.list" => Answer::of(&SessionList {
                    sessions: node.sessions.clone(),
                    machines: None,
                }),
                "session.create" => Answer::of(&node.sessions[0]),
                "session.attach" => node.attach(&call, session.ok_or_else(gone)?),
                "session.picture" => Ok(Answer {
                    data: json!({}),
                    blob: Some(Blob {
                        content_type: "text/html".into(),
                        bytes: (&b"\x89PNG"[..]).into(),
                        field: "image",
                    }),
                    ..Answer::default()
                }),
                "session.wait" => {
                    let _ = node.log.send("waiting".into());
                    call.cancel.cancelled().await;
                    let _ = node.log.send("cancelled".into());
                    Err(Fault::new(Code::Cancelled, "the caller has gone"))
                }
                "session.lease" => Answer::of(&session.ok_or_else(gone)?.lease),
                "footprint.get" => {
                    let row = |s: &Session| json!({"id": s.id, "base_path": s.base_path, "pid": 7, "foreground": false});
                    let rows: Vec<_> = node.sessions.iter().map(row).collect();
                    Answer::of(&json!({"rows": [], "pty": rows}))
                }
                _ => {
                    let mut told = session.ok_or_else(gone)?.clone();
                    told.machine = "someone else".into();
                    told.last_input_at = Some(Timestamp(EpochMillis(1)));
                    Answer::of(&told)
                }
            }
        })
    }

    fn disconnected(&self, _origin: Origin) {}
}
