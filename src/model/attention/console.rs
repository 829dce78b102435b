//! What one console makes of the sessions' attention: marks, lock, round and ranked candidates.
//!
//! Everything here is this console's own. Two consoles on the same sessions have two schedulers, and what
//! one attends to stays marked on the other.

use std::collections::BTreeMap;

use crate::base::{EpochMillis, limits};
use crate::wire::messages::attention::{Attention, State, WaitKind};

/// What a console shows of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Derived {
    /// It waits for a person, and this console has not attended to that question.
    pub waiting_input: bool,
    /// It asks for nothing and works on nothing.
    pub idle: bool,
    /// A line is being typed here: nothing should come between.
    pub switch_lock: bool,
    /// A question was answered here and its dialogue goes on.
    pub interaction_round_active: bool,
    /// Place among the candidates for the focus, from 0; `None` for the focus itself.
    pub focus_candidate_rank: Option<usize>,
}

/// A session that a person may turn to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate<S> {
    pub session: S,
    pub state: State,
    pub kind: Option<WaitKind>,
    pub since: EpochMillis,
    /// This console has not attended to it.
    pub unattended: bool,
}

#[derive(Clone, Debug)]
struct Seat {
    state: State,
    kind: Option<WaitKind>,
    since: EpochMillis,
    revision: u64,
    attended: bool,
    /// A line was sent from here; the revision that was known then.
    round: Option<u64>,
}

/// Attention as one console has it. `S` identifies a session.
///
/// INVARIANT: nothing but `focus` writes `focus`.
#[derive(Clone, Debug)]
pub struct ConsoleScheduler<S> {
    seats: BTreeMap<S, Seat>,
    focus: Option<S>,
    typing: bool,
}

impl<S: Ord + Clone> Default for ConsoleScheduler<S> {
    fn default() -> Self {
        Self {
            seats: BTreeMap::new(),
            focus: None,
            typing: false,
        }
    }
}

