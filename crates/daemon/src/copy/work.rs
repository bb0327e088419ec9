//! The tables of a copy and their parts, which all lanes share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use csa_applier::CopyRange;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::begin::Begun;
use super::error::{CopyError, Result};
use super::options::CopyOptions;
use super::pace::Pace;
use super::plan::parts;
use super::ranges::left;
use super::rows::{Part, TableRows};
use crate::observe::view::MovingTableView;
use crate::verify::{Estimate, TableName, VerifySession};

/// A part, with its table's place in the list.
pub(super) type PlacedPart = (usize, Part);

/// A table that is copied.
#[derive(Debug)]
pub(super) struct CopiedTable {
    pub(super) name: TableName,
    pub(super) estimate: Estimate,
    pub(super) rows: TableRows,
    /// Statements that add its other indexes, once its rows are there.
    pub(super) indexes: Vec<String>,
    /// Parts that are not copied yet.
    pub(super) parts_left: AtomicUsize,
    /// Rows that are copied.
    pub(super) rows_copied: AtomicU64,
    /// Lanes that copy some of its rows now.
    pub(super) lanes: AtomicUsize,
}

impl CopiedTable {
    /// Returns true if no part is left to copy.
    fn is_filled(&self) -> bool {
        self.parts_left.load(Ordering::Acquire) == 0
    }
}

/// The work of all lanes.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) tables: Vec<CopiedTable>,
    pub(super) parts: Mutex<VecDeque<PlacedPart>>,
    pub(super) rows: AtomicU64,
    /// Rows that an earlier copy had copied.
    pub(super) rows_before: u64,
    /// Bytes of statements that were sent.
    pub(super) bytes: AtomicU64,
    pub(super) tables_done: AtomicUsize,
    /// Places of tables whose rows are there, and whose indexes are not.
    pub(super) filled: Mutex<VecDeque<usize>>,
    /// No chunk begins after it.
    pub(super) deadline: Option<Instant>,
}

impl Work {
    fn new(tables: Vec<CopiedTable>, parts: Vec<PlacedPart>) -> Self {
        Self {
            tables,
            parts: Mutex::new(parts.into()),
            rows: AtomicU64::new(0),
            rows_before: 0,
            bytes: AtomicU64::new(0),
            tables_done: AtomicUsize::new(0),
            filled: Mutex::default(),
            deadline: None,
        }
    }

    /// Returns true if the time is over.
    pub(super) fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits until the next chunk is due after one of so many rows. Returns false if the time is over before.
    pub(super) async fn turn(&self, pace: &Pace, rows: u64) -> bool {
        let turn = pace.turn(rows);
        match self.deadline {
            None => turn.await,
            // The channel is stopped until the round ends.
            Some(deadline) => {
                let _ = timeout_at(deadline, turn).await;
            }
        }
        !self.is_over()
    }

    /// Returns true if nothing is left to copy.
    pub(super) fn is_done(&self) -> bool {
        self.tables.iter().all(CopiedTable::is_filled)
    }

    pub(super) fn add(&self, parts: Vec<PlacedPart>) {
        self.parts.lock().extend(parts);
    }

    /// Returns the name of the table at a place.
    pub(super) fn name(&self, place: usize) -> Option<&TableName> {
        self.tables.get(place).map(|table| &table.name)
    }

    /// Returns the tables of which rows are copied now.
    pub(super) fn moving(&self) -> Vec<MovingTableView> {
        let is_moving = |table: &&CopiedTable| table.lanes.load(Ordering::Relaxed) > 0;
        let moving = self.tables.iter().filter(is_moving).map(|table| MovingTableView {
            table: table.name.to_string(),
            rows: table.rows_copied.load(Ordering::Relaxed),
            rows_estimated: table.estimate.rows,
        });
        moving.collect()
    }

    /// Returns the statements that add indexes to tables of which nothing is left to copy.
    pub(super) fn indexes_of_filled_tables(&self) -> impl Iterator<Item = &String> {
        self.tables.iter().filter(|table| table.is_filled()).flat_map(|table| &table.indexes)
    }
}

