//! The console window that a console runs in, through crossterm.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::Event;
use crossterm::{event, terminal};
use tokio::sync::mpsc;

use crate::base::limits;
use crate::platform::{Output, Waited};

static CHANGED: AtomicBool = AtomicBool::new(false);

/// The outer terminal. Needs a tokio runtime.
pub struct Tty {
    events: mpsc::Receiver<io::Result<Event>>,
}

impl Tty {
    /// Opens the terminal of standard input and output; an error when they are none. A thread reads
    /// events until the process ends.
    pub fn open() -> io::Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(io::Error::other(
                "standard input and output are no terminal",
            ));
        }
        if !crossterm::ansi_support::supports_ansi() {
            return Err(io::Error::other(
                "this console does not know escape sequences",
            ));
        }
        let (send, events) = mpsc::channel(limits::CONSOLE_EVENTS_MAX);
        std::thread::Builder::new()
            .name("console-input".into())
            .spawn(move || {
                loop {
                    let event = event::read();
                    let failed = event.is_err();
                    if send.blocking_send(event).is_err() || failed {
                        return;
                    }
                }
            })?;
        Ok(Self { events })
    }

    /// Columns and rows.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        terminal::size()
    }

    /// Turns raw mode on until `put_back`.
    pub fn raw(&self) -> io::Result<()> {
        terminal::enable_raw_mode()?;
        CHANGED.store(true, Ordering::SeqCst);
        crossterm::execute!(io::stdout(), event::EnableMouseCapture)
    }

    /// Writes all of it: a Windows console does not say how much it takes.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut output = io::stdout().lock();
        output.write_all(bytes)?;
        output.flush()?;
        Ok(bytes.len())
    }

    /// Waits for the next event; this platform never gives bytes, and its output is always ready.
    /// Dropping the future loses nothing.
    pub async fn wait(&mut self, output: Output, _into: &mut Vec<u8>) -> io::Result<Waited> {
        if output == Output::Wanted {
            return Ok(Waited::Writable);
        }
        match self.events.recv().await {
            Some(event) => event.map(Waited::Event),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Writes `sequence` and puts the settings back, once: later calls do nothing until `raw` is called
/// again. May be called from a panic hook.
pub fn put_back(sequence: &[u8]) {
    if !CHANGED.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut output = io::stdout();
    let _ = output.write_all(sequence).and_then(|()| output.flush());
    let _ = crossterm::execute!(output, event::DisableMouseCapture);
    let _ = terminal::disable_raw_mode();
}

/// What the system tells a console. A new size comes as an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Resized,
    Continued,
    /// Ctrl-Break, or the window is closing.
    End,
}

pub struct Signals {
    stop: super::StopSignals,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            stop: super::StopSignals::new()?,
        })
    }

    /// The next one. Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Told {
        self.stop.recv().await;
        Told::End
    }
}

/// Windows has no job control.
pub fn suspend() -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}
