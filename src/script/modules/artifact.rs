//! `artifact`: files that stay with the run.

use super::{Module, TEXT, int};
use crate::base::limits;
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::value::Value;
use crate::wire::Code;

const STORED: Type = Type::Record(&[
    ("name", Type::Text),
    ("size", Type::Int),
    ("sha256", Type::Text),
]);

pub const MODULE: Module = Module {
    name: "artifact",
    doc: "Files that stay with the run and are served by name.",
    functions: &[
        Function {
            module: "artifact",
            name: "save",
            params: &[
                Param::required(
                    "name",
                    TEXT,
                    "a file name without folders; a second one of the same name replaces the first",
                ),
                Param::required("content", Type::Bytes, "what to store"),
                Param::optional(
                    "contentType",
                    TEXT,
                    Preset::Text("application/octet-stream"),
                    "its media type",
                ),
            ],
            reply: STORED,
            capability: None,
            doc: "Stores bytes as a file of this run, at most 64 MiB.",
            example: Example("artifact.save(\"table.csv\", \"a,b\", \"text/csv\")"),
            handler: |context, args| store(context, args.text(0)?, args.text(2)?, args.bytes(1)?),
        },
        Function {
            module: "artifact",
            name: "saveText",
            params: &[
                Param::required("name", TEXT, "a file name without folders"),
                Param::required("text", TEXT, "what to store"),
            ],
            reply: STORED,
            capability: None,
            doc: "Stores text as a UTF-8 file of this run.",
            example: Example("artifact.saveText(\"notes.txt\", \"all fine\")"),
            handler: save_text,
        },
    ],
};

fn save_text(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let text = args.text(1)?;
    store(
        context,
        args.text(0)?,
        "text/plain; charset=utf-8",
        text.as_bytes(),
    )
}

/// Stores a file of the run and answers with its record.
pub fn store(
    context: &Context,
    name: &str,
    content_type: &str,
    bytes: &[u8],
) -> Result<Value, ScriptFault> {
    if bytes.len() > limits::ARTIFACT_LEN_MAX {
        return Err(ScriptFault::failed(
            Code::ArtifactTooLarge,
            format!(
                "{} bytes are over the limit of {}",
                bytes.len(),
                limits::ARTIFACT_LEN_MAX
            ),
        ));
    }
    let stored = context.host().store_artifact(name, content_type, bytes)?;
    Ok(super::record([
        ("name", Value::Text(stored.name)),
        ("size", int(stored.size)?),
        ("sha256", Value::Text(stored.sha256)),
    ]))
}
