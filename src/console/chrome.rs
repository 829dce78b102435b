//! Everything around and over the panes: sidebar, lines, footer, popups, the offer of candidates.
//!
//! Drawn with ratatui into a buffer of its own and taken over cell by cell, so that the painter has one
//! picture to compare.

use std::time::Instant;

use ratatui::buffer::Buffer as Canvas;
use ratatui::layout::Rect;
use ratatui::style::{Color as Paint, Modifier, Style as Ink, Stylize};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::{Block, List, ListState, Paragraph, StatefulWidget, Widget, Wrap};
use unicode_width::UnicodeWidthStr;

use crate::wire::messages::attention::State;

use super::app::{App, Mode};
use super::cell::{Area, Attributes, Buffer, Cell, Color, Style, fit, fit_end};
use super::footer;
use super::layout::Layout;
use super::pane::{Pane, SessionKey, Status};
use super::popup::{Dialogue, Line, Picker, Popup};
use super::roster::{Entry, Row, Standing};

/// Draws all chrome; answers where the cursor of a popup's field is.
pub fn draw(app: &App, now: Instant, layout: &Layout, into: &mut Buffer) -> Option<(u16, u16)> {
    for area in &layout.lines {
        line(*area, into);
    }
    if let Some(area) = layout.sidebar {
        sidebar(app, now, area, into);
    }
    if let Some(area) = layout.footer {
        let mut canvas = canvas(area);
        footer::draw(app, now, &mut canvas);
        take_over(&canvas, into);
    }
    for (index, pane) in app.panes.iter().enumerate() {
        let area = layout.panes.get(index).copied().unwrap_or_default();
        if !area.is_empty() {
            banner(pane, now, area, into);
        }
    }
    overlay(app, now, layout, into)
}

/// Draws what stands over the panes.
pub fn overlay(app: &App, now: Instant, layout: &Layout, into: &mut Buffer) -> Option<(u16, u16)> {
    let screen = Area::new(0, 0, into.cols(), into.rows());
    match &app.popup {
        Some(Popup::Picker(picker)) => draw_picker(picker, screen, into),
        Some(Popup::Dialogue(dialogue)) => draw_dialogue(dialogue, screen, into),
        Some(Popup::Confirm { text, .. }) => {
            confirm(text, screen, into);
            None
        }
        Some(Popup::Help(top)) => {
            help(app, *top, screen, into);
            None
        }
        None => {
            if app.offers() {
                let area = layout.panes.get(app.focused).copied().unwrap_or_default();
                offer(app, now, area, into);
            }
            None
        }
    }
}

fn canvas(area: Area) -> Canvas {
    Canvas::empty(Rect::new(area.x, area.y, area.cols, area.rows))
}

fn take_over(canvas: &Canvas, into: &mut Buffer) {
    let area = canvas.area;
    for y in area.top()..area.bottom() {
        let mut x = area.left();
        while x < area.right() {
            let from = &canvas[(x, y)];
            let cell = Cell::of(from.symbol(), style_of(from.style()));
            let width = u16::from(cell.width.max(1));
            into.put(x, y, cell);
            x += width;
        }
    }
}

fn style_of(ink: Ink) -> Style {
    let mut style = Style {
        fg: color_of(ink.fg),
        bg: color_of(ink.bg),
        ..Style::default()
    };
    for (modifier, attribute) in [
        (Modifier::BOLD, Attributes::BOLD),
        (Modifier::DIM, Attributes::DIM),
        (Modifier::ITALIC, Attributes::ITALIC),
        (Modifier::REVERSED, Attributes::REVERSE),
    ] {
        style
            .attributes
            .set(attribute, ink.add_modifier.contains(modifier));
    }
    style
}

