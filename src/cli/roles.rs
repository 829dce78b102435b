//! The arguments of the commands that `roles` carries out.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Start server and agent in one process on this machine.
///
/// Prints where the API listens and how to run a first script; ends with Ctrl-C.
#[derive(Clone, Debug, Args)]
pub struct UpArgs {
    /// Where the API listens; server.toml's address when absent.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// The display to look after, such as :0; `none` works without one.
    #[arg(long, value_name = "DISPLAY")]
    pub display: Option<String>,
}

/// Run the server on a control host, or ask a running one.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServerArgs {
    #[command(subcommand)]
    pub action: Option<ServerAction>,
    #[command(flatten)]
    pub run: ServerRunArgs,
}

/// How to run the server.
#[derive(Clone, Debug, Default, Args)]
pub struct ServerRunArgs {
    /// server.toml; the one in the data folder when absent.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the API listens; server.toml's address when absent.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Where agents connect; server.toml's address when absent.
    #[arg(long, value_name = "ADDRESS")]
    pub agents_listen: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ServerAction {
    Invite(InviteArgs),
}

/// Print a join string for one workstation: single use, valid for 15 minutes.
#[derive(Clone, Debug, Default, Args)]
pub struct InviteArgs {
    /// The address that the workstation will dial, where it is not the one listened on.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,
}

/// Look after this workstation.
#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    #[command(subcommand)]
    pub action: AgentAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum AgentAction {
    Run(AgentRunArgs),
    Join(JoinArgs),
}

/// Run the agent: local IPC, and the link to the server once joined.
#[derive(Clone, Debug, Default, Args)]
pub struct AgentRunArgs {
    /// agent.toml; the one in the data folder when absent.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The display to look after, such as :0; `none` works without one.
    #[arg(long, value_name = "DISPLAY")]
    pub display: Option<String>,
}

/// Join a server with the string that `wingman server invite` printed there.
#[derive(Clone, Debug, Args)]
pub struct JoinArgs {
    /// The join string; `-` reads it from standard input.
    #[arg(value_name = "STRING")]
    pub join: String,
    /// agent.toml; the one in the data folder when absent.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Print what scripts can use.
#[derive(Clone, Debug, Args)]
pub struct ScriptArgs {
    #[command(subcommand)]
    pub action: ScriptAction,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ScriptAction {
    /// Print the reference of the script functions as Markdown.
    Docs,
    /// Write type definitions for editors (Luau and LuaCATS).
    Stubs {
        /// The folder to write to.
        #[arg(long, short = 'o', value_name = "DIR", default_value = ".")]
        out: PathBuf,
    },
}

/// Write the reference pages.
#[derive(Clone, Debug, Args)]
pub struct ReferenceArgs {
    /// The folder to write to.
    #[arg(long, value_name = "DIR", default_value = "docs/reference")]
    pub out: PathBuf,
}
