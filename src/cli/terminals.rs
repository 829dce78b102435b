//! `wingman new`, `ls`, `attach`, `detach`, `kill`, `rename`, `send`, `read`, `wait`, `explain`,
//! `restore`, `lease`, `record` and `debug`: terminal sessions from a script or a shell.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::arguments::{duration_ms, pair};
use super::output::{self, clean};
use super::{Globals, Target};
use crate::base::error::exit;
use crate::base::{EpochMillis, Secret, limits};
use crate::wire::messages::Empty;
use crate::wire::messages::attention::{State, WaitKind};
use crate::wire::messages::sessions::{
    AddGrant, BaseKind, Create, CreateParams, Debug, DebugParams, Detach, DetachParams, DropGrant,
    Explain, Get, Grant, GrantLevel, Grants, Kill, LeaseAction, LeaseMode, LeaseParams, List,
    ListParams, Picture, Read, ReadParams, Record, RecordParams, Rename, RenameParams, Restore,
    RevokeGrant, Send, SendParams, Session, SessionList, SessionRef, SetLease, TextForm, View,
    Wait, WaitFor, WaitParams,
};
use crate::wire::{Code, Fault};

/// Start a program on a new terminal and print the session's id.
///
/// Without a command it is your shell. The session goes on when you leave; `wingman attach` shows it.
/// On this machine the agent is started when none runs.
#[derive(Clone, Debug, Args)]
pub struct NewArgs {
    #[command(flatten)]
    target: Target,
    /// What the session is called in lists; told from the program when absent.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The folder that the program starts in; when absent this one, on another workstation the home folder.
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// A file of NAME=value lines on the workstation.
    #[arg(long, value_name = "FILE")]
    env_file: Option<String>,
    /// A variable for the program; may be repeated.
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// The terminal's size until a console attaches, such as 120x40.
    #[arg(long, value_name = "COLSxROWS", value_parser = cells, default_value = "80x24")]
    size: (u16, u16),
    /// The program and its arguments.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// List terminal sessions, those that wait for you first.
#[derive(Clone, Debug, Args)]
pub struct LsArgs {
    #[command(flatten)]
    target: Target,
}

/// Open the workspace: your sessions on this machine and every other, one of them in front.
///
/// With a session's name or id that session is in front, else the one that waits for you, else the
/// newest. Ctrl-\ is the prefix of the console's own keys; Ctrl-\ ? lists them.
#[derive(Clone, Debug, Default, Args)]
pub struct AttachArgs {
    /// A session's id, the start of one, or its name; `machine/name` where names repeat.
    #[arg(value_name = "SESSION")]
    pub session: Option<String>,
    /// Watch only: never type, never resize.
    #[arg(long)]
    pub observe: bool,
    /// Take the session for yourself: the others watch.
    #[arg(long, conflicts_with = "observe")]
    pub exclusive: bool,
    /// With --exclusive: also from another holder.
    #[arg(long, requires = "exclusive")]
    pub takeover: bool,
    /// Show the session alone, without sidebar and footer.
    #[arg(long)]
    pub full_screen: bool,
}

/// Detach consoles from a session, or from all; the sessions go on.
#[derive(Clone, Debug, Args)]
pub struct DetachArgs {
    /// The session; all of them when absent.
    #[arg(value_name = "SESSION")]
    session: Option<String>,
}

/// Names one session.
#[derive(Clone, Debug, Args)]
pub struct OneArgs {
    /// A session's id, the start of one, or its name; `machine/name` where names repeat.
    #[arg(value_name = "SESSION")]
    session: String,
}

/// Give a session another name.
#[derive(Clone, Debug, Args)]
pub struct RenameArgs {
    #[command(flatten)]
    one: OneArgs,
    /// 1 to 64 printable characters.
    #[arg(value_name = "NAME")]
    name: String,
}

/// Type text into a session.
///
/// It goes as one paste where the program understands pastes. Enter is pressed only with --enter, and
/// apart from the text.
#[derive(Clone, Debug, Args)]
pub struct SendArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The text; `-` or --file reads it from elsewhere.
    #[arg(value_name = "TEXT", required_unless_present = "file")]
    text: Option<String>,
    /// Press Enter afterwards.
    #[arg(long)]
    enter: bool,
    /// Read the text from a file here; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    file: Option<PathBuf>,
    /// Send the bytes as they are, never as a paste.
    #[arg(long)]
    raw: bool,
}

