//! What all sessions of a node share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use crate::base::limits;
use crate::model::attention::RuleSet;
use crate::wire::event::Draft;

/// Where the events of sessions go; whoever composes the node implements it.
pub trait Sink: Send + Sync + 'static {
    /// Journals an event. Does not block.
    fn tell(&self, draft: Draft);
    /// Tells readers that are connected.
    fn tell_volatile(&self, draft: Draft);
}

/// Settings of the terminals part.
#[derive(Clone, Debug)]
pub struct TerminalOptions {
    /// Lines of scrollback that each session keeps.
    pub scrollback_lines: usize,
    /// Where recordings go.
    pub recordings_dir: PathBuf,
}

pub(super) struct Hub {
    pub sink: Arc<dyn Sink>,
    pub runtime: tokio::runtime::Handle,
    pub options: TerminalOptions,
    pub rules: Arc<RuleSet>,
    /// Places on threads for sessions that are flooded.
    pub floods: Arc<Semaphore>,
    processors: usize,
    stopping: AtomicBool,
}

impl Hub {
    pub fn new(
        sink: Arc<dyn Sink>,
        runtime: tokio::runtime::Handle,
        options: TerminalOptions,
        rules: RuleSet,
    ) -> Self {
        Self {
            sink,
            runtime,
            options,
            rules: Arc::new(rules),
            floods: Arc::new(Semaphore::new(limits::FEED_FLOODS_MAX)),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            stopping: AtomicBool::new(false),
        }
    }

    /// The agent ends: a connection to a holder that closes now is no loss.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether the threads of flooded sessions leave a processor to the programs that flood them.
    pub fn may_spin(&self) -> bool {
        let threads = limits::FEED_FLOODS_MAX - self.floods.available_permits();
        threads < self.processors
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
