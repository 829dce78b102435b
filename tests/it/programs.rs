//! Real programs on real terminals: what their screens show is what tmux shows of them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::host::text;
use crate::support::{Host, wait_for};

const COLS: u16 = 100;
const ROWS: u16 = 30;
/// Generous: a test that passes never waits for it.
const PATIENCE: Duration = Duration::from_secs(40);

/// One program twice: in a session, and in a tmux of its own.
struct Twice<'a> {
    host: &'a Host,
    socket: String,
}

impl<'a> Twice<'a> {
    /// Starts a shell command in both, in the same folder and environment.
    fn start(host: &'a Host, command: &str) -> Self {
        let size = format!("{COLS}x{ROWS}");
        let folder = host.dir().to_str().expect("a path");
        let command = format!(
            "export TERM=xterm-256color LC_ALL=C.UTF-8 HOME={folder} PS1='$ '; exec {command}"
        );
        let args = [
            "new", "--json", "--name", "twin", "--size", &size, "--cwd", folder, "--", "sh", "-c",
            &command,
        ];
        host.json(&args);
        let twice = Self {
            host,
            socket: format!("{}/tmux", host.dir().display()),
        };
        let (cols, rows) = (COLS.to_string(), ROWS.to_string());
        twice.tmux(&[
            "new-session",
            "-d",
            "-x",
            &cols,
            "-y",
            &rows,
            "-c",
            folder,
            "sh",
            "-c",
            &command,
        ]);
        twice.tmux(&["set", "-g", "status", "off"]);
        twice.tmux(&["set", "-g", "escape-time", "0"]);
        twice.tmux(&["resize-window", "-x", &cols, "-y", &rows]);
        twice
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-S", &self.socket, "-f", "/dev/null"])
            .args(args)
            .env("TERM", "xterm-256color")
            .env_remove("TMUX")
            .stdin(Stdio::null())
            .output()
            .expect("run tmux");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types the same bytes into both.
    fn type_in(&self, keys: &str) {
        let sent = self.host.run(&["send", "twin", "--raw", "--", keys]);
        assert!(sent.status.success(), "{}", text(&sent));
        let hex: Vec<String> = keys.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut args = vec!["send-keys", "-H"];
        args.extend(hex.iter().map(String::as_str));
        self.tmux(&args);
    }

    fn ours(&self) -> Vec<String> {
        trimmed(&String::from_utf8_lossy(
            &self.host.run(&["read", "twin"]).stdout,
        ))
    }

    fn theirs(&self) -> Vec<String> {
        trimmed(&self.tmux(&["capture-pane", "-p"]))
    }

    /// Waits until both show a text, and the same screen.
    fn agree(&self, wanted: &str) {
        self.agree_on(wanted, |screen| screen);
    }

    /// The same for a part of the screen.
    fn agree_on(&self, wanted: &str, part: impl Fn(Vec<String>) -> Vec<String>) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let (ours, theirs) = (part(self.ours()), part(self.theirs()));
            if ours == theirs && ours.iter().any(|line| line.contains(wanted)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let (ours, theirs) = (part(self.ours()), part(self.theirs()));
        assert!(
            ours.iter().any(|line| line.contains(wanted)),
            "no {wanted:?} in\n{}",
            ours.join("\n")
        );
        assert_eq!(ours.join("\n"), theirs.join("\n"), "ours, and tmux's");
    }
}

impl Drop for Twice<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn trimmed(screen: &str) -> Vec<String> {
    let mut lines: Vec<String> = screen
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[test]
fn vim_edits_scrolls_and_splits() {
    let host = Host::new();
    let _agent = host.start_agent();
    let lines: String = (1..=200)
        .map(|n| format!("line {n} with some text and a 世界\n"))
        .collect();
    host.file("file.txt", &lines);
    let twice = Twice::start(&host, "vim -u NONE -N -n file.txt");
    twice.agree("line 20");
    twice.type_in("50Gzz");
    twice.agree("line 60");
    twice.type_in(":split\r\x17j:set number\r3dd");
    twice.agree("56 line 59");
    twice.type_in("ihello \u{e9}\x1b:%s/text/TEXT/g\r");
    twice.agree("TEXT");
    twice.type_in(":q!\r:q!\r");
}

#[test]
fn less_pages_searches_and_leaves_its_screen() {
    let host = Host::new();
    let _agent = host.start_agent();
    let lines: String = (1..=500)
        .map(|n| format!("{n} {}\n", "word ".repeat(n % 40)))
        .collect();
    host.file("long.txt", &lines);
    let twice = Twice::start(&host, "sh -c 'less long.txt; echo AFTER; cat'");
    twice.agree("1 word");
    twice.type_in("  ");
    twice.agree("50 word");
    twice.type_in("/^400\r");
    twice.agree("400");
    twice.type_in("G");
    twice.agree("500");
    twice.type_in("q");
    twice.agree("AFTER");
}

#[test]
fn python_repl_completes_recalls_and_breaks() {
    let host = Host::new();
    let _agent = host.start_agent();
    let twice = Twice::start(&host, "python3 -q");
    twice.agree(">>>");
    twice.type_in("print('\u{4e16}' * 60)\r");
    twice.agree("\u{4e16}");
    twice.type_in("\x10\x01x = \x05\r1/0\r");
    twice.agree("ZeroDivisionError");
}

#[test]
fn zsh_edits_a_line_that_wraps_and_searches_its_history() {
    let host = Host::new();
    let _agent = host.start_agent();
    let twice = Twice::start(&host, "zsh -f");
    twice.agree("$");
    twice.type_in("PROMPT='> '\r");
    twice.agree(">");
    twice.type_in(&format!("echo {}", "abcdefghij ".repeat(14)));
    twice.agree("abcdefghij");
    twice.type_in("\x01\x1bf\x1bf\x1bdX\x05Y\r");
    twice.agree(" Y");
    twice.type_in("\x12abc");
    twice.agree("bck-i-search");
}

#[test]
fn fish_colours_completes_and_edits_a_line_that_wraps() {
    let host = Host::new();
    let _agent = host.start_agent();
    host.file("a-file-with-a-long-name.txt", "");
    let twice = Twice::start(
        &host,
        "fish --no-config --private -C 'function fish_prompt; echo \"> \"; end; set fish_greeting'",
    );
    twice.agree(">");
    twice.type_in("ls a-fi\t");
    twice.agree("ls a-file-with-a-long-name.txt");
    twice.type_in(&"abcdefghij ".repeat(14));
    twice.agree("abcdefghij");
    twice.type_in("\x01\x1bf\x1bf\x1bdX\x05Y");
    twice.agree(" Y");
    twice.type_in("\x15echo se(math 1 + 1)en\r");
    twice.agree("se2en");
}

/// A server of one connection that needs no port, with a key that has a passphrase.
fn ssh_command(host: &Host) -> String {
    let dir = host.dir().to_str().expect("a path");
    for (name, passphrase) in [("host_key", ""), ("key", "open sesame")] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", passphrase, "-f"])
            .arg(host.dir().join(name))
            .status()
            .expect("run ssh-keygen");
        assert!(made.success());
    }
    // Its package makes this folder only where the service starts; without root it is not needed.
    let _ = std::fs::create_dir("/run/sshd");
    let config = format!(
        "HostKey {dir}/host_key\nAuthorizedKeysFile {dir}/key.pub\nStrictModes no\nUsePAM no\n\
         PermitRootLogin yes\nPasswordAuthentication no\nPidFile none\nPrintMotd no\nPrintLastLog no\n"
    );
    host.file("sshd_config", &config);
    format!(
        "ssh -F none -tt -q -i {dir}/key -o IdentitiesOnly=yes -o UserKnownHostsFile={dir}/known \
         -o StrictHostKeyChecking=accept-new -o 'ProxyCommand=/usr/sbin/sshd -i -f {dir}/sshd_config' \
         twin \"PS1='far> ' sh\""
    )
}

#[test]
fn ssh_asks_for_its_passphrase_and_carries_size_and_screens() {
    let host = Host::new();
    let _agent = host.start_agent();
    let twice = Twice::start(&host, &ssh_command(&host));
    twice.agree("Enter passphrase for key");
    // One look may fall between the prompt and the terminal's new settings; the next one does not.
    wait_for("ssh to show as waiting for a secret", || {
        let state = host.json(&["ls", "--json"])["sessions"][0]["attention"].clone();
        (state["state"] == "waiting" && state["kind"] == "auth").then_some(())
    });
    twice.type_in("open sesame\r");
    twice.agree("far>");
    twice.type_in("stty size; echo $TERM\r");
    twice.agree(&format!("{ROWS} {COLS}"));
    twice.agree("xterm-256color");
    twice.type_in("vim -u NONE -N -n\r");
    twice.agree("~");
    twice.type_in("ihello from afar\x1b");
    twice.agree("hello from afar");
    twice.type_in(":q!\r");
    twice.agree("far>");
    twice.type_in("exit\r");
    assert!(
        host.run(&["wait", "twin", "--for", "exit", "--timeout", "30s"])
            .status
            .success()
    );
}

#[test]
fn htop_draws_its_frame_alike() {
    let host = Host::new();
    let _agent = host.start_agent();
    let twice = Twice::start(&host, "htop -d 100");
    // Figures and processes differ from moment to moment; where things stand does not.
    let frame = |screen: Vec<String>| {
        let header = screen.iter().position(|line| line.contains("PID USER"));
        let keys = screen.last().cloned().unwrap_or_default();
        vec![format!("{header:?}"), keys]
    };
    twice.agree_on("F10Quit", frame);
    twice.type_in("\x1bOP");
    let help = |screen: Vec<String>| {
        let of_keys = |line: &String| line.contains("sort");
        screen.into_iter().filter(of_keys).collect()
    };
    twice.agree_on("invert sort order", help);
    twice.type_in("qq");
}

#[test]
fn binary_data_leaves_both_alike_and_the_terminal_usable() {
    let host = Host::new();
    let _agent = host.start_agent();
    // Deterministic noise without the bytes that start device control strings, whose handling differs
    // by design; the grid's own tests feed those.
    let mut seed = 12_345_u32;
    let noise: Vec<u8> = (0..20_000)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        })
        .filter(|byte| !matches!(byte, 0x0e | 0x0f | 0x1b | 0x80..=0xff))
        .collect();
    std::fs::write(host.dir().join("noise"), noise).expect("write");
    let twice = Twice::start(
        &host,
        "sh -c 'stty -echo; cat noise; printf \"\\033c\"; echo CLEAN; cat'",
    );
    twice.agree("CLEAN");
    twice.type_in("still here\r");
    twice.agree("still here");
}

