//! Pure pixels: colour search and template matching. It sees pixels, never a screen.
