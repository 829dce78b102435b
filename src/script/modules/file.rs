//! `file`: files in the script's folder and the declared roots.

use std::fs;

use super::{Module, TEXT, int};
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Handler, Param, Type};
use crate::script::fault::ScriptFault;
use crate::script::folder::{self, Write, io_fault};
use crate::script::value::Value;
use crate::wire::Code;

const PATH: Param = Param::required(
    "path",
    TEXT,
    "below the script's folder, or a full path below a declared root",
);
const ONE: &[Param] = &[PATH];
const PAIR: &[Param] = &[
    PATH,
    Param::required("target", TEXT, "where to; a file that is there is replaced"),
];
const CONTENT: &[Param] = &[
    PATH,
    Param::required("content", Type::Bytes, "text or bytes"),
];

const fn function(
    name: &'static str,
    params: &'static [Param],
    reply: Type,
    doc: &'static str,
    example: &'static str,
    handler: Handler,
) -> Function {
    Function {
        module: "file",
        name,
        params,
        reply,
        capability: None,
        doc,
        example: Example(example),
        handler,
    }
}

pub const MODULE: Module = Module {
    name: "file",
    doc: "Files in the script's folder and the declared roots. Paths that leave them and symbolic links are errors (`path_denied`); no file is over 16 MiB.",
    functions: &[
        function(
            "read",
            ONE,
            Type::Optional(&Type::Bytes),
            "A file's content; nil when there is no such file. Content that is no UTF-8 is bytes.",
            "file.write(\"note.txt\", \"hello\")\n$let text = file.read(\"note.txt\")",
            read,
        ),
        function(
            "write",
            CONTENT,
            Type::Bool,
            "Replaces a file's content, or makes the file; true.",
            "file.write(\"note.txt\", \"hello\")",
            |context, args| {
                folder::write(
                    context.host(),
                    args.text(0)?,
                    args.bytes(1)?,
                    Write::Replace,
                )?;
                Ok(Value::Bool(true))
            },
        ),
        function(
            "append",
            CONTENT,
            Type::Bool,
            "Adds to a file's end, or makes the file; true.",
            "file.append(\"log.txt\", \"one line\")",
            |context, args| {
                folder::write(context.host(), args.text(0)?, args.bytes(1)?, Write::Append)?;
                Ok(Value::Bool(true))
            },
        ),
        function(
            "exists",
            ONE,
            Type::Bool,
            "Whether there is a file or folder.",
            "$let there = file.exists(\"note.txt\")",
            |context, args| Ok(Value::Bool(look(context, args)?.is_some())),
        ),
        function(
            "isFile",
            ONE,
            Type::Bool,
            "Whether there is a plain file.",
            "$let plain = file.isFile(\"note.txt\")",
            |context, args| {
                Ok(Value::Bool(
                    look(context, args)?.is_some_and(|found| found.is_file()),
                ))
            },
        ),
        function(
            "isDir",
            ONE,
            Type::Bool,
            "Whether there is a folder.",
            "$let folder = file.isDir(\"data\")",
            |context, args| {
                Ok(Value::Bool(
                    look(context, args)?.is_some_and(|found| found.is_dir()),
                ))
            },
        ),
        function(
            "size",
            ONE,
            Type::Optional(&Type::Int),
            "A file's size in bytes; nil when there is no such file.",
            "$let bytes = file.size(\"note.txt\")",
            |context, args| match look(context, args)? {
                Some(found) => int(found.len()),
                None => Ok(Value::Nil),
            },
        ),
        function(
            "move",
            PAIR,
            Type::Bool,
            "Moves or renames a file or folder; false when there is none.",
            "file.write(\"a.txt\", \"x\")\nfile.move(\"a.txt\", \"b.txt\")",
            |context, args| relocate(context, args, |from, to| fs::rename(from, to)),
        ),
        function(
            "copy",
            PAIR,
            Type::Bool,
            "Copies a file; false when there is none.",
            "file.write(\"a.txt\", \"x\")\nfile.copy(\"a.txt\", \"b.txt\")",
            |context, args| relocate(context, args, |from, to| fs::copy(from, to).map(|_| ())),
        ),
        function(
            "remove",
            ONE,
            Type::Bool,
            "Removes a file or an empty folder; false when there is none.",
            "file.write(\"a.txt\", \"x\")\nfile.remove(\"a.txt\")",
            |context, args| remove(context, args, Depth::One),
        ),
        function(
            "removeAll",
            ONE,
            Type::Bool,
            "Removes a folder with all in it; false when there is none. Links in it are removed, never followed.",
            "file.mkdir(\"data/old\")\nfile.removeAll(\"data\")",
            |context, args| remove(context, args, Depth::All),
        ),
        function(
            "mkdir",
            ONE,
            Type::Bool,
            "Makes a folder and those above it; false when it was there.",
            "file.mkdir(\"data/today\")",
            mkdir,
        ),
        function(
            "listDir",
            ONE,
            Type::Optional(&Type::ListOf(&Type::Text)),
            "The names in a folder, sorted; nil when there is no such folder.",
            "file.mkdir(\"data\")\n$let names = file.listDir(\"data\")",
            list,
        ),
    ],
};

