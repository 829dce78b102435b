//! The link's decisions as pure state machines: when to dial again, when two processes hold one key,
//! and how fast a herd is let in.
//!
//! ```text
//!             dial ok                 30 s healthy
//! waiting ──────────────► connected ───────────────► delay back to 1 s
//!    ▲                        │
//!    └── delay: 1 s, doubling to 60 s, full jitter ◄── failed, refused or lost
//! ```

use std::collections::VecDeque;

use crate::base::EpochMillis;
use crate::base::limits;

/// What happened to the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkInput {
    /// The registration was accepted.
    Connected,
    /// No connection, or one that was refused or ended; the server may have named a time.
    Lost { retry_ms: Option<u64> },
}

/// How long to wait: a random time from `at_least_ms` to `at_most_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub at_least_ms: u64,
    pub at_most_ms: u64,
}

impl Wait {
    /// The wait at `fraction` (0 to 1) between its bounds.
    pub fn pick(self, fraction: f64) -> u64 {
        let span = self.at_most_ms.saturating_sub(self.at_least_ms);
        self.at_least_ms + (span as f64 * fraction.clamp(0.0, 1.0)) as u64
    }
}

/// Decides when to dial again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconnect {
    failures: u32,
    connected_at: Option<EpochMillis>,
}

impl Reconnect {
    /// Takes in what happened; answers the wait after a loss.
    pub fn step(&mut self, input: LinkInput, now: EpochMillis) -> Option<Wait> {
        match input {
            LinkInput::Connected => {
                self.connected_at = Some(now);
                None
            }
            LinkInput::Lost { retry_ms } => {
                let healthy = self
                    .connected_at
                    .take()
                    .is_some_and(|at| now.since(at) >= limits::LINK_HEALTHY_AFTER_MS as i64);
                if healthy {
                    self.failures = 0;
                }
                let doubled = limits::RECONNECT_FIRST_MS
                    .checked_shl(self.failures)
                    .unwrap_or(u64::MAX);
                let ceiling = doubled.min(limits::RECONNECT_MAX_MS);
                self.failures = (self.failures + 1).min(16);
                let at_least_ms = retry_ms.unwrap_or(0).min(limits::RECONNECT_MAX_MS);
                Some(Wait {
                    at_least_ms,
                    at_most_ms: at_least_ms + ceiling,
                })
            }
        }
    }
}

/// Watches which process registers under one key. A restart moves to a new instance and never back;
/// going back and forth twice means that two processes are alive.
///
/// ```text
/// A ── B ──► one switch: a restart
/// A ── B ── A ──► two switches between the same two within 10 minutes: rivals
/// ```
#[derive(Clone, Debug, Default)]
pub struct DuplicateWatch {
    /// Accepted registrations, oldest first; neighbours differ.
    recent: VecDeque<(String, EpochMillis)>,
}

impl DuplicateWatch {
    /// Notes a registration; answers the rival instance when it takes turns with another.
    pub fn observe(&mut self, instance: &str, now: EpochMillis) -> Option<String> {
        self.recent
            .retain(|(_, at)| now.since(*at) <= limits::DUPLICATE_WINDOW_MS);
        match self.recent.back_mut() {
            Some((last, at)) if last == instance => *at = now,
            _ => self.recent.push_back((instance.to_owned(), now)),
        }
        while self.recent.len() > limits::DUPLICATE_HISTORY_LEN_MAX {
            self.recent.pop_front();
        }
        let before_last = self.recent.len().checked_sub(2)?;
        let returns = self
            .recent
            .iter()
            .take(before_last)
            .any(|(earlier, _)| earlier == instance);
        let (rival, _) = self.recent.get(before_last)?;
        returns.then(|| rival.clone())
    }

    /// Forgets what was seen, after a person has decided.
    pub fn clear(&mut self) {
        self.recent.clear();
    }
}

/// Lets in a bounded number a second, with a bounded burst.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Thousandths of a permit.
    permits: u64,
    at: EpochMillis,
}

impl Admission {
    pub fn new(now: EpochMillis) -> Self {
        Self {
            permits: limits::REGISTRATION_BURST * 1000,
            at: now,
        }
    }

