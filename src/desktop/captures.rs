//! Stored captures: one folder each, whole or not there at all.
//!
//! ```text
//! <dir>/cap_20261130T222307.004000000Z_0a1b2c3d/{capture.jpg|capture.png, metadata.json}
//! <dir>/.staging-<id>/     being written; renamed when it is whole and on disk
//! <dir>/.removed-<id>/     being deleted
//! <dir>/quarantine/<id>/   found damaged: kept for a person, never shown
//! ```
//!
//! Invariants: a capture's folder appears by one rename after its files were synced; it goes by one
//! rename too, so that no reader sees half of it; other entries are not touched.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, TryLockError};

use bytes::Bytes;

use super::Desktop;
use super::encode::Format;
use crate::base::digest::sha256_hex;
use crate::base::ids::{CaptureId, random_hex};
use crate::base::{EpochMillis, limits};
use crate::wire::messages::desktop as msg;
use crate::wire::{Code, Fault};

const METADATA: &str = "metadata.json";
const STAGING: &str = ".staging-";
const REMOVED: &str = ".removed-";
const QUARANTINE: &str = "quarantine";
const PROFILE_DEFAULT: &str = "native-jpeg";
/// A record is about 1 KiB; a longer file is none of ours.
const METADATA_LEN_MAX: u64 = 256 * 1024;

/// Something in the store that a person should hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaptureReport {
    /// An entry that is no capture; it is left alone.
    Foreign { name: String },
    /// A write or a deletion that an earlier end cut short; its rest was deleted.
    LeftoverRemoved { name: String },
    /// A capture whose files are missing, short or altered; it was moved to quarantine.
    Quarantined { id: CaptureId, reason: String },
}

/// The captures of one node. Every method blocks on the disk.
pub struct CaptureStore {
    dir: PathBuf,
    kept: usize,
    report: Box<dyn Fn(CaptureReport) + Send + Sync>,
    /// Held while a capture is made and stored.
    making: Mutex<()>,
    /// Held while folders are moved.
    moving: Mutex<()>,
}

impl CaptureStore {
    /// Opens a folder, creating it when it is not there, and clears what an earlier end left half
    /// done. `kept` captures stay, at least one; `report` hears of entries that are not as they
    /// should be.
    pub fn open(
        dir: impl Into<PathBuf>,
        kept: usize,
        report: impl Fn(CaptureReport) + Send + Sync + 'static,
    ) -> Result<Self, Fault> {
        let dir = dir.into();
        fs::create_dir_all(&dir).map_err(|error| failed("create", &dir, &error))?;
        let store = Self {
            dir,
            kept: kept.max(1),
            report: Box::new(report),
            making: Mutex::new(()),
            moving: Mutex::new(()),
        };
        for name in store.names()? {
            if name.starts_with(STAGING) || name.starts_with(REMOVED) {
                let path = store.dir.join(&name);
                fs::remove_dir_all(&path).map_err(|error| failed("remove", &path, &error))?;
                (store.report)(CaptureReport::LeftoverRemoved { name });
            } else if name != QUARANTINE && parse_name(&name).is_none() {
                (store.report)(CaptureReport::Foreign { name });
            }
        }
        Ok(store)
    }

