//! The scrollback: encoded rows in blocks, oldest first, outside of the emulator.

use std::collections::VecDeque;

use alacritty_terminal::term::cell::Cell;

use super::line::{self, Line};
use super::reflow;
use crate::base::limits::{GRID_HISTORY_BLOCK_LEN, GRID_HISTORY_LEN_MAX, GRID_REFLOW_LINES_MAX};

/// First bytes of an exported block; the last one is the version of the encoding.
const MAGIC: [u8; 4] = *b"WGH\x01";

/// Scrollback as bytes, for another grid or a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryBlocks {
    /// Absolute number of the first line.
    pub first_line: u64,
    /// Changes whenever lines that were exported before are no longer valid: after a change of width
    /// or a clear. Then the whole history has to be exported again.
    pub epoch: u64,
    /// Columns of every row.
    pub columns: u16,
    /// Each with its version in front, of about `GRID_HISTORY_BLOCK_LEN` bytes.
    pub blocks: Vec<Vec<u8>>,
}

/// A block that is no history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    #[error("history block {block} has an unknown version")]
    Version { block: usize },
    #[error("history block {block} is damaged at line {line}")]
    Damaged { block: usize, line: usize },
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    lines: usize,
}

/// The rows that scrolled out of the main screen.
#[derive(Debug)]
pub(super) struct History {
    /// INVARIANT: every block is a sequence of whole lines that `Line::split` takes apart.
    blocks: VecDeque<Block>,
    /// Lines and bytes at the front of the first block that are dropped already.
    skipped: (usize, usize),
    lines: usize,
    bytes: usize,
    first_line: u64,
    epoch: u64,
    lines_max: usize,
}

impl History {
    pub(super) fn new(lines_max: usize) -> Self {
        Self {
            blocks: VecDeque::new(),
            skipped: (0, 0),
            lines: 0,
            bytes: 0,
            first_line: 0,
            epoch: 0,
            lines_max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lines
    }

    /// Absolute number of the oldest line.
    pub(super) fn first_line(&self) -> u64 {
        self.first_line
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.blocks
            .iter()
            .map(|block| block.bytes.capacity() + size_of::<Block>())
            .sum()
    }

    pub(super) fn push(&mut self, cells: &[Cell]) {
        self.append(|out| line::encode(cells, out));
    }

    fn push_encoded(&mut self, encoded: &[u8]) {
        self.append(|out| out.extend_from_slice(encoded));
    }

    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.lines_max == 0 {
            self.first_line += 1;
            return;
        }
        let full = |block: &Block| block.bytes.len() >= GRID_HISTORY_BLOCK_LEN;
        if self.blocks.back().is_none_or(full) {
            if let Some(block) = self.blocks.back_mut() {
                block.bytes.shrink_to_fit();
            }
            self.blocks.push_back(Block::default());
        }
        let Some(block) = self.blocks.back_mut() else {
            return;
        };
        let before = block.bytes.len();
        write(&mut block.bytes);
        block.lines += 1;
        self.bytes += block.bytes.len() - before;
        self.lines += 1;
        if self.lines > self.lines_max {
            self.drop_line();
        }
        while self.bytes > GRID_HISTORY_LEN_MAX && self.blocks.len() > 1 {
            self.drop_block();
        }
    }

    fn drop_line(&mut self) {
        let Some(block) = self.blocks.front() else {
            return;
        };
        if self.skipped.0 + 1 >= block.lines {
            self.drop_block();
            return;
        }
        let rest = &block.bytes[self.skipped.1..];
        let len = rest.len() - skip_line(rest).len();
        self.skipped.0 += 1;
        self.skipped.1 += len;
        self.lines -= 1;
        self.first_line += 1;
    }

    fn drop_block(&mut self) {
        if let Some(block) = self.blocks.pop_front() {
            let lines = block.lines - self.skipped.0;
            self.lines -= lines;
            self.first_line += lines as u64;
            self.bytes -= block.bytes.len();
            self.skipped = (0, 0);
        }
    }

    /// Forgets lines with smaller absolute numbers.
    pub(super) fn forget_before(&mut self, line: u64) {
        while self.first_line < line && self.lines > 0 {
            self.drop_line();
        }
    }

    /// Forgets every line; numbering goes on.
    pub(super) fn clear(&mut self) {
        self.first_line += self.lines as u64;
        self.epoch += 1;
        self.blocks.clear();
        self.skipped = (0, 0);
        self.lines = 0;
        self.bytes = 0;
    }

