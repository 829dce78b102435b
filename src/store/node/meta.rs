//! The numbers that outlive a process.

use rusqlite::{Connection, OptionalExtension, params};

use crate::store::StoreError;

const EPOCH: &str = "epoch";
const ACKED_SEQ: &str = "acked_seq";

pub(super) fn epoch(connection: &Connection) -> Result<u64, StoreError> {
    number(connection, EPOCH)
}

pub(super) fn set_epoch(connection: &Connection, epoch: u64) -> Result<(), StoreError> {
    set_number(connection, EPOCH, epoch)
}

pub(super) fn acked_seq(connection: &Connection) -> Result<u64, StoreError> {
    number(connection, ACKED_SEQ)
}

pub(super) fn set_acked_seq(connection: &Connection, seq: u64) -> Result<(), StoreError> {
    if seq > acked_seq(connection)? {
        set_number(connection, ACKED_SEQ, seq)?;
    }
    Ok(())
}

fn number(connection: &Connection, name: &'static str) -> Result<u64, StoreError> {
    let text: Option<String> = connection
        .query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| {
            row.get(0)
        })
        .optional()?;
    let Some(text) = text else { return Ok(0) };
    text.parse()
        .map_err(|error: std::num::ParseIntError| StoreError::Corrupt {
            what: name,
            why: error.to_string(),
        })
}

fn set_number(connection: &Connection, name: &str, value: u64) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO meta (name, value) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        params![name, value.to_string()],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::temporary;

    #[test]
    fn acknowledged_sequence_never_falls() {
        let (dir, store) = temporary();
        assert_eq!(store.acked_seq_blocking().unwrap(), 0);
        store.set_acked_seq_blocking(7).unwrap();
        store.set_acked_seq_blocking(3).unwrap();
        store.set_epoch_blocking(u64::MAX).unwrap();
        drop(store);
        let path = dir.path().join("node.db");
        let store = crate::store::node::NodeStore::open(&path).unwrap();
        assert_eq!(store.acked_seq_blocking().unwrap(), 7);
        assert_eq!(store.epoch_blocking().unwrap(), u64::MAX);
    }
}
