//! Holders as real processes with real programs on their terminals.

mod input;
mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use wingman::base::{EpochMillis, Secret, limits};
use wingman::platform::pty::{ProcessExit, PtySize, SessionStream, Waiting};
use wingman::terminal::holder::{
    Block, ErrorCode, FromHolder, HolderError, Meta, NewCheckpoint, PROTOCOL, Position, Reader,
    SessionState, Spec, Stat, ToHolder, Writer, Zygote, connect, last_screen, protocol, scan,
    spawn_direct, state_of,
};

use crate::support::wait_for;

const SIZE: PtySize = PtySize { cols: 80, rows: 24 };

fn executable() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_wingman"))
}

/// A session in a folder of its own; what it started ends with it.
struct Session {
    dir: TempDir,
    folder: PathBuf,
}

impl Session {
    fn start(argv: &[&str]) -> Self {
        Self::with(argv, |_| {}).unwrap()
    }

    /// `sh -c`.
    fn shell(script: &str) -> Self {
        Self::start(&["sh", "-c", script])
    }

    fn with(argv: &[&str], change: impl FnOnce(&mut Spec)) -> Result<Self, HolderError> {
        let dir = tempfile::tempdir().unwrap();
        let mut spec = Spec {
            id: "s1".into(),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            cwd: dir.path().to_owned(),
            env: BTreeMap::new(),
            size: SIZE,
            name: None,
            created_at: EpochMillis(0),
        };
        change(&mut spec);
        let folder = spec.create(&dir.path().join("sessions")).unwrap();
        let session = Self { dir, folder };
        Zygote::start(executable())?.spawn(&session.folder)?;
        Ok(session)
    }

    fn sessions(&self) -> PathBuf {
        self.dir.path().join("sessions")
    }

    fn meta(&self) -> Meta {
        match state_of(&self.folder) {
            SessionState::Live { meta } => meta,
            other => panic!("not live: {other:?}"),
        }
    }

    fn connect(&self) -> Agent {
        let (reader, writer) = connect(&self.folder).unwrap();
        Agent {
            reader,
            writer,
            seen: 0,
        }
    }

    /// Connected and told everything from the start.
    fn attach(&self) -> Agent {
        let agent = self.connect();
        agent.writer.subscribe(Position::default()).unwrap();
        agent
    }

