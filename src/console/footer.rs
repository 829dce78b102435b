//! The one line at the bottom: where typing goes, who may type, how the link is, what else waits.

use std::time::{Duration, Instant};

use ratatui::buffer::Buffer as Canvas;
use ratatui::style::{Color as Paint, Style as Ink};
use unicode_width::UnicodeWidthStr;

use crate::wire::messages::sessions::AttachMode;

use super::app::{App, Mode};
use super::cell::{clean, fit};
use super::chrome::loud;
use super::keymap::Command;
use super::pane::{Pane, Status};

/// Parts from the left, the most important first; what does not fit is left out from the end.
pub fn draw(app: &App, now: Instant, canvas: &mut Canvas) {
    let area = canvas.area;
    let ink = Ink::default().reversed();
    canvas.set_style(area, ink);
    let width = usize::from(area.width);
    let right = right_side(app, width);
    let mut x = area.x;
    let room = |x: u16| usize::from(area.right().saturating_sub(x)).saturating_sub(right.width());
    for (text, part_ink) in left_side(app, now) {
        let text = format!(" {text} ");
        if text.width() > room(x) {
            if x == area.x {
                let text = fit(&text, room(x));
                canvas.set_string(x, area.y, &text, ink.patch(part_ink));
            }
            break;
        }
        (x, _) = canvas.set_stringn(x, area.y, &text, width, ink.patch(part_ink));
    }
    let start = area.right().saturating_sub(right.width() as u16);
    let waits = app.scheduler.waiting_count() > 0;
    let right_ink = if waits { ink.patch(loud()) } else { ink };
    canvas.set_stringn(start, area.y, right, width, right_ink);
}

fn right_side(app: &App, width: usize) -> String {
    let waiting = app.scheduler.waiting_count();
    let mut text = String::new();
    if waiting > 0 {
        let key = app.keymap.hint(Command::NextWaiting);
        text = if width >= 60 && !key.is_empty() {
            format!(" {waiting} waiting: {key} ")
        } else {
            format!(" !{waiting} ")
        };
    }
    let help = app.keymap.hint(Command::Help);
    if width >= 30 && !help.is_empty() {
        text.push_str(&format!(" {help}: keys "));
    }
    text
}

fn left_side(app: &App, now: Instant) -> Vec<(String, Ink)> {
    let plain = Ink::default();
    let loud = loud();
    let mut parts = Vec::new();
    match app.mode {
        Mode::Prefix => parts.push((format!("{} …", app.keymap.prefix()), loud)),
        Mode::Literal => parts.push(("next key goes to the program".into(), loud)),
        Mode::Choose(_) => parts.push(("choose: up, down, Enter".into(), loud)),
        Mode::Plain => {}
    }
    if let Some((notice, _)) = &app.notice {
        parts.push((notice.clone(), loud));
    }
    if let Some(scroll) = &app.scroll {
        let (top, total) = scroll.position();
        let mut text = format!("looking back {}/{total}", (top + 1).min(total));
        if let Some((at, of)) = scroll.found() {
            text.push_str(&format!(" match {at}/{of}"));
        }
        parts.push((text, loud));
    }
    let Some(pane) = app.pane() else {
        return parts;
    };
    let session = app.roster.session(&pane.key);
    let name = session.map(|session| &session.name);
    let name = name.or(pane.last_name.as_ref());
    let name = name.map_or_else(|| pane.key.id.to_string(), |name| clean(name));
    parts.push((fit(&name, 30), plain.bold()));
    parts.extend(link(pane, now));
    parts.extend(lease(pane));
    if let Some((label, _)) = &pane.typing {
        let who = if label.is_empty() { "somebody" } else { label };
        parts.push((format!("{} types", fit(who, 20)), loud));
    }
    if let Some(machine) = machine(app, pane) {
        parts.push((fit(&machine, 24), plain));
    }
    if pane.status == Status::Live && pane.sized_by_other() {
        let (cols, rows) = pane.mirror.size();
        parts.push((format!("{cols}x{rows} of another console"), plain));
    }
    if let Some(latency) = pane.latency.filter(|_| pane.status == Status::Live) {
        parts.push((latency_text(latency), plain));
    }
    parts
}

fn machine(app: &App, pane: &Pane) -> Option<String> {
    let place = app.roster.places.get(pane.key.place)?;
    let session = app.roster.session(&pane.key)?;
    let targets = app.roster.targets();
    let named = targets.into_iter().find(|(index, id, _)| {
        *index == pane.key.place && (place.local || id.as_deref() == Some(&session.machine))
    });
    Some(named.map_or_else(|| clean(&place.name), |(.., name)| name))
}

fn link(pane: &Pane, now: Instant) -> Option<(String, Ink)> {
    let text = match &pane.status {
        Status::Live => return None,
        Status::Parked => "not attached".into(),
        Status::Connecting => "connecting…".into(),
        Status::Lost { retry_at, .. } => {
            let s = retry_at.saturating_duration_since(now).as_secs() + 1;
            format!("lost, again in {s} s")
        }
        Status::Refused(_) => "refused".into(),
        Status::Ended(ended) => ended.text(),
    };
    Some((text, Ink::default().fg(Paint::Red).bold()))
}

fn lease(pane: &Pane) -> Option<(String, Ink)> {
    if pane.mode == AttachMode::Observe {
        return Some(("watching".into(), Ink::default().fg(Paint::Cyan)));
    }
    if pane.holds() {
        return Some(("only you type".into(), Ink::default().fg(Paint::Cyan)));
    }
    pane.held_by_other().then(|| {
        (
            "another console types".into(),
            Ink::default().fg(Paint::Magenta),
        )
    })
}

fn latency_text(latency: Duration) -> String {
    let us = latency.as_micros();
    if us < 100 {
        "<0.1 ms".into()
    } else if us < 10_000 {
        format!("{}.{} ms", us / 1_000, us % 1_000 / 100)
    } else {
        format!("{} ms", us / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_has_a_decimal_only_while_it_is_small() {
        assert_eq!(latency_text(Duration::from_micros(35)), "<0.1 ms");
        assert_eq!(latency_text(Duration::from_micros(350)), "0.3 ms");
        assert_eq!(latency_text(Duration::from_millis(45)), "45 ms");
    }
}
