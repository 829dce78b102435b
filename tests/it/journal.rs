//! The journal through its public face: what is acknowledged stays, what is damaged is refused.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::json;
use wingman::base::ids::InstanceId;
use wingman::base::limits;
use wingman::journal::{Journal, JournalError, Options, RecoveryReport};
use wingman::wire::event::{Draft, Record, name};
use wingman::wire::{Code, Fault};

fn options(dir: &Path) -> Options {
    Options::new(dir, InstanceId::parse("test").unwrap())
}

/// Segments of a few records, and few of them.
fn small(dir: &Path) -> Options {
    Options {
        segment_len: 2_000,
        total_len_max: 20_000,
        ..options(dir)
    }
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

/// The same in groups small enough for segments of a few records.
fn fill_slowly(journal: &Journal, count: u64) {
    for first in (1..=count).step_by(5) {
        let group = first..=count.min(first + 4);
        let pending: Vec<_> = group.map(|n| journal.submit(note(n))).collect();
        for pending in pending {
            pending.wait().unwrap();
        }
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

#[test]
fn oversize_record_is_refused_and_takes_no_number() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    let text = "x".repeat(limits::JOURNAL_RECORD_LEN_MAX);
    let refused = journal.append_blocking(Draft::new("custom.note", json!(text)));
    assert_eq!(refused.unwrap_err().code, Code::EventTooLarge);
    assert_eq!(journal.append_blocking(note(1)).unwrap().sequence, 1);
}

#[test]
fn closed_journal_refuses_appends_and_still_reads() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    let pending = journal.submit(note(1));
    journal.close();
    assert_eq!(pending.wait().unwrap().sequence, 1);
    let refused = journal.append_blocking(note(2)).unwrap_err();
    assert_eq!(refused.code, Code::StorageFailed);
    assert_eq!(journal.read(1, 10).unwrap().len(), 1);
}

#[test]
fn retention_keeps_the_newest_and_old_cursors_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(small(dir.path())).unwrap();
    fill_slowly(&journal, 400);
    let range = journal.range();
    assert!(range.first_seq > 1, "something has expired");
    assert_eq!(range.next_seq, 401);
    let total: u64 = segments(dir.path())
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(total <= 20_000 + 2_000 + 1_000, "{total}");

    let code = |from| journal.read(from, 1).unwrap_err().code;
    assert_eq!(code(range.first_seq - 1), Code::CursorExpired);
    assert_eq!(code(402), Code::CursorInvalid);
    assert_eq!(code(0), Code::CursorInvalid);
    assert_eq!(journal.follow(1).err().unwrap().code, Code::CursorExpired);
    assert_eq!(journal.read(401, 10).unwrap(), []);
    let before = read_all(&journal).unwrap();
    assert!(
        (range.first_seq..)
            .zip(&before)
            .all(|(n, record)| number(record) == n)
    );
    assert_eq!(before.len() as u64, range.next_seq - range.first_seq);

    drop(journal);
    let (journal, _) = Journal::open(small(dir.path())).unwrap();
    assert_eq!(journal.range(), range);
    assert_eq!(read_all(&journal).unwrap(), before);
}

#[test]
fn reads_from_any_cursor_and_of_any_length_agree() {
    let dir = tempfile::tempdir().unwrap();
    let keep_all = Options {
        segment_len: 200_000,
        ..options(dir.path())
    };
    let (journal, _) = Journal::open(keep_all.clone()).unwrap();
    fill(&journal, 3_000);
    drop(journal);
    // Reopened, nothing is in memory, and only the last segment has an index.
    let (journal, _) = Journal::open(keep_all).unwrap();
    for from in (1..=3_001_u64).step_by(97) {
        for max in [1, 7, 500] {
            let records = journal.read(from, max).unwrap();
            let there = usize::try_from(3_001 - from).unwrap();
            assert_eq!(records.len(), max.min(there), "from {from}");
            assert!(
                (from..)
                    .zip(&records)
                    .all(|(n, record)| record.sequence == n && number(record) == n)
            );
        }
    }
}

