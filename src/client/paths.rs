//! Where the files of this user lie, as the command line finds them.
//!
//! ```text
//! <data>/up.json           the record of a running `wingman up` or `wingman server`
//! <data>/console.toml      the console's settings
//! <data>/login.json        the saved login of the command line
//! <data>/agent/agent.toml  the agent's settings, which name its endpoint
//! ```

use std::path::PathBuf;

use crate::platform::paths::usual_data_dir;
use crate::wire::{Code, Fault};

/// The folder of all roles of this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    pub data_dir: PathBuf,
}

impl Paths {
    /// The given folder, or the system's usual one. `config_invalid` when none was given and this
    /// user has no home.
    pub fn resolve(given: Option<PathBuf>) -> Result<Self, Fault> {
        let data_dir = given.or_else(usual_data_dir).ok_or_else(|| {
            Fault::new(
                Code::ConfigInvalid,
                "this user has no home folder: set --data or HOME",
            )
        })?;
        let absolute = std::path::absolute(&data_dir).map_err(|error| {
            Fault::new(
                Code::ConfigInvalid,
                format!("resolve {}: {error}", data_dir.display()),
            )
        })?;
        Ok(Self { data_dir: absolute })
    }

    /// The agent's own folder: settings, socket, journal.
    pub fn agent_dir(&self) -> PathBuf {
        self.data_dir.join("agent")
    }

    pub fn agent_toml(&self) -> PathBuf {
        self.agent_dir().join("agent.toml")
    }

    /// The console's settings.
    pub fn console_toml(&self) -> PathBuf {
        self.data_dir.join("console.toml")
    }

    /// The saved login of the command line.
    pub fn login(&self) -> PathBuf {
        self.data_dir.join("login.json")
    }

    /// The record of a running `wingman up` or `wingman server`.
    pub fn record(&self) -> PathBuf {
        self.data_dir.join("up.json")
    }
}
