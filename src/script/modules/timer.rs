//! `timer`: waiting, and a clock that never goes backwards.

use super::Module;
use crate::script::descriptor::{Example, Function, Param, Type};
use crate::script::value::Value;

pub const MODULE: Module = Module {
    name: "timer",
    doc: "Waiting, and a clock that never goes backwards.",
    functions: &[
        Function {
            module: "timer",
            name: "sleep",
            params: &[Param::required("duration", Type::Millis, "how long").unit("ms")],
            reply: Type::Nothing,
            capability: None,
            doc: "Sleeps; a stop of the run ends the sleep at once.",
            example: Example("timer.sleep(5)"),
            handler: |context, args| {
                context.watch().sleep(args.millis(0)?)?;
                Ok(Value::Nil)
            },
        },
        Function {
            module: "timer",
            name: "now",
            params: &[],
            reply: Type::Float,
            capability: None,
            doc: "Milliseconds since the run began, with fractions, on a clock that is never set back.",
            example: Example("$let start = timer.now()"),
            handler: |context, _| Ok(Value::Float(context.elapsed().as_secs_f64() * 1000.0)),
        },
    ],
};
