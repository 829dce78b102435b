//! A grid's screen as a picture: 8 by 16 pixels a cell, drawn with a bitmap font that knows every
//! character of the basic plane. Sizes are in pixels, colours 8-bit RGB.

use super::grid::{Grid, Paint, Palette, Style, Underline};
use crate::wire::{Code, Fault};

const CELL_W: usize = 8;
const CELL_H: usize = 16;

type Rgb = [u8; 3];

pub(super) struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// Draws the visible screen with its cursor.
pub(super) fn draw(grid: &Grid) -> Picture {
    let size = grid.size();
    let (width, height) = (
        usize::from(size.cols) * CELL_W,
        usize::from(size.rows) * CELL_H,
    );
    let mut picture = Picture {
        width,
        height,
        pixels: vec![0; width * height * 3],
    };
    let palette = Palette::default();
    let cursor = grid.cursor();
    let mut text = String::new();
    for row in 0..size.rows {
        for (column, cell) in grid.row(row).cells().enumerate() {
            if cell.width() == 0 && column > 0 {
                continue;
            }
            let here = cursor.visible && cursor.row == row && usize::from(cursor.column) == column;
            let (ink, paper) = colors(&palette, cell.style(), here);
            text.clear();
            cell.push_to(&mut text);
            picture.cell(
                column * CELL_W,
                usize::from(row) * CELL_H,
                &text,
                usize::from(cell.width().max(1)),
                ink,
                paper,
                cell.style(),
            );
        }
    }
    picture
}

fn colors(palette: &Palette, style: Style, cursor: bool) -> (Rgb, Rgb) {
    let bright = |paint| match paint {
        Paint::Palette(index @ 0..8) if style.bold => Paint::Palette(index + 8),
        other => other,
    };
    let mut ink = color(palette, bright(style.fg), palette.foreground);
    let mut paper = color(palette, style.bg, palette.background);
    if style.inverse != cursor {
        std::mem::swap(&mut ink, &mut paper);
    }
    if style.dim {
        ink = std::array::from_fn(|at| ((u16::from(ink[at]) * 2 + u16::from(paper[at])) / 3) as u8);
    }
    if style.hidden {
        ink = paper;
    }
    (ink, paper)
}

fn color(palette: &Palette, paint: Paint, default: Rgb) -> Rgb {
    match paint {
        Paint::Default => default,
        Paint::Rgb(r, g, b) => [r, g, b],
        Paint::Palette(index @ 0..16) => palette.colors[usize::from(index)],
        Paint::Palette(index @ 16..232) => {
            let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let cube = index - 16;
            [level(cube / 36), level(cube / 6 % 6), level(cube % 6)]
        }
        Paint::Palette(index) => [8 + 10 * (index - 232); 3],
    }
}

impl Picture {
    #[allow(clippy::too_many_arguments)]
    fn cell(
        &mut self,
        left: usize,
        top: usize,
        text: &str,
        cells: usize,
        ink: Rgb,
        paper: Rgb,
        style: Style,
    ) {
        let width = cells * CELL_W;
        for y in 0..CELL_H {
            for x in 0..width {
                self.set(left + x, top + y, paper);
            }
        }
        for c in text.chars().filter(|c| !c.is_whitespace()) {
            // Outside of the basic plane a box stands for the character.
            let glyph = unifont::get_glyph(c).or_else(|| unifont::get_glyph('\u{fffd}'));
            let Some(glyph) = glyph else { continue };
            for y in 0..CELL_H {
                for x in 0..glyph.get_width().min(width) {
                    if glyph.get_pixel(x, y) {
                        self.set(left + x, top + y, ink);
                        if style.bold && x + 1 < width {
                            self.set(left + x + 1, top + y, ink);
                        }
                    }
                }
            }
        }
        let line: &[usize] = match (style.underline, style.strikeout) {
            (Underline::None, false) => &[],
            (Underline::None, true) => &[8],
            (Underline::Double, _) => &[13, 15],
            (_, true) => &[8, 14],
            (_, false) => &[14],
        };
        for y in line {
            for x in 0..width {
                self.set(left + x, top + y, ink);
            }
        }
    }

    fn set(&mut self, x: usize, y: usize, color: Rgb) {
        if x < self.width && y < self.height {
            let at = (y * self.width + x) * 3;
            self.pixels[at..at + 3].copy_from_slice(&color);
        }
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Result<Vec<u8>, Fault> {
        let failed = |error: png::EncodingError| Fault::new(Code::EncodeFailed, error.to_string());
        let mut out = Vec::new();
        // INVARIANT: a grid has at most a thousand rows and columns.
        let mut encoder = png::Encoder::new(&mut out, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fast);
        encoder
            .write_header()
            .and_then(|mut writer| writer.write_image_data(&self.pixels))
            .map_err(failed)?;
        Ok(out)
    }
}
