//! The clipboard, by arboard. Each call opens it anew: Windows lets one program have it at a time.

use std::borrow::Cow;

use arboard::{Clipboard as Open, Error, ImageData};

use crate::platform::{Clipboard, PlatformError, Result, RgbaImage};

pub struct SystemClipboard;

impl Clipboard for SystemClipboard {
    fn text(&self) -> Result<String> {
        open()?.get_text().map_err(|error| read("text", &error))
    }

    fn set_text(&self, text: &str) -> Result<()> {
        open()?.set_text(text).map_err(|error| failed(&error))
    }

    fn image(&self) -> Result<RgbaImage> {
        let image = open()?.get_image().map_err(|error| read("image", &error))?;
        let side = |length: usize| {
            u32::try_from(length).map_err(|_| {
                PlatformError::ClipboardFailed(format!("an image side of {length} pixels"))
            })
        };
        Ok(RgbaImage {
            width: side(image.width)?,
            height: side(image.height)?,
            pixels: image.bytes.into_owned(),
        })
    }

    fn set_image(&self, image: RgbaImage) -> Result<()> {
        let data = ImageData {
            width: image.width as usize,
            height: image.height as usize,
            bytes: Cow::Owned(image.pixels),
        };
        open()?.set_image(data).map_err(|error| failed(&error))
    }

    fn clear(&self) -> Result<()> {
        open()?.clear().map_err(|error| failed(&error))
    }
}

fn open() -> Result<Open> {
    Open::new().map_err(|error| failed(&error))
}

fn read(kind: &'static str, error: &Error) -> PlatformError {
    match error {
        Error::ContentNotAvailable => PlatformError::ClipboardEmpty(kind),
        other => failed(other),
    }
}

fn failed(error: &Error) -> PlatformError {
    PlatformError::ClipboardFailed(error.to_string())
}
