//! The server's HTTP surface on a real socket: envelopes, forwarding, runs with all their ends,
//! artifacts, events, metrics.

use std::io::{BufRead as _, BufReader};

use bytes::Bytes;
use serde_json::{Value, json};
use wingman::base::EpochMillis;
use wingman::base::ids::{AgentId, EventId, ExecutionId};
use wingman::wire::event::{Record, Source};
use wingman::wire::{Answer, Blob, Call, Code, Fault};

use crate::control_server::{LEASE_S, TestServer};

fn start() -> (tempfile::TempDir, TestServer) {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    (dir, server)
}

fn record(sequence: u64, event: &str, payload: Value) -> Record {
    Record {
        schema_version: Record::SCHEMA_VERSION,
        sequence,
        event_id: EventId::random(),
        observed_at: EpochMillis(1_000),
        committed_at: EpochMillis(1_001),
        session_id: String::new(),
        stream: "executions".into(),
        event_type: event.into(),
        source: Source::default(),
        foreground: None,
        correlation_id: None,
        causation_id: None,
        payload,
        artifacts: vec![],
    }
}

/// A workstation that takes every run as running.
fn takes_runs(call: &Call) -> Result<Answer, Fault> {
    match call.method.as_str() {
        "script.run" => Answer::of(&json!({
            "executionId": call.params["executionId"],
            "scriptId": call.params["executionId"],
            "status": "running",
            "reused": false,
        })),
        _ => Err(Fault::new(Code::UnknownMethod, "not scripted")),
    }
}

fn run(server: &TestServer, agent: &str) -> String {
    let path = format!("/api/agents/{agent}/scripts/run");
    let body = json!({"source": "log.info('x')", "language": "lua", "name": "x.lua"});
    let reply = server.data("POST", &path, Some(body));
    reply["executionId"].as_str().unwrap().to_owned()
}

fn show(server: &TestServer, id: &str) -> Value {
    server.data("GET", &format!("/api/executions/{id}"), None)
}

/// The record of a run as its workstation tells it.
fn told(server: &TestServer, id: &str, status: &str, result: Value) -> Value {
    let mut execution = show(server, id);
    execution["status"] = status.into();
    execution["finishedAt"] = 2_000.into();
    execution["result"] = result;
    execution
}

fn send(server: &TestServer, agent: &AgentId, records: Vec<Record>) -> u64 {
    server.block_on(server.sink.events(agent, records)).unwrap()
}

#[test]
fn errors_come_in_one_envelope_with_their_request_id() {
    let (_dir, server) = start();
    assert_eq!(
        server.fails("GET", "/api/nonsense", None),
        (404, "route_not_found".into())
    );
    assert_eq!(
        server.fails("GET", "/api/agents/none", None),
        (404, "not_found".into())
    );
    let reply = server.ask("PUT", "/api/executions", None);
    assert_eq!(reply.header("allow"), Some("GET"));
    assert_eq!(reply.fault(), (405, "method_not_allowed".into()));
    assert_eq!(
        server.fails("GET", "/api/agents/a%20b", None),
        (400, "invalid_params".into())
    );
    let run = "/api/agents/desk/scripts/run";
    assert_eq!(
        server.fails("POST", run, Some(json!([]))),
        (400, "invalid_message".into())
    );
    assert_eq!(
        server.fails("POST", run, Some(json!({}))),
        (400, "invalid_params".into())
    );
    let both = json!({"source": "x", "path": "y"});
    assert_eq!(
        server.fails("POST", run, Some(both)),
        (400, "invalid_params".into())
    );
    let long = json!({"source": "x".repeat(1024 * 1024 + 1)});
    assert_eq!(
        server.fails("POST", run, Some(long)),
        (413, "script_too_large".into())
    );
    let huge = json!({"source": "x".repeat(3 * 1024 * 1024)});
    assert_eq!(
        server.fails("POST", run, Some(huge)),
        (413, "body_too_large".into())
    );
    let page = server.fails("GET", "/api/executions?page=x", None);
    assert_eq!(page, (400, "invalid_params".into()));
}

