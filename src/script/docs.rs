//! The script reference and the editors' stubs, generated from the descriptors.

use std::fmt::Write as _;

use super::descriptor::{Function, Param, Preset, Type, snake_case};
use super::modules::{self, Module};
use crate::wire::messages::scripts::Language;

/// The languages with their title and code fence, in the order of their tabs. A language that is
/// added here and in `descriptor::Example` gets its tab everywhere.
const TABS: &[(Language, &str, &str)] = &[
    (Language::Lua, "Lua", "lua"),
    (Language::Rhai, "Rhai", "rust"),
];

const INTRODUCTION: &str = "\
# Script reference

Generated from the descriptors by `wingman script docs`; do not edit.

Scripts are written in Lua (Luau) or Rhai and see the same modules. `screen.getPixel(1, 2)` reads the
same in both; every function has a snake_case spelling too (`screen.get_pixel`), and the modules also
stand under `wingman` (`wingman.screen.getPixel`).

- Coordinates are physical pixels of the whole desktop. Times are milliseconds unless a unit says
  otherwise. Colours are `0xRRGGBB`, `\"#rrggbb\"` or `{r, g, b}`.
- Parameters with a default may be left out or be `nil` (Lua) or `()` (Rhai). A map as the last
  argument gives the remaining parameters by name: `window.waitFor({title = \"xterm\", timeout = 1000})`.
- Where a thing is simply not there the answer is `nil` or `false`. What went wrong raises an error
  that `pcall` or `try` catches; its text ends with a stable code in brackets.
- Several results are multiple returns in Lua and an array in Rhai.
- In Lua a nil within a list is spelled `null`, since a `nil` would end the list; keys without a value
  are left out of maps.
- The lowest level of `log` is `verbose`, since `debug` is a reserved word of Rhai.
- Lua has no `os`, `io`, `debug`, `loadstring` or `package`; Rhai has no `eval`. `require(\"lib/tools\")`
  and `import \"lib/tools\" as tools;` load from the script's own folder.
- A run holds at most 100 MiB. In Rhai one value holds at most 4 Mi items (a blob: bytes) and 16 MiB of
  text. A stop ends the run within 200 ms, whatever the script catches.
";

/// The whole reference as Markdown.
pub fn reference_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for module in modules::ALL {
        write_module(&mut page, module);
    }
    page
}

// Writing to a string cannot fail, so results of `write!` are dropped in this file.

fn write_module(page: &mut String, module: &Module) {
    let _ = write!(page, "\n## {}\n\n{}\n", module.name, module.doc);
    for function in module.functions {
        write_function(page, function);
    }
}

fn write_function(page: &mut String, function: &Function) {
    let params: Vec<String> = function.params.iter().map(signature_part).collect();
    let _ = write!(
        page,
        "\n### {}\n\n`{}({}) → {}`\n\n{}\n",
        function.full_name(),
        function.full_name(),
        params.join(", "),
        type_text(function.reply),
        function.doc
    );
    if !function.params.is_empty() {
        page.push_str("\n| Parameter | Type | Default | |\n|---|---|---|---|\n");
    }
    for param in function.params {
        let unit = if param.unit.is_empty() {
            String::new()
        } else {
            format!(" ({})", param.unit)
        };
        let _ = writeln!(
            page,
            "| `{}` | {}{unit} | {} | {} |",
            param.name,
            type_text(param.kind),
            preset_text(param.preset),
            param.doc
        );
    }
    if let Some(capability) = function.capability {
        let _ = write!(page, "\nNeeds the capability `{capability}`.\n");
    }
    for (language, title, fence) in TABS {
        let _ = write!(
            page,
            "\n{title}:\n\n```{fence}\n{}\n```\n",
            function.example.render(*language)
        );
    }
}

fn signature_part(param: &Param) -> String {
    match param.preset {
        Preset::Required => param.name.to_owned(),
        _ => format!("{}?", param.name),
    }
}

fn preset_text(preset: Preset) -> String {
    match preset {
        Preset::Required => "required".to_owned(),
        Preset::Absent => "—".to_owned(),
        Preset::Bool(b) => format!("`{b}`"),
        Preset::Int(n) => format!("`{n}`"),
        Preset::Float(n) => format!("`{n}`"),
        Preset::Text(text) => format!("`{text:?}`"),
    }
}

