//! The host's figures for a heartbeat: CPU, memory, disk, network. What cannot be read is absent.
//!
//! A thread of its own reads them, since a reading may block (a network disk that is away): heartbeats
//! carry the latest ones and never wait.

use std::net::IpAddr;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use sysinfo::{CpuRefreshKind, Disks, MemoryRefreshKind, Networks, RefreshKind, System};
use tokio::sync::watch;

use crate::base::limits;
use crate::platform::{CpuTimes, native};
use crate::wire::messages::agents::{Amounts, Cpu, Network, Resources, SystemFacts};

/// Long enough for usage and rates to mean something.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The latest figures; dropping it ends the thread at its next reading.
pub(super) struct HostFigures {
    latest: watch::Receiver<Resources>,
    _stop: Sender<()>,
}

impl HostFigures {
    /// Starts reading. Without a thread the figures stay absent, which is logged.
    pub(super) fn start() -> Self {
        let (shown, latest) = watch::channel(Resources::default());
        let (stop, stopped) = channel::<()>();
        let read = move || {
            let mut sampler = Sampler::new();
            // The second reading comes soon: usage and rates need two.
            let mut pause = FIRST_PAUSE;
            loop {
                shown.send_replace(sampler.sample());
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                pause = Duration::from_millis(limits::RESOURCES_PERIOD_MS);
            }
        };
        let thread = std::thread::Builder::new().name("resources".into());
        if let Err(error) = thread.spawn(read) {
            tracing::warn!(%error, "read the host's figures");
        }
        Self {
            latest,
            _stop: stop,
        }
    }

    pub(super) fn latest(&self) -> Resources {
        self.latest.borrow().clone()
    }
}

/// Reads the figures; usage and rates are since the last reading.
struct Sampler {
    system: System,
    networks: Networks,
    cpu_times: Option<CpuTimes>,
    /// When the last reading was made; usage needs two.
    last: Option<Instant>,
}

impl Sampler {
    fn new() -> Self {
        let kinds = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        Self {
            system: System::new_with_specifics(kinds),
            networks: Networks::new_with_refreshed_list(),
            cpu_times: None,
            last: None,
        }
    }

    fn sample(&mut self) -> Resources {
        let now = Instant::now();
        let seconds = self.last.map(|last| now.duration_since(last).as_secs_f64());
        self.last = Some(now);
        self.system.refresh_memory();
        self.networks.refresh(true);
        Resources {
            cpu: self.cpu(),
            memory: amounts(self.system.total_memory(), self.system.available_memory()),
            disk: disk(),
            network: self.network(seconds),
            system: SystemFacts {
                temperature: None,
                os: System::long_os_version(),
                arch: Some(std::env::consts::ARCH.to_owned()),
            },
        }
    }

    fn cpu(&mut self) -> Cpu {
        let before = std::mem::replace(&mut self.cpu_times, native::cpu_times());
        let cpus = self.system.cpus();
        Cpu {
            usage: before
                .zip(self.cpu_times)
                .and_then(|(before, now)| usage(before, now)),
            cores: u32::try_from(cpus.len()).ok().filter(|cores| *cores > 0),
            model: cpus
                .first()
                .map(|cpu| cpu.brand().trim().to_owned())
                .filter(|model| !model.is_empty()),
        }
    }

    fn network(&self, seconds: Option<f64>) -> Network {
        let (mut up, mut down) = (0, 0);
        for (name, data) in &self.networks {
            // What a host says to itself is no traffic.
            if !name.starts_with("lo") {
                up += data.transmitted();
                down += data.received();
            }
        }
        let rate = |bytes: u64| {
            seconds
                .filter(|seconds| *seconds > 0.0)
                .map(|seconds| round(bytes as f64 / seconds))
        };
        Network {
            up: rate(up),
            down: rate(down),
            local_ip: self.local_ip().map(|ip| ip.to_string()),
            public_ip: None,
        }
    }

    /// The first address that other machines may know, IPv4 before IPv6.
    fn local_ip(&self) -> Option<IpAddr> {
        let addresses = || {
            self.networks
                .values()
                .flat_map(|data| data.ip_networks())
                .map(|network| network.addr)
                .filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
        };
        addresses()
            .find(IpAddr::is_ipv4)
            .or_else(|| addresses().next())
    }
}

/// Percent of all processors' time between two readings.
fn usage(before: CpuTimes, now: CpuTimes) -> Option<f64> {
    let total = now
        .total
        .checked_sub(before.total)
        .filter(|total| *total > 0)?;
    let busy = now.busy.checked_sub(before.busy)?;
    Some(round(busy as f64 * 100.0 / total as f64))
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn amounts(total: u64, available: u64) -> Amounts {
    if total == 0 {
        return Amounts::default();
    }
    Amounts {
        total: Some(total),
        available: Some(available),
        usage: Some(round(
            total.saturating_sub(available) as f64 * 100.0 / total as f64,
        )),
    }
}

/// The disk with the root of the file system, or the largest one.
fn disk() -> Amounts {
    let disks = Disks::new_with_refreshed_list();
    let root = disks
        .iter()
        .find(|disk| disk.mount_point() == std::path::Path::new("/"))
        .or_else(|| disks.iter().max_by_key(|disk| disk.total_space()));
    root.map_or_else(Amounts::default, |disk| {
        amounts(disk.total_space(), disk.available_space())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_reading_has_real_figures() {
        let mut sampler = Sampler::new();
        let first = sampler.sample();
        assert_eq!(first.cpu.usage, None, "one reading tells no usage");
        std::thread::sleep(sysinfo::MINIMUM_CPU_UPDATE_INTERVAL);
        let second = sampler.sample();
        let usage = second.cpu.usage.unwrap();
        assert!((0.0..=100.0).contains(&usage), "{usage}");
        let memory = second.memory;
        assert!(memory.available.unwrap() <= memory.total.unwrap());
        assert!(second.network.up.is_some());
    }
}
