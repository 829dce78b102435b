//! Encoding profiles: how a frame becomes a file.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use super::jpeg;
use crate::base::Size;
use crate::platform::{Frame, PixelFormat};
use crate::wire::{Code, Fault};

const FULL_HD: Size = Size {
    width: 1920,
    height: 1080,
};
/// 8,294,400 pixels.
const ULTRA_HD: Size = Size {
    width: 3840,
    height: 2160,
};

/// A named way to encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    pub format: Format,
    /// The image is shrunk to fit and never enlarged.
    pub size_max: Option<Size>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Jpeg { quality: u8, chroma: Chroma },
    Png,
}

/// How many colour samples a JPEG keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chroma {
    /// One for each pixel.
    Full,
    /// One for each 2×2 pixels.
    Quarter,
}

pub const PROFILES: &[Profile] = &[
    Profile {
        name: "native-jpeg",
        format: Format::Jpeg {
            quality: 90,
            chroma: Chroma::Full,
        },
        size_max: None,
    },
    Profile {
        name: "1080p-jpeg",
        format: Format::Jpeg {
            quality: 90,
            chroma: Chroma::Full,
        },
        size_max: Some(FULL_HD),
    },
    Profile {
        name: "native-png",
        format: Format::Png,
        size_max: None,
    },
    Profile {
        name: "dashboard-jpeg",
        format: Format::Jpeg {
            quality: 82,
            chroma: Chroma::Quarter,
        },
        size_max: Some(ULTRA_HD),
    },
];

impl Profile {
    /// The profile of that name; `capture_profile_unknown` with the known names otherwise.
    pub fn named(name: &str) -> Result<Self, Fault> {
        let found = PROFILES.iter().find(|profile| profile.name == name);
        found.copied().ok_or_else(|| {
            let known: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
            Fault::new(
                Code::CaptureProfileUnknown,
                format!(
                    "no capture profile {name:?}; there are {}",
                    known.join(", ")
                ),
            )
        })
    }
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Jpeg { .. } => "jpeg",
            Self::Png => "png",
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Jpeg { .. } => "image/jpeg",
            Self::Png => "image/png",
        }
    }

    /// The usual ending of a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Jpeg { .. } => "jpg",
            Self::Png => "png",
        }
    }
}

impl Chroma {
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "444",
            Self::Quarter => "420",
        }
    }
}

/// An encoded frame.
pub struct Encoded {
    pub size: Size,
    pub bytes: Vec<u8>,
}

/// Encodes a frame as a profile says. The frame's bytes are read in place where its rows touch.
pub fn encode(frame: &Frame, profile: &Profile) -> Result<Encoded, Fault> {
    let packed = Packed::of(frame);
    let size = frame.size();
    let target = profile.size_max.map_or(size, |max| size.fit_within(max));
    if target == size {
        let bytes = encode_pixels(packed.bytes(), size, frame.format, profile.format)?;
        return Ok(Encoded { size, bytes });
    }
    let shrunk = shrink(packed.bytes(), size, target)?;
    let bytes = encode_pixels(shrunk.buffer(), target, frame.format, profile.format)?;
    Ok(Encoded {
        size: target,
        bytes,
    })
}

/// Pixels without gaps between the rows.
enum Packed<'a> {
    Borrowed(&'a [u8]),
    Copied(Vec<u8>),
}

impl<'a> Packed<'a> {
    fn of(frame: &'a Frame) -> Self {
        let row = frame.region.width as usize * 4;
        let len = row * frame.region.height as usize;
        if frame.stride == row
            && let Some(bytes) = frame.bytes().get(..len)
        {
            return Self::Borrowed(bytes);
        }
        let rows = (0..frame.region.height).filter_map(|y| frame.row(y));
        Self::Copied(rows.flatten().copied().collect())
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::new(Code::EncodeFailed, format!("{what}: {error}"))
}

fn shrink(pixels: &[u8], from: Size, to: Size) -> Result<Image<'static>, Fault> {
    let failed = |error: &dyn std::fmt::Display| failed("shrink the frame", error);
    let source = ImageRef::new(from.width, from.height, pixels, PixelType::U8x4)
        .map_err(|error| failed(&error))?;
    let mut target = Image::new(to.width, to.height, PixelType::U8x4);
    // The fourth byte is no alpha: multiplying by it would blacken the frame.
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .use_alpha(false);
    Resizer::new()
        .resize(&source, &mut target, &options)
        .map_err(|error| failed(&error))?;
    Ok(target)
}

