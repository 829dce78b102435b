//! Where this system keeps a user's files.

use std::path::{Path, PathBuf};

/// The usual data folder of this user, such as `~/.local/state/wingman`; `None` without a home.
pub fn usual_data_dir() -> Option<PathBuf> {
    let dirs = directories::ProjectDirs::from("", "", "wingman")?;
    Some(dirs.state_dir().unwrap_or(dirs.data_local_dir()).to_owned())
}

/// Whether a role's folder lies in the usual data folder.
pub(super) fn is_usual(state_dir: &Path) -> bool {
    usual_data_dir().is_some_and(|usual| state_dir.starts_with(usual))
}
