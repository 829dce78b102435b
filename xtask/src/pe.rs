//! The subsystem of a Windows executable: console or GUI. One field, so one file.
//!
//! ```text
//!    0: "MZ"  …  0x3c: u32 LE offset of the PE header
//!   PE: "PE\0\0" | COFF header, 20 bytes | optional header (PE32+)
//!                                          0x40: CheckSum u32  0x44: Subsystem u16
//! ```
//!
//! A hidden task cannot hide a console program's window, hence the twin: the same bytes with
//! `Subsystem` 2 and the checksum, which Windows verifies for drivers alone, cleared.

use std::path::Path;

use crate::shell::{Failure, Result};

/// `IMAGE_SUBSYSTEM_WINDOWS_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subsystem {
    Gui = 2,
    Console = 3,
}

const PE_OFFSET_AT: usize = 0x3c;
const OPTIONAL_HEADER: usize = 4 + 20;
const PE32_PLUS: u16 = 0x20b;
const CHECKSUM: usize = 0x40;
const SUBSYSTEM: usize = 0x44;

/// Fails unless the file is a PE32+ executable of this subsystem.
pub fn check(path: &Path, wanted: Subsystem) -> Result<()> {
    let image = std::fs::read(path)?;
    let wrong = |found: String| {
        Failure::new(format!(
            "{}: subsystem {wanted:?} expected, {found}",
            path.display()
        ))
    };
    let at = optional_header(&image).ok_or_else(|| wrong("no PE32+ header found".to_owned()))?;
    let found = u16_at(&image, at + SUBSYSTEM).ok_or_else(|| wrong("header cut".to_owned()))?;
    if found == wanted as u16 {
        return Ok(());
    }
    Err(wrong(format!("{found} found")))
}

/// Writes a copy with another subsystem.
pub fn copy_as(from: &Path, to: &Path, subsystem: Subsystem) -> Result<()> {
    let mut image = std::fs::read(from)?;
    set(&mut image, subsystem)
        .ok_or_else(|| Failure::new(format!("{}: not a PE32+ executable", from.display())))?;
    std::fs::write(to, image)?;
    Ok(())
}

fn set(image: &mut [u8], subsystem: Subsystem) -> Option<()> {
    let at = optional_header(image)?;
    image.get_mut(at + CHECKSUM..at + CHECKSUM + 4)?.fill(0);
    image
        .get_mut(at + SUBSYSTEM..at + SUBSYSTEM + 2)?
        .copy_from_slice(&(subsystem as u16).to_le_bytes());
    Some(())
}

fn optional_header(image: &[u8]) -> Option<usize> {
    if !image.starts_with(b"MZ") {
        return None;
    }
    let offset = image.get(PE_OFFSET_AT..PE_OFFSET_AT + 4)?;
    let pe = u32::from_le_bytes(offset.try_into().ok()?) as usize;
    let header = pe.checked_add(OPTIONAL_HEADER)?;
    if image.get(pe..pe + 4)? != b"PE\0\0" || u16_at(image, header)? != PE32_PLUS {
        return None;
    }
    Some(header)
}

fn u16_at(image: &[u8], at: usize) -> Option<u16> {
    let bytes = image.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Vec<u8> {
        let mut image = vec![0xaa; 0x200];
        image[..2].copy_from_slice(b"MZ");
        image[PE_OFFSET_AT..PE_OFFSET_AT + 4].copy_from_slice(&0x80u32.to_le_bytes());
        image[0x80..0x84].copy_from_slice(b"PE\0\0");
        let header = 0x80 + OPTIONAL_HEADER;
        image[header..header + 2].copy_from_slice(&PE32_PLUS.to_le_bytes());
        image[header + SUBSYSTEM..header + SUBSYSTEM + 2].copy_from_slice(&3u16.to_le_bytes());
        image
    }

    #[test]
    fn the_twin_differs_in_subsystem_and_checksum_only() {
        let console = image();
        let mut twin = console.clone();
        set(&mut twin, Subsystem::Gui).unwrap();
        let header = 0x80 + OPTIONAL_HEADER;
        let changed: Vec<usize> = (0..console.len())
            .filter(|&at| console[at] != twin[at])
            .map(|at| at - header)
            .collect();
        assert_eq!(changed, [0x40, 0x41, 0x42, 0x43, 0x44]);
        assert_eq!(u16_at(&twin, header + SUBSYSTEM), Some(2));
    }

    #[test]
    fn what_is_no_executable_is_refused() {
        assert_eq!(set(&mut image()[..0x90], Subsystem::Gui), None);
        assert_eq!(set(&mut b"\x7fELF".repeat(40), Subsystem::Gui), None);
        let mut far = image();
        far[PE_OFFSET_AT..PE_OFFSET_AT + 4].fill(0xff);
        assert_eq!(set(&mut far, Subsystem::Gui), None);
    }
}
