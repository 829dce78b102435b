//! The local wire end to end: real sockets, a real journal, a handler of the test's own.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use wingman::base::ids::InstanceId;
use wingman::base::limits;
use wingman::config::{IpcConfig, Transport};
use wingman::ipc::{self, Client, Endpoint, IpcOptions, IpcServer};
use wingman::journal::{Journal, Options};
use wingman::wire::envelope::{Decoder, Envelope, Kind, Unit};
use wingman::wire::event::Draft;
use wingman::wire::messages::events::{DrainReply, FollowParams};
use wingman::wire::{Answer, Blob, BoxFuture, Call, Code, Fault, Handler, Origin};

/// Longer than anything here takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers with what it was asked; `screenshot.capture` with bytes; `window.wait` when let go.
struct Echo {
    gone: mpsc::UnboundedSender<Origin>,
    running: AtomicUsize,
    running_max: AtomicUsize,
    gate: Arc<Semaphore>,
    cancelled: Mutex<Vec<CancellationToken>>,
    blob: Bytes,
}

impl Handler for EchoHandle {
    fn call(&self, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        let echo = Arc::clone(&self.0);
        Box::pin(async move {
            match call.method.as_str() {
                "screenshot.capture" => Ok(Answer {
                    data: json!({"width": 1}),
                    blob: Some(Blob {
                        content_type: "image/png".into(),
                        bytes: echo.blob.clone(),
                        field: "image",
                    }),
                    ..Answer::default()
                }),
                "window.wait" => {
                    echo.cancelled.lock().unwrap().push(call.cancel);
                    let now = echo.running.fetch_add(1, Ordering::SeqCst) + 1;
                    echo.running_max.fetch_max(now, Ordering::SeqCst);
                    echo.gate.acquire().await.unwrap().forget();
                    echo.running.fetch_sub(1, Ordering::SeqCst);
                    Ok(Answer::default())
                }
                "system.isPaused" => Err(Fault::new(Code::Busy, "ask again")),
                _ => Answer::of(&json!({"method": call.method, "params": call.params})),
            }
        })
    }

    fn disconnected(&self, origin: Origin) {
        let _ = self.0.gone.send(origin);
    }
}

struct EchoHandle(Arc<Echo>);

struct Bench {
    dir: tempfile::TempDir,
    echo: Arc<Echo>,
    gone: mpsc::UnboundedReceiver<Origin>,
    journal: Journal,
    shutdown: CancellationToken,
    server: IpcServer,
}

impl Bench {
    async fn start() -> Self {
        Self::with(Transport::Auto).await
    }

    async fn with(transport: Transport) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (send, gone) = mpsc::unbounded_channel();
        let echo = Arc::new(Echo {
            gone: send,
            running: AtomicUsize::new(0),
            running_max: AtomicUsize::new(0),
            gate: Arc::new(Semaphore::new(0)),
            cancelled: Mutex::default(),
            blob: (0..3_000_000_u32).map(|n| n as u8).collect(),
        });
        let (journal, _) = Journal::open(Options::new(
            dir.path().join("journal"),
            InstanceId::random(),
        ))
        .unwrap();
        let shutdown = CancellationToken::new();
        let server = serve(dir.path(), transport, &echo, &journal, &shutdown)
            .await
            .unwrap();
        Self {
            dir,
            echo,
            gone,
            journal,
            shutdown,
            server,
        }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("a.sock")
    }

    async fn client(&self) -> Client {
        Client::connect(self.server.endpoint()).await.unwrap()
    }

    async fn raw(&self) -> Raw {
        Raw {
            stream: UnixStream::connect(self.socket()).await.unwrap(),
            decoder: Decoder::default(),
            inbox: BytesMut::new(),
        }
    }

    async fn next_gone(&mut self) -> Origin {
        within(self.gone.recv()).await.unwrap()
    }
}

