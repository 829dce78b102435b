//! Pure pixels: colour search and template matching. It sees pixels, never a screen.
//!
//! Invariants: points are relative to the searched pixels' top left corner; searches go row by row
//! from there and do not depend on anything but their arguments.

mod color;
mod pixels;
mod template;

pub use color::{find_color, find_colors};
pub use pixels::{Order, Pixels};
pub use template::{Match, SCORE_DEFAULT, Template, find_image};

/// Why pixels could not be searched.
#[derive(Debug, thiserror::Error)]
pub enum VisionError {
    /// The bytes are fewer than size and stride ask for.
    #[error("{width}x{height} pixels with stride {stride} need {needed} bytes and have {given}")]
    TooShort {
        width: u32,
        height: u32,
        stride: usize,
        needed: usize,
        given: usize,
    },
    /// The picture is no PNG or JPEG that can be read.
    #[error("read the picture: {0}")]
    Undecodable(#[from] image::ImageError),
}
