//! `cargo xtask windows --run`: a Windows workstation under Wine, joined to a Linux server, a screenshot
//! and a script through that server, and a terminal session that outlives its agent.
//!
//! ```text
//! Linux                                    Wine, on an Xvfb of its own
//! wingman server  ◀────── TLS link ──────  wingman.exe agent run   (GDI capture, named pipe)
//!      ▲
//! wingman screenshot -o FILE
//! ```

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::shell::{
    self, Failure, Result, Running, Screen, TempDir, output, root, say, target_dir, wait_until,
};
use crate::up::{Profile, build};
use crate::windows::{build_program, build_wine_dlls};

const SCREEN_SIZE: &str = "1280x800x24";
const WINE: &str = "/usr/lib/wine/wine64";
const WINE_SERVER: &str = "/usr/lib/wine/wineserver";
/// The Windows side's data folder, below the folder of this run.
const WINDOWS_DATA: &str = "workstation";
/// Wine starts its services first, on a busy machine slowly.
const JOIN_LIMIT: Duration = Duration::from_secs(120);

/// Shows that the executable in `folder` looks after a workstation.
pub fn run(folder: &Path) -> Result<()> {
    build_wine_dlls(folder)?;
    let program = build(Profile::Dev)?;
    let home = TempDir::new("windows-run")?;
    let screen = Screen::start(SCREEN_SIZE)?;
    let wine = Wine::start(&screen, home.path())?;
    let windows = folder.join("wingman.exe");

    let version = wine.output(&windows, &["--version"])?;
    say(format_args!("under Wine: {version}"));

    let control = Control::start(program, home.path())?;
    let join = control.output(&["server", "invite"])?;
    let join = join_string(&join)?;
    let agent = home.path().join(WINDOWS_DATA).join("agent");
    std::fs::create_dir_all(&agent)?;
    // Wine has no Windows Graphics Capture, and nothing falls back by itself.
    let settings = "[desktop]\ncapture_backend = \"gdi\"\n";
    std::fs::write(agent.join("agent.toml"), settings)?;
    wine.output(&windows, &["agent", "join", &join])?;

    let mut agent = wine.agent(&windows)?;
    let picture = target_dir().join("windows-screenshot.png");
    let checked = wait_for(&control, &mut agent, &picture).and_then(|()| check(&control, &picture));
    checked.map_err(|failure| with_log(failure, &home.path().join("agent.log")))?;

    let status = wine.output(&windows, &["ipc-client", "system.getStatus"])?;
    if !status.contains("remoteConnected") {
        return Err(Failure::new(format!(
            "odd status over the named pipe: {status}"
        )));
    }
    say("the agent answers on its named pipe");
    let shown = terminal(&wine, &windows, folder, agent);
    shown.map_err(|failure| with_log(failure, &home.path().join("agent.log")))?;
    println!("{}", picture.display());
    Ok(())
}

/// A program on a terminal answers, also after its agent was killed and another one came.
fn terminal(wine: &Wine, windows: &Path, folder: &Path, agent: Running) -> Result<()> {
    let program = folder.join("windows_terminal.exe");
    build_program(&root().join("xtask/windows_terminal.c"), &program)?;
    let program = format!("Z:{}", program.display());
    let saw = |text: &str| {
        let wait = ["wait", "trial", "--for", text, "--timeout", "60s"];
        wine.output(windows, &wait).map(drop)
    };
    let answers = |word: &str| {
        wine.output(windows, &["send", "trial", "--enter", word])?;
        saw(&format!("got {word}"))
    };
    wine.output(windows, &["new", "--name", "trial", "--", &program])?;
    saw("ready")?;
    answers("one")?;
    drop(agent);
    let _agent = wine.agent(windows)?;
    if !wait_until(JOIN_LIMIT, || saw("got one").is_ok()) {
        return Err(Failure::new(
            "the session did not come back with its screen",
        ));
    }
    answers("two")?;
    wine.output(windows, &["send", "trial", "--enter", "q"])?;
    let ended = wine.output(
        windows,
        &["wait", "trial", "--for", "exit", "--timeout", "60s"],
    );
    let list = wine.output(windows, &["ls"])?;
    if ended.is_err() || !list.contains("exited 9") {
        return Err(Failure::new(format!(
            "the session did not end with 9: {list}"
        )));
    }
    say("a terminal session outlived its agent and ended with its program's code");
    Ok(())
}

/// Waits until the server shows the workstation's desktop.
fn wait_for(control: &Control, agent: &mut Running, picture: &Path) -> Result<()> {
    let shown = wait_until(JOIN_LIMIT, || {
        control.screenshot(picture) || agent.must_run().is_err()
    });
    agent.must_run()?;
    shown
        .then_some(())
        .ok_or_else(|| Failure::unavailable("no screenshot of the Windows agent in time"))
}

