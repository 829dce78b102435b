//! `cargo xtask bench`: the set-up of a measurement, the measurement, and what it is held against.
//!
//! A bench prints `figure NAME VALUE UNIT` lines; the rest of its output is for people.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::shell::{
    self, Failure, Result, Running, Screen, cargo, output, root, say, target_dir, wait_until,
};
use crate::{idle, setup};

/// What `bench capture` may cost against the reference: (figure, reference's name, most allowed).
const CAPTURE_BOUNDS: [(&str, &str, f64); 3] = [
    ("jpeg", "OpenCV imencode .jpg", 2.5),
    ("png", "OpenCV imencode .png level 1", 1.0),
    // Last, because checks read the ratio off the last line.
    ("capture", "mss", 1.0),
];
const SCREEN_SIZE: &str = "1920x1080x24";

/// Runs the benchmark of one name.
pub fn run(args: &[String]) -> Result<()> {
    match args {
        [name] if name == "capture" => capture(),
        [name] if name == "start" => idle::run(),
        [name] if name == "terminals" => terminals(),
        [name] if ["wire", "script", "journal", "grid"].contains(&name.as_str()) => {
            print!("{}", bench(name, None)?);
            Ok(())
        }
        _ => Err(Failure::usage(
            "bench takes one of capture, wire, script, journal, grid, start, terminals",
        )),
    }
}

/// Builds and runs a bench; answers what it prints.
fn bench(name: &str, display: Option<&str>) -> Result<String> {
    shell::run(cargo().args(["bench", "--bench", name, "--no-run"]))?;
    let mut command = cargo();
    command.args(["bench", "-q", "--bench", name]);
    if let Some(display) = display {
        command
            .env("DISPLAY", display)
            .env_remove("WAYLAND_DISPLAY");
    }
    let printed = output(&mut command)?;
    Ok(format!("{printed}\n"))
}

/// Ours and the reference's figures from the same display, in the same run.
fn capture() -> Result<()> {
    setup::ensure("for a desktop of our own", setup::DESKTOP)?;
    setup::ensure(
        "for the measurement",
        &[&[setup::XPROP], setup::PYTHON].concat(),
    )?;
    let python = reference_python()?;
    let screen = Screen::start(SCREEN_SIZE)?;
    let _painted = paint(&screen)?;
    let ours = bench("capture", Some(&screen.display))?;
    let mut command = Command::new(python);
    command
        .arg(root().join("benches/reference_capture.py"))
        .env("DISPLAY", &screen.display);
    let reference = output(&mut command)?;
    print!("{ours}");
    let mut over = Vec::new();
    for (name, against, most) in CAPTURE_BOUNDS {
        let (mine, theirs) = (figure(&ours, name)?, figure(&reference, name)?);
        let ratio = mine / theirs;
        println!(
            "{name}: {mine:.3} ms, {against} {theirs:.3} ms, ratio {ratio:.2} (at most {most})"
        );
        if ratio > most {
            over.push(name);
        }
    }
    if over.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "slower than allowed: {}",
        over.join(", ")
    )))
}

