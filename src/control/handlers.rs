//! The handlers of the method table's rows that this server answers itself.

use std::future::ready;
use std::sync::Arc;

use super::methods::{Caller, Methods, Reply};
use super::server::Shared;
use super::{audit, auth};
use crate::base::EpochMillis;
use crate::wire::messages::Empty;
use crate::wire::messages::agents;
use crate::wire::messages::auth as auth_messages;
use crate::wire::messages::events::Follow;
use crate::wire::messages::executions as runs;
use crate::wire::messages::scripts;

/// Registers them all.
pub fn register(methods: &mut Methods, shared: &Arc<Shared>) {
    register_auth(methods, shared);
    register_runs(methods, shared);
    register_agents(methods, shared);
    let server = Arc::clone(shared);
    methods.special::<Follow, _, _>(move |caller, params| {
        let server = Arc::clone(&server);
        async move { server.streams.open(caller.identity()?, params).await }
    });
    let server = Arc::clone(shared);
    methods.typed::<auth_messages::Audit, _, _>(move |_, params| {
        let server = Arc::clone(&server);
        async move { audit::list(&server.store, params).await }
    });
}

fn register_auth(methods: &mut Methods, shared: &Arc<Shared>) {
    methods.typed::<auth_messages::Whoami, _, _>(|caller: Caller, Empty {}| async move {
        Ok(auth::me(caller.identity()?))
    });
    let auth = Arc::clone(&shared.auth);
    methods.typed::<auth_messages::TicketCreate, _, _>(move |caller: Caller, Empty {}| {
        let auth = Arc::clone(&auth);
        async move {
            let ticket = auth.make_ticket(caller.identity()?).await?;
            Ok(auth_messages::Ticket {
                url: format!("{}/login?ticket={}", caller.base_url, ticket.text.expose()),
                expires_at: EpochMillis::rfc3339(ticket.expires_at),
            })
        }
    });
    let auth = Arc::clone(&shared.auth);
    methods.typed::<auth_messages::SessionList, _, _>(move |caller: Caller, Empty {}| {
        let auth = Arc::clone(&auth);
        async move { auth.sessions(caller.identity()?).await }
    });
    let auth = Arc::clone(&shared.auth);
    methods.typed::<auth_messages::SessionRevoke, _, _>(move |caller: Caller, params| {
        let auth = Arc::clone(&auth);
        async move {
            auth.revoke_session(caller.identity()?, &params.id).await?;
            Ok(Empty {})
        }
    });
    let auth = Arc::clone(&shared.auth);
    methods.typed::<auth_messages::TokenList, _, _>(move |caller: Caller, Empty {}| {
        let auth = Arc::clone(&auth);
        async move { auth.tokens(caller.identity()?).await }
    });
    let auth = Arc::clone(&shared.auth);
    methods.typed::<auth_messages::TokenCreate, _, _>(move |caller: Caller, params| {
        let auth = Arc::clone(&auth);
        async move { auth.create_token(caller.identity()?, params).await }
    });
    let auth = Arc::clone(&shared.auth);
    methods.typed::<auth_messages::TokenRevoke, _, _>(move |caller: Caller, params| {
        let auth = Arc::clone(&auth);
        async move {
            auth.revoke_token(caller.identity()?, &params.id).await?;
            Ok(Empty {})
        }
    });
}

fn register_runs(methods: &mut Methods, shared: &Arc<Shared>) {
    let all = &shared.executions;
    let executions = Arc::clone(all);
    methods.on_agent::<scripts::Run, _, _>(move |caller, agent, params| {
        let executions = Arc::clone(&executions);
        async move { executions.run(caller, agent, params).await }
    });
    let executions = Arc::clone(all);
    methods.on_agent::<scripts::Stop, _, _>(move |_, agent, params| {
        let executions = Arc::clone(&executions);
        async move { executions.stop_script(agent, params).await }
    });
    let executions = Arc::clone(all);
    methods.typed::<runs::List, _, _>(move |_, params| {
        let executions = Arc::clone(&executions);
        async move { executions.list(params).await }
    });
    let executions = Arc::clone(all);
    methods.typed::<runs::Get, _, _>(move |_, params| {
        let executions = Arc::clone(&executions);
        async move { executions.get(params.execution_id).await }
    });
    let executions = Arc::clone(all);
    methods.typed::<runs::Wait, _, _>(move |_, params| {
        let executions = Arc::clone(&executions);
        async move { executions.wait(params).await }
    });
    let executions = Arc::clone(all);
    methods.typed::<runs::Logs, _, _>(move |_, params| {
        let executions = Arc::clone(&executions);
        async move { executions.logs(params).await }
    });
    let executions = Arc::clone(all);
    methods.special::<runs::GetArtifact, _, _>(move |_, params| {
        let executions = Arc::clone(&executions);
        async move { executions.artifact(params).await.map(Reply::Answer) }
    });
    let executions = Arc::clone(all);
    methods.typed::<runs::Cancel, _, _>(move |_, params| {
        let executions = Arc::clone(&executions);
        async move { executions.cancel(params.execution_id).await }
    });
}

fn register_agents(methods: &mut Methods, shared: &Arc<Shared>) {
    let all = &shared.registry;
    let registry = Arc::clone(all);
    methods.typed::<agents::List, _, _>(move |_, params| ready(Ok(registry.list(&params))));
    let registry = Arc::clone(all);
    methods.typed::<agents::Show, _, _>(move |_, params| ready(registry.show(&params.agent_id)));
    let registry = Arc::clone(all);
    methods.typed::<agents::SetTags, _, _>(move |_, params| {
        let registry = Arc::clone(&registry);
        async move { registry.set_tags(params).await }
    });
    let server = Arc::clone(shared);
    methods.typed::<agents::Revoke, _, _>(move |_, params| {
        let server = Arc::clone(&server);
        async move {
            server.registry.revoke(&params.agent_id).await?;
            // A revoked workstation does not come back with an outcome.
            server.executions.give_up(&params.agent_id).await?;
            Ok(Empty {})
        }
    });
    let registry = Arc::clone(all);
    methods.typed::<agents::Split, _, _>(move |_, params| {
        let registry = Arc::clone(&registry);
        async move { registry.split(params).await }
    });
    let links = Arc::clone(&shared.links);
    methods.typed::<agents::Invite, _, _>(move |_, params| links.invite(params));
    let registry = Arc::clone(all);
    methods.typed::<agents::TokenListing, _, _>(move |_, Empty {}| {
        let registry = Arc::clone(&registry);
        async move { registry.list_tokens().await }
    });
    let registry = Arc::clone(all);
    methods.typed::<agents::TokenCreate, _, _>(move |_, params| {
        let registry = Arc::clone(&registry);
        async move { registry.create_token(params).await }
    });
    let registry = Arc::clone(all);
    methods.typed::<agents::TokenRevoke, _, _>(move |_, params| {
        let registry = Arc::clone(&registry);
        async move {
            registry.revoke_token(&params.id).await?;
            Ok(Empty {})
        }
    });
}
