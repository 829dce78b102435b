//! What each command does, and what dialogues do when they are submitted.

use std::time::Instant;

use crate::base::ids::AgentId;
use crate::wire::messages::sessions::{self, AttachMode, BaseKind, Control};

use super::app::{App, Effect, Left, Mode, Then};
use super::keymap::Command;
use super::layout::Direction;
use super::pane::{Pane, SessionKey, Status};
use super::popup::{Choice, Dialogue, Field, Form, Item, Line, Picker, Popup, Question, words};

/// What the menu shows, in its order.
const MENU: &[Command] = &[
    Command::New,
    Command::NextWaiting,
    Command::Palette,
    Command::Rename,
    Command::Kill,
    Command::Scrollback,
    Command::Search,
    Command::SplitRight,
    Command::SplitDown,
    Command::Unsplit,
    Command::FullScreen,
    Command::Sidebar,
    Command::Take,
    Command::Release,
    Command::Observe,
    Command::Mouse,
    Command::Help,
    Command::Detach,
];

impl App {
    pub fn command(&mut self, command: Command, now: Instant) {
        self.dirty = true;
        match command {
            Command::Detach => self.effects.push(Effect::Leave(Left::Detached)),
            Command::Help => self.popup = Some(Popup::Help(0)),
            Command::Menu => self.open_menu(),
            Command::Palette => self.open_palette(now),
            Command::New => self.open_new(now),
            Command::Rename => self.open_rename(),
            Command::Kill => self.open_kill(now),
            Command::Choose => self.open_choose(now),
            Command::Filter => self.open_line("Filter", Form::Filter, "text"),
            Command::Next => self.step(1, now),
            Command::Previous => self.step(-1, now),
            Command::NextWaiting => self.next_waiting(now),
            Command::Last => self.focus_last(now),
            Command::Number(number) => self.focus_number(number, now),
            Command::Scrollback => self.open_scroll(),
            Command::Search => self.open_search(),
            Command::Paste => self.paste(&self.copied.clone(), now),
            Command::Sidebar => self.toggle_sidebar(now),
            Command::FullScreen => {
                self.full_screen = !self.full_screen;
                self.fit_panes(now);
            }
            Command::SplitRight => self.open_split(Direction::Columns, now),
            Command::SplitDown => self.open_split(Direction::Rows, now),
            Command::Unsplit => self.unsplit(now),
            Command::NextPane if self.panes.len() > 1 => {
                self.focus_pane((self.focused + 1) % self.panes.len(), now);
            }
            Command::NextPane => self.tell("there is one pane only", now),
            Command::Take => self.lease(&Control::Take { takeover: false }, now),
            Command::TakeOver => self.lease(&Control::Take { takeover: true }, now),
            Command::Release => self.lease(&Control::Release {}, now),
            Command::Observe => self.toggle_observe(now),
            Command::Literal => self.set_mode(Mode::Literal),
            Command::Mouse => {
                self.mouse = !self.mouse;
                let text = if self.mouse {
                    "the mouse is taken; Shift leaves it to the terminal"
                } else {
                    "the mouse is left to the terminal"
                };
                self.tell(text, now);
            }
            Command::Retry => self.retry(now),
            Command::Redraw => self.effects.push(Effect::Redraw),
            Command::Suspend => self.effects.push(Effect::Suspend),
        }
    }

    fn step(&mut self, by: isize, now: Instant) {
        let entries = self.entries(now);
        if entries.is_empty() {
            return;
        }
        let own = self.pane().map(|pane| &pane.key);
        let at = entries.iter().position(|entry| Some(&entry.key) == own);
        let len = entries.len() as isize;
        let next = match at {
            Some(at) => (at as isize + by).rem_euclid(len),
            None if by > 0 => 0,
            None => len - 1,
        };
        let key = entries[next as usize].key.clone();
        self.focus(&key, now);
    }

    fn next_waiting(&mut self, now: Instant) {
        let from = self.pane().map(|pane| pane.key.clone());
        match self.scheduler.next_waiting(from.as_ref()) {
            Some(key) => self.focus(&key, now),
            None => self.tell("no other session waits", now),
        }
    }

    fn focus_last(&mut self, now: Instant) {
        match self.last.clone() {
            Some(key) => self.focus(&key, now),
            None => self.tell("there is no session of before", now),
        }
    }

    fn focus_number(&mut self, number: u8, now: Instant) {
        let entries = self.entries(now);
        let wanted = usize::from(number);
        match entries.into_iter().find(|entry| entry.number == wanted) {
            Some(entry) => self.focus(&entry.key, now),
            None => self.tell(format!("there is no session {number}"), now),
        }
    }

