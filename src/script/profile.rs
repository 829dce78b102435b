//! What a kind of script may do, and how much of it.

use std::time::Duration;

use crate::base::limits;

/// Which host functions may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every one.
    All,
    /// These alone: a module (`screen`) or one function (`screen.getPixel`).
    Only(Vec<String>),
}

impl Allowed {
    /// Whether a function may be called.
    pub fn permits(&self, module: &str, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(list) => list.iter().any(|entry| match entry.split_once('.') {
                Some((m, n)) => m == module && n == name,
                None => entry == module,
            }),
        }
    }
}

/// Whether a script may loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    Allowed,
    Refused,
}

/// How much of the language a script may use beyond plain statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamics {
    /// All that the engine offers safely, closures included.
    Open,
    /// No evaluation of text, no function values, no closures, no imports: every dependency of a
    /// script is visible in its text.
    Closed,
}

/// Whether a script may load others from its own folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imports {
    OwnFolder,
    Refused,
}

/// How much a run may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that engine, values and images hold together.
    pub memory: usize,
    /// Operations in Rhai; loop rounds and calls in Lua. `None` is without limit.
    pub instructions: Option<u64>,
    /// From the start of the run; `None` leaves the end to the host alone.
    pub timeout: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: limits::SCRIPT_MEMORY_MAX,
            instructions: None,
            timeout: None,
        }
    }
}

/// One way to build an engine. One engine kind serves several profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// For error messages.
    pub name: String,
    pub allowed: Allowed,
    pub loops: Loops,
    pub dynamics: Dynamics,
    pub imports: Imports,
    pub limits: Limits,
}

impl Profile {
    /// What a person's own script runs under.
    pub fn script() -> Self {
        Self {
            name: "script".to_owned(),
            allowed: Allowed::All,
            loops: Loops::Allowed,
            dynamics: Dynamics::Open,
            imports: Imports::OwnFolder,
            limits: Limits::default(),
        }
    }

    /// What a rule runs under: no evaluation of text, function values, closures, imports or loops,
    /// and the given functions alone.
    pub fn rule(allowed: Vec<String>) -> Self {
        Self {
            name: "rule".to_owned(),
            allowed: Allowed::Only(allowed),
            loops: Loops::Refused,
            dynamics: Dynamics::Closed,
            imports: Imports::Refused,
            limits: Limits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allow_list_names_modules_or_single_functions() {
        let allowed = Allowed::Only(vec!["log".into(), "screen.getPixel".into()]);
        assert!(allowed.permits("log", "info"));
        assert!(allowed.permits("screen", "getPixel"));
        assert!(!allowed.permits("screen", "capture"));
        assert!(!allowed.permits("screen.getPixel", "x"));
    }
}
