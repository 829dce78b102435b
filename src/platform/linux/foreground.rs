//! What the program at a terminal is doing, from its files in /proc; the machine is not scanned.
//!
//! `syscall` of a process may be read only by its tracer's kin: by a holder for what it started, by an
//! agent only where the kernel's Yama rule is off. Elsewhere the wait channel is read, which is less exact.

use std::fs;

use crate::platform::pty::{ProcessFacts, Waiting};

/// The process that leads a group. Where the leader has ended, a child of `shell` in that group stands
/// for it. `None`: nobody of the group is found so, or it ended meanwhile.
pub fn process_facts(group: u32, shell: u32) -> Option<ProcessFacts> {
    facts(group).or_else(|| {
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).ok()?;
        children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .find(|pid| stat(*pid).is_some_and(|stat| stat.group == group && stat.lives()))
            .and_then(facts)
    })
}

struct Stat {
    name: String,
    state: char,
    group: u32,
    cpu_ticks: u64,
}

impl Stat {
    const fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `pid (name) state ppid pgrp … utime stime …`; the name may hold parentheses and spaces.
fn parse_stat(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(") ")?;
    let name = head.split_once(" (")?.1.to_owned();
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Stat {
        name,
        state: fields.first()?.chars().next()?,
        group: fields.get(2)?.parse().ok()?,
        cpu_ticks: number(11)? + number(12)?,
    })
}

fn facts(pid: u32) -> Option<ProcessFacts> {
    let stat = stat(pid).filter(Stat::lives)?;
    let argv = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let argv = argv.strip_suffix(b"\0").unwrap_or(&argv);
    let argv = match argv {
        [] => Vec::new(),
        argv => argv
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
    };
    Some(ProcessFacts {
        pid,
        waiting: waiting(pid, stat.state),
        name: stat.name,
        argv,
        cwd: fs::read_link(format!("/proc/{pid}/cwd")).ok(),
        cpu_ticks: stat.cpu_ticks,
    })
}

fn waiting(pid: u32, state: char) -> Waiting {
    match state {
        'R' => Waiting::Running,
        'T' | 't' => Waiting::Stopped,
        'S' | 'D' => by_call(pid)
            .or_else(|| by_channel(pid))
            .unwrap_or(Waiting::Unknown),
        _ => Waiting::Unknown,
    }
}

/// By the system call that the process is in, and the descriptor that it reads.
fn by_call(pid: u32) -> Option<Waiting> {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let first = words.next()?;
    if first == "running" {
        return Some(Waiting::Running);
    }
    let number: i64 = first.parse().ok()?;
    let argument = words
        .next()
        .and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    Some(match call_kind(number) {
        Call::Read => {
            let of = fs::read_link(format!("/proc/{pid}/fd/{}", argument?)).ok()?;
            let terminal = of.starts_with("/dev/pts") || of.starts_with("/dev/tty");
            if terminal {
                Waiting::TerminalRead
            } else {
                Waiting::Other
            }
        }
        Call::Poll => Waiting::Events,
        Call::Wait => Waiting::Children,
        Call::Other => Waiting::Other,
    })
}

enum Call {
    Read,
    Poll,
    Wait,
    Other,
}

fn call_kind(number: i64) -> Call {
    const READS: &[i64] = &[libc::SYS_read, libc::SYS_readv];
    const WAITS: &[i64] = &[libc::SYS_wait4, libc::SYS_waitid];
    const POLLS: &[i64] = &[
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
    ];
    // The older calls exist on some processors only.
    #[cfg(target_arch = "x86_64")]
    const OLD_POLLS: &[i64] = &[libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait];
    #[cfg(not(target_arch = "x86_64"))]
    const OLD_POLLS: &[i64] = &[];
    if READS.contains(&number) {
        Call::Read
    } else if WAITS.contains(&number) {
        Call::Wait
    } else if POLLS.contains(&number) || OLD_POLLS.contains(&number) {
        Call::Poll
    } else {
        Call::Other
    }
}

/// By the kernel function that the process sleeps in.
fn by_channel(pid: u32) -> Option<Waiting> {
    let channel = fs::read_to_string(format!("/proc/{pid}/wchan")).ok()?;
    match channel.as_str() {
        "n_tty_read" => Some(Waiting::TerminalRead),
        "do_wait" | "__do_wait" | "kernel_wait4" => Some(Waiting::Children),
        "ep_poll"
        | "do_epoll_wait"
        | "do_sys_poll"
        | "do_poll"
        | "do_select"
        | "poll_schedule_timeout"
        | "core_sys_select" => Some(Waiting::Events),
        "" | "0" | "wait_woken" => None,
        _ => Some(Waiting::Other),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};
    use std::thread::yield_now;

    use super::*;
    use crate::platform::pty::{Program, PtySize};

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn run(words: &[&str]) -> Running {
        let child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Running(child.unwrap())
    }

    fn until(pid: u32, found: impl Fn(&ProcessFacts) -> bool) -> ProcessFacts {
        loop {
            if let Some(facts) = process_facts(pid, pid).filter(&found) {
                return facts;
            }
            yield_now();
        }
    }

    #[test]
    fn a_program_that_reads_its_terminal_is_told_from_one_that_sleeps_or_works() {
        let program = Program {
            argv: vec!["cat".into()],
            cwd: "/".into(),
            env: std::env::vars_os().collect(),
        };
        let size = PtySize { cols: 80, rows: 24 };
        let cat = super::super::pty::Pty::start(&program, size).unwrap();
        let facts = until(cat.child(), |facts| facts.waiting == Waiting::TerminalRead);
        assert_eq!(
            (facts.name.as_str(), facts.argv.as_slice()),
            ("cat", &["cat".to_owned()][..])
        );
        assert_eq!(facts.cwd, Some("/".into()));
        cat.end_session();
        let sleep = run(&["sleep", "1000"]);
        // Until it has become that program it has no arguments, or those of whoever started it.
        until(sleep.0.id(), |facts| {
            facts.waiting == Waiting::Other && facts.argv == ["sleep", "1000"]
        });
        let busy = run(&["sh", "-c", "while :; do :; done"]);
        let facts = until(busy.0.id(), |facts| facts.waiting == Waiting::Running);
        let later = until(busy.0.id(), |now| now.cpu_ticks > facts.cpu_ticks);
        assert_eq!(later.name, "sh");
    }

    #[test]
    fn a_pipe_is_no_terminal_and_a_shell_waits_for_its_child() {
        let mut cat = run(&["cat"]);
        cat.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        let mut byte = [0];
        cat.0
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
        until(cat.0.id(), |facts| facts.waiting == Waiting::Other);
        let shell = run(&["sh", "-c", "cat; true"]);
        until(shell.0.id(), |facts| facts.waiting == Waiting::Children);
    }

    #[test]
    fn a_name_may_hold_anything() {
        let text = "7 (a) b (c) S 1 5 5 0 -1 0 0 0 0 0 11 4 0 0 20 0 1 0 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.name, "a) b (c");
        assert_eq!((stat.state, stat.group, stat.cpu_ticks), ('S', 5, 15));
        assert!(parse_stat("nonsense").is_none());
    }
}
