//! `wingman server`: the control host.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{config_fault, logging, private_dir, stop_signal, store_fault};
use crate::base::ids::InstanceId;
use crate::base::{Clock, Secret, SystemClock, limits};
use crate::cli::{Globals, ServerRunArgs};
use crate::client::{Paths, record};
use crate::config::ServerConfig;
use crate::control::contract::Links;
use crate::control::executions::{Executions, ExecutionsParts};
use crate::control::gateway::{Gateway, GatewayOptions};
use crate::control::registry::Registry;
use crate::control::server::{Server, ServerParts, bind, listening_address};
use crate::control::tls::http_tls;
use crate::journal::{Journal, Options};
use crate::store::{Store, server::MIGRATIONS};
use crate::wire::rawkey::LinkKey;
use crate::wire::{Code, Fault};

/// The shared tokens of protocol-1 agents, separated by commas.
const PLAIN_TOKENS: &str = "WINGMAN_AGENT_TOKENS";

/// The server's settings in its folder.
pub const SERVER_TOML: &str = "server.toml";

/// The server's own folder: settings, key, database, journal, artifacts.
pub fn server_dir(paths: &Paths) -> PathBuf {
    paths.data_dir.join("server")
}

/// Whether agents connect over the network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Doors {
    Network,
    /// `wingman up`: the one agent is in this process.
    Memory,
}

/// A running server.
pub struct Running {
    pub server: Server,
    pub gateway: Gateway,
    /// Where the API listens, as a URL.
    pub url: String,
    /// The generated certificate's SHA-256.
    pub pin: Option<String>,
    /// Where agents of protocol 2 connect.
    pub agents: Option<String>,
    record: PathBuf,
    journal: Journal,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<Result<(), Fault>>,
}

/// `wingman server`.
pub async fn run(args: ServerRunArgs, globals: &Globals) -> Result<(), Fault> {
    let paths = globals.paths()?;
    let path = args
        .config
        .unwrap_or_else(|| server_dir(&paths).join(SERVER_TOML));
    let mut config = ServerConfig::load(&path).map_err(|error| config_fault(&error))?;
    if let Some(listen) = args.listen {
        config.http.listen = listen;
    }
    if let Some(listen) = args.agents_listen {
        config.agents.listen = listen;
    }
    config.check().map_err(|error| config_fault(&error))?;
    logging::start(&config.logging.level, None)
        .map_err(|why| Fault::new(Code::ConfigInvalid, why))?;
    let signal = stop_signal()?;
    let running = begin(&paths, config, Doors::Network).await?;
    announce(&running, globals.json).await?;
    signal.cancelled().await;
    running.stop().await
}

async fn announce(running: &Running, json: bool) -> Result<(), Fault> {
    let login = running.server.first_start_login().await?;
    if json {
        let started = serde_json::json!({
            "url": running.url,
            "agents": running.agents,
            "pin": running.pin,
            "login": login.as_ref().map(|login| login.text.expose()),
        });
        println!("{started}");
        return Ok(());
    }
    println!("wingman server {}", env!("CARGO_PKG_VERSION"));
    println!("  API     {}", running.url);
    if let Some(pin) = &running.pin {
        println!("  pin     {pin}  (SHA-256 of the generated certificate)");
    }
    if let Some(agents) = &running.agents {
        println!("  agents  {agents}  (`wingman server invite` prints a join string)");
    }
    if let Some(login) = login {
        println!("  first login of {}, valid once:", login.username);
        println!("    {}/login?ticket={}", running.url, login.text.expose());
    }
    Ok(())
}

