//! The sessions of a node: started, adopted from their holders, found by name, ended, forgotten.
//!
//! ```text
//! create ─► folder, spec.json ─► holder ─► connect ─► feed task
//! open   ─► scan ─► live: connect, checkpoint, feed │ ended: last screen │ other version: listed
//! ```
//!
//! Calls here block on files and sockets for milliseconds; tokio callers use its blocking pool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::checkpoint::{self, Restored};
use super::holder::{self, FromHolder, HolderError, Reader, SessionState, Spec, Writer, Zygote};
use super::hub::{Hub, Sink, TerminalOptions};
use super::launch::{self, Launch, User};
use super::session::{Counters, Due, Facts, Life, Screen, Seats, Session, Told, lock};
use super::stored::Stored;
use super::{attach, feed};
use crate::base::ids::TerminalId;
use crate::base::{EpochMillis, Secret, limits};
use crate::model::attention::{Input, RuleSet, SessionAttention};
use crate::model::lease::LeaseState;
use crate::platform::pty::PtySize;
use crate::wire::event::name;
use crate::wire::messages::sessions::{CreateParams, RestoreFailure};
use crate::wire::{Code, Fault};

/// What the sessions of a node are made of.
pub struct SessionsOptions {
    /// Where their folders lie.
    pub dir: PathBuf,
    /// This program, which is also zygote and holder.
    pub executable: PathBuf,
    pub user: User,
    /// Set in every session, such as the data folder of the agent that owns it.
    pub env: Vec<(String, String)>,
    pub sink: Arc<dyn Sink>,
    pub runtime: tokio::runtime::Handle,
    pub rules: RuleSet,
    pub terminal: TerminalOptions,
}

pub struct Sessions {
    dir: PathBuf,
    executable: PathBuf,
    user: User,
    env: Vec<(String, String)>,
    hub: Arc<Hub>,
    zygote: Mutex<Option<Zygote>>,
    all: RwLock<BTreeMap<TerminalId, Arc<Session>>>,
    /// Makes the check of a name and its use one step.
    naming: Mutex<()>,
}

impl Sessions {
    /// Finds the sessions of former agents: those that live are taken over, those that ended are kept
    /// for review. One that cannot be read is logged and left alone.
    pub fn open(options: SessionsOptions) -> Result<Arc<Self>, Fault> {
        let sessions = Arc::new(Self {
            dir: options.dir,
            executable: options.executable,
            user: options.user,
            env: options.env,
            hub: Arc::new(Hub::new(
                options.sink,
                options.runtime,
                options.terminal,
                options.rules,
            )),
            zygote: Mutex::new(None),
            all: RwLock::default(),
            naming: Mutex::default(),
        });
        for found in holder::scan(&sessions.dir).map_err(|error| fault_of(&error))? {
            if let Err(fault) = sessions.take_over(&found) {
                tracing::warn!(session = found.id, %fault, "a session's folder cannot be used; it is left as it is");
            }
        }
        sessions.prune(EpochMillis::now());
        Ok(sessions)
    }

    /// Starts the small process that holders come from, so that the first session need not wait for it.
    pub fn warm_up(&self) {
        let mut zygote = lock(&self.zygote);
        if let Err(error) = self.zygote(&mut zygote) {
            tracing::warn!(%error, "sessions will start slower");
        }
    }

