//! Which key does what: configured texts to chords, chords to commands.
//!
//! Ctrl-\ is the default prefix. It is one byte on every terminal, with and without the kitty
//! protocol, and none of Claude Code, Codex, opencode, readline and tmux uses it. Where something
//! else does (nano's Replace, which is also M-R; emacs' input methods; the quit signal in cooked
//! mode) pressing it twice sends it. Ctrl-B, tmux's, is taken by Claude Code.

use std::collections::HashMap;
use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::config::ConsoleConfig;

/// Everything that a console can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Command {
    Detach,
    Help,
    Menu,
    Palette,
    New,
    Rename,
    Kill,
    Choose,
    Filter,
    Next,
    Previous,
    NextWaiting,
    Last,
    /// By place in the sidebar, from 1.
    Number(u8),
    Scrollback,
    Search,
    Paste,
    Sidebar,
    FullScreen,
    SplitRight,
    SplitDown,
    Unsplit,
    NextPane,
    Take,
    TakeOver,
    Release,
    Observe,
    Literal,
    Mouse,
    Retry,
    Redraw,
    Suspend,
}

impl Command {
    /// The command of a name in the configuration.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "detach" => Self::Detach,
            "help" => Self::Help,
            "menu" => Self::Menu,
            "palette" => Self::Palette,
            "new" => Self::New,
            "rename" => Self::Rename,
            "kill" => Self::Kill,
            "choose" => Self::Choose,
            "filter" => Self::Filter,
            "next" => Self::Next,
            "previous" => Self::Previous,
            "next_waiting" => Self::NextWaiting,
            "last" => Self::Last,
            "number" => Self::Number(1),
            "scrollback" => Self::Scrollback,
            "search" => Self::Search,
            "paste" => Self::Paste,
            "sidebar" => Self::Sidebar,
            "full_screen" => Self::FullScreen,
            "split_right" => Self::SplitRight,
            "split_down" => Self::SplitDown,
            "unsplit" => Self::Unsplit,
            "next_pane" => Self::NextPane,
            "take" => Self::Take,
            "take_over" => Self::TakeOver,
            "release" => Self::Release,
            "observe" => Self::Observe,
            "literal" => Self::Literal,
            "mouse" => Self::Mouse,
            "retry" => Self::Retry,
            "redraw" => Self::Redraw,
            "suspend" => Self::Suspend,
            _ => return None,
        })
    }
}

/// One key with its modifiers, in one form for every way in which a terminal may send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chord {
    code: KeyCode,
    modifiers: KeyModifiers,
}

impl Chord {
    pub fn of(event: &KeyEvent) -> Self {
        Self::normal(event.code, event.modifiers)
    }

    /// Shift is part of a character; Ctrl with a character is its control byte's usual name.
    fn normal(code: KeyCode, modifiers: KeyModifiers) -> Self {
        let mut modifiers = modifiers;
        let code = match code {
            KeyCode::Char(c) if modifiers.contains(KeyModifiers::CONTROL) => {
                modifiers.remove(KeyModifiers::SHIFT);
                KeyCode::Char(match c {
                    '4' | '|' => '\\',
                    '5' | '}' => ']',
                    '6' | '~' => '^',
                    '7' | '/' => '_',
                    '2' | '@' => ' ',
                    c => c.to_ascii_lowercase(),
                })
            }
            KeyCode::Char(c) => {
                modifiers.remove(KeyModifiers::SHIFT);
                KeyCode::Char(c)
            }
            KeyCode::BackTab => {
                modifiers.insert(KeyModifiers::SHIFT);
                KeyCode::Tab
            }
            code => code,
        };
        Self { code, modifiers }
    }

    /// Reads `ctrl-\`, `alt-x`, `f12`, `pageup`, `space` or a single character.
    pub fn parse(text: &str) -> Option<Self> {
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        loop {
            let (one, tail) = match rest.split_once('-') {
                Some((word, tail)) if !tail.is_empty() => (word, tail),
                _ => break,
            };
            modifiers |= match one {
                "ctrl" => KeyModifiers::CONTROL,
                "alt" => KeyModifiers::ALT,
                "shift" => KeyModifiers::SHIFT,
                "super" => KeyModifiers::SUPER,
                _ => return None,
            };
            rest = tail;
        }
        Some(Self::normal(key_of(rest)?, modifiers))
    }

    pub fn is(&self, code: KeyCode) -> bool {
        self.code == code && self.modifiers.is_empty()
    }
}

