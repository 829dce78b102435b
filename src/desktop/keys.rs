//! Key names: words, characters and numbers for Windows virtual keys.
//!
//! One numbering on every platform. Punctuation is named by what a US keyboard has on the key.
//! 0x2A is taken for print screen as well as the right 0x2C: scripts of older hosts use it, and the
//! key that Windows means by it exists on no keyboard of today.

use crate::platform::VirtualKey;

/// Reads one key: a name, a character of a US keyboard's plain or shifted level, or a virtual-key
/// number in decimal (two or three digits) or after `0x`. `None` when it is none of these.
///
/// A single digit is the digit's key.
pub fn parse_key(text: &str) -> Option<VirtualKey> {
    let mut chars = text.chars();
    if let (Some(c), None) = (chars.next(), chars.next()) {
        return of_character(c);
    }
    let name = text.to_ascii_lowercase();
    if let Some(hex) = name.strip_prefix("0x") {
        return u8::from_str_radix(hex, 16).ok().and_then(valid_number);
    }
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return name.parse().ok().and_then(valid_number);
    }
    of_series(&name).or_else(|| {
        let plain: String = name
            .chars()
            .filter(|c| !matches!(c, '_' | '-' | ' '))
            .collect();
        NAMES
            .iter()
            .find(|(names, _)| names.contains(&plain.as_str()))
            .map(|(_, key)| VirtualKey(*key))
    })
}

/// 0 is no key and 255 is reserved.
fn valid_number(number: u8) -> Option<VirtualKey> {
    (number != 0 && number != u8::MAX).then_some(VirtualKey(number))
}

fn of_character(c: char) -> Option<VirtualKey> {
    let key = match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' => c.to_ascii_uppercase() as u8,
        ' ' => 0x20,
        ';' | ':' => 0xBA,
        '=' | '+' => 0xBB,
        ',' | '<' => 0xBC,
        '-' | '_' => 0xBD,
        '.' | '>' => 0xBE,
        '/' | '?' => 0xBF,
        '`' | '~' => 0xC0,
        '[' | '{' => 0xDB,
        '\\' | '|' => 0xDC,
        ']' | '}' => 0xDD,
        '\'' | '"' => 0xDE,
        _ => return None,
    };
    Some(VirtualKey(key))
}

