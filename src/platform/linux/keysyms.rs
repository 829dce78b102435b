//! Windows virtual-key numbers, characters and X11 keysyms.

use xkeysym::{Keysym, key};

use crate::platform::VirtualKey;

/// What a virtual key is called on X11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyName {
    /// Keysyms that name the key, best first; 0 ends the list early.
    pub keysyms: [u32; 2],
    /// The keycode at the same place of a PC keyboard, for layouts where no key carries the keysym
    /// (letters on a Cyrillic layout, say). 0 where there is none.
    pub place: u8,
}

const fn name(keysym: u32, place: u8) -> Option<KeyName> {
    names(keysym, 0, place)
}

const fn names(first: u32, second: u32, place: u8) -> Option<KeyName> {
    Some(KeyName {
        keysyms: [first, second],
        place,
    })
}

/// Keycodes of the letters A to Z on a US keyboard.
const LETTER_PLACES: [u8; 26] = [
    38, 56, 54, 40, 26, 41, 42, 43, 31, 44, 45, 46, 58, 57, 32, 33, 24, 27, 39, 28, 30, 55, 25, 53,
    29, 52,
];

/// Looks a virtual key up; `None` where X11 has no such key.
pub fn of_virtual_key(VirtualKey(vk): VirtualKey) -> Option<KeyName> {
    match vk {
        b'A'..=b'Z' => name(u32::from(vk) + 0x20, LETTER_PLACES[usize::from(vk - b'A')]),
        b'0' => name(key::_0, 19),
        b'1'..=b'9' => name(u32::from(vk), vk - b'1' + 10),
        0x60..=0x69 => {
            const PLACES: [u8; 10] = [90, 87, 88, 89, 83, 84, 85, 79, 80, 81];
            const MOTIONS: [u32; 10] = [
                key::KP_Insert,
                key::KP_End,
                key::KP_Down,
                key::KP_Next,
                key::KP_Left,
                key::KP_Begin,
                key::KP_Right,
                key::KP_Home,
                key::KP_Up,
                key::KP_Prior,
            ];
            let digit = usize::from(vk - 0x60);
            names(MOTIONS[digit], key::KP_0 + digit as u32, PLACES[digit])
        }
        0x70..=0x87 => {
            let number = vk - 0x70;
            let place = match number {
                0..=9 => 67 + number,
                10 | 11 => 95 + number - 10,
                _ => 0,
            };
            name(key::F1 + u32::from(number), place)
        }
        _ => of_editing_key(vk)
            .or_else(|| of_modifier(vk))
            .or_else(|| of_punctuation(vk))
            .or_else(|| of_media_key(vk)),
    }
}

fn of_editing_key(vk: u8) -> Option<KeyName> {
    match vk {
        0x08 => name(key::BackSpace, 22),
        0x09 => name(key::Tab, 23),
        0x0C => name(key::Clear, 0),
        0x0D => name(key::Return, 36),
        0x13 => names(key::Pause, key::Break, 127),
        0x1B => name(key::Escape, 9),
        0x20 => name(key::space, 65),
        0x21 => name(key::Prior, 112),
        0x22 => name(key::Next, 117),
        0x23 => name(key::End, 115),
        0x24 => name(key::Home, 110),
        0x25 => name(key::Left, 113),
        0x26 => name(key::Up, 111),
        0x27 => name(key::Right, 114),
        0x28 => name(key::Down, 116),
        0x29 => name(key::Select, 0),
        0x2B => name(key::Execute, 0),
        // 0x2A is Windows' rare "print" key; older scripts use it for print screen.
        0x2A | 0x2C => names(key::Print, key::Sys_Req, 107),
        0x2D => name(key::Insert, 118),
        0x2E => name(key::Delete, 119),
        0x2F => name(key::Help, 0),
        0x5D => name(key::Menu, 135),
        0x6A => name(key::KP_Multiply, 63),
        0x6B => name(key::KP_Add, 86),
        0x6C => name(key::KP_Separator, 0),
        0x6D => name(key::KP_Subtract, 82),
        0x6E => names(key::KP_Delete, key::KP_Decimal, 91),
        0x6F => name(key::KP_Divide, 106),
        _ => None,
    }
}

fn of_modifier(vk: u8) -> Option<KeyName> {
    match vk {
        0x10 | 0xA0 => name(key::Shift_L, 50),
        0xA1 => name(key::Shift_R, 62),
        0x11 | 0xA2 => name(key::Control_L, 37),
        0xA3 => name(key::Control_R, 105),
        0x12 | 0xA4 => name(key::Alt_L, 64),
        0xA5 => names(key::Alt_R, key::ISO_Level3_Shift, 108),
        0x5B => name(key::Super_L, 133),
        0x5C => name(key::Super_R, 134),
        0x14 => name(key::Caps_Lock, 66),
        0x90 => name(key::Num_Lock, 77),
        0x91 => name(key::Scroll_Lock, 78),
        _ => None,
    }
}

