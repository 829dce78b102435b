//! A run's output on its way to the store, the journal and the stream files.
//!
//! The script's thread pushes, one flushing task takes. The buffer is bounded: a script that prints
//! faster than the disk takes waits at its next line, unless it has to end.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::base::{EpochMillis, limits};
use crate::wire::messages::executions::{LogExtent, LogLine, Stream};

/// A piece of output that is not stored yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub line: LogLine,
    /// Whether a line begins and ends with this text; one longer than a record holds is split.
    pub starts_line: bool,
    pub ends_line: bool,
}

#[derive(Default)]
struct State {
    pending: Vec<Piece>,
    pending_bytes: usize,
    extent: LogExtent,
    closed: bool,
}

/// The buffer of one run.
#[derive(Default)]
pub struct Output {
    state: Mutex<State>,
    taken: Condvar,
    ready: tokio::sync::Notify,
}

impl Output {
    /// Adds a text, split at line ends. Blocks while the buffer is full and `may_wait` answers true.
    pub fn push(&self, stream: Stream, level: &str, text: &str, may_wait: &dyn Fn() -> bool) {
        let mut state = self.lock();
        while state.pending_bytes >= limits::OUTPUT_PENDING_LEN_MAX && !state.closed && may_wait() {
            state = self
                .taken
                .wait_timeout(state, Duration::from_millis(20))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if state.closed {
            return;
        }
        for line in text.split('\n') {
            let mut rest = line;
            let mut starts = true;
            loop {
                let (head, tail) = split_at_most(rest, limits::OUTPUT_LINE_LEN_MAX);
                state.add(stream, level, head, (starts, tail.is_empty()));
                if tail.is_empty() {
                    break;
                }
                rest = tail;
                starts = false;
            }
        }
        drop(state);
        self.ready.notify_one();
    }

    /// The next pieces, at most one record's worth; empty when there are none.
    pub fn take(&self) -> Vec<Piece> {
        let mut state = self.lock();
        let mut bytes = 0;
        let end = state
            .pending
            .iter()
            .position(|piece| {
                bytes += piece.line.text.len() + 96;
                bytes > limits::OUTPUT_BATCH_LEN_MAX
            })
            .unwrap_or(state.pending.len());
        let end = end.max(1).min(state.pending.len());
        let taken: Vec<Piece> = state.pending.drain(..end).collect();
        state.pending_bytes = state
            .pending_bytes
            .saturating_sub(taken.iter().map(|p| p.line.text.len()).sum());
        drop(state);
        self.taken.notify_all();
        taken
    }

    /// Waits until something was pushed or the buffer closed.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Refuses what comes later; what is pending stays to be taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.taken.notify_all();
        self.ready.notify_one();
    }

    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// What was accepted so far.
    pub fn extent(&self) -> LogExtent {
        self.lock().extent
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic of a script thread must not take the run's record with it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(
        &mut self,
        stream: Stream,
        level: &str,
        text: &str,
        (starts_line, ends_line): (bool, bool),
    ) {
        if self.extent.truncated {
            return;
        }
        let over = self.extent.bytes + text.len() as u64 > limits::EXECUTION_LOG_LEN_MAX;
        let (stream, level, text) = if over {
            self.extent.truncated = true;
            (
                Stream::Stderr,
                "warn",
                "[the output passed its limit and is cut here]",
            )
        } else {
            (stream, level, text)
        };
        let line = LogLine {
            index: self.extent.lines,
            at: EpochMillis::now(),
            stream,
            level: level.to_owned(),
            text: text.to_owned(),
        };
        self.extent.lines += 1;
        self.extent.bytes += text.len() as u64 + 1;
        self.pending_bytes += text.len();
        self.pending.push(Piece {
            line,
            starts_line,
            ends_line,
        });
    }
}

fn split_at_most(text: &str, len_max: usize) -> (&str, &str) {
    if text.len() <= len_max {
        return (text, "");
    }
    text.split_at(text.floor_char_boundary(len_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_numbered_and_rejoined() {
        let output = Output::default();
        output.push(Stream::Stdout, "info", "a\nb", &|| true);
        let long = "ä".repeat(limits::OUTPUT_LINE_LEN_MAX);
        output.push(Stream::Stderr, "warn", &long, &|| true);
        let mut pieces = Vec::new();
        loop {
            let taken = output.take();
            if taken.is_empty() {
                break;
            }
            pieces.extend(taken);
        }
        let indexes: Vec<u64> = pieces.iter().map(|p| p.line.index).collect();
        assert_eq!(indexes, [0, 1, 2, 3]);
        assert_eq!(pieces[0].line.text, "a");
        assert!(!pieces[2].ends_line && pieces[3].ends_line);
        assert_eq!(
            format!("{}{}", pieces[2].line.text, pieces[3].line.text),
            long
        );
    }

    #[test]
    fn output_past_the_limit_is_cut_once_and_said() {
        let output = Output::default();
        let chunk = "x".repeat(limits::OUTPUT_LINE_LEN_MAX);
        let mut taken = Vec::new();
        for _ in 0..limits::EXECUTION_LOG_LEN_MAX / chunk.len() as u64 + 10 {
            output.push(Stream::Stdout, "info", &chunk, &|| false);
            taken.extend(output.take());
        }
        assert!(output.extent().truncated);
        let notices = taken
            .iter()
            .filter(|p| p.line.text.starts_with("[the output"))
            .count();
        assert_eq!(notices, 1);
    }

    #[test]
    fn closed_buffer_takes_no_more_and_keeps_what_it_has() {
        let output = Output::default();
        output.push(Stream::Stdout, "info", "kept", &|| true);
        output.close();
        output.push(Stream::Stdout, "info", "refused", &|| true);
        assert_eq!(output.take().len(), 1);
        assert!(output.take().is_empty());
    }
}
