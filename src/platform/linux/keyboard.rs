//! The keyboard's map as the X server holds it: which keycode, with which modifiers, types what.
//!
//! Key types, groups and levels follow the X Keyboard Extension (protocol sections 7 and 17): a key's
//! type says which modifiers matter to it and which level a set of them picks.

use std::collections::HashMap;

use x11rb::protocol::xkb::{GetMapReply, KeySymMap, KeyType};
use x11rb::protocol::xproto::ModMask;
use xkeysym::key;

use super::keysyms::{Symbol, of_virtual_key};
use crate::platform::{PlatformError, Result, VirtualKey};

/// A key on the X server.
pub type Keycode = u8;

/// How to type a symbol: this key with these modifiers down, and no other that matters to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stroke {
    pub keycode: Keycode,
    /// Real modifiers (the low eight bits of a key event's state) to add to those that are down.
    pub press: u8,
}

/// A snapshot of the map.
pub struct Keymap {
    first: Keycode,
    types: Vec<KeyType>,
    keys: Vec<KeySymMap>,
    /// The key to press for each real modifier bit, where typing may use it.
    modifier_keys: [Option<Keycode>; 8],
    /// Keys that set a modifier; they are never borrowed.
    modifiers: Vec<Keycode>,
}

impl Keymap {
    /// Reads an answer to GetMap with types, symbols and modifier map.
    pub fn new(reply: GetMapReply) -> Result<Self> {
        let missing = || PlatformError::InputFailed("the server's keymap lacks a part".into());
        let modifier_map = reply.map.modmap_rtrn.ok_or_else(missing)?;
        let mut keymap = Self {
            first: reply.first_key_sym,
            types: reply.map.types_rtrn.ok_or_else(missing)?,
            keys: reply.map.syms_rtrn.ok_or_else(missing)?,
            modifier_keys: [None; 8],
            modifiers: modifier_map.iter().map(|entry| entry.keycode).collect(),
        };
        for entry in &modifier_map {
            let types = [
                key::Shift_L,
                key::Shift_R,
                key::ISO_Level3_Shift,
                key::ISO_Level5_Shift,
            ];
            let usable = types.contains(&keymap.keysym(entry.keycode, 0, 0).unwrap_or(0));
            for bit in (0..8).filter(|bit| u16::from(entry.mods) & (1 << bit) != 0) {
                if usable && keymap.modifier_keys[bit].is_none() {
                    keymap.modifier_keys[bit] = Some(entry.keycode);
                }
            }
        }
        Ok(keymap)
    }

    fn keycodes(&self) -> impl Iterator<Item = (Keycode, &KeySymMap)> {
        (self.first..=Keycode::MAX).zip(&self.keys)
    }

    fn key(&self, keycode: Keycode) -> Option<&KeySymMap> {
        self.keys.get(usize::from(keycode.checked_sub(self.first)?))
    }

    /// The keysym at a group and level that the key has.
    fn keysym(&self, keycode: Keycode, group: u8, level: u8) -> Option<u32> {
        let key = self.key(keycode)?;
        (group < key.group_info & 0x0f && level < key.width)
            .then(|| usize::from(group) * usize::from(key.width) + usize::from(level))
            .and_then(|at| key.syms.get(at).copied())
            .filter(|keysym| *keysym != 0)
    }

    /// The group of this key that stands for the keyboard's `group` (protocol section 17.1.1).
    fn group_of(key: &KeySymMap, group: u8) -> Option<u8> {
        let count = key.group_info & 0x0f;
        if count == 0 {
            return None;
        }
        if group < count {
            return Some(group);
        }
        Some(match key.group_info & 0xc0 {
            0x40 => count - 1,
            0x80 => Some((key.group_info >> 4) & 0x03)
                .filter(|to| *to < count)
                .unwrap_or(0),
            _ => group % count,
        })
    }

