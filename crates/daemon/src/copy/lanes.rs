//! Lanes: each reads chunks in its snapshot of the source, and writes them over its own session on the target. The
//! next chunk is read while one is written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::error::Result;
use super::rows::{Part, Row, TableRows};
use super::writer::TargetWriter;
use crate::verify::{Estimate, TableName, VerifySession};

/// The bytes of rows that are read at once, as texts.
const CHUNK_BYTES: u64 = 4 << 20;
const CHUNK_ROWS: u64 = 50_000;
/// Rows of the first chunk of a table whose rows have an unknown size.
const FIRST_ROWS: u64 = 200;

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
    pub(super) rows_copied: AtomicU64,
}

/// The work of all lanes.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) tables: Vec<CopiedTable>,
    /// Parts of tables, by the table's place in the list.
    pub(super) parts: Mutex<VecDeque<(usize, Part)>>,
    pub(super) rows: AtomicU64,
    /// Bytes of statements that were sent.
    pub(super) bytes: AtomicU64,
    pub(super) tables_done: AtomicUsize,
    /// The table of which a lane read a chunk last.
    pub(super) current: AtomicUsize,
}

/// A session on each side.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) source: VerifySession,
    pub(super) target: TargetWriter,
}

impl Lane {
    /// Copies parts until none is left.
    pub(super) async fn run(mut self, work: Arc<Work>) -> Result<Self> {
        // What a chunk's query holds of a table is released with the savepoint, so that the source's DDL need not
        // wait for the end of the copy.
        self.source.run("SAVEPOINT csa").await?;
        loop {
            let next = work.parts.lock().pop_front();
            let Some((place, part)) = next else { return Ok(self) };
            let Some(table) = work.tables.get(place) else { continue };
            work.current.store(place, Ordering::Relaxed);
            self.copy(table, part, &work).await?;
            if table.parts_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                for statement in &table.indexes {
                    self.target.run(statement).await?;
                }
                work.tables_done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn copy(&mut self, table: &CopiedTable, mut part: Part, work: &Work) -> Result<()> {
        let Self { source, target } = self;
        let mut asked = match table.estimate.average_row {
            0 => FIRST_ROWS,
            bytes => (CHUNK_BYTES / (2 * bytes)).clamp(1, FIRST_ROWS),
        };
        let mut chunk = read(source, table, &part, asked).await?;
        loop {
            table.rows.advance(&mut part, &chunk);
            let statements = table.rows.inserts(&chunk);
            let bytes = statements.iter().map(String::len).sum::<usize>() as u64;
            let rows = chunk.len() as u64;
            let is_last = rows < asked;
            // Grows step by step: rows of one table may differ much in size.
            let fitting = CHUNK_BYTES * rows.max(1) / bytes.max(1);
            asked = fitting.clamp(1, asked.saturating_mul(8).min(CHUNK_ROWS));
            let name = table.name.to_string();
            let write = async {
                match statements.is_empty() {
                    true => Ok(()),
                    false => target.insert(&name, &statements).await,
                }
            };
            let read = async {
                match is_last {
                    true => Ok(Vec::new()),
                    false => read(source, table, &part, asked).await,
                }
            };
            let (written, next) = tokio::join!(write, read);
            written?;
            work.rows.fetch_add(rows, Ordering::Relaxed);
            table.rows_copied.fetch_add(rows, Ordering::Relaxed);
            work.bytes.fetch_add(bytes, Ordering::Relaxed);
            if is_last {
                return table.rows.check_definition(source, &table.name).await;
            }
            chunk = next?;
        }
    }
}

async fn read(
    source: &mut VerifySession,
    table: &CopiedTable,
    part: &Part,
    rows: u64,
) -> Result<Vec<Row>> {
    let chunk = source.texts(&table.rows.query(part, rows)).await;
    source.run("ROLLBACK TO SAVEPOINT csa").await?;
    Ok(chunk?)
}
