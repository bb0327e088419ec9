//! Lanes: each reads chunks over its own session on the source, and writes them over one on the target. The next
//! chunk is read while one is written.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::server::link::RowPart;
use tokio::time::Instant;

use super::error::Result;
use super::options::ChunkLimits;
use super::pace::Pace;
use super::ranges::{ChunkNote, Turn};
use super::rows::{Part, Row};
use super::work::{CopiedTable, Work};
use super::writer::TargetWriter;
use crate::verify::VerifySession;

/// A chunk that the source reads for longer is followed by a smaller one.
const CHUNK_TIME: Duration = Duration::from_millis(500);

/// A chunk ends with the row by which its answer has so many times the bytes that a chunk should have.
const ANSWER: u64 = 4;
/// An answer waits while its first chunks are written, and while the copy pauses.
const PATIENT: &str = "SET SESSION net_write_timeout=31536000";

/// A session on each side.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) source: VerifySession,
    pub(super) target: TargetWriter,
    /// `None` in the snapshot of the copy's begin. Else each chunk is read on its own, and noted on the target.
    pub(super) turn: Option<Turn>,
    /// The snapshot is needed once all is read: it is compared.
    pub(super) keeps_snapshot: bool,
    /// See [`csa_applier::CopyClaim::held`].
    pub(super) held: String,
    pub(super) pace: Arc<Pace>,
    pub(super) limits: ChunkLimits,
}

