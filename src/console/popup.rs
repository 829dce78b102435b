//! What opens over the panes: menu, palette, dialogues, questions and help. State and keys, no drawing.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::base::limits;

use super::keymap::Command;
use super::pane::SessionKey;

/// A line of text that is being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Field {
    text: Vec<char>,
    at: usize,
}

impl Field {
    pub fn new(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        Self {
            at: text.len(),
            text,
        }
    }

    pub fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// The text before the cursor.
    pub fn before(&self) -> String {
        self.text[..self.at].iter().collect()
    }

    pub fn insert(&mut self, text: &str) {
        for c in text.chars().filter(|c| !super::cell::is_hostile(*c)) {
            if self.text.len() < limits::CONSOLE_FIELD_LEN_MAX {
                self.text.insert(self.at, c);
                self.at += 1;
            }
        }
    }

    /// Whether the key was one of a field.
    pub fn key(&mut self, event: &KeyEvent) -> bool {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        match event.code {
            KeyCode::Char('a') if control => self.at = 0,
            KeyCode::Char('e') if control => self.at = self.text.len(),
            KeyCode::Char('u') if control => {
                self.text.drain(..self.at);
                self.at = 0;
            }
            KeyCode::Char('w') if control => {
                let head = &self.text[..self.at];
                let word = head.iter().rposition(|c| *c != ' ').unwrap_or(0);
                let start = head[..word]
                    .iter()
                    .rposition(|c| *c == ' ')
                    .map_or(0, |at| at + 1);
                self.text.drain(start..self.at);
                self.at = start;
            }
            KeyCode::Char(c) if !control && !event.modifiers.contains(KeyModifiers::ALT) => {
                let mut utf8 = [0; 4];
                self.insert(c.encode_utf8(&mut utf8));
            }
            KeyCode::Left => self.at = self.at.saturating_sub(1),
            KeyCode::Right => self.at = (self.at + 1).min(self.text.len()),
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = self.text.len(),
            KeyCode::Backspace if self.at > 0 => {
                self.at -= 1;
                self.text.remove(self.at);
            }
            KeyCode::Delete if self.at < self.text.len() => {
                self.text.remove(self.at);
            }
            KeyCode::Backspace | KeyCode::Delete => {}
            _ => return false,
        }
        true
    }
}

/// What an item of a list stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    Command(Command),
    Session(SessionKey),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub label: String,
    /// At the right edge: keys, or a state.
    pub hint: String,
    pub choice: Choice,
}

/// Why a list of sessions is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// What is chosen is done, or gets the focus.
    #[default]
    Do,
    /// What is chosen is shown in a further pane.
    Split,
}

/// A list to choose from, with a text that narrows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picker {
    pub title: String,
    /// Absent: keys choose directly.
    pub query: Option<Field>,
    items: Vec<Item>,
    /// Indices into `items`, best first.
    shown: Vec<usize>,
    pub selected: usize,
    pub purpose: Purpose,
}

impl Picker {
    pub fn new(title: &str, items: Vec<Item>, narrowed: bool) -> Self {
        let mut picker = Self {
            title: title.to_owned(),
            query: narrowed.then(Field::default),
            items,
            shown: Vec::new(),
            selected: 0,
            purpose: Purpose::Do,
        };
        picker.narrow();
        picker
    }

    pub fn for_split(mut self) -> Self {
        self.purpose = Purpose::Split;
        self
    }

    /// The items that fit the text, best first.
    pub fn shown(&self) -> impl ExactSizeIterator<Item = &Item> {
        self.shown.iter().map(|index| &self.items[*index])
    }

    pub fn choice(&self) -> Option<&Choice> {
        let index = self.shown.get(self.selected)?;
        Some(&self.items[*index].choice)
    }

