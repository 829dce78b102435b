//! One run's state on the host's side, and the one way into a function's handler.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::arguments::bind;
use super::descriptor::Function;
use super::fault::ScriptFault;
use super::host::{Host, Level, StopReason};
use super::memory::Meter;
use super::profile::Profile;
use super::value::Value;
use crate::base::limits;
use crate::desktop::Desktop;
use crate::platform::Frame;
use crate::wire::messages::executions::Stream;
use crate::wire::{Code, Fault};

/// Says when a run has to end, has to wait, or holds too much. Engines ask it between steps.
pub struct Watch {
    host: Arc<dyn Host>,
    deadline: Option<Instant>,
    meter: Meter,
    memory_max: usize,
    /// Bytes that no allocation of this thread shows: pictures in shared memory.
    shared_bytes: Cell<usize>,
}

impl Watch {
    /// Starts counting time and memory; call it on the run's thread.
    pub fn new(host: Arc<dyn Host>, profile: &Profile) -> Self {
        let started = Instant::now();
        Self {
            host,
            deadline: profile
                .limits
                .timeout
                .and_then(|timeout| started.checked_add(timeout)),
            meter: Meter::start(),
            memory_max: profile.limits.memory,
            shared_bytes: Cell::new(0),
        }
    }

    /// Why the run has to end, if it has to.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.host.stop_reason().or_else(|| {
            let over = self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline);
            over.then_some(StopReason::TimedOut)
        })
    }

    /// Bytes that the run holds.
    pub fn memory_held(&self) -> usize {
        self.meter.held().saturating_add(self.shared_bytes.get())
    }

    /// Blocks while the run is paused, then says whether it may go on.
    pub fn check(&self) -> Result<(), ScriptFault> {
        self.host.pause_point();
        if let Some(reason) = self.stop_reason() {
            return Err(ScriptFault::Stopped(reason));
        }
        if self.memory_held() > self.memory_max {
            return Err(ScriptFault::Memory);
        }
        Ok(())
    }

    /// Sleeps until the time is over or the run has to end.
    pub fn sleep(&self, time: Duration) -> Result<(), ScriptFault> {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.host.sleep(left.map_or(time, |left| left.min(time)));
        self.check()
    }
}

/// What the handlers of one run share. It lives on the run's thread and is torn down by `run`.
pub struct Context {
    host: Arc<dyn Host>,
    watch: std::rc::Rc<Watch>,
    profile: Profile,
    /// The desktop that the run used last; its keys are let up there, also when the host no longer
    /// gives a desktop to a run that was stopped.
    used: RefCell<Option<Arc<Desktop>>>,
    images: BTreeMap<u64, Frame>,
    image_next: u64,
    started: Instant,
}

impl Context {
    pub fn new(host: Arc<dyn Host>, watch: std::rc::Rc<Watch>, profile: Profile) -> Self {
        Self {
            host,
            watch,
            profile,
            used: RefCell::new(None),
            images: BTreeMap::new(),
            image_next: 1,
            started: Instant::now(),
        }
    }

    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Since the run began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// The desktop, or why there is none.
    pub fn desktop(&self) -> Result<Arc<Desktop>, ScriptFault> {
        let desktop = self.host.desktop()?;
        *self.used.borrow_mut() = Some(Arc::clone(&desktop));
        Ok(desktop)
    }

    /// Calls a function: permission, stop, arguments, work. What work under way gives after a stop
    /// is dropped.
    pub fn call(
        &mut self,
        function: &'static Function,
        values: Vec<Value>,
    ) -> Result<Value, ScriptFault> {
        self.watch.check()?;
        if !self.profile.allowed.permits(function.module, function.name) {
            return Err(ScriptFault::failed(
                Code::ScriptForbidden,
                format!(
                    "{}: the profile {} does not allow it",
                    function.full_name(),
                    self.profile.name
                ),
            ));
        }
        let args = bind(function, values)?;
        let answer = (function.handler)(self, &args);
        // A wait that a stop cut short answers in many ways; they all mean the stop.
        self.watch.check()?;
        answer.map_err(|fault| named(function, fault))
    }

    /// Writes text as lines of output.
    pub fn output(&self, stream: Stream, level: Level, text: &str) {
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            self.host.output(stream, level, line);
        }
    }

    /// Keeps a picture for the script and gives its handle.
    pub fn keep_image(&mut self, frame: Frame) -> Result<u64, ScriptFault> {
        if self.images.len() >= limits::SCRIPT_IMAGES_MAX {
            return Err(ScriptFault::failed(
                Code::Busy,
                format!(
                    "a script holds at most {} pictures; release some",
                    limits::SCRIPT_IMAGES_MAX
                ),
            ));
        }
        let shared = &self.watch.shared_bytes;
        shared.set(shared.get().saturating_add(frame.bytes().len()));
        let handle = self.image_next;
        self.image_next += 1;
        self.images.insert(handle, frame);
        Ok(handle)
    }

    /// A picture by its handle.
    pub fn image(&self, handle: u64) -> Result<Frame, ScriptFault> {
        self.images.get(&handle).cloned().ok_or_else(|| {
            ScriptFault::failed(
                Code::NotFound,
                format!("no picture has the handle {handle}"),
            )
        })
    }

    /// Lets a picture go; answers whether there was one.
    pub fn release_image(&mut self, handle: u64) -> bool {
        let Some(frame) = self.images.remove(&handle) else {
            return false;
        };
        let shared = &self.watch.shared_bytes;
        shared.set(shared.get().saturating_sub(frame.bytes().len()));
        true
    }

    /// Ends all that modules hold for this run: keys and buttons, pictures.
    pub fn tear_down(&mut self) -> Result<(), Fault> {
        self.images.clear();
        self.watch.shared_bytes.set(0);
        match self.used.take() {
            Some(desktop) => desktop.release_input(self.host.input_owner()).map(|_| ()),
            None => Ok(()),
        }
    }
}

/// Names the function in a fault of its work.
fn named(function: &Function, fault: ScriptFault) -> ScriptFault {
    match fault {
        ScriptFault::Failed(mut fault) => {
            fault.message = format!("{}: {}", function.full_name(), fault.message).into();
            ScriptFault::Failed(fault)
        }
        other => other,
    }
}
