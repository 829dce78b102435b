//! `wingman windows`: the windows of a workstation's desktop.

use clap::Args;

use super::{Globals, Target, output};
use crate::base::error::exit;
use crate::wire::Fault;
use crate::wire::messages::desktop::{Window, WindowList, WindowQuery};

/// List the windows of a workstation, topmost first.
#[derive(Clone, Debug, Args)]
pub struct WindowsArgs {
    #[command(flatten)]
    target: Target,
    /// Only those whose title contains this text, case ignored.
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Only those whose class contains this text.
    #[arg(long, value_name = "TEXT")]
    class: Option<String>,
    /// Only those whose program's name contains this text.
    #[arg(long, value_name = "TEXT")]
    process: Option<String>,
}

pub(super) async fn run(args: WindowsArgs, globals: &Globals) -> Result<u8, Fault> {
    let query = WindowQuery {
        title: args.title,
        class: args.class,
        process: args.process,
        ..WindowQuery::default()
    };
    let caller = globals.caller_for(&args.target).await?;
    let windows = caller.call::<WindowList>(&query).await?;
    if globals.json {
        output::json(&windows);
    } else {
        let header = ["HANDLE", "PID", "PROGRAM", "CLASS", "BOUNDS", "TITLE"];
        output::table(&header, windows.iter().map(row).collect());
    }
    Ok(exit::OK)
}

fn row(window: &Window) -> Vec<String> {
    let mark = match (window.is_foreground, window.is_minimized) {
        (true, _) => " *",
        (false, Some(true)) => " -",
        (false, _) => "",
    };
    let bounds = window.bounds;
    vec![
        format!("{}{mark}", window.handle),
        window
            .process_id
            .map_or_else(|| "-".into(), |pid| pid.to_string()),
        window.process_name.clone().unwrap_or_else(|| "-".into()),
        window.class.clone(),
        format!(
            "{},{} {}×{}",
            bounds.x, bounds.y, bounds.width, bounds.height
        ),
        window.title.clone(),
    ]
}
