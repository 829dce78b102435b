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
