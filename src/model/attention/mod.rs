//! Attention: who waits for a person, and why.
//!
//! The node runs one `SessionAttention` per terminal session. It ranks evidence (the program's own word, the
//! shell's marks, notifications, the terminal and its foreground process, rules about the screen) and
//! publishes an `Attention`. Each console runs one `ConsoleScheduler`, which knows what that console has
//! attended to and offers candidates; it never moves the focus.
//!
//! ```text
//! node:    inputs ──► SessionAttention ──► Attention (state, kind, source, evidence, revision)
//! console: Attention, focus, keys ──► ConsoleScheduler ──► marks, locks, ranked candidates
//! ```

mod claim;
mod console;
mod input;
mod page;
mod program;
mod rules;
mod schedule;
mod session;
mod verdict;

#[cfg(test)]
mod session_props;
#[cfg(test)]
mod session_tests;

pub use console::{Candidate, ConsoleScheduler, Derived};
pub use input::{
    Effects, Foreground, Input, Notify, ProcessFacts, ProgramState, ProgramStatus, PromptMark,
    ScreenFacts,
};
pub use rules::{ProgramRules, RuleError, RuleSet};
pub use session::SessionAttention;
