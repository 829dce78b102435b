//! The languages. An engine is built for one run, on that run's thread, from the descriptors alone.

pub mod lua;
pub mod rhai;

use super::context::Watch;
use super::fault::ScriptFault;
use super::host::StopReason;
use crate::base::limits::SCRIPT_VALUE_DEPTH_MAX;

/// How a script ended by itself or was ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    Finished,
    /// It does not parse.
    Syntax(Failure),
    /// It raised an error that it did not catch.
    Raised(Failure),
    /// Its profile forbids what it tried.
    Forbidden(Failure),
    Stopped(StopReason),
    Memory(Option<u32>),
    Instructions(Option<u32>),
}

/// An error with its place.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    /// Without the place.
    pub message: String,
    /// From 1.
    pub line: Option<u32>,
    /// The calls that led to it, innermost first; empty when there were none.
    pub traceback: Vec<String>,
}

impl Ending {
    /// The ending that a fault forces; `None` for one that a script may catch.
    fn forced(fault: &ScriptFault) -> Option<Self> {
        match fault {
            ScriptFault::Stopped(reason) => Some(Self::Stopped(*reason)),
            ScriptFault::Memory => Some(Self::Memory(None)),
            ScriptFault::Argument(_) | ScriptFault::Failed(_) => None,
        }
    }
}

/// Copied bytes between two looks at the watch.
const STEP_BYTES: usize = 1024 * 1024;

/// Bounds the copying of a script's values: their depth, and with the watch their size and time. A
/// small script can describe a huge value, by holding one table in many places.
struct Import<'a> {
    watch: &'a Watch,
    unchecked_bytes: usize,
}

impl<'a> Import<'a> {
    fn new(watch: &'a Watch) -> Self {
        Self {
            watch,
            unchecked_bytes: 0,
        }
    }

    /// Counts one value of so many bytes at a depth.
    fn enter(&mut self, depth: usize, bytes: usize) -> Result<(), ScriptFault> {
        if depth > SCRIPT_VALUE_DEPTH_MAX {
            return Err(ScriptFault::Argument(format!(
                "the value is nested deeper than {SCRIPT_VALUE_DEPTH_MAX} levels"
            )));
        }
        self.unchecked_bytes = self
            .unchecked_bytes
            .saturating_add(bytes)
            .saturating_add(size_of::<super::Value>());
        if self.unchecked_bytes >= STEP_BYTES {
            self.unchecked_bytes = 0;
            self.watch.check()?;
        }
        Ok(())
    }
}

/// A value that the host cannot take.
fn unfit(why: impl Into<String>) -> ScriptFault {
    ScriptFault::Argument(why.into())
}

/// Names function and argument in the fault of a value that does not fit.
fn at_argument(function: &str, at: usize, fault: ScriptFault) -> ScriptFault {
    match fault {
        ScriptFault::Argument(why) => {
            ScriptFault::Argument(format!("{function}: argument {at}: {why}"))
        }
        other => other,
    }
}