    /// Takes a permit, or answers how many milliseconds to wait for one.
    pub fn admit(&mut self, now: EpochMillis) -> Result<(), u64> {
        let passed = u64::try_from(now.since(self.at)).unwrap_or(0);
        self.at = now;
        self.permits = passed
            .saturating_mul(limits::REGISTRATIONS_PER_SECOND)
            .saturating_add(self.permits)
            .min(limits::REGISTRATION_BURST * 1000);
        match self.permits.checked_sub(1000) {
            Some(left) => {
                self.permits = left;
                Ok(())
            }
            None => Err((1000 - self.permits).div_ceil(limits::REGISTRATIONS_PER_SECOND)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lost(reconnect: &mut Reconnect, at: i64) -> Wait {
        let input = LinkInput::Lost { retry_ms: None };
        reconnect.step(input, EpochMillis(at)).unwrap()
    }

    #[test]
    fn delay_doubles_to_a_minute_and_a_healthy_link_resets_it() {
        let mut reconnect = Reconnect::default();
        let ceilings: Vec<u64> = (0..8).map(|n| lost(&mut reconnect, n).at_most_ms).collect();
        assert_eq!(
            ceilings,
            [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
        );
        reconnect.step(LinkInput::Connected, EpochMillis(100));
        assert_eq!(lost(&mut reconnect, 100 + 29_999).at_most_ms, 60_000);
        reconnect.step(LinkInput::Connected, EpochMillis(200_000));
        assert_eq!(lost(&mut reconnect, 230_000).at_most_ms, 1_000);
    }

    #[test]
    fn server_s_hint_is_the_least_wait() {
        let mut reconnect = Reconnect::default();
        let input = LinkInput::Lost {
            retry_ms: Some(5_000),
        };
        let wait = reconnect.step(input, EpochMillis(0)).unwrap();
        assert_eq!((wait.at_least_ms, wait.at_most_ms), (5_000, 6_000));
    }

    #[test]
    fn restart_is_no_rival_but_going_back_and_forth_is() {
        let mut watch = DuplicateWatch::default();
        for (n, instance) in ["a", "b", "c", "c", "d"].iter().enumerate() {
            assert_eq!(watch.observe(instance, EpochMillis(n as i64)), None);
        }
        assert_eq!(watch.observe("c", EpochMillis(10)), Some("d".to_owned()));
        let mut slow = DuplicateWatch::default();
        let step = limits::DUPLICATE_WINDOW_MS;
        for (n, instance) in ["a", "b", "a", "b"].iter().enumerate() {
            assert_eq!(slow.observe(instance, EpochMillis(n as i64 * step)), None);
        }
    }

    proptest! {
        #[test]
        fn waits_stay_in_bounds_whatever_happens(
            inputs in prop::collection::vec((any::<bool>(), 0i64..100_000, prop::option::of(any::<u64>())), 1..200),
            fraction in 0.0f64..1.0,
        ) {
            let mut reconnect = Reconnect::default();
            let mut now = 0;
            let mut model = 0u32;
            let mut connected: Option<i64> = None;
            for (connects, passed, retry_ms) in inputs {
                now += passed;
                if connects {
                    prop_assert_eq!(reconnect.step(LinkInput::Connected, EpochMillis(now)), None);
                    connected = Some(now);
                    continue;
                }
                if connected.take().is_some_and(|at| now - at >= 30_000) { model = 0; }
                let wait = reconnect.step(LinkInput::Lost { retry_ms }, EpochMillis(now)).unwrap();
                let ceiling = (1_000u64 << model.min(10)).min(60_000);
                prop_assert_eq!(wait.at_most_ms - wait.at_least_ms, ceiling);
                let picked = wait.pick(fraction);
                prop_assert!(wait.at_least_ms <= picked && picked <= wait.at_most_ms);
                prop_assert!(picked <= 120_000);
                model += 1;
            }
        }

        #[test]
        fn admission_never_passes_rate_and_burst(gaps in prop::collection::vec(0i64..50, 1..2_000)) {
            let mut admission = Admission::new(EpochMillis(0));
            let (mut now, mut admitted) = (0, 0u64);
            for gap in gaps {
                now += gap;
                match admission.admit(EpochMillis(now)) {
                    Ok(()) => admitted += 1,
                    Err(wait) => prop_assert!((1..=1_000).contains(&wait)),
                }
            }
            let allowed = limits::REGISTRATION_BURST
                + now as u64 * limits::REGISTRATIONS_PER_SECOND / 1000;
            prop_assert!(admitted <= allowed);
        }
    }
}
