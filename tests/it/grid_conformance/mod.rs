//! How the grid does on test suites of other terminals, as the page docs/reference/terminal-conformance.md.
//!
//! The suites are read from crates in the cargo registry and never copied: libvterm's `.test` files from
//! shpool-vterm, and the recordings that alacritty_terminal replays. The score may only rise. After a
//! change that raises it, run this test with `WINGMAN_WRITE_REFERENCE=1`, which writes the page.

mod alacritty;
mod libvterm;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How one file of a suite went.
#[derive(Debug, Default)]
pub struct Outcome {
    pub file: String,
    pub passed: usize,
    pub checks: usize,
    /// One line for each check that failed.
    pub differences: Vec<String>,
}

impl Outcome {
    pub fn check(&mut self, passed: bool, difference: impl FnOnce() -> String) {
        self.checks += 1;
        if passed {
            self.passed += 1;
        } else {
            self.differences.push(difference());
        }
    }
}

/// The folder of a crate's source, as cargo knows it.
fn crate_dir(name: &str) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == name);
    let manifest = package.unwrap_or_else(|| panic!("{name} is no dependency"))["manifest_path"]
        .as_str()
        .unwrap();
    Path::new(manifest).parent().unwrap().to_owned()
}

/// What differs, and why it stays so.
const REASONS: &[(&str, &str)] = &[
    (
        "left and right margins (DECLRMM)",
        "the emulator has none; mode 69 is reported as unknown",
    ),
    (
        "protected cells (DECSCA)",
        "the emulator has no such attribute; selective erases are ignored",
    ),
    (
        "lines of double width and height",
        "the emulator has none, and consoles could not show them",
    ),
    (
        "blink, fonts, small and raised text",
        "the emulator does not store them",
    ),
    (
        "8-bit control characters (S8C1T)",
        "output is UTF-8, where these bytes are parts of characters",
    ),
    (
        "device attributes, version, spelling of DECRQSS answers",
        "libvterm names itself; ours are as valid",
    ),
    (
        "a dark colour in bold",
        "stays dark here; libvterm makes it bright",
    ),
    (
        "an erase in colour",
        "leaves the background here; libvterm keeps the foreground too",
    ),
    (
        "default colours set by the embedder",
        "are the console's business",
    ),
    (
        "number of combining marks",
        "16 are kept here, 5 by libvterm",
    ),
    (
        "63screen_resize, 69screen_reflow",
        "the tests hand in a scrollback of their own; here lines that scrolled out come back",
    ),
    (
        "16state_resize",
        "a narrower screen breaks its lines anew, the cursor with them",
    ),
    (
        "alacritty: underline",
        "SGR 21 is a double underline here, as in xterm, and not the end of bold",
    ),
    (
        "alacritty: decaln_reset",
        "DECALN also resets the margins and homes the cursor, as in xterm",
    ),
    (
        "alacritty: saved_cursor_alt",
        "a cursor saved on the alternate screen is forgotten with it",
    ),
];

fn page(libvterm: &[Outcome], alacritty: &[Outcome]) -> String {
    let mut page = String::from(
        "# Terminal conformance\n\n\
         How the grid (`src/terminal/grid`) does on the tests of other terminals. Written by the test\n\
         `grid_conformance`, which fails when a score falls; `WINGMAN_WRITE_REFERENCE=1 cargo test --test it\n\
         grid_conformance` writes this page anew after an improvement. The suites come from crates in the cargo\n\
         registry.\n",
    );
    let suites = [
        (
            "libvterm",
            "Checks of screen, cursor, pen, line and answers in the `.test` files of shpool-vterm. Checks of \
             libvterm's own events, input encoding and parser callbacks have no counterpart and are left out.",
            libvterm,
        ),
        (
            "alacritty",
            "Recordings of alacritty_terminal; a check is a whole recording, compared cell by cell with the \
             scrollback. Tab characters count as the blanks that they show.",
            alacritty,
        ),
    ];
    for (name, about, outcomes) in suites {
        let passed: usize = outcomes.iter().map(|outcome| outcome.passed).sum();
        let checks: usize = outcomes.iter().map(|outcome| outcome.checks).sum();
        let _ = write!(
            page,
            "\n## {name}\n\n{about}\n\n**{passed} of {checks}**\n\n"
        );
        page.push_str("| File | Passed | Checks |\n|---|---|---|\n");
        for outcome in outcomes.iter().filter(|outcome| outcome.checks > 0) {
            let Outcome {
                file,
                passed,
                checks,
                ..
            } = outcome;
            let _ = writeln!(page, "| {name}/{file} | {passed} | {checks} |");
        }
    }
    page.push_str("\n## Why\n\n| Difference | Reason |\n|---|---|\n");
    for (what, why) in REASONS {
        let _ = writeln!(page, "| {what} | {why} |");
    }
    page.push_str("\n## Known differences\n\n");
    for outcome in libvterm.iter().chain(alacritty) {
        for difference in &outcome.differences {
            let _ = writeln!(
                page,
                "- {}: {}",
                outcome.file,
                difference.replace('|', "\\|")
            );
        }
    }
    page
}

/// Checks passed, by file, as a page says.
fn scores(page: &str) -> BTreeMap<String, usize> {
    page.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let file = cells.next().filter(|file| file.contains('/'))?;
            Some((file.to_owned(), cells.next()?.parse().ok()?))
        })
        .collect()
}

#[test]
fn the_score_only_rises_and_the_page_says_it() {
    let libvterm = libvterm::run(&crate_dir("shpool-vterm").join("tests/data/libvterm"));
    let alacritty = alacritty::run(&crate_dir("alacritty_terminal").join("tests/ref"));
    let fresh = page(&libvterm, &alacritty);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/terminal-conformance.md");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let now = scores(&fresh);
    for (file, before) in scores(&committed) {
        let now = now.get(&file).copied().unwrap_or(0);
        assert!(
            now >= before,
            "{file}: {now} checks pass, {before} did before"
        );
    }
    if std::env::var_os("WINGMAN_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &fresh).unwrap();
        return;
    }
    assert!(
        fresh == committed,
        "docs/reference/terminal-conformance.md is out of date: run this test with WINGMAN_WRITE_REFERENCE=1"
    );
}
