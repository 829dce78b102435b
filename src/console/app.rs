//! The console's state: panes, focus, what is shown. No I/O: what has to be done outside is put into
//! `effects`, which the loop carries out.
//!
//! INVARIANT: only a person's key, click or choice moves the focus; marks, ends and lists never do.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::base::limits;
use crate::config::ConsoleConfig;
use crate::model::attention::ConsoleScheduler;
use crate::terminal::holder::{Early, Watcher};
use crate::wire::messages::sessions::{
    AttachMode, AttachParams, AttachReply, Control, SessionList,
};
use crate::wire::stream::{Piece, StreamEnd};
use crate::wire::{Fault, Method};

use super::cell::{Area, clean};
use super::keymap::{Keymap, KeymapError};
use super::layout::{self, Direction, Layout, Wish};
use super::pane::{Applied, How, Pane, SessionKey, Status};
use super::popup::Popup;
use super::roster::{Entry, PlaceState, Roster};
use super::scroll::ScrollView;
use super::select::Selection;

/// Told when an attachment ends with typed bytes that no session has read.
const NOT_SENT: &str = "not connected: what was typed is not sent";

/// Why the console ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// The person left; sessions go on.
    Detached,
    /// The last session ended and the person left its screen.
    AllEnded,
    /// The outer terminal is gone.
    TerminalGone,
    /// SIGTERM, SIGHUP or SIGINT.
    Told,
    /// A defect of ours; its message was printed when it happened.
    Failed,
    /// The session that was asked for does not exist.
    NoSuchSession(String),
}

/// What the loop does for the state.
#[derive(Debug)]
pub enum Effect {
    Attach {
        key: SessionKey,
        attempt: u64,
        params: AttachParams,
    },
    Call {
        place: usize,
        method: &'static str,
        params: Value,
        then: Then,
    },
    List(usize),
    Follow(usize),
    Copy(String),
    Bell,
    Suspend,
    Redraw,
    Leave(Left),
}

/// What an answer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Then {
    /// Focus what was created.
    Focus,
    /// Say it when it failed.
    Tell(&'static str),
    Lines(SessionKey),
    Matches(SessionKey),
}

/// What happened at a place.
pub enum Happened {
    Listed(usize, Result<SessionList, Fault>),
    Changed(usize),
    FollowEnded(usize),
    Attached(Box<Attached>),
    Answered {
        place: usize,
        then: Then,
        answer: Result<Value, Fault>,
    },
    /// A task of ours failed in a way that it must not.
    Panicked,
}

/// The end of an attempt to attach.
pub struct Attached {
    pub key: SessionKey,
    pub attempt: u64,
    pub answer: Result<(AttachReply, StreamEnd), Fault>,
    /// The holder, which tells small output before the stream does.
    pub watcher: Option<Watcher>,
}

/// What the next key means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Plain,
    /// The prefix was pressed.
    Prefix,
    /// The next key goes to the program, whatever it is.
    Literal,
    /// Cursor keys choose a session in the sidebar.
    Choose(usize),
}

/// When a place's list is read.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub reading: bool,
    /// Something changed while the list was being read.
    pub again: bool,
    pub next_at: Instant,
    pub following: bool,
    pub retry_ms: u64,
}

/// A selection on the live screen of the focused pane, in the mirror's coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    pub selection: Selection,
    pub dragging: bool,
}

/// How the console starts.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// An id, the start of one, or a name.
    pub focus: Option<String>,
    pub mode: AttachMode,
    pub how: How,
    /// Where a new session on this machine is offered to start.
    pub folder: Option<String>,
}

