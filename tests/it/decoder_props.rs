//! Random, mutated and kept inputs: no decoder panics, and what one accepts stands a second look.
//!
//! The inputs kept by the fuzz targets (`fuzz/corpus/<target>`) run here too, so that a crash which
//! was mended stays mended.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use wingman::config::AgentConfig;
use wingman::journal::record::decode_line;
use wingman::wire::join::JoinString;
use wingman::wire::link::{Event, Notice, Register};

#[path = "../support/decoders.rs"]
mod decoders;

type Check = fn(&[u8]);

/// A fuzz target's name and the check that it runs.
const TARGETS: &[(&str, Check)] = &[
    ("journal", decoders::journal),
    ("agent_toml", decoders::agent_toml),
    ("envelope", decoders::envelope),
    ("frame", decoders::frame),
    ("grid", decoders::grid),
    ("join_string", decoders::join_string),
    ("holder", decoders::holder),
];

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut paths: Vec<_> = fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[test]
fn kept_inputs_do_not_panic() {
    for (target, check) in TARGETS {
        let inputs = corpus(target);
        assert!(!inputs.is_empty(), "{target} has seeds");
        for input in inputs {
            check(&input);
        }
    }
}

#[test]
fn good_seeds_are_accepted() {
    let seed = |path: &str| {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        fs::read(dir.join(path)).unwrap()
    };
    let records = seed("journal/three_records");
    let lines: Vec<_> = records
        .strip_suffix(b"\n")
        .unwrap()
        .split(|byte| *byte == b'\n')
        .collect();
    for (line, sequence) in lines.iter().zip(1..=3) {
        assert_eq!(decode_line(line).unwrap().sequence, sequence);
    }
    for path in ["join_string/ipv4", "join_string/ipv6", "join_string/spaced"] {
        let text = String::from_utf8(seed(path)).unwrap();
        assert!(JoinString::parse(&text).is_ok(), "{path}");
    }
    for (path, message_type) in [
        ("frame/register", "agent.register"),
        ("frame/event", "agent.event"),
    ] {
        let notice = Notice::parse(&seed(path)).unwrap();
        assert_eq!(notice.message_type, message_type);
        assert!(notice.read::<Register>().is_none_or(|read| read.is_ok()));
        assert!(notice.read::<Event>().is_none_or(|read| read.is_ok()));
    }
    let text = String::from_utf8(seed("agent_toml/defaults")).unwrap();
    assert!(AgentConfig::from_text(Path::new("agent.toml"), &text).is_ok());
}

#[test]
fn every_decoder_has_a_fuzz_target() {
    let manifest =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml")).unwrap();
    let listed = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"))
        .filter_map(|line| line.strip_suffix(".rs\""));
    let mut listed: Vec<_> = listed.collect();
    listed.sort_unstable();
    let mut known: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(listed, known);
}

/// A change to an input.
#[derive(Clone, Debug)]
enum Edit {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Cut(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = || any::<prop::sample::Index>();
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        (at(), prop::collection::vec(any::<u8>(), 1..8)).prop_map(|(at, b)| Edit::Insert(at, b)),
        (at(), 1..40_usize).prop_map(|(at, count)| Edit::Cut(at, count)),
        (at(), 1..40_usize).prop_map(|(at, count)| Edit::Repeat(at, count)),
    ]
}

fn apply(input: &mut Vec<u8>, edit: &Edit) {
    if input.is_empty() {
        return;
    }
    let range = |at: &prop::sample::Index, count: usize| {
        let start = at.index(input.len());
        start..(start + count).min(input.len())
    };
    match edit {
        Edit::Set(at, byte) => {
            let at = at.index(input.len());
            input[at] = *byte;
        }
        Edit::Insert(at, bytes) => {
            let at = at.index(input.len());
            input.splice(at..at, bytes.iter().copied());
        }
        Edit::Cut(at, count) => {
            let range = range(at, *count);
            input.drain(range);
        }
        Edit::Repeat(at, count) => {
            let range = range(at, *count);
            let again = input[range.clone()].to_vec();
            input.splice(range.end..range.end, again);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        for (_, check) in TARGETS {
            check(&bytes);
        }
    }

    #[test]
    fn random_text_never_panics(text in ".{0,400}") {
        for (_, check) in TARGETS {
            check(text.as_bytes());
        }
    }

    #[test]
    fn mutated_seeds_never_panic(
        pick in any::<prop::sample::Index>(),
        edits in prop::collection::vec(edit(), 1..6),
    ) {
        for (target, check) in TARGETS {
            let mut inputs = corpus(target);
            let mut input = inputs.swap_remove(pick.index(inputs.len()));
            for edit in &edits {
                apply(&mut input, edit);
            }
            check(&input);
        }
    }
}