const NAMED: &[(&str, KeyCode)] = &[
    ("space", KeyCode::Char(' ')),
    ("enter", KeyCode::Enter),
    ("tab", KeyCode::Tab),
    ("esc", KeyCode::Esc),
    ("backspace", KeyCode::Backspace),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageup", KeyCode::PageUp),
    ("pagedown", KeyCode::PageDown),
    ("insert", KeyCode::Insert),
    ("delete", KeyCode::Delete),
];

fn key_of(text: &str) -> Option<KeyCode> {
    if let Some((_, code)) = NAMED.iter().find(|(name, _)| *name == text) {
        return Some(*code);
    }
    if let Some(number) = text.strip_prefix('f').and_then(|n| n.parse::<u8>().ok()) {
        return (1..=24).contains(&number).then_some(KeyCode::F(number));
    }
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(c), None) if !c.is_control() => Some(KeyCode::Char(c)),
        _ => None,
    }
}

impl fmt::Display for Chord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (one, name) in [
            (KeyModifiers::CONTROL, "^"),
            (KeyModifiers::ALT, "M-"),
            (KeyModifiers::SHIFT, "S-"),
            (KeyModifiers::SUPER, "Super-"),
        ] {
            if self.modifiers.contains(one) {
                f.write_str(name)?;
            }
        }
        match self.code {
            KeyCode::Char(' ') => f.write_str("Space"),
            KeyCode::Char(c) if self.modifiers.contains(KeyModifiers::CONTROL) => {
                write!(f, "{}", c.to_ascii_uppercase())
            }
            KeyCode::Char(c) => write!(f, "{c}"),
            KeyCode::F(n) => write!(f, "F{n}"),
            code => match NAMED.iter().find(|(_, named)| *named == code) {
                Some((name, _)) => {
                    let (first, rest) = name.split_at(1);
                    write!(f, "{}{rest}", first.to_ascii_uppercase())
                }
                None => write!(f, "{code:?}"),
            },
        }
    }
}

/// Why the configured keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeymapError {
    #[error("keys.{command}: {text:?} is no key")]
    Unknown { command: String, text: String },
    #[error("console.prefix: {0:?} is no key")]
    Prefix(String),
    #[error("{text:?} is bound to both {first} and {second}")]
    Conflict {
        text: String,
        first: String,
        second: String,
    },
    #[error("keys.{command}: {text:?} would take typing away; put \"prefix\" before it")]
    Typing { command: String, text: String },
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Command(Command),
    /// The prefix: the next key is a binding.
    Prefix,
    /// The program's.
    Program,
    /// After the prefix: the prefix key itself, for the program.
    SendPrefix,
    /// After the prefix: bound to nothing.
    Nothing,
}

/// A row of the help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub command: Command,
    pub name: &'static str,
    pub doc: &'static str,
    /// As a person presses them.
    pub keys: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Keymap {
    prefix: Chord,
    after_prefix: HashMap<Chord, Command>,
    alone: HashMap<Chord, Command>,
    rows: Vec<Row>,
}

impl Keymap {
    /// Checks every binding; the first that is unknown or taken twice is an error.
    pub fn new(config: &ConsoleConfig) -> Result<Self, KeymapError> {
        let prefix = Chord::parse(&config.console.prefix)
            .ok_or_else(|| KeymapError::Prefix(config.console.prefix.clone()))?;
        let mut map = Self {
            prefix,
            after_prefix: HashMap::new(),
            alone: HashMap::new(),
            rows: Vec::new(),
        };
        let mut owners: HashMap<(bool, Chord), &'static str> = HashMap::new();
        owners.insert((false, prefix), "prefix");
        owners.insert((true, prefix), "sending the prefix");
        for (name, doc, keys) in config.keys.rows() {
            // INVARIANT: a unit test reads every name of the table.
            let command = Command::of_name(name).expect("every configured command exists");
            let mut shown = Vec::new();
            for (index, text) in keys.iter().enumerate() {
                let (after, chord) = binding(name, text)?;
                if let Some(first) = owners.insert((after, chord), name) {
                    return Err(KeymapError::Conflict {
                        text: text.clone(),
                        first: first.into(),
                        second: name.into(),
                    });
                }
                let command = match command {
                    Command::Number(_) => {
                        Command::Number(u8::try_from(index + 1).unwrap_or(u8::MAX))
                    }
                    command => command,
                };
                let table = if after {
                    &mut map.after_prefix
                } else {
                    &mut map.alone
                };
                table.insert(chord, command);
                shown.push(if after {
                    format!("{prefix} {chord}")
                } else {
                    chord.to_string()
                });
            }
            map.rows.push(Row {
                command,
                name,
                doc,
                keys: shown,
            });
        }
        Ok(map)
    }

    pub fn prefix(&self) -> Chord {
        self.prefix
    }

