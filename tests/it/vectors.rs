//! The vectors of tests/vectors, read by this side and by the Python client alike.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::BytesMut;
use serde_json::{Value, json};
use wingman::base::limits;
use wingman::wire::frame::{Decoder, Frame, FrameError, FrameType, Protocol};
use wingman::wire::link::{
    Cancel, Capabilities, ChannelClose, ChannelCredit, Event, Heartbeat, JournalAck, LinkError,
    Message, Notice, PING, PONG, Register, RegisterAck, Response, object,
};
use wingman::wire::{Code, Fault};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// Every `.json` of a folder with its bytes.
fn cases(folder: &Path) -> Vec<(String, Value, Vec<u8>)> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "json") {
            let text = std::fs::read_to_string(&path).unwrap();
            let bytes = std::fs::read(path.with_extension("bin")).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            cases.push((name, serde_json::from_str(&text).unwrap(), bytes));
        }
    }
    assert!(!cases.is_empty(), "no vectors in {}", folder.display());
    cases
}

fn protocol(case: &Value) -> Protocol {
    match case["protocol"].as_u64() {
        Some(1) => Protocol::V1,
        Some(2) => Protocol::V2,
        other => panic!("protocol {other:?}"),
    }
}

fn decode(protocol: Protocol, bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
    let mut decoder = Decoder::new(protocol, limits::LINK_BODY_LEN_MAX);
    decoder.buffer().extend_from_slice(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = decoder.next_frame()? {
        frames.push(frame);
    }
    decoder.finish()?;
    Ok(frames)
}

fn frame_json(frame: &Frame) -> Value {
    let kind = match frame.frame_type {
        FrameType::Request => "request",
        FrameType::Response => "response",
        FrameType::Notify => "notify",
        FrameType::Error => "error",
        FrameType::Data => "data",
    };
    let mut row = json!({"type": kind, "sequence": frame.sequence});
    if frame.frame_type == FrameType::Data {
        row["channel"] = frame.channel.into();
        row["hex"] = data_encoding::HEXLOWER.encode(&frame.body).into();
    } else if frame.body.is_empty() || frame.body == PING || frame.body == PONG {
        row["text"] = std::str::from_utf8(&frame.body).unwrap().into();
    } else {
        row["body"] = Value::Object(object(&frame.body).unwrap());
    }
    row
}

#[test]
fn every_vector_decodes_and_encodes_to_the_same_bytes() {
    for (name, case, bytes) in cases(&folder()) {
        let frames = decode(protocol(&case), &bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let rows: Vec<Value> = frames.iter().map(frame_json).collect();
        assert_eq!(Value::Array(rows), case["frames"], "{name}");
        let mut again = BytesMut::new();
        for frame in &frames {
            frame.encode(&mut again).unwrap();
        }
        assert_eq!(again, bytes, "{name}");
    }
}

/// Reads a notice as `T` and writes it again; `None` when it is of another type.
fn round_trip<T: Message>(notice: &Notice) -> Option<Value> {
    let message = notice.read::<T>()?.unwrap();
    Some(serde_json::from_slice(&message.to_body().unwrap()).unwrap())
}

/// Whether all that `part` says stands in `whole`; null is as good as absent.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (_, Value::Null) => true,
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(name, value)| contains(whole.get(name).unwrap_or(&Value::Null), value)),
        _ => whole == part,
    }
}

#[test]
fn every_message_keeps_its_fields_through_its_type() {
    let mut seen = std::collections::BTreeSet::new();
    for (name, case, bytes) in cases(&folder()) {
        for frame in decode(protocol(&case), &bytes).unwrap() {
            let text = frame.frame_type == FrameType::Notify
                && (frame.body.is_empty() || frame.body == PING || frame.body == PONG);
            if text {
                continue;
            }
            match frame.frame_type {
                FrameType::Notify => {
                    let notice = Notice::parse(&frame.body).unwrap();
                    let read = round_trip::<Register>(&notice)
                        .or_else(|| round_trip::<RegisterAck>(&notice))
                        .or_else(|| round_trip::<Heartbeat>(&notice))
                        .or_else(|| round_trip::<Capabilities>(&notice))
                        .or_else(|| round_trip::<Event>(&notice))
                        .or_else(|| round_trip::<JournalAck>(&notice))
                        .or_else(|| round_trip::<ChannelCredit>(&notice))
                        .or_else(|| round_trip::<ChannelClose>(&notice))
                        .or_else(|| round_trip::<Cancel>(&notice))
                        .unwrap_or_else(|| panic!("{name}: {}", notice.message_type));
                    let mut said: Value = serde_json::from_slice(&frame.body).unwrap();
                    if said["capabilities"].is_object() {
                        said["capabilities"] = json!([]);
                    }
                    assert!(contains(&read, &said), "{name}: {read} lacks of {said}");
                    seen.insert(notice.message_type);
                }
                FrameType::Response => {
                    let said: Value = serde_json::from_slice(&frame.body).unwrap();
                    let response: Response = serde_json::from_value(said.clone()).unwrap();
                    let read = serde_json::to_value(response).unwrap();
                    assert!(contains(&read, &said), "{name}: {read} lacks of {said}");
                }
                FrameType::Error => {
                    let error: LinkError = serde_json::from_slice(&frame.body).unwrap();
                    assert_eq!(error.into_fault().code, Code::AgentRevoked);
                }
                FrameType::Request | FrameType::Data => {}
            }
        }
    }
    assert_eq!(seen.len(), 9, "a vector for each notice: {seen:?}");
}

#[test]
fn event_vector_is_a_whole_record() {
    let (_, case, bytes) = cases(&folder())
        .into_iter()
        .find(|(name, ..)| name == "v2-event")
        .unwrap();
    let frames = decode(protocol(&case), &bytes).unwrap();
    let event = Notice::parse(&frames[0].body).unwrap().read::<Event>();
    let record = event.unwrap().unwrap().into_record().unwrap();
    assert_eq!(record.sequence, 42);
    let again = Event::of_record(&record).unwrap();
    assert_eq!(again.data, case["frames"][0]["body"]["data"]);
}

/// Reads bytes as a link would, up to the first refusal.
fn read_all(protocol: Protocol, bytes: &[u8]) -> Result<(), Fault> {
    for frame in decode(protocol, bytes)? {
        if frame.frame_type == FrameType::Notify && frame.body != PING && frame.body != PONG {
            Notice::parse(&frame.body)?;
        }
    }
    Ok(())
}

#[test]
fn every_reject_gives_its_code() {
    for (name, case, bytes) in cases(&folder().join("rejects")) {
        let fault = read_all(protocol(&case), &bytes).expect_err(&name);
        assert_eq!(fault.code_text(), case["code"], "{name}: {fault}");
    }
}

#[test]
fn python_reads_the_same_vectors() {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/wingman_client.py");
    let output = Command::new("python3")
        .arg(client)
        .arg("vectors")
        .arg(folder())
        .output()
        .expect("python3 is needed for the cross-language tests");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}
