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
mod search;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::script::descriptor::{Preset, snake_case};

    const LUA: &str = "and break do else elseif end false for function goto if in local nil not or \
        repeat return then true until while continue export";
    const RHAI: &str = "true false let const if else do while until loop for in continue break return \
        throw try catch switch fn private import export as global this is_shared is_def_var \
        is_def_fn print debug type_of eval Fn call curry var static begin end shared with each then \
        goto exit match case default void null nil spawn thread go sync async await yield public \
        protected new use module package super is and or not";
    const PYTHON: &str = "False None True and as assert async await break class continue def del elif \
        else except finally for from global if import in is lambda nonlocal not or pass raise \
        return try while with yield print exec";

    #[test]
    fn no_name_is_a_reserved_word_of_any_language() {
        let words: BTreeSet<&str> = [LUA, RHAI, PYTHON]
            .iter()
            .flat_map(|list| list.split_whitespace())
            .collect();
        for module in ALL {
            assert!(!words.contains(module.name), "{}", module.name);
            for function in module.functions {
                for name in [function.name, &snake_case(function.name)] {
                    assert!(!words.contains(name), "{}.{name}", module.name);
                }
                for param in function.params {
                    assert!(!words.contains(param.name), "{}", param.name);
                }
                // Fields are read with a dot in Lua and Rhai, with brackets in Python.
                let fields = match function.reply {
                    Type::Record(fields) => fields,
                    Type::ListOf(Type::Record(fields)) => *fields,
                    _ => &[],
                };
                for (name, _) in fields {
                    let mut dotted = [LUA, RHAI].iter().flat_map(|list| list.split_whitespace());
                    assert!(dotted.all(|word| word != *name), "{name}");
                }
            }
        }
    }

    #[test]
    fn every_function_is_described_in_full() {
        let mut names = BTreeSet::new();
        for function in functions() {
            let name = function.full_name();
            assert!(names.insert(name.clone()), "{name} twice");
            assert!(function.doc.ends_with('.'), "{name}: text");
            assert!(!function.example.0.is_empty(), "{name}: example");
            assert!(
                function.example.0.contains(&format!("{name}(")),
                "{name}: example of another"
            );
            let mut optional = false;
            for param in function.params {
                assert!(!param.doc.is_empty(), "{name}: {}", param.name);
                // What may be left out stands last.
                let required = param.preset == Preset::Required;
                assert!(!(optional && required), "{name}: {}", param.name);
                optional |= !required;
            }
        }
    }

    #[test]
    fn the_names_that_checks_rely_on_are_there() {
        for wanted in [
            "screen.getScreenWidth",
            "window.waitFor",
            "process.start",
            "log.info",
        ] {
            assert!(
                functions().any(|function| function.full_name() == wanted),
                "{wanted}"
            );
        }
    }
}