/// Flips a bit in the middle of a file's line (from 1); answers where the line starts.
fn damage(path: &Path, line: usize) -> u64 {
    let mut bytes = fs::read(path).unwrap();
    let start: usize = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .take(line - 1)
        .map(<[u8]>::len)
        .sum();
    bytes[start + 60] ^= 4;
    fs::write(path, bytes).unwrap();
    start as u64
}

#[test]
fn damage_inside_an_older_segment_is_refused_when_read() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(small(dir.path())).unwrap();
    fill_slowly(&journal, 30);
    drop(journal);
    let first = segments(dir.path()).remove(0);
    let offset = damage(&first, 3);
    let (journal, _) = Journal::open(small(dir.path())).unwrap();
    let fault = journal.read(1, 100).unwrap_err();
    assert_eq!(fault.code, Code::JournalCorrupt);
    let place = format!("{} line 3, byte {offset}", first.display());
    assert!(fault.message.contains(&place), "{fault}");
    assert_eq!(journal.read(1, 2).unwrap().len(), 2);
}

#[test]
fn damaged_ends_and_missing_segments_are_refused_at_opening() {
    let fresh = || {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(small(dir.path())).unwrap();
        fill_slowly(&journal, 60);
        let paths = segments(dir.path());
        assert!(paths.len() > 3);
        (dir, paths)
    };
    let refusal = |dir: &Path| match Journal::open(small(dir)).err() {
        Some(error @ JournalError::Corrupt { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let (dir, paths) = fresh();
    damage(&paths[1], 1);
    assert!(refusal(dir.path()).contains("checksum"));

    let (dir, paths) = fresh();
    let bytes = fs::read(&paths[1]).unwrap();
    fs::write(&paths[1], &bytes[..bytes.len() - 1]).unwrap();
    assert!(refusal(dir.path()).contains("incomplete"));

    let (dir, paths) = fresh();
    fs::write(&paths[1], "").unwrap();
    assert!(refusal(dir.path()).contains("empty"));

    let (dir, paths) = fresh();
    fs::remove_file(&paths[1]).unwrap();
    assert!(refusal(dir.path()).contains("belongs"));
}

#[test]
fn zeros_that_a_power_cut_left_at_the_end_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    fill(&journal, 2);
    drop(journal);
    let path = segments(dir.path()).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    let whole = bytes.len();
    bytes.resize(whole + 3 * limits::JOURNAL_RECORD_LEN_MAX, 0);
    fs::write(&path, &bytes).unwrap();
    let (journal, report) = open(dir.path());
    assert_eq!(report.cut_bytes, (bytes.len() - whole) as u64);
    assert_eq!(journal.append_blocking(note(3)).unwrap().sequence, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_appends_than_the_queue_holds_are_all_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    let count = 3 * limits::JOURNAL_QUEUE_LEN_MAX as u64;
    let appends: Vec<_> = (1..=count)
        .map(|n| tokio::spawn(journal.append(note(n))))
        .collect();
    let mut seen = BTreeMap::new();
    for append in appends {
        let record = append.await.unwrap().unwrap();
        seen.insert(record.sequence, number(&record));
    }
    assert!(seen.keys().copied().eq(1..=count));
    let read: BTreeMap<_, _> = read_all(&journal)
        .unwrap()
        .iter()
        .map(|record| (record.sequence, number(record)))
        .collect();
    assert_eq!(read, seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_see_every_record_across_rotations() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        total_len_max: u64::MAX,
        ..small(dir.path())
    };
    let (journal, _) = Journal::open(options).unwrap();
    journal.append(note(1)).await.unwrap();
    let followers: Vec<_> = (0..4)
        .map(|_| {
            let mut follower = journal.follow(1).unwrap();
            tokio::spawn(async move {
                for n in 1..=500 {
                    let record = follower.next().await.unwrap();
                    assert_eq!((record.sequence, number(&record)), (n, n));
                    assert_eq!(follower.next_seq(), n + 1);
                }
                follower
            })
        })
        .collect();
    for n in 2..=500 {
        journal.append(note(n)).await.unwrap();
    }
    assert!(segments(dir.path()).len() > 10);
    let mut last = Vec::new();
    for follower in followers {
        last.push(follower.await.unwrap());
    }
    journal.close();
    let ended = last[0].next().await.unwrap_err();
    assert!(ended.message.contains("closed"), "{ended}");
}

#[tokio::test]
async fn blocking_appends_inside_a_task_are_all_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    fill(&journal, 1_000);
    assert_eq!(journal.range().next_seq, 1_001);
}

#[tokio::test]
async fn follower_that_retention_overtook_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(small(dir.path())).unwrap();
    let mut follower = journal.follow(1).unwrap();
    fill_slowly(&journal, 400);
    assert_eq!(follower.next().await.unwrap_err().code, Code::CursorExpired);
}

fn drained(reply: &wingman::wire::messages::events::DrainReply) -> Vec<u64> {
    let numbers = reply.events.iter().map(|event| event.payload["n"].as_u64());
    numbers.map(Option::unwrap).collect()
}

fn log_line(n: u64) -> Draft {
    Draft::new(name::LOG_LINE, json!({ "n": n }))
}

#[test]
fn drain_gives_durable_and_volatile_events_in_order_of_arrival() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    journal.append_blocking(note(0)).unwrap();
    journal.publish_volatile(log_line(0));
    let mut subscriber = journal.subscribe();
    for n in 1..=6 {
        if n % 3 == 0 {
            journal.append_blocking(note(n)).unwrap();
        } else {
            journal.publish_volatile(log_line(n));
        }
    }
    let reply = subscriber.drain(4).unwrap();
    assert_eq!(
        (drained(&reply), reply.remaining, reply.dropped),
        (vec![1, 2, 3, 4], 2, 0)
    );
    assert_eq!(reply.events[2].seq, Some(2));
    assert_eq!(reply.events[3].seq, None);
    let reply = subscriber.drain(100).unwrap();
    assert_eq!(
        (drained(&reply), reply.remaining, reply.dropped),
        (vec![5, 6], 0, 0)
    );
    assert!(subscriber.drain(100).unwrap().events.is_empty());
}