fn color_of(paint: Option<Paint>) -> Color {
    match paint {
        Some(Paint::Black) => Color::Palette(0),
        Some(Paint::Red) => Color::Palette(1),
        Some(Paint::Green) => Color::Palette(2),
        Some(Paint::Yellow) => Color::Palette(3),
        Some(Paint::Blue) => Color::Palette(4),
        Some(Paint::Magenta) => Color::Palette(5),
        Some(Paint::Cyan) => Color::Palette(6),
        Some(Paint::Indexed(index)) => Color::Palette(index),
        _ => Color::Default,
    }
}

fn line(area: Area, into: &mut Buffer) {
    let style = Style {
        fg: Color::Palette(8),
        ..Style::default()
    };
    let glyph = if area.cols == 1 { "│" } else { "─" };
    for y in area.y..area.y + area.rows {
        for x in area.x..area.x + area.cols {
            into.put(x, y, Cell::of(glyph, style.clone()));
        }
    }
}

/// The state in a word.
pub fn state_word(entry: &Entry) -> &'static str {
    match entry.state {
        _ if entry.incompatible => "other version",
        State::Working => "working",
        State::Waiting => "waiting",
        State::Idle => "idle",
        State::Done => "done",
        State::Error => "error",
        State::Unknown => "",
        State::Exited => "ended",
    }
}

/// What calls for attention, legible on dark and on light terminals.
pub fn loud() -> Ink {
    Ink::default()
        .not_reversed()
        .fg(Paint::Black)
        .bg(Paint::Yellow)
}

fn state_ink(entry: &Entry) -> Ink {
    let ink = Ink::default();
    match entry.state {
        _ if entry.lost => ink.dim(),
        State::Waiting if entry.marked => loud(),
        State::Waiting => ink.fg(Paint::Magenta),
        State::Working => ink.fg(Paint::Green),
        State::Done => ink.fg(Paint::Cyan),
        State::Error => ink.fg(Paint::Red).bold(),
        State::Exited => ink.dim(),
        State::Idle | State::Unknown => ink,
    }
}

/// One character that says the state where there is no room for a word.
fn state_mark(entry: &Entry) -> &'static str {
    match entry.state {
        State::Waiting if entry.marked => "!",
        State::Waiting => "?",
        State::Working => "*",
        State::Done => "+",
        State::Error => "x",
        State::Exited => "=",
        State::Idle | State::Unknown => " ",
    }
}

/// A span of time in at most four columns.
pub fn age(ms: i64) -> String {
    let s = ms.max(0) / 1_000;
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m", s / 60),
        3_600..86_400 => format!("{}h", s / 3_600),
        _ => format!("{}d", (s / 86_400).min(999)),
    }
}

/// A line of the sidebar and the row of the list that it belongs to.
struct SideLine {
    row: usize,
    text: Text<'static>,
}

fn side_lines(app: &App, rows: &[Row], cols: usize, height: u16, now: Instant) -> Vec<SideLine> {
    let two = rows.len() * 2 <= usize::from(height);
    let own = app.pane().map(|pane| &pane.key);
    let mut lines = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let mut add = |text| lines.push(SideLine { row: index, text });
        match row {
            Row::Machine {
                name,
                standing,
                count,
            } => {
                add(machine_line(name, standing, *count, cols));
                if let (Standing::Lost(why), true) = (standing, two) {
                    let why = fit(why, cols.saturating_sub(2));
                    add(Text::from(format!("  {why}")).dim());
                }
            }
            Row::Session(entry) => {
                let focused = own == Some(&entry.key);
                let chosen = app.mode == Mode::Choose(entry.number - 1);
                let since = age(app.wall(now) - entry.since);
                for text in entry_lines(entry, focused, &since, cols, two) {
                    add(if chosen { text.reversed() } else { text });
                }
            }
        }
    }
    lines
}

