//! Protocol 1 between an agent and the holder of a session, over a local stream.
//!
//! ```text
//! 0            4      5
//! | length u32 | kind | body (length bytes, at most HOLDER_FRAME_LEN_MAX) |    numbers little-endian
//!
//! agent → holder                               holder → agent
//!  1 hello       protocol u16                   65 hello    protocol u16, child u32, cols u16, rows u16,
//!  2 subscribe   offset u64, mark u64                       first u64, next u64, mark u64, screen_len u64,
//!  3 input       bytes                                      checkpoint: offset u64, mark u64, exit, answered u64
//!  4 resize      cols u16, rows u16             66 output   offset u64, bytes
//!  5 checkpoint  offset u64, mark u64,          67 resized  offset u64, mark u64, cols u16, rows u16
//!      begin     screen_len u64, keep_from u64  68 exit     offset u64, exit
//!  6 screen part bytes                          69 checkpoint begin  offset u64, mark u64, screen_len u64
//!  7 block       id u64, bytes                  70 screen part       bytes
//!  8 commit                                     71 block             id u64, bytes
//!  9 fetch       from u64, length u32           72 checkpoint end
//! 10 fetch checkpoint                           73 stored   offset u64, mark u64
//! 11 stat                                       74 fetched  from u64, last u8, bytes
//! 12 kill                                       75 stat     see `Stat`
//! 13 forget                                     76 killed   asked u32, forced u32
//!                                               77 error    code u16, text
//! 14 reply       answered u64, bytes              78 taken    input u64
//! 15 watch       protocol u16
//! exit: tag u8 (0 runs, 1 code, 2 signal), value i32
//! ```
//!
//! The first frame of each side is its hello, whose protocol number stands first in every version. Where the
//! system can pass descriptors, the holder's hello carries the terminal: an agent may then write input into
//! it itself, and does while no input of this connection waits in the holder, which `taken` tells. A
//! connection whose first frame is `watch` is answered nothing, and told little output and changes of size
//! as they come (kinds 66 and 67), with gaps. Kinds that are not known are skipped. A `mark` numbers the
//! changes of size, so that a checkpoint says which of several changes at one offset it contains; 0 is none.

use crate::base::limits::{HOLDER_CHUNK_LEN, HOLDER_FRAME_LEN_MAX};
use crate::platform::pty::{ProcessExit, PtySize, Waiting};

/// The version that this build speaks.
pub const PROTOCOL: u16 = 1;
/// The kind of frame that concerns an agent's writers alone.
const TAKEN: u8 = 78;
/// Length and kind.
pub const HEADER_LEN: usize = 5;
/// The header of an output frame, offset included.
pub const OUTPUT_HEADER_LEN: usize = HEADER_LEN + 8;
/// Bytes of a screen in one frame.
pub const PART_LEN: usize = HOLDER_CHUNK_LEN;
/// The largest block of history.
pub const BLOCK_LEN_MAX: usize = HOLDER_FRAME_LEN_MAX - 8;

/// A place in a session's stream of output and changes of size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Position {
    /// Bytes of output before it.
    pub offset: u64,
    /// The last change of size before it; 0 is none.
    pub mark: u64,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("a frame of {length} bytes is longer than {HOLDER_FRAME_LEN_MAX}")]
    TooLong { length: usize },
    #[error("a frame of kind {kind} ends or goes on where it should not, at byte {at} of its body")]
    Malformed { kind: u8, at: usize },
}

/// What a holder cannot do, by its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// The terminal has not taken the input before; nothing of this one was accepted.
    InputQueueFull,
    /// Too many requests of this kind wait, or changes of size without a checkpoint.
    Busy,
    /// The checkpoint is refused; the former one stays.
    CheckpointInvalid,
    /// `forget` while the program runs.
    StillRunning,
    /// The operating system refused it.
    Failed,
    Other(u16),
}

