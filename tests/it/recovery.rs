//! Server and agent killed at any moment: what was acknowledged is still there.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::host::text;
use crate::support::{Host, wait_for};

const ROUNDS: usize = 50;

/// Small, repeatable numbers: a failing run can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What was acknowledged.
#[derive(Default)]
struct Acknowledged {
    executions: BTreeSet<String>,
    events: BTreeSet<u64>,
}

fn work(control: &Host, desk: &Host, agent: &str, known: &mut Acknowledged) {
    let body = json!({ "source": "print('a') print('b') result.set(1)", "language": "lua" });
    let path = format!("/api/agents/{agent}/scripts/run");
    if let Ok(reply) = control.api("POST", &path, Some(&body)) {
        let id = reply["executionId"].as_str().expect("an id").to_owned();
        known.executions.insert(id);
    }
    let draft = r#"{"type":"custom.note","stream":"notes","payload":{"n":1}}"#;
    if let Ok(record) = desk.ipc("events.append", draft) {
        known
            .events
            .insert(record["sequence"].as_u64().expect("a sequence"));
    }
}

fn connected(control: &Host) -> Option<String> {
    let agents = control.api("GET", "/api/agents", None).ok()?;
    let agent = agents["items"].as_array()?.first()?.clone();
    (agent["status"] != "offline").then(|| agent["agentId"].as_str().map(str::to_owned))?
}

fn unfinished(control: &Host, known: &Acknowledged) -> Vec<String> {
    let state = |id: &String| {
        let run = control.api("GET", &format!("/api/executions/{id}"), None);
        match run {
            Ok(run) => run["status"].as_str().unwrap_or("?").to_owned(),
            Err(code) => code,
        }
    };
    let ended = ["succeeded", "failed", "cancelled", "timeout"];
    let open = |(_, state): &(&String, String)| !ended.contains(&state.as_str());
    let states = known.executions.iter().map(|id| (id, state(id)));
    states
        .filter(open)
        .map(|(id, state)| format!("{id} {state}"))
        .collect()
}

#[test]
fn nothing_acknowledged_is_lost_when_either_side_is_killed_again_and_again() {
    let (control, desk) = (Host::new(), Host::new());
    let mut server = Some(control.start_server());
    let invite = control.json(&["server", "invite", "--json"]);
    let joined = desk.run(&["agent", "join", invite["join"].as_str().unwrap()]);
    assert!(joined.status.success(), "{}", text(&joined));
    let mut agent = Some(desk.start_agent());
    let id = wait_for("the first connection", || connected(&control));
    let mut known = Acknowledged::default();
    let mut dice = Dice(7);
    for _ in 0..ROUNDS {
        work(&control, &desk, &id, &mut known);
        std::thread::sleep(Duration::from_millis(dice.roll(40)));
        if dice.roll(2) == 0 {
            drop(server.take());
            server = Some(control.start_server());
        } else {
            drop(agent.take());
            agent = Some(desk.start_agent());
        }
    }
    wait_for("the last connection", || connected(&control));
    let mut open = Vec::new();
    let settled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_for("every run to end", || {
            open = unfinished(&control, &known);
            open.is_empty().then_some(())
        });
    }));
    assert!(
        settled.is_ok(),
        "still open: {open:?}\n{}",
        control.log("server.log")
    );
    assert!(
        known.executions.len() >= ROUNDS / 4,
        "the rounds did work: {}",
        known.executions.len()
    );
    drop(agent);
    drop(server);
    let sequences = journal(&desk);
    let whole: Vec<u64> = (1..=sequences.len() as u64).collect();
    assert_eq!(sequences, whole, "the journal is contiguous from 1");
    let last = sequences.len() as u64;
    assert!(
        known.events.iter().all(|seq| *seq <= last),
        "an acknowledged event is missing"
    );
}

/// The sequence of every record in a node's journal, off the disk.
fn journal(desk: &Host) -> Vec<u64> {
    let mut segments: Vec<_> = std::fs::read_dir(desk.data_dir().join("agent/journal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "jsonl"))
        .collect();
    segments.sort();
    let lines = segments
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap());
    let records: Vec<Value> = lines
        .flat_map(|text| {
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    records
        .iter()
        .map(|record| record["sequence"].as_u64().unwrap())
        .collect()
}