fn machine_line(name: &str, standing: &Standing, count: usize, cols: usize) -> Text<'static> {
    let (word, ink) = match standing {
        Standing::Asked => ("…".to_owned(), Ink::default().dim()),
        Standing::Fresh => (format!("{count}"), Ink::default().dim()),
        Standing::Old(s) => (age(*s as i64 * 1_000), Ink::default().fg(Paint::Magenta)),
        Standing::Lost(_) => ("lost".to_owned(), Ink::default().fg(Paint::Red)),
    };
    let room = cols.saturating_sub(word.width() + 1);
    let name = fit(name, room);
    let gap = " ".repeat(cols.saturating_sub(name.width() + word.width()));
    Text::from(vec![
        Span::styled(name, Ink::default().bold()),
        Span::raw(gap),
        Span::styled(word, ink),
    ])
}

fn entry_lines(
    entry: &Entry,
    focused: bool,
    since: &str,
    cols: usize,
    two: bool,
) -> Vec<Text<'static>> {
    let ink = state_ink(entry);
    let pointer = if focused { ">" } else { " " };
    let number = if entry.number < 10 {
        entry.number.to_string()
    } else {
        " ".into()
    };
    let mut state = state_word(entry).to_owned();
    if entry.since > 0 && !state.is_empty() {
        state = format!("{state} {since}");
    }
    if entry.attached > 1 || (entry.attached > 0 && !focused) {
        state.push_str(" @");
    }
    let head = format!("{pointer}{number}{} ", state_mark(entry));
    let state = fit(&state, cols.saturating_sub(head.width() + 6));
    let room = cols.saturating_sub(head.width() + state.width() + 1);
    let name = fit(&entry.name, room);
    let gap = " ".repeat(cols.saturating_sub(head.width() + name.width() + state.width()));
    let name_ink = if focused {
        Ink::default().bold()
    } else {
        Ink::default()
    };
    let name_ink = if entry.lost { name_ink.dim() } else { name_ink };
    let mut lines = vec![Text::from(vec![
        Span::styled(head, ink),
        Span::styled(name, name_ink),
        Span::raw(gap),
        Span::styled(state, ink),
    ])];
    if two {
        let program = fit(&entry.program, cols.saturating_sub(4) / 2);
        let room = cols.saturating_sub(5 + program.width());
        let path = fit_end(&entry.path, room);
        lines.push(Text::from(Span::styled(
            format!("    {program} {path}"),
            Ink::default().dim(),
        )));
    }
    lines
}

/// The first line shown, so that the focused or chosen session is seen.
fn side_top(app: &App, rows: &[Row], lines: &[SideLine], height: usize) -> usize {
    let own = app.pane().map(|pane| &pane.key);
    let wanted = |row: &Row| match row {
        Row::Session(entry) => match app.mode {
            Mode::Choose(at) => entry.number == at + 1,
            _ => own == Some(&entry.key),
        },
        Row::Machine { .. } => false,
    };
    let row = rows.iter().position(wanted).unwrap_or(0);
    let last = lines.iter().rposition(|line| line.row == row).unwrap_or(0);
    (last + 1).saturating_sub(height)
}

fn sidebar(app: &App, now: Instant, area: Area, into: &mut Buffer) {
    let mut canvas = canvas(area);
    let rows = app.roster.rows(&app.scheduler, now);
    let mut top_rows = 0;
    if !app.roster.filter.is_empty() {
        let text = format!("filter: {}", app.roster.filter);
        let text = fit(&text, usize::from(area.cols));
        canvas.set_string(area.x, area.y, text, Ink::default().fg(Paint::Magenta));
        top_rows = 1;
    }
    let height = area.rows.saturating_sub(top_rows);
    let lines = side_lines(app, &rows, usize::from(area.cols), height, now);
    let top = side_top(app, &rows, &lines, usize::from(height));
    for (y, line) in lines.iter().skip(top).take(usize::from(height)).enumerate() {
        canvas.set_line(area.x, area.y + top_rows + y as u16, &line.text, area.cols);
    }
    take_over(&canvas, into);
}

