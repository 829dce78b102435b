//! Lua, as Luau: the one whose interrupt a host can rely on.
//!
//! What a script finds is an allow-list. Natives of the standard library that could run long without
//! an interrupt (`table.move`, `table.sort` without a Lua comparator, plain `string.find`,
//! `string.split`) are replaced by versions made of interruptible steps (`guard.luau`). A stop is
//! raised by the interrupt at every loop round and call, so catching it does not help: the next round
//! raises it again until the script has unwound.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::chunk::ChunkMode;
use mlua::{
    Error, Function as LuaFunction, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue,
    VmState,
};

use super::{Ending, Failure, forced};
use crate::base::limits::SCRIPT_VALUE_DEPTH_MAX;
use crate::script::context::{Context, Watch};
use crate::script::descriptor::{Function, snake_case};
use crate::script::host::Level;
use crate::script::modules;
use crate::script::profile::Profile;
use crate::script::value::Value;
use crate::wire::messages::executions::Stream;

/// Global names of the language that a script keeps.
const KEPT: &[&str] = &[
    "_G",
    "_VERSION",
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawlen",
    "rawset",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "typeof",
    "unpack",
    "xpcall",
    "bit32",
    "buffer",
    "coroutine",
    "math",
    "string",
    "table",
    "utf8",
    "vector",
];
const GUARD: &str = include_str!("guard.luau");
/// Whole numbers beyond it are not exact in Lua.
const EXACT_MAX: u64 = 1 << 53;

/// Shared between the interrupt and the host functions of one run.
struct Run {
    context: Rc<RefCell<Context>>,
    watch: Rc<Watch>,
    instructions_left: Cell<Option<u64>>,
    /// Why the run has to end; once set, every step raises it again.
    ending: RefCell<Option<Ending>>,
}

impl Run {
    fn end(&self, ending: Ending) -> Error {
        let mut slot = self.ending.borrow_mut();
        slot.get_or_insert(ending);
        Error::runtime("the run was ended")
    }

    fn interrupt(&self) -> mlua::Result<VmState> {
        if let Some(ending) = self.ending.borrow().clone() {
            return Err(self.end(ending));
        }
        if let Some(left) = self.instructions_left.get() {
            if left == 0 {
                return Err(self.end(Ending::Instructions(None)));
            }
            self.instructions_left.set(Some(left - 1));
        }
        match self.watch.check() {
            Ok(()) => Ok(VmState::Continue),
            Err(fault) => Err(self.end(forced(&fault).unwrap_or(Ending::Memory(None)))),
        }
    }

    /// Runs a host function. `Ok(Err(text))` is an error that the script may catch.
    fn call(
        &self,
        function: &'static Function,
        values: Vec<Value>,
    ) -> mlua::Result<Result<Value, String>> {
        let answer = match self.context.try_borrow_mut() {
            Ok(mut context) => context.call(function, values),
            Err(_) => {
                return Ok(Err(
                    "a host function may not be called from within another".into()
                ));
            }
        };
        match answer {
            Ok(value) => Ok(Ok(value)),
            Err(fault) => match forced(&fault) {
                Some(ending) => Err(self.end(ending)),
                None => Ok(Err(fault.to_string())),
            },
        }
    }
}

/// Runs a script to its end on this thread.
pub fn run(
    source: &str,
    name: &str,
    profile: &Profile,
    context: &Rc<RefCell<Context>>,
    watch: &Rc<Watch>,
) -> Ending {
    let run = Rc::new(Run {
        context: Rc::clone(context),
        watch: Rc::clone(watch),
        instructions_left: Cell::new(profile.limits.instructions),
        ending: RefCell::new(None),
    });
    let outcome = execute(source, name, profile, &run);
    if let Some(ending) = run.ending.borrow().clone() {
        return ending;
    }
    match outcome {
        Ok(()) => Ending::Finished,
        Err(error) => ending_of(&error, name),
    }
}

fn execute(source: &str, name: &str, profile: &Profile, run: &Rc<Run>) -> mlua::Result<()> {
    let libraries = StdLib::COROUTINE
        | StdLib::TABLE
        | StdLib::STRING
        | StdLib::UTF8
        | StdLib::BIT
        | StdLib::MATH
        | StdLib::BUFFER
        | StdLib::VECTOR;
    let lua = Lua::new_with(libraries, LuaOptions::new())?;
    prepare(&lua, run)?;
    lua.set_memory_limit(profile.limits.memory)?;
    lua.sandbox(true)?;
    let for_interrupt = Rc::clone(run);
    lua.set_interrupt(move |_| for_interrupt.interrupt());
    lua.load(source)
        .set_name(format!("={name}"))
        .set_mode(ChunkMode::Text)
        .exec()
}

