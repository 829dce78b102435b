//! The bytes between the agent and its input guard: requests on the guard's standard input, replies
//! on its standard output. Numbers are little-endian.
//!
//! ```text
//! 0        4        8      9
//! +--------+--------+------+---------------------+
//! | length | id     | kind | body                |   length counts id, kind and body
//! +--------+--------+------+---------------------+
//!
//! request kind  body                                   reply kind  body
//! 1 pointer     -                                      0 done      count u32
//! 2 move        x i32, y i32                           1 point     x i32, y i32
//! 3 button      owner u64, button u8, press u8         2 error     code u8, text (UTF-8)
//! 4 scroll      x i32, y i32
//! 5 keys        owner u64, n × (key u8, press u8)
//! 6 type        owner u64, between_us u32, text (UTF-8)
//! 7 cancel      - (its id is that of the type request; not answered itself)
//! 8 release     owner u64
//! ```
//!
//! The guard speaks first: a `done` with id 0 when its display is open, an `error` with id 0 when
//! not. Every other request gets exactly one reply with its id.

use crate::base::Point;
use crate::base::limits::GUARD_MESSAGE_LEN_MAX;
use crate::platform::{Button, InputOwner, PlatformError, Press, VirtualKey};

/// The id of the guard's first message.
pub const GREETING_ID: u32 = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Pointer,
    Move(Point),
    Button(InputOwner, Button, Press),
    Scroll {
        x: i32,
        y: i32,
    },
    Keys(InputOwner, Vec<(VirtualKey, Press)>),
    Type {
        owner: InputOwner,
        between_us: u32,
        text: String,
    },
    Cancel,
    Release(InputOwner),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done(u32),
    Point(Point),
    Error(PlatformError),
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("message of {0} bytes is longer than its limit")]
    TooLong(usize),
    #[error("message is cut short")]
    Truncated,
    #[error("unknown message kind {0}")]
    UnknownKind(u8),
    #[error("value {0} is out of range")]
    ValueInvalid(u8),
    #[error("text is not UTF-8")]
    NotUtf8,
}

const HEAD_LEN: usize = 5;

fn frame(id: u32, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + HEAD_LEN + body.len());
    out.extend(((HEAD_LEN + body.len()) as u32).to_le_bytes());
    out.extend(id.to_le_bytes());
    out.push(kind);
    out.extend(body);
    out
}

/// Takes one whole message off the front of `buffer`; `None` while more bytes are needed.
pub fn take_frame(buffer: &mut Vec<u8>) -> Result<Option<(u32, u8, Vec<u8>)>, DecodeError> {
    let Some(head) = buffer.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*head) as usize;
    if length > GUARD_MESSAGE_LEN_MAX {
        return Err(DecodeError::TooLong(length));
    }
    if length < HEAD_LEN {
        return Err(DecodeError::Truncated);
    }
    if buffer.len() < 4 + length {
        return Ok(None);
    }
    let mut message = Fields(&buffer[4..4 + length]);
    let id = u32::from_le_bytes(message.take()?);
    let [kind] = message.take()?;
    let body = message.0.to_vec();
    buffer.drain(..4 + length);
    Ok(Some((id, kind, body)))
}

/// The part of a body that is not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    fn number(&mut self) -> Result<i32, DecodeError> {
        self.take().map(i32::from_le_bytes)
    }

    fn point(&mut self) -> Result<Point, DecodeError> {
        Ok(Point {
            x: self.number()?,
            y: self.number()?,
        })
    }

    fn owner(&mut self) -> Result<InputOwner, DecodeError> {
        self.take().map(u64::from_le_bytes).map(InputOwner)
    }

    fn press(&mut self) -> Result<Press, DecodeError> {
        match self.take()? {
            [0] => Ok(Press::Up),
            [1] => Ok(Press::Down),
            [other] => Err(DecodeError::ValueInvalid(other)),
        }
    }

    fn text(&mut self) -> Result<String, DecodeError> {
        let text = std::str::from_utf8(self.0).map_err(|_| DecodeError::NotUtf8)?;
        let text = text.to_owned();
        self.0 = &[];
        Ok(text)
    }
}

fn press_byte(press: Press) -> u8 {
    match press {
        Press::Up => 0,
        Press::Down => 1,
    }
}

fn point_bytes(x: i32, y: i32) -> Vec<u8> {
    [x.to_le_bytes(), y.to_le_bytes()].concat()
}

const BUTTONS: [Button; 5] = [
    Button::Left,
    Button::Middle,
    Button::Right,
    Button::Back,
    Button::Forward,
];

impl Request {
    /// The bytes of this request, length included.
    pub fn encode(&self, id: u32) -> Vec<u8> {
        match self {
            Self::Pointer => frame(id, 1, &[]),
            Self::Move(to) => frame(id, 2, &point_bytes(to.x, to.y)),
            Self::Button(owner, button, press) => {
                let number = BUTTONS.iter().position(|b| b == button).unwrap_or(0) as u8;
                let mut body = owner.0.to_le_bytes().to_vec();
                body.extend([number, press_byte(*press)]);
                frame(id, 3, &body)
            }
            Self::Scroll { x, y } => frame(id, 4, &point_bytes(*x, *y)),
            Self::Keys(owner, strokes) => {
                let mut body = owner.0.to_le_bytes().to_vec();
                body.extend(strokes.iter().flat_map(|(k, p)| [k.0, press_byte(*p)]));
                frame(id, 5, &body)
            }
            Self::Type {
                owner,
                between_us,
                text,
            } => {
                let mut body = owner.0.to_le_bytes().to_vec();
                body.extend(between_us.to_le_bytes());
                body.extend(text.as_bytes());
                frame(id, 6, &body)
            }
            Self::Cancel => frame(id, 7, &[]),
            Self::Release(owner) => frame(id, 8, &owner.0.to_le_bytes()),
        }
    }

