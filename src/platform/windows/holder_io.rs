//! Everything that a holder waits for on Windows: a pseudo-console and named pipes, with a thread for each
//! thing that can only be waited for alone, and one bell that they all ring.
//!
//! A pseudo-console does not end with its program: output that comes within the holder's grace after the
//! exit still counts. Being asked to end is the closing of the console, as when its window is closed.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use interprocess::local_socket::traits::tokio::Listener as _;
use portable_pty::{Child, CommandBuilder, MasterPty, PtySystem};

use super::local_socket;
use super::pipe::{Bell, Pipe, lock, name_of, runtime};
use super::process::SystemProcesses;
use crate::base::limits;
use crate::platform::pty::{
    ProcessExit, Program, PtySize, Ready, Received, Slot, TerminalState, Wanted,
};
use crate::platform::{Processes, Terminate};

#[derive(Default)]
struct Waiting {
    output: VecDeque<u8>,
    output_ended: bool,
    /// Input that the writing thread has not written yet.
    input_len: usize,
    exit: Option<i32>,
    calls: VecDeque<Pipe>,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Output was taken.
    room: Condvar,
    bell: Arc<Bell>,
}

/// A holder's console and pipes. One thread uses it.
pub struct HolderIo {
    /// `None` once the console was closed.
    master: Option<Box<dyn MasterPty + Send>>,
    input: Sender<Vec<u8>>,
    child: u32,
    shared: Arc<Shared>,
    current: Option<Pipe>,
    candidate: Option<Pipe>,
    exit_told: bool,
}

impl HolderIo {
    /// Whether `send_terminal` sends one.
    pub const SENDS_TERMINAL: bool = false;
    /// Whether `watch` takes watchers.
    pub const IS_WATCHABLE: bool = false;