/// Fills the globals: what is kept of the language, the guards, the modules.
fn prepare(lua: &Lua, run: &Rc<Run>) -> mlua::Result<()> {
    let globals = lua.globals();
    let names: Vec<String> = globals
        .pairs::<String, LuaValue>()
        .filter_map(|pair| pair.ok().map(|(name, _)| name))
        .collect();
    for name in names.iter().filter(|name| !KEPT.contains(&name.as_str())) {
        globals.set(name.as_str(), LuaValue::Nil)?;
    }
    let for_print = Rc::clone(run);
    let print = lua.create_function(move |_, text: mlua::LuaString| {
        let text = text.to_string_lossy();
        for_print
            .context
            .borrow()
            .output(Stream::Stdout, Level::Info, &text);
        Ok(())
    })?;
    let shim: LuaFunction = lua
        .load(GUARD)
        .set_name("=wingman")
        .call((print, globals.clone()))?;
    let namespace = lua.create_table()?;
    for module in modules::ALL {
        let table = lua.create_table()?;
        for function in module.functions {
            bind(lua, run, &shim, &table, function)?;
        }
        table.set_readonly(true);
        globals.set(module.name, &table)?;
        namespace.set(module.name, table)?;
    }
    globals.set("wingman", namespace)
}

fn bind(
    lua: &Lua,
    run: &Rc<Run>,
    shim: &LuaFunction,
    table: &Table,
    function: &'static Function,
) -> mlua::Result<()> {
    let run = Rc::clone(run);
    let raw = lua.create_function(move |lua, given: MultiValue| {
        let mut values = Vec::with_capacity(given.len());
        for value in given {
            match from_lua(&value, 0) {
                Ok(value) => values.push(value),
                Err(why) => {
                    let text = format!(
                        "{}: argument {}: {why}",
                        function.full_name(),
                        values.len() + 1
                    );
                    return answer(lua, false, Value::Text(text));
                }
            }
        }
        match run.call(function, values)? {
            Ok(value) => answer(lua, true, value),
            Err(text) => answer(lua, false, Value::Text(text)),
        }
    })?;
    let bound: LuaFunction = shim.call(raw)?;
    let alias = snake_case(function.name);
    if alias != function.name {
        table.set(alias, &bound)?;
    }
    table.set(function.name, bound)
}

/// `true` with the results, or `false` with the text of an error.
fn answer(lua: &Lua, ok: bool, value: Value) -> mlua::Result<MultiValue> {
    let given = match value {
        Value::Nil => Vec::new(),
        Value::Tuple(several) => several,
        one => vec![one],
    };
    let mut values = vec![LuaValue::Boolean(ok)];
    for value in given {
        match to_lua(lua, value) {
            Ok(value) => values.push(value),
            Err(Refused::Inexact(n)) => {
                let why = format!("the integer {n} does not fit a number of Lua exactly");
                return answer(lua, false, Value::Text(why));
            }
            Err(Refused::Lua(error)) => return Err(error),
        }
    }
    Ok(MultiValue::from_vec(values))
}

/// A script's value for the host. The error says what it cannot be.
fn from_lua(value: &LuaValue, depth: usize) -> Result<Value, String> {
    if depth > SCRIPT_VALUE_DEPTH_MAX {
        return Err(format!(
            "the value is nested deeper than {SCRIPT_VALUE_DEPTH_MAX} levels"
        ));
    }
    Ok(match value {
        LuaValue::Nil => Value::Nil,
        LuaValue::Boolean(b) => Value::Bool(*b),
        LuaValue::Integer(n) => Value::Int(*n),
        LuaValue::Number(n) => Value::Float(*n),
        LuaValue::String(text) => text_or_bytes(&text.as_bytes()),
        LuaValue::Buffer(buffer) => Value::Bytes(buffer.to_vec()),
        LuaValue::Table(table) => from_table(table, depth)?,
        other => {
            return Err(format!(
                "a {} cannot be given to the host",
                other.type_name()
            ));
        }
    })
}

fn text_or_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::Text(text.to_owned()),
        Err(_) => Value::Bytes(bytes.to_vec()),
    }
}

