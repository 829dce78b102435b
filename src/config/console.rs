//! console.toml: what the console shows and which keys it takes.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{ConfigError, invalid, load, parse};

/// All settings of a console.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConsoleConfig {
    pub console: ScreenConfig,
    pub keys: KeysConfig,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    #[default]
    Left,
    Right,
}

/// What is shown and taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScreenConfig {
    /// The key before the bindings that begin with `prefix`.
    pub prefix: String,
    pub sidebar: Side,
    /// Columns, 20 to 60.
    pub sidebar_width: u16,
    /// Take mouse events.
    pub mouse: bool,
    /// Let the outer terminal's clipboard take what is copied (OSC 52).
    pub clipboard: bool,
}

impl Default for ScreenConfig {
    fn default() -> Self {
        Self {
            prefix: "ctrl-\\".into(),
            sidebar: Side::Left,
            sidebar_width: 30,
            mouse: true,
            clipboard: true,
        }
    }
}

macro_rules! keys {
    ($($name:ident = [$($key:literal),*], $doc:literal;)+) => {
        /// The keys of each command: `prefix x`, or a key alone, which programs then no longer get.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct KeysConfig {
            $(#[doc = $doc] pub $name: Vec<String>,)+
        }

        impl Default for KeysConfig {
            fn default() -> Self {
                Self { $($name: [$($key),*].map(str::to_owned).to_vec(),)+ }
            }
        }

        impl KeysConfig {
            /// Each command's name, what it does, and its keys.
            pub fn rows(&self) -> Vec<(&'static str, &'static str, &[String])> {
                vec![$((stringify!($name), $doc, self.$name.as_slice()),)+]
            }
        }
    };
}

keys! {
    detach = ["prefix d"], "Leave the console; sessions go on.";
    help = ["prefix ?", "prefix f1"], "Show every key.";
    menu = ["prefix space", "prefix m"], "Open the menu.";
    palette = ["prefix :", "prefix p"], "Find a command or a session by a part of its name.";
    new = ["prefix c"], "Start a session.";
    rename = ["prefix ,"], "Rename the focused session.";
    kill = ["prefix x"], "End the focused session, after a question.";
    choose = ["prefix s"], "Choose a session in the sidebar with the cursor keys.";
    filter = ["prefix f"], "Show only sessions that hold a text.";
    next = ["prefix n", "prefix down"], "Focus the next session.";
    previous = ["prefix N", "prefix up"], "Focus the previous session.";
    next_waiting = ["prefix w", "prefix tab"], "Focus the next session that waits for a person.";
    last = ["prefix l"], "Focus the session of before.";
    number = ["prefix 1", "prefix 2", "prefix 3", "prefix 4", "prefix 5", "prefix 6", "prefix 7", "prefix 8", "prefix 9"], "Focus a session by its number; the first key is number 1.";
    scrollback = ["prefix [", "prefix pageup"], "Look back at what has scrolled away.";
    search = ["prefix /"], "Search in the scrollback.";
    paste = ["prefix ]"], "Paste what was copied last in this console.";
    sidebar = ["prefix b"], "Show or hide the sidebar.";
    full_screen = ["prefix z"], "Show the focused session alone, or everything again.";
    split_right = ["prefix |", "prefix %"], "Show a further session to the right.";
    split_down = ["prefix -", "prefix \""], "Show a further session below.";
    unsplit = ["prefix q"], "Close the pane that has the focus.";
    next_pane = ["prefix o", "prefix right"], "Focus the next pane.";
    take = ["prefix t"], "Take the right to type alone.";
    take_over = ["prefix T"], "Take the right to type from its holder.";
    release = ["prefix u"], "Give back the right to type alone.";
    observe = ["prefix v"], "Only watch the focused session, or type again.";
    literal = ["prefix ctrl-v", "prefix e"], "Send the next key to the program, whatever it is.";
    mouse = ["prefix M"], "Take the mouse, or leave it to the outer terminal.";
    retry = ["prefix R"], "Try a lost session or workstation again now.";
    redraw = ["prefix ctrl-l"], "Paint everything again.";
    suspend = ["prefix ctrl-z"], "Stop the console as a job of the shell.";
}

impl ConsoleConfig {
    /// Reads a file; a missing one gives the defaults. Which keys exist is for the console to check.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let config: Self = load(path)?;
        config.check()?;
        Ok(config)
    }

    /// The same from a text; `path` is for messages.
    pub fn from_text(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = parse(path, text)?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        if !(20..=60).contains(&self.console.sidebar_width) {
            return Err(invalid("console.sidebar_width", "must be 20 to 60"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_commands_and_widths_are_refused() {
        let read = |text| ConsoleConfig::from_text(Path::new("console.toml"), text);
        let error = read("[keys]\ndetatch = []\n").unwrap_err().to_string();
        assert!(
            error.contains("detatch") && error.contains("console.toml"),
            "{error}"
        );
        assert!(read("[console]\nsidebar_width = 5\n").is_err());
        assert!(read("[keys]\ndetach = [\"f12\"]\n").is_ok());
    }
}
