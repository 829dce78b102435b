//! `cargo xtask test`: all set-up for the tests, then the tests.

use crate::setup;
use crate::shell::{self, Result, cargo, on_path};

/// Runs all tests, or those whose name contains the filter.
pub fn run(args: &[String]) -> Result<()> {
    setup::prefer(setup::LINKER);
    setup::ensure("by the tests", &[setup::DESKTOP, setup::TEST].concat())?;
    let mut command = cargo();
    if on_path("cargo-nextest") {
        // nextest runs no doc tests; the crate's code blocks are diagrams, marked as text.
        command.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
    } else {
        command.args(["test", "--workspace", "--no-fail-fast"]);
    }
    // Tests bring their own displays; the session's must neither help nor suffer.
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    shell::run(command.args(args))
}