    /// The lines from `index` on, oldest first.
    pub(super) fn lines_from(&self, index: usize) -> impl Iterator<Item = Line<'_>> {
        let mut skip = index;
        let mut first = self.skipped;
        let blocks = self.blocks.iter().filter_map(move |block| {
            let (lines, bytes) = std::mem::take(&mut first);
            let held = block.lines - lines;
            if skip >= held {
                skip -= held;
                return None;
            }
            let mut rest = &block.bytes[bytes..];
            for _ in 0..std::mem::take(&mut skip) {
                rest = skip_line(rest);
            }
            Some(rest)
        });
        blocks.flat_map(|bytes| {
            let mut rest = bytes;
            std::iter::from_fn(move || {
                let (line, after) = Line::split(rest)?;
                rest = after;
                Some(line)
            })
        })
    }

    /// Takes the newest lines off, as cells: `count` of them and those in front that run on into them.
    pub(super) fn take_tail(&mut self, count: usize, columns: usize) -> Vec<Vec<Cell>> {
        let mut start = self.lines.saturating_sub(count);
        let floor = start.saturating_sub(GRID_REFLOW_LINES_MAX);
        if start > 0 {
            let wraps: Vec<bool> = self
                .lines_from(floor)
                .take(start - floor)
                .map(|line| line.wrapped)
                .collect();
            while start > floor && wraps[start - 1 - floor] {
                start -= 1;
            }
        }
        let tail = self
            .lines_from(start)
            .map(|line| line.cells(columns))
            .collect();
        self.truncate(start);
        tail
    }

    fn truncate(&mut self, keep: usize) {
        if self.lines > keep {
            // The numbers of these lines will be given to others.
            self.epoch += 1;
        }
        while self.lines > keep {
            let front_skip = if self.blocks.len() == 1 {
                self.skipped
            } else {
                (0, 0)
            };
            let Some(block) = self.blocks.back_mut() else {
                return;
            };
            let held = block.lines - front_skip.0;
            let extra = self.lines - keep;
            if extra >= held {
                self.lines -= held;
                self.bytes -= block.bytes.len();
                self.blocks.pop_back();
                if self.blocks.is_empty() {
                    self.skipped = (0, 0);
                }
                continue;
            }
            let mut rest = &block.bytes[front_skip.1..];
            for _ in 0..held - extra {
                rest = skip_line(rest);
            }
            let len = block.bytes.len() - rest.len();
            self.bytes -= block.bytes.len() - len;
            block.bytes.truncate(len);
            block.lines -= extra;
            self.lines = keep;
        }
    }

    /// Breaks every line anew for another width.
    pub(super) fn rewrap(&mut self, from: usize, to: usize) {
        let mut fresh = Self::new(self.lines_max);
        fresh.first_line = self.first_line;
        fresh.epoch = self.epoch + 1;
        let mut logical: Vec<Cell> = Vec::new();
        let mut rest = 0;
        for line in self.lines_from(0) {
            rest += 1;
            if logical.is_empty() && !line.wrapped && line.columns() <= to {
                fresh.append(|out| line.write_to(out));
                continue;
            }
            let goes_on = reflow::join(&mut logical, line.cells(from));
            // The last line may run on in the screen.
            if !goes_on || rest == self.lines {
                reflow::split(&mut logical, to, 0, |_, row| fresh.push(&row));
            }
        }
        *self = fresh;
    }

    pub(super) fn export(&self, from_line: u64, columns: u16) -> HistoryBlocks {
        let from = from_line.max(self.first_line);
        let skip = usize::try_from(from - self.first_line).unwrap_or(usize::MAX);
        let mut out = HistoryBlocks {
            first_line: from,
            epoch: self.epoch,
            columns,
            blocks: Vec::new(),
        };
        let mut skip = skip.min(self.lines);
        let mut first = self.skipped;
        for block in &self.blocks {
            let (lines, bytes) = std::mem::take(&mut first);
            let held = block.lines - lines;
            if skip >= held {
                skip -= held;
                continue;
            }
            let mut rest = &block.bytes[bytes..];
            for _ in 0..std::mem::take(&mut skip) {
                rest = skip_line(rest);
            }
            out.blocks.push([&MAGIC, rest].concat());
        }
        out
    }

    /// Replaces everything by exported lines.
    pub(super) fn import(
        &mut self,
        blocks: &HistoryBlocks,
        columns: usize,
    ) -> Result<(), HistoryError> {
        let mut fresh = Self::new(self.lines_max);
        fresh.first_line = blocks.first_line;
        fresh.epoch = blocks.epoch;
        let own = usize::from(blocks.columns);
        for (block, bytes) in blocks.blocks.iter().enumerate() {
            let mut rest = bytes
                .strip_prefix(&MAGIC)
                .ok_or(HistoryError::Version { block })?;
            let mut number = 0;
            while !rest.is_empty() {
                let damaged = HistoryError::Damaged {
                    block,
                    line: number,
                };
                let (line, after) = Line::split(rest).ok_or(damaged)?;
                if !line.is_valid() || line.columns() > own {
                    return Err(damaged);
                }
                fresh.push_encoded(&rest[..rest.len() - after.len()]);
                rest = after;
                number += 1;
            }
        }
        *self = fresh;
        if own != columns {
            self.rewrap(own, columns);
        }
        Ok(())
    }
}

