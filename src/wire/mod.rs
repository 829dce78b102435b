//! Bytes to messages and back, no sockets: frames, envelopes, the method table, the messages by
//! family, version negotiation and the stable error codes.
//!
//! Invariants: names only `base`; decoders never default silently, never panic, and say at which
//! byte they failed; every method is declared once, in `table`.

pub(crate) mod blob_flow;
pub mod capability;
pub(crate) mod channel;
pub mod codes;
pub mod envelope;
pub mod event;
pub mod frame;
pub mod framed;
pub mod handler;
pub mod join;
pub mod link;
pub mod messages;
pub mod method;
pub mod peer;
mod peer_answer;
mod peer_read;
mod peer_write;
pub mod permission;
pub mod rawkey;
mod request;
pub mod stream;
pub(crate) mod stream_flow;
pub mod table;

pub use codes::{Code, Fault};
pub use handler::{Answer, Blob, BoxFuture, Call, Handler, Origin};
pub use method::{Method, MethodRow};
pub use permission::Permission;
pub use stream::{Piece, PieceKind, StreamEnd};
