//! What scripts keep: texts, hashes and lists that outlive a run.
//!
//! Each kind is a namespace of its own, so one key may name a text, a hash and a list at once.
//! `delete`, `exists`, `expire`, `ttl` and `keys` look at all three. A key whose time is over is gone
//! for every call, and its rows go with the next call on it or with `kv_purge`.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::{NodeStore, unsigned};
use crate::store::StoreError;

/// When `kv_set` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvRule {
    Always,
    IfAbsent,
    IfPresent,
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvEnd {
    Left,
    Right,
}

/// What an addition came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvSum {
    Sum(i64),
    /// The key holds another text; it stays.
    NotAnInteger,
    /// The sum does not fit 64 bits; the number stays.
    Overflow,
}

/// `ttl` of a key without an expiry.
pub const TTL_NONE: i64 = -1;
/// `ttl` without a key.
pub const TTL_NO_KEY: i64 = -2;

const TEXT: &str = "text";
const KINDS: [(&str, &str); 3] = [(TEXT, "kv_text"), ("hash", "kv_hash"), ("list", "kv_list")];

impl NodeStore {
    fn kv<T, F>(&self, key: &str, now: i64, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, &str) -> Result<T, StoreError> + Send + 'static,
    {
        let key = key.to_owned();
        self.store.call_blocking(move |connection| {
            expire_due(connection, &key, now)?;
            job(connection, &key)
        })
    }

    /// Sets a text; answers whether it was set. Without `expires_at` the key has no expiry then.
    pub fn kv_set(
        &self,
        key: &str,
        value: &str,
        expires_at: Option<i64>,
        rule: KvRule,
        now: i64,
    ) -> Result<bool, StoreError> {
        let value = value.to_owned();
        self.kv(key, now, move |connection, key| {
            let present = text(connection, key)?.is_some();
            match rule {
                KvRule::IfAbsent if present => return Ok(false),
                KvRule::IfPresent if !present => return Ok(false),
                _ => {}
            }
            put_text(connection, key, &value)?;
            set_expiry(connection, key, TEXT, expires_at)?;
            Ok(true)
        })
    }

    /// Reads a text.
    pub fn kv_get(&self, key: &str, now: i64) -> Result<Option<String>, StoreError> {
        self.kv(key, now, text)
    }

    /// Removes a key of every kind; answers whether there was one.
    pub fn kv_delete(&self, key: &str, now: i64) -> Result<bool, StoreError> {
        self.kv(key, now, |connection, key| {
            let mut removed = 0;
            for (kind, _) in KINDS {
                removed += remove(connection, key, kind)?;
            }
            Ok(removed > 0)
        })
    }

    /// Whether there is a key of any kind.
    pub fn kv_exists(&self, key: &str, now: i64) -> Result<bool, StoreError> {
        self.kv(key, now, |connection, key| {
            Ok(!kinds_of(connection, key)?.is_empty())
        })
    }

    /// Gives a key of every kind an end; answers whether there was one.
    pub fn kv_expire(&self, key: &str, expires_at: i64, now: i64) -> Result<bool, StoreError> {
        self.kv(key, now, move |connection, key| {
            let kinds = kinds_of(connection, key)?;
            for kind in &kinds {
                set_expiry(connection, key, kind, Some(expires_at))?;
            }
            Ok(!kinds.is_empty())
        })
    }

    /// Milliseconds until a key ends, the last of its kinds counting; `TTL_NONE` when one has no
    /// expiry, `TTL_NO_KEY` without a key.
    pub fn kv_ttl(&self, key: &str, now: i64) -> Result<i64, StoreError> {
        self.kv(key, now, move |connection, key| {
            let mut longest = TTL_NO_KEY;
            for kind in kinds_of(connection, key)? {
                match expiry(connection, key, kind)? {
                    Some(at) => longest = longest.max(at.saturating_sub(now)),
                    None => return Ok(TTL_NONE),
                }
            }
            Ok(longest)
        })
    }

    /// Adds to an integer, which is 0 when absent, keeping its expiry.
    pub fn kv_incr(&self, key: &str, delta: i64, now: i64) -> Result<KvSum, StoreError> {
        self.kv(key, now, move |connection, key| {
            let old = match text(connection, key)?.map(|text| text.trim().parse::<i64>()) {
                None => 0,
                Some(Ok(number)) => number,
                Some(Err(_)) => return Ok(KvSum::NotAnInteger),
            };
            let Some(sum) = old.checked_add(delta) else {
                return Ok(KvSum::Overflow);
            };
            put_text(connection, key, &sum.to_string())?;
            Ok(KvSum::Sum(sum))
        })
    }

