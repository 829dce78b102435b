//! Feeding: cuts the bytes into pieces and applies each of them.

use std::cell::Cell;

use vte::ansi::{Handler, Processor, Timeout};

use super::damage::{Reach, Spot};
use super::dispatch::Dispatch;
use super::scan::{self, Scan, State};
use super::{Effect, Grid, osc, query};
use crate::base::limits::GRID_SEQUENCE_LEN_MAX;

/// The parser waits for the end of a synchronized update; this one never does, so that the state is
/// always that of the bytes.
#[derive(Default)]
struct Never;

impl Timeout for Never {
    fn set_timeout(&mut self, _: std::time::Duration) {}

    fn clear_timeout(&mut self) {}

    fn pending_timeout(&self) -> bool {
        false
    }
}

type Parser = Processor<Never>;

thread_local! {
    /// Between two sequences a parser has no state, so all grids of a thread share one: it reserves 2 MB.
    static PARSER: Cell<Option<Box<Parser>>> = const { Cell::new(None) };
}

/// Applies `bytes` from `at` on; see [`Feeder::run`].
pub(super) fn run(grid: &mut Grid, bytes: &[u8], at: &mut usize, effects: &mut Vec<Effect>) {
    // After a panic there is no parser here, and a fresh one takes its place.
    let mut parser = PARSER.take().unwrap_or_default();
    let mut feeder = Feeder {
        grid,
        parser: &mut parser,
        effects,
    };
    feeder.run(bytes, at);
    grid.engine.drain();
    PARSER.set(Some(parser));
}

/// One feed: cuts the bytes and hands out the pieces.
struct Feeder<'a> {
    grid: &'a mut Grid,
    parser: &'a mut Parser,
    effects: &'a mut Vec<Effect>,
}

