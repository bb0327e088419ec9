//! The next key range to compare: chunks of the source's keys, and halves of those that differ.
//!
//! Keys are never compared here: their order is the collation's, which only a server knows.

use std::collections::HashMap;

use csa_provider::server::link::Side;

/// A row's key, one text per column as the server gave it.
pub(crate) type RowKey = Vec<String>;
/// A row's digest.
pub(super) type Digest = String;

/// Keys after `after` up to and including `through`; `None` is the end of the table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KeyRange {
    pub(crate) after: Option<RowKey>,
    pub(crate) through: Option<RowKey>,
}

/// A server's digest of all rows in a range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RangeDigest {
    pub(super) rows: u64,
    pub(super) digest: Digest,
}

/// The next question to the servers; the answer goes to the method of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RangeStep {
    /// The key of the row `rows` rows after `after` on the source; `None` when there are fewer.
    Boundary { after: Option<RowKey>, rows: u64 },
    /// The digests of a range on both sides.
    Digests(KeyRange),
    /// The key of row number `place`, from 0, of the range on one side.
    Middle { range: KeyRange, side: Side, place: u64 },
    /// Key and digest of every row of the range on both sides, at most one more than [`LIST_ROWS`].
    Rows(KeyRange),
    /// Every range has been compared.
    Done,
}

/// A differing range of at most this many rows on either side is listed, not divided.
const LEAF_ROWS: u64 = 500;
/// The most rows listed: a leaf may have grown since it was counted.
pub(super) const LIST_ROWS: u64 = 4 * LEAF_ROWS;
/// Divisions of a range; more than a quiet table of any size needs.
const DEPTH_MAX: u32 = 80;

/// Walks a table: every key is in exactly one chunk, and every differing row becomes a suspect.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    planned_through: Option<RowKey>,
    is_planned: bool,
    /// The next one is the last.
    open: Vec<Open>,
    suspects: Vec<RowKey>,
    unstable: Vec<KeyRange>,
    rows: u64,
}

#[derive(Debug)]
struct Open {
    range: KeyRange,
    depth: u32,
    task: Task,
}

#[derive(Debug, Clone, Copy)]
enum Task {
    Digest,
    Cut { side: Side, place: u64 },
    List,
}

impl Ranges {
    /// Continues after the key up to which a table was compared.
    pub(super) fn resume(after: RowKey, rows: u64, suspects: Vec<RowKey>) -> Self {
        Self { planned_through: Some(after), rows, suspects, ..Self::default() }
    }

    /// Returns the key up to which everything was compared, and the rows that have to be read
    /// again; `None` in the middle of a range.
    pub(super) fn reached(&self) -> Option<(&RowKey, &[RowKey])> {
        let is_between = self.open.is_empty() && self.unstable.is_empty() && !self.is_planned;
        self.planned_through.as_ref().filter(|_| is_between).map(|key| (key, &self.suspects[..]))
    }

    /// The next question; `chunk_rows` is the size of the next chunk.
    pub(super) fn step(&self, chunk_rows: u64) -> RangeStep {
        let Some(open) = self.open.last() else {
            return match self.is_planned {
                true => RangeStep::Done,
                false => {
                    RangeStep::Boundary { after: self.planned_through.clone(), rows: chunk_rows }
                }
            };
        };
        let range = open.range.clone();
        match open.task {
            Task::Digest => RangeStep::Digests(range),
            Task::Cut { side, place } => RangeStep::Middle { range, side, place },
            Task::List => RangeStep::Rows(range),
        }
    }

    pub(super) fn boundary(&mut self, key: Option<RowKey>) {
        // The last range has no end, so rows added meanwhile are in it.
        self.is_planned = key.is_none();
        let range = KeyRange { after: self.planned_through.take(), through: key.clone() };
        self.planned_through = key;
        self.open.push(Open { range, depth: 0, task: Task::Digest });
    }

    pub(super) fn digests(&mut self, source: &RangeDigest, target: &RangeDigest) {
        let Some(mut open) = self.open.pop() else { return };
        if open.depth == 0 {
            self.rows += source.rows;
        }
        if source == target {
            return;
        }
        let (side, rows) = match target.rows > source.rows {
            true => (Side::Target, target.rows),
            false => (Side::Source, source.rows),
        };
        open.task = match rows <= LEAF_ROWS {
            true => Task::List,
            false => Task::Cut { side, place: rows / 2 - 1 },
        };
        self.open.push(open);
    }

    pub(super) fn middle(&mut self, key: Option<RowKey>) {
        let Some(mut open) = self.open.pop() else { return };
        // Texts that differ may still be one key to a collation: one half then has all rows again,
        // until DEPTH_MAX ends it.
        if key.is_none() || key == open.range.through {
            // Rows were deleted since the count: the rest is small, or will be counted again.
            open.task = Task::List;
            self.open.push(open);
            return;
        }
        let depth = open.depth + 1;
        let (left, right) = (
            KeyRange { after: open.range.after, through: key.clone() },
            KeyRange { after: key, through: open.range.through },
        );
        for range in [right, left] {
            self.reopen(Open { range, depth, task: Task::Digest });
        }
    }

    pub(super) fn rows(&mut self, source: Vec<(RowKey, Digest)>, target: Vec<(RowKey, Digest)>) {
        let Some(mut open) = self.open.pop() else { return };
        for (side, rows) in [(Side::Source, &source), (Side::Target, &target)] {
            if rows.len() as u64 > LIST_ROWS {
                open.depth += 1;
                open.task = Task::Cut { side, place: LEAF_ROWS };
                self.reopen(open);
                return;
            }
        }
        let mut theirs: HashMap<RowKey, Digest> = target.into_iter().collect();
        for (key, digest) in source {
            if theirs.remove(&key).as_ref() != Some(&digest) {
                self.suspects.push(key);
            }
        }
        self.suspects.extend(theirs.into_keys());
    }

    /// Opens a range again; one that keeps changing while it is divided is given up.
    fn reopen(&mut self, open: Open) {
        match open.depth > DEPTH_MAX {
            true => self.unstable.push(open.range),
            false => self.open.push(open),
        }
    }

    /// Returns the keys that differed since the last call, at one moment or because of one range.
    pub(super) fn take_suspects(&mut self) -> Vec<RowKey> {
        std::mem::take(&mut self.suspects)
    }

    pub(super) fn suspects(&self) -> usize {
        self.suspects.len()
    }

    /// Takes the ranges that were given up because they kept changing.
    pub(super) fn take_unstable(&mut self) -> Vec<KeyRange> {
        std::mem::take(&mut self.unstable)
    }

    /// Returns the rows of the source in the chunks compared so far.
    pub(super) fn rows_seen(&self) -> u64 {
        self.rows
    }
}
