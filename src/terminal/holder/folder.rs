//! The folder of a session: what it is made of, and what state it is in.
//!
//! ```text
//! <state>/sessions/<id>/   mode 0700
//!   spec.json    what to run; 0600, since environment values are secrets
//!   lock         locked by the holder for as long as it lives
//!   sock         where it listens; a path that is too long moves, see platform
//!   meta.json    who holds, since when, by which protocol
//!   exit.json    how the program ended ┐ written when it has ended; kept by the agent for 24 h
//!   last.screen  what an agent needs to show the end: protocol frames as `last_screen` reads them ┘
//!   holder.log   the words of a holder that panicked
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{HolderError, PROTOCOL};
use crate::base::{EpochMillis, Secret, limits};
use crate::platform::native::local_socket::private_dir;
use crate::platform::pty::{ProcessExit, PtySize};

pub(super) const SPEC: &str = "spec.json";
pub(super) const META: &str = "meta.json";
pub(super) const LOCK: &str = "lock";
const SOCKET: &str = "sock";
pub(super) const EXIT: &str = "exit.json";
pub(super) const LAST_SCREEN: &str = "last.screen";
pub(super) const LOG: &str = "holder.log";

/// Where the holder of the session in `folder` listens.
pub fn socket_of(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

/// What to run in a session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Also the name of the session's folder.
    pub id: String,
    /// The program and its arguments, at least one; the program is looked for in its own PATH.
    pub argv: Vec<String>,
    pub cwd: PathBuf,
    /// Set beside what the holder inherits from the agent.
    #[serde(default)]
    pub env: BTreeMap<String, Secret>,
    pub size: PtySize,
    #[serde(default)]
    pub name: Option<String>,
    pub created_at: EpochMillis,
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments may hold secrets as well as the environment.
        f.debug_struct("Spec")
            .field("id", &self.id)
            .field("program", &self.argv.first())
            .field("cwd", &self.cwd)
            .field("size", &self.size)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Spec {
    /// Creates the folder `<sessions_dir>/<id>` with this specification and answers its path.
    pub fn create(&self, sessions_dir: &Path) -> Result<PathBuf, HolderError> {
        let folder = sessions_dir.join(&self.id);
        private_dir(sessions_dir).map_err(file_error(sessions_dir))?;
        private_dir(&folder).map_err(file_error(&folder))?;
        write_json(&folder.join(SPEC), self)?;
        Ok(folder)
    }

    /// Reads the specification of a session.
    pub fn read(folder: &Path) -> Result<Self, HolderError> {
        read_json(&folder.join(SPEC))
    }
}

/// Who holds a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    pub protocol: u16,
    /// The holder's process number.
    pub holder: u32,
    /// The program's, which is also that of its session and first group.
    pub child: u32,
    pub started_at: EpochMillis,
}

/// How and when a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub exit: ProcessExit,
    pub at: EpochMillis,
}

/// What a session's folder says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// A holder of this protocol lives. It may be about to end.
    Live { meta: Meta },
    /// A holder of another protocol lives; it is left alone.
    Incompatible { protocol: u16 },
    /// A holder lives, but its folder does not say what it is; left for a person, or just starting.
    Broken { why: String },
    /// No holder lives. `None`: it ended without a word, as in a crash of the machine, or never started.
    Ended { exit: Option<Ended> },
}

/// One session that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub id: String,
    pub folder: PathBuf,
    pub state: SessionState,
}

/// Every session below a folder, by name. Tries locks and reads small files; connects to nobody. A folder
/// that is not there holds no sessions.
pub fn scan(sessions_dir: &Path) -> Result<Vec<Found>, HolderError> {
    let entries = match fs::read_dir(sessions_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(file_error(sessions_dir))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(file_error(sessions_dir))?;
        let folder = entry.path();
        if let Ok(id) = entry.file_name().into_string()
            && folder.is_dir()
        {
            let state = state_of(&folder);
            found.push(Found { id, folder, state });
        }
    }
    found.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(found)
}

/// The state of one session.
pub fn state_of(folder: &Path) -> SessionState {
    match is_locked(folder) {
        Ok(true) => held(folder),
        Ok(false) => SessionState::Ended {
            exit: read_json(&folder.join(EXIT)).ok(),
        },
        Err(error) => SessionState::Broken {
            why: format!("its lock cannot be tried: {error}"),
        },
    }
}

