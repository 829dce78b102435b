//! Processes: listed, started, waited for and ended.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use windows::Win32::Foundation::{
    CloseHandle, ERROR_INVALID_PARAMETER, FILETIME, HANDLE, WAIT_OBJECT_0, WAIT_TIMEOUT,
};
use windows::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};
use windows::Win32::System::Threading::{
    GetProcessTimes, OpenProcess, PROCESS_ACCESS_RIGHTS, PROCESS_NAME_WIN32,
    PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE, PROCESS_TERMINATE,
    QueryFullProcessImageNameW, TerminateProcess, WaitForSingleObject,
};
use windows::core::{Error, HRESULT, PWSTR};

use super::window;
use crate::base::limits::PROCESS_POLL_MS;
use crate::platform::{Launch, PlatformError, Process, Processes, Result, Terminate};

/// Longest path that Windows has, in UTF-16 units.
const PATH_LEN_MAX: usize = 32_768;
/// The exit code of a process that was ended by force.
const ENDED_BY_FORCE: u32 = 1;

pub struct SystemProcesses;

impl Processes for SystemProcesses {
    fn list(&self) -> Result<Vec<Process>> {
        snapshot()
    }

    fn get(&self, pid: u32) -> Result<Process> {
        let mut all = snapshot()?.into_iter();
        all.find(|process| process.pid == pid)
            .ok_or(PlatformError::ProcessNotFound(pid))
    }

    fn start(&self, launch: &Launch) -> Result<u32> {
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.args)
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(folder) = &launch.working_dir {
            command.current_dir(folder);
        }
        // Windows keeps nothing of an ended process once its handle, dropped here, is closed.
        let child = command.spawn().map_err(|error| {
            PlatformError::ProcessFailed(format!("start {}: {error}", launch.program))
        })?;
        Ok(child.id())
    }

    fn wait(&self, pid: u32, timeout: Duration, cancelled: &dyn Fn() -> bool) -> Result<bool> {
        let process = Opened::new(pid, PROCESS_SYNCHRONIZE)?;
        let end = Instant::now().checked_add(timeout);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let slice = Duration::from_millis(PROCESS_POLL_MS).min(left.unwrap_or(Duration::MAX));
            // SAFETY: the handle is open and may be waited for.
            let waited = unsafe { WaitForSingleObject(process.0, slice.as_millis() as u32) };
            if waited == WAIT_OBJECT_0 {
                return Ok(true);
            }
            if waited != WAIT_TIMEOUT {
                return Err(failed("wait", pid, &Error::from_thread()));
            }
            if left.is_some_and(|left| left.is_zero()) || cancelled() {
                return Ok(false);
            }
        }
    }

    fn terminate(&self, pid: u32, how: Terminate) -> Result<()> {
        match how {
            Terminate::Ask => ask(pid),
            Terminate::Force => force(pid),
            Terminate::Tree => end_tree(pid),
        }
    }
}

/// Posts WM_CLOSE to the windows of a process; one without windows cannot be asked.
fn ask(pid: u32) -> Result<()> {
    Opened::new(pid, PROCESS_QUERY_LIMITED_INFORMATION)?;
    let windows = window::top_level()?.into_iter();
    let own: Vec<_> = windows
        .filter(|hwnd| window::is_listed(*hwnd) && window::pid_of(*hwnd) == Some(pid))
        .collect();
    if own.is_empty() {
        return Err(PlatformError::ProcessFailed(format!(
            "process {pid} has no window that could be asked to close; end it by force"
        )));
    }
    own.into_iter().try_for_each(window::ask_to_close)
}

fn force(pid: u32) -> Result<()> {
    let process = Opened::new(pid, PROCESS_TERMINATE)?;
    // SAFETY: the handle is open with the right to end the process.
    unsafe { TerminateProcess(process.0, ENDED_BY_FORCE) }
        .map_err(|error| failed("end", pid, &error))
}

