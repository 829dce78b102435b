//! The saved login of the command line: one server, its token, its pin. Mode 0600.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::record::{load, remove_file, write_private};
use crate::base::Secret;
use crate::wire::Fault;

/// A server that this user is logged in to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// Such as `https://wingman.example:9527`.
    pub server: String,
    pub token: Secret,
    /// SHA-256 of the server's own certificate, as hexadecimal; absent where the public roots vouch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
}

/// Reads the saved login.
pub fn read(path: &Path) -> Result<Option<Login>, Fault> {
    load(path)
}

/// Saves a login in place of the one before.
pub fn save(path: &Path, login: &Login) -> Result<(), Fault> {
    write_private(path, login)
}

/// Forgets the saved login.
pub fn forget(path: &Path) -> Result<(), Fault> {
    remove_file(path)
}
