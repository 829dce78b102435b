//! Grabs the desktop and single windows, by shared memory where the server can.

use std::sync::{Arc, Mutex, PoisonError};

use x11rb::connection::{Connection, RequestConnection};
use x11rb::protocol::Event;
use x11rb::protocol::composite::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{
    ChangeWindowAttributesAux, ConnectionExt as _, Drawable, EventMask, ImageFormat, MapState,
    VisualClass, Window as XWindow, WindowClass,
};

use super::shm::{Held, Pool};
use super::x11::{Link, Session, Trouble};
use super::{cursor, monitors};
use crate::base::{Point, Rect, limits};
use crate::platform::{
    Area, Capture, Cursor, Frame, Monitor, OpenOptions, PixelFormat, PlatformError, Result,
};

const SHM: &str = "x11-shm";
const GET_IMAGE: &str = "x11-get-image";

/// Which way of grabbing the configuration asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Auto,
    Shm,
    GetImage,
}

/// What a capture keeps per connection.
struct Kept {
    /// Absent with the reason, which is logged when the connection opens.
    pool: std::result::Result<Arc<Pool>, String>,
    /// The screen's size, which RandR can change.
    root: Mutex<Rect>,
}

/// Captures of one X display.
pub struct X11Capture {
    link: Link<Kept>,
    wanted: Wanted,
    used: Mutex<&'static str>,
}

/// Names the display to grab from; it is connected to on the first call.
pub fn open(display: &str, options: &OpenOptions) -> Result<Box<dyn Capture>> {
    let wanted = match options.capture_backend.as_deref() {
        None | Some("auto") => Wanted::Auto,
        Some(SHM) => Wanted::Shm,
        Some(GET_IMAGE) => Wanted::GetImage,
        Some(other) => {
            return Err(PlatformError::Unsupported(format!(
                "capture backend {other:?}; this platform has {SHM} and {GET_IMAGE}"
            )));
        }
    };
    Ok(Box::new(X11Capture {
        link: Link::new(display, prepare),
        wanted,
        used: Mutex::new(if wanted == Wanted::GetImage {
            GET_IMAGE
        } else {
            SHM
        }),
    }))
}

fn prepare(session: &Session) -> std::result::Result<Kept, Trouble> {
    check_pixels(session)?;
    let connection = &session.connection;
    let size_changes = ChangeWindowAttributesAux::new().event_mask(EventMask::STRUCTURE_NOTIFY);
    connection.change_window_attributes(session.root(), &size_changes)?;
    let pool = Pool::open(connection)?;
    if let Err(reason) = &pool {
        tracing::warn!(%reason, "no shared memory with the X server, captures go through its socket");
    }
    let root = root_bounds(session)?;
    Ok(Kept {
        pool,
        root: Mutex::new(root),
    })
}

fn root_bounds(session: &Session) -> std::result::Result<Rect, Trouble> {
    let size = session.connection.get_geometry(session.root())?.reply()?;
    Ok(Rect::new(0, 0, size.width.into(), size.height.into()))
}

/// Frames are BGRX; a screen of other pixels is refused rather than shown in wrong colours.
fn check_pixels(session: &Session) -> std::result::Result<(), Trouble> {
    let screen = &session.screen;
    let visual = screen
        .allowed_depths
        .iter()
        .flat_map(|depth| &depth.visuals)
        .find(|visual| visual.visual_id == screen.root_visual);
    let bits = bits_per_pixel(session, screen.root_depth);
    let good = visual.is_some_and(|visual| {
        visual.class == VisualClass::TRUE_COLOR
            && (visual.red_mask, visual.green_mask, visual.blue_mask)
                == (0x00ff_0000, 0x0000_ff00, 0x0000_00ff)
    });
    if good && bits == Some(32) && session.little_endian() {
        return Ok(());
    }
    Err(PlatformError::Unsupported(format!(
        "a screen of depth {} with {} bits per pixel; captures need TrueColor of depth 24 or 32",
        screen.root_depth,
        bits.unwrap_or(0)
    ))
    .into())
}

fn bits_per_pixel(session: &Session, depth: u8) -> Option<u8> {
    let formats = &session.connection.setup().pixmap_formats;
    let format = formats.iter().find(|format| format.depth == depth)?;
    Some(format.bits_per_pixel)
}

/// A part of a drawable, and where it lies on the desktop.
struct Source {
    drawable: Drawable,
    /// Relative to the drawable.
    part: Rect,
    /// The same part in desktop coordinates.
    region: Rect,
}

