//! Typed settings: schema with defaults, load from file, environment and flags, check.
//!
//! A configuration file is an authored document: unknown keys are errors that name file and key.
//! Environment wins over the file, flags win over both. Nothing here reads a socket.

mod agent;
mod console;
mod server;

pub use agent::{
    AgentConfig, DesktopConfig, IpcConfig, LoggingConfig, RemoteConfig, ScriptsConfig,
    TerminalConfig, Transport, write_remote,
};
pub use console::{ConsoleConfig, KeysConfig, ScreenConfig, Side};
pub use server::{AgentsConfig, ExecutionsConfig, HttpConfig, ServerConfig};

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Why a configuration was refused; the text names file, place and reason.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("write {path}: {source}")]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Bad TOML, an unknown key or a value of the wrong type.
    #[error("{path}: {message}")]
    Parse { path: PathBuf, message: String },
    /// A value that no run could use.
    #[error("{key} {message}")]
    Invalid { key: &'static str, message: String },
}

/// Reads a file; a missing one gives the defaults.
fn load<T: DeserializeOwned + Default>(path: &Path) -> Result<T, ConfigError> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(path, &text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(source) => Err(ConfigError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| ConfigError::Parse {
        path: path.to_owned(),
        message: error.to_string(),
    })
}

fn invalid(key: &'static str, message: impl Into<String>) -> ConfigError {
    ConfigError::Invalid {
        key,
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shipped file, read strictly, and the code's defaults are the same document.
    fn same<T: serde::Serialize + DeserializeOwned + Default>(text: &str) {
        let shipped: toml::Table = toml::from_str(text).unwrap();
        let read: T = parse(Path::new("shipped"), text).unwrap();
        let defaults = toml::Table::try_from(T::default()).unwrap();
        assert_eq!(shipped, defaults, "shipped file and defaults differ");
        assert_eq!(toml::Table::try_from(read).unwrap(), defaults);
    }

    #[test]
    fn shipped_files_hold_every_default() {
        same::<AgentConfig>(include_str!("../../config/agent.toml"));
        same::<ConsoleConfig>(include_str!("../../config/console.toml"));
        same::<ServerConfig>(include_str!("../../config/server.toml"));
    }
}
