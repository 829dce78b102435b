//! `wingman agent`: the node with its front doors.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::remote::RemoteLink;
use super::{config_fault, logging, private_dir, stop_signal, store_fault};
use crate::agent::identity::{hostname, load_or_create};
use crate::agent::{Connector, Link, LinkHandle, LinkOptions, enrol};
use crate::base::ids::InstanceId;
use crate::cli::{AgentRunArgs, Globals, JoinArgs, build_info};
use crate::client::Paths;
use crate::config::AgentConfig;
use crate::ipc::{self, IpcOptions, IpcServer};
use crate::journal::{Journal, Options};
use crate::model::attention::RuleSet;
use crate::platform::OpenOptions;
use crate::platform::paths::{home_dir, user_shell};
use crate::runtime::{DesktopSlot, Node, NodeOptions, Terminals};
use crate::store::node::NodeStore;
use crate::terminal::launch::User;
use crate::wire::{Code, Fault};

/// How often the node looks at what works on its host.
const PROBE_EVERY: Duration = Duration::from_secs(15);

/// How many such looks lie between two of those for sessions that ended long ago: an hour.
const LOOKS_PER_PRUNING: u64 = 240;

/// What an agent is started with.
pub struct Start {
    pub paths: Paths,
    pub config_path: PathBuf,
    pub config: AgentConfig,
    /// The display to look after; the configuration's when absent.
    pub display: Option<String>,
    pub connector: Connector,
}

/// A running agent.
pub struct Running {
    pub node: Arc<Node>,
    ipc: IpcServer,
    ipc_stop: CancellationToken,
    link: LinkHandle,
    journal: Journal,
    prober: tokio::task::JoinHandle<()>,
}

/// `wingman agent run`.
pub async fn run(args: AgentRunArgs, globals: &Globals) -> Result<(), Fault> {
    let paths = globals.paths()?;
    let config_path = args.config.unwrap_or_else(|| paths.agent_toml());
    let config = AgentConfig::load(&config_path).map_err(|error| config_fault(&error))?;
    let signal = stop_signal()?;
    let start = Start {
        paths,
        config_path,
        config,
        display: args.display,
        connector: Connector::Tcp,
    };
    let running = start.begin(true).await?;
    let status = format!(
        "agent ready; local clients connect to {}",
        running.ipc.endpoint()
    );
    tracing::info!("{status}");
    let shutdown = running.node.shutdown_token();
    tokio::select! {
        () = signal.cancelled() => {}
        () = shutdown.cancelled() => {}
    }
    running.stop().await
}

/// `wingman agent join STRING`.
pub async fn join(args: JoinArgs, globals: &Globals) -> Result<(), Fault> {
    let paths = globals.paths()?;
    let config_path = args.config.unwrap_or_else(|| paths.agent_toml());
    let config = AgentConfig::load(&config_path).map_err(|error| config_fault(&error))?;
    let text = if args.join == "-" {
        read_line()?
    } else {
        args.join
    };
    private_dir(&paths.data_dir)?;
    let dir = paths.agent_dir();
    private_dir(&dir)?;
    let joined = enrol::join(text.trim(), &dir, &config_path, &config.remote).await?;
    if globals.json {
        let done = serde_json::json!({
            "agentId": joined.agent_id,
            "serverIp": joined.remote.server_ip,
            "serverPort": joined.remote.server_port,
        });
        println!("{done}");
    } else {
        println!(
            "joined {}:{} as {}; start it with `wingman agent run`",
            joined.remote.server_ip, joined.remote.server_port, joined.agent_id
        );
    }
    Ok(())
}

fn read_line() -> Result<String, Fault> {
    let mut text = String::new();
    std::io::stdin()
        .take(8 * 1024)
        .read_to_string(&mut text)
        .map_err(|error| {
            Fault::new(
                Code::JoinStringInvalid,
                format!("read the join string: {error}"),
            )
        })?;
    Ok(text)
}

