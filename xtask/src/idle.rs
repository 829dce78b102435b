//! `cargo xtask bench start`: how fast the executable starts, and what it costs when idle.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::shell::{Failure, Result, Running, TempDir, say, wait_until};
use crate::up::{Profile, build};

const ROUNDS: usize = 30;
/// A fresh process settles before it counts as idle.
const SETTLE: Duration = Duration::from_secs(3);
const WATCH: Duration = Duration::from_secs(10);
/// Clock ticks per second of /proc/PID/stat, fixed by the kernel's interface.
const TICKS_PER_S: f64 = 100.0;

/// Measures and prints; the bounds are named beside each figure.
pub fn run() -> Result<()> {
    let program = build(Profile::Release)?;
    version(&program)?;
    agent(&program)?;
    server(&program)
}

fn version(program: &Path) -> Result<()> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null());
        let start = Instant::now();
        let status = command.status()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        if !status.success() {
            return Err(Failure::new(format!("wingman --version: {status}")));
        }
    }
    times.sort_by(f64::total_cmp);
    println!(
        "wingman --version: min {:.2} ms, median {:.2} ms of {ROUNDS} (under 5 ms)",
        times[0],
        times[ROUNDS / 2]
    );
    Ok(())
}

fn agent(program: &Path) -> Result<()> {
    let home = TempDir::new("bench-agent")?;
    let start = Instant::now();
    let mut command = at_home(program, home.path());
    let mut agent = Running::start("agent", command.args(["agent", "run"]))?;
    let ready = wait_until_ready(&mut agent, home.path())?;
    println!(
        "agent ready for IPC after {:.0} ms (under 150 ms)",
        (ready - start).as_secs_f64() * 1000.0
    );
    idle("agent", &agent, "under 25 MB and 0.2 %")
}

fn server(program: &Path) -> Result<()> {
    let home = TempDir::new("bench-server")?;
    let mut command = at_home(program, home.path());
    command.args([
        "server",
        "--listen",
        "127.0.0.1:0",
        "--agents-listen",
        "127.0.0.1:0",
    ]);

    let mut server = Running::start("server", &mut command)?;
    std::thread::sleep(SETTLE);
    server.must_run()?;
    idle("server", &server, "under 40 MB")
}

/// The program with a data folder below `home`, and nothing of the session's.
fn at_home(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("WINGMAN_DATA", home.join("data"))
        .env_remove("XDG_RUNTIME_DIR")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// The moment of the first answer on the agent's socket.
fn wait_until_ready(agent: &mut Running, home: &Path) -> Result<Instant> {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        agent.must_run()?;
        let sockets = find_sockets(home);
        if sockets.iter().any(|socket| answers(socket).is_ok()) {
            return Ok(Instant::now());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Err(Failure::unavailable(
        "the agent's socket did not answer in 20 s",
    ))
}

/// Sockets up to two folders deep.
fn find_sockets(home: &Path) -> Vec<PathBuf> {
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let mut found = list(home);
    for _ in 0..2 {
        let deeper: Vec<PathBuf> = found.iter().flat_map(|path| list(path)).collect();
        found.extend(deeper);
    }
    found.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "sock")
    });
    found
}

/// One request over local IPC: a length, then the envelope.
#[cfg(unix)]
fn answers(socket: &Path) -> std::io::Result<()> {
    let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let body = br#"{"type":0,"method":"system.getStatus","payload":{},"id":1,"timestamp":0}"#;
    stream.write_all(&(body.len() as u32).to_le_bytes())?;
    stream.write_all(body)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)
}

#[cfg(not(unix))]
fn answers(_socket: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Memory and processor time of a process and its children, idle.
fn idle(name: &str, process: &Running, bound: &str) -> Result<()> {
    say(format_args!("watching the idle {name}"));
    std::thread::sleep(SETTLE);
    let family = family(process.pid());
    let before = cpu_s(&family);
    let start = Instant::now();
    wait_until(WATCH, || false);
    let used = cpu_s(&family) - before;
    let share = used / start.elapsed().as_secs_f64() * 100.0;
    let each: Vec<String> = family
        .iter()
        .map(|pid| format!("{:.1}", pss_mb(*pid)))
        .collect();
    let total: f64 = family.iter().map(|pid| pss_mb(*pid)).sum();
    println!(
        "idle {name}: {total:.1} MB PSS (processes: {}), {share:.2} % of a core ({bound})",
        each.join(" + ")
    );
    Ok(())
}

/// The process and what it started.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let children = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(children).unwrap_or_default();
    for child in text.split_whitespace().filter_map(|word| word.parse().ok()) {
        family.extend(self::family(child));
    }
    family
}

fn pss_mb(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

fn cpu_s(family: &[u32]) -> f64 {
    let ticks = |pid: &u32| -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold spaces; what follows it does not.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let user: f64 = fields.get(11)?.parse().ok()?;
        let system: f64 = fields.get(12)?.parse().ok()?;
        Some(user + system)
    };
    family.iter().filter_map(ticks).sum::<f64>() / TICKS_PER_S
}
