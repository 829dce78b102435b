//! How errors of the database and of the disk look to callers of the server.

use crate::store::StoreError;
use crate::wire::{Code, Fault};

/// A database error as callers see it; its text goes to the log.
pub fn stored(error: StoreError) -> Fault {
    match error {
        StoreError::Full => Fault::new(Code::StorageFull, "the server's disk is full"),
        error => {
            tracing::error!(%error, "database");
            Fault::new(Code::StorageFailed, "the server's database did not do it")
        }
    }
}

/// A failed read or write of a stored file.
pub fn file(what: &str, error: &std::io::Error) -> Fault {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Fault::new(
            Code::StorageFull,
            format!("{what}: the server's disk is full"),
        ),
        _ => {
            tracing::error!(%error, what, "stored file");
            Fault::new(Code::StorageFailed, format!("{what} failed on the server"))
        }
    }
}
