//! `window`: finding and arranging windows.

use super::{Module, TEXT, int, opt_text, record, rect};
use crate::base::Rect;
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::value::Value;
use crate::wire::messages::desktop as msg;
use crate::wire::{Code, capability};

const LOOK: Option<&str> = Some(capability::WINDOW_ENUMERATE);
const ARRANGE: Option<&str> = Some(capability::WINDOW_ACTIVATE);

const WINDOW: Type = Type::Record(&[
    ("handle", Type::Int),
    ("title", Type::Text),
    ("class", Type::Text),
    ("pid", Type::Optional(&Type::Int)),
    ("process", Type::Optional(&Type::Text)),
    ("foreground", Type::Bool),
    ("minimized", Type::Optional(&Type::Bool)),
    ("bounds", Type::Rect),
]);

const HANDLE: Param = Param::required("window", Type::Window, "the window's handle");
const TITLE: Param = Param::optional(
    "title",
    TEXT,
    Preset::Absent,
    "a part of the title, case ignored",
);
const CLASS: Param = Param::optional(
    "className",
    TEXT,
    Preset::Absent,
    "a part of the window class, case ignored",
);
const PROCESS: Param = Param::optional(
    "process",
    TEXT,
    Preset::Absent,
    "a part of the executable's name, case ignored",
);
const PID: Param = Param::optional("pid", Type::Int, Preset::Absent, "the process's number");
const EXACT: Param = Param::optional(
    "exact",
    Type::Bool,
    Preset::Bool(false),
    "texts have to match as a whole",
);

