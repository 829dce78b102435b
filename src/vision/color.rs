//! Search for a colour.

use super::Pixels;
use crate::base::{Color, Point};

/// The first pixel, row by row, within `tolerance` of a colour (Euclidean distance in RGB).
pub fn find_color(pixels: &Pixels<'_>, color: Color, tolerance: u16) -> Option<Point> {
    matches(pixels, color, tolerance).next()
}

/// All pixels within `tolerance` of a colour, row by row, and no more than `limit` of them.
pub fn find_colors(pixels: &Pixels<'_>, color: Color, tolerance: u16, limit: usize) -> Vec<Point> {
    matches(pixels, color, tolerance).take(limit).collect()
}

fn matches<'a>(
    pixels: &Pixels<'a>,
    color: Color,
    tolerance: u16,
) -> impl Iterator<Item = Point> + use<'a> {
    let pixels = *pixels;
    (0..pixels.height()).flat_map(move |y| {
        pixels
            .colors(y)
            .enumerate()
            .filter(move |(_, found)| found.matches(color, tolerance))
            .map(move |(x, _)| Point {
                x: x as i32,
                y: y as i32,
            })
    })
}

#[cfg(test)]
mod tests {
    use super::super::Order;
    use super::*;

    #[test]
    fn first_match_goes_row_by_row_and_the_limit_holds() {
        let mut bytes = [0u8; 4 * 3 * 2];
        bytes[8..11].copy_from_slice(&[0, 8, 249]);
        bytes[12..15].copy_from_slice(&[0, 0, 255]);
        let pixels = Pixels::new(3, 2, 12, &bytes, Order::Bgrx).unwrap();
        let red = Color::from_rgb(0xff0000).unwrap();
        let (near, exact) = (Point { x: 2, y: 0 }, Point { x: 0, y: 1 });
        assert_eq!(find_color(&pixels, red, 10), Some(near));
        assert_eq!(find_color(&pixels, red, 9), Some(exact));
        assert_eq!(find_colors(&pixels, red, 10, 99), [near, exact]);
        assert_eq!(find_colors(&pixels, red, 10, 1), [near]);
        assert_eq!(find_colors(&pixels, red, 442, 99).len(), 6);
        let swapped = Pixels::new(3, 2, 12, &bytes, Order::Rgba).unwrap();
        let blue = Color::from_rgb(0x0000ff).unwrap();
        assert_eq!(find_color(&swapped, blue, 0), Some(exact));
    }
}