impl ErrorCode {
    const fn number(self) -> u16 {
        match self {
            Self::InputQueueFull => 1,
            Self::Busy => 2,
            Self::CheckpointInvalid => 3,
            Self::StillRunning => 4,
            Self::Failed => 5,
            Self::Other(number) => number,
        }
    }

    const fn of(number: u16) -> Self {
        match number {
            1 => Self::InputQueueFull,
            2 => Self::Busy,
            3 => Self::CheckpointInvalid,
            4 => Self::StillRunning,
            5 => Self::Failed,
            other => Self::Other(other),
        }
    }
}

/// A frame from the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToHolder<'a> {
    Hello {
        protocol: u16,
    },
    /// Send everything from here on, as it comes.
    Subscribe(Position),
    Input(&'a [u8]),
    /// Answers of the terminal to queries, which all stand before `answered`. A later agent, which
    /// feeds the same output again, gives no second answer.
    Reply {
        answered: u64,
        bytes: &'a [u8],
    },
    Resize(PtySize),
    CheckpointBegin {
        at: Position,
        screen_len: u64,
        /// Blocks of history with smaller ids go with the commit.
        keep_from: u64,
    },
    CheckpointScreen(&'a [u8]),
    CheckpointBlock {
        id: u64,
        bytes: &'a [u8],
    },
    CheckpointCommit,
    Fetch {
        from: u64,
        length: u32,
    },
    FetchCheckpoint,
    Stat,
    Kill,
    Forget,
    /// The first frame of a connection that wants to see small output at once and nothing else.
    Watch {
        protocol: u16,
    },
    /// A kind of another version; it is skipped.
    Unknown(u8),
}

/// The holder's first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub child: u32,
    pub size: PtySize,
    /// The oldest offset that can be had.
    pub first: u64,
    /// The end of the stream so far.
    pub next: Position,
    /// Where the last checkpoint was made; offset 0, mark 0 and no screen when there is none.
    pub checkpoint: Position,
    pub screen_len: u64,
    pub exit: Option<ProcessExit>,
    /// Queries before this offset have been answered.
    pub answered: u64,
}

/// The state of a session's terminal and program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub child: u32,
    /// The process group in the foreground.
    pub foreground: Option<u32>,
    /// What the process in the foreground waits for; a holder may see what an agent may not.
    pub waiting: Waiting,
    pub echo: Option<bool>,
    pub canonical: Option<bool>,
    pub size: PtySize,
    pub first: u64,
    /// The end of the stream, and so all bytes of output so far.
    pub next: Position,
    pub checkpoint: Position,
    /// Input that the terminal has not taken yet, in bytes.
    pub input_pending: u32,
}

/// A frame from the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromHolder<'a> {
    Hello(Hello),
    /// A holder that speaks another protocol.
    Incompatible {
        protocol: u16,
    },
    Output {
        offset: u64,
        bytes: &'a [u8],
    },
    /// The terminal has this size from here on.
    Resized {
        at: Position,
        size: PtySize,
    },
    /// The program has ended and all its output was sent.
    Exit {
        offset: u64,
        exit: ProcessExit,
    },
    CheckpointBegin {
        at: Position,
        screen_len: u64,
    },
    CheckpointScreen(&'a [u8]),
    CheckpointBlock {
        id: u64,
        bytes: &'a [u8],
    },
    CheckpointEnd,
    /// The checkpoint made there has replaced the former one.
    Stored(Position),
    /// A part of what was asked for; less than all of it when the rest is gone or has not come.
    Fetched {
        from: u64,
        last: bool,
        bytes: &'a [u8],
    },
    Stat(Stat),
    /// A kill is done: groups that were asked to end, processes that were killed.
    Killed {
        asked: u32,
        forced: u32,
    },
    Error {
        code: ErrorCode,
        text: &'a str,
    },
    /// No input waits here: of this connection, so many bytes of input and replies came and went.
    Taken(u64),
    /// A kind of another version; it is skipped.
    Unknown(u8),
}

/// One frame's kind and body, cut out of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    pub kind: u8,
    pub body: &'a [u8],
}

