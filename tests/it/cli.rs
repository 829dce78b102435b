//! The command line with real processes: where it looks, what it prints, how it exits.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::host::text;
use crate::support::{Host, wait_for};

fn code_of(output: &std::process::Output) -> String {
    let error: Value = serde_json::from_slice(&output.stderr)
        .unwrap_or_else(|_| panic!("no JSON error: {}", text(output)));
    error["error"]["code"].as_str().unwrap_or("?").to_owned()
}

#[test]
fn version_and_help_need_nothing() {
    let host = Host::new();
    let info = host.json(&["--version", "--json"]);
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    for key in ["revision", "time", "modified", "compiler", "platform"] {
        assert!(info[key].is_string(), "{key}");
    }
    assert_eq!(host.run(&["--version"]).status.code(), Some(0));
    assert_eq!(host.run(&["run", "--help"]).status.code(), Some(0));
    assert_eq!(host.run(&["nonsense"]).status.code(), Some(2));
    assert_eq!(host.run(&[]).status.code(), Some(2));
}

#[test]
fn without_agent_and_server_the_answer_names_the_endpoint() {
    let host = Host::new();
    let output = host.run(&["executions", "--json"]);
    assert_eq!(output.status.code(), Some(69), "{}", text(&output));
    assert!(output.stdout.is_empty());
    assert_eq!(code_of(&output), "endpoint_unavailable");
    assert!(text(&output).contains("agent.sock"));
    let output = host.run(&["--server", "http://127.0.0.1:1", "agents", "--json"]);
    assert_eq!(output.status.code(), Some(69), "{}", text(&output));
}

#[test]
fn broken_configuration_is_exit_code_78_and_names_the_key() {
    let host = Host::new();
    host.configure_agent("[ipc]\ntransporrt = \"auto\"\n");
    for args in [&["executions"][..], &["agent", "run", "--display", "none"]] {
        let output = host.run(args);
        assert_eq!(output.status.code(), Some(78), "{}", text(&output));
        let said = text(&output);
        assert!(
            said.contains("agent.toml") && said.contains("transporrt"),
            "{said}"
        );
    }
}

#[test]
fn second_agent_on_one_data_folder_is_refused() {
    let host = Host::new();
    let _agent = host.start_agent();
    let output = host.run(&["agent", "run", "--display", "none"]);
    assert_eq!(output.status.code(), Some(78), "{}", text(&output));
    host.ipc("system.getStatus", "{}")
        .expect("the first goes on");
}

#[test]
fn executions_are_shown_with_logs_and_artifacts() {
    let host = Host::new();
    let _agent = host.start_agent();
    let script = host.file(
        "s.lua",
        "print('line ' .. args.get('who'))\nlog.warn('careful')\nresult.set({ok = true})",
    );
    let outcome = host.json(&["run", script.to_str().unwrap(), "--arg", "who=me", "--json"]);
    assert_eq!(outcome["status"], "succeeded");
    assert_eq!(outcome["output"][0]["text"], "line me");
    let id = outcome["executionId"].as_str().unwrap();

    let listed = host.json(&["executions", "--json", "--status", "succeeded"]);
    assert_eq!(listed["total"], 1);
    assert_eq!(listed["items"][0]["executionId"], id);
    let none = host.json(&["executions", "--json", "--status", "failed"]);
    assert_eq!(none["total"], 0);
    let shown = host.json(&["executions", "show", id, "--json"]);
    assert_eq!(shown["result"]["ok"], true);
    let people = host.run(&["executions", "show", id]);
    assert!(text(&people).contains("succeeded"), "{}", text(&people));

    let logs = host.run(&["executions", "logs", id]);
    assert_eq!(String::from_utf8_lossy(&logs.stdout), "line me\n");
    assert!(String::from_utf8_lossy(&logs.stderr).contains("[warn] careful"));
    let artifact = host.run(&["executions", "artifact", id, "stdout"]);
    assert_eq!(artifact.stdout, b"line me\n");
    let file = host.dir().join("out.json");
    let path = file.to_str().unwrap();
    let saved = host.run(&["executions", "artifact", id, "result.json", "-o", path]);
    assert!(saved.status.success(), "{}", text(&saved));
    let result: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(result["ok"], true);

    let missing = host.run(&["executions", "show", "nope", "--json"]);
    assert_eq!(missing.status.code(), Some(2));
    assert_eq!(code_of(&missing), "execution_not_found");
}

