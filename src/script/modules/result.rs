//! `result`: what the run answers.

use super::Module;
use crate::base::limits;
use crate::script::codec;
use crate::script::descriptor::{Example, Function, Param, Type};
use crate::script::fault::ScriptFault;
use crate::script::value::Value;
use crate::wire::Code;

pub const MODULE: Module = Module {
    name: "result",
    doc: "What the run answers; it is stored as the artifact `result.json`.",
    functions: &[Function {
        module: "result",
        name: "set",
        params: &[Param::required(
            "value",
            Type::Any,
            "any value that JSON can hold",
        )],
        reply: Type::Nothing,
        capability: None,
        doc: "Sets the run's result; the last call counts. At most 1 MiB as JSON.",
        example: Example("result.set(${ok$: true, count$: 3})"),
        handler: |context, args| {
            let value = codec::to_json(args.any(0)?)?;
            let len = serde_json::to_string(&value).map_or(usize::MAX, |text| text.len());
            if len > limits::EXECUTION_RESULT_LEN_MAX {
                return Err(ScriptFault::failed(
                    Code::ArtifactTooLarge,
                    format!(
                        "a result of {len} bytes is over the limit of {}",
                        limits::EXECUTION_RESULT_LEN_MAX
                    ),
                ));
            }
            context.host().set_result(value)?;
            Ok(Value::Nil)
        },
    }],
};
