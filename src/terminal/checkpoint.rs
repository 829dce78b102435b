//! Checkpoints: what the holder keeps so that a later agent has the same grid, scrollback included.
//!
//! ```text
//! screen:  header (one line of JSON) '\n' snapshot (escape sequences)
//! block:   first line u64 | bytes of the grid's own encoding          numbers little-endian
//! ```
//!
//! A checkpoint stands for everything before its position; after it the holder's bytes are fed again.
//! Blocks are sent once; those whose lines are history no more go with the next checkpoint.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::grid::{Grid, HistoryBlocks, Options, Role, Scrollback, Size};
use super::holder::{Block, FromHolder, NewCheckpoint, Position, Reader};
use super::hub::TerminalOptions;
use super::said::Said;
use super::session::{Screen, Session};
use super::sessions::fault_of;
use crate::platform::pty::PtySize;
use crate::wire::{Code, Fault};

/// The version of this encoding.
const VERSION: u16 = 1;
const BLOCK_HEADER_LEN: usize = 8;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    version: u16,
    cols: u16,
    rows: u16,
    /// Columns of the rows in the history.
    columns: u16,
    /// The first line of history that is kept.
    first_line: u64,
    /// What the program and its shell said last of what they are doing.
    #[serde(default, skip_serializing_if = "Said::is_empty")]
    said: Said,
}

/// What the holder has of the history.
#[derive(Debug, Default)]
pub(super) struct Sent {
    epoch: u64,
    /// Number of the next block.
    next_id: u64,
    /// The line after the last one sent.
    next_line: u64,
    /// Number and end line of every block that is still history, oldest first.
    blocks: VecDeque<(u64, u64)>,
}

/// A grid out of a checkpoint, and where the stream goes on.
pub(super) struct Restored {
    pub screen: Screen,
    pub at: Position,
}

impl Restored {
    /// An empty grid at the start of the stream.
    pub fn fresh(size: PtySize, options: &TerminalOptions) -> Self {
        Self {
            screen: Screen {
                grid: fresh_grid(size, options),
                next: Position::default(),
                checkpointed: Position::default(),
                sent: Sent::default(),
                answered: 0,
                recording: None,
                sync_since: None,
                said: Said::default(),
            },
            at: Position::default(),
        }
    }
}

fn fresh_grid(size: PtySize, options: &TerminalOptions) -> Grid {
    let size = Size {
        cols: size.cols,
        rows: size.rows,
    };
    let options = Options {
        scrollback_lines: options.scrollback_lines,
        ..Options::new(Role::Host)
    };
    Grid::new(size, options)
}

