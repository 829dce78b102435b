//! Search for a picture: zero-mean normalised cross-correlation over blue, green and red, as
//! OpenCV's `CCOEFF_NORMED` computes it, with its best match.
//!
//! For every position the sums that normalise the window slide along, so that windows without
//! structure cost nothing. The others are multiplied row by row, the template's strongest row first,
//! and given up as soon as even a perfect rest (Cauchy–Schwarz) would stay below what is wanted. The
//! bound is exact, so the answer is the one that a full search would give.

use super::{Order, Pixels, VisionError};
use crate::base::Point;

/// The score from which on a picture counts as found.
pub const SCORE_DEFAULT: f64 = 0.9;

/// Below this variance (squared levels a sample) a template has no structure to correlate.
const FLAT_TEMPLATE: f64 = 1.0;
/// Below this variance a window of the searched pixels has none.
const FLAT_WINDOW: f64 = 0.01;
/// The score of a flat template falls from 1 to 0 over this many levels of difference (root mean
/// square).
const FLAT_LEVELS: f64 = 25.5;
/// Deviations from the mean are kept with this many steps a level.
const STEPS: f64 = 64.0;
/// Products of so many bytes fit in 32 bits: 255 levels × 255 levels × 64 steps each.
const CHUNK: usize = 256;
/// A score this close to 1 cannot be beaten by another position.
const PERFECT: f64 = 1.0 - 1e-9;

/// Where a picture was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// Its top left corner.
    pub at: Point,
    /// 1 is the picture itself, up to brightness and contrast.
    pub score: f64,
}

/// A picture to search for, prepared for searching.
#[derive(Clone, Debug)]
pub struct Template {
    width: usize,
    height: usize,
    /// Blue, green and red of each pixel, then nothing; row-major.
    samples: Vec<u8>,
    means: [f64; 3],
    /// Sum of squared deviations from the means.
    energy: f64,
}

/// Rows of deviations for one order of bytes, the strongest first.
struct Plan {
    rows: Vec<PlannedRow>,
    /// What rounding to steps can take from a product, for each unit of the window's norm.
    rounding: f64,
}

struct PlannedRow {
    y: usize,
    /// In steps, in the searched pixels' order of bytes.
    deviations: Vec<i16>,
    /// Sum of deviations by channel, which the window's mean counts with.
    sums: [f64; 3],
    /// Root of the energy of all rows that come after.
    rest: f64,
}

impl Template {
    /// Reads a PNG or JPEG; an alpha channel is ignored.
    pub fn decode(bytes: &[u8]) -> Result<Self, VisionError> {
        let picture = image::load_from_memory(bytes)?.to_rgba8();
        let (width, height) = picture.dimensions();
        let pixels = Pixels::new(
            width,
            height,
            width as usize * 4,
            picture.as_raw(),
            Order::Rgba,
        )?;
        Ok(Self::of(&pixels))
    }

    /// Takes a copy of pixels.
    pub fn of(pixels: &Pixels<'_>) -> Self {
        let offsets = pixels.order().offsets();
        let rows = (0..pixels.height()).map(|y| pixels.row(y));
        let samples: Vec<u8> = rows
            .flat_map(|row| row.chunks_exact(4))
            .flat_map(|pixel| offsets.map(|at| pixel[at]).into_iter().chain([0]))
            .collect();
        let count = (samples.len() / 4).max(1) as f64;
        let mut sums = [0.0; 3];
        let mut squares = 0.0;
        for pixel in samples.chunks_exact(4) {
            for (sum, sample) in sums.iter_mut().zip(pixel) {
                *sum += f64::from(*sample);
                squares += f64::from(*sample).powi(2);
            }
        }
        let means = sums.map(|sum| sum / count);
        let energy = squares - means.iter().map(|mean| mean * mean * count).sum::<f64>();
        Self {
            width: pixels.width() as usize,
            height: pixels.height() as usize,
            samples,
            means,
            energy,
        }
    }

    fn is_flat(&self) -> bool {
        self.energy < FLAT_TEMPLATE * self.samples.len() as f64 * 0.75
    }

