//! One workstation's core.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::artifacts::Artifacts;
use super::desktop_slot::DesktopSlot;
use super::dispatcher::Dispatcher;
use super::executions::{Executions, Parts};
use super::handlers;
use super::kv::NodeKv;
use super::records::Records;
use crate::base::EpochMillis;
use crate::base::ids::{AgentId, InstanceId};
use crate::desktop::{CaptureReport, CaptureStore};
use crate::journal::Journal;
use crate::model::attention::RuleSet;
use crate::platform::InputOwner;
use crate::store::node::NodeStore;
use crate::terminal::launch::User;
use crate::terminal::{Sessions, SessionsOptions, Sink, TerminalOptions};
use crate::wire::event::{Draft, name};
use crate::wire::messages::BuildInfo;
use crate::wire::messages::config::{RemoteConfig, RemoteUpdate};
use crate::wire::messages::system::RemoteState;
use crate::wire::{Answer, BoxFuture, Call, Fault, Handler, Origin};

/// The node's link to its server, as the node's own methods see it. Whoever composes the process
/// implements it.
pub trait Remote: Send + Sync + 'static {
    fn state(&self) -> (RemoteState, Option<String>);
    fn config(&self) -> RemoteConfig;
    /// Checks, applies and writes back a partial update.
    fn update(&self, update: RemoteUpdate) -> BoxFuture<Result<RemoteConfig, Fault>>;
}

/// What a node is made of.
pub struct NodeOptions {
    pub agent_id: AgentId,
    pub instance_id: InstanceId,
    pub hostname: String,
    pub build: BuildInfo,
    /// The data folder; the caller holds its lock (the journal's).
    pub state_dir: PathBuf,
    pub journal: Journal,
    pub store: NodeStore,
    pub desktop: DesktopSlot,
    /// Where relative script paths start.
    pub scripts_dir: PathBuf,
    pub file_roots: Vec<PathBuf>,
    /// The agent's own files: no script's file function touches them.
    pub private_paths: Vec<PathBuf>,
    pub script_memory_max: usize,
    pub scripts_running_max: usize,
    pub captures_kept: usize,
    pub terminals: Terminals,
}

/// What the node's terminal sessions need.
pub struct Terminals {
    /// This program, which is also the process that holds a session.
    pub executable: PathBuf,
    pub user: User,
    /// Set in every session.
    pub env: Vec<(String, String)>,
    pub scrollback_lines: usize,
    pub rules: RuleSet,
}

/// A workstation's core; shared by every front door.
pub struct Node {
    pub(super) agent_id: AgentId,
    pub(super) instance_id: InstanceId,
    pub(super) hostname: String,
    pub(super) build: BuildInfo,
    pub(super) started: Instant,
    pub(super) journal: Journal,
    pub(super) desktop: Arc<DesktopSlot>,
    pub(super) executions: Arc<Executions>,
    pub(super) captures: Arc<CaptureStore>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) local_clients: AtomicU64,
    pub(super) remote: OnceLock<Arc<dyn Remote>>,
    dispatcher: Dispatcher<Node>,
    shutdown: CancellationToken,
    stopping: AtomicBool,
}

impl Node {
    /// Opens the node's files and ends what a former process left unfinished.
    pub async fn open(options: NodeOptions) -> Result<Arc<Self>, Fault> {
        let desktop = Arc::new(options.desktop);
        let records = Records::new(options.store.clone());
        let artifacts = Artifacts::open(options.state_dir.join("executions"))?;
        let captures_dir = options.state_dir.join("captures");
        let kept = options.captures_kept;
        let reports = options.journal.clone();
        let captures = super::blocking(move || {
            CaptureStore::open(captures_dir, kept, move |report| {
                journal_report(&reports, &report)
            })
        })
        .await?;
        let executions = Executions::new(Parts {
            agent_id: options.agent_id.clone(),
            records,
            journal: options.journal.clone(),
            artifacts,
            desktop: Arc::clone(&desktop),
            kv: Arc::new(NodeKv::new(options.store)),
            scripts_dir: options.scripts_dir,
            file_roots: options.file_roots,
            private_paths: options.private_paths,
            memory_max: options.script_memory_max,
            running_max: options.scripts_running_max,
        });
        let ended = executions.recover().await?;
        let sessions = SessionsOptions {
            dir: options.state_dir.join("sessions"),
            executable: options.terminals.executable,
            user: options.terminals.user,
            env: options.terminals.env,
            sink: Arc::new(SessionEvents(options.journal.clone())),
            runtime: tokio::runtime::Handle::current(),
            rules: options.terminals.rules,
            terminal: TerminalOptions {
                scrollback_lines: options.terminals.scrollback_lines,
                recordings_dir: options.state_dir.join("recordings"),
            },
        };
        let sessions = super::blocking(move || Sessions::open(sessions)).await?;
        let node = Arc::new(Self {
            agent_id: options.agent_id,
            instance_id: options.instance_id,
            hostname: options.hostname,
            build: options.build,
            started: Instant::now(),
            journal: options.journal,
            desktop,
            executions,
            captures: Arc::new(captures),
            sessions,
            local_clients: AtomicU64::new(0),
            remote: OnceLock::new(),
            dispatcher: handlers::all(),
            shutdown: CancellationToken::new(),
            stopping: AtomicBool::new(false),
        });
        let started = json!({
            "version": node.build.version,
            "instanceId": node.instance_id,
            "hostname": node.hostname,
            "endedExecutions": ended,
        });
        node.journal
            .append(Draft::new(name::NODE_STARTED, started))
            .await?;
        Ok(node)
    }

