//! The sessions of every place, grouped by workstation: what the sidebar and the palette list.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::model::attention::ConsoleScheduler;
use crate::wire::messages::attention::State;
use crate::wire::messages::sessions::{MachineStatus, Session, SessionList};

use super::cell::clean;
use super::pane::SessionKey;

/// What a place has told.
#[derive(Clone, Debug, Default)]
pub struct PlaceState {
    pub name: String,
    pub local: bool,
    pub sessions: Vec<Session>,
    pub machines: Vec<MachineStatus>,
    /// When the list was read last; `None` before the first answer.
    pub read_at: Option<Instant>,
    /// Why the place does not answer; the list is then as old as `read_at`.
    pub error: Option<String>,
}

/// How a workstation's information stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing was heard yet.
    Asked,
    Fresh,
    /// Seconds since the workstation told.
    Old(u64),
    Lost(String),
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Machine {
        name: String,
        standing: Standing,
        /// Sessions below it, also those that a filter hides.
        count: usize,
    },
    Session(Box<Entry>),
}

/// A session as the list shows it. Texts are clean.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: SessionKey,
    /// From 1, in the order of the list.
    pub number: usize,
    pub name: String,
    pub machine: String,
    pub program: String,
    pub path: String,
    pub state: State,
    /// It waits for a person and this console has not attended to it.
    pub marked: bool,
    pub attached: u32,
    pub foreground: bool,
    pub incompatible: bool,
    /// Its workstation or place does not answer.
    pub lost: bool,
    /// Milliseconds since the epoch: since when the state holds.
    pub since: i64,
    pub title: String,
}

#[derive(Clone, Debug)]
pub struct Roster {
    pub places: Vec<PlaceState>,
    pub filter: String,
    /// A steady instant and the wall clock's milliseconds then.
    pub epoch: (Instant, i64),
}