    fn zygote<'a>(&self, slot: &'a mut Option<Zygote>) -> Result<&'a mut Zygote, HolderError> {
        match slot {
            Some(zygote) => Ok(zygote),
            None => {
                let zygote = Zygote::start(&self.executable)?;
                if let holder::Scope::Refused(why) = zygote.scope() {
                    tracing::warn!(%why, "sessions live in the agent's own systemd unit");
                }
                Ok(slot.insert(zygote))
            }
        }
    }

    fn list_lock(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<TerminalId, Arc<Session>>> {
        self.all
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Every session, oldest first.
    pub fn list(&self) -> Vec<Arc<Session>> {
        let mut all: Vec<_> = self.list_lock().values().cloned().collect();
        all.sort_by_key(|session| session.created_at);
        all
    }

    /// A session by its id, an unambiguous start of it, or its name. Errors: `session_not_found`,
    /// `session_ambiguous`.
    pub fn find(&self, text: &str) -> Result<Arc<Session>, Fault> {
        let all = self.list_lock();
        if let Ok(id) = TerminalId::parse(text)
            && let Some(session) = all.get(&id)
        {
            return Ok(Arc::clone(session));
        }
        let named: Vec<_> = all
            .values()
            .filter(|session| session.name() == text)
            .collect();
        let fitting = match named.is_empty() && text.len() >= ID_START_LEN_MIN {
            true => all
                .values()
                .filter(|session| session.id().as_str().starts_with(text))
                .collect(),
            false => named,
        };
        match fitting.as_slice() {
            [one] => Ok(Arc::clone(one)),
            [] => Err(Fault::new(
                Code::SessionNotFound,
                format!("no terminal session {text}"),
            )),
            several => {
                let ids: Vec<_> = several
                    .iter()
                    .map(|session| session.id().as_str())
                    .collect();
                let text = format!("{text} fits {}", ids.join(", "));
                Err(Fault::new(Code::SessionAmbiguous, text))
            }
        }
    }

    /// Starts a program on a new terminal. Errors: those of [`launch::plan`], `conflict` for a name that
    /// is taken, `too_many_sessions`, `session_failed`.
    pub fn create(&self, params: &CreateParams) -> Result<Arc<Session>, Fault> {
        let launch = launch::plan(params, &self.user)?;
        self.start(
            launch,
            params.name.as_deref(),
            attach::clamp(
                if params.cols == 0 { 80 } else { params.cols },
                if params.rows == 0 { 24 } else { params.rows },
            ),
            params.init_command.clone(),
        )
    }

    fn start(
        &self,
        launch: Launch,
        wanted: Option<&str>,
        cells: (u16, u16),
        init: Option<Secret>,
    ) -> Result<Arc<Session>, Fault> {
        let naming = lock(&self.naming);
        let name = self.free_name(wanted, &launch.argv)?;
        if self.list_lock().len() >= limits::SESSIONS_MAX {
            self.prune(EpochMillis::now());
        }
        if self.list_lock().len() >= limits::SESSIONS_MAX {
            let text = format!(
                "{} sessions exist; kill some that have ended",
                limits::SESSIONS_MAX
            );
            return Err(Fault::new(Code::TooManySessions, text));
        }
        let now = EpochMillis::now();
        let id = TerminalId::random();
        let mut env = launch.env;
        for (name, value) in &self.env {
            env.entry(name.clone())
                .or_insert_with(|| Secret::new(value.clone()));
        }
        let spec = Spec {
            id: id.as_str().to_owned(),
            argv: launch.argv,
            cwd: launch.cwd,
            env,
            size: PtySize {
                cols: cells.0,
                rows: cells.1,
            },
            name: Some(name.clone()),
            created_at: now,
        };
        let folder = spec.create(&self.dir).map_err(|error| fault_of(&error))?;
        let stored = Stored {
            name,
            base_path: launch.base_path,
            base_kind: launch.base_kind,
            generation: u64::try_from(now.0).unwrap_or(0),
        };
        let started = stored.write(&folder).and_then(|()| {
            {
                let mut zygote = lock(&self.zygote);
                self.zygote(&mut zygote)
                    .and_then(|zygote| zygote.spawn(&folder))
                    .map_err(|error| fault_of(&error))?;
            }
            self.connect(&folder, &spec, stored)
        });
        let session = match started {
            Ok(session) => session,
            Err(fault) => {
                // Nothing of it runs, so nothing of it stays.
                if let Err(error) = holder::remove(&folder) {
                    tracing::warn!(%error, "the folder of a session that did not start stays");
                }
                return Err(fault);
            }
        };
        drop(naming);
        let record = session.record();
        session.tell(
            name::SESSION_STARTED,
            json!({
                "name": record.name, "pid": record.pid, "cols": record.cols, "rows": record.rows,
                "basePath": record.base_path, "shell": record.shell,
            }),
        );
        if let Some(init) = init {
            self.hub
                .runtime
                .spawn(type_init_command(Arc::clone(&session), init));
        }
        Ok(session)
    }

    fn free_name(&self, wanted: Option<&str>, argv: &[String]) -> Result<String, Fault> {
        let all = self.list();
        let taken = |name: &str| all.iter().any(|session| session.name() == name);
        match wanted {
            None => Ok(launch::name_for(argv, taken)),
            Some(name) => {
                launch::check_name(name)?;
                if taken(name) {
                    let text = format!("a session is called {name} already");
                    return Err(Fault::new(Code::Conflict, text));
                }
                Ok(name.to_owned())
            }
        }
    }

    /// Gives a session another name.
    pub fn rename(&self, session: &Session, name: &str) -> Result<(), Fault> {
        let _naming = lock(&self.naming);
        launch::check_name(name)?;
        let other = |other: &Arc<Session>| other.id() != session.id() && other.name() == name;
        if self.list().iter().any(other) {
            let text = format!("a session is called {name} already");
            return Err(Fault::new(Code::Conflict, text));
        }
        session.rename(name)
    }

    fn take_over(&self, found: &holder::Found) -> Result<(), Fault> {
        let spec = Spec::read(&found.folder).map_err(|error| fault_of(&error))?;
        let stored = Stored::read(&found.folder, &found.id);
        match &found.state {
            SessionState::Live { .. } => match self.connect(&found.folder, &spec, stored.clone()) {
                Ok(session) if session.is_running() => {
                    let payload = json!({"name": session.name(), "pid": session.pid});
                    session.tell(name::SESSION_ADOPTED, payload);
                }
                Ok(_) => {}
                Err(fault) => {
                    tracing::warn!(session = found.id, %fault, "a session's holder does not answer");
                    let why = format!("its holder does not answer: {}", fault.message);
                    self.keep_silent(&found.folder, &spec, stored, why)?;
                }
            },
            SessionState::Incompatible { protocol } => {
                let why = format!(
                    "its holder speaks protocol {protocol}, this agent {}",
                    holder::PROTOCOL
                );
                self.keep_silent(&found.folder, &spec, stored, why)?;
            }
            SessionState::Broken { why } => {
                self.keep_silent(&found.folder, &spec, stored, why.clone())?;
            }
            SessionState::Ended { exit } => {
                self.keep_ended(&found.folder, &spec, stored, *exit)?;
            }
        }
        Ok(())
    }

    /// Connects to a session's holder. A program may end before that, and its holder with it.
    fn connect(&self, folder: &Path, spec: &Spec, stored: Stored) -> Result<Arc<Session>, Fault> {
        let mut tries = 0;
        loop {
            let error = match holder::connect(folder) {
                Ok((reader, writer)) => return self.adopt(folder, spec, stored, reader, writer),
                Err(error) => error,
            };
            if let SessionState::Ended { exit } = holder::state_of(folder) {
                return self.keep_ended(folder, spec, stored, exit);
            }
            tries += 1;
            if tries > limits::HOLDER_END_TRIES_MAX
                || matches!(error, HolderError::Incompatible { .. })
            {
                return Err(fault_of(&error));
            }
            // It is about to end.
            std::thread::sleep(Duration::from_millis(limits::HOLDER_END_PAUSE_MS));
        }
    }

    /// Rebuilds the grid of a holder that lives and starts the session's task.
    fn adopt(
        &self,
        folder: &Path,
        spec: &Spec,
        stored: Stored,
        mut reader: Reader,
        writer: Writer,
    ) -> Result<Arc<Session>, Fault> {
        let hello = *reader.hello();
        let mut restored = Restored::fresh(hello.size, &self.hub.options);
        if hello.screen_len > 0 {
            writer
                .fetch_checkpoint()
                .map_err(|error| fault_of(&error))?;
            if let Some(stored) = checkpoint::read(&mut reader, &self.hub.options)? {
                restored = stored;
            }
        }
        let from = restored.at;
        writer.subscribe(from).map_err(|error| fault_of(&error))?;
        let end = hello.next.offset;
        let mut screen = restored.screen;
        screen.answered = screen.answered.max(hello.answered);
        let parts = Parts {
            id: id_of(spec)?,
            folder: folder.to_owned(),
            spec: spec.clone(),
            stored,
            screen,
            pid: hello.child,
            writer: Some(writer),
            life: Life::Running,
        };
        let session = self.add(parts);
        let now = EpochMillis::now();
        session.attend(Input::Started, now);
        let (title, said) = {
            let screen = lock(&session.screen);
            (screen.grid.title().map(str::to_owned), screen.said.clone())
        };
        if title.is_some() {
            session.attend(Input::Title(title), now);
        }
        said.inputs().for_each(|input| session.attend(input, now));
        // Whoever asks sees the session as it is, not as it was at its checkpoint.
        feed::catch_up(&session, &mut reader, end);
        self.hub
            .runtime
            .spawn(feed::run(Arc::clone(&session), reader));
        Ok(session)
    }

    fn keep_silent(
        &self,
        folder: &Path,
        spec: &Spec,
        stored: Stored,
        why: String,
    ) -> Result<Arc<Session>, Fault> {
        Ok(self.add(Parts {
            id: id_of(spec)?,
            folder: folder.to_owned(),
            spec: spec.clone(),
            stored,
            screen: Restored::fresh(spec.size, &self.hub.options).screen,
            pid: 0,
            writer: None,
            life: Life::Unreachable { why },
        }))
    }

    fn keep_ended(
        &self,
        folder: &Path,
        spec: &Spec,
        stored: Stored,
        ended: Option<holder::Ended>,
    ) -> Result<Arc<Session>, Fault> {
        let screen = last_screen(folder, spec.size, &self.hub.options)
            .unwrap_or_else(|| Restored::fresh(spec.size, &self.hub.options).screen);
        let at = ended.map_or(spec.created_at, |ended| ended.at);
        let (code, signal) = feed::parts_of(ended.map(|ended| ended.exit));
        let session = self.add(Parts {
            id: id_of(spec)?,
            folder: folder.to_owned(),
            spec: spec.clone(),
            stored,
            screen,
            pid: 0,
            writer: None,
            life: Life::Exited { code, signal, at },
        });
        // What was told of it before is not true any more.
        lock(&session.attention).step(Input::Exited { code, signal }, at);
        Ok(session)
    }

    fn add(&self, parts: Parts) -> Arc<Session> {
        let size = parts.screen.grid.size();
        let title = parts.screen.grid.title().map(str::to_owned);
        let generation = parts.stored.next_generation(EpochMillis::now());
        let session = Arc::new(Session {
            id: parts.id.clone(),
            folder: parts.folder,
            argv: parts.spec.argv,
            created_at: parts.spec.created_at,
            pid: parts.pid,
            hub: Arc::clone(&self.hub),
            stored: Mutex::new(parts.stored),
            screen: Mutex::new(parts.screen),
            seats: Mutex::new(Seats {
                lease: LeaseState::new(generation, (size.cols, size.rows)),
                consoles: BTreeMap::new(),
                serial: 0,
            }),
            attention: Mutex::new(SessionAttention::new(Arc::clone(&self.hub.rules))),
            facts: Mutex::new(Facts {
                cwd: Some(parts.spec.cwd.to_string_lossy().into_owned()),
                title,
                ..Facts::default()
            }),
            due: Mutex::new(Due::default()),
            fetches: Mutex::default(),
            writer: parts.writer,
            life: watch::Sender::new(parts.life),
            changed: watch::Sender::new(0),
            text_waiters: AtomicUsize::new(0),
            last_output: AtomicI64::new(0),
            last_input: AtomicI64::new(0),
            told: Told::default(),
            counters: Counters::default(),
        });
        let mut all = self
            .all
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        all.insert(parts.id, Arc::clone(&session));
        session
    }

    /// Ends a session and waits for its end; one that has ended is forgotten with its folder.
    pub async fn kill(&self, session: &Arc<Session>) -> Result<(), Fault> {
        let mut life = session.life();
        if *life.borrow_and_update() != Life::Running {
            return self.forget(session);
        }
        session.live()?.kill().map_err(|error| fault_of(&error))?;
        let ended = life.wait_for(|life| *life != Life::Running);
        let limit = Duration::from_millis(limits::SESSION_KILL_TIMEOUT_MS);
        match tokio::time::timeout(limit, ended).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Fault::new(
                Code::TimedOut,
                format!("session {} is still ending", session.id()),
            )),
        }
    }

    /// Removes what is kept of a session that has ended.
    fn forget(&self, session: &Arc<Session>) -> Result<(), Fault> {
        if let Life::Unreachable { why } = &*session.life.borrow() {
            let text = format!("session {}: {why}; end its program by hand", session.id());
            return Err(Fault::new(Code::SessionIncompatible, text));
        }
        session.forgotten();
        holder::remove(&session.folder).map_err(|error| fault_of(&error))?;
        let mut all = self
            .all
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        all.remove(session.id());
        drop(all);
        session.tell(name::SESSION_FORGOTTEN, json!({"name": session.name()}));
        Ok(())
    }

    /// Forgets sessions that ended long ago.
    pub fn prune(&self, now: EpochMillis) {
        for session in self.list() {
            let old = match &*session.life.borrow() {
                Life::Exited { at, .. } => now.since(*at) > limits::SESSION_KEPT_MS,
                _ => false,
            };
            if old && let Err(fault) = self.forget(&session) {
                tracing::warn!(session = %session.id(), %fault, "an old session's folder stays");
            }
        }
    }

    /// Starts what ended with the machine again, agents with their own resume flag. Answers the new
    /// sessions, and what could not be started.
    pub fn restore(&self) -> (Vec<Arc<Session>>, Vec<RestoreFailure>) {
        let (mut restored, mut failed) = (Vec::new(), Vec::new());
        for old in self.list() {
            let lost = matches!(
                &*old.life.borrow(),
                Life::Exited {
                    code: None,
                    signal: None,
                    ..
                }
            );
            if !lost {
                continue;
            }
            match self.start_again(&old) {
                Ok(session) => restored.push(session),
                Err(fault) => failed.push(RestoreFailure {
                    name: old.name(),
                    error: fault.to_string(),
                }),
            }
        }
        (restored, failed)
    }

    fn start_again(&self, old: &Arc<Session>) -> Result<Arc<Session>, Fault> {
        let spec = Spec::read(&old.folder).map_err(|error| fault_of(&error))?;
        if !spec.cwd.is_dir() {
            let text = format!("folder {} is gone", spec.cwd.display());
            return Err(Fault::new(Code::NotFound, text));
        }
        let stored = lock(&old.stored).clone();
        let launch = Launch {
            argv: launch::resumed(&spec.argv),
            base_path: stored.base_path,
            base_kind: stored.base_kind,
            cwd: spec.cwd,
            env: spec.env,
        };
        let parked = format!("{}~", stored.name);
        lock(&old.stored).name.clone_from(&parked);
        let cells = (spec.size.cols, spec.size.rows);
        match self.start(launch, Some(&stored.name), cells, None) {
            Ok(session) => {
                self.forget(old)?;
                Ok(session)
            }
            Err(fault) => {
                lock(&old.stored).name = stored.name;
                Err(fault)
            }
        }
    }

    /// Lets go of every holder: they and their programs go on.
    pub fn close(&self) {
        self.hub.stop();
        for session in self.list() {
            session.hang_up();
            if let Ok(writer) = session.live() {
                {
                    let mut screen = lock(&session.screen);
                    checkpoint::store(&session, &mut screen);
                }
                writer.close();
            }
        }
    }
}

