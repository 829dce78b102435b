//! What must hold for any bytes a decoder is given. The property tests and the fuzz targets share it.
//!
//! None may panic; what is accepted must survive a second look.

use std::path::Path;

use bytes::BytesMut;
use wingman::config::AgentConfig;
use wingman::journal::record::{check_line, decode_line};
use wingman::terminal::holder::protocol::{self as holder_protocol, HEADER_LEN, Raw};
use wingman::terminal::grid::{Grid, Options, Role, Scrollback, Size};
use wingman::wire::envelope::{self, Envelope, FramingError, Unit};
use wingman::wire::frame::{self, Frame, FrameError, FrameType, Protocol};
use wingman::wire::join::JoinString;
use wingman::wire::link::{self, Event, Message, Notice, Register, RegisterAck, Response};

/// Lines of a journal segment. The checksum would stop nearly all random bytes at the door, so each
/// line is also tried with a checksum that fits.
pub fn journal(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        journal_line(line);
        journal_line(&summed(line));
    }
}

fn journal_line(line: &[u8]) {
    if let Ok(record) = decode_line(line) {
        assert_eq!(check_line(line), Ok(record.sequence));
        let again = serde_json::to_vec(&record).expect("a record is JSON");
        let again = again.strip_suffix(b"}").expect("a record is an object");
        assert_eq!(decode_line(&summed(again)), Ok(record));
    }
}

/// A line of these fields with their checksum, as the journal's record page has it.
fn summed(fields: &[u8]) -> Vec<u8> {
    let mut line = fields.to_vec();
    line.push(b'}');
    let crc = crc32fast::hash(&line);
    line.pop();
    line.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}").as_bytes());
    line
}

/// agent.toml.
pub fn agent_toml(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(config) = AgentConfig::from_text(Path::new("agent.toml"), text)
    {
        assert!(
            config.check().is_ok(),
            "a configuration that was read is good"
        );
    }
}

/// The byte stream of local IPC: units, then the JSON of each message.
pub fn envelope(bytes: &[u8]) {
    for binary in [false, true] {
        let whole = units(bytes, binary, bytes.len());
        // However the stream is cut on its way, it says the same.
        let piece = bytes.len() % 7 + 1;
        assert_eq!(units(bytes, binary, piece), whole);
        for unit in whole.0 {
            match unit {
                Unit::Message(json) => message(&json),
                Unit::Data {
                    channel,
                    kind,
                    body,
                } => {
                    let mut again = BytesMut::new();
                    envelope::put_data(channel, kind, &body, &mut again);
                    let unit = Unit::Data {
                        channel,
                        kind,
                        body,
                    };
                    assert_eq!(units(&again, true, again.len()), (vec![unit], None));
                }
            }
        }
    }
    message(bytes);
}

fn units(bytes: &[u8], binary: bool, piece: usize) -> (Vec<Unit>, Option<FramingError>) {
    let mut decoder = envelope::Decoder::default();
    if binary {
        decoder.allow_binary();
    }
    let mut buffer = BytesMut::new();
    let mut found = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(unit)) => found.push(unit),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

fn message(json: &[u8]) {
    let Ok(read) = Envelope::parse(json) else {
        return;
    };
    let mut again = BytesMut::new();
    if read.put(&mut again).is_ok() {
        match units(&again, false, again.len()) {
            (units, None) => match units.as_slice() {
                [Unit::Message(json)] => assert_eq!(Envelope::parse(json), Ok(read.clone())),
                other => panic!("one message became {other:?}"),
            },
            (_, Some(error)) => panic!("a message of ours is refused: {error}"),
        }
    }
    // An answer that cannot be understood is a fault, never a panic.
    let _ = read.into_outcome();
}

/// The byte stream of the agent link: frames, then the JSON of each body.
pub fn frame(bytes: &[u8]) {
    for protocol in [Protocol::V1, Protocol::V2] {
        let (frames, error) = frames(bytes, protocol, bytes.len());
        let piece = bytes.len() % 7 + 1;
        assert_eq!(
            self::frames(bytes, protocol, piece),
            (frames.clone(), error)
        );
        let mut again = BytesMut::new();
        for frame in &frames {
            frame
                .encode(&mut again)
                .expect("a frame that was read fits");
            if frame.frame_type != FrameType::Data {
                link_body(&frame.body);
            }
        }
        assert_eq!(self::frames(&again, protocol, again.len()), (frames, None));
    }
    link_body(bytes);
}