impl Capture for X11Capture {
    fn monitors(&self) -> Result<Vec<Monitor>> {
        self.link.run("list the monitors", |session, _| {
            monitors::monitors(session)
        })
    }

    fn desktop_bounds(&self) -> Result<Rect> {
        let monitors = self.monitors()?;
        monitors::bounding_box(&monitors)
            .ok_or_else(|| PlatformError::DisplayUnavailable("no monitor is active".into()))
    }

    fn grab(&self, area: Area, cursor: Cursor) -> Result<Frame> {
        self.link
            .run("grab the screen", |session, kept| match area {
                Area::Desktop(region) => self.grab_desktop(session, kept, region, cursor),
                Area::Window { handle, region } => {
                    self.grab_window(session, kept, handle, region, cursor)
                }
            })
    }

    fn backend(&self) -> &'static str {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl X11Capture {
    fn grab_desktop(
        &self,
        session: &Session,
        kept: &Kept,
        region: Rect,
        cursor: Cursor,
    ) -> std::result::Result<Frame, Trouble> {
        let attempt = |root: Rect| {
            let part = root
                .intersection(region)
                .ok_or(PlatformError::RegionInvalid(region))?;
            let source = Source {
                drawable: session.root(),
                part,
                region: part,
            };
            self.grab_source(session, kept, &source, cursor)
        };
        match attempt(kept.current_root(session)?) {
            // The screen shrank between the look at its size and the grab.
            Err(trouble) if trouble.mismatches() => attempt(root_bounds(session)?),
            other => other,
        }
    }

    fn grab_window(
        &self,
        session: &Session,
        kept: &Kept,
        handle: u64,
        region: Option<Rect>,
        cursor: Cursor,
    ) -> std::result::Result<Frame, Trouble> {
        let gone = |trouble: Trouble| match trouble {
            trouble if trouble.names_nothing() => PlatformError::WindowNotFound(handle).into(),
            trouble => trouble,
        };
        let window =
            XWindow::try_from(handle).map_err(|_| PlatformError::WindowNotFound(handle))?;
        let bounds = window_bounds(session, window).map_err(gone)?;
        // In 64 bits the sums could not wrap; `translated` saturates instead, which is as good here.
        let asked = match region {
            Some(region) => region.translated(bounds.origin()),
            None => bounds,
        };
        let wanted = bounds
            .intersection(asked)
            .ok_or(PlatformError::RegionInvalid(asked))?;
        if let Some(redirected) = Redirected::of(session, window).map_err(gone)? {
            let source = redirected.source(wanted);
            return self.grab_source(session, kept, &source, cursor);
        }
        let region = kept
            .current_root(session)?
            .intersection(wanted)
            .ok_or(PlatformError::RegionInvalid(wanted))?;
        let source = Source {
            drawable: window,
            part: region.translated(Point {
                x: -bounds.x,
                y: -bounds.y,
            }),
            region,
        };
        self.grab_source(session, kept, &source, cursor)
            .map_err(gone)
    }

    fn grab_source(
        &self,
        session: &Session,
        kept: &Kept,
        source: &Source,
        cursor: Cursor,
    ) -> std::result::Result<Frame, Trouble> {
        let region = source.region;
        if region.size().area() > limits::FRAME_PIXELS_MAX {
            return Err(PlatformError::RegionInvalid(region).into());
        }
        let picture = match cursor {
            Cursor::Drawn => Some(cursor::image(session)?),
            Cursor::Hidden => None,
        };
        let (pixels, backend) = match (&kept.pool, self.wanted) {
            (Ok(pool), Wanted::Auto | Wanted::Shm) => {
                let mut held = pool.grab(source.drawable, source.part)?;
                if let Some(picture) = &picture {
                    cursor::draw(picture, region, held.pixels_mut());
                }
                (share(pool, held), SHM)
            }
            (Err(reason), Wanted::Shm) => {
                return Err(PlatformError::Unsupported(format!("{SHM}: {reason}")).into());
            }
            _ => {
                let mut pixels = get_image(session, source)?;
                if let Some(picture) = &picture {
                    cursor::draw(picture, region, &mut pixels);
                }
                (
                    Arc::new(pixels) as Arc<dyn AsRef<[u8]> + Send + Sync>,
                    GET_IMAGE,
                )
            }
        };
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = backend;
        let stride = region.width as usize * 4;
        let format = PixelFormat::Bgrx;
        let frame = Frame::new(region, stride, format, backend, picture.is_some(), pixels);
        Ok(frame.map_err(|short| PlatformError::CaptureFailed(short.to_string()))?)
    }
}

