//! A machine of its own for one test: folders, sockets and environment, with real processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::wait_for;

/// Folders that no other test shares.
pub struct Host {
    dir: tempfile::TempDir,
    display: String,
}

/// A server, an agent or `up`; killed when dropped.
pub struct Role {
    child: Child,
}

impl Host {
    /// A machine without a display.
    pub fn new() -> Self {
        Self::with_display("none")
    }

    /// A machine whose agent looks after a display, or `none`.
    pub fn with_display(display: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for name in ["run", "data", "data/agent", "data/server"] {
            std::fs::create_dir_all(dir.path().join(name)).expect("a folder");
        }
        Self {
            dir,
            display: display.to_owned(),
        }
    }

    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Writes agent.toml.
    pub fn configure_agent(&self, text: &str) {
        std::fs::write(self.agent_toml(), text).expect("write the configuration");
    }

    pub fn agent_toml(&self) -> PathBuf {
        self.data_dir().join("agent/agent.toml")
    }

    /// Writes a file and answers its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).expect("write a file");
        path
    }

    /// `wingman` in this machine's environment alone.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wingman"));
        for variable in ["DISPLAY", "WAYLAND_DISPLAY", "XDG_SESSION_TYPE"] {
            command.env_remove(variable);
        }
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINGMAN_")) {
            command.env_remove(name);
        }
        command
            .env("HOME", self.dir.path())
            .env("XDG_RUNTIME_DIR", self.dir.path().join("run"))
            .env("WINGMAN_DATA", self.data_dir())
            .args(args)
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("run wingman")
    }

    /// Runs a command that has to succeed; its standard output as JSON.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output));
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", text(&output)))
    }

    fn spawn(&self, args: &[&str], log: &str) -> Role {
        self.role_in(self.command(args), log)
    }

    /// Starts a role by a command of one's own; what it prints goes to a file of this machine.
    pub fn role_in(&self, mut command: Command, log: &str) -> Role {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join(log))
            .expect("open a log");
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("one log for both"))
            .stderr(log)
            .spawn()
            .expect("start wingman");
        Role { child }
    }

    /// Starts `wingman server` on free ports and waits for its record.
    pub fn start_server(&self) -> Role {
        let args = ["server", "--listen", "127.0.0.1:0", "--agents-listen"];
        let agents = self.agents_port();
        let agents = format!("127.0.0.1:{agents}");
        let mut all: Vec<&str> = args.to_vec();
        all.push(&agents);
        let role = self.spawn(&all, "server.log");
        wait_for("the server to answer", || {
            self.api("GET", "/health", None).ok()
        });
        role
    }

    /// The agents' port, kept over restarts so that agents find the server again.
    fn agents_port(&self) -> u16 {
        let path = self.dir.path().join("agents-port");
        if let Ok(text) = std::fs::read_to_string(&path) {
            return text.parse().expect("a port");
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        std::fs::write(&path, port.to_string()).expect("write the port");
        port
    }

    /// Joins this machine's agent to this machine's server, which runs.
    pub fn join_agent(&self) {
        let invited = self.json(&["server", "invite", "--json"]);
        let joined = self.run(&[
            "agent",
            "join",
            invited["join"].as_str().expect("a join string"),
        ]);
        assert!(joined.status.success(), "{}", text(&joined));
    }

    /// Waits until the server shows the only workstation as connected.
    pub fn wait_until_online(&self) {
        wait_for("the agent to be online", || {
            let agents = self.api("GET", "/api/agents", None).ok()?;
            let online = agents["items"]
                .as_array()?
                .iter()
                .any(|agent| agent["status"] != "offline");
            online.then_some(())
        });
    }

    /// Starts `wingman agent run` and waits for its local socket.
    pub fn start_agent(&self) -> Role {
        let role = self.spawn(&["agent", "run", "--display", &self.display], "agent.log");
        wait_for("the agent to answer", || {
            self.ipc("system.getStatus", "{}").ok()
        });
        role
    }

    /// Starts `wingman up` and waits for its record.
    pub fn start_up(&self) -> Role {
        let args = ["up", "--listen", "127.0.0.1:0", "--display", &self.display];
        let role = self.spawn(&args, "up.log");
        wait_for("up to answer", || self.api("GET", "/api/agents", None).ok());
        role
    }

    /// A call on the local wire.
    pub fn ipc(&self, method: &str, params: &str) -> Result<Value, String> {
        let output = self.run(&["ipc-client", method, params]);
        if !output.status.success() {
            return Err(text(&output));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
    }

    /// Address and token of the running server.
    fn record(&self) -> Result<(String, String), String> {
        let text = std::fs::read_to_string(self.data_dir().join("up.json"))
            .map_err(|error| error.to_string())?;
        let record: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let field = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        Ok((field("address"), field("token")))
    }

    /// A request to the server as its own user; `data` of the envelope, or the error's code.
    pub fn api(&self, verb: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let (address, token) = self.record()?;
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        let request = ureq::http::Request::builder()
            .method(verb)
            .uri(format!("{address}{path}"))
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        let text = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(text).map_err(|error| error.to_string())?;
        let mut response = agent.run(request).map_err(|error| error.to_string())?;
        let text = response
            .body_mut()
            .read_to_string()
            .map_err(|error| error.to_string())?;
        let value: Value =
            serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        match value.get("success").and_then(Value::as_bool) {
            Some(true) => Ok(value["data"].clone()),
            Some(false) => Err(value["error"]["code"].as_str().unwrap_or("?").to_owned()),
            None => Ok(value),
        }
    }

    /// What a role has printed, for a failing test's message.
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// The folder of this machine.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Host {
    /// Terminal sessions outlive their agents, but not their machine.
    fn drop(&mut self) {
        let Ok(entries) = std::fs::read_dir(self.data_dir().join("agent/sessions")) else {
            return;
        };
        for folder in entries.flatten().map(|entry| entry.path()) {
            let meta = std::fs::read(folder.join("meta.json")).unwrap_or_default();
            let meta: Value = serde_json::from_slice(&meta).unwrap_or_default();
            for name in ["holder", "child"] {
                let pid = meta[name].as_i64().and_then(|pid| i32::try_from(pid).ok());
                if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                    // One that has ended needs no signal.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
    }
}

impl Role {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL: nothing of the process gets a last word.
    pub fn kill(mut self) {
        end(&mut self.child);
    }

    /// Ctrl-C, and the exit code that follows.
    pub fn interrupt(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signal");
        wait_for("the process to end", || {
            self.child.try_wait().ok().flatten()
        })
        .code()
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // It may have ended by itself; then there is only its status to collect.
    let _ = child.kill();
    let _ = child.wait();
}

/// Both streams of a finished command.
pub fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