pub struct App {
    pub config: ConsoleConfig,
    pub keymap: Keymap,
    pub size: (u16, u16),
    pub roster: Roster,
    pub scheduler: ConsoleScheduler<SessionKey>,
    /// What is shown, in order.
    pub panes: Vec<Pane>,
    pub focused: usize,
    /// Screens kept for a quick return, the newest last.
    pub parked: VecDeque<Pane>,
    pub last: Option<SessionKey>,
    pub direction: Direction,
    pub sidebar: bool,
    pub full_screen: bool,
    pub mouse: bool,
    pub mode: Mode,
    pub popup: Option<Popup>,
    /// The focused pane looks back.
    pub scroll: Option<ScrollView>,
    pub marked: Option<Marked>,
    pub last_click: Option<(Instant, u16, u16, u8)>,
    pub notice: Option<(String, Instant)>,
    pub copied: String,
    /// The candidate chosen below a session that ended; `None` when the offer was closed.
    pub offer: Option<usize>,
    /// When the focused session ended, or a key was pressed that was meant for it.
    pub offer_pressed: Option<Instant>,
    pub effects: Vec<Effect>,
    /// The chrome has to be drawn again.
    pub dirty: bool,
    pub outer_focused: bool,
    pub start: Start,
    pub(super) started: bool,
    pub(super) schedules: Vec<Schedule>,
}

impl App {
    /// A console over places of these names (`true`: the agent on this machine).
    pub fn new(
        config: ConsoleConfig,
        places: &[(String, bool)],
        start: Start,
        size: (u16, u16),
        epoch: (Instant, i64),
    ) -> Result<Self, KeymapError> {
        let now = epoch.0;
        let place = |(name, local): &(String, bool)| PlaceState {
            name: clean(name),
            local: *local,
            ..PlaceState::default()
        };
        let schedule = Schedule {
            reading: false,
            again: false,
            next_at: now,
            following: false,
            retry_ms: limits::CONSOLE_RETRY_MS_MIN,
        };
        Ok(Self {
            keymap: Keymap::new(&config)?,
            mouse: config.console.mouse,
            config,
            size,
            roster: Roster {
                places: places.iter().map(place).collect(),
                filter: String::new(),
                epoch,
            },
            scheduler: ConsoleScheduler::new(),
            panes: Vec::new(),
            focused: 0,
            parked: VecDeque::new(),
            last: None,
            direction: Direction::Columns,
            sidebar: true,
            full_screen: false,
            mode: Mode::Plain,
            popup: None,
            scroll: None,
            marked: None,
            last_click: None,
            notice: None,
            copied: String::new(),
            offer: Some(0),
            offer_pressed: None,
            effects: Vec::new(),
            dirty: true,
            outer_focused: true,
            start,
            started: false,
            schedules: vec![schedule; places.len()],
        })
    }

    pub fn layout(&self) -> Layout {
        layout::lay_out(&Wish {
            cols: self.size.0,
            rows: self.size.1,
            side: self.config.console.sidebar,
            sidebar: self.sidebar,
            sidebar_width: self.config.console.sidebar_width,
            full_screen: self.full_screen,
            panes: self.panes.len().max(1),
            focused: self.focused,
            direction: self.direction,
        })
    }

    /// Where the focused pane is.
    pub fn focused_area(&self) -> Area {
        let layout = self.layout();
        layout.panes.get(self.focused).copied().unwrap_or_default()
    }

    pub fn pane(&self) -> Option<&Pane> {
        self.panes.get(self.focused)
    }

    pub fn pane_mut(&mut self) -> Option<&mut Pane> {
        self.panes.get_mut(self.focused)
    }

    pub fn entries(&self, now: Instant) -> Vec<Entry> {
        self.roster.entries(&self.scheduler, now)
    }

    /// Milliseconds since the epoch, by the wall clock at the start and the steady one since.
    pub fn wall(&self, now: Instant) -> i64 {
        self.roster.wall(now)
    }

    pub fn tell(&mut self, text: impl Into<String>, now: Instant) {
        let until = now + Duration::from_millis(limits::CONSOLE_NOTICE_MS);
        self.notice = Some((clean(&text.into()), until));
        self.dirty = true;
    }

    /// Asks a place for something.
    pub fn call<M: Method>(&mut self, place: usize, params: &M::Params, then: Then) {
        // INVARIANT: parameters of methods are plain records, which JSON can hold.
        let params = serde_json::to_value(params).expect("parameters are JSON");
        self.effects.push(Effect::Call {
            place,
            method: M::NAME,
            params,
            then,
        });
    }

