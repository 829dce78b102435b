//! The connection of a console to a holder, which only Linux has.

use std::io;
use std::path::Path;
use std::task::{Context, Poll};

/// A connection to watch a holder, which this system does not have.
pub enum WatchStream {}

impl WatchStream {
    pub fn connect(_: &Path, _: &[u8]) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn poll_receive(&mut self, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        match *self {}
    }
}
