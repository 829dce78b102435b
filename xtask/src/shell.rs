//! Running programs: said aloud, failures kept with their exit code.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The same numbers as the `wingman` executable answers.
pub mod exit {
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const UNAVAILABLE: u8 = 69;
}

/// Why a chore stopped, and the exit code that says so.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub text: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            code: exit::FAILED,
            text: text.into(),
        }
    }

    pub fn usage(text: impl Into<String>) -> Self {
        Self {
            code: exit::USAGE,
            text: text.into(),
        }
    }

    pub fn unavailable(text: impl Into<String>) -> Self {
        Self {
            code: exit::UNAVAILABLE,
            text: text.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Tells the person what happens now; standard output stays free for results.
pub fn say(text: impl fmt::Display) {
    eprintln!("==> {text}");
}

/// The folder of the workspace, whatever the current directory is.
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_path_buf()
}

/// Where cargo puts its output.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if !dir.is_empty() => root().join(dir),
        _ => root().join("target"),
    }
}

/// `cargo` in the workspace, linking with mold where that is installed.
pub fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    const FLAGS: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS";
    if on_path("mold") && std::env::var_os(FLAGS).is_none() {
        command.env(FLAGS, "-C link-arg=-fuse-ld=mold");
    }
    command
}

/// Whether a program of this name can be found.
pub fn on_path(program: &str) -> bool {
    find_on_path(program).is_some()
}

/// Where a program of this name is.
pub fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// The command line as a person would type it.
fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program()];
    words.extend(command.get_args());
    let quoted = |word: &&OsStr| {
        let text = word.to_string_lossy();
        if text.contains([' ', '\'', '"']) {
            format!("{text:?}")
        } else {
            text.into_owned()
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Runs to the end; a non-zero exit is a failure with the same code.
pub fn run(command: &mut Command) -> Result<()> {
    let line = shown(command);
    say(&line);
    let status = command
        .status()
        .map_err(|error| Failure::new(format!("start {line}: {error}")))?;
    if status.success() {
        return Ok(());
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(Failure {
        code: code.unwrap_or(exit::FAILED),
        text: format!("{line}: {status}"),
    })
}

/// Runs to the end and answers its standard output; its errors stay on the terminal.
pub fn output(command: &mut Command) -> Result<String> {
    let line = shown(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new(format!("start {line}: {error}")))?;
    if !output.status.success() {
        return Err(Failure::new(format!("{line}: {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Output of a quiet question; `None` when the program is missing or says no.
pub fn ask(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(args).stderr(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Becomes the program, so that signals and the exit code are its own.
#[cfg(unix)]
pub fn become_program(command: &mut Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let line = shown(command);
    say(&line);
    let error = command.exec();
    Err(Failure::new(format!("start {line}: {error}")))
}

/// Where a process cannot be replaced: waits for it; the console sends Ctrl-C to both.
#[cfg(not(unix))]
pub fn become_program(command: &mut Command) -> Result<()> {
    run(command)
}

/// A child that ends with its owner.
pub struct Running {
    name: &'static str,
    child: Child,
}

impl Running {
    pub fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let line = shown(command);
        let child = command
            .spawn()
            .map_err(|error| Failure::new(format!("start {line}: {error}")))?;
        Ok(Self { name, child })
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails when the child has ended although it should still run.
    pub fn must_run(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Failure::new(format!("{} ended: {status}", self.name))),
        }
    }

    /// Asks the child to end and waits for it, bounded; then it is killed.
    pub fn stop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = self.child.id().to_string();
            let asked = Command::new("kill").args(["-TERM", &pid]).status();
            let ended = asked.is_ok()
                && wait_until(Duration::from_secs(5), || {
                    !matches!(self.child.try_wait(), Ok(None))
                });
            if !ended {
                let _ = self.child.kill();
            }
        }
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Asks every 20 ms until the answer is yes; `false` when `limit` has passed.
pub fn wait_until(limit: Duration, mut yes: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if yes() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder of its own that goes with its owner.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new(purpose: &str) -> Result<Self> {
        let name = format!("wingman-{purpose}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An X server of our own with a free display number, and openbox on it.
pub struct Screen {
    _window_manager: Option<Running>,
    _server: Running,
    pub display: String,
}

impl Screen {
    /// Starts Xvfb and waits until it says its number.
    pub fn start(size: &str) -> Result<Self> {
        use std::io::BufRead;
        let mut command = Command::new("Xvfb");
        command
            .args(["-displayfd", "1", "-screen", "0", size, "-nolisten", "tcp"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut server = Running::start("Xvfb", &mut command)?;
        let out = server.child().stdout.take();
        let out = out.ok_or_else(|| Failure::new("Xvfb gave no output"))?;
        let mut number = String::new();
        std::io::BufReader::new(out).read_line(&mut number)?;
        if number.trim().is_empty() {
            return Err(Failure::unavailable("Xvfb did not start"));
        }
        let display = format!(":{}", number.trim());
        let mut manager = Command::new("openbox");
        manager.env("DISPLAY", &display).stderr(Stdio::null());
        let manager = on_path("openbox").then(|| Running::start("openbox", &mut manager));
        Ok(Self {
            _window_manager: manager.transpose()?,
            _server: server,
            display,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_keeps_its_exit_code() {
        let failure = run(Command::new("sh").args(["-c", "exit 78"])).unwrap_err();
        assert_eq!(failure.code, 78);
    }

    #[test]
    fn a_command_line_is_shown_with_quotes_where_needed() {
        let mut command = Command::new("a");
        command.args(["b c", "d"]);
        assert_eq!(shown(&command), "a \"b c\" d");
    }
}
