//! Terminal sessions with real processes: started, typed into, read, waited for, adopted, ended.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::host::Role;
use crate::support::host::text;
use crate::support::{Host, wait_for};

/// A program that turns bracketed paste on, reads raw bytes up to `q` and tells what it read.
const RAW_READER: &str = r#"
import hashlib, os, sys, termios, tty
tty.setraw(0)
os.write(1, b"\x1b[?2004hREADY")
chunks = []
while not (chunks and chunks[-1].endswith(b"q")):
    chunks.append(os.read(0, 65536))
data = b"".join(chunks)[:-1]
body = data.replace(b"\x1b[200~", b"<").replace(b"\x1b[201~", b">")
print("LEN", len(body), "SHA", hashlib.sha256(body).hexdigest()[:16], "END", body[-2:], end="\r\n")
"#;

fn show(host: &Host, session: &str) -> String {
    let output = host.run(&["read", session]);
    assert!(output.status.success(), "{}", text(&output));
    String::from_utf8(output.stdout).expect("text")
}

fn until_shown(host: &Host, session: &str, wanted: &str) -> String {
    let output = host.run(&["wait", session, "--for", wanted, "--timeout", "30s"]);
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output),
        show(host, session)
    );
    show(host, session)
}

fn new(host: &Host, name: &str, command: &[&str]) -> Value {
    let mut args = vec!["new", "--json", "--name", name, "--"];
    args.extend(command);
    host.json(&args)
}

fn record(host: &Host, name: &str) -> Value {
    let list = host.json(&["ls", "--json"]);
    let sessions = list["sessions"].as_array().expect("a list");
    let found = sessions.iter().find(|session| session["name"] == name);
    found
        .cloned()
        .unwrap_or_else(|| panic!("no {name} in {list}"))
}

fn folder(host: &Host, session: &Value) -> PathBuf {
    host.data_dir()
        .join("agent/sessions")
        .join(session["id"].as_str().expect("an id"))
}

fn restarted(host: &Host, agent: Role) -> Role {
    agent.kill();
    host.start_agent()
}

/// The agent that a command has started in the background of this host.
fn background_agent(host: &Host) -> rustix::process::Pid {
    let data = host.data_dir().to_str().expect("text").as_bytes().to_vec();
    let is_it = |pid: &i32| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let has = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|some| some == part);
        has(&read("cmdline"), b"\0agent\0run") && has(&read("environ"), &data)
    };
    let found = fs::read_dir("/proc")
        .expect("processes")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .find(is_it);
    found
        .and_then(rustix::process::Pid::from_raw)
        .expect("an agent in the background")
}

#[test]
fn new_session_starts_the_agent_where_none_runs() {
    let host = Host::new();
    assert!(!host.run(&["ls"]).status.success());
    let first = new(&host, "first", &["cat"]);
    let here = std::env::current_dir().expect("a folder");
    assert_eq!(first["base_path"], here.to_str().expect("text"));
    let agent = background_agent(&host);
    let second = new(&host, "second", &["cat"]);
    assert_eq!(background_agent(&host), agent);
    assert_ne!(first["id"], second["id"]);
    rustix::process::kill_process(agent, rustix::process::Signal::KILL).expect("kill");
    wait_for("the agent's end", || {
        (!host.run(&["ls"]).status.success()).then_some(())
    });
    // The sessions are still there: with the agent that the next command starts, they show.
    assert!(host.run(&["restore"]).status.success());
    assert_eq!(record(&host, "first")["id"], first["id"]);
    let agent = background_agent(&host);
    rustix::process::kill_process(agent, rustix::process::Signal::TERM).expect("end");
    wait_for("its end", || {
        (!host.run(&["ls"]).status.success()).then_some(())
    });
}

