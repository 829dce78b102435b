//! Why a journal cannot be opened, read or written.

use std::io;
use std::path::{Path, PathBuf};

use crate::wire::{Code, Fault};

/// A journal's error; `Fault::from` gives it its stable code.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process, or another handle of this one, writes the folder.
    #[error("the data folder {} is in use by another process", .dir.display())]
    Locked { dir: PathBuf },
    /// A record is damaged or missing; nothing was changed.
    #[error("journal damaged: {} line {line}, byte {offset}: {reason}", .file.display())]
    Corrupt {
        file: PathBuf,
        /// From 1.
        line: u64,
        /// Where the line starts, in bytes from the file's beginning.
        offset: u64,
        reason: String,
    },
    /// The operating system refused a file operation.
    #[error("{what} {}: {source}", .path.display())]
    Io {
        /// What was attempted, such as `write`.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl JournalError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }

    /// Whether the file was not there.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    fn code(&self) -> Code {
        match self {
            Self::Locked { .. } => Code::DataFolderLocked,
            Self::Corrupt { .. } => Code::JournalCorrupt,
            Self::Io { source, .. } => match source.kind() {
                // A full disk, a used-up quota and a file size limit all end when there is room.
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => Code::StorageFull,
                _ => Code::StorageFailed,
            },
        }
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        Fault::new(error.code(), error.to_string())
    }
}
