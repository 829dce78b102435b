//! Group commit against the disk's own limit, side by side in one run; JSON lines.
//!
//! `bare_fdatasync` writes a group of one line for each of 64 writers and syncs it, with nothing
//! else around: its rate times 64 is what this disk allows 64 writers with one record in flight
//! each, as far as one thread sees it (a virtual machine may complete the syncs of a busier process
//! sooner). `plain_loop` is one writer without group commit. The cases take turns for some rounds, since
//! a disk that others use changes from second to second; medians are shown. The last line has the
//! verdict.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wingman::base::ids::InstanceId;
use wingman::journal::{Journal, Options};
use wingman::wire::event::Draft;

const WRITERS: usize = 64;
const ROUNDS: usize = 5;
/// One case's part of a round.
const TURN: Duration = Duration::from_millis(600);
/// Records that a pipelining writer has in flight.
const WINDOW: usize = 32;
const TARGET: f64 = 100_000.0;

fn draft(writer: usize, n: u64) -> Draft {
    let payload = json!({"executionId": "0123456789abcdef", "line": n, "text": "a line of output"});
    Draft::new("execution.output", payload).in_session(format!("writer-{writer}"))
}

/// A line as the journal writes it.
fn sample_line(dir: &Path) -> Vec<u8> {
    let options = Options::new(dir.join("sample"), InstanceId::random());
    let (journal, _) = Journal::open(options).expect("open a journal");
    journal.append_blocking(draft(1, 1)).expect("append");
    journal.close();
    std::fs::read(dir.join("sample/00000000000000000001.jsonl")).expect("read the segment")
}

/// Writes and syncs `group` until the time is over; answers syncs per second.
fn write_and_sync(path: &Path, group: &[u8]) -> f64 {
    let mut file = File::create(path).expect("create a file");
    let (start, mut count) = (Instant::now(), 0_u64);
    while start.elapsed() < TURN {
        file.write_all(group).expect("write");
        file.sync_data().expect("sync");
        count += 1;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

/// Runs 64 writer threads; answers records per second.
fn run_journal(dir: &Path, window: usize) -> f64 {
    let (journal, _) =
        Journal::open(Options::new(dir, InstanceId::random())).expect("open a journal");
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (journal, stop, count) = (&journal, &stop, &count);
            scope.spawn(move || {
                let mut acknowledged = 0;
                while !stop.load(Ordering::Relaxed) {
                    let pending: Vec<_> = (0..window as u64)
                        .map(|n| journal.submit(draft(writer, acknowledged + n)))
                        .collect();
                    for record in pending {
                        record.wait().expect("append");
                        acknowledged += 1;
                    }
                }
                count.fetch_add(acknowledged, Ordering::Relaxed);
            });
        }
        std::thread::sleep(TURN);
        stop.store(true, Ordering::Relaxed);
    });
    let rate = count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    assert_eq!(journal.range().next_seq - 1, count.load(Ordering::Relaxed));
    rate
}

/// Opens what `run_journal` left; answers segments, their length and milliseconds.
fn reopen(dir: &Path) -> (usize, u64, f64) {
    let start = Instant::now();
    let (journal, _) =
        Journal::open(Options::new(dir, InstanceId::random())).expect("open a journal");
    let ms = start.elapsed().as_secs_f64() * 1_000.0;
    drop(journal);
    let lengths: Vec<u64> = std::fs::read_dir(dir)
        .expect("list the segments")
        .map(|entry| entry.and_then(|entry| entry.metadata()).expect("examine"))
        .map(|metadata| metadata.len())
        .filter(|length| *length > 0)
        .collect();
    (lengths.len(), lengths.iter().sum(), ms)
}

fn tell(case: &str, mut figures: Value) {
    figures["bench"] = json!("journal");
    figures["case"] = json!(case);
    println!("{figures}");
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("make a folder");
    let dir = temp.path();
    let line = sample_line(dir);
    let group = line.repeat(WRITERS);
    let (mut plain, mut bare) = (Vec::new(), Vec::new());
    let (mut single, mut windowed) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        plain.push(write_and_sync(&dir.join("plain"), &line));
        bare.push(write_and_sync(&dir.join("bare"), &group));
        single.push(run_journal(&dir.join(format!("single-{round}")), 1));
        windowed.push(run_journal(&dir.join(format!("windowed-{round}")), WINDOW));
    }
    let (plain, bare) = (median(plain), median(bare));
    let (single, windowed) = (median(single), median(windowed));
    let bound = bare * WRITERS as f64;
    tell(
        "plain_loop",
        json!({"records_per_s": plain.round(), "line_bytes": line.len()}),
    );
    tell(
        "bare_fdatasync",
        json!({
            "syncs_per_s": bare.round(),
            "group": WRITERS,
            "records_per_s_bound": bound.round(),
        }),
    );
    tell(
        "journal_one_in_flight",
        json!({"writers": WRITERS, "records_per_s": single.round(), "syncs_per_s_at_least": (single / WRITERS as f64).round()}),
    );
    tell(
        "journal_pipelined",
        json!({
            "writers": WRITERS,
            "window": WINDOW,
            "records_per_s": windowed.round(),
            "records_per_s_bound": (bound * WINDOW as f64).round(),
        }),
    );
    let (segments, bytes, ms) = reopen(&dir.join("windowed-0"));
    tell(
        "open",
        json!({"segments": segments, "bytes": bytes, "ms": (ms * 10.0).round() / 10.0}),
    );
    let best = windowed.max(single);
    tell(
        "summary",
        json!({
            "target_records_per_s": TARGET,
            "best_records_per_s": best.round(),
            "reached": best >= TARGET,
            "times_plain_loop": (best / plain).round(),
        }),
    );
}
