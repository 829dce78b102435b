//! `input`: pointer and keyboard. What a run still holds down is let up when it ends.

use std::time::Duration;

use super::{Module, TEXT, point};
use crate::base::ids::fill_random;
use crate::desktop::{Chord, InputSession};
use crate::platform::Press;
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Handler, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::value::Value;
use crate::wire::capability;

const X: Param = Param::required("x", Type::Int, "from the left edge of the desktop").unit("px");
const Y: Param = Param::required("y", Type::Int, "from the top edge of the desktop").unit("px");
const BUTTON: Param = Param::optional("button", Type::Button, Preset::Int(0), "which button");
const KEYS: &[Param] = &[Param::required("keys", Type::Keys, "a key or a chord")];

const fn mouse(
    name: &'static str,
    params: &'static [Param],
    doc: &'static str,
    example: &'static str,
    handler: Handler,
) -> Function {
    Function {
        module: "input",
        name,
        params,
        reply: Type::Nothing,
        capability: Some(capability::INPUT_MOUSE),
        doc,
        example: Example(example),
        handler,
    }
}

const fn keyboard(
    name: &'static str,
    params: &'static [Param],
    doc: &'static str,
    example: &'static str,
    handler: Handler,
) -> Function {
    Function {
        capability: Some(capability::INPUT_KEYBOARD),
        ..mouse(name, params, doc, example, handler)
    }
}

