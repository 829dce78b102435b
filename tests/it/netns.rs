//! A link that breaks one way only, between network namespaces: what one side sends arrives, what the
//! other sends does not. Needs root and iproute2, as CI has them.

use std::process::Command;

use serde_json::Value;

use crate::support::host::text;
use crate::support::{Host, wait_for};

const LINES: &str = "import os, time\ni = 0\nwhile True:\n    os.write(1, b'line %d\\n' % i)\n    i += 1\n    time.sleep(0.002)\n";

/// Two namespaces with a wire between them; removed when dropped.
struct Wire {
    name: String,
}

impl Wire {
    fn new() -> Self {
        let name = format!("wm{}", std::process::id() % 100_000);
        let wire = Self { name };
        let (near, far) = (wire.space("a"), wire.space("b"));
        let (one, two) = (format!("{}x", wire.name), format!("{}y", wire.name));
        for args in [
            vec!["netns", "add", &near],
            vec!["netns", "add", &far],
            vec![
                "link", "add", &one, "netns", &near, "type", "veth", "peer", "name", &two, "netns",
                &far,
            ],
            vec!["-n", &near, "addr", "add", "10.77.0.1/24", "dev", &one],
            vec!["-n", &far, "addr", "add", "10.77.0.2/24", "dev", &two],
            vec!["-n", &near, "link", "set", &one, "up"],
            vec!["-n", &far, "link", "set", &two, "up"],
            vec!["-n", &near, "link", "set", "lo", "up"],
            vec!["-n", &far, "link", "set", "lo", "up"],
        ] {
            ip(&args);
        }
        wire
    }

    fn space(&self, side: &str) -> String {
        format!("{}{side}", self.name)
    }

    /// What the workstation's side sends is dropped; what is sent to it arrives.
    fn cut(&self) {
        ip(&[
            "-n",
            &self.space("b"),
            "route",
            "add",
            "blackhole",
            "10.77.0.1/32",
        ]);
    }

    fn mend(&self) {
        ip(&[
            "-n",
            &self.space("b"),
            "route",
            "del",
            "blackhole",
            "10.77.0.1/32",
        ]);
    }

    fn inside(&self, side: &str, command: &Command) -> Command {
        let mut outer = Command::new("ip");
        outer.args(["netns", "exec", &self.space(side)]);
        outer.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for side in ["a", "b"] {
            // One that was never made needs no removal.
            let _ = Command::new("ip")
                .args(["netns", "del", &self.space(side)])
                .output();
        }
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("run ip");
    assert!(output.status.success(), "ip {args:?}: {}", text(&output));
}

#[test]
fn one_way_cut_loses_no_line_and_the_node_goes_on_alone() {
    let wire = Wire::new();
    let (control, desk) = (Host::new(), Host::new());
    let server = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--agents-listen",
        "10.77.0.1:8888",
    ];
    let _server = control.role_in(wire.inside("a", &control.command(&server)), "server.log");
    let asked = |args: &[&str]| {
        let output = wire
            .inside("a", &control.command(args))
            .output()
            .expect("ask the server");
        serde_json::from_slice::<Value>(&output.stdout).ok()
    };
    let invited = wait_for("the server", || asked(&["server", "invite", "--json"]));
    let join = [
        "agent",
        "join",
        invited["join"].as_str().expect("a join string"),
    ];
    let joined = wire
        .inside("b", &desk.command(&join))
        .output()
        .expect("join");
    assert!(joined.status.success(), "{}", text(&joined));
    let agent = ["agent", "run", "--display", "none"];
    let _agent = desk.role_in(wire.inside("b", &desk.command(&agent)), "agent.log");
    wait_for("the agent", || desk.ipc("system.getStatus", "{}").ok());
    desk.json(&[
        "new", "--json", "--name", "lines", "--", "python3", "-c", LINES,
    ]);
    let seen = |host_lines: Option<Value>| host_lines?["text"].as_str().map(last_line);
    let through = || seen(asked(&["read", "lines", "--json"]));
    let first = wait_for("lines through the server", || {
        through().filter(|last| *last > 50)
    });
    wire.cut();
    // The workstation's own people see everything, whatever the server has.
    let own = || {
        last_line(
            desk.json(&["read", "lines", "--json"])["text"]
                .as_str()
                .expect("text"),
        )
    };
    let during = wait_for("the session to go on", || {
        Some(own()).filter(|last| *last > first + 500)
    });
    assert!(desk.run(&["rename", "lines", "kept"]).status.success());
    wire.mend();
    let after = wait_for("the server to see it again", || {
        seen(asked(&["read", "kept", "--json"])).filter(|last| *last > during)
    });
    // Nothing is missing between what was there before the cut and what is there now.
    let all = desk.json(&["read", "kept", "--scrollback", "--json"]);
    let numbers: Vec<u64> = all["text"]
        .as_str()
        .expect("text")
        .lines()
        .filter_map(number)
        .collect();
    assert!(numbers.last().is_some_and(|last| *last >= after));
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1));
}

fn number(line: &str) -> Option<u64> {
    line.strip_prefix("line ")?.trim_end().parse().ok()
}

fn last_line(text: &str) -> u64 {
    text.lines().filter_map(number).next_back().unwrap_or(0)
}
