//! A host for script tests: everything in memory, the desktop given by the test.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use wingman::base::EpochMillis;
use wingman::base::limits::SCRIPT_STACK_LEN;
use wingman::desktop::Desktop;
use wingman::platform::InputOwner;
use wingman::script::host::{Kv, Level, ListEnd, SetRule};
use wingman::script::{self, Host, Outcome, Profile, Script, StopReason};
use wingman::wire::messages::executions::{Artifact, Stream};
use wingman::wire::messages::scripts::Language;
use wingman::wire::{Code, Fault};

/// Both engines, for tests that hold for each.
pub const LANGUAGES: [Language; 2] = [Language::Lua, Language::Rhai];

#[derive(Default)]
struct State {
    stop: Option<StopReason>,
    lines: Vec<(Stream, Level, String)>,
    artifacts: BTreeMap<String, (String, Vec<u8>)>,
    result: Option<serde_json::Value>,
}

#[derive(Default)]
pub struct TestHost {
    state: Mutex<State>,
    changed: Condvar,
    kv: MemoryKv,
    pub args: BTreeMap<String, String>,
    pub dir: Option<PathBuf>,
    pub roots: Vec<PathBuf>,
    pub desktop: Option<Arc<Desktop>>,
}

impl TestHost {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A host whose script lies in a folder.
    pub fn in_dir(dir: &Path) -> Self {
        Self {
            dir: Some(dir.to_owned()),
            ..Self::default()
        }
    }

    pub fn stop(&self, reason: StopReason) {
        self.state().stop = Some(reason);
        self.changed.notify_all();
    }

    /// The texts of all lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.state()
            .lines
            .iter()
            .map(|line| line.2.clone())
            .collect()
    }

    pub fn full_lines(&self) -> Vec<(Stream, Level, String)> {
        self.state().lines.clone()
    }

    pub fn result(&self) -> Option<serde_json::Value> {
        self.state().result.clone()
    }

    pub fn artifact(&self, name: &str) -> Option<(String, Vec<u8>)> {
        self.state().artifacts.get(name).cloned()
    }

    /// Blocks until a line of that text was written.
    pub fn wait_for_line(&self, text: &str) {
        let state = self.state();
        let (_state, late) = self
            .changed
            .wait_timeout_while(state, Duration::from_secs(60), |state| {
                !state.lines.iter().any(|line| line.2 == text)
            })
            .unwrap();
        assert!(!late.timed_out(), "the line {text:?} never came");
    }
}

impl Host for TestHost {
    fn stop_reason(&self) -> Option<StopReason> {
        self.state().stop
    }

    fn pause_point(&self) {}

    fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state();
        while state.stop.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    fn output(&self, stream: Stream, level: Level, text: &str) {
        self.state().lines.push((stream, level, text.to_owned()));
        self.changed.notify_all();
    }

    fn desktop(&self) -> Result<Arc<Desktop>, Fault> {
        self.desktop
            .clone()
            .ok_or_else(|| Fault::new(Code::DisplayUnavailable, "this test has no desktop"))
    }

    fn input_owner(&self) -> InputOwner {
        InputOwner(7)
    }

    fn kv(&self) -> &dyn Kv {
        &self.kv
    }

    fn store_artifact(
        &self,
        name: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<Artifact, Fault> {
        let stored = (content_type.to_owned(), bytes.to_vec());
        self.state().artifacts.insert(name.to_owned(), stored);
        Ok(Artifact {
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            size: bytes.len() as u64,
            sha256: "0".repeat(64),
            created_at: EpochMillis::now(),
        })
    }

    fn set_result(&self, result: serde_json::Value) -> Result<(), Fault> {
        self.state().result = Some(result);
        Ok(())
    }

    fn args(&self) -> &BTreeMap<String, String> {
        &self.args
    }

    fn script_dir(&self) -> Option<PathBuf> {
        self.dir.clone()
    }

    fn file_roots(&self) -> &[PathBuf] {
        &self.roots
    }

    fn execution_id(&self) -> &str {
        "0123456789abcdef0123456789abcdef"
    }
}

/// Runs a script on a thread as a node does.
pub fn start(
    host: &Arc<TestHost>,
    language: Language,
    source: &str,
    profile: Profile,
) -> std::thread::JoinHandle<Outcome> {
    let script = Script {
        language,
        name: match language {
            Language::Lua => "test.lua".to_owned(),
            Language::Rhai => "test.rhai".to_owned(),
        },
        source: source.to_owned(),
    };
    let host: Arc<dyn Host> = Arc::clone(host) as _;
    std::thread::Builder::new()
        .stack_size(SCRIPT_STACK_LEN)
        .spawn(move || script::run(&script, &profile, &host))
        .unwrap()
}

/// Runs a script to its end.
pub fn run(host: &Arc<TestHost>, language: Language, source: &str) -> Outcome {
    start(host, language, source, Profile::script())
        .join()
        .unwrap()
}

/// Runs a script that has to succeed and gives its result.
pub fn result(language: Language, source: &str) -> serde_json::Value {
    let host = Arc::new(TestHost::default());
    let outcome = run(&host, language, source);
    assert_eq!(outcome, Outcome::Succeeded, "{language:?}: {source}");
    host.result().unwrap_or_default()
}

/// Runs a script that has to fail and gives its code and message.
pub fn failure(language: Language, source: &str) -> (Code, String) {
    let host = Arc::new(TestHost::default());
    match run(&host, language, source) {
        Outcome::Failed { code, message, .. } => (code, message),
        other => panic!("{language:?}: {source}: {other:?}"),
    }
}

/// Strings, hashes and lists without expiry.
#[derive(Default)]
pub struct MemoryKv(Mutex<Stored>);

#[derive(Default)]
struct Stored {
    strings: BTreeMap<String, (String, Option<u64>)>,
    hashes: BTreeMap<String, BTreeMap<String, String>>,
    lists: BTreeMap<String, VecDeque<String>>,
}

impl MemoryKv {
    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap()
    }
}