    fn toggle_sidebar(&mut self, now: Instant) {
        if self.size.0 < super::layout::SIDEBAR_COLS_MIN {
            // No room: the list opens over the pane instead.
            return self.open_sessions(now);
        }
        self.sidebar = !self.sidebar;
        self.fit_panes(now);
    }

    fn toggle_observe(&mut self, now: Instant) {
        let index = self.focused;
        let mode = self.start.mode;
        let Some(pane) = self.pane_mut() else { return };
        pane.watch_only = !pane.watch_only;
        let text = if pane.watch_only {
            pane.mode = AttachMode::Observe;
            "only watching"
        } else {
            pane.mode = mode;
            "typing again"
        };
        self.attach(index, now);
        self.tell(text, now);
    }

    fn lease(&mut self, control: &Control, now: Instant) {
        match self.pane_mut() {
            Some(pane) if pane.mode == AttachMode::Observe => {
                self.tell("only watching: the right to type is not asked for", now);
            }
            Some(pane) if pane.status == Status::Live => pane.tell(control),
            _ => self.tell("not connected", now),
        }
    }

    fn command_items(&self, only: Option<&[Command]>) -> Vec<Item> {
        let item = |command: Command| {
            let row = self
                .keymap
                .rows()
                .iter()
                .find(|row| row.command == command)?;
            Some(Item {
                label: row.doc.trim_end_matches('.').to_owned(),
                hint: row.keys.first().cloned().unwrap_or_default(),
                choice: Choice::Command(command),
            })
        };
        match only {
            Some(commands) => commands.iter().copied().filter_map(item).collect(),
            None => self
                .keymap
                .rows()
                .iter()
                .map(|row| row.command)
                .filter(|command| !matches!(command, Command::Number(_)))
                .filter_map(item)
                .collect(),
        }
    }

    fn session_items(&self, now: Instant) -> Vec<Item> {
        self.entries(now)
            .into_iter()
            .map(|entry| Item {
                label: format!("{} · {} · {}", entry.name, entry.program, entry.machine),
                hint: super::chrome::state_word(&entry).to_owned(),
                choice: Choice::Session(entry.key),
            })
            .collect()
    }

    fn open_menu(&mut self) {
        let items = self.command_items(Some(MENU));
        self.popup = Some(Popup::Picker(Picker::new("Menu", items, false)));
    }

    fn open_palette(&mut self, now: Instant) {
        let mut items = self.session_items(now);
        items.extend(self.command_items(None));
        self.popup = Some(Popup::Picker(Picker::new("Go to or do", items, true)));
    }

    fn open_sessions(&mut self, now: Instant) {
        let items = self.session_items(now);
        self.popup = Some(Popup::Picker(Picker::new("Sessions", items, true)));
    }

    fn open_choose(&mut self, now: Instant) {
        if self.layout().sidebar.is_none() {
            return self.open_sessions(now);
        }
        let own = self.pane().map(|pane| pane.key.clone());
        let entries = self.entries(now);
        let at = entries
            .iter()
            .position(|entry| Some(&entry.key) == own.as_ref());
        self.set_mode(Mode::Choose(at.unwrap_or(0)));
    }

    fn open_split(&mut self, direction: Direction, now: Instant) {
        self.direction = direction;
        let shown: Vec<SessionKey> = self.panes.iter().map(|pane| pane.key.clone()).collect();
        let mut items = self.session_items(now);
        items.retain(|item| !matches!(&item.choice, Choice::Session(key) if shown.contains(key)));
        let picker = Picker::new("Show beside", items, true).for_split();
        self.popup = Some(Popup::Picker(picker));
    }

    fn open_new(&mut self, now: Instant) {
        let targets = self.roster.targets();
        if targets.is_empty() {
            return self.tell("no workstation is connected", now);
        }
        // Beside the focused session: its workstation and folder are the likely ones.
        let session = self.pane().and_then(|pane| {
            let session = self.roster.session(&pane.key)?;
            Some((pane.key.place, session.machine.clone(), session.cwd.clone()))
        });
        let (at, cwd) = match session {
            Some((place, machine, cwd)) => {
                let same = |(index, id, _): &(usize, Option<String>, String)| {
                    *index == place && id.as_deref().unwrap_or("") == machine
                };
                (targets.iter().position(same).unwrap_or(0), cwd)
            }
            None => (0, None),
        };
        let here = |(place, ..): &(usize, Option<String>, String)| self.roster.places[*place].local;
        let cwd = match cwd {
            Some(cwd) => cwd,
            // As a command typed into the shell that started this console.
            None if targets.get(at).is_some_and(here) => {
                self.start.folder.clone().unwrap_or_default()
            }
            None => String::new(),
        };
        let text = |label, text: &str| Line::Text {
            label,
            field: Field::new(text),
        };
        self.popup = Some(Popup::Dialogue(Dialogue {
            title: "New session".into(),
            form: Form::New,
            lines: vec![
                text("Command (empty: your shell)", ""),
                text("Folder (empty: home)", &cwd),
                text("Name (empty: the program's)", ""),
                Line::Choice {
                    label: "Workstation",
                    options: targets.into_iter().map(|(.., name)| name).collect(),
                    at,
                },
            ],
            at: 0,
        }));
    }

