//! `cargo xtask up`: from a fresh clone to a running workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::setup;
use crate::shell::{self, Result, become_program, cargo, say, target_dir};

/// Sets up, builds and becomes `wingman up` with the rest of the arguments.
pub fn run(args: &[String]) -> Result<()> {
    let (dev, passed): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| *arg == "--dev");
    if let Some(reason) = no_usable_display() {
        say(format_args!(
            "{reason}: the agent needs a display of its own"
        ));
        setup::ensure("for a desktop of our own", setup::DESKTOP)?;
    }
    setup::prefer(setup::LINKER);
    let profile = if dev.is_empty() {
        Profile::Release
    } else {
        Profile::Dev
    };
    let program = build(profile)?;
    become_program(Command::new(program).arg("up").args(passed))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Dev,
    Release,
}

/// Builds the executable and answers where it is.
pub fn build(profile: Profile) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--bin", "wingman"]);
    if profile == Profile::Release {
        command.arg("--release");
    }
    shell::run(&mut command)?;
    let folder = match profile {
        Profile::Dev => "debug",
        Profile::Release => "release",
    };
    Ok(target_dir().join(folder).join("wingman"))
}

/// Why the session's display cannot be used. The agent looks again, more closely, when it starts.
fn no_usable_display() -> Option<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if set("WAYLAND_DISPLAY").is_some() || set("XDG_SESSION_TYPE").as_deref() == Some("wayland") {
        return Some("the session is Wayland, where captures are black".to_owned());
    }
    let Some(display) = set("DISPLAY") else {
        return Some("DISPLAY is not set".to_owned());
    };
    let number = display
        .strip_prefix("unix:")
        .or(display.strip_prefix(':'))?;
    let number = number.split('.').next().unwrap_or(number);
    let socket = format!("/tmp/.X11-unix/X{number}");
    match connect(Path::new(&socket)) {
        Ok(()) => None,
        Err(error) => Some(format!("nothing answers on DISPLAY {display} ({error})")),
    }
}

#[cfg(unix)]
fn connect(socket: &Path) -> std::io::Result<()> {
    std::os::unix::net::UnixStream::connect(socket).map(drop)
}

#[cfg(not(unix))]
fn connect(_socket: &Path) -> std::io::Result<()> {
    Ok(())
}