fn type_text(kind: Type) -> String {
    match kind {
        Type::Nothing => "nothing".to_owned(),
        Type::Bool => "boolean".to_owned(),
        Type::Int => "integer".to_owned(),
        Type::Float => "number".to_owned(),
        Type::Text => "string".to_owned(),
        Type::Bytes => "bytes".to_owned(),
        Type::List => "list".to_owned(),
        Type::Map => "map".to_owned(),
        Type::Any => "any".to_owned(),
        Type::Point => "point".to_owned(),
        Type::Rect => "rectangle".to_owned(),
        Type::Color => "color".to_owned(),
        Type::Button => "button".to_owned(),
        Type::Keys => "keys".to_owned(),
        Type::Millis => "milliseconds".to_owned(),
        Type::Window => "window".to_owned(),
        Type::Image => "image".to_owned(),
        Type::Record(fields) => {
            let fields: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Type::ListOf(item) => format!("list of {}", type_text(*item)),
        Type::Optional(some) => format!("{} or nil", type_text(*some)),
        Type::Tuple(several) => {
            let several: Vec<String> = several.iter().copied().map(type_text).collect();
            several.join(", ")
        }
    }
}

const LUAU_TYPES: &str = "\
type Point = { x: number, y: number }
type Rect = { x: number, y: number, width: number, height: number }
type Rgba = { r: number, g: number, b: number, a: number }
type Color = number | string | { r: number, g: number, b: number, a: number? }
type Button = number | string
type Keys = string | number
type Bytes = string | buffer
type Window = number | { handle: number }
type Image = number | { image: number }
type Map = { [string]: any }
type List = { any }
";

/// Definitions for luau-lsp.
pub fn stubs_luau() -> String {
    let mut text = String::from("-- Generated by `wingman script stubs`; do not edit.\n\n");
    text.push_str(LUAU_TYPES);
    for module in modules::ALL {
        let _ = write!(text, "\n-- {}\ndeclare {}: {{\n", module.doc, module.name);
        for function in module.functions {
            let _ = writeln!(text, "\t-- {}", function.doc);
            for name in spellings(function) {
                let _ = writeln!(text, "\t{name}: {},", luau_function(function));
            }
        }
        text.push_str("}\n");
    }
    text.push_str("\ndeclare wingman: {\n");
    for module in modules::ALL {
        let _ = writeln!(text, "\t{0}: typeof({0}),", module.name);
    }
    text.push_str("}\n");
    text
}

fn spellings(function: &Function) -> Vec<String> {
    let mut names = vec![function.name.to_owned()];
    let alias = snake_case(function.name);
    if alias != function.name {
        names.push(alias);
    }
    names
}

fn luau_function(function: &Function) -> String {
    let params: Vec<String> = function
        .params
        .iter()
        .map(|param| {
            let mark = match param.preset {
                Preset::Required => "",
                _ => "?",
            };
            format!("{}: {}{mark}", param.name, luau_type(param.kind, Way::In))
        })
        .collect();
    let reply = luau_type(function.reply, Way::Out);
    format!("({}) -> {reply}", params.join(", "))
}

/// Replies are stricter than parameters.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    In,
    Out,
}

