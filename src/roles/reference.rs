//! `wingman script docs|stubs` and `wingman reference`: what is generated from the descriptors.

use std::path::Path;

use crate::cli::{self, ReferenceArgs, ScriptAction, ScriptArgs};
use crate::control::routes::ROUTES;
use crate::ops::reference::{self, Sources};
use crate::script;
use crate::wire::{Code, Fault};

/// `wingman script`.
pub fn script(args: ScriptArgs) -> Result<(), Fault> {
    match args.action {
        ScriptAction::Docs => {
            print!("{}", script::reference_markdown());
            Ok(())
        }
        ScriptAction::Stubs { out } => {
            store(&out.join("wingman.d.luau"), &script::stubs_luau())?;
            store(&out.join("wingman.lua"), &script::stubs_luacats())
        }
    }
}

/// `wingman reference`.
pub fn write(args: &ReferenceArgs) -> Result<(), Fault> {
    let pages = reference::pages(Sources {
        command_line: cli::definition(),
        script_api: script::reference_markdown(),
        routes: ROUTES.iter().map(|route| *route.row).collect(),
    });
    reference::write(&args.out, &pages)
}

fn store(path: &Path, text: &str) -> Result<(), Fault> {
    let write = || -> std::io::Result<()> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(path, text)
    };
    write().map_err(|error| {
        Fault::new(
            Code::StorageFailed,
            format!("write {}: {error}", path.display()),
        )
    })
}
