//! Types any text whatever the layout.
//!
//! A symbol that the layout has is typed by its key. For others, keycodes without a symbol are
//! borrowed: each is bound to one symbol for a burst, and bound anew only once the client that was
//! typed into is known to have handled the burst, since a client looks a key's meaning up when it
//! handles the key and not when it was sent:
//!
//! ```text
//!          bind           type            marker seen to be read
//!   free ───────▶ bound ───────▶ in flight ─────────────────────▶ bound, may be rebound
//!     ▲                              │ no sign in time
//!     └─────── idle: restored        └────────────▶ `Unverifiable`, nothing is rebound
//! ```
//!
//! The sign: after the burst the symbols of two more spare keycodes, the markers, are changed. Clients
//! handle key events and map changes in the order in which they were sent, so one that reads the map
//! once more than the changes before the markers can explain (`ReadLedger` counts that) has handled
//! all keys before them.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use x11rb::protocol::xproto::{ConnectionExt as _, ModMask, Window};
use xkeysym::key;

use super::injector::{Injector, KeyboardState, lost, unanswered};
use super::keyboard::{Keycode, Stroke, bits};
use super::keymap_watch::{KeymapWatch, MapRead};
use super::keysyms::Symbol;
use super::read_ledger::ReadLedger;
use crate::base::limits::{
    CANCEL_POLL_MS, KEYMAP_NUDGE_AFTER_MS, KEYMAP_QUIET_MS, KEYMAP_READ_TIMEOUT_MS,
    KEYMAP_RESTORE_AFTER_MS, TYPE_TEXT_LEN_MAX,
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
    markers: Option<[Keycode; 2]>,
    watch: Option<Watch>,
    last_used: Option<Instant>,
}

