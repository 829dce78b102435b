//! The agent link's frame: a 16-byte header and a body. No I/O.
//!
//! ```text
//!  0        4        8   9      12       16
//!  | length | seq    |typ| pad  |reserved| body …
//!    u32 LE   u32 LE  u8   3 B    u32 LE    `length` bytes
//! ```
//!
//! `typ` is 1 Request, 2 Response, 3 Notify, 4 Error, and from protocol 2 on 5 Data. The body of 1 to
//! 4 is UTF-8 JSON of at most 16 MiB; that of 5 is a kind byte and at most 32 KiB, and `reserved` is
//! its channel. `pad` is written 0 and ignored. (Protocols page, section 1.)

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::codes::{Code, Fault};
use crate::base::limits;

/// Bytes before the body.
pub const HEADER_LEN: usize = 16;

/// Room kept for a reading; a reader may fill less or more.
const READ_LEN: usize = 16 * 1024;

/// Which rules a link follows; it never changes on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// Byte-compatible with the first generation: no Data frames, no cursors, no TLS.
    V1,
    V2,
}

impl Protocol {
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameType {
    Request,
    Response,
    Notify,
    Error,
    Data,
}

impl FrameType {
    pub const fn byte(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
            Self::Notify => 3,
            Self::Error => 4,
            Self::Data => 5,
        }
    }

    const fn parse(byte: u8, protocol: Protocol) -> Option<Self> {
        match (byte, protocol) {
            (1, _) => Some(Self::Request),
            (2, _) => Some(Self::Response),
            (3, _) => Some(Self::Notify),
            (4, _) => Some(Self::Error),
            (5, Protocol::V2) => Some(Self::Data),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub frame_type: FrameType,
    pub sequence: u32,
    /// The channel of a Data frame; 0 elsewhere.
    pub channel: u32,
    pub body: Bytes,
}

impl Frame {
    /// A frame outside of any channel.
    pub fn new(frame_type: FrameType, sequence: u32, body: impl Into<Bytes>) -> Self {
        Self {
            frame_type,
            sequence,
            channel: 0,
            body: body.into(),
        }
    }

    /// Appends header and body to `out`.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), FrameError> {
        let max = body_len_max(self.frame_type, limits::LINK_BODY_LEN_MAX);
        if self.body.len() > max {
            return Err(FrameError::TooLarge {
                offset: 0,
                length: self.body.len() as u64,
                max,
            });
        }
        out.reserve(HEADER_LEN + self.body.len());
        put_header(
            self.frame_type,
            self.sequence,
            self.channel,
            self.body.len(),
            out,
        );
        out.put_slice(&self.body);
        Ok(())
    }
}

/// Appends a Data frame: its kind byte and `body`, together at most `limits::LINK_DATA_LEN_MAX`.
pub fn put_data(
    channel: u32,
    sequence: u32,
    kind: u8,
    body: &[u8],
    out: &mut BytesMut,
) -> Result<(), FrameError> {
    let length = body.len() + 1;
    if length > limits::LINK_DATA_LEN_MAX {
        return Err(FrameError::TooLarge {
            offset: 0,
            length: length as u64,
            max: limits::LINK_DATA_LEN_MAX,
        });
    }
    out.reserve(HEADER_LEN + length);
    put_header(FrameType::Data, sequence, channel, length, out);
    out.put_u8(kind);
    out.put_slice(body);
    Ok(())
}

/// `length` was compared with a limit that is far below `u32::MAX`.
fn put_header(
    frame_type: FrameType,
    sequence: u32,
    channel: u32,
    length: usize,
    out: &mut BytesMut,
) {
    out.put_u32_le(length as u32);
    out.put_u32_le(sequence);
    out.put_u8(frame_type.byte());
    out.put_bytes(0, 3);
    out.put_u32_le(channel);
}

/// Why bytes are no frame; `offset` counts from the first byte of the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame at byte {offset} has {length} bytes, at most {max} are allowed")]
    TooLarge {
        offset: u64,
        length: u64,
        max: usize,
    },
    #[error("frame header at byte {offset} has type {found}, which this protocol does not know")]
    UnknownType { offset: u64, found: u8 },
    /// The connection ended inside a frame.
    #[error("connection ended inside a frame: {have} of {need} bytes from byte {offset} on")]
    Truncated {
        offset: u64,
        have: usize,
        need: usize,
    },
}

