//! The agent as a unit of a systemd of its own, in namespaces that share nothing but files with this
//! machine: sessions live in a scope beside the unit. Needs root and systemd, as CI has them.

use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support::host::text;
use crate::support::{Host, wait_for};

/// Only what the manager itself needs: no unit of the machine is started, so nothing of it is touched.
const BOOT: &str = "set -e
mount --make-rprivate /
umount -R /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
cp $1/*.service $1/*.target /run/systemd/system
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/$2
echo $$ > /sys/fs/cgroup/$2/cgroup.procs
exec unshare --cgroup sh -c 'mount -t proc proc /proc && umount /sys/fs/cgroup &&
    mount -t cgroup2 cgroup2 /sys/fs/cgroup && cd / &&
    exec env -i container=other PATH=/usr/bin:/bin /lib/systemd/systemd --system --unit=test.target \\
        --log-target=console --show-status=0'
";

/// A systemd that is the first process of its own machine; everything on it ends with it.
struct Machine<'a> {
    host: &'a Host,
    first: Child,
    cgroup: String,
}

impl<'a> Machine<'a> {
    fn boot(host: &'a Host) -> Self {
        let wingman = host.command(&["agent", "run"]);
        let environment: String = wingman
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)))
            .map(|(name, value)| format!("Environment={name}={value}\n"))
            .collect();
        let program = wingman.get_program().to_str().expect("a path");
        host.file("test.target", "[Unit]\nDefaultDependencies=no\n");
        let unit = format!(
            "[Unit]\nDefaultDependencies=no\n[Service]\n{environment}Environment=PATH=/usr/bin:/bin\n\
             ExecStart={program} agent run\nKillMode=control-group\n"
        );
        host.file("wingman-agent.service", &unit);
        let script = host.file("boot.sh", BOOT);
        let cgroup = format!("wingman-test-{}", std::process::id());
        let log = std::fs::File::create(host.dir().join("systemd.log")).expect("a log");
        let first = Command::new("unshare")
            .args([
                "--fork",
                "--pid",
                "--kill-child",
                "--mount",
                "--uts",
                "--ipc",
                "sh",
            ])
            .arg(script)
            .arg(host.dir())
            .arg(&cgroup)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("run unshare");
        let machine = Self {
            host,
            first,
            cgroup,
        };
        wait_for("systemd to run", || {
            let state = machine.systemctl(&["is-system-running"]);
            let state = String::from_utf8_lossy(&state.stdout).into_owned();
            ["running", "degraded"]
                .contains(&state.trim())
                .then_some(())
        });
        machine
    }

    /// The number of systemd itself, as this machine counts.
    fn pid(&self) -> Option<String> {
        let outer = self.first.id();
        let children = format!("/proc/{outer}/task/{outer}/children");
        let children = std::fs::read_to_string(children).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }

    fn inside(&self, command: &Command) -> Output {
        let pid = self.pid().unwrap_or_default();
        let mut outer = Command::new("nsenter");
        outer.args([
            "--target", &pid, "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--",
        ]);
        outer.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => outer.env(name, value),
                None => outer.env_remove(name),
            };
        }
        outer.stdin(Stdio::null()).output().expect("run nsenter")
    }

    fn systemctl(&self, args: &[&str]) -> Output {
        let mut command = Command::new("systemctl");
        self.inside(command.arg("--no-pager").args(args))
    }

    fn must(&self, args: &[&str]) {
        let done = self.systemctl(args);
        let log = || std::fs::read_to_string(self.host.dir().join("systemd.log"));
        assert!(
            done.status.success(),
            "{args:?}: {}\n{:?}",
            text(&done),
            log()
        );
    }

    fn wingman(&self, args: &[&str]) -> Output {
        self.inside(&self.host.command(args))
    }

    fn shows(&self, what: &str) {
        wait_for(what, || {
            let shown = self.wingman(&["read", "one"]);
            String::from_utf8_lossy(&shown.stdout)
                .contains(what)
                .then_some(())
        });
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        // Both fail only where there is nothing to end.
        let _ = self.first.kill();
        let _ = self.first.wait();
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let mut left = Command::new("find");
            left.arg(format!("{root}/{}", self.cgroup));
            let _ = left.args(["-depth", "-type", "d", "-delete"]).output();
        }
    }
}

#[test]
fn sessions_outlive_the_unit_of_their_agent_in_a_scope_beside_it() {
    let host = Host::new();
    let machine = Machine::boot(&host);
    machine.must(&["start", "wingman-agent"]);
    wait_for("the agent to answer", || {
        machine.wingman(&["ls"]).status.success().then_some(())
    });
    let made = machine.wingman(&["new", "--json", "--name", "one", "--", "cat"]);
    assert!(made.status.success(), "{}", text(&made));
    let session: Value = serde_json::from_slice(&made.stdout).expect("a session");
    let id = session["id"].as_str().expect("an id");
    let meta = host
        .data_dir()
        .join("agent/sessions")
        .join(id)
        .join("meta.json");
    let meta: Value = serde_json::from_slice(&std::fs::read(meta).expect("a holder")).unwrap();
    let mut command = Command::new("cat");
    let place = machine.inside(command.arg(format!("/proc/{}/cgroup", meta["holder"])));
    let place = String::from_utf8_lossy(&place.stdout).into_owned();
    assert!(
        place.contains(".scope") && !place.contains("wingman-agent"),
        "{place}"
    );

    machine.wingman(&["send", "one", "--enter", "before"]);
    machine.shows("before");
    machine.must(&["restart", "wingman-agent"]);
    machine.shows("before");
    machine.must(&["kill", "--signal=KILL", "wingman-agent"]);
    wait_for("the agent to be gone", || {
        (!machine
            .systemctl(&["is-active", "wingman-agent"])
            .status
            .success())
        .then_some(())
    });
    machine.must(&["start", "wingman-agent"]);
    machine.shows("before");
    machine.wingman(&["send", "one", "--enter", "after"]);
    machine.shows("after");
    let ended = machine.wingman(&["kill", "one"]);
    assert!(ended.status.success(), "{}", text(&ended));
}
