//! `session.*`: terminal sessions, the consoles attached to them, and who may type.
//!
//! Records, list envelope and control frames are snake_case, as their source (seed 003) has them;
//! `session.attach` opens a stream whose control pieces are [`Control`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Empty;
use super::attention::{Attention, Explanation};
use crate::base::ids::{AgentId, ConsoleId, TerminalId};
use crate::base::{Timestamp, limits};
use crate::method;

/// What a session's base path is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BaseKind {
    Workspace,
    /// The user's home folder; a base path given with it is ignored.
    #[default]
    Home,
}

/// Whether one console types or all do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseMode {
    /// Every control console types; the size follows the one that typed last.
    #[default]
    Shared,
    /// The holder types, the others watch.
    Exclusive,
}

/// Who may type and whose size counts. Decided by the node alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    pub mode: LeaseMode,
    /// The console that types in exclusive mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<ConsoleId>,
    /// The console whose size the terminal has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_owner: Option<ConsoleId>,
    /// Rises at every change of mode or holder, and never falls.
    pub generation: u64,
}

/// A terminal session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    pub id: TerminalId,
    /// The workstation, by its agent's id; empty for the node that answers on its own wire.
    #[serde(default)]
    pub machine: String,
    pub name: String,
    pub base_path: String,
    pub base_kind: BaseKind,
    /// The program that was started.
    pub shell: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// The folder that the program works in now, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    pub created_at: Timestamp,
    pub cols: u16,
    pub rows: u16,
    /// Consoles that are attached.
    pub attached: u32,
    /// Whether a program other than the shell has the terminal.
    pub foreground: bool,
    /// The name of the program that has the terminal, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    pub pid: u32,
    /// Absent means alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited_at: Option<Timestamp>,
    /// Alive in a holder that speaks another protocol version: it cannot be attached.
    pub incompatible: bool,
    /// Bytes of output so far: the watermark for `since`.
    pub bytes_out: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_output_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_input_at: Option<Timestamp>,
    pub attention: Attention,
    pub lease: Lease,
    /// Whether what is shown is being recorded to a file.
    #[serde(default)]
    pub recording: bool,
}

/// A workstation's share of a list over several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineStatus {
    pub name: String,
    /// The host's name, where the agent has told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    pub ok: bool,
    /// When the sessions of this workstation were last told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListParams {
    /// `all`: the sessions of every workstation that the account may see, and `machines`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The sessions of one workstation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<AgentId>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    pub sessions: Vec<Session>,
    /// Present with `scope=all` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<Vec<MachineStatus>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateParams {
    /// The workstation, where a server is asked and more than one is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<AgentId>,
    /// Shown in lists; unique among the node's sessions. Told from the program when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default)]
    pub base_path: String,
    #[serde(default)]
    pub base_kind: BaseKind,
    /// A folder below the base path.
    #[serde(default)]
    pub rel: String,
    #[serde(default)]
    pub cols: u16,
    #[serde(default)]
    pub rows: u16,
    /// Program and arguments; the user's shell when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Variables over the agent's own environment. Values are never logged or listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, crate::base::Secret>,
    /// A file of `NAME=value` lines on the workstation. Missing: refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_file: Option<String>,
    /// Typed into the shell after its first output; never logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_command: Option<crate::base::Secret>,
}

