//! Protocol 1 on the agent: the challenge's answer, an old server's requests in today's words, and
//! today's events in its words. (Specification, sections 1.3 to 1.7.)

use std::sync::Arc;

use ring::hmac;
use serde_json::{Map, Value, json};

use crate::base::Secret;
use crate::wire::event::{Record, name};
use crate::wire::messages::executions::Status;
use crate::wire::{Answer, BoxFuture, Call, Code, Fault, Handler, Origin, table};

/// `HMAC-SHA256(key = ASCII of sha256hex(token), message = ASCII of the nonce)`, lower-case
/// hexadecimal.
pub(super) fn challenge_hmac(token: &Secret, nonce: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.expose().as_bytes());
    let key = data_encoding::HEXLOWER.encode(digest.as_ref());
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    data_encoding::HEXLOWER.encode(hmac::sign(&key, nonce.as_bytes()).as_ref())
}

/// Methods that an old server may ask for.
const METHODS: &[&str] = &[
    "run_script",
    "stop_script",
    "get_status",
    "list_windows",
    "screenshot.capture",
    "system.shutdown",
];

/// The node's handler behind an old server's words and shapes.
pub(super) struct PlainHandler {
    pub inner: Arc<dyn Handler>,
}

impl Handler for PlainHandler {
    fn call(&self, call: Call) -> BoxFuture<Result<Answer, Fault>> {
        Box::pin(answer(Arc::clone(&self.inner), call))
    }

    fn disconnected(&self, origin: Origin) {
        self.inner.disconnected(origin);
    }
}

async fn answer(node: Arc<dyn Handler>, mut call: Call) -> Result<Answer, Fault> {
    let row = table::find(&call.method).filter(|_| METHODS.contains(&call.method.as_str()));
    let Some(row) = row else {
        return Err(Fault::new(
            Code::UnknownMethod,
            format!("unknown command: {}", call.method),
        ));
    };
    let old_name = std::mem::replace(&mut call.method, row.name.to_owned());
    let mut params = match std::mem::take(&mut call.params) {
        Value::Object(params) => params,
        _ => Map::new(),
    };
    if old_name == "run_script" {
        for (old, new) in [("content", "source"), ("timeout", "timeoutMs")] {
            if let Some(value) = params.remove(old) {
                params.insert(new.to_owned(), value);
            }
        }
    }
    coerce(&mut params, &(row.params_schema)());
    match old_name.as_str() {
        "run_script" => {
            if !params.contains_key("path") && !params.contains_key("source") {
                return Err(Fault::invalid_params(
                    "run_script",
                    "missing path parameter",
                ));
            }
            gather_args(&mut params);
        }
        "stop_script" if !params.contains_key("script_id") => {
            return Err(Fault::invalid_params(
                "stop_script",
                "missing script_id parameter",
            ));
        }
        _ => {}
    }
    call.params = Value::Object(params);
    let origin = call.origin;
    let answer = node.call(call).await?;
    if old_name == "get_status" {
        return old_status(&*node, answer, origin).await;
    }
    Ok(answer)
}

/// Old servers send some numbers, flags and objects as text; what the schema wants otherwise is read
/// as JSON. Text that is no JSON stays, for the method to refuse.
fn coerce(params: &mut Map<String, Value>, schema: &Value) {
    for (name, value) in params {
        let Value::String(text) = &*value else {
            continue;
        };
        let wanted = schema.get("properties").and_then(|all| all.get(name));
        if wanted.is_some_and(|wanted| !takes_text(wanted, schema))
            && let Ok(read) = serde_json::from_str::<Value>(text)
        {
            *value = read;
        }
    }
}

/// Whether a property's schema lets a text through.
fn takes_text(property: &Value, root: &Value) -> bool {
    let is_text = |kind: &Value| kind == "string";
    match property.get("type") {
        Some(Value::Array(kinds)) => return kinds.iter().any(is_text),
        Some(kind) => return is_text(kind),
        None => {}
    }
    if let Some(Value::String(target)) = property.get("$ref") {
        let found = target
            .strip_prefix("#/$defs/")
            .and_then(|name| root.get("$defs")?.get(name));
        return found.is_none_or(|definition| takes_text(definition, root));
    }
    for list in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(parts)) = property.get(list) {
            return parts.iter().any(|part| takes_text(part, root));
        }
    }
    // Nothing said: anything goes, text too.
    true
}

/// Parameters that are none of the method's are the script's own.
fn gather_args(params: &mut Map<String, Value>) {
    const OWN: &[&str] = &[
        "path",
        "source",
        "language",
        "timeoutMs",
        "name",
        "args",
        "executionId",
        "wait",
    ];
    let extra: Vec<String> = params
        .keys()
        .filter(|name| !OWN.contains(&name.as_str()))
        .cloned()
        .collect();
    let mut args = match params.remove("args") {
        Some(Value::Object(args)) => args,
        _ => Map::new(),
    };
    for name in extra {
        if let Some(value) = params.remove(&name) {
            let text = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
            args.insert(name, Value::String(text));
        }
    }
    if !args.is_empty() {
        params.insert("args".to_owned(), Value::Object(args));
    }
    // A path that comes with its text is a name.
    if params.contains_key("source")
        && let Some(path) = params.remove("path")
    {
        params.entry("name").or_insert(path);
    }
}

