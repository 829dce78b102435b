//! What a host call costs in each engine; JSON lines, the last one has the verdict.
//!
//! Each case runs a loop of calls and the same loop without them; the difference over the rounds is
//! one call, the function's own work included. `timer.now` has hardly any work of its own, so its
//! figure is the call's overhead. Medians of several turns are shown.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wingman::base::EpochMillis;
use wingman::base::limits::SCRIPT_STACK_LEN;
use wingman::desktop::Desktop;
use wingman::platform::InputOwner;
use wingman::script::host::{Kv, Level};
use wingman::script::{Host, Outcome, Profile, Script, StopReason, run};
use wingman::wire::messages::executions::{Artifact, Stream};
use wingman::wire::messages::scripts::Language;
use wingman::wire::{Code, Fault};

const ROUNDS: u64 = 200_000;
const TURNS: usize = 7;
const TARGET_NS: f64 = 1_000.0;

/// A host without a desktop and storage: no case calls them.
struct BenchHost {
    args: BTreeMap<String, String>,
}

fn absent() -> Fault {
    Fault::new(Code::Unsupported, "not in this bench")
}

impl Host for BenchHost {
    fn stop_reason(&self) -> Option<StopReason> {
        None
    }
    fn pause_point(&self) {}
    fn sleep(&self, _: Duration) {}
    fn output(&self, _: Stream, level: Level, text: &str) {
        if level == Level::Error {
            eprintln!("{text}");
        }
    }
    fn desktop(&self) -> Result<Arc<Desktop>, Fault> {
        Err(absent())
    }
    fn input_owner(&self) -> InputOwner {
        InputOwner(1)
    }
    fn kv(&self) -> &dyn Kv {
        unreachable!("no case uses kv")
    }
    fn store_artifact(&self, name: &str, kind: &str, bytes: &[u8]) -> Result<Artifact, Fault> {
        Ok(Artifact {
            name: name.to_owned(),
            content_type: kind.to_owned(),
            size: bytes.len() as u64,
            sha256: String::new(),
            created_at: EpochMillis::now(),
        })
    }
    fn set_result(&self, _: Value) -> Result<(), Fault> {
        Ok(())
    }
    fn args(&self) -> &BTreeMap<String, String> {
        &self.args
    }
    fn script_dir(&self) -> Option<PathBuf> {
        None
    }
    fn file_roots(&self) -> &[PathBuf] {
        &[]
    }
    fn execution_id(&self) -> &str {
        "bench"
    }
}

/// Nanoseconds that a loop with this body takes.
fn time(host: &Arc<dyn Host>, language: Language, body: &str) -> f64 {
    let source = match language {
        Language::Lua => format!("for i = 1, {ROUNDS} do {body} end"),
        Language::Rhai => format!("let x = 0; for i in 0..{ROUNDS} {{ x = i; {body} }}"),
    };
    let script = Script {
        language,
        name: "bench".to_owned(),
        source,
    };
    let start = Instant::now();
    assert_eq!(run(&script, &Profile::script(), host), Outcome::Succeeded);
    start.elapsed().as_nanos() as f64
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn measure() {
    let host: Arc<dyn Host> = Arc::new(BenchHost {
        args: BTreeMap::from([("who".to_owned(), "world".to_owned())]),
    });
    let mut worst: f64 = 0.0;
    for (name, language) in [("lua", Language::Lua), ("rhai", Language::Rhai)] {
        let semicolon = if language == Language::Rhai { ";" } else { "" };
        let mut starts = Vec::new();
        for call in [
            "timer.now()",
            "args.get(\"who\")",
            "crypto.hexEncode(\"abc\")",
        ] {
            let mut turns = Vec::new();
            for _ in 0..TURNS {
                let empty = time(&host, language, "");
                let full = time(&host, language, &format!("{call}{semicolon}"));
                turns.push((full - empty) / ROUNDS as f64);
            }
            let ns = median(turns);
            if call == "timer.now()" {
                worst = worst.max(ns);
            }
            println!(
                "{}",
                json!({"bench": "script", "engine": name, "call": call, "ns": ns.round()})
            );
        }
        for _ in 0..TURNS {
            let script = Script {
                language,
                name: "bench".to_owned(),
                source: String::new(),
            };
            let start = Instant::now();
            run(&script, &Profile::script(), &host);
            starts.push(start.elapsed().as_secs_f64() * 1_000_000.0);
        }
        println!(
            "{}",
            json!({"bench": "script", "engine": name, "case": "empty script, engine built and torn down", "us": median(starts).round()})
        );
    }
    println!(
        "{}",
        json!({"bench": "script", "case": "summary", "target_ns": TARGET_NS, "overhead_ns": worst.round(), "reached": worst < TARGET_NS})
    );
}

fn main() {
    std::thread::Builder::new()
        .stack_size(SCRIPT_STACK_LEN)
        .spawn(measure)
        .expect("a thread starts")
        .join()
        .expect("the bench runs");
}
