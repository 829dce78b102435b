//! Enrolment, revocation and quarantine over real TLS.

use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wingman::agent::Connector;
use wingman::agent::enrol::{self, Enrolled};
use wingman::base::{EpochMillis, TestClock};
use wingman::config::{AgentConfig, RemoteConfig};
use wingman::control::registry::Registry;
use wingman::store::{Store, agents};
use wingman::wire::join::JoinString;
use wingman::wire::messages::agents::{AgentStatus, SplitParams};
use wingman::wire::messages::system::RemoteState;
use wingman::wire::rawkey::{self, AGENT_KEY_FILE, LinkKey, PublicKey};
use wingman::wire::{Code, Fault};

use super::link_support::{Server, TestAgent, enrolled_agent, wait_for};

async fn join(text: &str, dir: &Path) -> Result<Enrolled, Fault> {
    let config = dir.join("agent.toml");
    wait_for(
        "the enrolment",
        enrol::join(text, dir, &config, &RemoteConfig::default()),
    )
    .await
}

fn code(outcome: Result<Enrolled, Fault>) -> Code {
    outcome.unwrap_err().code
}

#[tokio::test]
async fn join_writes_key_and_configuration_and_the_string_works_once() {
    let mut server = Server::start(10_000).await;
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let text = server.invite().await;
    let enrolled = join(&text, first.path()).await.unwrap();
    server.logged("agent.enrolled").await;
    let config = AgentConfig::load(&first.path().join("agent.toml")).unwrap();
    assert!(config.remote.enable);
    assert_eq!(config.remote.server_ip, "127.0.0.1");
    assert_eq!(config.remote.server_key.len(), 64);
    assert!(first.path().join(AGENT_KEY_FILE).exists());
    let shown = server.registry.show(&enrolled.agent_id).unwrap();
    assert_eq!(shown.status, AgentStatus::Offline);
    assert_eq!(code(join(&text, second.path()).await), Code::InviteUsed);
    assert!(
        !second.path().join("agent.toml").exists(),
        "nothing is written"
    );
    assert!(!second.path().join(AGENT_KEY_FILE).exists());
}

#[tokio::test]
async fn wrong_pin_wrong_secret_and_nonsense_each_have_their_code() {
    let server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let good = JoinString::parse(&server.invite().await).unwrap();
    let mut wrong_pin = good.clone();
    wrong_pin.pin = LinkKey::generate().public().0;
    let text = wrong_pin.to_text().unwrap();
    assert_eq!(
        code(join(text.expose(), dir.path()).await),
        Code::PinMismatch
    );
    let forged = JoinString::create(&good.address, good.pin).unwrap();
    let text = forged.to_text().unwrap();
    assert_eq!(
        code(join(text.expose(), dir.path()).await),
        Code::InviteInvalid
    );
    assert_eq!(
        code(join("wm1-nonsense", dir.path()).await),
        Code::JoinStringInvalid
    );
    let text = good.to_text().unwrap();
    join(text.expose(), dir.path()).await.expect("still unused");
}

#[tokio::test]
async fn expired_invitation_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock::at(EpochMillis(0)));
    let store = Store::open(&dir.path().join("server.db"), &[agents::SCHEMA]).unwrap();
    let registry = Registry::open(store, clock.clone()).await.unwrap();
    let server = Server::start_with(10_000, Arc::new(registry)).await;
    let (early, late) = (server.invite().await, server.invite().await);
    clock.advance_ms(15 * 60 * 1000 - 1);
    join(&early, dir.path()).await.unwrap();
    clock.advance_ms(1);
    assert_eq!(code(join(&late, dir.path()).await), Code::InviteExpired);
}

#[tokio::test]
async fn tries_to_enrol_are_limited_by_address() {
    let server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let good = JoinString::parse(&server.invite().await).unwrap();
    let forged = JoinString::create(&good.address, good.pin).unwrap();
    let text = forged.to_text().unwrap();
    for _ in 0..10 {
        assert_eq!(
            code(join(text.expose(), dir.path()).await),
            Code::InviteInvalid
        );
    }
    assert_eq!(
        code(join(text.expose(), dir.path()).await),
        Code::RateLimited
    );
}

