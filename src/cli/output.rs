//! Printing: results to stdout, what is said beside them to stderr, hostile text made harmless.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::base::EpochMillis;
use crate::base::error::exit;
use crate::wire::Fault;

/// Prints a line of the result.
pub(super) fn line(text: &str) {
    bytes(format!("{text}\n").as_bytes());
}

/// Prints bytes of the result as they are.
pub(super) fn bytes(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        // The reader has gone (`| head`): nobody is left to answer to.
        std::process::exit(i32::from(exit::OK));
    }
}

/// Prints a value as JSON: on one line, or laid out for people on a terminal.
pub(super) fn json(value: &impl Serialize) {
    let text = if io::stdout().is_terminal() {
        serde_json::to_string_pretty(value)
    } else {
        serde_json::to_string(value)
    };
    match text {
        Ok(text) => line(&text),
        Err(error) => note(&format!("encode the answer: {error}")),
    }
}

/// Prints a value as one line of JSON.
pub(super) fn json_line(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => line(&text),
        Err(error) => note(&format!("encode the answer: {error}")),
    }
}

/// Says something beside the result.
pub(super) fn note(text: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints an error and answers its exit code.
pub fn report(fault: &Fault, as_json: bool) -> u8 {
    if as_json {
        let error = serde_json::json!({
            "success": false,
            "error": {"code": fault.code_text(), "message": fault.message},
        });
        note(&error.to_string());
    } else {
        note(&format!(
            "error: {} ({})",
            clean(&fault.message),
            clean(fault.code_text())
        ));
    }
    fault.kind().exit_code()
}

/// A table for people: no borders, two spaces between columns. Without a header its rows are facts.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !header.is_empty() {
        table.set_header(header.iter().copied());
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for row in table.lines() {
        line(row.trim_end());
    }
}

/// Text from outside without what could move a cursor, hide or reorder text: control characters and
/// bidirectional marks become `�`, tabs and line ends spaces.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' | '\n' | '\r' => ' ',
            c if is_hostile(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

/// A printed line: as `clean`, but a terminal alone needs it; a file gets what was printed.
pub(super) fn clean_for(terminal: bool, text: &str) -> String {
    if !terminal {
        return text.to_owned();
    }
    text.chars()
        .map(|c| match c {
            '\t' => c,
            c if is_hostile(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// An instant for people; `-` when it has not come.
pub(super) fn time(at: Option<EpochMillis>) -> String {
    at.map_or_else(|| "-".to_owned(), EpochMillis::rfc3339)
}

/// A length of time for people.
pub(super) fn span(ms: i64) -> String {
    match ms {
        ..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_cannot_steer_a_terminal() {
        assert_eq!(
            clean("a\u{1b}[31mb\u{7}\n\u{202e}c"),
            "a\u{fffd}[31mb\u{fffd} \u{fffd}c"
        );
        assert_eq!(clean("héllo 世界"), "héllo 世界");
        assert_eq!(clean_for(true, "a\tb\u{9b}"), "a\tb\u{fffd}");
        assert_eq!(clean_for(false, "\u{1b}[1m"), "\u{1b}[1m");
    }

    #[test]
    fn spans_read_well() {
        assert_eq!(span(12), "12 ms");
        assert_eq!(span(1_540), "1.5 s");
        assert_eq!(span(61_000), "1 min 1 s");
        assert_eq!(span(7_260_000), "2 h 1 min");
    }
}
