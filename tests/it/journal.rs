//! The journal through its public face: what is acknowledged stays, what is damaged is refused.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use wingman::base::ids::InstanceId;
use wingman::journal::{Journal, JournalError, Options, RecoveryReport};
use wingman::wire::event::{Draft, Record, name};
use wingman::wire::{Code, Fault};

fn options(dir: &Path) -> Options {
    Options::new(dir, InstanceId::parse("test").unwrap())
}

fn open(dir: &Path) -> (Journal, RecoveryReport) {
    Journal::open(options(dir)).unwrap()
}

fn note(n: u64) -> Draft {
    Draft::new("custom.note", json!({ "n": n }))
}

fn number(record: &Record) -> u64 {
    record.payload["n"].as_u64().unwrap()
}

fn fill(journal: &Journal, count: u64) {
    let pending: Vec<_> = (1..=count).map(|n| journal.submit(note(n))).collect();
    for (n, pending) in (1..).zip(pending) {
        assert_eq!(number(&pending.wait().unwrap()), n);
    }
}

/// Every record that can be read, from the oldest on.
fn read_all(journal: &Journal) -> Result<Vec<Record>, Fault> {
    let range = journal.range();
    let mut records: Vec<Record> = Vec::new();
    let mut next = range.first_seq;
    while next < range.next_seq {
        records.extend(journal.read(next, 1_000)?);
        next = records.last().map_or(next, |record| record.sequence + 1);
    }
    Ok(records)
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|text| text == "jsonl"))
        .collect();
    paths.sort();
    paths
}

#[test]
fn appended_records_are_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, report) = open(dir.path());
    assert_eq!(report, RecoveryReport::default());
    fill(&journal, 100);
    let before = read_all(&journal).unwrap();
    drop(journal);

    let (journal, report) = open(dir.path());
    assert_eq!((report.cut_bytes, report.last_seq), (0, 100));
    assert_eq!(read_all(&journal).unwrap(), before);
    assert!((1..).zip(&before).all(|(n, record)| record.sequence == n));
    assert_eq!(journal.append_blocking(note(101)).unwrap().sequence, 101);
}

#[test]
fn second_writer_is_refused_naming_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (first, _) = open(dir.path());
    let error = Journal::open(options(dir.path())).err().unwrap();
    assert!(matches!(&error, JournalError::Locked { dir: named } if named == dir.path()));
    let fault = Fault::from(error);
    assert_eq!(fault.code, Code::DataFolderLocked);
    assert!(fault.message.contains(&*dir.path().to_string_lossy()));
    first.close();
    assert!(Journal::open(options(dir.path())).is_ok());
}

#[test]
fn torn_tail_is_cut_at_every_byte_of_the_last_record() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    fill(&journal, 3);
    drop(journal);
    let path = segments(dir.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let body = &whole[..whole.len() - 1];
    let last = body.iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for len in last..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        let (journal, report) = open(dir.path());
        assert_eq!(report.last_seq, 2, "length {len}");
        assert_eq!(report.cut_bytes, (len - last) as u64);
        assert_eq!(report.segment.is_some(), len > last);
        assert_eq!(journal.append_blocking(note(3)).unwrap().sequence, 3);
        assert_eq!(read_all(&journal).unwrap().len(), 3);
    }
}

#[test]
fn flipped_bit_before_the_last_record_is_refused_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    fill(&journal, 3);
    drop(journal);
    let path = segments(dir.path()).remove(0);
    let whole = fs::read(&path).unwrap();
    let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut bad = whole.clone();
    bad[second + 40] ^= 0x10;
    fs::write(&path, &bad).unwrap();
    let error = Journal::open(options(dir.path())).err().unwrap();
    let JournalError::Corrupt {
        file, line, offset, ..
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((file, *line, *offset), (&path, 2, second as u64));
    assert_eq!(Fault::from(error).code, Code::JournalCorrupt);
    assert_eq!(fs::read(&path).unwrap(), bad);
}

#[test]
fn missing_record_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    fill(&journal, 3);
    drop(journal);
    let path = segments(dir.path()).remove(0);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    fs::write(&path, format!("{}{}", lines[0], lines[2])).unwrap();
    let error = Journal::open(options(dir.path())).err().unwrap();
    assert!(
        error
            .to_string()
            .contains("sequence 3 stands where 2 belongs"),
        "{error}"
    );
}

#[test]
fn volatile_types_have_no_number() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    let refused = journal.append_blocking(Draft::new(name::LOG_LINE, json!({})));
    assert_eq!(refused.unwrap_err().code, Code::InvalidParams);
    assert_eq!(journal.range().next_seq, 1);
}
