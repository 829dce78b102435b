//! `screen`: monitors, pixels, pictures.

use super::{Module, TEXT, color, int, record, rect, search};
use crate::platform::Cursor;
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::descriptor::{Example, Function, Param, Preset, Type};
use crate::script::fault::ScriptFault;
use crate::script::value::Value;
use crate::vision;
use crate::wire::messages::desktop as msg;
use crate::wire::{Code, capability};

const CAPTURE: Option<&str> = Some(capability::SCREEN_CAPTURE);
const MONITORS: Option<&str> = Some(capability::SCREEN_LIST_MONITORS);

/// What `screen.grab` and `image.load` answer.
pub const PICTURE: Type = Type::Record(&[
    ("image", Type::Int),
    ("x", Type::Int),
    ("y", Type::Int),
    ("width", Type::Int),
    ("height", Type::Int),
]);

const MONITOR: Type = Type::Record(&[
    ("id", Type::Int),
    ("name", Type::Text),
    ("primary", Type::Bool),
    ("bounds", Type::Rect),
    ("scale", Type::Float),
]);

const COLOR: Param = Param::required("color", Type::Color, "what to look for");
const REGION: Param = Param::optional(
    "region",
    Type::Rect,
    Preset::Absent,
    "where to look; the whole desktop when absent",
)
.unit("px");
const TOLERANCE: Param = Param::optional(
    "tolerance",
    Type::Int,
    Preset::Int(10),
    "the largest distance of two colours in red, green and blue, 0 to 442",
);
const FOUND: Type = Type::Tuple(&[Type::Optional(&Type::Point), Type::Bool]);

pub const MODULE: Module = Module {
    name: "screen",
    doc: "Monitors, pixels and pictures of the desktop, in physical pixels.",
    functions: &[
        Function {
            module: "screen",
            name: "getScreenWidth",
            params: &[],
            reply: Type::Int,
            capability: MONITORS,
            doc: "The primary monitor's width in pixels.",
            example: Example("$let width = screen.getScreenWidth()"),
            handler: |context, _| {
                let monitor = context.desktop()?.primary_monitor()?;
                Ok(Value::Int(monitor.bounds.width.into()))
            },
        },
        Function {
            module: "screen",
            name: "getScreenHeight",
            params: &[],
            reply: Type::Int,
            capability: MONITORS,
            doc: "The primary monitor's height in pixels.",
            example: Example("$let height = screen.getScreenHeight()"),
            handler: |context, _| {
                let monitor = context.desktop()?.primary_monitor()?;
                Ok(Value::Int(monitor.bounds.height.into()))
            },
        },
        Function {
            module: "screen",
            name: "monitors",
            params: &[],
            reply: Type::ListOf(&MONITOR),
            capability: MONITORS,
            doc: "The monitors in the platform's order, with their place on the desktop; a scale of 1.0 is 96 dots per inch.",
            example: Example("$let all = screen.monitors()"),
            handler: monitors,
        },
        Function {
            module: "screen",
            name: "capture",
            params: &[],
            reply: Type::Bool,
            capability: CAPTURE,
            doc: "Tests whether the desktop can be grabbed; false where there is no display.",
            example: Example("$let works = screen.capture()"),
            handler: |context, _| probe(context, None),
        },
        Function {
            module: "screen",
            name: "captureRegion",
            params: &[Param::required("region", Type::Rect, "what to grab").unit("px")],
            reply: Type::Bool,
            capability: CAPTURE,
            doc: "Tests whether a region can be grabbed; false where there is no display or the region lies outside of it.",
            example: Example(
                "$let works = screen.captureRegion(${x$: 0, y$: 0, width$: 10, height$: 10})",
            ),
            handler: |context, args| probe(context, args.rect(0)?),
        },
        Function {
            module: "screen",
            name: "getPixel",
            params: &[
                Param::required("x", Type::Int, "from the left edge of the desktop").unit("px"),
                Param::required("y", Type::Int, "from the top edge of the desktop").unit("px"),
            ],
            reply: Type::Color,
            capability: CAPTURE,
            doc: "The colour at a point; a point outside of the desktop is an error.",
            example: Example("$let color = screen.getPixel(10, 20)"),
            handler: |context, args| Ok(color(context.desktop()?.pixel(args.xy(0)?)?)),
        },
        Function {
            module: "screen",
            name: "findColor",
            params: &[COLOR, REGION, TOLERANCE],
            reply: FOUND,
            capability: Some(capability::VISION_COLOR),
            doc: "The first pixel of a colour, row by row from the top, and whether there was one. Coordinates are those of the desktop.",
            example: Example(
                "$let at, found = screen.findColor(0xff0000, ${x$: 0, y$: 0, width$: 100, height$: 100}, 10)",
            ),
            handler: search::find_color,
        },
        Function {
            module: "screen",
            name: "findColors",
            params: &[
                COLOR,
                REGION,
                TOLERANCE,
                Param::optional(
                    "maxCount",
                    Type::Int,
                    Preset::Int(0),
                    "how many to look for; 0 looks for all and fails when they are over 10000",
                ),
            ],
            reply: Type::ListOf(&Type::Point),
            capability: Some(capability::VISION_COLOR),
            doc: "All pixels of a colour, row by row from the top.",
            example: Example(
                "$let all = screen.findColors(\"#ff0000\", ${x$: 0, y$: 0, width$: 50, height$: 50}, 10, 5)",
            ),
            handler: search::find_colors,
        },
        Function {
            module: "screen",
            name: "findImage",
            params: &[
                Param::required("path", TEXT, "a PNG or JPEG file in the script's folder"),
                REGION,
                Param::optional(
                    "threshold",
                    Type::Float,
                    Preset::Float(vision::SCORE_DEFAULT),
                    "the lowest score that counts, 0 to 1",
                ),
            ],
            reply: FOUND,
            capability: Some(capability::VISION_IMAGE),
            doc: "The top left corner of the place that looks most like a picture, and whether there was one. The score is the zero-mean normalised cross-correlation of the colours; a picture larger than the region is not found.",
            example: Example(
                "$let corner = screen.grab(${x$: 0, y$: 0, width$: 8, height$: 8})\nimage.save(corner, \"corner.png\")\n$let at, found = screen.findImage(\"corner.png\", ${x$: 0, y$: 0, width$: 64, height$: 64})",
            ),
            handler: search::find_image,
        },
        Function {
            module: "screen",
            name: "grab",
            params: &[
                Param::optional(
                    "region",
                    Type::Rect,
                    Preset::Absent,
                    "what to grab; the whole desktop when absent",
                )
                .unit("px"),
                Param::optional(
                    "cursor",
                    Type::Bool,
                    Preset::Bool(false),
                    "whether the pointer is drawn",
                ),
            ],
            reply: PICTURE,
            capability: CAPTURE,
            doc: "Grabs a picture and keeps it until `image.release` or the end of the run; it counts against the memory limit.",
            example: Example(
                "$let picture = screen.grab(${x$: 0, y$: 0, width$: 64, height$: 64})\nimage.release(picture)",
            ),
            handler: grab,
        },
        Function {
            module: "screen",
            name: "screenshot",
            params: &[
                Param::optional(
                    "name",
                    TEXT,
                    Preset::Text("screenshot.png"),
                    "the artifact's name; `.jpg` makes it a JPEG",
                ),
                Param::optional(
                    "region",
                    Type::Rect,
                    Preset::Absent,
                    "what to grab; the primary monitor when absent",
                )
                .unit("px"),
                Param::optional(
                    "cursor",
                    Type::Bool,
                    Preset::Bool(false),
                    "whether the pointer is drawn",
                ),
                Param::optional(
                    "profile",
                    TEXT,
                    Preset::Absent,
                    "`native-png`, `native-jpeg`, `1080p-jpeg` or `dashboard-jpeg`; told from the name when absent",
                ),
                Param::optional(
                    "window",
                    Type::Window,
                    Preset::Absent,
                    "grabs this window instead of the desktop",
                ),
            ],
            reply: Type::Record(&[
                ("name", Type::Text),
                ("width", Type::Int),
                ("height", Type::Int),
                ("size", Type::Int),
                ("sha256", Type::Text),
            ]),
            capability: CAPTURE,
            doc: "Grabs the primary monitor, a region or a window and stores the picture as an artifact of the run.",
            example: Example("$let shot = screen.screenshot(\"desk.png\")"),
            handler: screenshot,
        },
    ],
};

