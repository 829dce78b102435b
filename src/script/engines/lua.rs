//! Lua, as Luau: the one whose interrupt a host can rely on.
//!
//! What a script finds is an allow-list. Natives of the standard library that could run long without
//! an interrupt (`table.move`, `table.sort` without a Lua comparator, plain `string.find`,
//! `string.split`) are replaced by versions made of interruptible steps (`guard.luau`). A stop is
//! raised by the interrupt at every loop round and call, so catching it does not help: the next round
//! raises it again until the script has unwound.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::chunk::ChunkMode;
use mlua::{
    Error, Function as LuaFunction, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue,
    VmState,
};

use super::{Ending, Failure, Import, at_argument, unfit};
use crate::script::context::{Context, Watch};
use crate::script::descriptor::{Function, snake_case};
use crate::script::fault::ScriptFault;
use crate::script::folder;
use crate::script::host::Level;
use crate::script::modules;
use crate::script::profile::{Dynamics, Imports, Loops, Profile};
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
    ending: OnceCell<Ending>,
}

impl Run {
    fn end(&self, ending: Ending) -> Error {
        self.ending.get_or_init(|| ending);
        Error::runtime("the run was ended")
    }

    fn interrupt(&self) -> mlua::Result<VmState> {
        if let Some(ending) = self.ending.get() {
            return Err(self.end(ending.clone()));
        }
        if let Some(left) = self.instructions_left.get() {
            if left == 0 {
                return Err(self.end(Ending::Instructions(None)));
            }
            self.instructions_left.set(Some(left - 1));
        }
        match self.watch.check() {
            Ok(()) => Ok(VmState::Continue),
            Err(fault) => Err(self.raise(&fault)),
        }
    }

    /// Ends the run for a fault that a script may not catch.
    fn raise(&self, fault: &ScriptFault) -> Error {
        self.end(Ending::forced(fault).unwrap_or(Ending::Memory(None)))
    }

    /// Runs a host function.
    fn call(&self, function: &'static Function, given: &MultiValue) -> Result<Value, ScriptFault> {
        let mut import = Import::new(&self.watch);
        let mut values = Vec::with_capacity(given.len());
        for value in given {
            let value = from_lua(value, 0, &mut import);
            let at = values.len() + 1;
            values.push(value.map_err(|fault| at_argument(&function.full_name(), at, fault))?);
        }
        match self.context.try_borrow_mut() {
            Ok(mut context) => context.call(function, values),
            Err(_) => Err(unfit(
                "a host function may not be called from within another",
            )),
        }
    }

    /// What the wrapper in `guard.luau` reads: `true` with results, or `false` with an error's text.
    fn answer(&self, lua: &Lua, outcome: Result<Value, ScriptFault>) -> mlua::Result<MultiValue> {
        let fault = match outcome {
            Ok(value) => match results(lua, value) {
                Ok(values) => return Ok(values),
                Err(Refused::Inexact(n)) => unfit(format!(
                    "the integer {n} does not fit a number of Lua exactly"
                )),
                Err(Refused::Lua(error)) => return Err(error),
            },
            Err(fault) => fault,
        };
        if !fault.is_catchable() {
            return Err(self.raise(&fault));
        }
        let text = LuaValue::String(lua.create_string(fault.to_string())?);
        Ok(MultiValue::from_vec(vec![LuaValue::Boolean(false), text]))
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
        ending: OnceCell::new(),
    });
    if profile.loops == Loops::Refused || profile.dynamics == Dynamics::Closed {
        return Ending::Forbidden(Failure {
            message: format!(
                "Lua cannot keep to the profile {}; write it in Rhai",
                profile.name
            ),
            ..Failure::default()
        });
    }
    let outcome = execute(source, name, profile, &run);
    if let Some(ending) = run.ending.get() {
        return ending.clone();
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
    prepare(&lua, profile, run)?;
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
fn prepare(lua: &Lua, profile: &Profile, run: &Rc<Run>) -> mlua::Result<()> {
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
    if profile.imports == Imports::OwnFolder {
        globals.set("require", require(lua, run, &shim)?)?;
    }
    globals.set("null", LuaValue::NULL)?;
    globals.set("wingman", namespace)
}

/// `require("lib/tools")` runs `lib/tools.lua` of the script's folder once and gives what it returns.
fn require(lua: &Lua, run: &Rc<Run>, shim: &LuaFunction) -> mlua::Result<LuaFunction> {
    let run = Rc::clone(run);
    let loaded = lua.create_table()?;
    let raw = lua.create_function(move |lua, name: LuaValue| {
        let LuaValue::String(name) = name else {
            return run.answer(
                lua,
                Err(unfit("require: expected string, got another value")),
            );
        };
        let name = name.to_string_lossy();
        match loaded.raw_get::<LuaValue>(name.as_str())? {
            LuaValue::Nil => {}
            LuaValue::Boolean(false) => {
                let why = format!("require: {name:?} requires itself");
                return run.answer(lua, Err(unfit(why)));
            }
            value => return Ok(MultiValue::from_vec(vec![LuaValue::Boolean(true), value])),
        }
        let path = format!("{name}.lua");
        let read = folder::read(run.context.borrow().host(), &path);
        let source = match read {
            Ok(source) => source,
            Err(fault) => return run.answer(lua, Err(fault)),
        };
        loaded.raw_set(name.as_str(), false)?;
        let value: LuaValue = lua
            .load(source)
            .set_name(format!("={path}"))
            .set_mode(ChunkMode::Text)
            .call(())
            .inspect_err(|_| {
                // A later require tries again; the entry's absence is not worth an error of its own.
                let _ = loaded.raw_set(name.as_str(), LuaValue::Nil);
            })?;
        let value = match value {
            LuaValue::Nil => LuaValue::Boolean(true),
            value => value,
        };
        loaded.raw_set(name.as_str(), &value)?;
        Ok(MultiValue::from_vec(vec![LuaValue::Boolean(true), value]))
    })?;
    shim.call(raw)
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
        run.answer(lua, run.call(function, &given))
    })?;
    let bound: LuaFunction = shim.call(raw)?;
    let alias = snake_case(function.name);
    if alias != function.name {
        table.set(alias, &bound)?;
    }
    table.set(function.name, bound)
}

