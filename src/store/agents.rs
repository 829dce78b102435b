//! Workstations, invitations and the tokens of protocol-1 agents.
//!
//! Secrets are stored as SHA-256 alone. A revoked agent keeps its row without its key.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InviteUse {
    Accepted,
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

/// Writes a workstation's row as a whole.
pub async fn save(store: &Store, row: AgentRow) -> Result<(), StoreError> {
    store.call(move |connection| write(connection, &row)).await
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

/// Uses an invitation up and writes the agent that it lets in, both or neither. `fits` compares the
/// stored hash with the secret that was shown, in constant time.
pub async fn enrol(
    store: &Store,
    invite_id: String,
    fits: impl FnOnce(&str) -> bool + Send + 'static,
    row: AgentRow,
    now: EpochMillis,
) -> Result<InviteUse, StoreError> {
    store
        .call(move |connection| {
            let found: Option<(String, i64, Option<i64>)> = connection
                .query_row(
                    "SELECT secret_hash, expires_at, used_at FROM invitations WHERE invite_id = ?1",
                    [&invite_id],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
                .optional()?;
            let Some((hash, expires_at, used_at)) = found else {
                return Ok(InviteUse::Invalid);
            };
            if !fits(&hash) {
                return Ok(InviteUse::Invalid);
            }
            if used_at.is_some() {
                return Ok(InviteUse::Used);
            }
            if now.0 >= expires_at {
                return Ok(InviteUse::Expired);
            }
            connection.execute(
                "UPDATE invitations SET used_at = ?2, used_by = ?3 WHERE invite_id = ?1",
                params![invite_id, now.0, row.agent_id],
            )?;
            write(connection, &row)?;
            Ok(InviteUse::Accepted)
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

    #[tokio::test]
    async fn rows_read_back_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        save(&store, row("a")).await.unwrap();
        let mut changed = row("a");
        changed.mark = Mark::Revoked;
        changed.public_key = None;
        save(&store, changed.clone()).await.unwrap();
        assert_eq!(load_all(&store).await.unwrap(), [changed]);
    }

    #[tokio::test]
    async fn invitation_lets_in_once_in_time_and_with_its_secret() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir);
        let add = |id: &str| {
            add_invitation(
                &store,
                id.to_owned(),
                "hash".into(),
                EpochMillis(0),
                EpochMillis(100),
            )
        };
        add("one").await.unwrap();
        add("two").await.unwrap();
        let use_it = |id: &str, secret: &'static str, agent: &str, at: i64| {
            enrol(
                &store,
                id.to_owned(),
                move |hash| hash == secret,
                row(agent),
                EpochMillis(at),
            )
        };
        let refused = use_it("one", "wrong", "a", 1).await.unwrap();
        assert_eq!(refused, InviteUse::Invalid);
        assert_eq!(
            use_it("no", "hash", "a", 1).await.unwrap(),
            InviteUse::Invalid
        );
        assert!(load_all(&store).await.unwrap().is_empty());
        assert_eq!(
            use_it("one", "hash", "a", 1).await.unwrap(),
            InviteUse::Accepted
        );
        assert_eq!(
            use_it("one", "hash", "b", 1).await.unwrap(),
            InviteUse::Used
        );
        assert_eq!(
            use_it("two", "hash", "b", 100).await.unwrap(),
            InviteUse::Expired
        );
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
