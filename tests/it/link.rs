//! The agent link end to end: registration, requests both ways, events, heartbeats, loss and return.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use wingman::agent::{Connector, enrol};
use wingman::base::ids::{AgentId, CommandId};
use wingman::base::{EpochMillis, TestClock};
use wingman::config::RemoteConfig;
use wingman::control::contract::Links;
use wingman::control::registry::Registry;
use wingman::store::{Store, agents};
use wingman::wire::event::{Draft, name};
use wingman::wire::frame::Protocol;
use wingman::wire::framed::Framed;
use wingman::wire::link::{Notice, Register, RegisterAck};
use wingman::wire::messages::agents::AgentStatus;
use wingman::wire::messages::system::RemoteState;
use wingman::wire::rawkey::{self, AGENT_KEY_FILE, LinkKey, PublicKey};
use wingman::wire::{Call, Code, Origin, Piece, PieceKind};

use super::link_support::{Server, TestAgent, enrolled_agent, pattern, wait_for};

const SERVER_SIDE: Origin = Origin::Server { epoch: 0 };

fn call(method: &str, params: serde_json::Value) -> Call {
    Call::new(method, params, SERVER_SIDE)
}

#[tokio::test]
async fn memory_link_registers_answers_and_delivers_events() {
    let mut server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let id = AgentId::parse("desk-1").unwrap();
    let agent = TestAgent::start(
        dir.path(),
        id.clone(),
        Default::default(),
        server.memory_door(),
    );
    server.logged("desk-1 connected 1 v2").await;
    let answer = server
        .gateway
        .call(&id, call("test.echo", json!({"timeoutMs": 7})))
        .await
        .unwrap();
    assert_eq!(answer.data, json!({"timeoutMs": 7}));
    let shown = server.registry.show(&id).unwrap();
    assert_eq!(shown.ip, None);
    assert_eq!(shown.capabilities, ["ocr"]);
    assert_eq!(shown.unknown_capabilities, ["hologram"]);
    let draft = Draft::new(name::EXECUTION_CREATED, json!({"n": 1}));
    agent.journal.append(draft).await.unwrap();
    server.sink.wait_for_records(1).await;
    assert_eq!(server.sink.records()[0].payload, json!({"n": 1}));
    agent.link.stop().await;
    server.logged("desk-1 disconnected 1").await;
    assert_eq!(
        server.registry.show(&id).unwrap().status,
        AgentStatus::Offline
    );
}