/// Drives the desktop by a script, then takes the picture of what it did.
fn check(control: &Control, picture: &Path) -> Result<()> {
    let script = root().join("xtask/windows_check.lua");
    let script = script.to_string_lossy();
    let said = control.output(&["run", "--timeout", "120s", &script])?;
    say(format_args!("the script ran: {said}"));
    control
        .screenshot(picture)
        .then_some(())
        .ok_or_else(|| Failure::new("no screenshot after the script"))
}

/// The server on the Linux side.
struct Control {
    program: PathBuf,
    home: PathBuf,
    _server: Running,
}

impl Control {
    fn start(program: PathBuf, home: &Path) -> Result<Self> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        let agents = format!("127.0.0.1:{}", free_port()?);
        let mut command = at_home(&program, home);
        command.args(["server", "--listen", &listen, "--agents-listen", &agents]);
        command.stdout(Stdio::null());
        let control = Self {
            _server: Running::start("wingman server", &mut command)?,
            program,
            home: home.to_path_buf(),
        };
        let answers = || control.quiet(&["agents"]);
        if !wait_until(Duration::from_secs(30), answers) {
            return Err(Failure::unavailable("the server did not answer in 30 s"));
        }
        Ok(control)
    }

    fn output(&self, args: &[&str]) -> Result<String> {
        output(at_home(&self.program, &self.home).args(args))
    }

    fn quiet(&self, args: &[&str]) -> bool {
        let mut command = at_home(&self.program, &self.home);
        command
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn screenshot(&self, picture: &Path) -> bool {
        let file = picture.to_string_lossy();
        self.quiet(&["screenshot", "--profile", "native-png", "-o", &file])
            && std::fs::read(picture).is_ok_and(|bytes| bytes.starts_with(b"\x89PNG"))
    }
}

/// The server's side of the program: folders of its own, nothing of the person's.
fn at_home(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("WINGMAN_DATA", home.join("control"))
        .env_remove("WINGMAN_SERVER")
        .env_remove("WINGMAN_TOKEN")
        .env_remove("DISPLAY")
        .stdin(Stdio::null());
    command
}

/// A Wine prefix of our own, and the Windows side's folders.
struct Wine {
    prefix: PathBuf,
    home: PathBuf,
    display: String,
}

impl Wine {
    fn start(screen: &Screen, home: &Path) -> Result<Self> {
        let wine = Self {
            prefix: target_dir().join("wine-prefix"),
            home: home.to_path_buf(),
            display: screen.display.clone(),
        };
        std::fs::create_dir_all(&wine.prefix)?;
        let mut boot = wine.quiet(Path::new("wineboot"));
        shell::run(boot.arg("--init").stderr(Stdio::null()))?;
        Ok(wine)
    }

    fn command(&self, program: &Path) -> Command {
        // Wine shows the file system of the host as drive Z.
        let data = format!("Z:{}", self.home.join(WINDOWS_DATA).display());
        let mut command = Command::new(WINE);
        command
            .arg(program)
            .env("WINEPREFIX", &self.prefix)
            .env("WINEDEBUG", "-all")
            // No questions about Mono and Gecko.
            .env("WINEDLLOVERRIDES", "mscoree,mshtml=")
            .env("WINGMAN_DATA", data)
            .env_remove("WINGMAN_SERVER")
            .env_remove("WINGMAN_TOKEN")
            .env("DISPLAY", &self.display)
            .stdin(Stdio::null());
        command
    }

    fn agent(&self, program: &Path) -> Result<Running> {
        let log = std::fs::File::create(self.home.join("agent.log"))?;
        let mut command = self.command(program);
        command
            .args(["agent", "run"])
            .stdout(log.try_clone()?)
            .stderr(log);
        Running::start("wingman.exe agent", &mut command)
    }

    fn quiet(&self, program: &Path) -> Command {
        let mut command = self.command(program);
        command.stdout(Stdio::null());
        command
    }

    /// Output by way of a file: Wine's services inherit a pipe and would keep it open.
    fn output(&self, program: &Path, args: &[&str]) -> Result<String> {
        let path = self.home.join("wine-output");
        let file = std::fs::File::create(&path)?;
        let errors = file.try_clone()?;
        let mut command = self.command(program);
        let status = command.args(args).stdout(file).stderr(errors).status()?;
        let text = std::fs::read_to_string(&path)?.trim().to_owned();
        if status.success() {
            return Ok(text);
        }
        let name = args.first().copied().unwrap_or_default();
        Err(Failure::new(format!(
            "wingman.exe {name}: {status}\n{text}"
        )))
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        let mut server = Command::new(WINE_SERVER);
        server.arg("-k").env("WINEPREFIX", &self.prefix);
        let _ = server.status();
    }
}

/// The join string among what `server invite` prints.
fn join_string(printed: &str) -> Result<String> {
    let mut words = printed.split_whitespace();
    let word = words.find(|word| word.starts_with("wm1-"));
    word.map(str::to_owned)
        .ok_or_else(|| Failure::new("server invite printed no join string"))
}

/// A port that is free now. Another program may take it meanwhile; then the server says so.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn with_log(failure: Failure, log: &Path) -> Failure {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    Failure {
        text: format!("{failure}\n{log}"),
        ..failure
    }
}
