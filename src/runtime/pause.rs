//! The gate at which scripts wait while they are paused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Shared by all runs of a node.
#[derive(Default)]
pub struct PauseGate {
    all: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl PauseGate {
    /// Whether everything is paused.
    pub fn is_paused(&self) -> bool {
        self.all.load(Ordering::Acquire)
    }

    /// Sets the state; answers whether it changed.
    pub fn set(&self, paused: bool) -> bool {
        let before = self.all.swap(paused, Ordering::AcqRel);
        self.wake();
        before != paused
    }

    /// Makes waiting threads look again.
    pub fn wake(&self) {
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Blocks while `held` answers true; it is asked again at every wake, and now and then.
    pub fn wait_while(&self, held: &dyn Fn() -> bool) {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while held() {
            guard = self
                .changed
                .wait_timeout(guard, Duration::from_millis(50))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Blocks for `time`, or until `ended` answers true at a wake.
    pub fn sleep(&self, time: Duration, ended: &dyn Fn() -> bool) {
        let Some(until) = std::time::Instant::now().checked_add(time) else {
            return self.wait_while(&|| !ended());
        };
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() || ended() {
                return;
            }
            let slice = left.min(Duration::from_millis(50));
            guard = self
                .changed
                .wait_timeout(guard, slice)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_sleeper_wakes_when_it_has_to_end() {
        let gate = Arc::new(PauseGate::default());
        let ended = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let (gate, ended) = (Arc::clone(&gate), Arc::clone(&ended));
            std::thread::spawn(move || {
                gate.sleep(Duration::MAX, &|| ended.load(Ordering::Acquire));
            })
        };
        ended.store(true, Ordering::Release);
        gate.wake();
        sleeper.join().unwrap();
    }
}