    /// Makes and stores a capture. One at a time: `capture_busy` while another is being made. Without
    /// the foreground program's identity nothing is stored: `foreground_process_unavailable`.
    pub fn store(
        &self,
        desktop: &Desktop,
        params: &msg::CaptureParams,
    ) -> Result<(msg::Capture, Bytes), Fault> {
        let _making = match self.making.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let why = "a stored capture is being made; ask again when it is done";
                return Err(Fault::new(Code::CaptureBusy, why));
            }
        };
        let (mut capture, bytes) = desktop.screenshot(params, PROFILE_DEFAULT)?;
        if let msg::ForegroundState::Unavailable { reason } = &capture.foreground {
            return Err(Fault::new(
                Code::ForegroundProcessUnavailable,
                format!("store a capture: {reason}"),
            ));
        }
        let id = new_id(capture.created_at)?;
        capture.id = Some(id.clone());
        self.write(&id, &capture, &bytes)?;
        self.retain()?;
        Ok((capture, bytes))
    }

    /// The stored captures, newest first. One whose files are not whole is quarantined, reported and
    /// left out.
    pub fn list(&self) -> Result<msg::CaptureList, Fault> {
        let mut items = Vec::new();
        for id in self.ids()? {
            match self.read_record(&id) {
                Ok(capture) => items.push(capture),
                Err(Unreadable::Gone) => {}
                Err(Unreadable::Damaged(reason)) => self.quarantine(&id, reason)?,
                Err(Unreadable::Failed(fault)) => return Err(fault),
            }
        }
        let total = items.len() as u64;
        Ok(msg::CaptureList { items, total })
    }

    /// A capture and its image, after checking the image against its hash. A damaged one is
    /// quarantined, reported and answered `artifact_corrupt`.
    pub fn content(&self, id: &CaptureId) -> Result<(msg::Capture, Bytes), Fault> {
        let missing = || Fault::new(Code::ArtifactNotFound, format!("no capture {id}"));
        if parse_name(id.as_str()).is_none() {
            return Err(missing());
        }
        match self.read_whole(id) {
            Ok(found) => Ok(found),
            Err(Unreadable::Gone) => Err(missing()),
            Err(Unreadable::Failed(fault)) => Err(fault),
            Err(Unreadable::Damaged(reason)) => {
                let message = format!("capture {id} is damaged ({reason}) and was set aside");
                self.quarantine(id, reason)?;
                Err(Fault::new(Code::ArtifactCorrupt, message))
            }
        }
    }

    fn write(&self, id: &CaptureId, capture: &msg::Capture, bytes: &[u8]) -> Result<(), Fault> {
        let staging = Staging::create(self.dir.join(format!("{STAGING}{id}")))?;
        let text = serde_json::to_vec_pretty(capture)
            .map_err(|error| Fault::internal(format!("write the record of {id}: {error}")))?;
        staging.write(&image_name(capture), bytes)?;
        staging.write(METADATA, &text)?;
        sync_dir(&staging.path)?;
        let place = self.dir.join(id.as_str());
        fs::rename(&staging.path, &place).map_err(|error| failed("store", &place, &error))?;
        sync_dir(&self.dir)
    }

    /// Deletes the oldest captures beyond what is kept.
    fn retain(&self) -> Result<(), Fault> {
        for id in self.ids()?.iter().skip(self.kept) {
            self.delete(&self.dir.join(id.as_str()), id)?;
        }
        Ok(())
    }

    fn delete(&self, path: &Path, id: &CaptureId) -> Result<(), Fault> {
        let removed = self.dir.join(format!("{REMOVED}{id}"));
        {
            let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
            match fs::rename(path, &removed) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(failed("remove", path, &error)),
            }
        }
        fs::remove_dir_all(&removed).map_err(|error| failed("remove", &removed, &error))
    }

    /// Moves a damaged capture aside, once.
    fn quarantine(&self, id: &CaptureId, reason: String) -> Result<(), Fault> {
        let aside = self.dir.join(QUARANTINE);
        fs::create_dir_all(&aside).map_err(|error| failed("create", &aside, &error))?;
        let from = self.dir.join(id.as_str());
        {
            let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
            match fs::rename(&from, aside.join(id.as_str())) {
                Ok(()) => {}
                // Another reader found it first.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(failed("set aside", &from, &error)),
            }
        }
        tracing::error!(capture = %id, %reason, "a stored capture is damaged and was set aside");
        (self.report)(CaptureReport::Quarantined {
            id: id.clone(),
            reason,
        });
        for id in ids_in(&aside)?
            .iter()
            .skip(limits::CAPTURES_QUARANTINED_MAX)
        {
            self.delete(&aside.join(id.as_str()), id)?;
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, Fault> {
        names_in(&self.dir)
    }

    /// Newest first.
    fn ids(&self) -> Result<Vec<CaptureId>, Fault> {
        ids_in(&self.dir)
    }

    /// The record, after checking that it is this capture's and that its image has its length.
    fn read_record(&self, id: &CaptureId) -> Result<msg::Capture, Unreadable> {
        let dir = self.dir.join(id.as_str());
        let path = dir.join(METADATA);
        let length = fs::metadata(&path)
            .map_err(|e| unreadable(&dir, &path, &e))?
            .len();
        if length > METADATA_LEN_MAX {
            return Err(Unreadable::Damaged(format!(
                "{METADATA} has {length} bytes"
            )));
        }
        let text = fs::read(&path).map_err(|error| unreadable(&dir, &path, &error))?;
        let capture: msg::Capture = serde_json::from_slice(&text)
            .map_err(|error| Unreadable::Damaged(format!("{METADATA}: {error}")))?;
        if capture.id.as_ref() != Some(id) {
            let reason = format!("{METADATA} belongs to another capture");
            return Err(Unreadable::Damaged(reason));
        }
        let path = dir.join(image_name(&capture));
        let length = fs::metadata(&path)
            .map_err(|e| unreadable(&dir, &path, &e))?
            .len();
        if length != capture.bytes {
            return Err(Unreadable::Damaged(format!(
                "the image has {length} of {} bytes",
                capture.bytes
            )));
        }
        Ok(capture)
    }

    fn read_whole(&self, id: &CaptureId) -> Result<(msg::Capture, Bytes), Unreadable> {
        let capture = self.read_record(id)?;
        let dir = self.dir.join(id.as_str());
        let path = dir.join(image_name(&capture));
        let bytes = fs::read(&path).map_err(|error| unreadable(&dir, &path, &error))?;
        if sha256_hex(&bytes) != capture.sha256 {
            return Err(Unreadable::Damaged("the image's hash differs".into()));
        }
        Ok((capture, bytes.into()))
    }
}

/// Why a capture cannot be read.
enum Unreadable {
    /// It is not there (any more).
    Gone,
    Damaged(String),
    Failed(Fault),
}

fn unreadable(dir: &Path, path: &Path, error: &io::Error) -> Unreadable {
    if error.kind() != ErrorKind::NotFound {
        return Unreadable::Failed(failed("read", path, error));
    }
    if dir.exists() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        return Unreadable::Damaged(format!("{name} is missing"));
    }
    Unreadable::Gone
}