fn luau_type(kind: Type, way: Way) -> String {
    match kind {
        Type::Nothing => "()".to_owned(),
        Type::Bool => "boolean".to_owned(),
        Type::Int | Type::Float | Type::Millis => "number".to_owned(),
        Type::Text => "string".to_owned(),
        Type::Bytes if way == Way::Out => "string".to_owned(),
        Type::Bytes => "Bytes".to_owned(),
        Type::List => "List".to_owned(),
        Type::Map => "Map".to_owned(),
        Type::Any => "any".to_owned(),
        Type::Point => "Point".to_owned(),
        Type::Rect => "Rect".to_owned(),
        Type::Color if way == Way::Out => "Rgba".to_owned(),
        Type::Color => "Color".to_owned(),
        Type::Button => "Button".to_owned(),
        Type::Keys => "Keys".to_owned(),
        Type::Window => "Window".to_owned(),
        Type::Image => "Image".to_owned(),
        Type::Record(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, kind)| format!("{name}: {}", luau_type(*kind, way)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Type::ListOf(item) => format!("{{ {} }}", luau_type(*item, way)),
        Type::Optional(some) => format!("{}?", luau_type(*some, way)),
        Type::Tuple(several) => {
            let several: Vec<String> = several.iter().map(|kind| luau_type(*kind, way)).collect();
            format!("({})", several.join(", "))
        }
    }
}

const LUACATS_TYPES: &str = "\
---@class Point
---@field x integer
---@field y integer

---@class Rect: Point
---@field width integer
---@field height integer

---@class Rgba
---@field r integer
---@field g integer
---@field b integer
---@field a integer

---@alias Color integer|string|{r: integer, g: integer, b: integer, a: integer?}
---@alias Button integer|\"left\"|\"middle\"|\"right\"|\"back\"|\"forward\"
---@alias Keys string|integer
---@alias Window integer|{handle: integer}
---@alias Image integer|{image: integer}
";

/// Definitions for the Lua language server (LuaCATS annotations).
pub fn stubs_luacats() -> String {
    let mut text =
        String::from("---@meta\n-- Generated by `wingman script stubs`; do not edit.\n\n");
    text.push_str(LUACATS_TYPES);
    for module in modules::ALL {
        let _ = write!(text, "\n---{}\n{} = {{}}\n", module.doc, module.name);
        for function in module.functions {
            write_luacats(&mut text, function);
        }
    }
    let names: Vec<String> = modules::ALL
        .iter()
        .map(|module| format!("{0} = {0}", module.name))
        .collect();
    let _ = write!(text, "\nwingman = {{ {} }}\n", names.join(", "));
    text
}

fn write_luacats(text: &mut String, function: &Function) {
    let _ = write!(text, "\n---{}\n", function.doc);
    for param in function.params {
        let _ = writeln!(
            text,
            "---@param {} {} {}",
            signature_part(param),
            luacats_type(param.kind, Way::In),
            param.doc
        );
    }
    match function.reply {
        Type::Nothing => {}
        Type::Tuple(several) => {
            for kind in several {
                let _ = writeln!(text, "---@return {}", luacats_type(*kind, Way::Out));
            }
        }
        kind => {
            let _ = writeln!(text, "---@return {}", luacats_type(kind, Way::Out));
        }
    }
    let names: Vec<&str> = function.params.iter().map(|param| param.name).collect();
    let full_name = function.full_name();
    let _ = writeln!(text, "function {full_name}({}) end", names.join(", "));
    let alias = snake_case(function.name);
    if alias != function.name {
        let _ = writeln!(text, "{}.{alias} = {full_name}", function.module);
    }
}

fn luacats_type(kind: Type, way: Way) -> String {
    match kind {
        Type::Int => "integer".to_owned(),
        Type::Nothing => "nil".to_owned(),
        Type::Bytes => "string".to_owned(),
        Type::List => "any[]".to_owned(),
        Type::Map => "table<string, any>".to_owned(),
        Type::Record(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, kind)| format!("{name}: {}", luacats_type(*kind, way)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        Type::ListOf(item) => format!("({})[]", luacats_type(*item, way)),
        Type::Optional(some) => format!("{}?", luacats_type(*some, way)),
        kind => luau_type(kind, way),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_stands_in_the_reference_and_both_stubs() {
        let (reference, luau, luacats) = (reference_markdown(), stubs_luau(), stubs_luacats());
        for function in modules::functions() {
            let name = function.full_name();
            assert!(reference.contains(&format!("### {name}\n")), "{name}");
            assert!(luau.contains(&format!("\t{}: (", function.name)), "{name}");
            assert!(luacats.contains(&format!("function {name}(")), "{name}");
        }
    }

    #[test]
    fn a_signature_tells_types_defaults_and_results() {
        assert!(stubs_luau().contains(
            "\tfindColor: (color: Color, region: Rect?, tolerance: number?) -> (Point?, boolean),"
        ));
        assert!(stubs_luacats().contains("---@param region? Rect"));
        assert!(reference_markdown().contains("| `timeout` | milliseconds (ms) | `5000` |"));
    }
}