/// The keys that Windows calls OEM, by their place on a US keyboard.
fn of_punctuation(vk: u8) -> Option<KeyName> {
    match vk {
        0xBA => name(key::semicolon, 47),
        0xBB => name(key::equal, 21),
        0xBC => name(key::comma, 59),
        0xBD => name(key::minus, 20),
        0xBE => name(key::period, 60),
        0xBF => name(key::slash, 61),
        0xC0 => name(key::grave, 49),
        0xDB => name(key::bracketleft, 34),
        0xDC => name(key::backslash, 51),
        0xDD => name(key::bracketright, 35),
        0xDE => name(key::apostrophe, 48),
        0xE2 => name(key::less, 94),
        _ => None,
    }
}

fn of_media_key(vk: u8) -> Option<KeyName> {
    let keysym = match vk {
        0x5F => key::XF86_Sleep,
        0xA6 => key::XF86_Back,
        0xA7 => key::XF86_Forward,
        0xA8 => key::XF86_Reload,
        0xA9 => key::XF86_Stop,
        0xAA => key::XF86_Search,
        0xAB => key::XF86_Favorites,
        0xAC => key::XF86_HomePage,
        0xAD => key::XF86_AudioMute,
        0xAE => key::XF86_AudioLowerVolume,
        0xAF => key::XF86_AudioRaiseVolume,
        0xB0 => key::XF86_AudioNext,
        0xB1 => key::XF86_AudioPrev,
        0xB2 => key::XF86_AudioStop,
        0xB3 => key::XF86_AudioPlay,
        0xB4 => key::XF86_Mail,
        0xB5 => key::XF86_AudioMedia,
        0xB6 => key::XF86_MyComputer,
        0xB7 => key::XF86_Calculator,
        _ => return None,
    };
    name(keysym, 0)
}

/// The character that a keysym types.
fn character_of(keysym: u32) -> Option<char> {
    // Keypad and function keys also have characters; they are not the keys that type them.
    if (0xfd00..=0xffff).contains(&keysym) {
        return None;
    }
    Keysym::new(keysym).key_char()
}

/// One meaning of a key for typing: keysyms that give the same character fall together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Symbol(u32);

const UNICODE: u32 = 0x0100_0000;

impl Symbol {
    /// What a key with this keysym types.
    pub fn of_keysym(keysym: u32) -> Self {
        match character_of(keysym) {
            Some(c) => Self(UNICODE | u32::from(c)),
            None => Self(keysym),
        }
    }

    /// What types this character; `None` for control characters without a key.
    pub fn of_char(c: char) -> Option<Self> {
        match c {
            '\n' | '\r' => Some(Self(key::Return)),
            '\t' => Some(Self(key::Tab)),
            '\u{8}' => Some(Self(key::BackSpace)),
            '\u{1b}' => Some(Self(key::Escape)),
            '\u{7f}' => Some(Self(key::Delete)),
            c if c.is_control() => None,
            c => Some(Self(UNICODE | u32::from(c))),
        }
    }

    /// The keysym that a borrowed keycode gets: Latin-1 has keysyms of its own, which old clients know.
    pub fn keysym(self) -> u32 {
        match self.0 & !UNICODE {
            code @ (0x20..=0x7e | 0xa0..=0xff) if self.0 & UNICODE != 0 => code,
            _ => self.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keysyms_of_one_character_fall_together() {
        let euro = Symbol::of_char('€').unwrap();
        assert_eq!(Symbol::of_keysym(key::EuroSign), euro);
        assert_eq!(Symbol::of_keysym(0x0100_20ac), euro);
        let ya = Symbol::of_keysym(key::Cyrillic_ya);
        assert_eq!(Some(ya), Symbol::of_char('я'));
        assert_eq!(Symbol::of_char('ä').unwrap().keysym(), 0xe4);
        assert_eq!(Symbol::of_char('世').unwrap().keysym(), 0x0100_4e16);
        assert_eq!(Symbol::of_keysym(key::KP_1).keysym(), key::KP_1);
        assert_eq!(Symbol::of_char('\u{1}'), None);
    }

    #[test]
    fn every_specified_virtual_key_has_a_keysym() {
        let mut specified: Vec<u8> = (0x41..=0x5A)
            .chain(0x30..=0x39)
            .chain(0x70..=0x7B)
            .collect();
        specified.extend([
            0x20, 0x0D, 0x1B, 0x09, 0x08, 0x2E, 0x2D, 0x24, 0x23, 0x21, 0x22, 0x25, 0x26, 0x27,
            0x28, 0x10, 0x11, 0x12, 0x14, 0x91, 0x13, 0x2A, 0x2C,
        ]);
        for vk in specified {
            assert!(of_virtual_key(VirtualKey(vk)).is_some(), "{vk:#x}");
        }
        assert_eq!(of_virtual_key(VirtualKey(0x07)), None);
    }
}
