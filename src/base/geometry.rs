//! Points, sizes and rectangles in physical desktop pixels unless a name says otherwise.

use serde::{Deserialize, Serialize};

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Point {
    pub x: i32,
    pub y: i32,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Size {
    pub width: u32,
    pub height: u32,
}

impl Size {
    /// Number of pixels.
    pub fn area(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// The largest size of the same aspect that fits in `bound`; never enlarges, never below 1×1.
    pub fn fit_within(self, bound: Size) -> Size {
        if self.width <= bound.width && self.height <= bound.height {
            return self;
        }
        let scale = (f64::from(bound.width) / f64::from(self.width.max(1)))
            .min(f64::from(bound.height) / f64::from(self.height.max(1)));
        let scaled = |n: u32| ((f64::from(n) * scale).round() as u32).max(1);
        Size {
            width: scaled(self.width),
            height: scaled(self.height),
        }
    }
}

/// A half-open rectangle: `x ≤ px < x + width`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Rect {
    pub x: i32,
    pub y: i32,
    pub width: u32,
    pub height: u32,
}

impl Rect {
    pub const fn new(x: i32, y: i32, width: u32, height: u32) -> Self {
        Self {
            x,
            y,
            width,
            height,
        }
    }

    pub fn size(self) -> Size {
        Size {
            width: self.width,
            height: self.height,
        }
    }

    pub fn origin(self) -> Point {
        Point {
            x: self.x,
            y: self.y,
        }
    }

    pub fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// One past the right edge, in 64 bits so that hostile input cannot wrap.
    pub fn right(self) -> i64 {
        i64::from(self.x) + i64::from(self.width)
    }

    /// One past the bottom edge.
    pub fn bottom(self) -> i64 {
        i64::from(self.y) + i64::from(self.height)
    }

    pub fn contains(self, point: Point) -> bool {
        point.x >= self.x
            && point.y >= self.y
            && i64::from(point.x) < self.right()
            && i64::from(point.y) < self.bottom()
    }

    pub fn center(self) -> Point {
        Point {
            x: self.x.saturating_add((self.width / 2) as i32),
            y: self.y.saturating_add((self.height / 2) as i32),
        }
    }

    /// The common part; `None` when there is none.
    pub fn intersection(self, other: Rect) -> Option<Rect> {
        let x = self.x.max(other.x);
        let y = self.y.max(other.y);
        let width = self.right().min(other.right()) - i64::from(x);
        let height = self.bottom().min(other.bottom()) - i64::from(y);
        if width <= 0 || height <= 0 {
            return None;
        }
        // INVARIANT: both are positive and no larger than an existing u32 width or height.
        Some(Rect {
            x,
            y,
            width: width as u32,
            height: height as u32,
        })
    }

    /// Moved by `origin`, saturating.
    pub fn translated(self, origin: Point) -> Rect {
        Rect {
            x: self.x.saturating_add(origin.x),
            y: self.y.saturating_add(origin.y),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intersection_survives_extreme_values() {
        let huge = Rect::new(i32::MIN, i32::MIN, u32::MAX, u32::MAX);
        let small = Rect::new(5, 6, 7, 8);
        assert_eq!(huge.intersection(small), Some(small));
        assert_eq!(
            Rect::new(i32::MAX, 0, u32::MAX, 1).intersection(small),
            None
        );
    }

    #[test]
    fn fit_within_never_enlarges() {
        let hd = Size {
            width: 1920,
            height: 1080,
        };
        assert_eq!(
            Size {
                width: 100,
                height: 50
            }
            .fit_within(hd),
            Size {
                width: 100,
                height: 50
            }
        );
        assert_eq!(
            Size {
                width: 3840,
                height: 2160
            }
            .fit_within(hd),
            hd
        );
        assert_eq!(
            Size {
                width: 4000,
                height: 1
            }
            .fit_within(hd),
            Size {
                width: 1920,
                height: 1
            }
        );
    }
}
