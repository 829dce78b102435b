//! `wingman` and `wingman attach`: the console over the agent on this machine and a server.

use std::io::IsTerminal;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use super::config_fault;
use crate::base::error::exit;
use crate::base::limits;
use crate::cli::{self, AttachArgs, Globals};
use crate::client::{Caller, Paths, Place as Found, Wanted, connect, find, login, record};
use crate::config::ConsoleConfig;
use crate::console::{self, Left, Options, Place, Remote};
use crate::platform::native::background;
use crate::wire::messages::sessions::{AttachMode, Location};
use crate::wire::{Code, Fault};

/// Opens the console; answers the exit code.
pub async fn attach(args: AttachArgs, globals: &Globals) -> u8 {
    match open(args, globals).await {
        Ok(left) => tell(&left),
        Err(fault) => cli::report(&fault, globals.json),
    }
}

async fn open(args: AttachArgs, globals: &Globals) -> Result<Left, Fault> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Fault::new(
            Code::InvalidParams,
            "a console needs a terminal; `wingman ls`, `read` and `send` work without one",
        ));
    }
    let paths = globals.paths()?;
    let config =
        ConsoleConfig::load(&paths.console_toml()).map_err(|error| config_fault(&error))?;
    let options = Options {
        places: places(globals, &paths).await?,
        focus: args.session,
        mode: match args.observe {
            true => AttachMode::Observe,
            false => AttachMode::Control,
        },
        exclusive: args.exclusive,
        takeover: args.takeover,
        full_screen: args.full_screen,
        label: label(),
        location: Location::Local,
        folder: std::env::current_dir()
            .ok()
            .and_then(|folder| folder.into_os_string().into_string().ok()),
        config,
    };
    console::run(options).await
}

/// The server that was named; else the agent on this machine, started when none runs, and the server
/// that this user is logged in to.
async fn places(globals: &Globals, paths: &Paths) -> Result<Vec<Place>, Fault> {
    let wanted = globals.wanted();
    if wanted
        .server
        .as_deref()
        .is_some_and(|server| server != "local")
    {
        let found = find(&wanted, paths)?;
        return Ok(vec![place(found).await?]);
    }
    let here = Wanted {
        server: Some("local".into()),
        ..Wanted::default()
    };
    let found = find(&here, paths)?;
    let caller = local_agent(found.clone(), globals, paths).await?;
    let mut places = vec![Place {
        name: "this machine".into(),
        local: true,
        backend: Arc::new(Remote::new(found, caller)),
    }];
    let server = login::read(&paths.login())?.is_some() || record::read(&paths.record())?.is_some();
    if server && wanted.server.is_none() {
        places.push(place(find(&wanted, paths)?).await?);
    }
    Ok(places)
}

/// Where a command means the agent on this machine: starts it when none runs.
pub(super) async fn ensure_agent(globals: &Globals) -> Result<(), Fault> {
    let paths = globals.paths()?;
    match find(&globals.wanted(), &paths)? {
        found @ Found::Local(_) => local_agent(found, globals, &paths).await.map(drop),
        Found::Server { .. } => Ok(()),
    }
}

async fn local_agent(found: Found, globals: &Globals, paths: &Paths) -> Result<Caller, Fault> {
    match connect(found.clone()).await {
        Err(fault) if fault.code_text() == Code::EndpointUnavailable.as_str() => {
            start_agent(globals, paths)?;
            wait_for_agent(found).await.map_err(|fault| {
                let log = agent_log(paths);
                let text = format!("{}; its log is {}", fault.message, log.display());
                Fault::new(Code::EndpointUnavailable, text)
            })
        }
        other => other,
    }
}

async fn place(found: Found) -> Result<Place, Fault> {
    let name = match &found {
        Found::Server { address, .. } => address.clone(),
        Found::Local(_) => "this machine".into(),
    };
    let local = matches!(found, Found::Local(_));
    let caller: Caller = connect(found.clone()).await?;
    Ok(Place {
        name,
        local,
        backend: Arc::new(Remote::new(found, caller)),
    })
}

/// Starts the agent so that it outlives this terminal; what it says goes to a file.
fn start_agent(globals: &Globals, paths: &Paths) -> Result<(), Fault> {
    let failed = |what: &str, error: std::io::Error| {
        Fault::new(
            Code::EndpointUnavailable,
            format!("start the agent: {what}: {error}"),
        )
    };
    super::private_dir(&paths.data_dir)?;
    super::private_dir(&paths.agent_dir())?;
    let executable =
        std::env::current_exe().map_err(|error| failed("find this program's file", error))?;
    let log =
        std::fs::File::create(agent_log(paths)).map_err(|error| failed("open its log", error))?;
    let second = log
        .try_clone()
        .map_err(|error| failed("open its log", error))?;
    let mut command = std::process::Command::new(executable);
    command
        .args(["agent", "run"])
        .env("WINGMAN_DATA", &paths.data_dir)
        // What this console was given for a server is not the agent's.
        .env_remove("WINGMAN_SERVER")
        .env_remove("WINGMAN_TOKEN")
        .env_remove("WINGMAN_PIN")
        .current_dir(Path::new("/"))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(second);
    background::spawn(&mut command).map_err(|error| failed("run it", error))?;
    if globals.json {
        return Ok(());
    }
    eprintln!(
        "started the agent of this machine; its log is {}",
        agent_log(paths).display()
    );
    Ok(())
}

fn agent_log(paths: &Paths) -> std::path::PathBuf {
    paths.agent_dir().join("agent.log")
}

async fn wait_for_agent(found: Found) -> Result<Caller, Fault> {
    let limit = tokio::time::Instant::now() + Duration::from_millis(limits::AGENT_START_MS);
    loop {
        match connect(found.clone()).await {
            Err(_) if tokio::time::Instant::now() < limit => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            outcome => return outcome,
        }
    }
}

/// Who this is, shown to other consoles.
fn label() -> String {
    let user = ["USER", "LOGNAME", "USERNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok());
    let host = crate::agent::identity::hostname();
    format!("{}@{host}", user.unwrap_or_else(|| "somebody".into()))
}

/// One line after the outer terminal is as it was.
fn tell(left: &Left) -> u8 {
    match left {
        Left::Detached => {
            eprintln!("detached; your sessions go on, `wingman` brings them back");
            exit::OK
        }
        Left::AllEnded => {
            eprintln!("the last session has ended");
            exit::OK
        }
        // Nobody is there to read a line.
        Left::TerminalGone | Left::Told => exit::OK,
        Left::Failed => exit::INTERNAL,
        Left::NoSuchSession(name) => {
            eprintln!("error: no terminal session {name} (session_not_found)");
            exit::FAILED
        }
    }
}