/// The session on a line of the sidebar.
pub fn sidebar_hit(app: &App, y: u16, now: Instant) -> Option<SessionKey> {
    let area = app.layout().sidebar?;
    let rows = app.roster.rows(&app.scheduler, now);
    let filter = u16::from(!app.roster.filter.is_empty());
    let height = area.rows.saturating_sub(filter);
    let lines = side_lines(app, &rows, usize::from(area.cols), height, now);
    let top = side_top(app, &rows, &lines, usize::from(height));
    let line = lines.get(top + usize::from(y.checked_sub(filter)?))?;
    App::session_of_row(&rows, line.row)
}

/// A line at the top of a pane that is not live.
fn banner(pane: &Pane, now: Instant, area: Area, into: &mut Buffer) {
    let (text, color) = match &pane.status {
        Status::Lost { why, retry_at } => {
            let s = retry_at.saturating_duration_since(now).as_secs() + 1;
            (format!("lost: {why}; again in {s} s"), Color::Palette(1))
        }
        Status::Connecting if pane.attempt > 1 => ("connecting again…".into(), Color::Palette(3)),
        Status::Refused(why) => (format!("refused: {why}"), Color::Palette(1)),
        _ => return,
    };
    let style = Style {
        fg: color,
        attributes: Attributes::REVERSE,
        ..Style::default()
    };
    let text = format!(" {} ", super::cell::clean(&text));
    let text = fit(&text, usize::from(area.cols));
    let x = area.x + area.cols.saturating_sub(text.width() as u16);
    into.text(x, area.y, area.cols, &text, &style);
}

/// A box of at most this size in the middle of `within`, at least what fits.
fn boxed(within: Area, cols: u16, rows: u16) -> Area {
    let (cols, rows) = (cols.min(within.cols), rows.min(within.rows));
    Area::new(
        within.x + (within.cols - cols) / 2,
        within.y + (within.rows - rows) / 2,
        cols,
        rows,
    )
}

/// A framed canvas and the part inside of the frame. Tiny screens have no frame.
fn frame(area: Area, title: &str) -> (Canvas, Rect) {
    let mut canvas = canvas(area);
    if area.rows < 3 || area.cols < 6 {
        let inner = canvas.area;
        return (canvas, inner);
    }
    let title = fit(title, usize::from(area.cols.saturating_sub(4)));
    let block = Block::bordered()
        .border_style(Ink::default().fg(Paint::Cyan))
        .title(format!(" {title} "));
    let inner = block.inner(canvas.area);
    block.render(canvas.area, &mut canvas);
    (canvas, inner)
}

fn item_line(label: &str, hint: &str, cols: usize) -> Text<'static> {
    let hint = fit(hint, cols / 2);
    let label = fit(label, cols.saturating_sub(hint.width() + 1));
    let gap = " ".repeat(cols.saturating_sub(label.width() + hint.width()));
    Text::from(vec![
        Span::raw(format!("{label}{gap}")),
        Span::styled(hint, Ink::default().dim()),
    ])
}

fn draw_picker(picker: &Picker, screen: Area, into: &mut Buffer) -> Option<(u16, u16)> {
    let shown = picker.shown();
    let rows = (shown.len() as u16).clamp(1, 20) + 2 + u16::from(picker.query.is_some());
    let area = boxed(screen, 64, rows);
    let (mut canvas, mut inner) = frame(area, &picker.title);
    let mut caret = None;
    if let Some(query) = &picker.query {
        let room = usize::from(inner.width.saturating_sub(2));
        let before = fit_end(&query.before(), room);
        canvas.set_string(inner.x, inner.y, "> ", Ink::default().fg(Paint::Cyan));
        canvas.set_stringn(inner.x + 2, inner.y, query.text(), room, Ink::default());
        caret = Some((inner.x + 2 + before.width() as u16, inner.y));
        inner.y += 1;
        inner.height = inner.height.saturating_sub(1);
    }
    if shown.len() == 0 {
        canvas.set_string(
            inner.x,
            inner.y.min(canvas.area.bottom() - 1),
            "nothing fits",
            Ink::default().dim(),
        );
    } else if inner.height > 0 {
        let cols = usize::from(inner.width);
        let lines = shown.map(|item| item_line(&item.label, &item.hint, cols));
        let list = List::new(lines).highlight_style(Ink::default().reversed());
        let mut state = ListState::default().with_selected(Some(picker.selected));
        StatefulWidget::render(list, inner, &mut canvas, &mut state);
    }
    take_over(&canvas, into);
    caret
}