/// Print what a session shows.
#[derive(Clone, Debug, Args)]
pub struct ReadArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The last lines that are not blank below, scrollback included.
    #[arg(long, value_name = "N", conflicts_with_all = ["scrollback", "png"])]
    lines: Option<u32>,
    /// Everything that is kept.
    #[arg(long, conflicts_with = "png")]
    scrollback: bool,
    /// With colours, as escape sequences.
    #[arg(long, conflicts_with = "png")]
    ansi: bool,
    /// A PNG picture of the screen, to standard output.
    #[arg(long)]
    png: bool,
}

/// Wait until a session waits for you, is idle, has ended, or shows a text.
///
/// Exit codes: 0 it came, 124 the time passed, 1 the session ended first.
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    one: OneArgs,
    /// waiting, idle, exit, or a text that has to stand on the screen.
    #[arg(long = "for", value_name = "WHAT")]
    what: String,
    /// Give up after this time, such as 30s or 5m.
    #[arg(long, value_name = "TIME", value_parser = duration_ms)]
    timeout: Option<u64>,
}

/// Show who may type into a session, or change it.
#[derive(Clone, Debug, Args)]
pub struct LeaseArgs {
    #[command(flatten)]
    one: OneArgs,
    /// End an exclusive lease, whoever holds it.
    #[arg(long)]
    release: bool,
}

/// Record what a session shows to an asciicast file on its workstation.
#[derive(Clone, Debug, Args)]
pub struct RecordArgs {
    #[command(flatten)]
    one: OneArgs,
    /// End the recording.
    #[arg(long)]
    stop: bool,
}

/// Start the sessions of before a reboot again, agents with their own resume flag.
///
/// On this machine the agent is started when none runs.
#[derive(Clone, Debug, Args)]
pub struct RestoreArgs {
    #[command(flatten)]
    target: Target,
}

