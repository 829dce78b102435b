//! `log`: lines of output with a level.
//!
//! The lowest level is `verbose`, since `debug` is a reserved word of Rhai.

use super::Module;
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::host::Level;
use crate::script::value::Value;
use crate::script::{codec, text};
use crate::wire::messages::executions::Stream;

const PARAMS: &[Param] = &[
    Param::required(
        "message",
        Type::Any,
        "what to write; other values than text are shown as JSON",
    ),
    Param::optional(
        "data",
        Type::Any,
        Preset::Absent,
        "a value to show after the message, as JSON",
    ),
];

const fn level(
    name: &'static str,
    doc: &'static str,
    example: Example,
    handler: crate::script::descriptor::Handler,
) -> Function {
    Function {
        module: "log",
        name,
        params: PARAMS,
        reply: Type::Nothing,
        capability: None,
        doc,
        example,
        handler,
    }
}

pub const MODULE: Module = Module {
    name: "log",
    doc: "Lines of output with a level; warnings and errors go to stderr.",
    functions: &[
        level(
            "verbose",
            "Writes a line at the debug level to stdout.",
            Example("log.verbose(\"entering the loop\")"),
            |context, args| write(context, args, Level::Debug),
        ),
        level(
            "info",
            "Writes a line at the info level to stdout.",
            Example("log.info(\"ready\", ${width$: screen.getScreenWidth()})"),
            |context, args| write(context, args, Level::Info),
        ),
        level(
            "warn",
            "Writes a line at the warning level to stderr.",
            Example("log.warn(\"no window yet\")"),
            |context, args| write(context, args, Level::Warn),
        ),
        level(
            "error",
            "Writes a line at the error level to stderr; the run goes on.",
            Example("log.error(\"gave up\")"),
            |context, args| write(context, args, Level::Error),
        ),
    ],
};

fn write(context: &mut Context, args: &Args, level: Level) -> Result<Value, ScriptFault> {
    let mut line = text::of(args.any(0)?);
    if args.has(1) {
        line.push(' ');
        line.push_str(&codec::encode(args.any(1)?, None)?);
    }
    let stream = match level {
        Level::Debug | Level::Info => Stream::Stdout,
        Level::Warn | Level::Error => Stream::Stderr,
    };
    context.output(stream, level, &line);
    Ok(Value::Nil)
}
