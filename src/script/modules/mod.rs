//! The script modules: one file each, every one a table of descriptors.

mod args;
mod artifact;
mod clipboard;
mod crypto;
mod file;
mod http;
mod image;
mod input;
mod json;
mod kv;
mod log;
mod process;
mod result;
mod screen;
mod timer;
mod util;
mod window;

use super::descriptor::{Function, Type};
use super::value::Value;

/// A named set of functions.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    pub name: &'static str,
    /// One sentence.
    pub doc: &'static str,
    pub functions: &'static [Function],
}

/// Every module, in the order of the documentation.
pub const ALL: &[Module] = &[
    screen::MODULE,
    image::MODULE,
    input::MODULE,
    window::MODULE,
    process::MODULE,
    clipboard::MODULE,
    kv::MODULE,
    file::MODULE,
    json::MODULE,
    http::MODULE,
    crypto::MODULE,
    timer::MODULE,
    util::MODULE,
    log::MODULE,
    artifact::MODULE,
    args::MODULE,
    result::MODULE,
];

/// Every function of every module.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    ALL.iter().flat_map(|module| module.functions)
}

/// A map value from names and values.
fn record<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Map(
        fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

fn point(at: crate::base::Point) -> Value {
    record([
        ("x", Value::Int(at.x.into())),
        ("y", Value::Int(at.y.into())),
    ])
}

fn rect(rect: crate::base::Rect) -> Value {
    record([
        ("x", Value::Int(rect.x.into())),
        ("y", Value::Int(rect.y.into())),
        ("width", Value::Int(rect.width.into())),
        ("height", Value::Int(rect.height.into())),
    ])
}

fn color(color: crate::base::Color) -> Value {
    record([
        ("r", Value::Int(color.r.into())),
        ("g", Value::Int(color.g.into())),
        ("b", Value::Int(color.b.into())),
        ("a", Value::Int(color.a.into())),
    ])
}

/// A text, or nil.
fn opt_text(text: Option<impl Into<String>>) -> Value {
    text.map_or(Value::Nil, |text| Value::Text(text.into()))
}

/// A number from the platform that scripts see as an integer; one too large for it is an error.
fn int(number: u64) -> Result<Value, super::fault::ScriptFault> {
    i64::try_from(number).map(Value::Int).map_err(|_| {
        super::fault::ScriptFault::Failed(crate::wire::Fault::internal(format!(
            "the number {number} does not fit an integer"
        )))
    })
}

const TEXT: Type = Type::Text;
