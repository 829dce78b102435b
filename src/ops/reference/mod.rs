//! docs/reference: pages that come out of the code and of nothing else.
//!
//! Invariants: the same build writes the same bytes whatever terminal, environment or host it runs
//! on; what only other modules know (script functions, the server's routes, the command line) is
//! passed in.

mod command_line;
mod configuration;
mod methods;
mod schema;

use std::path::Path;

use crate::wire::{Code, Fault, MethodRow};

/// What the pages are made of besides the tables of `wire` and `config`.
pub struct Sources {
    pub command_line: clap::Command,
    /// The page of the script functions.
    pub script_api: String,
    /// Every route of the server, those that are no methods included.
    pub routes: Vec<MethodRow>,
}

/// A page, by its file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub name: &'static str,
    pub text: String,
}

/// Every page.
pub fn pages(sources: Sources) -> Vec<Page> {
    let page = |name, text: String| Page {
        name,
        text: format!("{}\n", text.trim_end()),
    };
    vec![
        page("cli.md", command_line::page(sources.command_line)),
        page("configuration.md", configuration::page()),
        page("errors.md", methods::errors_page()),
        page("events.md", methods::events_page()),
        page("methods.md", methods::methods_page()),
        page("rest.md", methods::rest_page(&sources.routes)),
        page("script-api.md", sources.script_api),
    ]
}

/// Writes the pages into a folder, which is made when missing.
pub fn write(dir: &Path, pages: &[Page]) -> Result<(), Fault> {
    let failed = |path: &Path, error: std::io::Error| {
        Fault::new(
            Code::StorageFailed,
            format!("write {}: {error}", path.display()),
        )
    };
    std::fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    for page in pages {
        let path = dir.join(page.name);
        std::fs::write(&path, &page.text).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// A cell of a Markdown table.
fn cell(text: &str) -> String {
    text.trim()
        .replace('|', "\\|")
        .replace("\n\n", "<br>")
        .replace('\n', " ")
}

/// A Markdown table; nothing when there are no rows.
fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "| {} |\n|{}\n",
        header.join(" | "),
        "---|".repeat(header.len())
    );
    for row in rows {
        let cells: Vec<String> = row.iter().map(|text| cell(text)).collect();
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_cannot_break_their_table() {
        let text = table(&["A", "B"], &[vec!["a|b\nc".into(), String::new()]]);
        assert_eq!(text, "| A | B |\n|---|---|\n| a\\|b c |  |\n\n");
    }
}