    /// Keys of any kind that begin with `prefix`, in order.
    pub fn kv_keys(&self, prefix: &str, now: i64) -> Result<Vec<String>, StoreError> {
        let prefix = prefix.to_owned();
        self.store.call_blocking(move |connection| {
            purge(connection, now)?;
            let mut statement = connection.prepare_cached(
                "SELECT key FROM (SELECT key FROM kv_text UNION SELECT key FROM kv_hash
                     UNION SELECT key FROM kv_list)
                 WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key",
            )?;
            let keys = statement
                .query_map([prefix], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            Ok(keys)
        })
    }

    /// Sets a field of a hash.
    pub fn kv_hset(&self, key: &str, field: &str, value: &str, now: i64) -> Result<(), StoreError> {
        let (field, value) = (field.to_owned(), value.to_owned());
        self.kv(key, now, move |connection, key| {
            connection.execute(
                "INSERT INTO kv_hash (key, field, value) VALUES (?1, ?2, ?3)
                 ON CONFLICT (key, field) DO UPDATE SET value = excluded.value",
                params![key, field, value],
            )?;
            Ok(())
        })
    }

    /// Reads a field of a hash.
    pub fn kv_hget(&self, key: &str, field: &str, now: i64) -> Result<Option<String>, StoreError> {
        let field = field.to_owned();
        self.kv(key, now, move |connection, key| {
            let value = connection
                .query_row(
                    "SELECT value FROM kv_hash WHERE key = ?1 AND field = ?2",
                    params![key, field],
                    |row| row.get(0),
                )
                .optional()?;
            Ok(value)
        })
    }

    /// Reads a hash.
    pub fn kv_hgetall(&self, key: &str, now: i64) -> Result<BTreeMap<String, String>, StoreError> {
        self.kv(key, now, |connection, key| {
            let mut statement =
                connection.prepare_cached("SELECT field, value FROM kv_hash WHERE key = ?1")?;
            let fields = statement
                .query_map([key], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<Result<_, _>>()?;
            Ok(fields)
        })
    }

    /// Removes a field of a hash; answers whether there was one.
    pub fn kv_hdel(&self, key: &str, field: &str, now: i64) -> Result<bool, StoreError> {
        let field = field.to_owned();
        self.kv(key, now, move |connection, key| {
            let removed = connection.execute(
                "DELETE FROM kv_hash WHERE key = ?1 AND field = ?2",
                params![key, field],
            )?;
            drop_stray_expiry(connection, key)?;
            Ok(removed > 0)
        })
    }

    /// Adds to an end of a list; answers the new length.
    pub fn kv_push(&self, key: &str, end: KvEnd, value: &str, now: i64) -> Result<u64, StoreError> {
        let value = value.to_owned();
        self.kv(key, now, move |connection, key| {
            let next = match end {
                KvEnd::Left => "coalesce(min(position) - 1, 0)",
                KvEnd::Right => "coalesce(max(position) + 1, 0)",
            };
            connection.execute(
                &format!(
                    "INSERT INTO kv_list (key, position, value)
                     SELECT ?1, {next}, ?2 FROM kv_list WHERE key = ?1"
                ),
                params![key, value],
            )?;
            list_len(connection, key)
        })
    }

    /// Takes from an end of a list.
    pub fn kv_pop(&self, key: &str, end: KvEnd, now: i64) -> Result<Option<String>, StoreError> {
        self.kv(key, now, move |connection, key| {
            let edge = match end {
                KvEnd::Left => "min(position)",
                KvEnd::Right => "max(position)",
            };
            let value = connection
                .query_row(
                    &format!(
                        "DELETE FROM kv_list WHERE key = ?1 AND position =
                             (SELECT {edge} FROM kv_list WHERE key = ?1) RETURNING value"
                    ),
                    [key],
                    |row| row.get(0),
                )
                .optional()?;
            drop_stray_expiry(connection, key)?;
            Ok(value)
        })
    }

    /// Reads part of a list; both ends inclusive, negative ones count from the end.
    pub fn kv_lrange(
        &self,
        key: &str,
        start: i64,
        stop: i64,
        now: i64,
    ) -> Result<Vec<String>, StoreError> {
        self.kv(key, now, move |connection, key| {
            let len = i64::try_from(list_len(connection, key)?).unwrap_or(i64::MAX);
            let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
            let (first, last) = (from_end(start).max(0), from_end(stop).min(len - 1));
            let count = last.saturating_sub(first).saturating_add(1).max(0);
            let mut statement = connection.prepare_cached(
                "SELECT value FROM kv_list WHERE key = ?1 ORDER BY position LIMIT ?2 OFFSET ?3",
            )?;
            let values = statement
                .query_map(params![key, count, first], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            Ok(values)
        })
    }

    /// The length of a list; 0 without one.
    pub fn kv_llen(&self, key: &str, now: i64) -> Result<u64, StoreError> {
        self.kv(key, now, list_len)
    }

    /// Removes the rows of every key whose time is over; answers how many keys.
    pub fn kv_purge(&self, now: i64) -> Result<usize, StoreError> {
        self.store
            .call_blocking(move |connection| purge(connection, now))
    }
}

fn text(connection: &Connection, key: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT value FROM kv_text WHERE key = ?1")?;
    Ok(statement.query_row([key], |row| row.get(0)).optional()?)
}

fn put_text(connection: &Connection, key: &str, value: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO kv_text (key, value) VALUES (?1, ?2)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )?
        .execute(params![key, value])?;
    Ok(())
}

fn list_len(connection: &Connection, key: &str) -> Result<u64, StoreError> {
    let count = connection.query_row(
        "SELECT count(*) FROM kv_list WHERE key = ?1",
        [key],
        |row| row.get(0),
    )?;
    unsigned("list length", count)
}

fn kinds_of(connection: &Connection, key: &str) -> Result<Vec<&'static str>, StoreError> {
    let mut found = Vec::new();
    for (kind, table) in KINDS {
        let sql = format!("SELECT 1 FROM {table} WHERE key = ?1 LIMIT 1");
        if connection.prepare_cached(&sql)?.exists([key])? {
            found.push(kind);
        }
    }
    Ok(found)
}