impl Feeder<'_> {
    fn dispatch(&mut self) -> (Dispatch<'_>, &mut Parser, &mut osc::Notice) {
        let dispatch = Dispatch {
            engine: &mut self.grid.engine,
            options: &self.grid.options,
            effects: self.effects,
        };
        (dispatch, self.parser, &mut self.grid.notice)
    }

    /// Applies `bytes` from `at` on. `at` is past a piece before the piece is applied, so that a panic
    /// skips it.
    fn run(&mut self, bytes: &[u8], at: &mut usize) {
        while *at < bytes.len() {
            match self.grid.state {
                None if self.grid.pending.is_empty() => self.ground(bytes, at),
                None => self.character(bytes, at),
                Some(state) => self.sequence(state, bytes, at),
            }
        }
    }

    fn ground(&mut self, bytes: &[u8], at: &mut usize) {
        let rest = &bytes[*at..];
        match memchr::memchr(0x1b, rest) {
            Some(0) => {
                self.grid.state = Some(State::Escape);
                self.open(bytes, at);
            }
            Some(escape) => {
                *at += escape;
                self.plain(&rest[..escape]);
            }
            None => {
                *at = bytes.len();
                let whole = rest.len() - scan::unfinished_utf8(rest);
                self.grid.pending.extend_from_slice(&rest[whole..]);
                self.plain(&rest[..whole]);
            }
        }
    }

    /// A sequence that begins at `at`; nothing is copied when all of it is there.
    fn open(&mut self, bytes: &[u8], at: &mut usize) {
        let rest = &bytes[*at..];
        match scan::scan(State::Escape, &rest[1..]) {
            Scan::Complete(len) => {
                self.grid.state = None;
                *at += 1 + len;
                self.whole(&rest[..1 + len]);
            }
            Scan::Aborted(_) | Scan::Ended(_) | Scan::Open(_) => {
                self.grid.pending.push(0x1b);
                *at += 1;
                self.sequence(State::Escape, bytes, at);
            }
        }
    }

    /// Goes on with the sequence in `pending`.
    fn sequence(&mut self, state: State, bytes: &[u8], at: &mut usize) {
        let rest = &bytes[*at..];
        match scan::scan(state, rest) {
            Scan::Open(state) => {
                *at = bytes.len();
                self.grid.state = Some(state);
                self.keep(rest);
            }
            Scan::Complete(len) => {
                *at += len;
                self.grid.state = None;
                if let Some(sequence) = self.finished(&rest[..len]) {
                    self.whole(&sequence);
                }
            }
            Scan::Aborted(len) => {
                *at += len;
                self.grid.state = None;
                if let Some(mut sequence) = self.finished(&rest[..len]) {
                    // Control characters inside count; CAN brings the parser back to plain text.
                    sequence.push(0x18);
                    self.grid.damage.touch_all();
                    let (mut dispatch, parser, _) = self.dispatch();
                    parser.advance(&mut dispatch, &sequence);
                }
            }
            Scan::Ended(len) => {
                *at += len;
                let sequence = self.finished(&rest[..len]);
                self.grid.pending.push(0x1b);
                self.grid.state = Some(State::Escape);
                if let Some(mut sequence) = sequence {
                    sequence.push(b'\\');
                    self.whole(&sequence);
                }
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let grid = &mut *self.grid;
        if grid.discarding {
            return;
        }
        if grid.pending.len() + bytes.len() > GRID_SEQUENCE_LEN_MAX {
            grid.discarding = true;
            grid.pending = Vec::new();
            grid.uncounted = 0;
        } else {
            grid.pending.extend_from_slice(bytes);
        }
    }

    /// The pending sequence with its last bytes, unless it was too long.
    fn finished(&mut self, last: &[u8]) -> Option<Vec<u8>> {
        self.keep(last);
        self.grid.uncounted = 0;
        let sequence = std::mem::take(&mut self.grid.pending);
        (!std::mem::take(&mut self.grid.discarding)).then_some(sequence)
    }

    /// Goes on with the character in `pending`.
    fn character(&mut self, bytes: &[u8], at: &mut usize) {
        let byte = bytes[*at];
        self.grid.pending.push(byte);
        let error = std::str::from_utf8(&self.grid.pending).err();
        match error.map(|error| error.error_len()) {
            Some(None) => *at += 1,
            None => {
                *at += 1;
                self.grid.uncounted = 0;
                let character = std::mem::take(&mut self.grid.pending);
                self.plain(&character);
            }
            Some(Some(_)) => {
                // The byte does not belong to the character, which is broken.
                self.grid.pending.clear();
                self.grid.uncounted = 0;
                self.grid.damage.touch_all();
                self.dispatch().0.input(char::REPLACEMENT_CHARACTER);
            }
        }
    }

    fn plain(&mut self, bytes: &[u8]) {
        let before = Spot::of(&self.grid.engine);
        self.put(bytes);
        let Grid { engine, damage, .. } = &mut *self.grid;
        damage.text(bytes, before, engine);
    }

    fn put(&mut self, mut bytes: &[u8]) {
        // A character that an escape cuts short is broken.
        let cut = scan::unfinished_utf8(bytes);
        let (mut dispatch, parser, _) = self.dispatch();
        let whole = bytes.len() - cut;
        bytes = &bytes[..whole];
        while let Some(&first) = bytes.first() {
            let printable = |byte: &u8| (0x20..0x7f).contains(byte);
            let len = match first {
                0x20..0x7f => {
                    let len = bytes.iter().position(|byte| !printable(byte));
                    let len = len.unwrap_or(bytes.len());
                    dispatch.ascii(&bytes[..len]);
                    len
                }
                b'\n' | 0x0b | 0x0c => {
                    dispatch.line_break();
                    1
                }
                b'\r' => {
                    dispatch.carriage_return();
                    1
                }
                0x80.. => {
                    let len = bytes.iter().position(u8::is_ascii);
                    let len = len.unwrap_or(bytes.len());
                    for chunk in bytes[..len].utf8_chunks() {
                        dispatch.text(chunk.valid());
                        // Bytes that are controls in Latin 1 show nothing either.
                        if !matches!(chunk.invalid(), [] | [..=0x9f]) {
                            dispatch.input(char::REPLACEMENT_CHARACTER);
                        }
                    }
                    len
                }
                0x7f => 1,
                _ => {
                    parser.advance(&mut dispatch, &bytes[..1]);
                    1
                }
            };
            bytes = &bytes[len..];
        }
        if cut > 0 {
            dispatch.input(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Applies a sequence from its ESC to its end.
    fn whole(&mut self, sequence: &[u8]) {
        let before = Spot::of(&self.grid.engine);
        self.apply(sequence);
        let Grid { engine, damage, .. } = &mut *self.grid;
        damage.sequence(Reach::of(sequence), before, engine);
    }

    fn apply(&mut self, sequence: &[u8]) {
        let (mut dispatch, parser, notice) = self.dispatch();
        let last = sequence.last().copied().unwrap_or_default();
        let handled = match sequence.get(1) {
            Some(b'[') => query::control(&sequence[2..], &mut dispatch),
            Some(b'P' | b']' | b'X' | b'^' | b'_') if matches!(last, 0x18 | 0x1a) => true,
            Some(b']') => osc::dispatch(string_body(sequence), notice, &mut dispatch),
            Some(b'P') => {
                query::device_control(string_body(sequence), &mut dispatch);
                true
            }
            // Kitty graphics and private messages; a window manager's title is not among them.
            Some(b'X' | b'^' | b'_') => true,
            Some(&byte) if sequence.len() == 2 => query::escape(byte, &mut dispatch),
            _ => false,
        };
        if !handled {
            parser.advance(&mut dispatch, sequence);
        }
    }
}

/// What stands between introducer and terminator of a string.
fn string_body(sequence: &[u8]) -> &[u8] {
    let body = &sequence[2..];
    body.strip_suffix(b"\x1b\\")
        .or_else(|| body.strip_suffix(b"\x07"))
        .unwrap_or(body)
}
