//! `json`: values to text and back.

use super::{Module, TEXT};
use crate::script::codec;
use crate::script::descriptor::{Example, Function, Param, Preset, Type};
use crate::script::value::Value;

pub const MODULE: Module = Module {
    name: "json",
    doc: "Values to JSON and back.",
    functions: &[
        Function {
            module: "json",
            name: "encode",
            params: &[
                Param::required("value", Type::Any, "any value but bytes and functions"),
                Param::optional(
                    "indent",
                    Type::Int,
                    Preset::Absent,
                    "spaces a level, 1 to 8; one line when absent",
                ),
            ],
            reply: TEXT,
            capability: None,
            doc: "The value as JSON text. In Lua an empty table is an object unless it came from the host as a list or from `json.list`.",
            example: Example("$let text = json.encode(${name$: \"a\", list$: $[1, 2$]})"),
            handler: |_, args| {
                let indent = if args.has(1) {
                    Some(args.int_in(1, 1..=8)? as usize)
                } else {
                    None
                };
                Ok(Value::Text(codec::encode(args.any(0)?, indent)?))
            },
        },
        Function {
            module: "json",
            name: "decode",
            params: &[Param::required(
                "text",
                TEXT,
                "JSON text, nested at most 64 levels",
            )],
            reply: Type::Any,
            capability: None,
            doc: "The value of a JSON text; an error names line and column.",
            example: Example("$let value = json.decode(\"[1, 2.5, null]\")"),
            handler: |_, args| codec::decode(args.text(0)?),
        },
        Function {
            module: "json",
            name: "list",
            params: &[Param::optional(
                "values",
                Type::List,
                Preset::Absent,
                "the list; empty when absent",
            )],
            reply: Type::List,
            capability: None,
            doc: "A list that stays a list when it is empty.",
            example: Example("$let none = json.encode(json.list())"),
            handler: |_, args| Ok(Value::List(args.list(0)?.to_vec())),
        },
    ],
};
