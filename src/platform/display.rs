//! Which display an agent uses: the host's, or one of its own.

/// What was found when looking for a usable display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisplayFinding {
    /// A display that answers, by name.
    Usable(String),
    /// `DISPLAY` is not set.
    Absent,
    /// `DISPLAY` is set but nothing answers there.
    Stale { display: String, reason: String },
    /// The session is Wayland: captures through XWayland are black.
    Wayland,
}

#[cfg(target_os = "linux")]
pub use super::linux::display::{OwnDisplay, find};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{OwnDisplay, find};

/// Systems whose one desktop is always there and which have no second one to start.
#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::DisplayFinding;
    use crate::base::Size;
    use crate::platform::{PlatformError, Result};

    /// The desktop of this session, which needs no name.
    pub fn find() -> DisplayFinding {
        DisplayFinding::Usable("default".into())
    }

    /// A display of our own, which this system cannot have.
    #[derive(Debug)]
    pub enum OwnDisplay {}

    impl OwnDisplay {
        /// Always `Unsupported`.
        pub fn start(_size: Size) -> Result<Self> {
            Err(PlatformError::Unsupported(
                "a display of our own exists on Linux alone".into(),
            ))
        }

        pub fn name(&self) -> &str {
            match *self {}
        }

        pub fn window_manager(&self) -> Option<&'static str> {
            match *self {}
        }
    }
}
