//! Unix domain sockets of local IPC: where they lie, who may reach them, and how a stale one is told
//! from a live one.
//!
//! Invariants: the directory is 0700 and ours, the socket 0600; whoever binds holds an advisory lock
//! beside the socket for as long as it listens, so that two agents cannot both find it stale.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::traits::StreamCommon;
use interprocess::local_socket::traits::tokio::Stream as _;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, Name, ToFsName};
use interprocess::os::unix::local_socket::ListenerOptionsExt;

/// Longest socket path in bytes; the kernel's own bound is 107.
const PATH_LEN_MAX: usize = 100;

/// The endpoint that an agent with this state folder listens on unless its configuration names
/// another: `$XDG_RUNTIME_DIR/wingman/agent.sock` where the variable names a folder and the state
/// folder is the user's usual one, else `agent.sock` in the state folder. An agent with a folder of its
/// own thus keeps apart from the usual one.
pub fn auto_endpoint(state_dir: &Path) -> PathBuf {
    runtime_dir()
        .filter(|_| crate::platform::paths::is_usual(state_dir))
        .map_or_else(|| state_dir.to_owned(), |dir| dir.join("wingman"))
        .join("agent.sock")
}

fn runtime_dir() -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    (dir.is_absolute() && dir.is_dir()).then_some(dir)
}

/// The path that is really used for `endpoint`: itself, or for one too long for the kernel a short
/// one in a directory of this user alone. Both ends compute the same.
pub fn usable_path(endpoint: &Path) -> PathBuf {
    let bytes = endpoint.as_os_str().as_encoded_bytes();
    if bytes.len() <= PATH_LEN_MAX {
        return endpoint.to_owned();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let name = data_encoding::HEXLOWER.encode(digest.as_ref());
    short_dir().join(format!("{}.sock", &name[..16]))
}

fn short_dir() -> PathBuf {
    PathBuf::from(format!("/tmp/wingman-{}", user()))
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A bound endpoint. Dropping it removes the socket, unless another has taken its place.
#[derive(Debug)]
pub struct Bound {
    path: PathBuf,
    inode: Option<u64>,
    /// Held, never read: the lock ends with the file.
    _lock: File,
}

impl Drop for Bound {
    fn drop(&mut self) {
        let current = fs::symlink_metadata(&self.path).map(|meta| meta.ino()).ok();
        if current.is_some() && current == self.inode {
            // A socket that stays behind is found stale by the next agent.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds `endpoint` for this user alone. A stale socket is removed; a live one, or another process
/// that binds it just now, is `AddrInUse`. Needs a tokio runtime; does not block for long.
pub fn bind(endpoint: &Path) -> io::Result<(Listener, Bound)> {
    let path = usable_path(endpoint);
    let dir = path.parent().unwrap_or(Path::new("."));
    private_dir(dir)?;
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path.with_extension("lock"))?;
    if lock.try_lock().is_err() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    remove_stale(&path)?;
    let listener = ListenerOptions::new()
        .name(name(&path)?)
        .mode(0o600)
        .reclaim_name(false)
        .create_tokio()?;
    let bound = Bound {
        inode: fs::symlink_metadata(&path).map(|meta| meta.ino()).ok(),
        path,
        _lock: lock,
    };
    Ok((listener, bound))
}

/// Creates a directory for this user alone, or checks that it is one. A directory of ours that others
/// may enter is closed to them.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let meta = fs::symlink_metadata(dir)?;
    let meta = if meta.is_symlink() && dir != short_dir() {
        fs::metadata(dir)?
    } else {
        meta
    };
    if !meta.is_dir() || meta.uid() != user() {
        return Err(denied(dir, "does not belong to this user alone"));
    }
    if meta.mode() & 0o077 != 0 {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

fn denied(path: &Path, why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} {why}", path.display()),
    )
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(denied(path, "exists and is no socket"));
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

fn name(path: &Path) -> io::Result<Name<'_>> {
    path.to_fs_name::<GenericFilePath>()
}

/// Connects to `endpoint` and checks that this user listens there.
pub async fn connect(endpoint: &Path) -> io::Result<Stream> {
    let path = usable_path(endpoint);
    let stream = Stream::connect(name(&path)?).await?;
    if !is_same_user(&stream)? {
        return Err(denied(&path, "is served by another user"));
    }
    Ok(stream)
}

/// Whether the process at the other end runs as this user (SO_PEERCRED).
pub fn is_same_user(stream: &Stream) -> io::Result<bool> {
    Ok(stream.peer_creds()?.euid() == Some(user()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_move_to_a_short_directory_of_the_user() {
        let long = PathBuf::from(format!("/{}/agent.sock", "x".repeat(120)));
        let usable = usable_path(&long);
        assert!(usable.as_os_str().len() <= PATH_LEN_MAX);
        assert!(usable.starts_with(short_dir()));
        assert_ne!(usable, usable_path(&long.with_file_name("other.sock")));
        let short = Path::new("/run/x/agent.sock");
        assert_eq!(usable_path(short), short);
    }

    #[tokio::test]
    async fn stale_socket_is_replaced_and_a_live_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let (listener, bound) = bind(&path).unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(dir.path())), (0o600, 0o700));
        drop(listener);
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_file_in_the_way_is_not_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        fs::write(&path, "precious").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
