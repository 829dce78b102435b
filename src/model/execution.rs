//! The life of an execution: which input leads from which state to which.
//!
//! ```text
//!            Dispatch           Started              Finished
//!  pending ────────────▶ queued ───────▶ running ───────────────▶ succeeded | failed
//!     │                    │  │             │ StopRequested, TimedOut          ▲
//!     │ StopRequested      │  │             ▼                     Finished     │
//!     ├────────────────────┤  │         stopping ──────────────────────────────┤
//!     ▼                    │  │             │ Finished, GraceOver              │
//!  cancelled ◀─────────────┘  │             ▼                                  │
//!  timeout (TimedOut)         │        cancelled | timeout (the first cause)   │
//!                             │                                                │
//!  queued, running, stopping ─┴─ AgentLost … LeaseExpired ─▶ lost ─ Reconciled ┘
//! ```
//!
//! Rules: a final state never changes, except that `lost` takes the outcome that the workstation
//! recorded. A timeout is not a cancellation: the first cause of a stop decides which of the two
//! follows, unless the work had succeeded before the stop reached it. A run that was not yet sent
//! has no lease.
//!
//! The owner of a row steps it with what happens. A mirror (the server, for a run that a workstation
//! executes) forwards stops and steps with what the owner reports.

use serde_json::Value;

use crate::base::EpochMillis;
use crate::base::limits::{EXECUTION_LEASE_MS, STOP_GRACE_MS};
use crate::wire::messages::executions::{Execution, RunError, Status};
use crate::wire::{Code, Fault};

/// Why a run is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    Cancelled,
    TimedOut,
}

/// How the work ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Succeeded { result: Option<Value> },
    Failed { error: RunError },
    Cancelled,
    TimedOut,
}

impl Outcome {
    /// The state it leads to.
    pub fn status(&self) -> Status {
        match self {
            Self::Succeeded { .. } => Status::Succeeded,
            Self::Failed { .. } => Status::Failed,
            Self::Cancelled => Status::Cancelled,
            Self::TimedOut => Status::Timeout,
        }
    }
}

impl From<StopCause> for Outcome {
    fn from(cause: StopCause) -> Self {
        match cause {
            StopCause::Cancelled => Self::Cancelled,
            StopCause::TimedOut => Self::TimedOut,
        }
    }
}

/// What the workstation has on record of a run, told when it is back.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeRecord {
    /// It ended, with the workstation's own times.
    Finished {
        outcome: Outcome,
        started_at: Option<EpochMillis>,
        finished_at: EpochMillis,
    },
    /// It waits for its turn there.
    Queued,
    /// It runs, or is being stopped.
    Running { started_at: EpochMillis },
    /// The command never arrived.
    Unknown,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Hand the run to its workstation; its row is on disk.
    Dispatch,
    /// The workstation took it and it waits for its turn.
    Queued,
    Started,
    /// Somebody wants it stopped.
    StopRequested,
    /// Its time is over.
    TimedOut,
    /// The grace of a stop is over and the work still has not returned.
    GraceOver,
    Finished(Outcome),
    /// The link to the workstation ended.
    AgentLost,
    /// The workstation is back; what it knows of the run comes with `Reconciled`.
    AgentReturned,
    /// The time that `Effect::LeaseUntil` named has come.
    LeaseExpired,
    Reconciled(NodeRecord),
}

impl Input {
    fn name(&self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Queued => "queued",
            Self::Started => "started",
            Self::StopRequested => "stop",
            Self::TimedOut => "timeout",
            Self::GraceOver => "end of grace",
            Self::Finished(_) => "outcome",
            Self::AgentLost => "loss of the agent",
            Self::AgentReturned => "return of the agent",
            Self::LeaseExpired => "end of lease",
            Self::Reconciled(_) => "reconciliation",
        }
    }
}

/// What the caller has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Store the row and tell about it.
    Changed { from: Status, to: Status },
    /// Send the command, after the row is stored.
    Send,
    /// Stop the work; step `GraceOver` at `final_by` if it has not finished.
    Stop {
        cause: StopCause,
        final_by: EpochMillis,
    },
    /// Step `LeaseExpired` at this time unless the agent returns.
    LeaseUntil(EpochMillis),
    /// Forget the lease.
    LeaseEnded,
}

/// Effects of one step; empty when the input changed nothing.
pub type Effects = Vec<Effect>;

