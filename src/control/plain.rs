//! Protocol 1 on the server: the token or challenge of an old agent, and today's methods in its words.
//!
//! ```text
//! agent.register {token}            ─► compare ─► ack
//! agent.register {challenge:true}   ─► Request auth.challenge {nonce} ─► {hmac} ─► compare ─► ack
//! ```
//!
//! An old agent answers in its own shapes; they are turned into today's replies, and what it does not
//! say stays empty or absent. (Specification, sections 1.5 and 1.7.)

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::gateway::{Inner, Stream};
use super::gateway_open::{Candidate, read_register, refuse, register_link, within};
use super::gateway_session::Session;
use super::registry_tokens::{Proof, nonce};
use crate::base::ids::{AgentId, ExecutionId, FrameId};
use crate::base::{EpochMillis, Point, Rect, limits};
use crate::wire::frame::{Frame, FrameType};
use crate::wire::framed::Framed;
use crate::wire::link::{CHALLENGE, ChallengeReply, PING, PONG, Register, object};
use crate::wire::messages::desktop::{Capture, ForegroundState, PixelTransform, RuleState, Window};
use crate::wire::messages::executions::Status;
use crate::wire::messages::scripts::{RunReply, StopReply};
use crate::wire::peer::Peer;
use crate::wire::{Answer, Blob, Call, Code, Fault, table};

/// Opens a link of protocol 1 and runs its session to the end.
pub(super) async fn open<S: Stream>(inner: Arc<Inner>, framed: Framed<S>, from: SocketAddr) {
    let Ok(slot) = Arc::clone(&inner.opening).try_acquire_owned() else {
        tracing::warn!(%from, "too many links are opening; closing one more");
        return;
    };
    let session = admit(&inner, framed, from).await;
    drop(slot);
    if let Some(session) = session {
        session.run(inner).await;
    }
}

async fn admit<S: Stream>(
    inner: &Arc<Inner>,
    mut framed: Framed<S>,
    from: SocketAddr,
) -> Option<Session> {
    let register = match within(inner, first_register(&mut framed)).await {
        Ok(register) => register,
        Err(fault) => {
            framed.refuse(&fault).await;
            return None;
        }
    };
    match prove(inner, &mut framed, register, from).await {
        Ok(candidate) => register_link(inner, framed, candidate).await,
        Err(fault) => {
            tracing::warn!(%from, code = fault.code_text(), %fault, "refused a protocol-1 agent");
            refuse(framed, &fault, None).await;
            None
        }
    }
}

async fn first_register<S: Stream>(framed: &mut Framed<S>) -> Result<Register, Fault> {
    loop {
        let frame = framed.read().await?;
        match frame.frame_type {
            FrameType::Notify if frame.body == PING => {
                framed
                    .write(&Frame::new(FrameType::Notify, 0, PONG))
                    .await?;
            }
            FrameType::Notify => return read_register(&frame.body).map(|register| *register),
            _ => {
                return Err(Fault::new(
                    Code::InvalidMessage,
                    "a link of protocol 1 opens with agent.register",
                ));
            }
        }
    }
}