pub const MODULE: Module = Module {
    name: "input",
    doc: "Pointer and keyboard. What a run still holds down is let up when it ends.",
    functions: &[
        mouse(
            "click",
            &[
                X,
                Y,
                BUTTON,
                Param::optional("count", Type::Int, Preset::Int(1), "1 to 3 clicks in a row"),
            ],
            "Moves the pointer and clicks.",
            "input.click(100, 200)",
            |context, args| click(context, args, args.int_in(3, 1..=3)? as u8),
        ),
        mouse(
            "doubleClick",
            &[X, Y, BUTTON],
            "Moves the pointer and clicks twice.",
            "input.doubleClick(100, 200)",
            |context, args| click(context, args, 2),
        ),
        mouse(
            "move",
            &[
                X,
                Y,
                Param::optional(
                    "duration",
                    Type::Millis,
                    Preset::Float(0.0),
                    "the time of the way; 0 jumps",
                )
                .unit("ms"),
            ],
            "Moves the pointer along a straight path.",
            "input.move(100, 200, 20)",
            |context, args| {
                let (to, over) = (args.xy(0)?, args.millis(2)?);
                with(context, |session, cancelled| {
                    session.move_to(to, over, cancelled)
                })
            },
        ),
        mouse(
            "drag",
            &[
                Param::required("x1", Type::Int, "where the button goes down").unit("px"),
                Param::required("y1", Type::Int, "where the button goes down").unit("px"),
                Param::required("x2", Type::Int, "where it goes up").unit("px"),
                Param::required("y2", Type::Int, "where it goes up").unit("px"),
                BUTTON,
                Param::optional(
                    "duration",
                    Type::Millis,
                    Preset::Float(300.0),
                    "the time of the way",
                )
                .unit("ms"),
            ],
            "Drags from one point to another.",
            "input.drag(10, 10, 60, 10, 0, 20)",
            |context, args| {
                let (from, to, button, over) =
                    (args.xy(0)?, args.xy(2)?, args.button(4)?, args.millis(5)?);
                with(context, |session, cancelled| {
                    session.drag(from, to, button, over, cancelled)
                })
            },
        ),
        mouse(
            "scroll",
            &[
                X,
                Y,
                Param::required("delta", Type::Int, "wheel clicks, positive up"),
                Param::optional(
                    "deltaX",
                    Type::Int,
                    Preset::Int(0),
                    "wheel clicks, positive to the right",
                ),
            ],
            "Moves the pointer and turns the wheel, at most 100 clicks.",
            "input.scroll(100, 200, -3)",
            |context, args| {
                let at = args.xy(0)?;
                let (y, x) = (args.int_in(2, -100..=100)?, args.int_in(3, -100..=100)?);
                with(context, |session, cancelled| {
                    session.move_to(at, Duration::ZERO, cancelled)?;
                    // INVARIANT: both are within ±100.
                    session.scroll(x as i32, y as i32)
                })
            },
        ),
        mouse(
            "buttonDown",
            &[BUTTON],
            "Holds a pointer button down until `input.buttonUp` or the end of the run.",
            "input.buttonDown(\"left\")\ninput.buttonUp(\"left\")",
            |context, args| {
                let button = args.button(0)?;
                with(context, |session, _| session.button(button, Press::Down))
            },
        ),
        mouse(
            "buttonUp",
            &[BUTTON],
            "Lets a pointer button up.",
            "input.buttonDown()\ninput.buttonUp()",
            |context, args| {
                let button = args.button(0)?;
                with(context, |session, _| session.button(button, Press::Up))
            },
        ),
        Function {
            module: "input",
            name: "pointer",
            params: &[],
            reply: Type::Point,
            capability: Some(capability::INPUT_MOUSE),
            doc: "Where the pointer is.",
            example: Example("$let at = input.pointer()"),
            handler: |context, _| {
                let desktop = context.desktop()?;
                Ok(point(
                    desktop.input(context.host().input_owner())?.pointer()?,
                ))
            },
        },
        keyboard(
            "keyDown",
            KEYS,
            "Holds keys down until `input.keyUp` or the end of the run.",
            "input.keyDown(\"shift\")\ninput.keyUp(\"shift\")",
            |context, args| {
                let chord = Chord::parse(args.text(0)?)?;
                with(context, |session, _| session.hold(&chord))
            },
        ),
        keyboard(
            "keyUp",
            KEYS,
            "Lets keys up.",
            "input.keyDown(0x10)\ninput.keyUp(0x10)",
            |context, args| {
                let chord = Chord::parse(args.text(0)?)?;
                with(context, |session, _| session.let_up(&chord))
            },
        ),
        keyboard(
            "key",
            KEYS,
            "Presses and releases a key, by name or by its Windows virtual-key number on every system.",
            "input.key(0x0D)",
            press,
        ),
        keyboard(
            "press",
            KEYS,
            "Presses a chord: the keys go down in order and up in reverse.",
            "input.press(\"ctrl+l\")",
            press,
        ),
        keyboard(
            "type",
            &[
                Param::required(
                    "text",
                    TEXT,
                    "any Unicode text; a line feed is the Enter key",
                ),
                Param::optional(
                    "delay",
                    Type::Millis,
                    Preset::Float(10.0),
                    "between characters",
                )
                .unit("ms"),
            ],
            "Types text, whatever the keyboard layout.",
            "input.type(\"Grüße, 世界\")",
            |context, args| {
                let (text, between) = (args.text(0)?, args.millis(1)?);
                with(context, |session, cancelled| {
                    session.type_text(text, between, cancelled)
                })
            },
        ),
        Function {
            module: "input",
            name: "delay",
            params: &[Param::required("duration", Type::Millis, "how long").unit("ms")],
            reply: Type::Nothing,
            capability: None,
            doc: "Sleeps; the same as `util.sleep`.",
            example: Example("input.delay(5)"),
            handler: |context, args| {
                context.watch().sleep(args.millis(0)?)?;
                Ok(Value::Nil)
            },
        },
        Function {
            module: "input",
            name: "randomDelay",
            params: &[
                Param::required("min", Type::Millis, "the shortest").unit("ms"),
                Param::required("max", Type::Millis, "the longest").unit("ms"),
            ],
            reply: Type::Float,
            capability: None,
            doc: "Sleeps for a random time between two bounds and answers with it, in milliseconds.",
            example: Example("$let slept = input.randomDelay(1, 3)"),
            handler: random_delay,
        },
    ],
};

fn with(
    context: &Context,
    work: impl FnOnce(&InputSession<'_>, &dyn Fn() -> bool) -> Result<(), crate::wire::Fault>,
) -> Result<Value, ScriptFault> {
    let desktop = context.desktop()?;
    let session = desktop.input(context.host().input_owner())?;
    let watch = context.watch();
    work(&session, &|| watch.stop_reason().is_some())?;
    Ok(Value::Nil)
}

fn click(context: &Context, args: &Args, count: u8) -> Result<Value, ScriptFault> {
    let (at, button) = (args.xy(0)?, args.button(2)?);
    with(context, |session, _| session.click(at, button, count))
}

fn press(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let chord = Chord::parse(args.text(0)?)?;
    with(context, |session, _| session.press(&chord))
}

fn random_delay(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let (min, max) = (args.millis(0)?, args.millis(1)?);
    if max < min {
        return Err(args.refuse(1, "at least `min`", format!("{} ms", max.as_millis())));
    }
    let mut bytes = [0; 4];
    fill_random(&mut bytes);
    let share = f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX);
    let time = min + (max - min).mul_f64(share);
    context.watch().sleep(time)?;
    Ok(Value::Float(time.as_secs_f64() * 1000.0))
}
