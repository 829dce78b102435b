//! A grabbed frame: borrowed pixels that return to their pool when the last reader drops them.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::base::{Color, EpochMillis, Point, Rect, Size};

/// The order of bytes of one pixel; four bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelFormat {
    /// Blue, green, red, unused.
    Bgrx,
    /// Red, green, blue, alpha.
    Rgba,
}

/// An immutable picture of a part of the desktop.
#[derive(Clone)]
pub struct Frame {
    /// Where the pixels come from, in desktop coordinates.
    pub region: Rect,
    /// Bytes from one row to the next, at least `4 × width`.
    pub stride: usize,
    pub format: PixelFormat,
    pub captured_at: EpochMillis,
    pub captured: Instant,
    pub backend: &'static str,
    pub cursor_included: bool,
    pixels: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

/// The pixels are fewer than size and stride ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame of {width}x{height} with stride {stride} needs {needed} bytes and has {given}")]
pub struct FrameTooShort {
    pub width: u32,
    pub height: u32,
    pub stride: usize,
    pub needed: usize,
    pub given: usize,
}

impl Frame {
    /// Wraps pixels after checking that they hold `region.height` rows of `stride` bytes.
    pub fn new(
        region: Rect,
        stride: usize,
        format: PixelFormat,
        backend: &'static str,
        cursor_included: bool,
        pixels: Arc<dyn AsRef<[u8]> + Send + Sync>,
    ) -> Result<Self, FrameTooShort> {
        let row = region.width as usize * 4;
        let needed = (region.height as usize)
            .saturating_sub(1)
            .saturating_mul(stride)
            + row;
        let given = (*pixels).as_ref().len();
        if region.is_empty() || stride < row || given < needed {
            return Err(FrameTooShort {
                width: region.width,
                height: region.height,
                stride,
                needed,
                given,
            });
        }
        Ok(Self {
            region,
            stride,
            format,
            captured_at: EpochMillis::now(),
            captured: Instant::now(),
            backend,
            cursor_included,
            pixels,
        })
    }

    pub fn size(&self) -> Size {
        self.region.size()
    }

    /// All bytes, rows `stride` apart.
    pub fn bytes(&self) -> &[u8] {
        (*self.pixels).as_ref()
    }

    /// One row's pixels, `4 × width` bytes; `None` below the frame.
    pub fn row(&self, y: u32) -> Option<&[u8]> {
        if y >= self.region.height {
            return None;
        }
        let start = y as usize * self.stride;
        self.bytes()
            .get(start..start + self.region.width as usize * 4)
    }

    /// The colour at a desktop point; `None` outside of the frame.
    pub fn pixel(&self, at: Point) -> Option<Color> {
        if !self.region.contains(at) {
            return None;
        }
        let x = (i64::from(at.x) - i64::from(self.region.x)) as usize;
        let y = (i64::from(at.y) - i64::from(self.region.y)) as u32;
        let pixel = self.row(y)?.get(x * 4..x * 4 + 4)?;
        Some(match self.format {
            PixelFormat::Bgrx => Color {
                r: pixel[2],
                g: pixel[1],
                b: pixel[0],
                a: 255,
            },
            PixelFormat::Rgba => Color {
                r: pixel[0],
                g: pixel[1],
                b: pixel[2],
                a: pixel[3],
            },
        })
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("region", &self.region)
            .field("format", &self.format)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pixels_are_refused_and_points_are_checked() {
        let region = Rect::new(-1, 10, 2, 2);
        let short: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![0u8; 15]);
        assert!(Frame::new(region, 8, PixelFormat::Bgrx, "virtual", false, short).is_err());
        let mut pixels = vec![0u8; 16];
        pixels[12..15].copy_from_slice(&[1, 2, 3]);
        let frame = Frame::new(
            region,
            8,
            PixelFormat::Bgrx,
            "virtual",
            false,
            Arc::new(pixels),
        )
        .unwrap();
        let last = frame.pixel(Point { x: 0, y: 11 });
        assert_eq!(
            last,
            Some(Color {
                r: 3,
                g: 2,
                b: 1,
                a: 255
            })
        );
        assert_eq!(frame.pixel(Point { x: 1, y: 11 }), None);
        assert_eq!(
            frame.pixel(Point {
                x: i32::MIN,
                y: i32::MAX
            }),
            None
        );
    }
}
