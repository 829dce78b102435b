//! Where a role keeps its files.
//!
//! ```text
//! <data>/            0700, `--data`, else the user's state folder
//!   agent/           agent.toml agent.id agent.key node.db journal/ executions/ captures/ scripts/
//!   server/          server.toml server.key server.db journal/ artifacts/
//!   up.json          the record of a running `wingman up`
//! ```

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::base::ids::{AgentId, fill_random};
use crate::wire::{Code, Fault};

/// The folder of all roles: `--data`, else `$XDG_STATE_HOME/wingman` or its like.
pub fn data_dir(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(dir) = given {
        return std::path::absolute(dir).with_context(|| format!("resolve {}", dir.display()));
    }
    let dirs = directories::ProjectDirs::from("", "", "wingman")
        .context("find the home folder: set --data or HOME")?;
    Ok(dirs.state_dir().unwrap_or_else(|| dirs.data_local_dir()).to_owned())
}

/// Makes a folder of the user's own.
pub fn private_dir(dir: &Path) -> Result<(), Fault> {
    crate::platform::native::create_private_dir(dir).map_err(|error| {
        Fault::new(Code::StorageFailed, format!("make the folder {}: {error}", dir.display()))
    })
}

/// This workstation's identity: made once from the host's name and random digits, kept for life.
pub fn agent_id(dir: &Path, hostname: &str) -> Result<AgentId, Fault> {
    let path = dir.join("agent.id");
    let failed = |what: &str, error: &std::io::Error| {
        Fault::new(Code::StorageFailed, format!("{what} {}: {error}", path.display()))
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => AgentId::parse(text.trim()).map_err(|error| {
            Fault::new(Code::ConfigInvalid, format!("{}: {error}", path.display()))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut digits = [0; 4];
            fill_random(&mut digits);
            let id = new_id(hostname, &data_encoding::HEXLOWER.encode(&digits));
            std::fs::write(&path, format!("{id}\n")).map_err(|error| failed("write", &error))?;
            Ok(id)
        }
        Err(error) => Err(failed("read", &error)),
    }
}

fn new_id(hostname: &str, digits: &str) -> AgentId {
    let plain: String = hostname
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        .take(64)
        .collect();
    let name = if plain.is_empty() { "agent".to_owned() } else { plain };
    AgentId::parse(format!("{name}-{digits}")).unwrap_or_else(|_| AgentId::random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_made_once_from_the_plain_part_of_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let id = agent_id(dir.path(), "désk 1.lan").unwrap();
        assert!(id.as_str().starts_with("dsk1.lan-"), "{id}");
        assert_eq!(agent_id(dir.path(), "other").unwrap(), id);
        std::fs::write(dir.path().join("agent.id"), "../etc").unwrap();
        assert_eq!(agent_id(dir.path(), "x").unwrap_err().code, Code::ConfigInvalid);
    }
}
