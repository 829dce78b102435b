//! Stored files of executions: one folder a run, one file an artifact.
//!
//! A file is written beside its place, fsynced and renamed, so that a name never shows a partial
//! file. Its hash is checked at every read.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::base::digest::sha256_hex;
use crate::base::ids::ExecutionId;
use crate::base::{EpochMillis, limits};
use crate::wire::messages::executions::Artifact;
use crate::wire::{Code, Fault};

/// The folder of all runs' files.
#[derive(Clone, Debug)]
pub struct Artifacts {
    root: PathBuf,
}

/// The names that a run's own output has.
pub const STDOUT: &str = "stdout";
pub const STDERR: &str = "stderr";
pub const RESULT: &str = "result.json";

impl Artifacts {
    pub fn open(root: PathBuf) -> Result<Self, Fault> {
        fs::create_dir_all(&root).map_err(|error| storage("make the artifact folder", &error))?;
        Ok(Self { root })
    }

    fn dir(&self, run: &ExecutionId) -> PathBuf {
        // An id may hold ':', which Windows refuses in names.
        self.root.join(run.as_str().replace(':', "_"))
    }

    /// Where a stream of a run is written while it goes on.
    pub fn stream_file(&self, run: &ExecutionId, name: &str) -> Result<File, Fault> {
        let dir = self.dir(run);
        fs::create_dir_all(&dir).map_err(|error| storage("make a run's folder", &error))?;
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.join(name))
            .map_err(|error| storage("open a run's stream", &error))
    }

    /// Stores a file; one of the same name is replaced.
    pub fn store(
        &self,
        run: &ExecutionId,
        name: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<Artifact, Fault> {
        check_name(name)?;
        if bytes.len() > limits::ARTIFACT_LEN_MAX {
            return Err(Fault::new(
                Code::ArtifactTooLarge,
                format!(
                    "artifact {name} has {} bytes, more than {}",
                    bytes.len(),
                    limits::ARTIFACT_LEN_MAX
                ),
            ));
        }
        let dir = self.dir(run);
        let write = || -> io::Result<()> {
            fs::create_dir_all(&dir)?;
            let mut file = tempfile::NamedTempFile::new_in(&dir)?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            file.persist(dir.join(name))?;
            Ok(())
        };
        write().map_err(|error| storage("store an artifact", &error))?;
        Ok(record(name, content_type, bytes))
    }

    /// Describes a stream file after its last byte; `None` where nothing was printed.
    pub fn seal_stream(&self, run: &ExecutionId, name: &str) -> Result<Option<Artifact>, Fault> {
        let path = self.dir(run).join(name);
        match fs::read(&path) {
            Ok(bytes) => {
                // Windows flushes through a handle that may write alone.
                fs::OpenOptions::new()
                    .append(true)
                    .open(&path)
                    .and_then(|file| file.sync_all())
                    .map_err(|error| storage("flush a run's stream", &error))?;
                Ok(Some(record(name, "text/plain; charset=utf-8", &bytes)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(storage("read a run's stream", &error)),
        }
    }

    /// Reads an artifact and checks it against its record.
    pub fn read(&self, run: &ExecutionId, artifact: &Artifact) -> Result<Vec<u8>, Fault> {
        check_name(&artifact.name)?;
        let path = self.dir(run).join(&artifact.name);
        let mut bytes = Vec::new();
        let result =
            File::open(&path).and_then(|file| file.take(artifact.size + 1).read_to_end(&mut bytes));
        match result {
            Ok(_) if sha256_hex(&bytes) == artifact.sha256 => Ok(bytes),
            Ok(_) => Err(self.quarantine(&path, artifact)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Fault::new(
                Code::ArtifactCorrupt,
                format!("artifact {} of {run} is missing", artifact.name),
            )),
            Err(error) => Err(storage("read an artifact", &error)),
        }
    }

    /// Moves a file that is not what was stored out of the way.
    fn quarantine(&self, path: &Path, artifact: &Artifact) -> Fault {
        let aside = path.with_extension("corrupt");
        let moved = match fs::rename(path, &aside) {
            Ok(()) => format!("it was moved to {}", aside.display()),
            Err(error) => format!("it could not be moved aside: {error}"),
        };
        Fault::new(
            Code::ArtifactCorrupt,
            format!("artifact {} is not what was stored; {moved}", artifact.name),
        )
    }

    /// Removes all files of a run.
    pub fn remove(&self, run: &ExecutionId) -> Result<(), Fault> {
        match fs::remove_dir_all(self.dir(run)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(storage("remove a run's files", &error))
            }
            _ => Ok(()),
        }
    }
}

fn record(name: &str, content_type: &str, bytes: &[u8]) -> Artifact {
    Artifact {
        name: name.to_owned(),
        content_type: content_type.to_owned(),
        size: bytes.len() as u64,
        sha256: sha256_hex(bytes),
        created_at: EpochMillis::now(),
    }
}

/// Names are plain: 1 to 128 letters, digits, '.', '_' or '-', not beginning with '.'.
pub fn check_name(name: &str) -> Result<(), Fault> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.bytes().all(plain) {
        return Err(Fault::new(
            Code::InvalidParams,
            format!("artifact name {name:?} must be 1 to 128 letters, digits, '.', '_' or '-'"),
        ));
    }
    Ok(())
}

fn storage(what: &str, error: &io::Error) -> Fault {
    let code = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::StorageFull,
        _ => Code::StorageFailed,
    };
    Fault::new(code, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn altered_file_is_quarantined_not_served() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::open(dir.path().join("a")).unwrap();
        let run = ExecutionId::random();
        let artifact = artifacts
            .store(&run, "x.png", "image/png", b"pixels")
            .unwrap();
        assert_eq!(artifacts.read(&run, &artifact).unwrap(), b"pixels");
        fs::write(artifacts.dir(&run).join("x.png"), b"pixelz").unwrap();
        assert_eq!(
            artifacts.read(&run, &artifact).unwrap_err().code,
            Code::ArtifactCorrupt
        );
        assert_eq!(
            artifacts.read(&run, &artifact).unwrap_err().code,
            Code::ArtifactCorrupt
        );
        assert!(artifacts.dir(&run).join("x.corrupt").exists());
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        for bad in [
            "",
            "..",
            ".hidden",
            "a/b",
            "a\\b",
            "a:b",
            "ä",
            &"x".repeat(129),
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("shot-1.png").is_ok());
    }
}
