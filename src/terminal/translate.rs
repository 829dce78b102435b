//! From what grid, holder and platform say to what attention takes in.

use super::grid::{self, Grid};
use super::holder::Stat;
use crate::base::limits;
use crate::model::attention as model;
use crate::platform::pty::{ProcessFacts, Waiting};
use crate::wire::messages::attention::WaitKind;

pub(super) fn notify(
    source: grid::NoticeSource,
    title: Option<String>,
    body: String,
) -> model::Notify {
    let source = match source {
        grid::NoticeSource::Osc9 => 9,
        grid::NoticeSource::Osc99 => 99,
        grid::NoticeSource::Osc777 => 777,
    };
    model::Notify {
        source,
        title,
        body,
    }
}

/// `None` for a report about a part of the program, and for a state of a later version.
pub(super) fn program_status(status: grid::ProgramStatus) -> Option<model::ProgramStatus> {
    if status.raw.split(':').any(|field| field.starts_with("id=")) {
        // It describes a part of the program, not the program.
        return None;
    }
    let state = match status.state.as_deref()? {
        "idle" => model::ProgramState::Idle,
        "working" => model::ProgramState::Working,
        "blocked" => model::ProgramState::Blocked,
        "done" => model::ProgramState::Done,
        "error" => model::ProgramState::Error,
        "clear" => model::ProgramState::Clear,
        _ => return None,
    };
    let kind = match status.kind.as_deref() {
        Some("permission") => Some(WaitKind::Permission),
        Some("question") => Some(WaitKind::Question),
        Some("auth") => Some(WaitKind::Auth),
        _ => None,
    };
    Some(model::ProgramStatus {
        state,
        app: status.app,
        kind,
        message: status.message,
    })
}

/// The path of OSC 7 (`file://host/path`, percent-encoded) or OSC 9;9 (a plain path).
pub(super) fn folder(place: &str) -> Option<String> {
    let path = match place.strip_prefix("file://") {
        Some(rest) => &rest[rest.find('/')?..],
        None => place,
    };
    let decoded = percent_encoding::percent_decode_str(path)
        .decode_utf8()
        .ok()?;
    (!decoded.is_empty()).then(|| decoded.into_owned())
}

pub(super) fn prompt_mark(mark: grid::PromptMark) -> model::PromptMark {
    match mark {
        grid::PromptMark::Prompt => model::PromptMark::Prompt,
        grid::PromptMark::Input => model::PromptMark::Line,
        grid::PromptMark::Output => model::PromptMark::Run,
        grid::PromptMark::Done { exit } => model::PromptMark::End(exit),
    }
}

pub(super) fn probe(stat: &Stat, found: Option<&ProcessFacts>) -> model::ProcessFacts {
    let blocked = |waiting: Waiting| match waiting {
        Waiting::TerminalRead | Waiting::Events => Some(true),
        Waiting::Unknown => None,
        _ => Some(false),
    };
    // What the holder saw belongs to the terminal's settings that it saw at the same time, and it may see
    // what this process may not, such as a program of another user.
    let waiting = match stat.waiting {
        Waiting::Unknown => found.map_or(Waiting::Unknown, |facts| facts.waiting),
        known => known,
    };
    model::ProcessFacts {
        foreground: found
            .map(|facts| model::Foreground::new(facts.pid, facts.name.clone(), &facts.argv)),
        blocked_reading_terminal: blocked(waiting),
        echo: stat.echo,
        canonical: stat.canonical,
        cpu_ticks: found.map(|facts| facts.cpu_ticks),
    }
}

/// The bottom rows of the screen, down to the last one that shows anything or has the cursor.
pub(super) fn screen_facts(grid: &Grid) -> model::ScreenFacts {
    let size = grid.size();
    let cursor = grid.cursor();
    let rows: Vec<String> = (0..size.rows).map(|row| grid.row(row).text()).collect();
    let filled = rows
        .iter()
        .rposition(|row| !row.trim().is_empty())
        .map_or(0, |at| at + 1);
    let end = filled.max(usize::from(cursor.row) + 1).min(rows.len());
    let start = end.saturating_sub(limits::ATTENTION_ROWS_MAX);
    model::ScreenFacts {
        cursor: usize::from(cursor.row)
            .checked_sub(start)
            .map(|row| (row, usize::from(cursor.column))),
        rows: rows[start..end].to_vec(),
        alternate: grid.modes().alternate_screen,
        title: grid.title().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_paths_whatever_they_were_told_as() {
        assert_eq!(folder("file://host/a%20b/c").as_deref(), Some("/a b/c"));
        assert_eq!(folder("file:///tmp").as_deref(), Some("/tmp"));
        assert_eq!(folder("C:/work").as_deref(), Some("C:/work"));
        assert_eq!(folder("file://host"), None);
        assert_eq!(folder("file:///%ff"), None);
    }
}
