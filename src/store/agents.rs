//! Workstations, invitations and the tokens of protocol-1 agents.
//!
//! Secrets are stored as SHA-256 alone. A revoked agent keeps its row without its key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Store, StoreError};
use crate::base::EpochMillis;

/// The tables of this file.
pub const SCHEMA: &str = "
CREATE TABLE agents (
    agent_id TEXT PRIMARY KEY,
    public_key TEXT UNIQUE,
    revoked_key TEXT,
    mark TEXT NOT NULL CHECK (mark IN ('active', 'quarantined', 'revoked')),
    hostname TEXT NOT NULL,
    platform TEXT NOT NULL,
    arch TEXT,
    version TEXT,
    protocol INTEGER,
    instance_id TEXT,
    ip TEXT,
    epoch INTEGER NOT NULL,
    tags TEXT NOT NULL,
    capabilities TEXT NOT NULL,
    rivals TEXT NOT NULL,
    refused TEXT NOT NULL,
    enrolled_at INTEGER NOT NULL,
    last_seen INTEGER
) STRICT;
CREATE TABLE invitations (
    invite_id TEXT PRIMARY KEY,
    secret_hash TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    used_at INTEGER,
    used_by TEXT
) STRICT;
CREATE TABLE agent_tokens (
    id TEXT PRIMARY KEY,
    label TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    agent_id TEXT,
    created_at INTEGER NOT NULL,
    last_seen_at INTEGER,
    revoked_at INTEGER
) STRICT;
";

/// Whether an agent may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Active,
    /// Two processes hold its key; a person has to split them.
    Quarantined,
    Revoked,
}

impl Mark {
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Quarantined => "quarantined",
            Self::Revoked => "revoked",
        }
    }

    fn parse(text: &str) -> Result<Self, StoreError> {
        match text {
            "active" => Ok(Self::Active),
            "quarantined" => Ok(Self::Quarantined),
            "revoked" => Ok(Self::Revoked),
            other => Err(corrupt("agent mark", other)),
        }
    }
}

/// A workstation as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRow {
    pub agent_id: String,
    /// Hexadecimal; absent for agents without a key (protocol 1, in-process) and for revoked ones.
    pub public_key: Option<String>,
    /// SHA-256 of the key that was revoked.
    pub revoked_key: Option<String>,
    pub mark: Mark,
    pub hostname: String,
    pub platform: String,
    pub arch: Option<String>,
    pub version: Option<String>,
    pub protocol: Option<u8>,
    pub instance_id: Option<String>,
    pub ip: Option<String>,
    pub epoch: u64,
    pub tags: Vec<String>,
    pub capabilities: Vec<String>,
    /// The instances that a quarantine is about.
    pub rivals: Vec<String>,
    /// Instances that lost a split.
    pub refused: Vec<String>,
    pub enrolled_at: EpochMillis,
    pub last_seen: Option<EpochMillis>,
}

/// A protocol-1 token as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    pub id: String,
    pub label: String,
    pub prefix: String,
    /// SHA-256 of the token, lower-case hexadecimal.
    pub hash: String,
    pub agent_id: Option<String>,
    pub created_at: EpochMillis,
    pub last_seen_at: Option<EpochMillis>,
    pub revoked_at: Option<EpochMillis>,
}

/// What became of an attempt to use an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InviteUse {
    Accepted(Box<Changed>),
    /// The invitation is good and still unused, but the id belongs to another agent.
    IdTaken,
    /// Unknown, or its secret is wrong.
    Invalid,
    Used,
    Expired,
}

fn corrupt(what: &'static str, why: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt {
        what,
        why: why.to_string(),
    }
}

fn list(text: &str) -> Result<Vec<String>, StoreError> {
    serde_json::from_str(text).map_err(|error| corrupt("list", error))
}

fn json(list: &[String]) -> Result<String, StoreError> {
    serde_json::to_string(list).map_err(|error| corrupt("list", error))
}

fn number<T: TryFrom<i64>>(what: &'static str, value: i64) -> Result<T, StoreError> {
    T::try_from(value).map_err(|_| corrupt(what, value))
}

