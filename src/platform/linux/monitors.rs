//! Monitors from RandR, with the scale that the desktop is set to.

use x11rb::connection::RequestConnection;
use x11rb::protocol::randr::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{AtomEnum, ConnectionExt as _};

use super::x11::{Session, Trouble};
use crate::base::Rect;
use crate::platform::Monitor;

/// The density that scale 1.0 stands for.
const DPI_OF_SCALE_ONE: f64 = 96.0;
/// Densities outside of this range come from monitors that do not know their size.
const DPI_SANE: std::ops::RangeInclusive<f64> = 50.0..=400.0;
/// The resource database may be long; its density is looked for in this many words.
const RESOURCES_WORDS_MAX: u32 = 64 * 1024;

/// The monitors in the server's order; the whole screen as one monitor where RandR is too old.
pub fn monitors(session: &Session) -> Result<Vec<Monitor>, Trouble> {
    let connection = &*session.connection;
    let configured = configured_dpi(session)?;
    if !has_monitors(session)? {
        let size = connection.get_geometry(session.root())?.reply()?;
        return Ok(vec![Monitor {
            id: 0,
            name: "screen".into(),
            primary: true,
            bounds: Rect::new(0, 0, size.width.into(), size.height.into()),
            scale: scale(configured, None),
            hdr: None,
        }]);
    }
    let found = connection
        .randr_get_monitors(session.root(), true)?
        .reply()?
        .monitors;
    let mut names = Vec::with_capacity(found.len());
    for monitor in &found {
        names.push(connection.get_atom_name(monitor.name)?);
    }
    let mut monitors = Vec::with_capacity(found.len());
    for (id, (info, name)) in found.iter().zip(names).enumerate() {
        let name = name.reply()?.name;
        let physical = physical_dpi(info.width, info.width_in_millimeters);
        monitors.push(Monitor {
            id: id as u32,
            name: String::from_utf8_lossy(&name).into_owned(),
            primary: info.primary,
            bounds: Rect::new(
                info.x.into(),
                info.y.into(),
                info.width.into(),
                info.height.into(),
            ),
            scale: scale(configured, physical),
            hdr: None,
        });
    }
    // Where nobody chose a primary monitor, X programs take the first.
    if !monitors.iter().any(|monitor| monitor.primary)
        && let Some(first) = monitors.first_mut()
    {
        first.primary = true;
    }
    Ok(monitors)
}

/// The smallest rectangle around all monitors; `None` without one.
pub fn bounding_box(monitors: &[Monitor]) -> Option<Rect> {
    let left = monitors.iter().map(|m| m.bounds.x).min()?;
    let top = monitors.iter().map(|m| m.bounds.y).min()?;
    let right = monitors.iter().map(|m| m.bounds.right()).max()?;
    let bottom = monitors.iter().map(|m| m.bounds.bottom()).max()?;
    // INVARIANT: X coordinates have 16 bits, so the spans fit in u32.
    Some(Rect::new(
        left,
        top,
        (right - i64::from(left)) as u32,
        (bottom - i64::from(top)) as u32,
    ))
}

fn has_monitors(session: &Session) -> Result<bool, Trouble> {
    let connection = &*session.connection;
    let present = connection.extension_information(randr::X11_EXTENSION_NAME)?;
    if present.is_none() {
        return Ok(false);
    }
    let version = connection.randr_query_version(1, 5)?.reply()?;
    Ok((version.major_version, version.minor_version) >= (1, 5))
}

/// `Xft.dpi` of the resource database, which desktops set for their scale.
fn configured_dpi(session: &Session) -> Result<Option<f64>, Trouble> {
    let reply = session
        .connection
        .get_property(
            false,
            session.root(),
            AtomEnum::RESOURCE_MANAGER,
            AtomEnum::STRING,
            0,
            RESOURCES_WORDS_MAX,
        )?
        .reply()?;
    Ok(dpi_of_resources(&String::from_utf8_lossy(&reply.value)))
}

fn dpi_of_resources(resources: &str) -> Option<f64> {
    // The last one holds, as it does where resources are merged.
    let mut values = resources.lines().rev().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "Xft.dpi").then(|| value.trim().parse::<f64>().ok())?
    });
    values.find(|dpi| DPI_SANE.contains(dpi))
}

fn physical_dpi(pixels: u16, millimeters: u32) -> Option<f64> {
    let dpi = f64::from(pixels) * 25.4 / f64::from(millimeters);
    DPI_SANE.contains(&dpi).then_some(dpi)
}

/// What is configured holds; a physical density counts in half steps and never below 1.0, since
/// desktops leave ordinary monitors of up to 143 dots per inch unscaled.
fn scale(configured: Option<f64>, physical: Option<f64>) -> f64 {
    match (configured, physical) {
        (Some(dpi), _) => dpi / DPI_OF_SCALE_ONE,
        (None, Some(dpi)) => ((dpi / DPI_OF_SCALE_ONE * 2.0).floor() / 2.0).max(1.0),
        (None, None) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_density_beats_the_physical_one() {
        let resources = "Xcursor.size:\t24\nXft.dpi:\t144\nbroken\nXft.dpi: 9999\n";
        assert_eq!(dpi_of_resources(resources), Some(144.0));
        assert_eq!(dpi_of_resources("Xft.dpi: NaN"), None);
        assert_eq!(scale(Some(144.0), Some(96.0)), 1.5);
        assert_eq!(scale(None, physical_dpi(3840, 527)), 1.5);
        assert_eq!(scale(None, physical_dpi(1920, 527)), 1.0);
        assert_eq!(physical_dpi(1920, 0), None);
        assert_eq!(physical_dpi(1920, 16), None);
    }

    #[test]
    fn bounding_box_spans_monitors_left_of_the_origin() {
        let at = |bounds| Monitor {
            id: 0,
            name: String::new(),
            primary: false,
            bounds,
            scale: 1.0,
            hdr: None,
        };
        let monitors = [
            at(Rect::new(-100, 0, 100, 50)),
            at(Rect::new(0, 20, 40, 40)),
        ];
        assert_eq!(bounding_box(&monitors), Some(Rect::new(-100, 0, 140, 60)));
        assert_eq!(bounding_box(&[]), None);
    }
}
