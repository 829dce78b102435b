//! Rhai, with its own limits and a count of memory that it lacks.
//!
//! `screen.getPixel(1, 2)` reads as in Lua: each module is a constant of one type, found through a
//! global module so that functions of a script see it too, and every host function is a method of
//! that type which looks up its descriptor by module and name. Methods take any number of values, so
//! that a wrong call gets the text of `arguments` and not Rhai's own.

use std::any::TypeId;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use rhai::module_resolvers::DummyModuleResolver;
use rhai::{
    Array, Blob, Dynamic, Engine, EvalAltResult, Map, ModuleResolver, NativeCallContext,
    ParseError, Position,
};

use super::{Ending, Failure, Import, at_argument, unfit};
use crate::base::limits;
use crate::script::context::{Context, Watch};
use crate::script::descriptor::{Function, snake_case};
use crate::script::fault::ScriptFault;
use crate::script::folder;
use crate::script::host::Level;
use crate::script::modules;
use crate::script::profile::{Dynamics, Imports, Loops, Profile};
use crate::script::value::Value;
use crate::wire::messages::executions::Stream;

/// Values beyond a function's parameters that a call may carry and still be told of them in the text
/// of `arguments`.
const ARGUMENTS_BEYOND: usize = 2;

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
    instructions_left: Cell<Option<u64>>,
    ending: OnceCell<Ending>,
}

impl Run {
    fn end(&self, ending: Ending) {
        self.ending.get_or_init(|| ending);
    }

    /// Whether the script has to end now; counts one operation.
    fn must_end(&self) -> bool {
        if self.ending.get().is_some() {
            return true;
        }
        if let Some(left) = self.instructions_left.get() {
            if left == 0 {
                self.end(Ending::Instructions(None));
                return true;
            }
            self.instructions_left.set(Some(left - 1));
        }
        self.watch
            .check()
            .inspect_err(|fault| self.force(fault))
            .is_err()
    }

    fn force(&self, fault: &ScriptFault) {
        self.end(Ending::forced(fault).unwrap_or(Ending::Memory(None)));
    }

    /// A fault as an error of Rhai, which a script may catch unless the run has to end.
    fn raise(&self, fault: &ScriptFault) -> Box<EvalAltResult> {
        if fault.is_catchable() {
            return EvalAltResult::ErrorRuntime(fault.to_string().into(), Position::NONE).into();
        }
        self.force(fault);
        EvalAltResult::ErrorTerminated(Dynamic::UNIT, Position::NONE).into()
    }