    fn plan(&self, order: Order) -> Plan {
        let offsets = order.offsets();
        let mut rows: Vec<(f64, PlannedRow)> = (0..self.height)
            .map(|y| {
                let row = &self.samples[y * self.width * 4..(y + 1) * self.width * 4];
                let mut deviations = vec![0i16; self.width * 4];
                let mut sums = [0.0; 3];
                let mut energy = 0.0;
                for (pixel, planned) in row.chunks_exact(4).zip(deviations.chunks_exact_mut(4)) {
                    for channel in 0..3 {
                        let exact = f64::from(pixel[channel]) - self.means[channel];
                        let kept = (exact * STEPS).round();
                        planned[offsets[channel]] = kept as i16;
                        sums[channel] += kept / STEPS;
                        energy += exact * exact;
                    }
                }
                let rest = 0.0;
                let row = PlannedRow {
                    y,
                    deviations,
                    sums,
                    rest,
                };
                (energy, row)
            })
            .collect();
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut left = 0.0;
        for (energy, row) in rows.iter_mut().rev() {
            row.rest = f64::max(left, 0.0).sqrt();
            left += *energy;
        }
        Plan {
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            // Half a step for each sample, by Cauchy–Schwarz.
            rounding: (self.samples.len() as f64).sqrt() / (2.0 * STEPS),
        }
    }
}

/// The best match of at least `threshold`, the first of equals row by row; `None` when the picture
/// is larger than the pixels or scores less everywhere. A picture of one colour matches by that
/// colour, since it has no structure to correlate.
pub fn find_image(pixels: &Pixels<'_>, template: &Template, threshold: f64) -> Option<Match> {
    let (width, height) = (template.width, template.height);
    let fits = width <= pixels.width() as usize && height <= pixels.height() as usize;
    if !fits || template.samples.is_empty() {
        return None;
    }
    let plan = template.plan(pixels.order());
    let mut sums = WindowSums::new(pixels, width, height);
    let mut best = None::<Match>;
    for y in 0..=pixels.height() as usize - height {
        sums.move_to_row(pixels, y);
        for x in 0..=pixels.width() as usize - width {
            let window = sums.at(x);
            let wanted = best.map_or(threshold, |best| best.score);
            let score = if template.is_flat() {
                Some(flat_score(template, &window))
            } else {
                correlate(pixels, template, &plan, &window, (x, y), wanted)
            };
            let Some(score) = score else { continue };
            let better = best.map_or(score >= threshold, |best| score > best.score);
            if better {
                let at = Point {
                    x: x as i32,
                    y: y as i32,
                };
                best = Some(Match { at, score });
                if score >= PERFECT {
                    return best;
                }
            }
        }
    }
    best
}

fn flat_score(template: &Template, window: &Window) -> f64 {
    let crossed: f64 = (0..3).map(|c| template.means[c] * window.sums[c]).sum();
    let own: f64 = template.means.iter().map(|mean| mean * mean).sum();
    let squares = window.squares - 2.0 * crossed + own * window.count;
    let difference = (squares.max(0.0) / (window.count * 3.0)).sqrt();
    (1.0 - difference / FLAT_LEVELS).max(0.0)
}

/// The score at a position; `None` when it is certainly below `wanted`.
fn correlate(
    pixels: &Pixels<'_>,
    template: &Template,
    plan: &Plan,
    window: &Window,
    (x, y): (usize, usize),
    wanted: f64,
) -> Option<f64> {
    let means = window.sums.map(|sum| sum / window.count);
    let own: f64 = means.iter().map(|mean| mean * mean).sum();
    let energy = window.squares - own * window.count;
    if energy < FLAT_WINDOW * window.count * 3.0 {
        return None;
    }
    let norm = energy.sqrt();
    let full = template.energy.sqrt();
    let least = wanted * full - plan.rounding;
    let mut product = 0.0;
    for row in &plan.rows {
        let searched = pixels.row((y + row.y) as u32);
        // INVARIANT: the caller keeps the window within the pixels.
        let searched = &searched[x * 4..(x + template.width) * 4];
        product += multiply(&row.deviations, searched) / STEPS;
        product -= (0..3).map(|c| means[c] * row.sums[c]).sum::<f64>();
        if product < norm * (least - row.rest) {
            return None;
        }
    }
    Some(exact_score(pixels, template, &means, (x, y), norm * full))
}

/// The score without rounding, for the few positions that come close.
fn exact_score(
    pixels: &Pixels<'_>,
    template: &Template,
    means: &[f64; 3],
    (x, y): (usize, usize),
    norms: f64,
) -> f64 {
    let offsets = pixels.order().offsets();
    let mut product = 0.0;
    for (dy, row) in template
        .samples
        .chunks_exact(template.width * 4)
        .enumerate()
    {
        let searched = &pixels.row((y + dy) as u32)[x * 4..];
        for (own, found) in row.chunks_exact(4).zip(searched.chunks_exact(4)) {
            for channel in 0..3 {
                let own = f64::from(own[channel]) - template.means[channel];
                product += own * (f64::from(found[offsets[channel]]) - means[channel]);
            }
        }
    }
    product / norms
}