fn draw_dialogue(dialogue: &Dialogue, screen: Area, into: &mut Buffer) -> Option<(u16, u16)> {
    let lines = dialogue.lines.len() as u16;
    // Labels above their fields; beside them where rows are few.
    let tall = screen.rows >= lines * 2 + 3;
    let rows = if tall { lines * 2 + 3 } else { lines + 2 };
    let area = boxed(screen, 64, rows);
    let (mut canvas, inner) = frame(area, &dialogue.title);
    let mut caret = None;
    let width = usize::from(inner.width);
    for (index, line) in dialogue.lines.iter().enumerate() {
        let current = index == dialogue.at;
        let (label, text, before) = match line {
            Line::Text { label, field } => (*label, field.text(), Some(field.before())),
            Line::Choice { label, options, at } => {
                let option = options.get(*at).map_or("", String::as_str);
                (*label, format!("< {option} >"), None)
            }
        };
        let label_ink = if current {
            Ink::default().bold()
        } else {
            Ink::default().dim()
        };
        let (x, y) = if tall {
            let y = inner.y + index as u16 * 2;
            canvas.set_stringn(inner.x, y, label, width, label_ink);
            (inner.x, y + 1)
        } else {
            let word = label.split(' ').next().unwrap_or(label);
            let y = inner.y + index as u16;
            if y >= inner.bottom() {
                break;
            }
            let (x, _) = canvas.set_stringn(inner.x, y, format!("{word}: "), width, label_ink);
            (x, y)
        };
        if y >= inner.bottom() {
            break;
        }
        let room = usize::from(inner.right().saturating_sub(x + 1));
        let before = before.map(|before| fit_end(&before, room));
        let ink = if current {
            Ink::default()
        } else {
            Ink::default().dim()
        };
        let shown = match &before {
            Some(before) if before.starts_with('…') => before.clone(),
            _ => fit(&text, room),
        };
        canvas.set_stringn(x, y, shown, room, ink);
        if let Some(before) = before.filter(|_| current) {
            caret = Some((x + before.width() as u16, y));
        }
    }
    if tall {
        let y = inner.bottom().saturating_sub(1);
        let hint = "Enter: do it   Tab: next line   Esc: leave";
        canvas.set_stringn(inner.x, y, hint, width, Ink::default().dim());
    }
    take_over(&canvas, into);
    caret
}

fn confirm(text: &str, screen: Area, into: &mut Buffer) {
    let cols = (text.width() as u16 + 4).clamp(20, 60);
    let inside = usize::from(cols.min(screen.cols).saturating_sub(2)).max(1);
    let height = text.width().div_ceil(inside) as u16 + 1;
    let area = boxed(screen, cols, height + 4);
    let (mut canvas, inner) = frame(area, "Sure?");
    let lines = vec![
        Text::from(text.to_owned()),
        Text::default(),
        Text::from("y: yes   n: no").bold(),
    ];
    Paragraph::new(lines)
        .wrap(Wrap { trim: true })
        .render(inner, &mut canvas);
    take_over(&canvas, into);
}