async fn prove<S: Stream>(
    inner: &Inner,
    framed: &mut Framed<S>,
    register: Register,
    from: SocketAddr,
) -> Result<Candidate, Fault> {
    let agent = if register.agent_id.is_empty() {
        AgentId::parse(format!("agent_{}_{}", from.ip(), from.port()))
    } else {
        AgentId::parse(register.agent_id.clone())
    };
    let agent = agent.map_err(|error| Fault::new(Code::InvalidMessage, error.to_string()))?;
    let tokens = &inner.plain_tokens;
    let address = from.ip().to_string();
    inner.registry.check_tries(&address)?;
    let checked = if register.challenge == Some(true) {
        let nonce = nonce();
        let hmac = challenge(inner, framed, &nonce).await?;
        let proof = Proof::Answer {
            nonce: &nonce,
            hmac: &hmac,
        };
        inner.registry.check_proof(&agent, tokens, &proof).await
    } else {
        let shown = register.token.clone().unwrap_or_default();
        let proof = Proof::Token(&shown);
        inner.registry.check_proof(&agent, tokens, &proof).await
    };
    let token = match checked {
        Ok(token) => token,
        Err(fault) => {
            // Guesses count; a fleet behind one address that knows its token does not.
            inner.registry.count_try(&address)?;
            return Err(fault);
        }
    };
    // A shared token must not speak for an agent that has a key of its own.
    if inner.registry.has_key(&agent) {
        return Err(Fault::new(
            Code::Conflict,
            format!("{agent} is enrolled with a key and speaks protocol 2"),
        ));
    }
    // What came with the proof is not stored, and an old agent has no instance.
    let register = Register {
        token: None,
        instance_id: None,
        ..register
    };
    Ok(Candidate {
        agent,
        register,
        ip: Some(address),
        token,
    })
}

/// Asks for the proof; one challenge per connection.
async fn challenge<S: Stream>(
    inner: &Inner,
    framed: &mut Framed<S>,
    nonce: &str,
) -> Result<String, Fault> {
    let body = json!({"type": CHALLENGE, "method": CHALLENGE, "sequence": 0, "nonce": nonce});
    let ask = async {
        framed
            .write(&Frame::new(FrameType::Request, 0, body.to_string()))
            .await?;
        loop {
            let frame = framed.read().await?;
            if frame.frame_type == FrameType::Response && frame.sequence == 0 {
                return read_answer(object(&frame.body)?);
            }
        }
    };
    let time = Duration::from_millis(limits::CHALLENGE_TIMEOUT_MS);
    let answered = within(inner, async {
        tokio::time::timeout(time, ask)
            .await
            .unwrap_or_else(|_| Err(Fault::new(Code::TimedOut, "no answer to the challenge")))
    });
    match answered.await {
        Err(fault) if fault.code == Code::LinkClosed => Err(fault),
        Err(_) => Err(Fault::new(Code::TokenInvalid, "invalid or missing token")),
        Ok(hmac) => Ok(hmac),
    }
}

/// Old agents give the answer as the response's data or beside it.
fn read_answer(mut fields: Map<String, Value>) -> Result<String, Fault> {
    let reply = match fields.remove("data") {
        Some(data @ Value::Object(_)) => data,
        _ => Value::Object(fields),
    };
    let reply: ChallengeReply = serde_json::from_value(reply)
        .map_err(|error| Fault::new(Code::InvalidMessage, error.to_string()))?;
    Ok(reply.hmac)
}

/// Sends a call in the words of protocol 1: `unsupported` for what it never had.
pub(super) async fn call(peer: &Peer, mut call: Call) -> Result<Answer, Fault> {
    let Some(row) = table::find(&call.method) else {
        return Err(Fault::new(
            Code::UnknownMethod,
            format!("unknown method {}", call.method),
        ));
    };
    call.timeout_ms = call.timeout_ms.or(row.timeout_ms);
    let mut params = match std::mem::take(&mut call.params) {
        Value::Object(params) => params,
        _ => Map::new(),
    };
    let old_name = match row.name {
        "script.run" => {
            run_params(&mut params)?;
            "run_script"
        }
        "script.stop" => {
            let id = params.remove("executionId").or(params.remove("scriptId"));
            if let Some(id) = id {
                params.insert("script_id".to_owned(), id);
            }
            "stop_script"
        }
        "system.getStatus" => "get_status",
        "window.list" => "list_windows",
        "screenshot.capture" => "screenshot.capture",
        "system.shutdown" => "system.shutdown",
        name => {
            return Err(Fault::new(
                Code::Unsupported,
                format!("the agent speaks protocol 1, which has no {name}"),
            ));
        }
    };
    call.method = old_name.to_owned();
    let asked = params.clone();
    call.params = Value::Object(params);
    let answer = peer.request(call).await?;
    match row.name {
        "script.run" => run_reply(&asked, &answer.data),
        "script.stop" => stop_reply(&asked),
        "window.list" => Answer::of(&windows(answer.data)),
        "screenshot.capture" => screenshot(answer.data),
        _ => Ok(answer),
    }
}

