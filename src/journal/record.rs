//! A record as a line of a segment.
//!
//! ```text
//! {"schemaVersion":1,"sequence":42,"eventId":"…", … ,"payload":{…},"crc":"9ae0daaf"}\n
//! |<------------------- A -------------------------------------->|<------ 18 ----->|
//! ```
//!
//! `crc` is always the last field: the CRC-32 (IEEE) of `A` followed by `}`, that is of the line
//! without the field, as 8 lower-case hexadecimal digits. A line has no other newline than its last
//! byte. Fields stand in the order of `wire::event::Record`, so the sequence is found without
//! parsing. The limit of a line is `JOURNAL_RECORD_LEN_MAX`, its newline included.

use std::io::Write;

use crate::base::EpochMillis;
use crate::base::ids::{EventId, InstanceId};
use crate::base::limits::{ID_LEN_MAX, JOURNAL_RECORD_LEN_MAX};
use crate::wire::event::{Draft, Record, Source};
use crate::wire::{Code, Fault};

/// Every line starts with this, in this version.
const HEAD: &[u8] = br#"{"schemaVersion":1,"sequence":"#;
/// Where the time of commit belongs in a serialised record that still has none.
const COMMITTED: &[u8] = br#","committedAt":"#;
const CRC_HEAD: &[u8] = br#","crc":""#;
/// `,"crc":"xxxxxxxx"}`.
const CRC_FIELD_LEN: usize = CRC_HEAD.len() + 8 + 2;
/// What a line gains over the prepared text: two numbers of up to 20 digits, checksum, newline.
const GROWTH_MAX: usize = 2 * 20 + CRC_FIELD_LEN + 1;

/// Why a line is no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("the line of {0} bytes is longer than a record may be")]
    TooLong(usize),
    #[error("the line does not end with a checksum")]
    NoChecksum,
    #[error("the checksum is {stated}, the line's is {computed:08x}")]
    ChecksumMismatch { stated: String, computed: u32 },
    #[error("the line is no record of this version: {0}")]
    NotARecord(String),
}

/// A record made ready on its author's thread; only number, time and checksum are missing.
pub(super) struct Prepared {
    pub record: Record,
    pub line: Line,
}

/// What the writer needs of a prepared record.
pub(super) struct Line {
    /// The record as JSON, with sequence 0 and time of commit 0.
    text: Vec<u8>,
    /// Where the zero of the time of commit stands in `text`.
    committed_at: usize,
}

impl Prepared {
    /// Checks and serialises a draft.
    pub fn new(draft: Draft, instance_id: &InstanceId) -> Result<Self, Fault> {
        for (field, text) in [("type", &draft.event_type), ("stream", &draft.stream)] {
            if text.is_empty() || text.len() > ID_LEN_MAX {
                let why = format!("an event's {field} has 1 to {ID_LEN_MAX} bytes");
                return Err(Fault::new(Code::InvalidParams, why));
            }
        }
        let record = Record {
            schema_version: Record::SCHEMA_VERSION,
            sequence: 0,
            event_id: EventId::random(),
            observed_at: draft.observed_at.unwrap_or_else(EpochMillis::now),
            committed_at: EpochMillis(0),
            session_id: draft.session_id,
            stream: draft.stream,
            event_type: draft.event_type,
            source: draft.source.unwrap_or_else(|| own_source(instance_id)),
            foreground: draft.foreground,
            correlation_id: draft.correlation_id,
            causation_id: draft.causation_id,
            payload: draft.payload,
            artifacts: draft.artifacts,
        };
        let text = serde_json::to_vec(&record)
            .map_err(|error| Fault::internal(format!("encode a journal record: {error}")))?;
        if text.len() + GROWTH_MAX > JOURNAL_RECORD_LEN_MAX {
            let why = format!(
                "the event {} of {} bytes is longer than {JOURNAL_RECORD_LEN_MAX}",
                record.event_type,
                text.len() + GROWTH_MAX
            );
            return Err(Fault::new(Code::EventTooLarge, why));
        }
        let committed_at = committed_position(&text)
            .ok_or_else(|| Fault::internal("a journal record has no place for its time"))?;
        let line = Line { text, committed_at };
        Ok(Self { record, line })
    }
}