fn skip_line(bytes: &[u8]) -> &[u8] {
    let Some((len, rest)) = line::varint(bytes) else {
        return &[];
    };
    rest.get(len..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use alacritty_terminal::term::cell::Flags;

    use super::*;

    fn row(text: &str, columns: usize) -> Vec<Cell> {
        let mut cells = vec![Cell::default(); columns];
        for (cell, c) in cells.iter_mut().zip(text.chars()) {
            cell.c = c;
        }
        cells
    }

    fn texts(history: &History) -> Vec<String> {
        history
            .lines_from(0)
            .map(|line| line.text.to_owned())
            .collect()
    }

    #[test]
    fn the_oldest_line_goes_when_the_limit_is_reached() {
        let mut history = History::new(3);
        for n in 0..5 {
            history.push(&row(&format!("line {n}"), 20));
        }
        assert_eq!(texts(&history), ["line 2", "line 3", "line 4"]);
        assert_eq!(history.first_line(), 2);
        let mut many = History::new(2_000);
        for n in 0..10_000 {
            many.push(&row(&"x".repeat(1 + n % 90), 100));
        }
        assert_eq!(many.len(), 2_000);
        assert_eq!(many.lines_from(0).count(), 2_000);
        assert_eq!(many.lines_from(1_999).count(), 1);
        assert_eq!(many.first_line(), 8_000);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut history = History::new(10_000_000);
        let wide = row(&"y".repeat(1_000), 1_000);
        for _ in 0..20_000 {
            history.push(&wide);
        }
        assert!(history.memory_bytes() < GRID_HISTORY_LEN_MAX + 4 * GRID_HISTORY_BLOCK_LEN);
        assert_eq!(history.lines_from(0).count(), history.len());
    }

    #[test]
    fn a_tail_is_taken_from_the_start_of_its_logical_line() {
        let mut history = History::new(100);
        history.push(&row("one", 4));
        for text in ["aaaa", "bbbb"] {
            let mut cells = row(text, 4);
            cells[3].flags.insert(Flags::WRAPLINE);
            history.push(&cells);
        }
        history.push(&row("cc", 4));
        let tail = history.take_tail(1, 4);
        assert_eq!(tail.len(), 3);
        assert_eq!(texts(&history), ["one"]);
    }

    #[test]
    fn another_width_breaks_lines_anew() {
        let mut history = History::new(100);
        let mut first = row("abcd", 4);
        first[3].flags.insert(Flags::WRAPLINE);
        history.push(&first);
        history.push(&row("ef", 4));
        history.push(&row("gh", 4));
        history.rewrap(4, 3);
        assert_eq!(texts(&history), ["abc", "def", "gh"]);
        history.rewrap(3, 6);
        assert_eq!(texts(&history), ["abcdef", "gh"]);
    }

    #[test]
    fn exported_blocks_come_back_and_damaged_ones_are_refused() {
        let mut history = History::new(5_000);
        for n in 0..4_000 {
            history.push(&row(&format!("line number {n} of the export"), 80));
        }
        let blocks = history.export(0, 80);
        let mut other = History::new(5_000);
        other.import(&blocks, 80).unwrap();
        assert_eq!(texts(&other), texts(&history));
        let late = history.export(3_990, 80);
        other.import(&late, 80).unwrap();
        assert_eq!((other.len(), other.first_line()), (10, 3_990));
        let mut broken = late.clone();
        broken.blocks[0].truncate(30);
        assert!(other.import(&broken, 80).is_err());
        broken.blocks[0][3] = 9;
        let error = other.import(&broken, 80).unwrap_err();
        assert_eq!(error, HistoryError::Version { block: 0 });
        assert_eq!(other.len(), 10);
    }
}