/// `path` is what a desktop runs, `content` what others want; a name stands in for a missing path.
fn run_params(params: &mut Map<String, Value>) -> Result<(), Fault> {
    if let Some(source) = params.remove("source") {
        params.insert("content".to_owned(), source);
    }
    if !params.contains_key("path") {
        let name = params.get("name").cloned();
        let name = name.ok_or_else(|| {
            Fault::invalid_params("script.run", "protocol 1 needs a path or a name")
        })?;
        params.insert("path".to_owned(), name);
    }
    if let Some(timeout) = params.remove("timeoutMs") {
        params.insert("timeout".to_owned(), timeout);
    }
    if let Some(Value::Object(args)) = params.remove("args") {
        for (name, value) in args {
            params.entry(name).or_insert(value);
        }
    }
    Ok(())
}

fn text(data: &Value, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| match data.get(name)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

fn run_reply(asked: &Map<String, Value>, data: &Value) -> Result<Answer, Fault> {
    let script_id = text(data, &["scriptId", "script_id", "id"]);
    let issued = asked
        .get("executionId")
        .and_then(Value::as_str)
        .and_then(|id| ExecutionId::parse(id).ok());
    let execution_id = issued
        .or_else(|| ExecutionId::parse(script_id.clone()?).ok())
        .unwrap_or_else(ExecutionId::random);
    Answer::of(&RunReply {
        script_id: script_id.unwrap_or_else(|| execution_id.to_string()),
        execution_id,
        status: Status::Running,
        reused: false,
    })
}

fn stop_reply(asked: &Map<String, Value>) -> Result<Answer, Fault> {
    let id = asked.get("script_id").and_then(Value::as_str);
    let id = id.and_then(|id| ExecutionId::parse(id).ok());
    let execution_id =
        id.ok_or_else(|| Fault::invalid_params("script.stop", "the script's id is missing"))?;
    Answer::of(&StopReply {
        execution_id,
        status: Status::Stopping,
    })
}

/// A number that an old agent may have written as text.
fn integer(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Number(number) => number.as_i64().or(number.as_f64().map(|f| f as i64)),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn rect(value: Option<&Value>) -> Rect {
    let side = |name: &str| integer(value.and_then(|v| v.get(name)));
    let signed = |name| side(name).and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
    let length = |name| side(name).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    Rect {
        x: signed("x"),
        y: signed("y"),
        width: length("width"),
        height: length("height"),
    }
}

/// A bare array; another kind of old agent wrapped it as `windows`.
fn windows(data: Value) -> Vec<Window> {
    let items = match data {
        Value::Array(items) => items,
        Value::Object(mut fields) => match fields.remove("windows") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let window = |item: Value| {
        let handle = integer(item.get("handle"))?;
        Some(Window {
            handle: u64::try_from(handle).ok()?,
            title: text(&item, &["title"]).unwrap_or_default(),
            class: String::new(),
            process_id: None,
            process_name: None,
            is_foreground: item.get("isForeground") == Some(&Value::Bool(true)),
            is_minimized: None,
            bounds: rect(item.get("bounds")),
        })
    };
    items.into_iter().filter_map(window).collect()
}

fn bad_screenshot(why: &str) -> Fault {
    Fault::new(
        Code::InvalidMessage,
        format!("the agent's screenshot: {why}"),
    )
}

/// Content type and bytes of the `data:` URL in `image`.
fn inline_image(data: &Value) -> Result<(String, Vec<u8>), Fault> {
    let url = data.get("image").and_then(Value::as_str);
    let (content_type, encoded) = url
        .and_then(|url| url.strip_prefix("data:"))
        .and_then(|url| url.split_once(";base64,"))
        .ok_or_else(|| bad_screenshot("no data URL in `image`"))?;
    // It becomes the content type of an HTTP answer: nothing that a browser would run.
    if !matches!(content_type, "image/jpeg" | "image/png") {
        return Err(bad_screenshot("neither JPEG nor PNG"));
    }
    let bytes = data_encoding::BASE64
        .decode(encoded.as_bytes())
        .map_err(|error| bad_screenshot(&error.to_string()))?;
    Ok((content_type.to_owned(), bytes))
}

/// `{image: data URL, width, height, timestamp, region}` as a capture with its bytes beside it.
fn screenshot(data: Value) -> Result<Answer, Fault> {
    let (content_type, bytes) = inline_image(&data)?;
    let size = |name| integer(data.get(name)).and_then(|n| u32::try_from(n).ok());
    let (width, height) = (size("width"), size("height"));
    let (Some(width), Some(height)) = (width, height) else {
        return Err(bad_screenshot("no width and height"));
    };
    let region = match data.get("region") {
        Some(Value::Object(_)) => rect(data.get("region")),
        _ => Rect {
            x: 0,
            y: 0,
            width,
            height,
        },
    };
    let created_at = EpochMillis(integer(data.get("timestamp")).unwrap_or(0));
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    let scale = |full: u32, image: u32| f64::from(full) / f64::from(image.max(1));
    let unknown = "an agent of protocol 1 does not tell";
    let capture = Capture {
        id: None,
        frame_id: FrameId::random(),
        created_at,
        profile: "dashboard-jpeg".to_owned(),
        format: content_type
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .to_owned(),
        content_type: content_type.clone(),
        quality: None,
        chroma_subsampling: None,
        width,
        height,
        bytes: bytes.len() as u64,
        sha256: data_encoding::HEXLOWER.encode(digest.as_ref()),
        include_cursor: false,
        monitor: None,
        region,
        transform: PixelTransform {
            origin: Point {
                x: region.x,
                y: region.y,
            },
            scale_x: scale(region.width, width),
            scale_y: scale(region.height, height),
        },
        age_ms: 0,
        backend: "unknown".to_owned(),
        foreground: ForegroundState::Unavailable {
            reason: unknown.to_owned(),
        },
        rule: RuleState {
            status: "unmatched".to_owned(),
            description: unknown.to_owned(),
        },
        timestamp: created_at,
        image: None,
    };
    let mut answer = Answer::of(&capture)?;
    answer.blob = Some(Blob {
        content_type,
        bytes: Bytes::from(bytes),
        field: "image",
    });
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_shapes_become_today_s_replies() {
        let list = json!([{"handle":"42","title":"x","isForeground":true,"bounds":{"x":"1","y":2,"width":3,"height":4}}, {"title":"no handle"}]);
        let read = windows(list);
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].handle, read[0].bounds.x), (42, 1));
        let answer = screenshot(json!({
            "image": "data:image/jpeg;base64,aGk=", "width": 2, "height": 1, "timestamp": 5
        }))
        .unwrap();
        assert_eq!(answer.blob.as_ref().unwrap().bytes, &b"hi"[..]);
        let capture: Capture = answer.read().unwrap();
        assert_eq!(capture.bytes, 2);
        assert!(screenshot(json!({"image": "nonsense"})).is_err());
        let page = json!({"image": "data:text/html;base64,aGk=", "width": 2, "height": 1});
        assert!(screenshot(page).is_err());
    }

    #[test]
    fn script_source_travels_as_content_with_its_name_as_path() {
        let Value::Object(mut params) =
            json!({"source":"x","name":"a.lua","args":{"who":"me"},"timeoutMs":7})
        else {
            unreachable!("an object literal")
        };
        run_params(&mut params).unwrap();
        assert_eq!(
            Value::Object(params),
            json!({"content":"x","path":"a.lua","name":"a.lua","who":"me","timeout":7})
        );
    }
}
