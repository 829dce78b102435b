//! What was built, when and from what.

use crate::wire::messages::BuildInfo;

/// The facts of this build; an empty text means unknown.
pub fn build_info() -> BuildInfo {
    let or_empty = |text: Option<&str>| text.unwrap_or("").to_owned();
    BuildInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: or_empty(option_env!("WINGMAN_BUILD_REVISION")),
        time: or_empty(option_env!("WINGMAN_BUILD_TIME")),
        modified: or_empty(option_env!("WINGMAN_BUILD_MODIFIED")),
        compiler: or_empty(option_env!("WINGMAN_BUILD_COMPILER")),
        platform: or_empty(option_env!("WINGMAN_BUILD_PLATFORM")),
    }
}

/// Prints one line, or all as JSON.
pub(super) fn print(json: bool) {
    let info = build_info();
    if json {
        super::output::json(&info);
        return;
    }
    let mut line = format!("wingman {}", info.version);
    let short: String = info.revision.chars().take(12).collect();
    let modified = if info.modified == "true" {
        ", modified"
    } else {
        ""
    };
    if !short.is_empty() {
        line.push_str(&format!(" ({short}{modified})"));
    }
    super::output::line(&line);
}
