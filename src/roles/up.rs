//! `wingman up`: server and agent in one process, the link in memory.

use tokio::sync::mpsc;

use super::server::Doors;
use super::{agent, config_fault, server, stop_signal};
use crate::agent::Connector;
use crate::base::Size;
use crate::cli::{Globals, UpArgs};
use crate::config::{AgentConfig, ServerConfig};
use crate::platform::display::{self, DisplayFinding, OwnDisplay};
use crate::wire::Fault;

/// The size of a display of our own.
const OWN_DISPLAY: Size = Size {
    width: 1280,
    height: 800,
};

/// `wingman up`.
pub async fn run(args: UpArgs, globals: &Globals) -> Result<(), Fault> {
    let paths = globals.paths()?;
    let config_path = paths.agent_toml();
    let agent_config = AgentConfig::load(&config_path).map_err(|error| config_fault(&error))?;
    let mut server_config =
        ServerConfig::load(&server::server_dir(&paths).join(server::SERVER_TOML))
            .map_err(|error| config_fault(&error))?;
    if let Some(listen) = args.listen {
        server_config.http.listen = listen;
    }
    server_config
        .check()
        .map_err(|error| config_fault(&error))?;
    let signal = stop_signal()?;
    let wanted = args
        .display
        .unwrap_or_else(|| agent_config.desktop.display.clone());
    let (display, own) = choose_display(wanted, globals.json).await?;
    let server = server::begin(&paths, server_config, Doors::Memory).await?;
    let (far_ends, mut arriving) = mpsc::channel(1);
    let gateway = server.gateway.clone();
    let accepting = tokio::spawn(async move {
        while let Some(stream) = arriving.recv().await {
            gateway.accept_memory(stream);
        }
    });
    let start = agent::Start {
        paths,
        config_path,
        config: agent_config,
        display: Some(display),
        connector: Connector::Memory(far_ends),
    };
    let agent = start.begin(true).await?;
    announce(&server, &agent, globals.json).await?;
    let shutdown = agent.node.shutdown_token();
    tokio::select! {
        () = signal.cancelled() => {}
        () = shutdown.cancelled() => {}
    }
    let agent_stopped = agent.stop().await;
    accepting.abort();
    let server_stopped = server.stop().await;
    drop(own);
    agent_stopped.and(server_stopped)
}

/// The display to look after, and ours where the host has none that is usable.
async fn choose_display(wanted: String, json: bool) -> Result<(String, Option<OwnDisplay>), Fault> {
    if wanted != "auto" {
        return Ok((wanted, None));
    }
    let work = move || {
        let why = match display::find() {
            DisplayFinding::Usable(name) => return Ok((name, None, String::new())),
            DisplayFinding::Absent => "there is no display".to_owned(),
            DisplayFinding::Stale { display, reason } => {
                format!("DISPLAY is {display}, which does not answer ({reason})")
            }
            DisplayFinding::Wayland => {
                "the session is Wayland, where captures through XWayland are black".to_owned()
            }
        };
        OwnDisplay::start(OWN_DISPLAY).map(|own| (own.name().to_owned(), Some(own), why))
    };
    let chosen = tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Fault::internal(format!("look for a display: {error}")))?;
    match chosen {
        Ok((name, None, _)) => Ok((name, None)),
        Ok((name, own, why)) => {
            if !json {
                eprintln!("{why}: this run has its own Xvfb, {name}");
            }
            Ok((name, own))
        }
        // Unsupported here (another operating system has its own desktop), or no Xvfb: the desktop's
        // parts then say why they are missing.
        Err(error) => {
            if !json {
                eprintln!("no display of our own: {error}");
            }
            Ok(("auto".into(), None))
        }
    }
}

async fn announce(
    server: &server::Running,
    agent: &agent::Running,
    json: bool,
) -> Result<(), Fault> {
    let login = server.server.first_start_login().await?;
    if json {
        let started = serde_json::json!({
            "url": server.url,
            "pin": server.pin,
            "endpoint": agent.endpoint(),
            "login": login.as_ref().map(|login| login.text.expose()),
        });
        println!("{started}");
        return Ok(());
    }
    println!(
        "wingman up {}: server and agent in one process",
        env!("CARGO_PKG_VERSION")
    );
    println!("  API     {}", server.url);
    if let Some(pin) = &server.pin {
        println!("  pin     {pin}  (SHA-256 of the generated certificate)");
    }
    println!("  local   {}", agent.endpoint());
    if let Some(login) = login {
        println!("  first login of {}, valid once:", login.username);
        println!("    {}/login?ticket={}", server.url, login.text.expose());
    }
    println!("Run a first script in another terminal:");
    println!("    wingman run assets/scripts/first.lua");
    println!("Ctrl-C ends both.");
    Ok(())
}
