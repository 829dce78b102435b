//! What scripts keep, in the node's database.

use std::collections::BTreeMap;

use super::records::fault;
use crate::base::{EpochMillis, limits};
use crate::script::host::{Kv, ListEnd, SetRule};
use crate::store::node::NodeStore;
use crate::store::node::kv::{KvEnd, KvRule, KvSum};
use crate::wire::{Code, Fault};

/// The node's key-value store.
pub struct NodeKv {
    store: NodeStore,
}

impl NodeKv {
    pub fn new(store: NodeStore) -> Self {
        Self { store }
    }
}

fn now() -> i64 {
    EpochMillis::now().0
}

/// A time to live in seconds as the moment when it is over.
fn end_of(ttl_s: u64) -> i64 {
    let ms = i64::try_from(ttl_s)
        .unwrap_or(i64::MAX)
        .saturating_mul(1_000);
    now().saturating_add(ms)
}

fn end(end: ListEnd) -> KvEnd {
    match end {
        ListEnd::Left => KvEnd::Left,
        ListEnd::Right => KvEnd::Right,
    }
}

/// Keys and values are bounded, so that a script cannot fill the node's disk in one call.
fn check(key: &str, value: &str) -> Result<(), Fault> {
    if key.is_empty() || key.len() > limits::KV_KEY_LEN_MAX {
        let text = format!("a key has 1 to {} bytes", limits::KV_KEY_LEN_MAX);
        return Err(Fault::new(Code::InvalidParams, text));
    }
    if value.len() > limits::KV_VALUE_LEN_MAX {
        let text = format!("a value has at most {} bytes", limits::KV_VALUE_LEN_MAX);
        return Err(Fault::new(Code::InvalidParams, text));
    }
    Ok(())
}

impl Kv for NodeKv {
    fn set(
        &self,
        key: &str,
        value: &str,
        ttl_s: Option<u64>,
        rule: SetRule,
    ) -> Result<bool, Fault> {
        check(key, value)?;
        let rule = match rule {
            SetRule::Always => KvRule::Always,
            SetRule::IfAbsent => KvRule::IfAbsent,
            SetRule::IfPresent => KvRule::IfPresent,
        };
        self.store
            .kv_set(key, value, ttl_s.map(end_of), rule, now())
            .map_err(fault)
    }

    fn get(&self, key: &str) -> Result<Option<String>, Fault> {
        self.store.kv_get(key, now()).map_err(fault)
    }

    fn delete(&self, key: &str) -> Result<bool, Fault> {
        self.store.kv_delete(key, now()).map_err(fault)
    }

    fn exists(&self, key: &str) -> Result<bool, Fault> {
        self.store.kv_exists(key, now()).map_err(fault)
    }

    fn expire(&self, key: &str, ttl_s: u64) -> Result<bool, Fault> {
        self.store
            .kv_expire(key, end_of(ttl_s), now())
            .map_err(fault)
    }

    fn ttl(&self, key: &str) -> Result<i64, Fault> {
        let left_ms = self.store.kv_ttl(key, now()).map_err(fault)?;
        Ok(if left_ms > 0 {
            (left_ms + 999) / 1_000
        } else {
            left_ms
        })
    }

    fn incr(&self, key: &str, delta: i64) -> Result<i64, Fault> {
        match self.store.kv_incr(key, delta, now()).map_err(fault)? {
            KvSum::Sum(sum) => Ok(sum),
            refused => Err(Fault::new(
                Code::Conflict,
                format!("the value of {key:?} cannot be added to: {refused:?}"),
            )),
        }
    }

    fn keys(&self, prefix: &str) -> Result<Vec<String>, Fault> {
        self.store.kv_keys(prefix, now()).map_err(fault)
    }

    fn hset(&self, key: &str, field: &str, value: &str) -> Result<(), Fault> {
        check(key, value)?;
        check(field, "")?;
        self.store.kv_hset(key, field, value, now()).map_err(fault)
    }

    fn hget(&self, key: &str, field: &str) -> Result<Option<String>, Fault> {
        self.store.kv_hget(key, field, now()).map_err(fault)
    }

    fn hgetall(&self, key: &str) -> Result<BTreeMap<String, String>, Fault> {
        self.store.kv_hgetall(key, now()).map_err(fault)
    }

    fn hdel(&self, key: &str, field: &str) -> Result<bool, Fault> {
        self.store.kv_hdel(key, field, now()).map_err(fault)
    }

    fn push(&self, key: &str, at: ListEnd, value: &str) -> Result<u64, Fault> {
        check(key, value)?;
        self.store
            .kv_push(key, end(at), value, now())
            .map_err(fault)
    }

    fn pop(&self, key: &str, at: ListEnd) -> Result<Option<String>, Fault> {
        self.store.kv_pop(key, end(at), now()).map_err(fault)
    }

    fn lrange(&self, key: &str, start: i64, stop: i64) -> Result<Vec<String>, Fault> {
        self.store.kv_lrange(key, start, stop, now()).map_err(fault)
    }

    fn llen(&self, key: &str) -> Result<u64, Fault> {
        self.store.kv_llen(key, now()).map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_to_live_is_told_in_seconds_and_sizes_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let kv = NodeKv::new(NodeStore::open(&dir.path().join("node.db")).unwrap());
        assert!(kv.set("k", "v", Some(3_600), SetRule::Always).unwrap());
        let left = kv.ttl("k").unwrap();
        assert!((3_500..=3_600).contains(&left), "{left}");
        kv.set("k", "v", None, SetRule::Always).unwrap();
        assert_eq!((kv.ttl("k").unwrap(), kv.ttl("none").unwrap()), (-1, -2));
        let long = "x".repeat(limits::KV_VALUE_LEN_MAX + 1);
        assert_eq!(
            kv.set("k", &long, None, SetRule::Always).unwrap_err().code,
            Code::InvalidParams
        );
        assert_eq!(
            kv.push(&long, ListEnd::Left, "v").unwrap_err().code,
            Code::InvalidParams
        );
        assert_eq!(kv.get("k").unwrap().as_deref(), Some("v"));
    }
}
