//! From the values of a call to the arguments of a function: count, types, defaults, named options.

use std::collections::BTreeMap;
use std::time::Duration;

use super::descriptor::{Function, Param, Preset, Type, snake_case};
use super::fault::ScriptFault;
use super::value::Value;
use crate::base::{Color, Point, Rect};
use crate::platform::Button;

/// One argument after its check.
#[derive(Clone, Debug, PartialEq)]
enum Bound {
    Absent,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Map(BTreeMap<String, Value>),
    Any(Value),
    Point(Point),
    Rect(Rect),
    Color(Color),
    Button(Button),
}

/// The checked arguments of one call, in the order of the description.
#[derive(Debug)]
pub struct Args {
    function: &'static Function,
    bound: Vec<Bound>,
}

/// Checks a call against a function's description.
///
/// Trailing parameters with a default may be left out or be `nil`. A map in the place of a
/// parameter that takes none, as the last argument, gives the remaining parameters by name.
pub fn bind(function: &'static Function, mut values: Vec<Value>) -> Result<Args, ScriptFault> {
    let params = function.params;
    while values.len() > params.len() && values.last() == Some(&Value::Nil) {
        values.pop();
    }
    if values.len() > params.len() {
        return Err(count_fault(function, values.len()));
    }
    let mut options = take_options(params, &mut values);
    let mut given = values.into_iter();
    let mut bound = Vec::with_capacity(params.len());
    for param in params {
        let value = match given.next() {
            Some(value) => value,
            None => take_named(&mut options, param.name),
        };
        bound.push(bind_one(function, param, value)?);
    }
    if let Some(name) = options.keys().next() {
        let known: Vec<&str> = params.iter().map(|param| param.name).collect();
        return Err(ScriptFault::Argument(format!(
            "{}: no parameter {name:?}; it takes {}",
            function.full_name(),
            known.join(", ")
        )));
    }
    Ok(Args { function, bound })
}

fn count_fault(function: &Function, given: usize) -> ScriptFault {
    let takes = match function.params.len() {
        0 => "no arguments".to_owned(),
        1 => "at most 1 argument".to_owned(),
        n => format!("at most {n} arguments"),
    };
    ScriptFault::Argument(format!(
        "{}: expected {takes}, got {given}",
        function.full_name()
    ))
}

fn take_options(params: &[Param], values: &mut Vec<Value>) -> BTreeMap<String, Value> {
    let Some(at) = values.len().checked_sub(1) else {
        return BTreeMap::new();
    };
    let is_options = match (params.get(at), values.get(at)) {
        (Some(param), Some(Value::Map(map))) => !takes_map(param.kind, map),
        _ => false,
    };
    match is_options.then(|| values.pop()).flatten() {
        Some(Value::Map(map)) => map,
        _ => BTreeMap::new(),
    }
}

/// Whether a map is the parameter's own value rather than a set of named options.
fn takes_map(kind: Type, map: &BTreeMap<String, Value>) -> bool {
    match kind {
        Type::Map | Type::Any | Type::Record(_) => true,
        // An empty table of Lua is an empty list.
        Type::List | Type::ListOf(_) => map.is_empty(),
        Type::Rect => map.contains_key("width"),
        Type::Point => map.contains_key("x"),
        Type::Color => map.contains_key("r"),
        Type::Image => map.contains_key("image"),
        Type::Window => map.contains_key("handle"),
        _ => false,
    }
}

fn take_named(options: &mut BTreeMap<String, Value>, name: &str) -> Value {
    if options.is_empty() {
        return Value::Nil;
    }
    options
        .remove(name)
        .or_else(|| options.remove(&snake_case(name)))
        .unwrap_or_default()
}

