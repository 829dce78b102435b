//! What a new session starts: program, folder, environment and name.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::base::{Secret, limits};
use crate::wire::messages::sessions::{BaseKind, CreateParams};
use crate::wire::{Code, Fault};

/// A checked start.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Program and arguments; never empty.
    pub argv: Vec<String>,
    pub base_path: PathBuf,
    pub base_kind: BaseKind,
    pub cwd: PathBuf,
    /// Variables over the agent's own.
    pub env: BTreeMap<String, Secret>,
}

/// Who starts it.
#[derive(Clone, Debug)]
pub struct User {
    pub home: PathBuf,
    pub shell: String,
}

/// Checks what was asked for against this machine. Reads the environment file and looks at folders.
///
/// Errors: `invalid_params` for a bad name, variable or file, `not_found` for a missing folder or
/// file, `path_denied` for a folder that leaves its base.
pub fn plan(params: &CreateParams, user: &User) -> Result<Launch, Fault> {
    let base_path = match params.base_kind {
        BaseKind::Home => user.home.clone(),
        BaseKind::Workspace => PathBuf::from(&params.base_path),
    };
    if !base_path.is_absolute() {
        let text = format!("base_path {:?} is not absolute", params.base_path);
        return Err(Fault::new(Code::InvalidParams, text));
    }
    let rel = match params.base_kind {
        BaseKind::Home => Path::new(""),
        BaseKind::Workspace => Path::new(&params.rel),
    };
    let cwd = folder_below(&base_path, rel)?;
    let mut env = match &params.env_file {
        Some(file) => read_env_file(&cwd.join(file))?,
        None => BTreeMap::new(),
    };
    for (name, value) in &params.env {
        check_variable(name)?;
        env.insert(name.clone(), value.clone());
    }
    let argv = match params.command.as_slice() {
        [] => vec![user.shell.clone()],
        command => command.to_vec(),
    };
    if argv[0].is_empty() || argv.iter().any(|part| part.contains('\0')) {
        return Err(Fault::new(
            Code::InvalidParams,
            "command: no program is named",
        ));
    }
    Ok(Launch {
        argv,
        base_path,
        base_kind: params.base_kind,
        cwd,
        env,
    })
}

/// A session name that a person gave: 1 to 64 printable characters, no slash.
pub fn check_name(name: &str) -> Result<(), Fault> {
    let length = name.chars().count();
    let bad = |c: char| c.is_control() || c == '/';
    if length == 0 || length > limits::SESSION_NAME_CHARS_MAX || name.chars().any(bad) {
        let text = format!(
            "a session's name has 1 to {} printable characters and no slash",
            limits::SESSION_NAME_CHARS_MAX
        );
        return Err(Fault::new(Code::InvalidParams, text));
    }
    Ok(())
}

/// A name told from the program, made unique among `taken` by a number.
pub fn name_for(argv: &[String], taken: impl Fn(&str) -> bool) -> String {
    let program = argv.first().map_or("", String::as_str);
    let stem = Path::new(program)
        .file_stem()
        .and_then(|stem| stem.to_str());
    let plain: String = stem
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control() && *c != '/')
        .take(limits::SESSION_NAME_CHARS_MAX - 8)
        .collect();
    let plain = if plain.is_empty() {
        "session".into()
    } else {
        plain
    };
    if !taken(&plain) {
        return plain;
    }
    // INVARIANT: sessions are bounded, so one of the first names above their number is free.
    (2..)
        .map(|number| format!("{plain}-{number}"))
        .find(|name| !taken(name))
        .unwrap_or(plain)
}

fn folder_below(base: &Path, rel: &Path) -> Result<PathBuf, Fault> {
    if rel
        .components()
        .any(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
    {
        let text = format!("{} leaves its base folder", rel.display());
        return Err(Fault::new(Code::PathDenied, text));
    }
    let canonical = |path: &Path| {
        // Without the prefix by which Windows marks such paths: programs and people know none.
        dunce::canonicalize(path).map_err(|error| {
            let text = format!("folder {}: {error}", path.display());
            Fault::new(Code::NotFound, text)
        })
    };
    let root = canonical(base)?;
    let folder = canonical(&base.join(rel))?;
    if !folder.starts_with(&root) {
        let text = format!("{} leaves its base folder", rel.display());
        return Err(Fault::new(Code::PathDenied, text));
    }
    if !folder.is_dir() {
        let text = format!("{} is no folder", folder.display());
        return Err(Fault::new(Code::NotFound, text));
    }
    Ok(folder)
}

fn read_env_file(path: &Path) -> Result<BTreeMap<String, Secret>, Fault> {
    let fault = |code, why: String| Fault::new(code, format!("env file {}: {why}", path.display()));
    let length = std::fs::metadata(path)
        .map_err(|error| fault(Code::NotFound, error.to_string()))?
        .len();
    if length > limits::ENV_FILE_LEN_MAX {
        let why = format!("{length} bytes are more than {}", limits::ENV_FILE_LEN_MAX);
        return Err(fault(Code::InvalidParams, why));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| fault(Code::InvalidParams, error.to_string()))?;
    parse_env(&text).map_err(|line| {
        // The line itself may hold a secret.
        fault(
            Code::InvalidParams,
            format!("line {line} is not NAME=value"),
        )
    })
}

/// Reads `NAME=value` lines; `export` before a name, quotes around a value, blank lines and comments
/// are allowed. The error is the number of the first line that is none of these.
fn parse_env(text: &str) -> Result<BTreeMap<String, Secret>, usize> {
    let mut all = BTreeMap::new();
    for (number, line) in (1_usize..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or(number)?;
        let name: &str = name.trim();
        check_variable(name).map_err(|_| number)?;
        let value = value.trim();
        let quoted = ['"', '\''].into_iter().find_map(|quote| {
            let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
            Some(inner)
        });
        all.insert(name.to_owned(), Secret::new(quoted.unwrap_or(value)));
    }
    Ok(all)
}

fn check_variable(name: &str) -> Result<(), Fault> {
    let good = |(at, c): (usize, char)| {
        c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit())
    };
    if name.is_empty() || name.len() > limits::ID_LEN_MAX || !name.chars().enumerate().all(good) {
        let text = format!("{name:?} is not the name of a variable");
        return Err(Fault::new(Code::InvalidParams, text));
    }
    Ok(())
}

