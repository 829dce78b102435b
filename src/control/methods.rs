//! The server's own answers: one handler per route that no node answers.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;

use axum::response::Response;
use serde_json::{Map, Value};

use super::auth::Identity;
use super::routes::{Answerer, ROUTES};
use crate::base::ids::{AgentId, RequestId};
use crate::wire::{Answer, BoxFuture, Code, Fault, Method};

/// Who asks, and how they reached us.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Absent on public routes that were called without a credential.
    pub identity: Option<Identity>,
    pub address: IpAddr,
    pub request_id: RequestId,
    /// Scheme and host as the caller wrote them, such as `http://127.0.0.1:9527`.
    pub base_url: String,
    /// Whether the connection is TLS.
    pub secure: bool,
    /// What the caller calls itself, cut to 64 characters.
    pub user_agent: String,
}

impl Caller {
    /// The account that asks.
    pub fn identity(&self) -> Result<&Identity, Fault> {
        self.identity
            .as_ref()
            .ok_or_else(|| Fault::new(Code::Unauthenticated, "sign in first"))
    }
}

/// A request as a handler sees it.
pub struct Ask {
    pub caller: Caller,
    /// The workstation that the path names.
    pub agent: Option<AgentId>,
    pub params: Map<String, Value>,
}

/// What a handler answers.
pub enum Reply {
    /// Rendered as the route's body kind says.
    Answer(Answer),
    /// A finished response: cookies, redirects, streams.
    Http(Response),
}

pub type ServerHandler = Box<dyn Fn(Ask) -> BoxFuture<Result<Reply, Fault>> + Send + Sync>;

/// Collects handlers by method name.
#[derive(Default)]
pub struct Methods {
    handlers: HashMap<&'static str, ServerHandler>,
    doubled: Vec<&'static str>,
}

impl Methods {
    /// Registers a typed handler.
    pub fn typed<M, F, Fut>(&mut self, handler: F)
    where
        M: Method,
        F: Fn(Caller, M::Params) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Reply, Fault>> + Send + 'static,
    {
        self.raw(
            M::NAME,
            Box::new(move |ask| {
                let params = match read::<M>(ask.params) {
                    Ok(params) => params,
                    Err(fault) => return Box::pin(std::future::ready(Err(fault))),
                };
                let answer = handler(ask.caller, params);
                Box::pin(async move { Ok(Reply::Answer(Answer::of(&answer.await?)?)) })
            }),
        );
    }

    /// Registers a typed handler that answers bytes, a stream or a response of its own.
    pub fn special<M, F, Fut>(&mut self, handler: F)
    where
        M: Method,
        F: Fn(Caller, M::Params) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, Fault>> + Send + 'static,
    {
        self.raw(
            M::NAME,
            Box::new(move |ask| match read::<M>(ask.params) {
                Ok(params) => Box::pin(handler(ask.caller, params)),
                Err(fault) => Box::pin(std::future::ready(Err(fault))),
            }),
        );
    }

    /// Registers a handler that reads the parameters itself.
    pub fn asked<M, F, Fut>(&mut self, handler: F)
    where
        M: Method,
        F: Fn(Ask) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Reply, Fault>> + Send + 'static,
    {
        self.raw(M::NAME, Box::new(move |ask| Box::pin(handler(ask))));
    }

    /// Registers a typed handler of a route whose path names a workstation.
    pub fn on_agent<M, F, Fut>(&mut self, handler: F)
    where
        M: Method,
        F: Fn(Caller, AgentId, M::Params) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Reply, Fault>> + Send + 'static,
    {
        self.raw(
            M::NAME,
            Box::new(move |ask| {
                let agent = ask
                    .agent
                    .ok_or_else(|| Fault::invalid_params(M::NAME, "the path names no agent"));
                let params = read::<M>(ask.params);
                let answer = match (agent, params) {
                    (Ok(agent), Ok(params)) => handler(ask.caller, agent, params),
                    (Err(fault), _) | (_, Err(fault)) => {
                        return Box::pin(std::future::ready(Err(fault)));
                    }
                };
                Box::pin(async move { Ok(Reply::Answer(Answer::of(&answer.await?)?)) })
            }),
        );
    }

    fn raw(&mut self, name: &'static str, handler: ServerHandler) {
        if self.handlers.insert(name, handler).is_some() {
            self.doubled.push(name);
        }
    }

    /// The handlers, once they are exactly those that the routes table needs.
    pub fn finish(self) -> Result<HashMap<&'static str, ServerHandler>, Fault> {
        if let Some(name) = self.doubled.first() {
            return Err(Fault::internal(format!("{name} has two handlers")));
        }
        let needed: Vec<_> = ROUTES
            .iter()
            .filter(|route| route.answerer == Answerer::Server)
            .map(|route| route.row.name)
            .collect();
        if let Some(name) = needed
            .iter()
            .find(|name| !self.handlers.contains_key(*name))
        {
            return Err(Fault::internal(format!("{name} has no handler")));
        }
        if let Some(name) = self.handlers.keys().find(|name| !needed.contains(name)) {
            return Err(Fault::internal(format!(
                "{name} has a handler and no route"
            )));
        }
        Ok(self.handlers)
    }
}

fn read<M: Method>(params: Map<String, Value>) -> Result<M::Params, Fault> {
    serde_json::from_value(Value::Object(params))
        .map_err(|error| Fault::invalid_params(M::NAME, error))
}
