//! From a method row and its parameters to an HTTP request line and body.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::base::ids::AgentId;
use crate::wire::method::{Body, Owner, Rest, Verb};
use crate::wire::{Code, Fault, MethodRow};

/// Everything but what RFC 3986 calls unreserved.
pub(super) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A request without its host and headers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub verb: Verb,
    pub answer: Body,
    /// Path and query.
    pub target: String,
    /// A JSON object for POST and PUT.
    pub body: Option<Value>,
}

/// Fills the row's path from the parameters (`{agentId}` from `agent` where they have none); what is
/// left goes into the query of GET and DELETE, into the body otherwise.
pub(super) fn shape(
    row: &MethodRow,
    params: Value,
    agent: Option<&AgentId>,
) -> Result<Shape, Fault> {
    let Some(Rest { verb, path, body }) = row.rest else {
        let text = format!(
            "{} is a method of the local wire; it has no route",
            row.name
        );
        return Err(Fault::new(Code::LocalOnly, text));
    };
    let mut fields = match params {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        _ => return Err(Fault::invalid_params(row.name, "parameters are an object")),
    };
    if names_machine(row)
        && let Some(agent) = agent
    {
        let machine = || Value::String(agent.to_string());
        fields.entry("machine").or_insert_with(machine);
    }
    let mut target = fill(row.name, path, &mut fields, agent)?;
    let in_query = matches!(verb, Verb::Get | Verb::Delete);
    if in_query {
        let pairs: Vec<String> = fields.iter().filter_map(pair).collect();
        if !pairs.is_empty() {
            target = format!("{target}?{}", pairs.join("&"));
        }
    }
    Ok(Shape {
        verb,
        answer: body,
        target,
        body: (!in_query).then_some(Value::Object(fields)),
    })
}

/// Whether a server looks for the terminal session on one workstation when it is told which.
fn names_machine(row: &MethodRow) -> bool {
    row.owner == Owner::Each && (row.name.starts_with("session.") || row.name == "footprint.get")
}

fn fill(
    method: &str,
    path: &str,
    fields: &mut Map<String, Value>,
    agent: Option<&AgentId>,
) -> Result<String, Fault> {
    let mut target = String::with_capacity(path.len() + 32);
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            break;
        };
        target.push_str(before);
        let value = match fields.remove(name) {
            Some(value) => text(&value),
            None if name == "agentId" => agent.map(AgentId::to_string),
            None => None,
        };
        let value = value.filter(|value| !value.is_empty());
        let value =
            value.ok_or_else(|| Fault::invalid_params(method, format!("{name} is missing")))?;
        target.extend(utf8_percent_encode(&value, ENCODED));
        rest = after;
    }
    target.push_str(rest);
    Ok(target)
}

fn pair((name, value): (&String, &Value)) -> Option<String> {
    let value = text(value)?;
    let encode = |text| utf8_percent_encode(text, ENCODED).to_string();
    Some(format!("{}={}", encode(name), encode(&value)))
}

/// A value as it stands in a path or query; null has no text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::table;
    use serde_json::json;

    fn of(method: &str, params: Value) -> Result<Shape, Fault> {
        let agent = AgentId::parse("desk-1").unwrap();
        shape(table::find(method).unwrap(), params, Some(&agent))
    }

    #[test]
    fn path_query_and_body_take_their_parameters() {
        let run = of("script.run", json!({"source": "x"})).unwrap();
        assert_eq!(run.target, "/api/agents/desk-1/scripts/run");
        assert_eq!(run.body, Some(json!({"source": "x"})));
        let list = of("execution.list", json!({"status": "failed", "page": 2})).unwrap();
        assert_eq!(list.target, "/api/executions?page=2&status=failed");
        assert_eq!(list.body, None);
        let show = of("agents.show", json!({"agentId": "other"})).unwrap();
        assert_eq!(show.target, "/api/agents/other");
    }

    #[test]
    fn names_from_outside_cannot_leave_their_segment() {
        let params = json!({"executionId": "e", "name": "../../x?y#z"});
        let shape = of("execution.artifact", params).unwrap();
        assert_eq!(
            shape.target,
            "/api/executions/e/artifacts/..%2F..%2Fx%3Fy%23z"
        );
    }

    #[test]
    fn a_missing_path_parameter_is_told() {
        let fault = of("execution.get", json!({})).unwrap_err();
        assert_eq!(fault.code, Code::InvalidParams);
        assert!(fault.message.contains("executionId"));
    }

    #[test]
    fn every_route_can_be_built_from_its_example() {
        for row in table::METHODS.iter().filter(|row| row.rest.is_some()) {
            let params = serde_json::from_str(row.example).unwrap();
            let agent = AgentId::parse("desk-1").unwrap();
            let shape = shape(row, params, Some(&agent)).unwrap();
            assert!(!shape.target.contains('{'), "{}", row.name);
        }
    }
}
