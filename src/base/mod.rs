//! Values without I/O: identifiers, geometry, colour, hashes, time, secrets, limits, error kinds.
//!
//! Invariants: nothing here names another module of ours, opens a file or socket, or reads the
//! environment. The one effect allowed is the operating system's random source (`ids`).

pub mod clock;
pub mod color;
pub mod digest;
pub mod error;
pub mod geometry;
pub mod ids;
pub mod limits;
pub mod secret;

pub use clock::{Clock, EpochMillis, SystemClock, TestClock, Timestamp};
pub use color::Color;
pub use error::Kind;
pub use geometry::{Point, Rect, Size};
pub use secret::Secret;
