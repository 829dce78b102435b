//! The environment of a session's program: the holder's own, without what belongs to other terminals.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::base::Secret;

/// What every session's terminal says of itself.
const OWN: [(&str, &str); 3] = [
    ("TERM", "xterm-256color"),
    ("COLORTERM", "truecolor"),
    ("TERM_PROGRAM", "wingman"),
];

/// Names that tell of a terminal, a multiplexer or a service around the agent, which are not this
/// program's.
const REMOVED: &[&str] = &[
    "ALACRITTY_LOG",
    "ALACRITTY_SOCKET",
    "ALACRITTY_WINDOW_ID",
    "COLUMNS",
    "INVOCATION_ID",
    "ITERM_SESSION_ID",
    "JOURNAL_STREAM",
    "KITTY_PID",
    "KITTY_WINDOW_ID",
    "LINES",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "MANAGERPID",
    "NOTIFY_SOCKET",
    "OLDPWD",
    "PWD",
    "STY",
    "SYSTEMD_EXEC_PID",
    "TERMCAP",
    "TERMINFO",
    "TERM_PROGRAM_VERSION",
    "TERM_SESSION_ID",
    "TMUX",
    "TMUX_PANE",
    "VTE_VERSION",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "WEZTERM_PANE",
    "WEZTERM_UNIX_SOCKET",
    // The agent's own way to a server, and its secret.
    "WINGMAN_PIN",
    "WINGMAN_SERVER",
    "WINGMAN_TOKEN",
    "WINDOW",
    "WT_SESSION",
    "ZELLIJ",
    "ZELLIJ_PANE_ID",
    "ZELLIJ_SESSION_NAME",
];

/// The whole environment of the program of session `id`. What the specification sets comes last and wins.
pub fn of_session(
    inherited: impl Iterator<Item = (OsString, OsString)>,
    id: &str,
    set: &BTreeMap<String, Secret>,
) -> Vec<(OsString, OsString)> {
    let own = OWN.iter().copied().chain([("WINGMAN_SESSION", id)]);
    let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let set = set
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value.expose())));
    let all: BTreeMap<OsString, OsString> = inherited
        .filter(|(name, _)| !REMOVED.iter().any(|removed| name == removed))
        .chain(own)
        .chain(set)
        .collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_terminals_are_forgotten_and_the_specification_wins() {
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        let inherited = [pair("TMUX", "x"), pair("HOME", "/h"), pair("TERM", "linux")];
        let set = BTreeMap::from([("COLORTERM".to_owned(), Secret::new("no"))]);
        let all = of_session(inherited.into_iter(), "s1", &set);
        let expected = [
            pair("COLORTERM", "no"),
            pair("HOME", "/h"),
            pair("TERM", "xterm-256color"),
            pair("TERM_PROGRAM", "wingman"),
            pair("WINGMAN_SESSION", "s1"),
        ];
        assert_eq!(all, expected);
    }
}