fn from_table(table: &Table, depth: usize) -> Result<Value, String> {
    let len = table.raw_len();
    if len > 0 || table.metatable().is_some_and(|meta| is_list_mark(&meta)) {
        return list_of(table, len, depth);
    }
    let mut map = BTreeMap::new();
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        let LuaValue::String(key) = key else {
            return Err(format!(
                "a table's keys are either 1 to n or strings, not a {}",
                key.type_name()
            ));
        };
        let key = key
            .to_str()
            .map_err(|_| "a table's key is no UTF-8".to_owned())?
            .to_owned();
        map.insert(key, from_lua(&value, depth + 1)?);
    }
    Ok(Value::Map(map))
}

fn list_of(table: &Table, len: usize, depth: usize) -> Result<Value, String> {
    let mut list = Vec::with_capacity(len);
    let mut entries = 0;
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        entries += 1;
        match key {
            LuaValue::Integer(at) if at == entries as i64 => {
                list.push(from_lua(&value, depth + 1)?);
            }
            _ => return Err("a table mixes a list with other keys".to_owned()),
        }
    }
    Ok(Value::List(list))
}

/// Lists of the host carry this mark, so that an empty one stays a list.
fn is_list_mark(meta: &Table) -> bool {
    meta.raw_get::<bool>("__wingman_list").unwrap_or(false)
}

fn list_mark(lua: &Lua) -> mlua::Result<Table> {
    if let Ok(mark) = lua.named_registry_value::<Table>("wingman.list") {
        return Ok(mark);
    }
    let mark = lua.create_table()?;
    mark.raw_set("__wingman_list", true)?;
    mark.raw_set("__metatable", false)?;
    mark.set_readonly(true);
    lua.set_named_registry_value("wingman.list", &mark)?;
    Ok(mark)
}

/// Why a value of the host does not become one of Lua.
enum Refused {
    /// A whole number that a float would round.
    Inexact(i64),
    Lua(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Lua(error)
    }
}

fn to_lua(lua: &Lua, value: Value) -> Result<LuaValue, Refused> {
    Ok(match value {
        Value::Nil => LuaValue::Nil,
        Value::Bool(b) => LuaValue::Boolean(b),
        Value::Int(n) if n.unsigned_abs() <= EXACT_MAX => LuaValue::Integer(n),
        Value::Int(n) => return Err(Refused::Inexact(n)),
        Value::Float(n) => LuaValue::Number(n),
        Value::Text(text) => LuaValue::String(lua.create_string(text)?),
        Value::Bytes(bytes) => LuaValue::String(lua.create_string(bytes)?),
        Value::List(list) | Value::Tuple(list) => {
            let table = lua.create_table_with_capacity(list.len(), 0)?;
            for (at, item) in list.into_iter().enumerate() {
                table.raw_set(at + 1, to_lua(lua, item)?)?;
            }
            table.set_metatable(Some(list_mark(lua)?))?;
            LuaValue::Table(table)
        }
        Value::Map(map) => {
            let table = lua.create_table_with_capacity(0, map.len())?;
            for (name, item) in map {
                table.raw_set(name, to_lua(lua, item)?)?;
            }
            LuaValue::Table(table)
        }
    })
}

fn ending_of(error: &Error, name: &str) -> Ending {
    match error {
        Error::SyntaxError { message, .. } => Ending::Syntax(failure(message, name)),
        Error::MemoryError(_) => Ending::Memory(None),
        Error::CallbackError { cause, traceback } => match &**cause {
            Error::MemoryError(_) => Ending::Memory(None),
            cause => {
                let mut found = failure(&cause.to_string(), name);
                found.traceback = frames(traceback);
                Ending::Raised(found)
            }
        },
        Error::RuntimeError(text) => Ending::Raised(failure(text, name)),
        other => Ending::Raised(failure(&other.to_string(), name)),
    }
}

/// Takes `name:line: message`, a newline and the traceback apart.
fn failure(text: &str, name: &str) -> Failure {
    let (head, trace) = match text.split_once("\nstack traceback:") {
        Some((head, trace)) => (head, frames(trace)),
        None => (text, Vec::new()),
    };
    let place = head
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix(':'))
        .and_then(|rest| rest.split_once(':'))
        .and_then(|(line, message)| Some((line.parse().ok()?, message)));
    match place {
        Some((line, message)) => Failure {
            message: message.trim_start().to_owned(),
            line: Some(line),
            traceback: trace,
        },
        None => Failure {
            message: head.to_owned(),
            line: None,
            traceback: trace,
        },
    }
}

/// The script's own frames of a traceback.
fn frames(trace: &str) -> Vec<String> {
    trace
        .lines()
        .map(str::trim)
        .filter(|line| {
            !line.is_empty() && !line.starts_with("[C]") && !line.starts_with("wingman:")
        })
        .filter(|line| *line != "stack traceback:")
        .map(str::to_owned)
        .collect()
}