async fn serve(
    dir: &Path,
    transport: Transport,
    echo: &Arc<Echo>,
    journal: &Journal,
    shutdown: &CancellationToken,
) -> Result<IpcServer, Fault> {
    let tcp = transport == Transport::LocalTcp;
    let socket = dir.join("a.sock").to_str().unwrap().to_owned();
    let options = IpcOptions {
        config: IpcConfig {
            transport,
            endpoint: if tcp { free_address() } else { socket },
            allow_tcp_fallback: tcp,
        },
        state_dir: dir.to_owned(),
    };
    let handler = Arc::new(EchoHandle(Arc::clone(echo)));
    ipc::serve(options, handler, journal.clone(), shutdown.clone()).await
}

fn free_address() -> String {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    probe.local_addr().unwrap().to_string()
}

async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("nothing came")
}

/// A client that sends what no good client would.
struct Raw {
    stream: UnixStream,
    decoder: Decoder,
    inbox: BytesMut,
}

impl Raw {
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn send_text(&mut self, text: &str) {
        self.send(&(text.len() as u32).to_le_bytes()).await;
        self.send(text.as_bytes()).await;
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) {
        let mut out = BytesMut::new();
        Envelope::request(id, method, params).put(&mut out).unwrap();
        self.send(&out).await;
    }

    /// The next unit; `None` at the end of the stream.
    async fn unit(&mut self) -> Option<Unit> {
        loop {
            if let Some(unit) = self.decoder.decode(&mut self.inbox).unwrap() {
                return Some(unit);
            }
            let read = within(self.stream.read_buf(&mut self.inbox)).await;
            if !matches!(read, Ok(1..)) {
                return None;
            }
        }
    }

    async fn envelope(&mut self) -> Option<Envelope> {
        match self.unit().await? {
            Unit::Message(bytes) => Some(Envelope::parse(&bytes).unwrap()),
            unit @ Unit::Data { .. } => panic!("{unit:?}"),
        }
    }

    async fn code(&mut self) -> String {
        let envelope = self.envelope().await.expect("an answer");
        let (_, data) = answer(&envelope);
        data["code"].as_str().unwrap().to_owned()
    }
}

