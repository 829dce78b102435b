//! Runs on their way to a workstation: the row, the command, the stop.

use std::sync::Arc;

use super::{Executions, not_found, record};
use crate::base::Kind;
use crate::base::ids::{AgentId, CommandId, ExecutionId};
use crate::base::limits::{COMMAND_TIMEOUT_MS, SCRIPT_SOURCE_LEN_MAX, SCRIPT_TIMEOUT_REST_MS};
use crate::control::fault::stored;
use crate::control::methods::Caller;
use crate::model::execution::{Input, Run};
use crate::store::executions as table;
use crate::wire::event::name;
use crate::wire::messages::executions::{
    Cancel, Execution, ExecutionRef, LogExtent, RunKind, RunOrigin, Status,
};
use crate::wire::messages::scripts::{self, RunParams, RunReply, StopParams, StopReply};
use crate::wire::{Call, Code, Fault, Origin};

/// Arguments of one run.
const ARGS_MAX: usize = 256;

impl Executions {
    /// `script.run`: a row, then the command, then its state.
    pub async fn run(
        self: &Arc<Self>,
        caller: Caller,
        agent: AgentId,
        params: RunParams,
    ) -> Result<RunReply, Fault> {
        check_run(&params)?;
        let links = self.links()?;
        if links.protocol(&agent).is_none() {
            return Err(self.refuse_offline(&caller, &agent, params).await);
        }
        let record = self.create(&caller, &agent, &params).await?;
        let this = Arc::clone(self);
        // The command goes on when its caller hangs up.
        let sent = self.tasks.spawn(this.dispatch(record, params));
        sent.await
            .map_err(|error| Fault::internal(format!("send the command: {error}")))?
    }

    /// The attempt is kept as a failed run: what was asked of whom is not forgotten.
    async fn refuse_offline(&self, caller: &Caller, agent: &AgentId, params: RunParams) -> Fault {
        let fault = Fault::new(Code::AgentOffline, format!("{agent} is not connected"));
        let record = match self.create(caller, agent, &params).await {
            Ok(record) => record,
            Err(fault) => return fault,
        };
        match self.fail(&record.execution_id, &fault).await {
            Ok(_) => fault,
            Err(fault) => fault,
        }
    }

    async fn create(
        &self,
        caller: &Caller,
        agent: &AgentId,
        params: &RunParams,
    ) -> Result<Execution, Fault> {
        let now = self.clock.now();
        let timeout = params.timeout_ms.unwrap_or(SCRIPT_TIMEOUT_REST_MS);
        let mut run = Run::new(Execution {
            execution_id: ExecutionId::random(),
            workflow_id: None,
            step_id: None,
            agent_id: agent.clone(),
            script_id: params.name.clone().or_else(|| params.path.clone()),
            kind: RunKind::Script,
            origin: RunOrigin::Server,
            requested_by: caller.identity.as_ref().map(|who| who.username.clone()),
            status: Status::Pending,
            created_at: now,
            started_at: None,
            finished_at: None,
            timeout: (timeout > 0).then_some(timeout),
            retry: 0,
            args: params.args.clone(),
            logs: LogExtent::default(),
            artifacts: Vec::new(),
            result: None,
            error: None,
        });
        run.step(Input::Dispatch, now)?;
        self.presence()
            .in_flight
            .insert(run.record.execution_id.clone());
        let row = record::row(&run.record);
        let stored_row = self.store.call(move |c| table::put(c, &row)).await;
        if let Err(error) = stored_row {
            self.landed(&run.record.execution_id);
            return Err(stored(error));
        }
        self.tell(name::EXECUTION_CREATED, &run.record);
        Ok(run.record)
    }

    pub(super) fn landed(&self, id: &ExecutionId) {
        self.presence().in_flight.remove(id);
    }

    async fn dispatch(
        self: Arc<Self>,
        record: Execution,
        mut params: RunParams,
    ) -> Result<RunReply, Fault> {
        let id = record.execution_id.clone();
        params.execution_id = Some(id.clone());
        params.timeout_ms = Some(record.timeout.unwrap_or(0));
        params.wait = false;
        let outcome = self.send_run(&record, &params).await;
        let settled = match outcome {
            Ok(reply) => {
                self.remember_plain(&record, &reply);
                self.step(&id, started(&reply)).await.map(|_| reply.reused)
            }
            // The command may have arrived: the workstation's journal or the reconciliation tells.
            Err(fault) if matches!(fault.code, Code::LinkClosed | Code::TimedOut) => {
                self.landed(&id);
                self.start_lease(record.agent_id.clone());
                self.reconcile_later(record.agent_id.clone());
                Ok(false)
            }
            Err(fault) => match self.fail(&id, &fault).await {
                Ok(_) => Err(fault),
                Err(fault) => Err(fault),
            },
        };
        self.landed(&id);
        let reused = settled?;
        let shown = self.get(id.clone()).await?;
        Ok(RunReply {
            script_id: id.to_string(),
            execution_id: id,
            status: shown.status,
            reused,
        })
    }

