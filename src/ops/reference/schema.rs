//! JSON Schemas as words and tables.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::table;

/// Types that schemas refer to, collected while pages are written.
#[derive(Default)]
pub(super) struct Types {
    named: BTreeMap<String, Value>,
}

impl Types {
    /// Takes up the definitions of one schema. A name that another schema has used for something
    /// else gets the method's name behind it.
    pub fn take_up(&mut self, schema: &Value, method: &str) -> Renames {
        let mut renames = Renames::default();
        let Some(Value::Object(definitions)) = schema.get("$defs") else {
            return renames;
        };
        for (name, definition) in definitions {
            let own = match self.named.get(name) {
                Some(known) if known != definition => format!("{name} of {method}"),
                _ => name.clone(),
            };
            self.named.insert(own.clone(), definition.clone());
            renames.0.insert(name.clone(), own);
        }
        renames
    }

    /// A section for each type.
    pub fn sections(&self) -> String {
        let mut text = String::new();
        let own = Renames::default();
        for (name, schema) in &self.named {
            text.push_str(&format!("### {name}\n\n"));
            if let Some(about) = description(schema) {
                text.push_str(&format!("{about}\n\n"));
            }
            let fields = fields(schema, &own);
            if fields.is_empty() {
                text.push_str(&format!("{}.\n\n", capitalised(&words(schema, &own))));
            } else {
                text.push_str(&fields);
            }
        }
        text
    }
}

/// From the names in a schema to those on the page.
#[derive(Default)]
pub(super) struct Renames(BTreeMap<String, String>);

impl Renames {
    fn link(&self, reference: &str) -> String {
        let name = reference.rsplit('/').next().unwrap_or(reference);
        let shown = self.0.get(name).map_or(name, String::as_str);
        let anchor = shown.to_lowercase().replace(' ', "-").replace('.', "");
        format!("[{shown}](#{anchor})")
    }
}

/// The fields of an object as a table; empty for anything else.
pub(super) fn fields(schema: &Value, renames: &Renames) -> String {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return String::new();
    };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let rows: Vec<Vec<String>> = properties
        .iter()
        .map(|(name, property)| {
            let needed = if required.contains(&name.as_str()) {
                "yes"
            } else {
                ""
            };
            vec![
                format!("`{name}`"),
                words(property, renames),
                needed.to_owned(),
                description(property).unwrap_or_default().to_owned(),
            ]
        })
        .collect();
    table(&["Field", "Type", "Required", "Meaning"], &rows)
}

pub(super) fn description(schema: &Value) -> Option<&str> {
    schema.get("description").and_then(Value::as_str)
}

/// A type in a few words.
pub(super) fn words(schema: &Value, renames: &Renames) -> String {
    let Some(schema) = schema.as_object() else {
        return "anything".to_owned();
    };
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return renames.link(reference);
    }
    if let Some(value) = schema.get("const") {
        return format!("`{}`", plain(value));
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let texts: Vec<String> = values
            .iter()
            .filter(|value| !value.is_null())
            .map(|value| format!("`{}`", plain(value)))
            .collect();
        return texts.join(", ");
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(choices) = schema.get(key).and_then(Value::as_array) {
            return alternatives(choices, renames);
        }
    }
    by_type(schema, renames)
}

fn alternatives(choices: &[Value], renames: &Renames) -> String {
    let texts: Vec<String> = choices
        .iter()
        .filter(|choice| choice.get("type").and_then(Value::as_str) != Some("null"))
        .map(|choice| match choice.get("properties") {
            Some(Value::Object(properties)) => variant(choice, properties, renames),
            _ => words(choice, renames),
        })
        .collect();
    // The values of one enumeration are a list; different types are a choice.
    let listed = texts.iter().all(|text| text.starts_with('`'));
    texts.join(if listed { ", " } else { " or " })
}

fn variant(choice: &Value, properties: &Map<String, Value>, renames: &Renames) -> String {
    let mut parts: Vec<String> = properties
        .iter()
        .map(|(name, property)| format!("`{name}`: {}", words(property, renames)))
        .collect();
    if let Some(reference) = choice.get("$ref").and_then(Value::as_str) {
        parts.push(format!("the fields of {}", renames.link(reference)));
    }
    format!("an object ({})", parts.join(", "))
}

fn by_type(schema: &Map<String, Value>, renames: &Renames) -> String {
    let kind = match schema.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(Value::Array(kinds)) => kinds
            .iter()
            .filter_map(Value::as_str)
            .find(|kind| *kind != "null")
            .unwrap_or("null"),
        _ => return "anything".to_owned(),
    };
    match kind {
        "array" => {
            let items = schema.get("items");
            let items = items.map_or_else(|| "anything".to_owned(), |item| words(item, renames));
            format!("list of {items}")
        }
        "object" => match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => format!("map of {}", words(values, renames)),
            _ => "object".to_owned(),
        },
        kind => kind.to_owned(),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_read_as_words() {
        let none = Renames::default();
        let cases = [
            (json!({"type": "integer", "format": "int32"}), "integer"),
            (json!({"type": ["string", "null"]}), "string"),
            (
                json!({"type": "array", "items": {"$ref": "#/$defs/Agent"}}),
                "list of [Agent](#agent)",
            ),
            (
                json!({"anyOf": [{"$ref": "#/$defs/Rect"}, {"type": "null"}]}),
                "[Rect](#rect)",
            ),
            (json!({"type": "string", "enum": ["a", "b"]}), "`a`, `b`"),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                "map of string",
            ),
            (
                json!({"oneOf": [{"enum": ["a", "b"]}, {"const": "c"}]}),
                "`a`, `b`, `c`",
            ),
            (json!(true), "anything"),
        ];
        for (schema, text) in cases {
            assert_eq!(words(&schema, &none), text, "{schema}");
        }
    }

    #[test]
    fn one_name_for_two_types_is_told_apart() {
        let mut types = Types::default();
        let of = |kind: &str| json!({"$defs": {"Row": {"type": kind}}});
        assert_eq!(
            types.take_up(&of("string"), "a.b").link("#/$defs/Row"),
            "[Row](#row)"
        );
        assert_eq!(
            types.take_up(&of("string"), "c.d").link("#/$defs/Row"),
            "[Row](#row)"
        );
        let renamed = types.take_up(&of("object"), "c.d").link("#/$defs/Row");
        assert_eq!(renamed, "[Row of c.d](#row-of-cd)");
    }
}
