//! How a script function is described: once, for every engine, its help and its documentation.

use super::arguments::Args;
use super::context::Context;
use super::fault::ScriptFault;
use super::value::Value;
use crate::wire::messages::scripts::Language;

/// The type of a parameter or a reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Type {
    /// No value.
    Nothing,
    Bool,
    /// A whole number; a float without a fraction is taken for one.
    Int,
    Float,
    /// UTF-8 text.
    Text,
    /// Text or bytes; what comes back is a Lua string or a Rhai blob.
    Bytes,
    /// A list of any values.
    List,
    /// Names to any values.
    Map,
    /// Any value, `nil` included.
    Any,
    /// `{x, y}` in physical desktop pixels.
    Point,
    /// `{x, y, width, height}` in physical desktop pixels.
    Rect,
    /// `0xRRGGBB`, `"#rrggbb"` or `{r, g, b, a?}`; replies are `{r, g, b, a}`.
    Color,
    /// 0 left, 1 middle, 2 right, 3 back, 4 forward, or the name.
    Button,
    /// A chord such as `"ctrl+l"`, or a Windows virtual-key number.
    Keys,
    /// A number of milliseconds, fractions allowed, at least 0.
    Millis,
    /// A window's handle.
    Window,
    /// A picture's handle, as `screen.grab` and `image.load` give.
    Image,
    /// A map with these fields.
    Record(&'static [(&'static str, Type)]),
    /// A list of one type.
    ListOf(&'static Type),
    /// The type, or `nil`.
    Optional(&'static Type),
    /// Several results: multiple returns in Lua, an array elsewhere.
    Tuple(&'static [Type]),
}

impl Type {
    /// The word for it in an error message.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Bool => "boolean",
            Self::Int => "integer",
            Self::Float => "number",
            Self::Text => "string",
            Self::Bytes => "string or bytes",
            Self::List | Self::ListOf(_) | Self::Tuple(_) => "list",
            Self::Map | Self::Record(_) => "map",
            Self::Any | Self::Optional(_) => "any value",
            Self::Point => "point {x, y}",
            Self::Rect => "rectangle {x, y, width, height}",
            Self::Color => "color (0xRRGGBB, \"#rrggbb\" or {r, g, b})",
            Self::Button => "button (0 to 4, or left, middle, right, back, forward)",
            Self::Keys => "keys (a name such as \"ctrl+l\", or a virtual-key number)",
            Self::Millis => "milliseconds (a number of at least 0)",
            Self::Window => "window handle",
            Self::Image => "image handle",
        }
    }
}

/// What stands for a parameter that is not given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preset {
    /// It has to be given.
    Required,
    /// The function decides; its text says how.
    Absent,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'static str),
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Param {
    /// camelCase.
    pub name: &'static str,
    pub kind: Type,
    pub preset: Preset,
    /// `px`, `ms`, `s`, `bytes`; empty where there is none.
    pub unit: &'static str,
    pub doc: &'static str,
}

impl Param {
    pub const fn required(name: &'static str, kind: Type, doc: &'static str) -> Self {
        Self {
            name,
            kind,
            preset: Preset::Required,
            unit: "",
            doc,
        }
    }

    pub const fn optional(
        name: &'static str,
        kind: Type,
        preset: Preset,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            preset,
            unit: "",
            doc,
        }
    }

    pub const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }
}

/// What runs when a script calls the function.
pub type Handler = fn(&mut Context, &Args) -> Result<Value, ScriptFault>;

/// One script function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub module: &'static str,
    /// camelCase; engines bind the snake_case spelling too.
    pub name: &'static str,
    pub params: &'static [Param],
    pub reply: Type,
    /// What the node must be able to do; `None` where every node can.
    pub capability: Option<&'static str>,
    /// One sentence first, then units, errors and defaults.
    pub doc: &'static str,
    pub example: Example,
    pub handler: Handler,
}

