//! Lanes: each reads chunks over its own session on the source, and writes them over one on the target. The next
//! chunk is read while one is written.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use csa_provider::seams::planted::{Bug, is_planted};
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

/// A session on each side.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) source: VerifySession,
    pub(super) target: TargetWriter,
    /// `None` in the snapshot of the copy's begin. Else each chunk is read on its own, and noted on the target.
    pub(super) turn: Option<Turn>,
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
        let Self { source, target, turn, held, pace, limits } = self;
        pace.turn(0).await;
        let has_snapshot = turn.is_none();
        let mut asked = match table.estimate.average_row {
            0 => limits.first_rows,
            bytes => (limits.bytes / (2 * bytes)).clamp(1, limits.first_rows),
        };
        let (mut chunk, mut took) = read(source, table, &part, asked, has_snapshot).await?;
        loop {
            let before = part.clone();
            table.rows.advance(&mut part, &chunk);
            let replaces = turn.as_ref().is_some_and(|turn| turn.has_rounds);
            let mut statements = table.rows.inserts(&chunk, replaces);
            let bytes = statements.iter().map(String::len).sum::<usize>() as u64;
            let rows = chunk.len() as u64;
            let is_last = rows < asked;
            if turn.as_ref().is_some_and(|turn| turn.deletes) {
                statements.insert(0, table.rows.delete(&before, &part, is_last));
            }
            // Grows step by step: rows of one table may differ much in size.
            let fitting = limits.bytes * rows.max(1) / bytes.max(1);
            asked = fitting.clamp(1, asked.saturating_mul(8).min(limits.rows));
            if is_planted(Bug::ChunkUnlimited) {
                asked = u64::MAX;
            }
            if took > CHUNK_TIME {
                let shorter = rows as f64 * CHUNK_TIME.div_duration_f64(took);
                asked = asked.min(shorter as u64).max(1);
            }
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
                    true => Ok((Vec::new(), Duration::ZERO)),
                    false => {
                        pace.turn(rows).await;
                        read(source, table, &part, asked, has_snapshot).await
                    }
                }
            };
            let (written, next) = tokio::join!(write, read);
            written?;
            work.rows.fetch_add(rows, Ordering::Relaxed);
            table.rows_copied.fetch_add(rows, Ordering::Relaxed);
            work.bytes.fetch_add(bytes, Ordering::Relaxed);
            if is_last {
                table.rows.check_definition(source, &table.name).await?;
                return Ok(true);
            }
            if work.is_over() {
                return Ok(false);
            }
            (chunk, took) = next?;
        }
    }
}

/// Returns the rows, and how long the source took.
async fn read(
    source: &mut VerifySession,
    table: &CopiedTable,
    part: &Part,
    rows: u64,
    has_snapshot: bool,
) -> Result<(Vec<Row>, Duration)> {
    let begun = Instant::now();
    let chunk = source.texts(&table.rows.query(part, rows)).await;
    let took = begun.elapsed();
    if has_snapshot {
        source.run("ROLLBACK TO SAVEPOINT csa").await?;
    }
    Ok((chunk?, took))
}
