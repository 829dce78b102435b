//! `session.*` over HTTP: lists over workstations, who owns a session, rights to one session, audit.

use std::sync::Arc;

use serde_json::{Value, json};
use wingman::base::EpochMillis;
use wingman::base::ids::{AgentId, ConsoleId, EventId};
use wingman::wire::event::{Record, Source};
use wingman::wire::permission::Role;

use crate::control_server::{Reply, TestServer};
use crate::terminal_node::{Served, TerminalNode};

fn start() -> (tempfile::TempDir, TestServer) {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    (dir, server)
}

fn node(server: &TestServer, agent: &str, names: &[&str]) -> Arc<TerminalNode> {
    let node = TerminalNode::new(names);
    server.link(agent, Arc::new(Served(Arc::clone(&node))));
    node
}

fn get(server: &TestServer, path: &str) -> Value {
    let reply = server.ask("GET", path, None);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

fn names(list: &Value) -> Vec<String> {
    let sessions = list["sessions"].as_array().unwrap();
    let name = |s: &Value| {
        let text = |key: &str| s[key].as_str().unwrap().to_owned();
        format!("{}/{}", text("machine"), text("name"))
    };
    sessions.iter().map(name).collect()
}

#[test]
fn every_workstation_s_sessions_are_listed_and_one_that_is_away_with_its_age() {
    let (_dir, server) = start();
    node(&server, "desk", &["build", "logs"]);
    node(&server, "lab", &["train"]);
    server.connect("old", 1, 1);
    let list = get(&server, "/api/sessions?scope=all");
    assert_eq!(names(&list), ["desk/build", "desk/logs", "lab/train"]);
    let machines = list["machines"].as_array().unwrap();
    assert_eq!(machines[0]["ok"], true);
    let old = &machines[2];
    assert_eq!(
        (&old["ok"], &old["error"]),
        (&json!(false), &json!("unsupported"))
    );
    assert_eq!(old.get("fetched_at"), None);
    let fetched = machines[1]["fetched_at"].clone();

    server.clock.advance_ms(5_000);
    // A workstation that was never enrolled is forgotten when it leaves, so this one stays connected
    // and answers nothing.
    server.unlink("lab");
    let lab = AgentId::parse("lab").unwrap();
    server.links.set_connected(&lab, Some(2));
    let list = get(&server, "/api/sessions?scope=all");
    assert_eq!(names(&list), ["desk/build", "desk/logs", "lab/train"]);
    let machines = list["machines"].as_array().unwrap();
    assert_eq!(machines[1]["name"], "lab");
    assert_eq!(machines[1]["ok"], false);
    assert_eq!(
        machines[1]["fetched_at"], fetched,
        "the age of the answer is told"
    );
    assert_ne!(machines[0]["fetched_at"], fetched);
    assert!(machines[1]["error"].is_string());
    assert_eq!(
        server.fails("GET", "/api/sessions?scope=some", None).1,
        "invalid_params"
    );
}

#[test]
fn enrolled_workstation_that_is_offline_keeps_its_last_list_and_owns_its_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start_enrolled(dir.path(), &["lab"]);
    let lab = node(&server, "lab", &["train"]);
    get(&server, "/api/sessions?scope=all");
    server.unlink("lab");
    let list = get(&server, "/api/sessions?scope=all");
    assert_eq!(names(&list), ["lab/train"]);
    assert_eq!(list["machines"][0]["error"], "agent_offline");
    assert_eq!(list["machines"][0]["hostname"], "host-lab");
    for id in [&lab.id("train"), "train"] {
        let failed = server.fails("GET", &format!("/api/sessions/{id}"), None);
        assert_eq!(failed, (502, "agent_offline".into()), "{id}");
    }
}

#[test]
fn without_a_scope_one_workstation_answers() {
    let (_dir, server) = start();
    assert_eq!(
        server.fails("GET", "/api/sessions", None).1,
        "agent_offline"
    );
    node(&server, "desk", &["build"]);
    assert_eq!(names(&get(&server, "/api/sessions")), ["desk/build"]);
    assert_eq!(get(&server, "/api/sessions").get("machines"), None);
    node(&server, "lab", &["train"]);
    let ambiguous = server.ask("GET", "/api/sessions", None);
    assert_eq!(ambiguous.fault(), (409, "agent_ambiguous".into()));
    assert!(ambiguous.text().contains("desk, lab"));
    assert_eq!(
        names(&get(&server, "/api/sessions?machine=lab")),
        ["lab/train"]
    );
    let created = server.ask("POST", "/api/sessions", Some(json!({"machine": "lab"})));
    assert_eq!(created.json()["machine"], "lab");
    let undecided = server.fails("POST", "/api/sessions", Some(json!({})));
    assert_eq!(undecided.1, "agent_ambiguous");
}

