//! What is measured: Wingman's processes in a folder of their own, tmux on a socket of its own, and a
//! slow link between.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use wingman::client::{Caller, Wanted, connect, find};
use wingman::wire::PieceKind;
use wingman::wire::messages::sessions::{AttachParams, Create, CreateParams};

use crate::screen::Screen;

const WINGMAN: &str = env!("CARGO_BIN_EXE_wingman");

pub struct Machine {
    dir: tempfile::TempDir,
    roles: Vec<Child>,
}

impl Machine {
    /// A machine with an agent alone.
    pub fn agent() -> Self {
        let mut machine = Self::empty();
        machine.role(&["agent", "run", "--display", "none"]);
        machine.ready();
        machine
    }

    /// A machine with a server and an agent, in two processes that are joined over loopback.
    pub fn server() -> Self {
        let mut machine = Self::empty();
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a port")
            .port();
        machine.role(&[
            "server",
            "--listen",
            "127.0.0.1:0",
            "--agents-listen",
            &format!("127.0.0.1:{port}"),
        ]);
        machine.until("the server's record", |machine| {
            machine.dir.path().join("up.json").exists().then_some(())
        });
        let invited = machine.json(&["server", "invite", "--json"]);
        let joined = machine
            .command(&[
                "agent",
                "join",
                invited["join"].as_str().expect("a join string"),
            ])
            .status();
        assert!(joined.expect("join").success());
        machine.role(&["agent", "run", "--display", "none"]);
        machine.ready();
        machine.until("the agent to be online", |machine| {
            let agents = machine.json(&["agents", "--json"]);
            let items = agents["items"].as_array()?;
            items
                .iter()
                .any(|agent| agent["status"] != "offline")
                .then_some(())
        });
        machine
    }

