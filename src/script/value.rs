//! Values that cross between a script and the host.

use std::collections::BTreeMap;

/// What a script can hand to the host and get back. Engines convert both ways without loss:
/// integers stay integers, and a list stays a list even when it is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    #[default]
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// Bytes that need not be UTF-8 (Lua strings may be such).
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
    /// Several results: multiple returns in Lua, an array elsewhere.
    Tuple(Vec<Value>),
}

impl Value {
    /// The field's word for it, for error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "integer",
            Self::Float(_) => "number",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) | Self::Tuple(_) => "list",
            Self::Map(_) => "map",
        }
    }
}
