//! The command line: clap types whose doc comments are the help, one file per command.
//!
//! Invariants: results go to stdout, everything said beside them to stderr; text from workstations is
//! hostile and loses its control characters before a terminal sees it; `--json` prints what the API
//! answers and nothing else. Commands that only call are run here, roles elsewhere.

mod agents;
mod arguments;
mod build_info;
mod events;
mod executions;
mod ipc_client;
mod monitors;
mod output;
mod roles;
mod run;
mod screenshot;
mod session;
mod terminals;
mod windows;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::base::Secret;
use crate::base::error::exit;
use crate::client::{AgentChoice, Caller, Paths, Wanted, connect, find, pick};
use crate::wire::Fault;

pub use build_info::build_info;
pub use output::report;
pub use roles::{
    AgentAction, AgentArgs, AgentRunArgs, InviteArgs, JoinArgs, ReferenceArgs, ScriptAction,
    ScriptArgs, ServerAction, ServerArgs, ServerRunArgs, UpArgs,
};
pub use terminals::AttachArgs;

/// Looks after every workstation that you are responsible for.
///
/// Without a command it opens the workspace: your terminal sessions, as `wingman attach` does.
///
/// `wingman up` starts everything on this machine. `wingman server` runs on a control host, `wingman
/// agent` on each workstation; the other commands ask them. Without a server they ask the agent on
/// this machine.
#[derive(Debug, Parser)]
#[command(name = "wingman", disable_version_flag = true)]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub struct Globals {
    /// The server to ask, such as https://host:9527; `local` is the agent on this machine.
    ///
    /// Without it: the saved login, then a running `wingman up`, then the agent on this machine.
    #[arg(long, global = true, env = "WINGMAN_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// The token for the server named; the saved login's when absent.
    #[arg(
        long,
        global = true,
        env = "WINGMAN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        value_parser = secret
    )]
    pub token: Option<Secret>,
    /// SHA-256 of the server's own certificate, as `wingman server` prints it.
    #[arg(long, global = true, env = "WINGMAN_PIN", value_name = "SHA256")]
    pub pin: Option<String>,
    /// The folder that holds everything of this user: settings, journal, database, sockets.
    #[arg(long, global = true, env = "WINGMAN_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Print JSON instead of text for people.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print the version; with --json the whole build information.
    #[arg(long, short = 'V')]
    pub version: bool,
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}

impl Globals {
    /// This user's folder.
    pub fn paths(&self) -> Result<Paths, Fault> {
        Paths::resolve(self.data.clone())
    }

    /// Which server or agent was named.
    pub fn wanted(&self) -> Wanted {
        Wanted {
            server: self.server.clone(),
            token: self.token.clone(),
            pin: self.pin.clone(),
        }
    }

    /// Connects to the server or agent that this command is for.
    pub async fn caller(&self) -> Result<Caller, Fault> {
        connect(find(&self.wanted(), &self.paths()?)?).await
    }

    /// The same, pointed at one workstation.
    async fn caller_for(&self, target: &Target) -> Result<Caller, Fault> {
        let choice = AgentChoice {
            name: target.agent.clone(),
            tag: target.tag.clone(),
        };
        pick(self.caller().await?, &choice).await
    }
}

/// Which workstation.
#[derive(Clone, Debug, Default, Args)]
pub struct Target {
    /// The workstation's id or host name.
    #[arg(long, value_name = "NAME", conflicts_with = "tag")]
    pub agent: Option<String>,
    /// The one workstation with this tag.
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    Up(UpArgs),
    Server(ServerArgs),
    Agent(AgentArgs),
    Script(ScriptArgs),
    Attach(AttachArgs),
    #[command(flatten)]
    Client(ClientCommand),
    #[command(hide = true)]
    Reference(ReferenceArgs),
    /// Own the injecting connection and release every held key when standard input closes.
    #[command(hide = true)]
    InputGuard,
}

/// The commands that ask a server or an agent.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    Run(run::RunArgs),
    Executions(executions::ExecutionsArgs),
    New(terminals::NewArgs),
    Ls(terminals::LsArgs),
    Detach(terminals::DetachArgs),
    /// End a session: its processes are asked to end, and killed after 2 seconds.
    ///
    /// A session that has ended already is forgotten.
    Kill(terminals::OneArgs),
    Rename(terminals::RenameArgs),
    Send(terminals::SendArgs),
    Read(terminals::ReadArgs),
    Wait(terminals::WaitArgs),
    /// Say why a session's state is shown as it is.
    Explain(terminals::OneArgs),
    Lease(terminals::LeaseArgs),
    Record(terminals::RecordArgs),
    Grants(terminals::GrantsArgs),
    Restore(terminals::RestoreArgs),
    Debug(terminals::DebugArgs),
    Agents(agents::AgentsArgs),
    Screenshot(screenshot::ScreenshotArgs),
    Windows(windows::WindowsArgs),
    Monitors(monitors::MonitorsArgs),
    Events(events::EventsArgs),
    IpcClient(ipc_client::IpcClientArgs),
    Login(session::LoginArgs),
    Logout(session::LogoutArgs),
    Dashboard(session::DashboardArgs),
}

