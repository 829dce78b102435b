//! A server on a real socket whose workstations are scripted, and a client that can send anything.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wingman::base::ids::{AccountId, AgentId, InstanceId, TokenId};
use wingman::base::{Clock, EpochMillis, TestClock};
use wingman::config::{ExecutionsConfig, ServerConfig};
use wingman::control::contract::{LinkSink, Links};
use wingman::control::executions::{Executions, ExecutionsParts};
use wingman::control::registry::Registry;
use wingman::control::server::{Server, ServerParts, bind};
use wingman::journal::{Journal, Options};
use wingman::store::agents::{self, AgentRow, Mark};
use wingman::store::{Store, accounts, server::MIGRATIONS};
use wingman::wire::frame::Protocol;
use wingman::wire::framed::Framed;
use wingman::wire::messages::agents::{InviteParams, InviteReply};
use wingman::wire::peer::{Peer, Side};
use wingman::wire::permission::Role;
use wingman::wire::{Answer, BoxFuture, Call, Code, Fault, Handler, Origin};

/// The lease of the tests, in seconds of their own clock.
pub const LEASE_S: u64 = 90;

type Responder = Box<dyn Fn(&Call) -> Result<Answer, Fault> + Send + Sync>;

/// Links whose answers a test writes.
#[derive(Default)]
pub struct ScriptedLinks {
    connected: Mutex<HashMap<AgentId, u8>>,
    responder: Mutex<Option<Arc<Responder>>>,
    /// Workstations behind a real link.
    peers: Mutex<HashMap<AgentId, Peer>>,
    pub calls: Mutex<Vec<(AgentId, Call)>>,
}

impl ScriptedLinks {
    pub fn set_connected(&self, agent: &AgentId, protocol: Option<u8>) {
        let mut connected = self.connected.lock().unwrap();
        match protocol {
            Some(protocol) => drop(connected.insert(agent.clone(), protocol)),
            None => drop(connected.remove(agent)),
        }
    }

    pub fn respond(
        &self,
        responder: impl Fn(&Call) -> Result<Answer, Fault> + Send + Sync + 'static,
    ) {
        *self.responder.lock().unwrap() = Some(Arc::new(Box::new(responder)));
    }

    /// The parameters of the last call of a method.
    pub fn last(&self, method: &str) -> Option<Call> {
        let calls = self.calls.lock().unwrap();
        let found = calls.iter().rev().find(|(_, call)| call.method == method);
        found.map(|(_, call)| call.clone())
    }
}

impl Links for ScriptedLinks {
    fn call(&self, agent: &AgentId, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        if let Some(peer) = self.peers.lock().unwrap().get(agent).cloned() {
            return Box::pin(async move { peer.request(call).await });
        }
        let online = self.connected.lock().unwrap().contains_key(agent);
        let responder = self.responder.lock().unwrap().clone();
        self.calls
            .lock()
            .unwrap()
            .push((agent.clone(), call.clone()));
        let agent = agent.clone();
        Box::pin(async move {
            if !online {
                return Err(Fault::new(Code::AgentOffline, format!("{agent} is away")));
            }
            // A responder may ask the database, which blocks.
            tokio::task::spawn_blocking(move || match responder {
                Some(responder) => responder(&call),
                None => Err(Fault::new(Code::UnknownMethod, "nothing is scripted")),
            })
            .await
            .unwrap()
        })
    }

    fn protocol(&self, agent: &AgentId) -> Option<u8> {
        self.connected.lock().unwrap().get(agent).copied()
    }

    fn connected(&self) -> Vec<(AgentId, u8)> {
        let connected = self.connected.lock().unwrap();
        connected.iter().map(|(id, v)| (id.clone(), *v)).collect()
    }

    fn close(&self, agent: &AgentId, _reason: &str) {
        self.connected.lock().unwrap().remove(agent);
    }

    fn invite(&self, _params: InviteParams) -> BoxFuture<Result<InviteReply, Fault>> {
        Box::pin(std::future::ready(Ok(InviteReply {
            join: "join".into(),
            invite_id: "invite".into(),
            expires_at: EpochMillis(0),
        })))
    }
}

fn enrolled_row(agent: &str) -> AgentRow {
    AgentRow {
        agent_id: agent.to_owned(),
        public_key: None,
        revoked_key: None,
        mark: Mark::Active,
        hostname: format!("host-{agent}"),
        platform: "linux".into(),
        arch: None,
        version: None,
        protocol: None,
        instance_id: None,
        ip: None,
        epoch: 0,
        tags: vec![],
        capabilities: vec![],
        rivals: vec![],
        refused: vec![],
        enrolled_at: EpochMillis(1),
        last_seen: None,
    }
}

