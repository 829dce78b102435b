//! Capability names: an open vocabulary with a known part.

use std::collections::BTreeSet;

/// The 13 names of protocol 1.
pub const SEED_CAPABILITIES: &[&str] = &[
    SCREEN_CAPTURE,
    SCREEN_STREAM,
    SCREEN_LIST_MONITORS,
    INPUT_MOUSE,
    INPUT_KEYBOARD,
    INPUT_TOUCH,
    WINDOW_ENUMERATE,
    WINDOW_ACTIVATE,
    PROCESS_SPAWN,
    VISION_IMAGE,
    VISION_COLOR,
    OCR,
    ML_ONNX,
];

/// Wingman's own names.
pub const OWN_CAPABILITIES: &[&str] = &[
    CLIPBOARD,
    SCRIPT_LUA,
    SCRIPT_RHAI,
    SCRIPT_PYTHON,
    TERMINALS,
    ELEMENTS,
    ACTIONS,
    EXECUTORS,
];

pub const SCREEN_CAPTURE: &str = "screen.capture";
pub const SCREEN_STREAM: &str = "screen.stream";
pub const SCREEN_LIST_MONITORS: &str = "screen.listMonitors";
pub const INPUT_MOUSE: &str = "input.mouse";
pub const INPUT_KEYBOARD: &str = "input.keyboard";
pub const INPUT_TOUCH: &str = "input.touch";
pub const WINDOW_ENUMERATE: &str = "window.enumerate";
pub const WINDOW_ACTIVATE: &str = "window.activate";
pub const PROCESS_SPAWN: &str = "process.spawn";
pub const VISION_IMAGE: &str = "vision.image";
pub const VISION_COLOR: &str = "vision.color";
pub const OCR: &str = "ocr";
pub const ML_ONNX: &str = "ml.onnx";
pub const CLIPBOARD: &str = "clipboard";
pub const SCRIPT_LUA: &str = "script.lua";
pub const SCRIPT_RHAI: &str = "script.rhai";
pub const SCRIPT_PYTHON: &str = "script.python";
pub const TERMINALS: &str = "terminals";
pub const ELEMENTS: &str = "elements";
pub const ACTIONS: &str = "actions";
pub const EXECUTORS: &str = "executors";

/// Whether this version knows the name.
pub fn is_known(name: &str) -> bool {
    SEED_CAPABILITIES.contains(&name) || OWN_CAPABILITIES.contains(&name)
}

/// Splits advertised names into known and unknown, each sorted and without repeats.
pub fn split<'a>(names: impl IntoIterator<Item = &'a str>) -> (Vec<String>, Vec<String>) {
    let unique: BTreeSet<&str> = names.into_iter().collect();
    let (known, unknown): (Vec<&str>, Vec<&str>) = unique.into_iter().partition(|n| is_known(n));
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    (owned(known), owned(unknown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_kept_apart_not_dropped() {
        assert_eq!(SEED_CAPABILITIES.len(), 13);
        let (known, unknown) = split(["ocr", "hologram", "ocr", "terminals"]);
        assert_eq!(known, ["ocr", "terminals"]);
        assert_eq!(unknown, ["hologram"]);
    }
}