    fn narrow(&mut self) {
        let query = self.query.as_ref().map(Field::text).unwrap_or_default();
        let mut scored: Vec<(i32, usize)> = self
            .items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| Some((score(&query, &item.label)?, index)))
            .collect();
        scored.sort_by_key(|(score, index)| (-score, *index));
        self.shown = scored.into_iter().map(|(_, index)| index).collect();
        self.selected = self.selected.min(self.shown.len().saturating_sub(1));
    }

    fn step(&mut self, by: isize) {
        let len = self.shown.len() as isize;
        if len > 0 {
            self.selected = (self.selected as isize + by).rem_euclid(len) as usize;
        }
    }

    fn key(&mut self, event: &KeyEvent) -> Outcome {
        match event.code {
            KeyCode::Esc => return Outcome::Close,
            KeyCode::Enter => {
                return match self.choice() {
                    Some(choice) => Outcome::Chosen(choice.clone(), self.purpose),
                    None => Outcome::Stay,
                };
            }
            KeyCode::Up => self.step(-1),
            KeyCode::Down | KeyCode::Tab => self.step(1),
            KeyCode::BackTab => self.step(-1),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::PageDown => {
                self.selected = (self.selected + 10).min(self.shown.len().saturating_sub(1));
            }
            KeyCode::Char('p') if event.modifiers.contains(KeyModifiers::CONTROL) => self.step(-1),
            KeyCode::Char('n') if event.modifiers.contains(KeyModifiers::CONTROL) => self.step(1),
            _ => match &mut self.query {
                Some(query) => {
                    if query.key(event) {
                        self.selected = 0;
                        self.narrow();
                    }
                }
                None => match event.code {
                    KeyCode::Char('k') => self.step(-1),
                    KeyCode::Char('j') => self.step(1),
                    KeyCode::Char('q') => return Outcome::Close,
                    KeyCode::Char(c @ '1'..='9') => {
                        let at = c as usize - '1' as usize;
                        if at < self.shown.len() {
                            self.selected = at;
                            return self.key(&KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
                        }
                    }
                    _ => {}
                },
            },
        }
        Outcome::Stay
    }
}

/// How well a query fits a text: its letters in order; runs and starts of words count more.
pub fn score(query: &str, text: &str) -> Option<i32> {
    let text: Vec<char> = text.to_lowercase().chars().collect();
    let mut total = 0;
    let mut at = 0;
    let mut run = 0;
    for wanted in query.to_lowercase().chars().filter(|c| *c != ' ') {
        let found = at + text.get(at..)?.iter().position(|c| *c == wanted)?;
        run = if found == at { run + 1 } else { 1 };
        let starts = found == 0 || !text[found - 1].is_alphanumeric();
        total += run * 2 + if starts { 5 } else { 0 } - (found - at).min(10) as i32;
        at = found + 1;
    }
    Some(total)
}

/// What a form is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    New,
    Rename(SessionKey),
    Filter,
    Search,
}

/// One line of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    Text {
        label: &'static str,
        field: Field,
    },
    /// One of several, changed with the cursor keys.
    Choice {
        label: &'static str,
        options: Vec<String>,
        at: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialogue {
    pub title: String,
    pub form: Form,
    pub lines: Vec<Line>,
    pub at: usize,
}

impl Dialogue {
    /// The text of a line; empty for a choice.
    pub fn text(&self, line: usize) -> String {
        match self.lines.get(line) {
            Some(Line::Text { field, .. }) => field.text(),
            _ => String::new(),
        }
    }

    /// The option that a line stands on.
    pub fn chosen(&self, line: usize) -> usize {
        match self.lines.get(line) {
            Some(Line::Choice { at, .. }) => *at,
            _ => 0,
        }
    }

    fn key(&mut self, event: &KeyEvent) -> Outcome {
        let len = self.lines.len();
        match event.code {
            KeyCode::Esc => return Outcome::Close,
            KeyCode::Enter => return Outcome::Submit(self.clone()),
            KeyCode::Tab | KeyCode::Down => self.at = (self.at + 1) % len,
            KeyCode::BackTab | KeyCode::Up => self.at = (self.at + len - 1) % len,
            _ => match &mut self.lines[self.at] {
                Line::Text { field, .. } => {
                    field.key(event);
                }
                Line::Choice { options, at, .. } if !options.is_empty() => match event.code {
                    KeyCode::Left => *at = (*at + options.len() - 1) % options.len(),
                    KeyCode::Right | KeyCode::Char(' ') => *at = (*at + 1) % options.len(),
                    _ => {}
                },
                Line::Choice { .. } => {}
            },
        }
        Outcome::Stay
    }
}

/// What is asked before it is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    Kill(SessionKey),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Popup {
    Picker(Picker),
    Dialogue(Dialogue),
    Confirm {
        text: String,
        question: Question,
    },
    /// The first line shown.
    Help(usize),
}

/// What a key did to a popup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Stay,
    Close,
    Chosen(Choice, Purpose),
    Submit(Dialogue),
    Yes(Question),
}