impl FrameError {
    pub fn code(&self) -> Code {
        match self {
            Self::TooLarge { .. } => Code::FrameTooLarge,
            Self::UnknownType { .. } | Self::Truncated { .. } => Code::FrameInvalid,
        }
    }
}

impl From<FrameError> for Fault {
    fn from(error: FrameError) -> Self {
        Fault::new(error.code(), error.to_string())
    }
}

fn body_len_max(frame_type: FrameType, json_max: usize) -> usize {
    match frame_type {
        FrameType::Data => limits::LINK_DATA_LEN_MAX.min(json_max),
        _ => json_max,
    }
}

/// Turns bytes, however they are cut, into frames.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    /// Connection bytes before `buffer`.
    offset: u64,
    protocol: Protocol,
    body_len_max: usize,
}

impl Decoder {
    /// A decoder that allows bodies of up to `body_len_max` bytes.
    pub fn new(protocol: Protocol, body_len_max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            offset: 0,
            protocol,
            body_len_max: body_len_max.min(limits::LINK_BODY_LEN_MAX),
        }
    }

    /// Allows bodies up to the protocol's own limit, once the peer is known.
    pub fn lift_limit(&mut self) {
        self.body_len_max = limits::LINK_BODY_LEN_MAX;
    }

    /// Where a reader puts the next bytes; there is room for a good many.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.buffer.reserve(READ_LEN);
        &mut self.buffer
    }

    /// The next whole frame, if it has arrived. A header is judged before its body is awaited.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(header) = self.buffer.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let mut fields = &header[..];
        let length = fields.get_u32_le();
        let sequence = fields.get_u32_le();
        let type_byte = fields.get_u8();
        fields.advance(3);
        let channel = fields.get_u32_le();
        let frame_type =
            FrameType::parse(type_byte, self.protocol).ok_or(FrameError::UnknownType {
                offset: self.offset + 8,
                found: type_byte,
            })?;
        let max = body_len_max(frame_type, self.body_len_max);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > max {
            return Err(FrameError::TooLarge {
                offset: self.offset,
                length: length as u64,
                max,
            });
        }
        if self.buffer.len() < HEADER_LEN + length {
            return Ok(None);
        }
        self.buffer.advance(HEADER_LEN);
        let body = self.buffer.split_to(length).freeze();
        self.offset += (HEADER_LEN + length) as u64;
        let channel = match frame_type {
            FrameType::Data => channel,
            _ => 0,
        };
        Ok(Some(Frame {
            frame_type,
            sequence,
            channel,
            body,
        }))
    }

    /// Call at the end of the connection: an error when it ended inside a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        let have = self.buffer.len();
        if have == 0 {
            return Ok(());
        }
        let need = match self.buffer.first_chunk::<4>() {
            Some(length) => HEADER_LEN + u32::from_le_bytes(*length) as usize,
            None => HEADER_LEN,
        };
        Err(FrameError::Truncated {
            offset: self.offset,
            have,
            need,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(frame: &Frame) -> BytesMut {
        let mut out = BytesMut::new();
        frame.encode(&mut out).unwrap();
        out
    }

    fn decoder() -> Decoder {
        Decoder::new(Protocol::V2, limits::LINK_BODY_LEN_MAX)
    }

    #[test]
    fn heartbeat_has_the_header_of_the_specification() {
        let frame = Frame::new(FrameType::Notify, 0, &b"{\"type\":\"agent.heartbeat\"}"[..]);
        let bytes = encoded(&frame);
        assert_eq!(
            data_encoding::HEXLOWER.encode(&bytes[..16]),
            "1a000000000000000300000000000000"
        );
        let mut decoder = decoder();
        decoder.buffer().extend_from_slice(&bytes);
        assert_eq!(decoder.next_frame(), Ok(Some(frame)));
        assert_eq!(decoder.finish(), Ok(()));
    }

    #[test]
    fn oversize_is_judged_by_its_header_with_its_offset() {
        let mut decoder = decoder();
        decoder.buffer().extend_from_slice(&encoded(&Frame::new(
            FrameType::Notify,
            0,
            &b"PING"[..],
        )));
        let mut header = 16_777_217u32.to_le_bytes().to_vec();
        header.extend_from_slice(&[0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        decoder.buffer().extend_from_slice(&header);
        assert!(decoder.next_frame().unwrap().is_some());
        let error = decoder.next_frame().unwrap_err();
        assert_eq!(error.code(), Code::FrameTooLarge);
        assert!(matches!(error, FrameError::TooLarge { offset: 20, .. }));
    }

    #[test]
    fn data_frames_are_unknown_to_protocol_1() {
        let mut data = Frame::new(FrameType::Data, 7, &b"\0x"[..]);
        data.channel = 3;
        let bytes = encoded(&data);
        let mut old = Decoder::new(Protocol::V1, limits::LINK_BODY_LEN_MAX);
        old.buffer().extend_from_slice(&bytes);
        assert_eq!(
            old.next_frame(),
            Err(FrameError::UnknownType {
                offset: 8,
                found: 5
            })
        );
        let mut new = decoder();
        new.buffer().extend_from_slice(&bytes);
        assert_eq!(new.next_frame(), Ok(Some(data)));
    }

    #[test]
    fn data_frame_over_32_kib_is_refused_on_both_sides() {
        let body = vec![0; limits::LINK_DATA_LEN_MAX + 1];
        let frame = Frame::new(FrameType::Data, 0, body);
        assert!(frame.encode(&mut BytesMut::new()).is_err());
        let mut header = (limits::LINK_DATA_LEN_MAX as u32 + 1)
            .to_le_bytes()
            .to_vec();
        header.extend_from_slice(&[0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0]);
        let mut decoder = decoder();
        decoder.buffer().extend_from_slice(&header);
        assert_eq!(
            decoder.next_frame().unwrap_err().code(),
            Code::FrameTooLarge
        );
    }

    #[test]
    fn end_inside_a_frame_is_truncated() {
        let bytes = encoded(&Frame::new(FrameType::Notify, 0, &b"PING"[..]));
        for cut in 1..bytes.len() {
            let mut decoder = decoder();
            decoder.buffer().extend_from_slice(&bytes[..cut]);
            assert_eq!(decoder.next_frame(), Ok(None));
            assert_eq!(
                decoder.finish().unwrap_err().code(),
                Code::FrameInvalid,
                "cut at {cut}"
            );
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..8),
            cuts in prop::collection::vec(1usize..40, 1..60),
        ) {
            let frames: Vec<Frame> = bodies.into_iter().enumerate().map(|(n, body)| {
                Frame::new(FrameType::Request, n as u32, body)
            }).collect();
            let mut bytes = BytesMut::new();
            for frame in &frames { frame.encode(&mut bytes).unwrap(); }
            let mut decoder = decoder();
            let mut seen = Vec::new();
            let mut cuts = cuts.into_iter().cycle();
            while !bytes.is_empty() {
                let take = cuts.next().unwrap().min(bytes.len());
                let part = bytes.split_to(take);
                decoder.buffer().extend_from_slice(&part);
                while let Some(frame) = decoder.next_frame().unwrap() { seen.push(frame); }
            }
            prop_assert_eq!(seen, frames);
            prop_assert_eq!(decoder.finish(), Ok(()));
        }

        #[test]
        fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = decoder();
            decoder.buffer().extend_from_slice(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
            let _ = decoder.finish();
        }
    }
}
