//! The clipboard.

use super::{Desktop, fault};
use crate::platform::{Clipboard, RgbaImage};
use crate::wire::Fault;

impl Desktop {
    fn clipboard(&self) -> Result<&dyn Clipboard, Fault> {
        self.backend
            .clipboard
            .as_deref()
            .map_err(|error| fault(error.clone()))
    }

    pub fn clipboard_text(&self) -> Result<String, Fault> {
        self.clipboard()?.text().map_err(fault)
    }

    pub fn set_clipboard_text(&self, text: &str) -> Result<(), Fault> {
        self.clipboard()?.set_text(text).map_err(fault)
    }

    pub fn clipboard_image(&self) -> Result<RgbaImage, Fault> {
        self.clipboard()?.image().map_err(fault)
    }

    pub fn set_clipboard_image(&self, image: RgbaImage) -> Result<(), Fault> {
        self.clipboard()?.set_image(image).map_err(fault)
    }

    pub fn clear_clipboard(&self) -> Result<(), Fault> {
        self.clipboard()?.clear().map_err(fault)
    }
}