/// Every workstation.
pub async fn load_all(store: &Store) -> Result<Vec<AgentRow>, StoreError> {
    store
        .call(|connection| {
            let mut statement = connection.prepare_cached("SELECT * FROM agents")?;
            let mut rows = statement.query([])?;
            let mut all = Vec::new();
            while let Some(row) = rows.next()? {
                all.push(read_agent(row)?);
            }
            Ok(all)
        })
        .await
}

fn read_agent(row: &Row<'_>) -> Result<AgentRow, StoreError> {
    Ok(AgentRow {
        agent_id: row.get("agent_id")?,
        public_key: row.get("public_key")?,
        revoked_key: row.get("revoked_key")?,
        mark: Mark::parse(&row.get::<_, String>("mark")?)?,
        hostname: row.get("hostname")?,
        platform: row.get("platform")?,
        arch: row.get("arch")?,
        version: row.get("version")?,
        protocol: row
            .get::<_, Option<i64>>("protocol")?
            .map(|value| number("protocol", value))
            .transpose()?,
        instance_id: row.get("instance_id")?,
        ip: row.get("ip")?,
        epoch: number("epoch", row.get("epoch")?)?,
        tags: list(&row.get::<_, String>("tags")?)?,
        capabilities: list(&row.get::<_, String>("capabilities")?)?,
        rivals: list(&row.get::<_, String>("rivals")?)?,
        refused: list(&row.get::<_, String>("refused")?)?,
        enrolled_at: EpochMillis(row.get("enrolled_at")?),
        last_seen: row.get::<_, Option<i64>>("last_seen")?.map(EpochMillis),
    })
}

/// A row with its place in the order of changes, so that a late reader never shows an older one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub row: AgentRow,
    pub revision: u64,
}

fn find(connection: &Connection, agent_id: &str) -> Result<Option<AgentRow>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT * FROM agents WHERE agent_id = ?1")?;
    let mut rows = statement.query([agent_id])?;
    rows.next()?.map(read_agent).transpose()
}

/// Reads a workstation's row, lets `change` make the new one, and writes it, all in one step. What
/// `change` refuses leaves the row as it is.
pub async fn change<E: Send + 'static>(
    store: &Store,
    agent_id: String,
    revisions: Arc<AtomicU64>,
    change: impl FnOnce(Option<AgentRow>) -> Result<AgentRow, E> + Send + 'static,
) -> Result<Result<Changed, E>, StoreError> {
    store
        .call(move |connection| {
            let row = match change(find(connection, &agent_id)?) {
                Ok(row) => row,
                Err(refused) => return Ok(Err(refused)),
            };
            write(connection, &row)?;
            let revision = revisions.fetch_add(1, Ordering::Relaxed) + 1;
            Ok(Ok(Changed { row, revision }))
        })
        .await
}

fn write(connection: &Connection, row: &AgentRow) -> Result<(), StoreError> {
    let epoch = i64::try_from(row.epoch).map_err(|_| corrupt("epoch", row.epoch))?;
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO agents (agent_id, public_key, revoked_key, mark, hostname,
             platform, arch, version, protocol, instance_id, ip, epoch, tags, capabilities, rivals,
             refused, enrolled_at, last_seen)
             VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18)",
        )?
        .execute(params![
            row.agent_id,
            row.public_key,
            row.revoked_key,
            row.mark.as_str(),
            row.hostname,
            row.platform,
            row.arch,
            row.version,
            row.protocol,
            row.instance_id,
            row.ip,
            epoch,
            json(&row.tags)?,
            json(&row.capabilities)?,
            json(&row.rivals)?,
            json(&row.refused)?,
            row.enrolled_at.0,
            row.last_seen.map(|at| at.0),
        ])?;
    Ok(())
}

/// Stores an invitation by the hash of its secret.
pub async fn add_invitation(
    store: &Store,
    invite_id: String,
    secret_hash: String,
    created_at: EpochMillis,
    expires_at: EpochMillis,
) -> Result<(), StoreError> {
    store
        .call(move |connection| {
            connection.execute(
                "INSERT INTO invitations (invite_id, secret_hash, created_at, expires_at)
                 VALUES (?1, ?2, ?3, ?4)",
                params![invite_id, secret_hash, created_at.0, expires_at.0],
            )?;
            Ok(())
        })
        .await
}