#[test]
fn full_volatile_buffer_drops_log_lines_first_and_counts_them() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    let mut subscriber = journal.subscribe();
    let mut late = journal.subscribe();
    let client = |n: u64| Draft::new(name::CONNECTION_IPC_CLIENT, json!({ "n": n }));
    journal.publish_volatile(client(0));
    let held = limits::VOLATILE_EVENTS_LEN_MAX as u64;
    for n in 1..=held + 9 {
        journal.publish_volatile(log_line(n));
    }
    let reply = subscriber.drain(2_000).unwrap();
    let expected: Vec<u64> = std::iter::once(0).chain(11..=held + 9).collect();
    assert_eq!(
        (drained(&reply), reply.dropped, reply.remaining),
        (expected, 10, 0)
    );
    // Without log lines the oldest goes.
    for n in 0..held {
        journal.publish_volatile(client(10_000 + n));
    }
    let reply = subscriber.drain(2_000).unwrap();
    assert_eq!((reply.events.len() as u64, reply.dropped), (held, 0));
    let reply = late.drain(2_000).unwrap();
    assert_eq!(
        (reply.events.len() as u64, reply.dropped),
        (held, held + 10)
    );
}

#[test]
fn drain_counts_durable_events_that_retention_took() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(small(dir.path())).unwrap();
    let mut subscriber = journal.subscribe();
    fill_slowly(&journal, 400);
    let reply = subscriber.drain(1_000).unwrap();
    let first = journal.range().first_seq;
    assert_eq!(reply.dropped, first - 1);
    assert_eq!(drained(&reply), (first..=400).collect::<Vec<_>>());
}

/// Set in a child process of a test of this file: the folder that it works in.
const CHILD: &str = "WINGMAN_TEST_JOURNAL_DIR";

