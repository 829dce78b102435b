//! Pixels that the X server writes straight into memory of ours: MIT-SHM segments passed by file
//! descriptor, so that they work where System V segments do not (containers).
//!
//! A frame's pixels are the segment itself. When its last reader drops it, the segment waits in the
//! pool for the next frame.

use std::sync::{Arc, Mutex, PoisonError};

use memmap2::{MmapMut, MmapOptions};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use x11rb::connection::{Connection, RequestConnection};
use x11rb::protocol::shm::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{Drawable, ImageFormat};

use super::x11::{Trouble, XConnection};
use crate::base::{Rect, limits};
use crate::platform::PlatformError;

/// Segments grow in steps of this many bytes, so that regions of about one size share them.
const SEGMENT_STEP: usize = 64 * 1024;

/// The segments of one connection.
pub struct Pool {
    connection: Arc<XConnection>,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Segment>,
    held: usize,
}

struct Segment {
    id: shm::Seg,
    map: MmapMut,
}

/// A segment with a frame in it; it returns to its pool when dropped.
pub struct Held {
    pool: Arc<Pool>,
    segment: Option<Segment>,
    len: usize,
}

impl Pool {
    /// Opens a pool when the server and the connection can share memory by descriptor; the reason
    /// why not otherwise.
    pub fn open(connection: &Arc<XConnection>) -> Result<Result<Arc<Self>, String>, Trouble> {
        if connection
            .extension_information(shm::X11_EXTENSION_NAME)?
            .is_none()
        {
            return Ok(Err("the X server has no MIT-SHM extension".into()));
        }
        let version = connection.shm_query_version()?.reply()?;
        if (version.major_version, version.minor_version) < (1, 2) {
            return Ok(Err(format!(
                "MIT-SHM {}.{} cannot take a descriptor",
                version.major_version, version.minor_version
            )));
        }
        let pool = Arc::new(Self {
            connection: connection.clone(),
            state: Mutex::default(),
        });
        // A server on another host has the extension and still cannot map our memory.
        match pool.create(SEGMENT_STEP) {
            Ok(segment) => {
                pool.free(segment);
                Ok(Ok(pool))
            }
            Err(Trouble::Refused(error)) => Ok(Err(format!(
                "the X server refused a shared segment: {:?}",
                error.error_kind
            ))),
            Err(trouble) => Err(trouble),
        }
    }

    /// Grabs a region of a drawable of 4 bytes per pixel, relative to the drawable.
    pub fn grab(self: &Arc<Self>, drawable: Drawable, region: Rect) -> Result<Held, Trouble> {
        let len = region.width as usize * region.height as usize * 4;
        let segment = match self.take(len) {
            Some(segment) => segment,
            None => self.create(len)?,
        };
        let reply = self
            .connection
            .shm_get_image(
                drawable,
                region.x as i16,
                region.y as i16,
                region.width as u16,
                region.height as u16,
                !0,
                ImageFormat::Z_PIXMAP.into(),
                segment.id,
                0,
            )
            .map_err(Trouble::from)
            .and_then(|cookie| cookie.reply().map_err(Trouble::from));
        let wrote = match reply {
            Ok(reply) => reply.size as usize,
            Err(Trouble::Refused(error)) => {
                self.put_back(segment);
                return Err(Trouble::Refused(error));
            }
            // The server may still write into this segment: it is never used again.
            Err(trouble) => return Err(trouble),
        };
        if wrote < len {
            self.put_back(segment);
            return Err(PlatformError::CaptureFailed(format!(
                "the X server wrote {wrote} of {len} bytes"
            ))
            .into());
        }
        self.lock().held += 1;
        Ok(Held {
            pool: self.clone(),
            segment: Some(segment),
            len,
        })
    }

    /// Whether readers hold so many segments that a frame should be a copy.
    pub fn is_strained(&self) -> bool {
        self.lock().held > limits::FRAME_SEGMENTS_HELD_MAX
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The smallest idle segment that holds `len` bytes.
    fn take(&self, len: usize) -> Option<Segment> {
        let mut state = self.lock();
        let fits = state.idle.iter().enumerate();
        let (index, _) = fits
            .filter(|(_, segment)| segment.map.len() >= len)
            .min_by_key(|(_, segment)| segment.map.len())?;
        Some(state.idle.swap_remove(index))
    }

    fn put_back(&self, segment: Segment) {
        let mut state = self.lock();
        state.idle.push(segment);
        if state.idle.len() > limits::FRAME_SEGMENTS_IDLE_MAX {
            let smallest = (0..state.idle.len()).min_by_key(|&i| state.idle[i].map.len());
            let surplus = smallest.map(|index| state.idle.swap_remove(index));
            drop(state);
            surplus.into_iter().for_each(|segment| self.free(segment));
        }
    }

    fn free(&self, segment: Segment) {
        // On a broken connection the server has let go of it already.
        let _ = self.connection.shm_detach(segment.id);
        let _ = self.connection.flush();
    }

    fn create(&self, len: usize) -> Result<Segment, Trouble> {
        let len = len.next_multiple_of(SEGMENT_STEP);
        let io = |what: &str, error: &dyn std::fmt::Display| {
            Trouble::Other(PlatformError::Io {
                what: format!("{what} of {len} bytes for a frame"),
                source_text: error.to_string(),
            })
        };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("wingman-frame", flags).map_err(|e| io("memory file", &e))?;
        ftruncate(&fd, len as u64).map_err(|e| io("memory file", &e))?;
        // Neither side can shrink the file under the other's mapping.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|e| io("seal", &e))?;
        // SAFETY: the file is ours, sealed against shrinking, and only the X server we hand it to
        // maps it too. The server writes into it only while a request of ours names it, and no
        // reader sees the bytes before that request's reply.
        let map = unsafe { MmapOptions::new().len(len).map_mut(&fd) }.map_err(|e| io("map", &e))?;
        let id = self.connection.generate_id()?;
        self.connection.shm_attach_fd(id, fd, false)?.check()?;
        Ok(Segment { id, map })
    }
}

impl Held {
    /// The pixels while nobody reads them yet.
    pub fn pixels_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.segment
            .as_mut()
            .and_then(|segment| segment.map.get_mut(..len))
            .unwrap_or_default()
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.segment
            .as_ref()
            .and_then(|segment| segment.map.get(..self.len))
            .unwrap_or_default()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pool.lock().held -= 1;
        if let Some(segment) = self.segment.take() {
            self.pool.put_back(segment);
        }
    }
}
