//! Opt-in recordings of what a session shows, in asciicast version 2: a header line, then one JSON
//! array a line, `[seconds, "o" | "r" | "m", text]`. (<https://docs.asciinema.org/manual/asciicast/v2/>)
//!
//! A recording that reaches its limit, or whose file cannot be written, ends; the session goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::base::{EpochMillis, limits};

#[derive(Debug)]
pub(super) struct Recording {
    path: PathBuf,
    file: BufWriter<File>,
    started: EpochMillis,
    /// The start of a character whose rest has not come.
    partial: Vec<u8>,
    written: u64,
}

impl Recording {
    /// Starts a file of the user's own; an existing one is an error.
    pub fn start(
        path: &Path,
        cols: u16,
        rows: u16,
        title: &str,
        now: EpochMillis,
    ) -> io::Result<Self> {
        // The folder around it is the user's alone.
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        let mut recording = Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            started: now,
            partial: Vec::new(),
            written: 0,
        };
        recording.line(&json!({
            "version": 2, "width": cols, "height": rows, "timestamp": now.0 / 1000,
            "title": title, "env": {"TERM": "xterm-256color"},
        }))?;
        Ok(recording)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the program put out. Bytes that are no UTF-8 are replaced, as the format is text.
    pub fn output(&mut self, bytes: &[u8], now: EpochMillis) -> io::Result<()> {
        self.partial.extend_from_slice(bytes);
        let whole = whole_len(&self.partial);
        if whole == 0 {
            return Ok(());
        }
        let rest = self.partial.split_off(whole);
        let text = String::from_utf8_lossy(&self.partial).into_owned();
        self.partial = rest;
        self.event(now, "o", &text)
    }

    pub fn resized(&mut self, cols: u16, rows: u16, now: EpochMillis) -> io::Result<()> {
        self.event(now, "r", &format!("{cols}x{rows}"))
    }

    /// Brings what was recorded to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn event(&mut self, now: EpochMillis, kind: &str, text: &str) -> io::Result<()> {
        let seconds = now.since(self.started).max(0) as f64 / 1000.0;
        if self.written + text.len() as u64 > limits::RECORDING_LEN_MAX {
            self.line(&json!([
                seconds,
                "m",
                "the recording has reached its limit"
            ]))?;
            self.file.flush()?;
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "the recording has reached its limit",
            ));
        }
        self.line(&json!([seconds, kind, text]))
    }

    fn line(&mut self, value: &serde_json::Value) -> io::Result<()> {
        let mut text = value.to_string();
        text.push('\n');
        self.written += text.len() as u64;
        self.file.write_all(text.as_bytes())
    }
}

/// How many bytes stand before an unfinished character at the end.
fn whole_len(bytes: &[u8]) -> usize {
    let needed = |lead: u8| match lead {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 0,
    };
    let unfinished =
        (1..=bytes.len().min(3)).find(|back| needed(bytes[bytes.len() - back]) > *back);
    bytes.len() - unfinished.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_is_asciicast_with_whole_characters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.cast");
        let mut recording = Recording::start(&path, 80, 24, "t", EpochMillis(5_000)).unwrap();
        let text = "é世".as_bytes();
        recording.output(&text[..1], EpochMillis(5_100)).unwrap();
        recording.output(&text[1..4], EpochMillis(5_200)).unwrap();
        recording.output(&text[4..], EpochMillis(5_500)).unwrap();
        recording.output(b"\xff\xe4", EpochMillis(5_600)).unwrap();
        recording.resized(100, 30, EpochMillis(6_000)).unwrap();
        recording.flush().unwrap();
        let lines: Vec<serde_json::Value> = std::fs::read_to_string(&path)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines[0]["version"], 2);
        assert_eq!(lines[0]["width"], 80);
        assert_eq!(lines[1], json!([0.2, "o", "é"]));
        assert_eq!(lines[2], json!([0.5, "o", "世"]));
        assert_eq!(lines[3], json!([0.6, "o", "\u{fffd}"]));
        assert_eq!(lines[4], json!([1.0, "r", "100x30"]));
        assert!(Recording::start(&path, 80, 24, "t", EpochMillis(0)).is_err());
    }
}