fn frames(bytes: &[u8], protocol: Protocol, piece: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = frame::Decoder::new(protocol, usize::MAX);
    let mut found = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        decoder.buffer().extend_from_slice(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    // The end inside a frame is an error to tell, never a panic.
    let _ = decoder.finish();
    (found, None)
}

fn link_body(body: &[u8]) {
    if let Ok(notice) = Notice::parse(body) {
        survives::<Register>(&notice);
        survives::<RegisterAck>(&notice);
        survives::<Event>(&notice);
        if let Some(Ok(event)) = notice.read::<Event>() {
            let _ = event.into_record();
        }
    }
    if link::object(body).is_ok()
        && let Ok(response) = serde_json::from_slice::<Response>(body)
    {
        let _ = response.into_result();
    }
}

/// What was read as a message is the same after it was written and read again.
fn survives<T: Message + PartialEq + std::fmt::Debug>(notice: &Notice) {
    if let Some(Ok(message)) = notice.read::<T>() {
        let body = message.to_body().expect("a message is JSON");
        let again = Notice::parse(&body).expect("our own message");
        assert_eq!(again.read::<T>(), Some(Ok(message)));
    }
}

/// A join string as text; and, since the checksum stops most, as the bytes within one.
pub fn join_string(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        joined(text);
    }
    let mut inside = bytes.to_vec();
    inside.extend_from_slice(&crc32fast::hash(bytes).to_le_bytes());
    let encoded = data_encoding::BASE64URL_NOPAD.encode(&inside);
    joined(&format!("wm1-{encoded}"));
}

fn joined(text: &str) {
    if let Ok(join) = JoinString::parse(text) {
        let again = join.to_text().expect("it was a text before");
        assert_eq!(again.expose(), text.trim());
        assert!(JoinString::parse(again.expose()) == Ok(join));
    }
}

/// The stream between an agent and the holder of a session, as either end reads it.
pub fn holder(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(raw)) = holder_protocol::cut(rest) {
        // No shorter part of it is a frame.
        let length = HEADER_LEN + raw.body.len();
        assert_eq!(holder_protocol::cut(&rest[..length - 1]), Ok(None));
        holder_frame(raw);
        rest = &rest[length..];
    }
    if let Some((kind, body)) = bytes.split_first() {
        holder_frame(Raw { kind: *kind, body });
    }
}

fn holder_frame(raw: Raw<'_>) {
    let mut again = Vec::new();
    if let Ok(frame) = holder_protocol::to_holder(raw) {
        frame.put(&mut again);
        let read = holder_protocol::cut(&again).expect("fits").expect("whole");
        assert_eq!(holder_protocol::to_holder(read), Ok(frame));
    }
    again.clear();
    if let Ok(frame) = holder_protocol::from_holder(raw) {
        frame.put(&mut again);
        let read = holder_protocol::cut(&again).expect("fits").expect("whole");
        assert_eq!(holder_protocol::from_holder(read), Ok(frame));
    }
}

/// A program's output; 0xff, which UTF-8 never has, and two bytes change the size.
pub fn grid(bytes: &[u8]) {
    let size = Size { cols: 80, rows: 24 };
    let mut grid = Grid::new(size, Options::new(Role::Host));
    let mut effects = Vec::new();
    for (index, part) in bytes.split(|byte| *byte == 0xff).enumerate() {
        let output = match part {
            [cols, rows, output @ ..] if index > 0 => {
                grid.resize(Size {
                    cols: u16::from(*cols),
                    rows: u16::from(*rows),
                });
                output
            }
            output => output,
        };
        // However the stream is cut on its way, it ends in the same state.
        let (first, second) = output.split_at(output.len() / 3);
        grid.feed(first, &mut effects);
        grid.feed(second, &mut effects);
        assert_eq!(grid.panics(), 0, "the emulator stands it");
        assert!(grid.pending().len() <= 64 * 1024);
    }
    let mut copy = Grid::new(grid.size(), Options::new(Role::Mirror));
    copy.feed(&grid.snapshot(Scrollback::All), &mut effects);
    assert_eq!(copy.checksum(), grid.checksum(), "a snapshot says it all");
}
