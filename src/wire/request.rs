//! The body of a Request.
//!
//! ```text
//! protocol 1: {"type":M,"method":M,"sequence":N, …parameters}
//! protocol 2: {"type":M,"method":M,"sequence":N,"commandId"?,"timeoutMs"?,"params":{…}}
//! ```
//!
//! Protocol 2 keeps the parameters apart, since methods have parameters named `timeoutMs` and `type`
//! of their own. A missing `method` is read from `type`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::codes::{Code, Fault};
use super::frame::Protocol;
use super::handler::{Call, Origin};
use crate::base::ids::CommandId;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tagged<'a> {
    #[serde(rename = "type")]
    message_type: &'a str,
    method: &'a str,
    sequence: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    command_id: Option<CommandId>,
    /// The caller's patience in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    tagged: Tagged<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a Value>,
    #[serde(flatten)]
    flattened: Option<&'a Map<String, Value>>,
}

/// Writes a call as the protocol wants it. `timeout_ms` is the patience in force.
pub(super) fn encode(
    protocol: Protocol,
    sequence: u32,
    call: &Call,
    timeout_ms: Option<u64>,
) -> Result<Vec<u8>, Fault> {
    let fields = match &call.params {
        Value::Object(fields) => Some(fields),
        Value::Null => None,
        _ => return Err(Fault::invalid_params(&call.method, "must be an object")),
    };
    let v2 = protocol == Protocol::V2;
    if !v2
        && let Some(name) =
            fields.and_then(|fields| fields.keys().find(|name| RESERVED.contains(&name.as_str())))
    {
        return Err(Fault::invalid_params(
            &call.method,
            format!("protocol 1 cannot carry a parameter named {name}"),
        ));
    }
    let body = Body {
        tagged: Tagged {
            message_type: &call.method,
            method: &call.method,
            sequence,
            command_id: call.command_id.clone().filter(|_| v2),
            timeout_ms: timeout_ms.filter(|_| v2),
        },
        params: v2.then_some(&call.params).filter(|_| fields.is_some()),
        flattened: fields.filter(|_| !v2),
    };
    serde_json::to_vec(&body)
        .map_err(|error| Fault::internal(format!("encode {}: {error}", call.method)))
}

const RESERVED: &[&str] = &["type", "method", "sequence"];

/// Reads a request's body; what is missing or of the wrong type is an error, never a default.
pub(super) fn parse(
    protocol: Protocol,
    mut fields: Map<String, Value>,
    origin: Origin,
) -> Result<Call, Fault> {
    let message_type = fields.remove("type");
    let method = match fields.remove("method").or(message_type) {
        Some(Value::String(method)) if !method.is_empty() => method,
        _ => {
            return Err(Fault::new(
                Code::InvalidMessage,
                "the request names no method",
            ));
        }
    };
    fields.remove("sequence");
    let mut call = Call {
        method,
        params: Value::Null,
        origin,
        command_id: None,
        timeout_ms: None,
        cancel: CancellationToken::new(),
    };
    if protocol == Protocol::V1 {
        call.params = Value::Object(fields);
        return Ok(call);
    }
    call.params = match fields.remove("params") {
        None => Value::Object(Map::new()),
        Some(params @ Value::Object(_)) => params,
        Some(_) => return Err(Fault::invalid_params(&call.method, "must be an object")),
    };
    call.command_id = optional(&mut fields, "commandId")?;
    call.timeout_ms = optional(&mut fields, "timeoutMs")?;
    Ok(call)
}

fn optional<T: serde::de::DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, Fault> {
    fields
        .remove(name)
        .map(|value| {
            serde_json::from_value(value)
                .map_err(|error| Fault::new(Code::InvalidMessage, format!("{name}: {error}")))
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::link::object;
    use serde_json::json;

    const ORIGIN: Origin = Origin::Server { epoch: 1 };

    fn call(params: Value) -> Call {
        Call::new("script.run", params, ORIGIN)
    }

    #[test]
    fn protocol_1_flattens_and_protocol_2_keeps_the_script_s_own_timeout_apart() {
        let params = json!({"path": "a.lua", "timeoutMs": 5});
        let mut call = call(params.clone());
        call.command_id = Some(CommandId::parse("c-1").unwrap());
        let old = encode(Protocol::V1, 0, &call, Some(30_000)).unwrap();
        assert_eq!(
            String::from_utf8(old.clone()).unwrap(),
            r#"{"type":"script.run","method":"script.run","sequence":0,"path":"a.lua","timeoutMs":5}"#
        );
        let new = encode(Protocol::V2, 0, &call, Some(30_000)).unwrap();
        for (protocol, body) in [(Protocol::V1, old), (Protocol::V2, new)] {
            let read = parse(protocol, object(&body).unwrap(), ORIGIN).unwrap();
            assert_eq!(read.method, "script.run");
            assert_eq!(read.params, params);
            let v2 = protocol == Protocol::V2;
            assert_eq!(read.timeout_ms, v2.then_some(30_000));
            assert_eq!(read.command_id.is_some(), v2);
        }
    }

    #[test]
    fn missing_method_is_read_from_type_and_wrong_types_are_errors() {
        let read = |text: &str| parse(Protocol::V2, object(text.as_bytes()).unwrap(), ORIGIN);
        assert_eq!(read(r#"{"type":"x"}"#).unwrap().method, "x");
        for bad in [
            "{}",
            r#"{"type":7}"#,
            r#"{"type":"x","params":[]}"#,
            r#"{"type":"x","timeoutMs":"5"}"#,
            r#"{"type":"x","commandId":"a b"}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn protocol_1_refuses_parameters_that_would_hide_the_method() {
        assert!(encode(Protocol::V1, 0, &call(json!({"type": "x"})), None).is_err());
    }
}
