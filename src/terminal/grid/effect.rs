//! What output asks of the owner of a grid.

use serde::{Deserialize, Serialize};

/// Something that happened in the output, in the order of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bytes for the program's input: the answer to a query. Only from `Role::Host`.
    Reply(Vec<u8>),
    Bell,
    /// The title changed; `None` after a reset.
    Title(Option<String>),
    /// OSC 52 with text; the owner decides by permission. `selection` is `c`, `p`, `s` or another letter.
    ClipboardSet {
        selection: char,
        text: String,
    },
    /// OSC 52 with `?`; an answer has the form of [`super::clipboard_answer`]. Only from `Role::Host`.
    ClipboardQuery {
        selection: char,
        terminator: String,
    },
    Notify {
        source: NoticeSource,
        title: Option<String>,
        body: String,
    },
    /// OSC 7501: a program says what it is doing.
    ProgramStatus(ProgramStatus),
    /// OSC 133: where prompts, input and output begin.
    PromptMark(PromptMark),
    /// OSC 7, or OSC 9;9: the address or path as the program gave it.
    WorkingDirectory(String),
    Progress(Progress),
    /// The alternate screen was entered or left.
    AlternateScreen(bool),
    /// A synchronized update began or ended.
    Synchronized(bool),
    /// The program reset the terminal.
    Reset,
    /// The emulator failed on the output and was replaced by an empty one.
    Failed,
}

/// Which sequence a notification came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeSource {
    Osc9,
    Osc99,
    Osc777,
}

/// The fields of OSC 7501; what was not given is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramStatus {
    /// `idle`, `working`, `done`, `blocked`, `error` or `clear`, as given.
    pub state: Option<String>,
    pub app: Option<String>,
    /// `permission`, `question` or `auth`, as given.
    pub kind: Option<String>,
    /// Decoded from base64.
    pub message: Option<String>,
    /// Everything behind `7501;`.
    pub raw: String,
}

/// A mark of shell integration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptMark {
    /// A: the prompt begins.
    Prompt,
    /// B: the prompt ends, the person's input begins.
    Input,
    /// C: the input ends, output begins.
    Output,
    /// D: the command ended, with this exit code where one was given.
    Done { exit: Option<i32> },
}

/// OSC 9;4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    Off,
    /// Percent, 0 to 100.
    At(u8),
    /// An error, with the percent if one was given.
    Failed(u8),
    Indeterminate,
    Paused(u8),
}
