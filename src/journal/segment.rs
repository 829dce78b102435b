//! Segment files: their names, their lines, and what is remembered of each.
//!
//! A segment is `NNNNNNNNNNNNNNNNNNNN.jsonl`, 20 digits, the sequence of its first record. Line
//! `n` (from 1) holds sequence `first + n - 1`. The newest segment alone is written to.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::error::JournalError;
use super::record::check_line;
use crate::base::limits::{JOURNAL_INDEX_STEP, JOURNAL_RECORD_LEN_MAX};

const SUFFIX: &str = ".jsonl";
const DIGITS: usize = 20;

/// A remembered place in a segment: the line of `seq` starts at `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub seq: u64,
    pub offset: u64,
}

/// What is known of one segment file.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub path: PathBuf,
    pub first_seq: u64,
    /// One past the last committed record.
    pub next_seq: u64,
    /// Committed length in bytes.
    pub len: u64,
    /// Ascending, one every `JOURNAL_INDEX_STEP` bytes where lines were seen.
    marks: Vec<Mark>,
}

impl Segment {
    pub fn new(dir: &Path, first_seq: u64) -> Self {
        Self {
            path: dir.join(format!("{first_seq:0DIGITS$}{SUFFIX}")),
            first_seq,
            next_seq: first_seq,
            len: 0,
            marks: Vec::new(),
        }
    }

    /// Remembers where the line of `seq` starts, if no mark is near.
    pub fn mark(&mut self, seq: u64, offset: u64) {
        let last = self.marks.last().map_or(0, |mark| mark.offset);
        if offset >= last + JOURNAL_INDEX_STEP {
            self.marks.push(Mark { seq, offset });
        }
    }

    /// The nearest known place at or before `seq`.
    pub fn place_before(&self, seq: u64) -> Mark {
        let after = self.marks.partition_point(|mark| mark.seq <= seq);
        let start = Mark {
            seq: self.first_seq,
            offset: 0,
        };
        match after.checked_sub(1).and_then(|at| self.marks.get(at)) {
            Some(mark) => *mark,
            None => start,
        }
    }

    /// What a reader needs; the marks stay behind.
    pub fn without_marks(&self) -> Self {
        Self {
            path: self.path.clone(),
            marks: Vec::new(),
            ..*self
        }
    }

    /// The error for a damaged line.
    pub fn corrupt(&self, seq: u64, offset: u64, reason: impl ToString) -> JournalError {
        JournalError::Corrupt {
            file: self.path.clone(),
            line: seq.saturating_sub(self.first_seq) + 1,
            offset,
            reason: reason.to_string(),
        }
    }
}

/// The segments of a folder by their first sequence; other files are left alone.
pub(super) fn list(dir: &Path) -> Result<Vec<Segment>, JournalError> {
    let failed = || JournalError::io("list", dir);
    let mut segments = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        let Some(first_seq) = entry.file_name().to_str().and_then(first_seq_of) else {
            continue;
        };
        let mut segment = Segment::new(dir, first_seq);
        let metadata = entry
            .metadata()
            .map_err(JournalError::io("examine", &segment.path))?;
        segment.len = metadata.len();
        segments.push(segment);
    }
    segments.sort_by_key(|segment| segment.first_seq);
    Ok(segments)
}

fn first_seq_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    let plain = digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|seq| plain && *seq > 0)
}

/// One line of a segment as it lies in the file.
pub(super) struct RawLine<'a> {
    pub offset: u64,
    /// Without the newline.
    pub bytes: &'a [u8],
    /// Whether a newline ended it, rather than the end of the file or the limit of a line.
    pub whole: bool,
}

/// Walks the lines of a segment from a known place.
pub(super) struct Lines {
    reader: std::io::Take<BufReader<File>>,
    offset: u64,
    line: Vec<u8>,
    path: PathBuf,
}

