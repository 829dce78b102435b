//! `wingman monitors`: the monitors of a workstation.

use clap::Args;

use super::{Globals, Target, output};
use crate::base::error::exit;
use crate::wire::Fault;
use crate::wire::messages::Empty;
use crate::wire::messages::desktop::{ListMonitors, Monitor};

/// List the monitors of a workstation.
#[derive(Clone, Debug, Args)]
pub struct MonitorsArgs {
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(args: MonitorsArgs, globals: &Globals) -> Result<u8, Fault> {
    let caller = globals.caller_for(&args.target).await?;
    let reply = caller.call::<ListMonitors>(&Empty {}).await?;
    if globals.json {
        output::json(&reply);
    } else {
        let rows = reply.monitors.iter().map(row).collect();
        output::table(&["ID", "NAME", "BOUNDS", "SCALE", "PRIMARY"], rows);
    }
    Ok(exit::OK)
}

fn row(monitor: &Monitor) -> Vec<String> {
    let bounds = monitor.bounds;
    vec![
        monitor.id.to_string(),
        monitor.name.clone(),
        format!(
            "{},{} {}×{}",
            bounds.x, bounds.y, bounds.width, bounds.height
        ),
        format!("{:.2}", monitor.scale),
        if monitor.is_primary { "yes" } else { "no" }.to_owned(),
    ]
}