impl<S: Ord + Clone> ConsoleScheduler<S> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what a node published. An older revision than the known one is ignored, unless the node
    /// began anew (`since` is later). A session beyond the limit is not listed.
    pub fn update(&mut self, session: &S, attention: &Attention) {
        let full = self.seats.len() >= limits::ATTENTION_CONSOLE_SESSIONS_MAX;
        let Some(seat) = self.seats.get_mut(session) else {
            if !full {
                self.seats.insert(session.clone(), Seat::new(attention));
            }
            return;
        };
        seat.update(attention);
        if seat.state == State::Exited && self.focus.as_ref() == Some(session) {
            self.typing = false;
        }
    }

    /// The session is gone. A focus on it stays: its last screen is still shown.
    pub fn remove(&mut self, session: &S) {
        self.seats.remove(session);
        if self.focus.as_ref() == Some(session) {
            self.typing = false;
        }
    }

    /// A person turned to a session, or to none. The one call that moves the focus; attends as well.
    pub fn focus(&mut self, session: Option<&S>) {
        if self.focus.as_ref() != session {
            self.typing = false;
            let left = self.focus.take().and_then(|left| self.seats.get_mut(&left));
            if let Some(left) = left {
                left.round = None;
            }
            self.focus = session.cloned();
        }
        if let Some(session) = session {
            self.attended(session);
        }
    }

    /// A person took notice of a session here: its mark clears until it asks anew.
    pub fn attended(&mut self, session: &S) {
        if let Some(seat) = self.seats.get_mut(session) {
            seat.attended = true;
        }
    }

    /// A person typed into a session here; `enter` when that sent a line.
    pub fn typed(&mut self, session: &S, enter: bool) {
        self.attended(session);
        if self.focus.as_ref() == Some(session) {
            self.typing = !enter;
        }
        if let Some(seat) = self.seats.get_mut(session).filter(|_| enter) {
            seat.round = Some(seat.revision);
        }
    }

    /// The session in focus, also after it ended.
    pub fn focused(&self) -> Option<&S> {
        self.focus.as_ref()
    }

    /// The session in focus has ended or is gone: candidates should be offered. Nothing moves.
    pub fn focus_ended(&self) -> bool {
        let seat = |session: &S| self.seats.get(session).map(|seat| seat.state);
        self.focus
            .as_ref()
            .is_some_and(|session| matches!(seat(session), None | Some(State::Exited)))
    }

    /// Sessions other than the focus that have not ended, most urgent first: waiting and not attended to
    /// (oldest first), failed, done, waiting though attended to, idle, unknown, working.
    pub fn candidates(&self) -> Vec<Candidate<S>> {
        let other = |(session, _): &(&S, &Seat)| self.focus.as_ref() != Some(session);
        let alive = |(_, seat): &(&S, &Seat)| seat.state != State::Exited;
        let mut ranked: Vec<(&S, &Seat)> = self.seats.iter().filter(other).filter(alive).collect();
        ranked.sort_by(|(a, a_seat), (b, b_seat)| a_seat.order(*a).cmp(&b_seat.order(*b)));
        let candidate = |(session, seat): (&S, &Seat)| Candidate {
            session: session.clone(),
            state: seat.state,
            kind: seat.kind,
            since: seat.since,
            unattended: !seat.attended,
        };
        ranked.into_iter().map(candidate).collect()
    }

    /// The next waiting session after `from`, round and round; those not attended to come first. `None`
    /// when none but `from` waits.
    pub fn next_waiting(&self, from: Option<&S>) -> Option<S> {
        let waiting = |seat: &Seat| seat.state == State::Waiting;
        let marked = self
            .seats
            .values()
            .any(|seat| waiting(seat) && !seat.attended);
        let wanted = |(session, seat): &(&S, &Seat)| {
            waiting(seat) && (!marked || !seat.attended || Some(*session) == from)
        };
        let mut ring: Vec<(&S, &Seat)> = self.seats.iter().filter(wanted).collect();
        ring.sort_by_key(|(session, seat)| (seat.since, *session));
        let at = from.and_then(|from| ring.iter().position(|(session, _)| *session == from));
        let next = at.map_or(0, |at| (at + 1) % ring.len());
        let (session, _) = ring.get(next)?;
        (Some(*session) != from).then(|| (*session).clone())
    }

    /// Sessions that wait and that this console has not attended to.
    pub fn waiting_count(&self) -> usize {
        self.seats
            .values()
            .filter(|seat| seat.waits_unattended())
            .count()
    }

    /// How many candidates stand before this one.
    fn rank(&self, session: &S, seat: &Seat) -> usize {
        let own = seat.order(session);
        let before = |(other, seat): &(&S, &Seat)| {
            self.focus.as_ref() != Some(*other)
                && seat.state != State::Exited
                && seat.order(*other) < own
        };
        self.seats.iter().filter(before).count()
    }

    /// What to show of a session; `None` for one that is not listed.
    pub fn derived(&self, session: &S) -> Option<Derived> {
        let seat = self.seats.get(session)?;
        let focused = self.focus.as_ref() == Some(session);
        let offered = seat.state != State::Exited && !focused;
        Some(Derived {
            waiting_input: seat.waits_unattended(),
            idle: matches!(seat.state, State::Idle | State::Done),
            switch_lock: focused && self.typing,
            interaction_round_active: seat.round.is_some(),
            focus_candidate_rank: offered.then(|| self.rank(session, seat)),
        })
    }
}

impl Seat {
    fn new(attention: &Attention) -> Self {
        Self {
            state: attention.state,
            kind: attention.kind,
            since: attention.since,
            revision: attention.revision,
            attended: false,
            round: None,
        }
    }

    fn update(&mut self, attention: &Attention) {
        let stale = attention.revision <= self.revision && attention.since <= self.since;
        if stale {
            return;
        }
        if attention.since != self.since || attention.state != self.state {
            self.attended = false;
        }
        let over = !matches!(attention.state, State::Working | State::Waiting);
        if over && self.round.is_some() {
            self.round = None;
        }
        self.state = attention.state;
        self.kind = attention.kind;
        self.since = attention.since;
        self.revision = attention.revision;
    }

    fn waits_unattended(&self) -> bool {
        self.state == State::Waiting && !self.attended
    }

