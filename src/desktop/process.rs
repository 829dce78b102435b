//! Processes.

use std::time::Duration;

use super::{Desktop, fault};
use crate::platform::{Launch, Process, Terminate};
use crate::wire::Fault;

impl Desktop {
    /// Processes whose name contains `name`, case ignored; all when it is absent.
    pub fn processes(&self, name: Option<&str>) -> Result<Vec<Process>, Fault> {
        let wanted = name.map(str::to_lowercase);
        let mut found = self.backend.processes.list().map_err(fault)?;
        if let Some(wanted) = wanted {
            found.retain(|process| process.name.to_lowercase().contains(&wanted));
        }
        Ok(found)
    }

    pub fn process(&self, pid: u32) -> Result<Process, Fault> {
        self.backend.processes.get(pid).map_err(fault)
    }

    /// Starts a program on this desktop's display.
    pub fn start_process(&self, launch: &Launch) -> Result<u32, Fault> {
        self.backend.processes.start(launch).map_err(fault)
    }

    /// `false` when the time passed first.
    pub fn wait_process(
        &self,
        pid: u32,
        timeout: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<bool, Fault> {
        self.backend
            .processes
            .wait(pid, timeout, cancelled)
            .map_err(fault)
    }

    pub fn terminate_process(&self, pid: u32, how: Terminate) -> Result<(), Fault> {
        self.backend.processes.terminate(pid, how).map_err(fault)
    }
}
