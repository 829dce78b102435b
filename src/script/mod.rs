//! Scripts: one set of function descriptors, bound by every engine without knowing it.
//!
//! Invariants: a function is described once (`descriptor`), runs against the `Host` alone, and is
//! named by no reserved word of Lua, Rhai or Python; an engine lives on one thread for one run and
//! is torn down with its modules' state in one place (`run`); a stop is final within 200 ms.

pub mod host;
pub mod value;

pub use host::{Host, StopReason};
pub use value::Value;
