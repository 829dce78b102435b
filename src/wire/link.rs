//! The messages of the agent link (protocols page, section 1).
//!
//! Unknown fields are ignored; an unknown message type, and a value outside of a closed set, is an
//! error with a code. Capability, platform and event names are open strings. Protocol 1 spells some
//! things its own way: what is optional here may be absent there.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::codes::{Code, Fault};
use super::event::Record;
use super::messages::agents::{LinkHealth, Resources};
use crate::base::Secret;
use crate::base::ids::{AgentId, InviteId};
use crate::wire::messages::system::JournalRange;

/// The body of a keep-alive question and of its answer.
pub const PING: &[u8] = b"PING";
pub const PONG: &[u8] = b"PONG";

/// Names of the link's own requests.
pub const ENROLL: &str = "agent.enroll";
pub const CHALLENGE: &str = "auth.challenge";

/// `agent.register` (Notify, agent → server).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Register {
    /// Protocol 1 may leave it empty; the server then assigns one.
    #[serde(default)]
    pub agent_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    #[serde(default)]
    pub hostname: String,
    /// windows | linux | macos | android; old peers send `desktop`.
    #[serde(default)]
    pub platform: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The highest protocol spoken; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    #[serde(default, deserialize_with = "names_or_nothing")]
    pub capabilities: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalRange>,
    /// Protocol 1: the shared token, or `challenge` to prove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<bool>,
}

/// Old peers send an object where a list belongs; it counts as an empty list.
fn names_or_nothing<'de, D: Deserializer<'de>>(de: D) -> Result<Vec<String>, D::Error> {
    Ok(match Value::deserialize(de)? {
        Value::Array(items) => items
            .into_iter()
            .filter_map(|item| match item {
                Value::String(name) => Some(name),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    })
}

/// `agent.register_ack` (Notify, server → agent).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisterAck {
    pub success: bool,
    #[serde(default)]
    pub agent_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Milliseconds to wait before the next try, where the server is busy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_ms: Option<u64>,
}

/// `agent.heartbeat` (Notify, agent → server).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    #[serde(default)]
    pub status: String,
    /// The script that runs now; empty for none, absent for unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_task: Option<String>,
    #[serde(default)]
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkHealth>,
}

/// `agent.capabilities` (Notify, agent → server): what works on the host has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    pub capabilities: Vec<String>,
}

/// `agent.event` (Notify, agent → server). On protocol 2 `data` is the whole record and `seq` its
/// sequence; on protocol 1 both are the old ones and there is no `seq`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub event: String,
    #[serde(default)]
    pub data: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

impl Event {
    /// A journal record as protocol 2 sends it.
    pub fn of_record(record: &Record) -> Result<Self, Fault> {
        Ok(Self {
            event: record.event_type.clone(),
            seq: Some(record.sequence),
            data: serde_json::to_value(record)
                .map_err(|error| Fault::internal(format!("encode a record: {error}")))?,
        })
    }

    /// The journal record of a protocol-2 event.
    pub fn into_record(self) -> Result<Record, Fault> {
        let record: Record = serde_json::from_value(self.data)
            .map_err(|error| Fault::new(Code::InvalidMessage, format!("read an event: {error}")))?;
        if self.seq != Some(record.sequence) || self.event != record.event_type {
            return Err(Fault::new(
                Code::InvalidMessage,
                "an event and the record in it disagree",
            ));
        }
        Ok(record)
    }
}

/// `journal.ack` (Notify, server → agent): all records up to and with `seq` are on disk there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalAck {
    pub seq: u64,
}

/// `channel.credit` (Notify, both ways): the reader allows this many more body bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelCredit {
    pub channel: u32,
    pub bytes: u32,
}

/// `channel.close` (Notify, both ways). `done` is the regular end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelClose {
    pub channel: u32,
    pub reason: String,
}

/// `link.cancel` (Notify, protocol 2, both ways): the caller has given up this request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    pub sequence: u32,
}

/// `agent.enroll` (Request, agent → server), the one message of a key that is not enrolled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Enroll {
    pub invite_id: InviteId,
    /// Hexadecimal.
    pub secret: Secret,
    /// The id that the agent would like to keep.
    pub agent_id: AgentId,
    pub hostname: String,
    pub platform: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrollReply {
    /// The id in force; another one where the wish was taken.
    pub agent_id: AgentId,
}

/// `auth.challenge` (Request, server → agent, protocol 1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// 64 lower-case hexadecimal digits.
    pub nonce: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChallengeReply {
    pub hmac: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An Error frame's body: sent before any close that has a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkError {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u32>,
}

impl LinkError {
    pub fn of(fault: &Fault) -> Self {
        Self {
            code: fault.code_text().to_owned(),
            message: fault.message.to_string(),
            sequence: None,
        }
    }

    pub fn into_fault(self) -> Fault {
        Fault::from_wire(Some(&self.code), self.message)
    }
}