    fn empty() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a folder"),
            roles: Vec::new(),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(WINGMAN);
        for name in ["DISPLAY", "WINGMAN_SERVER", "WINGMAN_TOKEN"] {
            command.env_remove(name);
        }
        command
            .env("WINGMAN_DATA", self.dir.path())
            .env("XDG_RUNTIME_DIR", self.dir.path());
        command.env("TERM", "xterm-256color").args(args);
        command
    }

    fn role(&mut self, args: &[&str]) {
        let mut command = self.command(args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.roles.push(command.spawn().expect("start wingman"));
    }

    fn until<T>(&self, what: &str, mut probe: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(found) = probe(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ready(&self) {
        self.until("the agent", |machine| {
            let output = machine
                .command(&["--server", "local", "ls"])
                .output()
                .ok()?;
            output.status.success().then_some(())
        });
        // The process that sessions come from starts in the background.
        std::thread::sleep(Duration::from_millis(300));
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.command(args).output().expect("run wingman");
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    pub fn new_session(&self, name: &str, program: &[&str]) {
        let mut args = vec![
            "--server", "local", "new", "--json", "--name", name, "--size", "120x40", "--",
        ];
        args.extend(program);
        self.json(&args);
    }

    pub fn wait_for_text(&self, name: &str, text: &str) {
        let waited = self
            .command(&[
                "--server",
                "local",
                "wait",
                name,
                "--for",
                text,
                "--timeout",
                "120s",
            ])
            .output();
        assert!(
            waited.expect("wait").status.success(),
            "{name} never showed {text}"
        );
    }

    /// A console that shows one session alone.
    pub fn console(&self, name: &str, more: &[&str]) -> Screen {
        let mut args = match more {
            [] => vec!["--server", "local"],
            more => more.to_vec(),
        };
        args.extend(["attach", "--full-screen", name]);
        let mut command = self.command(&args);
        if let Some(token) = self.record()["token"].as_str() {
            command.env("WINGMAN_TOKEN", token);
        }
        Screen::start(&mut command)
    }

    fn record(&self) -> Value {
        let text = std::fs::read(self.dir.path().join("up.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    pub fn address(&self) -> String {
        self.record()["address"]
            .as_str()
            .expect("an address")
            .to_owned()
    }

    pub fn agent_pid(&self) -> u32 {
        self.roles.last().expect("an agent").id()
    }

    pub fn holder_pids(&self) -> Vec<u32> {
        let folders = std::fs::read_dir(self.dir.path().join("agent/sessions"))
            .into_iter()
            .flatten()
            .flatten();
        let pid = |folder: std::path::PathBuf| {
            let meta: Value =
                serde_json::from_slice(&std::fs::read(folder.join("meta.json")).ok()?).ok()?;
            u32::try_from(meta["holder"].as_u64()?).ok()
        };
        folders.filter_map(|entry| pid(entry.path())).collect()
    }

    /// How long it takes from asking for a session until its first text is with an attached console.
    pub fn create_times(&self, program: &[&str], mark: &[u8], rounds: usize) -> Vec<Duration> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let paths =
            wingman::client::Paths::resolve(Some(self.dir.path().to_owned())).expect("paths");
        let wanted = Wanted {
            server: Some("local".into()),
            ..Wanted::default()
        };
        runtime.block_on(async {
            let caller = connect(find(&wanted, &paths).expect("the agent"))
                .await
                .expect("connect");
            let mut times = Vec::new();
            for _ in 0..rounds {
                times.push(create_one(&caller, program, mark).await);
            }
            times
        })
    }
}

async fn create_one(caller: &Caller, program: &[&str], mark: &[u8]) -> Duration {
    let started = Instant::now();
    let params = CreateParams {
        cols: 120,
        rows: 40,
        command: program.iter().map(|part| (*part).to_owned()).collect(),
        ..CreateParams::default()
    };
    let session = caller.call::<Create>(&params).await.expect("create");
    let attach = serde_json::json!({"sessionId": session.id, "cols": 120, "rows": 40});
    let params: AttachParams = serde_json::from_value(attach).expect("parameters");
    let (_, mut stream) = caller.attach(&params).await.expect("attach");
    let mut seen = Vec::new();
    while memchr::memmem::find(&seen, mark).is_none() {
        let piece = stream.recv.recv().await.expect("its output");
        if piece.kind != PieceKind::Control {
            seen.extend_from_slice(&piece.body);
        }
    }
    started.elapsed()
}

impl Drop for Machine {
    fn drop(&mut self) {
        let mut pids = self.holder_pids();
        let folders = std::fs::read_dir(self.dir.path().join("agent/sessions"))
            .into_iter()
            .flatten()
            .flatten();
        for folder in folders {
            let meta = std::fs::read(folder.path().join("meta.json")).unwrap_or_default();
            let meta: Value = serde_json::from_slice(&meta).unwrap_or_default();
            pids.extend(
                meta["child"]
                    .as_u64()
                    .and_then(|pid| u32::try_from(pid).ok()),
            );
        }
        for role in &mut self.roles {
            let _ = role.kill();
            let _ = role.wait();
        }
        for pid in pids
            .into_iter()
            .filter_map(|pid| rustix::process::Pid::from_raw(pid as i32))
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Counts tmux's servers: one that is told to end may still answer on its socket for a while.
static SERVERS: AtomicUsize = AtomicUsize::new(0);

fn tmux_command(args: &[&str]) -> Command {
    let socket = format!("wingman-bench-{}", SERVERS.load(Ordering::Relaxed));
    let mut all = vec!["-L", &socket, "-f", "/dev/null"];
    all.extend(args);
    Screen::command("tmux", &all)
}

fn fresh_tmux() {
    let _ = tmux_command(&["kill-server"])
        .stderr(Stdio::null())
        .status();
    SERVERS.fetch_add(1, Ordering::Relaxed);
}

/// tmux with one session, on a terminal.
pub fn tmux(program: &[&str]) -> Screen {
    fresh_tmux();
    let mut args = vec!["new-session", "-x", "120", "-y", "40"];
    args.extend(program);
    Screen::start(&mut tmux_command(&args))
}

pub fn tmux_attach() -> Screen {
    Screen::start(&mut tmux_command(&["attach"]))
}

/// KiB of tmux's server for each of so many sessions.
pub fn tmux_memory(sessions: usize, script: &str, mark: &str) -> f64 {
    fresh_tmux();
    let run = |args: &[&str]| {
        let output = tmux_command(args).output().expect("run tmux");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    run(&[
        "new-session",
        "-d",
        "-x",
        "120",
        "-y",
        "40",
        "-s",
        "first",
        "exec cat",
    ]);
    run(&["set", "-g", "history-limit", "10000"]);
    // The server answers once it stands.
    let pid = loop {
        if let Ok(pid) = run(&["display", "-p", "-t", "first", "#{pid}"]).parse() {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let before = pss_kib(pid);
    for at in 0..sessions {
        run(&[
            "new-session",
            "-d",
            "-x",
            "120",
            "-y",
            "40",
            "-s",
            &format!("s{at}"),
            script,
        ]);
    }
    for at in 0..sessions {
        while !run(&["capture-pane", "-p", "-t", &format!("s{at}")]).contains(mark) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let used = (pss_kib(pid) - before) / sessions as f64;
    run(&["kill-server"]);
    used
}

pub fn pss_kib(pid: u32) -> f64 {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("memory figures");
    let line = text
        .lines()
        .find(|line| line.starts_with("Pss:"))
        .expect("a Pss line");
    line.split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Processor time of a process so far, in clock ticks.
pub fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("processor figures");
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .expect("a name")
        .1
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().expect("user") + fields[12].parse::<u64>().expect("system")
}

/// A link that carries so many bytes a second each way, with little room in between.
pub struct SlowLink {
    address: String,
}

impl SlowLink {
    pub fn start(to: &str, bytes_per_second: usize) -> Self {
        let target = to.strip_prefix("http://").expect("an address").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let far = TcpStream::connect(&target).expect("connect");
                let ends = (
                    stream.try_clone().expect("clone"),
                    far.try_clone().expect("clone"),
                );
                std::thread::spawn(move || carry(stream, far, bytes_per_second));
                std::thread::spawn(move || carry(ends.1, ends.0, bytes_per_second));
            }
        });
        Self { address }
    }

    pub fn address(&self) -> String {
        self.address.clone()
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, bytes_per_second: usize) {
    let mut buffer = [0; 1024];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 || to.write_all(&buffer[..length]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_secs_f64(
            length as f64 / bytes_per_second as f64,
        ));
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}
