//! Screenshots: what to grab, and the record that goes with the image.

use bytes::Bytes;

use super::encode::{Encoded, Format, Profile, encode};
use super::{Desktop, fault};
use crate::base::digest::sha256_hex;
use crate::base::ids::FrameId;
use crate::base::{Rect, Size};
use crate::platform::{Area, Cursor, Frame};
use crate::wire::messages::desktop as msg;
use crate::wire::{Code, Fault};

/// Asks for the primary monitor on protocol 1.
const PRIMARY_DISPLAY: i32 = -1;

impl Desktop {
    /// Grabs and encodes as asked; `default_profile` holds where the caller names none. Blocks for
    /// the grab and the encoding.
    pub fn screenshot(
        &self,
        params: &msg::CaptureParams,
        default_profile: &str,
    ) -> Result<(msg::Capture, Bytes), Fault> {
        let profile = Profile::named(params.profile.as_deref().unwrap_or(default_profile))?;
        let monitors = self.monitors()?;
        let area = self.area(params, &monitors)?;
        let cursor = match params.include_cursor {
            Some(true) => Cursor::Drawn,
            _ => Cursor::Hidden,
        };
        let frame = self.capturer()?.grab(area, cursor).map_err(fault)?;
        let foreground = self.foreground();
        let encoded = encode(&frame, &profile)?;
        let record = record(&frame, &profile, &encoded, foreground, &monitors);
        Ok((record, encoded.bytes.into()))
    }

    /// The part of the desktop that the parameters mean.
    fn area(&self, params: &msg::CaptureParams, monitors: &[msg::Monitor]) -> Result<Area, Fault> {
        let display = params.display_id.filter(|id| *id != PRIMARY_DISPLAY);
        if let Some(handle) = params.window_id {
            if display.is_some() {
                let why = "give a displayId or a windowId, not both";
                return Err(Fault::new(Code::InvalidParams, why));
            }
            let region = params.region;
            return Ok(Area::Window { handle, region });
        }
        let region = match (display, params.region) {
            (Some(id), region) => part_of_monitor(monitors, id, region)?,
            (None, Some(region)) => region,
            (None, None) => self.primary_monitor()?.bounds,
        };
        Ok(Area::Desktop(region))
    }
}

fn part_of_monitor(
    monitors: &[msg::Monitor],
    id: i32,
    region: Option<Rect>,
) -> Result<Rect, Fault> {
    let found = monitors.iter().find(|m| i64::from(m.id) == i64::from(id));
    let monitor = found.ok_or_else(|| {
        let count = monitors.len();
        let why = format!("no display {id}; this desktop has {count}, numbered from 0");
        Fault::new(Code::DisplayNotFound, why)
    })?;
    let Some(region) = region else {
        return Ok(monitor.bounds);
    };
    let part = region.translated(monitor.bounds.origin());
    part.intersection(monitor.bounds).ok_or_else(|| {
        let why = format!("region {region:?} lies outside of display {id}");
        Fault::new(Code::CaptureRegionInvalid, why)
    })
}

fn record(
    frame: &Frame,
    profile: &Profile,
    encoded: &Encoded,
    foreground: msg::ForegroundState,
    monitors: &[msg::Monitor],
) -> msg::Capture {
    let region = frame.region;
    let middle = region.center();
    let (quality, chroma) = match profile.format {
        Format::Jpeg { quality, chroma } => (Some(quality), Some(chroma.name().to_owned())),
        Format::Png => (None, None),
    };
    msg::Capture {
        id: None,
        frame_id: FrameId::random(),
        created_at: frame.captured_at,
        profile: profile.name.into(),
        format: profile.format.name().into(),
        content_type: profile.format.content_type().into(),
        quality,
        chroma_subsampling: chroma,
        width: encoded.size.width,
        height: encoded.size.height,
        bytes: encoded.bytes.len() as u64,
        sha256: sha256_hex(&encoded.bytes),
        include_cursor: frame.cursor_included,
        monitor: monitors
            .iter()
            .find(|monitor| monitor.bounds.contains(middle))
            .cloned(),
        region,
        transform: transform(region, encoded.size),
        age_ms: frame.captured.elapsed().as_millis() as u64,
        backend: frame.backend.into(),
        foreground,
        rule: msg::RuleState {
            status: "unmatched".into(),
            description: "no rule package describes this program".into(),
        },
        timestamp: frame.captured_at,
        image: None,
    }
}