fn bind_one(function: &Function, param: &Param, value: Value) -> Result<Bound, ScriptFault> {
    if value == Value::Nil {
        return match param.preset {
            Preset::Required if param.kind == Type::Any => Ok(Bound::Any(Value::Nil)),
            Preset::Required => Err(type_fault(function, param, "nothing")),
            Preset::Absent => Ok(Bound::Absent),
            Preset::Bool(b) => Ok(Bound::Bool(b)),
            Preset::Int(n) => Ok(of_type(param.kind, Value::Int(n)).unwrap_or(Bound::Int(n))),
            Preset::Float(n) => Ok(Bound::Float(n)),
            Preset::Text(text) => {
                let value = Value::Text(text.to_owned());
                Ok(of_type(param.kind, value).unwrap_or(Bound::Absent))
            }
        };
    }
    let given = describe(&value);
    of_type(param.kind, value).ok_or_else(|| type_fault(function, param, &given))
}

fn type_fault(function: &Function, param: &Param, given: &str) -> ScriptFault {
    ScriptFault::Argument(format!(
        "{}: parameter {:?}: expected {}, got {given}",
        function.full_name(),
        param.name,
        param.kind.expected()
    ))
}

/// The value's kind, with the value where it is short and no text (which may be a secret).
fn describe(value: &Value) -> String {
    match value {
        Value::Bool(b) => format!("boolean {b}"),
        Value::Int(n) => format!("integer {n}"),
        Value::Float(n) => format!("number {n}"),
        other => other.kind().to_owned(),
    }
}

fn of_type(kind: Type, value: Value) -> Option<Bound> {
    Some(match (kind, value) {
        (Type::Any, value) => Bound::Any(value),
        (Type::Bool, Value::Bool(b)) => Bound::Bool(b),
        (Type::Int, value) => Bound::Int(whole(&value)?),
        (Type::Float, value) => Bound::Float(number(&value)?),
        (Type::Millis, value) => Bound::Float(number(&value).filter(|n| *n >= 0.0)?),
        (Type::Text, Value::Text(text)) => Bound::Text(text),
        (Type::Bytes, Value::Text(text)) => Bound::Bytes(text.into_bytes()),
        (Type::Bytes, Value::Bytes(bytes)) => Bound::Bytes(bytes),
        (Type::List | Type::ListOf(_), Value::List(list) | Value::Tuple(list)) => Bound::List(list),
        (Type::List | Type::ListOf(_), Value::Map(map)) if map.is_empty() => {
            Bound::List(Vec::new())
        }
        (Type::Map | Type::Record(_), Value::Map(map)) => Bound::Map(map),
        // An empty list of Rhai or Lua is taken for an empty map.
        (Type::Map | Type::Record(_), Value::List(list)) if list.is_empty() => {
            Bound::Map(BTreeMap::new())
        }
        (Type::Point, Value::Map(map)) => Bound::Point(point(&map)?),
        (Type::Rect, Value::Map(map)) => Bound::Rect(rect(&map)?),
        (Type::Color, value) => Bound::Color(color(&value)?),
        (Type::Button, value) => Bound::Button(button(&value)?),
        (Type::Keys, Value::Text(text)) => Bound::Text(text),
        (Type::Keys, value) => {
            let number = whole(&value).filter(|n| (1..=255).contains(n))?;
            Bound::Text(format!("0x{number:02x}"))
        }
        (Type::Window, value) => Bound::Int(handle(&value, "handle")?),
        (Type::Image, value) => Bound::Int(handle(&value, "image")?),
        _ => return None,
    })
}

/// A whole number; floats without a fraction count.
pub fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Int(n) => Some(*n),
        // Beyond 2^53 a float no longer tells whole numbers apart.
        Value::Float(n) if n.fract() == 0.0 && n.abs() <= 9_007_199_254_740_992.0 => {
            Some(*n as i64)
        }
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(n) if n.is_finite() => Some(*n),
        _ => None,
    }
}

fn handle(value: &Value, field: &str) -> Option<i64> {
    let number = match value {
        Value::Map(map) => whole(map.get(field)?),
        value => whole(value),
    };
    number.filter(|n| *n > 0)
}

fn field_i32(map: &BTreeMap<String, Value>, name: &str) -> Option<i32> {
    i32::try_from(whole(map.get(name)?)?).ok()
}

