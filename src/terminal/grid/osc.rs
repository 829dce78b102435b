//! Operating system commands that the parser underneath does not know.

use data_encoding::{BASE64, BASE64_NOPAD};
use vte::ansi::Rgb;

use super::Effect;
use super::dispatch::Dispatch;
use super::effect::{NoticeSource, ProgramStatus, Progress, PromptMark};
use crate::base::limits::{GRID_NOTICE_LEN_MAX, GRID_TITLE_CHARS_MAX};

/// The states and kinds of OSC 7501 that we understand.
const STATUS_ANSWER: &str =
    "\x1b]7501;?:states=idle,working,done,blocked,error:kinds=permission,question,auth\x1b\\";

/// A notification of OSC 99 that is not complete yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Notice {
    id: String,
    title: String,
    body: String,
}

/// Handles one command, `payload` without introducer and terminator; false when it is not one of ours.
pub(super) fn dispatch(payload: &[u8], notice: &mut Notice, to: &mut Dispatch<'_>) -> bool {
    let (code, rest) = match payload.iter().position(|byte| *byte == b';') {
        Some(at) => (&payload[..at], &payload[at + 1..]),
        None => (payload, &[][..]),
    };
    let text = || clean(&String::from_utf8_lossy(rest));
    match code {
        b"7" => to.effects.push(Effect::WorkingDirectory(text())),
        b"9" => conemu(&text(), to),
        b"99" => kitty_notice(&text(), notice, to),
        b"133" => {
            if let Some(mark) = prompt_mark(&text()) {
                to.effects.push(Effect::PromptMark(mark));
            }
        }
        b"777" => {
            if let Some(rest) = text().strip_prefix("notify;") {
                let (title, body) = rest.split_once(';').unwrap_or(("", rest));
                to.effects.push(Effect::Notify {
                    source: NoticeSource::Osc777,
                    title: (!title.is_empty()).then(|| title.to_owned()),
                    body: body.to_owned(),
                });
            }
        }
        b"7501" if rest.starts_with(b"?") => to.reply(STATUS_ANSWER),
        b"7501" => to
            .effects
            .push(Effect::ProgramStatus(program_status(&text()))),
        _ => return false,
    }
    true
}

/// Without control characters.
fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

pub(super) fn clean_title(text: &str) -> String {
    let shown = text.chars().filter(|c| !c.is_control());
    shown.take(GRID_TITLE_CHARS_MAX).collect()
}

/// OSC 9: a notification, or one of ConEmu's numbered commands.
fn conemu(text: &str, to: &mut Dispatch<'_>) {
    let (number, rest) = text.split_once(';').unwrap_or((text, ""));
    match number.parse::<u8>() {
        Ok(4) => {
            if let Some(progress) = progress(rest) {
                to.effects.push(Effect::Progress(progress));
            }
        }
        Ok(9) => {
            let path = rest.trim_matches('"').to_owned();
            to.effects.push(Effect::WorkingDirectory(path));
        }
        Ok(1..=12) => {}
        _ => to.effects.push(Effect::Notify {
            source: NoticeSource::Osc9,
            title: None,
            body: text.to_owned(),
        }),
    }
}

fn progress(text: &str) -> Option<Progress> {
    let (state, percent) = text.split_once(';').unwrap_or((text, ""));
    let percent = percent.parse::<u8>().unwrap_or(0).min(100);
    match state {
        "0" => Some(Progress::Off),
        "1" => Some(Progress::At(percent)),
        "2" => Some(Progress::Failed(percent)),
        "3" => Some(Progress::Indeterminate),
        "4" => Some(Progress::Paused(percent)),
        _ => None,
    }
}

fn prompt_mark(text: &str) -> Option<PromptMark> {
    let mut parts = text.split(';');
    match parts.next()? {
        "A" | "N" | "P" => Some(PromptMark::Prompt),
        "B" | "I" => Some(PromptMark::Input),
        "C" => Some(PromptMark::Output),
        "D" => Some(PromptMark::Done {
            exit: parts.next().and_then(|code| code.parse().ok()),
        }),
        _ => None,
    }
}

fn program_status(text: &str) -> ProgramStatus {
    let mut status = ProgramStatus {
        raw: text.to_owned(),
        ..ProgramStatus::default()
    };
    for part in text.split(':') {
        let Some((key, value)) = part.split_once('=') else {
            continue;
        };
        let value = value.to_owned();
        match key {
            "state" => status.state = Some(value),
            "app" => status.app = Some(value),
            "kind" => status.kind = Some(value),
            "msg" => status.message = decode_base64(value.as_bytes()),
            _ => {}
        }
    }
    status
}

/// OSC 99: parts of a notification, collected until it is done.
fn kitty_notice(text: &str, notice: &mut Notice, to: &mut Dispatch<'_>) {
    let (metadata, payload) = text.split_once(';').unwrap_or((text, ""));
    let field = |name: &str| {
        let mut fields = metadata
            .split(':')
            .filter_map(|field| field.split_once('='));
        fields.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let id = field("i").unwrap_or_default();
    let kind = field("p").unwrap_or("title");
    if kind == "?" {
        to.reply(format!("\x1b]99;i={id}:p=?;p=title,body\x1b\\"));
        return;
    }
    if notice.id != id {
        *notice = Notice {
            id: id.to_owned(),
            ..Notice::default()
        };
    }
    let payload = match field("e") {
        Some("1") => decode_base64(payload.as_bytes()).unwrap_or_default(),
        _ => payload.to_owned(),
    };
    let part = match kind {
        "title" => &mut notice.title,
        "body" => &mut notice.body,
        _ => return,
    };
    let room = GRID_NOTICE_LEN_MAX.saturating_sub(part.len());
    part.push_str(&payload[..payload.floor_char_boundary(room)]);
    if field("d") == Some("0") {
        return;
    }
    let Notice { title, body, .. } = std::mem::take(notice);
    let (title, body) = if body.is_empty() {
        (None, title)
    } else {
        (Some(title).filter(|title| !title.is_empty()), body)
    };
    to.effects.push(Effect::Notify {
        source: NoticeSource::Osc99,
        title,
        body,
    });
}

/// Text from base64, padded or not.
pub(super) fn decode_base64(base64: &[u8]) -> Option<String> {
    let bytes = BASE64.decode(base64).ok();
    let bytes = bytes.or_else(|| BASE64_NOPAD.decode(base64.trim_ascii_end()).ok())?;
    String::from_utf8(bytes).ok()
}

/// The answer to `Effect::ClipboardQuery` when it is granted.
pub fn clipboard_answer(selection: char, text: &str, terminator: &str) -> Vec<u8> {
    let base64 = BASE64.encode(text.as_bytes());
    format!("\x1b]52;{selection};{base64}{terminator}").into_bytes()
}

pub(super) fn color_report(prefix: &str, color: Rgb, terminator: &str) -> String {
    let Rgb { r, g, b } = color;
    format!("\x1b]{prefix};rgb:{r:02x}{r:02x}/{g:02x}{g:02x}/{b:02x}{b:02x}{terminator}")
}
