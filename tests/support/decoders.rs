//! What must hold for any bytes a decoder is given. The property tests and the fuzz targets share it.
//!
//! None may panic; what is accepted must survive a second look.

use std::path::Path;

use wingman::config::AgentConfig;
use wingman::journal::record::{check_line, decode_line};

/// Lines of a journal segment. The checksum would stop nearly all random bytes at the door, so each
/// line is also tried with a checksum that fits.
pub fn journal(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        journal_line(line);
        journal_line(&summed(line));
    }
}

fn journal_line(line: &[u8]) {
    if let Ok(record) = decode_line(line) {
        assert_eq!(check_line(line), Ok(record.sequence));
        let again = serde_json::to_vec(&record).expect("a record is JSON");
        let again = again.strip_suffix(b"}").expect("a record is an object");
        assert_eq!(decode_line(&summed(again)), Ok(record));
    }
}

/// A line of these fields with their checksum, as the journal's record page has it.
fn summed(fields: &[u8]) -> Vec<u8> {
    let mut line = fields.to_vec();
    line.push(b'}');
    let crc = crc32fast::hash(&line);
    line.pop();
    line.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}").as_bytes());
    line
}

/// agent.toml.
pub fn agent_toml(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(config) = AgentConfig::from_text(Path::new("agent.toml"), text)
    {
        assert!(
            config.check().is_ok(),
            "a configuration that was read is good"
        );
    }
}
