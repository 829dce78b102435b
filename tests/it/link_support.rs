//! What link tests share: a node that answers, a server that remembers, and both wired together.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use wingman::agent::{Connector, Link, LinkHandle, LinkOptions};
use wingman::base::ids::{AgentId, InstanceId};
use wingman::base::{Secret, SystemClock};
use wingman::config::RemoteConfig;
use wingman::control::contract::LinkSink;
use wingman::control::gateway::{Gateway, GatewayOptions};
use wingman::control::registry::Registry;
use wingman::journal::{Journal, Options};
use wingman::store::{Store, agents};
use wingman::wire::event::Record;
use wingman::wire::messages::system::RemoteState;
use wingman::wire::rawkey::LinkKey;
use wingman::wire::{Answer, Blob, BoxFuture, Call, Code, Fault, Handler, Origin, StreamEnd};

/// No test waits longer than this for something that has to come.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something, and says what when it does not come.
pub async fn wait_for<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come"),
    }
}

/// A node that echoes, and notes what happens to it.
pub struct EchoNode {
    pub calls: Mutex<Vec<Call>>,
    pub events: mpsc::UnboundedSender<String>,
}

impl EchoNode {
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (events, seen) = mpsc::unbounded_channel();
        let calls = Mutex::default();
        (Arc::new(Self { calls, events }), seen)
    }
}

impl Handler for EchoNode {
    fn call(&self, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        self.calls.lock().unwrap().push(call.clone());
        let events = self.events.clone();
        Box::pin(async move {
            match call.method.as_str() {
                "test.echo" => Answer::of(&call.params),
                "test.fail" => Err(Fault::new(Code::CaptureBusy, "a capture is being made")),
                "test.panic" => panic!("as the test asked"),
                "test.hang" => {
                    call.cancel.cancelled().await;
                    let _ = events.send("cancelled".into());
                    Err(Fault::new(Code::Cancelled, "cancelled"))
                }
                "test.blob" | "screenshot.capture" => {
                    let size = call.params["size"].as_u64().unwrap_or(8);
                    Ok(Answer {
                        data: json!({"width": 2, "height": 1, "timestamp": 5}),
                        blob: Some(Blob {
                            content_type: "image/jpeg".into(),
                            bytes: pattern(size as usize).into(),
                            field: "image",
                        }),
                        ..Answer::default()
                    })
                }
                "test.stream" => {
                    let (mut near, far) = StreamEnd::pair();
                    tokio::spawn(async move {
                        while let Some(piece) = near.recv.recv().await {
                            let _ = near.send.send(piece).await;
                        }
                        let _ = events.send("stream gone".into());
                    });
                    Ok(Answer {
                        stream: Some(far),
                        ..Answer::default()
                    })
                }
                "test.large" => Answer::of(&json!({"text": "x".repeat(200_000)})),
                "script.run" => Answer::of(&json!({
                    "executionId": "run-1", "scriptId": "run-1", "status": "running",
                    "reused": false,
                })),
                "script.list" => Answer::of(&json!({"scripts": []})),
                "system.getStatus" => Answer::of(&json!({"server": "wingman", "mode": 1})),
                "window.list" => Answer::of(&json!([])),
                other => Err(Fault::new(Code::UnknownMethod, format!("no {other}"))),
            }
        })
    }

    fn disconnected(&self, origin: Origin) {
        let _ = self.events.send(format!("{origin:?} gone"));
    }
}

/// Bytes that show when some are lost or swapped.
pub fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n * 31 + n / 251) as u8).collect()
}

/// What the rest of a server would keep.
pub struct Recorder {
    records: Mutex<Vec<Record>>,
    log: mpsc::UnboundedSender<String>,
    changed: watch::Sender<usize>,
}

impl Recorder {
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (log, seen) = mpsc::unbounded_channel();
        let recorder = Self {
            records: Mutex::default(),
            log,
            changed: watch::channel(0).0,
        };
        (Arc::new(recorder), seen)
    }

    pub fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap().clone()
    }

    pub async fn wait_for_records(&self, count: usize) {
        let mut changed = self.changed.subscribe();
        wait_for("records", changed.wait_for(|seen| *seen >= count))
            .await
            .unwrap();
    }
}

impl LinkSink for Recorder {
    fn resume_from(&self, _agent: &AgentId) -> BoxFuture<Result<u64, Fault>> {
        let last = self
            .records
            .lock()
            .unwrap()
            .last()
            .map_or(0, |r| r.sequence);
        Box::pin(async move { Ok(last + 1) })
    }

    fn events(&self, _agent: &AgentId, records: Vec<Record>) -> BoxFuture<Result<u64, Fault>> {
        let mut kept = self.records.lock().unwrap();
        let last = kept.last().map_or(0, |r| r.sequence);
        kept.extend(records.into_iter().filter(|r| r.sequence > last));
        let last = kept.last().map_or(0, |r| r.sequence);
        self.changed.send_replace(kept.len());
        Box::pin(async move { Ok(last) })
    }

    fn plain_event(&self, agent: &AgentId, event: String, data: Value) -> BoxFuture<()> {
        let _ = self.log.send(format!("{agent} {event} {data}"));
        Box::pin(async {})
    }