    async fn send_run(&self, record: &Execution, params: &RunParams) -> Result<RunReply, Fault> {
        let mut call = Call::of::<scripts::Run>(params, Origin::Server { epoch: 0 })?;
        call.command_id = CommandId::parse(record.execution_id.as_str()).ok();
        // The workstation answers at once; its own time limit is in the parameters.
        call.timeout_ms = Some(COMMAND_TIMEOUT_MS);
        self.links()?.call(&record.agent_id, call).await?.read()
    }

    /// `script.stop`.
    pub async fn stop_script(
        self: &Arc<Self>,
        agent: AgentId,
        params: StopParams,
    ) -> Result<StopReply, Fault> {
        let Some(id) = params.id().cloned() else {
            return Err(Fault::invalid_params(
                "script.stop",
                "executionId is missing",
            ));
        };
        let found = self.get(id.clone()).await?;
        if found.agent_id != agent {
            return Err(not_found(&id));
        }
        let ended = self.cancel(id).await?;
        Ok(StopReply {
            execution_id: ended.execution_id,
            status: ended.status,
        })
    }

    /// `execution.cancel`: stops the run where it is.
    pub async fn cancel(self: &Arc<Self>, id: ExecutionId) -> Result<Execution, Fault> {
        let record = self.get(id.clone()).await?;
        if record.status.is_final() {
            let text = format!("execution {id} is {} already", record.status.as_str());
            return Err(Fault::new(Code::ExecutionFinished, text));
        }
        let agent = record.agent_id.clone();
        let connected = self.links()?.protocol(&agent);
        // A run that may have arrived is the workstation's to end; what it answers is applied.
        self.step(&id, Some(Input::StopRequested)).await?;
        match connected {
            Some(_) => match self.send_cancel(&agent, &id).await {
                Ok(()) => {}
                // The stop is on record; the reconciliation sends it again.
                Err(fault) if fault.kind() == Kind::Unavailable => {}
                Err(fault) if fault.code == Code::ExecutionFinished => {}
                Err(fault) if fault.code == Code::ExecutionNotFound => {
                    self.reconcile_later(agent);
                }
                Err(fault) => return Err(fault),
            },
            None => tracing::info!(execution = %id, agent = %agent, "stop waits for the agent"),
        }
        self.get(id).await
    }

    pub(super) async fn send_cancel(
        self: &Arc<Self>,
        agent: &AgentId,
        id: &ExecutionId,
    ) -> Result<(), Fault> {
        let links = self.links()?;
        if links.protocol(agent) == Some(1) {
            return self.stop_plain(agent, id).await;
        }
        let params = ExecutionRef {
            execution_id: id.clone(),
        };
        let call = Call::of::<Cancel>(&params, Origin::Server { epoch: 0 })?;
        let told: Execution = links.call(agent, call).await?.read()?;
        self.learn(agent, told).await.map(drop)
    }
}

fn check_run(params: &RunParams) -> Result<(), Fault> {
    let bad = |why: &str| Err(Fault::invalid_params("script.run", why));
    match (&params.source, &params.path) {
        (None, None) => return bad("one of source and path is needed"),
        (Some(_), Some(_)) => return bad("source and path exclude one another"),
        (Some(source), None) if source.len() > SCRIPT_SOURCE_LEN_MAX => {
            let text = format!("the script is longer than {SCRIPT_SOURCE_LEN_MAX} bytes");
            return Err(Fault::new(Code::ScriptTooLarge, text));
        }
        _ => {}
    }
    if params.args.len() > ARGS_MAX {
        return bad("more than 256 args");
    }
    if params.execution_id.is_some() {
        return bad("executionId is the server's to give");
    }
    if params.name.as_ref().is_some_and(|name| name.len() > 1024) {
        return bad("name is longer than 1024 bytes");
    }
    Ok(())
}

/// What the workstation's first answer says to the state machine.
fn started(reply: &RunReply) -> Option<Input> {
    match reply.status {
        Status::Running | Status::Stopping => Some(Input::Started),
        // Its place in the workstation's queue is told by events, and so is the end of a short run.
        _ => None,
    }
}
