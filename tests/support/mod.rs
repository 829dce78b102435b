//! What end-to-end tests stand on: a real X server each, with real programs on it.

pub mod host;
pub mod painted;
pub mod scripted_place;
pub mod xvfb;

use std::time::{Duration, Instant};

pub use host::Host;
pub use painted::Painter;
pub use xvfb::TestDisplay;

/// Generous, since a loaded machine is slow; a test that passes never waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Asks `probe` until it answers, and panics with `what` when it does not in a minute.
#[track_caller]
pub fn wait_for<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(POLL);
    }
}