    /// Puts a session into the focused pane, or moves the focus to the pane that shows it.
    pub fn focus(&mut self, key: &SessionKey, now: Instant) {
        self.leave_scroll();
        if let Some(index) = self.panes.iter().position(|pane| pane.key == *key) {
            self.focus_pane(index, now);
            return;
        }
        let before = self.pane().map(|pane| pane.key.clone());
        self.announce_focus(false);
        let pane = self.take_pane(key);
        if self.panes.is_empty() {
            self.panes.push(pane);
            self.focused = 0;
        } else {
            let old = std::mem::replace(&mut self.panes[self.focused], pane);
            self.park(old, now);
        }
        self.last = before.or(self.last.take());
        self.focus_changed(now);
    }

    /// Moves the focus to another pane.
    pub fn focus_pane(&mut self, index: usize, now: Instant) {
        if index >= self.panes.len() {
            return;
        }
        if index != self.focused {
            self.leave_scroll();
            self.last = self.pane().map(|pane| pane.key.clone());
            self.announce_focus(false);
            self.focused = index;
        }
        self.focus_changed(now);
    }

    fn focus_changed(&mut self, now: Instant) {
        self.marked = None;
        self.offer = Some(0);
        self.offer_pressed = None;
        self.dirty = true;
        let mode = self.start.mode;
        let key = self.pane().map(|pane| pane.key.clone());
        self.scheduler.focus(key.as_ref());
        let Some(pane) = self.pane_mut() else { return };
        let wanted = if pane.watch_only {
            AttachMode::Observe
        } else {
            mode
        };
        let other_mode = pane.mode != wanted;
        pane.mode = wanted;
        if other_mode
            || matches!(
                pane.status,
                Status::Parked | Status::Lost { .. } | Status::Refused(_)
            )
        {
            self.attach(self.focused, now);
        } else {
            pane.forget_size();
        }
        self.announce_focus(true);
        self.fit_panes(now);
    }

    /// Tells the owner, and a program that asked, whether the person looks at the focused session.
    pub fn announce_focus(&mut self, focused: bool) {
        let here = self.outer_focused && focused;
        if let Some(pane) = self.pane_mut().filter(|pane| pane.status == Status::Live) {
            pane.tell(&Control::Focus { focused: here });
            if pane.mirror.wants_focus_events() && !pane.held_by_other() {
                let bytes: &[u8] = if here { b"\x1b[I" } else { b"\x1b[O" };
                pane.type_quietly(bytes);
            }
        }
    }

    fn take_pane(&mut self, key: &SessionKey) -> Pane {
        let kept = self.parked.iter().position(|pane| pane.key == *key);
        match kept.and_then(|index| self.parked.remove(index)) {
            Some(pane) => pane,
            None => {
                let area = self.focused_area();
                Pane::new(key.clone(), (area.cols, area.rows), self.start.mode)
            }
        }
    }

    fn park(&mut self, mut pane: Pane, now: Instant) {
        pane.park();
        if pane.take_dropped_input() {
            self.tell(NOT_SENT, now);
        }
        self.parked.push_back(pane);
        if self.parked.len() > limits::CONSOLE_PANES_KEPT_MAX {
            self.parked.pop_front();
        }
    }

    /// Shows a further session beside the others; it only watches until it gets the focus.
    pub fn split(&mut self, key: &SessionKey, now: Instant) {
        if self.panes.is_empty() || self.panes.iter().any(|pane| pane.key == *key) {
            return self.focus(key, now);
        }
        if self.panes.len() >= limits::CONSOLE_PANES_MAX {
            return self.tell("there are as many panes as there may be", now);
        }
        let mut pane = self.take_pane(key);
        pane.mode = AttachMode::Observe;
        let index = self.focused + 1;
        self.panes.insert(index, pane);
        self.attach(index, now);
        self.fit_panes(now);
        self.dirty = true;
    }

    /// Closes the focused pane; its neighbour gets the focus.
    pub fn unsplit(&mut self, now: Instant) {
        if self.panes.len() < 2 {
            return self.tell("there is one pane only", now);
        }
        self.leave_scroll();
        self.announce_focus(false);
        let old = self.panes.remove(self.focused);
        self.park(old, now);
        self.focused = self.focused.min(self.panes.len() - 1);
        self.focus_changed(now);
    }