/// A Response's body. On protocol 2 bytes that belong to it come by `channel`: `size` of them, for
/// the field `field`; `field` `data` means that the JSON result itself came that way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    #[serde(default)]
    pub success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl Response {
    /// A refusal.
    pub fn refused(method: Option<&str>, fault: &Fault) -> Self {
        Self {
            method: method.map(str::to_owned),
            error: Some(fault.message.to_string()),
            code: Some(fault.code_text().to_owned()),
            ..Self::default()
        }
    }

    /// The result's data, or the error that the peer gave.
    pub fn into_result(self) -> Result<Value, Fault> {
        if self.success {
            return Ok(self.data);
        }
        let text = self
            .error
            .or(self.message)
            .unwrap_or_else(|| "the peer gave no reason".to_owned());
        Err(Fault::from_wire(self.code.as_deref(), text))
    }
}

/// A message with its `type`.
pub trait Message: Serialize + DeserializeOwned {
    const TYPE: &'static str;

    /// The JSON body with `type` first.
    fn to_body(&self) -> Result<Vec<u8>, Fault> {
        #[derive(Serialize)]
        struct Tagged<'a, T> {
            #[serde(rename = "type")]
            message_type: &'static str,
            #[serde(flatten)]
            message: &'a T,
        }
        serde_json::to_vec(&Tagged {
            message_type: Self::TYPE,
            message: self,
        })
        .map_err(|error| Fault::internal(format!("encode {}: {error}", Self::TYPE)))
    }
}

macro_rules! messages {
    ($($message:ident = $name:literal;)+) => {
        $(impl Message for $message { const TYPE: &'static str = $name; })+
    };
}

messages! {
    Register = "agent.register";
    RegisterAck = "agent.register_ack";
    Heartbeat = "agent.heartbeat";
    Capabilities = "agent.capabilities";
    Event = "agent.event";
    JournalAck = "journal.ack";
    ChannelCredit = "channel.credit";
    ChannelClose = "channel.close";
    Cancel = "link.cancel";
}

/// A Notify as it arrived: its type, and the body to read by it.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub message_type: String,
    pub body: Value,
}

impl Notice {
    /// Reads a body: JSON, an object, with a `type`.
    pub fn parse(body: &[u8]) -> Result<Self, Fault> {
        let mut fields = object(body)?;
        match fields.remove("type") {
            Some(Value::String(message_type)) => Ok(Self {
                message_type,
                body: Value::Object(fields),
            }),
            _ => Err(Fault::new(
                Code::InvalidMessage,
                "the message has no type text",
            )),
        }
    }

    /// Reads the body as `T`; `None` when it is of another type.
    pub fn read<T: Message>(&self) -> Option<Result<T, Fault>> {
        (self.message_type == T::TYPE).then(|| {
            T::deserialize(&self.body)
                .map_err(|error| Fault::new(Code::InvalidMessage, format!("{}: {error}", T::TYPE)))
        })
    }
}

/// Reads a body that has to be a JSON object; the text tells the byte offset of what is wrong.
pub fn object(body: &[u8]) -> Result<Map<String, Value>, Fault> {
    let invalid = |why: String| Fault::new(Code::InvalidMessage, why);
    let text = std::str::from_utf8(body)
        .map_err(|error| invalid(format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(invalid("not a JSON object".into())),
        Err(error) => Err(invalid(format!(
            "not JSON at line {} column {}: {error}",
            error.line(),
            error.column()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_capabilities_of_old_peers_count_as_none() {
        let body =
            br#"{"type":"agent.register","agentId":"a","capabilities":{"apiLevel":33},"later":1}"#;
        let register: Register = Notice::parse(body).unwrap().read().unwrap().unwrap();
        assert!(register.capabilities.is_empty());
        assert_eq!(register.protocol, None);
    }

    #[test]
    fn notify_without_type_or_not_json_is_refused_with_a_code() {
        for bad in [&b"{}"[..], b"[]", b"{\"type\":3}", b"{", b"\xff\xfe", b""] {
            assert_eq!(Notice::parse(bad).unwrap_err().code, Code::InvalidMessage);
        }
    }

    #[test]
    fn type_comes_first_and_absent_fields_stay_absent() {
        let body = RegisterAck {
            success: true,
            agent_id: "a".into(),
            ..RegisterAck::default()
        }
        .to_body()
        .unwrap();
        assert_eq!(
            body,
            br#"{"type":"agent.register_ack","success":true,"agentId":"a"}"#
        );
    }

    #[test]
    fn refusal_keeps_the_peer_s_code() {
        let refused = Response::refused(None, &Fault::new(Code::Busy, "later"));
        assert_eq!(refused.into_result().unwrap_err().code, Code::Busy);
    }

    #[test]
    fn secrets_do_not_show() {
        let register = Register {
            token: Some(Secret::new("tok-1")),
            ..Register::default()
        };
        assert!(!format!("{register:?}").contains("tok-1"));
    }
}
