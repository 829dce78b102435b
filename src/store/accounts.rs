//! Tables of people and their credentials: accounts, sessions, tickets, API tokens.
//!
//! Invariants: no credential is stored, only its SHA-256 (of 256 random bits) or argon2id hash; a
//! ticket row is deleted by the statement that reads it, so it opens one session at most.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{StoreError, rows};
use crate::base::EpochMillis;
use crate::base::ids::{AccountId, SessionId, TokenId};

pub const SCHEMA: &str = "
CREATE TABLE accounts (
    account_id TEXT PRIMARY KEY,
    username TEXT NOT NULL UNIQUE COLLATE NOCASE,
    role TEXT NOT NULL,
    password_hash TEXT,
    active INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_login_at INTEGER
) STRICT;
CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts ON DELETE CASCADE,
    hash BLOB NOT NULL UNIQUE,
    device_name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    last_seen_at INTEGER,
    revoked_at INTEGER
) STRICT;
CREATE INDEX sessions_by_account ON sessions (account_id, created_at);
CREATE TABLE tickets (
    hash BLOB PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts ON DELETE CASCADE,
    expires_at INTEGER NOT NULL,
    first_start INTEGER NOT NULL
) STRICT;
CREATE TABLE api_tokens (
    token_id TEXT PRIMARY KEY,
    account_id TEXT NOT NULL REFERENCES accounts ON DELETE CASCADE,
    hash BLOB NOT NULL UNIQUE,
    label TEXT NOT NULL,
    prefix TEXT NOT NULL,
    scopes TEXT,
    local_record INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    last_seen_at INTEGER,
    revoked_at INTEGER
) STRICT;
CREATE INDEX api_tokens_by_account ON api_tokens (account_id, created_at)";

/// The SHA-256 of a credential's text.
pub type Hash = [u8; 32];

#[derive(Clone, Debug)]
pub struct Account {
    pub account_id: AccountId,
    pub username: String,
    /// A role's name; unknown names hold nothing.
    pub role: String,
    /// argon2id in PHC form; absent until a password is set.
    pub password_hash: Option<String>,
    pub active: bool,
    pub created_at: EpochMillis,
    pub last_login_at: Option<EpochMillis>,
}

#[derive(Clone, Debug)]
pub struct Session {
    pub session_id: SessionId,
    pub account_id: AccountId,
    pub device_name: String,
    pub created_at: EpochMillis,
    pub expires_at: EpochMillis,
    pub last_seen_at: Option<EpochMillis>,
    pub revoked_at: Option<EpochMillis>,
}

#[derive(Clone, Debug)]
pub struct Token {
    pub token_id: TokenId,
    pub account_id: AccountId,
    pub label: String,
    pub prefix: String,
    /// Permission names; absent means all of the account's.
    pub scopes: Option<Vec<String>>,
    /// Made for the record of a running `wingman up`.
    pub local_record: bool,
    pub created_at: EpochMillis,
    pub expires_at: Option<EpochMillis>,
    pub last_seen_at: Option<EpochMillis>,
    pub revoked_at: Option<EpochMillis>,
}

/// A ticket as it is kept.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub hash: Hash,
    pub account_id: AccountId,
    pub expires_at: EpochMillis,
    /// Printed at first start; a newer one replaces it.
    pub first_start: bool,
}

pub fn insert_account(c: &Connection, account: &Account) -> Result<(), StoreError> {
    c.execute(
        "INSERT INTO accounts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            account.account_id.as_str(),
            account.username,
            account.role,
            account.password_hash,
            account.active,
            account.created_at.0,
            account.last_login_at.map(|at| at.0),
        ],
    )?;
    Ok(())
}

pub fn account(c: &Connection, id: &AccountId) -> Result<Option<Account>, StoreError> {
    one(
        c,
        "SELECT * FROM accounts WHERE account_id = ?1",
        id.as_str(),
        read_account,
    )
}

/// By name, whatever its case.
pub fn account_named(c: &Connection, username: &str) -> Result<Option<Account>, StoreError> {
    one(
        c,
        "SELECT * FROM accounts WHERE username = ?1",
        username,
        read_account,
    )
}

/// The oldest account of a role.
pub fn first_of_role(c: &Connection, role: &str) -> Result<Option<Account>, StoreError> {
    one(
        c,
        "SELECT * FROM accounts WHERE role = ?1 ORDER BY created_at, account_id LIMIT 1",
        role,
        read_account,
    )
}

pub fn set_password(c: &Connection, id: &AccountId, hash: &str) -> Result<(), StoreError> {
    c.execute(
        "UPDATE accounts SET password_hash = ?2 WHERE account_id = ?1",
        params![id.as_str(), hash],
    )?;
    Ok(())
}

