//! The process's own log: to standard error, and as `log.line` events to local readers.

use std::fmt::Write;
use std::io::IsTerminal;

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::base::limits;
use crate::journal::Journal;
use crate::wire::event::{Draft, name};

/// Starts logging with a level or filter; `WINGMAN_LOG` wins. A journal gets the lines as events.
pub fn start(filter: &str, journal: Option<Journal>) -> Result<(), String> {
    let filter = std::env::var("WINGMAN_LOG").unwrap_or_else(|_| filter.to_owned());
    let filter = EnvFilter::try_new(&filter).map_err(|error| format!("logging.level: {error}"))?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    let events = journal.map(|journal| Events { journal });
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .with(events)
        .try_init()
        .map_err(|error| format!("start logging: {error}"))
}

/// Publishes log lines, info and above, to local readers.
struct Events {
    journal: Journal,
}

impl<S: tracing::Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let level = *event.metadata().level();
        if level > tracing::Level::INFO {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let message = cut(text.0);
        let payload = json!({ "level": level.as_str().to_lowercase(), "message": message });
        self.journal
            .publish_volatile(Draft::new(name::LOG_LINE, payload));
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(limits::LOG_LINE_CHARS_MAX) {
        None => text,
        Some((at, _)) => format!("{}...[truncated]", &text[..at]),
    }
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            other => write!(self.0, " {other}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_and_marked() {
        let long = cut("ä".repeat(limits::LOG_LINE_CHARS_MAX + 1));
        assert!(long.ends_with("...[truncated]"));
        assert_eq!(cut("short".into()), "short");
    }
}
