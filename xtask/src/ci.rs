//! `cargo xtask ci`: everything that a push has to pass.

use crate::shell::{self, Failure, Result, cargo, say};
use crate::{docs, test, windows};

/// Layers first: where OS `cfg` or a forbidden path appears, the rest is not worth running.
pub fn run(args: &[String]) -> Result<()> {
    let tested = match args {
        [] => false,
        [flag] if flag == "--after-test" => true,
        _ => return Err(Failure::usage("ci takes --after-test only")),
    };
    if !tested {
        shell::run(cargo().args(["test", "--test", "it", "architecture"]))?;
    }
    shell::run(cargo().args(["fmt", "--all", "--check"]))?;
    shell::run(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    if !tested {
        test::run(&[])?;
    }
    docs::run(&["--check".to_owned()])?;
    windows::run(&[windows::UNOPTIMIZED.to_owned()])?;
    say("all passed");
    Ok(())
}
