//! Where this user's files lie.

use std::path::PathBuf;

use crate::wire::{Code, Fault};

/// The folders of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Journal, database, sockets, the record of a running `wingman up`.
    pub state_dir: PathBuf,
    /// agent.toml, server.toml, the saved login.
    pub config_dir: PathBuf,
}

impl Paths {
    /// The given folders, and the system's usual ones for those that are not given.
    /// `config_invalid` when this user has no home and a folder is missing.
    pub fn resolve(state: Option<PathBuf>, config: Option<PathBuf>) -> Result<Self, Fault> {
        let usual = directories::ProjectDirs::from("", "", "wingman");
        let missing = |what: &str| {
            let text = format!("no {what} directory is known for this user; name one");
            Fault::new(Code::ConfigInvalid, text)
        };
        let state_dir = state.or_else(|| {
            let dirs = usual.as_ref()?;
            Some(dirs.state_dir().unwrap_or(dirs.data_local_dir()).to_owned())
        });
        let config_dir = config.or_else(|| Some(usual.as_ref()?.config_dir().to_owned()));
        Ok(Self {
            state_dir: state_dir.ok_or_else(|| missing("state"))?,
            config_dir: config_dir.ok_or_else(|| missing("configuration"))?,
        })
    }

    pub fn agent_toml(&self) -> PathBuf {
        self.config_dir.join("agent.toml")
    }

    pub fn server_toml(&self) -> PathBuf {
        self.config_dir.join("server.toml")
    }

    /// The saved login of the command line.
    pub fn login(&self) -> PathBuf {
        self.config_dir.join("login.json")
    }

    /// The record of a running `wingman up` or `wingman server`.
    pub fn record(&self) -> PathBuf {
        self.state_dir.join("up.json")
    }
}