/// Divides all tables into parts, the largest table first. Returns the work of the snapshot, and the parts that are
/// copied in chunks after it.
pub(super) async fn whole(
    begun: &mut Begun,
    sources: &mut [VerifySession],
    options: &CopyOptions,
) -> Result<(Arc<Work>, Vec<PlacedPart>)> {
    let (mut tables, mut at_once, mut chunks) = (Vec::new(), Vec::new(), Vec::new());
    let mut copied = CopiedTables::of(begun);
    for (name, estimate) in begun.plan.by_size() {
        let Some((rows, source)) = copied.rows.remove(name).zip(sources.first_mut()) else {
            continue;
        };
        // DDL on the source need not wait for the end of the snapshot.
        source.run("SAVEPOINT csa").await?;
        let found = parts(source, name, estimate, &rows, options).await?;
        source.run("ROLLBACK TO SAVEPOINT csa").await?;
        let place = tables.len();
        tables.push(copied.table(name, estimate, rows, found.len()));
        let of_table = found.into_iter().map(|part| (place, part));
        match begun.chunked.tables.contains(name) {
            true => chunks.extend(of_table),
            false => at_once.extend(of_table),
        }
    }
    Ok((Arc::new(Work::new(tables, at_once)), chunks))
}

/// Returns the work that an interrupted copy has left.
///
/// # Errors
/// A range on the target can't be read.
pub(super) fn remaining(begun: &mut Begun, ranges: &[CopyRange]) -> Result<Work> {
    let mut of_tables: BTreeMap<TableName, (Vec<Part>, u64)> = BTreeMap::new();
    for range in ranges {
        let (parts, rows_copied) = of_tables.entry(range.table.clone().into()).or_default();
        *rows_copied += range.rows;
        let part = left(range).map_err(|error| {
            CopyError::Refused(format!("left_to_copy in csa.copy_range can't be read: {error}"))
        })?;
        parts.extend(part);
    }
    let (mut tables, mut all) = (Vec::new(), Vec::new());
    let mut copied = CopiedTables::of(begun);
    for (name, estimate) in begun.plan.by_size() {
        let Some(((parts, rows_copied), rows)) =
            of_tables.remove(name).zip(copied.rows.remove(name))
        else {
            continue;
        };
        let place = tables.len();
        let table = copied.table(name, estimate, rows, parts.len());
        table.rows_copied.store(rows_copied, Ordering::Relaxed);
        tables.push(table);
        all.extend(parts.into_iter().map(|part| (place, part)));
    }
    let rows_before = ranges.iter().map(|range| range.rows).sum();
    let unfilled = tables.iter().filter(|table| !table.is_filled()).count();
    Ok(Work {
        rows: AtomicU64::new(rows_before),
        rows_before,
        tables_done: AtomicUsize::new(begun.plan.tables.len().saturating_sub(unfilled)),
        ..Work::new(tables, all)
    })
}

/// The tables of a copy, before they are divided.
struct CopiedTables {
    rows: BTreeMap<TableName, TableRows>,
    indexes: BTreeMap<TableName, Vec<String>>,
}

impl CopiedTables {
    fn of(begun: &mut Begun) -> Self {
        Self {
            rows: std::mem::take(&mut begun.rows),
            indexes: begun.definitions.indexes.iter().cloned().collect(),
        }
    }

    fn table(
        &mut self,
        name: &TableName,
        estimate: Estimate,
        rows: TableRows,
        parts: usize,
    ) -> CopiedTable {
        CopiedTable {
            name: name.clone(),
            estimate,
            rows,
            indexes: self.indexes.remove(name).unwrap_or_default(),
            parts_left: AtomicUsize::new(parts),
            rows_copied: AtomicU64::new(0),
            lanes: AtomicUsize::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_round_ends_in_time_and_its_rate_is_waited_for_after_it() {
        let seconds = Duration::from_secs;
        let begun = Instant::now();
        let deadline = Some(begun + seconds(2));
        let work = Work { deadline, ..Work::new(Vec::new(), Vec::new()) };
        let pace = Pace::new(10);
        assert!(work.turn(&pace, 10).await);
        assert!(!work.turn(&pace, 800).await);
        assert_eq!(begun.elapsed(), seconds(2));
        pace.count(100);
        tokio::time::sleep_until(begun + seconds(90)).await;
        assert!(!pace.is_rested());
        tokio::time::sleep_until(begun + seconds(91)).await;
        assert!(pace.is_rested());
        assert!(!work.turn(&Pace::new(0), 1).await, "a chunk begins after the round");
    }
}
