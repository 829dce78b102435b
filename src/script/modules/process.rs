//! `process`: finding, starting and ending programs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Module, TEXT, opt_text, record};
use crate::platform::{self, Launch, Terminate};
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::value::Value;
use crate::wire::{Code, capability};

/// Between two looks at the process list.
const POLL: Duration = Duration::from_millis(50);

const PROCESS: Type = Type::Record(&[
    ("pid", Type::Int),
    ("parent", Type::Optional(&Type::Int)),
    ("name", Type::Text),
    ("path", Type::Optional(&Type::Text)),
]);
const PID: Param = Param::required("pid", Type::Int, "the process's number");
const NAME: Param = Param::required("name", TEXT, "a part of the name, case ignored");

pub const MODULE: Module = Module {
    name: "process",
    doc: "Finding, starting and ending programs.",
    functions: &[
        Function {
            module: "process",
            name: "start",
            params: &[
                Param::required("program", TEXT, "a path, or a name to look up on PATH"),
                Param::optional(
                    "args",
                    Type::ListOf(&Type::Text),
                    Preset::Absent,
                    "its arguments, one by one; no shell reads them",
                ),
                Param::optional(
                    "workdir",
                    TEXT,
                    Preset::Absent,
                    "the folder it starts in; the script's own when absent",
                ),
                Param::optional("env", Type::Map, Preset::Absent, "added to its environment"),
            ],
            reply: Type::Int,
            capability: Some(capability::PROCESS_SPAWN),
            doc: "Starts a program on this desktop and answers with its pid; it goes on when the script ends.",
            example: Example("$let pid = process.start(\"sleep\", $[\"0.01\"$])"),
            handler: start,
        },
        Function {
            module: "process",
            name: "list",
            params: &[Param::optional(
                "name",
                TEXT,
                Preset::Absent,
                "a part of the name, case ignored; all when absent",
            )],
            reply: Type::ListOf(&PROCESS),
            capability: None,
            doc: "The processes that fit.",
            example: Example("$let all = process.list()"),
            handler: |context, args| {
                let found = context.desktop()?.processes(args.opt_text(0)?)?;
                Ok(Value::List(found.into_iter().map(process).collect()))
            },
        },
        Function {
            module: "process",
            name: "find",
            params: &[NAME],
            reply: Type::Tuple(&[Type::Optional(&Type::Int), Type::Bool]),
            capability: None,
            doc: "The pid of the first process that fits, and whether there was one.",
            example: Example("$let pid, found = process.find(\"xterm\")"),
            handler: |context, args| {
                let found = context.desktop()?.processes(Some(args.text(0)?))?;
                Ok(Value::Tuple(match found.first() {
                    Some(process) => vec![Value::Int(process.pid.into()), Value::Bool(true)],
                    None => vec![Value::Nil, Value::Bool(false)],
                }))
            },
        },
        Function {
            module: "process",
            name: "exists",
            params: &[PID],
            reply: Type::Bool,
            capability: None,
            doc: "Whether a process of that number runs.",
            example: Example("$let runs = process.exists(1)"),
            handler: |context, args| found(context.desktop()?.process(args.u32(0)?)),
        },
        Function {
            module: "process",
            name: "wait",
            params: &[
                PID,
                Param::optional(
                    "timeout",
                    Type::Millis,
                    Preset::Float(0.0),
                    "how long to wait; 0 answers at once",
                )
                .unit("ms"),
            ],
            reply: Type::Bool,
            capability: None,
            doc: "Waits until a process has ended: true when it has, false when the time passed first.",
            example: Example(
                "$let pid = process.start(\"true\")\n$let ended = process.wait(pid, 50)",
            ),
            handler: wait,
        },
        Function {
            module: "process",
            name: "waitFor",
            params: &[
                NAME,
                Param::optional(
                    "timeout",
                    Type::Millis,
                    Preset::Float(5000.0),
                    "how long to wait",
                )
                .unit("ms"),
            ],
            reply: Type::Bool,
            capability: None,
            doc: "Waits until a process fits; false when the time passed first.",
            example: Example("$let runs = process.waitFor(\"xterm\", 50)"),
            handler: wait_for,
        },
        Function {
            module: "process",
            name: "terminate",
            params: &[
                PID,
                Param::optional(
                    "force",
                    Type::Bool,
                    Preset::Bool(false),
                    "end it at once instead of asking",
                ),
                Param::optional(
                    "tree",
                    Type::Bool,
                    Preset::Bool(false),
                    "end it and all that descend from it, at once",
                ),
            ],
            reply: Type::Bool,
            capability: None,
            doc: "Ends a process; false when there was none of that number.",
            example: Example(
                "$let pid = process.start(\"sleep\", $[\"30\"$])\nprocess.terminate(pid, true)",
            ),
            handler: |context, args| {
                let how = match (args.bool(1)?, args.bool(2)?) {
                    (_, true) => Terminate::Tree,
                    (true, false) => Terminate::Force,
                    (false, false) => Terminate::Ask,
                };
                found(context.desktop()?.terminate_process(args.u32(0)?, how))
            },
        },
    ],
};

fn process(found: platform::Process) -> Value {
    record([
        ("pid", Value::Int(found.pid.into())),
        (
            "parent",
            found
                .parent
                .map_or(Value::Nil, |pid| Value::Int(pid.into())),
        ),
        ("name", Value::Text(found.name)),
        (
            "path",
            opt_text(found.path.map(|path| path.to_string_lossy().into_owned())),
        ),
    ])
}

fn found<T>(answer: Result<T, crate::wire::Fault>) -> Result<Value, ScriptFault> {
    match answer {
        Ok(_) => Ok(Value::Bool(true)),
        Err(fault) if fault.code == Code::ProcessNotFound => Ok(Value::Bool(false)),
        Err(fault) => Err(fault.into()),
    }
}

fn start(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let working_dir = match args.opt_text(2)? {
        Some(path) => Some(PathBuf::from(path)),
        None => context.host().script_dir(),
    };
    let launch = Launch {
        program: args.text(0)?.to_owned(),
        args: args.texts(1)?,
        working_dir,
        env: args.text_map(3)?,
    };
    let pid = context.desktop()?.start_process(&launch)?;
    Ok(Value::Int(pid.into()))
}

fn wait(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let watch = context.watch();
    let answer = context
        .desktop()?
        .wait_process(args.u32(0)?, args.millis(1)?, &|| {
            watch.stop_reason().is_some()
        });
    match answer {
        Ok(ended) => Ok(Value::Bool(ended)),
        // A number that no process has belongs to one that has ended.
        Err(fault) if fault.code == Code::ProcessNotFound => Ok(Value::Bool(true)),
        Err(fault) => Err(fault.into()),
    }
}

fn wait_for(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let (name, timeout) = (args.text(0)?, args.millis(1)?);
    let desktop = context.desktop()?;
    let started = Instant::now();
    loop {
        if !desktop.processes(Some(name))?.is_empty() {
            return Ok(Value::Bool(true));
        }
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Ok(Value::Bool(false));
        }
        context.watch().sleep(POLL.min(left))?;
    }
}
