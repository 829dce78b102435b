//! Counters of the server and their Prometheus text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What requests are counted by. Routes come from the table, so the number of keys is bounded.
type RequestKey = (&'static str, &'static str, u16);

pub struct Metrics {
    started: Instant,
    requests: Mutex<BTreeMap<RequestKey, u64>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            requests: Mutex::default(),
        }
    }
}

/// A family of gauges or counters without or with one label.
pub struct Family {
    pub name: &'static str,
    pub kind: &'static str,
    pub help: &'static str,
    pub label: Option<&'static str>,
    /// Label value (unused without a label) and figure.
    pub figures: Vec<(String, u64)>,
}

impl Metrics {
    pub fn uptime_seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    /// Counts a request; `route` is a path of the table or `none`.
    pub fn request(&self, method: &'static str, route: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((method, route, status)).or_default() += 1;
    }

    /// Everything counted here and in `families`, as Prometheus reads it.
    pub fn text(&self, families: &[Family]) -> String {
        let mut text = String::from(
            "# HELP wingman_http_requests_total HTTP requests answered.\n\
             # TYPE wingman_http_requests_total counter\n",
        );
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((method, route, status), count) in requests.iter() {
            // INVARIANT: writing to a String does not fail, here and below.
            let _ = writeln!(
                text,
                "wingman_http_requests_total{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}} {count}"
            );
        }
        drop(requests);
        for family in families {
            let Family {
                name, kind, help, ..
            } = family;
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (value, figure) in &family.figures {
                let _ = match family.label {
                    Some(label) => {
                        writeln!(text, "{name}{{{label}=\"{}\"}} {figure}", escape(value))
                    }
                    None => writeln!(text, "{name} {figure}"),
                };
            }
        }
        text
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_families_described() {
        let metrics = Metrics::default();
        metrics.request("GET", "/health", 200);
        metrics.request("GET", "/health", 200);
        let family = Family {
            name: "wingman_x",
            kind: "gauge",
            help: "Something.",
            label: Some("l"),
            figures: vec![("a\"b\n".into(), 3)],
        };
        let text = metrics.text(&[family]);
        assert!(text.contains("{method=\"GET\",route=\"/health\",status=\"200\"} 2\n"));
        assert!(text.contains("# TYPE wingman_x gauge\nwingman_x{l=\"a\\\"b\\n\"} 3\n"));
    }
}