fn answer(envelope: &Envelope) -> (String, Value) {
    let id = envelope.payload["id"].as_str().unwrap_or("-").to_owned();
    (id, envelope.payload["data"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_are_served_at_once() {
    let bench = Bench::start().await;
    let mut tasks = Vec::new();
    for client_number in 0..limits::IPC_CLIENTS_MAX {
        let client = bench.client().await;
        tasks.push(tokio::spawn(async move {
            for n in 0..20 {
                let params = json!({"client": client_number, "n": n});
                let reply = client.call("window.list", params.clone()).await.unwrap();
                assert_eq!(reply.data["params"], params);
            }
            client
        }));
    }
    let mut clients = Vec::new();
    for task in tasks {
        clients.push(within(task).await.unwrap());
    }
    let refused = Client::connect(bench.server.endpoint()).await.unwrap_err();
    assert_eq!(refused.code, Code::TooManyClients);
    drop(clients);
}

#[tokio::test]
async fn answers_name_their_request_and_keep_its_shape() {
    let bench = Bench::start().await;
    let mut raw = bench.raw().await;
    raw.ask(u64::MAX, "list_windows", json!({"title": "x"}))
        .await;
    let envelope = raw.envelope().await.unwrap();
    assert_eq!(envelope.kind, Kind::Response);
    let (id, data) = answer(&envelope);
    assert_eq!(id, u64::MAX.to_string());
    assert_eq!(
        data,
        json!({"success": true,
               "result": {"method": "window.list", "params": {"title": "x"}}})
    );
    raw.ask(2, "system.isPaused", json!({})).await;
    let (_, data) = answer(&raw.envelope().await.unwrap());
    assert_eq!(
        data,
        json!({"success": false, "error": "ask again", "code": "busy"})
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_answered_with_a_code_and_the_connection_stays() {
    let bench = Bench::start().await;
    let mut raw = bench.raw().await;
    for bad in [
        "nope",
        "[]",
        r#"{"type":0,"method":"window.list","id":-3}"#,
        r#"{"type":7,"method":"window.list","id":3}"#,
        r#"{"type":0,"method":"window.list","id":3,"payload":"{"}"#,
        r#"{"type":1,"method":"window.list","id":3}"#,
        r#"{"type":0,"id":3}"#,
    ] {
        raw.send_text(bad).await;
        assert_eq!(raw.code().await, "invalid_message", "{bad}");
    }
    for (method, code) in [
        ("no.such", "unknown_method"),
        ("agents.list", "unknown_method"),
    ] {
        raw.ask(1, method, json!({})).await;
        assert_eq!(raw.code().await, code, "{method}");
    }
    raw.ask(1, "events.drain", json!({"max": "many"})).await;
    assert_eq!(raw.code().await, "invalid_params");
    raw.ask(9, "window.list", json!({})).await;
    assert_eq!(answer(&raw.envelope().await.unwrap()).0, "9");
}

#[tokio::test]
async fn length_zero_and_oversize_close_the_connection() {
    let mut bench = Bench::start().await;
    let cases: [(u32, &str); 3] = [
        (0, "frame_invalid"),
        (limits::IPC_BODY_LEN_MAX as u32 + 1, "frame_too_large"),
        // Data frames were not agreed on.
        (0x8000_0004, "frame_invalid"),
    ];
    for (word, code) in cases {
        let mut raw = bench.raw().await;
        raw.send(&word.to_le_bytes()).await;
        let envelope = raw.envelope().await.unwrap();
        assert_eq!(envelope.kind, Kind::Error);
        assert_eq!(envelope.payload["data"]["code"], code);
        assert!(raw.unit().await.is_none());
        bench.next_gone().await;
    }
}

#[tokio::test]
async fn requests_beyond_the_bound_wait_their_turn() {
    let bench = Bench::start().await;
    let mut raw = bench.raw().await;
    let asked = limits::IPC_REQUESTS_IN_FLIGHT_MAX as u64 + 10;
    for id in 0..asked {
        raw.ask(id, "window.wait", json!({})).await;
    }
    within(async {
        while bench.echo.running.load(Ordering::SeqCst) < limits::IPC_REQUESTS_IN_FLIGHT_MAX {
            tokio::task::yield_now().await;
        }
    })
    .await;
    bench.echo.gate.add_permits(asked as usize);
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..asked {
        ids.insert(answer(&raw.envelope().await.unwrap()).0);
    }
    assert_eq!(ids.len() as u64, asked);
    let most = bench.echo.running_max.load(Ordering::SeqCst);
    assert_eq!(most, limits::IPC_REQUESTS_IN_FLIGHT_MAX);
}

#[tokio::test]
async fn handler_hears_of_every_connection_that_ends_and_its_calls_are_cancelled() {
    let mut bench = Bench::start().await;
    let mut raw = bench.raw().await;
    raw.ask(1, "window.wait", json!({})).await;
    within(async {
        while bench.echo.cancelled.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(raw);
    assert!(matches!(bench.next_gone().await, Origin::Local { .. }));
    let cancel = bench.echo.cancelled.lock().unwrap().remove(0);
    within(cancel.cancelled()).await;
}

#[tokio::test]
async fn bytes_come_inline_or_as_data_frames_as_agreed() {
    let bench = Bench::start().await;
    let mut raw = bench.raw().await;
    raw.ask(1, "screenshot.capture", json!({})).await;
    let (_, data) = answer(&raw.envelope().await.unwrap());
    let url = data["result"]["image"].as_str().unwrap();
    let encoded = url.strip_prefix("data:image/png;base64,").unwrap();
    let inline = data_encoding::BASE64.decode(encoded.as_bytes()).unwrap();
    assert_eq!(inline, bench.echo.blob);

    let client = bench.client().await;
    let (first, second) = tokio::join!(
        client.call("screenshot.capture", json!({})),
        client.call("screenshot.capture", json!({})),
    );
    for reply in [first.unwrap(), second.unwrap()] {
        let bytes = reply.bytes.unwrap();
        assert_eq!(bytes.content_type, "image/png");
        assert_eq!(bytes.field, "image");
        assert_eq!(bytes.bytes, bench.echo.blob);
        assert_eq!(reply.data, json!({"width": 1}));
    }
}

#[tokio::test]
async fn bytes_wait_for_credit() {
    let bench = Bench::start().await;
    let mut raw = bench.raw().await;
    raw.ask(1, "ipc.hello", json!({"binary": true})).await;
    raw.envelope().await.unwrap();
    raw.decoder.allow_binary();
    raw.ask(2, "screenshot.capture", json!({})).await;
    let (_, data) = answer(&raw.envelope().await.unwrap());
    assert_eq!(data["size"], bench.echo.blob.len());
    let Some(Unit::Data {
        channel,
        kind,
        body,
    }) = raw.unit().await
    else {
        panic!("no bytes")
    };
    assert_eq!(
        (u64::from(channel), kind),
        (data["channel"].as_u64().unwrap(), 0)
    );
    assert_eq!(body.len() + 1, limits::CHANNEL_CREDIT_FIRST);
    // Without credit the next thing that comes is the answer to the next request.
    raw.ask(3, "window.list", json!({})).await;
    assert_eq!(answer(&raw.envelope().await.unwrap()).0, "3");
    let mut out = BytesMut::new();
    let more = json!({"channel": channel, "bytes": 1000});
    Envelope::event("channel.credit", more)
        .put(&mut out)
        .unwrap();
    raw.send(&out).await;
    assert!(matches!(raw.unit().await, Some(Unit::Data { body, .. }) if body.len() == 999));
}

#[tokio::test]
async fn second_agent_on_one_socket_is_refused() {
    let bench = Bench::start().await;
    let refused = serve(
        bench.dir.path(),
        Transport::Auto,
        &bench.echo,
        &bench.journal,
        &bench.shutdown,
    )
    .await
    .unwrap_err();
    assert_eq!(refused.code, Code::AddressInUse);
    bench
        .client()
        .await
        .call("window.list", json!({}))
        .await
        .unwrap();
}

#[tokio::test]
async fn stopping_answers_what_is_under_way_and_removes_the_socket() {
    let bench = Bench::start().await;
    let client = bench.client().await;
    bench.shutdown.cancel();
    within(bench.server.stopped()).await;
    assert!(!bench.dir.path().join("a.sock").exists());
    let fault = client.call("window.list", json!({})).await.unwrap_err();
    assert_eq!(fault.code, Code::LinkClosed);
    let endpoint = Endpoint::Local(bench.dir.path().join("a.sock"));
    let fault = Client::connect(&endpoint).await.unwrap_err();
    assert_eq!(fault.code, Code::EndpointUnavailable);
}

#[tokio::test]
async fn loopback_tcp_needs_the_token() {
    let bench = Bench::with(Transport::LocalTcp).await;
    let client = bench.client().await;
    client.call("window.list", json!({})).await.unwrap();
    let Endpoint::Tcp { address, .. } = bench.server.endpoint().clone() else {
        panic!("not TCP")
    };
    let wrong = bench.dir.path().join("wrong");
    std::fs::write(&wrong, "0".repeat(64)).unwrap();
    let endpoint = Endpoint::Tcp {
        address,
        token: wrong,
    };
    let fault = Client::connect(&endpoint).await.unwrap_err();
    assert_eq!(fault.code, Code::PeerDenied);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut out = BytesMut::new();
    Envelope::request(1, "window.list", json!({}))
        .put(&mut out)
        .unwrap();
    stream.write_all(&out).await.unwrap();
    let mut all = Vec::new();
    within(stream.read_to_end(&mut all)).await.unwrap();
    assert!(String::from_utf8_lossy(&all).contains("peer_denied"));
}

fn draft(n: u64) -> Draft {
    Draft::new("execution.state_changed", json!({"n": n}))
}

#[tokio::test]
async fn drain_has_one_cursor_per_connection() {
    let bench = Bench::start().await;
    let (first, second) = (bench.client().await, bench.client().await);
    for n in 0..5 {
        bench.journal.append(draft(n)).await.unwrap();
    }
    let drain = async |client: &Client, max: u32| -> DrainReply {
        let reply = client.call("events.drain", json!({"max": max})).await;
        serde_json::from_value(reply.unwrap().data).unwrap()
    };
    let numbers = |reply: &DrainReply| -> Vec<u64> {
        reply
            .events
            .iter()
            .filter_map(|event| event.payload["n"].as_u64())
            .collect()
    };
    // The first sees the second connect.
    let all = drain(&first, 500).await;
    assert_eq!(numbers(&all), [0, 1, 2, 3, 4]);
    assert!(
        all.events
            .iter()
            .any(|event| event.method == "connection.ipc_client")
    );
    let mut seen = Vec::new();
    loop {
        let reply = drain(&second, 2).await;
        if reply.events.is_empty() {
            break;
        }
        seen.extend(numbers(&reply));
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    assert!(numbers(&drain(&first, 500).await).is_empty());
}

#[tokio::test]
async fn follow_streams_old_and_new_records_in_order() {
    let bench = Bench::start().await;
    let appends: Vec<_> = (0..600).map(|n| bench.journal.append(draft(n))).collect();
    for append in appends {
        append.await.unwrap();
    }
    let client = bench.client().await;
    let params = FollowParams {
        after: Some(1),
        follow: true,
        ..FollowParams::default()
    };
    let mut stream = client.follow(params.clone()).await.unwrap();
    assert_eq!(stream.next_seq, 1);
    // A stream that nobody reads holds up no answer and no other stream.
    let mut unread = client.follow(params).await.unwrap();
    for n in 0..600 {
        let record = within(stream.next()).await.unwrap().unwrap();
        assert_eq!(record.sequence, n + 1);
    }
    bench.journal.append(draft(600)).await.unwrap();
    let record = within(stream.next()).await.unwrap().unwrap();
    assert_eq!(record.payload, json!({"n": 600}));
    within(client.call("window.list", json!({}))).await.unwrap();
    assert_eq!(within(unread.next()).await.unwrap().unwrap().sequence, 1);
    let mut raw = bench.raw().await;
    raw.ask(1, "events.follow", json!({})).await;
    assert_eq!(answer(&raw.envelope().await.unwrap()).1["success"], true);
    assert_eq!(raw.envelope().await.unwrap().method, "events.end");
    raw.ask(3, "events.follow", json!({"follow": true})).await;
    raw.ask(4, "events.follow", json!({})).await;
    assert_eq!(answer(&raw.envelope().await.unwrap()).1["success"], true);
    assert_eq!(raw.code().await, "conflict");
}

#[tokio::test]
async fn a_stream_that_does_not_follow_ends_and_filters_by_type() {
    let bench = Bench::start().await;
    for n in 0..4 {
        bench.journal.append(draft(n)).await.unwrap();
    }
    bench
        .journal
        .append(Draft::new("custom.note", json!({})))
        .await
        .unwrap();
    let client = bench.client().await;
    let params = FollowParams {
        tail: Some(3),
        prefix: Some("execution.".into()),
        ..FollowParams::default()
    };
    let mut stream = client.follow(params).await.unwrap();
    let mut seen = Vec::new();
    while let Some(record) = within(stream.next()).await {
        seen.push(record.unwrap().sequence);
    }
    // The last three of that type, although a newer record of another type stands behind them.
    assert_eq!(seen, [2, 3, 4]);
    let beyond = FollowParams {
        after: Some(100),
        ..FollowParams::default()
    };
    let fault = bench.client().await.follow(beyond).await.unwrap_err();
    assert_eq!(fault.code, Code::CursorInvalid);
}