fn monitors(context: &mut Context, _: &Args) -> Result<Value, ScriptFault> {
    let all = context.desktop()?.monitors()?;
    let one = |monitor: msg::Monitor| {
        record([
            ("id", Value::Int(monitor.id.into())),
            ("name", Value::Text(monitor.name)),
            ("primary", Value::Bool(monitor.is_primary)),
            ("bounds", rect(monitor.bounds)),
            ("scale", Value::Float(monitor.scale)),
        ])
    };
    Ok(Value::List(all.into_iter().map(one).collect()))
}

fn probe(context: &mut Context, region: Option<crate::base::Rect>) -> Result<Value, ScriptFault> {
    let grabbed = context
        .host()
        .desktop()
        .and_then(|desktop| desktop.frame(region, Cursor::Hidden));
    match grabbed {
        Ok(_) => Ok(Value::Bool(true)),
        Err(fault)
            if matches!(
                fault.code,
                Code::DisplayUnavailable | Code::CaptureRegionInvalid | Code::Unsupported
            ) =>
        {
            Ok(Value::Bool(false))
        }
        Err(fault) => Err(fault.into()),
    }
}

fn cursor(drawn: bool) -> Cursor {
    if drawn { Cursor::Drawn } else { Cursor::Hidden }
}

fn grab(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let frame = context
        .desktop()?
        .frame(args.rect(0)?, cursor(args.bool(1)?))?;
    let region = frame.region;
    picture(context.keep_image(frame)?, region)
}

/// A picture's handle with its place and size.
pub fn picture(handle: u64, region: crate::base::Rect) -> Result<Value, ScriptFault> {
    Ok(record([
        ("image", int(handle)?),
        ("x", Value::Int(region.x.into())),
        ("y", Value::Int(region.y.into())),
        ("width", Value::Int(region.width.into())),
        ("height", Value::Int(region.height.into())),
    ]))
}

fn screenshot(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let name = args.text(0)?;
    let is_jpeg = [".jpg", ".jpeg"]
        .iter()
        .any(|ending| name.to_ascii_lowercase().ends_with(ending));
    let default_profile = if is_jpeg { "native-jpeg" } else { "native-png" };
    let params = msg::CaptureParams {
        display_id: None,
        window_id: args.has(4).then(|| args.handle(4)).transpose()?,
        region: args.rect(1)?,
        profile: args.opt_text(3)?.map(str::to_owned),
        include_cursor: Some(args.bool(2)?),
    };
    let (capture, bytes) = context.desktop()?.screenshot(&params, default_profile)?;
    let stored = context
        .host()
        .store_artifact(name, &capture.content_type, &bytes)?;
    Ok(record([
        ("name", Value::Text(stored.name)),
        ("width", Value::Int(capture.width.into())),
        ("height", Value::Int(capture.height.into())),
        ("size", int(stored.size)?),
        ("sha256", Value::Text(stored.sha256)),
    ]))
}