/// A try to enrol.
pub struct Enrolment<F, A> {
    pub invite_id: String,
    /// Compares the stored hash with the secret that was shown, in constant time.
    pub fits: F,
    pub agent_id: String,
    /// Makes the agent's new row from the one it has; `None`: the id belongs to another.
    pub admit: A,
    pub now: EpochMillis,
}

/// Uses an invitation up and writes the agent that it lets in, both or neither.
pub async fn enrol<F, A>(
    store: &Store,
    revisions: Arc<AtomicU64>,
    enrolment: Enrolment<F, A>,
) -> Result<InviteUse, StoreError>
where
    F: FnOnce(&str) -> bool + Send + 'static,
    A: FnOnce(Option<AgentRow>) -> Option<AgentRow> + Send + 'static,
{
    store
        .call(move |connection| {
            let found: Option<(String, i64, Option<i64>)> = connection
                .query_row(
                    "SELECT secret_hash, expires_at, used_at FROM invitations WHERE invite_id = ?1",
                    [&enrolment.invite_id],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
                .optional()?;
            let Some((hash, expires_at, used_at)) = found else {
                return Ok(InviteUse::Invalid);
            };
            if !(enrolment.fits)(&hash) {
                return Ok(InviteUse::Invalid);
            }
            if used_at.is_some() {
                return Ok(InviteUse::Used);
            }
            if enrolment.now.0 >= expires_at {
                return Ok(InviteUse::Expired);
            }
            let Some(row) = (enrolment.admit)(find(connection, &enrolment.agent_id)?) else {
                return Ok(InviteUse::IdTaken);
            };
            connection.execute(
                "UPDATE invitations SET used_at = ?2, used_by = ?3 WHERE invite_id = ?1",
                params![enrolment.invite_id, enrolment.now.0, row.agent_id],
            )?;
            write(connection, &row)?;
            let revision = revisions.fetch_add(1, Ordering::Relaxed) + 1;
            Ok(InviteUse::Accepted(Box::new(Changed { row, revision })))
        })
        .await
}

/// Every token, newest first, revoked ones included.
pub async fn tokens(store: &Store) -> Result<Vec<TokenRow>, StoreError> {
    store
        .call(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT * FROM agent_tokens ORDER BY created_at DESC, id")?;
            let rows = statement.query_map([], |row| {
                Ok(TokenRow {
                    id: row.get("id")?,
                    label: row.get("label")?,
                    prefix: row.get("prefix")?,
                    hash: row.get("hash")?,
                    agent_id: row.get("agent_id")?,
                    created_at: EpochMillis(row.get("created_at")?),
                    last_seen_at: row.get::<_, Option<i64>>("last_seen_at")?.map(EpochMillis),
                    revoked_at: row.get::<_, Option<i64>>("revoked_at")?.map(EpochMillis),
                })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
}

pub async fn add_token(store: &Store, row: TokenRow) -> Result<(), StoreError> {
    store
        .call(move |connection| {
            connection.execute(
                "INSERT INTO agent_tokens (id, label, prefix, hash, agent_id, created_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    row.id,
                    row.label,
                    row.prefix,
                    row.hash,
                    row.agent_id,
                    row.created_at.0
                ],
            )?;
            Ok(())
        })
        .await
}

/// Notes a token's use.
pub async fn touch_token(store: &Store, id: String, now: EpochMillis) -> Result<(), StoreError> {
    store
        .call(move |connection| {
            connection.execute(
                "UPDATE agent_tokens SET last_seen_at = ?2 WHERE id = ?1",
                params![id, now.0],
            )?;
            Ok(())
        })
        .await
}

/// Revokes a token; answers whether it was in force.
pub async fn revoke_token(store: &Store, id: String, now: EpochMillis) -> Result<bool, StoreError> {
    store
        .call(move |connection| {
            let changed = connection.execute(
                "UPDATE agent_tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
                params![id, now.0],
            )?;
            Ok(changed == 1)
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str) -> AgentRow {
        AgentRow {
            agent_id: id.to_owned(),
            public_key: Some(format!("key of {id}")),
            revoked_key: None,
            mark: Mark::Active,
            hostname: "desk".into(),
            platform: "linux".into(),
            arch: Some("x86_64".into()),
            version: None,
            protocol: Some(2),
            instance_id: Some("i".into()),
            ip: None,
            epoch: 3,
            tags: vec!["lab".into()],
            capabilities: vec!["ocr".into()],
            rivals: vec![],
            refused: vec!["x".into()],
            enrolled_at: EpochMillis(5),
            last_seen: Some(EpochMillis(6)),
        }
    }

    fn open(dir: &tempfile::TempDir) -> Store {
        Store::open(&dir.path().join("server.db"), &[SCHEMA]).unwrap()
    }

    async fn put(store: &Store, row: AgentRow) -> u64 {
        let revisions = Arc::new(AtomicU64::new(7));
        let id = row.agent_id.clone();
        change(store, id, revisions, |_| Ok::<_, ()>(row))
            .await
            .unwrap()
            .unwrap()
            .revision
    }

    #[tokio::test]
    async fn rows_read_back_as_written_and_refused_changes_leave_them() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        put(&store, row("a")).await;
        let mut changed = row("a");
        changed.mark = Mark::Revoked;
        changed.public_key = None;
        assert_eq!(put(&store, changed.clone()).await, 8);
        let refused = change(&store, "a".into(), Arc::default(), |old| {
            assert_eq!(old.unwrap().mark, Mark::Revoked);
            Err("no")
        });
        assert_eq!(refused.await.unwrap(), Err("no"));
        assert_eq!(load_all(&store).await.unwrap(), [changed]);
    }

    async fn try_enrol(
        store: &Store,
        invite: &str,
        secret: &'static str,
        agent: &'static str,
        at: i64,
    ) -> &'static str {
        let enrolment = Enrolment {
            invite_id: invite.to_owned(),
            fits: move |hash: &str| hash == secret,
            agent_id: agent.to_owned(),
            admit: move |old: Option<AgentRow>| old.is_none().then(|| row(agent)),
            now: EpochMillis(at),
        };
        match enrol(store, Arc::default(), enrolment).await.unwrap() {
            InviteUse::Accepted(changed) => {
                assert_eq!(changed.row.agent_id, agent);
                "accepted"
            }
            InviteUse::IdTaken => "taken",
            InviteUse::Invalid => "invalid",
            InviteUse::Used => "used",
            InviteUse::Expired => "expired",
        }
    }

    #[tokio::test]
    async fn invitation_lets_in_once_in_time_and_with_its_secret() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        for id in ["one", "two"] {
            let times = (EpochMillis(0), EpochMillis(100));
            add_invitation(&store, id.into(), "hash".into(), times.0, times.1)
                .await
                .unwrap();
        }
        assert_eq!(try_enrol(&store, "one", "wrong", "a", 1).await, "invalid");
        assert_eq!(try_enrol(&store, "no", "hash", "a", 1).await, "invalid");
        assert!(load_all(&store).await.unwrap().is_empty());
        assert_eq!(try_enrol(&store, "one", "hash", "a", 1).await, "accepted");
        assert_eq!(try_enrol(&store, "one", "hash", "b", 1).await, "used");
        assert_eq!(try_enrol(&store, "two", "hash", "a", 1).await, "taken");
        assert_eq!(try_enrol(&store, "two", "hash", "b", 100).await, "expired");
        assert_eq!(load_all(&store).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn token_is_revoked_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        let token = TokenRow {
            id: "t".into(),
            label: "old desk".into(),
            prefix: "wt_abcdef".into(),
            hash: "h".into(),
            agent_id: None,
            created_at: EpochMillis(1),
            last_seen_at: None,
            revoked_at: None,
        };
        add_token(&store, token).await.unwrap();
        touch_token(&store, "t".into(), EpochMillis(2))
            .await
            .unwrap();
        assert!(
            revoke_token(&store, "t".into(), EpochMillis(3))
                .await
                .unwrap()
        );
        assert!(
            !revoke_token(&store, "t".into(), EpochMillis(4))
                .await
                .unwrap()
        );
        let all = tokens(&store).await.unwrap();
        assert_eq!(all[0].revoked_at, Some(EpochMillis(3)));
        assert_eq!(all[0].last_seen_at, Some(EpochMillis(2)));
    }
}