    fn open_rename(&mut self) {
        let Some((key, name)) = self.focused_name() else {
            return;
        };
        self.popup = Some(Popup::Dialogue(Dialogue {
            title: "Rename".into(),
            form: Form::Rename(key),
            lines: vec![Line::Text {
                label: "Name",
                field: Field::new(&name),
            }],
            at: 0,
        }));
    }

    pub(super) fn open_search(&mut self) {
        self.open_line("Search back", Form::Search, "text");
    }

    fn open_line(&mut self, title: &str, form: Form, label: &'static str) {
        let text = match form {
            Form::Filter => self.roster.filter.clone(),
            _ => String::new(),
        };
        self.popup = Some(Popup::Dialogue(Dialogue {
            title: title.into(),
            form,
            lines: vec![Line::Text {
                label,
                field: Field::new(&text),
            }],
            at: 0,
        }));
    }

    fn focused_name(&self) -> Option<(SessionKey, String)> {
        let pane: &Pane = self.pane()?;
        let session = self.roster.session(&pane.key)?;
        Some((pane.key.clone(), super::cell::clean(&session.name)))
    }

    fn open_kill(&mut self, now: Instant) {
        let Some((key, name)) = self.focused_name() else {
            return self.tell("there is no session here", now);
        };
        let session = self.roster.session(&key);
        let program = session
            .filter(|session| session.foreground)
            .and_then(|session| session.program.clone());
        let ended = matches!(self.pane().map(|pane| &pane.status), Some(Status::Ended(_)));
        let text = match program {
            _ if ended => format!("Remove {name}, which has ended?"),
            Some(program) => {
                let program = super::cell::clean(&program);
                format!("End {name}? {program} is running in it.")
            }
            None => format!("End {name}?"),
        };
        self.popup = Some(Popup::Confirm {
            text,
            question: Question::Kill(key),
        });
    }

    pub(super) fn confirmed(&mut self, question: &Question, now: Instant) {
        let Question::Kill(key) = question;
        let params = sessions::SessionRef {
            id: key.id.as_str().to_owned(),
        };
        self.call::<sessions::Kill>(key.place, &params, Then::Tell("end the session"));
        self.list_soon(now);
    }

    pub(super) fn submit(&mut self, dialogue: Dialogue, now: Instant) {
        match &dialogue.form {
            Form::New => self.create(dialogue, now),
            Form::Rename(key) => {
                let params = sessions::RenameParams {
                    id: key.id.as_str().to_owned(),
                    name: dialogue.text(0),
                };
                self.call::<sessions::Rename>(key.place, &params, Then::Tell("rename"));
            }
            Form::Filter => self.roster.filter = dialogue.text(0),
            Form::Search if dialogue.text(0).is_empty() => {}
            Form::Search => self.search(dialogue.text(0)),
        }
    }

    fn create(&mut self, dialogue: Dialogue, now: Instant) {
        let Some(command) = words(&dialogue.text(0)) else {
            self.popup = Some(Popup::Dialogue(dialogue));
            return self.tell("a quote is not closed", now);
        };
        let targets = self.roster.targets();
        let Some((place, machine, _)) = targets.get(dialogue.chosen(3)) else {
            return self.tell("that workstation is gone", now);
        };
        let (folder, name) = (dialogue.text(1), dialogue.text(2));
        let area = self.focused_area();
        let params = sessions::CreateParams {
            machine: machine.as_deref().and_then(|id| AgentId::parse(id).ok()),
            name: (!name.is_empty()).then_some(name),
            base_kind: if folder.is_empty() {
                BaseKind::Home
            } else {
                BaseKind::Workspace
            },
            base_path: folder,
            cols: area.cols,
            rows: area.rows,
            command,
            ..sessions::CreateParams::default()
        };
        self.call::<sessions::Create>(*place, &params, Then::Focus);
    }
}
