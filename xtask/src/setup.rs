//! What has to be on the machine: found, installed when root, else named in one line.

use std::path::Path;
use std::process::Command;

use crate::shell::{Failure, Result, ask, on_path, run, say};

/// A Debian package and how one sees that its content is there, from wherever it came.
#[derive(Clone, Copy)]
pub struct Package {
    pub name: &'static str,
    seen_by: Seen,
}

#[derive(Clone, Copy)]
enum Seen {
    Program(&'static str),
    File(&'static str),
    PythonModule(&'static str),
}

const fn program(name: &'static str, program: &'static str) -> Package {
    Package {
        name,
        seen_by: Seen::Program(program),
    }
}

const fn file(name: &'static str, path: &'static str) -> Package {
    Package {
        name,
        seen_by: Seen::File(path),
    }
}

/// A desktop of our own.
pub const DESKTOP: &[Package] = &[
    program("xvfb", "Xvfb"),
    program("openbox", "openbox"),
    program("xterm", "xterm"),
    file("xfonts-base", "/usr/share/fonts/X11/misc/6x13.pcf.gz"),
    file(
        "fonts-dejavu",
        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    ),
];

/// What the tests drive besides.
pub const TEST: &[Package] = &[
    program("x11-xkb-utils", "setxkbmap"),
    program("xclip", "xclip"),
    program("tmux", "tmux"),
    program("python3", "python3"),
    program("vim", "vim"),
    program("htop", "htop"),
    program("less", "less"),
    program("zsh", "zsh"),
    program("fish", "fish"),
    program("openssh-client", "ssh"),
    file("openssh-server", "/usr/sbin/sshd"),
    program("iproute2", "ip"),
    file("systemd", "/lib/systemd/systemd"),
];

/// What terminals are measured against.
pub const TMUX: &[Package] = &[program("tmux", "tmux")];

/// What sees that the windows to capture are up.
pub const XPROP: Package = program("x11-utils", "xprop");

/// The measurements' references come from PyPI into a folder of their own.
pub const PYTHON: &[Package] = &[
    program("python3", "python3"),
    Package {
        name: "python3-venv",
        seen_by: Seen::PythonModule("ensurepip"),
    },
];

/// Faster links; nothing fails without it.
pub const LINKER: Package = program("mold", "mold");

/// The cross compiler for Windows: C and C++ for the crates that bring such code, and the linker.
pub const MINGW: &[Package] = &[program(
    "g++-mingw-w64-x86-64",
    "x86_64-w64-mingw32-g++-win32",
)];

/// Debian's compiler with the sources of its standard library.
pub const RUST_WEB: &[Package] = &[
    file("rustc-web", "/usr/bin/rustc"),
    file(
        "rust-web-src",
        "/usr/lib/rustlib/src/rust/library/std/Cargo.toml",
    ),
];

/// Runs what was built for Windows.
pub const WINE: &[Package] = &[file("wine64", "/usr/lib/wine/wine64")];

impl Package {
    fn present(self) -> bool {
        match self.seen_by {
            Seen::Program(program) => on_path(program),
            Seen::File(path) => Path::new(path).exists(),
            Seen::PythonModule(module) => {
                ask("python3", &["-c", &format!("import {module}")]).is_some()
            }
        }
    }
}

/// Makes sure that all packages are there. `why` completes "needed …".
///
/// Root installs them, each step said aloud; anybody else gets the one line to type and exit 69.
pub fn ensure(why: &str, packages: &[Package]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|package| !package.present())
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !on_path("apt-get") {
        return Err(Failure::unavailable(format!(
            "needed {why}, and this machine has no apt-get; install what Debian calls: {names}"
        )));
    }
    if ask("id", &["-u"]).as_deref() != Some("0") {
        println!("sudo apt-get install -y {names}");
        return Err(Failure::unavailable(format!(
            "{names} needed {why}; run the line above, then again"
        )));
    }
    say(format_args!("installing {names} (needed {why})"));
    install(&missing)?;
    let still: Vec<&str> = packages
        .iter()
        .filter(|package| !package.present())
        .map(|package| package.name)
        .collect();
    if still.is_empty() {
        return Ok(());
    }
    Err(Failure::unavailable(format!(
        "{} installed, but what it should bring is not there",
        still.join(" ")
    )))
}

/// Installs one that merely helps: only as root, and its absence is said, not fatal.
pub fn prefer(package: Package) {
    if package.present() || ask("id", &["-u"]).as_deref() != Some("0") || !on_path("apt-get") {
        return;
    }
    say(format_args!("installing {} (faster links)", package.name));
    if let Err(failure) = install(&[package.name]) {
        say(format_args!("going on without {}: {failure}", package.name));
    }
}

fn install(names: &[&str]) -> Result<()> {
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    // Package lists may be fresh enough even where the update fails; the install decides.
    if let Err(failure) = run(apt().args(["update", "-q"])) {
        say(format_args!("package lists not refreshed: {failure}"));
    }
    let mut command = apt();
    command.args(["install", "-y", "-q", "--no-install-recommends"]);
    run(command.args(names))
        .map_err(|failure| Failure::unavailable(format!("install {}: {failure}", names.join(" "))))
}
