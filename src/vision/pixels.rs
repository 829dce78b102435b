//! A borrowed view of pixels.

use super::VisionError;
use crate::base::{Color, Rect};

/// The order of a pixel's four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Blue, green, red, unused.
    Bgrx,
    /// Red, green, blue, alpha; the alpha is not looked at.
    Rgba,
}

impl Order {
    /// Where blue, green and red stand in a pixel.
    pub(super) fn offsets(self) -> [usize; 3] {
        match self {
            Self::Bgrx => [0, 1, 2],
            Self::Rgba => [2, 1, 0],
        }
    }
}

/// Pixels in rows, `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'a> {
    width: u32,
    height: u32,
    stride: usize,
    bytes: &'a [u8],
    order: Order,
}

impl<'a> Pixels<'a> {
    /// Checks that the bytes hold `height` rows; no pixels at all are fine, and match nothing.
    pub fn new(
        width: u32,
        height: u32,
        stride: usize,
        bytes: &'a [u8],
        order: Order,
    ) -> Result<Self, VisionError> {
        let row = width as usize * 4;
        let before = (height as usize).saturating_sub(1).saturating_mul(stride);
        let needed = before.saturating_add(if height == 0 { 0 } else { row });
        if stride < row || bytes.len() < needed {
            return Err(VisionError::TooShort {
                width,
                height,
                stride,
                needed,
                given: bytes.len(),
            });
        }
        Ok(Self {
            width,
            height,
            stride,
            bytes,
            order,
        })
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    pub fn height(&self) -> u32 {
        self.height
    }

    pub fn order(&self) -> Order {
        self.order
    }

    /// The part within `rect`, clipped; `None` when nothing is left.
    pub fn crop(&self, rect: Rect) -> Option<Self> {
        let part = Rect::new(0, 0, self.width, self.height).intersection(rect)?;
        // INVARIANT: the part lies within these pixels, so its corner is not negative.
        let start = part.y as usize * self.stride + part.x as usize * 4;
        Some(Self {
            width: part.width,
            height: part.height,
            bytes: self.bytes.get(start..)?,
            ..*self
        })
    }

    /// A row's bytes, `4 × width` of them; empty below the last one.
    pub fn row(&self, y: u32) -> &'a [u8] {
        let start = y as usize * self.stride;
        let row = self.bytes.get(start..start + self.width as usize * 4);
        row.filter(|_| y < self.height).unwrap_or_default()
    }

    /// The colours of a row from left to right.
    pub fn colors(&self, y: u32) -> impl Iterator<Item = Color> + use<'a> {
        let [b, g, r] = self.order.offsets();
        self.row(y).chunks_exact(4).map(move |pixel| Color {
            r: pixel[r],
            g: pixel[g],
            b: pixel[b],
            a: 255,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_bytes_are_refused_and_crops_are_clipped() {
        let bytes: Vec<u8> = (0..32).collect();
        assert!(Pixels::new(2, 4, 8, &bytes[..31], Order::Bgrx).is_err());
        assert!(Pixels::new(u32::MAX, u32::MAX, usize::MAX, &bytes, Order::Bgrx).is_err());
        let pixels = Pixels::new(2, 4, 8, &bytes, Order::Bgrx).unwrap();
        let part = pixels.crop(Rect::new(1, 2, 9, 9)).unwrap();
        assert_eq!((part.width(), part.height()), (1, 2));
        assert_eq!(part.row(1), &bytes[28..32]);
        assert_eq!(part.row(2), &[] as &[u8]);
        assert!(pixels.crop(Rect::new(2, 0, 1, 1)).is_none());
        assert!(Pixels::new(0, 0, 0, &[], Order::Rgba).is_ok());
    }
}