/// The sum of products, in chunks that 32 bits hold so that the compiler can use vectors.
fn multiply(deviations: &[i16], samples: &[u8]) -> f64 {
    let chunks = deviations.chunks(CHUNK).zip(samples.chunks(CHUNK));
    let sums = chunks.map(|(deviations, samples)| {
        let products = deviations.iter().zip(samples);
        let sum: i32 = products
            .map(|(a, b)| i32::from(*a) * i32::from(i16::from(*b)))
            .sum();
        i64::from(sum)
    });
    sums.sum::<i64>() as f64
}

/// Sums over one window.
struct Window {
    count: f64,
    sums: [f64; 3],
    squares: f64,
}

/// Sums over all windows of one row of positions, kept up to date from row to row.
struct WindowSums {
    width: usize,
    height: usize,
    /// For each column of pixels, over the window's rows: blue, green, red and squares.
    columns: Vec<[u64; 4]>,
    /// The same, summed up to each column.
    prefix: Vec<[u64; 4]>,
    row: Option<usize>,
}

impl WindowSums {
    fn new(pixels: &Pixels<'_>, width: usize, height: usize) -> Self {
        let columns = vec![[0; 4]; pixels.width() as usize];
        Self {
            width,
            height,
            prefix: vec![[0; 4]; columns.len() + 1],
            columns,
            row: None,
        }
    }

    fn move_to_row(&mut self, pixels: &Pixels<'_>, y: usize) {
        match self.row {
            Some(before) if before + 1 == y => {
                self.count_row(pixels, before, u64::wrapping_sub);
                self.count_row(pixels, y + self.height - 1, u64::wrapping_add);
            }
            _ => {
                self.columns.fill([0; 4]);
                for row in y..y + self.height {
                    self.count_row(pixels, row, u64::wrapping_add);
                }
            }
        }
        self.row = Some(y);
        let mut sum = [0; 4];
        for (prefix, column) in self.prefix[1..].iter_mut().zip(&self.columns) {
            for (sum, part) in sum.iter_mut().zip(column) {
                *sum += part;
            }
            *prefix = sum;
        }
    }

    fn count_row(&mut self, pixels: &Pixels<'_>, y: usize, count: fn(u64, u64) -> u64) {
        for (column, color) in self.columns.iter_mut().zip(pixels.colors(y as u32)) {
            let samples = [color.b, color.g, color.r].map(u64::from);
            let squares = samples.iter().map(|sample| sample * sample).sum();
            let counted = [samples[0], samples[1], samples[2], squares];
            for (sum, part) in column.iter_mut().zip(counted) {
                *sum = count(*sum, part);
            }
        }
    }

    fn at(&self, x: usize) -> Window {
        let (before, until) = (self.prefix[x], self.prefix[x + self.width]);
        let part = |i: usize| (until[i] - before[i]) as f64;
        Window {
            count: (self.width * self.height) as f64,
            sums: [part(0), part(1), part(2)],
            squares: part(3),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::Rect;

    fn noise(width: usize, height: usize, seed: u32) -> Vec<u8> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as u8
        };
        (0..width * height * 4).map(|_| next()).collect()
    }