struct Parts {
    id: TerminalId,
    folder: PathBuf,
    spec: Spec,
    stored: Stored,
    screen: Screen,
    pid: u32,
    writer: Option<Writer>,
    life: Life,
}

/// Shortest start of an id that names a session.
const ID_START_LEN_MIN: usize = 4;

fn id_of(spec: &Spec) -> Result<TerminalId, Fault> {
    TerminalId::parse(spec.id.as_str())
        .map_err(|error| Fault::new(Code::StorageFailed, format!("session {}: {error}", spec.id)))
}

/// The grid of a session that ended, from what its holder left.
fn last_screen(folder: &Path, size: PtySize, options: &TerminalOptions) -> Option<Screen> {
    let mut reader = holder::last_screen(folder).ok()?;
    // Without a checkpoint everything stands in the rest.
    let mut restored = checkpoint::read(&mut reader, options)
        .ok()?
        .unwrap_or_else(|| Restored::fresh(size, options));
    let now = EpochMillis::now();
    loop {
        match reader.next() {
            Ok(Some(FromHolder::Output { bytes, .. })) => {
                // Nobody is there any more to hear an answer.
                drop(restored.screen.feed(bytes, now));
            }
            Ok(Some(FromHolder::Resized { at, size })) => restored.screen.resize(at, size, now),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    Some(restored.screen)
}

/// Types a command into the shell once it has shown something, or after a while.
async fn type_init_command(session: Arc<Session>, init: Secret) {
    let limit = tokio::time::Instant::now() + Duration::from_millis(limits::INIT_COMMAND_WAIT_MS);
    while session.last_output.load(Ordering::Relaxed) == 0 && tokio::time::Instant::now() < limit {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut line = init.expose().as_bytes().to_vec();
    line.push(b'\r');
    if let Ok(writer) = session.live()
        && writer.input(&line).is_ok()
    {
        session.note_input(&line, EpochMillis::now());
    }
}

pub(super) fn fault_of(error: &HolderError) -> Fault {
    let code = match error {
        HolderError::Incompatible { .. } => Code::SessionIncompatible,
        HolderError::NotStarted(_) => Code::SessionFailed,
        HolderError::Busy => Code::InputQueueFull,
        HolderError::TooLong { .. } => Code::BodyTooLarge,
        HolderError::Closed => Code::SessionExited,
        HolderError::File { .. } | HolderError::FileInvalid { .. } => Code::StorageFailed,
        HolderError::Io { .. } | HolderError::Protocol(_) => Code::SessionFailed,
    };
    Fault::new(code, error.to_string())
}