/// One line of what `bench terminals` is held against.
struct Bar {
    figure: &'static str,
    bound: Bound,
    /// Another figure of the same run, and a factor on it.
    beside: Option<(&'static str, f64)>,
    own: Option<f64>,
}

const fn bar(figure: &'static str, bound: Bound, own: f64) -> Bar {
    Bar {
        figure,
        bound,
        beside: None,
        own: Some(own),
    }
}

const fn beside(figure: &'static str, bound: Bound, other: &'static str, factor: f64) -> Bar {
    Bar {
        figure,
        bound,
        beside: Some((other, factor)),
        own: None,
    }
}

const TERMINAL_BARS: &[Bar] = &[
    beside("echo_wingman_p50", Bound::Most, "echo_tmux_p50", 2.5),
    bar("echo_wingman_p50", Bound::Most, 0.4),
    bar("echo_wingman_p95", Bound::Most, 1.5),
    bar("echo_server_p50", Bound::Most, 0.8),
    beside("ascii_wingman", Bound::Least, "ascii_tmux", 1.3),
    beside("ascii_wingman", Bound::Least, "ascii_bare", 0.7),
    bar("ascii_wingman_sent", Bound::Most, 2.0),
    beside("frames_wingman", Bound::Least, "frames_tmux", 2.0),
    bar("frames_wingman_sent", Bound::Most, 1.5),
    bar("memory_full", Bound::Most, 4.5),
    bar("memory_empty", Bound::Most, 1.0),
    // In ticks more than the agent without sessions.
    bar("idle_more", Bound::Most, 1.0),
    bar("attach_wingman", Bound::Most, 30.0),
    bar("new_wingman", Bound::Most, 15.0),
    bar("interrupt_wingman", Bound::Most, 1.0),
];

#[derive(Clone, Copy, PartialEq)]
enum Bound {
    Most,
    Least,
}

/// Wingman beside a bare terminal and tmux, in the same run.
fn terminals() -> Result<()> {
    setup::ensure("for the measurement", setup::TMUX)?;
    let printed = bench("terminals", None)?;
    print!("{printed}");
    let mut missed = Vec::new();
    for bar in TERMINAL_BARS {
        let value = figure(&printed, bar.figure)?;
        let limit = match bar.beside {
            Some((other, factor)) => figure(&printed, other)? * factor,
            None => bar.own.unwrap_or_default(),
        };
        let (kept, word) = match bar.bound {
            Bound::Most => (value <= limit, "most"),
            Bound::Least => (value >= limit, "least"),
        };
        let mark = if kept { "" } else { "  MISSED" };
        println!("{}: {value:.3} (at {word} {limit:.3}){mark}", bar.figure);
        if !kept {
            missed.push(bar.figure);
        }
    }
    if missed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("bars missed: {}", missed.join(", "))))
}

/// Puts text and edges on the screen: an empty one would flatter every encoder.
fn paint(screen: &Screen) -> Result<Vec<Running>> {
    let on_screen = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).env("DISPLAY", &screen.display);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let text = "while read -r line; do echo \"$line\"; done < Cargo.lock; exec sleep 3600";
    let places = ["150x70+20+20", "120x60+900+300"];
    let mut painted = Vec::new();
    for place in places {
        let args = ["-geometry", place, "-e", "sh", "-c", text];
        let mut command = on_screen("xterm", &args);
        painted.push(Running::start("xterm", command.current_dir(root()))?);
    }
    // The windows are up once openbox lists them; the painting itself takes a moment more.
    let listed = wait_until(std::time::Duration::from_secs(10), || {
        let mut command = on_screen("xprop", &["-root", "_NET_CLIENT_LIST"]);
        let list = command.stdout(Stdio::piped()).output();
        list.is_ok_and(|list| {
            String::from_utf8_lossy(&list.stdout).matches("0x").count() >= places.len()
        })
    });
    if !listed {
        return Err(Failure::unavailable(
            "the windows to capture did not appear",
        ));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    Ok(painted)
}

/// A Python with mss and OpenCV in the target folder.
fn reference_python() -> Result<PathBuf> {
    let folder = target_dir().join("reference-venv");
    let python = folder.join("bin/python");
    let mut probe = Command::new(&python);
    probe.args(["-c", "import mss, cv2"]).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        return Ok(python);
    }
    say("setting up the reference (mss and OpenCV from PyPI)");
    shell::run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check"]);
    shell::run(pip.args(["mss>=10,<11", "opencv-python-headless"]))?;
    Ok(python)
}

/// The value of a `figure NAME VALUE UNIT` line.
fn figure(printed: &str, name: &str) -> Result<f64> {
    let value = printed.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("figure") && words.next() == Some(name))
            .then(|| words.next()?.parse().ok())
            .flatten()
    });
    value.ok_or_else(|| Failure::new(format!("the bench printed no figure {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_its_whole_name() {
        let printed = "note\nfigure capture_all 9 ms\nfigure capture 1.250 ms\n";
        assert_eq!(figure(printed, "capture").unwrap(), 1.25);
        assert!(figure(printed, "jpeg").is_err());
    }
}