fn missing(fault: &ScriptFault) -> bool {
    matches!(fault, ScriptFault::Failed(fault) if fault.code == Code::NotFound)
}

fn read(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    match folder::read(context.host(), args.text(0)?) {
        Ok(bytes) => Ok(match String::from_utf8(bytes) {
            Ok(text) => Value::Text(text),
            Err(error) => Value::Bytes(error.into_bytes()),
        }),
        Err(fault) if missing(&fault) => Ok(Value::Nil),
        Err(fault) => Err(fault),
    }
}

fn look(context: &Context, args: &Args) -> Result<Option<fs::Metadata>, ScriptFault> {
    let path = args.text(0)?;
    match fs::symlink_metadata(folder::resolve(context.host(), path)?) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_fault("look at", path, &error)),
    }
}

fn relocate(
    context: &Context,
    args: &Args,
    work: fn(&std::path::Path, &std::path::Path) -> std::io::Result<()>,
) -> Result<Value, ScriptFault> {
    let from = folder::resolve_below(context.host(), args.text(0)?)?;
    let to = folder::resolve_below(context.host(), args.text(1)?)?;
    if look(context, args)?.is_none() {
        return Ok(Value::Bool(false));
    }
    work(&from, &to)
        .map_err(|error| io_fault("move or copy to", args.text(1).unwrap_or(""), &error))?;
    Ok(Value::Bool(true))
}

#[derive(Clone, Copy, PartialEq)]
enum Depth {
    One,
    All,
}

fn remove(context: &Context, args: &Args, depth: Depth) -> Result<Value, ScriptFault> {
    let path = args.text(0)?;
    let full = folder::resolve_below(context.host(), path)?;
    let Some(found) = look(context, args)? else {
        return Ok(Value::Bool(false));
    };
    let done = match (found.is_dir(), depth) {
        (true, Depth::All) => fs::remove_dir_all(&full),
        (true, Depth::One) => fs::remove_dir(&full),
        (false, _) => fs::remove_file(&full),
    };
    done.map_err(|error| io_fault("remove", path, &error))?;
    Ok(Value::Bool(true))
}

fn mkdir(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let path = args.text(0)?;
    let full = folder::resolve(context.host(), path)?;
    let is_new = look(context, args)?.is_none();
    fs::create_dir_all(full).map_err(|error| io_fault("make the folder", path, &error))?;
    Ok(Value::Bool(is_new))
}

fn list(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let path = args.text(0)?;
    let full = folder::resolve(context.host(), path)?;
    if look(context, args)?.is_none() {
        return Ok(Value::Nil);
    }
    let failed = |error: std::io::Error| io_fault("list", path, &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(full).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(Value::List(names.into_iter().map(Value::Text).collect()))
}