pub struct TestServer {
    pub address: SocketAddr,
    pub links: Arc<ScriptedLinks>,
    pub clock: Arc<TestClock>,
    pub store: Store,
    pub journal: Journal,
    pub executions: Arc<Executions>,
    pub sink: Arc<dyn LinkSink>,
    pub server: Server,
    /// An unscoped token of the admin.
    pub admin: String,
    runtime: Option<tokio::runtime::Runtime>,
    shutdown: CancellationToken,
}

impl TestServer {
    pub fn start(dir: &Path) -> Self {
        Self::start_enrolled(dir, &[])
    }

    /// A server that knows workstations which are not connected.
    pub fn start_enrolled(dir: &Path, enrolled: &[&str]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let clock = Arc::new(TestClock::at(EpochMillis::now()));
        let store = Store::open(&dir.join("server.db"), MIGRATIONS).unwrap();
        let options = Options::new(dir.join("journal"), InstanceId::random());
        let (journal, _) = Journal::open(options).unwrap();
        let links = Arc::new(ScriptedLinks::default());
        let shutdown = CancellationToken::new();
        let dyn_clock: Arc<dyn Clock> = clock.clone();
        let dyn_links: Arc<dyn Links> = links.clone();
        let (server, executions, address, admin) = runtime.block_on(async {
            let executions = Executions::new(ExecutionsParts {
                store: store.clone(),
                journal: journal.clone(),
                clock: dyn_clock.clone(),
                config: ExecutionsConfig {
                    lease: LEASE_S,
                    ..ExecutionsConfig::default()
                },
                data_dir: dir.to_owned(),
            });
            for agent in enrolled {
                let row = enrolled_row(agent);
                let change = move |_| Ok::<_, Fault>(row);
                agents::change(&store, (*agent).to_owned(), Arc::default(), change)
                    .await
                    .unwrap()
                    .unwrap();
            }
            let registry = Registry::open(store.clone(), dyn_clock.clone())
                .await
                .unwrap();
            let server = Server::build(ServerParts {
                config: ServerConfig::default(),
                store: store.clone(),
                journal: journal.clone(),
                links: dyn_links,
                registry: Arc::new(registry),
                executions: executions.clone(),
                clock: dyn_clock,
            })
            .await
            .unwrap();
            let listener = bind("127.0.0.1:0", "--listen").await.unwrap();
            let address = listener.local_addr().unwrap();
            let admin = server.mint_local_token().await.unwrap().expose().to_owned();
            let (serving, stop) = (server.clone(), shutdown.clone());
            tokio::spawn(async move { serving.serve(listener, None, stop).await.unwrap() });
            (server, executions, address, admin)
        });
        Self {
            address,
            links,
            clock,
            store,
            journal,
            sink: executions.sink(),
            executions,
            server,
            admin,
            runtime: Some(runtime),
            shutdown,
        }
    }

    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(work)
    }

    /// Connects a scripted workstation.
    pub fn connect(&self, agent: &str, epoch: u64, protocol: u8) -> AgentId {
        let agent = AgentId::parse(agent).unwrap();
        self.links.set_connected(&agent, Some(protocol));
        self.block_on(self.sink.connected(&agent, epoch, protocol));
        agent
    }

    pub fn disconnect(&self, agent: &AgentId, epoch: u64) {
        self.links.set_connected(agent, None);
        self.block_on(self.sink.disconnected(agent, epoch, "closed"));
    }

    /// Connects a workstation over a link of its own. Answers the workstation's end of it.
    pub fn link(&self, agent: &str, node: Arc<dyn Handler>) -> Peer {
        let agent = AgentId::parse(agent).unwrap();
        let (near, far) = tokio::io::duplex(64 * 1024);
        let origin = Origin::Server { epoch: 1 };
        let framed = |stream| Framed::new(stream, Protocol::V2, 64 * 1024);
        let _runtime = self.runtime.as_ref().unwrap().enter();
        let (own, _) = Peer::start(framed(near), Side::Connecting, origin, node.clone());
        let (peer, _) = Peer::start(framed(far), Side::Accepting, origin, node);
        self.links.peers.lock().unwrap().insert(agent.clone(), peer);
        self.links.set_connected(&agent, Some(2));
        own
    }

    /// The link is lost.
    pub fn unlink(&self, agent: &str) {
        let agent = AgentId::parse(agent).unwrap();
        self.links.set_connected(&agent, None);
        let peer = self.links.peers.lock().unwrap().remove(&agent);
        peer.unwrap().close(Fault::new(Code::LinkClosed, "cut"));
    }

    /// A token of a new account of the role.
    pub fn token_of(&self, role: Role) -> String {
        let text = format!("wmt_{}{}", role.as_str(), "x".repeat(40));
        let account = accounts::Account {
            account_id: AccountId::random(),
            username: format!("some-{}", role.as_str()),
            role: role.as_str().to_owned(),
            password_hash: None,
            active: true,
            created_at: self.clock.now(),
            last_login_at: None,
        };
        let token = accounts::Token {
            token_id: TokenId::random(),
            account_id: account.account_id.clone(),
            label: "test".into(),
            prefix: "wmt_".into(),
            scopes: None,
            local_record: false,
            created_at: self.clock.now(),
            expires_at: None,
            last_seen_at: None,
            revoked_at: None,
        };
        let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        let hash: [u8; 32] = digest.as_ref().try_into().unwrap();
        self.store
            .call_blocking(move |c| {
                accounts::insert_account(c, &account)?;
                accounts::insert_token(c, &token, &hash)
            })
            .unwrap();
        text
    }

    /// A request with the admin's token.
    pub fn ask(&self, verb: &str, path: &str, body: Option<Value>) -> Reply {
        self.request(verb, path, &[&self.bearer()], body)
    }

    pub fn bearer(&self) -> String {
        format!("Authorization: Bearer {}", self.admin)
    }

    /// The data of a request that must succeed.
    pub fn data(&self, verb: &str, path: &str, body: Option<Value>) -> Value {
        let reply = self.ask(verb, path, body);
        assert_eq!(reply.status, 200, "{verb} {path}: {}", reply.text());
        let body = reply.json();
        assert_eq!(body["success"], true);
        body["data"].clone()
    }

    /// Status and code of a request that must fail, its envelope checked.
    pub fn fails(&self, verb: &str, path: &str, body: Option<Value>) -> (u16, String) {
        self.ask(verb, path, body).fault()
    }

    pub fn request(&self, verb: &str, path: &str, headers: &[&str], body: Option<Value>) -> Reply {
        let mut all: Vec<String> = headers.iter().map(|line| (*line).to_owned()).collect();
        let mut bytes = Vec::new();
        if let Some(body) = body {
            bytes = body.to_string().into_bytes();
            all.push("Content-Type: application/json".into());
        }
        self.raw(verb, path, &all, &bytes)
    }

    /// A request as it is given; only `Host` is added where it is missing.
    pub fn raw(&self, verb: &str, path: &str, headers: &[String], body: &[u8]) -> Reply {
        let mut stream = self.send(verb, path, headers, body);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Reply::parse(&bytes)
    }

    /// Sends a request and leaves its answer to be read.
    pub fn send(&self, verb: &str, path: &str, headers: &[String], body: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let mut head = format!("{verb} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|line| line.starts_with("Host:")) {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        stream.write_all(head.as_bytes()).unwrap();
        // A server that refuses a body early may have closed; its answer is what counts.
        let _ = stream.write_all(body);
        stream
    }

    /// Waits for something that comes by itself.
    pub fn eventually<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let until = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(std::time::Instant::now() < until, "{what} did not come");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(20));
        }
    }
}

pub struct Reply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head");
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .unwrap()
            .split(' ')
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        let headers: Vec<_> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut reply = Self {
            status,
            headers,
            body: bytes[end + 4..].to_vec(),
        };
        if reply.header("transfer-encoding") == Some("chunked") {
            reply.body = unchunk(&reply.body);
        }
        reply
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn fault(&self) -> (u16, String) {
        let body = self.json();
        assert_eq!(body["success"], false, "{}", self.text());
        assert!(!body["error"]["message"].as_str().unwrap().is_empty());
        assert_eq!(
            body["error"]["requestId"].as_str(),
            self.header("x-request-id")
        );
        (
            self.status,
            body["error"]["code"].as_str().unwrap().to_owned(),
        )
    }
}

fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") {
        let len = std::str::from_utf8(&bytes[..end]).unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        if len == 0 {
            break;
        }
        whole.extend_from_slice(&bytes[end + 2..end + 2 + len]);
        bytes = &bytes[end + 2 + len + 2..];
    }
    whole
}
