//! Processes, from `/proc` and by process file descriptors.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::base::limits::{CANCEL_POLL_MS, PROCESS_TREE_PASSES_MAX};
use crate::platform::{Launch, PlatformError, Process, Processes, Result, Terminate};

/// The host's processes; programs started here appear on `display`.
pub fn open(display: Option<&str>) -> Box<dyn Processes> {
    Box::new(ProcTable {
        display: display.map(str::to_owned),
    })
}

struct ProcTable {
    display: Option<String>,
}

/// One line of `/proc/PID/stat`, the parts that count here (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    state: u8,
    parent: u32,
    /// In clock ticks since boot: with the pid, the identity of a process.
    started: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name stands in parentheses and may itself hold spaces and parentheses.
        let (head, tail) = text.rsplit_once(')')?;
        let name = head.split_once('(')?.1;
        let mut fields = tail.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        // Fields 5 to 21 lie between the parent and the start time.
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self {
            name: name.to_owned(),
            state,
            parent,
            started,
        })
    }

    fn read(pid: u32) -> Result<Self> {
        match fs::read(format!("/proc/{pid}/stat")) {
            Ok(bytes) => Self::parse(&String::from_utf8_lossy(&bytes)).ok_or_else(|| {
                PlatformError::ProcessFailed(format!("/proc/{pid}/stat cannot be read"))
            }),
            Err(error) if gone(&error) => Err(PlatformError::ProcessNotFound(pid)),
            Err(error) => Err(PlatformError::ProcessFailed(format!(
                "read /proc/{pid}/stat: {error}"
            ))),
        }
    }

    fn ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// A process that ends while its files are read gives either error.
fn gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn pids() -> Result<Vec<u32>> {
    let entries = fs::read_dir("/proc")
        .map_err(|error| PlatformError::ProcessFailed(format!("read /proc: {error}")))?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

fn describe(pid: u32, stat: Stat) -> Process {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok();
    // The kernel cuts its own name at 15 bytes; the executable's name is whole, but an interpreter's
    // is not what people know a script by, so it counts only where it continues the short one.
    let whole = path
        .as_deref()
        .and_then(|path| path.file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| stat.name.len() == 15 && name.starts_with(&stat.name));
    Process {
        pid,
        parent: Some(stat.parent).filter(|parent| *parent != 0),
        name: whole.unwrap_or(stat.name),
        path,
    }
}

impl Processes for ProcTable {
    fn list(&self) -> Result<Vec<Process>> {
        let mut pids = pids()?;
        pids.sort_unstable();
        // One that ends while the table is read is not in it; zombies have ended.
        Ok(pids
            .into_iter()
            .filter_map(|pid| Some((pid, Stat::read(pid).ok()?)))
            .filter(|(_, stat)| !stat.ended())
            .map(|(pid, stat)| describe(pid, stat))
            .collect())
    }

    fn get(&self, pid: u32) -> Result<Process> {
        let stat = Stat::read(pid)?;
        if stat.ended() {
            return Err(PlatformError::ProcessNotFound(pid));
        }
        Ok(describe(pid, stat))
    }

    fn start(&self, launch: &Launch) -> Result<u32> {
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(display) = &self.display {
            command.env("DISPLAY", display);
        }
        if let Some(folder) = &launch.working_dir {
            command.current_dir(folder);
        }
        command.envs(launch.env.iter().map(|(name, value)| (name, value)));
        // A group of its own: what a terminal sends to ours is not for it.
        command.process_group(0);
        let failed = |error: std::io::Error| match &launch.working_dir {
            Some(folder) if !folder.is_dir() => PlatformError::ProcessFailed(format!(
                "start {:?}: the folder {} is not there",
                launch.program,
                folder.display()
            )),
            _ => PlatformError::ProcessFailed(format!("start {:?}: {error}", launch.program)),
        };
        let mut child = command.spawn().map_err(failed)?;
        let pid = child.id();
        std::thread::Builder::new()
            .name(format!("reap-{pid}"))
            .stack_size(64 * 1024)
            .spawn(move || {
                // Collects the status so that no zombie stays; nobody asks for it.
                let _ = child.wait();
            })
            .map_err(|error| {
                PlatformError::ProcessFailed(format!("{pid} runs, but nothing reaps it: {error}"))
            })?;
        Ok(pid)
    }

    fn wait(&self, pid: u32, timeout: Duration, cancelled: &dyn Fn() -> bool) -> Result<bool> {
        let handle = match open_pid(pid) {
            Ok(handle) => handle,
            // It was there before, as far as anyone can tell, and is not now.
            Err(PlatformError::ProcessNotFound(_)) => return Ok(true),
            Err(error) => return Err(error),
        };
        let started = Instant::now();
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            if has_ended(&handle, left.min(Duration::from_millis(CANCEL_POLL_MS)))? {
                return Ok(true);
            }
            if started.elapsed() >= timeout || cancelled() {
                return Ok(false);
            }
        }
    }

    fn terminate(&self, pid: u32, how: Terminate) -> Result<()> {
        let own = std::process::id();
        if pid == own || pid <= 1 {
            return Err(PlatformError::ProcessFailed(format!(
                "{pid} is not to be ended from here"
            )));
        }
        match how {
            Terminate::Ask => signal(pid, &open_pid(pid)?, Signal::TERM),
            Terminate::Force => signal(pid, &open_pid(pid)?, Signal::KILL),
            Terminate::Tree => end_tree(pid),
        }
    }
}

