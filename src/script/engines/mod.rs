//! The languages. An engine is built for one run, on that run's thread, from the descriptors alone.

pub mod lua;
pub mod rhai;

use super::fault::ScriptFault;
use super::host::StopReason;

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

/// The ending that a fault forces, for faults that a script cannot catch.
fn forced(fault: &ScriptFault) -> Option<Ending> {
    match fault {
        ScriptFault::Stopped(reason) => Some(Ending::Stopped(*reason)),
        ScriptFault::Memory => Some(Ending::Memory(None)),
        ScriptFault::Argument(_) | ScriptFault::Failed(_) => None,
    }
}