#[tokio::test]
async fn revoked_agent_is_closed_at_once_and_told_so() {
    let mut server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let (id, agent) = enrolled_agent(&server, dir.path()).await;
    server.logged("connected 1").await;
    server.registry.revoke(&id).await.unwrap();
    server.logged("revoked").await;
    server.logged("revoked").await;
    let message = agent.reaches(RemoteState::Error).await.unwrap();
    assert!(message.contains("agent_revoked"), "{message}");
    let shown = server.registry.show(&id).unwrap();
    assert_eq!(shown.status, AgentStatus::Revoked);
    // A new invitation lets the same workstation in again, under its name.
    agent.link.stop().await;
    let again = join(&server.invite().await, dir.path()).await.unwrap();
    assert_eq!(again.agent_id, id);
}

#[tokio::test]
async fn second_agent_under_a_taken_name_gets_one_of_its_own() {
    let server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let first = join(&server.invite().await, dir.path()).await.unwrap();
    let second = join(&server.invite().await, dir.path()).await.unwrap();
    assert_ne!(first.agent_id, second.agent_id);
    let name = second.agent_id.as_str();
    assert!(name.starts_with(first.agent_id.as_str()), "{name}");
}

#[tokio::test]
async fn two_processes_with_one_key_are_quarantined_until_split() {
    let mut server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let (id, first) = enrolled_agent(&server, dir.path()).await;
    server.logged("connected 1").await;
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(
        dir.path().join(AGENT_KEY_FILE),
        copy.path().join(AGENT_KEY_FILE),
    )
    .unwrap();
    let remote = AgentConfig::load(&dir.path().join("agent.toml"))
        .unwrap()
        .remote;
    let second = TestAgent::start(copy.path(), id.clone(), remote, Connector::Tcp);
    server.logged("agent.quarantined").await;
    for agent in [&first, &second] {
        let message = agent.reaches(RemoteState::Error).await.unwrap();
        assert!(message.contains("agent_quarantined"), "{message}");
    }
    let shown = server.registry.show(&id).unwrap();
    assert_eq!(shown.status, AgentStatus::Quarantined);
    assert_eq!(shown.rivals.len(), 2);
    let keep = |instance: &str| SplitParams {
        agent_id: id.clone(),
        keep_instance: instance.to_owned(),
    };
    let stranger = server.registry.split(keep("stranger")).await;
    assert_eq!(stranger.unwrap_err().code, Code::Conflict);
    let kept = shown.instance_id.unwrap();
    server.registry.split(keep(&kept)).await.unwrap();
    server.logged("connected 2").await;
    let shown = server.registry.show(&id).unwrap();
    assert_eq!(shown.instance_id, Some(kept));
}

/// A raw TLS connection of a key that may be unknown.
async fn raw(server: &Server, key: &LinkKey) -> TlsStream<TcpStream> {
    let pin = JoinString::parse(&server.invite().await).unwrap().pin;
    let config = rawkey::client_config(key, PublicKey(pin)).unwrap();
    let stream = TcpStream::connect(&server.address).await.unwrap();
    let connector = TlsConnector::from(config);
    connector
        .connect(rawkey::server_name(), stream)
        .await
        .unwrap()
}

/// Sends bytes and reads all that comes until the server closes.
async fn exchange(server: &Server, key: &LinkKey, bytes: &[u8]) -> String {
    let mut stream = raw(server, key).await;
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    // A close without a TLS goodbye is a close as well.
    let _ = wait_for("the close", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0, 0, 0, 0, kind, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(body);
    bytes
}

#[tokio::test]
async fn stranger_s_key_may_send_one_small_enrolment_and_nothing_else() {
    let server = Server::start(10_000).await;
    let stranger = LinkKey::generate();
    let register = frame(
        3,
        br#"{"type":"agent.register","agentId":"x","protocol":2,"instanceId":"i"}"#,
    );
    let cases: [(&[u8], &str); 5] = [
        (&register, "agent_unknown"),
        (&frame(1, &vec![b' '; 4097]), "frame_too_large"),
        (&frame(9, b"{}"), "frame_invalid"),
        (&frame(3, b"\xff\xfe"), "invalid_message"),
        (&frame(1, br#"{"method":"script.run"}"#), "invalid_message"),
    ];
    for (bytes, expected) in cases {
        let answer = exchange(&server, &stranger, bytes).await;
        assert!(answer.contains(expected), "{expected}: {answer}");
    }
}