fn raw_pid(pid: u32) -> Result<Pid> {
    i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(PlatformError::ProcessNotFound(pid))
}

fn open_pid(pid: u32) -> Result<OwnedFd> {
    pidfd_open(raw_pid(pid)?, PidfdFlags::empty()).map_err(|error| match error {
        Errno::SRCH | Errno::INVAL => PlatformError::ProcessNotFound(pid),
        error => PlatformError::ProcessFailed(format!("open process {pid}: {error}")),
    })
}

/// Waits, at most for `slice`, until the process has ended.
fn has_ended(handle: &OwnedFd, slice: Duration) -> Result<bool> {
    let mut watched = [PollFd::new(handle, PollFlags::IN)];
    let slice = Timespec {
        tv_sec: slice.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: i64::from(slice.subsec_nanos()),
    };
    match poll(&mut watched, Some(&slice)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(PlatformError::ProcessFailed(format!("wait: {error}"))),
    }
}

fn signal(pid: u32, handle: &OwnedFd, signal: Signal) -> Result<()> {
    match pidfd_send_signal(handle, signal) {
        Ok(()) => Ok(()),
        Err(Errno::SRCH) => Err(PlatformError::ProcessNotFound(pid)),
        Err(Errno::PERM) => Err(PlatformError::ProcessFailed(format!(
            "{pid} belongs to another user, and this one may not end it"
        ))),
        Err(error) => Err(PlatformError::ProcessFailed(format!("end {pid}: {error}"))),
    }
}

/// A process of a tree, held by a descriptor so that its number cannot come to mean another one.
struct Member {
    pid: u32,
    handle: OwnedFd,
}

/// Ends a process, then all that descend from it. The root goes first, so that it starts no more;
/// children of an ended parent are found by the parents noted before, and passes repeat until one
/// finds nobody new.
fn end_tree(root: u32) -> Result<()> {
    let mut parents = snapshot()?;
    if !parents.contains_key(&root) {
        return Err(PlatformError::ProcessNotFound(root));
    }
    let mut ended: HashSet<u32> = HashSet::new();
    let mut refused = None;
    for _ in 0..PROCESS_TREE_PASSES_MAX {
        let members = descendants(root, &parents, &ended);
        if members.is_empty() {
            return refused.map_or(Ok(()), Err);
        }
        for Member { pid, handle } in members {
            ended.insert(pid);
            match signal(pid, &handle, Signal::KILL) {
                Ok(()) | Err(PlatformError::ProcessNotFound(_)) => {}
                Err(error) => refused = Some(error),
            }
        }
        // Those that the ended ones started meanwhile now descend from others; what is known of
        // their parents stays.
        for (pid, link) in snapshot()? {
            parents.entry(pid).or_insert(link);
        }
    }
    Err(PlatformError::ProcessFailed(format!(
        "the tree of {root} grows as fast as it is ended"
    )))
}

/// Every process with its parent and its start.
fn snapshot() -> Result<HashMap<u32, (u32, u64)>> {
    Ok(pids()?
        .into_iter()
        .filter_map(|pid| Some((pid, Stat::read(pid).ok()?)))
        .filter(|(_, stat)| !stat.ended())
        .map(|(pid, stat)| (pid, (stat.parent, stat.started)))
        .collect())
}

/// The members of a tree that are not ended yet, the root first.
fn descendants(root: u32, parents: &HashMap<u32, (u32, u64)>, ended: &HashSet<u32>) -> Vec<Member> {
    let mut tree = vec![root];
    let mut at = 0;
    while let Some(parent) = tree.get(at).copied() {
        let children = parents
            .iter()
            .filter(|(pid, (of, _))| *of == parent && !tree.contains(pid));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        tree.extend(children);
        at += 1;
    }
    tree.into_iter()
        .filter(|pid| !ended.contains(pid) && *pid != std::process::id())
        .filter_map(|pid| {
            let handle = open_pid(pid).ok()?;
            // The descriptor is open: if the start is still the one noted, it is the same process.
            let started = parents.get(&pid)?.1;
            (Stat::read(pid).ok()?.started == started).then_some(Member { pid, handle })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_spaces_and_parentheses_is_read_whole() {
        let tail: String = (5..22).map(|field| format!(" {field}")).collect();
        let text = format!("7 (a) (b c)) S 3{tail} 4711 0 0");
        let stat = Stat::parse(&text).unwrap();
        assert_eq!(stat.name, "a) (b c)");
        assert_eq!((stat.state, stat.parent, stat.started), (b'S', 3, 4711));
        for end in 0..text.len() - 9 {
            assert_eq!(Stat::parse(&text[..end]), None);
        }
    }

    #[test]
    fn own_process_is_listed_and_may_not_be_ended() {
        let table = open(None);
        let own = table.get(std::process::id()).unwrap();
        assert!(table.list().unwrap().iter().any(|p| p.pid == own.pid));
        assert!(own.path.is_some());
        assert!(table.terminate(own.pid, Terminate::Force).is_err());
    }
}
