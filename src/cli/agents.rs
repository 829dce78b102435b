//! `wingman agents`: the workstations that the server knows.

use clap::{Args, Subcommand};

use super::output::{self, clean, time};
use super::{Globals, InviteArgs};
use crate::base::EpochMillis;
use crate::base::error::exit;
use crate::base::ids::AgentId;
use crate::client::{AgentChoice, Caller, pick};
use crate::wire::messages::agents::{
    Agent, AgentRef, AgentStatus, Invite, InviteParams, List, ListParams, ListReply, Revoke,
    SetTags, SetTagsParams, Show, Split, SplitParams,
};
use crate::wire::messages::system::{GetStatus, Shutdown};
use crate::wire::messages::{Empty, system};
use crate::wire::{Code, Fault};

/// List workstations, or look after one.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct AgentsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// Only those with this tag.
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List workstations.
    List {
        /// Only those with this tag.
        #[arg(long, value_name = "TAG")]
        tag: Option<String>,
    },
    /// Show one workstation.
    Show {
        /// The workstation's id or host name.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Replace a workstation's tags.
    Tags {
        /// The workstation's id or host name.
        #[arg(value_name = "NAME")]
        name: String,
        /// The new tags; none removes all.
        #[arg(value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Stop the agent on a workstation; its runs are stopped first.
    Shutdown {
        /// The workstation's id or host name.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Delete a workstation's key and close its link at once.
    Revoke {
        /// The workstation's id or host name.
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Print a join string for one workstation: single use, valid for 15 minutes.
    Invite(InviteArgs),
    /// End a quarantine: one of the two processes that hold a key may go on.
    Split {
        /// The workstation's id or host name.
        #[arg(value_name = "NAME")]
        name: String,
        /// The instance that goes on; the other must join anew.
        #[arg(long, value_name = "INSTANCE")]
        keep: String,
    },
}

pub(super) async fn run(args: AgentsArgs, globals: &Globals) -> Result<u8, Fault> {
    let action = args.action.unwrap_or(Action::List { tag: args.tag });
    if let Action::Invite(args) = action {
        return invite(args, globals).await;
    }
    let caller = globals.caller().await?;
    match action {
        Action::List { tag } => print_list(&list(&caller, tag).await?, globals.json),
        Action::Show { name } => {
            let agent = if caller.is_local() {
                let caller = pick(caller, &named(&name)).await?;
                local(&caller).await?
            } else {
                let agent_id = resolve(&caller, &name).await?;
                caller.call::<Show>(&AgentRef { agent_id }).await?
            };
            print_one(&agent, globals.json);
        }
        Action::Tags { name, tags } => {
            let agent_id = resolve(&caller, &name).await?;
            let params = SetTagsParams { agent_id, tags };
            print_one(&caller.call::<SetTags>(&params).await?, globals.json);
        }
        Action::Shutdown { name } => {
            let caller = pick(caller, &named(&name)).await?;
            let done = caller.call::<Shutdown>(&Empty {}).await?;
            say(&format!("{name} is stopping"), &done, globals.json);
        }
        Action::Revoke { name } => {
            let agent_id = resolve(&caller, &name).await?;
            let done = caller.call::<Revoke>(&AgentRef { agent_id }).await?;
            say(&format!("{name} is revoked"), &done, globals.json);
        }
        Action::Split { name, keep } => {
            let params = SplitParams {
                agent_id: resolve(&caller, &name).await?,
                keep_instance: keep,
            };
            print_one(&caller.call::<Split>(&params).await?, globals.json);
        }
        Action::Invite(_) => {}
    }
    Ok(exit::OK)
}

/// Prints a join string: alone on stdout, so that it can be piped.
pub(super) async fn invite(args: InviteArgs, globals: &Globals) -> Result<u8, Fault> {
    let caller = globals.caller().await?;
    needs_server(&caller)?;
    let params = InviteParams {
        address: args.address,
    };
    let reply = caller.call::<Invite>(&params).await?;
    if globals.json {
        output::json(&reply);
    } else {
        output::line(&reply.join);
        output::note(&format!(
            "run on the workstation before {}: wingman agent join STRING",
            reply.expires_at.rfc3339()
        ));
    }
    Ok(exit::OK)
}

fn needs_server(caller: &Caller) -> Result<(), Fault> {
    if caller.is_local() {
        let text = "no server is known: name one with --server, or log in with wingman login";
        return Err(Fault::new(Code::EndpointUnavailable, text));
    }
    Ok(())
}

fn named(name: &str) -> AgentChoice {
    AgentChoice {
        name: Some(name.to_owned()),
        tag: None,
    }
}

async fn resolve(caller: &Caller, name: &str) -> Result<AgentId, Fault> {
    needs_server(caller)?;
    match pick(caller.clone(), &named(name)).await? {
        Caller::Http {
            agent: Some(agent), ..
        } => Ok(agent),
        Caller::Http { .. } | Caller::Ipc(_) => {
            Err(Fault::new(Code::NotFound, format!("no workstation {name}")))
        }
    }
}

/// Without a server the agent on this machine is the only one.
async fn list(caller: &Caller, tag: Option<String>) -> Result<ListReply, Fault> {
    if !caller.is_local() {
        return caller.call::<List>(&ListParams { tag, status: None }).await;
    }
    if tag.is_some() {
        needs_server(caller)?;
    }
    Ok(ListReply {
        items: vec![local(caller).await?],
        total: 1,
    })
}

async fn local(caller: &Caller) -> Result<Agent, Fault> {
    let status: system::Status = caller.call::<GetStatus>(&Empty {}).await?;
    let agent_id = AgentId::parse(status.agent_id)
        .map_err(|error| Fault::new(Code::InvalidMessage, error.to_string()))?;
    let state = if status.running_scripts > 0 {
        AgentStatus::Busy
    } else {
        AgentStatus::Idle
    };
    Ok(Agent {
        agent_id,
        hostname: status.hostname,
        ip: None,
        status: state,
        platform: std::env::consts::OS.to_owned(),
        arch: Some(std::env::consts::ARCH.to_owned()),
        version: Some(status.version),
        protocol: None,
        instance_id: Some(status.instance_id),
        epoch: 0,
        resources: None,
        link: None,
        last_seen: Some(EpochMillis::now()),
        current_task: String::new(),
        tags: Vec::new(),
        capabilities: status.capabilities,
        unknown_capabilities: Vec::new(),
        rivals: Vec::new(),
    })
}

fn say(text: &str, done: &Empty, json: bool) {
    if json {
        output::json(done);
    } else {
        output::note(&clean(text));
    }
}

fn status_text(status: AgentStatus) -> String {
    match serde_json::to_value(status) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

fn print_list(reply: &ListReply, json: bool) {
    if json {
        output::json(reply);
        return;
    }
    let rows = reply.items.iter().map(|agent| {
        vec![
            agent.agent_id.to_string(),
            agent.hostname.clone(),
            status_text(agent.status),
            agent.platform.clone(),
            agent.tags.join(","),
            time(agent.last_seen),
        ]
    });
    let header = ["ID", "HOST", "STATUS", "PLATFORM", "TAGS", "LAST SEEN"];
    output::table(&header, rows.collect());
}

fn print_one(agent: &Agent, json: bool) {
    if json {
        output::json(agent);
        return;
    }
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let mut rows = vec![
        vec!["id".into(), agent.agent_id.to_string()],
        vec!["host".into(), agent.hostname.clone()],
        vec!["status".into(), status_text(agent.status)],
        vec!["platform".into(), agent.platform.clone()],
        vec!["version".into(), optional(&agent.version)],
        vec!["address".into(), optional(&agent.ip)],
        vec!["instance".into(), optional(&agent.instance_id)],
        vec!["last seen".into(), time(agent.last_seen)],
        vec!["tags".into(), agent.tags.join(", ")],
        vec!["capabilities".into(), agent.capabilities.join(", ")],
    ];
    if let Some(resources) = &agent.resources {
        let percent = |value: Option<f64>| {
            value.map_or_else(|| "unknown".into(), |value| format!("{value:.0} %"))
        };
        rows.push(vec!["cpu".into(), percent(resources.cpu.usage)]);
        rows.push(vec!["memory".into(), percent(resources.memory.usage)]);
        rows.push(vec!["disk".into(), percent(resources.disk.usage)]);
    }
    output::table(&[], rows);
}