pub const MODULE: Module = Module {
    name: "window",
    doc: "Finding and arranging windows. Texts match as parts, case ignored; name several conditions in a map, such as `window.find({className = \"XTerm\"})`.",
    functions: &[
        Function {
            module: "window",
            name: "find",
            params: &[TITLE, CLASS, PROCESS, PID, EXACT],
            reply: Type::Tuple(&[Type::Optional(&Type::Int), Type::Bool]),
            capability: LOOK,
            doc: "The topmost window that fits, and whether there was one.",
            example: Example("$let handle, found = window.find(\"xterm\")"),
            handler: find,
        },
        Function {
            module: "window",
            name: "list",
            params: &[TITLE, CLASS, PROCESS, PID, EXACT],
            reply: Type::ListOf(&WINDOW),
            capability: LOOK,
            doc: "The windows that fit, topmost first; all without conditions.",
            example: Example("$let all = window.list()"),
            handler: |context, args| {
                let found = context.desktop()?.windows(&query(args)?)?;
                let found: Result<_, _> = found.into_iter().map(window).collect();
                Ok(Value::List(found?))
            },
        },
        Function {
            module: "window",
            name: "waitFor",
            params: &[
                TITLE,
                Param::optional(
                    "timeout",
                    Type::Millis,
                    Preset::Float(5000.0),
                    "how long to wait",
                )
                .unit("ms"),
                CLASS,
                PROCESS,
                PID,
                EXACT,
            ],
            reply: Type::Bool,
            capability: LOOK,
            doc: "Waits until a window fits; false when the time has passed first.",
            example: Example("$let appeared = window.waitFor(\"xterm\", 50)"),
            handler: wait_for,
        },
        Function {
            module: "window",
            name: "getForeground",
            params: &[],
            reply: Type::Optional(&Type::Int),
            capability: LOOK,
            doc: "The window that has the keyboard; nil when none has.",
            example: Example("$let handle = window.getForeground()"),
            handler: |context, _| match context.desktop()?.foreground_window()? {
                Some(window) => int(window.handle),
                None => Ok(Value::Nil),
            },
        },
        Function {
            module: "window",
            name: "get",
            params: &[HANDLE],
            reply: Type::Optional(&WINDOW),
            capability: LOOK,
            doc: "All that is known of a window; nil when it is gone.",
            example: Example(
                "$let handle, found = window.find(\"xterm\")\n$if found $then\n$let about = window.get(handle)\n$end",
            ),
            handler: |context, args| match look(context, args)? {
                Some(found) => window(found),
                None => Ok(Value::Nil),
            },
        },
        Function {
            module: "window",
            name: "getTitle",
            params: &[HANDLE],
            reply: Type::Optional(&Type::Text),
            capability: LOOK,
            doc: "A window's title; nil when it is gone.",
            example: Example(
                "$let handle, found = window.find(\"xterm\")\n$if found $then\n$let title = window.getTitle(handle)\n$end",
            ),
            handler: |context, args| Ok(opt_text(look(context, args)?.map(|found| found.title))),
        },
        Function {
            module: "window",
            name: "getBounds",
            params: &[HANDLE],
            reply: Type::Optional(&Type::Rect),
            capability: LOOK,
            doc: "A window's place and size without the window manager's frame; nil when it is gone.",
            example: Example(
                "$let handle, found = window.find(\"xterm\")\n$if found $then\n$let bounds = window.getBounds(handle)\n$end",
            ),
            handler: |context, args| {
                Ok(look(context, args)?.map_or(Value::Nil, |found| rect(found.bounds)))
            },
        },
        Function {
            module: "window",
            name: "activate",
            params: &[HANDLE],
            reply: Type::Bool,
            capability: ARRANGE,
            doc: "Brings a window to the front and gives it the keyboard; false when it is gone.",
            example: Example(
                "$let handle, found = window.find(\"xterm\")\n$if found $then\nwindow.activate(handle)\n$end",
            ),
            handler: |context, args| done(context.desktop()?.activate_window(args.handle(0)?)),
        },
        Function {
            module: "window",
            name: "move",
            params: &[
                HANDLE,
                Param::required("x", Type::Int, "the left edge").unit("px"),
                Param::required("y", Type::Int, "the top edge").unit("px"),
            ],
            reply: Type::Bool,
            capability: ARRANGE,
            doc: "Moves a window; false when it is gone.",
            example: Example(
                "$let handle, found = window.find(\"xterm\")\n$if found $then\nwindow.move(handle, 10, 20)\n$end",
            ),
            handler: |context, args| {
                let at = args.xy(1)?;
                place(context, args, |bounds| {
                    Rect::new(at.x, at.y, bounds.width, bounds.height)
                })
            },
        },
        Function {
            module: "window",
            name: "resize",
            params: &[
                HANDLE,
                Param::required("width", Type::Int, "the new width").unit("px"),
                Param::required("height", Type::Int, "the new height").unit("px"),
            ],
            reply: Type::Bool,
            capability: ARRANGE,
            doc: "Resizes a window; false when it is gone.",
            example: Example(
                "$let handle, found = window.find(\"xterm\")\n$if found $then\nwindow.resize(handle, 640, 480)\n$end",
            ),
            handler: |context, args| {
                let (width, height) = (args.u32(1)?, args.u32(2)?);
                place(context, args, |bounds| {
                    Rect::new(bounds.x, bounds.y, width, height)
                })
            },
        },
        Function {
            module: "window",
            name: "place",
            params: &[
                HANDLE,
                Param::required("bounds", Type::Rect, "the new place and size").unit("px"),
            ],
            reply: Type::Bool,
            capability: ARRANGE,
            doc: "Moves and resizes a window; false when it is gone.",
            example: Example(
                "$let handle, found = window.find(\"xterm\")\n$if found $then\nwindow.place(handle, ${x$: 10, y$: 20, width$: 640, height$: 480})\n$end",
            ),
            handler: |context, args| {
                let wanted = args.rect(1)?;
                place(context, args, |bounds| wanted.unwrap_or(bounds))
            },
        },
        Function {
            module: "window",
            name: "minimize",
            params: &[HANDLE],
            reply: Type::Bool,
            capability: ARRANGE,
            doc: "Minimises a window; false when it is gone.",
            example: Example(
                "$let handle, found = window.find(\"xterm\")\n$if found $then\nwindow.minimize(handle)\n$end",
            ),
            handler: |context, args| done(context.desktop()?.minimize_window(args.handle(0)?)),
        },
        Function {
            module: "window",
            name: "close",
            params: &[HANDLE],
            reply: Type::Bool,
            capability: ARRANGE,
            doc: "Asks a window to close; false when it is gone.",
            example: Example(
                "$let handle, found = window.find(\"xterm\")\n$if found $then\nwindow.close(handle)\n$end",
            ),
            handler: |context, args| done(context.desktop()?.close_window(args.handle(0)?)),
        },
    ],
};

