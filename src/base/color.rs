//! Colour values.

use serde::{Deserialize, Serialize};

/// 8-bit sRGB with straight alpha.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct Color {
    pub r: u8,
    pub g: u8,
    pub b: u8,
    #[serde(default = "opaque")]
    pub a: u8,
}

fn opaque() -> u8 {
    255
}

impl Color {
    /// From `0xRRGGBB`, opaque; `None` past 24 bits.
    pub fn from_rgb(value: u32) -> Option<Self> {
        let [high, r, g, b] = value.to_be_bytes();
        (high == 0).then_some(Self { r, g, b, a: 255 })
    }

    /// Squared Euclidean distance in RGB; alpha is ignored.
    pub fn distance_squared(self, other: Self) -> u32 {
        let d = |a: u8, b: u8| u32::from(a.abs_diff(b)).pow(2);
        d(self.r, other.r) + d(self.g, other.g) + d(self.b, other.b)
    }

    /// Whether the distance is at most `tolerance` (squared distances are compared).
    pub fn matches(self, other: Self, tolerance: u16) -> bool {
        self.distance_squared(other) <= u32::from(tolerance).pow(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerance_compares_squared_distance() {
        let red = Color::from_rgb(0xff0000).unwrap();
        let near = Color {
            r: 249,
            g: 8,
            b: 0,
            a: 255,
        };
        assert_eq!(red.distance_squared(near), 100);
        assert!(red.matches(near, 10));
        assert!(!red.matches(near, 9));
        assert_eq!(Color::from_rgb(0x0100_0000), None);
    }
}