/// Parents first, so that none starts another child meanwhile.
fn end_tree(root: u32) -> Result<()> {
    let all = snapshot()?;
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        let born = started(parent);
        let children = all.iter().filter(|process| {
            // A number is used again; whoever is older than its parent is somebody else's child.
            process.parent == Some(parent)
                && !tree.contains(&process.pid)
                && matches!((born, started(process.pid)), (Some(parent), Some(child)) if child >= parent)
        });
        let children: Vec<u32> = children.map(|process| process.pid).collect();
        tree.extend(children);
        next += 1;
    }
    force(root)?;
    for pid in tree.into_iter().skip(1) {
        match force(pid) {
            Ok(()) | Err(PlatformError::ProcessNotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn snapshot() -> Result<Vec<Process>> {
    let unlisted = |error: Error| {
        PlatformError::ProcessFailed(format!("list the processes: {}", error.message()))
    };
    // SAFETY: the handle that comes back is closed by `Opened`.
    let listing = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) };
    let listing = Opened(listing.map_err(unlisted)?);
    let mut entry = PROCESSENTRY32W {
        dwSize: size_of::<PROCESSENTRY32W>() as u32,
        ..PROCESSENTRY32W::default()
    };
    let mut found = Vec::new();
    // SAFETY: `entry` is as large as its size field says, here and below.
    unsafe { Process32FirstW(listing.0, &mut entry) }.map_err(unlisted)?;
    loop {
        found.push(describe(&entry));
        // SAFETY: as above.
        if unsafe { Process32NextW(listing.0, &mut entry) }.is_err() {
            return Ok(found);
        }
    }
}

fn describe(entry: &PROCESSENTRY32W) -> Process {
    let name = entry.szExeFile;
    let len = name
        .iter()
        .position(|unit| *unit == 0)
        .unwrap_or(name.len());
    let parent = entry.th32ParentProcessID;
    Process {
        pid: entry.th32ProcessID,
        parent: (parent != 0).then_some(parent),
        name: String::from_utf16_lossy(name.get(..len).unwrap_or_default()),
        path: path_of(entry.th32ProcessID),
    }
}

fn path_of(pid: u32) -> Option<PathBuf> {
    let process = Opened::new(pid, PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
    let mut path = vec![0u16; PATH_LEN_MAX];
    let mut len = u32::try_from(path.len()).ok()?;
    let target = PWSTR(path.as_mut_ptr());
    // SAFETY: the buffer holds `len` units and outlives the call.
    unsafe { QueryFullProcessImageNameW(process.0, PROCESS_NAME_WIN32, target, &mut len) }.ok()?;
    let path = path.get(..usize::try_from(len).ok()?)?;
    Some(PathBuf::from(String::from_utf16_lossy(path)))
}

/// When a process started, in ticks of 100 ns.
fn started(pid: u32) -> Option<u64> {
    let process = Opened::new(pid, PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
    let mut times = [FILETIME::default(); 4];
    let [created, exited, kernel, user] = &mut times;
    // SAFETY: the results are our own variables.
    unsafe { GetProcessTimes(process.0, created, exited, kernel, user) }.ok()?;
    Some(u64::from(created.dwHighDateTime) << 32 | u64::from(created.dwLowDateTime))
}

/// A handle that is closed when dropped.
struct Opened(HANDLE);

impl Opened {
    fn new(pid: u32, rights: PROCESS_ACCESS_RIGHTS) -> Result<Self> {
        // SAFETY: any number may be asked for; the handle is closed by `Drop`.
        match unsafe { OpenProcess(rights, false, pid) } {
            Ok(handle) => Ok(Self(handle)),
            Err(error) if error.code() == HRESULT::from_win32(ERROR_INVALID_PARAMETER.0) => {
                Err(PlatformError::ProcessNotFound(pid))
            }
            Err(error) => Err(failed("open", pid, &error)),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and open.
        let _ = unsafe { CloseHandle(self.0) };
    }
}

fn failed(what: &str, pid: u32, error: &Error) -> PlatformError {
    PlatformError::ProcessFailed(format!("{what} process {pid}: {}", error.message()))
}