/// How long the frame at the start of `bytes` is; `None` while its header is not whole.
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
    let Some(length) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > HOLDER_FRAME_LEN_MAX {
        return Err(ProtocolError::TooLong { length });
    }
    Ok(Some(HEADER_LEN + length))
}

/// The frame at the start of `bytes`; `None` while it is not whole.
pub fn cut(bytes: &[u8]) -> Result<Option<Raw<'_>>, ProtocolError> {
    let Some(length) = frame_len(bytes)? else {
        return Ok(None);
    };
    Ok(bytes.get(..length).and_then(|frame| {
        let (header, body) = frame.split_at_checked(HEADER_LEN)?;
        Some(Raw {
            kind: *header.last()?,
            body,
        })
    }))
}

/// Reads the numbers of a body.
struct Body<'a> {
    kind: u8,
    at: usize,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    const fn new(raw: Raw<'a>) -> Self {
        Self {
            kind: raw.kind,
            at: 0,
            rest: raw.body,
        }
    }

    const fn malformed(&self) -> ProtocolError {
        ProtocolError::Malformed {
            kind: self.kind,
            at: self.at,
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(self.malformed())?;
        self.at += N;
        self.rest = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, ProtocolError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, ProtocolError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, ProtocolError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ProtocolError> {
        self.take().map(u64::from_le_bytes)
    }

    fn position(&mut self) -> Result<Position, ProtocolError> {
        Ok(Position {
            offset: self.u64()?,
            mark: self.u64()?,
        })
    }

    fn size(&mut self) -> Result<PtySize, ProtocolError> {
        Ok(PtySize {
            cols: self.u16()?,
            rows: self.u16()?,
        })
    }

    fn exit(&mut self) -> Result<Option<ProcessExit>, ProtocolError> {
        let tag = self.u8()?;
        let value = self.take().map(i32::from_le_bytes)?;
        match tag {
            0 if value == 0 => Ok(None),
            1 => Ok(Some(ProcessExit::Code(value))),
            2 => Ok(Some(ProcessExit::Signal(value))),
            _ => Err(self.malformed()),
        }
    }

    /// 0 no, 1 yes, 2 unknown.
    fn maybe(&mut self) -> Result<Option<bool>, ProtocolError> {
        match self.u8()? {
            0 => Ok(Some(false)),
            1 => Ok(Some(true)),
            2 => Ok(None),
            _ => Err(self.malformed()),
        }
    }

    fn bytes(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Nothing may be left over.
    fn done<T>(self, value: T) -> Result<T, ProtocolError> {
        if self.rest.is_empty() {
            Ok(value)
        } else {
            Err(self.malformed())
        }
    }
}

const WAITING: [Waiting; 7] = [
    Waiting::Unknown,
    Waiting::Running,
    Waiting::TerminalRead,
    Waiting::Events,
    Waiting::Children,
    Waiting::Other,
    Waiting::Stopped,
];

/// Reads a frame of the agent's.
pub fn to_holder(raw: Raw<'_>) -> Result<ToHolder<'_>, ProtocolError> {
    let mut body = Body::new(raw);
    let frame = match raw.kind {
        1 => {
            let protocol = body.u16()?;
            // A later version may say more.
            body.bytes();
            ToHolder::Hello { protocol }
        }
        2 => ToHolder::Subscribe(body.position()?),
        3 => ToHolder::Input(body.bytes()),
        4 => ToHolder::Resize(body.size()?),
        5 => ToHolder::CheckpointBegin {
            at: body.position()?,
            screen_len: body.u64()?,
            keep_from: body.u64()?,
        },
        6 => ToHolder::CheckpointScreen(body.bytes()),
        7 => ToHolder::CheckpointBlock {
            id: body.u64()?,
            bytes: body.bytes(),
        },
        8 => ToHolder::CheckpointCommit,
        9 => ToHolder::Fetch {
            from: body.u64()?,
            length: body.u32()?,
        },
        10 => ToHolder::FetchCheckpoint,
        11 => ToHolder::Stat,
        12 => ToHolder::Kill,
        13 => ToHolder::Forget,
        14 => ToHolder::Reply {
            answered: body.u64()?,
            bytes: body.bytes(),
        },
        15 => {
            let protocol = body.u16()?;
            body.bytes();
            ToHolder::Watch { protocol }
        }
        other => {
            body.bytes();
            ToHolder::Unknown(other)
        }
    };
    body.done(frame)
}

/// Reads a frame of the holder's.
pub fn from_holder(raw: Raw<'_>) -> Result<FromHolder<'_>, ProtocolError> {
    let mut body = Body::new(raw);
    let frame = match raw.kind {
        65 => hello(&mut body)?,
        66 => FromHolder::Output {
            offset: body.u64()?,
            bytes: body.bytes(),
        },
        67 => FromHolder::Resized {
            at: body.position()?,
            size: body.size()?,
        },
        68 => FromHolder::Exit {
            offset: body.u64()?,
            exit: body.exit()?.ok_or(body.malformed())?,
        },
        69 => FromHolder::CheckpointBegin {
            at: body.position()?,
            screen_len: body.u64()?,
        },
        70 => FromHolder::CheckpointScreen(body.bytes()),
        71 => FromHolder::CheckpointBlock {
            id: body.u64()?,
            bytes: body.bytes(),
        },
        72 => FromHolder::CheckpointEnd,
        73 => FromHolder::Stored(body.position()?),
        74 => FromHolder::Fetched {
            from: body.u64()?,
            last: body.maybe()?.ok_or(body.malformed())?,
            bytes: body.bytes(),
        },
        75 => FromHolder::Stat(stat(&mut body)?),
        76 => FromHolder::Killed {
            asked: body.u32()?,
            forced: body.u32()?,
        },
        77 => FromHolder::Error {
            code: ErrorCode::of(body.u16()?),
            text: std::str::from_utf8(body.bytes()).map_err(|_| body.malformed())?,
        },
        TAKEN => FromHolder::Taken(body.u64()?),
        other => {
            body.bytes();
            FromHolder::Unknown(other)
        }
    };
    body.done(frame)
}

/// What a frame of kind `taken` says; `None` for others.
pub fn taken(raw: Raw<'_>) -> Option<u64> {
    if raw.kind != TAKEN {
        return None;
    }
    match from_holder(raw) {
        Ok(FromHolder::Taken(input)) => Some(input),
        // The reader finds the same error and says it.
        _ => None,
    }
}

fn hello<'a>(body: &mut Body<'_>) -> Result<FromHolder<'a>, ProtocolError> {
    let protocol = body.u16()?;
    if protocol != PROTOCOL {
        body.bytes();
        return Ok(FromHolder::Incompatible { protocol });
    }
    let child = body.u32()?;
    let size = body.size()?;
    let first = body.u64()?;
    let next = body.position()?;
    let screen_len = body.u64()?;
    Ok(FromHolder::Hello(Hello {
        child,
        size,
        first,
        next,
        screen_len,
        checkpoint: body.position()?,
        exit: body.exit()?,
        answered: body.u64()?,
    }))
}

fn stat(body: &mut Body<'_>) -> Result<Stat, ProtocolError> {
    Ok(Stat {
        child: body.u32()?,
        foreground: Some(body.u32()?).filter(|group| *group != 0),
        waiting: *WAITING
            .get(usize::from(body.u8()?))
            .ok_or(body.malformed())?,
        echo: body.maybe()?,
        canonical: body.maybe()?,
        size: body.size()?,
        first: body.u64()?,
        next: body.position()?,
        checkpoint: body.position()?,
        input_pending: body.u32()?,
    })
}

/// Appends frames to a buffer.
struct Put<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> Put<'b> {
    fn new(out: &'b mut Vec<u8>, kind: u8) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, kind]);
        Self { out, start }
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        self
    }

    fn u16(self, number: u16) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn u32(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn u64(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn position(self, at: Position) -> Self {
        self.u64(at.offset).u64(at.mark)
    }

    fn size(self, size: PtySize) -> Self {
        self.u16(size.cols).u16(size.rows)
    }

    fn exit(self, exit: Option<ProcessExit>) -> Self {
        let (tag, value) = match exit {
            None => (0, 0),
            Some(ProcessExit::Code(code)) => (1, code),
            Some(ProcessExit::Signal(signal)) => (2, signal),
        };
        self.bytes(&[tag]).bytes(&value.to_le_bytes())
    }

    fn maybe(self, value: Option<bool>) -> Self {
        self.bytes(&[value.map_or(2, u8::from)])
    }
}

impl Drop for Put<'_> {
    fn drop(&mut self) {
        let length = self.out.len() - self.start - HEADER_LEN;
        // INVARIANT: callers put no more than HOLDER_FRAME_LEN_MAX into one frame.
        debug_assert!(length <= HOLDER_FRAME_LEN_MAX);
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        if let Some(place) = self.out.get_mut(self.start..self.start + 4) {
            place.copy_from_slice(&length);
        }
    }
}

impl ToHolder<'_> {
    /// Appends the frame.
    pub fn put(&self, out: &mut Vec<u8>) {
        let put = |out, kind| Put::new(out, kind);
        match *self {
            Self::Hello { protocol } => drop(put(out, 1).u16(protocol)),
            Self::Subscribe(from) => drop(put(out, 2).position(from)),
            Self::Input(bytes) => drop(put(out, 3).bytes(bytes)),
            Self::Reply { answered, bytes } => drop(put(out, 14).u64(answered).bytes(bytes)),
            Self::Resize(size) => drop(put(out, 4).size(size)),
            Self::CheckpointBegin {
                at,
                screen_len,
                keep_from,
            } => drop(put(out, 5).position(at).u64(screen_len).u64(keep_from)),
            Self::CheckpointScreen(bytes) => drop(put(out, 6).bytes(bytes)),
            Self::CheckpointBlock { id, bytes } => drop(put(out, 7).u64(id).bytes(bytes)),
            Self::CheckpointCommit => drop(put(out, 8)),
            Self::Fetch { from, length } => drop(put(out, 9).u64(from).u32(length)),
            Self::FetchCheckpoint => drop(put(out, 10)),
            Self::Stat => drop(put(out, 11)),
            Self::Kill => drop(put(out, 12)),
            Self::Forget => drop(put(out, 13)),
            Self::Watch { protocol } => drop(put(out, 15).u16(protocol)),
            Self::Unknown(kind) => drop(put(out, kind)),
        }
    }
}

impl FromHolder<'_> {
    /// Appends the frame.
    pub fn put(&self, out: &mut Vec<u8>) {
        let put = |out, kind| Put::new(out, kind);
        match *self {
            Self::Hello(ref hello) => put_hello(hello, out),
            Self::Incompatible { protocol } => drop(put(out, 65).u16(protocol)),
            Self::Output { offset, bytes } => drop(put(out, 66).u64(offset).bytes(bytes)),
            Self::Resized { at, size } => drop(put(out, 67).position(at).size(size)),
            Self::Exit { offset, exit } => drop(put(out, 68).u64(offset).exit(Some(exit))),
            Self::CheckpointBegin { at, screen_len } => {
                drop(put(out, 69).position(at).u64(screen_len));
            }
            Self::CheckpointScreen(bytes) => drop(put(out, 70).bytes(bytes)),
            Self::CheckpointBlock { id, bytes } => drop(put(out, 71).u64(id).bytes(bytes)),
            Self::CheckpointEnd => drop(put(out, 72)),
            Self::Stored(at) => drop(put(out, 73).position(at)),
            Self::Fetched { from, last, bytes } => {
                drop(put(out, 74).u64(from).maybe(Some(last)).bytes(bytes));
            }
            Self::Stat(ref stat) => put_stat(stat, out),
            Self::Killed { asked, forced } => drop(put(out, 76).u32(asked).u32(forced)),
            Self::Error { code, text } => {
                drop(put(out, 77).u16(code.number()).bytes(text.as_bytes()));
            }
            Self::Taken(input) => drop(put(out, TAKEN).u64(input)),
            Self::Unknown(kind) => drop(put(out, kind)),
        }
    }
}

