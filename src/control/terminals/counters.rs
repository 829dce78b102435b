//! What `/metrics` tells of terminals.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Terminals;
use crate::control::metrics::Family;

/// Counters of the consoles that are attached through this server.
#[derive(Default)]
pub(super) struct Counters {
    pub attached: AtomicU64,
    /// Bytes to consoles, and what consoles typed.
    pub bytes_out: AtomicU64,
    pub bytes_in: AtomicU64,
    /// By a closed set of reasons.
    closed: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    pub fn closed(&self, reason: &'static str) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed.entry(reason).or_default() += 1;
    }
}

impl Terminals {
    /// The families of `/metrics`.
    pub fn families(&self) -> Vec<Family> {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let closed = counters
            .closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(reason, count)| ((*reason).to_owned(), *count))
            .collect();
        vec![
            Family {
                name: "wingman_terminal_sessions",
                kind: "gauge",
                help: "Terminal sessions, by workstation, as last told.",
                label: Some("machine"),
                figures: self.known_counts(),
            },
            Family {
                name: "wingman_consoles_attached",
                kind: "gauge",
                help: "Consoles attached through this server; each has one stream open.",
                label: None,
                figures: vec![(String::new(), read(&counters.attached))],
            },
            Family {
                name: "wingman_console_bytes_total",
                kind: "counter",
                help: "Bytes of console streams, by direction.",
                label: Some("direction"),
                figures: vec![
                    ("in".to_owned(), read(&counters.bytes_in)),
                    ("out".to_owned(), read(&counters.bytes_out)),
                ],
            },
            Family {
                name: "wingman_console_streams_closed_total",
                kind: "counter",
                help: "Console streams that ended, by reason.",
                label: Some("reason"),
                figures: closed,
            },
        ]
    }
}
