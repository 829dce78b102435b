//! Types any text whatever the layout.
//!
//! A symbol that the layout has is typed by its key. For others, keycodes without a symbol are
//! borrowed: each is bound to one symbol for a burst, and bound anew only once the client that was
//! typed into is known to have handled the burst, since a client looks a key's meaning up when it
//! handles the key and not when it was sent:
//!
//! ```text
//!          bind           type            keymap read, client asleep
//!   free ───────▶ bound ───────▶ in flight ─────────────────────────▶ bound, may be rebound
//!     ▲                              │ not in time
//!     └─────── idle: restored        └────────────▶ `Unverifiable`, nothing is rebound
//! ```
//!
//! Two signs are needed: the client read the map after it was changed (`KeymapWatch` sees the
//! request), and its process then sleeps with nothing left to do (`ClientProcess`). The reads alone
//! are not enough: toolkits on Xlib read again whenever they peek at a change, keys before it unhandled.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use x11rb::protocol::xproto::{ConnectionExt as _, ModMask, Window};
use xkeysym::key;

use super::client_process::{Asleep, ClientProcess, Threads};
use super::injector::{Injector, KeyboardState, lost, unanswered};
use super::keyboard::{Keycode, Stroke, bits};
use super::keymap_watch::KeymapWatch;
use super::keysyms::Symbol;
use crate::base::limits::{
    KEYMAP_IDLE_LOOKS, KEYMAP_LOOK_EVERY_MS, KEYMAP_READ_TIMEOUT_MS, KEYMAP_RESTORE_AFTER_MS,
    KEYMAP_SILENCE_MS, TYPE_TEXT_LEN_MAX,
};
use crate::platform::{PlatformError, Press, Result};

/// Whether typing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Go,
    Stop,
}

/// Waits for the time given and takes in what arrives meanwhile. Once it has said stop, it says so again.
pub type Pause<'a> = dyn FnMut(&mut Injector, Duration) -> Flow + 'a;

/// A keycode that was found without a symbol.
#[derive(Clone, Copy, Debug)]
struct Slot {
    keycode: Keycode,
    symbol: Option<Symbol>,
    /// Typed since the client was last known to have handled all keys.
    in_flight: bool,
}

/// The keycodes that typing has taken.
#[derive(Default)]
pub struct Borrowed {
    slots: Vec<Slot>,
    watch: Option<Watch>,
    last_used: Option<Instant>,
}

/// The client that is typed into.
struct Watch {
    window: Window,
    /// `None` where nothing can be watched: the server does not let us, or no window takes the keys.
    recording: Option<KeymapWatch>,
    /// `None` for a client of another host.
    process: Option<ClientProcess>,
    /// Keycodes were bound that it is not known to have read.
    bound: bool,
}

/// Looks at a process that found it asleep without having run in between.
#[derive(Default)]
struct Rest(Vec<Asleep>);

impl Rest {
    /// Adds a look; true when it was found so often enough in a row.
    fn look(&mut self, found: Option<Asleep>) -> bool {
        self.0.retain(|before| Some(before) == found.as_ref());
        self.0.extend(found);
        self.0.len() >= KEYMAP_IDLE_LOOKS
    }
}

impl Borrowed {
    /// When the borrowed keycodes are due to go back.
    pub fn restore_due(&self) -> Option<Instant> {
        self.last_used
            .map(|used| used + Duration::from_millis(KEYMAP_RESTORE_AFTER_MS))
    }

    fn in_flight(&self) -> bool {
        self.slots.iter().any(|slot| slot.in_flight)
    }

    fn keycodes(&self) -> impl Iterator<Item = Keycode> + '_ {
        let bound = self.slots.iter().filter(|slot| slot.symbol.is_some());
        bound.map(|slot| slot.keycode)
    }
}