/// Reads the command line. Help, the version and errors are printed here, and their exit code comes
/// back instead.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<(Globals, Command), u8> {
    let cli = Cli::try_parse_from(args).map_err(|error| {
        // Nothing is left to tell when the terminal has gone.
        let _ = error.print();
        if error.use_stderr() {
            exit::USAGE
        } else {
            exit::OK
        }
    })?;
    if cli.globals.version {
        build_info::print(cli.globals.json);
        return Err(exit::OK);
    }
    let command = cli
        .command
        .unwrap_or_else(|| Command::Attach(AttachArgs::default()));
    Ok((cli.globals, command))
}

/// The command line as clap sees it, for the reference.
pub fn definition() -> clap::Command {
    Cli::command()
}

/// Runs a command that asks a server or an agent; answers its exit code. Errors are printed.
/// Needs a tokio runtime.
pub async fn run(command: ClientCommand, globals: &Globals) -> u8 {
    let done = match command {
        ClientCommand::Run(args) => run::run(args, globals).await,
        ClientCommand::Executions(args) => executions::run(args, globals).await,
        ClientCommand::New(args) => terminals::new(args, globals).await,
        ClientCommand::Ls(args) => terminals::ls(args, globals).await,
        ClientCommand::Detach(args) => terminals::detach(args, globals).await,
        ClientCommand::Kill(args) => terminals::kill(args, globals).await,
        ClientCommand::Rename(args) => terminals::rename(args, globals).await,
        ClientCommand::Send(args) => terminals::send(args, globals).await,
        ClientCommand::Read(args) => terminals::read(args, globals).await,
        ClientCommand::Wait(args) => terminals::wait(args, globals).await,
        ClientCommand::Explain(args) => terminals::explain(args, globals).await,
        ClientCommand::Lease(args) => terminals::lease(args, globals).await,
        ClientCommand::Record(args) => terminals::record(args, globals).await,
        ClientCommand::Grants(args) => terminals::grants(args, globals).await,
        ClientCommand::Restore(args) => terminals::restore(args, globals).await,
        ClientCommand::Debug(args) => terminals::debug(args, globals).await,
        ClientCommand::Agents(args) => agents::run(args, globals).await,
        ClientCommand::Screenshot(args) => screenshot::run(args, globals).await,
        ClientCommand::Windows(args) => windows::run(args, globals).await,
        ClientCommand::Monitors(args) => monitors::run(args, globals).await,
        ClientCommand::Events(args) => events::run(args, globals).await,
        ClientCommand::IpcClient(args) => ipc_client::run(args, globals).await,
        ClientCommand::Login(args) => session::login(args, globals).await,
        ClientCommand::Logout(args) => session::logout(args, globals).await,
        ClientCommand::Dashboard(args) => session::dashboard(args, globals).await,
    };
    done.unwrap_or_else(|fault| report(&fault, globals.json))
}

/// Asks the running server for a join string (`wingman server invite`).
pub async fn invite(args: InviteArgs, globals: &Globals) -> u8 {
    agents::invite(args, globals)
        .await
        .unwrap_or_else(|fault| report(&fault, globals.json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn every_command_and_option_is_explained() {
        fn check(command: &clap::Command) {
            let path = command.get_name();
            if !command.is_hide_set() {
                assert!(command.get_about().is_some(), "{path}");
            }
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{path} {}", arg.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        check(&definition());
    }

    #[test]
    fn bad_use_is_exit_code_two() {
        let parse = |args: &[&str]| parse(args.iter().map(OsString::from)).map(drop);
        assert_eq!(parse(&["wingman", "nonsense"]), Err(exit::USAGE));
        assert_eq!(parse(&["wingman", "--version"]), Err(exit::OK));
        assert!(parse(&["wingman", "executions", "--json"]).is_ok());
        assert_eq!(
            parse(&["wingman", "windows", "--agent", "a", "--tag", "b"]),
            Err(exit::USAGE)
        );
    }
}