#[test]
fn sessions_are_found_by_id_start_of_id_name_and_machine() {
    let (_dir, server) = start();
    let desk = node(&server, "desk", &["build", "logs"]);
    let lab = node(&server, "lab", &["build"]);
    let logs = desk.id("logs");
    for path in [
        logs.clone(),
        logs[..12].to_owned(),
        "logs".into(),
        "desk%2Flogs".into(),
        "logs?machine=desk".into(),
    ] {
        let found = get(&server, &format!("/api/sessions/{path}"));
        assert_eq!(found["id"], logs.as_str(), "{path}");
        assert_eq!(found["machine"], "desk", "the server says whose it is");
    }
    let ambiguous = server.ask("GET", "/api/sessions/build", None);
    assert_eq!(ambiguous.fault(), (409, "session_ambiguous".into()));
    assert!(
        ambiguous
            .text()
            .contains(&format!("lab/{}", lab.id("build")))
    );
    let found = get(&server, "/api/sessions/lab%2Fbuild");
    assert_eq!(found["id"], lab.id("build").as_str());
    assert_eq!(
        server.fails("GET", "/api/sessions/none", None),
        (404, "session_not_found".into())
    );
    let elsewhere = server.fails("GET", "/api/sessions/logs?machine=lab", None);
    assert_eq!(elsewhere.1, "session_not_found");
    assert_eq!(
        server
            .fails("GET", "/api/sessions/logs?machine=moon", None)
            .1,
        "agent_offline"
    );
}

fn audit(server: &TestServer, kind: &str) -> Vec<Value> {
    let reply = server.data("GET", &format!("/api/audit?kind={kind}"), None);
    reply["events"].as_array().unwrap().clone()
}

#[test]
fn typed_text_is_counted_in_the_audit_trail_and_never_kept() {
    let (_dir, server) = start();
    let desk = node(&server, "desk", &["build"]);
    let body = json!({"text": "hunter2-secret", "enter": true});
    let sent = server.ask("POST", "/api/sessions/build/input", Some(body));
    assert_eq!(sent.status, 200, "{}", sent.text());
    assert_eq!(desk.last("session.send").unwrap()["text"], "hunter2-secret");
    let rows = audit(&server, "session.send");
    assert_eq!(rows[0]["detail"]["textBytes"], 14);
    assert_eq!(rows[0]["target"], "build");
    let create = json!({"env": {"TOKEN": "hunter2-env"}, "init_command": "hunter2-init"});
    assert_eq!(
        server.ask("POST", "/api/sessions", Some(create)).status,
        200
    );
    assert_eq!(audit(&server, "session.create").len(), 1);
    let everything = server.ask("GET", "/api/audit", None).text();
    assert!(!everything.contains("hunter2"), "{everything}");
}

#[test]
fn picture_is_a_png_whatever_the_workstation_calls_it() {
    let (_dir, server) = start();
    node(&server, "desk", &["build"]);
    let reply = server.ask("GET", "/api/sessions/build/screen.png", None);
    assert_eq!(reply.header("content-type"), Some("image/png"));
    assert_eq!(reply.body, b"\x89PNG");
}

#[test]
fn waiter_that_hangs_up_is_cancelled_on_the_workstation() {
    let (_dir, server) = start();
    let desk = node(&server, "desk", &["build"]);
    let body = json!({"for": "waiting"}).to_string();
    let headers = [server.bearer(), "Content-Type: application/json".into()];
    let waiting = server.send(
        "POST",
        "/api/sessions/build/wait",
        &headers,
        body.as_bytes(),
    );
    desk.saw("waiting");
    drop(waiting);
    desk.saw("cancelled");
}