/// Why an input was not taken. The run is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the execution is {0} already")]
    Finished(&'static str),
    #[error("the execution is {status}, which does not take {input}")]
    NotNow {
        status: &'static str,
        input: &'static str,
    },
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        let code = match refused {
            Refused::Finished(_) => Code::ExecutionFinished,
            Refused::NotNow { .. } => Code::Conflict,
        };
        Fault::new(code, refused.to_string())
    }
}

/// An execution's row with what only its owner's memory holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub record: Execution,
    stop: Option<StopCause>,
    lease_until: Option<EpochMillis>,
}

impl Run {
    /// A run as it was created or read from the store.
    pub fn new(record: Execution) -> Self {
        Self {
            record,
            stop: None,
            lease_until: None,
        }
    }

    /// The first cause of a stop under way.
    pub fn stop_cause(&self) -> Option<StopCause> {
        self.stop
    }

    /// When the run becomes `lost` unless its agent returns.
    pub fn lease_until(&self) -> Option<EpochMillis> {
        self.lease_until
    }

    /// The run with the lease that its keeper remembers, where that is not the usual one.
    pub fn with_lease(mut self, until: EpochMillis) -> Self {
        self.lease_until = Some(until);
        self
    }

    /// Takes one input; pure.
    pub fn step(&mut self, input: Input, now: EpochMillis) -> Result<Effects, Refused> {
        use Status::{Pending, Queued, Running, Stopping};
        let status = self.record.status;
        let refused = Refused::NotNow {
            status: status.as_str(),
            input: input.name(),
        };
        if status.is_final() {
            return self.step_final(input);
        }
        match (status, input) {
            (Pending, Input::Dispatch) => {
                let mut effects = self.enter(Queued);
                effects.push(Effect::Send);
                Ok(effects)
            }
            (Pending, Input::Queued) => Ok(self.enter(Queued)),
            (Queued, Input::Queued) => Ok(Vec::new()),
            (Pending | Queued, Input::Started) => {
                self.record.started_at = Some(now);
                Ok(self.enter(Running))
            }
            (_, Input::StopRequested) => Ok(self.stop(StopCause::Cancelled, now)),
            (_, Input::TimedOut) => Ok(self.stop(StopCause::TimedOut, now)),
            (Stopping, Input::GraceOver) => {
                let cause = self.stop.unwrap_or(StopCause::Cancelled);
                Ok(self.finish(cause.into(), now))
            }
            (Pending | Queued, Input::Finished(Outcome::Succeeded { .. })) => Err(refused),
            (_, Input::Finished(outcome)) => Ok(self.finish(self.as_caused(outcome), now)),
            (Queued | Running | Stopping, Input::AgentLost) => Ok(self.start_lease(now)),
            (_, Input::AgentLost) => Ok(Vec::new()),
            (_, Input::AgentReturned) => Ok(self.end_lease()),
            (_, Input::LeaseExpired) => match self.lease_until {
                Some(until) if until <= now => Ok(self.lose("its agent did not return", now)),
                _ => Err(refused),
            },
            (_, Input::Reconciled(found)) => Ok(self.reconcile(found, now)),
            _ => Err(refused),
        }
    }

    /// Only `lost` takes anything, and only the recorded outcome.
    fn step_final(&mut self, input: Input) -> Result<Effects, Refused> {
        let status = self.record.status;
        match input {
            Input::Reconciled(NodeRecord::Finished {
                outcome,
                started_at,
                finished_at,
            }) if status == Status::Lost => {
                self.record.started_at = started_at.or(self.record.started_at);
                Ok(self.finish(outcome, finished_at))
            }
            // Told again, or told of a run whose outcome is still to come: nothing to do.
            Input::Reconciled(NodeRecord::Finished { outcome, .. })
                if outcome.status() == status =>
            {
                Ok(Vec::new())
            }
            Input::Reconciled(_) if status == Status::Lost => Ok(Vec::new()),
            Input::AgentLost | Input::AgentReturned => Ok(Vec::new()),
            _ => Err(Refused::Finished(status.as_str())),
        }
    }

    fn enter(&mut self, to: Status) -> Effects {
        let from = std::mem::replace(&mut self.record.status, to);
        if from == to {
            return Vec::new();
        }
        vec![Effect::Changed { from, to }]
    }

    fn stop(&mut self, cause: StopCause, now: EpochMillis) -> Effects {
        match self.record.status {
            // Nothing works on it yet, so there is nothing to wait for.
            Status::Pending | Status::Queued => self.finish(cause.into(), now),
            Status::Running => {
                self.stop = Some(cause);
                let mut effects = self.enter(Status::Stopping);
                let final_by = now.plus_ms(STOP_GRACE_MS as i64);
                effects.push(Effect::Stop { cause, final_by });
                effects
            }
            _ => Vec::new(),
        }
    }

