//! Tables of terminal sessions on the server: grants, and which account a console id belongs to.
//!
//! Sessions themselves are the workstations' and never stored here.

use rusqlite::{Connection, OptionalExtension, params};

use super::{StoreError, rows};
use crate::base::EpochMillis;
use crate::base::ids::{AccountId, ConsoleId, TerminalId};

pub const SCHEMA: &str = "
CREATE TABLE session_grants (
    session_id TEXT NOT NULL,
    account_id TEXT NOT NULL REFERENCES accounts ON DELETE CASCADE,
    level TEXT NOT NULL,
    granted_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, account_id)
) STRICT;
CREATE INDEX session_grants_by_account ON session_grants (account_id);
CREATE TABLE consoles (
    console_id TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts ON DELETE CASCADE,
    seen_at INTEGER NOT NULL
) STRICT;
CREATE INDEX consoles_by_age ON consoles (seen_at)";

/// Console ids remembered; the longest unseen go first, and then start anew.
const CONSOLES_KEPT: u32 = 10_000;
/// Grants of one session. More: refused by `put_grant`.
const GRANTS_PER_SESSION_MAX: u32 = 256;

/// A right to one session, by the account's name or by the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    pub session_id: TerminalId,
    pub username: String,
    /// A level's name; unknown names allow nothing.
    pub level: String,
}

/// Gives an account a right, in place of the one it has; false when the session has too many.
pub fn put_grant(
    c: &Connection,
    session: &TerminalId,
    account: &AccountId,
    level: &str,
    now: EpochMillis,
) -> Result<bool, StoreError> {
    let others: u32 = c
        .prepare_cached(
            "SELECT count(*) FROM session_grants WHERE session_id = ?1 AND account_id <> ?2",
        )?
        .query_row(params![session.as_str(), account.as_str()], |row| {
            row.get(0)
        })?;
    if others >= GRANTS_PER_SESSION_MAX {
        return Ok(false);
    }
    c.prepare_cached(
        "INSERT INTO session_grants (session_id, account_id, level, granted_at)
         VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET level = excluded.level, granted_at = excluded.granted_at",
    )?
    .execute(params![session.as_str(), account.as_str(), level, now.0])?;
    Ok(true)
}

/// Takes a right back; answers whether there was one.
pub fn drop_grant(
    c: &Connection,
    session: &TerminalId,
    account: &AccountId,
) -> Result<bool, StoreError> {
    let dropped = c
        .prepare_cached("DELETE FROM session_grants WHERE session_id = ?1 AND account_id = ?2")?
        .execute(params![session.as_str(), account.as_str()])?;
    Ok(dropped > 0)
}

/// Takes all rights to a session back that is there no more.
pub fn drop_grants_to(c: &Connection, session: &TerminalId) -> Result<(), StoreError> {
    c.prepare_cached("DELETE FROM session_grants WHERE session_id = ?1")?
        .execute([session.as_str()])?;
    Ok(())
}

/// The rights to one session, by account name.
pub fn grants_to(c: &Connection, session: &TerminalId) -> Result<Vec<GrantRow>, StoreError> {
    grants(c, "session_id = ?1", session.as_str())
}

/// The rights of one account.
pub fn grants_of(c: &Connection, account: &AccountId) -> Result<Vec<GrantRow>, StoreError> {
    grants(c, "account_id = ?1", account.as_str())
}

fn grants(c: &Connection, fits: &str, value: &str) -> Result<Vec<GrantRow>, StoreError> {
    let mut statement = c.prepare_cached(&format!(
        "SELECT session_id, username, level FROM session_grants JOIN accounts USING (account_id)
         WHERE {fits} ORDER BY username, session_id"
    ))?;
    let found = statement.query_map([value], |row| {
        Ok(GrantRow {
            session_id: rows::id(row, "session_id", TerminalId::parse)?,
            username: row.get("username")?,
            level: row.get("level")?,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Notes that a console id is an account's; one that has an owner keeps it. Answers the owner.
pub fn claim_console(
    c: &Connection,
    console: &ConsoleId,
    account: &AccountId,
    now: EpochMillis,
) -> Result<AccountId, StoreError> {
    c.prepare_cached(
        "INSERT INTO consoles (console_id, account_id, seen_at) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET seen_at = excluded.seen_at
         WHERE account_id = excluded.account_id",
    )?
    .execute(params![console.as_str(), account.as_str(), now.0])?;
    c.prepare_cached(
        "DELETE FROM consoles WHERE console_id IN (
             SELECT console_id FROM consoles ORDER BY seen_at DESC LIMIT -1 OFFSET ?1)",
    )?
    .execute([CONSOLES_KEPT])?;
    let owner = console_owner(c, console)?;
    Ok(owner.map_or_else(|| account.clone(), |(owner, _)| owner))
}

/// The account whose console it is, with its name.
pub fn console_owner(
    c: &Connection,
    console: &ConsoleId,
) -> Result<Option<(AccountId, String)>, StoreError> {
    let owner = c
        .prepare_cached(
            "SELECT account_id, username FROM consoles JOIN accounts USING (account_id)
             WHERE console_id = ?1",
        )?
        .query_row([console.as_str()], |row| {
            Ok((
                rows::id(row, "account_id", AccountId::parse)?,
                row.get("username")?,
            ))
        })
        .optional()?;
    Ok(owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, accounts, server};

    fn account(c: &Connection, name: &str) -> Result<AccountId, StoreError> {
        let account = accounts::Account {
            account_id: AccountId::random(),
            username: name.into(),
            role: "viewer".into(),
            password_hash: None,
            active: true,
            created_at: EpochMillis(1),
            last_login_at: None,
        };
        accounts::insert_account(c, &account)?;
        Ok(account.account_id)
    }

    fn with_store(work: impl FnOnce(&Connection) -> Result<(), StoreError> + Send + 'static) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s.db"), server::MIGRATIONS).unwrap();
        store.call_blocking(work).unwrap();
    }

    #[test]
    fn grants_are_replaced_listed_and_taken_back() {
        with_store(|c| {
            let (ann, session) = (account(c, "ann")?, TerminalId::random());
            assert!(put_grant(c, &session, &ann, "view", EpochMillis(1))?);
            assert!(put_grant(c, &session, &ann, "control", EpochMillis(2))?);
            let row = GrantRow {
                session_id: session.clone(),
                username: "ann".into(),
                level: "control".into(),
            };
            let all = [row];
            assert_eq!(grants_to(c, &session)?, all);
            assert_eq!(grants_of(c, &ann)?, all);
            assert!(drop_grant(c, &session, &ann)?);
            assert!(!drop_grant(c, &session, &ann)?);
            assert_eq!(grants_to(c, &session)?, []);
            Ok(())
        });
    }

    #[test]
    fn console_stays_its_first_owner_s() {
        with_store(|c| {
            let (ann, bob) = (account(c, "ann")?, account(c, "bob")?);
            let console = ConsoleId::random();
            assert_eq!(claim_console(c, &console, &ann, EpochMillis(1))?, ann);
            assert_eq!(claim_console(c, &console, &bob, EpochMillis(2))?, ann);
            assert_eq!(console_owner(c, &console)?.unwrap().1, "ann");
            assert_eq!(console_owner(c, &ConsoleId::random())?, None);
            Ok(())
        });
    }
}
