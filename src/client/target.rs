//! Which workstation a command is for.

use super::Caller;
use crate::base::ids::AgentId;
use crate::wire::messages::agents::{self, Agent, AgentStatus};
use crate::wire::messages::{Empty, system};
use crate::wire::{Code, Fault};

/// What the command line says about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentChoice {
    /// An agent's id or host name.
    pub name: Option<String>,
    pub tag: Option<String>,
}

/// Points the caller at one workstation: the named one, the only one with the tag, or the only one
/// there is. Errors: `agent_ambiguous` with the names, `agent_unknown`, `agent_offline`.
///
/// A local agent is the only one; a name that is not its own is an error.
pub async fn pick(caller: Caller, choice: &AgentChoice) -> Result<Caller, Fault> {
    match caller {
        Caller::Ipc(_) => {
            check_local(&caller, choice).await?;
            Ok(caller)
        }
        Caller::Http { ref http, .. } => {
            let list = agents::ListParams {
                tag: choice.tag.clone(),
                status: None,
            };
            let found = caller.call::<agents::List>(&list).await?.items;
            let agent = select(found, choice)?;
            Ok(Caller::Http {
                http: http.clone(),
                agent: Some(agent),
            })
        }
    }
}

async fn check_local(caller: &Caller, choice: &AgentChoice) -> Result<(), Fault> {
    if choice.tag.is_some() {
        let text = "tags are kept by a server, and none is known here; see --server";
        return Err(Fault::new(Code::AgentUnknown, text));
    }
    let Some(name) = &choice.name else {
        return Ok(());
    };
    let status = caller.call::<system::GetStatus>(&Empty {}).await?;
    if *name == status.agent_id || *name == status.hostname {
        return Ok(());
    }
    let text = format!(
        "the agent on this machine is {} ({}), and no server is known for {name}",
        status.agent_id, status.hostname
    );
    Err(Fault::new(Code::AgentUnknown, text))
}

fn select(found: Vec<Agent>, choice: &AgentChoice) -> Result<AgentId, Fault> {
    let fits = |agent: &Agent| match &choice.name {
        Some(name) => agent.agent_id.as_str() == name || agent.hostname == *name,
        // Without a name a revoked workstation is none to choose from.
        None => agent.status != AgentStatus::Revoked,
    };
    let mut fitting: Vec<Agent> = found.into_iter().filter(fits).collect();
    // An id is unique, a host name need not be.
    if let Some(at) = fitting
        .iter()
        .position(|agent| Some(agent.agent_id.as_str()) == choice.name.as_deref())
    {
        return Ok(fitting.swap_remove(at).agent_id);
    }
    match fitting.as_slice() {
        [agent] => Ok(agent.agent_id.clone()),
        [] => Err(none(choice)),
        several => {
            let names: Vec<String> = several.iter().map(describe).collect();
            let text = format!(
                "several workstations fit, name one with --agent: {}",
                names.join(", ")
            );
            Err(Fault::new(Code::AgentAmbiguous, text))
        }
    }
}

fn describe(agent: &Agent) -> String {
    if agent.hostname.is_empty() || agent.hostname == agent.agent_id.as_str() {
        agent.agent_id.to_string()
    } else {
        format!("{} ({})", agent.agent_id, agent.hostname)
    }
}

fn none(choice: &AgentChoice) -> Fault {
    match (&choice.name, &choice.tag) {
        (Some(name), _) => Fault::new(Code::NotFound, format!("no workstation {name}")),
        (None, Some(tag)) => Fault::new(Code::NotFound, format!("no workstation has tag {tag}")),
        (None, None) => Fault::new(
            Code::AgentOffline,
            "no workstation has joined this server yet",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(id: &str, host: &str, status: AgentStatus) -> Agent {
        Agent {
            agent_id: AgentId::parse(id).unwrap(),
            hostname: host.into(),
            ip: None,
            status,
            platform: "linux".into(),
            arch: None,
            version: None,
            protocol: None,
            instance_id: None,
            epoch: 0,
            resources: None,
            link: None,
            last_seen: None,
            current_task: String::new(),
            tags: Vec::new(),
            capabilities: Vec::new(),
            unknown_capabilities: Vec::new(),
            rivals: Vec::new(),
        }
    }

    fn named(name: &str) -> AgentChoice {
        AgentChoice {
            name: Some(name.into()),
            tag: None,
        }
    }

    #[test]
    fn several_without_a_name_are_told_by_name() {
        let two = || {
            vec![
                agent("a", "host-a", AgentStatus::Online),
                agent("b", "b", AgentStatus::Busy),
            ]
        };
        let fault = select(two(), &AgentChoice::default()).unwrap_err();
        assert_eq!(fault.code, Code::AgentAmbiguous);
        assert_eq!(fault.kind().exit_code(), 2);
        assert!(fault.message.contains("a (host-a), b"), "{fault}");
        assert_eq!(select(two(), &named("host-a")).unwrap().as_str(), "a");
        assert_eq!(select(two(), &named("b")).unwrap().as_str(), "b");
        assert!(select(two(), &named("c")).is_err());
    }

    #[test]
    fn the_only_one_is_taken_and_revoked_ones_do_not_count() {
        let found = vec![
            agent("a", "h", AgentStatus::Revoked),
            agent("b", "h", AgentStatus::Offline),
        ];
        let choice = AgentChoice::default();
        assert_eq!(select(found, &choice).unwrap().as_str(), "b");
        let code = select(Vec::new(), &choice).unwrap_err().code;
        assert_eq!(code, Code::AgentOffline);
    }
}
