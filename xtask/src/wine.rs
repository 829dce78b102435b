//! `cargo xtask windows --run`: the Windows executable under Wine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::shell::{self, Result, Screen, output, say, target_dir};
use crate::windows::build_bcryptprimitives;

/// Shows that the executable starts.
pub fn run(folder: &Path) -> Result<()> {
    build_bcryptprimitives(folder)?;
    let screen = Screen::start("1280x800x24")?;
    let wine = Wine::start(&screen)?;
    let version = output(wine.command(&folder.join("wingman.exe")).arg("--version"))?;
    say(format_args!("under Wine: {version}"));
    Ok(())
}

/// A Wine prefix of our own.
struct Wine {
    prefix: PathBuf,
    display: String,
}

impl Wine {
    fn start(screen: &Screen) -> Result<Self> {
        let wine = Self {
            prefix: target_dir().join("wine-prefix"),
            display: screen.display.clone(),
        };
        std::fs::create_dir_all(&wine.prefix)?;
        shell::run(wine.command(Path::new("wineboot")).arg("--init"))?;
        Ok(wine)
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("/usr/lib/wine/wine64");
        command
            .arg(program)
            .env("WINEPREFIX", &self.prefix)
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "mscoree,mshtml=")
            .env("DISPLAY", &self.display)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        let mut server = Command::new("/usr/lib/wine/wineserver");
        server.arg("-k").env("WINEPREFIX", &self.prefix);
        let _ = server.status();
    }
}
