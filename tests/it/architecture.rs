//! The rules of docs/architecture.md, read off the source text: who may name whom, where operating
//! system `cfg` and listeners may stand, and how a file has to look.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Who may name whom; a module may always name itself.
const LAYERS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("wire", &["base"]),
    ("config", &["base"]),
    ("store", &["base"]),
    ("platform", &["base"]),
    ("vision", &["base"]),
    ("model", &["base", "wire"]),
    ("journal", &["base", "wire"]),
    ("terminal", &["base", "wire", "platform", "model"]),
    ("desktop", &["base", "wire", "platform", "vision"]),
    ("terminal", &["base", "wire", "platform", "model"]),
    ("script", &["base", "wire", "platform", "desktop", "vision"]),
    (
        "runtime",
        &[
            "base", "wire", "config", "store", "platform", "vision", "model", "journal", "desktop",
            "terminal", "script",
        ],
    ),
    (
        "agent",
        &["base", "wire", "config", "platform", "model", "journal"],
    ),
    (
        "ipc",
        &["base", "wire", "config", "platform", "model", "journal"],
    ),
    ("client", &["base", "wire", "config", "platform", "ipc"]),
    (
        "control",
        &["base", "wire", "config", "store", "journal", "model"],
    ),
    (
        "console",
        &[
            "base", "wire", "config", "platform", "model", "terminal", "client",
        ],
    ),
    (
        "ops",
        &[
            "base", "wire", "config", "platform", "model", "agent", "client",
        ],
    ),
    ("terminal", &["base", "wire", "platform", "model"]),
    (
        "console",
        &[
            "base", "wire", "config", "platform", "model", "terminal", "client",
        ],
    ),
    ("cli", &["base", "wire", "config", "client"]),
];

/// May name every module.
const ROOTS: &[&str] = &["roles", "lib.rs", "main.rs"];

