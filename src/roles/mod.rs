//! Composition: build the parts, wire them, run, shut down. The only module that may name all others.

mod agent;
mod console;
mod logging;
mod reference;
mod remote;
mod server;
mod up;

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use crate::base::error::exit;
use crate::cli::{self, AgentAction, ClientCommand, Command, Globals, ServerAction};
use crate::wire::{Code, Fault};

/// Runs what the command line asks for.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (globals, command) = match cli::parse(args) {
        Ok(parsed) => parsed,
        Err(code) => return ExitCode::from(code),
    };
    ExitCode::from(run(&globals, command))
}

fn run(globals: &Globals, command: Command) -> u8 {
    match command {
        // `main` has taken it already; here it is only a name in the help of the reference.
        Command::InputGuard => exit::USAGE,
        Command::Script(args) => told(globals, reference::script(args)),
        Command::Reference(args) => told(globals, reference::write(&args)),
        Command::Up(args) => serving(globals, up::run(args, globals)),
        Command::Server(args) => match args.action {
            None => serving(globals, server::run(args.run, globals)),
            Some(ServerAction::Invite(args)) => calling(globals, cli::invite(args, globals)),
        },
        Command::Agent(args) => match args.action {
            AgentAction::Run(args) => serving(globals, agent::run(args, globals)),
            AgentAction::Join(args) => serving(globals, agent::join(args, globals)),
        },
        Command::Attach(args) => calling(globals, console::attach(args, globals)),
        Command::Client(command) => calling(globals, client(command, globals)),
    }
}

/// Runs a command that asks a server or an agent; where it brings sessions to this machine, the agent is
/// started when none runs.
async fn client(command: ClientCommand, globals: &Globals) -> u8 {
    let starts = matches!(command, ClientCommand::New(_) | ClientCommand::Restore(_));
    if starts && let Err(fault) = console::ensure_agent(globals).await {
        return cli::report(&fault, globals.json);
    }
    cli::run(command, globals).await
}

fn told(globals: &Globals, outcome: Result<(), Fault>) -> u8 {
    match outcome {
        Ok(()) => exit::OK,
        Err(fault) => cli::report(&fault, globals.json),
    }
}

/// Runs a caller: one thread is enough.
fn calling(globals: &Globals, work: impl Future<Output = u8>) -> u8 {
    match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => cli::report(&Fault::internal(format!("start: {error}")), globals.json),
    }
}

/// Runs a role until it ends.
fn serving(globals: &Globals, work: impl Future<Output = Result<(), Fault>>) -> u8 {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(work);
            // Native calls of scripts may still be under way; they hold nothing that matters.
            runtime.shutdown_background();
            told(globals, outcome)
        }
        Err(error) => cli::report(&Fault::internal(format!("start: {error}")), globals.json),
    }
}

/// Edges need few threads: work that blocks has threads of its own.
const WORKER_THREADS: usize = 2;

/// Fires at Ctrl-C, SIGTERM or their like; a second one ends the process at once.
fn stop_signal() -> Result<CancellationToken, Fault> {
    let token = CancellationToken::new();
    let fired = token.clone();
    let mut signals = crate::platform::native::StopSignals::new()
        .map_err(|error| Fault::internal(format!("listen for signals: {error}")))?;
    tokio::spawn(async move {
        signals.recv().await;
        fired.cancel();
        signals.recv().await;
        std::process::exit(i32::from(exit::INTERRUPTED));
    });
    Ok(token)
}

fn config_fault(error: &crate::config::ConfigError) -> Fault {
    Fault::new(Code::ConfigInvalid, error.to_string())
}

/// Makes a folder of the user's own.
fn private_dir(dir: &std::path::Path) -> Result<(), Fault> {
    crate::platform::local_socket::private_dir(dir).map_err(|error| {
        Fault::new(
            Code::StorageFailed,
            format!("make the folder {}: {error}", dir.display()),
        )
    })
}

/// A database error at start.
fn store_fault(error: &crate::store::StoreError) -> Fault {
    let code = match error {
        crate::store::StoreError::Full => Code::StorageFull,
        crate::store::StoreError::TooNew { .. } => Code::ConfigInvalid,
        _ => Code::StorageFailed,
    };
    Fault::new(code, error.to_string())
}
