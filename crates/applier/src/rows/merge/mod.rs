//! Merges a group's row changes into few, large row events with its net changes. Pure.
//!
//! Changes are taken in source order into a *stage*: as long as different rows touch no common key,
//! their order does not matter, and they are collected by table and operation. Repeated changes of
//! one row are folded into one. What can't be folded closes the stage and opens the next.

mod late;
mod minimal;
mod stage;
mod writer;

#[cfg(test)]
mod equal_key_tests;
#[cfg(test)]
mod tests;

use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::sequence::Sequence;

use crate::error::Result;
use crate::options::RowImageColumns;
use crate::rows::binlog_statements::RowImages;

pub(crate) use late::LatePart;
use late::LateRows;
use stage::{ChangedRow, Stage};
use writer::StatementWriter;

/// A group's net changes, as row images for BINLOG statements.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) free: Vec<RowImages>,
    /// Images that are sent after the others, in this order.
    pub(crate) late: Vec<LatePart>,
}

/// Merges the changes of group `own` into statements of at most about `limit` bytes of row images, with
/// those columns. Rows with a key for which `in_the_way` names an earlier group come last, with all rows whose
/// order relative to them matters.
///
/// # Errors
/// A row does not lie in its event.
pub(crate) fn merge(
    transactions: &[AdmittedTransaction],
    own: Sequence,
    limit: usize,
    columns: RowImageColumns,
    in_the_way: impl Fn(u64) -> Option<Sequence>,
) -> Result<Merged> {
    let rows: usize = transactions.iter().map(AdmittedTransaction::rows).sum();
    let mut free = StatementWriter::new(limit);
    let mut late = LateRows::new(own, limit);
    let mut stage = Stage::new(rows, columns);
    for transaction in transactions {
        let Some(changes) = &transaction.changes else { continue };
        for block in &changes.blocks {
            // Rows of other tables mean the same in any session, and share statements.
            let session = transaction.session.as_ref().filter(|_| block.layout.by_session);
            for row in block.rows.0..block.rows.1 {
                let row = ChangedRow { changes, block, row: row as usize, session };
                if !stage.take(&row)? {
                    let is_keyless = !block.layout.keys.has_primary || stage.has_keyless_rows();
                    stage.write(&mut free, &mut late, &in_the_way);
                    stage.clear();
                    if is_keyless {
                        // The target would log the changes of both stages in one event, and its replicas might
                        // fail at it (updated_again.rs).
                        free.end_statement();
                        late.end_statements();
                    }
                    // An empty stage takes anything.
                    stage.take(&row)?;
                }
            }
        }
    }
    stage.write(&mut free, &mut late, &in_the_way);
    Ok(Merged { free: free.finish(), late: late.finish() })
}
