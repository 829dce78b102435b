//! The clipboard of an X11 display: the CLIPBOARD selection, read and owned.
//!
//! X11 keeps no clipboard content; the owner hands it out on request (ICCCM section 2). Setting starts
//! one thread that owns the selection until another client takes it:
//!
//! ```text
//!   reader                         owner
//!     │ ConvertSelection(TARGETS)    │
//!     │─────────────────────────────▶│  property: the formats it can give
//!     │ ConvertSelection(format)     │
//!     │─────────────────────────────▶│  property: the content, or INCR and then part by part,
//!     │ delete property   ◀─parts──  │  each after the reader has deleted the one before
//! ```

use std::io::Cursor;
use std::sync::{Mutex, PoisonError};

use x11rb::protocol::xproto::{ConnectionExt as _, Timestamp};

use super::selection::{Client, Content, Offer, lost};
use super::selection_owner::{SelectionOwner, become_owner};
use crate::base::limits::{CLIPBOARD_LEN_MAX, FRAME_PIXELS_MAX};
use crate::platform::{Clipboard, PlatformError, Result, RgbaImage};

/// Prepares the clipboard of the display; nothing is opened yet.
pub fn open(display: &str) -> Result<Box<dyn Clipboard>> {
    Ok(Box::new(SelectionClipboard {
        display: display.to_owned(),
        owner: Mutex::new(None),
    }))
}

struct SelectionClipboard {
    display: String,
    /// The last owner that we started; it may have lost the selection since.
    owner: Mutex<Option<SelectionOwner>>,
}

const TEXT_FORMATS: [&str; 4] = [
    "UTF8_STRING",
    "text/plain;charset=utf-8",
    "text/plain",
    "STRING",
];
const IMAGE_FORMATS: [&str; 2] = ["image/png", "image/jpeg"];

impl SelectionClipboard {
    /// The content in the first of the formats that its owner gives.
    fn read(
        &self,
        formats: &[&'static str],
        what: &'static str,
    ) -> Result<(&'static str, Vec<u8>)> {
        let client = Client::connect(&self.display)?;
        let offered = client.formats()?;
        for format in formats {
            if !offered.contains(&client.atom(format)?) {
                continue;
            }
            if let Some(content) = client.convert(format)? {
                return Ok((format, content));
            }
        }
        Err(PlatformError::ClipboardEmpty(what))
    }

    fn own(&self, offers: Vec<Offer>) -> Result<()> {
        let fresh = become_owner(&self.display, Content(offers))?;
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        // The one before has lost the selection to the fresh one, which ends it.
        *owner = Some(fresh);
        Ok(())
    }
}

impl Clipboard for SelectionClipboard {
    fn text(&self) -> Result<String> {
        let (format, content) = self.read(&TEXT_FORMATS, "text")?;
        if format == "STRING" {
            // Latin-1 (ICCCM section 2.6.2).
            return Ok(content.into_iter().map(char::from).collect());
        }
        String::from_utf8(content)
            .map_err(|_| PlatformError::ClipboardFailed("its text is not UTF-8".into()))
    }

    fn set_text(&self, text: &str) -> Result<()> {
        if text.len() > CLIPBOARD_LEN_MAX {
            return Err(too_long());
        }
        let mut offers: Vec<Offer> = TEXT_FORMATS[..3]
            .iter()
            .map(|format| Offer::new(format, text.as_bytes().to_vec()))
            .collect();
        let latin: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
        offers.extend(latin.map(|latin| Offer::new("STRING", latin)));
        self.own(offers)
    }

    fn image(&self) -> Result<RgbaImage> {
        let (_, content) = self.read(&IMAGE_FORMATS, "image")?;
        let failed = |error: &dyn std::fmt::Display| {
            PlatformError::ClipboardFailed(format!("decode its image: {error}"))
        };
        let mut reader = image::ImageReader::new(Cursor::new(content))
            .with_guessed_format()
            .map_err(|error| failed(&error))?;
        let mut limits = image::Limits::default();
        limits.max_alloc = Some(FRAME_PIXELS_MAX * 4);
        reader.limits(limits);
        let decoded = reader.decode().map_err(|error| failed(&error))?;
        let rgba = decoded.into_rgba8();
        Ok(RgbaImage {
            width: rgba.width(),
            height: rgba.height(),
            pixels: rgba.into_raw(),
        })
    }

    fn set_image(&self, image: RgbaImage) -> Result<()> {
        let failed = |error: &dyn std::fmt::Display| {
            PlatformError::ClipboardFailed(format!("encode the image: {error}"))
        };
        let needed = u64::from(image.width) * u64::from(image.height) * 4;
        if needed == 0 || image.pixels.len() as u64 != needed {
            return Err(failed(&"its pixels do not fit its size"));
        }
        let mut png = Vec::new();
        let mut encoder = png::Encoder::new(&mut png, image.width, image.height);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|error| failed(&error))?;
        writer
            .write_image_data(&image.pixels)
            .and_then(|()| writer.finish())
            .map_err(|error| failed(&error))?;
        if png.len() > CLIPBOARD_LEN_MAX {
            return Err(too_long());
        }
        self.own(vec![Offer::new("image/png", png)])
    }

    fn clear(&self) -> Result<()> {
        let client = Client::connect(&self.display)?;
        let now: Timestamp = client.time()?;
        let clipboard = client.atom("CLIPBOARD")?;
        client
            .connection
            .set_selection_owner(x11rb::NONE, clipboard, now)
            .map_err(lost)?
            .check()
            .map_err(lost)?;
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }
}

fn too_long() -> PlatformError {
    PlatformError::ClipboardFailed(format!("it is longer than {CLIPBOARD_LEN_MAX} bytes"))
}
