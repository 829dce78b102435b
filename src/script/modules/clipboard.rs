//! `clipboard`: text and pictures.

use super::image::rgba_frame;
use super::screen::{PICTURE, picture};
use super::{Module, TEXT};
use crate::base::Rect;
use crate::platform::{Frame, PixelFormat, RgbaImage};
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Handler, Param, Type};
use crate::script::fault::ScriptFault;
use crate::script::value::Value;
use crate::wire::{Code, capability};

const fn function(
    name: &'static str,
    params: &'static [Param],
    reply: Type,
    doc: &'static str,
    example: &'static str,
    handler: Handler,
) -> Function {
    Function {
        module: "clipboard",
        name,
        params,
        reply,
        capability: Some(capability::CLIPBOARD),
        doc,
        example: Example(example),
        handler,
    }
}

pub const MODULE: Module = Module {
    name: "clipboard",
    doc: "The desktop's clipboard: text and pictures.",
    functions: &[
        function(
            "getText",
            &[],
            Type::Optional(&Type::Text),
            "The clipboard's text; nil when it holds none.",
            "clipboard.setText(\"copied\")\n$let text = clipboard.getText()",
            get_text,
        ),
        function(
            "setText",
            &[Param::required("text", TEXT, "the new content")],
            Type::Bool,
            "Replaces the clipboard's content by a text; true.",
            "clipboard.setText(\"copied\")",
            |context, args| {
                context.desktop()?.set_clipboard_text(args.text(0)?)?;
                Ok(Value::Bool(true))
            },
        ),
        function(
            "hasText",
            &[],
            Type::Bool,
            "Whether the clipboard holds text.",
            "$let there = clipboard.hasText()",
            |context, args| Ok(Value::Bool(get_text(context, args)? != Value::Nil)),
        ),
        function(
            "getImage",
            &[],
            Type::Optional(&PICTURE),
            "The clipboard's picture; nil when it holds none.",
            "$let picture = clipboard.getImage()",
            get_image,
        ),
        function(
            "setImage",
            &[Param::required(
                "image",
                Type::Image,
                "what `screen.grab` or `image.load` gave",
            )],
            Type::Bool,
            "Replaces the clipboard's content by a picture; true.",
            "clipboard.setImage(screen.grab(${x$: 0, y$: 0, width$: 8, height$: 8}))",
            set_image,
        ),
        function(
            "clear",
            &[],
            Type::Bool,
            "Empties the clipboard; true.",
            "clipboard.clear()",
            |context, _| {
                context.desktop()?.clear_clipboard()?;
                Ok(Value::Bool(true))
            },
        ),
    ],
};

fn get_text(context: &mut Context, _: &Args) -> Result<Value, ScriptFault> {
    match context.desktop()?.clipboard_text() {
        Ok(text) => Ok(Value::Text(text)),
        Err(fault) if fault.code == Code::ClipboardEmpty => Ok(Value::Nil),
        Err(fault) => Err(fault.into()),
    }
}

fn get_image(context: &mut Context, _: &Args) -> Result<Value, ScriptFault> {
    let image = match context.desktop()?.clipboard_image() {
        Ok(image) => image,
        Err(fault) if fault.code == Code::ClipboardEmpty => return Ok(Value::Nil),
        Err(fault) => return Err(fault.into()),
    };
    let region = Rect::new(0, 0, image.width, image.height);
    let frame = rgba_frame(region, image.pixels)?;
    picture(context.keep_image(frame)?, region)
}

fn set_image(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let image = rgba(&context.image(args.handle(0)?)?);
    context.desktop()?.set_clipboard_image(image)?;
    Ok(Value::Bool(true))
}

fn rgba(frame: &Frame) -> RgbaImage {
    let size = frame.size();
    let mut pixels = Vec::with_capacity(size.area() as usize * 4);
    for row in (0..size.height).map_while(|y| frame.row(y)) {
        for pixel in row.as_chunks::<4>().0 {
            match frame.format {
                PixelFormat::Bgrx => {
                    pixels.extend_from_slice(&[pixel[2], pixel[1], pixel[0], 255]);
                }
                PixelFormat::Rgba => pixels.extend_from_slice(pixel),
            }
        }
    }
    RgbaImage {
        width: size.width,
        height: size.height,
        pixels,
    }
}
