//! Scripts: one set of function descriptors, bound by every engine without knowing it.
//!
//! Invariants: a function is described once (`descriptor`), runs against the `Host` alone, and is
//! named by no reserved word of Lua, Rhai or Python; an engine lives on one thread for one run and
//! is torn down with its modules' state in one place (`run`); a stop is final within 200 ms.

pub mod arguments;
pub mod codec;
pub mod context;
pub mod descriptor;
pub mod docs;
pub mod engines;
pub mod fault;
pub mod folder;
pub mod host;
pub mod memory;
pub mod modules;
pub mod profile;
pub mod run;
pub mod text;
pub mod value;

pub use docs::{reference_markdown, stubs_luacats, stubs_luau};
pub use fault::ScriptFault;
pub use host::{Host, StopReason};
pub use profile::Profile;
pub use run::{Outcome, Script, run};
pub use value::Value;