    fn view(bytes: &[u8], width: usize) -> Pixels<'_> {
        let height = bytes.len() / 4 / width;
        Pixels::new(width as u32, height as u32, width * 4, bytes, Order::Bgrx).unwrap()
    }

    /// The definition, without any short cut.
    fn plain_best(pixels: &Pixels<'_>, template: &Template) -> Option<Match> {
        let mut best = None::<Match>;
        for y in 0..=pixels.height() as usize - template.height {
            for x in 0..=pixels.width() as usize - template.width {
                let rect = Rect::new(
                    x as i32,
                    y as i32,
                    template.width as u32,
                    template.height as u32,
                );
                let window = Template::of(&pixels.crop(rect).unwrap());
                let mut product = 0.0;
                for (a, b) in template
                    .samples
                    .iter()
                    .zip(&window.samples)
                    .enumerate()
                    .map(|(i, (a, b))| match i % 4 {
                        3 => (0.0, 0.0),
                        c => (
                            f64::from(*a) - template.means[c],
                            f64::from(*b) - window.means[c],
                        ),
                    })
                {
                    product += a * b;
                }
                let score = product / (template.energy * window.energy).sqrt();
                if best.is_none_or(|best| score > best.score + 1e-12) {
                    let at = Point {
                        x: x as i32,
                        y: y as i32,
                    };
                    best = Some(Match { at, score });
                }
            }
        }
        best
    }

    #[test]
    fn a_part_of_the_picture_is_found_where_it_is() {
        let bytes = noise(60, 40, 7);
        let pixels = view(&bytes, 60);
        let part = pixels.crop(Rect::new(33, 21, 9, 7)).unwrap();
        let found = find_image(&pixels, &Template::of(&part), SCORE_DEFAULT).unwrap();
        assert_eq!(found.at, Point { x: 33, y: 21 });
        assert!(found.score > PERFECT);
        // Half the contrast, brighter, and in another order of bytes.
        let dim: Vec<u8> = bytes.iter().map(|sample| sample / 2 + 60).collect();
        let swapped: Vec<u8> = dim
            .chunks_exact(4)
            .flat_map(|p| [p[2], p[1], p[0], 255])
            .collect();
        let dim = Pixels::new(60, 40, 240, &swapped, Order::Rgba).unwrap();
        let found = find_image(&dim, &Template::of(&part), SCORE_DEFAULT).unwrap();
        assert_eq!(found.at, Point { x: 33, y: 21 });
    }

    #[test]
    fn what_is_not_there_or_too_large_is_not_found() {
        let (bytes, other) = (noise(40, 30, 1), noise(8, 8, 99));
        let pixels = view(&bytes, 40);
        let template = Template::of(&view(&other, 8));
        assert_eq!(find_image(&pixels, &template, SCORE_DEFAULT), None);
        let whole = Template::of(&pixels);
        let part = pixels.crop(Rect::new(0, 0, 39, 30)).unwrap();
        assert_eq!(find_image(&part, &whole, 0.0), None);
        let nothing = Template::of(&Pixels::new(0, 0, 0, &[], Order::Bgrx).unwrap());
        assert_eq!(find_image(&pixels, &nothing, 0.0), None);
    }

    #[test]
    fn a_flat_picture_matches_its_colour_alone() {
        let mut bytes = [200u8, 100, 50, 0].repeat(30 * 20);
        let gray = [90u8, 90, 90, 0].repeat(5 * 4);
        let template = Template::of(&view(&gray, 5));
        let pixels = view(&bytes, 30);
        assert_eq!(find_image(&pixels, &template, SCORE_DEFAULT), None);
        for y in 10..14 {
            for x in 12..17 {
                bytes[(y * 30 + x) * 4..][..3].copy_from_slice(&[91, 90, 89]);
            }
        }
        let found = find_image(&view(&bytes, 30), &template, SCORE_DEFAULT).unwrap();
        assert_eq!(found.at, Point { x: 12, y: 10 });
        assert!(found.score > 0.95 && found.score < 1.0);
    }

    #[test]
    fn a_structured_picture_is_not_found_on_flat_pixels() {
        let bytes = [200u8, 100, 50, 0].repeat(30 * 20);
        let other = noise(6, 6, 3);
        let template = Template::of(&view(&other, 6));
        assert_eq!(find_image(&view(&bytes, 30), &template, 0.0), None);
    }

    #[test]
    fn undecodable_pictures_are_errors() {
        assert!(Template::decode(b"not a picture").is_err());
        assert!(Template::decode(&[]).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn short_cuts_do_not_change_the_best_match(
            seed in any::<u32>(), blend in 0u8..=255, x in 0i32..20, y in 0i32..12,
        ) {
            let (width, height) = (26, 18);
            let mut bytes = noise(width, height, seed);
            let other = noise(6, 6, seed ^ 0x5555);
            // Paste the picture, more or less of it.
            for (row, line) in other.chunks_exact(24).enumerate() {
                let start = ((y as usize + row) * width + x as usize) * 4;
                for (under, over) in bytes[start..start + 24].iter_mut().zip(line) {
                    let mixed = u16::from(*under) * u16::from(255 - blend)
                        + u16::from(*over) * u16::from(blend);
                    *under = (mixed / 255) as u8;
                }
            }
            let (pixels, template) = (view(&bytes, width), Template::of(&view(&other, 6)));
            let plain = plain_best(&pixels, &template).unwrap();
            for threshold in [0.0, 0.5, 0.9] {
                let fast = find_image(&pixels, &template, threshold);
                if plain.score < threshold - 1e-9 {
                    prop_assert_eq!(fast, None);
                } else if plain.score > threshold + 1e-9 {
                    let fast = fast.unwrap();
                    prop_assert!((fast.score - plain.score).abs() < 1e-9);
                    prop_assert_eq!(fast.at, plain.at);
                }
            }
        }
    }
}
