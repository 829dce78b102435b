//! The console events that ask a process to end.

use std::io;

use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, ctrl_break, ctrl_c, ctrl_close};

/// Hears Ctrl-C, Ctrl-Break and the closing of the console. Needs a tokio runtime.
pub struct StopSignals {
    interrupt: CtrlC,
    stop: CtrlBreak,
    close: CtrlClose,
}

impl StopSignals {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: ctrl_c()?,
            stop: ctrl_break()?,
            close: ctrl_close()?,
        })
    }

    /// Waits for the next one.
    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.stop.recv() => {}
            _ = self.close.recv() => {}
        }
    }
}
