//! Who may type into a terminal session, and whose size it has.
//!
//! ```text
//!             take                       take by another: lease_held
//! shared ─────────────► exclusive(holder) ──────────────► (unless it takes over)
//!    ▲                      │
//!    └──────────────────────┘  release · the holder leaves
//! ```
//!
//! Invariants: the generation rises at every change of mode or holder and never falls; observers
//! never type and never size; the size is that of `size_owner` as long as there is one. A console
//! types only once it has seen the lease that is in force.

use std::collections::BTreeMap;

use crate::base::ids::ConsoleId;
use crate::wire::messages::sessions::{AttachMode, Lease, LeaseMode};
use crate::wire::{Code, Fault};

/// A terminal's size in cells.
pub type Cells = (u16, u16);

#[derive(Clone, Copy, Debug)]
struct Seat {
    mode: AttachMode,
    cells: Cells,
    /// The newest generation that this console has seen.
    seen: u64,
    /// The turn in which it came, and in which it last typed; 0 for never.
    came: u64,
    typed: u64,
}

/// What a step changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The mode, holder or generation is another: every console is told.
    pub lease: bool,
    /// The terminal has to take this size.
    pub resize: Option<Cells>,
}

/// The lease of one session.
#[derive(Clone, Debug)]
pub struct LeaseState {
    lease: Lease,
    seats: BTreeMap<ConsoleId, Seat>,
    cells: Cells,
    turn: u64,
}

impl LeaseState {
    /// A lease of a session whose terminal has `cells`. `generation` is above every one that the
    /// session had before.
    pub fn new(generation: u64, cells: Cells) -> Self {
        Self {
            lease: Lease {
                generation,
                ..Lease::default()
            },
            seats: BTreeMap::new(),
            cells,
            turn: 0,
        }
    }

    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// How a console is attached, and the size that it wants.
    pub fn seat(&self, console: &ConsoleId) -> Option<(AttachMode, Cells)> {
        let seat = self.seats.get(console)?;
        Some((seat.mode, seat.cells))
    }

    /// The size that was last asked for.
    pub fn cells(&self) -> Cells {
        self.cells
    }

    /// A console comes; it has seen the lease as it stands. A control console gives the size when
    /// nobody else does.
    pub fn attach(&mut self, console: ConsoleId, mode: AttachMode, cells: Cells) -> Change {
        self.turn += 1;
        let seat = Seat {
            mode,
            cells,
            seen: self.lease.generation,
            came: self.turn,
            typed: 0,
        };
        self.seats.insert(console, seat);
        self.settle_size()
    }

    /// A console has gone. An exclusive lease that it held ends.
    pub fn detach(&mut self, console: &ConsoleId) -> Change {
        self.seats.remove(console);
        let held = self.lease.holder.as_ref() == Some(console);
        if held {
            self.set(LeaseMode::Shared, None);
        }
        let mut change = self.settle_size();
        change.lease |= held;
        change
    }

    /// A console types. Errors: `lease_held` for observers and for anybody but an exclusive holder,
    /// `lease_stale` when the console has not seen the lease in force.
    pub fn typed(&mut self, console: &ConsoleId) -> Result<Change, Fault> {
        self.check(console)?;
        self.turn += 1;
        // INVARIANT: `check` found the seat.
        if let Some(seat) = self.seats.get_mut(console) {
            seat.typed = self.turn;
        }
        Ok(self.settle_size())
    }

    /// A console has another size. Only the size owner's changes the terminal.
    pub fn resized(&mut self, console: &ConsoleId, cells: Cells) -> Result<Change, Fault> {
        let Some(seat) = self.seats.get_mut(console) else {
            return Err(unknown(console));
        };
        if seat.mode == AttachMode::Observe {
            return Err(Fault::new(Code::LeaseHeld, "an observer never resizes"));
        }
        seat.cells = cells;
        if seat.seen < self.lease.generation {
            return Err(self.stale());
        }
        Ok(self.size_from(console, cells, true))
    }

    /// Takes a console's size where that console gives it.
    fn size_from(&mut self, console: &ConsoleId, cells: Cells, current: bool) -> Change {
        let owns = current && self.lease.size_owner.as_ref() == Some(console);
        let resize = Some(cells).filter(|cells| owns && *cells != self.cells);
        if let Some(cells) = resize {
            self.cells = cells;
        }
        Change {
            lease: false,
            resize,
        }
    }

    /// A console has seen the lease of this generation. A size that it asked for before counts now.
    pub fn seen(&mut self, console: &ConsoleId, generation: u64) -> Change {
        let newest = self.lease.generation;
        let Some(seat) = self.seats.get_mut(console) else {
            return Change::default();
        };
        seat.seen = seat.seen.max(generation.min(newest));
        let current = seat.seen == newest;
        let cells = seat.cells;
        self.size_from(console, cells, current)
    }