fn query_at(args: &Args, title: usize, rest: usize) -> Result<msg::WindowQuery, ScriptFault> {
    Ok(msg::WindowQuery {
        title: args.opt_text(title)?.map(str::to_owned),
        class: args.opt_text(rest)?.map(str::to_owned),
        process: args.opt_text(rest + 1)?.map(str::to_owned),
        process_id: args.has(rest + 2).then(|| args.u32(rest + 2)).transpose()?,
        exact: args.bool(rest + 3)?,
    })
}

fn query(args: &Args) -> Result<msg::WindowQuery, ScriptFault> {
    query_at(args, 0, 1)
}

fn has_condition(args: &Args, query: &msg::WindowQuery) -> Result<(), ScriptFault> {
    let none = query.title.is_none()
        && query.class.is_none()
        && query.process.is_none()
        && query.process_id.is_none();
    if none {
        return Err(args.refuse(0, "a title or another condition", "nothing"));
    }
    Ok(())
}

fn window(found: msg::Window) -> Result<Value, ScriptFault> {
    Ok(record([
        ("handle", int(found.handle)?),
        ("title", Value::Text(found.title)),
        ("class", Value::Text(found.class)),
        (
            "pid",
            found
                .process_id
                .map_or(Value::Nil, |pid| Value::Int(pid.into())),
        ),
        ("process", opt_text(found.process_name)),
        ("foreground", Value::Bool(found.is_foreground)),
        (
            "minimized",
            found.is_minimized.map_or(Value::Nil, Value::Bool),
        ),
        ("bounds", rect(found.bounds)),
    ]))
}

fn find(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let query = query(args)?;
    has_condition(args, &query)?;
    let found = context.desktop()?.windows(&query)?;
    Ok(Value::Tuple(match found.first() {
        Some(window) => vec![int(window.handle)?, Value::Bool(true)],
        None => vec![Value::Nil, Value::Bool(false)],
    }))
}

fn wait_for(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let query = query_at(args, 0, 2)?;
    has_condition(args, &query)?;
    let watch = context.watch();
    let found = context
        .desktop()?
        .wait_window(&query, args.millis(1)?, &|| watch.stop_reason().is_some())?;
    Ok(Value::Bool(found.is_some()))
}

/// A window by its handle; `None` when it is gone.
fn look(context: &Context, args: &Args) -> Result<Option<msg::Window>, ScriptFault> {
    match context.desktop()?.window(args.handle(0)?) {
        Ok(found) => Ok(Some(found)),
        Err(fault) if fault.code == Code::WindowNotFound => Ok(None),
        Err(fault) => Err(fault.into()),
    }
}

fn done<T>(answer: Result<T, crate::wire::Fault>) -> Result<Value, ScriptFault> {
    match answer {
        Ok(_) => Ok(Value::Bool(true)),
        Err(fault) if fault.code == Code::WindowNotFound => Ok(Value::Bool(false)),
        Err(fault) => Err(fault.into()),
    }
}

fn place(
    context: &Context,
    args: &Args,
    change: impl FnOnce(Rect) -> Rect,
) -> Result<Value, ScriptFault> {
    match look(context, args)? {
        Some(found) => {
            let bounds = change(found.bounds);
            done(context.desktop()?.place_window(found.handle, bounds))
        }
        None => Ok(Value::Bool(false)),
    }
}
