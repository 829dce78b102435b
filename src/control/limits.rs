//! Limits on guessing: tries per account and per address in a window, then a block.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::base::EpochMillis;
use crate::base::limits::{LOGIN_BLOCK_MS, LOGIN_TRIES_MAX, LOGIN_WINDOW_MS};
use crate::wire::{Code, Fault};

/// Names remembered at once. Full: those whose window has passed go, then the oldest.
const NAMES_MAX: usize = 10_000;

#[derive(Clone, Copy)]
struct Tries {
    failed: u32,
    since: EpochMillis,
    blocked_until: EpochMillis,
}

/// Counts failed tries by name, such as `account admin` or `address 10.0.0.7`.
#[derive(Default)]
pub struct TryLimits {
    names: Mutex<HashMap<String, Tries>>,
}

impl TryLimits {
    /// Refuses with `rate_limited` while any of the names is blocked.
    pub fn check(&self, names: &[&str], now: EpochMillis) -> Result<(), Fault> {
        let tries = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let until = names
            .iter()
            .filter_map(|name| tries.get(*name))
            .map(|tries| tries.blocked_until)
            .max()
            .unwrap_or_default();
        if until > now {
            let minutes = until.since(now) / 60_000 + 1;
            let text = format!("too many failed tries, wait {minutes} min");
            return Err(Fault::new(Code::RateLimited, text));
        }
        Ok(())
    }

    /// Counts a failed try under each name.
    pub fn failed(&self, names: &[&str], now: EpochMillis) {
        let mut all = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() + names.len() > NAMES_MAX {
            all.retain(|_, tries| {
                tries.blocked_until > now || now.since(tries.since) < LOGIN_WINDOW_MS
            });
        }
        while all.len() + names.len() > NAMES_MAX {
            let oldest = all.iter().min_by_key(|(_, tries)| tries.since);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else {
                break;
            };
            all.remove(&name);
        }
        for name in names {
            let tries = all.entry((*name).to_owned()).or_insert(Tries {
                failed: 0,
                since: now,
                blocked_until: EpochMillis::default(),
            });
            if now.since(tries.since) >= LOGIN_WINDOW_MS {
                tries.failed = 0;
                tries.since = now;
            }
            tries.failed += 1;
            if tries.failed >= LOGIN_TRIES_MAX {
                tries.blocked_until = now.plus_ms(LOGIN_BLOCK_MS);
                tries.failed = 0;
                tries.since = now;
            }
        }
    }

    /// Forgets a name's failed tries.
    pub fn succeeded(&self, name: &str) {
        self.names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifth_failed_try_blocks_the_name_for_its_time_and_no_other() {
        let limits = TryLimits::default();
        let start = EpochMillis(1_000_000);
        for _ in 0..LOGIN_TRIES_MAX {
            limits.check(&["a"], start).unwrap();
            limits.failed(&["a"], start);
        }
        assert_eq!(
            limits.check(&["a"], start).unwrap_err().code,
            Code::RateLimited
        );
        limits.check(&["b"], start).unwrap();
        limits.check(&["a"], start.plus_ms(LOGIN_BLOCK_MS)).unwrap();
    }

    #[test]
    fn tries_of_a_passed_window_do_not_count() {
        let limits = TryLimits::default();
        for n in 0..20 {
            let now = EpochMillis(n * LOGIN_WINDOW_MS);
            limits.check(&["a"], now).unwrap();
            limits.failed(&["a"], now);
        }
    }

    #[test]
    fn memory_stays_bounded() {
        let limits = TryLimits::default();
        for n in 0..(NAMES_MAX + 50) {
            limits.failed(&[&n.to_string()], EpochMillis(1));
        }
        assert!(limits.names.lock().unwrap().len() <= NAMES_MAX);
    }
}
