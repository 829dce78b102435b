//! `cargo xtask docs`: docs/reference comes out of the binary; `--check` compares it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{self, Failure, Result, TempDir, root, say};
use crate::up::{Profile, build};

/// Pages that a test writes and compares, since they rest on recordings that the binary does not carry.
const PAGES_OF_TESTS: &[&str] = &["attention-rules.md", "terminal-conformance.md"];

/// Writes docs/reference, or fails when it differs from what the binary would write.
pub fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => return Err(Failure::usage("docs takes --check only")),
    };
    let program = build(Profile::Dev)?;
    let committed = root().join("docs/reference");
    if !check {
        // Pages that the binary no longer writes must not stay.
        for page in pages(&committed)?.keys() {
            std::fs::remove_file(committed.join(page))?;
        }
        return reference(&program, &committed);
    }
    let fresh = TempDir::new("reference")?;
    reference(&program, fresh.path())?;
    let different = differences(&pages(&committed)?, &pages(fresh.path())?);
    if different.is_empty() {
        say("docs/reference is up to date");
        return Ok(());
    }
    Err(Failure::new(format!(
        "docs/reference is out of date ({}); run cargo xtask docs",
        different.join(", ")
    )))
}

fn reference(program: &Path, out: &Path) -> Result<()> {
    std::fs::create_dir_all(out)?;
    shell::run(Command::new(program).arg("reference").arg("--out").arg(out))
}

/// Every file below a folder, by its path from there; without the pages of tests.
fn pages(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        if !next.exists() {
            continue;
        }
        for entry in std::fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else if let Ok(name) = path.strip_prefix(folder) {
                found.insert(name.to_path_buf(), std::fs::read(&path)?);
            }
        }
    }
    found.retain(|name, _| !PAGES_OF_TESTS.iter().any(|page| name == Path::new(page)));
    Ok(found)
}

fn differences(
    committed: &BTreeMap<PathBuf, Vec<u8>>,
    fresh: &BTreeMap<PathBuf, Vec<u8>>,
) -> Vec<String> {
    let names = committed.keys().chain(fresh.keys());
    let mut different: Vec<String> = names
        .filter(|name| committed.get(*name) != fresh.get(*name))
        .map(|name| name.display().to_string())
        .collect();
    different.sort();
    different.dedup();
    different
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_extra_and_changed_pages_are_named_once() {
        let page = |name: &str, text: &str| (PathBuf::from(name), text.as_bytes().to_vec());
        let old = BTreeMap::from([page("a", "1"), page("b", "1"), page("gone", "1")]);
        let new = BTreeMap::from([page("a", "1"), page("b", "2"), page("new", "1")]);
        assert_eq!(differences(&old, &new), ["b", "gone", "new"]);
    }
}