/// Stores a session of an account and notes that the account signed in.
pub fn insert_session(c: &Connection, session: &Session, hash: &Hash) -> Result<(), StoreError> {
    c.execute(
        "INSERT INTO sessions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            session.session_id.as_str(),
            session.account_id.as_str(),
            hash,
            session.device_name,
            session.created_at.0,
            session.expires_at.0,
            session.last_seen_at.map(|at| at.0),
            session.revoked_at.map(|at| at.0),
        ],
    )?;
    c.execute(
        "UPDATE accounts SET last_login_at = ?2 WHERE account_id = ?1",
        params![session.account_id.as_str(), session.created_at.0],
    )?;
    Ok(())
}

/// The session of a credential with its account, ended ones included.
pub fn session_of(c: &Connection, hash: &Hash) -> Result<Option<(Session, Account)>, StoreError> {
    let session = c
        .prepare_cached("SELECT * FROM sessions WHERE hash = ?1")?
        .query_row([hash], read_session)
        .optional()?;
    with_account(c, session, |session| &session.account_id)
}

/// An account's sessions, newest first, ended ones included.
pub fn sessions(c: &Connection, id: &AccountId) -> Result<Vec<Session>, StoreError> {
    many(
        c,
        "SELECT * FROM sessions WHERE account_id = ?1 ORDER BY created_at DESC, rowid DESC LIMIT 500",
        id.as_str(),
        read_session,
    )
}

/// Ends a session of the account; false when there is no such live one.
pub fn revoke_session(
    c: &Connection,
    account: &AccountId,
    id: &str,
    now: EpochMillis,
) -> Result<bool, StoreError> {
    let changed = c.execute(
        "UPDATE sessions SET revoked_at = ?3
         WHERE account_id = ?1 AND session_id = ?2 AND revoked_at IS NULL",
        params![account.as_str(), id, now.0],
    )?;
    Ok(changed == 1)
}

/// Ends all sessions of the account but one; tells which it ended.
pub fn revoke_other_sessions(
    c: &Connection,
    account: &AccountId,
    keep: Option<&str>,
    now: EpochMillis,
) -> Result<Vec<String>, StoreError> {
    let mut statement = c.prepare_cached(
        "UPDATE sessions SET revoked_at = ?3
         WHERE account_id = ?1 AND session_id IS NOT ?2 AND revoked_at IS NULL
         RETURNING session_id",
    )?;
    let ended = statement.query_map(params![account.as_str(), keep, now.0], |row| row.get(0))?;
    Ok(ended.collect::<Result<_, _>>()?)
}

pub fn touch_session(c: &Connection, id: &SessionId, now: EpochMillis) -> Result<(), StoreError> {
    c.execute(
        "UPDATE sessions SET last_seen_at = ?2 WHERE session_id = ?1",
        params![id.as_str(), now.0],
    )?;
    Ok(())
}

/// Stores a ticket; one of first start replaces its predecessor.
pub fn insert_ticket(c: &Connection, ticket: &Ticket) -> Result<(), StoreError> {
    if ticket.first_start {
        c.execute("DELETE FROM tickets WHERE first_start", [])?;
    }
    c.execute(
        "INSERT INTO tickets VALUES (?1, ?2, ?3, ?4)",
        params![
            ticket.hash,
            ticket.account_id.as_str(),
            ticket.expires_at.0,
            ticket.first_start,
        ],
    )?;
    Ok(())
}

/// Takes a ticket out: whoever gets it is the only one. Expired ones go too, unanswered.
pub fn take_ticket(
    c: &Connection,
    hash: &Hash,
    now: EpochMillis,
) -> Result<Option<Account>, StoreError> {
    c.execute("DELETE FROM tickets WHERE expires_at <= ?1", [now.0])?;
    let owner: Option<String> = c
        .prepare_cached("DELETE FROM tickets WHERE hash = ?1 RETURNING account_id")?
        .query_row([hash], |row| row.get(0))
        .optional()?;
    match owner {
        Some(owner) => one(
            c,
            "SELECT * FROM accounts WHERE account_id = ?1",
            &owner,
            read_account,
        ),
        None => Ok(None),
    }
}

/// Live tickets of an account.
pub fn count_tickets(
    c: &Connection,
    account: &AccountId,
    now: EpochMillis,
) -> Result<u32, StoreError> {
    Ok(c.query_row(
        "SELECT count(*) FROM tickets WHERE account_id = ?1 AND expires_at > ?2",
        params![account.as_str(), now.0],
        |row| row.get(0),
    )?)
}