fn encode_pixels(
    pixels: &[u8],
    size: Size,
    order: PixelFormat,
    format: Format,
) -> Result<Vec<u8>, Fault> {
    match format {
        Format::Jpeg { quality, chroma } => {
            let settings = jpeg::Settings {
                quality,
                chroma,
                order,
            };
            jpeg::encode(pixels, size, settings)
        }
        Format::Png => png(pixels, size, order),
    }
}

fn png(pixels: &[u8], size: Size, order: PixelFormat) -> Result<Vec<u8>, Fault> {
    let failed = |error: png::EncodingError| failed("encode a PNG", &error);
    let mut rgb = Vec::with_capacity(pixels.len() / 4 * 3);
    match order {
        PixelFormat::Bgrx => rgb.extend(pixels.chunks_exact(4).flat_map(|p| [p[2], p[1], p[0]])),
        PixelFormat::Rgba => rgb.extend(pixels.chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]])),
    }
    let mut bytes = Vec::with_capacity(rgb.len() / 4);
    let mut encoder = png::Encoder::new(&mut bytes, size.width, size.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fastest);
    // One filter for all rows: choosing by row costs a third more time for the same size.
    encoder.set_filter(png::Filter::Paeth);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&rgb).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::Rect;

    fn frame(size: Size, stride: usize) -> Frame {
        let mut pixels = vec![0; stride * size.height as usize];
        for (y, row) in pixels.chunks_exact_mut(stride).enumerate() {
            for (x, pixel) in row.chunks_exact_mut(4).enumerate() {
                pixel[..3].copy_from_slice(&[x as u8, y as u8, (x + y) as u8]);
            }
        }
        let region = Rect::new(0, 0, size.width, size.height);
        Frame::new(
            region,
            stride,
            PixelFormat::Bgrx,
            "virtual",
            false,
            Arc::new(pixels),
        )
        .unwrap()
    }

    #[test]
    fn png_is_lossless_whatever_the_stride() {
        let size = Size {
            width: 33,
            height: 17,
        };
        for stride in [33 * 4, 40 * 4] {
            let encoded = encode(&frame(size, stride), &Profile::named("native-png").unwrap());
            let image = image::load_from_memory(&encoded.unwrap().bytes).unwrap();
            let image = image.to_rgb8();
            assert_eq!(image.dimensions(), (33, 17));
            for (x, y, pixel) in image.enumerate_pixels() {
                assert_eq!(pixel.0, [(x + y) as u8, y as u8, x as u8]);
            }
        }
    }

    #[test]
    fn jpeg_shrinks_to_its_profile_and_never_enlarges() {
        let profile = Profile::named("1080p-jpeg").unwrap();
        for (given, expected) in [((2400, 600), (1920, 480)), ((40, 30), (40, 30))] {
            let size = Size {
                width: given.0,
                height: given.1,
            };
            let encoded = encode(&frame(size, size.width as usize * 4), &profile).unwrap();
            let image = image::load_from_memory(&encoded.bytes).unwrap();
            assert_eq!((image.width(), image.height()), expected);
            assert_eq!((encoded.size.width, encoded.size.height), expected);
        }
    }

    #[test]
    fn jpeg_keeps_colours_and_says_its_sampling() {
        let size = Size {
            width: 64,
            height: 64,
        };
        let red = [0u8, 0, 255, 0].repeat(64 * 64);
        let region = Rect::new(0, 0, 64, 64);
        let frame = Frame::new(
            region,
            256,
            PixelFormat::Bgrx,
            "virtual",
            false,
            Arc::new(red),
        );
        let frame = frame.unwrap();
        assert_eq!(frame.size(), size);
        for (name, factors) in [("native-jpeg", 0x11), ("dashboard-jpeg", 0x22)] {
            let bytes = encode(&frame, &Profile::named(name).unwrap())
                .unwrap()
                .bytes;
            // SOF0: length, precision, height, width, components, then the first one's factors.
            let sof = bytes.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
            assert_eq!(bytes[sof + 11], factors, "{name}");
            let pixel = image::load_from_memory(&bytes).unwrap().to_rgb8()[(32, 32)].0;
            assert!(
                pixel[0] > 245 && pixel[1] < 10 && pixel[2] < 10,
                "{pixel:?}"
            );
        }
    }

    #[test]
    fn unknown_profile_names_the_known_ones() {
        let fault = Profile::named("ultra").unwrap_err();
        assert_eq!(fault.code, Code::CaptureProfileUnknown);
        assert!(fault.message.contains("native-png"));
    }
}