/// The symbols of a text; a line's end is one Return however it is written.
fn symbols(text: &str) -> Result<Vec<Symbol>> {
    if text.len() > TYPE_TEXT_LEN_MAX {
        return Err(PlatformError::InputFailed(format!(
            "the text is longer than {TYPE_TEXT_LEN_MAX} bytes"
        )));
    }
    let mut symbols = Vec::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        if !(c == '\n' && before == Some('\r')) {
            symbols.push(Symbol::of_char(c).ok_or_else(|| {
                PlatformError::InputFailed(format!("no key types the control character {c:?}"))
            })?);
        }
        before = Some(c);
    }
    Ok(symbols)
}

impl Injector {
    /// Types a text; stops early, with nothing of it held, when `pause` says so.
    pub fn type_text(
        &mut self,
        text: &str,
        between: Duration,
        pause: &mut Pause<'_>,
    ) -> Result<()> {
        let symbols = symbols(text)?;
        let caps = self.keyboard_state()?.locked & bits(ModMask::LOCK) != 0;
        if caps {
            self.lock_modifiers(ModMask::LOCK, ModMask::from(0u8))?;
        }
        let lifted = self.lift_level_keys()?;
        let typed = self
            .type_symbols(&symbols, between, pause)
            .and_then(|flow| match flow {
                Flow::Go if self.borrowed.in_flight() => self.settle(pause).map(drop),
                Flow::Go | Flow::Stop => Ok(()),
            });
        if let Some(recording) = self.borrowed.watch.take().and_then(|watch| watch.recording) {
            recording.stop(&self.connection);
        }
        for keycode in lifted {
            if self.held.keys().any(|held| held == keycode) {
                self.fake_key(keycode, Press::Down)?;
            }
        }
        if caps {
            self.lock_modifiers(ModMask::LOCK, ModMask::LOCK)?;
        }
        self.sync()?;
        typed
    }

    /// Shift and AltGr that callers hold would change what is typed; they go up for a while.
    fn lift_level_keys(&mut self) -> Result<Vec<Keycode>> {
        let held: Vec<Keycode> = self.held.keys().collect();
        let keymap = self.keymap()?;
        let lifted: Vec<Keycode> = held
            .into_iter()
            .filter(|k| keymap.picks_level(*k))
            .collect();
        for keycode in &lifted {
            self.fake_key(*keycode, Press::Up)?;
        }
        Ok(lifted)
    }

    fn type_symbols(
        &mut self,
        symbols: &[Symbol],
        between: Duration,
        pause: &mut Pause<'_>,
    ) -> Result<Flow> {
        let mut known: Option<((u64, KeyboardState), HashMap<Symbol, Stroke>)> = None;
        let mut borrowed_for = None;
        let mut at = 0;
        while let Some(symbol) = symbols.get(at) {
            if pause(self, Duration::ZERO) == Flow::Stop {
                return Ok(Flow::Stop);
            }
            let state = self.keyboard_state()?;
            self.drain_events()?;
            let version = (self.map_changes, state);
            if known.as_ref().is_none_or(|(of, _)| *of != version) {
                let strokes = self.keymap()?.strokes(state.group, state.down);
                known = Some(((self.map_changes, state), strokes));
            }
            let stroke = known.as_ref().and_then(|(_, strokes)| strokes.get(symbol));
            if let Some(stroke) = stroke.copied() {
                self.stroke(stroke)?;
                at += 1;
                if !between.is_zero() && at < symbols.len() {
                    pause(self, between);
                }
                continue;
            }
            if borrowed_for.replace(at) == Some(at) {
                return Err(PlatformError::InputFailed(
                    "the display did not take a borrowed key".into(),
                ));
            }
            let strokes = known.take().map(|(_, strokes)| strokes).unwrap_or_default();
            if self.borrow_for(&symbols[at..], &strokes, pause)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Go)
    }