    /// Begins an attempt to attach a pane.
    pub fn attach(&mut self, index: usize, _now: Instant) {
        let areas = self.layout().panes;
        let area = areas.get(index).copied().unwrap_or_default();
        // The right to type alone was asked for the first session, not for each that is looked at.
        let how = self.start.how.clone();
        self.start.how.exclusive = false;
        self.start.how.takeover = false;
        let Some(pane) = self.panes.get_mut(index) else {
            return;
        };
        let params = pane.connect((area.cols.max(1), area.rows.max(1)), &how);
        self.effects.push(Effect::Attach {
            key: pane.key.clone(),
            attempt: pane.attempt,
            params,
        });
        self.dirty = true;
    }

    /// Lets the focused session have its pane's size.
    pub fn fit_panes(&mut self, _now: Instant) {
        let area = self.focused_area();
        if let Some(scroll) = &mut self.scroll {
            scroll.resize(area.cols, area.rows);
        }
        if let Some(pane) = self.pane_mut().filter(|_| !area.is_empty()) {
            pane.want_size((area.cols, area.rows));
        }
    }

    pub fn resized(&mut self, size: (u16, u16), now: Instant) {
        self.size = (size.0.max(1), size.1.max(1));
        self.marked = None;
        self.dirty = true;
        self.fit_panes(now);
    }

    /// Says it when what was typed into a pane was lost.
    pub fn tell_dropped_input(&mut self, index: usize, now: Instant) {
        let pane = self.panes.get_mut(index);
        if pane.is_some_and(Pane::take_dropped_input) {
            self.tell(NOT_SENT, now);
        }
    }

    pub fn leave_scroll(&mut self) {
        if self.scroll.take().is_some() {
            self.dirty = true;
        }
    }

    /// Takes in a piece of the pane at `index`. Answers how many bytes its mirror was fed.
    pub fn piece(&mut self, index: usize, piece: Option<Piece>, now: Instant) -> usize {
        let Some(pane) = self.panes.get_mut(index) else {
            return 0;
        };
        let applied = pane.apply(piece, now);
        self.applied(index, applied, now)
    }

    /// The same for what a holder told.
    pub fn early(&mut self, index: usize, early: Option<Early>, now: Instant) -> usize {
        let Some(pane) = self.panes.get_mut(index) else {
            return 0;
        };
        let applied = pane.apply_early(early, now);
        self.applied(index, applied, now)
    }

    fn applied(&mut self, index: usize, applied: Applied, now: Instant) -> usize {
        let focused = index == self.focused;
        self.dirty |= applied.status_changed;
        if applied.fed > 0 && focused && self.marked.is_some() {
            // What was marked may stand elsewhere now.
            self.marked = None;
            self.dirty = true;
        }
        if focused {
            if applied.asked.bell {
                self.effects.push(Effect::Bell);
            }
            if let Some(text) = applied.asked.copy {
                self.copy_out(text);
            }
        }
        if applied.asked.failed {
            self.tell(
                "the terminal emulator failed on this output and began anew",
                now,
            );
        }
        if let Some(notice) = applied.notice {
            self.tell(notice, now);
        }
        if applied.status_changed {
            self.tell_dropped_input(index, now);
        }
        if applied.dismissed && focused {
            self.effects.push(Effect::Leave(Left::Detached));
        }
        if applied.ended {
            self.offer = Some(0);
            if focused {
                self.offer_pressed = Some(now);
            }
            self.list_soon(now);
        }
        if applied.status_changed && focused {
            self.fit_panes(now);
        }
        applied.fed
    }

    /// Hands a text to the outer terminal's clipboard, where that is allowed.
    fn copy_out(&mut self, text: String) {
        if self.config.console.clipboard && text.len() <= limits::CONSOLE_COPY_LEN_MAX {
            self.effects.push(Effect::Copy(text));
        }
    }

    /// Copies what the person selected.
    pub fn copy(&mut self, text: String, now: Instant) {
        if text.is_empty() {
            return;
        }
        if text.len() > limits::CONSOLE_COPY_LEN_MAX {
            return self.tell("too long to copy", now);
        }
        let lines = text.split('\n').count();
        self.copied.clone_from(&text);
        self.copy_out(text);
        let what = if lines == 1 {
            "copied".to_owned()
        } else {
            format!("copied {lines} lines")
        };
        self.tell(what, now);
    }
}
