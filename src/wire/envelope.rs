//! The envelopes of local IPC, without sockets.
//!
//! ```text
//! a message                              a Data frame (after `ipc.hello {binary:true}`)
//!  0        4                             0                 4         8     9
//! | length | JSON envelope … |           | 0x8000_0000 | n | channel | kind | bytes … |
//!   u32 LE   `length` bytes                u32 LE            u32 LE    u8     n - 1 bytes
//! ```
//!
//! `length` is 1 to 10,485,760; anything else closes the connection. The envelope is an object
//! `{"type","method","payload","id","timestamp"}` with type 0 request, 1 response, 2 event, 3 error.
//! `n` counts the kind byte (0 bytes, 1 control JSON, 2 snapshot, 3 screen) and at most 32 KiB more.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde_json::{Map, Value, json};

use super::codes::{Code, Fault};
use super::handler::{Answer, Blob};
use crate::base::{EpochMillis, limits};

/// Marks a Data frame in the length word.
const DATA_BIT: u32 = 0x8000_0000;
/// Bytes of a message's header.
pub const HEADER_LEN: usize = 4;
/// Bytes of a Data frame's header, its kind byte apart.
pub const DATA_HEADER_LEN: usize = 8;

/// Why the byte stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    #[error("length 0 at byte {offset}")]
    Empty { offset: u64 },
    #[error("length {length} at byte {offset} passes {max}")]
    TooLarge {
        offset: u64,
        length: u64,
        max: usize,
    },
    #[error("data frame at byte {offset} before both sides agreed on binary")]
    DataNotAgreed { offset: u64 },
}

impl From<&FramingError> for Fault {
    fn from(error: &FramingError) -> Self {
        let code = match error {
            FramingError::TooLarge { .. } => Code::FrameTooLarge,
            FramingError::Empty { .. } | FramingError::DataNotAgreed { .. } => Code::FrameInvalid,
        };
        Fault::new(code, error.to_string())
    }
}

/// One unit of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The bytes of a JSON envelope, not yet read.
    Message(Bytes),
    Data {
        channel: u32,
        kind: u8,
        body: Bytes,
    },
}

/// Cuts a byte stream into units.
#[derive(Debug, Default)]
pub struct Decoder {
    binary: bool,
    offset_bytes: u64,
}

impl Decoder {
    /// Accepts Data frames from now on.
    pub fn allow_binary(&mut self) {
        self.binary = true;
    }

    /// Takes the next whole unit from the front of `buffer`; `None` when more bytes are needed.
    /// After an error the stream cannot go on.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Unit>, FramingError> {
        let Some(word) = buffer.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let word = u32::from_le_bytes(*word);
        if word & DATA_BIT != 0 {
            return self.decode_data(word & !DATA_BIT, buffer);
        }
        let length = self.check(word, limits::IPC_BODY_LEN_MAX)?;
        if buffer.len() < HEADER_LEN + length {
            buffer.reserve(HEADER_LEN + length - buffer.len());
            return Ok(None);
        }
        buffer.advance(HEADER_LEN);
        self.offset_bytes += (HEADER_LEN + length) as u64;
        Ok(Some(Unit::Message(buffer.split_to(length).freeze())))
    }

    fn decode_data(
        &mut self,
        length: u32,
        buffer: &mut BytesMut,
    ) -> Result<Option<Unit>, FramingError> {
        if !self.binary {
            return Err(FramingError::DataNotAgreed {
                offset: self.offset_bytes,
            });
        }
        let length = self.check(length, limits::LINK_DATA_LEN_MAX)?;
        if buffer.len() < DATA_HEADER_LEN + length {
            buffer.reserve(DATA_HEADER_LEN + length - buffer.len());
            return Ok(None);
        }
        buffer.advance(HEADER_LEN);
        let channel = buffer.get_u32_le();
        let mut body = buffer.split_to(length).freeze();
        let kind = body.get_u8();
        self.offset_bytes += (DATA_HEADER_LEN + length) as u64;
        Ok(Some(Unit::Data {
            channel,
            kind,
            body,
        }))
    }

    fn check(&self, length: u32, max: usize) -> Result<usize, FramingError> {
        if length == 0 {
            return Err(FramingError::Empty {
                offset: self.offset_bytes,
            });
        }
        match usize::try_from(length) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(FramingError::TooLarge {
                offset: self.offset_bytes,
                length: length.into(),
                max,
            }),
        }
    }
}