impl Function {
    /// `module.name`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.module, self.name)
    }
}

/// Code in a neutral spelling that renders in every language, so that a language is added in one
/// place. One statement a line.
///
/// | Written | Lua | Rhai |
/// |---|---|---|
/// | `$let a = f()` | `local a = f()` | `let a = f();` |
/// | `$let a, b = f()` | `local a, b = f()` | `let a_b = f(); let a = a_b[0]; let b = a_b[1];` |
/// | `${x$: 1}` | `{x = 1}` | `#{x: 1}` |
/// | `$[1, 2$]` | `{1, 2}` | `[1, 2]` |
/// | `$nil` | `nil` | `()` |
/// | `a $& b` | `a .. b` | `a + b` |
/// | `$if c $then`, `$end` | `if c then`, `end` | `if c {`, `}` |
#[derive(Clone, Copy, Debug)]
pub struct Example(pub &'static str);

impl Example {
    /// The code in a language, lines separated by `\n`.
    pub fn render(self, language: Language) -> String {
        let lines = self.0.lines().map(|line| line.trim());
        let rendered: Vec<String> = match language {
            Language::Lua => lines.map(render_lua).collect(),
            Language::Rhai => lines.map(render_rhai).collect(),
        };
        rendered.join("\n")
    }
}

fn render_lua(line: &str) -> String {
    line.replace("$let ", "local ")
        .replace("$then", "then")
        .replace("$if", "if")
        .replace("$end", "end")
        .replace("${", "{")
        .replace("$:", " =")
        .replace("$[", "{")
        .replace("$]", "}")
        .replace("$nil", "nil")
        .replace("$&", "..")
}

fn render_rhai(line: &str) -> String {
    let spelled = line
        .replace("$then", "{")
        .replace("$if", "if")
        .replace("$end", "}")
        .replace("${", "#{")
        .replace("$:", ":")
        .replace("$[", "[")
        .replace("$]", "]")
        .replace("$nil", "()")
        .replace("$&", "+");
    let Some(binding) = spelled.strip_prefix("$let ") else {
        let is_bracket = spelled.ends_with('{') || spelled == "}" || spelled.is_empty();
        return if is_bracket { spelled } else { spelled + ";" };
    };
    match binding.split_once(" = ") {
        Some((names, value)) if names.contains(", ") => {
            let whole = names.replace(", ", "_");
            let parts: String = names
                .split(", ")
                .enumerate()
                .map(|(i, name)| format!(" let {name} = {whole}[{i}];"))
                .collect();
            format!("let {whole} = {value};{parts}")
        }
        _ => format!("let {binding};"),
    }
}

/// The snake_case spelling of a camelCase name.
pub fn snake_case(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 4);
    for (at, c) in name.char_indices() {
        if c.is_ascii_uppercase() {
            if at > 0 {
                text.push('_');
            }
            text.push(c.to_ascii_lowercase());
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_example_is_spelled_in_every_language() {
        let example = Example(
            "$let at, found = screen.findColor(0xff0000, ${x$: 0, y$: 0})\n$if found $then\nlog.info(\"at \" $& at.x)\n$end\n$let l = $[1, $nil$]",
        );
        assert_eq!(
            example.render(Language::Lua),
            "local at, found = screen.findColor(0xff0000, {x = 0, y = 0})\nif found then\nlog.info(\"at \" .. at.x)\nend\nlocal l = {1, nil}"
        );
        assert_eq!(
            example.render(Language::Rhai),
            "let at_found = screen.findColor(0xff0000, #{x: 0, y: 0}); let at = at_found[0]; let found = at_found[1];\nif found {\nlog.info(\"at \" + at.x);\n}\nlet l = [1, ()];"
        );
    }

    #[test]
    fn snake_case_splits_at_capitals() {
        assert_eq!(snake_case("getScreenWidth"), "get_screen_width");
        assert_eq!(snake_case("click"), "click");
    }
}