#[tokio::test]
async fn tls_link_carries_requests_blobs_errors_and_cancellation() {
    let mut server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let (id, mut agent) = enrolled_agent(&server, dir.path()).await;
    server.logged("connected 1 v2").await;
    let links = server.gateway.clone();

    let mut first = call("test.echo", json!({"a": 1}));
    first.command_id = Some(CommandId::parse("c-1").unwrap());
    first.timeout_ms = Some(5_000);
    assert_eq!(links.call(&id, first).await.unwrap().data, json!({"a": 1}));
    let seen = agent.node.calls.lock().unwrap()[0].clone();
    assert_eq!(seen.command_id.unwrap().as_str(), "c-1");
    assert_eq!(seen.timeout_ms, Some(5_000));
    assert_eq!(seen.origin, Origin::Server { epoch: 1 });

    for size in [0, 1, 32 * 1024, 3_000_001] {
        let blob = links
            .call(&id, call("test.blob", json!({"size": size})))
            .await
            .unwrap()
            .blob
            .unwrap();
        assert_eq!(blob.field, "image");
        assert!(blob.bytes == pattern(size), "{size} bytes arrive unchanged");
    }
    let large = links
        .call(&id, call("test.large", json!({})))
        .await
        .unwrap();
    assert_eq!(large.data["text"].as_str().unwrap().len(), 200_000);

    let failed = links.call(&id, call("test.fail", json!({}))).await;
    assert_eq!(failed.unwrap_err().code, Code::CaptureBusy);
    let panicked = links.call(&id, call("test.panic", json!({}))).await;
    assert_eq!(panicked.unwrap_err().code, Code::Internal);

    let hanging = call("test.hang", json!({}));
    let cancel = hanging.cancel.clone();
    let waiting = tokio::spawn(links.call(&id, hanging));
    wait_for("the call", async {
        while agent.node.calls.lock().unwrap().last().unwrap().method != "test.hang" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    cancel.cancel();
    assert_eq!(waiting.await.unwrap().unwrap_err().code, Code::Cancelled);
    let told = wait_for("the cancellation", agent.node_events.recv()).await;
    assert_eq!(told.as_deref(), Some("cancelled"));
}

#[tokio::test]
async fn events_resume_at_the_server_s_cursor_and_local_ones_stay() {
    let mut server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let (id, agent) = enrolled_agent(&server, dir.path()).await;
    server.logged("connected 1 v2").await;
    for n in 0..600 {
        let draft = Draft::new(name::EXECUTION_CREATED, json!({"n": n}));
        agent.journal.append(draft).await.unwrap();
    }
    server.sink.wait_for_records(600).await;
    server.gateway.close(&id, "test");
    server.logged("disconnected 1 test").await;
    for n in 600..700 {
        let draft = Draft::new(name::EXECUTION_CREATED, json!({"n": n}));
        agent.journal.append(draft).await.unwrap();
    }
    server.logged("connected 2 v2").await;
    server.sink.wait_for_records(700).await;
    let records = server.sink.records();
    let numbers: Vec<u64> = records
        .iter()
        .map(|record| record.payload["n"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..700).collect::<Vec<u64>>());
    let last = records.last().unwrap().sequence;
    assert!(last > 700, "the connection's own records took numbers");
}

#[tokio::test]
async fn heartbeats_carry_figures_and_the_current_task() {
    let mut server = Server::start(1_000).await;
    let dir = tempfile::tempdir().unwrap();
    let (id, agent) = enrolled_agent(&server, dir.path()).await;
    server.logged("connected 1 v2").await;
    let show = || server.registry.show(&id).unwrap();
    agent.current_task.send_replace("a.lua".to_owned());
    agent
        .capabilities
        .send_replace(vec!["terminals".to_owned()]);
    wait_for("figures", async {
        loop {
            let shown = show();
            let usage = shown.resources.as_ref().and_then(|r| r.cpu.usage);
            if usage.is_some()
                && shown.status == AgentStatus::Busy
                && shown.capabilities == ["terminals"]
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let shown = show();
    assert_eq!(shown.current_task, "a.lua");
    assert_eq!(shown.ip.as_deref(), Some("127.0.0.1"));
    assert!(shown.resources.unwrap().memory.total.unwrap() > 0);
}

#[tokio::test]
async fn call_to_an_absent_agent_is_offline_and_a_lost_link_answers_its_calls() {
    let mut server = Server::start(10_000).await;
    let nobody = AgentId::parse("nobody").unwrap();
    let absent = server
        .gateway
        .call(&nobody, call("test.echo", json!({})))
        .await;
    assert_eq!(absent.unwrap_err().code, Code::AgentOffline);
    let dir = tempfile::tempdir().unwrap();
    let (id, agent) = enrolled_agent(&server, dir.path()).await;
    server.logged("connected 1 v2").await;
    let waiting = tokio::spawn(server.gateway.call(&id, call("test.hang", json!({}))));
    wait_for("the call", async {
        while agent.node.calls.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    server.gateway.shutdown().await;
    assert_eq!(waiting.await.unwrap().unwrap_err().code, Code::LinkClosed);
    agent.reaches(RemoteState::Reconnecting).await;
}

/// A registered link whose agent does nothing more, as after a power cut.
async fn silent_link(server: &Server, remote: &RemoteConfig, dir: &Path) -> impl Sized + use<> {
    let key = LinkKey::load(&dir.join(AGENT_KEY_FILE)).unwrap().unwrap();
    let pin = PublicKey::parse_hex(&remote.server_key).unwrap();
    let stream = TcpStream::connect(&server.address).await.unwrap();
    let connector = TlsConnector::from(rawkey::client_config(&key, pin).unwrap());
    let stream = connector.connect(rawkey::server_name(), stream);
    let mut framed = Framed::new(stream.await.unwrap(), Protocol::V2, 64 * 1024);
    let register = Register {
        agent_id: "any".into(),
        instance_id: Some("before-the-power-cut".into()),
        protocol: Some(2),
        ..Register::default()
    };
    framed.notify(&register).await.unwrap();
    let ack = framed.read().await.unwrap();
    let ack = Notice::parse(&ack.body).unwrap().read::<RegisterAck>();
    let ack = ack.unwrap().unwrap();
    assert!(ack.success, "{ack:?}");
    framed
}

async fn enrolled(server: &Server, dir: &Path) -> (AgentId, RemoteConfig) {
    let join = server.invite().await;
    let config = dir.join("agent.toml");
    let defaults = RemoteConfig::default();
    let enrolled = enrol::join(&join, dir, &config, &defaults).await.unwrap();
    (enrolled.agent_id, enrolled.remote)
}

#[tokio::test]
async fn silent_link_is_replaced_by_the_agent_that_returns() {
    let mut server = Server::start(60_000).await;
    let dir = tempfile::tempdir().unwrap();
    let (id, remote) = enrolled(&server, dir.path()).await;
    let _dead = silent_link(&server, &remote, dir.path()).await;
    server.logged("connected 1 v2").await;
    let agent = TestAgent::start(dir.path(), id.clone(), remote, Connector::Tcp);
    server.logged("disconnected 1 replaced").await;
    server.logged("connected 2 v2").await;
    agent.reaches(RemoteState::Connected).await;
    let shown = server.registry.show(&id).unwrap();
    assert_eq!(shown.epoch, 2);
    assert!(shown.rivals.is_empty());
}

#[tokio::test]
async fn link_that_misses_three_heartbeats_is_dead() {
    let mut server = Server::start(100).await;
    let dir = tempfile::tempdir().unwrap();
    let (id, remote) = enrolled(&server, dir.path()).await;
    let _dead = silent_link(&server, &remote, dir.path()).await;
    server.logged("disconnected 1 heartbeat_timeout").await;
    assert_eq!(server.gateway.protocol(&id), None);
}

#[tokio::test]
async fn herd_is_told_when_to_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock::at(EpochMillis(0)));
    let store = Store::open(&dir.path().join("server.db"), &[agents::SCHEMA]).unwrap();
    let registry = Registry::open(store, clock).await.unwrap();
    let server = Server::start_with(10_000, Arc::new(registry)).await;
    let mut links = Vec::new();
    for n in 0..203 {
        let (near, far) = tokio::io::duplex(64 * 1024);
        server.gateway.accept_memory(far);
        let mut framed = Framed::new(near, Protocol::V2, 64 * 1024);
        let register = Register {
            agent_id: format!("herd-{n}"),
            instance_id: Some("i".into()),
            protocol: Some(2),
            ..Register::default()
        };
        framed.notify(&register).await.unwrap();
        links.push(framed);
    }
    let mut refused = Vec::new();
    for framed in &mut links {
        let frame = wait_for("the ack", framed.read()).await.unwrap();
        let ack = Notice::parse(&frame.body).unwrap().read::<RegisterAck>();
        let ack = ack.unwrap().unwrap();
        if !ack.success {
            refused.push((ack.code.unwrap(), ack.retry_ms.unwrap()));
        }
    }
    assert_eq!(refused, vec![("busy".to_owned(), 10); 3]);
}

#[tokio::test]
async fn agent_that_is_reconfigured_leaves_one_server_for_another() {
    let (mut first, mut second) = (Server::start(10_000).await, Server::start(10_000).await);
    let dir = tempfile::tempdir().unwrap();
    let (_, agent) = enrolled_agent(&first, dir.path()).await;
    first.logged("connected 1 v2").await;
    let (id, remote) = enrolled(&second, dir.path()).await;
    agent.link.reconfigure(remote.clone()).await;
    first.logged("disconnected 1").await;
    second.logged("connected 1 v2").await;
    assert_eq!(second.gateway.protocol(&id), Some(2));
    let off = RemoteConfig {
        enable: false,
        ..remote
    };
    agent.link.reconfigure(off).await;
    agent.reaches(RemoteState::Disabled).await;
    second.logged("disconnected 1").await;
}

#[tokio::test]
async fn tls_link_carries_streams_that_end_with_it() {
    let mut server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let (id, mut agent) = enrolled_agent(&server, dir.path()).await;
    server.logged("connected 1 v2").await;
    let links = server.gateway.clone();
    let open = || links.call(&id, call("test.stream", json!({})));
    let mut stream = open().await.unwrap().stream.unwrap();
    let typed: Vec<u8> = pattern(1_000_000);
    let paste = Piece::new(PieceKind::Bytes, typed.clone());
    let (send, typing) = (stream.send.clone(), typed.clone());
    tokio::spawn(async move { send.send(paste).await });
    let mut back = Vec::new();
    while back.len() < typing.len() {
        let piece = wait_for("the echo", stream.recv.recv()).await.unwrap();
        back.extend_from_slice(&piece.body);
    }
    assert!(back == typed, "the bytes come back unchanged");
    drop(stream);
    let gone = wait_for("the end", agent.node_events.recv()).await;
    assert_eq!(gone.as_deref(), Some("stream gone"));
    let mut stream = open().await.unwrap().stream.unwrap();
    server.registry.revoke(&id).await.unwrap();
    assert_eq!(wait_for("the end", stream.recv.recv()).await, None);
    assert_eq!(
        links.protocol(&id),
        None,
        "who sees the end sees the link gone"
    );
}