impl Start {
    /// Opens the data folder and starts the node with its front doors. `logs` also starts the
    /// process's log, which then reaches local readers.
    pub async fn begin(self, logs: bool) -> Result<Running, Fault> {
        private_dir(&self.paths.data_dir)?;
        let dir = self.paths.agent_dir();
        private_dir(&dir)?;
        let instance_id = InstanceId::random();
        let journal_options = Options::new(dir.join("journal"), instance_id.clone());
        let (journal, report) = Journal::open(journal_options).map_err(Fault::from)?;
        if logs {
            logging::start(&self.config.logging.level, Some(journal.clone()))
                .map_err(|why| Fault::new(Code::ConfigInvalid, why))?;
        }
        if report.cut_bytes > 0 {
            tracing::warn!(
                ?report,
                "the journal's torn tail was cut back to its last whole record"
            );
        }
        let store = NodeStore::open(&dir.join("node.db")).map_err(|error| store_fault(&error))?;
        let agent_id = load_or_create(&dir)?;
        let scripts = &self.config.scripts;
        let scripts_dir = match scripts.dir.as_os_str().is_empty() {
            true => self.paths.data_dir.join("scripts"),
            false => scripts.dir.clone(),
        };
        let node = Node::open(NodeOptions {
            agent_id: agent_id.clone(),
            instance_id: instance_id.clone(),
            hostname: hostname(),
            build: build_info(),
            state_dir: dir.clone(),
            journal: journal.clone(),
            store,
            desktop: DesktopSlot::new(self.open_options()),
            scripts_dir,
            file_roots: scripts.file_roots.clone(),
            private_paths: self.private_paths(),
            script_memory_max: scripts.memory_mb as usize * 1024 * 1024,
            scripts_running_max: scripts.running_max as usize,
            captures_kept: self.config.desktop.captures_kept as usize,
            terminals: self.terminals()?,
        })
        .await?;
        let ipc_stop = CancellationToken::new();
        let ipc_options = IpcOptions {
            config: self.config.ipc.clone(),
            state_dir: dir.clone(),
        };
        let ipc = ipc::serve(
            ipc_options,
            node.handler(),
            journal.clone(),
            ipc_stop.clone(),
        )
        .await?;
        // The first registration should tell what works here; local callers need not wait for that.
        let in_process = matches!(self.connector, Connector::Memory(_));
        let link = Link::spawn(LinkOptions {
            remote: self.config.remote.clone(),
            data_dir: dir.clone(),
            agent_id,
            instance_id,
            handler: node.handler(),
            journal: journal.clone(),
            capabilities: node.capabilities(),
            current_task: node.current_task(),
            connector: self.connector,
        });
        if !in_process {
            let remote = RemoteLink::new(self.config_path, dir, self.config.remote, link.clone());
            node.set_remote(Arc::new(remote));
        }
        let prober = tokio::spawn(probe(Arc::clone(&node)));
        let prepared = Arc::clone(&node);
        tokio::spawn(async move { prepared.prepare_sessions().await });
        Ok(Running {
            node,
            ipc,
            ipc_stop,
            link,
            journal,
            prober,
        })
    }

    /// What scripts may not touch: everything of this program but the folder of scripts.
    fn private_paths(&self) -> Vec<PathBuf> {
        let data = &self.paths.data_dir;
        let own = ["agent", "server", "up.json", "login.json"].map(|name| data.join(name));
        let all = own.into_iter().chain([self.config_path.clone()]);
        // A path that is not there yet has a canonical parent, or cannot be reached at all.
        let canonical = |path: PathBuf| {
            path.canonicalize()
                .ok()
                .or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)))
        };
        all.filter_map(canonical).collect()
    }

    fn terminals(&self) -> Result<Terminals, Fault> {
        let config = &self.config.terminal;
        let data = &self.paths.data_dir;
        let rules_dir = match config.rules_dir.as_os_str().is_empty() {
            true => data.join("attention"),
            false => config.rules_dir.clone(),
        };
        let executable = std::env::current_exe()
            .map_err(|error| Fault::internal(format!("find this program's file: {error}")))?;
        Ok(Terminals {
            executable,
            user: User {
                home: home_dir().unwrap_or_else(|| data.clone()),
                shell: match config.shell.is_empty() {
                    true => user_shell(),
                    false => config.shell.clone(),
                },
            },
            // `wingman` inside of a session then talks to this agent.
            env: vec![("WINGMAN_DATA".into(), data.to_string_lossy().into_owned())],
            scrollback_lines: config.scrollback_lines as usize,
            rules: match config.screen_rules {
                true => read_rules(&rules_dir)?,
                false => RuleSet::default(),
            },
        })
    }

    fn open_options(&self) -> OpenOptions {
        let wanted = self
            .display
            .as_deref()
            .unwrap_or(&self.config.desktop.display);
        let backend = &self.config.desktop.capture_backend;
        OpenOptions {
            display: match wanted {
                "auto" => None,
                "none" => Some(String::new()),
                name => Some(name.to_owned()),
            },
            capture_backend: (backend != "auto").then(|| backend.clone()),
            guard_program: None,
        }
    }
}

/// The built-in screen rules with those of a folder over them. A folder that is not there has none;
/// a file that is wrong stops the start, since its author would wait for it in vain.
fn read_rules(dir: &std::path::Path) -> Result<RuleSet, Fault> {
    let mut rules = RuleSet::builtin();
    let wrong = |path: &std::path::Path, why: String| {
        Fault::new(Code::ConfigInvalid, format!("{}: {why}", path.display()))
    };
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(rules),
        other => other.map_err(|error| wrong(dir, error.to_string()))?,
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    paths.sort();
    for path in paths {
        let text =
            std::fs::read_to_string(&path).map_err(|error| wrong(&path, error.to_string()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let own = RuleSet::parse(&name, &text).map_err(|error| wrong(&path, error.to_string()))?;
        rules
            .merge(own)
            .map_err(|error| wrong(&path, error.to_string()))?;
    }
    Ok(rules)
}

/// Looks at what works on this host, now and then.
async fn probe(node: Arc<Node>) {
    let stop = node.shutdown_token();
    for look in 1_u64.. {
        if let Err(fault) = node.probe_capabilities().await {
            tracing::warn!(%fault, "cannot tell what works on this host");
        }
        if look % LOOKS_PER_PRUNING == 0 {
            node.prune_sessions().await;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PROBE_EVERY) => {}
        }
    }
}

impl Running {
    /// Ends in order: no new local calls, runs stopped, the rest of the journal sent, files closed.
    pub async fn stop(self) -> Result<(), Fault> {
        self.prober.abort();
        let stopped = self.node.stop().await;
        self.ipc_stop.cancel();
        self.ipc.stopped().await;
        self.link.stop().await;
        self.journal.close();
        stopped
    }

    /// Where local clients connect.
    pub fn endpoint(&self) -> String {
        self.ipc.endpoint().to_string()
    }
}
