//! How a value reads in a line of output.

use super::codec;
use super::value::Value;

/// Text as it is, nil as `nil`, bytes by their number, the rest as JSON.
pub fn of(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Nil => "nil".to_owned(),
        Value::Bytes(bytes) => format!("<{} bytes>", bytes.len()),
        other => codec::encode(other, None)
            .unwrap_or_else(|fault| format!("<{}: {fault}>", other.kind())),
    }
}