/// This test binary again, running one test alone as a child.
fn child(test: &str, dir: &Path, wrapper: &[&str]) -> Command {
    let exe = std::env::current_exe().unwrap();
    let mut command = match wrapper.split_first() {
        Some((program, args)) => {
            let mut command = Command::new(program);
            command.args(args).arg(exe);
            command
        }
        None => Command::new(exe),
    };
    command
        .args(["--exact", &format!("journal::{test}"), "--nocapture"])
        .env(CHILD, dir);
    command
}

/// Appends from four threads for ever, and prints each number once it is acknowledged.
fn append_and_tell(dir: &Path) {
    let (journal, _) = Journal::open(small_and_long(dir)).unwrap();
    let next = AtomicU64::new(journal.range().next_seq);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let sequence = journal.append_blocking(note(n)).unwrap().sequence;
                    let line = format!("\nack {sequence} {n}\n");
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

fn small_and_long(dir: &Path) -> Options {
    Options {
        segment_len: 5_000,
        total_len_max: u64::MAX,
        ..options(dir)
    }
}

#[test]
fn killed_writer_loses_no_acknowledged_record() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return append_and_tell(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeMap::new();
    for round in 0..20 {
        let mut writer = child(
            "killed_writer_loses_no_acknowledged_record",
            dir.path(),
            &[],
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
        // Killed after another number of records each time, at whatever it is doing then.
        let mut left = 5 + 13 * round;
        for line in BufReader::new(writer.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some(numbers) = line.strip_prefix("ack ") else {
                continue;
            };
            let Some((sequence, n)) = numbers.split_once(' ') else {
                continue;
            };
            let Ok(n) = n.parse::<u64>() else { continue };
            acknowledged.insert(sequence.parse::<u64>().unwrap(), n);
            left -= 1;
            if left == 0 {
                writer.kill().unwrap();
            }
        }
        writer.wait().unwrap();
        assert!(left <= 0, "the writer ended by itself in round {round}");
        let (journal, report) = Journal::open(small_and_long(dir.path())).unwrap();
        let records = read_all(&journal).unwrap();
        assert!((1..).zip(&records).all(|(n, record)| record.sequence == n));
        assert_eq!(report.last_seq, records.len() as u64);
        for (sequence, n) in &acknowledged {
            let record = &records[*sequence as usize - 1];
            assert_eq!(number(record), *n, "record {sequence}");
        }
    }
}

#[test]
fn full_disk_refuses_appends_and_leaves_the_journal_whole() {
    const TEST: &str = "full_disk_refuses_appends_and_leaves_the_journal_whole";
    if let Some(dir) = std::env::var_os(CHILD) {
        return fill_the_disk(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    // The limit of a file's size stands in for a full disk: the write comes back short, then fails.
    let limited = "trap '' XFSZ; ulimit -S -f 40; exec \"$@\"";
    let output = child(TEST, dir.path(), &["sh", "-c", limited, "sh"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("1 passed"), "{text}");
}

fn fill_the_disk(dir: &Path) {
    let (journal, _) = open(dir);
    let big = |n: u64| Draft::new("custom.note", json!({ "n": n, "text": "x".repeat(900) }));
    let mut count = 0;
    let fault = loop {
        match journal.append_blocking(big(count + 1)) {
            Ok(_) => count += 1,
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.code, Code::StorageFull, "{fault}");
    assert!(count > 5);
    assert_eq!(
        journal.append_blocking(big(0)).unwrap_err().code,
        Code::StorageFull
    );
    // What failed left no trace in the file, and what is shorter still fits.
    let path = segments(dir).remove(0);
    let newlines = |bytes: Vec<u8>| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.last(), Some(&b'\n'));
    assert_eq!(newlines(bytes), count);
    assert_eq!(read_all(&journal).unwrap().len() as u64, count);

    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    setrlimit(Resource::Fsize, unlimited).unwrap();
    let record = journal.append_blocking(big(count + 1)).unwrap();
    assert_eq!(record.sequence, count + 1);
    drop(journal);
    let (journal, report) = open(dir);
    assert_eq!((report.cut_bytes, report.last_seq), (0, count + 1));
    assert!(
        (1..)
            .zip(read_all(&journal).unwrap())
            .all(|(n, record)| number(&record) == n)
    );
}

#[test]
fn numbers_are_read_as_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = open(dir.path());
    // Every exponent, with digits that a fast and careless reader gets wrong by one bit.
    let floats: Vec<f64> = (1..2_000_u64)
        .map(|n| f64::from_bits(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .filter(|float| float.is_finite())
        .collect();
    let payload = json!({"floats": floats, "big": u64::MAX, "small": i64::MIN, "zero": -0.0});
    let record = journal
        .append_blocking(Draft::new("custom.note", payload))
        .unwrap();
    assert_eq!(journal.read(1, 1).unwrap(), [record]);
}

#[test]
fn reads_beside_retention_are_contiguous_or_told() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(small(dir.path())).unwrap();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut next, mut seen, mut expired) = (1, 0_u64, 0_u64);
                    while done.load(Ordering::Acquire) == 0 || next < journal.range().next_seq {
                        match journal.read(next, 5) {
                            Ok(records) => {
                                for record in records {
                                    assert_eq!((record.sequence, number(&record)), (next, next));
                                    next += 1;
                                    seen += 1;
                                }
                            }
                            Err(fault) => {
                                assert_eq!(fault.code, Code::CursorExpired, "{fault}");
                                next = journal.range().first_seq;
                                expired += 1;
                            }
                        }
                        // Behind on purpose, so that segments go away under the reader.
                        if seen.is_multiple_of(100) && done.load(Ordering::Acquire) == 0 {
                            next = journal.range().first_seq;
                        }
                    }
                    seen + expired
                })
            })
            .collect();
        fill_slowly(&journal, 600);
        done.store(1, Ordering::Release);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
    assert!(journal.range().first_seq > 1);
}

