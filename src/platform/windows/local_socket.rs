//! Named pipes of local IPC: their name and who may reach them.
//!
//! Invariants: the pipe's access list names its owner and the system alone; the first instance is
//! created exclusively, so that a second agent is refused.

use std::io;
use std::path::{Path, PathBuf};

use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::traits::tokio::Stream as _;
use interprocess::local_socket::{GenericFilePath, ListenerOptions, Name, ToFsName};
use interprocess::os::windows::local_socket::ListenerOptionsExt;
use interprocess::os::windows::security_descriptor::SecurityDescriptor;
use widestring::U16CString;

/// Full access for the owner and the system, nobody else; protected from inherited entries.
const OWNER_ONLY: &str = "D:P(A;;GA;;;OW)(A;;GA;;;SY)";

/// The endpoint that an agent with this state folder listens on unless its configuration names
/// another: `\\.\pipe\wingman-<user>`, with a digest of the folder behind it where that is not the
/// user's usual one. An agent with a folder of its own thus keeps apart from the usual one.
pub fn auto_endpoint(state_dir: &Path) -> PathBuf {
    let user = std::env::var("USERNAME").unwrap_or_default();
    let plain: String = user
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '_' })
        .collect();
    let mut name = format!(r"\\.\pipe\wingman-{plain}");
    if !crate::platform::paths::is_usual(state_dir) {
        let bytes = state_dir.as_os_str().as_encoded_bytes();
        let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
        name.push('-');
        name.push_str(&data_encoding::HEXLOWER.encode(&digest.as_ref()[..8]));
    }
    PathBuf::from(name)
}

/// The path that is really used for `endpoint`.
pub fn usable_path(endpoint: &Path) -> PathBuf {
    endpoint.to_owned()
}

/// A bound endpoint; the system removes a pipe with its last handle.
#[derive(Debug)]
pub struct Bound;

/// Binds `endpoint` for this user alone; one that is served already is `AddrInUse`.
pub fn bind(endpoint: &Path) -> io::Result<(Listener, Bound)> {
    let text = U16CString::from_str(OWNER_ONLY).map_err(io::Error::other)?;
    let descriptor = SecurityDescriptor::deserialize(&text)?;
    let listener = ListenerOptions::new()
        .name(name(endpoint)?)
        .security_descriptor(descriptor)
        .create_tokio()
        .map_err(|error| match error.kind() {
            // The first instance is exclusive: another process that holds it shows as denied.
            io::ErrorKind::PermissionDenied => io::ErrorKind::AddrInUse.into(),
            _ => error,
        })?;
    Ok((listener, Bound))
}

fn name(path: &Path) -> io::Result<Name<'_>> {
    path.to_fs_name::<GenericFilePath>()
}

/// Connects to `endpoint`.
pub async fn connect(endpoint: &Path) -> io::Result<Stream> {
    Stream::connect(name(endpoint)?).await
}

/// The pipe's access list has admitted the peer already.
pub fn is_same_user(_stream: &Stream) -> io::Result<bool> {
    Ok(true)
}

/// Creates a folder; below the user's profile it is the user's alone.
pub fn private_dir(dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)
}
