//! The API described as OpenAPI 3.1, from the routes table and the messages' schemas.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::routes::{Access, ROUTES, Route};
use crate::wire::method::{Body, Verb};

/// The document; it does not change while the process runs.
pub static DOCUMENT: LazyLock<Value> = LazyLock::new(build);

fn build() -> Value {
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for route in ROUTES.iter() {
        let item = paths
            .entry(route.rest.path)
            .or_insert_with(|| Value::Object(Map::new()));
        item[route.rest.verb.as_str().to_ascii_lowercase()] = operation(route, &mut schemas);
    }
    schemas.insert("Fault".into(), fault_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Wingman",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The control host's API. Every route names the permission it needs.",
        },
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "__Host-wingman"},
                "sessionLoopback": {"type": "apiKey", "in": "cookie", "name": "wingman"},
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut Map<String, Value>) -> Value {
    let row = route.row;
    let doc = row.doc.trim();
    let summary = doc.split_once(". ").map_or(doc, |(first, _)| first);
    let params = hoist((row.params_schema)(), schemas);
    let reply = hoist((row.reply_schema)(), schemas);
    let tag = row
        .name
        .split_once('.')
        .map_or(row.name, |(family, _)| family);
    let in_path: Vec<_> = path_names(route.rest.path).collect();
    let mut operation = json!({
        "operationId": row.name,
        "summary": summary.trim_end_matches('.'),
        "description": doc,
        "tags": [tag],
        "parameters": parameters(route, &params, &in_path),
        "responses": {
            "200": success(route, reply),
            "default": {
                "description": "The request failed; the code is stable.",
                "content": {"application/json": {
                    "schema": {"$ref": "#/components/schemas/Fault"}
                }},
            },
        },
    });
    if route.rest.verb != Verb::Get
        && let Some(body) = body(route, params, &in_path)
    {
        operation["requestBody"] = body;
    }
    match route.access {
        Access::Public => operation["security"] = json!([]),
        Access::Held(permission) => {
            operation["security"] =
                json!([{"bearer": []}, {"session": []}, {"sessionLoopback": []}]);
            operation["x-permission"] = permission.as_str().into();
        }
    }
    if let Some(capability) = row.capability {
        operation["x-capability"] = capability.into();
    }
    operation
}

fn parameters(route: &Route, params: &Value, in_path: &[&str]) -> Vec<Value> {
    let known = |name: &str| params["properties"].get(name);
    let mut found: Vec<_> = in_path
        .iter()
        .map(|name| {
            let schema = known(name).cloned().unwrap_or(json!({"type": "string"}));
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        })
        .collect();
    if route.rest.verb == Verb::Get {
        let required = params["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in params["properties"].as_object().into_iter().flatten() {
            if !in_path.contains(&name.as_str()) {
                found.push(json!({
                    "name": name,
                    "in": "query",
                    "required": required.contains(&Value::from(name.as_str())),
                    "schema": schema,
                }));
            }
        }
    }
    found
}

fn body(route: &Route, mut params: Value, in_path: &[&str]) -> Option<Value> {
    if let Some(properties) = params["properties"].as_object_mut() {
        properties.retain(|name, _| !in_path.contains(&name.as_str()));
    }
    if let Some(required) = params["required"].as_array_mut() {
        required.retain(|name| !in_path.iter().any(|known| name == known));
    }
    let empty = params["properties"].as_object().is_none_or(Map::is_empty);
    if empty && params.get("$ref").is_none() {
        return None;
    }
    let required = params["required"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    let mut media = json!({"schema": params});
    if let Ok(Value::Object(mut example)) = serde_json::from_str(route.row.example) {
        example.retain(|name, _| !in_path.contains(&name.as_str()));
        media["example"] = Value::Object(example);
    }
    Some(json!({"required": required, "content": {"application/json": media}}))
}

fn success(route: &Route, reply: Value) -> Value {
    let enveloped = |data: Value| {
        json!({
            "type": "object",
            "required": ["success", "data"],
            "properties": {"success": {"const": true}, "data": data},
        })
    };
    let content = match route.rest.body {
        Body::Enveloped => json!({"application/json": {"schema": enveloped(reply)}}),
        Body::Bare => json!({"application/json": {"schema": reply}}),
        Body::Ndjson => json!({"application/x-ndjson": {"schema": {"type": "string"}}}),
        Body::Bytes => json!({
            "*/*": {"schema": {"type": "string", "format": "binary"}},
            "application/json": {"schema": enveloped(reply)},
        }),
    };
    json!({"description": "Done.", "content": content})
}

/// Moves a schema's own definitions to the components, and its references with them.
fn hoist(mut schema: Value, schemas: &mut Map<String, Value>) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$schema");
        fields.remove("title");
        if let Some(Value::Object(definitions)) = fields.remove("$defs") {
            for (name, mut definition) in definitions {
                rebase(&mut definition);
                schemas.insert(name, definition);
            }
        }
    }
    rebase(&mut schema);
    schema
}

fn rebase(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == "$ref" => {
                        *text = text.replace("#/$defs/", "#/components/schemas/");
                    }
                    field => rebase(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rebase),
        _ => {}
    }
}

fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn fault_schema() -> Value {
    json!({
        "type": "object",
        "required": ["success", "error"],
        "properties": {
            "success": {"const": false},
            "error": {
                "type": "object",
                "required": ["code", "message", "requestId"],
                "properties": {
                    "code": {"type": "string", "description": "Stable snake_case text."},
                    "message": {"type": "string"},
                    "requestId": {"type": "string"},
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_with_its_name_and_permission() {
        for route in ROUTES.iter() {
            let verb = route.rest.verb.as_str().to_ascii_lowercase();
            let operation = &DOCUMENT["paths"][route.rest.path][verb];
            assert_eq!(operation["operationId"], route.row.name);
            match route.access {
                Access::Public => assert_eq!(operation["security"], json!([])),
                Access::Held(permission) => {
                    assert_eq!(operation["x-permission"], permission.as_str());
                    assert!(!operation["security"].as_array().unwrap().is_empty());
                }
            }
            let named: Vec<_> = operation["parameters"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|parameter| parameter["in"] == "path")
                .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
                .collect();
            let wanted: Vec<_> = path_names(route.rest.path).collect();
            assert_eq!(named, wanted, "{}", route.row.name);
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn check(value: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(reference)) = fields.get("$ref") {
                        let pointer = reference.strip_prefix('#').unwrap();
                        assert!(DOCUMENT.pointer(pointer).is_some(), "{reference}");
                    }
                    fields.values().for_each(check);
                }
                Value::Array(items) => items.iter().for_each(check),
                _ => {}
            }
        }
        check(&DOCUMENT);
        assert!(!DOCUMENT.to_string().contains("$defs"));
    }
}
