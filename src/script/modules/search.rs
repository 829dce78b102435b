//! Searching the screen for colours and pictures: the handlers of `screen.find…`.

use super::{image, point};
use crate::base::{Point, Rect};
use crate::desktop::pixels;
use crate::platform::{Cursor, Frame};
use crate::script::arguments::Args;
use crate::script::context::Context;
use crate::script::fault::ScriptFault;
use crate::script::folder;
use crate::script::value::Value;
use crate::vision;
use crate::wire::Code;

/// Points that one search answers with. More: an error that asks for `maxCount`.
pub const POINTS_MAX: usize = 10_000;

/// `(color, region?, tolerance)`: the first match and whether there was one.
pub fn find_color(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let frame = grab(context, args.rect(1)?)?;
    let at = vision::find_color(&pixels(&frame)?, args.color(0)?, tolerance(args, 2)?);
    Ok(found(&frame, at))
}

/// `(color, region?, tolerance, maxCount)`: all matches.
pub fn find_colors(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let frame = grab(context, args.rect(1)?)?;
    let wanted = match args.int_in(3, 0..=POINTS_MAX as i64)? {
        0 => POINTS_MAX + 1,
        count => count as usize,
    };
    let all = vision::find_colors(
        &pixels(&frame)?,
        args.color(0)?,
        tolerance(args, 2)?,
        wanted,
    );
    if all.len() > POINTS_MAX {
        return Err(ScriptFault::failed(
            Code::InvalidParams,
            format!("more than {POINTS_MAX} pixels match; give maxCount or a smaller region"),
        ));
    }
    let points = all.into_iter().map(|at| point(absolute(&frame, at)));
    Ok(Value::List(points.collect()))
}

/// `(path, region?, threshold)`: the best match's top left corner and whether there was one.
pub fn find_image(context: &mut Context, args: &Args) -> Result<Value, ScriptFault> {
    let threshold = args.float(2)?;
    if !(0.0..=1.0).contains(&threshold) {
        return Err(args.refuse(2, "number from 0 to 1", threshold));
    }
    let wanted = image::decode(folder::read(context.host(), args.text(0)?)?)?;
    let template = vision::Template::of(&pixels(&wanted)?);
    let frame = grab(context, args.rect(1)?)?;
    let best = vision::find_image(&pixels(&frame)?, &template, threshold);
    Ok(found(&frame, best.map(|best| best.at)))
}

fn grab(context: &Context, region: Option<Rect>) -> Result<Frame, ScriptFault> {
    Ok(context.desktop()?.frame(region, Cursor::Hidden)?)
}

/// 442 is the distance of black and white.
fn tolerance(args: &Args, at: usize) -> Result<u16, ScriptFault> {
    // INVARIANT: the range was just checked.
    Ok(args.int_in(at, 0..=442)? as u16)
}

fn absolute(frame: &Frame, at: Point) -> Point {
    Point {
        x: frame.region.x.saturating_add(at.x),
        y: frame.region.y.saturating_add(at.y),
    }
}

fn found(frame: &Frame, at: Option<Point>) -> Value {
    let first = at.map_or(Value::Nil, |at| point(absolute(frame, at)));
    Value::Tuple(vec![first, Value::Bool(at.is_some())])
}