    /// Listens, opens a console and starts the program on it.
    pub fn start(socket: &Path, program: &Program, size: PtySize) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        listen(socket, shared.clone())?;
        let pair = portable_pty::win::conpty::ConPtySystem::default()
            .openpty(pty_size(size))
            .map_err(other)?;
        let child = pair.slave.spawn_command(command(program)?).map_err(other)?;
        let pid = child
            .process_id()
            .ok_or_else(|| io::Error::other("the program has no number"))?;
        let output = pair.master.try_clone_reader().map_err(other)?;
        let writer = pair.master.take_writer().map_err(other)?;
        let (input, inputs) = channel::<Vec<u8>>();
        thread("output", shared.clone(), move |shared| {
            read_output(output, &shared)
        })?;
        thread("input", shared.clone(), move |shared| {
            let mut writer = writer;
            for bytes in inputs {
                // A console that is gone takes nothing; the exit tells.
                let _ = writer.write_all(&bytes).and_then(|()| writer.flush());
                lock(&shared.waiting).input_len -= bytes.len();
                shared.bell.ring();
            }
        })?;
        thread("child", shared.clone(), move |shared| {
            wait_child(child, &shared)
        })?;
        Ok(Self {
            master: Some(pair.master),
            input,
            child: pid,
            shared,
            current: None,
            candidate: None,
            exit_told: false,
        })
    }

    /// Waits until something of it is there.
    pub fn wait(&mut self, wanted: &Wanted) -> io::Result<Ready> {
        loop {
            let ready = self.look(wanted);
            let any = ready.pty_read
                || ready.pty_write
                || ready.exited
                || ready.accepted
                || ready.current_read
                || ready.current_write
                || ready.candidate_read;
            let late = wanted
                .until
                .is_some_and(|until| until <= std::time::Instant::now());
            if any || late {
                return Ok(ready);
            }
            self.shared.bell.wait(wanted.until);
        }
    }

    fn look(&mut self, wanted: &Wanted) -> Ready {
        let mut waiting = lock(&self.shared.waiting);
        let mut ready = Ready {
            pty_read: wanted.pty_read && (!waiting.output.is_empty() || waiting.output_ended),
            pty_write: wanted.pty_write && waiting.input_len < limits::HOLDER_CHUNK_LEN,
            exited: waiting.exit.is_some() && !self.exit_told,
            ..Ready::default()
        };
        self.exit_told |= ready.exited;
        if let Some(pipe) = waiting.calls.pop_front() {
            self.candidate = Some(pipe);
            ready.accepted = true;
        }
        drop(waiting);
        if let Some(pipe) = &self.current {
            ready.current_read = wanted.current_read && pipe.is_readable();
            ready.current_write = wanted.current_write && pipe.is_writable();
        }
        ready.candidate_read = self.candidate.as_ref().is_some_and(Pipe::is_readable);
        ready
    }

    pub const fn child(&self) -> u32 {
        self.child
    }

    /// Takes output of the program.
    pub fn read_pty(&mut self, into: &mut [u8]) -> io::Result<Received> {
        let mut waiting = lock(&self.shared.waiting);
        let length = waiting.output.len().min(into.len());
        if length == 0 {
            return Ok(if waiting.output_ended {
                Received::Closed
            } else {
                Received::Nothing
            });
        }
        for (place, byte) in into.iter_mut().zip(waiting.output.drain(..length)) {
            *place = byte;
        }
        self.shared.room.notify_one();
        Ok(Received::Bytes(length))
    }

    /// Gives input to the program; answers how much was taken.
    pub fn write_pty(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = lock(&self.shared.waiting);
        let room = limits::HOLDER_CHUNK_LEN.saturating_sub(waiting.input_len);
        let taken = bytes.get(..bytes.len().min(room)).unwrap_or_default();
        if !taken.is_empty() {
            waiting.input_len += taken.len();
            self.input.send(taken.to_vec()).map_err(io::Error::other)?;
        }
        Ok(taken.len())
    }

    pub fn resize(&mut self, size: PtySize) -> io::Result<()> {
        match &self.master {
            Some(master) => master.resize(pty_size(size)).map_err(other),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// A console does not tell.
    pub fn state(&self) -> TerminalState {
        TerminalState::default()
    }

    /// How the child ended, once it has.
    pub fn exit_status(&self) -> Option<ProcessExit> {
        lock(&self.shared.waiting).exit.map(ProcessExit::Code)
    }

    /// Closes the console, which tells every program on it to end.
    pub fn ask_to_end(&mut self) -> u32 {
        let Some(master) = self.master.take() else {
            return 0;
        };
        // Closing waits for the output to be read, which this thread has to go on doing.
        let closing = thread("close", self.shared.clone(), move |_| drop(master));
        u32::from(closing.is_ok())
    }

    pub fn session_runs(&self) -> bool {
        lock(&self.shared.waiting).exit.is_none()
    }

    /// Ends the program and all that descend from it.
    pub fn end_session(&mut self) -> u32 {
        u32::from(
            SystemProcesses
                .terminate(self.child, Terminate::Tree)
                .is_ok(),
        )
    }

    pub const fn has(&self, slot: Slot) -> bool {
        match slot {
            Slot::Current => self.current.is_some(),
            Slot::Candidate => self.candidate.is_some(),
        }
    }

    /// The candidate becomes the connection that is served; the former one is closed.
    pub fn promote(&mut self) {
        self.current = self.candidate.take();
    }

    /// There are no watchers here: the candidate is closed.
    pub fn watch(&mut self) {
        self.candidate = None;
    }

    pub const fn is_watched(&self) -> bool {
        false
    }

    pub fn tell_watchers(&mut self, _: &[&[u8]]) {}

    pub fn close(&mut self, slot: Slot) {
        match slot {
            Slot::Current => self.current = None,
            Slot::Candidate => self.candidate = None,
        }
    }

    const fn pipe(&self, slot: Slot) -> Option<&Pipe> {
        match slot {
            Slot::Current => self.current.as_ref(),
            Slot::Candidate => self.candidate.as_ref(),
        }
    }

    /// Takes bytes of a connection that are there.
    pub fn receive(&mut self, slot: Slot, into: &mut [u8]) -> io::Result<Received> {
        Ok(self
            .pipe(slot)
            .map_or(Received::Closed, |pipe| pipe.receive(into)))
    }

    /// Gives bytes to a connection; a pseudo-console cannot go with them.
    pub fn send_terminal(&mut self, slot: Slot, bytes: &[u8]) -> io::Result<usize> {
        self.send(slot, &[IoSlice::new(bytes)])
    }

    /// Gives bytes to a connection; answers how much it took.
    pub fn send(&mut self, slot: Slot, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let pipe = self.pipe(slot).ok_or(io::ErrorKind::NotConnected)?;
        let mut sent = 0;
        for piece in pieces {
            let taken = pipe.send(piece)?;
            sent += taken;
            if taken < piece.len() {
                break;
            }
        }
        Ok(sent)
    }
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

const fn pty_size(size: PtySize) -> portable_pty::PtySize {
    portable_pty::PtySize {
        rows: size.rows,
        cols: size.cols,
        pixel_width: 0,
        pixel_height: 0,
    }
}

fn command(program: &Program) -> io::Result<CommandBuilder> {
    let (name, arguments) = program
        .argv
        .split_first()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no program is named"))?;
    if !program.cwd.is_dir() {
        let text = format!("working directory {} does not exist", program.cwd.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let mut command = CommandBuilder::new(name);
    command.args(arguments);
    command.cwd(&program.cwd);
    command.env_clear();
    for (name, value) in &program.env {
        command.env(name, value);
    }
    Ok(command)
}

fn thread(
    name: &str,
    shared: Arc<Shared>,
    work: impl FnOnce(Arc<Shared>) + Send + 'static,
) -> io::Result<()> {
    std::thread::Builder::new()
        .name(format!("session-{name}"))
        .spawn(move || work(shared))
        .map(drop)
}

fn listen(socket: &Path, shared: Arc<Shared>) -> io::Result<()> {
    let runtime = runtime()?;
    let (listener, bound) = {
        let _entered = runtime.enter();
        local_socket::bind(&name_of(socket))?
    };
    runtime.spawn(async move {
        let _bound = bound;
        loop {
            match listener.accept().await {
                Ok(stream) => {
                    if let Ok(pipe) = Pipe::new(stream, shared.bell.clone()) {
                        let mut waiting = lock(&shared.waiting);
                        // The newest candidate takes the place of one that was not looked at yet.
                        waiting.calls.clear();
                        waiting.calls.push_back(pipe);
                    }
                    shared.bell.ring();
                }
                Err(_) => {
                    let pause = Duration::from_millis(limits::IPC_ACCEPT_PAUSE_MS);
                    tokio::time::sleep(pause).await;
                }
            }
        }
    });
    Ok(())
}

fn read_output(mut output: Box<dyn Read + Send>, shared: &Shared) {
    let mut bytes = vec![0; limits::HOLDER_CHUNK_LEN];
    loop {
        let length = output.read(&mut bytes).unwrap_or(0);
        let mut waiting = lock(&shared.waiting);
        while waiting.output.len() >= limits::HOLDER_CHUNK_LEN {
            waiting = shared
                .room
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        waiting
            .output
            .extend(bytes.get(..length).unwrap_or_default());
        waiting.output_ended |= length == 0;
        drop(waiting);
        shared.bell.ring();
        if length == 0 {
            return;
        }
    }
}

fn wait_child(mut child: Box<dyn Child + Send + Sync>, shared: &Shared) {
    let code = child.wait().map_or(-1, |status| {
        // Windows' codes are unsigned; the bits stay.
        i32::from_ne_bytes(status.exit_code().to_ne_bytes())
    });
    lock(&shared.waiting).exit = Some(code);
    shared.bell.ring();
}