    fn order<'a, S>(&self, session: &'a S) -> (u8, EpochMillis, &'a S) {
        (self.urgency(), self.since, session)
    }

    fn urgency(&self) -> u8 {
        match (self.state, self.attended) {
            (State::Waiting, false) => 0,
            (State::Error, false) => 1,
            (State::Done, false) => 2,
            (State::Waiting, true) => 3,
            (State::Idle | State::Done | State::Error, _) => 4,
            (State::Unknown, _) => 5,
            (State::Working, _) => 6,
            (State::Exited, _) => 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(state: State, since: i64, revision: u64) -> Attention {
        Attention {
            state,
            since: EpochMillis(since),
            revision,
            ..Attention::default()
        }
    }

    fn console(sessions: &[(u8, State, i64)]) -> ConsoleScheduler<u8> {
        let mut console = ConsoleScheduler::new();
        for (session, state, since) in sessions {
            console.update(session, &at(*state, *since, 1));
        }
        console
    }

    #[test]
    fn a_mark_clears_when_this_console_attends_and_returns_with_the_next_question() {
        let mut console = console(&[(1, State::Waiting, 10)]);
        assert!(console.derived(&1).unwrap().waiting_input);
        console.attended(&1);
        assert!(!console.derived(&1).unwrap().waiting_input);
        console.update(&1, &at(State::Waiting, 20, 2));
        assert!(console.derived(&1).unwrap().waiting_input);
        assert_eq!(console.waiting_count(), 1);
    }

    #[test]
    fn a_mark_clears_when_the_program_goes_on() {
        let mut console = console(&[(1, State::Waiting, 10)]);
        console.update(&1, &at(State::Working, 20, 2));
        assert_eq!(
            console.derived(&1).unwrap(),
            Derived {
                focus_candidate_rank: Some(0),
                ..Derived::default()
            }
        );
    }

    #[test]
    fn what_one_console_attends_to_stays_marked_on_the_other() {
        let mut one = console(&[(1, State::Waiting, 10)]);
        let other = one.clone();
        one.focus(Some(&1));
        assert!(!one.derived(&1).unwrap().waiting_input);
        assert!(other.derived(&1).unwrap().waiting_input);
    }

    #[test]
    fn an_old_or_repeated_record_changes_nothing() {
        let mut console = console(&[(1, State::Waiting, 10)]);
        console.attended(&1);
        console.update(&1, &at(State::Waiting, 10, 1));
        console.update(&1, &at(State::Idle, 5, 0));
        assert!(!console.derived(&1).unwrap().idle);
        assert!(!console.derived(&1).unwrap().waiting_input);
    }

    #[test]
    fn typing_a_line_locks_until_it_is_sent_or_left() {
        let mut console = console(&[(1, State::Idle, 10), (2, State::Idle, 10)]);
        console.focus(Some(&1));
        console.typed(&1, false);
        assert!(console.derived(&1).unwrap().switch_lock);
        console.typed(&1, true);
        assert!(!console.derived(&1).unwrap().switch_lock);
        console.typed(&1, false);
        console.focus(Some(&2));
        assert!(!console.derived(&1).unwrap().switch_lock);
        assert!(!console.derived(&2).unwrap().switch_lock);
    }

    #[test]
    fn a_round_lasts_from_an_answer_until_the_program_rests() {
        let mut console = console(&[(1, State::Waiting, 10)]);
        let round =
            |console: &ConsoleScheduler<u8>| console.derived(&1).unwrap().interaction_round_active;
        console.focus(Some(&1));
        console.typed(&1, false);
        assert!(!round(&console));
        console.typed(&1, true);
        assert!(round(&console));
        console.update(&1, &at(State::Working, 20, 2));
        console.update(&1, &at(State::Waiting, 30, 3));
        assert!(round(&console));
        console.update(&1, &at(State::Idle, 40, 4));
        assert!(!round(&console));
        console.typed(&1, true);
        console.focus(None);
        assert!(!round(&console));
    }

    #[test]
    fn candidates_are_ranked_by_urgency_then_age() {
        let mut console = console(&[
            (1, State::Working, 1),
            (2, State::Done, 2),
            (3, State::Waiting, 9),
            (4, State::Waiting, 5),
            (5, State::Error, 8),
            (6, State::Exited, 1),
            (7, State::Waiting, 3),
            (8, State::Idle, 1),
        ]);
        console.attended(&7);
        let order: Vec<u8> = console
            .candidates()
            .into_iter()
            .map(|candidate| candidate.session)
            .collect();
        assert_eq!(order, [4, 3, 5, 2, 7, 8, 1]);
        assert_eq!(console.derived(&3).unwrap().focus_candidate_rank, Some(1));
        assert_eq!(console.derived(&6).unwrap().focus_candidate_rank, None);
    }

    #[test]
    fn the_next_waiting_session_goes_round() {
        let mut console = console(&[
            (1, State::Waiting, 1),
            (2, State::Waiting, 2),
            (3, State::Waiting, 3),
        ]);
        assert_eq!(console.next_waiting(None), Some(1));
        assert_eq!(console.next_waiting(Some(&1)), Some(2));
        assert_eq!(console.next_waiting(Some(&3)), Some(1));
        console.attended(&1);
        console.attended(&2);
        assert_eq!(console.next_waiting(Some(&1)), Some(3));
        assert_eq!(console.next_waiting(Some(&3)), None);
        console.attended(&3);
        assert_eq!(console.next_waiting(Some(&3)), Some(1));
        console.remove(&1);
        console.remove(&2);
        assert_eq!(console.next_waiting(Some(&3)), None);
        assert_eq!(ConsoleScheduler::<u8>::new().next_waiting(None), None);
    }

    #[test]
    fn an_ended_focus_stays_and_candidates_are_offered() {
        let mut console = console(&[(1, State::Working, 1), (2, State::Waiting, 2)]);
        console.focus(Some(&1));
        assert!(!console.focus_ended());
        console.update(&1, &at(State::Exited, 9, 2));
        assert!(console.focus_ended());
        assert_eq!(console.focused(), Some(&1));
        console.remove(&1);
        assert!(console.focus_ended());
        assert_eq!(console.focused(), Some(&1));
        assert_eq!(console.candidates()[0].session, 2);
    }

    #[test]
    fn sessions_are_bounded() {
        let mut console = ConsoleScheduler::new();
        for session in 0..limits::ATTENTION_CONSOLE_SESSIONS_MAX + 9 {
            console.update(&session, &at(State::Idle, 1, 1));
        }
        assert_eq!(
            console.candidates().len(),
            limits::ATTENTION_CONSOLE_SESSIONS_MAX
        );
    }

    #[derive(Clone, Debug)]
    enum Call {
        Update(u8, State, i64, u64),
        Remove(u8),
        Focus(Option<u8>),
        Attended(u8),
        Typed(u8, bool),
        Ask(u8),
    }

    fn state() -> impl Strategy<Value = State> {
        prop::sample::select(vec![
            State::Working,
            State::Waiting,
            State::Idle,
            State::Done,
            State::Error,
            State::Unknown,
            State::Exited,
        ])
    }

    fn call() -> impl Strategy<Value = Call> {
        prop_oneof![
            4 => (0..5u8, state(), 0..50i64, 0..50u64).prop_map(|(s, a, t, r)| Call::Update(s, a, t, r)),
            1 => (0..5u8).prop_map(Call::Remove),
            1 => prop::option::of(0..5u8).prop_map(Call::Focus),
            1 => (0..5u8).prop_map(Call::Attended),
            2 => (0..5u8, any::<bool>()).prop_map(|(s, enter)| Call::Typed(s, enter)),
            1 => (0..5u8).prop_map(Call::Ask),
        ]
    }

    proptest! {
        #[test]
        fn only_focus_moves_the_focus(calls in prop::collection::vec(call(), 0..200)) {
            let mut console = ConsoleScheduler::<u8>::new();
            let mut chosen: Option<u8> = None;
            for call in calls {
                match call {
                    Call::Update(s, state, since, revision) => console.update(&s, &at(state, since, revision)),
                    Call::Remove(s) => console.remove(&s),
                    Call::Focus(s) => {
                        chosen = s;
                        console.focus(s.as_ref());
                    }
                    Call::Attended(s) => console.attended(&s),
                    Call::Typed(s, enter) => console.typed(&s, enter),
                    Call::Ask(s) => {
                        let next = console.next_waiting(Some(&s));
                        prop_assert_ne!(next, Some(s));
                        let listed = console.candidates();
                        prop_assert!(listed.iter().all(|c| Some(c.session) != chosen));
                    }
                }
                prop_assert_eq!(console.focused().copied(), chosen);
                for s in 0..5 {
                    if let Some(derived) = console.derived(&s) {
                        prop_assert!(!derived.switch_lock || chosen == Some(s));
                        prop_assert!(!(derived.waiting_input && derived.idle));
                    }
                }
            }
        }
    }
}