impl Kv for MemoryKv {
    fn set(&self, key: &str, value: &str, ttl: Option<u64>, rule: SetRule) -> Result<bool, Fault> {
        let strings = &mut self.lock().strings;
        let fits = match rule {
            SetRule::Always => true,
            SetRule::IfAbsent => !strings.contains_key(key),
            SetRule::IfPresent => strings.contains_key(key),
        };
        if fits {
            strings.insert(key.to_owned(), (value.to_owned(), ttl));
        }
        Ok(fits)
    }

    fn get(&self, key: &str) -> Result<Option<String>, Fault> {
        Ok(self.lock().strings.get(key).map(|found| found.0.clone()))
    }

    fn delete(&self, key: &str) -> Result<bool, Fault> {
        let mut stored = self.lock();
        let string = stored.strings.remove(key).is_some();
        let hash = stored.hashes.remove(key).is_some();
        let list = stored.lists.remove(key).is_some();
        Ok(string || hash || list)
    }

    fn exists(&self, key: &str) -> Result<bool, Fault> {
        Ok(self.lock().strings.contains_key(key))
    }

    fn expire(&self, key: &str, ttl_s: u64) -> Result<bool, Fault> {
        let mut stored = self.lock();
        let found = stored.strings.get_mut(key);
        Ok(found.map(|found| found.1 = Some(ttl_s)).is_some())
    }

    fn ttl(&self, key: &str) -> Result<i64, Fault> {
        Ok(match self.lock().strings.get(key) {
            Some((_, Some(ttl))) => *ttl as i64,
            Some((_, None)) => -1,
            None => -2,
        })
    }

    fn incr(&self, key: &str, delta: i64) -> Result<i64, Fault> {
        let mut stored = self.lock();
        let entry = stored
            .strings
            .entry(key.to_owned())
            .or_insert_with(|| ("0".to_owned(), None));
        let number: i64 = entry
            .0
            .parse()
            .map_err(|_| Fault::new(Code::InvalidParams, "the value is no integer"))?;
        entry.0 = (number + delta).to_string();
        Ok(number + delta)
    }

    fn keys(&self, prefix: &str) -> Result<Vec<String>, Fault> {
        let stored = self.lock();
        Ok(stored
            .strings
            .keys()
            .filter(|key| key.starts_with(prefix))
            .cloned()
            .collect())
    }

    fn hset(&self, key: &str, field: &str, value: &str) -> Result<(), Fault> {
        let mut stored = self.lock();
        let hash = stored.hashes.entry(key.to_owned()).or_default();
        hash.insert(field.to_owned(), value.to_owned());
        Ok(())
    }

    fn hget(&self, key: &str, field: &str) -> Result<Option<String>, Fault> {
        Ok(self
            .lock()
            .hashes
            .get(key)
            .and_then(|hash| hash.get(field).cloned()))
    }

    fn hgetall(&self, key: &str) -> Result<BTreeMap<String, String>, Fault> {
        Ok(self.lock().hashes.get(key).cloned().unwrap_or_default())
    }

    fn hdel(&self, key: &str, field: &str) -> Result<bool, Fault> {
        let mut stored = self.lock();
        Ok(stored
            .hashes
            .get_mut(key)
            .is_some_and(|hash| hash.remove(field).is_some()))
    }

    fn push(&self, key: &str, end: ListEnd, value: &str) -> Result<u64, Fault> {
        let mut stored = self.lock();
        let list = stored.lists.entry(key.to_owned()).or_default();
        match end {
            ListEnd::Left => list.push_front(value.to_owned()),
            ListEnd::Right => list.push_back(value.to_owned()),
        }
        Ok(list.len() as u64)
    }

    fn pop(&self, key: &str, end: ListEnd) -> Result<Option<String>, Fault> {
        let mut stored = self.lock();
        let list = stored.lists.entry(key.to_owned()).or_default();
        Ok(match end {
            ListEnd::Left => list.pop_front(),
            ListEnd::Right => list.pop_back(),
        })
    }

    fn lrange(&self, key: &str, start: i64, stop: i64) -> Result<Vec<String>, Fault> {
        let stored = self.lock();
        let Some(list) = stored.lists.get(key) else {
            return Ok(Vec::new());
        };
        let len = list.len() as i64;
        let at = |n: i64| if n < 0 { n + len } else { n };
        let (start, stop) = (at(start).max(0), at(stop).min(len - 1));
        Ok((start..=stop).map(|i| list[i as usize].clone()).collect())
    }

    fn llen(&self, key: &str) -> Result<u64, Fault> {
        Ok(self
            .lock()
            .lists
            .get(key)
            .map_or(0, |list| list.len() as u64))
    }
}
