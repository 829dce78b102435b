//! What happens at places: lists, attachments, answers, and what is due by time.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::base::limits;
use crate::wire::Fault;
use crate::wire::messages::attention::State;
use crate::wire::messages::sessions::{self, ReadReply, SearchReply, Session, SessionList};

use super::app::{App, Attached, Effect, Happened, Left, Then};
use super::pane::{SessionKey, Status};
use super::roster::{Entry, PlaceState};
use super::scroll::{Outcome as ScrollOutcome, Wanted};

/// Before events are asked for again after their stream ended.
const FOLLOW_AGAIN: Duration = Duration::from_millis(limits::CONSOLE_LIST_EVERY_MS);

impl App {
    /// Takes in what happened at a place.
    pub fn happened(&mut self, happened: Happened, now: Instant) {
        match happened {
            Happened::Listed(place, answer) => self.listed(place, answer, now),
            Happened::Changed(place) => {
                let at = now + Duration::from_millis(limits::CONSOLE_LIST_GATHER_MS);
                if let Some(schedule) = self.schedules.get_mut(place) {
                    schedule.next_at = schedule.next_at.min(at);
                    schedule.again |= schedule.reading;
                }
            }
            Happened::FollowEnded(place) => {
                if let Some(schedule) = self.schedules.get_mut(place) {
                    schedule.following = false;
                    schedule.next_at = schedule.next_at.min(now + FOLLOW_AGAIN);
                }
            }
            Happened::Attached(attached) => self.attached(*attached, now),
            Happened::Answered {
                place,
                then,
                answer,
            } => self.answered(place, then, answer, now),
            Happened::Panicked => self.effects.push(Effect::Leave(Left::Failed)),
        }
    }

    fn attached(&mut self, attached: Attached, now: Instant) {
        let key = &attached.key;
        let Some(index) = self.panes.iter().position(|pane| pane.key == *key) else {
            return;
        };
        let pane = &mut self.panes[index];
        if pane.connected(attached.attempt, attached.answer) {
            pane.watch(attached.watcher);
            self.dirty = true;
            self.tell_dropped_input(index, now);
            if index == self.focused {
                self.announce_focus(true);
                self.fit_panes(now);
            }
        }
    }

    fn listed(&mut self, place: usize, answer: Result<SessionList, Fault>, now: Instant) {
        let Some(schedule) = self.schedules.get_mut(place) else {
            return;
        };
        schedule.reading = false;
        self.dirty = true;
        match answer {
            Ok(list) => {
                let every = if schedule.following {
                    limits::CONSOLE_LIST_EVERY_QUIET_MS
                } else {
                    limits::CONSOLE_LIST_EVERY_MS
                };
                let wait = if std::mem::take(&mut schedule.again) {
                    limits::CONSOLE_LIST_GATHER_MS
                } else {
                    every
                };
                schedule.next_at = now + Duration::from_millis(wait);
                schedule.retry_ms = limits::CONSOLE_RETRY_MS_MIN;
                if !std::mem::replace(&mut schedule.following, true) {
                    self.effects.push(Effect::Follow(place));
                }
                self.took_list(place, list, now);
            }
            Err(fault) => {
                schedule.next_at = now + Duration::from_millis(schedule.retry_ms);
                schedule.retry_ms = (schedule.retry_ms * 2).min(limits::CONSOLE_RETRY_MS_MAX);
                self.roster.failed(place, fault.message.to_string());
                self.start_if_known(now);
            }
        }
    }

    fn took_list(&mut self, place: usize, list: SessionList, now: Instant) {
        let key = |session: &Session| SessionKey {
            place,
            id: session.id.clone(),
        };
        for pane in &mut self.panes {
            if let Some(session) = self.roster.session(&pane.key) {
                pane.last_name = Some(session.name.clone());
            }
        }
        let before: Vec<SessionKey> = self.roster.places[place].sessions.iter().map(key).collect();
        self.roster.took(place, list, now);
        for session in &self.roster.places[place].sessions {
            self.scheduler.update(&key(session), &session.attention);
        }
        for gone in before {
            if self.roster.session(&gone).is_none() {
                self.scheduler.remove(&gone);
                self.parked.retain(|pane| pane.key != gone);
            }
        }
        self.start_if_known(now);
    }

    /// Gives the first focus as soon as it is known which session that is.
    fn start_if_known(&mut self, now: Instant) {
        if self.started {
            return;
        }
        let answered = |place: &PlaceState| place.read_at.is_some() || place.error.is_some();
        let all = self.roster.places.iter().all(answered);
        let first = self.roster.places.first().is_some_and(answered);
        let chosen = match &self.start.focus {
            Some(wanted) => self.find(wanted),
            None if first => self.most_urgent(now),
            None => None,
        };
        match chosen {
            Some(key) => {
                self.started = true;
                self.focus(&key, now);
            }
            None if all => {
                self.started = true;
                if let Some(wanted) = self.start.focus.clone() {
                    self.effects
                        .push(Effect::Leave(Left::NoSuchSession(wanted)));
                }
            }
            None => {}
        }
    }