impl Line {
    /// The most that `encode` adds to a buffer, in bytes.
    pub fn len_max(&self) -> usize {
        self.text.len() + GROWTH_MAX
    }

    /// Appends the finished line to `out`.
    pub fn encode(&self, sequence: u64, committed_at: EpochMillis, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(HEAD);
        // INVARIANT: writing to a vector does not fail; `text` starts with HEAD and a zero, has
        // another zero at `committed_at`, and ends with a brace (`Prepared::new`).
        let _ = write!(out, "{sequence}");
        out.extend_from_slice(&self.text[HEAD.len() + 1..self.committed_at]);
        let _ = write!(out, "{}", committed_at.0);
        out.extend_from_slice(&self.text[self.committed_at + 1..self.text.len() - 1]);
        let crc = checksum(&out[start..]);
        let _ = writeln!(out, ",\"crc\":\"{crc:08x}\"}}");
    }
}

/// Event id and time of observation hold no quotation mark that could be mistaken for the field.
fn committed_position(text: &[u8]) -> Option<usize> {
    let at = text
        .windows(COMMITTED.len())
        .position(|window| window == COMMITTED)?;
    Some(at + COMMITTED.len())
}

fn own_source(instance_id: &InstanceId) -> Source {
    Source {
        module_id: "wingman".to_owned(),
        instance_id: instance_id.as_str().to_owned(),
        runtime: "native".to_owned(),
    }
}

/// CRC-32 of `fields` and a closing brace.
fn checksum(fields: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fields);
    hasher.update(b"}");
    hasher.finalize()
}

/// Whether `digits` are `number` in 8 lower-case hexadecimal digits, without making a text of it.
fn is_hex_of(digits: &[u8], number: u32) -> bool {
    let digit = |at: usize| b"0123456789abcdef"[(number >> (28 - 4 * at)) as usize & 15];
    digits.len() == 8
        && digits
            .iter()
            .enumerate()
            .all(|(at, found)| *found == digit(at))
}

/// Checks a line (without its newline) against its checksum; answers its fields, without the
/// checksum and the closing brace.
fn checked_fields(line: &[u8]) -> Result<&[u8], LineError> {
    if line.len() >= JOURNAL_RECORD_LEN_MAX {
        return Err(LineError::TooLong(line.len()));
    }
    let cut = line.len().checked_sub(CRC_FIELD_LEN);
    let (fields, field) = cut
        .and_then(|at| line.split_at_checked(at))
        .ok_or(LineError::NoChecksum)?;
    let digits = field
        .strip_prefix(CRC_HEAD)
        .and_then(|rest| rest.strip_suffix(b"\"}"))
        .ok_or(LineError::NoChecksum)?;
    let computed = checksum(fields);
    if !is_hex_of(digits, computed) {
        return Err(LineError::ChecksumMismatch {
            stated: String::from_utf8_lossy(digits).into_owned(),
            computed,
        });
    }
    Ok(fields)
}

/// Checks a line (without its newline) against its checksum and answers its sequence.
pub fn check_line(line: &[u8]) -> Result<u64, LineError> {
    sequence_of(checked_fields(line)?)
}

fn sequence_of(fields: &[u8]) -> Result<u64, LineError> {
    fields
        .strip_prefix(HEAD)
        .and_then(|rest| rest.split(|byte| *byte == b',').next())
        .filter(|digits| digits.iter().all(u8::is_ascii_digit))
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| LineError::NotARecord("no schemaVersion 1 and sequence first".to_owned()))
}