fn point(map: &BTreeMap<String, Value>) -> Option<Point> {
    Some(Point {
        x: field_i32(map, "x")?,
        y: field_i32(map, "y")?,
    })
}

fn rect(map: &BTreeMap<String, Value>) -> Option<Rect> {
    let origin = point(map)?;
    let size = |name| u32::try_from(whole(map.get(name)?)?).ok();
    Some(Rect::new(
        origin.x,
        origin.y,
        size("width")?,
        size("height")?,
    ))
}

fn color(value: &Value) -> Option<Color> {
    match value {
        Value::Map(map) => {
            let part = |name| u8::try_from(whole(map.get(name)?)?).ok();
            Some(Color {
                r: part("r")?,
                g: part("g")?,
                b: part("b")?,
                a: if map.contains_key("a") {
                    part("a")?
                } else {
                    255
                },
            })
        }
        Value::Text(text) => {
            let digits = text.strip_prefix('#').filter(|d| d.len() == 6)?;
            Color::from_rgb(u32::from_str_radix(digits, 16).ok()?)
        }
        value => Color::from_rgb(u32::try_from(whole(value)?).ok()?),
    }
}

fn button(value: &Value) -> Option<Button> {
    let number = match value {
        Value::Text(text) => {
            let names = ["left", "middle", "right", "back", "forward"];
            names.iter().position(|name| name == text)? as i64
        }
        value => whole(value)?,
    };
    Some(match number {
        0 => Button::Left,
        1 => Button::Middle,
        2 => Button::Right,
        3 => Button::Back,
        4 => Button::Forward,
        _ => return None,
    })
}

/// Reads by position, counted from 0. Asking for another type than the description's is a defect of
/// ours and answers `internal`.
impl Args {
    fn get(&self, at: usize) -> &Bound {
        self.bound.get(at).unwrap_or(&Bound::Absent)
    }

    fn defect<T>(&self, at: usize) -> Result<T, ScriptFault> {
        Err(ScriptFault::Failed(crate::wire::Fault::internal(format!(
            "{}: argument {at} does not have the type that its handler reads",
            self.function.full_name()
        ))))
    }

    /// An argument error about a parameter, in the form of all others.
    pub fn refuse(&self, at: usize, expected: &str, given: impl std::fmt::Display) -> ScriptFault {
        let name = self.function.params.get(at).map_or("?", |param| param.name);
        ScriptFault::Argument(format!(
            "{}: parameter {name:?}: expected {expected}, got {given}",
            self.function.full_name()
        ))
    }

    /// Whether an argument was given or has a default.
    pub fn has(&self, at: usize) -> bool {
        *self.get(at) != Bound::Absent
    }

    pub fn bool(&self, at: usize) -> Result<bool, ScriptFault> {
        match self.get(at) {
            Bound::Bool(b) => Ok(*b),
            _ => self.defect(at),
        }
    }

    pub fn int(&self, at: usize) -> Result<i64, ScriptFault> {
        match self.get(at) {
            Bound::Int(n) => Ok(*n),
            _ => self.defect(at),
        }
    }