impl Lane {
    /// Copies parts until none is left, or the time is over.
    pub(super) async fn run(mut self, work: Arc<Work>) -> Result<Self> {
        self.source.run(PATIENT).await?;
        match self.turn {
            // What a chunk's query holds of a table is released with the savepoint, so that the source's DDL need
            // not wait for the end of the snapshot.
            None => self.source.run("SAVEPOINT csa").await?,
            Some(_) => {
                self.source.run("SET SESSION transaction_isolation='REPEATABLE-READ'").await?;
            }
        }
        loop {
            let next = match work.is_over() {
                true => None,
                false => work.parts.lock().pop_front(),
            };
            let Some((place, part)) = next else { return Ok(self) };
            let Some(table) = work.tables.get(place) else { continue };
            table.lanes.fetch_add(1, Ordering::Relaxed);
            let copied = self.copy(table, part, &work).await;
            table.lanes.fetch_sub(1, Ordering::Relaxed);
            if !copied? {
                return Ok(self);
            }
            if self.turn.is_none() && !self.keeps_snapshot && work.parts.lock().is_empty() {
                // Indexes may take hours, for which the source would keep old versions of all rows.
                self.source.run("ROLLBACK").await?;
            }
            if table.parts_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                for statement in &table.indexes {
                    self.target.add(statement).await?;
                }
                work.tables_done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns false if the time was over before the part was copied.
    async fn copy(&mut self, table: &CopiedTable, mut part: Part, work: &Work) -> Result<bool> {
        let Self { source, target, turn, held, pace, limits, .. } = self;
        pace.turn(0).await;
        let has_snapshot = turn.is_none();
        let mut reader = ChunkReader { source, table, has_snapshot, left: None };
        let mut asked = match table.estimate.average_row {
            0 => limits.first_rows,
            bytes => (limits.bytes / (2 * bytes)).clamp(1, limits.first_rows),
        };
        let mut chunk = reader.read(&part, asked, limits).await?;
        loop {
            let Chunk { rows: texts, is_last, took } = chunk;
            let before = part.clone();
            table.rows.advance(&mut part, &texts);
            let replaces = turn.as_ref().is_some_and(|turn| turn.has_rounds);
            let mut statements = table.rows.inserts(&texts, replaces);
            let bytes = statements.iter().map(String::len).sum::<usize>() as u64;
            let rows = texts.len() as u64;
            drop(texts);
            if turn.as_ref().is_some_and(|turn| turn.deletes) {
                statements.insert(0, table.rows.delete(&before, &part, is_last));
            }
            asked = next_size(asked, rows, bytes, took, limits);
            let name = table.name.to_string();
            let note = match turn {
                Some(turn) => turn.note(&table.name, &part, rows, is_last),
                None => ChunkNote { lock: held.clone(), update: None },
            };
            let write = async {
                match statements.is_empty() && note.update.is_none() {
                    true => Ok(()),
                    false => target.insert(&name, &statements, &note).await,
                }
            };
            let read = async {
                match is_last {
                    true => Ok(Chunk::default()),
                    false => {
                        pace.turn(rows).await;
                        reader.read(&part, asked, limits).await
                    }
                }
            };
            let (written, next) = tokio::join!(write, read);
            written?;
            work.rows.fetch_add(rows, Ordering::Relaxed);
            table.rows_copied.fetch_add(rows, Ordering::Relaxed);
            work.bytes.fetch_add(bytes, Ordering::Relaxed);
            if is_last {
                table.rows.check_definition(reader.source, &table.name).await?;
                return Ok(true);
            }
            if work.is_over() {
                return Ok(false);
            }
            chunk = next?;
        }
    }
}

/// Returns the rows of the next chunk after one that had so many rows and bytes. It grows step by step: rows of one
/// table may differ much in size.
fn next_size(asked: u64, rows: u64, bytes: u64, took: Duration, limits: &ChunkLimits) -> u64 {
    if is_planted(Bug::ChunkUnlimited) {
        return u64::MAX;
    }
    let fitting = limits.bytes * rows.max(1) / bytes.max(1);
    let next = fitting.clamp(1, asked.saturating_mul(8).min(limits.rows));
    match took > CHUNK_TIME {
        true => next.min((rows as f64 * CHUNK_TIME.div_duration_f64(took)) as u64).max(1),
        false => next,
    }
}

/// Rows that were read at once.
#[derive(Debug, Default)]
struct Chunk {
    rows: Vec<Row>,
    /// The part has no more.
    is_last: bool,
    /// How long the source took.
    took: Duration,
}

/// Reads the rows of a part. A query's result that is larger than a chunk is read over several: nobody knows
/// beforehand how long rows are.
struct ChunkReader<'a> {
    source: &'a mut VerifySession,
    table: &'a CopiedTable,
    has_snapshot: bool,
    /// The rows that the query under way may still return; `None` without one.
    left: Option<u64>,
}

impl ChunkReader<'_> {
    /// Returns at most `asked` rows after those that were read.
    async fn read(&mut self, part: &Part, asked: u64, limits: &ChunkLimits) -> Result<Chunk> {
        let begun = Instant::now();
        let left = match self.left {
            Some(left) => left,
            None => {
                self.source.begin(&self.table.rows.query(part, asked)).await?;
                if self.table.rows.has_key { asked } else { u64::MAX }
            }
        };
        // The end of the result comes with its last row.
        let rows = if left > asked { asked } else { left.saturating_add(1) };
        let part = RowPart { rows: rows as usize, bytes: (ANSWER * limits.bytes) as usize };
        let (rows, mut has_more) = self.source.next_texts(part).await?;
        let read = rows.len() as u64;
        if has_more && read == left {
            (_, has_more) = self.source.next_texts(RowPart { rows: 1, bytes: 1 }).await?;
        }
        let took = begun.elapsed();
        self.left = has_more.then(|| left.saturating_sub(read));
        if self.left.is_none() && self.has_snapshot {
            self.source.run("ROLLBACK TO SAVEPOINT csa").await?;
        }
        Ok(Chunk { rows, is_last: !has_more && read < left, took })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_step_by_step_and_shrink_at_once() {
        let limits = ChunkLimits::default();
        let next = |rows: u64, bytes, took| next_size(rows.max(1), rows, bytes, took, &limits);
        assert_eq!(next(100, 100, Duration::ZERO), 800);
        assert_eq!(next(40_000, 40_000, Duration::ZERO), limits.rows);
        assert_eq!(next(1_000, 8 * limits.bytes, Duration::ZERO), 125);
        assert_eq!(next(1_000, 1_000, 4 * CHUNK_TIME), 250);
        assert_eq!(next(1, 1 << 30, 100 * CHUNK_TIME), 1);
        assert_eq!(next(0, 0, Duration::ZERO), 8);
    }
}
