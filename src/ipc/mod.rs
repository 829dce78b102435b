//! Local IPC: the node's front door for programs of the same user on the same machine.
//!
//! `serve` listens (many clients, peer checked, everything bounded) and hands calls to the node's
//! handler; `Client` is the other end. What belongs to a connection is answered here: `ipc.hello`,
//! `events.drain`, `events.follow`.
//!
//! Invariants: the handler learns of every connection's end; nothing beyond this user's processes is
//! served; a slow client stops its own connection alone.

mod channels;
mod client;
mod connection;
mod endpoint;
mod events;
mod local_tcp;
mod server;

pub use client::{Client, EventStream, Reply, ReplyBytes};
pub use endpoint::Endpoint;
pub use server::{IpcOptions, IpcServer, serve};

use tokio::io::{AsyncRead, AsyncWrite};

/// Methods that the connection itself answers; the node's handler never sees them.
pub const ANSWERED_BY_CONNECTION: &[&str] = &["ipc.hello", "events.drain", "events.follow"];

/// A byte stream of either transport.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

type BoxWire = Box<dyn Wire>;
