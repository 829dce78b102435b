//! One JPEG from several cores: strips of the picture are encoded apart and joined by restart
//! markers (ITU-T T.81, B.2.1), which reset the only state that crosses block rows.
//!
//! ```text
//!  strip 0:  SOI … SOF0(height of strip) … SOS │ entropy-coded 0 │ EOI
//!  strip 1:  SOI … SOF0(height of strip) … SOS │ entropy-coded 1 │ EOI
//!  joined:   SOI … SOF0(whole height) … DRI(blocks of a strip) SOS │ 0 │ RST0 │ 1 │ RST1 │ … EOI
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::encode::Chroma;
use crate::base::{Size, limits};
use crate::platform::PixelFormat;
use crate::wire::{Code, Fault};

/// Strips for each thread, so that one with much text does not keep the others waiting.
const STRIPS_PER_THREAD: usize = 4;
/// Smaller pictures are not worth a thread.
const PIXELS_PER_THREAD_MIN: u64 = 128 * 1024;
/// A restart interval has 16 bits.
const INTERVAL_MAX: usize = u16::MAX as usize;

const SOF0: u8 = 0xc0;
const RST0: u8 = 0xd0;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const DRI: u8 = 0xdd;

/// How to encode.
#[derive(Clone, Copy)]
pub struct Settings {
    pub quality: u8,
    pub chroma: Chroma,
    pub order: PixelFormat,
}

fn failed(error: &dyn std::fmt::Display) -> Fault {
    Fault::new(Code::EncodeFailed, format!("encode a JPEG: {error}"))
}

/// Encodes pixels without gaps between their rows.
pub fn encode(pixels: &[u8], size: Size, settings: Settings) -> Result<Vec<u8>, Fault> {
    let worth = (size.area() / PIXELS_PER_THREAD_MIN) as usize;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(limits::ENCODE_THREADS_MAX).min(worth).max(1);
    if threads == 1 {
        return encode_strip(pixels, size, settings);
    }
    encode_on(threads, pixels, size, settings)
}

fn encode_on(
    threads: usize,
    pixels: &[u8],
    size: Size,
    settings: Settings,
) -> Result<Vec<u8>, Fault> {
    let strips = Strips::of(size, settings.chroma, threads * STRIPS_PER_THREAD);
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![None; strips.count]);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= strips.count {
                return;
            }
            let encoded = strips
                .part(pixels, index)
                .and_then(|(part, size)| encode_strip(part, size, settings));
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done[index] = Some(encoded);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    // INVARIANT: every index below the count was taken by exactly one of the threads.
    let encoded = done.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
    join(&encoded, size, strips.interval)
}

/// How a picture is cut.
struct Strips {
    size: Size,
    /// Rows of pixels in each strip but the last.
    rows: usize,
    count: usize,
    /// Units (blocks, or groups of them) in each strip but the last.
    interval: usize,
}

impl Strips {
    fn of(size: Size, chroma: Chroma, wanted: usize) -> Self {
        let unit = match chroma {
            Chroma::Full => 8,
            Chroma::Quarter => 16,
        };
        let across = (size.width as usize).div_ceil(unit).max(1);
        let down = (size.height as usize).div_ceil(unit);
        let units = down.div_ceil(wanted).min(INTERVAL_MAX / across).max(1);
        Self {
            size,
            rows: units * unit,
            count: down.div_ceil(units),
            interval: units * across,
        }
    }

    fn part<'a>(&self, pixels: &'a [u8], index: usize) -> Result<(&'a [u8], Size), Fault> {
        let row = self.size.width as usize * 4;
        let first = index * self.rows;
        let last = (first + self.rows).min(self.size.height as usize);
        let part = pixels.get(first * row..last * row);
        let part = part.ok_or_else(|| failed(&"the frame is shorter than its size"))?;
        let size = Size {
            width: self.size.width,
            height: (last - first) as u32,
        };
        Ok((part, size))
    }
}

fn encode_strip(pixels: &[u8], size: Size, settings: Settings) -> Result<Vec<u8>, Fault> {
    let side = |n: u32| u16::try_from(n).map_err(|error| failed(&error));
    let (width, height) = (side(size.width)?, side(size.height)?);
    // Most screens need less; growing is cheap beside encoding.
    let mut bytes = Vec::with_capacity(pixels.len() / 16);
    let mut encoder = Encoder::new(&mut bytes, settings.quality);
    encoder.set_sampling_factor(match settings.chroma {
        Chroma::Full => SamplingFactor::F_1_1,
        Chroma::Quarter => SamplingFactor::F_2_2,
    });
    let color = match settings.order {
        PixelFormat::Bgrx => ColorType::Bgra,
        PixelFormat::Rgba => ColorType::Rgba,
    };
    encoder
        .encode(pixels, width, height, color)
        .map_err(|error| failed(&error))?;
    Ok(bytes)
}