impl Roster {
    /// Milliseconds since the Unix epoch, by the wall clock at the start and the steady one since.
    pub fn wall(&self, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.epoch.0).as_millis();
        self.epoch
            .1
            .saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }

    pub fn took(&mut self, place: usize, list: SessionList, now: Instant) {
        if let Some(place) = self.places.get_mut(place) {
            place.sessions = list.sessions;
            place.machines = list.machines.unwrap_or_default();
            place.read_at = Some(now);
            place.error = None;
        }
    }

    pub fn failed(&mut self, place: usize, why: String) {
        if let Some(place) = self.places.get_mut(place) {
            place.error = Some(clean(&why));
        }
    }

    /// A session's record as its place last told it.
    pub fn session(&self, key: &SessionKey) -> Option<&Session> {
        let place = self.places.get(key.place)?;
        place.sessions.iter().find(|session| session.id == key.id)
    }

    /// Every session once: of two places that tell of the same one, the first that answers.
    pub fn keys(&self) -> Vec<SessionKey> {
        let mut seen = BTreeSet::new();
        let mut keys = Vec::new();
        let answering = |lost: bool| {
            let places = self.places.iter().enumerate();
            places.filter(move |(_, place)| place.error.is_some() == lost)
        };
        for (index, place) in answering(false).chain(answering(true)) {
            for session in &place.sessions {
                if seen.insert(session.id.clone()) {
                    keys.push(SessionKey {
                        place: index,
                        id: session.id.clone(),
                    });
                }
            }
        }
        keys
    }

    /// The list: workstations by place and name, their sessions by urgency and name.
    pub fn rows(&self, scheduler: &ConsoleScheduler<SessionKey>, now: Instant) -> Vec<Row> {
        let kept: BTreeSet<SessionKey> = self.keys().into_iter().collect();
        let mut rows = Vec::new();
        let mut number = 0;
        for (index, place) in self.places.iter().enumerate() {
            for (machine, name, standing) in self.machines(place, now) {
                let mut entries: Vec<Entry> = place
                    .sessions
                    .iter()
                    .filter(|session| place.local || session.machine == machine)
                    .filter_map(|session| {
                        let key = SessionKey {
                            place: index,
                            id: session.id.clone(),
                        };
                        let lost = matches!(standing, Standing::Lost(_));
                        kept.contains(&key)
                            .then(|| entry(key, session, &name, lost, scheduler))
                    })
                    .collect();
                let count = entries.len();
                entries.retain(|entry| self.fits(entry));
                entries.sort_by(|a, b| {
                    (rank(a), a.name.to_lowercase(), &a.key).cmp(&(
                        rank(b),
                        b.name.to_lowercase(),
                        &b.key,
                    ))
                });
                if entries.is_empty() && !self.filter.is_empty() {
                    continue;
                }
                rows.push(Row::Machine {
                    name,
                    standing,
                    count,
                });
                for mut entry in entries {
                    number += 1;
                    entry.number = number;
                    rows.push(Row::Session(Box::new(entry)));
                }
            }
        }
        rows
    }

    /// The sessions of the list alone, in its order.
    pub fn entries(&self, scheduler: &ConsoleScheduler<SessionKey>, now: Instant) -> Vec<Entry> {
        let session = |row| match row {
            Row::Session(entry) => Some(*entry),
            Row::Machine { .. } => None,
        };
        self.rows(scheduler, now)
            .into_iter()
            .filter_map(session)
            .collect()
    }

    /// Id, name and standing of a place's workstations. A local place is one of them itself.
    fn machines(&self, place: &PlaceState, now: Instant) -> Vec<(String, String, Standing)> {
        let age = place
            .read_at
            .map_or(0, |at| now.saturating_duration_since(at).as_secs());
        let own = match (&place.error, place.read_at) {
            (Some(why), _) => Standing::Lost(why.clone()),
            (None, None) => Standing::Asked,
            (None, Some(_)) if age > STALE_S => Standing::Old(age),
            (None, Some(_)) => Standing::Fresh,
        };
        if place.local {
            return vec![(String::new(), clean(&place.name), own)];
        }
        let mut machines: Vec<(String, String, Standing)> = place
            .machines
            .iter()
            .map(|machine| {
                let shown = machine.hostname.as_deref().unwrap_or(&machine.name);
                let standing = match (&own, machine.ok) {
                    (Standing::Lost(why), _) => Standing::Lost(why.clone()),
                    (_, false) => {
                        Standing::Lost(clean(machine.error.as_deref().unwrap_or("not connected")))
                    }
                    (own, true) => match machine.fetched_at {
                        Some(at) if self.wall(now) - at.0.0 > STALE_S as i64 * 1_000 => {
                            Standing::Old(((self.wall(now) - at.0.0) / 1_000) as u64)
                        }
                        _ => own.clone(),
                    },
                };
                (machine.name.clone(), clean(shown), standing)
            })
            .collect();
        // Sessions whose workstation the list does not name are shown all the same.
        let named: BTreeSet<String> = machines.iter().map(|(id, ..)| id.clone()).collect();
        let others: BTreeSet<&String> = place
            .sessions
            .iter()
            .map(|session| &session.machine)
            .filter(|machine| !named.contains(*machine))
            .collect();
        for machine in others {
            let name = if machine.is_empty() {
                &place.name
            } else {
                machine
            };
            machines.push((machine.clone(), clean(name), own.clone()));
        }
        machines.sort_by_key(|(_, name, _)| name.to_lowercase());
        if machines.is_empty() {
            machines.push((String::new(), clean(&place.name), own));
        }
        machines
    }

    fn fits(&self, entry: &Entry) -> bool {
        let needle = self.filter.to_lowercase();
        needle.is_empty()
            || [
                &entry.name,
                &entry.machine,
                &entry.program,
                &entry.path,
                &entry.title,
            ]
            .iter()
            .any(|text| text.to_lowercase().contains(&needle))
    }

    /// Workstation ids with their names, of places that can start sessions.
    pub fn targets(&self) -> Vec<(usize, Option<String>, String)> {
        let mut targets = Vec::new();
        for (index, place) in self.places.iter().enumerate() {
            if place.local {
                targets.push((index, None, clean(&place.name)));
                continue;
            }
            for machine in place.machines.iter().filter(|machine| machine.ok) {
                let shown = machine.hostname.as_deref().unwrap_or(&machine.name);
                targets.push((index, Some(machine.name.clone()), clean(shown)));
            }
        }
        targets
    }
}

/// A list older than this many seconds shows its age.
const STALE_S: u64 = 20;

fn rank(entry: &Entry) -> u8 {
    match entry.state {
        _ if entry.marked => 0,
        State::Waiting => 1,
        State::Error => 2,
        State::Exited => 4,
        _ => 3,
    }
}

fn entry(
    key: SessionKey,
    session: &Session,
    machine: &str,
    lost: bool,
    scheduler: &ConsoleScheduler<SessionKey>,
) -> Entry {
    let base = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned();
    let program = session
        .program
        .clone()
        .unwrap_or_else(|| base(&session.shell));
    let ended = session.exit_code.is_some() || session.exit_signal.is_some();
    Entry {
        marked: scheduler
            .derived(&key)
            .is_some_and(|derived| derived.waiting_input),
        key,
        number: 0,
        name: clean(&session.name),
        machine: machine.to_owned(),
        program: clean(&program),
        path: clean(session.cwd.as_deref().unwrap_or(&session.base_path)),
        state: if ended {
            State::Exited
        } else {
            session.attention.state
        },
        attached: session.attached,
        foreground: session.foreground,
        incompatible: session.incompatible,
        lost,
        since: session.attention.since.0,
        title: clean(session.title.as_deref().unwrap_or("")),
    }
}