/// A folder that is deleted unless it was renamed.
struct Staging {
    path: PathBuf,
}

impl Staging {
    fn create(path: PathBuf) -> Result<Self, Fault> {
        fs::create_dir(&path).map_err(|error| failed("create", &path, &error))?;
        Ok(Self { path })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        let path = self.path.join(name);
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&path)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(|error| failed("write", &path, &error))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Renamed: there is nothing left here. Otherwise what stays is removed at the next start.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn image_name(capture: &msg::Capture) -> String {
    let png = capture.format == Format::Png.name();
    let extension = if png { "png" } else { "jpg" };
    format!("capture.{extension}")
}

/// Windows cannot open a folder as a file, and makes renames durable by itself.
fn sync_dir(dir: &Path) -> Result<(), Fault> {
    match File::open(dir) {
        Ok(opened) => opened
            .sync_all()
            .map_err(|error| failed("sync", dir, &error)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(failed("sync", dir, &error)),
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Fault {
    let code = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Code::StorageFull
        }
        _ => Code::StorageFailed,
    };
    Fault::new(code, format!("{what} {}: {error}", path.display()))
}

fn names_in(dir: &Path) -> Result<Vec<String>, Fault> {
    let entries = fs::read_dir(dir).map_err(|error| failed("list", dir, &error))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed("list", dir, &error))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

/// The captures in a folder, newest first: their names sort by time.
fn ids_in(dir: &Path) -> Result<Vec<CaptureId>, Fault> {
    let names = names_in(dir)?;
    let mut ids: Vec<CaptureId> = names.iter().filter_map(|name| parse_name(name)).collect();
    ids.sort_unstable_by(|a, b| b.cmp(a));
    Ok(ids)
}

/// `cap_YYYYMMDDTHHMMSS.nnnnnnnnnZ_xxxxxxxx`, of the capture's own time.
fn new_id(at: EpochMillis) -> Result<CaptureId, Fault> {
    let broken =
        |error: &dyn std::fmt::Display| Fault::internal(format!("name a capture: {error}"));
    let time = jiff::Timestamp::from_millisecond(at.0).map_err(|error| broken(&error))?;
    let time = time.strftime("%Y%m%dT%H%M%S%.9fZ");
    CaptureId::parse(format!("cap_{time}_{}", random_hex(4))).map_err(|error| broken(&error))
}

/// Whether a folder's name is a capture's, digit by digit: names from outside become paths.
fn parse_name(name: &str) -> Option<CaptureId> {
    const SHAPE: &[u8] = b"cap_00000000T000000.000000000Z_xxxxxxxx";
    let fits = |(shape, byte): (&u8, u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        b'x' => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        literal => *literal == byte,
    };
    let good = name.len() == SHAPE.len() && SHAPE.iter().zip(name.bytes()).all(fits);
    good.then(|| CaptureId::parse(name).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::{Color, Rect, Size};
    use crate::platform::virtual_display::{Picture, VirtualDisplay};
    use crate::platform::{Process, Window};

    struct Fixture {
        root: tempfile::TempDir,
        display: VirtualDisplay,
        desktop: Desktop,
        reports: Arc<Mutex<Vec<CaptureReport>>>,
    }

    impl Fixture {
        fn new() -> Self {
            let size = Size {
                width: 20,
                height: 10,
            };
            let display = VirtualDisplay::new([Picture::filled(size, Color::default())]);
            {
                let mut state = display.state();
                state.windows.push(Window {
                    handle: 5,
                    title: "w".into(),
                    class: String::new(),
                    pid: Some(9),
                    minimized: None,
                    bounds: Rect::new(0, 0, 5, 5),
                });
                state.processes.push(Process {
                    pid: 9,
                    parent: None,
                    name: "w".into(),
                    path: Some("/bin/w".into()),
                });
                state.foreground = Some(5);
            }
            Self {
                root: tempfile::tempdir().unwrap(),
                desktop: Desktop::with_backend(display.backend()),
                display,
                reports: Arc::default(),
            }
        }

        fn store(&self, kept: usize) -> CaptureStore {
            let reports = self.reports.clone();
            CaptureStore::open(self.root.path(), kept, move |report| {
                reports.lock().unwrap().push(report);
            })
            .unwrap()
        }

        fn capture(&self, store: &CaptureStore) -> CaptureId {
            let stored = store.store(&self.desktop, &msg::CaptureParams::default());
            stored.unwrap().0.id.unwrap()
        }

        fn names(&self) -> Vec<String> {
            names_in(self.root.path()).unwrap()
        }
    }

    #[test]
    fn a_stored_capture_is_served_whole_and_the_oldest_go() {
        let fixture = Fixture::new();
        let store = fixture.store(2);
        let mut ids: Vec<_> = (0..3).map(|_| fixture.capture(&store)).collect();
        // Captures of one millisecond are told apart by chance alone.
        ids.sort();
        let listed = store.list().unwrap();
        assert_eq!(listed.total, 2);
        assert!(listed.items[0].id > listed.items[1].id);
        let newest = listed.items[0].id.clone().unwrap();
        assert_eq!(newest, ids[2]);
        let (capture, bytes) = store.content(&newest).unwrap();
        assert_eq!(capture.sha256, sha256_hex(&bytes));
        assert_eq!(capture.profile, "native-jpeg");
        let gone = store.content(&ids[0]).unwrap_err();
        assert_eq!(gone.code, Code::ArtifactNotFound);
        assert_eq!(fixture.names().len(), 2);
    }

    #[test]
    fn altered_and_partial_captures_are_set_aside_not_shown() {
        let fixture = Fixture::new();
        let store = fixture.store(10);
        let altered = fixture.capture(&store);
        let short = fixture.capture(&store);
        let bare = fixture.capture(&store);
        let image = |id: &CaptureId| fixture.root.path().join(id.as_str()).join("capture.jpg");
        let mut bytes = fs::read(image(&altered)).unwrap();
        bytes[0] ^= 1;
        fs::write(image(&altered), bytes).unwrap();
        fs::write(image(&short), b"x").unwrap();
        fs::remove_file(image(&bare)).unwrap();
        assert_eq!(
            store.content(&altered).unwrap_err().code,
            Code::ArtifactCorrupt
        );
        assert_eq!(store.list().unwrap().total, 0);
        assert_eq!(fixture.reports.lock().unwrap().len(), 3);
        assert_eq!(fixture.names(), [QUARANTINE]);
        let again = store.content(&short).unwrap_err();
        assert_eq!(again.code, Code::ArtifactNotFound);
    }

    #[test]
    fn opening_clears_own_leftovers_and_leaves_foreign_entries() {
        let fixture = Fixture::new();
        let kept = fixture.capture(&fixture.store(10));
        fs::create_dir(fixture.root.path().join(".staging-cap_x")).unwrap();
        fs::write(fixture.root.path().join("notes.txt"), "mine").unwrap();
        fixture.reports.lock().unwrap().clear();
        let store = fixture.store(10);
        let mut reports = fixture.reports.lock().unwrap().clone();
        reports.sort_by_key(|report| format!("{report:?}"));
        assert_eq!(
            reports,
            [
                CaptureReport::Foreign {
                    name: "notes.txt".into()
                },
                CaptureReport::LeftoverRemoved {
                    name: ".staging-cap_x".into()
                }
            ]
        );
        assert!(fixture.names().contains(&"notes.txt".to_owned()));
        assert!(store.content(&kept).is_ok());
    }

    #[test]
    fn without_a_foreground_program_nothing_is_stored() {
        let fixture = Fixture::new();
        let store = fixture.store(10);
        fixture.display.state().processes.clear();
        let fault = store
            .store(&fixture.desktop, &msg::CaptureParams::default())
            .unwrap_err();
        assert_eq!(fault.code, Code::ForegroundProcessUnavailable);
        assert_eq!(fixture.names(), Vec::<String>::new());
    }

    #[test]
    fn a_second_capture_at_the_same_time_is_busy() {
        let fixture = Fixture::new();
        let store = fixture.store(10);
        let making = store.making.lock().unwrap();
        let params = msg::CaptureParams::default();
        let fault = store.store(&fixture.desktop, &params).unwrap_err();
        assert_eq!(fault.code, Code::CaptureBusy);
        drop(making);
        assert!(store.store(&fixture.desktop, &params).is_ok());
    }

    #[test]
    fn names_from_outside_are_checked_digit_by_digit() {
        let id = new_id(EpochMillis(1_796_163_787_004)).unwrap();
        assert!(
            id.as_str().starts_with("cap_20261201T222307.004000000Z_"),
            "{id}"
        );
        assert_eq!(parse_name(id.as_str()), Some(id.clone()));
        for bad in [
            "..",
            "quarantine",
            "",
            &id.as_str().to_uppercase(),
            &format!("{id}0"),
        ] {
            assert_eq!(parse_name(bad), None, "{bad}");
        }
        let fixture = Fixture::new();
        let traversal = CaptureId::parse("..").unwrap();
        let fault = fixture.store(1).content(&traversal).unwrap_err();
        assert_eq!(fault.code, Code::ArtifactNotFound);
    }

    #[test]
    fn a_full_disk_has_its_own_code_and_leaves_nothing_behind() {
        let path = Path::new("/dev/full");
        let mut full = OpenOptions::new().write(true).open(path).unwrap();
        let error = full.write_all(b"x").unwrap_err();
        assert_eq!(failed("write", path, &error).code, Code::StorageFull);
        let fixture = Fixture::new();
        let staging = Staging::create(fixture.root.path().join(".staging-x")).unwrap();
        staging.write("a", b"half").unwrap();
        drop(staging);
        assert_eq!(fixture.names(), Vec::<String>::new());
    }
}