/// Stores the grid as it is in the holder, where anything has changed since the last time. Only copies
/// into the connection's queue.
pub(super) fn store(session: &Session, screen: &mut Screen) {
    let at = Position {
        offset: screen.grid.offset(),
        mark: screen.next.mark,
    };
    if at == screen.checkpointed {
        return;
    }
    let Ok(writer) = session.live() else { return };
    let grid = &screen.grid;
    let epoch = grid.history_epoch();
    let mut sent = std::mem::take(&mut screen.sent);
    if epoch != sent.epoch {
        // Lines that were sent before mean nothing any more.
        sent.epoch = epoch;
        sent.blocks.clear();
        sent.next_line = 0;
    }
    let exported = grid.export_history(sent.next_line);
    let end = grid.first_line() + grid.history_len() as u64;
    let mut append: Vec<(u64, Vec<u8>)> = Vec::with_capacity(exported.blocks.len());
    for bytes in &exported.blocks {
        let mut block = Vec::with_capacity(BLOCK_HEADER_LEN + bytes.len());
        block.extend_from_slice(&exported.first_line.to_le_bytes());
        block.extend_from_slice(bytes);
        append.push((sent.next_id, block));
        // One export comes and goes as a whole: its blocks end with its last line.
        sent.blocks.push_back((sent.next_id, end));
        sent.next_id += 1;
    }
    sent.next_line = end;
    while sent
        .blocks
        .front()
        .is_some_and(|(_, last)| *last <= grid.first_line())
    {
        sent.blocks.pop_front();
    }
    let keep_from = sent.blocks.front().map_or(sent.next_id, |(id, _)| *id);
    let size = grid.size();
    let header = Header {
        version: VERSION,
        cols: size.cols,
        rows: size.rows,
        columns: exported.columns,
        first_line: grid.first_line(),
        said: screen.said.clone(),
    };
    // INVARIANT: a header has only numbers and texts.
    let mut image = serde_json::to_vec(&header).unwrap_or_default();
    image.push(b'\n');
    image.extend_from_slice(&grid.snapshot(Scrollback::None));
    let blocks: Vec<Block<'_>> = append
        .iter()
        .map(|(id, bytes)| Block { id: *id, bytes })
        .collect();
    let stored = writer.checkpoint(&NewCheckpoint {
        at,
        screen: &image,
        append: &blocks,
        keep_from,
    });
    match stored {
        Ok(()) => {
            screen.sent = sent;
            screen.checkpointed = at;
            session.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => {
            // The former one stays; the next goes with the whole history, under new numbers.
            screen.sent = Sent {
                epoch: u64::MAX,
                next_id: sent.next_id,
                ..Sent::default()
            };
            tracing::debug!(session = %session.id, %error, "a checkpoint was not stored");
        }
    }
}

/// Reads a checkpoint as the holder sends it, up to its end; `None` where none was made.
pub(super) fn read(
    reader: &mut Reader,
    options: &TerminalOptions,
) -> Result<Option<Restored>, Fault> {
    let mut image = Vec::new();
    let mut at = Position::default();
    let mut blocks: Vec<(u64, Vec<u8>)> = Vec::new();
    loop {
        let frame = reader.next().map_err(|error| fault_of(&error))?;
        match frame {
            Some(FromHolder::CheckpointBegin { at: place, .. }) => at = place,
            Some(FromHolder::CheckpointScreen(part)) => image.extend_from_slice(part),
            Some(FromHolder::CheckpointBlock { id, bytes }) => blocks.push((id, bytes.to_vec())),
            Some(FromHolder::CheckpointEnd) => break,
            Some(_) => {}
            None => return Err(damaged("it ends early")),
        }
    }
    if image.is_empty() {
        return Ok(None);
    }
    let cut = image
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or_else(|| damaged("it has no header"))?;
    let header: Header =
        serde_json::from_slice(&image[..cut]).map_err(|error| damaged(&error.to_string()))?;
    if header.version != VERSION {
        return Err(damaged(&format!("it has version {}", header.version)));
    }
    let size = PtySize {
        cols: header.cols,
        rows: header.rows,
    };
    let mut restored = Restored::fresh(size, options);
    let screen = &mut restored.screen;
    // What it asks of its owner was done when the program wrote it.
    screen.grid.feed(&image[cut + 1..], &mut Vec::new());
    screen.grid.set_offset(at.offset);
    import(&mut screen.grid, &header, blocks, &mut screen.sent)?;
    screen.next = at;
    screen.checkpointed = at;
    screen.said = header.said;
    restored.at = at;
    Ok(Some(restored))
}

fn import(
    grid: &mut Grid,
    header: &Header,
    blocks: Vec<(u64, Vec<u8>)>,
    sent: &mut Sent,
) -> Result<(), Fault> {
    let first = blocks
        .first()
        .and_then(|(_, block)| block.first_chunk::<BLOCK_HEADER_LEN>());
    let first_line = first.map_or(header.first_line, |number| u64::from_le_bytes(*number));
    sent.next_id = blocks.last().map_or(0, |(id, _)| id + 1);
    let ids: Vec<u64> = blocks.iter().map(|(id, _)| *id).collect();
    let bodies = blocks
        .into_iter()
        .map(|(_, mut block)| block.split_off(BLOCK_HEADER_LEN.min(block.len())));
    let history = HistoryBlocks {
        first_line,
        epoch: 0,
        columns: header.columns,
        blocks: bodies.collect(),
    };
    grid.import_history(&history)
        .map_err(|error| damaged(&error.to_string()))?;
    grid.forget_history_before(header.first_line);
    sent.epoch = grid.history_epoch();
    sent.next_line = grid.first_line() + grid.history_len() as u64;
    // Which line each block ends with is not known here: they all go when the last one may.
    sent.blocks = ids.into_iter().map(|id| (id, sent.next_line)).collect();
    Ok(())
}

fn damaged(why: &str) -> Fault {
    Fault::new(
        Code::SessionFailed,
        format!("the session's checkpoint cannot be read: {why}"),
    )
}
