//! The record that a running `wingman up` or `wingman server` leaves for the command line of the
//! same user: where its API listens and a token for it. Mode 0600; it goes when the process ends,
//! and one whose process is gone is ignored.

use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sysinfo::{Pid, ProcessesToUpdate, System};

use crate::base::Secret;
use crate::wire::{Code, Fault};

/// A running server of this user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Such as `http://127.0.0.1:9527`.
    pub address: String,
    pub token: Secret,
    pub pid: u32,
    /// SHA-256 of the server's own certificate, as hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
}

/// Writes the record; the file is replaced as a whole.
pub fn write(path: &Path, record: &Record) -> Result<(), Fault> {
    write_private(path, record)
}

/// Removes the record where it is this process's own.
pub fn remove(path: &Path) -> Result<(), Fault> {
    match load::<Record>(path)? {
        Some(record) if record.pid == std::process::id() => remove_file(path),
        _ => Ok(()),
    }
}

/// Reads the record of a process that still runs.
pub fn read(path: &Path) -> Result<Option<Record>, Fault> {
    Ok(load::<Record>(path)?.filter(|record| process_exists(record.pid)))
}

fn process_exists(pid: u32) -> bool {
    let pid = Pid::from_u32(pid);
    let mut system = System::new();
    system.refresh_processes(ProcessesToUpdate::Some(&[pid]), true);
    system.process(pid).is_some()
}

/// Reads a JSON file; `None` when there is none.
pub(super) fn load<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Fault> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path, &error)),
    };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| Fault::new(Code::ConfigInvalid, format!("{}: {error}", path.display())))
}

/// Writes a JSON file for this user alone; it is replaced as a whole.
pub(super) fn write_private(path: &Path, value: &impl Serialize) -> Result<(), Fault> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let text = serde_json::to_string_pretty(value).map_err(Fault::internal)?;
    let written = || -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        // Temporary files are made for this user alone.
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(|error| failed("write", path, &error))
}

pub(super) fn remove_file(path: &Path) -> Result<(), Fault> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path, &error)),
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Fault {
    Fault::new(
        Code::StorageFailed,
        format!("{what} {}: {error}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_of_a_process_that_is_gone_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("up.json");
        let mut record = Record {
            address: "http://127.0.0.1:1".into(),
            token: Secret::new("t"),
            pid: std::process::id(),
            pin: None,
        };
        assert_eq!(read(&path).unwrap(), None);
        write(&path, &record).unwrap();
        assert_eq!(read(&path).unwrap().as_ref(), Some(&record));
        remove(&path).unwrap();
        assert!(!path.exists());
        record.pid = u32::MAX - 1;
        write(&path, &record).unwrap();
        assert_eq!(read(&path).unwrap(), None);
        remove(&path).unwrap();
        assert!(path.exists(), "another process's record stays");
    }
}
