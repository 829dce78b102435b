//! Whether an X client of this host has nothing left to do.
//!
//! A client that has events to handle is awake: the kernel marks a process as runnable in the moment
//! in which bytes arrive for it, however long it then waits for a processor. One that sleeps, and has
//! not run at all between several looks with a round trip to the X server between them (so that it
//! cannot be waiting for an answer of the server either), has handled all that it was sent.

use std::fs;

use x11rb::protocol::res::{ClientIdMask, ClientIdSpec, ConnectionExt as _};
use x11rb::protocol::xproto::Window;
use x11rb::rust_connection::RustConnection;

/// A client's process on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientProcess {
    pid: u32,
}

/// How often each thread of a sleeping process had run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asleep(Vec<(u32, u64)>);

impl ClientProcess {
    /// The process of the client that owns a window; `None` for one of another host or namespace.
    pub fn of_window(connection: &RustConnection, window: Window) -> Option<Self> {
        let spec = ClientIdSpec {
            client: window,
            mask: ClientIdMask::LOCAL_CLIENT_PID,
        };
        let reply = connection
            .res_query_client_ids(&[spec])
            .ok()?
            .reply()
            .ok()?;
        let pid = reply.ids.iter().find_map(|id| id.value.first().copied())?;
        let process = Self { pid };
        fs::exists(format!("/proc/{pid}")).ok()?.then_some(process)
    }

    /// How often its threads have run, if all of these sleep.
    pub fn asleep(self, threads: Threads) -> Option<Asleep> {
        let look = |thread: u32| {
            let status = fs::read_to_string(format!("/proc/{}/task/{thread}/status", self.pid));
            Some((thread, runs_if_asleep(&status.ok()?)?))
        };
        if threads == Threads::Main {
            return look(self.pid).map(|run| Asleep(vec![run]));
        }
        let folder = fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?;
        let runs = folder
            .take(THREADS_MAX)
            .map(|thread| look(thread.ok()?.file_name().to_str()?.parse().ok()?));
        runs.collect::<Option<_>>().map(Asleep)
    }
}

/// Which threads to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    All,
    /// The first, which handles events in nearly every client.
    Main,
}

/// Threads looked at; a client with more is not looked at whole.
const THREADS_MAX: usize = 64;

/// Reads a thread's status (proc(5)): the number of times it was scheduled away, if it sleeps.
fn runs_if_asleep(status: &str) -> Option<u64> {
    let mut asleep = false;
    let mut runs = 0;
    for line in status.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        match name {
            "State" => asleep = value.trim_start().starts_with('S'),
            "voluntary_ctxt_switches" | "nonvoluntary_ctxt_switches" => {
                runs += value.trim().parse::<u64>().ok()?;
            }
            _ => {}
        }
    }
    asleep.then_some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sleeping_thread_counts_as_asleep() {
        let status = |state: &str| {
            format!(
                "Name:\tx\nState:\t{state}\nvoluntary_ctxt_switches:\t40\n\
                 nonvoluntary_ctxt_switches:\t2\n"
            )
        };
        assert_eq!(runs_if_asleep(&status("S (sleeping)")), Some(42));
        assert_eq!(runs_if_asleep(&status("R (running)")), None);
        assert_eq!(runs_if_asleep(&status("D (disk sleep)")), None);
        let own = ClientProcess {
            pid: std::process::id(),
        };
        assert_eq!(own.asleep(Threads::All), None, "this thread runs");
    }
}
