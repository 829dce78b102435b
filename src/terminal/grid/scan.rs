//! Cuts a stream into plain text and whole escape sequences, with the grammar of `vte`.
//!
//! ```text
//! Ground --ESC--> Escape --[--> Csi --final--> (sequence)
//!                   |--]--> Osc --BEL, ESC, CAN, SUB--> (sequence)
//!                   |--P X ^ _--> String --ESC, CAN, SUB--> (sequence)
//!                   |--20..2f--> Intermediate --30..7e--> (sequence)
//!                   '--30..7e--> (sequence)
//! ```
//!
//! An ESC inside of any sequence ends it; behind a string the `\` of the terminator belongs to it.

/// Where in a sequence the bytes so far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Escape,
    Intermediate,
    Csi,
    Osc,
    /// DCS, SOS, PM and APC.
    Text,
    /// The ESC behind a string was seen.
    End,
}

/// What a byte does to a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    To(State),
    /// The sequence is complete with this byte.
    Done,
    /// This ESC cuts the sequence short and opens the next one.
    Abort,
    /// The string ended with the ESC before this byte, and that ESC opens another sequence.
    Ended,
}

fn step(state: State, byte: u8) -> Step {
    use State::{Csi, End, Escape, Intermediate, Osc, Text};
    match (state, byte) {
        (Osc | Text, 0x1b) => Step::To(End),
        (Escape, 0x1b) => Step::To(Escape),
        (End, b'\\') => Step::Done,
        (End, _) => Step::Ended,
        (Intermediate | Csi, 0x1b) => Step::Abort,
        (_, 0x18 | 0x1a) => Step::Done,
        (Escape, b'[') => Step::To(Csi),
        (Escape, b']') => Step::To(Osc),
        (Escape, b'P' | b'X' | b'^' | b'_') => Step::To(Text),
        (Escape | Intermediate, 0x20..=0x2f) => Step::To(Intermediate),
        (Escape | Intermediate, 0x30..=0x7e) => Step::Done,
        (Csi, 0x40..=0x7e) => Step::Done,
        (Osc, 0x07) => Step::Done,
        (state, _) => Step::To(state),
    }
}

/// A sequence's end among bytes that continue it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// It ends with the byte before this index.
    Complete(usize),
    /// It was cut short by the ESC at this index, which opens the next one.
    Aborted(usize),
    /// It is a string that ended with the ESC before this index, and that ESC opens the next one.
    Ended(usize),
    /// It goes on.
    Open(State),
}

/// Runs over bytes that follow those that led to `state`.
pub(super) fn scan(mut state: State, bytes: &[u8]) -> Scan {
    let mut at = 0;
    while at < bytes.len() {
        // Most bytes of a sequence leave the state as it is.
        let skip = match state {
            State::Osc | State::Text => bytes[at..]
                .iter()
                .position(|byte| matches!(byte, 0x07 | 0x18 | 0x1a | 0x1b)),
            State::Csi => bytes[at..]
                .iter()
                .position(|byte| matches!(byte, 0x40..=0x7e | 0x18 | 0x1a | 0x1b)),
            _ => Some(0),
        };
        match skip {
            Some(skip) => at += skip,
            None => return Scan::Open(state),
        }
        match step(state, bytes[at]) {
            Step::To(next) => state = next,
            Step::Done => return Scan::Complete(at + 1),
            Step::Abort => return Scan::Aborted(at),
            Step::Ended => return Scan::Ended(at),
        }
        at += 1;
    }
    Scan::Open(state)
}

/// The bytes at the end of `bytes` that may become a UTF-8 character with more bytes: 0 to 3.
pub(super) fn unfinished_utf8(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let need = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        if need <= back {
            return 0;
        }
        let tail = &bytes[bytes.len() - back..];
        let open = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
        return if open { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Scan {
        scan(State::Escape, &bytes[1..])
    }

    #[test]
    fn sequences_end_where_the_grammar_says() {
        assert_eq!(whole(b"\x1b[1;2mX"), Scan::Complete(5));
        assert_eq!(whole(b"\x1b(0X"), Scan::Complete(2));
        assert_eq!(whole(b"\x1bMX"), Scan::Complete(1));
        assert_eq!(whole(b"\x1b]0;a\x07X"), Scan::Complete(5));
        assert_eq!(whole(b"\x1b]0;a\x1b\\X"), Scan::Complete(6));
        assert_eq!(whole(b"\x1bPq\x07q\x1b\\"), Scan::Complete(6));
        assert_eq!(whole(b"\x1b[12\x18X"), Scan::Complete(4));
        assert_eq!(whole(b"\x1b[12\x1b[m"), Scan::Aborted(3));
        assert_eq!(whole(b"\x1b]0;a\x1b[m"), Scan::Ended(5));
        assert_eq!(whole(b"\x1b]0;a\x1b"), Scan::Open(State::End));
        assert_eq!(whole(b"\x1b[3"), Scan::Open(State::Csi));
        assert_eq!(whole(b"\x1b\x1b\x1b[m"), Scan::Complete(4));
    }

    #[test]
    fn only_characters_that_can_be_finished_are_held_back() {
        assert_eq!(unfinished_utf8("aé".as_bytes()), 0);
        assert_eq!(unfinished_utf8(b"a\xc3"), 1);
        assert_eq!(unfinished_utf8(b"\xe4\xb8"), 2);
        assert_eq!(unfinished_utf8(b"\xf0\x9f\x98"), 3);
        assert_eq!(unfinished_utf8(b"\xed\xa0"), 0);
        assert_eq!(unfinished_utf8(b"\x80\x80\x80\x80"), 0);
        assert_eq!(unfinished_utf8(b"\xff"), 0);
    }
}