impl Popup {
    pub fn key(&mut self, event: &KeyEvent) -> Outcome {
        if event.code == KeyCode::Char('c') && event.modifiers == KeyModifiers::CONTROL {
            return Outcome::Close;
        }
        match self {
            Self::Picker(picker) => picker.key(event),
            Self::Dialogue(dialogue) => dialogue.key(event),
            Self::Confirm { question, .. } => match event.code {
                KeyCode::Char('y' | 'Y') => Outcome::Yes(question.clone()),
                KeyCode::Char('n' | 'N' | 'q') | KeyCode::Esc => Outcome::Close,
                _ => Outcome::Stay,
            },
            Self::Help(top) => {
                match event.code {
                    KeyCode::Up | KeyCode::Char('k') => *top = top.saturating_sub(1),
                    KeyCode::Down | KeyCode::Char('j') => *top += 1,
                    KeyCode::PageUp => *top = top.saturating_sub(10),
                    KeyCode::PageDown | KeyCode::Char(' ') => *top += 10,
                    _ => return Outcome::Close,
                }
                Outcome::Stay
            }
        }
    }

    /// A paste goes into the field that has the cursor.
    pub fn paste(&mut self, text: &str) {
        match self {
            Self::Picker(picker) => {
                if let Some(query) = &mut picker.query {
                    query.insert(text);
                    picker.narrow();
                }
            }
            Self::Dialogue(dialogue) => {
                if let Some(Line::Text { field, .. }) = dialogue.lines.get_mut(dialogue.at) {
                    field.insert(text);
                }
            }
            Self::Confirm { .. } | Self::Help(_) => {}
        }
    }
}

/// Splits a command line into words as a shell does, without its expansions: quotes and backslashes.
/// `None` when a quote is not closed.
pub fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\\', None | Some('"')) => {
                let next = chars.next()?;
                word.get_or_insert_default().push(next);
            }
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(popup: &mut Popup, code: KeyCode) -> Outcome {
        popup.key(&KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn picker(labels: &[&str]) -> Popup {
        let items = labels.iter().map(|label| Item {
            label: (*label).into(),
            hint: String::new(),
            choice: Choice::Command(Command::Help),
        });
        Popup::Picker(Picker::new("t", items.collect(), true))
    }

    #[test]
    fn letters_in_order_find_the_best_item() {
        let mut popup = picker(&["redraw screen", "rename session", "new session"]);
        for c in "ns".chars() {
            press(&mut popup, KeyCode::Char(c));
        }
        let Popup::Picker(picker) = &popup else {
            unreachable!()
        };
        let labels: Vec<&str> = picker.shown().map(|item| item.label.as_str()).collect();
        assert_eq!(labels, ["new session", "rename session"]);
        assert_eq!(score("xyz", "new session"), None);
        assert!(score("", "anything").is_some());
    }

    #[test]
    fn an_empty_list_survives_every_key() {
        let mut popup = picker(&[]);
        for code in [
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::PageDown,
            KeyCode::Enter,
            KeyCode::Tab,
        ] {
            assert_eq!(press(&mut popup, code), Outcome::Stay);
        }
        assert_eq!(press(&mut popup, KeyCode::Esc), Outcome::Close);
    }

    #[test]
    fn fields_edit_like_a_shell_line() {
        let mut field = Field::new("one two");
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        field.key(&control('w'));
        assert_eq!(field.text(), "one ");
        field.key(&control('a'));
        field.insert("漢\x1b[x");
        assert_eq!(
            (field.text(), field.before()),
            ("漢[xone ".into(), "漢[x".into())
        );
        field.key(&KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE));
        field.key(&KeyEvent::new(KeyCode::Delete, KeyModifiers::NONE));
        assert_eq!(field.text(), "漢[ne ");
        field.key(&control('u'));
        assert_eq!(field.text(), "ne ");
    }

    #[test]
    fn a_question_wants_a_clear_answer() {
        let key = SessionKey {
            place: 0,
            id: crate::base::ids::TerminalId::random(),
        };
        let question = Question::Kill(key);
        let mut popup = Popup::Confirm {
            text: "?".into(),
            question: question.clone(),
        };
        assert_eq!(press(&mut popup, KeyCode::Enter), Outcome::Stay);
        assert_eq!(press(&mut popup, KeyCode::Char('n')), Outcome::Close);
        assert_eq!(
            press(&mut popup, KeyCode::Char('y')),
            Outcome::Yes(question)
        );
    }

    #[test]
    fn command_lines_split_like_a_shell() {
        let split = |text| words(text).unwrap();
        assert_eq!(
            split("claude --resume 'a b'  c\\ d \"e'\""),
            ["claude", "--resume", "a b", "c d", "e'"]
        );
        assert_eq!(split("''"), [""]);
        assert!(split("  ").is_empty());
        assert_eq!(words("'open"), None);
    }
}