    /// A session by id, by name, or by the start of its id when only one fits.
    fn find(&self, wanted: &str) -> Option<SessionKey> {
        let keys = self.roster.keys();
        let exact = keys.iter().find(|key| {
            let named = self
                .roster
                .session(key)
                .is_some_and(|session| session.name == wanted);
            key.id.as_str() == wanted || named
        });
        let mut starts = keys
            .iter()
            .filter(|key| key.id.as_str().starts_with(wanted));
        match (exact, starts.next(), starts.next()) {
            (Some(key), ..) | (None, Some(key), None) => Some(key.clone()),
            _ => None,
        }
    }

    /// The session that waits longest, otherwise the one used last.
    fn most_urgent(&self, now: Instant) -> Option<SessionKey> {
        if let Some(waiting) = self.scheduler.next_waiting(None) {
            return Some(waiting);
        }
        let entries = self.entries(now);
        let alive = entries.iter().filter(|entry| !entry.incompatible);
        let used = |entry: &&Entry| {
            let session = self.roster.session(&entry.key);
            let at = session.and_then(|s| s.last_input_at.max(s.last_output_at));
            let ended = entry.state == State::Exited;
            (!ended, at.map(|at| at.0), session.map(|s| s.created_at))
        };
        alive.max_by_key(used).map(|entry| entry.key.clone())
    }

    fn answered(&mut self, place: usize, then: Then, answer: Result<Value, Fault>, now: Instant) {
        let value = match (answer, &then) {
            (Ok(value), _) => value,
            (Err(fault), Then::Tell(what)) => return self.tell(format!("{what}: {fault}"), now),
            (Err(fault), _) => {
                if matches!(then, Then::Lines(_)) {
                    self.leave_scroll();
                }
                return self.tell(fault.message.to_string(), now);
            }
        };
        match then {
            Then::Focus => {
                if let Some(session) = self.read::<Session>(value, now) {
                    let key = SessionKey {
                        place,
                        id: session.id.clone(),
                    };
                    self.roster.places[place].sessions.push(session);
                    self.focus(&key, now);
                }
            }
            Then::Tell(_) => {}
            Then::Lines(key) => {
                if let Some(reply) = self.read::<ReadReply>(value, now)
                    && self.pane().is_some_and(|pane| pane.key == key)
                    && let Some(scroll) = &mut self.scroll
                {
                    scroll.took(&reply);
                    self.dirty = true;
                }
            }
            Then::Matches(key) => {
                if let Some(reply) = self.read::<SearchReply>(value, now)
                    && self.pane().is_some_and(|pane| pane.key == key)
                    && let Some(scroll) = &mut self.scroll
                {
                    let outcome = scroll.found_all(reply);
                    self.dirty = true;
                    if let ScrollOutcome::Notice(text) = outcome {
                        self.tell(text, now);
                    }
                }
            }
        }
        self.list_soon(now);
    }

    fn read<T: DeserializeOwned>(&mut self, value: Value, now: Instant) -> Option<T> {
        match serde_json::from_value(value) {
            Ok(read) => Some(read),
            Err(error) => {
                self.tell(format!("read the answer: {error}"), now);
                None
            }
        }
    }

    /// Reads every list at the next turn.
    pub fn list_soon(&mut self, now: Instant) {
        for schedule in &mut self.schedules {
            schedule.next_at = schedule.next_at.min(now);
            schedule.again |= schedule.reading;
        }
    }

    /// Tries everything that is lost again now.
    pub fn retry(&mut self, now: Instant) {
        for schedule in &mut self.schedules {
            schedule.next_at = now;
        }
        for index in 0..self.panes.len() {
            if matches!(
                self.panes[index].status,
                Status::Lost { .. } | Status::Refused(_)
            ) {
                self.attach(index, now);
            }
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Instant) {
        for (place, schedule) in self.schedules.iter_mut().enumerate() {
            if !schedule.reading && schedule.next_at <= now {
                schedule.reading = true;
                self.effects.push(Effect::List(place));
            }
        }
        for index in 0..self.panes.len() {
            if matches!(self.panes[index].status, Status::Lost { retry_at, .. } if retry_at <= now)
            {
                self.attach(index, now);
            }
            let typing = &mut self.panes[index].typing;
            if typing.as_ref().is_some_and(|(_, until)| *until <= now) {
                *typing = None;
                self.dirty = true;
            }
        }
        if self.notice.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.notice = None;
            self.dirty = true;
        }
        self.fetch_scroll();
    }

    fn fetch_scroll(&mut self) {
        let (Some(scroll), Some(pane)) = (&mut self.scroll, self.panes.get(self.focused)) else {
            return;
        };
        let key = pane.key.clone();
        let Some(Wanted { from, lines }) = scroll.wanted() else {
            return;
        };
        let params = sessions::ReadParams {
            id: key.id.as_str().to_owned(),
            lines: Some(lines),
            scrollback: false,
            form: sessions::TextForm::Ansi,
            from,
        };
        self.call::<sessions::Read>(key.place, &params, Then::Lines(key));
    }

    /// When `tick` has something to do next.
    pub fn deadline(&self) -> Option<Instant> {
        let lists = self
            .schedules
            .iter()
            .filter(|s| !s.reading)
            .map(|s| s.next_at);
        let panes = self.panes.iter().flat_map(|pane| {
            let retry = match pane.status {
                Status::Lost { retry_at, .. } => Some(retry_at),
                _ => None,
            };
            [retry, pane.typing.as_ref().map(|(_, until)| *until)]
        });
        let notice = self.notice.as_ref().map(|(_, until)| *until);
        lists.chain(panes.flatten()).chain(notice).min()
    }
}
