//! `util`: sleeping, the time, a plain log line.

use super::Module;
use crate::base::EpochMillis;
use crate::script::descriptor::{Example, Function, Param, Type};
use crate::script::host::Level;
use crate::script::text;
use crate::script::value::Value;
use crate::wire::messages::executions::Stream;

pub const MODULE: Module = Module {
    name: "util",
    doc: "Sleeping, the time, a plain log line.",
    functions: &[
        Function {
            module: "util",
            name: "sleep",
            params: &[Param::required("duration", Type::Millis, "how long").unit("ms")],
            reply: Type::Nothing,
            capability: None,
            doc: "Sleeps; a stop of the run ends the sleep at once.",
            example: Example("util.sleep(5)"),
            handler: |context, args| {
                context.watch().sleep(args.millis(0)?)?;
                Ok(Value::Nil)
            },
        },
        Function {
            module: "util",
            name: "getTime",
            params: &[],
            reply: Type::Int,
            capability: None,
            doc: "The time of day in milliseconds since the Unix epoch.",
            example: Example("$let now = util.getTime()"),
            handler: |_, _| Ok(Value::Int(EpochMillis::now().0)),
        },
        Function {
            module: "util",
            name: "log",
            params: &[Param::required("message", Type::Any, "what to write")],
            reply: Type::Nothing,
            capability: None,
            doc: "Writes a line at the info level; the same as `log.info` without data.",
            example: Example("util.log(\"hello\")"),
            handler: |context, args| {
                let line = text::of(args.any(0)?);
                context.output(Stream::Stdout, Level::Info, &line);
                Ok(Value::Nil)
            },
        },
    ],
};
