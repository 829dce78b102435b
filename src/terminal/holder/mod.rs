//! Sessions that outlive the agent: a small process holds each one's terminal.
//!
//! ```text
//! agent ──asks──▶ zygote ──forks──▶ holder ──starts──▶ program
//!   └───────── connect, subscribe ────┘ keeps recent output and the agent's last checkpoint
//! console ──────── watch ─────────────┘ sees the echo of a key at once, beside the agent's way
//! agent killed ─▶ the holder goes on ─▶ next agent: scan, connect, fetch_checkpoint, subscribe
//! program ended ─▶ exit.json and last.screen are written ─▶ the holder ends
//! ```
//!
//! Invariants: a holder runs no emulator and knows no screen; nothing that an agent does or fails to do
//! loses a byte of output: at `HOLDER_RING_LEN_MAX` without a checkpoint the program waits. A holder of
//! another protocol version is listed and left alone.
//!
//! A holder ignores what terminals and dying parents send; TERM, as from a system that shuts down, ends its
//! session in the same orderly way as `kill`.

mod buffer;
mod checkpoint;
mod client;
mod environment;
mod folder;
mod outgoing;
pub mod protocol;
mod ring;
mod serve;
mod start;
mod watch;

pub use client::{Block, Filled, NewCheckpoint, Reader, Writer, connect, last_screen};
pub use folder::{Ended, Found, Meta, SessionState, Spec, remove, scan, socket_of, state_of};
pub use protocol::{ErrorCode, FromHolder, Hello, PROTOCOL, Position, Stat, ToHolder};
pub use start::{Scope, Zygote, holder_main, spawn_direct, zygote_main};
pub use watch::{Early, Watcher};

use std::path::PathBuf;

use protocol::ProtocolError;

/// Why something about a holder failed.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    #[error("{what}: {source}")]
    Io {
        what: &'static str,
        source: std::io::Error,
    },
    #[error("{path}: {source}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file of a session's folder is not what it should be.
    #[error("{path} is not readable: {why}")]
    FileInvalid { path: PathBuf, why: String },
    /// The holder speaks another protocol; it is left alone.
    #[error("the holder speaks protocol {protocol}, this agent {PROTOCOL}")]
    Incompatible { protocol: u16 },
    #[error("the holder's bytes are wrong: {0}")]
    Protocol(#[from] ProtocolError),
    /// The holder could not start; it says why.
    #[error("the session did not start: {0}")]
    NotStarted(String),
    /// Too much waits for the holder already; nothing of this was sent.
    #[error("the holder does not take what was sent before")]
    Busy,
    /// More than fits into one call.
    #[error("{what} of {length} bytes is longer than {limit}")]
    TooLong {
        what: &'static str,
        length: usize,
        limit: usize,
    },
    /// The connection has ended.
    #[error("the connection to the holder has ended")]
    Closed,
}

impl HolderError {
    fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
