//! `image`: pictures that a script holds by a handle.

use std::io::Cursor;
use std::sync::Arc;

use super::screen::{PICTURE, picture};
use super::{Module, TEXT, artifact, color};
use crate::base::{Point, Rect, limits};
use crate::desktop::{self, Profile};
use crate::platform::{Frame, PixelFormat};
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::folder;
use crate::script::value::Value;
use crate::wire::Code;

const IMAGE: Param = Param::required(
    "image",
    Type::Image,
    "what `screen.grab` or `image.load` gave",
);

pub const MODULE: Module = Module {
    name: "image",
    doc: "Pictures that the script holds by a handle until it releases them or ends.",
    functions: &[
        Function {
            module: "image",
            name: "load",
            params: &[Param::required(
                "path",
                TEXT,
                "a PNG or JPEG file in the script's folder",
            )],
            reply: PICTURE,
            capability: None,
            doc: "Loads a picture.",
            example: Example(
                "$let saved = screen.grab(${x$: 0, y$: 0, width$: 8, height$: 8})\nimage.save(saved, \"corner.png\")\n$let picture = image.load(\"corner.png\")",
            ),
            handler: load,
        },
        Function {
            module: "image",
            name: "pixel",
            params: &[
                IMAGE,
                Param::required("x", Type::Int, "from the picture's left edge").unit("px"),
                Param::required("y", Type::Int, "from the picture's top edge").unit("px"),
            ],
            reply: Type::Color,
            capability: None,
            doc: "The colour of one of the picture's pixels.",
            example: Example(
                "$let picture = screen.grab(${x$: 0, y$: 0, width$: 8, height$: 8})\n$let color = image.pixel(picture, 0, 0)",
            ),
            handler: pixel,
        },
        Function {
            module: "image",
            name: "save",
            params: &[
                IMAGE,
                Param::required(
                    "path",
                    TEXT,
                    "a file in the script's folder; `.jpg` makes it a JPEG, else it is a PNG",
                ),
            ],
            reply: Type::Int,
            capability: None,
            doc: "Writes the picture to a file; answers its size in bytes.",
            example: Example(
                "$let picture = screen.grab(${x$: 0, y$: 0, width$: 8, height$: 8})\n$let size = image.save(picture, \"corner.png\")",
            ),
            handler: save,
        },
        Function {
            module: "image",
            name: "saveArtifact",
            params: &[
                IMAGE,
                Param::optional(
                    "name",
                    TEXT,
                    Preset::Text("image.png"),
                    "the artifact's name; `.jpg` makes it a JPEG",
                ),
            ],
            reply: Type::Record(&[
                ("name", Type::Text),
                ("size", Type::Int),
                ("sha256", Type::Text),
            ]),
            capability: None,
            doc: "Stores the picture as an artifact of the run.",
            example: Example(
                "$let picture = screen.grab(${x$: 0, y$: 0, width$: 8, height$: 8})\n$let stored = image.saveArtifact(picture, \"corner.png\")",
            ),
            handler: |context, args| {
                let (kind, bytes) = encode(&context.image(args.handle(0)?)?, args.text(1)?)?;
                artifact::store(context, args.text(1)?, kind, &bytes)
            },
        },
        Function {
            module: "image",
            name: "release",
            params: &[IMAGE],
            reply: Type::Bool,
            capability: None,
            doc: "Lets the picture go; false when it had gone before.",
            example: Example(
                "$let picture = screen.grab(${x$: 0, y$: 0, width$: 8, height$: 8})\nimage.release(picture)",
            ),
            handler: |context, args| Ok(Value::Bool(context.release_image(args.handle(0)?))),
        },
    ],
};

fn load(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let frame = decode(folder::read(context.host(), args.text(0)?)?)?;
    let region = frame.region;
    picture(context.keep_image(frame)?, region)
}

/// A PNG or JPEG as a frame, refused where its pixels would pass the memory limit of scripts.
pub fn decode(bytes: Vec<u8>) -> Result<Frame, ScriptFault> {
    let refused = |error: image::ImageError| {
        ScriptFault::failed(Code::InvalidParams, format!("read the picture: {error}"))
    };
    let mut reader = image::ImageReader::new(Cursor::new(bytes))
        .with_guessed_format()
        .map_err(|error| refused(error.into()))?;
    let mut bounds = image::Limits::default();
    bounds.max_alloc = Some(limits::SCRIPT_MEMORY_MAX as u64);
    reader.limits(bounds);
    let pixels = reader.decode().map_err(refused)?.into_rgba8();
    let region = Rect::new(0, 0, pixels.width(), pixels.height());
    rgba_frame(region, pixels.into_raw())
}

/// A frame of 8-bit RGBA pixels without padding.
pub fn rgba_frame(region: Rect, pixels: Vec<u8>) -> Result<Frame, ScriptFault> {
    let stride = region.width as usize * 4;
    Frame::new(
        region,
        stride,
        PixelFormat::Rgba,
        "memory",
        false,
        Arc::new(pixels),
    )
    .map_err(|error| ScriptFault::failed(Code::InvalidParams, error.to_string()))
}

fn pixel(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let frame = context.image(args.handle(0)?)?;
    let (x, y) = (args.u32(1)?, args.u32(2)?);
    let size = frame.size();
    let inside = x < size.width && y < size.height;
    let at = Point {
        x: frame.region.x.saturating_add_unsigned(x),
        y: frame.region.y.saturating_add_unsigned(y),
    };
    match frame.pixel(at).filter(|_| inside) {
        Some(found) => Ok(color(found)),
        None => Err(ScriptFault::failed(
            Code::CaptureRegionInvalid,
            format!(
                "the picture of {}x{} has no pixel {x}, {y}",
                size.width, size.height
            ),
        )),
    }
}

fn save(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let (_, bytes) = encode(&context.image(args.handle(0)?)?, args.text(1)?)?;
    folder::write(
        context.host(),
        args.text(1)?,
        &bytes,
        folder::Write::Replace,
    )?;
    Ok(Value::Int(bytes.len() as i64))
}

/// The media type and bytes of a picture in the format that a name asks for.
fn encode(frame: &Frame, name: &str) -> Result<(&'static str, Vec<u8>), ScriptFault> {
    let lower = name.to_ascii_lowercase();
    let is_jpeg = lower.ends_with(".jpg") || lower.ends_with(".jpeg");
    let profile = Profile::named(if is_jpeg { "native-jpeg" } else { "native-png" })?;
    let encoded = desktop::encode(frame, &profile)?;
    Ok((profile.format.content_type(), encoded.bytes))
}