/// Where the parts of an encoded strip begin.
struct Layout {
    /// The height within SOF0.
    height: usize,
    /// The SOS marker.
    scan: usize,
    /// The entropy-coded bytes, which go up to EOI.
    entropy: usize,
}

/// Walks the segments that stand before the scan; `None` when they are not as the encoder writes
/// them.
fn layout(strip: &[u8]) -> Option<Layout> {
    let mut at = 2;
    let mut height = None;
    loop {
        let [0xff, marker, high, low] = *strip.get(at..at + 4)? else {
            return None;
        };
        let after = at + 2 + usize::from(u16::from_be_bytes([high, low]));
        match marker {
            SOF0 => height = Some(at + 5),
            SOS => {
                return Some(Layout {
                    height: height?,
                    scan: at,
                    entropy: after,
                });
            }
            _ => {}
        }
        at = after;
    }
}

fn join(strips: &[Vec<u8>], size: Size, interval: usize) -> Result<Vec<u8>, Fault> {
    let unreadable = || failed(&"a strip is not laid out as expected");
    let first = strips.first().ok_or_else(unreadable)?;
    let head = layout(first).ok_or_else(unreadable)?;
    let height = u16::try_from(size.height).map_err(|error| failed(&error))?;
    let interval = u16::try_from(interval).map_err(|error| failed(&error))?;
    let mut joined = Vec::with_capacity(strips.iter().map(Vec::len).sum());
    joined.extend_from_slice(&first[..head.scan]);
    joined[head.height..head.height + 2].copy_from_slice(&height.to_be_bytes());
    joined.extend_from_slice(&[0xff, DRI, 0, 4]);
    joined.extend_from_slice(&interval.to_be_bytes());
    joined.extend_from_slice(&first[head.scan..head.entropy]);
    for (index, strip) in strips.iter().enumerate() {
        if index > 0 {
            joined.extend_from_slice(&[0xff, RST0 + ((index - 1) % 8) as u8]);
        }
        let entropy = layout(strip).ok_or_else(unreadable)?.entropy;
        let end = strip.len().saturating_sub(2);
        joined.extend_from_slice(strip.get(entropy..end).ok_or_else(unreadable)?);
    }
    joined.extend_from_slice(&[0xff, EOI]);
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(size: Size) -> Vec<u8> {
        let pixels = (0..size.area() as usize).flat_map(|i| {
            let (x, y) = (i % size.width as usize, i / size.width as usize);
            [(x * 3) as u8, (y * 5) as u8, (x * y / 7) as u8, 0]
        });
        pixels.collect()
    }

    #[test]
    fn joined_strips_decode_to_the_same_picture() {
        for (width, height) in [(64, 64), (61, 131), (17, 300), (200, 9), (8, 8)] {
            let size = Size { width, height };
            let pixels = picture(size);
            for chroma in [Chroma::Full, Chroma::Quarter] {
                let settings = Settings {
                    quality: 90,
                    chroma,
                    order: PixelFormat::Bgrx,
                };
                let whole = encode_strip(&pixels, size, settings).unwrap();
                let joined = encode_on(3, &pixels, size, settings).unwrap();
                let whole = image::load_from_memory(&whole).unwrap().to_rgb8();
                let joined = image::load_from_memory(&joined).unwrap().to_rgb8();
                assert!(whole == joined, "{width}x{height} {chroma:?}");
            }
        }
    }

    #[test]
    fn strips_stay_within_the_restart_interval() {
        let size = Size {
            width: 60_000,
            height: 4_000,
        };
        let strips = Strips::of(size, Chroma::Full, 2);
        assert!(strips.interval <= INTERVAL_MAX);
        assert!(strips.count * strips.rows >= size.height as usize);
    }

    #[test]
    fn impossible_pictures_are_errors() {
        let settings = Settings {
            quality: 90,
            chroma: Chroma::Full,
            order: PixelFormat::Rgba,
        };
        let size = Size {
            width: 70_000,
            height: 1,
        };
        let fault = encode(&vec![0; 280_000], size, settings).unwrap_err();
        assert_eq!(fault.code, Code::EncodeFailed);
        let size = Size {
            width: 640,
            height: 640,
        };
        assert!(encode(&[0; 64], size, settings).is_err());
    }
}