#[test]
fn health_is_public_and_metrics_count_by_route() {
    let (_dir, server) = start();
    server.connect("desk", 1, 2);
    let health = server.request("GET", "/health", &[], None);
    assert_eq!(health.status, 200);
    assert_eq!(health.json()["data"]["status"], "ok");
    assert_eq!(health.header("x-content-type-options"), Some("nosniff"));
    server.fails("GET", "/api/agents/one", None);
    server.fails("GET", "/api/agents/two", None);
    let reply = server.ask("GET", "/metrics", None);
    assert!(
        reply
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
    );
    let text = reply.text();
    for line in [
        r#"wingman_http_requests_total{method="GET",route="/health",status="200"} 1"#,
        r#"wingman_http_requests_total{method="GET",route="/api/agents/{agentId}",status="404"} 2"#,
        "wingman_registered_agents 0",
        "wingman_connected_agents 1",
        "# TYPE wingman_executions gauge",
        "wingman_uptime_seconds ",
    ] {
        assert!(text.contains(line), "{line} not in\n{text}");
    }
}

#[test]
fn node_routes_are_forwarded_with_typed_parameters() {
    let (_dir, server) = start();
    assert_eq!(
        server.fails("GET", "/api/agents/desk/monitors", None),
        (502, "agent_offline".into())
    );
    server.connect("desk", 1, 2);
    server
        .links
        .respond(|call| Answer::of(&json!({"method": call.method})));
    let data = server.data("GET", "/api/agents/desk/monitors", None);
    assert_eq!(data["method"], "screen.listMonitors");
    let body = json!({"x": 1, "y": 2, "width": 30, "height": 40});
    server.data("POST", "/api/agents/desk/windows/4194307/place", Some(body));
    let call = server.links.last("window.place").unwrap();
    assert_eq!(call.params["handle"], 4_194_307);
    assert_eq!(call.params["width"], 30);
    assert!(call.params.get("agentId").is_none());
    let bad = server.fails(
        "POST",
        "/api/agents/desk/input/move",
        Some(json!({"x": "a"})),
    );
    assert_eq!(bad, (400, "invalid_params".into()));
    // A code that this server does not know stays visible; the fault is the other side's.
    server
        .links
        .respond(|_| Err(Fault::from_wire(Some("from_the_future"), "hm")));
    let newer = server.fails("GET", "/api/agents/desk/monitors", None);
    assert_eq!(newer, (502, "from_the_future".into()));
}

#[test]
fn bytes_routes_answer_bytes_or_the_record_and_revalidate() {
    let (_dir, server) = start();
    server.connect("desk", 1, 2);
    server.links.respond(|_| {
        Ok(Answer {
            data: json!({"frameId": "f"}),
            blob: Some(Blob {
                content_type: "image/png".into(),
                bytes: Bytes::from_static(b"pixels"),
                field: "image",
            }),
            ..Answer::default()
        })
    });
    let path = "/api/agents/desk/screenshot";
    let raw = server.ask("POST", path, Some(json!({})));
    assert_eq!(raw.header("content-type"), Some("image/png"));
    assert_eq!(raw.body, b"pixels");
    assert!(
        raw.header("content-security-policy")
            .unwrap()
            .contains("sandbox")
    );
    let etag = format!("If-None-Match: {}", raw.header("etag").unwrap());
    let again = server.request("POST", path, &[&server.bearer(), &etag], Some(json!({})));
    assert_eq!(again.status, 304);
    let accept = "Accept: application/json";
    let json = server.request("POST", path, &[&server.bearer(), accept], Some(json!({})));
    let data = &json.json()["data"];
    assert_eq!(data["frameId"], "f");
    assert_eq!(data["image"], "data:image/png;base64,cGl4ZWxz");
}