    /// The outcome of work that was being stopped is the stop's, unless it had succeeded.
    fn as_caused(&self, outcome: Outcome) -> Outcome {
        match (outcome, self.stop) {
            (outcome @ Outcome::Succeeded { .. }, _) | (outcome, None) => outcome,
            (_, Some(cause)) => cause.into(),
        }
    }

    fn finish(&mut self, outcome: Outcome, at: EpochMillis) -> Effects {
        let mut effects = self.enter(outcome.status());
        effects.extend(self.end_lease());
        self.stop = None;
        self.record.finished_at = Some(at);
        (self.record.result, self.record.error) = match outcome {
            Outcome::Succeeded { result } => (result, None),
            Outcome::Failed { error } => (None, Some(error)),
            Outcome::Cancelled => (None, Some(error(Code::Cancelled, "the run was cancelled"))),
            Outcome::TimedOut => (None, Some(error(Code::TimedOut, "the run's time was over"))),
        };
        effects
    }

    fn start_lease(&mut self, now: EpochMillis) -> Effects {
        if self.lease_until.is_some() {
            return Vec::new();
        }
        let until = now.plus_ms(EXECUTION_LEASE_MS);
        self.lease_until = Some(until);
        vec![Effect::LeaseUntil(until)]
    }

    fn end_lease(&mut self) -> Effects {
        match self.lease_until.take() {
            Some(_) => vec![Effect::LeaseEnded],
            None => Vec::new(),
        }
    }

    fn lose(&mut self, why: &str, now: EpochMillis) -> Effects {
        let mut effects = self.enter(Status::Lost);
        effects.extend(self.end_lease());
        self.stop = None;
        self.record.finished_at = Some(now);
        let message = format!("the outcome is unknown: {why}");
        self.record.error = Some(error(Code::ExecutionLost, &message));
        effects
    }

    /// The workstation's record counts; it is asked of runs that are not final.
    fn reconcile(&mut self, found: NodeRecord, now: EpochMillis) -> Effects {
        match found {
            NodeRecord::Finished {
                outcome,
                started_at,
                finished_at,
            } => {
                self.record.started_at = started_at.or(self.record.started_at);
                self.finish(outcome, finished_at)
            }
            NodeRecord::Queued => {
                let mut effects = Vec::new();
                if self.record.status == Status::Pending {
                    effects = self.enter(Status::Queued);
                }
                effects.extend(self.end_lease());
                effects
            }
            NodeRecord::Running { started_at } => {
                self.record.started_at = Some(started_at);
                let mut effects = match self.record.status {
                    Status::Pending | Status::Queued => self.enter(Status::Running),
                    _ => Vec::new(),
                };
                effects.extend(self.end_lease());
                effects
            }
            // A run that was never sent is not missed; a sent one that never arrived is lost.
            NodeRecord::Unknown if self.record.status == Status::Pending => Vec::new(),
            NodeRecord::Unknown => self.lose("its agent has no record of it", now),
        }
    }
}