/// Appends a Data frame. `body` is at most 32 KiB, which callers cut to.
pub fn put_data(channel: u32, kind: u8, body: &[u8], out: &mut BytesMut) {
    debug_assert!(body.len() < limits::LINK_DATA_LEN_MAX);
    out.reserve(DATA_HEADER_LEN + 1 + body.len());
    out.put_u32_le(DATA_BIT | (body.len() as u32 + 1));
    out.put_u32_le(channel);
    out.put_u8(kind);
    out.put_slice(body);
}

/// What an envelope is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Request,
    Response,
    Event,
    Error,
}

impl Kind {
    const fn number(self) -> u8 {
        match self {
            Self::Request => 0,
            Self::Response => 1,
            Self::Event => 2,
            Self::Error => 3,
        }
    }

    fn of(value: Option<&Value>) -> Option<Self> {
        match value?.as_u64()? {
            0 => Some(Self::Request),
            1 => Some(Self::Response),
            2 => Some(Self::Event),
            3 => Some(Self::Error),
            _ => None,
        }
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    pub kind: Kind,
    pub method: String,
    pub payload: Value,
    /// 0 where the message answers nothing and wants no answer.
    pub id: u64,
    pub timestamp: EpochMillis,
}

/// A message that could not be read, with the id to answer to where that much could be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub id: Option<u64>,
    pub fault: Fault,
}

impl Envelope {
    /// A request.
    pub fn request(id: u64, method: &str, params: Value) -> Self {
        Self::now(Kind::Request, method, params, id)
    }

    /// An event; it has no id.
    pub fn event(method: &str, payload: Value) -> Self {
        Self::now(Kind::Event, method, payload, 0)
    }

    /// The answer to request `id`; what comes beside it goes by the channel, unless inlined before.
    pub fn success(id: u64, method: &str, answer: Value, channel: Option<ChannelNote>) -> Self {
        let mut data = Map::new();
        data.insert("success".to_owned(), Value::Bool(true));
        data.insert("result".to_owned(), answer);
        if let Some(note) = channel {
            note.write(&mut data);
        }
        let payload = json!({"type": "response", "id": id.to_string(), "data": data});
        Self::now(Kind::Response, method, payload, id)
    }

    /// The refusal of request `id`.
    pub fn failure(id: u64, method: &str, fault: &Fault) -> Self {
        let payload = json!({
            "type": "response",
            "id": id.to_string(),
            "data": failure_data(fault),
        });
        Self::now(Kind::Response, method, payload, id)
    }

    /// An error that belongs to no request that could be told.
    pub fn error(fault: &Fault) -> Self {
        let payload = json!({"type": "error", "id": null, "data": failure_data(fault)});
        Self::now(Kind::Error, "", payload, 0)
    }

    fn now(kind: Kind, method: &str, payload: Value, id: u64) -> Self {
        Self {
            kind,
            method: method.to_owned(),
            payload,
            id,
            timestamp: EpochMillis::now(),
        }
    }

    /// Reads the JSON of a message. Unknown fields are ignored; an unknown `type`, a payload that is
    /// neither object nor string of JSON, or an id that is no u64 are errors.
    pub fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|error| unreadable(None, format!("message is not JSON: {error}")))?;
        let Value::Object(mut fields) = value else {
            return Err(unreadable(None, "message is not a JSON object".to_owned()));
        };
        let id = match fields.get("id") {
            None | Some(Value::Null) => 0,
            Some(value) => read_id(value)
                .ok_or_else(|| unreadable(None, "id is not an unsigned 64-bit number".into()))?,
        };
        let Some(kind) = Kind::of(fields.get("type")) else {
            return Err(unreadable(Some(id), "type is not 0, 1, 2 or 3".into()));
        };
        let method = match fields.remove("method") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(method)) => method,
            Some(_) => return Err(unreadable(Some(id), "method is not a text".into())),
        };
        let payload = read_payload(fields.remove("payload"))
            .map_err(|why| unreadable(Some(id), format!("payload {why}")))?;
        let timestamp = fields.get("timestamp").and_then(Value::as_i64);
        Ok(Self {
            kind,
            method,
            payload,
            id,
            timestamp: EpochMillis(timestamp.unwrap_or_default()),
        })
    }

    /// Appends the framed message; `frame_too_large` when its JSON passes the limit, and then
    /// `out` is as it was.
    pub fn put(&self, out: &mut BytesMut) -> Result<(), Fault> {
        let start = out.len();
        out.put_u32_le(0);
        let message = Outgoing {
            kind: self.kind.number(),
            method: &self.method,
            payload: &self.payload,
            id: self.id,
            timestamp: self.timestamp,
        };
        let written = serde_json::to_writer((&mut *out).writer(), &message);
        let length = out.len() - start - HEADER_LEN;
        if written.is_err() || length > limits::IPC_BODY_LEN_MAX {
            out.truncate(start);
            let text = format!(
                "a message of {length} bytes passes {}",
                limits::IPC_BODY_LEN_MAX
            );
            return Err(Fault::new(Code::FrameTooLarge, text));
        }
        // INVARIANT: `start + 4` bytes exist, and the length was compared with a limit below 2^31.
        out[start..start + HEADER_LEN].copy_from_slice(&(length as u32).to_le_bytes());
        Ok(())
    }

    /// What a response or an error says: the answer and the note of bytes beside it, or the fault.
    pub fn into_outcome(mut self) -> Result<(Answer, Option<ChannelNote>), Fault> {
        let mut data = match self.payload.get_mut("data").map(Value::take) {
            Some(Value::Object(data)) => data,
            _ => return Err(Fault::new(Code::InvalidMessage, "the response has no data")),
        };
        match data.get("success").and_then(Value::as_bool) {
            Some(true) => {
                let note = ChannelNote::read(&data);
                let data = data.remove("result").unwrap_or(Value::Null);
                Ok((
                    Answer {
                        data,
                        blob: None,
                        stream: None,
                    },
                    note,
                ))
            }
            Some(false) => {
                let text = |key: &str| data.get(key).and_then(Value::as_str);
                let message = text("error").unwrap_or("no reason was given");
                Err(Fault::from_wire(text("code"), message))
            }
            None => Err(Fault::new(
                Code::InvalidMessage,
                "the response says neither success nor failure",
            )),
        }
    }
}