    /// The level that a key's type picks under these modifiers.
    fn level(&self, key: &KeySymMap, group: u8, modifiers: u8) -> Option<u8> {
        let kind = self
            .types
            .get(usize::from(key.kt_index[usize::from(group & 3)]))?;
        let relevant = modifiers & bits(kind.mods_mask);
        let entry = kind
            .map
            .iter()
            .find(|entry| entry.active && bits(entry.mods_mask) == relevant);
        Some(entry.map_or(0, |entry| entry.level))
    }

    /// What each symbol takes to type in a group while `down` modifiers stay as they are.
    pub fn strokes(&self, group: u8, down: u8) -> HashMap<Symbol, Stroke> {
        let usable = (0..8u8)
            .filter(|bit| self.modifier_keys[usize::from(*bit)].is_some() && down & (1 << bit) == 0)
            .fold(0, |mask, bit| mask | (1 << bit));
        // Fewest modifiers first, so that the plainest stroke wins.
        let mut additions: Vec<u8> = (0..=u8::MAX).filter(|set| set & !usable == 0).collect();
        additions.sort_by_key(|set| set.count_ones());
        let mut strokes = HashMap::new();
        for press in additions {
            for (keycode, key) in self.keycodes() {
                let keysym = Self::group_of(key, group).and_then(|group| {
                    let level = self.level(key, group, down | press)?;
                    self.keysym(keycode, group, level)
                });
                if let Some(keysym) = keysym {
                    let stroke = Stroke { keycode, press };
                    strokes.entry(Symbol::of_keysym(keysym)).or_insert(stroke);
                }
            }
        }
        strokes
    }

    /// The keys to hold for a set of modifiers.
    pub fn modifier_keys(&self, modifiers: u8) -> impl Iterator<Item = Keycode> + '_ {
        (0..8)
            .filter(move |bit| modifiers & (1 << bit) != 0)
            .filter_map(|bit: usize| self.modifier_keys[bit])
    }

    /// Whether a key sets a modifier that typing presses by itself (Shift, AltGr).
    pub fn picks_level(&self, keycode: Keycode) -> bool {
        let picks = [
            key::Shift_L,
            key::Shift_R,
            key::ISO_Level3_Shift,
            key::ISO_Level5_Shift,
            key::Mode_switch,
        ];
        self.keysym(keycode, 0, 0)
            .is_some_and(|keysym| picks.contains(&keysym))
    }

    /// The key that a virtual key stands for in this group: where its keysym is, else the same place
    /// of a PC keyboard.
    pub fn keycode_of(&self, key: VirtualKey, group: u8) -> Result<Keycode> {
        let unknown = || PlatformError::KeyUnknown(format!("{:#04x}", key.0));
        let name = of_virtual_key(key).ok_or_else(unknown)?;
        let wanted = name.keysyms.into_iter().filter(|keysym| *keysym != 0);
        for keysym in wanted {
            for level in 0..4 {
                let at = self.keycodes().find(|(keycode, key)| {
                    Self::group_of(key, group).and_then(|group| self.keysym(*keycode, group, level))
                        == Some(keysym)
                });
                if let Some((keycode, _)) = at {
                    return Ok(keycode);
                }
            }
        }
        let there = name.place != 0 && self.key(name.place).is_some_and(|k| !k.syms.is_empty());
        there.then_some(name.place).ok_or_else(unknown)
    }

    /// Keycodes without any symbol, which typing may borrow. The lowest keycode is left alone: some
    /// clients take it for no key at all.
    pub fn spare_keycodes(&self) -> Vec<Keycode> {
        self.keycodes()
            .skip(1)
            .filter(|(keycode, key)| {
                key.syms.iter().all(|keysym| *keysym == 0) && !self.modifiers.contains(keycode)
            })
            .map(|(keycode, _)| keycode)
            .collect()
    }

    /// The plain keysym of a key in its first group.
    pub fn first_keysym(&self, keycode: Keycode) -> Option<u32> {
        self.keysym(keycode, 0, 0)
    }
}

/// The eight real modifiers of a mask; the bit for "any modifier" is none.
pub fn bits(mask: ModMask) -> u8 {
    (u16::from(mask) & 0xff) as u8
}
