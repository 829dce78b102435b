//! Protocol 1 both ways, against the Python client: an old agent at our server, and our agent at an
//! old server.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use wingman::agent::Connector;
use wingman::base::Secret;
use wingman::base::ids::AgentId;
use wingman::config::RemoteConfig;
use wingman::control::contract::Links;
use wingman::wire::event::{Draft, name};
use wingman::wire::messages::agents::{AgentStatus, TokenParams};
use wingman::wire::messages::desktop::{Capture, Window};
use wingman::wire::messages::scripts::RunReply;
use wingman::wire::messages::system::RemoteState;
use wingman::wire::{Call, Code, Origin};

use super::link_support::{Server, TestAgent, enrolled_agent, wait_for};

/// The Python client with its JSON lines; it dies with this value.
struct Python {
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Python {
    fn start(args: &[&str]) -> Self {
        let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/wingman_client.py");
        let mut child = Command::new("python3")
            .arg(client)
            .args(args)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("python3 is needed for the cross-language tests");
        let stdout = child.stdout.take().unwrap();
        Self {
            lines: BufReader::new(stdout).lines(),
            _child: child,
        }
    }

    /// The next line that has `key`.
    async fn line(&mut self, key: &str) -> Value {
        wait_for(key, async {
            loop {
                let line = self.lines.next_line().await.unwrap().expect("more lines");
                let value: Value = serde_json::from_str(&line).unwrap();
                if value.get(key).is_some() {
                    return value;
                }
            }
        })
        .await
    }
}

fn call(method: &str, params: Value) -> Call {
    Call::new(method, params, Origin::Server { epoch: 0 })
}

#[tokio::test]
async fn old_agent_registers_by_token_and_answers_today_s_methods() {
    let mut server = Server::start(10_000).await;
    let address = server.plain_address.clone();
    let _agent = Python::start(&["agent", &address, "--token", "tok-1"]);
    server.logged("agent_python_1000 connected 1 v1").await;
    let id = AgentId::parse("agent_python_1000").unwrap();
    let shown = server.registry.show(&id).unwrap();
    assert_eq!(
        (shown.protocol, shown.platform.as_str()),
        (Some(1), "desktop")
    );
    assert_eq!(shown.status, AgentStatus::Online);
    let links = &server.gateway;
    let run = call(
        "script.run",
        json!({"source": "x", "name": "a.lua", "executionId": "e-1"}),
    );
    let reply: RunReply = links.call(&id, run).await.unwrap().read().unwrap();
    assert_eq!(reply.execution_id.as_str(), "e-1");
    assert_eq!(reply.script_id, "py-1");
    let windows = links
        .call(&id, call("window.list", json!({})))
        .await
        .unwrap();
    let windows: Vec<Window> = windows.read().unwrap();
    assert_eq!((windows[0].handle, windows[0].is_foreground), (7, true));
    let shot = call("screenshot.capture", json!({}));
    let shot = links.call(&id, shot).await.unwrap();
    assert_eq!(shot.blob.as_ref().unwrap().bytes, &b"jpeg"[..]);
    let capture: Capture = shot.read().unwrap();
    assert_eq!((capture.width, capture.height), (2, 1));
    let status = links.call(&id, call("system.getStatus", json!({}))).await;
    assert_eq!(status.unwrap().data["mode"], 1);
    let unknown = links.call(&id, call("clipboard.getText", json!({}))).await;
    assert_eq!(unknown.unwrap_err().code, Code::Unsupported);
    server.logged("script_output").await;
    server.logged("script_state").await;
}

#[tokio::test]
async fn challenge_and_database_tokens_let_in_and_revocation_puts_out() {
    let mut server = Server::start(10_000).await;
    let address = server.plain_address.clone();
    let bound_to = AgentId::parse("agent_python_1000").unwrap();
    let made = server
        .registry
        .create_token(TokenParams {
            label: "old desk".into(),
            agent_id: Some(bound_to),
        })
        .await
        .unwrap();
    let token = made.token.unwrap();
    assert!(token.starts_with("wt_") && token.starts_with(&made.prefix));
    let listed = server.registry.list_tokens().await.unwrap();
    assert_eq!(listed.items[0].token, None);
    let _agent = Python::start(&["agent", &address, "--token", &token, "--challenge"]);
    server.logged("agent_python_1000 connected 1 v1").await;
    server.registry.revoke_token(&made.id).await.unwrap();
    server
        .logged("agent_python_1000 disconnected 1 token_invalid")
        .await;
    let mut again = Python::start(&["agent", &address, "--token", &token, "--challenge"]);
    let ack = again.line("notice").await;
    assert_eq!(ack["notice"]["error"], "invalid or missing token");
}

#[tokio::test]
async fn wrong_token_or_a_token_bound_to_another_is_refused() {
    let server = Server::start(10_000).await;
    let other = AgentId::parse("another").unwrap();
    let bound = server
        .registry
        .create_token(TokenParams {
            label: "bound".into(),
            agent_id: Some(other),
        })
        .await
        .unwrap();
    for (token, challenge) in [("wrong", true), ("wrong", false), ("", false)] {
        let mut args = vec!["agent", &server.plain_address, "--token", token];
        args.extend(challenge.then_some("--challenge"));
        let ack = Python::start(&args).line("notice").await;
        assert_eq!(ack["notice"]["success"], false);
        assert_eq!(ack["notice"]["code"], "token_invalid");
    }
    let token = bound.token.unwrap();
    let args = ["agent", &server.plain_address, "--token", &token];
    let ack = Python::start(&args).line("notice").await;
    assert_eq!(ack["notice"]["code"], "token_invalid");
}

#[tokio::test]
async fn shared_token_cannot_speak_for_an_enrolled_agent() {
    let mut server = Server::start(10_000).await;
    let dir = tempfile::tempdir().unwrap();
    let (id, _agent) = enrolled_agent(&server, dir.path()).await;
    server.logged("connected 1 v2").await;
    let address = &server.plain_address;
    let args = ["agent", address, "--token", "tok-1", "--id", id.as_str()];
    let ack = Python::start(&args).line("notice").await;
    assert_eq!(ack["notice"]["code"], "conflict");
    assert!(server.gateway.protocol(&id) == Some(2));
}

async fn at_an_old_server(challenge: bool) {
    let mut args = vec!["server", "--token", "tok-1"];
    args.extend(challenge.then_some("--challenge"));
    let mut server = Python::start(&args);
    let port = server.line("listening").await["listening"]
        .as_u64()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let remote = RemoteConfig {
        enable: true,
        server_port: u16::try_from(port).unwrap(),
        protocol: 1,
        register_token: Secret::new("tok-1"),
        challenge_auth: challenge,
        ..RemoteConfig::default()
    };
    let id = AgentId::parse("desk-1").unwrap();
    let agent = TestAgent::start(dir.path(), id, remote, Connector::Tcp);
    let registered = server.line("register").await;
    assert_eq!(registered["good"], true);
    assert_eq!(registered["register"]["agentId"], "desk-1");
    assert_eq!(registered["register"].get("protocol"), None);
    agent.reaches(RemoteState::Connected).await;
    let mut replies = std::collections::BTreeMap::new();
    for _ in 0..6 {
        let line = server.line("method").await;
        replies.insert(
            line["method"].as_str().unwrap().to_owned(),
            line["reply"].clone(),
        );
    }
    assert_eq!(replies["get_status"]["data"]["remoteConnected"], true);
    assert_eq!(replies["get_status"]["data"]["scripts"], json!([]));
    assert_eq!(replies["run_script"]["data"]["scriptId"], "run-1");
    assert!(replies["list_windows"]["data"].is_array());
    let image = replies["screenshot.capture"]["data"]["image"].as_str();
    assert!(image.unwrap().starts_with("data:image/jpeg;base64,"));
    assert_eq!(replies["stop_script"]["success"], false);
    assert_eq!(
        replies["trigger.list"]["error"],
        "unknown command: trigger.list"
    );
    let run = agent.node.calls.lock().unwrap().clone();
    let run = run.iter().find(|call| call.method == "script.run").unwrap();
    assert_eq!(
        run.params,
        json!({
            "source": "log.info('hi')", "name": "hello.lua", "timeoutMs": 5000,
            "args": {"who": "you"},
        })
    );
    let line = json!({"text": "hello", "level": "info"});
    let output = json!({"executionId": "run-1", "lines": [line]});
    let output = Draft::new(name::EXECUTION_OUTPUT, output);
    agent.journal.append(output).await.unwrap();
    let event = loop {
        let notice = server.line("notice").await["notice"].clone();
        if notice["type"] == "agent.event" {
            break notice;
        }
        assert_eq!(notice["type"], "agent.heartbeat");
    };
    assert_eq!(event["event"], "script_output");
    assert_eq!(
        event["data"],
        json!({"scriptId": "run-1", "message": "hello", "level": "info"})
    );
}

#[tokio::test]
async fn our_agent_serves_an_old_server_by_token() {
    at_an_old_server(false).await;
}

#[tokio::test]
async fn our_agent_serves_an_old_server_by_challenge() {
    at_an_old_server(true).await;
}

#[tokio::test]
async fn hostile_bytes_at_the_plain_door_get_one_error_and_a_close() {
    let server = Server::start(10_000).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/rejects");
    for (file, expected) in [
        ("oversize-length-all-ones", "frame_too_large"),
        ("oversize-after-good", "frame_too_large"),
        ("http-request", "frame_invalid"),
        ("tls-hello", "frame_invalid"),
        ("data-on-protocol-1", "frame_invalid"),
        ("notify-not-utf8", "invalid_message"),
        ("notify-deep", "invalid_message"),
    ] {
        let bytes = std::fs::read(folder.join(file).with_extension("bin")).unwrap();
        let mut stream = TcpStream::connect(&server.plain_address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // A reset after the answer is a close as well.
        let _ = wait_for("the close", stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains(expected), "{file}: {answer}");
    }
}
