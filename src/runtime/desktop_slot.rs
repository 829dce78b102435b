//! The node's desktop, opened when it is first needed, and what works on it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::desktop::Desktop;
use crate::platform::OpenOptions;
use crate::wire::capability;

/// One desktop for all scripts and callers.
pub struct DesktopSlot {
    options: OpenOptions,
    current: Mutex<Option<Arc<Desktop>>>,
    capabilities: watch::Sender<Vec<String>>,
}

impl DesktopSlot {
    pub fn new(options: OpenOptions) -> Self {
        Self {
            options,
            current: Mutex::new(None),
            capabilities: watch::Sender::new(Vec::new()),
        }
    }

    /// A slot that holds a given desktop (tests use the virtual display).
    pub fn holding(desktop: Desktop) -> Self {
        let slot = Self::new(OpenOptions::default());
        *slot.lock() = Some(Arc::new(desktop));
        slot
    }

    /// The desktop; opening it connects to the display, so this may block.
    pub fn current(&self) -> Arc<Desktop> {
        let mut current = self.lock();
        Arc::clone(current.get_or_insert_with(|| Arc::new(Desktop::open(&self.options))))
    }

    /// Looks at what works now; answers the names when they differ from the last look. Blocks.
    pub fn probe(&self) -> Option<Vec<String>> {
        let mut names: BTreeSet<&str> = self.current().capabilities().into_iter().collect();
        names.insert(capability::SCRIPT_LUA);
        names.insert(capability::SCRIPT_RHAI);
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let changed = self.capabilities.send_if_modified(|known| {
            let differ = *known != names;
            known.clone_from(&names);
            differ
        });
        changed.then_some(names)
    }

    /// The display in use, or why there is none, as of the last look.
    pub fn display(&self) -> Result<String, String> {
        let current = self.lock().clone();
        match current {
            Some(desktop) => match desktop.display() {
                Some(name) => Ok(name.to_owned()),
                None => Err(desktop
                    .bounds()
                    .err()
                    .map_or_else(|| "it has no name".into(), |fault| fault.to_string())),
            },
            None => Err("it was not opened yet".into()),
        }
    }

    /// What worked at the last look, and every change of it.
    pub fn capabilities(&self) -> watch::Receiver<Vec<String>> {
        self.capabilities.subscribe()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Desktop>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
