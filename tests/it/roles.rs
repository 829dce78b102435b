//! Server and agent as two real processes, and both in one.

use serde_json::{Value, json};

use crate::support::host::text;
use crate::support::{Host, TestDisplay, wait_for};

/// A server and an enrolled agent on machines of their own, connected.
fn fleet(
    display: &str,
) -> (
    Host,
    Host,
    crate::support::host::Role,
    crate::support::host::Role,
    String,
) {
    let (control, desk) = (Host::new(), Host::with_display(display));
    let server = control.start_server();
    let invite = control.json(&["server", "invite", "--json"]);
    let join = invite["join"].as_str().expect("a join string");
    let joined = desk.run(&["agent", "join", join]);
    assert!(joined.status.success(), "{}", text(&joined));
    let agent = desk.start_agent();
    let id = wait_for("the agent to be connected", || online(&control));
    (control, desk, server, agent, id)
}

fn online(control: &Host) -> Option<String> {
    let agents = control.api("GET", "/api/agents", None).ok()?;
    let agent = agents["items"]
        .as_array()?
        .iter()
        .find(|a| a["status"] != "offline")?
        .clone();
    Some(agent["agentId"].as_str()?.to_owned())
}

const SCRIPT: &str = "print('one')\nlog.info('two')\nresult.set({ answer = 42 })";

#[test]
fn a_script_runs_on_a_joined_workstation_and_all_comes_back() {
    let (control, desk, _server, _agent, id) = fleet("none");
    let script = control.file("s.lua", SCRIPT);
    let script = script.to_str().unwrap();
    let remote = control.run(&["run", script]);
    assert_eq!(remote.status.code(), Some(0), "{}", text(&remote));
    let local = desk.run(&["--server", "local", "run", script]);
    assert_eq!(local.status.code(), Some(0), "{}", text(&local));
    assert_eq!(remote.stdout, local.stdout, "remote and local print alike");
    assert!(String::from_utf8_lossy(&remote.stdout).contains("one"));
    let listed = control.json(&["executions", "--json"]);
    let items = listed["items"].as_array().unwrap();
    assert!(
        items
            .iter()
            .any(|run| run["origin"] == "server" && run["status"] == "succeeded")
    );
    let mirrored = wait_for("the local run to be mirrored", || {
        let listed = control.json(&["executions", "--json"]);
        let items = listed["items"].as_array()?.clone();
        items
            .into_iter()
            .find(|run| run["origin"] == "local" && run["status"] == "succeeded")
    });
    assert_eq!(mirrored["agentId"], Value::String(id));
    assert_eq!(mirrored["result"], json!({ "answer": 42 }));
}

#[test]
fn exit_codes_tell_how_a_run_ended() {
    let host = Host::new();
    let _agent = host.start_agent();
    for (name, source, args, code) in [
        ("fail.lua", "error('no')", vec![], 1),
        (
            "slow.lua",
            "util.sleep(60000)",
            vec!["--timeout", "1s"],
            124,
        ),
        ("loop.rhai", "loop { }", vec!["--timeout", "1s"], 124),
        ("odd.txt", "x", vec![], 2),
    ] {
        let file = host.file(name, source);
        let mut all = vec!["run", file.to_str().unwrap()];
        all.extend(args);
        let output = host.run(&all);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{name}: {}",
            text(&output)
        );
    }
}