    /// A control console takes the lease for itself, from another holder only with `takeover`.
    pub fn take(&mut self, console: &ConsoleId, takeover: bool) -> Result<Change, Fault> {
        let Some(seat) = self.seats.get(console) else {
            return Err(unknown(console));
        };
        if seat.mode == AttachMode::Observe {
            return Err(Fault::new(Code::LeaseHeld, "an observer holds no lease"));
        }
        match &self.lease.holder {
            Some(holder) if holder == console => return Ok(Change::default()),
            Some(holder) if !takeover => {
                let text = format!("console {holder} holds the session");
                return Err(Fault::new(Code::LeaseHeld, text));
            }
            _ => {}
        }
        self.set(LeaseMode::Exclusive, Some(console.clone()));
        let mut change = self.settle_size();
        // Whoever took it knows that it did.
        change.resize = self
            .seen(console, self.lease.generation)
            .resize
            .or(change.resize);
        change.lease = true;
        Ok(change)
    }

    /// Back to shared. A console gives back only what it holds; `None` ends any lease.
    pub fn release(&mut self, console: Option<&ConsoleId>) -> Result<Change, Fault> {
        match (&self.lease.holder, console) {
            (None, _) => return Ok(Change::default()),
            (Some(holder), Some(console)) if holder != console => {
                let text = format!("console {holder} holds the session");
                return Err(Fault::new(Code::LeaseHeld, text));
            }
            _ => {}
        }
        self.set(LeaseMode::Shared, None);
        let mut change = self.settle_size();
        change.lease = true;
        Ok(change)
    }

    /// Whether somebody outside of the seats (a command, an API call) may type or resize now.
    pub fn check_outsider(&self, generation: Option<u64>) -> Result<(), Fault> {
        if generation.is_some_and(|given| given != self.lease.generation) {
            return Err(self.stale());
        }
        match &self.lease.holder {
            Some(holder) => {
                let text = format!("console {holder} holds the session");
                Err(Fault::new(Code::LeaseHeld, text))
            }
            None => Ok(()),
        }
    }

    /// Somebody outside of the seats set the size; it stays until a console types.
    pub fn sized(&mut self, cells: Cells) {
        self.cells = cells;
        self.lease.size_owner = None;
    }

    fn check(&self, console: &ConsoleId) -> Result<(), Fault> {
        let Some(seat) = self.seats.get(console) else {
            return Err(unknown(console));
        };
        if seat.mode == AttachMode::Observe {
            return Err(Fault::new(Code::LeaseHeld, "an observer never types"));
        }
        if seat.seen < self.lease.generation {
            return Err(self.stale());
        }
        match &self.lease.holder {
            Some(holder) if holder != console => {
                let text = format!("console {holder} holds the session");
                Err(Fault::new(Code::LeaseHeld, text))
            }
            _ => Ok(()),
        }
    }

    fn stale(&self) -> Fault {
        let text = format!(
            "the lease changed meanwhile; it is generation {} now",
            self.lease.generation
        );
        Fault::new(Code::LeaseStale, text)
    }

    fn set(&mut self, mode: LeaseMode, holder: Option<ConsoleId>) {
        self.lease.mode = mode;
        self.lease.holder = holder;
        self.lease.generation += 1;
    }

    /// Gives the size to the holder, else to the control console that typed last, else leaves it
    /// with its owner, else gives it to the one that came last.
    fn settle_size(&mut self) -> Change {
        let control = || {
            let seats = self.seats.iter();
            seats.filter(|(_, seat)| seat.mode == AttachMode::Control)
        };
        let typed = control()
            .filter(|(_, seat)| seat.typed > 0)
            .max_by_key(|(_, seat)| seat.typed);
        let owner = self.lease.size_owner.as_ref();
        let kept = control().find(|(id, _)| Some(*id) == owner);
        let last = control().max_by_key(|(_, seat)| seat.came);
        let next = typed.or(kept).or(last).map(|(id, _)| id.clone());
        self.lease.size_owner = self.lease.holder.clone().or(next);
        let cells = self.lease.size_owner.as_ref();
        let cells = cells
            .and_then(|id| self.seats.get(id))
            .map(|seat| seat.cells);
        let resize = cells.filter(|cells| *cells != self.cells);
        if let Some(cells) = resize {
            self.cells = cells;
        }
        Change {
            lease: false,
            resize,
        }
    }
}