    fn stroke(&mut self, stroke: Stroke) -> Result<()> {
        let modifiers: Vec<Keycode> = self.keymap()?.modifier_keys(stroke.press).collect();
        for keycode in &modifiers {
            self.fake_key(*keycode, Press::Down)?;
        }
        self.fake_key(stroke.keycode, Press::Down)?;
        self.fake_key(stroke.keycode, Press::Up)?;
        for keycode in modifiers.iter().rev() {
            self.fake_key(*keycode, Press::Up)?;
        }
        if self.held.keys().any(|held| held == stroke.keycode) {
            self.fake_key(stroke.keycode, Press::Down)?;
        }
        let slots = &mut self.borrowed.slots;
        if let Some(slot) = slots.iter_mut().find(|s| s.keycode == stroke.keycode) {
            slot.in_flight = true;
            self.borrowed.last_used = Some(Instant::now());
        }
        self.flush()
    }

    /// Binds spare keycodes to the symbols that come next and have no stroke; at least to the first.
    fn borrow_for(
        &mut self,
        next: &[Symbol],
        strokes: &HashMap<Symbol, Stroke>,
        pause: &mut Pause<'_>,
    ) -> Result<Flow> {
        self.find_slots()?;
        self.watch_target()?;
        if self.borrowed.slots.iter().all(|slot| slot.in_flight) {
            if self.settle(pause)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
            self.watch_target()?;
        }
        let count = self.borrowed.slots.len();
        let mut seen = HashSet::new();
        let wanted: Vec<Symbol> = next
            .iter()
            .filter(|symbol| !strokes.contains_key(symbol) && seen.insert(**symbol))
            .take(count)
            .copied()
            .collect();
        let soon: HashSet<Symbol> = next.iter().take(count * 4).copied().collect();
        let needed = |slot: &Slot| slot.symbol.is_some_and(|symbol| soon.contains(&symbol));
        let mut free: Vec<usize> = (0..count)
            .filter(|index| !self.borrowed.slots[*index].in_flight)
            .collect();
        free.sort_by_key(|index| {
            let slot = &self.borrowed.slots[*index];
            (needed(slot), slot.symbol.is_some())
        });
        for (nth, (index, symbol)) in free.into_iter().zip(wanted).enumerate() {
            let slot = &mut self.borrowed.slots[index];
            if nth > 0 && needed(slot) {
                break;
            }
            slot.symbol = Some(symbol);
            let keycode = slot.keycode;
            self.bind(keycode, symbol.keysym())?;
        }
        self.borrowed.last_used = Some(Instant::now());
        if let Some(watch) = &mut self.borrowed.watch {
            watch.bound = true;
        }
        self.sync()?;
        Ok(Flow::Go)
    }

    /// Takes stock of the spare keycodes: what others have bound since is no longer ours.
    fn find_slots(&mut self) -> Result<()> {
        let before = std::mem::take(&mut self.borrowed.slots);
        let keymap = self.keymap()?;
        let mut slots: Vec<Slot> = before
            .into_iter()
            .filter(|slot| {
                slot.symbol.is_some_and(|symbol| {
                    keymap.first_keysym(slot.keycode) == Some(symbol.keysym())
                })
            })
            .collect();
        slots.extend(keymap.spare_keycodes().into_iter().map(|keycode| Slot {
            keycode,
            symbol: None,
            in_flight: false,
        }));
        self.borrowed.slots = slots;
        if self.borrowed.slots.is_empty() {
            return Err(PlatformError::InputFailed(
                "the layout lacks the symbol and leaves no keycode to borrow for it".into(),
            ));
        }
        Ok(())
    }

    /// Binds a keycode to one symbol on both levels, so that Shift does not matter.
    fn bind(&self, keycode: Keycode, keysym: u32) -> Result<()> {
        self.connection
            .change_keyboard_mapping(1, keycode, 2, &[keysym, keysym])
            .map(drop)
            .map_err(lost)
    }

    /// The window that keys go to: the focus, or the one under the pointer when nothing has it.
    fn target(&self) -> Result<Window> {
        let focus = self
            .connection
            .get_input_focus()
            .map_err(lost)?
            .reply()
            .map_err(unanswered)?
            .focus;
        const POINTER_ROOT: Window = 1;
        if focus > POINTER_ROOT && focus != self.root {
            return Ok(focus);
        }
        let mut window = self.root;
        loop {
            let under = self
                .connection
                .query_pointer(window)
                .map_err(lost)?
                .reply()
                .map_err(unanswered)?
                .child;
            if under == x11rb::NONE {
                return Ok(window);
            }
            window = under;
        }
    }

