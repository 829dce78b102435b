//! How long the host's processors have worked, from /proc/stat.

use crate::platform::CpuTimes;

/// Since boot; `None` where it cannot be read.
pub fn cpu_times() -> Option<CpuTimes> {
    parse(&std::fs::read_to_string("/proc/stat").ok()?)
}

/// The first line: user, nice, system, idle, iowait, irq, softirq, steal (guest time is in user).
fn parse(stat: &str) -> Option<CpuTimes> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let total: u64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(CpuTimes {
        busy: total - idle,
        total,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_time_is_not_work() {
        let stat = "cpu  10 1 5 100 4 2 1 7 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(
            parse(stat),
            Some(CpuTimes {
                busy: 26,
                total: 130
            })
        );
        assert_eq!(parse("nonsense"), None);
        assert!(cpu_times().is_some_and(|times| times.total >= times.busy));
    }
}
