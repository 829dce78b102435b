//! Where this system keeps a user's files.

use std::path::{Path, PathBuf};

/// The usual data folder of this user, such as `~/.local/state/wingman`; `None` without a home.
pub fn usual_data_dir() -> Option<PathBuf> {
    let dirs = directories::ProjectDirs::from("", "", "wingman")?;
    Some(dirs.state_dir().unwrap_or(dirs.data_local_dir()).to_owned())
}

/// This user's home folder.
pub fn home_dir() -> Option<PathBuf> {
    Some(directories::BaseDirs::new()?.home_dir().to_owned())
}

/// The program that this user's terminals run: what the environment names, else the system's plain one.
pub fn user_shell() -> String {
    let named = ["SHELL", "COMSPEC"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    named.unwrap_or_else(|| {
        if cfg!(windows) {
            "cmd.exe".into()
        } else {
            "/bin/sh".into()
        }
    })
}

/// Whether a role's folder lies in the usual data folder.
pub(super) fn is_usual(state_dir: &Path) -> bool {
    usual_data_dir().is_some_and(|usual| state_dir.starts_with(usual))
}