/// The channel that a response opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelNote {
    /// Bytes follow as Data frames: how many, of what kind, and in which field they belong.
    Bytes {
        channel: u32,
        size: u64,
        content_type: String,
        field: String,
    },
    /// A stream, both ways.
    Stream { channel: u32 },
}

impl ChannelNote {
    /// Describes a blob that goes through `channel`.
    pub fn of(channel: u32, blob: &Blob) -> Self {
        Self::Bytes {
            channel,
            size: blob.bytes.len() as u64,
            content_type: blob.content_type.clone(),
            field: blob.field.to_owned(),
        }
    }

    fn write(self, data: &mut Map<String, Value>) {
        let channel = match self {
            Self::Bytes {
                channel,
                size,
                content_type,
                field,
            } => {
                data.insert("size".to_owned(), size.into());
                data.insert("contentType".to_owned(), content_type.into());
                data.insert("field".to_owned(), field.into());
                channel
            }
            Self::Stream { channel } => channel,
        };
        data.insert("channel".to_owned(), channel.into());
    }

    fn read(data: &Map<String, Value>) -> Option<Self> {
        let text = |key: &str| Some(data.get(key)?.as_str()?.to_owned());
        let channel = u32::try_from(data.get("channel")?.as_u64()?).ok()?;
        match data.get("size") {
            None => Some(Self::Stream { channel }),
            Some(size) => Some(Self::Bytes {
                channel,
                size: size.as_u64()?,
                content_type: text("contentType")?,
                field: text("field")?,
            }),
        }
    }
}

#[derive(serde::Serialize)]
struct Outgoing<'a> {
    #[serde(rename = "type")]
    kind: u8,
    method: &'a str,
    payload: &'a Value,
    id: u64,
    timestamp: EpochMillis,
}

fn failure_data(fault: &Fault) -> Value {
    json!({"success": false, "error": fault.message, "code": fault.code_text()})
}

fn unreadable(id: Option<u64>, why: String) -> Unreadable {
    Unreadable {
        id,
        fault: Fault::new(Code::InvalidMessage, why),
    }
}

