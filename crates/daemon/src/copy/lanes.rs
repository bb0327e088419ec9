//! Lanes: each reads chunks over its own session on the source, and writes them over one on the target. The next
//! chunk is read while one is written.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use csa_applier::Target;
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::server::link::{RowPart, Side};
use tokio::time::Instant;
use tracing::warn;

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
/// In a snapshot, an answer waits while its first chunks are written, and while the copy pauses.
const PATIENT: &str = "SET SESSION net_write_timeout=86400";
const OF_ONE_MOMENT: &str = "SET SESSION transaction_isolation='REPEATABLE-READ'";

/// A session on each side.
#[derive(Debug)]
pub(super) struct Lane {
    /// The server of the sessions on the source.
    pub(super) server: Target,
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
        match self.turn {
            // What a chunk's query holds of a table is released with the savepoint, so that the source's DDL need
            // not wait for the end of the snapshot.
            None => {
                self.source.run(PATIENT).await?;
                self.source.run("SAVEPOINT csa").await?;
            }
            Some(_) => self.source.run(OF_ONE_MOMENT).await?,
        }
        loop {
            let next = match work.is_over() {
                true => None,
                false => work.parts.lock().pop_front(),
            };
            let Some((place, part)) = next else { break };
            let Some(table) = work.tables.get(place) else { continue };
            table.lanes.fetch_add(1, Ordering::Relaxed);
            let copied = self.copy(table, part, &work).await;
            table.lanes.fetch_sub(1, Ordering::Relaxed);
            if !copied? {
                return Ok(self);
            }
            if table.parts_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                work.filled.lock().push_back(place);
            }
            if !self.releases_snapshot() {
                self.add_indexes(&work).await?;
            }
        }
        if self.releases_snapshot() {
            // Indexes may take hours, for which the source would keep old versions of all rows.
            self.source.run("ROLLBACK").await?;
            self.add_indexes(&work).await?;
        }
        Ok(self)
    }

    /// Returns true if the snapshot ends with the last row that this lane reads.
    const fn releases_snapshot(&self) -> bool {
        self.turn.is_none() && !self.keeps_snapshot
    }

    /// Adds the indexes of tables whose rows are there.
    async fn add_indexes(&mut self, work: &Work) -> Result<()> {
        loop {
            let Some(place) = work.filled.lock().pop_front() else { return Ok(()) };
            let Some(table) = work.tables.get(place) else { continue };
            for statement in &table.indexes {
                self.target.add(statement).await?;
            }
            work.tables_done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns false if the time was over before the part was copied.
    async fn copy(&mut self, table: &CopiedTable, mut part: Part, work: &Work) -> Result<bool> {
        let Self { server, source, target, turn, held, pace, limits, .. } = self;
        if !work.turn(pace, 0).await {
            return Ok(false);
        }
        let has_snapshot = turn.is_none();
        let mut reader = ChunkReader { server, source, table, has_snapshot, left: None };
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
                    true => {
                        pace.count(rows);
                        Ok(Chunk::default())
                    }
                    false => {
                        reader.tell_of_pause(pace);
                        match work.turn(pace, rows).await {
                            true => reader.read(&part, asked, limits).await,
                            false => Ok(Chunk::default()),
                        }
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
                // The next round reads it again.
                pace.count(next.map_or(0, |chunk| chunk.rows.len() as u64));
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

/// Reads the rows of a part. In a snapshot, a result that is larger than a chunk is read over several: the length of rows is
/// not known before. Elsewhere its rest is asked for again, because it would hold the table's definition.
struct ChunkReader<'a> {
    server: &'a Target,
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
        match (self.has_snapshot, has_more) {
            (true, false) => self.source.run("ROLLBACK TO SAVEPOINT csa").await?,
            (true, true) | (false, false) => {}
            // A session can't be asked anything before it has sent all rows.
            (false, true) => {
                *self.source = VerifySession::open(Side::Source, self.server).await?;
                self.source.run(OF_ONE_MOMENT).await?;
            }
        }
        let is_open = self.has_snapshot && has_more;
        self.left = is_open.then(|| left.saturating_sub(read));
        let is_last = read < left && (!has_more || is_planted(Bug::CutChunkLast));
        Ok(Chunk { rows, is_last, took })
    }

    /// Warns of a pause in the middle of a result.
    fn tell_of_pause(&self, pace: &Pace) {
        if self.left.is_some() && pace.is_paused() {
            warn!(
                table = %self.table.name,
                "the copy pauses while its query reads the table: on the source, DDL for the table waits for the copy, \
                 and what comes after that waits for the DDL"
            );
        }
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
