//! Pointer and keyboard on behalf of an owner.

use std::time::Duration;

use super::{Desktop, fault};
use crate::base::Point;
use crate::platform::{Button, Input, InputOwner, Press, VirtualKey};
use crate::wire::Fault;

/// Keys that go down in order and up in reverse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chord(pub Vec<VirtualKey>);

impl Chord {
    /// Reads `ctrl+shift+t`, `0x41`, `enter`; an unknown name is `key_unknown`.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let _ = text;
        todo!("desktop helper B")
    }
}

/// One owner's hands on the desktop. Dropping it releases all that it holds.
pub struct InputSession<'a> {
    input: &'a dyn Input,
    owner: InputOwner,
}

impl Desktop {
    /// Opens a session for an owner; `owner` numbers are the caller's to give out, one per script run
    /// or caller connection.
    pub fn input(&self, owner: InputOwner) -> Result<InputSession<'_>, Fault> {
        let input = self
            .backend
            .input
            .as_deref()
            .map_err(|error| fault(error.clone()))?;
        Ok(InputSession { input, owner })
    }

    /// Lets up all that an owner holds; answers how many keys and buttons that were.
    pub fn release_input(&self, owner: InputOwner) -> Result<usize, Fault> {
        match &self.backend.input {
            Ok(input) => input.release(owner).map_err(fault),
            Err(_) => Ok(0),
        }
    }
}

/// `cancelled` is asked between steps of every slow call; a call that it ends answers `cancelled`.
impl InputSession<'_> {
    pub fn pointer(&self) -> Result<Point, Fault> {
        self.input.pointer().map_err(fault)
    }

    /// At once when `over` is zero, else along a straight, eased path.
    pub fn move_to(
        &self,
        to: Point,
        over: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        let _ = (over, cancelled);
        self.input.move_to(to).map_err(fault)
    }

    /// Moves, then clicks `count` times (1 to 3).
    pub fn click(&self, at: Point, button: Button, count: u8) -> Result<(), Fault> {
        let _ = (at, button, count, self.owner);
        todo!("desktop helper B")
    }

    pub fn drag(
        &self,
        from: Point,
        to: Point,
        button: Button,
        over: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        let _ = (from, to, button, over, cancelled);
        todo!("desktop helper B")
    }

    pub fn scroll(&self, x: i32, y: i32) -> Result<(), Fault> {
        self.input.scroll(x, y).map_err(fault)
    }

    pub fn button(&self, button: Button, press: Press) -> Result<(), Fault> {
        self.input.button(self.owner, button, press).map_err(fault)
    }

    /// Presses and releases a chord.
    pub fn press(&self, chord: &Chord) -> Result<(), Fault> {
        let _ = chord;
        todo!("desktop helper B")
    }

    /// Every key of the chord goes down, in order, and stays.
    pub fn hold(&self, chord: &Chord) -> Result<(), Fault> {
        let _ = chord;
        todo!("desktop helper B")
    }

    /// Every key of the chord goes up, in reverse.
    pub fn let_up(&self, chord: &Chord) -> Result<(), Fault> {
        let _ = chord;
        todo!("desktop helper B")
    }

    /// Types any Unicode text.
    pub fn type_text(
        &self,
        text: &str,
        between: Duration,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(), Fault> {
        self.input
            .type_text(self.owner, text, between, cancelled)
            .map_err(fault)
    }
}
