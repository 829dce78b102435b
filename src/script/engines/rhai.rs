//! Rhai, with its own limits and a count of memory that it lacks.
//!
//! `screen.getPixel(1, 2)` reads as in Lua: each module is a constant of one type, found through a
//! global module so that functions of a script see it too, and every host function is a method of
//! that type which looks up its descriptor by module and name. Methods take any number of values, so
//! that a wrong call gets the text of `arguments` and not Rhai's own.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rhai::{
    Array, Blob, Dynamic, Engine, EvalAltResult, Map, NativeCallContext, ParseError, Position,
};

use super::{Ending, Failure, forced};
use crate::base::limits::{self, SCRIPT_VALUE_DEPTH_MAX};
use crate::script::context::{Context, Watch};
use crate::script::descriptor::{Function, snake_case};
use crate::script::host::Level;
use crate::script::modules;
use crate::script::profile::{Dynamics, Loops, Profile};
use crate::script::value::Value;
use crate::wire::messages::executions::Stream;

/// Values that a call may carry; more than any function takes, so that too many are told as such.
const ARGUMENTS_MAX: usize = 8;

/// A module as a script sees it: its place in `modules::ALL`.
#[derive(Clone, Copy, Debug)]
struct ModuleRef(usize);

/// The `wingman` namespace, whose properties are the modules.
#[derive(Clone, Copy, Debug)]
struct Namespace;

/// Shared between the progress callback and the host functions of one run.
struct Run {
    context: Rc<RefCell<Context>>,
    watch: Rc<Watch>,
    functions: BTreeMap<(usize, String), &'static Function>,
    ending: RefCell<Option<Ending>>,
}

impl Run {
    fn end(&self, ending: Ending) {
        self.ending.borrow_mut().get_or_insert(ending);
    }

    /// Whether the script has to end now.
    fn must_end(&self) -> bool {
        if self.ending.borrow().is_some() {
            return true;
        }
        match self.watch.check() {
            Ok(()) => false,
            Err(fault) => {
                self.end(forced(&fault).unwrap_or(Ending::Memory(None)));
                true
            }
        }
    }

