//! One JSON object of parameters out of path, query and body.

use axum::body::Bytes;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Number, Value};

use super::routes::{Route, Scalar};
use crate::wire::{Code, Fault};

/// Merges body, query and path; what stands in the path wins, then the query.
pub fn merge(
    route: &Route,
    path: Vec<(String, String)>,
    query: Option<&str>,
    body: &Bytes,
) -> Result<Map<String, Value>, Fault> {
    let mut params = if body.is_empty() {
        Map::new()
    } else {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => {
                return Err(Fault::new(
                    Code::InvalidMessage,
                    "the body is no JSON object",
                ));
            }
            Err(error) => {
                let why = format!("the body is not valid JSON: {error}");
                return Err(Fault::new(Code::InvalidMessage, why));
            }
        }
    };
    for (name, text) in pairs(query.unwrap_or_default())? {
        match (route.scalars.get(&name), params.get_mut(&name)) {
            (Some(Scalar::List), Some(Value::Array(items))) => items.push(Value::String(text)),
            (Some(Scalar::List), _) => {
                params.insert(name, Value::Array(vec![Value::String(text)]));
            }
            (kind, _) => {
                let value = read(kind.copied(), text);
                params.insert(name, value);
            }
        }
    }
    for (name, text) in path {
        let value = read(route.scalars.get(&name).copied(), text);
        params.insert(name, value);
    }
    Ok(params)
}

fn pairs(query: &str) -> Result<Vec<(String, String)>, Fault> {
    let decode = |text: &str| {
        percent_decode_str(&text.replace('+', " "))
            .decode_utf8()
            .map(|text| text.into_owned())
            .map_err(|_| Fault::new(Code::InvalidMessage, "the query is not UTF-8"))
    };
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Text as its parameter's type; text that does not fit stays text, for the method to refuse.
/// A name that the schema does not know (an alias) is a number when it looks like one.
fn read(kind: Option<Scalar>, text: String) -> Value {
    match kind {
        Some(Scalar::Text | Scalar::List) => Value::String(text),
        Some(Scalar::Boolean) => match text.as_str() {
            "true" | "1" => Value::Bool(true),
            "false" | "0" => Value::Bool(false),
            _ => Value::String(text),
        },
        Some(Scalar::Number) => match text.parse::<f64>().ok().and_then(Number::from_f64) {
            Some(number) => Value::Number(number),
            None => Value::String(text),
        },
        Some(Scalar::Integer) | None => {
            if let Ok(number) = text.parse::<u64>() {
                number.into()
            } else if let Ok(number) = text.parse::<i64>() {
                number.into()
            } else {
                Value::String(text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::routes::ROUTES;

    fn route(name: &str) -> &'static Route {
        ROUTES.iter().find(|route| route.row.name == name).unwrap()
    }

    #[test]
    fn path_wins_over_query_and_body() {
        let path = vec![("agentId".to_owned(), "desk".to_owned())];
        let body = Bytes::from_static(br#"{"agentId":"x","tags":["a"]}"#);
        let params = merge(route("agents.setTags"), path, Some("agentId=y"), &body).unwrap();
        assert_eq!(params["agentId"], "desk");
        assert_eq!(params["tags"][0], "a");
    }

    #[test]
    fn query_text_takes_the_parameter_s_type() {
        let query = Some("page=2&scriptId=7&status=running");
        let params = merge(route("execution.list"), vec![], query, &Bytes::new()).unwrap();
        assert_eq!(params["page"], 2);
        assert_eq!(params["scriptId"], "7");
        let query = Some("from=5&follow&prefix=a%2Fb+c");
        let params = merge(route("events.follow"), vec![], query, &Bytes::new()).unwrap();
        assert_eq!(params["from"], 5);
        assert_eq!(params["follow"], true);
        assert_eq!(params["prefix"], "a/b c");
    }

    #[test]
    fn bodies_that_are_no_object_and_queries_that_are_no_text_are_refused() {
        for body in ["[]", "3", "{", "\u{0}"] {
            let body = Bytes::copy_from_slice(body.as_bytes());
            let fault = merge(route("script.run"), vec![], None, &body).unwrap_err();
            assert_eq!(fault.code, Code::InvalidMessage);
        }
        let fault = merge(
            route("execution.list"),
            vec![],
            Some("status=%ff"),
            &Bytes::new(),
        );
        assert_eq!(fault.unwrap_err().code, Code::InvalidMessage);
    }
}
