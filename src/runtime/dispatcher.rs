//! One row per method: which function answers it.
//!
//! Invariants: a method has exactly one handler; parameters are read by the method's own type before
//! the handler sees them; what a wire may not call is refused here, for every wire alike.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use serde_json::Value;

use crate::wire::method::{MethodRow, Owner};
use crate::wire::{Answer, Blob, BoxFuture, Call, Code, Fault, Method, Origin, StreamEnd, table};

/// What a handler knows of its call besides the parameters.
#[derive(Clone, Debug)]
pub struct Context {
    pub origin: Origin,
    pub command_id: Option<crate::base::ids::CommandId>,
    pub timeout_ms: Option<u64>,
    pub cancel: tokio_util::sync::CancellationToken,
}

type Handle<N> =
    Box<dyn Fn(Arc<N>, Value, Context) -> BoxFuture<Result<Answer, Fault>> + Send + Sync>;

/// The handlers of a node of type `N`.
pub struct Dispatcher<N> {
    rows: HashMap<&'static str, Handle<N>>,
}

impl<N: Send + Sync + 'static> Default for Dispatcher<N> {
    fn default() -> Self {
        Self {
            rows: HashMap::new(),
        }
    }
}

impl<N: Send + Sync + 'static> Dispatcher<N> {
    /// Adds the handler of a method that answers with JSON.
    ///
    /// Panics when the method has one already: that is a defect found by every test that starts a node.
    pub fn on<M, F, R>(self, handler: F) -> Self
    where
        M: Method,
        F: Fn(Arc<N>, M::Params, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<M::Reply, Fault>> + Send + 'static,
    {
        self.insert::<M, _, _>(move |node, params, context| {
            let answer = handler(node, params, context);
            async move { Answer::of(&answer.await?) }
        })
    }

    /// Adds the handler of a method that answers with bytes beside its JSON.
    pub fn on_blob<M, F, R>(self, handler: F) -> Self
    where
        M: Method,
        F: Fn(Arc<N>, M::Params, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(M::Reply, Blob), Fault>> + Send + 'static,
    {
        self.insert::<M, _, _>(move |node, params, context| {
            let answer = handler(node, params, context);
            async move {
                let (reply, blob) = answer.await?;
                Ok(Answer {
                    blob: Some(blob),
                    ..Answer::of(&reply)?
                })
            }
        })
    }

    /// Adds the handler of a method that answers with a stream beside its JSON.
    pub fn on_stream<M, F, R>(self, handler: F) -> Self
    where
        M: Method,
        F: Fn(Arc<N>, M::Params, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(M::Reply, StreamEnd), Fault>> + Send + 'static,
    {
        self.insert::<M, _, _>(move |node, params, context| {
            let answer = handler(node, params, context);
            async move {
                let (reply, stream) = answer.await?;
                Ok(Answer {
                    stream: Some(stream),
                    ..Answer::of(&reply)?
                })
            }
        })
    }

    fn insert<M, F, R>(mut self, handler: F) -> Self
    where
        M: Method,
        F: Fn(Arc<N>, M::Params, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Answer, Fault>> + Send + 'static,
    {
        let handle: Handle<N> =
            Box::new(move |node, params, context| {
                match serde_json::from_value::<M::Params>(params) {
                    Ok(params) => Box::pin(handler(node, params, context)),
                    Err(error) => {
                        let fault = Fault::invalid_params(M::NAME, error);
                        Box::pin(std::future::ready(Err(fault)))
                    }
                }
            });
        let before = self.rows.insert(M::NAME, handle);
        assert!(before.is_none(), "{} has two handlers", M::NAME);
        self
    }

    /// Whether a method has a handler here.
    pub fn answers(&self, name: &str) -> bool {
        self.rows.contains_key(name)
    }

    /// Answers a call on behalf of `node`.
    pub fn dispatch(&self, node: Arc<N>, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        let handle = table::find(&call.method)
            .ok_or_else(|| unknown(&call.method))
            .and_then(|row| allowed(row, call.origin))
            .and_then(|row| self.rows.get(row.name).ok_or_else(|| unknown(&call.method)));
        match handle {
            Ok(handle) => {
                let context = Context {
                    origin: call.origin,
                    command_id: call.command_id,
                    timeout_ms: call.timeout_ms,
                    cancel: call.cancel,
                };
                handle(node, call.params, context)
            }
            Err(fault) => Box::pin(std::future::ready(Err(fault))),
        }
    }
}

fn unknown(method: &str) -> Fault {
    Fault::new(Code::UnknownMethod, format!("unknown method: {method}"))
}

fn allowed(row: &'static MethodRow, origin: Origin) -> Result<&'static MethodRow, Fault> {
    match (origin, row.owner) {
        (Origin::Server { .. }, Owner::NodeLocal) => Err(Fault::new(
            Code::LocalOnly,
            format!("{} exists on the local wire alone", row.name),
        )),
        (Origin::Local { .. }, Owner::NodeRemote) | (_, Owner::Server) => Err(unknown(row.name)),
        _ => Ok(row),
    }
}