#[test]
fn detached_run_is_watched_and_cancelled_by_its_id() {
    let host = Host::new();
    let _agent = host.start_agent();
    let script = host.file("slow.lua", "print('begun')\nutil.sleep(600000)");
    let started = host.json(&["run", script.to_str().unwrap(), "--detach", "--json"]);
    let id = started["executionId"].as_str().unwrap();
    let mut watch = host
        .command(&["executions", "logs", id, "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(lines(&mut watch).next().unwrap(), "begun");
    let cancelled = host.json(&["executions", "cancel", id, "--json"]);
    assert!(matches!(
        cancelled["status"].as_str(),
        Some("cancelled" | "stopping")
    ));
    let status = wait_for("the watcher to end", || watch.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
}

fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let out = child.stdout.take().expect("a pipe");
    BufReader::new(out).lines().map(|line| line.expect("text"))
}

#[test]
fn ipc_client_lists_calls_and_follows() {
    let host = Host::new();
    let _agent = host.start_agent();
    let listed = host.json(&["ipc-client", "--list", "--json"]);
    let methods = listed.as_array().unwrap();
    for row in methods {
        assert!(row["params"].is_object(), "{row}");
        assert!(row["method"] != "agents.list", "it is the server's");
    }
    assert!(
        methods
            .iter()
            .any(|row| row["method"] == "config.setRemote")
    );
    let status = host.json(&["ipc-client", "system.getStatus"]);
    assert_eq!(status["server"], "wingman");
    assert_eq!(status["ipcClientConnected"], true);

    let unknown = host.run(&["ipc-client", "no.such", "--json"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(code_of(&unknown), "unknown_method");
    let wrong = host.run(&["ipc-client", "execution.get", "[1]", "--json"]);
    assert_eq!(code_of(&wrong), "invalid_params");

    let mut follow = host
        .command(&["ipc-client", "--follow"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut events = lines(&mut follow);
    // Whether it follows yet cannot be seen from outside, so that notes are written until one comes.
    let stop = std::sync::atomic::AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                let note = r#"{"type":"custom.note","stream":"notes","payload":{"x":1}}"#;
                host.ipc("events.append", note).expect("append");
            }
        });
        let seen: Value = serde_json::from_str(&events.next().unwrap()).unwrap();
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        seen
    });
    assert_eq!(seen["type"], "custom.note");
    assert_eq!(seen["payload"]["x"], 1);
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn events_begin_where_they_are_asked_to() {
    let host = Host::new();
    let _agent = host.start_agent();
    let mut sequences = Vec::new();
    for n in 0..5 {
        let note = format!(r#"{{"type":"custom.note","stream":"notes","payload":{{"n":{n}}}}}"#);
        sequences.push(
            host.ipc("events.append", &note).unwrap()["sequence"]
                .as_u64()
                .unwrap(),
        );
    }
    let notes = |args: &[&str]| -> Vec<u64> {
        let mut all = vec!["events", "--json", "--prefix", "custom."];
        all.extend(args);
        let output = host.run(&all);
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| {
                let record: Value = serde_json::from_str(line).unwrap();
                record["payload"]["n"].as_u64().unwrap()
            })
            .collect()
    };
    assert_eq!(notes(&[]), [0, 1, 2, 3, 4]);
    assert_eq!(notes(&["--tail", "2"]), [3, 4]);
    assert_eq!(notes(&["--tail", "0"]), [] as [u64; 0]);
    assert_eq!(notes(&["--after", &sequences[2].to_string()]), [3, 4]);
    let beyond = host.run(&["events", "--after", "99999999", "--json"]);
    assert_eq!(beyond.status.code(), Some(2));
    assert_eq!(code_of(&beyond), "cursor_invalid");
}

#[test]
fn following_survives_a_restart_of_the_agent() {
    let host = Host::new();
    let agent = host.start_agent();
    let mut follow = host
        .command(&["events", "--follow", "--json", "--prefix", "node.started"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut events = lines(&mut follow);
    let sequence = |line: String| -> u64 {
        let record: Value = serde_json::from_str(&line).unwrap();
        record["sequence"].as_u64().unwrap()
    };
    let first = sequence(events.next().unwrap());
    agent.kill();
    let _agent = host.start_agent();
    let second = sequence(events.next().unwrap());
    assert!(second > first, "{first} {second}");
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn login_by_ticket_is_saved_and_logout_ends_it() {
    let (server_host, desk) = (Host::new(), Host::new());
    let _up = server_host.start_up();
    let ticket = server_host.json(&["dashboard", "--json"]);
    let url = ticket["url"].as_str().expect("an address");
    let logged_in = desk.json(&["login", url, "--json"]);
    assert_eq!(logged_in["me"]["username"], "admin");
    let again = desk.run(&["login", url, "--json"]);
    assert_eq!(again.status.code(), Some(77), "{}", text(&again));
    assert_eq!(code_of(&again), "unauthenticated");
    let saved = desk.data_dir().join("login.json");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&saved).unwrap());
    assert_eq!(mode & 0o077, 0, "a login is its user's alone");
    let agents = desk.json(&["agents", "--json"]);
    assert_eq!(agents["total"], 1);
    let script = desk.file("s.lua", "print('from afar')");
    let output = desk.run(&["run", script.to_str().unwrap()]);
    assert_eq!(output.stdout, b"from afar\n", "{}", text(&output));
    assert!(desk.run(&["logout"]).status.success());
    assert!(!saved.exists());
    let out = desk.run(&["agents"]);
    assert_eq!(out.status.code(), Some(69), "{}", text(&out));
}

#[test]
fn several_workstations_must_be_told_apart() {
    let control = Host::new();
    let _server = control.start_server();
    let desks = [Host::new(), Host::new()];
    let mut agents = Vec::new();
    let mut names = Vec::new();
    for desk in &desks {
        let invite = control.json(&["server", "invite", "--json"]);
        let join = invite["join"].as_str().expect("a join string");
        let joined = desk.run(&["agent", "join", join]);
        assert!(joined.status.success(), "{}", text(&joined));
        agents.push(desk.start_agent());
        let status = desk.ipc("system.getStatus", "{}").unwrap();
        names.push(status["agentId"].as_str().unwrap().to_owned());
    }
    wait_for("both to be connected", || {
        let listed = control.json(&["agents", "--json"]);
        let items = listed["items"].as_array()?.clone();
        let online = items.iter().filter(|agent| agent["status"] != "offline");
        (online.count() == 2).then_some(())
    });
    let script = control.file("s.lua", "print('here')");
    let script = script.to_str().unwrap();
    let output = control.run(&["run", script, "--json"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert_eq!(code_of(&output), "agent_ambiguous");
    for name in &names {
        assert!(text(&output).contains(name), "{}", text(&output));
    }
    let one = control.json(&["run", script, "--agent", &names[1], "--json"]);
    assert_eq!(one["agentId"], names[1].as_str());
    control.json(&["agents", "tags", &names[0], "lab", "--json"]);
    let tagged = control.json(&["run", script, "--tag", "lab", "--json"]);
    assert_eq!(tagged["agentId"], names[0].as_str());
    let nobody = control.run(&["run", script, "--agent", "nobody", "--json"]);
    assert_eq!(nobody.status.code(), Some(2), "{}", text(&nobody));
}