    fn call(&self, name: &str, given: &mut [&mut Dynamic]) -> Result<Dynamic, Box<EvalAltResult>> {
        let raised =
            |text: String| Err(EvalAltResult::ErrorRuntime(text.into(), Position::NONE).into());
        let Some((first, rest)) = given.split_first_mut() else {
            return raised(format!("{name}: called without its module"));
        };
        let Some(module) = first.clone().try_cast::<ModuleRef>() else {
            return raised(format!("{name}: called without its module"));
        };
        let Some(function) = self.functions.get(&(module.0, name.to_owned())) else {
            let module = modules::ALL.get(module.0).map_or("?", |module| module.name);
            return raised(format!("{module} has no function {name}"));
        };
        let mut values = Vec::with_capacity(rest.len());
        for value in rest {
            match from_rhai(value, 0) {
                Ok(value) => values.push(value),
                Err(why) => {
                    let at = values.len() + 1;
                    return raised(format!("{}: argument {at}: {why}", function.full_name()));
                }
            }
        }
        let answer = match self.context.try_borrow_mut() {
            Ok(mut context) => context.call(function, values),
            Err(_) => {
                return raised("a host function may not be called from within another".to_owned());
            }
        };
        match answer {
            Ok(value) => Ok(to_rhai(value)),
            Err(fault) => match forced(&fault) {
                Some(ending) => {
                    self.end(ending);
                    Err(EvalAltResult::ErrorTerminated(Dynamic::UNIT, Position::NONE).into())
                }
                None => raised(fault.to_string()),
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
    let functions = modules::ALL.iter().enumerate().flat_map(|(at, module)| {
        module.functions.iter().flat_map(move |function| {
            [function.name.to_owned(), snake_case(function.name)]
                .map(|spelling| ((at, spelling), function))
        })
    });
    let run = Rc::new(Run {
        context: Rc::clone(context),
        watch: Rc::clone(watch),
        functions: functions.collect(),
        ending: RefCell::new(None),
    });
    let engine = engine(profile, &run);
    let ast = match engine.compile(source) {
        Ok(ast) => ast,
        Err(error) => return Ending::Syntax(syntax(&error)),
    };
    let outcome = engine.run_ast(&ast);
    if let Some(ending) = run.ending.borrow().clone() {
        return ending;
    }
    match outcome {
        Ok(()) => Ending::Finished,
        Err(error) => ending_of(*error, name),
    }
}

fn engine(profile: &Profile, run: &Rc<Run>) -> Engine {
    let mut engine = Engine::new();
    engine
        .set_max_call_levels(limits::SCRIPT_CALL_DEPTH_MAX)
        .set_max_expr_depths(limits::SCRIPT_EXPR_DEPTH_MAX, limits::SCRIPT_EXPR_DEPTH_MAX)
        .set_max_operations(profile.limits.instructions.unwrap_or(0))
        .set_max_string_size(limits::SCRIPT_TEXT_LEN_MAX)
        .set_max_array_size(limits::SCRIPT_LIST_LEN_MAX)
        .set_max_map_size(limits::SCRIPT_LIST_LEN_MAX)
        .set_allow_looping(profile.loops == Loops::Allowed);
    engine.set_module_resolver(rhai::module_resolvers::DummyModuleResolver::new());
    engine.disable_symbol("eval");
    if profile.dynamics == Dynamics::Closed {
        for word in ["Fn", "call", "curry", "import", "export", "|", "||"] {
            engine.disable_symbol(word);
        }
        engine.set_allow_anonymous_fn(false);
    }
    let for_progress = Rc::clone(run);
    engine.on_progress(move |_| for_progress.must_end().then_some(Dynamic::UNIT));
    let for_print = Rc::clone(run);
    engine.on_print(move |text| write(&for_print, Level::Info, text));
    let for_debug = Rc::clone(run);
    engine.on_debug(move |text, _, _| write(&for_debug, Level::Debug, text));
    bind(&mut engine, run);
    engine
}

fn write(run: &Run, level: Level, text: &str) {
    run.context.borrow().output(Stream::Stdout, level, text);
}

fn bind(engine: &mut Engine, run: &Rc<Run>) {
    engine.register_type_with_name::<ModuleRef>("module");
    engine.register_type_with_name::<Namespace>("namespace");
    let mut globals = rhai::Module::new();
    globals.set_var("wingman", Namespace);
    for (at, module) in modules::ALL.iter().enumerate() {
        globals.set_var(module.name, ModuleRef(at));
        engine.register_get(module.name, move |_: &mut Namespace| ModuleRef(at));
    }
    engine.register_global_module(globals.into());
    let names: BTreeSet<&String> = run.functions.keys().map(|(_, name)| name).collect();
    for name in names {
        for count in 0..=ARGUMENTS_MAX {
            let mut types = vec![TypeId::of::<Dynamic>(); count + 1];
            types[0] = TypeId::of::<ModuleRef>();
            let (run, spelling) = (Rc::clone(run), name.clone());
            engine.register_raw_fn(name.as_str(), types, move |_: NativeCallContext, given| {
                run.call(&spelling, given)
            });
        }
    }
}

/// A script's value for the host. The error says what it cannot be.
fn from_rhai(value: &Dynamic, depth: usize) -> Result<Value, String> {
    if depth > SCRIPT_VALUE_DEPTH_MAX {
        return Err(format!(
            "the value is nested deeper than {SCRIPT_VALUE_DEPTH_MAX} levels"
        ));
    }
    if value.is_unit() {
        return Ok(Value::Nil);
    }
    if let Ok(n) = value.as_int() {
        return Ok(Value::Int(n));
    }
    if let Ok(b) = value.as_bool() {
        return Ok(Value::Bool(b));
    }
    if let Ok(n) = value.as_float() {
        return Ok(Value::Float(n));
    }
    if let Ok(text) = value.as_immutable_string_ref() {
        return Ok(Value::Text(text.as_str().to_owned()));
    }
    if let Ok(c) = value.as_char() {
        return Ok(Value::Text(c.to_string()));
    }
    if let Ok(list) = value.as_array_ref() {
        let items = list.iter().map(|item| from_rhai(item, depth + 1));
        return Ok(Value::List(items.collect::<Result<_, _>>()?));
    }
    if let Ok(bytes) = value.as_blob_ref() {
        return Ok(Value::Bytes(bytes.clone()));
    }
    if let Ok(map) = value.as_map_ref() {
        let items = map
            .iter()
            .map(|(name, item)| Ok((name.to_string(), from_rhai(item, depth + 1)?)));
        return Ok(Value::Map(items.collect::<Result<_, String>>()?));
    }
    Err(format!(
        "a {} cannot be given to the host",
        value.type_name()
    ))
}

fn to_rhai(value: Value) -> Dynamic {
    match value {
        Value::Nil => Dynamic::UNIT,
        Value::Bool(b) => b.into(),
        Value::Int(n) => n.into(),
        Value::Float(n) => n.into(),
        Value::Text(text) => text.into(),
        Value::Bytes(bytes) => Dynamic::from_blob(Blob::from(bytes)),
        Value::List(list) | Value::Tuple(list) => {
            Dynamic::from_array(list.into_iter().map(to_rhai).collect::<Array>())
        }
        Value::Map(map) => Dynamic::from_map(
            map.into_iter()
                .map(|(name, item)| (name.into(), to_rhai(item)))
                .collect::<Map>(),
        ),
    }
}

fn line_of(at: Position) -> Option<u32> {
    at.line().and_then(|line| u32::try_from(line).ok())
}

fn syntax(error: &ParseError) -> Failure {
    Failure {
        message: error.err_type().to_string(),
        line: line_of(error.position()),
        traceback: Vec::new(),
    }
}

fn ending_of(error: EvalAltResult, name: &str) -> Ending {
    let mut traceback = Vec::new();
    let mut error = error;
    while let EvalAltResult::ErrorInFunctionCall(function, _, inner, at) = error {
        let line = line_of(at).map_or_else(String::new, |line| format!(":{line}"));
        traceback.insert(0, format!("{name}{line}: in the call of {function}"));
        error = *inner;
    }
    let line = line_of(error.position());
    match &error {
        EvalAltResult::ErrorTooManyOperations(_) => return Ending::Instructions(line),
        EvalAltResult::ErrorParsing(_, _) => {}
        _ => {}
    }
    error.set_position(Position::NONE);
    let message = match error {
        EvalAltResult::ErrorRuntime(value, _) => value.to_string(),
        other => other.to_string(),
    };
    Ending::Raised(Failure {
        message,
        line,
        traceback,
    })
}
