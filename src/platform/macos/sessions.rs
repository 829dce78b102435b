//! Terminal sessions on a system without a backend for them yet: every way to start or reach one says so.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::platform::pty::{
    ProcessExit, ProcessFacts, Program, PtySize, Ready, Received, Scope, Slot, TerminalState,
    Wanted,
};

fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "terminal sessions are not there on {}",
            std::env::consts::OS
        ),
    )
}

/// Nothing is known.
pub const fn process_facts(_group: u32, _shell: u32) -> Option<ProcessFacts> {
    None
}

/// Nothing is counted.
pub const fn session_processes(_session: u32) -> Option<u32> {
    None
}

/// Cannot be made here.
pub struct HolderIo(Infallible);

impl HolderIo {
    /// Whether `send_terminal` sends one.
    pub const SENDS_TERMINAL: bool = false;
    pub const IS_WATCHABLE: bool = false;

    pub fn start(_socket: &Path, _program: &Program, _size: PtySize) -> io::Result<Self> {
        Err(unsupported())
    }

    pub fn wait(&mut self, _wanted: &Wanted) -> io::Result<Ready> {
        match self.0 {}
    }

    pub fn child(&self) -> u32 {
        match self.0 {}
    }

    pub fn read_pty(&mut self, _into: &mut [u8]) -> io::Result<Received> {
        match self.0 {}
    }

    pub fn write_pty(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn resize(&mut self, _size: PtySize) -> io::Result<()> {
        match self.0 {}
    }

    pub fn state(&self) -> TerminalState {
        match self.0 {}
    }

    pub fn exit_status(&self) -> Option<ProcessExit> {
        match self.0 {}
    }

    pub fn ask_to_end(&mut self) -> u32 {
        match self.0 {}
    }

    pub fn session_runs(&self) -> bool {
        match self.0 {}
    }

    pub fn end_session(&mut self) -> u32 {
        match self.0 {}
    }

    pub fn has(&self, _slot: Slot) -> bool {
        match self.0 {}
    }

    pub fn promote(&mut self) {
        match self.0 {}
    }

    pub fn watch(&mut self) {
        match self.0 {}
    }

    pub fn is_watched(&self) -> bool {
        match self.0 {}
    }

    pub fn tell_watchers(&mut self, _pieces: &[&[u8]]) {
        match self.0 {}
    }

    pub fn close(&mut self, _slot: Slot) {
        match self.0 {}
    }

    pub fn receive(&mut self, _slot: Slot, _into: &mut [u8]) -> io::Result<Received> {
        match self.0 {}
    }

    pub fn send_terminal(&mut self, _slot: Slot, _bytes: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn send(&mut self, _slot: Slot, _pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0 {}
    }
}

/// Cannot be made here.
pub struct SessionStream(Infallible);

impl SessionStream {
    pub fn connect(_path: &Path) -> io::Result<Self> {
        Err(unsupported())
    }

    pub fn receive(&self, _into: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn receive_terminal(&self, _into: &mut [u8]) -> io::Result<(usize, Option<TerminalInput>)> {
        match self.0 {}
    }

    pub fn try_receive(&self, _into: &mut [u8]) -> io::Result<Received> {
        match self.0 {}
    }

    pub fn try_send(&self, _bytes: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn send(&self, _bytes: &[u8]) -> io::Result<()> {
        match self.0 {}
    }

    pub fn wait_readable(&self, _limit: Duration) -> io::Result<bool> {
        match self.0 {}
    }

    pub fn shutdown(&self) {
        match self.0 {}
    }
}

/// Cannot be made here.
pub struct Readiness(Infallible);

impl Readiness {
    pub fn new(stream: &Arc<SessionStream>) -> io::Result<Self> {
        match stream.0 {}
    }

    pub async fn wait(&self) -> io::Result<()> {
        match self.0 {}
    }
}

/// Cannot be made here.
#[derive(Debug)]
pub enum TerminalInput {}

impl TerminalInput {
    pub fn write(&self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }
}

/// Starting holders: there are none here.
pub mod zygote {
    use super::*;

    pub type Hold = fn(&Path, Started);

    pub struct Started(Infallible);

    impl Started {
        pub fn tell(self, _answer: &Result<u32, String>) {
            match self.0 {}
        }
    }

    #[derive(Debug)]
    pub struct Zygote(Infallible);

    impl Zygote {
        pub fn start(_executable: &Path, _subcommand: &str) -> io::Result<(Self, Scope)> {
            Err(unsupported())
        }

        pub fn spawn(&mut self, _folder: &Path) -> io::Result<Result<u32, String>> {
            match self.0 {}
        }

        pub fn pid(&self) -> u32 {
            match self.0 {}
        }
    }

    pub fn spawn_detached(
        _executable: &Path,
        _subcommand: &str,
        _folder: &Path,
    ) -> io::Result<Result<u32, String>> {
        Err(unsupported())
    }

    pub fn zygote_main(_warm: fn(), _hold: Hold) -> ExitCode {
        ExitCode::FAILURE
    }

    pub fn holder_main(_folder: &OsStr, _hold: Hold) -> ExitCode {
        ExitCode::FAILURE
    }

    pub const fn release_memory() {}

    pub const fn map_large_pieces() {}
}
