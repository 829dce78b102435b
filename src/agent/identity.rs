//! The agent's id, made once and kept in its data folder.

use std::io::Write;
use std::path::Path;

use crate::base::ids::{self, AgentId};
use crate::wire::{Code, Fault};

/// The file in the data folder.
pub const AGENT_ID_FILE: &str = "agent.id";

/// Reads the id, or makes one from the host's name and writes it.
pub fn load_or_create(data_dir: &Path) -> Result<AgentId, Fault> {
    let path = data_dir.join(AGENT_ID_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => AgentId::parse(text.trim()).map_err(|error| {
            Fault::new(Code::ConfigInvalid, format!("{}: {error}", path.display()))
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let agent = propose(&hostname());
            save(data_dir, &agent)?;
            Ok(agent)
        }
        Err(error) => Err(failed("read", &path, &error)),
    }
}

/// Writes the id that a server has put in force.
pub fn save(data_dir: &Path, agent: &AgentId) -> Result<(), Fault> {
    let path = data_dir.join(AGENT_ID_FILE);
    let write = || -> std::io::Result<()> {
        std::fs::create_dir_all(data_dir)?;
        let mut file = tempfile::NamedTempFile::new_in(data_dir)?;
        writeln!(file, "{agent}")?;
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    };
    write().map_err(|error| failed("write", &path, &error))
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(
        Code::StorageFailed,
        format!("{what} {}: {error}", path.display()),
    )
}

/// This host's name; empty when it cannot be told.
pub fn hostname() -> String {
    sysinfo::System::host_name().unwrap_or_default()
}

/// `desk-1f2e3d4c`: readable, and unlikely to be another's.
fn propose(hostname: &str) -> AgentId {
    let stem: String = hostname
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(32)
        .collect();
    let stem = if stem.is_empty() { "agent" } else { &stem };
    let text = format!("{stem}-{}", ids::random_hex(4));
    // INVARIANT: letters, digits and hyphens of bounded length are an identifier.
    AgentId::parse(text).unwrap_or_else(|_| AgentId::random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_made_once_and_a_spoilt_file_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let first = load_or_create(dir.path()).unwrap();
        assert_eq!(load_or_create(dir.path()).unwrap(), first);
        std::fs::write(dir.path().join(AGENT_ID_FILE), "../x").unwrap();
        let fault = load_or_create(dir.path()).unwrap_err();
        assert_eq!(fault.code, Code::ConfigInvalid);
        assert!(propose("Büro Ω").as_str().starts_with("bro-"));
        assert!(propose("世界").as_str().starts_with("agent-"));
    }
}