fn expiry(connection: &Connection, key: &str, kind: &str) -> Result<Option<i64>, StoreError> {
    let at = connection
        .prepare_cached("SELECT expires_at FROM kv_expiry WHERE key = ?1 AND kind = ?2")?
        .query_row([key, kind], |row| row.get(0))
        .optional()?;
    Ok(at)
}

fn set_expiry(
    connection: &Connection,
    key: &str,
    kind: &str,
    expires_at: Option<i64>,
) -> Result<(), StoreError> {
    match expires_at {
        Some(at) => connection.execute(
            "INSERT INTO kv_expiry (key, kind, expires_at) VALUES (?1, ?2, ?3)
             ON CONFLICT (key, kind) DO UPDATE SET expires_at = excluded.expires_at",
            params![key, kind, at],
        )?,
        None => connection.execute(
            "DELETE FROM kv_expiry WHERE key = ?1 AND kind = ?2",
            [key, kind],
        )?,
    };
    Ok(())
}

/// Removes one kind of a key and its expiry; answers how many rows.
fn remove(connection: &Connection, key: &str, kind: &str) -> Result<usize, StoreError> {
    set_expiry(connection, key, kind, None)?;
    let mut removed = 0;
    for (_, table) in KINDS.iter().filter(|(name, _)| *name == kind) {
        removed += connection.execute(&format!("DELETE FROM {table} WHERE key = ?1"), [key])?;
    }
    Ok(removed)
}

/// A hash or list that has become empty is no key, and a later one must not inherit its end.
fn drop_stray_expiry(connection: &Connection, key: &str) -> Result<(), StoreError> {
    let kinds = kinds_of(connection, key)?;
    for (kind, _) in KINDS {
        if !kinds.contains(&kind) {
            set_expiry(connection, key, kind, None)?;
        }
    }
    Ok(())
}

fn expire_due(connection: &Connection, key: &str, now: i64) -> Result<(), StoreError> {
    for (kind, _) in KINDS {
        if expiry(connection, key, kind)?.is_some_and(|at| at <= now) {
            remove(connection, key, kind)?;
        }
    }
    Ok(())
}