struct Watch {
    window: Window,
    /// `None` where nothing can be watched: the server does not let us, or no window takes the keys.
    recording: Option<KeymapWatch>,
    ledger: ReadLedger,
    markers_sent: usize,
    /// This client reads on the next key only, so a neutral one has to be tapped.
    nudge: bool,
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
        bound
            .map(|slot| slot.keycode)
            .chain(self.markers.into_iter().flatten())
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
        let mut bound = 0;
        for (nth, (index, symbol)) in free.into_iter().zip(wanted).enumerate() {
            let slot = &mut self.borrowed.slots[index];
            if nth > 0 && needed(slot) {
                break;
            }
            slot.symbol = Some(symbol);
            let keycode = slot.keycode;
            self.bind(keycode, symbol.keysym())?;
            bound += 1;
        }
        self.borrowed.last_used = Some(Instant::now());
        self.sync()?;
        if let Some(watch) = &mut self.borrowed.watch {
            watch.ledger.sent(bound);
        }
        self.catch_up(pause)
    }

    /// Takes stock of the spare keycodes: what others have bound since is no longer ours.
    fn find_slots(&mut self) -> Result<()> {
        let before = std::mem::take(&mut self.borrowed.slots);
        let markers = self.borrowed.markers.take();
        let keymap = self.keymap()?;
        let mut kept: Vec<Slot> = before
            .into_iter()
            .filter(|slot| {
                slot.symbol.is_some_and(|symbol| {
                    keymap.first_keysym(slot.keycode) == Some(symbol.keysym())
                })
            })
            .collect();
        let ours = |keycode: &Keycode| {
            keymap
                .first_keysym(*keycode)
                .is_none_or(|keysym| keysym == key::VoidSymbol)
        };
        let mut spare = keymap.spare_keycodes();
        let markers = markers.filter(|pair| pair.iter().all(ours));
        let markers = markers.or_else(|| Some([spare.first().copied()?, spare.last().copied()?]));
        spare.retain(|keycode| !markers.is_some_and(|pair| pair.contains(keycode)));
        kept.extend(spare.into_iter().map(|keycode| Slot {
            keycode,
            symbol: None,
            in_flight: false,
        }));
        let enough = markers.is_some_and(|[first, second]| first != second) && !kept.is_empty();
        self.borrowed.slots = kept;
        self.borrowed.markers = markers;
        if enough {
            return Ok(());
        }
        Err(PlatformError::InputFailed(
            "the layout lacks the symbol and leaves no keycode to borrow for it".into(),
        ))
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
        let recording = (window != self.root)
            .then(|| KeymapWatch::start(&self.connection, &self.display, window))
            .flatten();
        self.borrowed.watch = Some(Watch {
            window,
            recording,
            ledger: ReadLedger::default(),
            markers_sent: 0,
            nudge: false,
        });
        Ok(())
    }

    /// Takes in the reads that the changes so far cause, until all have come or none comes any more.
    fn catch_up(&mut self, pause: &mut Pause<'_>) -> Result<Flow> {
        let Some(mut watch) = self.borrowed.watch.take() else {
            return Ok(Flow::Go);
        };
        let quiet = Duration::from_millis(KEYMAP_QUIET_MS);
        let mut flow = Flow::Go;
        let mut last_read = Instant::now();
        while watch.expects_reads() && last_read.elapsed() < quiet && flow == Flow::Go {
            if let Some(read) = watch.next() {
                watch.ledger.note(read);
                last_read = Instant::now();
            }
            flow = pause(self, Duration::ZERO);
        }
        self.borrowed.watch = Some(watch);
        Ok(flow)
    }

    /// Waits until the client is known to have handled every key so far.
    fn settle(&mut self, pause: &mut Pause<'_>) -> Result<Flow> {
        let (Some(markers), Some(mut watch)) = (self.borrowed.markers, self.borrowed.watch.take())
        else {
            return Err(unverifiable());
        };
        let outcome = self.send_markers_until_read(markers, &mut watch, pause);
        self.borrowed.watch = Some(watch);
        if !matches!(outcome, Ok(Flow::Go)) {
            return outcome;
        }
        for slot in &mut self.borrowed.slots {
            slot.in_flight = false;
        }
        let flow = self.catch_up(pause)?;
        if let Some(watch) = &mut self.borrowed.watch {
            watch.ledger.forgive();
        }
        Ok(flow)
    }

    fn send_markers_until_read(
        &mut self,
        markers: [Keycode; 2],
        watch: &mut Watch,
        pause: &mut Pause<'_>,
    ) -> Result<Flow> {
        let deadline = Instant::now() + Duration::from_millis(KEYMAP_READ_TIMEOUT_MS);
        watch.ledger.await_markers();
        while Instant::now() < deadline {
            self.send_markers(markers, watch)?;
            let round = Instant::now() + Duration::from_millis(KEYMAP_NUDGE_AFTER_MS);
            let mut read_any = false;
            while Instant::now() < round.min(deadline) {
                if pause(self, Duration::ZERO) == Flow::Stop {
                    return Ok(Flow::Stop);
                }
                let Some(read) = watch.next() else { continue };
                if watch.ledger.note(read) {
                    return Ok(Flow::Go);
                }
                read_any = true;
                if watch.ledger.round_is_read() {
                    break;
                }
            }
            watch.nudge |= !read_any;
        }
        Err(unverifiable())
    }

    /// Changes the markers' symbols, from none to the void one or back.
    fn send_markers(&self, markers: [Keycode; 2], watch: &mut Watch) -> Result<()> {
        let keysym = if watch.markers_sent.is_multiple_of(2) {
            key::VoidSymbol
        } else {
            key::NoSymbol
        };
        for marker in markers {
            self.bind(marker, keysym)?;
        }
        watch.markers_sent += 1;
        watch.ledger.sent(markers.len());
        if watch.nudge {
            self.fake_key(markers[1], Press::Down)?;
            self.fake_key(markers[1], Press::Up)?;
        }
        self.flush()
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

impl Watch {
    /// The next read within one slice of time.
    fn next(&self) -> Option<MapRead> {
        let slice = Duration::from_millis(CANCEL_POLL_MS);
        match &self.recording {
            Some(recording) => recording.next(slice),
            None => {
                std::thread::sleep(slice);
                None
            }
        }
    }

    /// Whether it is worth waiting for reads of what was changed.
    fn expects_reads(&self) -> bool {
        self.recording.is_some() && !self.nudge && self.ledger.owes()
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