struct Source {
    /// Path below `src`, with forward slashes.
    path: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("read {}: {e}", dir.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

fn sources(below: &str) -> Vec<Source> {
    let base = root().join(below);
    let mut paths = Vec::new();
    walk(&base, &mut paths);
    paths.sort();
    let source = |path: PathBuf| Source {
        text: fs::read_to_string(&path).unwrap(),
        path: path
            .strip_prefix(&base)
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/"),
    };
    paths.into_iter().map(source).collect()
}

/// The text without comments; strings stay, which is on the safe side.
fn code(text: &str) -> String {
    let line = |line: &str| line.split("//").next().unwrap_or("").to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn module_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// Every module of ours that a text names by `crate::…`, nested `use` lists included.
fn named_modules(text: &str) -> BTreeSet<String> {
    let text = code(text);
    let mut named = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let word = |text: &str| -> String {
            text.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect()
        };
        match rest.strip_prefix('{') {
            None => {
                named.insert(word(rest));
            }
            Some(list) => {
                let mut depth = 0;
                let mut expect = true;
                for (index, c) in list.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => expect = true,
                        c if expect && depth == 0 && c.is_alphabetic() => {
                            named.insert(word(&list[index..]));
                            expect = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    named
}

#[test]
fn modules_name_only_those_below_them() {
    let rules: BTreeMap<&str, &[&str]> = LAYERS.iter().copied().collect();
    let modules: BTreeSet<&str> = rules.keys().copied().chain(["roles"]).collect();
    let mut wrong = Vec::new();
    for source in sources("src") {
        let own = module_of(&source.path);
        if ROOTS.contains(&own) {
            continue;
        }
        let Some(allowed) = rules.get(own) else {
            wrong.push(format!(
                "{}: module {own} is not in the layer table",
                source.path
            ));
            continue;
        };
        for named in named_modules(&source.text) {
            if named != own
                && modules.contains(named.as_str())
                && !allowed.contains(&named.as_str())
            {
                wrong.push(format!("{}: {own} may not name {named}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_rule_finds_a_forbidden_name_in_a_list() {
    let text =
        "use crate::{base::Point, runtime::{Node, Remote}, wire};\nfn f() { crate::store::x() }";
    let named = named_modules(text);
    let expected: BTreeSet<String> = ["base", "runtime", "store", "wire"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(named, expected);
}

#[test]
fn operating_system_cfg_stands_in_platform_alone() {
    let words = [
        "target_os",
        "cfg(unix",
        "cfg(windows",
        "cfg(not(unix",
        "cfg(not(windows",
        "target_family",
        "std::os::unix",
        "std::os::windows",
        "std::os::linux",
    ];
    let mut wrong = Vec::new();
    for source in sources("src") {
        if module_of(&source.path) == "platform" {
            continue;
        }
        for word in words {
            if code(&source.text).contains(word) {
                wrong.push(format!("{}: {word}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn listeners_and_http_servers_stand_in_control_alone() {
    // The loopback fallback of local IPC is the one listener outside of the server.
    let mut wrong = Vec::new();
    for source in sources("src") {
        let text = code(&source.text);
        let own = module_of(&source.path);
        let listener = text.contains("TcpListener") || text.contains("UdpSocket");
        if listener && own != "control" && source.path != "ipc/local_tcp.rs" {
            wrong.push(format!("{}: names a network listener", source.path));
        }
        let server = text.contains("axum") || text.contains("hyper::server");
        if server && own != "control" {
            wrong.push(format!("{}: names an HTTP server", source.path));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn sql_stands_in_store_alone() {
    let wrong: Vec<String> = sources("src")
        .into_iter()
        .filter(|source| {
            module_of(&source.path) != "store" && code(&source.text).contains("rusqlite")
        })
        .map(|source| source.path)
        .collect();
    assert!(wrong.is_empty(), "SQL outside of store: {wrong:?}");
}

#[test]
fn files_open_with_their_purpose_and_stay_readable() {
    let mut wrong = Vec::new();
    for below in ["src", "tests", "xtask/src", "benches"] {
        if !root().join(below).exists() {
            continue;
        }
        for source in sources(below) {
            let path = format!("{below}/{}", source.path);
            if !source.text.starts_with("//!") {
                wrong.push(format!("{path}: does not open with //!"));
            }
            let lines = source.text.lines().count();
            if lines > 1_000 {
                wrong.push(format!("{path}: {lines} lines"));
            }
            for (number, line) in source.text.lines().enumerate() {
                for word in [
                    "todo!(",
                    "unimplemented!(",
                    "dbg!(",
                    "#[ignore",
                    "allow(dead_code",
                ] {
                    let own = path.ends_with("it/architecture.rs");
                    if !own && line.contains(word) {
                        wrong.push(format!("{path}:{}: {word}", number + 1));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn every_integration_file_is_part_of_the_binary() {
    let main = fs::read_to_string(root().join("tests/it/main.rs")).unwrap();
    let mut forgotten = Vec::new();
    for source in sources("tests/it") {
        let module = module_of(&source.path).trim_end_matches(".rs").to_owned();
        if module != "main" && !main.contains(&format!("mod {module};")) {
            forgotten.push(source.path);
        }
    }
    assert!(
        forgotten.is_empty(),
        "not in tests/it/main.rs: {forgotten:?}"
    );
}

#[test]
fn main_stays_a_switchboard() {
    let lines = fs::read_to_string(root().join("src/main.rs"))
        .unwrap()
        .lines()
        .count();
    assert!(lines < 60, "src/main.rs has {lines} lines");
}

#[test]
fn every_dependency_says_why() {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let mut in_dependencies = false;
    let mut explained = false;
    let mut silent = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        } else if in_dependencies && line.starts_with('#') {
            explained = true;
            continue;
        } else if in_dependencies
            && line.contains(" = ")
            && !line.starts_with(' ')
            && !explained
            && !line.contains(" # ")
        {
            silent.push(line.split(' ').next().unwrap_or(line).to_owned());
        }
        explained = false;
    }
    assert!(silent.is_empty(), "no reason in Cargo.toml for {silent:?}");
}