fn purge(connection: &Connection, now: i64) -> Result<usize, StoreError> {
    let due: Vec<(String, String)> = connection
        .prepare_cached("SELECT key, kind FROM kv_expiry WHERE expires_at <= ?1")?
        .query_map([now], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (key, kind) in &due {
        remove(connection, key, kind)?;
    }
    Ok(due.len())
}

#[cfg(test)]
mod tests {
    use super::super::temporary;
    use super::*;

    #[test]
    fn set_obeys_its_rule_and_clears_the_expiry() {
        let (_dir, store) = temporary();
        let set = |value, rule| store.kv_set("k", value, None, rule, 0).unwrap();
        assert!(!set("a", KvRule::IfPresent));
        assert!(set("a", KvRule::IfAbsent));
        assert!(!set("b", KvRule::IfAbsent));
        assert_eq!(store.kv_get("k", 0).unwrap().as_deref(), Some("a"));
        store.kv_expire("k", 10, 0).unwrap();
        assert!(set("c", KvRule::IfPresent));
        assert_eq!(store.kv_ttl("k", 0).unwrap(), TTL_NONE);
    }

    #[test]
    fn key_past_its_time_is_gone_in_every_kind() {
        let (_dir, store) = temporary();
        store
            .kv_set("k", "v", Some(100), KvRule::Always, 0)
            .unwrap();
        store.kv_hset("k", "f", "v", 0).unwrap();
        store.kv_push("k", KvEnd::Right, "v", 0).unwrap();
        assert_eq!(store.kv_ttl("k", 40).unwrap(), TTL_NONE);
        assert!(store.kv_expire("k", 100, 40).unwrap());
        assert_eq!(store.kv_ttl("k", 40).unwrap(), 60);
        assert!(store.kv_exists("k", 99).unwrap());
        assert!(!store.kv_exists("k", 100).unwrap());
        assert_eq!(store.kv_ttl("k", 100).unwrap(), TTL_NO_KEY);
        assert!(!store.kv_expire("k", 500, 100).unwrap());
        assert_eq!(store.kv_push("k", KvEnd::Left, "new", 100).unwrap(), 1);
        assert_eq!(store.kv_ttl("k", 100).unwrap(), TTL_NONE);
    }

    #[test]
    fn incr_keeps_the_expiry_and_refuses_other_text() {
        let (_dir, store) = temporary();
        assert_eq!(store.kv_incr("n", 5, 0).unwrap(), KvSum::Sum(5));
        store.kv_expire("n", 100, 0).unwrap();
        assert_eq!(store.kv_incr("n", -7, 0).unwrap(), KvSum::Sum(-2));
        assert_eq!(store.kv_ttl("n", 0).unwrap(), 100);
        assert_eq!(store.kv_incr("n", i64::MIN, 0).unwrap(), KvSum::Overflow);
        store.kv_set("n", "x", None, KvRule::Always, 0).unwrap();
        assert_eq!(store.kv_incr("n", 1, 0).unwrap(), KvSum::NotAnInteger);
        assert_eq!(store.kv_get("n", 0).unwrap().as_deref(), Some("x"));
    }

    #[test]
    fn lists_push_pop_and_range_from_both_ends() {
        let (_dir, store) = temporary();
        for (end, value) in [(KvEnd::Right, "b"), (KvEnd::Right, "c"), (KvEnd::Left, "a")] {
            store.kv_push("l", end, value, 0).unwrap();
        }
        let range = |start, stop| store.kv_lrange("l", start, stop, 0).unwrap();
        assert_eq!(range(0, -1), ["a", "b", "c"]);
        assert_eq!(range(-2, 99), ["b", "c"]);
        assert_eq!(range(2, 1), [""; 0]);
        assert_eq!(range(i64::MIN, i64::MAX), ["a", "b", "c"]);
        assert_eq!(range(5, 9), [""; 0]);
        let pop = |end| store.kv_pop("l", end, 0).unwrap();
        assert_eq!(pop(KvEnd::Right).as_deref(), Some("c"));
        assert_eq!(pop(KvEnd::Left).as_deref(), Some("a"));
        assert_eq!(store.kv_llen("l", 0).unwrap(), 1);
        assert_eq!(pop(KvEnd::Left).as_deref(), Some("b"));
        assert_eq!(pop(KvEnd::Left), None);
        assert!(!store.kv_exists("l", 0).unwrap());
    }

    #[test]
    fn hashes_hold_fields() {
        let (_dir, store) = temporary();
        store.kv_hset("h", "a", "1", 0).unwrap();
        store.kv_hset("h", "a", "2", 0).unwrap();
        store.kv_hset("h", "b", "3", 0).unwrap();
        assert_eq!(store.kv_hget("h", "a", 0).unwrap().as_deref(), Some("2"));
        assert_eq!(store.kv_hgetall("h", 0).unwrap().len(), 2);
        assert!(store.kv_hdel("h", "a", 0).unwrap());
        assert!(!store.kv_hdel("h", "a", 0).unwrap());
        assert_eq!(store.kv_get("h", 0).unwrap(), None);
    }

    #[test]
    fn keys_are_found_by_prefix_as_text_and_delete_takes_all_kinds() {
        let (_dir, store) = temporary();
        store.kv_set("a%", "v", None, KvRule::Always, 0).unwrap();
        store.kv_set("ab", "v", Some(5), KvRule::Always, 0).unwrap();
        store.kv_hset("a%x", "f", "v", 0).unwrap();
        store.kv_hset("a%", "f", "v", 0).unwrap();
        assert_eq!(store.kv_keys("a%", 0).unwrap(), ["a%", "a%x"]);
        assert_eq!(store.kv_keys("", 0).unwrap().len(), 3);
        assert_eq!(store.kv_keys("ab", 5).unwrap(), [""; 0]);
        assert!(store.kv_delete("a%", 0).unwrap());
        assert!(!store.kv_delete("a%", 0).unwrap());
        assert_eq!(store.kv_purge(9).unwrap(), 0);
    }
}