impl Kept {
    /// The screen's bounds after all changes that the server has told of.
    fn current_root(&self, session: &Session) -> std::result::Result<Rect, Trouble> {
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = session.connection.poll_for_event()? {
            if let Event::ConfigureNotify(change) = event
                && change.window == session.root()
            {
                *root = Rect::new(0, 0, change.width.into(), change.height.into());
            }
        }
        Ok(*root)
    }
}

/// The segment itself, or a copy where readers hold too many of them.
fn share(pool: &Pool, held: Held) -> Arc<dyn AsRef<[u8]> + Send + Sync> {
    if pool.is_strained() {
        return Arc::new(held.as_ref().to_vec());
    }
    Arc::new(held)
}

fn get_image(session: &Session, source: &Source) -> std::result::Result<Vec<u8>, Trouble> {
    let part = source.part;
    let reply = session
        .connection
        .get_image(
            ImageFormat::Z_PIXMAP,
            source.drawable,
            part.x as i16,
            part.y as i16,
            part.width as u16,
            part.height as u16,
            !0,
        )?
        .reply()?;
    Ok(reply.data)
}

/// A window's inside on the desktop; an error with the reason when its pixels cannot be read.
fn window_bounds(session: &Session, window: XWindow) -> std::result::Result<Rect, Trouble> {
    let connection = &*session.connection;
    let geometry = connection.get_geometry(window)?;
    let attributes = connection.get_window_attributes(window)?;
    let place = connection.translate_coordinates(window, session.root(), 0, 0)?;
    let (geometry, attributes, place) = (geometry.reply()?, attributes.reply()?, place.reply()?);
    let unreadable =
        |why: &str| Err(PlatformError::CaptureFailed(format!("window {window:#x} {why}")).into());
    if attributes.class == WindowClass::INPUT_ONLY {
        return unreadable("takes input only and has no pixels");
    }
    if attributes.map_state != MapState::VIEWABLE {
        return unreadable("is minimised or hidden, so it has no pixels now");
    }
    if bits_per_pixel(session, geometry.depth) != Some(32) {
        return unreadable("does not have 32 bits per pixel");
    }
    Ok(Rect::new(
        place.dst_x.into(),
        place.dst_y.into(),
        geometry.width.into(),
        geometry.height.into(),
    ))
}

/// A window whose pixels a compositor keeps apart, also where others cover it.
struct Redirected<'a> {
    session: &'a Session,
    pixmap: u32,
    /// The desktop position of the pixmap's first pixel.
    origin: Point,
}

impl<'a> Redirected<'a> {
    /// `None` where no compositor runs.
    fn of(session: &'a Session, window: XWindow) -> std::result::Result<Option<Self>, Trouble> {
        let connection = &*session.connection;
        let extension = connection.extension_information(composite::X11_EXTENSION_NAME)?;
        if extension.is_none() {
            return Ok(None);
        }
        let version = connection.composite_query_version(0, 4)?.reply()?;
        if (version.major_version, version.minor_version) < (0, 2) {
            return Ok(None);
        }
        let top = top_level(session, window)?;
        let geometry = connection.get_geometry(top)?.reply()?;
        let pixmap = connection.generate_id()?;
        let named = connection
            .composite_name_window_pixmap(top, pixmap)?
            .check();
        match named.map_err(Trouble::from) {
            Ok(()) => Ok(Some(Self {
                session,
                pixmap,
                origin: Point {
                    x: geometry.x.into(),
                    y: geometry.y.into(),
                },
            })),
            Err(trouble) if trouble.mismatches() => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    fn source(&self, region: Rect) -> Source {
        Source {
            drawable: self.pixmap,
            part: region.translated(Point {
                x: -self.origin.x,
                y: -self.origin.y,
            }),
            region,
        }
    }
}

impl Drop for Redirected<'_> {
    fn drop(&mut self) {
        // A broken connection has freed it already.
        let _ = self.session.connection.free_pixmap(self.pixmap);
    }
}

/// The ancestor of a window that is a child of the root; the window itself if it is one.
pub fn top_level(session: &Session, window: XWindow) -> std::result::Result<XWindow, Trouble> {
    let mut top = window;
    for _ in 0..limits::WINDOW_DEPTH_MAX {
        let parent = session.connection.query_tree(top)?.reply()?.parent;
        if parent == session.root() || parent == x11rb::NONE {
            return Ok(top);
        }
        top = parent;
    }
    Ok(top)
}