fn put_hello(hello: &Hello, out: &mut Vec<u8>) {
    Put::new(out, 65)
        .u16(PROTOCOL)
        .u32(hello.child)
        .size(hello.size)
        .u64(hello.first)
        .position(hello.next)
        .u64(hello.screen_len)
        .position(hello.checkpoint)
        .exit(hello.exit)
        .u64(hello.answered);
}

fn put_stat(stat: &Stat, out: &mut Vec<u8>) {
    let waiting = WAITING.iter().position(|one| *one == stat.waiting);
    Put::new(out, 75)
        .u32(stat.child)
        .u32(stat.foreground.unwrap_or(0))
        .bytes(&[waiting.and_then(|at| u8::try_from(at).ok()).unwrap_or(0)])
        .maybe(stat.echo)
        .maybe(stat.canonical)
        .size(stat.size)
        .u64(stat.first)
        .position(stat.next)
        .position(stat.checkpoint)
        .u32(stat.input_pending);
}

/// The header of an output frame whose bytes are sent from where they lie.
pub fn output_header(offset: u64, length: usize) -> [u8; OUTPUT_HEADER_LEN] {
    // INVARIANT: a piece is never longer than HOLDER_CHUNK_LEN.
    let body = u32::try_from(length + 8).unwrap_or(u32::MAX);
    let mut header = [0; OUTPUT_HEADER_LEN];
    header[..4].copy_from_slice(&body.to_le_bytes());
    header[4] = 66;
    header[5..].copy_from_slice(&offset.to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_not_read_before_it_is_whole() {
        let mut bytes = Vec::new();
        ToHolder::Fetch { from: 7, length: 9 }.put(&mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(cut(&bytes[..length]), Ok(None));
        }
        let raw = cut(&bytes).unwrap().unwrap();
        assert_eq!(to_holder(raw), Ok(ToHolder::Fetch { from: 7, length: 9 }));
    }

    #[test]
    fn a_long_length_is_refused_from_its_first_bytes() {
        let length = HOLDER_FRAME_LEN_MAX + 1;
        let bytes = u32::try_from(length).unwrap().to_le_bytes();
        assert_eq!(cut(&bytes), Err(ProtocolError::TooLong { length }));
    }

    #[test]
    fn short_and_long_bodies_are_malformed_and_unknown_kinds_are_not() {
        let short = Raw {
            kind: 4,
            body: &[1, 0, 2],
        };
        assert_eq!(
            to_holder(short),
            Err(ProtocolError::Malformed { kind: 4, at: 2 })
        );
        let long = Raw {
            kind: 8,
            body: &[0],
        };
        assert_eq!(
            to_holder(long),
            Err(ProtocolError::Malformed { kind: 8, at: 0 })
        );
        let unknown = Raw {
            kind: 200,
            body: &[1, 2, 3],
        };
        assert_eq!(to_holder(unknown), Ok(ToHolder::Unknown(200)));
        assert_eq!(from_holder(unknown), Ok(FromHolder::Unknown(200)));
    }

    #[test]
    fn hello_of_another_version_is_understood_whatever_follows() {
        let raw = Raw {
            kind: 65,
            body: &[9, 0, 1, 2, 3],
        };
        assert_eq!(
            from_holder(raw),
            Ok(FromHolder::Incompatible { protocol: 9 })
        );
    }

    #[test]
    fn the_header_of_output_is_that_of_the_whole_frame() {
        let mut frame = Vec::new();
        FromHolder::Output {
            offset: 5,
            bytes: b"abc",
        }
        .put(&mut frame);
        let (header, bytes) = frame.split_at(OUTPUT_HEADER_LEN);
        assert_eq!((header, bytes), (&output_header(5, 3)[..], &b"abc"[..]));
    }
}