/// Show what the terminals part knows, for finding faults.
#[derive(Clone, Debug, Args)]
pub struct DebugArgs {
    #[command(flatten)]
    target: Target,
    /// Which view.
    #[arg(value_enum)]
    view: DebugView,
    /// One session alone.
    #[arg(value_name = "SESSION")]
    session: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DebugView {
    Sessions,
    Consoles,
    Attention,
    Links,
    Events,
}

/// Say which accounts may use a session besides what their roles allow.
#[derive(Clone, Debug, Args)]
pub struct GrantsArgs {
    #[command(subcommand)]
    action: GrantAction,
}

#[derive(Clone, Debug, Subcommand)]
enum GrantAction {
    /// List a session's grants.
    List(OneArgs),
    /// Give an account a right to a session.
    Add {
        #[command(flatten)]
        one: OneArgs,
        /// The account's name.
        #[arg(value_name = "USER")]
        username: String,
        /// What it may do.
        #[arg(value_enum, default_value = "view")]
        level: Level,
    },
    /// Take it back.
    Remove {
        #[command(flatten)]
        one: OneArgs,
        /// The account's name.
        #[arg(value_name = "USER")]
        username: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    View,
    Control,
    Manage,
}

fn cells(text: &str) -> Result<(u16, u16), String> {
    let (cols, rows) = text.split_once('x').ok_or("write it as COLSxROWS")?;
    let number = |text: &str| text.parse::<u16>().map_err(|error| error.to_string());
    Ok((number(cols)?, number(rows)?))
}

/// Starts a session and answers it; nothing is printed.
pub(super) async fn create(args: &NewArgs, globals: &Globals) -> Result<Session, Fault> {
    let caller = globals.caller_for(&args.target).await?;
    // A folder that was removed has no name; home is left then.
    let here = match caller.is_local() {
        true => std::env::current_dir().ok(),
        false => None,
    };
    let cwd = args.cwd.clone().or(here);
    let (base_kind, base_path) = match &cwd {
        None => (BaseKind::Home, String::new()),
        Some(cwd) => {
            // A relative folder means one here; on another workstation it has to be absolute.
            let absolute = if caller.is_local() {
                std::path::absolute(cwd).unwrap_or_else(|_| cwd.clone())
            } else {
                cwd.clone()
            };
            (BaseKind::Workspace, absolute.to_string_lossy().into_owned())
        }
    };
    let mut env = BTreeMap::new();
    for (name, value) in &args.env {
        env.insert(name.clone(), Secret::new(value.clone()));
    }
    let params = CreateParams {
        machine: caller.agent().cloned(),
        name: args.name.clone(),
        base_path,
        base_kind,
        cols: args.size.0,
        rows: args.size.1,
        command: args.command.clone(),
        env,
        env_file: args.env_file.clone(),
        ..CreateParams::default()
    };
    caller.call::<Create>(&params).await
}

pub(super) async fn new(args: NewArgs, globals: &Globals) -> Result<u8, Fault> {
    let session = create(&args, globals).await?;
    if globals.json {
        output::json(&session);
    } else {
        output::line(session.id.as_str());
    }
    Ok(exit::OK)
}

pub(super) async fn ls(args: LsArgs, globals: &Globals) -> Result<u8, Fault> {
    let caller = match args.target.agent.is_some() || args.target.tag.is_some() {
        true => globals.caller_for(&args.target).await?,
        false => globals.caller().await?,
    };
    let params = ListParams {
        scope: caller.agent().is_none().then(|| "all".to_owned()),
        machine: caller.agent().cloned(),
    };
    let list = caller.call::<List>(&params).await?;
    if globals.json {
        output::json(&list);
        return Ok(exit::OK);
    }
    print_list(list);
    Ok(exit::OK)
}

fn print_list(mut list: SessionList) {
    let now = EpochMillis::now();
    list.sessions.sort_by(|a, b| {
        let rank = |session: &Session| {
            (
                session.attention.state != State::Waiting,
                session.machine.clone(),
                session.name.clone(),
            )
        };
        rank(a).cmp(&rank(b))
    });
    let rows = list.sessions.iter().map(|session| {
        let last = session.last_output_at.unwrap_or(session.created_at);
        vec![
            session.id.as_str().chars().take(8).collect(),
            session.name.clone(),
            if session.machine.is_empty() {
                "here".into()
            } else {
                session.machine.clone()
            },
            state_text(session),
            session
                .program
                .clone()
                .unwrap_or_else(|| session.shell.clone()),
            session
                .cwd
                .clone()
                .unwrap_or_else(|| session.base_path.clone()),
            format!("{}x{}", session.cols, session.rows),
            session.attached.to_string(),
            output::span(now.since(last.0).max(0)),
        ]
    });
    let header = [
        "ID",
        "NAME",
        "MACHINE",
        "STATE",
        "PROGRAM",
        "PATH",
        "SIZE",
        "ATTACHED",
        "QUIET FOR",
    ];
    output::table(&header, rows.collect());
    for machine in list.machines.unwrap_or_default() {
        if !machine.ok {
            let age = machine.fetched_at.map_or_else(
                || "never told".into(),
                |at| format!("told {} ago", output::span(now.since(at.0))),
            );
            let why = machine.error.unwrap_or_default();
            output::note(&format!(
                "{}: {} ({age})",
                clean(&machine.name),
                clean(&why)
            ));
        }
    }
}

/// A session's state in one or two words.
pub(super) fn state_text(session: &Session) -> String {
    if session.incompatible {
        return "incompatible".into();
    }
    let kind = session.attention.kind.map(|kind| match kind {
        WaitKind::Question => "question",
        WaitKind::Permission => "permission",
        WaitKind::Auth => "auth",
    });
    match (session.attention.state, kind) {
        (State::Exited, _) => match (session.exit_code, session.exit_signal) {
            (Some(code), _) => format!("exited {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended".into(),
        },
        (State::Waiting, Some(kind)) => format!("waiting: {kind}"),
        (State::Waiting, None) => "waiting".into(),
        (State::Working, _) => "working".into(),
        (State::Idle, _) => "idle".into(),
        (State::Done, _) => "done".into(),
        (State::Error, _) => "error".into(),
        (State::Unknown, _) => "unknown".into(),
    }
}

pub(super) async fn detach(args: DetachArgs, globals: &Globals) -> Result<u8, Fault> {
    let params = DetachParams {
        id: args.session.unwrap_or_default(),
        console: None,
    };
    let reply = globals.caller().await?.call::<Detach>(&params).await?;
    if globals.json {
        output::json(&reply);
    } else {
        output::note(&format!("{} consoles detached", reply.detached));
    }
    Ok(exit::OK)
}

pub(super) async fn kill(args: OneArgs, globals: &Globals) -> Result<u8, Fault> {
    let session = globals
        .caller()
        .await?
        .call::<Kill>(&reference(&args))
        .await?;
    told(
        globals,
        &session,
        &format!("{} {}", clean(&session.name), state_text(&session)),
    );
    Ok(exit::OK)
}

pub(super) async fn rename(args: RenameArgs, globals: &Globals) -> Result<u8, Fault> {
    let params = RenameParams {
        id: args.one.session,
        name: args.name,
    };
    let session = globals.caller().await?.call::<Rename>(&params).await?;
    told(
        globals,
        &session,
        &format!("now called {}", clean(&session.name)),
    );
    Ok(exit::OK)
}

pub(super) async fn send(args: SendArgs, globals: &Globals) -> Result<u8, Fault> {
    let text = match (&args.text, &args.file) {
        (Some(text), _) if text != "-" => text.clone(),
        (_, Some(file)) if file.as_os_str() != "-" => {
            std::fs::read_to_string(file).map_err(|error| {
                Fault::new(Code::NotFound, format!("read {}: {error}", file.display()))
            })?
        }
        _ => {
            let mut text = String::new();
            let limit = limits::SESSION_SEND_LEN_MAX as u64 + 1;
            std::io::stdin()
                .take(limit)
                .read_to_string(&mut text)
                .map_err(|error| {
                    Fault::new(Code::InvalidParams, format!("read standard input: {error}"))
                })?;
            text
        }
    };
    if text.len() > limits::SESSION_SEND_LEN_MAX {
        let why = format!(
            "the text has more than {} bytes",
            limits::SESSION_SEND_LEN_MAX
        );
        return Err(Fault::new(Code::BodyTooLarge, why));
    }
    let params = SendParams {
        id: args.one.session,
        text: Secret::new(text),
        enter: args.enter,
        raw: args.raw,
        generation: None,
    };
    let session = globals.caller().await?.call::<Send>(&params).await?;
    if globals.json {
        output::json(&session);
    }
    Ok(exit::OK)
}

pub(super) async fn read(args: ReadArgs, globals: &Globals) -> Result<u8, Fault> {
    let caller = globals.caller().await?;
    if args.png {
        let picture = caller.call_blob::<Picture>(&reference(&args.one)).await?;
        output::bytes(&picture.bytes);
        return Ok(exit::OK);
    }
    let params = ReadParams {
        id: args.one.session,
        lines: args.lines,
        scrollback: args.scrollback,
        form: if args.ansi {
            TextForm::Ansi
        } else {
            TextForm::Plain
        },
        from: None,
    };
    let reply = caller.call::<Read>(&params).await?;
    if globals.json {
        output::json(&reply);
        return Ok(exit::OK);
    }
    // What stands in a grid has no control characters left but those that --ansi asks for.
    output::bytes(reply.text.as_bytes());
    if !reply.text.ends_with('\n') {
        output::line("");
    }
    Ok(exit::OK)
}

pub(super) async fn wait(args: WaitArgs, globals: &Globals) -> Result<u8, Fault> {
    let what = match args.what.as_str() {
        "waiting" => WaitFor::Waiting,
        "idle" => WaitFor::Idle,
        "exit" => WaitFor::Exit,
        text => WaitFor::Text(text.to_owned()),
    };
    let params = WaitParams {
        id: args.one.session,
        what,
        timeout_ms: args.timeout.unwrap_or(0),
    };
    match globals.caller().await?.call::<Wait>(&params).await {
        Ok(session) => {
            told(globals, &session, &state_text(&session));
            Ok(exit::OK)
        }
        Err(fault) if fault.code_text() == Code::SessionExited.as_str() => {
            output::report(&fault, globals.json);
            Ok(exit::FAILED)
        }
        Err(fault) if fault.code_text() == Code::TimedOut.as_str() => {
            output::report(&fault, globals.json);
            Ok(exit::TIMED_OUT)
        }
        Err(fault) => Err(fault),
    }
}

pub(super) async fn explain(args: OneArgs, globals: &Globals) -> Result<u8, Fault> {
    let reply = globals
        .caller()
        .await?
        .call::<Explain>(&reference(&args))
        .await?;
    if globals.json {
        output::json(&reply);
        return Ok(exit::OK);
    }
    let explanation = &reply.explanation;
    let now = EpochMillis::now();
    output::line(&clean(&explanation.why));
    let rows = explanation.sources.iter().filter_map(|view| {
        let evidence = view.evidence.as_ref()?;
        let source = serde_json::to_value(view.source).unwrap_or_default();
        Some(vec![
            if view.source == explanation.attention.source {
                "*".into()
            } else {
                String::new()
            },
            source.as_str().unwrap_or_default().to_owned(),
            format!("{} ago", output::span(now.since(evidence.at).max(0))),
            evidence.what.clone(),
        ])
    });
    output::table(&["", "SOURCE", "SEEN", "SAYS"], rows.collect());
    Ok(exit::OK)
}

pub(super) async fn lease(args: LeaseArgs, globals: &Globals) -> Result<u8, Fault> {
    let caller = globals.caller().await?;
    let lease = if args.release {
        let params = LeaseParams {
            id: args.one.session,
            action: LeaseAction::Release,
            console: None,
        };
        caller.call::<SetLease>(&params).await?
    } else {
        caller.call::<Get>(&reference(&args.one)).await?.lease
    };
    if globals.json {
        output::json(&lease);
    } else {
        let text = match (lease.mode, &lease.holder) {
            (LeaseMode::Exclusive, Some(holder)) => format!("exclusive, held by console {holder}"),
            _ => "shared: every attached console may type".into(),
        };
        output::line(&format!("{text} (generation {})", lease.generation));
    }
    Ok(exit::OK)
}

pub(super) async fn record(args: RecordArgs, globals: &Globals) -> Result<u8, Fault> {
    let params = RecordParams {
        id: args.one.session,
        on: !args.stop,
    };
    let reply = globals.caller().await?.call::<Record>(&params).await?;
    if globals.json {
        output::json(&reply);
    } else if let Some(path) = &reply.path {
        output::line(&clean(path));
    }
    Ok(exit::OK)
}

pub(super) async fn restore(args: RestoreArgs, globals: &Globals) -> Result<u8, Fault> {
    let caller = globals.caller_for(&args.target).await?;
    let reply = caller.call::<Restore>(&Empty {}).await?;
    if globals.json {
        output::json(&reply);
    } else {
        for session in &reply.restored {
            output::line(&format!("{}  {}", session.id, clean(&session.name)));
        }
        for failure in &reply.failed {
            output::note(&format!(
                "{}: {}",
                clean(&failure.name),
                clean(&failure.error)
            ));
        }
    }
    Ok(if reply.failed.is_empty() {
        exit::OK
    } else {
        exit::FAILED
    })
}

pub(super) async fn debug(args: DebugArgs, globals: &Globals) -> Result<u8, Fault> {
    let view = match args.view {
        DebugView::Sessions => View::Sessions,
        DebugView::Consoles => View::Consoles,
        DebugView::Attention => View::Attention,
        DebugView::Links => View::Links,
        DebugView::Events => View::Events,
    };
    let caller = globals.caller_for(&args.target).await?;
    let params = DebugParams {
        view,
        id: args.session,
    };
    let reply = caller.call::<Debug>(&params).await?;
    if globals.json {
        output::json(&reply);
        return Ok(exit::OK);
    }
    let mut header: Vec<String> = Vec::new();
    for row in &reply.rows {
        for key in row.as_object().into_iter().flat_map(|row| row.keys()) {
            if !header.contains(key) {
                header.push(key.clone());
            }
        }
    }
    let cell = |value: Option<&serde_json::Value>| match value {
        None | Some(serde_json::Value::Null) => "-".to_owned(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let rows = reply
        .rows
        .iter()
        .map(|row| header.iter().map(|key| cell(row.get(key))).collect());
    let names: Vec<&str> = header.iter().map(String::as_str).collect();
    output::table(&names, rows.collect());
    Ok(exit::OK)
}

pub(super) async fn grants(args: GrantsArgs, globals: &Globals) -> Result<u8, Fault> {
    let caller = globals.caller().await?;
    let list = match args.action {
        GrantAction::List(one) => caller.call::<Grants>(&reference(&one)).await?,
        GrantAction::Add {
            one,
            username,
            level,
        } => {
            let session = caller.call::<Get>(&reference(&one)).await?;
            let grant = Grant {
                id: session.id,
                username,
                level: match level {
                    Level::View => GrantLevel::View,
                    Level::Control => GrantLevel::Control,
                    Level::Manage => GrantLevel::Manage,
                },
            };
            caller.call::<AddGrant>(&grant).await?
        }
        GrantAction::Remove { one, username } => {
            let params = RevokeGrant {
                id: one.session,
                username,
            };
            caller.call::<DropGrant>(&params).await?
        }
    };
    if globals.json {
        output::json(&list);
        return Ok(exit::OK);
    }
    let rows = list.grants.iter().map(|grant| {
        let level = serde_json::to_value(grant.level).unwrap_or_default();
        vec![
            grant.username.clone(),
            level.as_str().unwrap_or_default().to_owned(),
        ]
    });
    output::table(&["USER", "MAY"], rows.collect());
    Ok(exit::OK)
}

fn reference(args: &OneArgs) -> SessionRef {
    SessionRef {
        id: args.session.clone(),
    }
}

fn told(globals: &Globals, session: &Session, text: &str) {
    if globals.json {
        output::json(session);
    } else {
        output::note(text);
    }
}
