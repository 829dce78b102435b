//! `args`: what the caller gave to the run.

use super::{Module, TEXT};
use crate::script::descriptor::{Example, Function, Param, Preset, Type};
use crate::script::value::Value;

pub const MODULE: Module = Module {
    name: "args",
    doc: "What the caller gave to the run (`--arg name=value`); values are text.",
    functions: &[
        Function {
            module: "args",
            name: "get",
            params: &[
                Param::required("name", TEXT, "the argument's name"),
                Param::optional(
                    "fallback",
                    Type::Any,
                    Preset::Absent,
                    "what to answer when it was not given",
                ),
            ],
            reply: Type::Any,
            capability: None,
            doc: "An argument's text; the default, or nil, when it was not given.",
            example: Example("$let who = args.get(\"who\", \"world\")"),
            handler: |context, args| match context.host().args().get(args.text(0)?) {
                Some(text) => Ok(Value::Text(text.clone())),
                None => Ok(args.any(1)?.clone()),
            },
        },
        Function {
            module: "args",
            name: "all",
            params: &[],
            reply: Type::Map,
            capability: None,
            doc: "All arguments by name.",
            example: Example("$let given = args.all()"),
            handler: |context, _| {
                let all = context.host().args().iter();
                Ok(Value::Map(
                    all.map(|(name, text)| (name.clone(), Value::Text(text.clone())))
                        .collect(),
                ))
            },
        },
        Function {
            module: "args",
            name: "executionId",
            params: &[],
            reply: TEXT,
            capability: None,
            doc: "The id of this run, as `wingman executions` shows it.",
            example: Example("$let id = args.executionId()"),
            handler: |context, _| Ok(Value::Text(context.host().execution_id().to_owned())),
        },
    ],
};