#[test]
fn run_is_on_disk_before_it_is_sent_and_its_events_finish_it_once() {
    let (_dir, server) = start();
    let desk = server.connect("desk", 1, 2);
    let store = server.store.clone();
    server.links.respond(move |call| {
        if call.method == "script.run" {
            let id: ExecutionId = call.params["executionId"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap();
            let row = store
                .call_blocking(move |c| wingman::store::executions::get(c, &id))
                .unwrap()
                .expect("the row is there");
            assert_eq!(row.status, "queued");
        }
        takes_runs(call)
    });
    let id = run(&server, "desk");
    let call = server.links.last("script.run").unwrap();
    assert_eq!(call.params["timeoutMs"], 30_000);
    assert_eq!(call.command_id.unwrap().as_str(), id);
    assert_eq!(show(&server, &id)["status"], "running");
    assert_eq!(show(&server, &id)["requestedBy"], "admin");

    let line = |index: u64, stream: &str, text: &str| json!({"index": index, "at": 1, "stream": stream, "level": "info", "text": text});
    let output = json!({"executionId": id, "lines": [
        line(0, "stdout", "one"), line(1, "stderr", "two"), line(2, "stdout", "three"),
    ]});
    let records = vec![
        record(3, "execution.output", output),
        record(
            5,
            "execution.state_changed",
            json!({"execution": told(&server, &id, "succeeded", json!({"n": 7}))}),
        ),
    ];
    assert_eq!(server.block_on(server.sink.resume_from(&desk)).unwrap(), 1);
    assert_eq!(send(&server, &desk, records.clone()), 5);
    assert_eq!(send(&server, &desk, records), 5);
    assert_eq!(server.block_on(server.sink.resume_from(&desk)).unwrap(), 6);

    let ended = server.data("GET", &format!("/api/executions/{id}/wait"), None);
    assert_eq!(ended["status"], "succeeded");
    assert_eq!(ended["result"], json!({"n": 7}));
    assert_eq!(ended["logs"]["lines"], 3);
    let logs = server.data(
        "GET",
        &format!("/api/executions/{id}/logs?offset=1&limit=1"),
        None,
    );
    assert_eq!(logs["lines"][0]["text"], "two");
    assert_eq!(
        (&logs["nextOffset"], &logs["total"]),
        (&json!(2), &json!(3))
    );
    assert_eq!(logs["complete"], true);
    let artifact = |name: &str| {
        server.ask(
            "GET",
            &format!("/api/executions/{id}/artifacts/{name}"),
            None,
        )
    };
    assert_eq!(artifact("stdout").text(), "one\nthree\n");
    assert_eq!(artifact("stderr").text(), "[info] two\n");
    assert_eq!(artifact("result.json").json(), json!({"n": 7}));
    assert_eq!(artifact("nope").fault(), (404, "artifact_not_found".into()));
    let cancel = server.fails(
        "POST",
        &format!("/api/executions/{id}/cancel"),
        Some(json!({})),
    );
    assert_eq!(cancel, (409, "execution_finished".into()));
}

#[test]
fn announced_artifact_is_fetched_checked_and_served_without_its_workstation() {
    let (dir, server) = start();
    let desk = server.connect("desk", 1, 2);
    server.links.respond(|call| match call.method.as_str() {
        "execution.artifact" => Ok(Answer {
            data: json!({}),
            blob: Some(Blob {
                content_type: "text/html".into(),
                bytes: Bytes::from_static(b"<b>hello</b>"),
                field: "content",
            }),
            ..Answer::default()
        }),
        _ => takes_runs(call),
    });
    let id = run(&server, "desk");
    let digest = ring::digest::digest(&ring::digest::SHA256, b"<b>hello</b>");
    let sha256 = data_encoding::HEXLOWER.encode(digest.as_ref());
    let told = |name: &str, sha256: &str| {
        json!({"executionId": id, "artifact": {
            "name": name, "contentType": "text/html", "size": 12, "sha256": sha256, "createdAt": 1,
        }})
    };
    let records = vec![
        record(1, "execution.artifact", told("page", &sha256)),
        record(2, "execution.artifact", told("wrong", &"0".repeat(64))),
        record(3, "execution.artifact", told("../../escape", &sha256)),
    ];
    send(&server, &desk, records);
    let names: Vec<_> = show(&server, &id)["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|artifact| artifact["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["page", "wrong"]);
    let path = |name: &str| format!("/api/executions/{id}/artifacts/{name}");
    assert_eq!(
        server.fails("GET", &path("wrong"), None),
        (500, "artifact_corrupt".into())
    );
    server.eventually("the stored file", || {
        let held = wingman::store::executions::artifacts;
        let of: ExecutionId = id.parse().unwrap();
        let all = server.store.call_blocking(move |c| held(c, &of)).unwrap();
        all.iter()
            .any(|artifact| artifact.name == "page" && artifact.stored)
            .then_some(())
    });
    server.disconnect(&desk, 1);
    let served = server.ask("GET", &path("page"), None);
    assert_eq!(served.body, b"<b>hello</b>");
    assert!(
        served
            .header("content-security-policy")
            .unwrap()
            .contains("sandbox")
    );
    // A file altered on the server's disk is moved aside, never served.
    let file = std::fs::read_dir(dir.path().join("artifacts"))
        .unwrap()
        .flat_map(|run| std::fs::read_dir(run.unwrap().path()).unwrap())
        .next()
        .unwrap()
        .unwrap()
        .path();
    std::fs::write(&file, "altered").unwrap();
    assert_eq!(
        server.fails("GET", &path("page"), None),
        (502, "agent_offline".into())
    );
    assert!(file.with_extension("quarantined").exists());
}

#[test]
fn offline_workstation_fails_the_run_at_once() {
    let (_dir, server) = start();
    let body = json!({"path": "a.lua"});
    let fault = server.fails("POST", "/api/agents/desk/scripts/run", Some(body));
    assert_eq!(fault, (502, "agent_offline".into()));
    let list = server.data("GET", "/api/executions?status=failed", None);
    assert_eq!(list["total"], 1);
    assert_eq!(list["items"][0]["error"]["code"], "agent_offline");
    assert_eq!(list["items"][0]["scriptId"], "a.lua");
}

#[test]
fn refused_run_is_failed_with_the_workstation_s_code() {
    let (_dir, server) = start();
    server.connect("desk", 1, 2);
    server
        .links
        .respond(|_| Err(Fault::new(Code::ScriptSyntax, "line 1")));
    let body = json!({"source": "(", "language": "lua"});
    let fault = server.fails("POST", "/api/agents/desk/scripts/run", Some(body));
    assert_eq!(fault, (422, "script_syntax".into()));
    let list = server.data("GET", "/api/executions?agentId=desk", None);
    assert_eq!(list["items"][0]["status"], "failed");
    assert_eq!(list["items"][0]["error"]["code"], "script_syntax");
}

#[test]
fn run_of_a_lost_agent_is_lost_after_its_lease_and_takes_the_recorded_outcome() {
    let (_dir, server) = start();
    let desk = server.connect("desk", 1, 2);
    server.links.respond(takes_runs);
    let id = run(&server, "desk");
    server.disconnect(&desk, 1);
    server.block_on(server.executions.sweep()).unwrap();
    assert_eq!(show(&server, &id)["status"], "running");
    server
        .clock
        .advance_ms(i64::try_from(LEASE_S).unwrap() * 1000);
    server.block_on(server.executions.sweep()).unwrap();
    let lost = show(&server, &id);
    assert_eq!(lost["status"], "lost");
    assert_eq!(lost["error"]["code"], "execution_lost");
    let desk = server.connect("desk", 2, 2);
    let ended = told(&server, &id, "succeeded", json!(1));
    send(
        &server,
        &desk,
        vec![record(
            1,
            "execution.state_changed",
            json!({"execution": ended}),
        )],
    );
    let found = show(&server, &id);
    assert_eq!(
        (&found["status"], &found["result"]),
        (&json!("succeeded"), &json!(1))
    );
    assert_eq!(found["finishedAt"], 2_000);
}

#[test]
fn command_of_unknown_fate_is_settled_when_its_agent_is_back() {
    let (_dir, server) = start();
    let desk = server.connect("desk", 1, 2);
    server
        .links
        .respond(|_| Err(Fault::new(Code::LinkClosed, "gone")));
    let id = run(&server, "desk");
    assert_eq!(show(&server, &id)["status"], "queued");
    server.disconnect(&desk, 1);
    // It comes back and has never heard of the run.
    server
        .links
        .respond(|_| Err(Fault::new(Code::ExecutionNotFound, "unknown")));
    server.connect("desk", 2, 2);
    let path = format!("/api/executions/{id}/wait");
    assert_eq!(server.data("GET", &path, None)["status"], "lost");
}

#[test]
fn open_runs_of_a_dead_server_are_asked_about() {
    let dir = tempfile::tempdir().unwrap();
    let id = {
        let server = TestServer::start(dir.path());
        server.connect("desk", 1, 2);
        server.links.respond(takes_runs);
        run(&server, "desk")
    };
    let server = TestServer::start(dir.path());
    assert_eq!(show(&server, &id)["status"], "running");
    let ended = told(&server, &id, "timeout", Value::Null);
    server
        .links
        .respond(move |call| match call.method.as_str() {
            "execution.get" => Answer::of(&ended),
            _ => Err(Fault::new(Code::UnknownMethod, "not scripted")),
        });
    server.connect("desk", 2, 2);
    let path = format!("/api/executions/{id}/wait");
    assert_eq!(server.data("GET", &path, None)["status"], "timeout");
}

#[test]
fn cancel_stops_on_the_workstation_and_waits_for_one_that_is_away() {
    let (_dir, server) = start();
    let desk = server.connect("desk", 1, 2);
    server.links.respond(takes_runs);
    let (near, far) = (run(&server, "desk"), run(&server, "desk"));
    let ended = told(&server, &near, "cancelled", Value::Null);
    server.links.respond(move |_| Answer::of(&ended));
    let cancel = |id: &str| {
        server.data(
            "POST",
            &format!("/api/executions/{id}/cancel"),
            Some(json!({})),
        )
    };
    assert_eq!(cancel(&near)["status"], "cancelled");
    assert_eq!(
        server.links.last("execution.cancel").unwrap().params["executionId"],
        near.as_str()
    );

    server.disconnect(&desk, 1);
    assert_eq!(cancel(&far)["status"], "stopping");
    let ended = told(&server, &far, "cancelled", Value::Null);
    server.links.respond(move |_| Answer::of(&ended));
    server.connect("desk", 2, 2);
    let path = format!("/api/executions/{far}/wait");
    assert_eq!(server.data("GET", &path, None)["status"], "cancelled");
}

#[test]
fn local_run_is_mirrored_as_its_workstation_s_own() {
    let (_dir, server) = start();
    let desk = server.connect("desk", 1, 2);
    server.links.respond(takes_runs);
    let mut execution = show(&server, &run(&server, "desk"));
    let id = ExecutionId::random().to_string();
    execution["executionId"] = id.as_str().into();
    execution["origin"] = "local".into();
    // What it says about others is not believed.
    execution["agentId"] = "other".into();
    execution["requestedBy"] = "admin".into();
    let created = record(1, "execution.created", json!({"execution": execution}));
    send(&server, &desk, vec![created]);
    let list = server.data("GET", "/api/executions?origin=local&agentId=desk", None);
    assert_eq!(list["items"][0]["executionId"], id.as_str());
    assert!(list["items"][0]["requestedBy"].is_null());
    // Another workstation cannot end it.
    let lap = server.connect("lap", 1, 2);
    let ended = told(&server, &id, "failed", Value::Null);
    send(
        &server,
        &lap,
        vec![record(
            1,
            "execution.state_changed",
            json!({"execution": ended}),
        )],
    );
    assert_eq!(show(&server, &id)["status"], "running");
}

#[test]
fn protocol_1_run_ends_by_its_state_event_or_with_its_link() {
    let (_dir, server) = start();
    let old = server.connect("old", 1, 1);
    server.links.respond(|call| {
        let mut reply = takes_runs(call)?;
        reply.data["scriptId"] = "script-7".into();
        Ok(reply)
    });
    let id = run(&server, "old");
    let event = |name: &str, data: Value| {
        server.block_on(server.sink.plain_event(&old, name.into(), data));
    };
    event(
        "script_output",
        json!({"scriptId": "script-7", "message": "hi", "level": "info"}),
    );
    event(
        "script_state",
        json!({"scriptId": "script-7", "state": "error", "error": "boom"}),
    );
    let ended = show(&server, &id);
    assert_eq!(ended["status"], "failed");
    assert_eq!(ended["error"]["message"], "boom");
    assert_eq!(ended["logs"]["lines"], 1);
    let second = run(&server, "old");
    server.disconnect(&old, 1);
    server.connect("old", 2, 1);
    let path = format!("/api/executions/{second}/wait");
    assert_eq!(server.data("GET", &path, None)["status"], "lost");
}

#[test]
fn events_stream_from_a_cursor_with_a_prefix_and_go_on_live() {
    let (_dir, server) = start();
    let desk = server.connect("desk", 1, 2);
    let lines = |path: &str| -> Vec<Value> {
        let reply = server.ask("GET", path, None);
        assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
        let text = reply.text();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    send(
        &server,
        &desk,
        vec![record(4, "custom.note", json!({"text": "a"}))],
    );
    let all = lines("/api/events?after=1");
    assert_eq!(all[0]["type"], "agent.connected");
    let note = &all[1];
    assert_eq!(
        note["payload"],
        json!({"text": "a", "agentId": "desk", "agentSequence": 4})
    );
    assert_eq!(lines("/api/events?tail=1").len(), 1);
    assert_eq!(lines("/api/events?tail=5&prefix=agent.").len(), 1);
    assert_eq!(lines("/api/events").len(), 0);
    assert_eq!(
        server.fails("GET", "/api/events?after=99", None),
        (400, "cursor_invalid".into())
    );

    let headers = [server.bearer()];
    let stream = server.send(
        "GET",
        "/api/events?follow=true&prefix=custom.",
        &headers,
        b"",
    );
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        line.clear();
    }
    // The head has come, so the stream is open. The same record twice is told once.
    let live = record(9, "custom.live", json!({}));
    send(&server, &desk, vec![live.clone()]);
    send(&server, &desk, vec![live]);
    send(&server, &desk, vec![record(10, "custom.last", json!({}))]);
    let mut types = Vec::new();
    while types.last().is_none_or(|last| last != "custom.last") {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if let Ok(record) = serde_json::from_str::<Value>(&line) {
            types.push(
                record["type"]
                    .as_str()
                    .map(str::to_owned)
                    .unwrap_or_default(),
            );
            types.retain(|name| !name.is_empty());
        }
    }
    assert_eq!(types, ["custom.live", "custom.last"]);
}

#[test]
fn taken_address_names_the_flag() {
    let (_dir, server) = start();
    let address = server.address.to_string();
    let fault = server
        .block_on(wingman::control::server::bind(&address, "--listen"))
        .unwrap_err();
    assert_eq!(fault.code, Code::AddressInUse);
    assert!(fault.message.contains("--listen") && fault.message.contains(&address));
}

#[test]
fn copy_written_before_a_crash_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    {
        // The copy reached the journal, the cursor did not reach the database.
        let server = TestServer::start(dir.path());
        let payload = json!({"agentId": "desk", "agentSequence": 7});
        let draft = wingman::wire::event::Draft::new("custom.note", payload);
        server.journal.append_blocking(draft).unwrap();
    }
    let server = TestServer::start(dir.path());
    let desk = server.connect("desk", 1, 2);
    let records = vec![
        record(7, "custom.note", json!({})),
        record(8, "custom.note", json!({})),
    ];
    assert_eq!(send(&server, &desk, records), 8);
    let text = server
        .ask("GET", "/api/events?after=1&prefix=custom.", None)
        .text();
    let sequences: Vec<_> = text
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["payload"]["agentSequence"].clone()
        })
        .collect();
    assert_eq!(sequences, [json!(7), json!(8)]);
}