/// A number, or the decimal text that responses carry.
fn read_id(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// An object, or a text that holds one (old clients); absent and empty mean an empty object.
fn read_payload(value: Option<Value>) -> Result<Value, String> {
    let value = match value {
        None | Some(Value::Null) => return Ok(Value::Object(Map::new())),
        Some(Value::String(text)) if text.trim().is_empty() => {
            return Ok(Value::Object(Map::new()));
        }
        Some(Value::String(text)) => serde_json::from_str(&text)
            .map_err(|error| format!("is a text but no JSON: {error}"))?,
        Some(value) => value,
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        _ => Err("is not an object".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(envelope: &Envelope) -> BytesMut {
        let mut out = BytesMut::new();
        envelope.put(&mut out).unwrap();
        out
    }

    #[test]
    fn request_survives_the_wire() {
        let request = Envelope::request(u64::MAX, "system.getStatus", json!({"a": [1, null]}));
        let mut bytes = framed(&request);
        let unit = Decoder::default().decode(&mut bytes).unwrap();
        let Some(Unit::Message(body)) = unit else {
            panic!("{unit:?}")
        };
        assert_eq!(Envelope::parse(&body).unwrap(), request);
        assert!(bytes.is_empty());
    }

    #[test]
    fn truncated_message_waits_for_more() {
        let whole = framed(&Envelope::request(1, "x", json!({})));
        for cut in 0..whole.len() {
            let mut part = BytesMut::from(&whole[..cut]);
            assert_eq!(Decoder::default().decode(&mut part), Ok(None), "{cut}");
        }
    }

    #[test]
    fn length_zero_and_oversize_are_refused_with_their_offset() {
        let mut decoder = Decoder::default();
        let mut bytes = framed(&Envelope::request(1, "x", json!({})));
        let first = bytes.len() as u64;
        bytes.put_u32_le(0);
        assert!(matches!(decoder.decode(&mut bytes), Ok(Some(_))));
        assert_eq!(
            decoder.decode(&mut bytes),
            Err(FramingError::Empty { offset: first })
        );
        let mut bytes = BytesMut::new();
        bytes.put_u32_le(limits::IPC_BODY_LEN_MAX as u32 + 1);
        let error = Decoder::default().decode(&mut bytes).unwrap_err();
        assert_eq!(Fault::from(&error).code, Code::FrameTooLarge);
    }

    #[test]
    fn data_frame_needs_the_agreement_and_keeps_its_bytes() {
        let mut bytes = BytesMut::new();
        put_data(7, 0, b"abc", &mut bytes);
        let mut decoder = Decoder::default();
        assert!(decoder.decode(&mut bytes.clone()).is_err());
        decoder.allow_binary();
        assert_eq!(
            decoder.decode(&mut bytes),
            Ok(Some(Unit::Data {
                channel: 7,
                kind: 0,
                body: Bytes::from_static(b"abc")
            }))
        );
    }

    #[test]
    fn payload_may_be_a_text_of_json() {
        let text = br#"{"type":0,"method":"m","payload":"{\"a\":1}","id":"12","timestamp":5}"#;
        let envelope = Envelope::parse(text).unwrap();
        assert_eq!(envelope.payload, json!({"a": 1}));
        assert_eq!(envelope.id, 12);
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_id() {
        let cases: [(&[u8], Option<u64>); 7] = [
            (b"nope", None),
            (b"[1]", None),
            (b"\xff\xfe", None),
            (br#"{"type":0,"id":-1}"#, None),
            (br#"{"type":9,"id":4}"#, Some(4)),
            (br#"{"type":0,"id":5,"payload":[1]}"#, Some(5)),
            (br#"{"type":0,"id":6,"method":1}"#, Some(6)),
        ];
        for (text, id) in cases {
            let error = Envelope::parse(text).unwrap_err();
            assert_eq!(error.id, id, "{}", String::from_utf8_lossy(text));
            assert_eq!(error.fault.code, Code::InvalidMessage);
        }
    }

    #[test]
    fn responses_have_the_documented_shape() {
        let ok = Envelope::success(3, "m", json!({"x": 1}), None);
        assert_eq!(
            ok.payload,
            json!({"type":"response","id":"3","data":{"success":true,"result":{"x":1}}})
        );
        let fault = Fault::new(Code::Busy, "try later");
        let failed = Envelope::failure(3, "m", &fault);
        assert_eq!(
            failed.payload,
            json!({"type":"response","id":"3",
                   "data":{"success":false,"error":"try later","code":"busy"}})
        );
        assert_eq!(failed.into_outcome().unwrap_err(), fault);
        assert_eq!(ok.into_outcome().unwrap().0.data, json!({"x": 1}));
    }

    #[test]
    fn too_large_an_answer_leaves_the_buffer_as_it_was() {
        let mut out = BytesMut::from(&b"before"[..]);
        let text = "x".repeat(limits::IPC_BODY_LEN_MAX);
        let envelope = Envelope::success(1, "m", Value::String(text), None);
        assert_eq!(
            envelope.put(&mut out).unwrap_err().code,
            Code::FrameTooLarge
        );
        assert_eq!(&out[..], b"before");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, binary: bool) {
            let mut buffer = BytesMut::from(&bytes[..]);
            let mut decoder = Decoder::default();
            if binary {
                decoder.allow_binary();
            }
            while let Ok(Some(unit)) = decoder.decode(&mut buffer) {
                if let Unit::Message(body) = unit
                    && let Ok(envelope) = Envelope::parse(&body)
                {
                    let _ = envelope.into_outcome();
                }
            }
            let _ = Envelope::parse(&bytes);
        }
    }
}