/// Today's status with the fields that an old server reads.
async fn old_status(
    node: &dyn Handler,
    mut answer: Answer,
    origin: Origin,
) -> Result<Answer, Fault> {
    let list = Call::new("script.list", json!({}), origin);
    let scripts = node.call(list).await?.data;
    let rows = scripts.get("scripts").and_then(Value::as_array);
    let scripts: Vec<Value> = rows
        .into_iter()
        .flatten()
        .map(|row| {
            json!({
                "id": row.get("id"),
                "path": row.get("path").or(row.get("name")),
                "state": row.get("state"),
                "error": row.get("error").cloned().unwrap_or_else(|| "".into()),
                "uptime": 0,
            })
        })
        .collect();
    if let Value::Object(fields) = &mut answer.data {
        let running = !scripts.is_empty();
        for (name, value) in [
            ("remoteEnabled", Value::Bool(true)),
            ("remoteConnected", Value::Bool(true)),
            ("localIpcEnabled", Value::Bool(true)),
            ("standaloneScriptEnabled", Value::Bool(true)),
            ("standaloneRunning", Value::Bool(running)),
            ("scripts", Value::Array(scripts)),
        ] {
            fields.insert(name.to_owned(), value);
        }
    }
    Ok(answer)
}

/// A record as old events; most have none.
pub(super) fn events_of(record: &Record) -> Vec<(&'static str, Value)> {
    let payload = &record.payload;
    match record.event_type.as_str() {
        name::EXECUTION_OUTPUT => {
            let script_id = payload.get("executionId");
            let lines = payload.get("lines").and_then(Value::as_array);
            lines
                .into_iter()
                .flatten()
                .map(|line| {
                    let data = json!({
                        "scriptId": script_id,
                        "message": line.get("text"),
                        "level": line.get("level"),
                    });
                    ("script_output", data)
                })
                .collect()
        }
        name::EXECUTION_STATE => {
            let execution = payload.get("execution").unwrap_or(payload);
            let status = execution.get("status").and_then(Value::as_str);
            let state = status.and_then(Status::parse).map_or("unknown", old_state);
            let error = execution
                .get("error")
                .and_then(|error| error.get("message"));
            let data = json!({
                "scriptId": execution.get("executionId"),
                "state": state,
                "status": status,
                "error": error.and_then(Value::as_str).unwrap_or(""),
            });
            vec![("script_state", data)]
        }
        _ => Vec::new(),
    }
}

fn old_state(status: Status) -> &'static str {
    match status {
        Status::Pending | Status::Queued => "loaded",
        Status::Running | Status::Stopping => "running",
        Status::Succeeded | Status::Cancelled => "stopped",
        Status::Failed | Status::Timeout | Status::Lost => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::digest::sha256_hex;

    fn hmac_hex(key: &[u8], message: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        data_encoding::HEXLOWER.encode(hmac::sign(&key, message).as_ref())
    }

    #[test]
    fn hashes_are_those_of_the_specification() {
        assert_eq!(
            sha256_hex("tok-1"),
            "65dcf16ea3dfa49069628089eb4a75483070f5584b2a21ee64912b5f621f12da"
        );
        assert_eq!(
            sha256_hex("x".repeat(200)),
            "aa20c23e3201834050679e1d88941b9a6fed0557c9a705cb2c315e2e63fd486d"
        );
        assert_eq!(
            hmac_hex(&[0x0b; 20], b"Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hmac_hex(b"Jefe", b"what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hmac_hex(
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First"
            ),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn challenge_answer_is_that_of_the_specification() {
        let nonce = "00112233445566778899aabbccddeeff".repeat(2);
        assert_eq!(
            challenge_hmac(&Secret::new("tok-1"), &nonce),
            "aa1b9280bd896237986b9cc680446c0833f6cedeaffe1b2e47b0bcd337f1f4d6"
        );
    }

    fn coerced(method: &str, params: Value) -> Value {
        let Value::Object(mut params) = params else {
            panic!("an object")
        };
        let row = table::find(method).unwrap();
        coerce(&mut params, &(row.params_schema)());
        Value::Object(params)
    }

    #[test]
    fn numbers_and_objects_written_as_text_are_read_and_texts_stay() {
        let params = json!({"displayId": "0", "region": "{\"x\":1,\"y\":2,\"width\":3,\"height\":4}", "profile": "7"});
        assert_eq!(
            coerced("screenshot.capture", params),
            json!({"displayId": 0, "region": {"x":1,"y":2,"width":3,"height":4}, "profile": "7"})
        );
        let params = json!({"path": "12", "timeoutMs": "500", "wait": "true", "language": "lua"});
        assert_eq!(
            coerced("run_script", params),
            json!({"path": "12", "timeoutMs": 500, "wait": true, "language": "lua"})
        );
    }

    #[test]
    fn final_state_is_told_in_the_old_words() {
        let execution = json!({"executionId": "run-1", "status": "failed",
            "error": {"code": "script_error", "message": "no such window"}});
        let record = Record {
            schema_version: Record::SCHEMA_VERSION,
            sequence: 1,
            event_id: crate::base::ids::EventId::random(),
            observed_at: crate::base::EpochMillis(0),
            committed_at: crate::base::EpochMillis(0),
            session_id: "run-1".into(),
            stream: "executions".into(),
            event_type: name::EXECUTION_STATE.into(),
            source: Default::default(),
            foreground: None,
            correlation_id: None,
            causation_id: None,
            payload: json!({"execution": execution}),
            artifacts: Vec::new(),
        };
        let told = json!({"scriptId": "run-1", "state": "error", "status": "failed",
            "error": "no such window"});
        assert_eq!(events_of(&record), [("script_state", told)]);
    }

    #[test]
    fn script_parameters_of_its_own_become_args() {
        let Value::Object(mut params) =
            json!({"path": "a.lua", "source": "x", "who": "me", "count": 3})
        else {
            panic!("an object")
        };
        gather_args(&mut params);
        assert_eq!(
            Value::Object(params),
            json!({"source": "x", "name": "a.lua", "args": {"who": "me", "count": "3"}})
        );
    }
}
