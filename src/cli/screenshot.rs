//! `wingman screenshot`: what a workstation shows now.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::arguments::region;
use super::output::{self, clean};
use super::{Globals, Target};
use crate::base::Rect;
use crate::base::error::exit;
use crate::wire::messages::desktop::{CaptureParams, Screenshot};
use crate::wire::{Code, Fault};

/// Save a picture of a workstation's monitor, window or region.
#[derive(Clone, Debug, Args)]
pub struct ScreenshotArgs {
    #[command(flatten)]
    target: Target,
    /// The monitor's number as `wingman monitors` shows it; the primary one when absent.
    #[arg(long, value_name = "N", conflicts_with = "window")]
    display: Option<i32>,
    /// The window's handle as `wingman windows` shows it.
    #[arg(long, value_name = "HANDLE")]
    window: Option<u64>,
    /// Pixels to take: of the monitor or window when one is named, else of the whole desktop.
    #[arg(long, value_name = "X,Y,W,H", value_parser = region, allow_hyphen_values = true)]
    region: Option<Rect>,
    /// native-jpeg, 1080p-jpeg, native-png or dashboard-jpeg; by the file's ending when absent.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// Draw the pointer.
    #[arg(long)]
    cursor: bool,
    /// The file to write; `-` is standard output.
    #[arg(long, short = 'o', value_name = "FILE")]
    out: PathBuf,
}

pub(super) async fn run(args: ScreenshotArgs, globals: &Globals) -> Result<u8, Fault> {
    let params = CaptureParams {
        display_id: args.display,
        window_id: args.window,
        region: args.region,
        profile: args.profile.or_else(|| by_ending(&args.out)),
        include_cursor: args.cursor.then_some(true),
    };
    let caller = globals.caller_for(&args.target).await?;
    let blob = caller.call_blob::<Screenshot>(&params).await?;
    if args.out == Path::new("-") {
        output::bytes(&blob.bytes);
        return Ok(exit::OK);
    }
    save(&args.out, &blob.bytes)?;
    let file = args.out.display().to_string();
    if globals.json {
        let bytes = blob.bytes.len();
        output::json(&json!({"file": file, "contentType": blob.content_type, "bytes": bytes}));
    } else {
        let kind = clean(&blob.content_type);
        output::note(&format!(
            "wrote {file} ({kind}, {} bytes)",
            blob.bytes.len()
        ));
    }
    Ok(exit::OK)
}

fn by_ending(path: &Path) -> Option<String> {
    let profile = match path.extension()?.to_str()? {
        "png" => "native-png",
        "jpg" | "jpeg" => "native-jpeg",
        _ => return None,
    };
    Some(profile.to_owned())
}

/// Writes a file as a whole.
pub(super) fn save(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    std::fs::write(path, bytes).map_err(|error| {
        Fault::new(
            Code::StorageFailed,
            format!("write {}: {error}", path.display()),
        )
    })
}
