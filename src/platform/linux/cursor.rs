//! Draws the pointer's picture onto grabbed pixels.

use x11rb::connection::RequestConnection;
use x11rb::protocol::xfixes::{self, ConnectionExt as _, GetCursorImageReply};

use super::x11::{Session, Trouble};
use crate::base::Rect;
use crate::platform::PlatformError;

/// Fetches the pointer's picture; `Unsupported` without XFixes.
pub fn image(session: &Session) -> Result<GetCursorImageReply, Trouble> {
    let connection = &*session.connection;
    if connection
        .extension_information(xfixes::X11_EXTENSION_NAME)?
        .is_none()
    {
        let reason = "the X server has no XFixes extension to show the pointer".into();
        return Err(PlatformError::Unsupported(reason).into());
    }
    connection.xfixes_query_version(2, 0)?.reply()?;
    Ok(connection.xfixes_get_cursor_image()?.reply()?)
}

/// Blends the picture (premultiplied ARGB) over BGRX pixels of `region`, rows without gaps.
pub fn draw(cursor: &GetCursorImageReply, region: Rect, pixels: &mut [u8]) {
    let place = Rect::new(
        i32::from(cursor.x) - i32::from(cursor.xhot),
        i32::from(cursor.y) - i32::from(cursor.yhot),
        cursor.width.into(),
        cursor.height.into(),
    );
    let Some(common) = place.intersection(region) else {
        return;
    };
    let width = common.width as usize;
    for y in 0..common.height {
        let from = Offset::of(place, common, y).pixel();
        let to = Offset::of(region, common, y).pixel() * 4;
        let source = cursor.cursor_image.get(from..from + width);
        let target = pixels.get_mut(to..to + width * 4);
        if let (Some(source), Some(target)) = (source, target) {
            for (argb, pixel) in source.iter().zip(target.chunks_exact_mut(4)) {
                blend(*argb, pixel);
            }
        }
    }
}

/// Where a row of `part` begins within `whole`.
struct Offset {
    x: usize,
    y: usize,
    width: usize,
}

impl Offset {
    fn of(whole: Rect, part: Rect, row: u32) -> Self {
        // INVARIANT: `part` lies within `whole`.
        Self {
            x: (i64::from(part.x) - i64::from(whole.x)) as usize,
            y: (i64::from(part.y) - i64::from(whole.y)) as usize + row as usize,
            width: whole.width as usize,
        }
    }

    fn pixel(&self) -> usize {
        self.y * self.width + self.x
    }
}

fn blend(argb: u32, pixel: &mut [u8]) {
    let [alpha, red, green, blue] = argb.to_be_bytes();
    for (under, over) in pixel.iter_mut().zip([blue, green, red]) {
        let kept = (u16::from(*under) * u16::from(255 - alpha) + 127) / 255;
        *under = over.saturating_add(kept as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(x: i16, y: i16, image: Vec<u32>) -> GetCursorImageReply {
        GetCursorImageReply {
            sequence: 0,
            length: 0,
            x,
            y,
            width: 2,
            height: 2,
            xhot: 1,
            yhot: 1,
            cursor_serial: 0,
            cursor_image: image,
        }
    }

    #[test]
    fn pointer_is_blended_and_clipped_at_its_hot_spot() {
        let region = Rect::new(-2, 0, 2, 2);
        let mut pixels = [100u8; 16];
        let picture = vec![0xff11_2233, 0, 0x8040_4040, 0xff00_00ff];
        draw(&cursor(-1, 1, picture.clone()), region, &mut pixels);
        assert_eq!(pixels[..8], [0x33, 0x22, 0x11, 100, 100, 100, 100, 100]);
        assert_eq!(pixels[8..12], [114, 114, 114, 100]);
        assert_eq!(pixels[12..15], [255, 0, 0]);
        let mut corner = [100u8; 16];
        draw(&cursor(0, 2, picture), region, &mut corner);
        assert_eq!(corner[12..15], [0x33, 0x22, 0x11]);
        assert_eq!(corner[..12], [100; 12]);
    }

    #[test]
    fn a_picture_shorter_than_it_says_is_ignored() {
        let mut pixels = [7u8; 16];
        draw(&cursor(1, 1, vec![!0]), Rect::new(0, 0, 2, 2), &mut pixels);
        assert_eq!(pixels, [7u8; 16]);
    }
}
