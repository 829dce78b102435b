//! What the agent itself keeps in a session's folder: what people changed, and the lease's generation.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::EpochMillis;
use crate::wire::messages::sessions::BaseKind;
use crate::wire::{Code, Fault};

const FILE: &str = "agent.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub name: String,
    pub base_path: PathBuf,
    pub base_kind: BaseKind,
    /// The newest generation of the lease.
    pub generation: u64,
}

impl Stored {
    /// Replaces the file as a whole.
    pub fn write(&self, folder: &Path) -> Result<(), Fault> {
        let path = folder.join(FILE);
        let failed = |error: std::io::Error| {
            Fault::new(
                Code::StorageFailed,
                format!("write {}: {error}", path.display()),
            )
        };
        let text = serde_json::to_vec(self).map_err(Fault::internal)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// Reads the file; a session without one is shown by its id.
    pub fn read(folder: &Path, id: &str) -> Self {
        let read = std::fs::read(folder.join(FILE)).ok();
        let stored = read.and_then(|text| serde_json::from_slice(&text).ok());
        stored.unwrap_or_else(|| Self {
            name: id.chars().take(8).collect(),
            base_path: PathBuf::new(),
            base_kind: BaseKind::Home,
            generation: 0,
        })
    }

    /// A generation above all that this session had, also where its file was lost.
    pub fn next_generation(&self, now: EpochMillis) -> u64 {
        let by_clock = u64::try_from(now.0).unwrap_or(0);
        by_clock.max(self.generation + 1)
    }
}