/// Reads a line (without its newline): checksum, then every field, none unknown.
pub fn decode_line(line: &[u8]) -> Result<Record, LineError> {
    let sequence = check_line(line)?;
    let record = decode_checked(line)?;
    if record.sequence != sequence {
        let why = format!("sequence {} after {sequence}", record.sequence);
        return Err(LineError::NotARecord(why));
    }
    Ok(record)
}

/// Reads the fields of a line whose checksum and sequence were checked.
pub(super) fn decode_checked(line: &[u8]) -> Result<Record, LineError> {
    let fields = line
        .len()
        .checked_sub(CRC_FIELD_LEN)
        .and_then(|len| line.get(..len))
        .ok_or(LineError::NoChecksum)?;
    let mut text = Vec::with_capacity(fields.len() + 1);
    text.extend_from_slice(fields);
    text.push(b'}');
    serde_json::from_slice(&text).map_err(|error| LineError::NotARecord(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn line(draft: Draft, sequence: u64) -> (Vec<u8>, Record) {
        let prepared = Prepared::new(draft, &InstanceId::random()).unwrap();
        let mut out = Vec::new();
        prepared.line.encode(sequence, EpochMillis(77), &mut out);
        assert!(out.len() <= prepared.line.len_max());
        assert_eq!(out.pop(), Some(b'\n'));
        let mut record = prepared.record;
        record.sequence = sequence;
        record.committed_at = EpochMillis(77);
        (out, record)
    }

    fn tricky() -> Draft {
        let payload = json!({"text": "\n\",\"committedAt\":0,\"crc\":\"00000000\"}", "n": 0});
        let mut draft = Draft::new("custom.note", payload).in_session("s,\"sequence\":0");
        draft.observed_at = Some(EpochMillis(-5));
        draft.artifacts = vec!["a".to_owned()];
        draft
    }

    #[test]
    fn line_round_trips_and_ends_with_its_checksum() {
        for sequence in [1, 10, u64::MAX] {
            let (line, record) = line(tricky(), sequence);
            assert_eq!(check_line(&line), Ok(sequence));
            assert_eq!(decode_line(&line), Ok(record));
            assert!(!line.contains(&b'\n'));
            let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
            let whole = String::from_utf8(line.clone()).unwrap();
            let crc = value["crc"].as_str().unwrap();
            let without = whole.replace(&format!(",\"crc\":\"{crc}\""), "");
            assert_eq!(format!("{:08x}", crc32fast::hash(without.as_bytes())), crc);
        }
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let (line, _) = line(tricky(), 9);
        for bit in 0..line.len() * 8 {
            let mut bad = line.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check_line(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_truncation_is_seen() {
        let (line, _) = line(tricky(), 9);
        for len in 0..line.len() {
            assert!(decode_line(&line[..len]).is_err(), "length {len}");
        }
    }

    #[test]
    fn well_summed_nonsense_is_no_record() {
        for fields in [
            &br#"{"schemaVersion":1,"sequence":1"#[..],
            br#"{"schemaVersion":2,"sequence":1,"x":1"#,
            br#"{"schemaVersion":1,"sequence":+1,"x":1"#,
            b"",
            b"\xff",
        ] {
            let mut line = fields.to_vec();
            let crc = checksum(fields);
            write!(line, ",\"crc\":\"{crc:08x}\"}}").unwrap();
            assert!(matches!(decode_line(&line), Err(LineError::NotARecord(_))));
        }
    }

    #[test]
    fn record_over_the_limit_is_refused() {
        let draft = |len: usize| Draft::new("custom.note", json!("x".repeat(len)));
        let id = InstanceId::random();
        let error = Prepared::new(draft(JOURNAL_RECORD_LEN_MAX), &id).err();
        assert_eq!(error.unwrap().code, Code::EventTooLarge);
        let room = JOURNAL_RECORD_LEN_MAX - Prepared::new(draft(0), &id).unwrap().line.len_max();
        assert!(Prepared::new(draft(room), &id).is_ok());
        assert!(Prepared::new(draft(room + 1), &id).is_err());
    }
}