    /// Runs the host function that a method call means.
    fn call(
        &self,
        name: &str,
        of_module: &[Option<&'static Function>],
        given: &mut [&mut Dynamic],
    ) -> Result<Value, ScriptFault> {
        let module = given
            .first()
            .and_then(|first| first.read_lock::<ModuleRef>().map(|module| *module));
        let Some(module) = module else {
            return Err(unfit(format!("{name}: called without its module")));
        };
        let Some(function) = of_module.get(module.0).copied().flatten() else {
            let module = modules::ALL.get(module.0).map_or("?", |module| module.name);
            return Err(unfit(format!("{module} has no function {name}")));
        };
        let mut import = Import::new(&self.watch);
        let mut values = Vec::with_capacity(given.len());
        for value in given.iter().skip(1) {
            let value = from_rhai(value, 0, &mut import);
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
    let engine = engine(profile, &run);
    let ast = match engine.compile(source) {
        Ok(ast) => ast,
        Err(error) => return Ending::Syntax(syntax(&error)),
    };
    let outcome = engine.run_ast(&ast);
    if let Some(ending) = run.ending.get() {
        return ending.clone();
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
        .set_max_string_size(limits::SCRIPT_TEXT_LEN_MAX)
        .set_max_array_size(limits::SCRIPT_LIST_LEN_MAX)
        .set_max_map_size(limits::SCRIPT_LIST_LEN_MAX)
        .set_allow_looping(profile.loops == Loops::Allowed);
    // Text is never evaluated: what a script does stands in its file.
    engine.disable_symbol("eval");
    match profile.imports {
        Imports::OwnFolder => engine.set_module_resolver(OwnFolder::new(run)),
        Imports::Refused => engine.set_module_resolver(DummyModuleResolver::new()),
    };
    if profile.dynamics == Dynamics::Closed {
        close(&mut engine);
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

/// Takes away all that hides what a script depends on.
fn close(engine: &mut Engine) {
    for word in ["Fn", "call", "curry", "import", "export"] {
        engine.disable_symbol(word);
    }
    engine.set_allow_anonymous_fn(false);
    // The name of a script's own function is a function value where it stands as a variable.
    #[expect(
        deprecated,
        reason = "the mark only says that its signature may change"
    )]
    engine.on_var(|name, _, context| {
        let is_module = name == "wingman" || modules::ALL.iter().any(|module| module.name == name);
        if is_module || context.scope().contains(name) {
            return Ok(None);
        }
        Err(EvalAltResult::ErrorVariableNotFound(name.to_owned(), Position::NONE).into())
    });
}

/// Imports `"lib/tools"` as `lib/tools.rhai` of the script's folder, once for each run.
struct OwnFolder {
    run: Rc<Run>,
    /// `None` while a module is being loaded.
    loaded: RefCell<BTreeMap<String, Option<Rc<rhai::Module>>>>,
}

impl OwnFolder {
    fn new(run: &Rc<Run>) -> Self {
        Self {
            run: Rc::clone(run),
            loaded: RefCell::new(BTreeMap::new()),
        }
    }

    fn load(&self, engine: &Engine, path: &str) -> Result<rhai::Module, Box<EvalAltResult>> {
        let read = folder::read(self.run.context.borrow().host(), &format!("{path}.rhai"));
        let source = read.map_err(|fault| self.run.raise(&fault))?;
        let source = String::from_utf8(source).map_err(|_| {
            self.run
                .raise(&unfit(format!("import: {path:?} is no UTF-8")))
        })?;
        let ast = engine.compile(source)?;
        rhai::Module::eval_ast_as_new(rhai::Scope::new(), &ast, engine)
    }
}

impl ModuleResolver for OwnFolder {
    fn resolve(
        &self,
        engine: &Engine,
        _source: Option<&str>,
        path: &str,
        at: Position,
    ) -> Result<Rc<rhai::Module>, Box<EvalAltResult>> {
        let known = self.loaded.borrow().get(path).cloned();
        match known {
            Some(Some(module)) => return Ok(module),
            Some(None) => {
                let why = unfit(format!("import: {path:?} imports itself"));
                return Err(self.run.raise(&why));
            }
            None => {}
        }
        self.loaded.borrow_mut().insert(path.to_owned(), None);
        let module = self.load(engine, path).map(Rc::new);
        let mut loaded = self.loaded.borrow_mut();
        match module {
            Ok(module) => {
                loaded.insert(path.to_owned(), Some(Rc::clone(&module)));
                Ok(module)
            }
            Err(error) => {
                loaded.remove(path);
                Err(EvalAltResult::ErrorInModule(path.to_owned(), error, at).into())
            }
        }
    }
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
    for (name, of_module) in spellings() {
        let of_module: Rc<[Option<&Function>]> = of_module.into();
        let taken = of_module
            .iter()
            .flatten()
            .map(|function| function.params.len());
        for count in 0..=taken.max().unwrap_or(0) + ARGUMENTS_BEYOND {
            let mut types = vec![TypeId::of::<ModuleRef>()];
            types.resize(count + 1, TypeId::of::<Dynamic>());
            let (run, spelling, of_module) = (Rc::clone(run), name.clone(), Rc::clone(&of_module));
            engine.register_raw_fn(name.as_str(), types, move |_: NativeCallContext, given| {
                run.call(&spelling, &of_module, given)
                    .map(to_rhai)
                    .map_err(|fault| run.raise(&fault))
            });
        }
    }
    // The language's own sleeps through a stop.
    for_sleep(engine, run);
}

/// Every spelling of a function's name, with the function that it means in each module.
fn spellings() -> BTreeMap<String, Vec<Option<&'static Function>>> {
    let mut all: BTreeMap<String, Vec<Option<&'static Function>>> = BTreeMap::new();
    for (at, module) in modules::ALL.iter().enumerate() {
        for function in module.functions {
            for spelling in [function.name.to_owned(), snake_case(function.name)] {
                let of_module = all
                    .entry(spelling)
                    .or_insert_with(|| vec![None; modules::ALL.len()]);
                if let Some(slot) = of_module.get_mut(at) {
                    *slot = Some(function);
                }
            }
        }
    }
    all
}

fn for_sleep(engine: &mut Engine, run: &Rc<Run>) {
    let sleep = |run: &Run, seconds: f64| {
        let time = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
        run.watch.sleep(time).map_err(|fault| run.raise(&fault))
    };
    let of_float = Rc::clone(run);
    engine.register_fn("sleep", move |seconds: f64| sleep(&of_float, seconds));
    let of_int = Rc::clone(run);
    engine.register_fn("sleep", move |seconds: i64| sleep(&of_int, seconds as f64));
}

/// A script's value for the host. The error says what it cannot be.
fn from_rhai(value: &Dynamic, depth: usize, import: &mut Import<'_>) -> Result<Value, ScriptFault> {
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
        import.enter(depth, text.len())?;
        return Ok(Value::Text(text.as_str().to_owned()));
    }
    if let Ok(c) = value.as_char() {
        return Ok(Value::Text(c.to_string()));
    }
    if let Ok(list) = value.as_array_ref() {
        import.enter(depth, 0)?;
        let items = list.iter().map(|item| from_rhai(item, depth + 1, import));
        return Ok(Value::List(items.collect::<Result<_, _>>()?));
    }
    if let Ok(bytes) = value.as_blob_ref() {
        import.enter(depth, bytes.len())?;
        return Ok(Value::Bytes(bytes.clone()));
    }
    if let Ok(map) = value.as_map_ref() {
        import.enter(depth, 0)?;
        let items = map
            .iter()
            .map(|(name, item)| Ok((name.to_string(), from_rhai(item, depth + 1, import)?)));
        return Ok(Value::Map(items.collect::<Result<_, ScriptFault>>()?));
    }
    Err(unfit(format!(
        "a {} cannot be given to the host",
        value.type_name()
    )))
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