#[test]
fn session_is_found_by_id_start_and_name_until_it_is_killed_and_forgotten() {
    let host = Host::new();
    let _agent = host.start_agent();
    let one = new(&host, "one", &["cat"]);
    let id = one["id"].as_str().unwrap();
    assert_eq!(one["incompatible"], false);
    assert_eq!(one["attached"], 0);
    assert!(one.get("exit_code").is_none(), "absent means alive: {one}");
    for by in [id, &id[..8], "one"] {
        assert_eq!(
            host.json(&["ipc-client", "session.get", &format!(r#"{{"id":"{by}"}}"#)])["id"],
            id
        );
    }
    let taken = host.run(&["new", "--name", "one", "--json"]);
    assert!(text(&taken).contains("conflict"), "{}", text(&taken));
    assert!(host.run(&["rename", "one", "two"]).status.success());
    assert!(text(&host.run(&["read", "one"])).contains("session_not_found"));
    let killed = host.json(&["kill", "two", "--json"]);
    assert_eq!(killed["attention"]["state"], "exited");
    assert!(killed["exit_signal"].is_number(), "{killed}");
    assert!(folder(&host, &one).exists());
    assert!(host.run(&["kill", "two"]).status.success());
    assert!(!folder(&host, &one).exists());
    assert_eq!(
        host.json(&["ls", "--json"])["sessions"],
        Value::Array(Vec::new())
    );
}

#[test]
fn long_prompt_arrives_whole_as_one_paste_and_enter_apart() {
    let host = Host::new();
    let _agent = host.start_agent();
    let program = host.file("reader.py", RAW_READER);
    new(&host, "raw", &["python3", program.to_str().unwrap()]);
    until_shown(&host, "raw", "READY");
    let prompt = "0123456789abcdef".repeat(20 * 64);
    let prompt = format!("{prompt}\x1b[201~rm -rf /");
    let file = host.file("prompt", &prompt);
    let sent = host.run(&["send", "raw", "--file", file.to_str().unwrap(), "--enter"]);
    assert!(sent.status.success(), "{}", text(&sent));
    assert!(host.run(&["send", "raw", "--raw", "q"]).status.success());
    let shown = until_shown(&host, "raw", "END");
    let safe = prompt.replace("\x1b[201~", "");
    let expected = format!("<{safe}>\r");
    let digest = wingman::base::digest::sha256_hex(expected.as_bytes());
    assert!(
        shown.contains(&format!("LEN {}", expected.len())),
        "{shown}"
    );
    assert!(shown.contains(&format!("SHA {}", &digest[..16])), "{shown}");
}

#[test]
fn killed_agent_adopts_grid_scrollback_and_modes_without_a_lost_line() {
    let host = Host::new();
    let agent = host.start_agent();
    let script = "printf '\\033[31mred\\033[0m \\033]2;a title\\007'; i=0; while read line; do i=$((i+1)); seq 1 3000; echo round $i; done";
    let session = new(&host, "flood", &["sh", "-c", script]);
    until_shown(&host, "flood", "red");
    host.run(&["send", "flood", "--enter", "x"]);
    until_shown(&host, "flood", "round 1");
    let before = host
        .run(&["read", "flood", "--scrollback", "--ansi"])
        .stdout;
    let agent = restarted(&host, agent);
    let after = host
        .run(&["read", "flood", "--scrollback", "--ansi"])
        .stdout;
    assert_eq!(
        String::from_utf8_lossy(&before),
        String::from_utf8_lossy(&after)
    );
    let adopted = record(&host, "flood");
    assert_eq!(adopted["pid"], session["pid"]);
    assert_eq!(adopted["title"], "a title");
    assert!(adopted["lease"]["generation"].as_u64() > session["lease"]["generation"].as_u64());
    // Killed in the middle of output, over and over: the lines stay in order.
    let mut agent = agent;
    for round in 2..6 {
        host.run(&["send", "flood", "--enter", "x"]);
        agent = restarted(&host, agent);
        until_shown(&host, "flood", &format!("round {round}"));
    }
    let all = String::from_utf8(host.run(&["read", "flood", "--scrollback"]).stdout).unwrap();
    let numbers: Vec<u32> = all
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    let tail = &numbers[numbers.len() - 6000..];
    assert!(
        tail.iter().copied().eq((1..=3000).chain(1..=3000)),
        "{} lines",
        numbers.len()
    );
    drop(agent);
}

#[test]
fn query_is_answered_once_over_a_restart() {
    let host = Host::new();
    let agent = host.start_agent();
    let program = host.file(
        "ask.py",
        "import os, tty\ntty.setraw(0)\nos.write(1, b'\\x1b[6n')\ngot = b''\nwhile not got.endswith(b'.'):\n    got += os.read(0, 100)\nos.write(1, b'GOT %r END' % got)\nos.read(0, 1)\n",
    );
    new(&host, "ask", &["python3", program.to_str().unwrap()]);
    wait_for("the query to be answered", || {
        let rows = host.json(&["debug", "sessions", "--json"]);
        (rows["rows"][0]["replies"] == 1).then_some(())
    });
    let _agent = restarted(&host, agent);
    host.run(&["send", "ask", "--raw", "."]);
    let shown = until_shown(&host, "ask", "END");
    assert!(shown.contains(r"GOT b'\x1b[1;1R.' END"), "{shown}");
}

#[test]
fn ended_session_keeps_exit_code_and_last_screen_over_a_restart() {
    let host = Host::new();
    let agent = host.start_agent();
    let script = "printf '\\033[?1049hTUI dies here'; exit 3";
    new(&host, "tui", &["sh", "-c", script]);
    assert!(
        host.run(&["wait", "tui", "--for", "exit", "--timeout", "20s"])
            .status
            .success()
    );
    assert_eq!(record(&host, "tui")["exit_code"], 3);
    assert!(show(&host, "tui").contains("TUI dies here"));
    let _agent = restarted(&host, agent);
    let kept = record(&host, "tui");
    assert_eq!(kept["exit_code"], 3);
    assert_eq!(kept["attention"]["state"], "exited");
    assert!(show(&host, "tui").contains("TUI dies here"));
}

#[test]
fn program_that_died_while_the_agent_was_away_is_not_shown_as_running() {
    let host = Host::new();
    let agent = host.start_agent();
    let session = new(
        &host,
        "short",
        &[
            "sh",
            "-c",
            "printf '\\033]7501;state=working:app=x\\007'; cat",
        ],
    );
    wait_for("the program to say that it works", || {
        (record(&host, "short")["attention"]["state"] == "working").then_some(())
    });
    agent.kill();
    let pid = session["pid"].as_u64().unwrap().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-9", &pid])
            .status()
            .unwrap()
            .success()
    );
    wait_for("the holder to end", || {
        folder(&host, &session)
            .join("exit.json")
            .exists()
            .then_some(())
    });
    let _agent = host.start_agent();
    let record = record(&host, "short");
    assert_eq!(record["attention"]["state"], "exited");
    assert_eq!(record["exit_signal"], 9);
}

#[test]
fn programs_that_wait_for_a_person_say_so_and_why() {
    let host = Host::new();
    let _agent = host.start_agent();
    let cases: &[(&str, &[&str], &str)] = &[
        (
            "question",
            &["bash", "-c", "read -p 'Continue? [Y/n] ' answer"],
            "question",
        ),
        (
            "secret",
            &["python3", "-c", "import getpass; getpass.getpass()"],
            "auth",
        ),
        (
            "told",
            &[
                "sh",
                "-c",
                "printf '\\033]7501;state=blocked:app=x:kind=permission\\007'; cat",
            ],
            "permission",
        ),
    ];
    for (name, command, kind) in cases {
        new(&host, name, command);
        let waited = host.run(&["wait", name, "--for", "waiting", "--timeout", "30s"]);
        assert!(
            waited.status.success(),
            "{name}: {} {}",
            text(&waited),
            text(&host.run(&["explain", name]))
        );
        // One look may fall between a prompt and the terminal's new settings; the next one does not.
        let record = wait_for(kind, || {
            let record = record(&host, name);
            (record["attention"]["kind"] == *kind).then_some(record)
        });
        assert!(
            !record["attention"]["evidence"]
                .as_array()
                .unwrap()
                .is_empty(),
            "{record}"
        );
    }
    let explained = text(&host.run(&["explain", "told"]));
    assert!(explained.contains("program_status"), "{explained}");
    new(&host, "shell", &["bash", "--norc"]);
    assert!(
        host.run(&["wait", "shell", "--for", "idle", "--timeout", "30s"])
            .status
            .success()
    );
    let late = host.run(&["wait", "shell", "--for", "waiting", "--timeout", "300ms"]);
    assert_eq!(late.status.code(), Some(124), "{}", text(&late));
}

#[test]
fn what_a_shell_said_of_its_last_command_survives_the_agent() {
    let host = Host::new();
    let agent = host.start_agent();
    let shell = r#"export PS0='\e]133;C\a' PS1='\[\e]133;A\a\]$ '
        export PROMPT_COMMAND='printf "\033]133;D;$?\007"'; exec bash --norc --noprofile -i"#;
    new(&host, "marked", &["sh", "-c", shell]);
    let state = || record(&host, "marked")["attention"]["state"].clone();
    wait_for("the prompt", || (state() == "idle").then_some(()));
    host.run(&["send", "marked", "--enter", "false"]);
    let failed = || (state() == "error").then_some(());
    wait_for("the command's failure to show", failed);
    wait_for("a checkpoint behind it", || {
        let rows = host.ipc("debug.view", r#"{"view":"sessions","id":"marked"}"#);
        let row = rows.unwrap()["rows"][0].clone();
        (row["checkpoint"] == row["offset"] && row["pending"] == 0).then_some(())
    });
    agent.kill();
    let _agent = host.start_agent();
    wait_for("the failure to show again", failed);
}

#[test]
fn size_that_was_asked_for_is_there_when_the_answer_comes() {
    let host = Host::new();
    let _agent = host.start_agent();
    new(&host, "sized", &["cat"]);
    for (cols, rows) in [(100, 30), (60, 20)] {
        let params = format!(r#"{{"id":"sized","cols":{cols},"rows":{rows}}}"#);
        let answer = host.ipc("session.resize", &params).unwrap();
        assert_eq!(
            (&answer["cols"], &answer["rows"]),
            (&cols.into(), &rows.into())
        );
    }
}

#[test]
fn link_out_of_the_base_folder_is_denied() {
    let host = Host::new();
    let _agent = host.start_agent();
    let base = host.dir().join("base");
    fs::create_dir(&base).unwrap();
    std::os::unix::fs::symlink("/etc", base.join("out")).unwrap();
    let params = serde_json::json!({"base_kind": "workspace", "base_path": base, "rel": "out"});
    let refused = host.ipc("session.create", &params.to_string()).unwrap_err();
    assert!(refused.contains("path_denied"), "{refused}");
}

#[test]
fn environment_values_reach_the_program_and_no_list() {
    let host = Host::new();
    let _agent = host.start_agent();
    let file = host.file("env", "TOKEN_ONE='s3cret one'\n");
    let missing = host.run(&["new", "--json", "--env-file", "/nowhere/env"]);
    assert!(text(&missing).contains("not_found"), "{}", text(&missing));
    let args = [
        "new",
        "--json",
        "--name",
        "env",
        "--env-file",
        file.to_str().unwrap(),
        "--env",
        "TOKEN_TWO=s3cret two",
        "--",
        "sh",
        "-c",
        "echo \"[$TOKEN_ONE][$TOKEN_TWO][$TERM]\"; cat",
    ];
    host.json(&args);
    let shown = until_shown(&host, "env", "xterm-256color");
    assert!(shown.contains("[s3cret one][s3cret two]"), "{shown}");
    for told in [
        text(&host.run(&["ls", "--json"])),
        text(&host.run(&["debug", "events", "--json"])),
        host.log("agent.log"),
    ] {
        assert!(!told.contains("s3cret"), "{told}");
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(folder(&host, &record(&host, "env")).join("spec.json"))
            .unwrap()
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn sessions_of_before_a_reboot_start_again() {
    let host = Host::new();
    let agent = host.start_agent();
    let session = new(&host, "work", &["sh", "-c", "echo at $PWD; cat"]);
    until_shown(&host, "work", "at ");
    agent.kill();
    // A machine that goes down leaves neither holder nor program, and nobody writes their end.
    let meta: Value =
        serde_json::from_slice(&fs::read(folder(&host, &session).join("meta.json")).unwrap())
            .unwrap();
    for pid in [&meta["holder"], &meta["child"]] {
        std::process::Command::new("kill")
            .args(["-9", &pid.to_string()])
            .status()
            .unwrap();
    }
    let _agent = host.start_agent();
    let lost = record(&host, "work");
    assert_eq!(lost["attention"]["state"], "exited");
    assert!(
        lost.get("exit_code").is_none(),
        "nobody knows how it ended: {lost}"
    );
    let restored = host.json(&["restore", "--json"]);
    assert_eq!(restored["restored"][0]["name"], "work", "{restored}");
    let fresh = record(&host, "work");
    assert_ne!(fresh["id"], session["id"]);
    until_shown(&host, "work", "at ");
    assert_eq!(
        host.json(&["ls", "--json"])["sessions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn recording_is_an_asciicast_and_ends_with_the_session() {
    let host = Host::new();
    let _agent = host.start_agent();
    new(
        &host,
        "rec",
        &["sh", "-c", "echo before; read x; echo after; exit 0"],
    );
    until_shown(&host, "rec", "before");
    let started = host.json(&["record", "rec", "--json"]);
    assert_eq!(record(&host, "rec")["recording"], true);
    host.run(&["send", "rec", "--enter", "go"]);
    assert!(
        host.run(&["wait", "rec", "--for", "exit", "--timeout", "20s"])
            .status
            .success()
    );
    let cast = fs::read_to_string(started["path"].as_str().unwrap()).unwrap();
    let mut lines = cast
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(lines.next().unwrap()["version"], 2);
    let shown: String = lines
        .map(|line| line[2].as_str().unwrap().to_owned())
        .collect();
    assert!(
        shown.contains("before") && shown.contains("after"),
        "{shown}"
    );
}

#[test]
fn last_lines_end_where_the_writing_does() {
    let host = Host::new();
    let _agent = host.start_agent();
    new(&host, "short", &["sh", "-c", "seq 1 5; sleep 600"]);
    until_shown(&host, "short", "5");
    let last = |lines: &str| {
        let read = host.run(&["read", "short", "--lines", lines]);
        String::from_utf8_lossy(&read.stdout).trim_end().to_owned()
    };
    assert_eq!(last("2"), "4\n5");
    assert_eq!(last("100"), "1\n2\n3\n4\n5");
}

#[test]
fn screen_is_read_as_text_and_as_picture() {
    let host = Host::new();
    let _agent = host.start_agent();
    new(
        &host,
        "draw",
        &["sh", "-c", "printf '\\033[1;32mgreen 世界\\033[0m'; cat"],
    );
    until_shown(&host, "draw", "green");
    let ansi = host.run(&["read", "draw", "--ansi"]).stdout;
    assert!(String::from_utf8_lossy(&ansi).contains("\x1b["), "{ansi:?}");
    let png = host.run(&["read", "draw", "--png"]).stdout;
    let image = image::load_from_memory(&png).expect("a PNG picture");
    assert_eq!((image.width(), image.height()), (640, 384));
    let green = image
        .to_rgb8()
        .pixels()
        .filter(|pixel| pixel.0[1] > 150 && pixel.0[0] < 100)
        .count();
    assert!(green > 50, "{green} green pixels");
}
