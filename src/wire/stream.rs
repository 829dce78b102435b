//! A stream of pieces in both directions that an answer opens, as `session.attach` does.
//!
//! ```text
//! Data frame body:   0     1
//!                    |kind | bytes …      kind 0 bytes, 1 control JSON, 2 snapshot, 3 screen
//! ```
//!
//! A wire cuts pieces that are longer than a frame into several of the same kind; it never joins
//! control pieces. Both directions are bounded: whoever sends waits while the other side does not read.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::base::limits;

/// What a piece carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PieceKind {
    /// Terminal bytes, unchanged and in order.
    Bytes = 0,
    /// One whole JSON object.
    Control = 1,
    /// A part of the escape sequences that rebuild a screen at the start.
    Snapshot = 2,
    /// A part of the escape sequences that replace the screen of a console that fell behind.
    Screen = 3,
}

impl PieceKind {
    /// Whether a console that acknowledges counts its bytes: what follows the program does.
    pub fn is_acknowledged(self) -> bool {
        matches!(self, Self::Bytes | Self::Screen)
    }

    /// The kind byte of a frame; `None` for one that this version does not know.
    pub fn of_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Bytes),
            1 => Some(Self::Control),
            2 => Some(Self::Snapshot),
            3 => Some(Self::Screen),
            _ => None,
        }
    }
}

/// One unit of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    pub kind: PieceKind,
    pub body: Bytes,
}

impl Piece {
    pub fn new(kind: PieceKind, body: impl Into<Bytes>) -> Self {
        Self {
            kind,
            body: body.into(),
        }
    }
}

/// One end of a stream; it ends for the other side when its sender is dropped.
#[derive(Debug)]
pub struct StreamEnd {
    pub send: mpsc::Sender<Piece>,
    pub recv: mpsc::Receiver<Piece>,
}

impl StreamEnd {
    /// The two ends of a new stream.
    pub fn pair() -> (Self, Self) {
        let (left_send, right_recv) = mpsc::channel(limits::STREAM_PIECES_MAX);
        let (right_send, left_recv) = mpsc::channel(limits::STREAM_PIECES_MAX);
        let end = |send, recv| Self { send, recv };
        (end(left_send, left_recv), end(right_send, right_recv))
    }
}