fn unknown(console: &ConsoleId) -> Fault {
    Fault::new(Code::NotFound, format!("console {console} is not attached"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn console(name: &str) -> ConsoleId {
        ConsoleId::parse(name).unwrap()
    }

    fn two() -> (LeaseState, ConsoleId, ConsoleId) {
        let (a, b) = (console("a"), console("b"));
        let mut state = LeaseState::new(7, (80, 24));
        let change = state.attach(a.clone(), AttachMode::Control, (120, 40));
        assert_eq!(change.resize, Some((120, 40)));
        let change = state.attach(b.clone(), AttachMode::Control, (60, 15));
        assert_eq!(change, Change::default());
        (state, a, b)
    }

    #[test]
    fn size_follows_who_typed_last_and_comes_back_when_a_small_console_leaves() {
        let (mut state, a, b) = two();
        assert_eq!(state.typed(&b).unwrap().resize, Some((60, 15)));
        assert_eq!(state.resized(&a, (100, 30)).unwrap(), Change::default());
        assert_eq!(state.detach(&b).resize, Some((100, 30)));
        assert_eq!(state.lease().size_owner, Some(a));
    }

    #[test]
    fn exclusive_holder_types_alone_until_it_leaves() {
        let (mut state, a, b) = two();
        assert!(state.take(&a, false).unwrap().lease);
        assert_eq!(state.typed(&b).unwrap_err().code, Code::LeaseStale);
        state.seen(&b, 8);
        assert_eq!(state.typed(&b).unwrap_err().code, Code::LeaseHeld);
        assert_eq!(state.take(&b, false).unwrap_err().code, Code::LeaseHeld);
        assert!(state.typed(&a).is_ok());
        assert!(state.detach(&a).lease);
        assert_eq!(state.lease().mode, LeaseMode::Shared);
        assert_eq!(state.lease().generation, 9);
        state.seen(&b, 9);
        assert!(state.typed(&b).is_ok());
    }

    #[test]
    fn typing_with_an_old_generation_is_refused_after_a_takeover() {
        let (mut state, a, b) = two();
        state.take(&a, false).unwrap();
        state.seen(&b, 8);
        state.take(&b, true).unwrap();
        assert_eq!(state.typed(&a).unwrap_err().code, Code::LeaseStale);
        assert_eq!(
            state.resized(&a, (9, 9)).unwrap_err().code,
            Code::LeaseStale
        );
        assert_eq!(
            state.check_outsider(Some(8)).unwrap_err().code,
            Code::LeaseStale
        );
    }

    #[test]
    fn observers_never_type_never_resize_and_never_hold() {
        let mut state = LeaseState::new(0, (80, 24));
        let watcher = console("w");
        let change = state.attach(watcher.clone(), AttachMode::Observe, (10, 10));
        assert_eq!(change, Change::default());
        assert!(state.typed(&watcher).is_err());
        assert!(state.resized(&watcher, (5, 5)).is_err());
        assert!(state.take(&watcher, true).is_err());
        assert_eq!(state.cells(), (80, 24));
    }

    proptest! {
        #[test]
        fn generation_never_falls_and_one_console_has_the_size(
            steps in prop::collection::vec((0u8..8, 0usize..4, 2u16..200, any::<bool>()), 1..200),
        ) {
            let names = ["a", "b", "c", "d"].map(console);
            let mut state = LeaseState::new(1, (80, 24));
            let mut modes = BTreeMap::new();
            for (step, who, cols, flag) in steps {
                let id = &names[who];
                let before = state.lease().clone();
                let cells = (cols, 24);
                match step {
                    0 if !modes.contains_key(id) => {
                        let mode = if flag { AttachMode::Observe } else { AttachMode::Control };
                        modes.insert(id.clone(), mode);
                        state.attach(id.clone(), mode, cells);
                    }
                    1 => { modes.remove(id); state.detach(id); }
                    2 => {
                        let done = state.typed(id);
                        prop_assert!(done.is_err() || modes.get(id) == Some(&AttachMode::Control));
                        if done.is_ok() && before.mode == LeaseMode::Exclusive {
                            prop_assert_eq!(before.holder.as_ref(), Some(id));
                        }
                    }
                    3 => drop(state.resized(id, cells)),
                    4 => drop(state.take(id, flag)),
                    5 => drop(state.release(flag.then_some(id))),
                    6 => state.sized(cells),
                    _ => drop(state.seen(id, u64::from(cols))),
                }
                let lease = state.lease();
                let changed = (lease.mode, &lease.holder) != (before.mode, &before.holder);
                prop_assert!(lease.generation >= before.generation);
                prop_assert_eq!(changed, lease.generation > before.generation);
                for owner in lease.holder.iter().chain(&lease.size_owner) {
                    prop_assert_eq!(modes.get(owner), Some(&AttachMode::Control));
                }
                if let Some(owner) = &lease.size_owner {
                    let seat = state.seats[owner];
                    prop_assert!(seat.seen < lease.generation || seat.cells == state.cells());
                }
            }
        }
    }
}
