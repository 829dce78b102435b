//! Build information for `wingman --version --json`: what cargo does not tell by itself.
//!
//! Every value may be empty, which means unknown (a source archive has no revision).

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=Cargo.lock");
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let (mut revision, mut time, mut modified) = Default::default();
    if is_own_repository(&root) {
        // A commit appends to this file, whichever branch or worktree it is made on.
        if let Some(log) = git(&root, &["rev-parse", "--git-path", "logs/HEAD"]) {
            let log = root.join(log);
            if log.exists() {
                println!("cargo::rerun-if-changed={}", log.display());
            }
        }
        revision = git(&root, &["rev-parse", "HEAD"]).unwrap_or_default();
        time = git(&root, &["log", "-1", "--format=%cI"]).unwrap_or_default();
        modified = match git(&root, &["status", "--porcelain", "--untracked-files=no"]) {
            Some(changes) => (!changes.is_empty()).to_string(),
            None => String::new(),
        };
    }
    set("REVISION", &revision);
    set("TIME", &time);
    set("MODIFIED", &modified);
    let rustc = std::env::var("RUSTC").unwrap_or_default();
    set("COMPILER", &run(&rustc, &["--version"]).unwrap_or_default());
    set("PLATFORM", &std::env::var("TARGET").unwrap_or_default());
}

fn set(name: &str, value: &str) {
    println!("cargo::rustc-env=WINGMAN_BUILD_{name}={value}");
}

/// Sources unpacked inside of somebody else's repository must not take on its revision.
fn is_own_repository(root: &Path) -> bool {
    let top = git(root, &["rev-parse", "--show-toplevel"]);
    let (Some(top), Ok(root)) = (top, root.canonicalize()) else {
        return false;
    };
    Path::new(&top).canonicalize().is_ok_and(|top| top == root)
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    let root = root.to_str()?;
    // Without the lock a status from a build never disturbs a git command of the person's own.
    run(
        "git",
        &[&["--no-optional-locks", "-C", root], args].concat(),
    )
}

fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().replace('\n', " "))
}