    /// Gives the node its link; once.
    pub fn set_remote(&self, remote: Arc<dyn Remote>) {
        // A second call would be a defect of the composition; the first link stays in force.
        if self.remote.set(remote).is_err() {
            tracing::error!("the node has a link already");
        }
    }

    /// What works on this host, at the last look and at every change.
    pub fn capabilities(&self) -> tokio::sync::watch::Receiver<Vec<String>> {
        self.desktop.capabilities()
    }

    /// The script that runs now; empty for none.
    pub fn current_task(&self) -> tokio::sync::watch::Receiver<String> {
        self.executions.current_task()
    }

    /// Looks at what works on this host and journals a change.
    pub async fn probe_capabilities(&self) -> Result<(), Fault> {
        let desktop = Arc::clone(&self.desktop);
        let changed = super::blocking(move || Ok(desktop.probe())).await?;
        if let Some(names) = changed {
            let payload = json!({ "capabilities": names });
            self.journal
                .append(Draft::new(name::CAPABILITIES_CHANGED, payload))
                .await?;
        }
        Ok(())
    }

    /// Makes the first new terminal session start quickly.
    pub async fn prepare_sessions(&self) {
        self.with_sessions(Sessions::warm_up).await;
        self.prune_sessions().await;
    }

    /// Forgets sessions that ended long ago.
    pub async fn prune_sessions(&self) {
        self.with_sessions(|sessions| sessions.prune(EpochMillis::now()))
            .await;
    }

    async fn with_sessions(&self, work: impl FnOnce(&Sessions) + Send + 'static) {
        let sessions = Arc::clone(&self.sessions);
        let done = super::blocking(move || {
            work(&sessions);
            Ok(())
        });
        if let Err(fault) = done.await {
            tracing::warn!(%fault, "look after terminal sessions");
        }
    }

    /// Fires when `system.shutdown` was called or the process has to end.
    pub fn shutdown_token(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Stops runs, waits for their ends and journals the stop. Idempotent.
    pub async fn stop(&self) -> Result<(), Fault> {
        if self.stopping.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.shutdown.cancel();
        self.executions.stop_all();
        self.executions.idle().await;
        let sessions = Arc::clone(&self.sessions);
        super::blocking(move || {
            sessions.close();
            Ok(())
        })
        .await?;
        self.journal
            .append(Draft::new(name::NODE_STOPPED, json!({})))
            .await?;
        Ok(())
    }

    /// Whether a method has a handler on this node.
    pub fn answers(&self, method: &str) -> bool {
        self.dispatcher.answers(method)
    }

    /// A handle that front doors take.
    pub fn handler(self: &Arc<Self>) -> Arc<dyn Handler> {
        Arc::new(Door {
            node: Arc::clone(self),
        })
    }

    /// Whose keys a caller holds.
    pub(super) fn owner_of(origin: Origin) -> InputOwner {
        match origin {
            Origin::Local { connection } => InputOwner(connection << 1),
            Origin::Server { epoch } => InputOwner((epoch << 1) | 1),
        }
    }
}

/// Journals what happens to terminal sessions.
struct SessionEvents(Journal);

impl Sink for SessionEvents {
    fn tell(&self, draft: Draft) {
        // Resolves on its own; a journal that cannot take it says so when it is next awaited.
        drop(self.0.submit(draft));
    }

    fn tell_volatile(&self, draft: Draft) {
        self.0.publish_volatile(draft);
    }
}

/// A front door to the node.
struct Door {
    node: Arc<Node>,
}

impl Handler for Door {
    fn call(&self, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        self.node.dispatcher.dispatch(Arc::clone(&self.node), call)
    }

    fn connected(&self, origin: Origin) {
        if origin.is_local() {
            self.node.local_clients.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn disconnected(&self, origin: Origin) {
        if origin.is_local() {
            self.node.local_clients.fetch_sub(1, Ordering::Relaxed);
        }
        let node = Arc::clone(&self.node);
        tokio::task::spawn_blocking(move || node.release(origin));
    }
}

impl Node {
    /// Lets up what a caller held. Blocks.
    fn release(&self, origin: Origin) {
        let owner = Self::owner_of(origin);
        let draft = match self.desktop.current().release_input(owner) {
            Ok(0) => return,
            Ok(count) => json!({ "count": count }),
            Err(fault) => json!({ "error": fault.message }),
        };
        let draft = Draft::new(name::INPUT_RELEASED, draft);
        if let Err(fault) = self.journal.append_blocking(draft) {
            tracing::error!(%fault, "cannot journal released input");
        }
    }
}

/// Tells of a capture that is not served, and logs what else was found in the folder.
fn journal_report(journal: &Journal, report: &CaptureReport) {
    tracing::warn!(?report, "the capture folder was not as it was left");
    if let CaptureReport::Quarantined { id, reason } = report {
        let payload = json!({ "captureId": id, "reason": reason });
        // Resolves on its own; a journal that cannot take it says so when it is next awaited.
        drop(journal.submit(Draft::new(name::CAPTURE_QUARANTINED, payload)));
    }
}
