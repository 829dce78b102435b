//! Opening a folder: lock, check, cut back a torn tail.
//!
//! The writer is one write at the end of one file, so what a crash can leave is a piece of a record
//! at the very end of the last segment. That alone is repaired. A bad line with another line behind
//! it, a gap in the numbers or a damaged older segment is no crash of ours and is refused.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom};
use std::path::Path;

use super::Options;
use super::error::JournalError;
use super::read::Index;
use super::segment::{self, Lines, Segment};

/// What opening found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryReport {
    /// Bytes of a torn record that were cut off; 0 when the end was whole.
    pub cut_bytes: u64,
    /// The file name of the segment that was cut.
    pub segment: Option<String>,
    /// The last sequence that stands; 0 when there is none.
    pub last_seq: u64,
}

/// The segment that is written to.
pub(super) struct Active {
    pub file: File,
    pub segment: Segment,
}

pub(super) struct Opened {
    pub lock: File,
    pub index: Index,
    pub active: Active,
    pub report: RecoveryReport,
}

pub(super) fn open(options: &Options) -> Result<Opened, JournalError> {
    let dir = &options.dir;
    make_dir(dir)?;
    let lock = lock(dir)?;
    let mut segments = segment::list(dir)?;
    for at in 1..segments.len() {
        let next_seq = segments[at].first_seq;
        segment::check_ends(&mut segments[at - 1], next_seq)?;
    }
    let mut report = RecoveryReport::default();
    let active = match segments.last_mut() {
        Some(last) => {
            let whole_len = scan(last)?;
            let file = open_for_writing(last, whole_len, &mut report)?;
            Active {
                file,
                segment: last.clone(),
            }
        }
        None => {
            let active = create(dir, 1)?;
            segments.push(active.segment.clone());
            active
        }
    };
    report.last_seq = active.segment.next_seq - 1;
    Ok(Opened {
        lock,
        index: Index::new(segments),
        active,
        report,
    })
}

/// Makes the folder, and makes its name in the folder above durable.
fn make_dir(dir: &Path) -> Result<(), JournalError> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir).map_err(JournalError::io("create", dir))?;
    match dir.parent() {
        Some(above) if above.as_os_str().is_empty() => segment::sync_dir(Path::new(".")),
        Some(above) => segment::sync_dir(above),
        None => Ok(()),
    }
}

/// Takes the folder's lock; the operating system gives it up when the process ends, however it ends.
fn lock(dir: &Path) -> Result<File, JournalError> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(JournalError::io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(JournalError::Locked {
            dir: dir.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(JournalError::io("lock", &path)(error)),
    }
}

/// Reads the last segment line by line; answers the length of its whole records and sets what the
/// segment knows. A bad line that is not the very last one is an error.
fn scan(segment: &mut Segment) -> Result<u64, JournalError> {
    let mut lines = Lines::open(segment, 0)?;
    let mut whole_len = 0;
    let mut next_seq = segment.first_seq;
    let mut torn = None;
    while let Some(line) = lines.next_line()? {
        if let Some(damage) = torn {
            // A power cut may leave a torn end filled up with zeros.
            if !line.whole && line.bytes.iter().all(|byte| *byte == 0) {
                torn = Some(damage);
                continue;
            }
            return Err(damage);
        }
        let (offset, end) = (line.offset, line.offset + line.bytes.len() as u64 + 1);
        match segment::expect(segment, &line, next_seq) {
            Ok(()) => {
                segment.mark(next_seq, offset);
                whole_len = end;
                next_seq += 1;
            }
            // A sound record with a wrong number was not torn by a crash.
            Err(damage) if line.whole && super::record::check_line(line.bytes).is_ok() => {
                return Err(damage);
            }
            Err(damage) => torn = Some(damage),
        }
    }
    segment.next_seq = next_seq;
    Ok(whole_len)
}

fn open_for_writing(
    segment: &mut Segment,
    whole_len: u64,
    report: &mut RecoveryReport,
) -> Result<File, JournalError> {
    let path = &segment.path;
    let mut file = OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(JournalError::io("open", path))?;
    if whole_len < segment.len {
        file.set_len(whole_len)
            .and_then(|()| file.sync_all())
            .map_err(JournalError::io("cut back", path))?;
        report.cut_bytes = segment.len - whole_len;
        report.segment = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
    }
    file.seek(SeekFrom::Start(whole_len))
        .map_err(JournalError::io("seek", path))?;
    segment.len = whole_len;
    Ok(file)
}

/// Makes the segment that starts with `first_seq`. A file of that name holds nothing committed.
pub(super) fn create(dir: &Path, first_seq: u64) -> Result<Active, JournalError> {
    let segment = Segment::new(dir, first_seq);
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(&segment.path)
        .map_err(JournalError::io("create", &segment.path))?;
    segment::sync_dir(dir)?;
    Ok(Active { file, segment })
}