#[test]
fn grant_lets_an_account_do_to_one_session_what_its_role_does_not() {
    let (_dir, server) = start();
    let desk = node(&server, "desk", &["build", "logs"]);
    let bearer = format!("Authorization: Bearer {}", server.token_of(Role::Viewer));
    let ask = |verb: &str, path: &str, body: Option<Value>| -> Reply {
        server.request(verb, path, &[&bearer], body)
    };
    let typed = || Some(json!({"text": "x"}));
    let denied = (403, "permission_denied".to_owned());
    assert_eq!(
        ask("POST", "/api/sessions/build/input", typed()).fault(),
        denied
    );
    let id = desk.id("build");
    let grants = format!("/api/sessions/{id}/grants");
    let grant = json!({"username": "some-viewer", "level": "control"});
    let made = server.ask("POST", &grants, Some(grant));
    assert_eq!(
        made.json()["grants"][0]["level"],
        "control",
        "{}",
        made.text()
    );
    assert_eq!(
        ask("POST", "/api/sessions/build/input", typed()).status,
        200
    );
    assert_eq!(
        ask("POST", "/api/sessions/logs/input", typed()).fault(),
        denied
    );
    assert_eq!(ask("DELETE", "/api/sessions/build", None).fault(), denied);
    let take = json!({"action": "take_over", "console": ConsoleId::random()});
    let taken = ask("POST", "/api/sessions/build/lease", Some(take));
    assert_eq!(taken.fault(), denied, "taking over needs more than control");
    // Rights to sessions are not handed on by grants.
    let more = json!({"username": "some-viewer", "level": "manage"});
    assert_eq!(ask("POST", &grants, Some(more.clone())).fault(), denied);
    assert_eq!(server.ask("POST", &grants, Some(more)).status, 200);
    assert_eq!(ask("DELETE", "/api/sessions/build", None).status, 200);
    let revoked = server.ask("DELETE", &format!("{grants}/some-viewer"), None);
    assert_eq!(revoked.json()["grants"], json!([]));
    assert_eq!(ask("DELETE", "/api/sessions/build", None).fault(), denied);
    let nobody = json!({"username": "nobody", "level": "view"});
    assert_eq!(server.fails("POST", &grants, Some(nobody)).1, "not_found");
    assert_eq!(audit(&server, "session.grant").len(), 4);
}

#[test]
fn attaching_has_no_rest_route_and_footprints_are_merged() {
    let (_dir, server) = start();
    node(&server, "desk", &["build"]);
    node(&server, "lab", &["train"]);
    assert_eq!(
        server
            .fails("POST", "/api/sessions/build/attach", Some(json!({})))
            .0,
        404
    );
    let footprint = get(&server, "/api/footprint");
    assert_eq!(footprint["pty"].as_array().unwrap().len(), 2);
    assert_eq!(
        get(&server, "/api/footprint?machine=lab")["pty"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    get(&server, "/api/sessions?scope=all");
    let metrics = server.ask("GET", "/metrics", None).text();
    assert!(
        metrics.contains("wingman_terminal_sessions{machine=\"lab\"} 1"),
        "{metrics}"
    );
}

/// The first record of a workstation's journal.
fn record(event: &str, session: &str, payload: Value) -> Record {
    Record {
        schema_version: Record::SCHEMA_VERSION,
        sequence: 1,
        event_id: EventId::random(),
        observed_at: EpochMillis(1),
        committed_at: EpochMillis(1),
        session_id: session.into(),
        stream: "sessions".into(),
        event_type: event.into(),
        source: Source::default(),
        foreground: None,
        correlation_id: None,
        causation_id: None,
        payload,
        artifacts: vec![],
    }
}

#[test]
fn grants_end_with_what_is_kept_of_their_session() {
    let (_dir, server) = start();
    let desk = node(&server, "desk", &["build", "logs"]);
    server.token_of(Role::Viewer);
    let grant = json!({"username": "some-viewer", "level": "control"});
    let of = |name: &str| format!("/api/sessions/{}/grants", desk.id(name));
    for name in ["build", "logs"] {
        assert_eq!(
            server.ask("POST", &of(name), Some(grant.clone())).status,
            200
        );
    }
    let gone = record("session.forgotten", desk.id("build").as_str(), json!({}));
    let agent = AgentId::parse("desk").unwrap();
    server
        .block_on(server.sink.events(&agent, vec![gone]))
        .unwrap();
    let left = |name: &str| server.ask("GET", &of(name), None).json()["grants"].clone();
    assert_eq!(left("build"), json!([]));
    assert_eq!(left("logs").as_array().map(Vec::len), Some(1));
}

#[test]
fn lease_changes_are_audited_from_the_workstation_s_journal() {
    let (_dir, server) = start();
    let desk = server.connect("desk", 1, 2);
    let lease = json!({"mode": "exclusive", "holder": ConsoleId::random(), "generation": 4});
    let payload = json!({"lease": lease, "typed": "hunter2"});
    let record = record("session.lease_changed", "s-1", payload);
    server
        .block_on(server.sink.events(&desk, vec![record]))
        .unwrap();
    let rows = audit(&server, "session.lease_changed");
    assert_eq!(rows[0]["target"], "desk/s-1");
    assert_eq!(rows[0]["detail"]["generation"], 4);
    assert_eq!(rows[0]["detail"].get("typed"), None);
}