    /// A whole number in a range, both ends included.
    pub fn int_in(
        &self,
        at: usize,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<i64, ScriptFault> {
        let number = self.int(at)?;
        if range.contains(&number) {
            return Ok(number);
        }
        let expected = format!("integer from {} to {}", range.start(), range.end());
        Err(self.refuse(at, &expected, format!("integer {number}")))
    }

    pub fn i32(&self, at: usize) -> Result<i32, ScriptFault> {
        let number = self.int_in(at, i64::from(i32::MIN)..=i64::from(i32::MAX))?;
        // INVARIANT: the range was just checked.
        Ok(number as i32)
    }

    pub fn u32(&self, at: usize) -> Result<u32, ScriptFault> {
        let number = self.int_in(at, 0..=i64::from(u32::MAX))?;
        // INVARIANT: the range was just checked.
        Ok(number as u32)
    }

    pub fn float(&self, at: usize) -> Result<f64, ScriptFault> {
        match self.get(at) {
            Bound::Float(n) => Ok(*n),
            _ => self.defect(at),
        }
    }

    /// A point from two parameters.
    pub fn xy(&self, at: usize) -> Result<Point, ScriptFault> {
        Ok(Point {
            x: self.i32(at)?,
            y: self.i32(at + 1)?,
        })
    }

    /// Milliseconds as a time; more than a year is cut to a year.
    pub fn millis(&self, at: usize) -> Result<Duration, ScriptFault> {
        const YEAR_MS: f64 = 365.0 * 86_400_000.0;
        Ok(Duration::from_secs_f64(
            self.float(at)?.clamp(0.0, YEAR_MS) / 1000.0,
        ))
    }

    pub fn text(&self, at: usize) -> Result<&str, ScriptFault> {
        match self.get(at) {
            Bound::Text(text) => Ok(text),
            _ => self.defect(at),
        }
    }

    pub fn opt_text(&self, at: usize) -> Result<Option<&str>, ScriptFault> {
        self.has(at).then(|| self.text(at)).transpose()
    }

    pub fn bytes(&self, at: usize) -> Result<&[u8], ScriptFault> {
        match self.get(at) {
            Bound::Bytes(bytes) => Ok(bytes),
            _ => self.defect(at),
        }
    }

    pub fn list(&self, at: usize) -> Result<&[Value], ScriptFault> {
        match self.get(at) {
            Bound::List(list) => Ok(list),
            Bound::Absent => Ok(&[]),
            _ => self.defect(at),
        }
    }

    /// A list of texts.
    pub fn texts(&self, at: usize) -> Result<Vec<String>, ScriptFault> {
        let one = |value: &Value| match value {
            Value::Text(text) => Ok(text.clone()),
            other => Err(self.refuse(
                at,
                "list of strings",
                format!("list with a {}", other.kind()),
            )),
        };
        self.list(at)?.iter().map(one).collect()
    }

    pub fn map(&self, at: usize) -> Result<Option<&BTreeMap<String, Value>>, ScriptFault> {
        match self.get(at) {
            Bound::Map(map) => Ok(Some(map)),
            Bound::Absent => Ok(None),
            _ => self.defect(at),
        }
    }

    /// Names to texts.
    pub fn text_map(&self, at: usize) -> Result<Vec<(String, String)>, ScriptFault> {
        let one = |(name, value): (&String, &Value)| match value {
            Value::Text(text) => Ok((name.clone(), text.clone())),
            other => Err(self.refuse(at, "map of strings", format!("map with a {}", other.kind()))),
        };
        match self.map(at)? {
            Some(map) => map.iter().map(one).collect(),
            None => Ok(Vec::new()),
        }
    }

    pub fn any(&self, at: usize) -> Result<&Value, ScriptFault> {
        match self.get(at) {
            Bound::Any(value) => Ok(value),
            Bound::Absent => Ok(&Value::Nil),
            _ => self.defect(at),
        }
    }

    pub fn rect(&self, at: usize) -> Result<Option<Rect>, ScriptFault> {
        match self.get(at) {
            Bound::Rect(rect) => Ok(Some(*rect)),
            Bound::Absent => Ok(None),
            _ => self.defect(at),
        }
    }

    pub fn color(&self, at: usize) -> Result<Color, ScriptFault> {
        match self.get(at) {
            Bound::Color(color) => Ok(*color),
            _ => self.defect(at),
        }
    }

    pub fn button(&self, at: usize) -> Result<Button, ScriptFault> {
        match self.get(at) {
            Bound::Button(button) => Ok(*button),
            _ => self.defect(at),
        }
    }

    /// A window's or picture's handle; it is above 0.
    pub fn handle(&self, at: usize) -> Result<u64, ScriptFault> {
        Ok(self.int(at)?.unsigned_abs())
    }
}
