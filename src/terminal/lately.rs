//! How much came within one pause between screens.

use std::time::{Duration, Instant};

use crate::base::limits;

/// Counts bytes in spans of `CONSOLE_SCREEN_PAUSE_MS`.
#[derive(Debug, Default)]
pub(super) struct Lately {
    since: Option<Instant>,
    came: usize,
}

impl Lately {
    /// Counts bytes that came; answers how many that were within this span.
    pub fn count(&mut self, bytes: usize, now: Instant) -> usize {
        let span = Duration::from_millis(limits::CONSOLE_SCREEN_PAUSE_MS);
        if self
            .since
            .is_none_or(|since| now.duration_since(since) >= span)
        {
            self.since = Some(now);
            self.came = 0;
        }
        self.came = self.came.saturating_add(bytes);
        self.came
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_span_begins_anew() {
        let mut lately = Lately::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(lately.count(40_000, at(0)), 40_000);
        assert_eq!(lately.count(40_000, at(10)), 80_000);
        assert_eq!(lately.count(usize::MAX, at(15)), usize::MAX);
        assert_eq!(lately.count(40_000, at(16)), 40_000);
    }
}