/// Stores a token; one for a local record replaces its predecessors.
pub fn insert_token(c: &Connection, token: &Token, hash: &Hash) -> Result<(), StoreError> {
    if token.local_record {
        c.execute("DELETE FROM api_tokens WHERE local_record", [])?;
    }
    c.execute(
        "INSERT INTO api_tokens VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        params![
            token.token_id.as_str(),
            token.account_id.as_str(),
            hash,
            token.label,
            token.prefix,
            token.scopes.as_ref().map(|scopes| scopes.join(" ")),
            token.local_record,
            token.created_at.0,
            token.expires_at.map(|at| at.0),
            token.last_seen_at.map(|at| at.0),
            token.revoked_at.map(|at| at.0),
        ],
    )?;
    Ok(())
}

/// The token of a credential with its account, ended ones included.
pub fn token_of(c: &Connection, hash: &Hash) -> Result<Option<(Token, Account)>, StoreError> {
    let token = c
        .prepare_cached("SELECT * FROM api_tokens WHERE hash = ?1")?
        .query_row([hash], read_token)
        .optional()?;
    with_account(c, token, |token| &token.account_id)
}

/// An account's tokens, newest first, ended ones included.
pub fn tokens(c: &Connection, id: &AccountId) -> Result<Vec<Token>, StoreError> {
    many(
        c,
        "SELECT * FROM api_tokens WHERE account_id = ?1 ORDER BY created_at DESC, rowid DESC LIMIT 500",
        id.as_str(),
        read_token,
    )
}

/// Ends a token of the account; false when there is no such live one.
pub fn revoke_token(
    c: &Connection,
    account: &AccountId,
    id: &str,
    now: EpochMillis,
) -> Result<bool, StoreError> {
    let changed = c.execute(
        "UPDATE api_tokens SET revoked_at = ?3
         WHERE account_id = ?1 AND token_id = ?2 AND revoked_at IS NULL",
        params![account.as_str(), id, now.0],
    )?;
    Ok(changed == 1)
}

pub fn touch_token(c: &Connection, id: &TokenId, now: EpochMillis) -> Result<(), StoreError> {
    c.execute(
        "UPDATE api_tokens SET last_seen_at = ?2 WHERE token_id = ?1",
        params![id.as_str(), now.0],
    )?;
    Ok(())
}

/// Forgets sessions and tokens that ended before `before`.
pub fn prune(c: &Connection, before: EpochMillis) -> Result<(), StoreError> {
    c.execute(
        "DELETE FROM sessions WHERE revoked_at < ?1 OR expires_at < ?1",
        [before.0],
    )?;
    c.execute(
        "DELETE FROM api_tokens WHERE revoked_at < ?1 OR expires_at < ?1",
        [before.0],
    )?;
    Ok(())
}

fn one<T>(
    c: &Connection,
    sql: &str,
    key: &str,
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    Ok(c.prepare_cached(sql)?.query_row([key], read).optional()?)
}

fn many<T>(
    c: &Connection,
    sql: &str,
    key: &str,
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = c.prepare_cached(sql)?;
    let rows = statement.query_map([key], read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn with_account<T>(
    c: &Connection,
    credential: Option<T>,
    owner: fn(&T) -> &AccountId,
) -> Result<Option<(T, Account)>, StoreError> {
    let Some(credential) = credential else {
        return Ok(None);
    };
    let account = account(c, owner(&credential))?;
    Ok(account.map(|account| (credential, account)))
}

fn read_account(row: &Row<'_>) -> rusqlite::Result<Account> {
    Ok(Account {
        account_id: rows::id(row, "account_id", AccountId::parse)?,
        username: row.get("username")?,
        role: row.get("role")?,
        password_hash: row.get("password_hash")?,
        active: row.get("active")?,
        created_at: EpochMillis(row.get("created_at")?),
        last_login_at: rows::millis(row, "last_login_at")?,
    })
}

fn read_session(row: &Row<'_>) -> rusqlite::Result<Session> {
    Ok(Session {
        session_id: rows::id(row, "session_id", SessionId::parse)?,
        account_id: rows::id(row, "account_id", AccountId::parse)?,
        device_name: row.get("device_name")?,
        created_at: EpochMillis(row.get("created_at")?),
        expires_at: EpochMillis(row.get("expires_at")?),
        last_seen_at: rows::millis(row, "last_seen_at")?,
        revoked_at: rows::millis(row, "revoked_at")?,
    })
}

fn read_token(row: &Row<'_>) -> rusqlite::Result<Token> {
    let scopes: Option<String> = row.get("scopes")?;
    Ok(Token {
        token_id: rows::id(row, "token_id", TokenId::parse)?,
        account_id: rows::id(row, "account_id", AccountId::parse)?,
        label: row.get("label")?,
        prefix: row.get("prefix")?,
        scopes: scopes.map(|text| text.split_whitespace().map(str::to_owned).collect()),
        local_record: row.get("local_record")?,
        created_at: EpochMillis(row.get("created_at")?),
        expires_at: rows::millis(row, "expires_at")?,
        last_seen_at: rows::millis(row, "last_seen_at")?,
        revoked_at: rows::millis(row, "revoked_at")?,
    })
}
