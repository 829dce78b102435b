//! Consoles over WebSocket: a real server, a workstation behind a real link.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::CancellationToken;
use wingman::base::ids::ConsoleId;
use wingman::base::{Secret, limits};
use wingman::client::{Caller, HttpCaller};
use wingman::config::HttpConfig;
use wingman::control::tls::http_tls;
use wingman::wire::messages::sessions::{AttachMode, AttachParams, Control, Location};
use wingman::wire::permission::Role;
use wingman::wire::{Code, Piece, PieceKind, StreamEnd};

use crate::control_server::TestServer;
use crate::link_support::wait_for;
use crate::terminal_node::{Served, TerminalNode};

const NAMES: &[&str] = &["echo", "flood", "brief", "full"];

struct Bench {
    server: TestServer,
    node: Arc<TerminalNode>,
    _dir: tempfile::TempDir,
}

fn bench() -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let node = TerminalNode::new(NAMES);
    server.link("desk", Arc::new(Served(Arc::clone(&node))));
    Bench {
        server,
        node,
        _dir: dir,
    }
}

/// A console that speaks the wire by hand.
struct Console {
    socket: WebSocketStream<TcpStream>,
}

impl Bench {
    async fn open(&self, query: &str, headers: &[(&'static str, String)]) -> Result<Console, u16> {
        let address = self.server.address;
        let mut request = format!("ws://{address}/ws/pty?{query}")
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        match wait_for("the upgrade", client_async(request, stream)).await {
            Ok((socket, _)) => Ok(Console { socket }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn with_token(&self, query: &str, token: &str) -> Result<Console, u16> {
        self.open(query, &[("authorization", format!("Bearer {token}"))])
            .await
    }

    async fn admin(&self, query: &str) -> Console {
        self.with_token(query, &self.server.admin).await.unwrap()
    }

    fn caller(&self) -> Caller {
        let token = Secret::new(self.server.admin.clone());
        let base = format!("http://{}", self.server.address);
        Caller::Http {
            http: HttpCaller::new(&base, Some(token), None).unwrap(),
            agent: None,
        }
    }

    fn audit(&self, kind: &str) -> Vec<Value> {
        let reply = self
            .server
            .data("GET", &format!("/api/audit?kind={kind}"), None);
        reply["events"].as_array().unwrap().clone()
    }

    /// The row of a console that left; it is written after the socket has closed.
    fn left(&self) -> Value {
        self.server
            .eventually("the row", || self.audit("session.detach").pop())
    }

    fn grant(&self, username: &str, level: &str) {
        let path = format!("/api/sessions/{}/grants", self.node.id("echo"));
        let body = json!({"username": username, "level": level});
        assert_eq!(self.server.ask("POST", &path, Some(body)).status, 200);
    }
}

impl Console {
    async fn next(&mut self) -> Message {
        wait_for("a frame", self.socket.next())
            .await
            .unwrap()
            .unwrap()
    }

    async fn control(&mut self) -> Control {
        match self.next().await {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn bytes(&mut self) -> Vec<u8> {
        match self.next().await {
            Message::Binary(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// The close, whatever comes before it.
    async fn closed(&mut self) -> (u16, String) {
        loop {
            if let Message::Close(frame) = self.next().await {
                let frame = frame.unwrap();
                return (frame.code.into(), frame.reason.to_string());
            }
        }
    }

    async fn send(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    async fn type_text(&mut self, text: &str) {
        self.send(Message::binary(text.as_bytes().to_vec())).await;
    }

    async fn tell(&mut self, control: &Control) {
        self.send(Message::text(serde_json::to_string(control).unwrap()))
            .await;
    }

    /// Takes `attached` and the snapshot of `echo`.
    async fn attached(&mut self) -> ConsoleId {
        let Control::Attached {
            console_id,
            snapshot_bytes,
            ..
        } = self.control().await
        else {
            panic!("not attached")
        };
        if snapshot_bytes > 0 {
            assert_eq!(self.bytes().await, b"shown");
        }
        console_id.unwrap()
    }
}

fn params(session: &str) -> AttachParams {
    AttachParams {
        session_id: session.into(),
        cols: 120,
        rows: 40,
        mode: AttachMode::Control,
        since: Some(7),
        exclusive: false,
        takeover: false,
        console_id: None,
        label: "ann@host".into(),
        location: Location::Local,
        acks: true,
    }
}

async fn piece(end: &mut StreamEnd) -> Option<Piece> {
    wait_for("a piece", end.recv.recv()).await
}

#[test]
fn console_attaches_types_and_detaches_as_on_every_other_wire() {
    let bench = bench();
    bench.server.block_on(async {
        let (reply, mut end) = bench.caller().attach(&params("echo")).await.unwrap();
        assert_eq!((reply.offset, reply.snapshot_bytes), (100, 5));
        assert_eq!(reply.session.machine, "desk");
        let first = piece(&mut end).await.unwrap();
        assert_eq!(first.kind, PieceKind::Control);
        let shown = piece(&mut end).await.unwrap();
        assert_eq!(shown, Piece::new(PieceKind::Snapshot, &b"shown"[..]));
        // More than a window both ways.
        let typed: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        let StreamEnd { send, mut recv } = end;
        let paste = Piece::new(PieceKind::Bytes, typed.clone());
        let typing = tokio::spawn(async move {
            send.send(paste).await.unwrap();
            send
        });
        let mut back = Vec::new();
        while back.len() < typed.len() {
            let piece = wait_for("the echo", recv.recv()).await.unwrap();
            assert_eq!(piece.kind, PieceKind::Bytes);
            back.extend_from_slice(&piece.body);
        }
        assert!(back == typed);
        drop(typing.await.unwrap());
    });
    bench.node.saw("echo gone");
    let told = bench.node.last("session.attach").unwrap();
    assert_eq!(told["label"], "admin (ann@host)");
    assert_eq!(
        (&told["location"], &told["since"]),
        (&json!("server"), &json!(7))
    );
    let row = bench.left();
    assert_eq!(row["actor"], "admin");
    assert_eq!(row["detail"]["typedBytes"], 300_000);
    assert_eq!(row["detail"]["reason"], "console");
    assert_eq!(row["target"], format!("desk/{}", bench.node.id("echo")));
    assert_eq!(bench.audit("session.attach")[0]["address"], "127.0.0.1");
}

#[test]
fn refusals_carry_their_code() {
    let bench = bench();
    bench.server.block_on(async {
        for (session, code) in [
            ("nothing", "session_not_found"),
            ("full", "too_many_sessions"),
            ("moon%2Fecho", "session_not_found"),
        ] {
            let mut console = bench
                .admin(&format!("session={session}&cols=80&rows=24"))
                .await;
            assert_eq!(console.closed().await, (1008, code.into()), "{session}");
        }
        let mut console = bench.admin("session=echo&machine=moon").await;
        assert_eq!(console.closed().await, (1008, "agent_offline".into()));
        let fault = bench.caller().attach(&params("full")).await.unwrap_err();
        assert_eq!(fault.code, Code::TooManySessions);
        assert_eq!(
            bench.with_token("cols=1", &bench.server.admin).await.err(),
            Some(400)
        );
    });
    let rows = bench.audit("session.attach");
    assert_eq!(rows.len(), 5);
    assert_eq!(rows.last().unwrap()["outcome"], "session_not_found");
}

#[test]
fn streams_end_with_the_session_the_link_and_the_console() {
    let bench = bench();
    bench.server.block_on(async {
        let mut console = bench.admin("session=brief").await;
        console.attached().await;
        assert_eq!(console.bytes().await, b"bye");
        let exit = console.control().await;
        assert_eq!(
            exit,
            Control::Exit {
                exit_code: Some(3),
                exit_signal: None
            }
        );
        assert_eq!(console.closed().await, (1000, "done".into()));
        let mut console = bench.admin("session=echo").await;
        console.attached().await;
        drop(console);
    });
    bench.node.saw("echo gone");
    bench.server.block_on(async {
        let mut console = bench.admin("session=echo").await;
        console.attached().await;
        bench.server.unlink("desk");
        assert_eq!(console.closed().await, (1013, "agent_offline".into()));
    });
    let metrics = bench.server.eventually("the counters", || {
        let text = bench.server.ask("GET", "/metrics", None).text();
        text.contains("wingman_consoles_attached 0").then_some(text)
    });
    for reason in ["session", "console", "offline"] {
        let line = format!("wingman_console_streams_closed_total{{reason=\"{reason}\"}} 1");
        assert!(metrics.contains(&line), "{line} not in {metrics}");
    }
}

#[test]
fn every_role_may_what_its_permissions_say() {
    let bench = bench();
    let modes = [
        ("mode=observe", "sessions:view"),
        ("mode=control", "sessions:control"),
        (
            "mode=control&exclusive=true&takeover=true",
            "sessions:manage",
        ),
    ];
    for role in Role::ALL {
        let token = bench.server.token_of(*role);
        for (mode, permission) in modes {
            let permission = wingman::wire::Permission::parse(permission).unwrap();
            let query = format!("session=echo&{mode}");
            let opened = bench.server.block_on(bench.with_token(&query, &token));
            let expected = if role.holds(permission) {
                None
            } else {
                Some(403)
            };
            assert_eq!(opened.err(), expected, "{role:?} {mode}");
        }
    }
    let scoped = json!({"label": "narrow", "scopes": ["agents:view"]});
    let made = bench
        .server
        .ask("POST", "/api/auth/tokens", Some(scoped))
        .json();
    bench.server.block_on(async {
        let narrow = made["token"].as_str().unwrap();
        assert_eq!(
            bench
                .with_token("session=echo&mode=observe", narrow)
                .await
                .err(),
            Some(403)
        );
        assert_eq!(bench.open("session=echo", &[]).await.err(), Some(401));
        let host = ("host", "evil.example".to_owned());
        assert_eq!(bench.open("session=echo", &[host]).await.err(), Some(403));
    });
}

#[test]
fn cookies_open_sockets_for_their_own_origin_alone() {
    let bench = bench();
    let ticket = bench
        .server
        .ask("POST", "/api/auth/tickets", Some(json!({})));
    let url = ticket.json()["data"]["url"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let url = if url.is_empty() {
        ticket.json()["url"].as_str().unwrap().to_owned()
    } else {
        url
    };
    let (_, secret) = url.split_once("ticket=").unwrap();
    let opened = bench
        .server
        .request("GET", &format!("/login?ticket={secret}"), &[], None);
    let cookie = opened
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let own = format!("http://{}", bench.server.address);
    bench.server.block_on(async {
        for (origin, status) in [
            (None, Some(403)),
            (Some("http://evil.example".to_owned()), Some(403)),
            (Some(format!("{own}0")), Some(403)),
            (Some(own.clone()), None),
        ] {
            let mut headers = vec![("cookie", cookie.clone())];
            headers.extend(origin.clone().map(|origin| ("origin", origin)));
            let opened = bench.open("session=echo", &headers).await;
            assert_eq!(opened.err(), status, "{origin:?}");
        }
    });
}

#[test]
fn observer_neither_types_nor_resizes() {
    let bench = bench();
    bench.server.block_on(async {
        let mut console = bench.admin("session=echo&mode=observe").await;
        console.attached().await;
        let refused = |control: Control| matches!(control, Control::Error { code, .. } if code == "permission_denied");
        console.type_text("hunter2").await;
        assert!(refused(console.control().await));
        for control in [
            Control::Resize { cols: 9, rows: 9, offset: None },
            Control::Take { takeover: false },
        ] {
            console.tell(&control).await;
            assert!(refused(console.control().await));
        }
        console.tell(&Control::Focus { focused: true }).await;
        console.send(Message::text("{")).await;
        let Control::Error { code, .. } = console.control().await else { panic!() };
        assert_eq!(code, "invalid_message");
    });
    bench
        .node
        .saw("Control {\"type\":\"focus\",\"focused\":true}");
    assert_eq!(bench.left()["detail"]["typedBytes"], 0);
}

#[test]
fn grant_opens_one_session_and_its_end_closes_the_socket() {
    let bench = bench();
    let token = bench.server.token_of(Role::Viewer);
    let attach = |session: &'static str| bench.with_token(session, &token);
    bench.grant("some-viewer", "control");
    let mut console = bench.server.block_on(attach("session=echo")).unwrap();
    let mut watcher = bench
        .server
        .block_on(attach("session=echo&mode=observe"))
        .unwrap();
    bench.server.block_on(async {
        console.attached().await;
        watcher.attached().await;
        console.type_text("x").await;
        assert_eq!(console.bytes().await, b"x");
        // Another session is closed to the account; taking over needs more.
        let mut other = attach("session=flood").await.unwrap();
        assert_eq!(other.closed().await, (1008, "permission_denied".into()));
        console.tell(&Control::Take { takeover: true }).await;
        assert!(matches!(console.control().await, Control::Error { .. }));
    });
    // Less than the attachment rests on ends it as well; the watcher rests on its role.
    bench.grant("some-viewer", "view");
    bench.server.block_on(async {
        assert_eq!(console.closed().await, (1008, "permission_denied".into()));
        let again = attach("session=echo").await;
        assert_eq!(again.err(), Some(403));
        watcher
            .socket
            .send(Message::Ping(Default::default()))
            .await
            .unwrap();
        assert!(matches!(watcher.next().await, Message::Pong(_)));
    });
}

#[test]
fn revoked_token_closes_its_consoles() {
    let bench = bench();
    let made = bench
        .server
        .ask("POST", "/api/auth/tokens", Some(json!({"label": "t"})))
        .json();
    let made = if made["token"].is_string() {
        made
    } else {
        made["data"].clone()
    };
    let token = made["token"].as_str().unwrap();
    let mut console = bench
        .server
        .block_on(bench.with_token("session=echo", token))
        .unwrap();
    bench.server.block_on(console.attached());
    let base = format!("http://{}", bench.server.address);
    let http = HttpCaller::new(&base, Some(Secret::new(token)), None).unwrap();
    let ours = Caller::Http { http, agent: None };
    let attached = bench.server.block_on(ours.attach(&params("echo")));
    let (_, mut end) = attached.unwrap();
    let id = made["id"].as_str().unwrap();
    let revoked = bench
        .server
        .ask("DELETE", &format!("/api/auth/tokens/{id}"), None);
    assert_eq!(revoked.status, 200, "{}", revoked.text());
    let closed = bench.server.block_on(console.closed());
    assert_eq!(closed, (1008, "unauthenticated".into()));
    let mut last = None;
    while let Some(piece) = bench.server.block_on(piece(&mut end)) {
        last = Some(piece);
    }
    let last: Control = serde_json::from_slice(&last.unwrap().body).unwrap();
    assert!(matches!(last, Control::Error { code, .. } if code == "unauthenticated"));
    assert_eq!(bench.left()["detail"]["reason"], "credential");
}

/// Takes frames until as many bytes have come as the server may send.
async fn take(console: &mut Console, most: usize) -> usize {
    let mut taken = 0;
    while taken < most {
        taken += console.next().await.len();
    }
    taken
}

#[test]
fn console_with_credit_is_sent_what_it_allows_and_stalls_nobody() {
    let bench = bench();
    bench.server.block_on(async {
        let mut stalled = bench.admin("session=flood&credit=true").await;
        let mut other = bench.admin("session=echo").await;
        other.attached().await;
        for round in 0..200 {
            let text = format!("key {round}");
            other.type_text(&text).await;
            assert_eq!(other.bytes().await, text.as_bytes());
        }
        let first = limits::CHANNEL_CREDIT_FIRST;
        assert_eq!(take(&mut stalled, first).await, first);
        for grant in [1, 1_000, 40_000] {
            stalled
                .tell(&Control::Credit {
                    bytes: grant as u64,
                })
                .await;
            assert_eq!(take(&mut stalled, grant).await, grant);
        }
        // One that asks for no bound is bounded by its socket, and stalls nobody either.
        let _unread = bench.admin("session=flood").await;
        for _ in 0..200 {
            other.type_text("z").await;
            assert_eq!(other.bytes().await, b"z");
        }
    });
}

#[test]
fn console_ids_stay_with_their_account() {
    let bench = bench();
    let operator = bench.server.token_of(Role::Operator);
    bench.server.block_on(async {
        let mut mine = bench.admin("session=echo").await;
        let id = mine.attached().await;
        let query = format!("session=echo&console_id={id}");
        let mut again = bench.admin(&query).await;
        assert_eq!(again.attached().await, id, "a reconnect keeps its identity");
        let mut theirs = bench.with_token(&query, &operator).await.unwrap();
        assert_ne!(theirs.attached().await, id);
        let query = format!("session=echo&console_id={}", ConsoleId::random());
        bench.admin(&query).await.attached().await;
        let told = bench.node.last("session.attach").unwrap();
        assert_eq!(
            told.get("consoleId"),
            None,
            "an id that was never given here is not passed on"
        );
    });
}

#[test]
fn what_is_typed_stands_in_no_audit_row() {
    let bench = bench();
    bench.server.block_on(async {
        let mut console = bench.admin("session=echo").await;
        console.attached().await;
        console.type_text("hunter2").await;
        assert_eq!(console.bytes().await, b"hunter2");
    });
    assert_eq!(bench.left()["detail"]["typedBytes"], 7);
    let everything = bench.server.ask("GET", "/api/audit", None).text();
    assert!(!everything.contains("hunter2"));
}

#[test]
fn console_goes_through_tls_to_the_pinned_server_alone() {
    let bench = bench();
    let listen = "127.0.0.1:0".parse().unwrap();
    // An address beyond loopback asks for a certificate.
    let open_address = "192.0.2.1:1".parse().unwrap();
    let tls = http_tls(&HttpConfig::default(), open_address, bench._dir.path());
    let tls = tls.unwrap().unwrap();
    let pin = tls.pin.clone().unwrap();
    bench.server.block_on(async {
        let listener = tokio::net::TcpListener::bind::<std::net::SocketAddr>(listen)
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let server = bench.server.server.clone();
        let stop = CancellationToken::new();
        let serving = tokio::spawn({
            let stop = stop.clone();
            async move { server.serve(listener, Some(tls), stop).await }
        });
        let caller = |pin: &str| {
            let token = Secret::new(bench.server.admin.clone());
            let base = format!("https://{address}");
            let http = HttpCaller::new(&base, Some(token), Some(pin)).unwrap();
            Caller::Http {
                http,
                agent: Some("desk".parse().unwrap()),
            }
        };
        let (reply, mut end) = caller(&pin).attach(&params("echo")).await.unwrap();
        assert_eq!(reply.session.name, "echo");
        end.send
            .send(Piece::new(PieceKind::Bytes, &b"key"[..]))
            .await
            .unwrap();
        let mut last = piece(&mut end).await;
        while !matches!(&last, Some(last) if last.kind == PieceKind::Bytes) {
            last = piece(&mut end).await;
        }
        assert_eq!(&last.unwrap().body[..], b"key");
        let fault = caller(&"0".repeat(64))
            .attach(&params("echo"))
            .await
            .unwrap_err();
        assert_eq!(fault.code, Code::PinMismatch);
        stop.cancel();
        while piece(&mut end).await.is_some() {}
        serving.await.unwrap().unwrap();
    });
}
