//! One run of a script from start to teardown, on the caller's thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::context::{Context, Watch};
use super::engines::{self, Ending, Failure};
use super::host::{Host, Level, StopReason};
use super::profile::Profile;
use crate::base::limits;
use crate::wire::messages::executions::Stream;
use crate::wire::messages::scripts::Language;
use crate::wire::{Code, Fault};

/// A script's text.
#[derive(Clone, Debug)]
pub struct Script {
    pub language: Language,
    /// For messages: a file name.
    pub name: String,
    pub source: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Succeeded,
    Failed {
        code: Code,
        /// With the script's name and line where there is one.
        message: String,
        line: Option<u32>,
    },
    Stopped(StopReason),
}

/// Runs a script and blocks until it has ended and what it held is let go.
///
/// Call it on a thread of its own with a stack of `limits::SCRIPT_STACK_LEN` bytes. An uncaught error
/// is also written to the host's stderr with its traceback. After a stop the outcome is `Stopped`
/// even where the script came to its end just then.
pub fn run(script: &Script, profile: &Profile, host: &Arc<dyn Host>) -> Outcome {
    if script.source.len() > limits::SCRIPT_SOURCE_LEN_MAX {
        return Outcome::Failed {
            code: Code::ScriptTooLarge,
            message: format!(
                "{}: a script holds at most {} bytes",
                script.name,
                limits::SCRIPT_SOURCE_LEN_MAX
            ),
            line: None,
        };
    }
    let watch = Rc::new(Watch::new(Arc::clone(host), profile));
    let context = Rc::new(RefCell::new(Context::new(
        Arc::clone(host),
        Rc::clone(&watch),
        profile.clone(),
    )));
    let engine = match script.language {
        Language::Lua => engines::lua::run,
        Language::Rhai => engines::rhai::run,
    };
    let ending = engine(&script.source, &script.name, profile, &context, &watch);
    let torn_down = context.borrow_mut().tear_down();
    let outcome = outcome_of(script, profile, watch.stop_reason(), ending, &**host);
    match (outcome, torn_down) {
        (Outcome::Succeeded, Err(fault)) => Outcome::Failed {
            code: fault.code,
            message: format!("{}: let up keys and buttons: {fault}", script.name),
            line: None,
        },
        (outcome, _) => outcome,
    }
}

fn outcome_of(
    script: &Script,
    profile: &Profile,
    stopped: Option<StopReason>,
    ending: Ending,
    host: &dyn Host,
) -> Outcome {
    if let Some(reason) = stopped {
        return Outcome::Stopped(reason);
    }
    let (code, failure) = match ending {
        Ending::Finished => return Outcome::Succeeded,
        Ending::Stopped(reason) => return Outcome::Stopped(reason),
        Ending::Syntax(failure) => (Code::ScriptSyntax, failure),
        Ending::Raised(failure) => (Code::ScriptError, failure),
        Ending::Forbidden(failure) => (Code::ScriptForbidden, failure),
        Ending::Memory(line) => {
            let limit = profile.limits.memory / (1024 * 1024);
            let message = format!("the script passed its memory limit of {limit} MiB");
            (Code::ScriptMemory, at(line, message))
        }
        Ending::Instructions(line) => {
            let limit = profile.limits.instructions.unwrap_or(0);
            let message = format!("the script passed its limit of {limit} instructions");
            (Code::ScriptInstructions, at(line, message))
        }
    };
    let message = match failure.line {
        Some(line) => format!("{}:{line}: {}", script.name, failure.message),
        None => format!("{}: {}", script.name, failure.message),
    };
    let mut report = message.clone();
    for frame in &failure.traceback {
        report.push_str("\n    ");
        report.push_str(frame);
    }
    for line in report.lines() {
        host.output(Stream::Stderr, Level::Error, line);
    }
    Outcome::Failed {
        code,
        message,
        line: failure.line,
    }
}

fn at(line: Option<u32>, message: String) -> Failure {
    Failure {
        message,
        line,
        traceback: Vec::new(),
    }
}

impl Outcome {
    /// The error as a fault; `None` unless the run failed.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Failed { code, message, .. } => Some(Fault::new(*code, message.clone())),
            Self::Succeeded | Self::Stopped(_) => None,
        }
    }
}
