//! What a running script may ask of the node. The runtime implements it; tests have their own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::desktop::Desktop;
use crate::platform::InputOwner;
use crate::wire::Fault;
use crate::wire::messages::executions::{Artifact, Stream};

/// Why a run has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A person or a caller stopped it.
    Cancelled,
    /// Its time is over.
    TimedOut,
}

/// Levels of `log.*`; `print` is `Info` on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Strings, hashes and lists that outlive a run; each kind is a namespace of its own. Times are
/// seconds. All methods are atomic.
pub trait Kv: Send + Sync {
    /// `nx`: only when absent, `xx`: only when present; answers whether it was set.
    fn set(&self, key: &str, value: &str, ttl_s: Option<u64>, rule: SetRule)
    -> Result<bool, Fault>;
    fn get(&self, key: &str) -> Result<Option<String>, Fault>;
    /// Removes the key from every namespace; answers whether there was one.
    fn delete(&self, key: &str) -> Result<bool, Fault>;
    fn exists(&self, key: &str) -> Result<bool, Fault>;
    /// Answers whether there was such a key.
    fn expire(&self, key: &str, ttl_s: u64) -> Result<bool, Fault>;
    /// Seconds left; -1 without an expiry, -2 without a key.
    fn ttl(&self, key: &str) -> Result<i64, Fault>;
    /// Adds to an integer, keeping its expiry; text that is no integer is an error.
    fn incr(&self, key: &str, delta: i64) -> Result<i64, Fault>;
    fn keys(&self, prefix: &str) -> Result<Vec<String>, Fault>;
    fn hset(&self, key: &str, field: &str, value: &str) -> Result<(), Fault>;
    fn hget(&self, key: &str, field: &str) -> Result<Option<String>, Fault>;
    fn hgetall(&self, key: &str) -> Result<BTreeMap<String, String>, Fault>;
    fn hdel(&self, key: &str, field: &str) -> Result<bool, Fault>;
    /// Answers the new length.
    fn push(&self, key: &str, end: ListEnd, value: &str) -> Result<u64, Fault>;
    fn pop(&self, key: &str, end: ListEnd) -> Result<Option<String>, Fault>;
    /// Inclusive; negative numbers count from the end.
    fn lrange(&self, key: &str, start: i64, stop: i64) -> Result<Vec<String>, Fault>;
    fn llen(&self, key: &str) -> Result<u64, Fault>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetRule {
    Always,
    IfAbsent,
    IfPresent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    Left,
    Right,
}

/// One run's view of the node. Methods block; they are called on the run's own thread alone, while
/// `stop_reason` may be asked from anywhere.
pub trait Host: Send + Sync {
    /// Why the run has to end; `None` while it may go on. Cheap: asked at every host call and
    /// interrupt.
    fn stop_reason(&self) -> Option<StopReason>;
    /// Blocks while scripts are paused; returns at once when they are not, or when the run must end.
    fn pause_point(&self);
    /// Sleeps; returns early when the run must end.
    fn sleep(&self, time: Duration);
    /// Writes a line of output.
    fn output(&self, stream: Stream, level: Level, text: &str);
    /// The desktop, or why there is none.
    fn desktop(&self) -> Result<Arc<Desktop>, Fault>;
    /// Whose keys this run holds.
    fn input_owner(&self) -> InputOwner;
    fn kv(&self) -> &dyn Kv;
    /// Stores a file of the run and records it; a second one of the same name replaces the first.
    fn store_artifact(
        &self,
        name: &str,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<Artifact, Fault>;
    /// Sets the run's result; the last one counts.
    fn set_result(&self, result: serde_json::Value) -> Result<(), Fault>;
    fn args(&self) -> &BTreeMap<String, String>;
    /// The script's own folder; absent when it came as text.
    fn script_dir(&self) -> Option<PathBuf>;
    /// Folders that file functions may use besides the script's own.
    fn file_roots(&self) -> &[PathBuf];
    /// Files and folders of the agent itself, canonical: no file function touches them or takes away
    /// what holds them, whatever roots are declared.
    fn private_paths(&self) -> &[PathBuf] {
        &[]
    }
    /// The run's id, for `args` and messages.
    fn execution_id(&self) -> &str;
}
