//! `cargo xtask`: set up, run, test, check, build for Windows, measure.
//!
//! It has no dependencies and never links wingman, so that it builds in a second on a machine that
//! has nothing yet, and a broken wingman cannot break the way to mend it.

mod bench;
mod ci;
mod docs;
mod idle;
mod pe;
mod setup;
mod shell;
mod test;
mod up;
mod windows;
mod wine;

use std::process::ExitCode;

use shell::{Failure, Result, exit};

const HELP: &str = "\
cargo xtask up [--dev] [ARGS]     set up, build and run `wingman up ARGS` until Ctrl-C
cargo xtask test [FILTER]         set up what the tests need and run them
cargo xtask ci [--after-test]     fmt, clippy, test, generated docs, Windows build
cargo xtask docs [--check]        write docs/reference from the binary, or compare it
cargo xtask windows [--release | --unoptimized] [--run]
                                  build wingman.exe and its twin wingmanw.exe; --run takes a
                                  screenshot through a Linux server with the agent under Wine
cargo xtask bench capture|wire|script|journal|grid|start|terminals
                                  measure, side by side with the reference where there is one
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.code)
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let Some((command, rest)) = args.split_first() else {
        print!("{HELP}");
        return Err(Failure::usage("name a command"));
    };
    match command.as_str() {
        "up" => up::run(rest),
        "test" => test::run(rest),
        "ci" => ci::run(rest),
        "docs" => docs::run(rest),
        "windows" => windows::run(rest),
        "bench" => bench::run(rest),
        "help" | "-h" | "--help" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(Failure {
            code: exit::USAGE,
            text: format!("no command {other:?}\n{HELP}"),
        }),
    }
}