fn held(folder: &Path) -> SessionState {
    #[derive(Deserialize)]
    struct Version {
        protocol: u16,
    }
    let path = folder.join(META);
    match read_json::<Version>(&path) {
        Ok(Version { protocol }) if protocol != PROTOCOL => SessionState::Incompatible { protocol },
        Ok(_) => read_json(&path).map_or_else(
            |error| SessionState::Broken {
                why: error.to_string(),
            },
            |meta| SessionState::Live { meta },
        ),
        Err(error) => SessionState::Broken {
            why: error.to_string(),
        },
    }
}

fn is_locked(folder: &Path) -> io::Result<bool> {
    let lock = match File::open(folder.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Takes a session's lock for the life of the file. `WouldBlock`: another holder has it.
pub(super) fn lock(folder: &Path) -> io::Result<File> {
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(LOCK))?;
    for _ in 0..limits::HOLDER_LOCK_TRIES_MAX {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(error)) => return Err(error),
            // A scan holds it for a moment.
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(limits::HOLDER_LOCK_PAUSE_MS));
            }
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Removes the folder of a session that has ended.
pub fn remove(folder: &Path) -> Result<(), HolderError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(folder)(error)),
        _ => Ok(()),
    }
}

/// Replaces a file as a whole; only this user may read it.
pub(super) fn write_file(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    write(file.as_file_mut())?;
    file.persist(path)?;
    Ok(())
}

pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), HolderError> {
    let bytes = serde_json::to_vec(value).map_err(|error| HolderError::FileInvalid {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    write_file(path, |file| file.write_all(&bytes)).map_err(file_error(path))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, HolderError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| {
            file.take(limits::SESSION_SPEC_LEN_MAX)
                .read_to_end(&mut bytes)
        })
        .map_err(file_error(path))?;
    // The error of serde_json names a place, never a value of a secret.
    serde_json::from_slice(&bytes).map_err(|error| HolderError::FileInvalid {
        path: path.to_owned(),
        why: format!("line {} column {}", error.line(), error.column()),
    })
}

pub(super) fn file_error(path: &Path) -> impl FnOnce(io::Error) -> HolderError {
    let path = path.to_owned();
    move |source| HolderError::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_tells_the_living_from_the_dead() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("s1");
        fs::create_dir(&folder).unwrap();
        assert_eq!(state_of(&folder), SessionState::Ended { exit: None });
        let held = lock(&folder).unwrap();
        assert!(matches!(state_of(&folder), SessionState::Broken { .. }));
        fs::write(folder.join(META), r#"{"protocol":7,"new":true}"#).unwrap();
        let found = scan(dir.path()).unwrap();
        assert_eq!(found[0].state, SessionState::Incompatible { protocol: 7 });
        let meta = Meta {
            protocol: PROTOCOL,
            holder: 1,
            child: 2,
            started_at: EpochMillis(3),
        };
        write_json(&folder.join(META), &meta).unwrap();
        assert_eq!(state_of(&folder), SessionState::Live { meta });
        drop(held);
        let ended = Ended {
            exit: ProcessExit::Signal(9),
            at: EpochMillis(5),
        };
        write_json(&folder.join(EXIT), &ended).unwrap();
        assert_eq!(state_of(&folder), SessionState::Ended { exit: Some(ended) });
    }

    #[test]
    fn a_specification_hides_its_secrets_in_prints() {
        let spec = Spec {
            id: "s".into(),
            argv: vec!["sh".into(), "--token=abc".into()],
            cwd: "/".into(),
            env: BTreeMap::from([("KEY".to_owned(), Secret::new("abc"))]),
            size: PtySize { cols: 1, rows: 1 },
            name: None,
            created_at: EpochMillis(0),
        };
        assert!(!format!("{spec:?}").contains("abc"));
        let dir = tempfile::tempdir().unwrap();
        let folder = spec.create(dir.path()).unwrap();
        assert_eq!(Spec::read(&folder).unwrap(), spec);
        fs::write(folder.join(SPEC), "{\"env\":{\"A\":7654321}}").unwrap();
        assert!(
            !Spec::read(&folder)
                .unwrap_err()
                .to_string()
                .contains("7654321")
        );
    }
}
