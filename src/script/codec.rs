//! Values to JSON and back. Integers stay integers, empty lists stay lists, depth is bounded.

use serde_json::{Map, Number, Value as Json};

use super::fault::ScriptFault;
use super::value::Value;
use crate::base::limits::SCRIPT_VALUE_DEPTH_MAX;
use crate::wire::Code;

fn refused(why: impl Into<String>) -> ScriptFault {
    ScriptFault::failed(Code::InvalidParams, why)
}

fn too_deep() -> ScriptFault {
    refused(format!(
        "the value is nested deeper than {SCRIPT_VALUE_DEPTH_MAX} levels"
    ))
}

/// A value as JSON; bytes and numbers that are not finite are errors.
pub fn to_json(value: &Value) -> Result<Json, ScriptFault> {
    to_json_at(value, 0)
}

fn to_json_at(value: &Value, depth: usize) -> Result<Json, ScriptFault> {
    if depth > SCRIPT_VALUE_DEPTH_MAX {
        return Err(too_deep());
    }
    Ok(match value {
        Value::Nil => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(n) => Json::Number((*n).into()),
        Value::Float(n) => Number::from_f64(*n)
            .map(Json::Number)
            .ok_or_else(|| refused(format!("JSON has no number {n}")))?,
        Value::Text(text) => Json::String(text.clone()),
        Value::Bytes(bytes) => {
            return Err(refused(format!(
                "JSON holds no bytes; encode these {} with crypto.base64Encode",
                bytes.len()
            )));
        }
        Value::List(list) | Value::Tuple(list) => Json::Array(
            list.iter()
                .map(|item| to_json_at(item, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(map) => Json::Object(
            map.iter()
                .map(|(name, item)| Ok((name.clone(), to_json_at(item, depth + 1)?)))
                .collect::<Result<Map<_, _>, ScriptFault>>()?,
        ),
    })
}

/// JSON as a value; a whole number beyond 64 bits is an error rather than a rounded one.
pub fn from_json(json: Json) -> Result<Value, ScriptFault> {
    from_json_at(json, 0)
}

fn from_json_at(json: Json, depth: usize) -> Result<Value, ScriptFault> {
    if depth > SCRIPT_VALUE_DEPTH_MAX {
        return Err(too_deep());
    }
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(b) => Value::Bool(b),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(n), _) => Value::Int(n),
            (None, Some(n)) if !number.is_u64() => Value::Float(n),
            _ => {
                return Err(refused(format!(
                    "the integer {number} does not fit 64 bits"
                )));
            }
        },
        Json::String(text) => Value::Text(text),
        Json::Array(list) => Value::List(
            list.into_iter()
                .map(|item| from_json_at(item, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Json::Object(map) => Value::Map(
            map.into_iter()
                .map(|(name, item)| Ok((name, from_json_at(item, depth + 1)?)))
                .collect::<Result<_, ScriptFault>>()?,
        ),
    })
}

/// JSON text, on one line, or with `indent` spaces a level.
pub fn encode(value: &Value, indent: Option<usize>) -> Result<String, ScriptFault> {
    let json = to_json(value)?;
    let Some(indent) = indent else {
        return Ok(json.to_string());
    };
    let spaces = vec![b' '; indent];
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(&spaces);
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    serde::Serialize::serialize(&json, &mut serializer)
        .map_err(|error| refused(format!("write JSON: {error}")))?;
    String::from_utf8(text).map_err(|error| refused(format!("write JSON: {error}")))
}

/// The value of a JSON text. Errors name line and column.
pub fn decode(text: &str) -> Result<Value, ScriptFault> {
    let json: Json = serde_json::from_str(text)
        .map_err(|error| refused(format!("the text is not JSON: {error}")))?;
    from_json(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_empty_lists_survive_both_ways() {
        let text = r#"{"big":9007199254740993,"f":1.5,"list":[],"map":{},"n":null}"#;
        let value = decode(text).unwrap();
        assert_eq!(encode(&value, None).unwrap(), text);
        assert!(decode("18446744073709551615").is_err());
        assert!(
            decode("{\"a\":}")
                .unwrap_err()
                .to_string()
                .contains("line 1 column 6")
        );
    }

    #[test]
    fn nesting_is_bounded_both_ways() {
        let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
        assert!(
            decode(&deep)
                .unwrap_err()
                .to_string()
                .contains("nested deeper")
        );
        let hostile = "[".repeat(1_000_000);
        assert!(decode(&hostile).is_err());
        let mut value = Value::Nil;
        for _ in 0..100 {
            value = Value::List(vec![value]);
        }
        assert!(encode(&value, None).is_err());
    }
}
