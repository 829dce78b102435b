//! When to look at a session: shortly after it falls quiet, twice more, then ever more rarely while a
//! program runs that reads nothing, and otherwise never until something happens.

use crate::base::{EpochMillis, limits};

/// ```text
///  activity ──► look after 300 ms ──► after 1 s ──► after 3 s ──► no timer
///     ▲   (at most 1 s of output unseen)             │    ▲            │
///     │              the program reads nothing ──► after half as long again as it has been quiet
///     └──────────────────────── output or input ◄─────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    /// The last output or input.
    active_at: Option<EpochMillis>,
    /// The first output that no look has seen.
    unseen_since: Option<EpochMillis>,
    /// Looks since the last activity, the rare ones not counted.
    looks: usize,
    looked_at: Option<EpochMillis>,
    /// At the last look a program ran that did not read: it may begin to without a word.
    runs: bool,
}

impl Schedule {
    pub(super) fn output(&mut self, now: EpochMillis) {
        self.input(now);
        self.unseen_since.get_or_insert(now);
    }

    pub(super) fn input(&mut self, now: EpochMillis) {
        self.active_at = Some(now);
        self.looks = 0;
    }

    pub(super) fn stop(&mut self) {
        *self = Self::default();
    }

    /// The clock went back: nothing lies in the future.
    pub(super) fn clamp(&mut self, now: EpochMillis) {
        let clamp = |at: EpochMillis| at.min(now);
        self.active_at = self.active_at.map(clamp);
        self.unseen_since = self.unseen_since.map(clamp);
        self.looked_at = self.looked_at.map(clamp);
    }

    /// The time of the next look.
    pub(super) fn next(&self) -> Option<EpochMillis> {
        let active_at = self.active_at?;
        let Some(pause) = self.pause() else {
            let looked_at = self.looked_at.filter(|_| self.runs)?;
            let rest = (looked_at.since(active_at) / 2).clamp(
                limits::ATTENTION_LOOK_MS,
                limits::ATTENTION_LOOK_RARE_MS_MAX,
            );
            return Some(looked_at.plus_ms(rest));
        };
        let quiet = active_at.plus_ms(pause);
        let latest = self
            .unseen_since
            .filter(|_| self.looks == 0)
            .map(|at| at.plus_ms(limits::ATTENTION_LOOK_LATEST_MS));
        Some(latest.map_or(quiet, |latest| latest.min(quiet)))
    }

    /// From the last activity to the next look; `None` after the third.
    fn pause(&self) -> Option<i64> {
        match self.looks.checked_sub(1) {
            None => Some(limits::ATTENTION_LOOK_MS),
            Some(again) => limits::ATTENTION_LOOK_AGAIN_MS.get(again).copied(),
        }
    }

    /// The first look after the last activity is still to come.
    pub(super) fn is_unsettled(&self) -> bool {
        self.active_at.is_some() && self.looks == 0
    }

    /// What the last look has shown: whether a program runs that reads nothing.
    pub(super) fn found(&mut self, runs: bool) {
        self.runs = runs;
    }

    /// Counts a look that is due; answers whether output still flows. `None`: no look is due.
    pub(super) fn look(&mut self, now: EpochMillis) -> Option<bool> {
        if self.next()? > now {
            return None;
        }
        let active_at = self.active_at?;
        let flowing = self.looks == 0 && active_at.plus_ms(limits::ATTENTION_LOOK_MS) > now;
        self.unseen_since = None;
        self.looked_at = Some(now);
        if !flowing && let Some(pause) = self.pause() {
            // A look that comes late, as after a suspend, delays the later ones: what a program does shows
            // only from one look to the next.
            self.active_at = Some(active_at.max(now.plus_ms(-pause)));
            self.looks += 1;
        }
        Some(flowing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_session_is_looked_at_three_times_and_never_again() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next(), None);
        schedule.output(EpochMillis(0));
        let mut times = Vec::new();
        while let Some(due) = schedule.next() {
            times.push(due.0);
            assert_eq!(schedule.look(due), Some(false));
        }
        assert_eq!(times, [300, 1_000, 3_000]);
        assert_eq!(schedule.look(EpochMillis(9_000)), None);
    }

    #[test]
    fn a_program_that_reads_nothing_is_looked_at_ever_more_rarely() {
        let mut schedule = Schedule::default();
        schedule.output(EpochMillis(0));
        let mut times = Vec::new();
        while let Some(due) = schedule.next()
            && due.0 < 400_000
        {
            times.push(due.0);
            assert_eq!(schedule.look(due), Some(false));
            schedule.found(due.0 < 300_000);
        }
        assert_eq!(
            times[..7],
            [300, 1_000, 3_000, 4_500, 6_750, 10_125, 15_187]
        );
        let last = times.len() - 1;
        assert_eq!(
            times[last] - times[last - 1],
            limits::ATTENTION_LOOK_RARE_MS_MAX
        );
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn a_session_that_never_falls_quiet_is_looked_at_once_a_second() {
        let mut schedule = Schedule::default();
        let mut looks = Vec::new();
        for now in (0..5_000).step_by(100).map(EpochMillis) {
            schedule.output(now);
            if schedule.next().is_some_and(|due| due <= now) {
                looks.push(now.0);
                assert_eq!(schedule.look(now), Some(true));
            }
        }
        assert_eq!(looks, [1_000, 2_100, 3_200, 4_300]);
    }

    #[test]
    fn a_late_look_delays_the_later_ones() {
        let mut schedule = Schedule::default();
        schedule.input(EpochMillis(0));
        let mut times = Vec::new();
        let mut now = EpochMillis(60_000);
        while schedule.look(now) == Some(false) {
            times.push(now.0);
            now = schedule.next().unwrap_or(now);
        }
        assert_eq!(times, [60_000, 60_700, 62_700]);
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn a_clock_that_goes_back_does_not_delay_the_look() {
        let mut schedule = Schedule::default();
        schedule.output(EpochMillis(1_000_000));
        schedule.clamp(EpochMillis(0));
        assert_eq!(schedule.next(), Some(EpochMillis(300)));
    }
}