/// What may happen to a journal.
#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Reopen,
    /// The process dies with this written after the last whole record.
    Tear(Vec<u8>),
    Read(prop::sample::Index, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..12_u64).prop_map(Step::Append),
        1 => Just(Step::Reopen),
        1 => prop::collection::vec(any::<u8>(), 1..90)
            .prop_map(|bytes| bytes.into_iter().filter(|byte| *byte != b'\n').collect())
            .prop_map(Step::Tear),
        3 => (any::<prop::sample::Index>(), 1..40_usize).prop_map(|(at, max)| Step::Read(at, max)),
    ]
}

proptest! {
    // Few cases, since every step waits for a disk.
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn every_life_of_a_journal_agrees_with_a_list(steps in prop::collection::vec(step(), 1..14)) {
        let dir = tempfile::tempdir().unwrap();
        let again = || Journal::open(small_and_long(dir.path())).unwrap();
        let (mut journal, _) = again();
        let mut list: Vec<u64> = Vec::new();
        for step in steps {
            match step {
                Step::Append(count) => {
                    let next = list.len() as u64 * 7;
                    let pending: Vec<_> = (next..next + count)
                        .map(|n| (n, journal.submit(note(n))))
                        .collect();
                    for (n, pending) in pending {
                        list.push(n);
                        prop_assert_eq!(pending.wait().unwrap().sequence, list.len() as u64);
                    }
                }
                Step::Reopen => {
                    drop(journal);
                    let (opened, report) = again();
                    prop_assert_eq!((report.cut_bytes, report.last_seq), (0, list.len() as u64));
                    journal = opened;
                }
                Step::Tear(bytes) => {
                    drop(journal);
                    let last = segments(dir.path()).pop().unwrap();
                    let mut file = fs::OpenOptions::new().append(true).open(last).unwrap();
                    file.write_all(&bytes).unwrap();
                    let (opened, report) = again();
                    prop_assert_eq!(report.cut_bytes, bytes.len() as u64);
                    prop_assert_eq!(report.last_seq, list.len() as u64);
                    journal = opened;
                }
                Step::Read(at, max) => {
                    let from = at.index(list.len() + 1);
                    let found = journal.read(from as u64 + 1, max).unwrap();
                    let found: Vec<u64> = found.iter().map(number).collect();
                    let expected: Vec<u64> = list[from..].iter().copied().take(max).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