    /// Reads the body of a request of the kind given.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields(body);
        let request = match kind {
            1 => Self::Pointer,
            2 => Self::Move(fields.point()?),
            3 => {
                let owner = fields.owner()?;
                let [number] = fields.take()?;
                let button = BUTTONS
                    .get(usize::from(number))
                    .ok_or(DecodeError::ValueInvalid(number))?;
                Self::Button(owner, *button, fields.press()?)
            }
            4 => {
                let Point { x, y } = fields.point()?;
                Self::Scroll { x, y }
            }
            5 => {
                let owner = fields.owner()?;
                let mut strokes = Vec::with_capacity(fields.0.len() / 2);
                while !fields.0.is_empty() {
                    let [key] = fields.take()?;
                    strokes.push((VirtualKey(key), fields.press()?));
                }
                Self::Keys(owner, strokes)
            }
            6 => Self::Type {
                owner: fields.owner()?,
                between_us: u32::from_le_bytes(fields.take()?),
                text: fields.text()?,
            },
            7 => Self::Cancel,
            8 => Self::Release(fields.owner()?),
            other => return Err(DecodeError::UnknownKind(other)),
        };
        Ok(request)
    }
}

impl Reply {
    /// The bytes of this reply, length included.
    pub fn encode(&self, id: u32) -> Vec<u8> {
        match self {
            Self::Done(count) => frame(id, 0, &count.to_le_bytes()),
            Self::Point(at) => frame(id, 1, &point_bytes(at.x, at.y)),
            Self::Error(error) => {
                let (code, text) = match error {
                    PlatformError::DisplayUnavailable(text) => (0, text.clone()),
                    PlatformError::KeyUnknown(text) => (1, text.clone()),
                    PlatformError::Unverifiable(text) => (2, text.clone()),
                    PlatformError::Unsupported(text) => (3, text.clone()),
                    PlatformError::InputFailed(text) => (4, text.clone()),
                    other => (4, other.to_string()),
                };
                let mut body = vec![code];
                body.extend(text.as_bytes());
                frame(id, 2, &body)
            }
        }
    }

    /// Reads the body of a reply of the kind given.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = Fields(body);
        match kind {
            0 => Ok(Self::Done(u32::from_le_bytes(fields.take()?))),
            1 => Ok(Self::Point(fields.point()?)),
            2 => {
                let [code] = fields.take()?;
                let text = fields.text()?;
                Ok(Self::Error(match code {
                    0 => PlatformError::DisplayUnavailable(text),
                    1 => PlatformError::KeyUnknown(text),
                    2 => PlatformError::Unverifiable(text),
                    3 => PlatformError::Unsupported(text),
                    4 => PlatformError::InputFailed(text),
                    other => return Err(DecodeError::ValueInvalid(other)),
                }))
            }
            other => Err(DecodeError::UnknownKind(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests() -> Vec<Request> {
        let owner = InputOwner(u64::MAX);
        vec![
            Request::Pointer,
            Request::Move(Point { x: -1, y: 7 }),
            Request::Button(owner, Button::Forward, Press::Down),
            Request::Scroll { x: -3, y: 4 },
            Request::Keys(
                owner,
                vec![(VirtualKey(0x41), Press::Down), (VirtualKey(9), Press::Up)],
            ),
            Request::Type {
                owner,
                between_us: 5,
                text: "héllo 世界🙂".into(),
            },
            Request::Cancel,
            Request::Release(owner),
        ]
    }

    #[test]
    fn requests_and_replies_survive_the_wire() {
        for request in requests() {
            let mut bytes = request.encode(9);
            bytes.push(0xee);
            let (id, kind, body) = take_frame(&mut bytes).unwrap().unwrap();
            assert_eq!((id, bytes.as_slice()), (9, &[0xee][..]));
            assert_eq!(Request::decode(kind, &body), Ok(request));
        }
        for reply in [
            Reply::Done(3),
            Reply::Point(Point { x: 1, y: -2 }),
            Reply::Error(PlatformError::KeyUnknown("vk 0x07".into())),
            Reply::Error(PlatformError::DisplayUnavailable(":9".into())),
        ] {
            let mut bytes = reply.encode(0);
            let (_, kind, body) = take_frame(&mut bytes).unwrap().unwrap();
            assert_eq!(Reply::decode(kind, &body), Ok(reply));
        }
    }

    #[test]
    fn cut_and_oversize_messages_are_told_apart() {
        for request in requests() {
            let whole = request.encode(1);
            for end in 0..whole.len() {
                assert_eq!(take_frame(&mut whole[..end].to_vec()), Ok(None));
            }
        }
        let mut oversize = (GUARD_MESSAGE_LEN_MAX as u32 + 1).to_le_bytes().to_vec();
        let refused = take_frame(&mut oversize);
        assert!(matches!(refused, Err(DecodeError::TooLong(_))));
        assert_eq!(Request::decode(3, &[0; 9]), Err(DecodeError::Truncated));
        assert_eq!(Request::decode(99, &[]), Err(DecodeError::UnknownKind(99)));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = bytes.clone();
            let _ = take_frame(&mut buffer);
            if let Some((kind, body)) = bytes.split_first() {
                let _ = Request::decode(*kind, body);
                let _ = Reply::decode(*kind, body);
            }
        }
    }
}
