//! One caller over HTTP or local IPC, with the login and server look-up of the command line.
//!
//! Invariants: a typed call is the same on both wires; a token goes to the server that it was saved
//! for and nowhere else; a certificate is checked against its pin or the public roots, never against
//! nothing.

mod attach;
mod caller;
mod http;
pub mod login;
mod lookup;
mod paths;
mod pool;
pub mod record;
mod request;
mod target;
mod tls;

pub use caller::{Blob, Caller, EventStream};
pub use http::{HttpCaller, RecordStream};
pub use lookup::{Place, Wanted, address, connect, find};
pub use paths::Paths;
pub use target::{AgentChoice, pick};