    /// `after_prefix`: the key before was the prefix.
    pub fn meaning(&self, event: &KeyEvent, after_prefix: bool) -> Meaning {
        let chord = Chord::of(event);
        if !after_prefix {
            return match self.alone.get(&chord) {
                Some(command) => Meaning::Command(*command),
                None if chord == self.prefix => Meaning::Prefix,
                None => Meaning::Program,
            };
        }
        match self.after_prefix.get(&chord) {
            Some(command) => Meaning::Command(*command),
            None if chord == self.prefix => Meaning::SendPrefix,
            None => Meaning::Nothing,
        }
    }

    /// Every command with its keys, in the order of the configuration.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The first key of a command, for hints; empty when it has none.
    pub fn hint(&self, command: Command) -> &str {
        self.rows
            .iter()
            .find(|row| row.command == command)
            .and_then(|row| row.keys.first())
            .map_or("", String::as_str)
    }
}

fn binding(command: &str, text: &str) -> Result<(bool, Chord), KeymapError> {
    let (after, key) = match text.strip_prefix("prefix ") {
        Some(key) => (true, key),
        None => (false, text),
    };
    let chord = Chord::parse(key).ok_or_else(|| KeymapError::Unknown {
        command: command.into(),
        text: text.into(),
    })?;
    let types = matches!(
        chord.code,
        KeyCode::Char(_) | KeyCode::Enter | KeyCode::Backspace | KeyCode::Tab | KeyCode::Esc
    ) && chord.modifiers.is_empty();
    if !after && types {
        return Err(KeymapError::Typing {
            command: command.into(),
            text: text.into(),
        });
    }
    Ok((after, chord))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn the_defaults_have_no_conflict_and_every_command_a_key() {
        let map = Keymap::new(&ConsoleConfig::default()).unwrap();
        for row in map.rows() {
            assert!(!row.keys.is_empty(), "{}", row.name);
            assert!(row.doc.ends_with('.'), "{}", row.name);
        }
        assert!(
            map.alone.is_empty(),
            "programs get every key but the prefix"
        );
    }

    #[test]
    fn keys_of_agents_reach_the_agent() {
        let map = Keymap::new(&ConsoleConfig::default()).unwrap();
        for c in "abcdefghijklmnopqrstuvwxyz_^] ".chars() {
            let event = event(KeyCode::Char(c), KeyModifiers::CONTROL);
            assert_eq!(map.meaning(&event, false), Meaning::Program, "ctrl-{c}");
        }
        for code in (1..=24)
            .map(KeyCode::F)
            .chain([KeyCode::Esc, KeyCode::BackTab])
        {
            let event = event(code, KeyModifiers::NONE);
            assert_eq!(map.meaning(&event, false), Meaning::Program, "{code:?}");
        }
    }

    #[test]
    fn the_prefix_is_known_however_it_is_sent() {
        let map = Keymap::new(&ConsoleConfig::default()).unwrap();
        for c in ['\\', '4'] {
            let event = event(KeyCode::Char(c), KeyModifiers::CONTROL);
            assert_eq!(map.meaning(&event, false), Meaning::Prefix);
            assert_eq!(map.meaning(&event, true), Meaning::SendPrefix);
        }
        let upper = event(KeyCode::Char('N'), KeyModifiers::SHIFT);
        assert_eq!(
            map.meaning(&upper, true),
            Meaning::Command(Command::Previous)
        );
        let nine = event(KeyCode::Char('9'), KeyModifiers::NONE);
        assert_eq!(
            map.meaning(&nine, true),
            Meaning::Command(Command::Number(9))
        );
        assert_eq!(
            map.meaning(&event(KeyCode::F(9), KeyModifiers::NONE), true),
            Meaning::Nothing
        );
        assert_eq!(map.hint(Command::Detach), "^\\ d");
    }

    #[test]
    fn wrong_bindings_are_refused_with_their_place() {
        let mut config = ConsoleConfig::default();
        config.keys.help = vec!["prefix d".into()];
        let error = Keymap::new(&config).unwrap_err().to_string();
        assert!(
            error.contains("detach") && error.contains("help"),
            "{error}"
        );
        config.keys.help = vec!["prefix nokey".into()];
        assert!(matches!(
            Keymap::new(&config),
            Err(KeymapError::Unknown { .. })
        ));
        config.keys.help = vec!["x".into()];
        assert!(matches!(
            Keymap::new(&config),
            Err(KeymapError::Typing { .. })
        ));
        config.keys.help = vec!["f12".into(), "alt-?".into()];
        let map = Keymap::new(&config).unwrap();
        let f12 = event(KeyCode::F(12), KeyModifiers::NONE);
        assert_eq!(map.meaning(&f12, false), Meaning::Command(Command::Help));
    }
}
