//! What the machine is told, and what it asks for in return.

use crate::base::{EpochMillis, limits};
use crate::wire::messages::attention::{Attention, WaitKind};

use super::program;

/// Something that happened in a session.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The session began.
    Started,
    /// The program wrote.
    Output {
        bytes: u64,
    },
    /// A person or a script typed; `enter` when a line was sent.
    UserInput {
        bytes: u64,
        enter: bool,
    },
    /// The title, OSC 0 or 2; `None` when it was reset.
    Title(Option<String>),
    Bell,
    Notify(Notify),
    /// OSC 7501 without an id: the program's own record. Reports with an id describe its parts and are no
    /// input of this machine.
    ProgramStatus(ProgramStatus),
    PromptMark(PromptMark),
    /// The terminal and its foreground process, as the node sees them now. Counts at the next `Tick`.
    Probe(ProcessFacts),
    /// The bottom rows of the screen now. Counts at the next `Tick`.
    Screen(ScreenFacts),
    /// The session's first process ended.
    Exited {
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// `Effects::look_at` has come, and what was asked for has been delivered.
    Tick,
}

/// OSC 9, 777 or 99.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// The sequence's number, such as 9.
    pub source: u32,
    pub title: Option<String>,
    pub body: String,
}

impl Notify {
    /// OSC 9 with a number first is a command of ConEmu, such as progress (`4;1;50`), and calls nobody.
    pub(super) fn is_command(&self) -> bool {
        let number = self.body.split_once(';').map(|(number, _)| number);
        let digits = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
        self.source == 9
            && number.is_some_and(|number| (1..=2).contains(&number.len()) && digits(number))
    }
}

/// The words of OSC 7501.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramState {
    Idle,
    Working,
    Blocked,
    Done,
    Error,
    /// The record is withdrawn.
    Clear,
}

/// One OSC 7501 report; it replaces the one before as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStatus {
    pub state: ProgramState,
    pub app: Option<String>,
    /// With `Blocked`.
    pub kind: Option<WaitKind>,
    /// Decoded.
    pub message: Option<String>,
}

/// OSC 133.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptMark {
    /// A: a prompt begins.
    Prompt,
    /// B: the prompt ends, the command line begins.
    Line,
    /// C: the command runs.
    Run,
    /// D: the command ended, with its exit code where the shell says it.
    End(Option<i32>),
}

/// The process that the terminal listens to: the leader of its foreground process group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreground {
    pub pid: u32,
    /// The kernel's short name or the executable's file name.
    pub name: String,
    pub argv0: Option<String>,
    /// The first arguments after argv0; empty when unknown.
    pub arguments: Vec<String>,
    /// A shell that runs no script.
    pub is_shell: bool,
}

impl Foreground {
    /// From what the system tells: `argv` with the program first, or empty when unknown.
    pub fn new(pid: u32, name: impl Into<String>, argv: &[String]) -> Self {
        let cut = |text: &String| text.chars().take(limits::ATTENTION_TEXT_MAX).collect();
        let name = cut(&name.into());
        let arguments: Vec<String> = argv.iter().skip(1).take(8).map(cut).collect();
        Self {
            pid,
            is_shell: program::is_plain_shell(&name, &arguments),
            argv0: argv.first().map(cut),
            arguments,
            name,
        }
    }
}

/// What is known about the terminal and its foreground. Absent is unknown, never false.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    pub foreground: Option<Foreground>,
    /// The foreground waits in a read or a poll of the terminal and of nothing that it works on.
    pub blocked_reading_terminal: Option<bool>,
    /// The terminal echoes what is typed.
    pub echo: Option<bool>,
    /// The terminal gives whole lines.
    pub canonical: Option<bool>,
    /// Processor time of the foreground process group in ticks of any constant size.
    pub cpu_ticks: Option<u64>,
}

/// The screen, plain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenFacts {
    /// Bottom rows without styles, top first.
    pub rows: Vec<String>,
    /// Row and column of the cursor, from 0, row counted in `rows`; `None` when it stands above them.
    pub cursor: Option<(usize, usize)>,
    /// The alternate screen is shown.
    pub alternate: bool,
    pub title: Option<String>,
}

/// What to do after a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The record to publish, when it changed.
    pub changed: Option<Attention>,
    /// When to look next: deliver what is wanted, then `Tick`. `None`: no timer; nothing is due until
    /// something happens. Replaces the time of the step before.
    pub look_at: Option<EpochMillis>,
    /// That look needs `Probe`.
    pub want_probe: bool,
    /// That look needs `Screen`.
    pub want_screen: bool,
}