fn transform(region: Rect, image: Size) -> msg::PixelTransform {
    msg::PixelTransform {
        origin: region.origin(),
        scale_x: f64::from(region.width) / f64::from(image.width),
        scale_y: f64::from(region.height) / f64::from(image.height),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Color, Point};
    use crate::platform::Monitor;
    use crate::platform::virtual_display::{Picture, VirtualDisplay};

    /// A screen of 200×100 with a second monitor from x = 150 on.
    fn desktop() -> Desktop {
        let size = Size {
            width: 200,
            height: 100,
        };
        let display = VirtualDisplay::new([Picture::filled(size, Color::default())]);
        {
            let mut state = display.state();
            state.monitors[0].bounds.width = 150;
            state.monitors.push(Monitor {
                id: 1,
                name: "right".into(),
                primary: false,
                bounds: Rect::new(150, 0, 50, 100),
                scale: 1.0,
                hdr: None,
            });
        }
        Desktop::with_backend(display.backend())
    }

    fn shoot(params: msg::CaptureParams) -> Result<msg::Capture, Fault> {
        desktop()
            .screenshot(&params, "native-png")
            .map(|(capture, _)| capture)
    }

    #[test]
    fn displays_regions_and_their_absence_mean_what_the_parameters_say() {
        let region = Some(Rect::new(-10, 10, 30, 20));
        for (display_id, region, expected) in [
            (None, None, Rect::new(0, 0, 150, 100)),
            (Some(-1), None, Rect::new(0, 0, 150, 100)),
            (Some(1), None, Rect::new(150, 0, 50, 100)),
            (Some(1), region, Rect::new(150, 10, 20, 20)),
            (None, region, Rect::new(0, 10, 20, 20)),
        ] {
            let capture = shoot(msg::CaptureParams {
                display_id,
                region,
                ..Default::default()
            });
            assert_eq!(
                capture.unwrap().region,
                expected,
                "{display_id:?} {region:?}"
            );
        }
    }

    #[test]
    fn bad_parameters_have_their_own_codes() {
        let cases = [
            (Some(2), None, None, "native-png", Code::DisplayNotFound),
            (Some(1), Some(3), None, "native-png", Code::InvalidParams),
            (None, Some(3), None, "native-png", Code::WindowNotFound),
            (
                Some(1),
                None,
                Some(Rect::new(50, 0, 5, 5)),
                "native-png",
                Code::CaptureRegionInvalid,
            ),
            (None, None, None, "webp", Code::CaptureProfileUnknown),
        ];
        for (display_id, window_id, region, profile, code) in cases {
            let fault = shoot(msg::CaptureParams {
                display_id,
                window_id,
                region,
                profile: Some(profile.into()),
                include_cursor: None,
            });
            assert_eq!(fault.unwrap_err().code, code);
        }
    }

    #[test]
    fn record_tells_monitor_transform_and_hash() {
        let desktop = desktop();
        let params = msg::CaptureParams {
            display_id: Some(1),
            include_cursor: Some(true),
            ..Default::default()
        };
        let (capture, bytes) = desktop.screenshot(&params, "dashboard-jpeg").unwrap();
        assert_eq!(capture.sha256, sha256_hex(&bytes));
        assert_eq!(capture.bytes, bytes.len() as u64);
        assert_eq!(capture.quality, Some(82));
        assert_eq!(capture.chroma_subsampling.as_deref(), Some("420"));
        assert_eq!(capture.monitor.map(|m| m.id), Some(1));
        assert_eq!(capture.transform.origin, Point { x: 150, y: 0 });
        assert_eq!(capture.transform.scale_x, 1.0);
        assert!(capture.include_cursor);
        assert_eq!(capture.rule.status, "unmatched");
        let msg::ForegroundState::Unavailable { reason } = capture.foreground else {
            panic!("the virtual desktop has no window");
        };
        assert_eq!(reason, "no window is in the foreground");
    }

    #[test]
    fn a_shrunk_image_maps_back_to_the_desktop() {
        let half = Size {
            width: 960,
            height: 540,
        };
        let mapped = transform(Rect::new(-20, 5, 1920, 1080), half);
        assert_eq!(mapped.origin, Point { x: -20, y: 5 });
        assert_eq!((mapped.scale_x, mapped.scale_y), (2.0, 2.0));
    }
}