fn help(app: &App, top: usize, screen: Area, into: &mut Buffer) {
    let prefix = app.keymap.prefix();
    let mut rows: Vec<(String, String)> = vec![(
        format!("{prefix} {prefix}"),
        format!("Send {prefix} to the program"),
    )];
    for row in app.keymap.rows() {
        let keys = match row.keys.as_slice() {
            [first, .., last] if row.keys.len() > 3 => format!("{first} … {last}"),
            keys => keys.join(", "),
        };
        rows.push((keys, row.doc.trim_end_matches('.').to_owned()));
    }
    let area = boxed(screen, 80, rows.len() as u16 + 2);
    let (mut canvas, inner) = frame(area, "Keys (up, down; any other key closes)");
    let most = rows.len().saturating_sub(usize::from(inner.height));
    let column = rows.iter().map(|(keys, _)| keys.width()).max().unwrap_or(0);
    let column = column.min(usize::from(inner.width) / 2);
    let visible = rows
        .iter()
        .skip(top.min(most))
        .take(usize::from(inner.height));
    for (y, (keys, doc)) in visible.enumerate() {
        let y = inner.y + y as u16;
        let keys = fit(keys, column);
        canvas.set_string(inner.x, y, &keys, Ink::default().fg(Paint::Cyan));
        let room = usize::from(inner.width).saturating_sub(column + 1);
        let x = inner.x + column as u16 + 1;
        if room > 0 {
            canvas.set_string(x, y, fit(doc, room), Ink::default());
        }
    }
    take_over(&canvas, into);
}

/// What is offered below the last screen of a session that ended, or where there is none.
fn offer(app: &App, now: Instant, pane: Area, into: &mut Buffer) {
    if pane.is_empty() {
        return;
    }
    let candidates = app.scheduler.candidates();
    let title = match app.pane().map(|pane| &pane.status) {
        Some(Status::Ended(ended)) => format!("This session {}", ended.text()),
        Some(_) => "This session cannot be attached".into(),
        None if app
            .roster
            .places
            .iter()
            .all(|place| place.read_at.is_none() && place.error.is_none()) =>
        {
            "Looking for sessions…".into()
        }
        None => "No session is open".to_owned(),
    };
    let most = pane.rows.saturating_sub(3).clamp(1, 8);
    let count = (candidates.len() as u16).clamp(1, most);
    let rows = (count + 2).min(pane.rows);
    let cols = 60.min(pane.cols);
    let area = match app.pane() {
        // At the bottom: the last screen stays in view above it.
        Some(_) => Area::new(
            pane.x + (pane.cols - cols) / 2,
            pane.y + pane.rows - rows,
            cols,
            rows,
        ),
        None => boxed(pane, cols, rows),
    };
    let (mut canvas, inner) = frame(area, &title);
    let width = usize::from(inner.width);
    if candidates.is_empty() {
        let new = app.keymap.hint(super::keymap::Command::New);
        let text = match app.pane() {
            Some(_) => format!("Enter: leave   {new}: start a session"),
            None => format!("Enter or {new}: start a session"),
        };
        canvas.set_stringn(inner.x, inner.y, text, width, Ink::default());
        return take_over(&canvas, into);
    }
    let entries = app.entries(now);
    let lines = candidates.iter().enumerate().map(|(index, candidate)| {
        let entry = entries.iter().find(|entry| entry.key == candidate.session);
        let number = if index < 9 {
            (index + 1).to_string()
        } else {
            " ".into()
        };
        let (label, hint) = match entry {
            Some(entry) => {
                let hint = format!(
                    "{} {}",
                    state_word(entry),
                    age(app.wall(now) - candidate.since.0)
                );
                (
                    format!(
                        "{number} {} · {} · {}",
                        entry.name, entry.program, entry.machine
                    ),
                    hint,
                )
            }
            None => (format!("{number} {}", candidate.session.id), String::new()),
        };
        item_line(&label, &hint, width)
    });
    let list = List::new(lines).highlight_style(Ink::default().reversed());
    let at = app.offer.unwrap_or(0).min(candidates.len() - 1);
    let mut state = ListState::default().with_selected(Some(at));
    StatefulWidget::render(list, inner, &mut canvas, &mut state);
    take_over(&canvas, into);
}