impl Lines {
    /// Lines from `offset` up to the committed length.
    pub fn open(segment: &Segment, offset: u64) -> Result<Self, JournalError> {
        let path = &segment.path;
        let mut file = File::open(path).map_err(JournalError::io("open", path))?;
        file.seek(SeekFrom::Start(offset))
            .map_err(JournalError::io("read", path))?;
        let reader = BufReader::with_capacity(JOURNAL_INDEX_STEP as usize, file);
        Ok(Self {
            reader: reader.take(segment.len.saturating_sub(offset)),
            offset,
            line: Vec::new(),
            path: path.clone(),
        })
    }

    /// The next line; `None` at the end. A line longer than a record may be is cut there.
    pub fn next_line(&mut self) -> Result<Option<RawLine<'_>>, JournalError> {
        self.line.clear();
        let offset = self.offset;
        let read = (&mut self.reader)
            .take(JOURNAL_RECORD_LEN_MAX as u64)
            .read_until(b'\n', &mut self.line)
            .map_err(JournalError::io("read", &self.path))?;
        if read == 0 {
            return Ok(None);
        }
        self.offset += read as u64;
        let whole = self.line.last() == Some(&b'\n');
        let bytes = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        Ok(Some(RawLine {
            offset,
            bytes,
            whole,
        }))
    }
}

/// Checks that a line is whole, sound and numbered `seq`.
pub(super) fn expect(segment: &Segment, line: &RawLine<'_>, seq: u64) -> Result<(), JournalError> {
    if !line.whole {
        return Err(segment.corrupt(seq, line.offset, "the record is incomplete"));
    }
    let found = check_line(line.bytes).map_err(|why| segment.corrupt(seq, line.offset, why))?;
    if found != seq {
        let why = format!("sequence {found} stands where {seq} belongs");
        return Err(segment.corrupt(seq, line.offset, why));
    }
    Ok(())
}

/// Checks the first and the last record of a closed segment, which ends before `next_seq`.
pub(super) fn check_ends(segment: &mut Segment, next_seq: u64) -> Result<(), JournalError> {
    segment.next_seq = next_seq;
    let mut lines = Lines::open(segment, 0)?;
    match lines.next_line()? {
        Some(line) => expect(segment, &line, segment.first_seq)?,
        None => return Err(segment.corrupt(segment.first_seq, 0, "the segment is empty")),
    }
    let last_seq = next_seq.saturating_sub(1);
    // The last line is found backwards: the window holds more than the longest line.
    let start = segment
        .len
        .saturating_sub(JOURNAL_RECORD_LEN_MAX as u64 + 1);
    let mut window = Vec::new();
    let path = &segment.path;
    let mut file = File::open(path).map_err(JournalError::io("open", path))?;
    file.seek(SeekFrom::Start(start))
        .and_then(|_| file.read_to_end(&mut window))
        .map_err(JournalError::io("read", path))?;
    let body = window.strip_suffix(b"\n").unwrap_or(&window);
    let at = body
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |newline| newline + 1);
    let line = RawLine {
        offset: start + at as u64,
        bytes: &body[at..],
        whole: body.len() < window.len(),
    };
    expect(segment, &line, last_seq)
}

/// Makes the creation or deletion of a file in `dir` durable.
///
/// Where folders cannot be opened as files (Windows) the file system orders such changes itself.
pub(super) fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    match File::open(dir) {
        Ok(handle) => handle.sync_all().map_err(JournalError::io("sync", dir)),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(JournalError::io("sync", dir)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_segment_names_are_segments() {
        assert_eq!(first_seq_of("00000000000000000042.jsonl"), Some(42));
        for other in [
            "42.jsonl",
            "00000000000000000000.jsonl",
            "+0000000000000000042.jsonl",
            "00000000000000000042.jsonl.bak",
            "99999999999999999999.jsonl",
            "lock",
        ] {
            assert_eq!(first_seq_of(other), None, "{other}");
        }
    }

    #[test]
    fn marks_give_the_nearest_place_before() {
        let mut segment = Segment::new(Path::new("/x"), 10);
        for seq in 11..100 {
            segment.mark(seq, (seq - 10) * (JOURNAL_INDEX_STEP / 2));
        }
        assert_eq!(segment.place_before(10).offset, 0);
        assert_eq!(segment.place_before(12).seq, 12);
        assert_eq!(segment.place_before(13).seq, 12);
        assert_eq!(segment.place_before(500).seq, 98);
    }
}
