//! Why a host call did not give a value.

use super::host::StopReason;
use crate::wire::{Code, Fault};

/// What a function's handler answers instead of a value. The first two are errors that a script may
/// catch; the others end the run whatever the script does.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScriptFault {
    /// The call does not fit the function's description; the text names function, parameter,
    /// expected and given.
    #[error("{0}")]
    Argument(String),
    /// The work failed.
    #[error("{} [{}]", .0.message, .0.code)]
    Failed(#[from] Fault),
    /// The run has to end.
    #[error("the run was stopped")]
    Stopped(StopReason),
    /// The run holds more memory than its profile allows.
    #[error("the run passed its memory limit")]
    Memory,
}

impl ScriptFault {
    /// Work that failed, with its stable code.
    pub fn failed(code: Code, message: impl Into<String>) -> Self {
        Self::Failed(Fault::new(code, message.into()))
    }

    /// Whether a script may catch it.
    pub fn is_catchable(&self) -> bool {
        matches!(self, Self::Argument(_) | Self::Failed(_))
    }
}
