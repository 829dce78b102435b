//! What the parts of the server ask of one another.

use serde_json::Value;

use crate::base::ids::AgentId;
use crate::wire::event::Record;
use crate::wire::messages::agents::{InviteParams, InviteReply};
use crate::wire::{Answer, BoxFuture, Call, Fault};

/// What the gateway tells the rest of the server. One call at a time per agent, in order.
pub trait LinkSink: Send + Sync + 'static {
    /// The first journal sequence of this agent that the server wants.
    fn resume_from(&self, agent: &AgentId) -> BoxFuture<Result<u64, Fault>>;
    /// Records of an agent's journal, contiguous but for local ones. Resolves when they are on disk,
    /// with the sequence to acknowledge (inclusive). Repeats are harmless.
    fn events(&self, agent: &AgentId, records: Vec<Record>) -> BoxFuture<Result<u64, Fault>>;
    /// An event of a protocol-1 agent, by its old name.
    fn plain_event(&self, agent: &AgentId, event: String, data: Value) -> BoxFuture<()>;
    /// A registration was accepted.
    fn connected(&self, agent: &AgentId, epoch: u64, protocol: u8) -> BoxFuture<()>;
    /// The link ended; `reason` is a stable word such as `closed`, `heartbeat_timeout`, `revoked`.
    fn disconnected(&self, agent: &AgentId, epoch: u64, reason: &str) -> BoxFuture<()>;
    /// A change of who may connect, for journal and people: an event type such as
    /// `agent.quarantined`, with its payload.
    fn noted(&self, event: &'static str, payload: Value) -> BoxFuture<()>;
}

/// What the rest of the server asks of the gateway.
pub trait Links: Send + Sync + 'static {
    /// Sends a call to a connected agent: `agent_offline` when there is none, `link_closed` when it
    /// goes away before the answer, `timed_out` when its time passes.
    fn call(&self, agent: &AgentId, call: Call) -> BoxFuture<Result<Answer, Fault>>;
    /// Whether the agent is connected, and by which protocol.
    fn protocol(&self, agent: &AgentId) -> Option<u8>;
    /// The agents that are connected, each with its protocol.
    fn connected(&self) -> Vec<(AgentId, u8)>;
    /// Closes an agent's link at once with a reason.
    fn close(&self, agent: &AgentId, reason: &str);
    /// Makes a join string that pins the gateway's key.
    fn invite(&self, params: InviteParams) -> BoxFuture<Result<InviteReply, Fault>>;
}