/// What brings a known agent's former conversation back, by the name of its program.
const RESUMES: &[(&str, &[&str])] = &[
    ("claude", &["--continue"]),
    ("codex", &["resume", "--last"]),
    ("gemini", &["--resume", "latest"]),
    ("kimi", &["--continue"]),
    ("opencode", &["--continue"]),
    ("aider", &["--restore-chat-history"]),
];

/// The start command with the program's own resume flag, where that is known and not there yet.
pub fn resumed(argv: &[String]) -> Vec<String> {
    let mut argv = argv.to_vec();
    let program = argv.first().map(Path::new).and_then(Path::file_stem);
    let row = RESUMES
        .iter()
        .find(|(name, _)| program == Some(name.as_ref()));
    if let Some((_, flags)) = row
        && !argv[1..].iter().any(|part| flags.contains(&part.as_str()))
    {
        argv.splice(1..1, flags.iter().map(|flag| (*flag).to_owned()));
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(home: &Path) -> User {
        User {
            home: home.to_owned(),
            shell: "/bin/sh".into(),
        }
    }

    #[test]
    fn base_rel_and_env_file_are_checked_on_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("w/sub")).unwrap();
        std::fs::write(dir.path().join("w/sub/env"), "# c\nexport A='x y'\nB=1\n\n").unwrap();
        let base = dir.path().join("w").to_string_lossy().into_owned();
        let mut params = CreateParams {
            base_kind: BaseKind::Workspace,
            base_path: base,
            rel: "sub".into(),
            env_file: Some("env".into()),
            ..CreateParams::default()
        };
        let launch = plan(&params, &user(dir.path())).unwrap();
        assert!(launch.cwd.ends_with("w/sub"));
        assert_eq!(launch.argv, ["/bin/sh"]);
        assert_eq!(launch.env["A"].expose(), "x y");
        params.env_file = Some("missing".into());
        assert_eq!(
            plan(&params, &user(dir.path())).unwrap_err().code,
            Code::NotFound
        );
        params.env_file = None;
        for (rel, code) in [
            ("..", Code::PathDenied),
            ("/etc", Code::PathDenied),
            ("nope", Code::NotFound),
        ] {
            params.rel = rel.into();
            assert_eq!(
                plan(&params, &user(dir.path())).unwrap_err().code,
                code,
                "{rel}"
            );
        }
        params.base_path = "w".into();
        assert_eq!(
            plan(&params, &user(dir.path())).unwrap_err().code,
            Code::InvalidParams
        );
    }

    #[test]
    fn env_errors_name_the_line_and_not_its_text() {
        assert_eq!(parse_env("A=1\nsecret stuff\n"), Err(2));
        assert_eq!(parse_env("1A=x"), Err(1));
    }

    #[test]
    fn names_are_told_from_the_program_and_unique() {
        let argv = ["/usr/bin/bash".to_owned()];
        assert_eq!(name_for(&argv, |_| false), "bash");
        assert_eq!(name_for(&argv, |name| name == "bash"), "bash-2");
        assert_eq!(name_for(&["\u{7}".to_owned()], |_| false), "session");
        assert!(check_name("build 1").is_ok());
        for bad in ["", "a\u{1b}", "a/b", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn known_agents_resume_once() {
        let argv = |parts: &[&str]| parts.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
        let once = resumed(&argv(&["/opt/claude", "--model", "x"]));
        assert_eq!(once, argv(&["/opt/claude", "--continue", "--model", "x"]));
        assert_eq!(resumed(&once), once);
        assert_eq!(resumed(&argv(&["vim", "a"])), argv(&["vim", "a"]));
    }
}
