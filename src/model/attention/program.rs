//! Names of programs: shells, interpreters, programs that only carry another terminal.

use crate::base::limits;

use super::input::Foreground;

/// Shells that edit their own line: at their prompt the terminal is not in line mode.
const EDITING_SHELLS: &[&str] = &["bash", "zsh", "fish", "nu", "xonsh", "pwsh", "elvish"];

/// Shells that read whole lines.
const PLAIN_SHELLS: &[&str] = &[
    "sh",
    "dash",
    "ash",
    "ksh",
    "mksh",
    "csh",
    "tcsh",
    "cmd",
    "powershell",
];

/// Programs whose name says nothing: the first argument that is no option is what runs.
const INTERPRETERS: &[&str] = &[
    "node", "bun", "deno", "python", "python3", "pypy3", "ruby", "perl", "php",
];

/// Programs behind which another terminal runs: their own reading says nothing about it.
const RELAYS: &[&str] = &[
    "ssh",
    "mosh-client",
    "et",
    "tmux",
    "tmux: client",
    "screen",
    "zellij",
    "docker",
    "podman",
    "kubectl",
    "nerdctl",
    "lxc",
    "incus",
    "machinectl",
    "sudo",
    "doas",
    "su",
    "script",
    "wsl",
    "telnet",
    "picocom",
];

/// File name without folder, extension of Windows, and the dash of a login shell.
fn base_name(text: &str) -> &str {
    let name = text.rsplit(['/', '\\']).next().unwrap_or(text);
    let name = name.strip_prefix('-').unwrap_or(name);
    name.strip_suffix(".exe").unwrap_or(name)
}

fn is_shell_name(name: &str) -> bool {
    EDITING_SHELLS.contains(&name) || PLAIN_SHELLS.contains(&name)
}

/// A shell with neither script nor command.
pub(super) fn is_plain_shell(name: &str, arguments: &[String]) -> bool {
    let name = base_name(name);
    if !is_shell_name(name) {
        return false;
    }
    if matches!(name, "cmd" | "powershell" | "pwsh") {
        let runs = |argument: &String| {
            let argument = argument.to_ascii_lowercase();
            argument == "/c" || argument.starts_with("-c") || argument.starts_with("-f")
        };
        return !arguments.iter().any(runs);
    }
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rcfile" | "--init-file" | "-o" | "+o" | "-O" | "+O" => {
                arguments.next();
            }
            long if long.starts_with("--") => {}
            short if short.starts_with(['-', '+']) => {
                if short.contains('c') {
                    return false;
                }
            }
            _ => return false,
        }
    }
    true
}

/// Whether the shell puts the terminal out of line mode at its prompt.
pub(super) fn edits_its_line(foreground: &Foreground) -> bool {
    EDITING_SHELLS.contains(&base_name(&foreground.name))
}

/// Whether another terminal runs behind this program.
pub(super) fn is_relay(foreground: &Foreground) -> bool {
    RELAYS.contains(&base_name(&foreground.name))
}

/// The names under which a program may be known, best first: what an interpreter or a shell runs, else
/// the program itself. Arguments of other programs never count: `tail -f …/claude` is tail.
pub(super) fn names(foreground: &Foreground) -> Vec<String> {
    let own = base_name(&foreground.name);
    let argv0 = foreground.argv0.as_deref().map(base_name);
    let interprets = |name: &str| {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        INTERPRETERS.contains(&name) || INTERPRETERS.contains(&stem) || is_shell_name(name)
    };
    let mut names = Vec::new();
    if interprets(own) || argv0.is_some_and(interprets) {
        names.extend(script_name(&foreground.arguments));
    }
    names.extend(argv0.map(str::to_owned));
    names.push(own.to_owned());
    names
}

/// What an interpreter runs: `-m module` or the first argument that is no option.
fn script_name(arguments: &[String]) -> Option<String> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "-m" {
            return arguments.next().map(|module| base_name(module).to_owned());
        }
        if matches!(argument.as_str(), "-c" | "-e" | "-p" | "--eval") {
            return None;
        }
        if !argument.starts_with('-') {
            return Some(base_name(argument).to_owned());
        }
    }
    None
}

/// Whether a text is a program's name as OSC 7501 has it; others are left out.
pub(super) fn is_app_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    (1..=limits::ATTENTION_APP_LEN_MAX).contains(&text.len()) && text.chars().all(allowed)
}

/// The name for people.
pub(super) fn label(foreground: &Foreground) -> String {
    names(foreground)
        .into_iter()
        .next()
        .unwrap_or_else(|| foreground.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, argv: &[&str]) -> Foreground {
        let argv: Vec<String> = argv.iter().map(|text| (*text).to_owned()).collect();
        Foreground::new(7, name, &argv)
    }

    #[test]
    fn a_shell_with_a_script_or_a_command_is_a_program() {
        assert!(run("bash", &["-bash"]).is_shell);
        assert!(run("zsh", &["/usr/bin/zsh", "-l", "-i"]).is_shell);
        assert!(run("bash", &["bash", "--norc"]).is_shell);
        assert!(run("bash.exe", &[]).is_shell);
        assert!(run("bash", &["bash", "--rcfile", "/tmp/rc", "-i"]).is_shell);
        assert!(!run("bash", &["bash", "/tmp/deploy.sh"]).is_shell);
        assert!(run("pwsh", &["pwsh", "-NoLogo", "-ExecutionPolicy", "Bypass"]).is_shell);
        assert!(!run("cmd.exe", &["cmd.exe", "/c", "build.bat"]).is_shell);
        assert!(!run("bash", &["bash", "deploy.sh"]).is_shell);
        assert!(!run("sh", &["sh", "-c", "read x"]).is_shell);
        assert!(!run("bash", &["bash", "-lc", "make"]).is_shell);
        assert!(!run("vim", &["vim"]).is_shell);
    }

    #[test]
    fn an_interpreter_lends_its_name_to_what_it_runs() {
        assert_eq!(
            label(&run(
                "node",
                &["node", "--no-warnings", "/usr/bin/gemini", "-m", "x"]
            )),
            "gemini"
        );
        assert_eq!(
            label(&run("python3.12", &["python3.12", "-m", "aider"])),
            "aider"
        );
        assert_eq!(
            label(&run("python3", &["python3", "-c", "input()"])),
            "python3"
        );
        assert_eq!(label(&run("claude", &["claude"])), "claude");
        assert_eq!(label(&run("MainThread", &["/opt/bin/kimi"])), "kimi");
    }

    #[test]
    fn a_name_that_is_none_is_left_out() {
        assert!(is_app_name("claude-code"));
        assert!(!is_app_name(""));
        assert!(!is_app_name("my secret plan"));
        assert!(!is_app_name(&"x".repeat(33)));
    }

    #[test]
    fn the_file_that_a_program_reads_is_not_its_name() {
        let names = names(&run("tail", &["tail", "-f", "/var/log/claude"]));
        assert!(!names.iter().any(|name| name == "claude"), "{names:?}");
    }
}