/// Opens the data folder and serves.
pub async fn begin(paths: &Paths, config: ServerConfig, doors: Doors) -> Result<Running, Fault> {
    private_dir(&paths.data_dir)?;
    let dir = server_dir(paths);
    private_dir(&dir)?;
    // A taken port is told before anything else starts.
    let listener = bind(&config.http.listen, "--listen").await?;
    let address = listening_address(&listener)?;
    let tls = http_tls(&config.http, address, &dir)?;
    let agents = match doors {
        Doors::Network => Some(bind(&config.agents.listen, "--agents-listen").await?),
        Doors::Memory => None,
    };
    let plain = match config.agents.plain_listen.as_str() {
        listen if doors == Doors::Network && !listen.is_empty() => {
            Some(bind(listen, "agents.plain_listen").await?)
        }
        _ => None,
    };
    let journal_options = Options::new(dir.join("journal"), InstanceId::random());
    let (journal, report) = Journal::open(journal_options).map_err(Fault::from)?;
    if report.cut_bytes > 0 {
        tracing::warn!(
            ?report,
            "the journal's torn tail was cut back to its last whole record"
        );
    }
    let store =
        Store::open(&dir.join("server.db"), MIGRATIONS).map_err(|error| store_fault(&error))?;
    let agents_address = match &agents {
        Some(listener) => Some(listening_address(listener)?.to_string()),
        None => None,
    };
    let public_address = match config.agents.public_address.as_str() {
        "" => agents_address.clone().unwrap_or_default(),
        named => named.to_owned(),
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let registry = Arc::new(Registry::open(store.clone(), Arc::clone(&clock)).await?);
    let executions = Executions::new(ExecutionsParts {
        store: store.clone(),
        journal: journal.clone(),
        clock: Arc::clone(&clock),
        config: config.executions.clone(),
        data_dir: dir.clone(),
    });
    let gateway = Gateway::new(GatewayOptions {
        registry: Arc::clone(&registry),
        sink: executions.sink(),
        key: load_key(&dir)?,
        heartbeat_ms: limits::HEARTBEAT_MS,
        plain_tokens: plain_tokens(),
        public_address,
    })
    .map_err(|error| Fault::new(Code::ConfigInvalid, error.to_string()))?;
    let links: Arc<dyn Links> = Arc::new(gateway.clone());
    let server = Server::build(ServerParts {
        config,
        store,
        journal: journal.clone(),
        links,
        registry,
        executions,
        clock,
    })
    .await?;
    if let Some(listener) = agents {
        gateway.serve_tls(listener);
    }
    if let Some(listener) = plain {
        gateway.serve_plain(listener);
    }
    let stop = CancellationToken::new();
    let pin = tls.as_ref().and_then(|tls| tls.pin.clone());
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{address}");
    let serving = {
        let (server, stop) = (server.clone(), stop.clone());
        tokio::spawn(async move { server.serve(listener, tls, stop).await })
    };
    let record_path = paths.record();
    let token = server.mint_local_token().await?;
    let record = record::Record {
        address: url.clone(),
        token,
        pid: std::process::id(),
        pin: pin.clone(),
    };
    record::write(&record_path, &record)?;
    Ok(Running {
        server,
        gateway,
        url,
        pin,
        agents: agents_address,
        record: record_path,
        journal,
        stop,
        serving,
    })
}

fn load_key(dir: &Path) -> Result<LinkKey, Fault> {
    LinkKey::load_or_create(&dir.join("server.key"))
        .map_err(|error| Fault::new(Code::ConfigInvalid, error.to_string()))
}

fn plain_tokens() -> Vec<Secret> {
    let listed = std::env::var(PLAIN_TOKENS).unwrap_or_default();
    listed
        .split(',')
        .map(str::trim)
        .filter(|token| !token.is_empty())
        .map(Secret::new)
        .collect()
}

impl Running {
    /// Ends links, requests and files in order.
    pub async fn stop(self) -> Result<(), Fault> {
        record::remove(&self.record)?;
        self.stop.cancel();
        self.gateway.shutdown().await;
        let served = match self.serving.await {
            Ok(outcome) => outcome,
            Err(error) => Err(Fault::internal(format!("the HTTP server crashed: {error}"))),
        };
        self.journal.close();
        served
    }
}