    fn connected(&self, agent: &AgentId, epoch: u64, protocol: u8) -> BoxFuture<()> {
        let _ = self
            .log
            .send(format!("{agent} connected {epoch} v{protocol}"));
        Box::pin(async {})
    }

    fn noted(&self, event: &'static str, payload: Value) -> BoxFuture<()> {
        let _ = self.log.send(format!("{event} {payload}"));
        Box::pin(async {})
    }

    fn disconnected(&self, agent: &AgentId, epoch: u64, reason: &str) -> BoxFuture<()> {
        let _ = self
            .log
            .send(format!("{agent} disconnected {epoch} {reason}"));
        Box::pin(async {})
    }
}

/// A gateway with its parts.
pub struct Server {
    pub gateway: Gateway,
    pub registry: Arc<Registry>,
    pub sink: Arc<Recorder>,
    pub log: mpsc::UnboundedReceiver<String>,
    pub address: String,
    pub plain_address: String,
    /// The database's folder, kept while the server runs.
    dir: Option<TempDir>,
}

impl Server {
    pub async fn start(heartbeat_ms: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("server.db"), &[agents::SCHEMA]).unwrap();
        let registry = Registry::open(store, Arc::new(SystemClock)).await.unwrap();
        let mut server = Self::start_with(heartbeat_ms, Arc::new(registry)).await;
        server.dir = Some(dir);
        server
    }

    pub async fn start_with(heartbeat_ms: u64, registry: Arc<Registry>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let plain_address = plain.local_addr().unwrap().to_string();
        let (sink, log) = Recorder::new();
        let gateway = Gateway::new(GatewayOptions {
            registry: Arc::clone(&registry),
            sink: sink.clone(),
            key: LinkKey::generate(),
            heartbeat_ms,
            plain_tokens: vec![Secret::new("tok-1")],
            public_address: address.clone(),
        })
        .unwrap();
        gateway.serve_tls(listener);
        gateway.serve_plain(plain);
        Self {
            gateway,
            registry,
            sink,
            log,
            address,
            plain_address,
            dir: None,
        }
    }

    pub async fn invite(&self) -> String {
        self.gateway.invite(&Default::default()).await.unwrap().join
    }

    /// The next line of the sink's log that contains `text`.
    pub async fn logged(&mut self, text: &str) -> String {
        let log = &mut self.log;
        wait_for(text, async {
            loop {
                let line = log.recv().await.expect("the sink lives");
                if line.contains(text) {
                    return line;
                }
            }
        })
        .await
    }

    /// A channel that leads to this server's in-process door.
    pub fn memory_door(&self) -> Connector {
        let (door, mut knocks) = mpsc::channel(1);
        let gateway = self.gateway.clone();
        tokio::spawn(async move {
            while let Some(stream) = knocks.recv().await {
                gateway.accept_memory(stream);
            }
        });
        Connector::Memory(door)
    }
}

/// An agent with its parts.
pub struct TestAgent {
    pub link: LinkHandle,
    pub node: Arc<EchoNode>,
    pub node_events: mpsc::UnboundedReceiver<String>,
    pub journal: Journal,
    pub capabilities: watch::Sender<Vec<String>>,
    pub current_task: watch::Sender<String>,
}

impl TestAgent {
    pub fn start(
        dir: &Path,
        agent_id: AgentId,
        remote: RemoteConfig,
        connector: Connector,
    ) -> Self {
        let instance_id = InstanceId::random();
        let options = Options::new(dir.join("journal"), instance_id.clone());
        let (journal, _) = Journal::open(options).unwrap();
        let (node, node_events) = EchoNode::new();
        let (capabilities, capabilities_seen) =
            watch::channel(vec!["ocr".to_owned(), "hologram".to_owned()]);
        let (current_task, task_seen) = watch::channel(String::new());
        let link = Link::spawn(LinkOptions {
            remote,
            data_dir: dir.to_owned(),
            agent_id,
            instance_id,
            handler: node.clone(),
            journal: journal.clone(),
            capabilities: capabilities_seen,
            current_task: task_seen,
            connector,
        });
        Self {
            link,
            node,
            node_events,
            journal,
            capabilities,
            current_task,
        }
    }

    pub async fn reaches(&self, wanted: RemoteState) -> Option<String> {
        let mut state = self.link.state();
        let reached = wait_for(
            &format!("link state {wanted:?}"),
            state.wait_for(|state| state.state == wanted),
        )
        .await
        .unwrap();
        reached.message.clone()
    }
}

/// Joins by a fresh invitation and starts the agent.
pub async fn enrolled_agent(server: &Server, dir: &Path) -> (AgentId, TestAgent) {
    let join = server.invite().await;
    let enrolled = wingman::agent::enrol::join(
        &join,
        dir,
        &dir.join("agent.toml"),
        &RemoteConfig::default(),
    )
    .await
    .unwrap();
    let agent = TestAgent::start(
        dir,
        enrolled.agent_id.clone(),
        enrolled.remote,
        Connector::Tcp,
    );
    (enrolled.agent_id, agent)
}