fn error(code: Code, message: &str) -> RunError {
    RunError {
        code: code.as_str().to_owned(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::base::ids::{AgentId, ExecutionId};
    use crate::wire::messages::executions::{LogExtent, RunKind, RunOrigin};

    fn pending() -> Run {
        Run::new(Execution {
            execution_id: ExecutionId::random(),
            workflow_id: None,
            step_id: None,
            agent_id: AgentId::parse("desk").unwrap(),
            script_id: None,
            kind: RunKind::Script,
            origin: RunOrigin::Server,
            requested_by: None,
            status: Status::Pending,
            created_at: EpochMillis(0),
            started_at: None,
            finished_at: None,
            timeout: None,
            retry: 0,
            args: BTreeMap::new(),
            logs: LogExtent::default(),
            artifacts: Vec::new(),
            result: None,
            error: None,
        })
    }

    fn failed() -> Outcome {
        Outcome::Failed {
            error: error(Code::ScriptError, "x"),
        }
    }

    fn after(inputs: &[Input]) -> Run {
        let mut run = pending();
        for (input, at) in inputs.iter().zip(1..) {
            run.step(input.clone(), EpochMillis(at)).unwrap();
        }
        run
    }

    #[test]
    fn timeout_is_not_cancelled_whichever_comes_second() {
        use Input::{Dispatch, Finished, GraceOver, Started, StopRequested, TimedOut};
        let ends = [
            (
                vec![Dispatch, Started, TimedOut, StopRequested],
                Status::Timeout,
            ),
            (
                vec![Dispatch, Started, StopRequested, TimedOut],
                Status::Cancelled,
            ),
        ];
        for (inputs, status) in ends {
            for end in [GraceOver, Finished(failed()), Finished(Outcome::Cancelled)] {
                let mut run = after(&inputs);
                run.step(end, EpochMillis(9)).unwrap();
                assert_eq!(run.record.status, status);
            }
        }
    }

    #[test]
    fn success_before_the_stop_arrived_stands() {
        let mut run = after(&[Input::Dispatch, Input::Started, Input::StopRequested]);
        let outcome = Outcome::Succeeded { result: None };
        run.step(Input::Finished(outcome), EpochMillis(9)).unwrap();
        assert_eq!(run.record.status, Status::Succeeded);
    }

    #[test]
    fn late_outcome_after_the_grace_is_refused() {
        let mut run = after(&[
            Input::Dispatch,
            Input::Started,
            Input::StopRequested,
            Input::GraceOver,
        ]);
        let before = run.clone();
        let late = Input::Finished(Outcome::Succeeded { result: None });
        let refused = run.step(late, EpochMillis(99)).unwrap_err();
        assert_eq!(Fault::from(refused).code, Code::ExecutionFinished);
        assert_eq!(run, before);
    }

    #[test]
    fn lost_run_takes_the_outcome_that_the_node_recorded() {
        let mut run = after(&[Input::Dispatch, Input::Started, Input::AgentLost]);
        let until = run.lease_until().unwrap();
        let early = run.step(Input::LeaseExpired, until.plus_ms(-1));
        assert!(early.is_err());
        run.step(Input::LeaseExpired, until).unwrap();
        assert_eq!(run.record.status, Status::Lost);
        let found = NodeRecord::Finished {
            outcome: Outcome::TimedOut,
            started_at: None,
            finished_at: EpochMillis(55),
        };
        run.step(Input::Reconciled(found.clone()), until).unwrap();
        assert_eq!(run.record.status, Status::Timeout);
        assert_eq!(run.record.finished_at, Some(EpochMillis(55)));
        assert_eq!(run.step(Input::Reconciled(found), until), Ok(Vec::new()));
    }

    #[test]
    fn stop_says_by_when_the_run_is_final() {
        let mut run = after(&[Input::Dispatch, Input::Started]);
        let effects = run.step(Input::TimedOut, EpochMillis(1_000)).unwrap();
        assert!(effects.contains(&Effect::Stop {
            cause: StopCause::TimedOut,
            final_by: EpochMillis(1_200),
        }));
    }

    /// The rules once more, as a table over names: (from, input) → to; `=` stays; absent is refused.
    /// `C` is the first stop cause's state.
    const MODEL: &[(&str, &str, &str)] = &[
        ("pending", "dispatch", "queued"),
        ("pending", "queued", "queued"),
        ("pending", "started", "running"),
        ("pending", "stop", "cancelled"),
        ("pending", "timeout", "timeout"),
        ("pending", "failed", "failed"),
        ("pending", "cancelled", "cancelled"),
        ("pending", "lost", "="),
        ("pending", "returned", "="),
        ("pending", "found failed", "failed"),
        ("pending", "found queued", "queued"),
        ("pending", "found running", "running"),
        ("pending", "found nothing", "="),
        ("queued", "queued", "="),
        ("queued", "started", "running"),
        ("queued", "stop", "cancelled"),
        ("queued", "timeout", "timeout"),
        ("queued", "failed", "failed"),
        ("queued", "cancelled", "cancelled"),
        ("queued", "lost", "="),
        ("queued", "returned", "="),
        ("queued", "lease", "lost"),
        ("queued", "found failed", "failed"),
        ("queued", "found queued", "="),
        ("queued", "found running", "running"),
        ("queued", "found nothing", "lost"),
        ("running", "stop", "stopping"),
        ("running", "timeout", "stopping"),
        ("running", "failed", "failed"),
        ("running", "cancelled", "cancelled"),
        ("running", "succeeded", "succeeded"),
        ("running", "lost", "="),
        ("running", "returned", "="),
        ("running", "lease", "lost"),
        ("running", "found failed", "failed"),
        ("running", "found queued", "="),
        ("running", "found running", "="),
        ("running", "found nothing", "lost"),
        ("stopping", "stop", "="),
        ("stopping", "timeout", "="),
        ("stopping", "grace", "C"),
        ("stopping", "failed", "C"),
        ("stopping", "cancelled", "C"),
        ("stopping", "succeeded", "succeeded"),
        ("stopping", "lost", "="),
        ("stopping", "returned", "="),
        ("stopping", "lease", "lost"),
        ("stopping", "found failed", "failed"),
        ("stopping", "found queued", "="),
        ("stopping", "found running", "="),
        ("stopping", "found nothing", "lost"),
        ("lost", "lost", "="),
        ("lost", "returned", "="),
        ("lost", "found failed", "failed"),
        ("lost", "found queued", "="),
        ("lost", "found running", "="),
        ("lost", "found nothing", "="),
        ("succeeded", "lost", "="),
        ("succeeded", "returned", "="),
        ("failed", "lost", "="),
        ("failed", "returned", "="),
        ("failed", "found failed", "="),
        ("cancelled", "lost", "="),
        ("cancelled", "returned", "="),
        ("timeout", "lost", "="),
        ("timeout", "returned", "="),
    ];

    fn inputs() -> Vec<(&'static str, Input)> {
        let found = NodeRecord::Finished {
            outcome: failed(),
            started_at: Some(EpochMillis(3)),
            finished_at: EpochMillis(4),
        };
        let running = NodeRecord::Running {
            started_at: EpochMillis(3),
        };
        vec![
            ("dispatch", Input::Dispatch),
            ("queued", Input::Queued),
            ("started", Input::Started),
            ("stop", Input::StopRequested),
            ("timeout", Input::TimedOut),
            ("grace", Input::GraceOver),
            ("failed", Input::Finished(failed())),
            ("cancelled", Input::Finished(Outcome::Cancelled)),
            (
                "succeeded",
                Input::Finished(Outcome::Succeeded { result: None }),
            ),
            ("lost", Input::AgentLost),
            ("returned", Input::AgentReturned),
            ("lease", Input::LeaseExpired),
            ("found failed", Input::Reconciled(found)),
            ("found queued", Input::Reconciled(NodeRecord::Queued)),
            ("found running", Input::Reconciled(running)),
            ("found nothing", Input::Reconciled(NodeRecord::Unknown)),
        ]
    }

    proptest! {
        #[test]
        fn every_walk_agrees_with_the_table(
            walk in prop::collection::vec((0..16_usize, 0..60_000_i64), 0..40)
        ) {
            let inputs = inputs();
            let (mut run, mut now) = (pending(), EpochMillis(10));
            // The model: a state, the first cause of a stop, the end of a lease.
            let (mut state, mut cause, mut lease) = ("pending", None, None::<EpochMillis>);
            for (pick, wait) in walk {
                now = now.plus_ms(wait);
                let (name, input) = &inputs[pick];
                let due = *name != "lease" || lease.is_some_and(|until| until <= now);
                let row = MODEL.iter().find(|row| due && (row.0, row.1) == (state, *name));
                let before = run.clone();
                let answer = run.step(input.clone(), now);
                prop_assert_eq!(answer.is_ok(), row.is_some(), "{} takes {}", state, name);
                if let Some((_, _, to)) = row {
                    let to = match *to {
                        "=" => state,
                        "C" => cause.unwrap(),
                        to => to,
                    };
                    let changes = answer.unwrap().iter().any(|e| matches!(e, Effect::Changed { .. }));
                    prop_assert_eq!(changes, to != state);
                    match (state, *name) {
                        ("running", "stop") => cause = Some("cancelled"),
                        ("running", "timeout") => cause = Some("timeout"),
                        ("queued" | "running" | "stopping", "lost") => {
                            lease = lease.or(Some(now.plus_ms(EXECUTION_LEASE_MS)));
                        }
                        (_, "returned" | "found queued" | "found running") => lease = None,
                        _ => {}
                    }
                    state = to;
                } else {
                    prop_assert_eq!(&run, &before, "a refused input changes nothing");
                }
                let status = run.record.status;
                prop_assert_eq!(status.as_str(), state);
                if status.is_final() {
                    lease = None;
                }
                prop_assert_eq!(run.lease_until(), lease);
                prop_assert_eq!(run.record.finished_at.is_some(), status.is_final());
                let bad_end = status.is_final() && status != Status::Succeeded;
                prop_assert_eq!(run.record.error.is_some(), bad_end);
            }
        }
    }
}