    fn wait_ended(&self) -> ProcessExit {
        wait_for("the session's end", || match state_of(&self.folder) {
            SessionState::Ended { exit } => exit.map(|ended| ended.exit),
            _ => None,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let meta = fs::read(self.folder.join("meta.json")).ok();
        let Some(meta) = meta.and_then(|bytes| serde_json::from_slice::<Meta>(&bytes).ok()) else {
            return;
        };
        if matches!(state_of(&self.folder), SessionState::Live { .. })
            && let Ok((mut reader, writer)) = connect(&self.folder)
            && writer.kill().is_ok()
        {
            while let Ok(Some(frame)) = reader.next() {
                if matches!(frame, FromHolder::Killed { .. }) {
                    return;
                }
            }
        }
        if state_of(&self.folder) != (SessionState::Ended { exit: None })
            && let Some(pid) = i32::try_from(meta.holder).ok().and_then(Pid::from_raw)
            && !matches!(state_of(&self.folder), SessionState::Ended { .. })
        {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Blocks of history with their numbers.
type Blocks = Vec<(u64, Vec<u8>)>;

struct Agent {
    reader: Reader,
    writer: Writer,
    /// The end of the output that it was sent.
    seen: u64,
}

impl Agent {
    fn input(&self, text: &str) {
        self.writer.input(text.as_bytes()).unwrap();
    }

    /// Output from here on until it holds `needle`; all of it.
    fn output_until(&mut self, needle: &str) -> String {
        let mut bytes = Vec::new();
        loop {
            match self.reader.next().unwrap().expect("the holder goes on") {
                FromHolder::Output { bytes: more, .. } => bytes.extend_from_slice(more),
                FromHolder::Exit { .. } => panic!("ended before {needle:?} in {bytes:?}"),
                _ => {}
            }
            let text = String::from_utf8_lossy(&bytes);
            if text.contains(needle) {
                return text.into_owned();
            }
        }
    }

    /// All output until the exit, and the exit.
    fn read_on_to_the_end(&mut self) -> (Vec<u8>, ProcessExit) {
        let mut bytes = Vec::new();
        loop {
            match self.reader.next().unwrap().expect("an exit comes first") {
                FromHolder::Output { bytes: more, .. } => bytes.extend_from_slice(more),
                FromHolder::Exit { exit, offset } => {
                    assert_eq!(offset, bytes.len() as u64, "told from the start");
                    return (bytes, exit);
                }
                _ => {}
            }
        }
    }

    fn next_of<T>(&mut self, mut pick: impl FnMut(FromHolder<'_>) -> Option<T>) -> T {
        let seen = &mut self.seen;
        next_of(&mut self.reader, |frame| {
            if let FromHolder::Output { offset, bytes } = frame {
                *seen = offset + bytes.len() as u64;
            }
            pick(frame)
        })
    }

    fn stat(&mut self) -> Stat {
        self.writer.stat().unwrap();
        self.next_of(|frame| match frame {
            FromHolder::Stat(stat) => Some(stat),
            _ => None,
        })
    }

    fn stored(&mut self) -> Position {
        self.next_of(|frame| match frame {
            FromHolder::Stored(at) => Some(at),
            FromHolder::Error { text, .. } => panic!("{text}"),
            _ => None,
        })
    }

    /// The stored screen and the numbers of its blocks.
    fn checkpoint(&mut self) -> (Position, Vec<u8>, Blocks) {
        self.writer.fetch_checkpoint().unwrap();
        let (mut screen, mut blocks, mut place) = (Vec::new(), Vec::new(), Position::default());
        self.next_of(|frame| {
            match frame {
                FromHolder::CheckpointBegin { at, .. } => place = at,
                FromHolder::CheckpointScreen(bytes) => screen.extend_from_slice(bytes),
                FromHolder::CheckpointBlock { id, bytes } => blocks.push((id, bytes.to_vec())),
                FromHolder::CheckpointEnd => return Some(()),
                _ => {}
            }
            None
        });
        (place, screen, blocks)
    }
}

/// Reads on until `pick` finds what it looks for.
fn next_of<T>(reader: &mut Reader, mut pick: impl FnMut(FromHolder<'_>) -> Option<T>) -> T {
    loop {
        let frame = reader.next().unwrap().expect("the holder goes on");
        if let Some(found) = pick(frame) {
            return found;
        }
    }
}

/// An agent that sends what no agent of ours would.
struct RawAgent(SessionStream);

impl RawAgent {
    fn open(folder: &Path) -> Self {
        Self(SessionStream::connect(&folder.join("sock")).unwrap())
    }

    fn greet(folder: &Path, protocol: u16) -> Self {
        let raw = Self::open(folder);
        raw.send(&[ToHolder::Hello { protocol }]);
        raw
    }

    /// Greeted, and served from here on.
    fn connect(folder: &Path) -> Self {
        let raw = Self::greet(folder, PROTOCOL);
        assert!(raw.0.receive(&mut [0; 512]).unwrap() > 0);
        raw
    }

    fn send(&self, frames: &[ToHolder<'_>]) {
        let mut bytes = Vec::new();
        for frame in frames {
            frame.put(&mut bytes);
        }
        self.bytes(&bytes);
    }

    fn bytes(&self, bytes: &[u8]) {
        self.0.send(bytes).unwrap();
    }

    /// Waits for an error, which is all that a connection without a subscription is told, but for the
    /// word that no input waits.
    fn error(&self) {
        let mut bytes = Vec::new();
        loop {
            while let Some(raw) = protocol::cut(&bytes).unwrap() {
                match protocol::from_holder(raw).unwrap() {
                    FromHolder::Taken(_) => {}
                    FromHolder::Error { .. } => return,
                    frame => panic!("{frame:?}"),
                }
                let length = protocol::HEADER_LEN + raw.body.len();
                bytes.drain(..length);
            }
            let mut more = [0; 512];
            let length = self.0.receive(&mut more).unwrap();
            assert!(length > 0, "it ended without an error");
            bytes.extend_from_slice(&more[..length]);
        }
    }

    /// Waits until the holder has closed the connection.
    fn ends(&self) {
        while self.0.receive(&mut [0; 512]).is_ok_and(|length| length > 0) {}
    }
}

#[test]
fn what_is_typed_comes_back() {
    let session = Session::start(&["cat"]);
    let mut agent = session.attach();
    agent.input("hello\r");
    let text = agent.output_until("hello\r\nhello\r\n");
    assert_eq!(text, "hello\r\nhello\r\n");
}

#[test]
fn a_fresh_process_without_a_zygote_holds_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let spec = Spec {
        id: "d".into(),
        argv: vec!["cat".into()],
        cwd: "/".into(),
        env: BTreeMap::new(),
        size: SIZE,
        name: None,
        created_at: EpochMillis(0),
    };
    let folder = spec.create(&dir.path().join("sessions")).unwrap();
    let child = spawn_direct(executable(), &folder).unwrap();
    let session = Session { dir, folder };
    assert_eq!(session.meta().child, child);
    let mut agent = session.attach();
    agent.input("x\r");
    agent.output_until("x\r\nx\r\n");
}

#[test]
fn a_thousand_cut_connections_lose_and_double_no_byte() {
    let session = Session::shell("stty raw; i=0; while :; do echo line $i; i=$((i+1)); done");
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut bytes: Vec<u8> = Vec::new();
    let mut here = |agent: &mut Agent, random: &mut dyn FnMut(u64) -> u64| {
        agent.seen = bytes.len() as u64;
        let at = |offset| Position { offset, mark: 0 };
        agent.writer.subscribe(at(agent.seen)).unwrap();
        // The connection is cut after any frame, and in the middle of any checkpoint.
        for _ in 0..=random(5) {
            agent.next_of(|frame| match frame {
                FromHolder::Output {
                    offset,
                    bytes: more,
                } => {
                    assert_eq!(offset, bytes.len() as u64);
                    bytes.extend_from_slice(more);
                    Some(())
                }
                _ => None,
            });
            if random(3) == 0 {
                let new = NewCheckpoint {
                    at: at(agent.seen),
                    screen: &vec![1; usize::try_from(random(100_000)).unwrap()],
                    append: &[],
                    keep_from: 0,
                };
                agent.writer.checkpoint(&new).unwrap();
            }
        }
    };
    for _ in 0..1_000 {
        here(&mut session.connect(), &mut random);
    }
    // Only whole lines are compared; the flood was cut somewhere.
    let text = String::from_utf8(bytes).unwrap();
    let whole = &text[..=text.rfind('\n').unwrap()];
    for (number, line) in whole.lines().enumerate() {
        assert_eq!(line, format!("line {number}"));
    }
}

#[test]
fn a_full_ring_stops_the_program_and_a_checkpoint_lets_it_go_on() {
    let total = 12 * 1024 * 1024;
    let session = Session::shell(&format!("stty raw; head -c {total} /dev/zero; exec cat"));
    let mut agent = session.attach();
    let limit = limits::HOLDER_RING_LEN_MAX;
    let slack = limits::HOLDER_CHUNK_LEN as u64;
    let until = |agent: &mut Agent, offset: u64| {
        while agent.seen < offset {
            agent.next_of(|frame| matches!(frame, FromHolder::Output { .. }).then_some(()));
        }
    };
    until(&mut agent, limit);
    let stat = agent.stat();
    assert!(stat.next.offset <= limit + slack, "{stat:?}");
    let mut at = stat.next;
    while at.offset < total {
        until(&mut agent, at.offset);
        let new = NewCheckpoint {
            at,
            screen: b"screen",
            append: &[],
            keep_from: 0,
        };
        agent.writer.checkpoint(&new).unwrap();
        assert_eq!(agent.stored(), at);
        at.offset = (at.offset + limit).min(total);
        until(&mut agent, at.offset);
    }
    agent.input("on");
    agent.output_until("on");
    assert!(agent.stat().first > 0, "old output was let go");
}

#[test]
fn a_checkpoint_that_is_cut_leaves_the_former_one() {
    let session = Session::shell("printf 0123456789; exec cat");
    let mut agent = session.attach();
    agent.output_until("0123456789");
    let at = |offset| Position { offset, mark: 0 };
    let block = |id, bytes| Block { id, bytes };
    let first = NewCheckpoint {
        at: at(4),
        screen: b"first",
        append: &[block(1, b"one"), block(2, b"two")],
        keep_from: 0,
    };
    agent.writer.checkpoint(&first).unwrap();
    assert_eq!(agent.stored(), at(4));
    let stored = (
        at(4),
        b"first".to_vec(),
        vec![(1, b"one".to_vec()), (2, b"two".to_vec())],
    );
    assert_eq!(agent.checkpoint(), stored);
    // Half of a checkpoint, then the connection ends.
    let raw = RawAgent::connect(&session.folder);
    raw.send(&[
        ToHolder::CheckpointBegin {
            at: at(8),
            screen_len: 100,
            keep_from: 2,
        },
        ToHolder::CheckpointScreen(b"half"),
        ToHolder::CheckpointBlock {
            id: 3,
            bytes: b"three",
        },
    ]);
    drop(raw);
    let mut agent = session.connect();
    assert_eq!(agent.checkpoint(), stored);
    // A commit after too little is refused; so is one at a place that has not come.
    let raw = RawAgent::connect(&session.folder);
    raw.send(&[
        ToHolder::CheckpointBegin {
            at: at(8),
            screen_len: 100,
            keep_from: 2,
        },
        ToHolder::CheckpointCommit,
    ]);
    raw.error();
    drop(raw);
    let mut agent = session.connect();
    let late = NewCheckpoint {
        at: at(11),
        ..first
    };
    agent.writer.checkpoint(&late).unwrap();
    let code = agent.next_of(|frame| match frame {
        FromHolder::Error { code, .. } => Some(code),
        _ => None,
    });
    assert_eq!(code, ErrorCode::CheckpointInvalid);
    assert_eq!(agent.checkpoint(), stored);
    let second = NewCheckpoint {
        at: at(10),
        screen: b"second",
        append: &[block(3, b"three")],
        keep_from: 2,
    };
    agent.writer.checkpoint(&second).unwrap();
    let blocks = vec![(2, b"two".to_vec()), (3, b"three".to_vec())];
    assert_eq!(agent.checkpoint(), (at(10), b"second".to_vec(), blocks));
}

#[test]
fn an_exit_code_and_the_last_screen_stay_when_the_agent_was_away() {
    let session = Session::shell("printf before; read line; printf after; exit 7");
    let mut agent = session.attach();
    agent.output_until("before");
    let new = NewCheckpoint {
        at: Position { offset: 3, mark: 0 },
        screen: b"the screen",
        append: &[],
        keep_from: 0,
    };
    agent.writer.checkpoint(&new).unwrap();
    agent.stored();
    agent.input("\r");
    drop(agent);
    assert_eq!(session.wait_ended(), ProcessExit::Code(7));
    let mut last = last_screen(&session.folder).unwrap();
    let (mut screen, mut tail) = (Vec::new(), Vec::new());
    let exit = next_of(&mut last, |frame| match frame {
        FromHolder::CheckpointScreen(bytes) => {
            screen.extend_from_slice(bytes);
            None
        }
        FromHolder::Output { bytes, .. } => {
            tail.extend_from_slice(bytes);
            None
        }
        FromHolder::Exit { exit, .. } => Some(exit),
        _ => None,
    });
    assert_eq!(screen, b"the screen");
    assert_eq!(String::from_utf8_lossy(&tail), "ore\r\nafter");
    assert_eq!(exit, ProcessExit::Code(7));
    assert!(!session.folder.join("sock").exists());
}

#[test]
fn a_signal_is_told_and_a_forgotten_session_leaves_nothing() {
    let session = Session::shell("kill -SEGV $$");
    let mut agent = session.attach();
    let (_, exit) = agent.read_on_to_the_end();
    assert_eq!(exit, ProcessExit::Signal(11));
    agent.writer.forget().unwrap();
    wait_for("the folder's end", || {
        (!session.folder.exists()).then_some(())
    });
    assert!(scan(&session.sessions()).unwrap().is_empty());
}

#[test]
fn a_session_that_runs_is_not_forgotten() {
    let session = Session::start(&["cat"]);
    let mut agent = session.attach();
    agent.writer.forget().unwrap();
    let code = agent.next_of(|frame| match frame {
        FromHolder::Error { code, .. } => Some(code),
        _ => None,
    });
    assert_eq!(code, ErrorCode::StillRunning);
    agent.input("on\r");
    agent.output_until("on\r\non\r\n");
}

#[test]
fn kill_ends_a_group_that_ignores_being_asked() {
    let script = "trap '' TERM HUP; (trap '' TERM HUP; echo child $BASHPID ready; sleep 1000) & wait; sleep 1000";
    let session = Session::start(&["bash", "-c", script]);
    let mut agent = session.attach();
    let text = agent.output_until(" ready");
    let child: u32 = text.split(' ').nth(1).unwrap().parse().unwrap();
    agent.writer.kill().unwrap();
    let (asked, forced) = agent.next_of(|frame| match frame {
        FromHolder::Killed { asked, forced } => Some((asked, forced)),
        _ => None,
    });
    assert!(asked >= 1 && forced >= 2, "{asked} {forced}");
    wait_for("the grandchild's end", || {
        (!is_running(child)).then_some(())
    });
    let exit = agent.next_of(|frame| match frame {
        FromHolder::Exit { exit, .. } => Some(exit),
        _ => None,
    });
    assert_eq!(exit, ProcessExit::Signal(9));
}

#[test]
fn kill_of_a_program_that_listens_forces_nobody() {
    let session = Session::start(&["sleep", "1000"]);
    let mut agent = session.attach();
    agent.writer.kill().unwrap();
    let forced = agent.next_of(|frame| match frame {
        FromHolder::Killed { forced, .. } => Some(forced),
        _ => None,
    });
    assert_eq!(forced, 0);
    let (_, exit) = agent.read_on_to_the_end();
    assert!(matches!(exit, ProcessExit::Signal(15 | 1)), "{exit:?}");
}

#[test]
fn term_to_the_holder_ends_the_session_in_order() {
    let session = Session::shell("printf x; exec sleep 1000");
    session.attach().output_until("x");
    let holder = i32::try_from(session.meta().holder).unwrap();
    let holder = Pid::from_raw(holder).unwrap();
    for signal in [Signal::HUP, Signal::INT] {
        kill_process(holder, signal).unwrap();
    }
    session.attach().output_until("x");
    kill_process(holder, Signal::TERM).unwrap();
    assert!(matches!(session.wait_ended(), ProcessExit::Signal(_)));
}

fn is_running(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn the_agent_killed_in_a_flood_is_followed_by_one_that_misses_nothing() {
    // The zygote and the first agent are gone; the holder is what is left.
    let session =
        Session::shell("stty raw; i=0; while [ $i -lt 50000 ]; do echo line $i; i=$((i+1)); done");
    let (tell, told) = mpsc::channel();
    let folder = session.folder.clone();
    let thread = std::thread::spawn(move || {
        let (mut reader, writer) = connect(&folder).unwrap();
        writer.subscribe(Position::default()).unwrap();
        let mut bytes = Vec::new();
        while let Ok(Some(frame)) = reader.next() {
            if let FromHolder::Output { bytes: more, .. } = frame {
                bytes.extend_from_slice(more);
                // The receiver may have heard enough.
                let _ = tell.send(());
            }
        }
        bytes
    });
    told.recv().unwrap();
    // The next agent takes the place of the first, whose reader then comes to its end.
    let mut next = session.connect();
    let mut bytes = thread.join().unwrap();
    let from = Position {
        offset: bytes.len() as u64,
        mark: 0,
    };
    next.writer.subscribe(from).unwrap();
    let exit = next.next_of(|frame| match frame {
        FromHolder::Output {
            offset,
            bytes: more,
        } => {
            assert_eq!(offset, bytes.len() as u64);
            bytes.extend_from_slice(more);
            None
        }
        FromHolder::Exit { exit, .. } => Some(exit),
        _ => None,
    });
    assert_eq!(exit, ProcessExit::Code(0));
    let expected: String = (0..50_000).map(|at| format!("line {at}\n")).collect();
    assert!(bytes == expected.as_bytes());
}

#[test]
fn old_output_can_be_fetched_and_is_told_when_it_is_gone() {
    let session = Session::shell("printf abcdefghij; exec cat");
    let mut agent = session.attach();
    agent.output_until("j");
    agent.writer.fetch(2, 5).unwrap();
    let fetched = agent.next_of(|frame| match frame {
        FromHolder::Fetched { from, last, bytes } => Some((from, last, bytes.to_vec())),
        _ => None,
    });
    assert_eq!(fetched, (2, true, b"cdefg".to_vec()));
    agent.writer.fetch(8, 500).unwrap();
    let fetched = agent.next_of(|frame| match frame {
        FromHolder::Fetched { from, bytes, .. } => Some((from, bytes.to_vec())),
        _ => None,
    });
    assert_eq!(fetched, (8, b"ij".to_vec()));
}

#[test]
fn a_change_of_size_stands_in_the_stream_and_signals_the_program() {
    let script = "trap 'stty size' WINCH; echo ready; while :; do read line; done";
    let session = Session::start(&["bash", "-c", script]);
    let mut agent = session.attach();
    agent.output_until("ready");
    let size = PtySize {
        cols: 100,
        rows: 30,
    };
    agent.writer.resize(size).unwrap();
    let at = agent.next_of(|frame| match frame {
        FromHolder::Resized { at, size: told } => {
            assert_eq!(told, size);
            Some(at)
        }
        _ => None,
    });
    assert_eq!(at.mark, 1);
    // bash runs a trap once its `read` comes back.
    agent.input("\r");
    agent.output_until("30 100");
    // Another agent is told it again, unless it says that it has seen it.
    let mut agent = session.attach();
    let again = agent.next_of(|frame| match frame {
        FromHolder::Resized { at, .. } => Some(at),
        _ => None,
    });
    assert_eq!(again, at);
    assert_eq!(agent.reader.hello().size, size);
    agent.writer.subscribe(at).unwrap();
    agent.writer.input(b"\r").unwrap();
    let frame = agent.next_of(|frame| match frame {
        FromHolder::Output { offset, .. } => Some(offset),
        FromHolder::Resized { .. } => panic!("seen already"),
        _ => None,
    });
    assert!(frame >= at.offset);
}

#[test]
fn the_program_sees_its_own_environment_folder_size_and_session() {
    let script = "echo \"$TERM/$COLORTERM/$TERM_PROGRAM/$WINGMAN_SESSION/$KEY/[$TMUX]\"; pwd; stty size; \
        ps -o pid=,pgid=,sid=,tty= -p $$ | tr -s ' '; tty; \
        python3 -c 'import os; print(\"fds:\", *sorted(os.listdir(\"/proc/self/fd\")))'; \
        grep -E '^Sig(Blk|Ign)' /proc/self/status; exec cat";
    let session = Session::with(&["sh", "-c", script], |spec| {
        spec.env = BTreeMap::from([("KEY".to_owned(), Secret::new("value"))]);
    })
    .unwrap();
    let child = session.meta().child;
    let mut agent = session.attach();
    let text = agent
        .output_until("SigIgn:\t0000000000000000")
        .replace('\r', "");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "xterm-256color/truecolor/wingman/s1/value/[]");
    assert_eq!(
        lines[1],
        fs::canonicalize(session.dir.path())
            .unwrap()
            .to_str()
            .unwrap()
    );
    assert_eq!(lines[2], "24 80");
    assert!(
        lines[3]
            .trim()
            .starts_with(&format!("{child} {child} {child} pts/")),
        "{text}"
    );
    assert!(lines[4].starts_with("/dev/pts/"), "{text}");
    // 3 is the folder that is being listed.
    assert_eq!(lines[5].trim(), "fds: 0 1 2 3", "{text}");
    assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
}

#[test]
fn a_shell_controls_its_jobs() {
    let session = Session::start(&["bash", "--norc", "-i"]);
    let mut agent = session.attach();
    agent.input("PS1='$ '\r");
    agent.output_until("$ ");
    agent.input("sleep 1000\r");
    let shell = session.meta().child;
    // Asleep: before it is `sleep`, the child is a shell that does not stop.
    let waits = |agent: &mut Agent| {
        let stat = agent.stat();
        let asleep = stat.waiting == Waiting::Other;
        stat.foreground.filter(|group| *group != shell && asleep)
    };
    let job = wait_for("the job in the foreground", || waits(&mut agent));
    agent.input("\u{1a}");
    agent.output_until("Stopped");
    wait_for("the shell in the foreground", || {
        (agent.stat().foreground == Some(shell)).then_some(())
    });
    agent.input("fg\r");
    let again = wait_for("the job in the foreground again", || waits(&mut agent));
    assert_eq!(again, job);
    agent.input("\u{3}");
    wait_for("the prompt's end of line editing", || {
        let stat = agent.stat();
        (stat.foreground == Some(shell) && stat.canonical == Some(false)).then_some(())
    });
    agent.input("exit\r");
    agent.output_until("exit");
}

#[test]
fn a_hidden_prompt_and_a_waiting_program_show_in_stat() {
    let session = Session::shell("stty -echo; echo password:; read line; exec sleep 1000");
    let mut agent = session.attach();
    agent.output_until("password:");
    wait_for("a program that reads", || {
        let stat = agent.stat();
        (stat.waiting == Waiting::TerminalRead).then_some(())
    });
    let stat = agent.stat();
    assert_eq!((stat.echo, stat.canonical), (Some(false), Some(true)));
    agent.input("x\r");
    wait_for("a program that sleeps", || {
        (agent.stat().waiting == Waiting::Other).then_some(())
    });
}

#[test]
fn another_agent_takes_the_place_of_the_first() {
    let session = Session::start(&["cat"]);
    let mut first = session.attach();
    let mut second = session.attach();
    assert!(matches!(first.reader.next(), Ok(Some(_) | None)));
    while let Ok(Some(_)) = first.reader.next() {}
    second.input("second\r");
    second.output_until("second\r\nsecond\r\n");
}

#[test]
fn a_holder_of_another_protocol_is_listed_and_left_alone() {
    let session = Session::start(&["cat"]);
    let meta = session.meta();
    let path = session.folder.join("meta.json");
    let mut other: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    other["protocol"] = 2.into();
    fs::write(&path, other.to_string()).unwrap();
    let found = scan(&session.sessions()).unwrap();
    assert_eq!(found[0].state, SessionState::Incompatible { protocol: 2 });
    fs::write(&path, "nonsense").unwrap();
    assert!(matches!(
        state_of(&session.folder),
        SessionState::Broken { .. }
    ));
    fs::write(&path, serde_json::to_vec(&meta).unwrap()).unwrap();
    // An agent of another protocol does not take the place of one that is served.
    let mut agent = session.attach();
    let raw = RawAgent::greet(&session.folder, 9);
    raw.ends();
    agent.input("still\r");
    agent.output_until("still\r\nstill\r\n");
}

#[test]
fn bytes_that_are_no_protocol_end_their_connection_alone() {
    let session = Session::start(&["cat"]);
    let mut agent = session.attach();
    let raw = RawAgent::open(&session.folder);
    raw.bytes(b"GET / HTTP/1.1\r\n\r\n");
    raw.ends();
    let raw = RawAgent::open(&session.folder);
    raw.bytes(&u32::MAX.to_le_bytes());
    raw.ends();
    agent.input("still\r");
    agent.output_until("still\r\nstill\r\n");
    // A frame of an unknown kind is skipped.
    let raw = RawAgent::connect(&session.folder);
    raw.send(&[ToHolder::Unknown(99), ToHolder::CheckpointCommit]);
    raw.error();
}

#[test]
fn a_long_path_and_a_missing_program_are_no_secret() {
    let name = "n".repeat(120);
    let session = Session::with(&["cat"], |spec| spec.id = name).unwrap();
    assert!(
        !session.folder.join("sock").exists(),
        "moved to a short path"
    );
    let mut agent = session.attach();
    agent.input("x\r");
    agent.output_until("x\r\nx\r\n");
    let failed = |argv: &[&str], cwd: &str| {
        let started = Session::with(argv, |spec| {
            if !cwd.is_empty() {
                spec.cwd = cwd.into();
            }
        });
        match started {
            Err(HolderError::NotStarted(why)) => why,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("started"),
        }
    };
    assert!(failed(&["/no/such/program"], "").contains("/no/such/program"));
    assert!(failed(&["cat"], "/no/such/folder").contains("/no/such/folder"));
    assert!(failed(&[], "").contains("no program"));
}

#[test]
fn a_second_holder_of_one_folder_is_refused() {
    let session = Session::start(&["cat"]);
    let again = Zygote::start(executable()).unwrap().spawn(&session.folder);
    assert!(
        matches!(again, Err(HolderError::NotStarted(_))),
        "{again:?}"
    );
    session.attach().input("x\r");
}

#[test]
fn a_program_that_leaves_others_at_its_terminal_still_ends() {
    let session = Session::start(&[
        "bash",
        "-c",
        "(trap '' HUP; sleep 1000) & printf gone; exit 3",
    ]);
    let mut agent = session.attach();
    let (bytes, exit) = agent.read_on_to_the_end();
    assert_eq!(
        (bytes.as_slice(), exit),
        (&b"gone"[..], ProcessExit::Code(3))
    );
    let left = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let words = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let session_of: u32 = words
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(3)?
            .parse()
            .ok()?;
        (session_of == agent.reader.hello().child).then_some(pid)
    });
    for pid in left.filter_map(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[test]
fn a_zygote_that_was_killed_is_replaced_and_its_sessions_go_on() {
    let first = Session::start(&["cat"]);
    let mut zygote = Zygote::start(executable()).unwrap();
    let pid = i32::try_from(zygote.pid()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let spec = Spec {
        id: "s2".into(),
        ..Spec::read(&first.folder).unwrap()
    };
    let folder = spec.create(&first.sessions()).unwrap();
    let child = zygote.spawn(&folder).unwrap();
    drop(zygote);
    let live: Vec<u32> = scan(&first.sessions())
        .unwrap()
        .into_iter()
        .filter_map(|found| match found.state {
            SessionState::Live { meta } => Some(meta.child),
            _ => None,
        })
        .collect();
    assert_eq!(live, [first.meta().child, child]);
    let (mut reader, writer) = connect(&folder).unwrap();
    writer.kill().unwrap();
    next_of(&mut reader, |frame| {
        matches!(frame, FromHolder::Killed { .. }).then_some(())
    });
}

#[test]
fn a_descriptor_that_the_agent_left_open_is_not_kept_by_the_session() {
    // Made without close-on-exec, as a careless parent does.
    let (reads, writes) = rustix::pipe::pipe().unwrap();
    let session = Session::start(&["cat"]);
    drop(writes);
    // The end is told only once nobody has the other side open.
    assert_eq!(rustix::io::read(&reads, &mut [0; 1]).unwrap(), 0);
    session.attach().input("x\r");
}