    /// Watches the client that is typed into, unless keys to another one are still in flight.
    fn watch_target(&mut self) -> Result<()> {
        let window = self.target()?;
        let watched = self.borrowed.watch.as_ref().map(|watch| watch.window);
        if watched == Some(window) || (watched.is_some() && self.borrowed.in_flight()) {
            return Ok(());
        }
        if let Some(recording) = self.borrowed.watch.take().and_then(|watch| watch.recording) {
            recording.stop(&self.connection);
        }
        let client = window != self.root;
        self.borrowed.watch = Some(Watch {
            window,
            recording: client
                .then(|| KeymapWatch::start(&self.connection, &self.display, window))
                .flatten(),
            process: client
                .then(|| ClientProcess::of_window(&self.connection, window))
                .flatten(),
            bound: false,
        });
        Ok(())
    }

    /// Waits until the client is known to have handled every key so far.
    fn settle(&mut self, pause: &mut Pause<'_>) -> Result<Flow> {
        let Some(mut watch) = self.borrowed.watch.take() else {
            return Err(unverifiable());
        };
        let outcome = self.wait_until_handled(&watch, pause);
        let handled = matches!(outcome, Ok(Flow::Go));
        watch.bound &= !handled;
        self.borrowed.watch = Some(watch);
        if handled {
            for slot in &mut self.borrowed.slots {
                slot.in_flight = false;
            }
        }
        outcome
    }

    fn wait_until_handled(&mut self, watch: &Watch, pause: &mut Pause<'_>) -> Result<Flow> {
        let deadline = Instant::now() + Duration::from_millis(KEYMAP_READ_TIMEOUT_MS);
        let mut read_at: Option<Instant> = None;
        let (mut whole, mut main) = (Rest::default(), Rest::default());
        while Instant::now() < deadline {
            // Behind this round trip the client has its keys, and the answers that it waited for.
            self.sync()?;
            while watch.recording.as_ref().is_some_and(KeymapWatch::has_read) {
                read_at = Some(Instant::now());
            }
            let silence = Duration::from_millis(KEYMAP_SILENCE_MS);
            let silent = read_at.is_some_and(|read| read.elapsed() >= silence);
            let rests = match watch.process {
                // One that animates something else never sleeps with all its threads.
                Some(process) => {
                    let main_rests = main.look(process.asleep(Threads::Main));
                    whole.look(process.asleep(Threads::All)) || (main_rests && silent)
                }
                // A client of another host cannot be looked at; a long silence has to do.
                None => silent,
            };
            if rests && (read_at.is_some() || !watch.bound) {
                return Ok(Flow::Go);
            }
            if pause(self, Duration::from_millis(KEYMAP_LOOK_EVERY_MS)) == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Err(unverifiable())
    }

    /// Gives borrowed keycodes back.
    pub fn restore_borrowed(&mut self) -> Result<()> {
        let keycodes: Vec<Keycode> = self.borrowed.keycodes().collect();
        for keycode in keycodes {
            self.bind(keycode, key::NoSymbol)?;
        }
        self.borrowed = Borrowed::default();
        self.flush()
    }
}

fn unverifiable() -> PlatformError {
    PlatformError::Unverifiable(
        "the window that has the keyboard was not seen to read the keys borrowed for it".into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_are_one_return_and_control_characters_are_refused() {
        let enter = Symbol::of_char('\n').unwrap();
        assert_eq!(symbols("\r\n\n\r").unwrap(), [enter; 3]);
        assert!(matches!(
            symbols("a\u{1}"),
            Err(PlatformError::InputFailed(_))
        ));
        assert!(symbols(&"x".repeat(TYPE_TEXT_LEN_MAX + 1)).is_err());
    }
}
