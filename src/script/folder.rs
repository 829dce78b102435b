//! The files that a script may touch: its own folder and the declared roots, nothing else.
//!
//! A path is taken apart by component. `..` is refused as text; every component below the root is
//! looked at without following it, so a symbolic link is refused wherever it points.

use std::fs;
use std::io::{Read, Write as _};
use std::path::{Component, Path, PathBuf};

use super::fault::ScriptFault;
use super::host::Host;
use crate::base::limits;
use crate::wire::Code;

fn denied(path: &str, why: &str) -> ScriptFault {
    ScriptFault::failed(Code::PathDenied, format!("{path:?}: {why}"))
}

/// An input or output error with what was attempted.
pub fn io_fault(what: &str, path: &str, error: &std::io::Error) -> ScriptFault {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => Code::NotFound,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Code::StorageFull,
        _ => Code::StorageFailed,
    };
    ScriptFault::failed(code, format!("{what} {path:?}: {error}"))
}

/// As `resolve`, for work that would take the folder itself away: that is refused.
pub fn resolve_below(host: &dyn Host, path: &str) -> Result<PathBuf, ScriptFault> {
    let full = resolve(host, path)?;
    let own = host.script_dir();
    let is_root = own
        .iter()
        .chain(host.file_roots())
        .any(|root| root.canonicalize().is_ok_and(|root| root == full));
    if is_root {
        return Err(denied(path, "this is the folder itself"));
    }
    if host
        .private_paths()
        .iter()
        .any(|own| own.starts_with(&full))
    {
        return Err(denied(path, "the agent's own files are below it"));
    }
    Ok(full)
}

/// The full path of a script's path, whether or not something is there yet.
pub fn resolve(host: &dyn Host, path: &str) -> Result<PathBuf, ScriptFault> {
    if path.is_empty() || path.contains('\0') {
        return Err(denied(path, "this is no path"));
    }
    let given = Path::new(path);
    let (root, below) = if given.is_absolute() {
        absolute_parts(host, path, given)?
    } else {
        let Some(own) = host.script_dir() else {
            return Err(denied(
                path,
                "a script that came as text has no folder; give a full path below a declared root",
            ));
        };
        (own, given.to_path_buf())
    };
    let mut full = root
        .canonicalize()
        .map_err(|error| io_fault("open the folder", &root.to_string_lossy(), &error))?;
    for part in below.components() {
        match part {
            Component::CurDir => continue,
            Component::Normal(name) => full.push(name),
            _ => return Err(denied(path, "a path may not leave its folder")),
        }
        match fs::symlink_metadata(&full) {
            Ok(found) if found.file_type().is_symlink() => {
                return Err(denied(path, "symbolic links are refused"));
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_fault("look at", path, &error)),
        }
    }
    if host.private_paths().iter().any(|own| full.starts_with(own)) {
        return Err(denied(path, "it belongs to the agent itself"));
    }
    Ok(full)
}

fn absolute_parts(
    host: &dyn Host,
    path: &str,
    given: &Path,
) -> Result<(PathBuf, PathBuf), ScriptFault> {
    let own = host.script_dir();
    for root in own.iter().chain(host.file_roots()) {
        if let Ok(below) = given.strip_prefix(root) {
            return Ok((root.clone(), below.to_path_buf()));
        }
        if let Ok(real) = root.canonicalize()
            && let Ok(below) = given.strip_prefix(&real)
        {
            return Ok((real, below.to_path_buf()));
        }
    }
    Err(denied(
        path,
        "it lies outside of the script's folder and the declared roots",
    ))
}

/// Reads a whole file, at most 16 MiB.
pub fn read(host: &dyn Host, path: &str) -> Result<Vec<u8>, ScriptFault> {
    let full = resolve(host, path)?;
    let file = fs::File::open(&full).map_err(|error| io_fault("read", path, &error))?;
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    if !is_file {
        return Err(ScriptFault::failed(
            Code::StorageFailed,
            format!("read {path:?}: it is no plain file"),
        ));
    }
    let mut bytes = Vec::new();
    let max = limits::SCRIPT_FILE_LEN_MAX as u64;
    file.take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| io_fault("read", path, &error))?;
    check_len(path, bytes.len() as u64)?;
    Ok(bytes)
}

fn check_len(path: &str, len: u64) -> Result<(), ScriptFault> {
    if len <= limits::SCRIPT_FILE_LEN_MAX as u64 {
        return Ok(());
    }
    Err(ScriptFault::failed(
        Code::BodyTooLarge,
        format!(
            "{path:?}: files of scripts hold at most {} bytes",
            limits::SCRIPT_FILE_LEN_MAX
        ),
    ))
}

/// What happens to a file that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Replace,
    Append,
}

/// Writes a file; no file grows over 16 MiB.
pub fn write(host: &dyn Host, path: &str, bytes: &[u8], how: Write) -> Result<(), ScriptFault> {
    let full = resolve(host, path)?;
    let before = match how {
        Write::Replace => 0,
        Write::Append => fs::symlink_metadata(&full).map_or(0, |found| found.len()),
    };
    check_len(path, before.saturating_add(bytes.len() as u64))?;
    let mut options = fs::OpenOptions::new();
    options.create(true);
    match how {
        Write::Replace => options.write(true).truncate(true),
        Write::Append => options.append(true),
    };
    options
        .open(&full)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|error| io_fault("write", path, &error))
}