#[test]
fn tmux_runs_inside_of_a_session() {
    let host = Host::new();
    let _agent = host.start_agent();
    let inner = format!(
        "tmux -S {}/inner -f /dev/null new-session sh",
        host.dir().display()
    );
    host.json(&[
        "new", "--json", "--name", "outer", "--size", "100x30", "--", "sh", "-c", &inner,
    ]);
    let shown = |wanted: &str| {
        let waited = host.run(&["wait", "outer", "--for", wanted, "--timeout", "30s"]);
        assert!(
            waited.status.success(),
            "{}",
            text(&host.run(&["read", "outer"]))
        );
    };
    shown("[0] 0:");
    host.run(&["send", "outer", "--raw", "--", "\x02%"]);
    shown("\u{2502}");
    host.run(&["send", "outer", "--raw", "--", "echo in$((1+1))side\r"]);
    shown("in2side");
    // Keys that come together count as a paste, in which tmux looks for no prefix.
    host.run(&["send", "outer", "--raw", "--", "\x02:"]);
    host.run(&["send", "outer", "--raw", "--", "kill-server\r"]);
    assert!(
        host.run(&["wait", "outer", "--for", "exit", "--timeout", "30s"])
            .status
            .success()
    );
}

#[test]
fn polled_position_report_does_not_end_in_the_shell() {
    let host = Host::new();
    let _agent = host.start_agent();
    let poller = host.file(
        "poll.py",
        "import os, sys, termios, tty\nold = termios.tcgetattr(0)\ntty.setraw(0)\nfor _ in range(20):\n    os.write(1, b'\\x1b[6n')\n    got = b''\n    while not got.endswith(b'R'):\n        got += os.read(0, 1)\ntermios.tcsetattr(0, termios.TCSADRAIN, old)\nprint('POLLED')\n",
    );
    let script = format!(
        "PS1='prompt> ' bash --norc --noprofile -i; true {}",
        poller.display()
    );
    host.json(&[
        "new", "--json", "--name", "shell", "--", "sh", "-c", &script,
    ]);
    assert!(
        host.run(&["wait", "shell", "--for", "prompt>", "--timeout", "30s"])
            .status
            .success()
    );
    host.run(&[
        "send",
        "shell",
        "--enter",
        &format!("python3 {}", poller.display()),
    ]);
    assert!(
        host.run(&["wait", "shell", "--for", "POLLED", "--timeout", "30s"])
            .status
            .success()
    );
    host.run(&["send", "shell", "--enter", "echo after"]);
    let shown = wait_for("the shell to go on", || {
        let shown = String::from_utf8_lossy(&host.run(&["read", "shell"]).stdout).into_owned();
        shown.contains("\nafter").then_some(shown)
    });
    assert!(!shown.contains(";1R") && !shown.contains("R^["), "{shown}");
}