/// `f1` to `f24` and `numpad0` to `numpad9`.
fn of_series(name: &str) -> Option<VirtualKey> {
    let number = |rest: &str| {
        let plain = !rest.is_empty() && !rest.starts_with('0') || rest == "0";
        rest.parse::<u8>().ok().filter(|_| plain)
    };
    if let Some(number) = name.strip_prefix('f').and_then(number) {
        return (1..=24)
            .contains(&number)
            .then(|| VirtualKey(0x6F + number));
    }
    let digit = ["numpad", "num", "kp"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .map(|rest| rest.trim_start_matches('_'))
        .and_then(number)?;
    (digit <= 9).then(|| VirtualKey(0x60 + digit))
}

/// Names without `_`, `-` and spaces; the first is the one for people.
const NAMES: &[(&[&str], u8)] = &[
    (&["backspace", "back"], 0x08),
    (&["tab"], 0x09),
    (&["clear"], 0x0C),
    (&["enter", "return"], 0x0D),
    (&["shift"], 0x10),
    (&["ctrl", "control"], 0x11),
    (&["alt", "option", "menukey"], 0x12),
    (&["pause", "break"], 0x13),
    (&["capslock", "caps", "capital"], 0x14),
    (&["escape", "esc"], 0x1B),
    (&["space", "spacebar"], 0x20),
    (&["pageup", "pgup", "prior"], 0x21),
    (&["pagedown", "pgdn", "pgdown", "next"], 0x22),
    (&["end"], 0x23),
    (&["home"], 0x24),
    (&["left", "arrowleft", "leftarrow"], 0x25),
    (&["up", "arrowup", "uparrow"], 0x26),
    (&["right", "arrowright", "rightarrow"], 0x27),
    (&["down", "arrowdown", "downarrow"], 0x28),
    (&["select"], 0x29),
    (
        &[
            "printscreen",
            "prtsc",
            "prtscr",
            "print",
            "snapshot",
            "sysrq",
        ],
        0x2C,
    ),
    (&["insert", "ins"], 0x2D),
    (&["delete", "del"], 0x2E),
    (&["help"], 0x2F),
    (
        &[
            "win",
            "super",
            "meta",
            "cmd",
            "command",
            "lwin",
            "winleft",
            "leftwin",
            "superleft",
            "leftsuper",
            "metaleft",
            "leftmeta",
            "lmeta",
            "lsuper",
            "lcmd",
            "cmdleft",
            "leftcmd",
        ],
        0x5B,
    ),
    (
        &[
            "rwin",
            "winright",
            "rightwin",
            "superright",
            "rightsuper",
            "metaright",
            "rightmeta",
            "rmeta",
            "rsuper",
            "rcmd",
            "cmdright",
            "rightcmd",
        ],
        0x5C,
    ),
    (&["menu", "apps", "contextmenu"], 0x5D),
    (&["sleep"], 0x5F),
    (
        &[
            "multiply",
            "numpadmultiply",
            "numpadasterisk",
            "kpmultiply",
            "asterisk",
        ],
        0x6A,
    ),
    (&["add", "numpadadd", "numpadplus", "kpadd"], 0x6B),
    (&["separator", "numpadseparator"], 0x6C),
    (
        &["subtract", "numpadsubtract", "numpadminus", "kpsubtract"],
        0x6D,
    ),
    (
        &[
            "decimal",
            "numpaddecimal",
            "numpadperiod",
            "numpaddot",
            "kpdecimal",
        ],
        0x6E,
    ),
    (&["divide", "numpaddivide", "numpadslash", "kpdivide"], 0x6F),
    (&["numpadenter", "kpenter"], 0x0D),
    (&["numlock"], 0x90),
    (&["scrolllock", "scroll"], 0x91),
    (&["lshift", "shiftleft", "leftshift", "shiftl"], 0xA0),
    (&["rshift", "shiftright", "rightshift", "shiftr"], 0xA1),
    (
        &[
            "lctrl",
            "ctrlleft",
            "leftctrl",
            "lcontrol",
            "controlleft",
            "leftcontrol",
            "ctrll",
            "controll",
        ],
        0xA2,
    ),
    (
        &[
            "rctrl",
            "ctrlright",
            "rightctrl",
            "rcontrol",
            "controlright",
            "rightcontrol",
            "ctrlr",
            "controlr",
        ],
        0xA3,
    ),
    (&["lalt", "altleft", "leftalt", "lmenu", "altl"], 0xA4),
    (
        &["ralt", "altright", "rightalt", "rmenu", "altgr", "altr"],
        0xA5,
    ),
    (&["browserback"], 0xA6),
    (&["browserforward"], 0xA7),
    (&["browserrefresh"], 0xA8),
    (&["browserstop"], 0xA9),
    (&["browsersearch"], 0xAA),
    (&["browserfavorites"], 0xAB),
    (&["browserhome"], 0xAC),
    (&["volumemute", "mute"], 0xAD),
    (&["volumedown"], 0xAE),
    (&["volumeup"], 0xAF),
    (&["medianext", "nexttrack", "medianexttrack"], 0xB0),
    (
        &[
            "mediaprevious",
            "mediaprev",
            "previoustrack",
            "mediaprevtrack",
        ],
        0xB1,
    ),
    (&["mediastop"], 0xB2),
    (&["mediaplaypause", "playpause", "mediaplay"], 0xB3),
    (&["launchmail"], 0xB4),
    (&["launchmedia"], 0xB5),
    (&["launchcomputer", "launchapp1"], 0xB6),
    (&["launchcalculator", "calculator", "launchapp2"], 0xB7),
    (&["semicolon", "colon"], 0xBA),
    (&["equal", "equals", "plus"], 0xBB),
    (&["comma", "less"], 0xBC),
    (&["minus", "hyphen", "dash", "underscore"], 0xBD),
    (&["period", "dot", "greater"], 0xBE),
    (&["slash", "question"], 0xBF),
    (&["grave", "backtick", "backquote", "tilde"], 0xC0),
    (&["leftbracket", "bracketleft", "leftbrace"], 0xDB),
    (&["backslash", "pipe", "bar"], 0xDC),
    (&["rightbracket", "bracketright", "rightbrace"], 0xDD),
    (&["apostrophe", "quote", "singlequote", "doublequote"], 0xDE),
    (&["oem102", "intlbackslash"], 0xE2),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_characters_and_numbers_are_read() {
        let cases = [
            ("a", 0x41),
            ("Z", 0x5A),
            ("7", 0x37),
            ("65", 0x41),
            ("0x41", 0x41),
            ("0X2c", 0x2C),
            ("42", 0x2A),
            ("f1", 0x70),
            ("F24", 0x87),
            ("Enter", 0x0D),
            ("return", 0x0D),
            ("Page_Up", 0x21),
            ("left ctrl", 0xA2),
            ("AltGr", 0xA5),
            ("numpad9", 0x69),
            ("num_0", 0x60),
            ("+", 0xBB),
            ("plus", 0xBB),
            ("PrintScreen", 0x2C),
            ("scroll-lock", 0x91),
            ("volume_up", 0xAF),
            ("cmd", 0x5B),
            ("?", 0xBF),
        ];
        for (text, key) in cases {
            assert_eq!(parse_key(text), Some(VirtualKey(key)), "{text}");
        }
        for text in [
            "",
            "f0",
            "f25",
            "f01",
            "0x",
            "0x100",
            "0",
            "999",
            "hyperspace",
            "é",
            "numpad10",
        ] {
            let expected = (text == "0").then_some(VirtualKey(0x30));
            assert_eq!(parse_key(text), expected, "{text}");
        }
    }

    #[test]
    fn no_name_means_two_keys() {
        let mut seen = std::collections::HashSet::new();
        for name in NAMES.iter().flat_map(|(names, _)| *names) {
            assert!(seen.insert(name), "{name} twice");
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            );
        }
    }
}