#[test]
fn ctrl_c_cancels_the_run_on_the_workstation() {
    let host = Host::new();
    let _agent = host.start_agent();
    let file = host.file("slow.lua", "print('started')\nutil.sleep(600000)");
    let mut child = host
        .command(&["run", file.to_str().unwrap(), "--follow"])
        .spawn()
        .unwrap();
    wait_for("the run to be there", || {
        let listed = host.ipc("execution.list", r#"{"status":"running"}"#).ok()?;
        (listed["total"] == 1).then_some(())
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = wait_for("the command to end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(130));
    let listed = host.ipc("execution.list", "{}").unwrap();
    assert_eq!(listed["items"][0]["status"], "cancelled");
}

#[test]
fn screenshot_and_windows_come_through_the_server() {
    let mut display = TestDisplay::start(640, 480).with_window_manager();
    display.spawn_xterm(&["-title", "seen from afar"]);
    let (control, _desk, _server, _agent, _) = fleet(display.name());
    wait_for("the window", || {
        let windows = control.json(&["windows", "--json"]);
        windows.to_string().contains("seen from afar").then_some(())
    });
    let file = control.dir().join("shot.png");
    let path = file.to_str().unwrap();
    let output = control.run(&["screenshot", "-o", path, "--profile", "native-png"]);
    assert!(output.status.success(), "{}", text(&output));
    let picture = image::open(&file).unwrap();
    assert_eq!((picture.width(), picture.height()), (640, 480));
}

#[test]
fn revoked_agent_is_cut_off_at_once_and_stays_out() {
    let (control, desk, _server, _agent, id) = fleet("none");
    control
        .api("DELETE", &format!("/api/agents/{id}"), None)
        .unwrap();
    wait_for("the agent to hear of it", || {
        let status = desk.ipc("system.getStatus", "{}").ok()?;
        (status["remoteConnected"] == false).then_some(())
    });
    assert!(online(&control).is_none_or(|_| {
        let agents = control.api("GET", "/api/agents", None).unwrap();
        agents["items"][0]["status"] == "revoked"
    }));
}

#[test]
fn join_string_works_once() {
    let (control, first, second) = (Host::new(), Host::new(), Host::new());
    let _server = control.start_server();
    let invite = control.json(&["server", "invite", "--json"]);
    let join = invite["join"].as_str().unwrap();
    assert!(first.run(&["agent", "join", join]).status.success());
    let again = second.run(&["agent", "join", join, "--json"]);
    assert_eq!(again.status.code(), Some(77), "{}", text(&again));
    assert!(text(&again).contains("invite_used"), "{}", text(&again));
    let nonsense = second.run(&["agent", "join", "wm1-nonsense"]);
    assert_eq!(nonsense.status.code(), Some(2), "{}", text(&nonsense));
}

#[test]
fn second_agent_on_one_data_folder_is_refused() {
    let host = Host::new();
    let _agent = host.start_agent();
    let second = host.run(&["agent", "run", "--display", "none", "--json"]);
    assert_eq!(second.status.code(), Some(78), "{}", text(&second));
    assert!(
        text(&second).contains("data_folder_locked"),
        "{}",
        text(&second)
    );
}

#[test]
fn unknown_configuration_key_names_file_and_key() {
    let host = Host::new();
    host.configure_agent("[remote]\nserver_pi = \"x\"\n");
    let output = host.run(&["agent", "run"]);
    assert_eq!(output.status.code(), Some(78), "{}", text(&output));
    let told = text(&output);
    assert!(
        told.contains("agent.toml") && told.contains("server_pi"),
        "{told}"
    );
}

#[test]
fn a_local_client_cannot_forge_the_agent_s_own_events() {
    let host = Host::new();
    let _agent = host.start_agent();
    let forged = r#"{"type":"execution.state_changed","stream":"executions","payload":{}}"#;
    let refused = host.ipc("events.append", forged).unwrap_err();
    assert!(refused.contains("written by the agent alone"), "{refused}");
}

#[test]
fn remote_settings_are_checked_applied_and_written_back() {
    let host = Host::new();
    host.configure_agent("# mine\n[remote]\nprotocol = 1\n");
    let _agent = host.start_agent();
    let bad = host
        .ipc("config.setRemote", r#"{"serverPort":70000}"#)
        .unwrap_err();
    assert!(
        bad.contains("invalid_params") || bad.contains("serverPort"),
        "{bad}"
    );
    let set = r#"{"serverIp":"127.0.0.1","serverPort":9,"registerToken":"tok-1","enabled":true}"#;
    let told = host.ipc("config.setRemote", set).unwrap();
    assert_eq!(told["registerTokenSet"], true);
    assert!(
        !told.to_string().contains("tok-1"),
        "the token is never told"
    );
    let written = std::fs::read_to_string(host.agent_toml()).unwrap();
    assert!(
        written.contains("# mine") && written.contains("server_port = 9"),
        "{written}"
    );
    wait_for("the link to try the new address", || {
        let status = host.ipc("system.getStatus", "{}").ok()?;
        (status["remoteState"] != "disabled").then_some(())
    });
    assert!(
        !host.log("agent.log").contains("tok-1"),
        "no token in the log"
    );
}

#[test]
fn no_script_writes_the_agent_s_own_files_whatever_roots_are_declared() {
    let host = Host::new();
    let root = host.dir().canonicalize().unwrap();
    host.configure_agent(&format!(
        "[scripts]\nfile_roots = [{:?}]\n",
        root.to_str().unwrap()
    ));
    let _up = host.start_up();
    wait_for("the agent to be connected", || online(&host));
    let before = std::fs::read_to_string(host.agent_toml()).unwrap();
    for target in [
        "data/agent/agent.toml",
        "data/agent/journal/x",
        "data/server/x",
        "data/up.json",
    ] {
        let path = root.join(target);
        let script = host.file(
            "w.lua",
            &format!("file.write({:?}, 'x')", path.to_str().unwrap()),
        );
        let output = host.run(&["run", script.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{target}: {}", text(&output));
        assert!(
            text(&output).contains("belongs to the agent"),
            "{target}: {}",
            text(&output)
        );
    }
    let removal = host.file(
        "r.lua",
        &format!("file.removeAll({:?})", root.join("data").to_str().unwrap()),
    );
    assert_eq!(
        host.run(&["run", removal.to_str().unwrap()]).status.code(),
        Some(1)
    );
    assert_eq!(std::fs::read_to_string(host.agent_toml()).unwrap(), before);
}

#[test]
fn up_is_server_and_agent_in_one_process_and_ends_cleanly() {
    let host = Host::new();
    let up = host.start_up();
    wait_for("the agent to be connected", || online(&host));
    let invite = host.run(&["server", "invite", "--json"]);
    assert!(
        text(&invite).contains("no port for agents"),
        "{}",
        text(&invite)
    );
    let script = host.file("s.rhai", "print(\"hello\"); result.set(7);");
    let output = host.run(&["run", script.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("hello"));
    assert_eq!(up.interrupt(), Some(0), "{}", host.log("up.log"));
    assert!(
        !host.data_dir().join("up.json").exists(),
        "the record goes with the process"
    );
}

/// The inodes of TCP and UDP sockets that listen, from the process's own network tables.
fn listeners(pid: u32) -> Vec<String> {
    let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|target| {
            let target = target.to_string_lossy().into_owned();
            Some(
                target
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    let mut found = Vec::new();
    for (table, listening) in [
        ("tcp", Some("0A")),
        ("tcp6", Some("0A")),
        ("udp", None),
        ("udp6", None),
    ] {
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")) else {
            continue;
        };
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let state_fits = listening.is_none_or(|state| fields[3] == state);
            if state_fits && sockets.iter().any(|inode| inode == fields[9]) {
                found.push(format!("{table} {}", fields[1]));
            }
        }
    }
    found
}

#[test]
fn agent_process_listens_on_no_tcp_or_udp_port() {
    let (_control, _desk, server, agent, _) = fleet("none");
    assert_eq!(listeners(agent.pid()), Vec::<String>::new());
    assert!(
        !listeners(server.pid()).is_empty(),
        "the probe sees the server's own"
    );
}