/// Names one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRef {
    /// An id, an unambiguous start of one, or a name.
    pub id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResizeParams {
    pub id: String,
    pub cols: u16,
    pub rows: u16,
    /// Refused with `lease_stale` when the lease has another; absent: not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RenameParams {
    pub id: String,
    /// 1 to 64 characters.
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SendParams {
    pub id: String,
    /// What to type. Wrapped as a bracketed paste when the program asked for that.
    pub text: crate::base::Secret,
    /// Presses Enter afterwards, apart from the text.
    #[serde(default)]
    pub enter: bool,
    /// Sends the bytes as they are: no bracketed paste.
    #[serde(default)]
    pub raw: bool,
    /// Refused with `lease_stale` when the lease has another; absent: not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

/// How text of a grid is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TextForm {
    #[default]
    Plain,
    /// With the escape sequences of its colours.
    Ansi,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadParams {
    pub id: String,
    /// The last lines down to the last one that is not blank, scrollback included; the visible screen when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u32>,
    /// All lines that are kept.
    #[serde(default)]
    pub scrollback: bool,
    #[serde(default)]
    pub form: TextForm,
    /// The first line wanted, counted from the oldest one kept; with `lines` the count from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadReply {
    pub text: String,
    pub cols: u16,
    pub rows: u16,
    /// Lines above the screen that are kept.
    pub history: u64,
    /// The first line of `text`, counted from the oldest one kept.
    pub from: u64,
    /// Zero-based.
    pub cursor_row: u16,
    pub cursor_col: u16,
    /// The byte position that the text reflects.
    pub offset: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SearchParams {
    pub id: String,
    pub text: String,
    #[serde(default)]
    pub case_sensitive: bool,
}

/// A place where a search text stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SearchMatch {
    /// Counted from the oldest line kept.
    pub line: u64,
    pub col: u16,
    /// Where it ends, which is later when it runs over a wrap.
    pub last_line: u64,
    /// The column behind it.
    pub end: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SearchReply {
    /// In order; at most 10,000.
    pub matches: Vec<SearchMatch>,
    pub history: u64,
}

/// What `session.wait` waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// The program wants an answer.
    Waiting,
    /// The program has nothing to do: idle, done or at its prompt.
    Idle,
    Exit,
    /// A text stands on the screen.
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitParams {
    pub id: String,
    #[serde(rename = "for")]
    pub what: WaitFor,
    /// Gives up with `timed_out`; 0 waits for ever.
    #[serde(default)]
    pub timeout_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainReply {
    pub id: TerminalId,
    pub explanation: Explanation,
}

/// What a console asks of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseAction {
    /// Makes the session exclusive, held by the console named.
    Take,
    /// The same, from another holder; needs `sessions:manage` on a server.
    TakeOver,
    /// Back to shared.
    Release,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseParams {
    pub id: String,
    pub action: LeaseAction,
    /// The console that is to hold it; not needed for `release`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<ConsoleId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DetachParams {
    /// Empty: every session.
    #[serde(default)]
    pub id: String,
    /// One console; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console: Option<ConsoleId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DetachReply {
    /// Consoles that were detached.
    pub detached: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordParams {
    pub id: String,
    /// Starts or ends the recording.
    pub on: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RecordReply {
    pub recording: bool,
    /// The asciicast file on the workstation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreReply {
    pub restored: Vec<Session>,
    /// What could not be started, with the reason.
    pub failed: Vec<RestoreFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestoreFailure {
    pub name: String,
    pub error: String,
}

/// Whether an attached console may type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttachMode {
    #[default]
    Control,
    /// Never types and never resizes.
    Observe,
}

/// Where a console runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Location {
    #[default]
    Local,
    Server,
    RemoteAttach,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachParams {
    /// An id, an unambiguous start of one, or a name.
    pub session_id: String,
    /// The console's size; an observer's is ignored.
    pub cols: u16,
    pub rows: u16,
    #[serde(default)]
    pub mode: AttachMode,
    /// The byte position up to which this console has everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Takes the lease for itself.
    #[serde(default)]
    pub exclusive: bool,
    /// With `exclusive`: also from another holder.
    #[serde(default)]
    pub takeover: bool,
    /// The console's identity from a former attachment, so that a reconnect keeps its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub console_id: Option<ConsoleId>,
    /// Who this is, shown to the others: user, host, or an account that the server puts in.
    #[serde(default)]
    pub label: String,
    #[serde(default)]
    pub location: Location,
    /// The console says by `ack` what it has taken in, and is sent little more than that: what follows
    /// a flood then does not stand in a queue behind it.
    #[serde(default)]
    pub acks: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttachReply {
    pub console_id: ConsoleId,
    /// The byte position at which the stream's bytes start.
    pub offset: u64,
    /// Bytes of kind 2 that come first; 0 when the stream goes on from `since`.
    pub snapshot_bytes: u64,
    /// Whether bytes between `since` and `offset` are gone, so that a snapshot stands for them.
    pub truncated: bool,
    pub lease: Lease,
    pub session: Session,
    /// The socket of the session's holder, for a local console of the same user: small output comes there
    /// at once. Absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
}

/// A control piece, in either direction.
///
/// From the owner: `attached` (first), `resize`, `lease`, `typing`, `screen`, `exit`, `error`.
/// From a console: `resize`, `generation`, `take`, `release`, `focus`, `ack`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Control {
    /// Opens the stream.
    Attached {
        since: u64,
        truncated: bool,
        #[serde(default)]
        snapshot_bytes: u64,
        cols: u16,
        rows: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        console_id: Option<ConsoleId>,
        #[serde(default)]
        lease: Lease,
    },
    /// The terminal's size changed at `offset`; from a console: the size that it wants.
    Resize {
        cols: u16,
        rows: u16,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
    },
    /// The lease changed.
    Lease { lease: Lease },
    /// Another console types.
    Typing {
        console_id: ConsoleId,
        label: String,
    },
    /// `length` bytes of kind 3 follow: the state at `offset`, in place of the bytes before it.
    Screen {
        offset: u64,
        length: u64,
        cols: u16,
        rows: u16,
    },
    /// The program has ended; its last screen stays.
    Exit {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_signal: Option<i32>,
    },
    /// Something was refused or went wrong; the stream goes on unless it ends by itself.
    Error { code: String, message: String },
    /// From a console: it has seen the lease of this generation. Typing before that is refused.
    Generation { generation: u64 },
    /// From a console: take the lease, from another holder too with `takeover`.
    Take {
        #[serde(default)]
        takeover: bool,
    },
    /// From a console: back to shared.
    Release {},
    /// From a console: whether the person looks at this session.
    Focus { focused: bool },
    /// From a console that attached with `acks`: how many bytes of kinds 0 and 3 it has taken in since then.
    Ack { bytes: u64 },
    /// From a console over WebSocket: it has taken in this many bytes, so that as many may follow.
    /// A console that sends none is bounded by its socket alone.
    Credit { bytes: u64 },
}

/// An attached console, as debug views and lists show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Console {
    pub console_id: ConsoleId,
    pub location: Location,
    pub label: String,
    pub session: TerminalId,
    pub mode: AttachMode,
    pub focused: bool,
    pub cols: u16,
    pub rows: u16,
    pub attached_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_input_at: Option<Timestamp>,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// Bytes that wait for it.
    pub queued_bytes: u64,
    /// Screens sent in place of bytes.
    pub screens: u64,
}

/// Which debug view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum View {
    Sessions,
    Consoles,
    Attention,
    Links,
    Events,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DebugParams {
    pub view: View,
    /// One session alone, where the view has sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DebugReply {
    /// One object a row; their fields depend on the view.
    pub rows: Vec<serde_json::Value>,
}

/// A terminal session's processes. What cannot be counted is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FootprintRow {
    pub id: TerminalId,
    pub base_path: String,
    pub pid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procs: Option<u32>,
    pub foreground: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Footprint {
    /// Footprints of coding tasks; empty until there are any.
    pub rows: Vec<serde_json::Value>,
    pub pty: Vec<FootprintRow>,
}

/// What a grant allows on one session.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum GrantLevel {
    View,
    Control,
    Manage,
}

/// An account's right to one session, besides what its role allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    pub id: TerminalId,
    pub username: String,
    pub level: GrantLevel,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevokeGrant {
    pub id: String,
    pub username: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantList {
    pub grants: Vec<Grant>,
}

method! {
    /// Lists terminal sessions: the node's own, or on a server those of every workstation with `scope=all`.
    List = "session.list" (ListParams) -> SessionList;
    Each, SessionsView;
    rest Get "/api/sessions" Bare;
    example r#"{"scope":"all"}"#;
}

method! {
    /// Starts a program on a new terminal.
    Create = "session.create" (CreateParams) -> Session;
    Each, SessionsControl;
    rest Post "/api/sessions" Bare;
    timeout Some(limits::SESSION_CREATE_TIMEOUT_MS);
    example r#"{"base_kind":"home","cols":80,"rows":24}"#;
}

method! {
    /// Shows one terminal session.
    Get = "session.get" (SessionRef) -> Session;
    Each, SessionsView;
    rest Get "/api/sessions/{id}" Bare;
    example r#"{"id":"3f2a"}"#;
}

method! {
    /// Sets the terminal's size. Attached consoles keep their own views.
    Resize = "session.resize" (ResizeParams) -> Session;
    Each, SessionsControl;
    rest Post "/api/sessions/{id}/resize" Bare;
    example r#"{"id":"3f2a","cols":100,"rows":30}"#;
}

method! {
    /// Gives a session another name.
    Rename = "session.rename" (RenameParams) -> Session;
    Each, SessionsControl;
    rest Post "/api/sessions/{id}/rename" Bare;
    example r#"{"id":"3f2a","name":"build"}"#;
}

method! {
    /// Ends a session: its processes get SIGTERM, and SIGKILL after 2 s. A session that has ended
    /// already is removed from the list.
    Kill = "session.kill" (SessionRef) -> Session;
    Each, SessionsManage;
    rest Delete "/api/sessions/{id}" Bare;
    timeout Some(limits::SESSION_KILL_TIMEOUT_MS);
    example r#"{"id":"3f2a"}"#;
}

method! {
    /// Types text into a session, as a bracketed paste when its program asked for that.
    Send = "session.send" (SendParams) -> Session;
    Each, SessionsControl;
    rest Post "/api/sessions/{id}/input" Bare;
    example r#"{"id":"3f2a","text":"cargo test","enter":true}"#;
}

method! {
    /// Reads the text of the screen, or of the scrollback with it.
    Read = "session.read" (ReadParams) -> ReadReply;
    Each, SessionsView;
    rest Get "/api/sessions/{id}/text" Bare;
    example r#"{"id":"3f2a","lines":50}"#;
}

method! {
    /// Draws the screen as a PNG picture.
    Picture = "session.picture" (SessionRef) -> Empty;
    Each, SessionsView;
    rest Get "/api/sessions/{id}/screen.png" Bytes;
    example r#"{"id":"3f2a"}"#;
}

method! {
    /// Finds a text in the scrollback and on the screen.
    Search = "session.search" (SearchParams) -> SearchReply;
    Each, SessionsView;
    rest Get "/api/sessions/{id}/search" Bare;
    example r#"{"id":"3f2a","text":"error"}"#;
}

method! {
    /// Waits until a session waits for a person, has nothing to do, has ended, or shows a text.
    Wait = "session.wait" (WaitParams) -> Session;
    Each, SessionsView;
    rest Post "/api/sessions/{id}/wait" Bare;
    timeout None;
    example r#"{"id":"3f2a","for":"waiting","timeout_ms":60000}"#;
}

method! {
    /// Says why a session's state is shown as it is: every source with its evidence.
    Explain = "session.explain" (SessionRef) -> ExplainReply;
    Each, SessionsView;
    rest Get "/api/sessions/{id}/attention" Bare;
    example r#"{"id":"3f2a"}"#;
}

method! {
    /// Takes or gives back the right to type alone.
    SetLease = "session.lease" (LeaseParams) -> Lease;
    Each, SessionsControl;
    rest Post "/api/sessions/{id}/lease" Bare;
    example r#"{"id":"3f2a","action":"release"}"#;
}

method! {
    /// Detaches consoles; the session goes on.
    Detach = "session.detach" (DetachParams) -> DetachReply;
    Each, SessionsControl;
    rest Post "/api/sessions/{id}/detach" Bare;
    example r#"{"id":"3f2a"}"#;
}

method! {
    /// Starts or ends a recording in asciicast version 2, kept on the workstation.
    Record = "session.record" (RecordParams) -> RecordReply;
    Each, SessionsManage;
    rest Post "/api/sessions/{id}/recording" Bare;
    example r#"{"id":"3f2a","on":true}"#;
}

method! {
    /// Attaches a console: the answer opens a stream of snapshot, bytes and control pieces.
    Attach = "session.attach" (AttachParams) -> AttachReply;
    Node, SessionsView;
    example r#"{"sessionId":"3f2a","cols":120,"rows":40}"#;
}

method! {
    /// Starts the sessions of before a reboot again from their start commands.
    Restore = "session.restore" (Empty) -> RestoreReply;
    Node, SessionsManage;
    rest Post "/api/agents/{agentId}/sessions/restore" Bare;
    timeout Some(limits::SESSION_CREATE_TIMEOUT_MS);
    example r#"{}"#;
}

method! {
    /// Shows what the terminals part knows: sessions, consoles, attention, links or events.
    Debug = "debug.view" (DebugParams) -> DebugReply;
    Node, SessionsManage;
    rest Get "/api/agents/{agentId}/debug/{view}" Bare;
    example r#"{"view":"sessions"}"#;
}

method! {
    /// Counts what runs: one row for each terminal session.
    GetFootprint = "footprint.get" (ListParams) -> Footprint;
    Each, SessionsView;
    rest Get "/api/footprint" Bare;
    example r#"{}"#;
}

method! {
    /// Lists who was given a right to a session.
    Grants = "session.grants" (SessionRef) -> GrantList;
    Server, SessionsManage;
    rest Get "/api/sessions/{id}/grants" Bare;
    example r#"{"id":"3f2a"}"#;
}

method! {
    /// Gives an account a right to one session.
    AddGrant = "session.grant" (Grant) -> GrantList;
    Server, SessionsManage;
    rest Post "/api/sessions/{id}/grants" Bare;
    example r#"{"id":"3f2a","username":"ann","level":"view"}"#;
}

method! {
    /// Takes a right to a session back; open attachments that rested on it end.
    DropGrant = "session.revoke_grant" (RevokeGrant) -> GrantList;
    Server, SessionsManage;
    rest Delete "/api/sessions/{id}/grants/{username}" Bare;
    example r#"{"id":"3f2a","username":"ann"}"#;
}