/// `true` and the results of a call.
fn results(lua: &Lua, value: Value) -> Result<MultiValue, Refused> {
    let given = match value {
        Value::Nil => Vec::new(),
        Value::Tuple(several) => several,
        one => vec![one],
    };
    let mut values = vec![LuaValue::Boolean(true)];
    for value in given {
        values.push(to_lua(lua, value)?);
    }
    Ok(MultiValue::from_vec(values))
}

/// A script's value for the host. The error says what it cannot be.
fn from_lua(value: &LuaValue, depth: usize, import: &mut Import<'_>) -> Result<Value, ScriptFault> {
    Ok(match value {
        LuaValue::Nil => Value::Nil,
        LuaValue::Boolean(b) => Value::Bool(*b),
        LuaValue::Integer(n) => Value::Int(*n),
        LuaValue::Number(n) => Value::Float(*n),
        LuaValue::String(text) => {
            let bytes = text.as_bytes();
            import.enter(depth, bytes.len())?;
            text_or_bytes(&bytes)
        }
        LuaValue::Buffer(buffer) => {
            import.enter(depth, buffer.len())?;
            Value::Bytes(buffer.to_vec())
        }
        LuaValue::Table(table) => from_table(table, depth, import)?,
        null if null.is_null() => Value::Nil,
        other => {
            return Err(unfit(format!(
                "a {} cannot be given to the host",
                other.type_name()
            )));
        }
    })
}

fn text_or_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::Text(text.to_owned()),
        Err(_) => Value::Bytes(bytes.to_vec()),
    }
}

fn from_table(table: &Table, depth: usize, import: &mut Import<'_>) -> Result<Value, ScriptFault> {
    import.enter(depth, 0)?;
    if table.raw_len() > 0 || table.metatable().is_some_and(|meta| is_list_mark(&meta)) {
        return list_of(table, depth, import);
    }
    let mut map = BTreeMap::new();
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, value) = pair.map_err(|error| unfit(error.to_string()))?;
        let LuaValue::String(key) = key else {
            return Err(unfit(format!(
                "a table's keys are either 1 to n or strings, not a {}",
                key.type_name()
            )));
        };
        let key = key
            .to_str()
            .map_err(|_| unfit("a table's key is no UTF-8"))?
            .to_owned();
        import.enter(depth, key.len())?;
        map.insert(key, from_lua(&value, depth + 1, import)?);
    }
    Ok(Value::Map(map))
}

fn list_of(table: &Table, depth: usize, import: &mut Import<'_>) -> Result<Value, ScriptFault> {
    let mut list = Vec::new();
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, value) = pair.map_err(|error| unfit(error.to_string()))?;
        match key {
            LuaValue::Integer(at) if at == list.len() as i64 + 1 => {
                import.enter(depth, 0)?;
                list.push(from_lua(&value, depth + 1, import)?);
            }
            _ => return Err(unfit("a table mixes a list with other keys")),
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
                // A nil would end the list there.
                let item = match item {
                    Value::Nil => LuaValue::NULL,
                    item => to_lua(lua, item)?,
                };
                table.raw_set(at + 1, item)?;
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
