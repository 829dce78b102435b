//! The handlers of `session.*` and `footprint.get` over HTTP.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Terminals;
use crate::control::methods::{Ask, Methods, Reply};
use crate::wire::messages::sessions as messages;
use crate::wire::{Answer, Call, Code, Fault, Method, Origin};

/// Registers them all.
pub fn register(methods: &mut Methods, terminals: &Arc<Terminals>) {
    let all = Arc::clone(terminals);
    methods.typed::<messages::List, _, _>(move |caller, params| {
        let terminals = Arc::clone(&all);
        async move { terminals.list(caller.identity()?, &params).await }
    });
    let all = Arc::clone(terminals);
    methods.typed::<messages::GetFootprint, _, _>(move |caller, params| {
        let terminals = Arc::clone(&all);
        async move { terminals.footprint(caller.identity()?, &params).await }
    });
    let all = Arc::clone(terminals);
    methods.typed::<messages::Grants, _, _>(move |_, params| {
        let terminals = Arc::clone(&all);
        async move { terminals.grants(params).await }
    });
    let all = Arc::clone(terminals);
    methods.typed::<messages::AddGrant, _, _>(move |_, params| {
        let terminals = Arc::clone(&all);
        async move { terminals.add_grant(params).await }
    });
    let all = Arc::clone(terminals);
    methods.typed::<messages::DropGrant, _, _>(move |_, params| {
        let terminals = Arc::clone(&all);
        async move { terminals.revoke_grant(params).await }
    });
    let all = Arc::clone(terminals);
    methods.asked::<messages::Create, _, _>(move |ask| {
        let terminals = Arc::clone(&all);
        async move { terminals.create(ask).await }
    });
    forwarded::<messages::Get>(methods, terminals);
    forwarded::<messages::Resize>(methods, terminals);
    forwarded::<messages::Rename>(methods, terminals);
    forwarded::<messages::Kill>(methods, terminals);
    forwarded::<messages::Send>(methods, terminals);
    forwarded::<messages::Read>(methods, terminals);
    forwarded::<messages::Picture>(methods, terminals);
    forwarded::<messages::Search>(methods, terminals);
    forwarded::<messages::Wait>(methods, terminals);
    forwarded::<messages::Explain>(methods, terminals);
    forwarded::<messages::SetLease>(methods, terminals);
    forwarded::<messages::Detach>(methods, terminals);
    forwarded::<messages::Record>(methods, terminals);
}

/// Registers a method that goes to the workstation where the session lives.
fn forwarded<M: Method>(methods: &mut Methods, terminals: &Arc<Terminals>) {
    let all = Arc::clone(terminals);
    methods.asked::<M, _, _>(move |ask| {
        let terminals = Arc::clone(&all);
        async move { terminals.forward::<M>(ask).await }
    });
}

/// Takes a text out of the parameters; one that looks like a number came as one.
fn take(params: &mut Map<String, Value>, name: &str) -> Option<String> {
    match params.remove(name)? {
        Value::String(text) => Some(text).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

impl Terminals {
    async fn forward<M: Method>(&self, ask: Ask) -> Result<Reply, Fault> {
        let who = ask.caller.identity()?;
        self.may_anywhere(who, M::PERMISSION).await?;
        let mut params = ask.params;
        let machine = take(&mut params, "machine");
        let id = take(&mut params, "id")
            .ok_or_else(|| Fault::invalid_params(M::NAME, "id is missing"))?;
        params.insert("id".to_owned(), id.clone().into());
        check::<M>(&params)?;
        let takes_over = M::NAME == messages::SetLease::NAME
            && params.get("action").and_then(Value::as_str) == Some("take_over");
        let place = self.find(&id, machine.as_deref()).await?;
        self.may(who, M::PERMISSION, &place).await?;
        if takes_over {
            self.may(who, crate::wire::Permission::SessionsManage, &place)
                .await?;
        }
        params.insert("id".to_owned(), place.session.id.as_str().into());
        self.send::<M>(&place.agent, params).await
    }

    async fn create(&self, ask: Ask) -> Result<Reply, Fault> {
        let mut params = ask.params;
        let machine = take(&mut params, "machine");
        check::<messages::Create>(&params)?;
        let agent = self.choose(machine.as_deref())?;
        self.send::<messages::Create>(&agent, params).await
    }

    async fn send<M: Method>(
        &self,
        agent: &crate::base::ids::AgentId,
        params: Map<String, Value>,
    ) -> Result<Reply, Fault> {
        let origin = Origin::Server { epoch: 0 };
        let call = Call::new(M::NAME, Value::Object(params), origin);
        // A caller that hangs up drops this future, and with it the call on the workstation.
        let _cancel = call.cancel.clone().drop_guard();
        let mut answer = self.links.call(agent, call).await?;
        if let Some(blob) = &mut answer.blob {
            // Pictures alone come with bytes, whatever the workstation calls them.
            "image/png".clone_into(&mut blob.content_type);
        }
        // What does not read as the reply does not leave.
        let reply: M::Reply = serde_json::from_value(answer.data).map_err(|error| {
            let text = format!("read the answer of {agent}: {error}");
            Fault::new(Code::InvalidMessage, text)
        })?;
        let mut data = Answer::of(&reply)?.data;
        if let Some(machine) = data.get_mut("machine") {
            *machine = agent.as_str().into();
        }
        Ok(Reply::Answer(Answer {
            data,
            blob: answer.blob,
            stream: None,
        }))
    }
}

fn check<M: Method>(params: &Map<String, Value>) -> Result<(), Fault> {
    serde_json::from_value::<M::Params>(Value::Object(params.clone()))
        .map(drop)
        .map_err(|error| Fault::invalid_params(M::NAME, error))
}
