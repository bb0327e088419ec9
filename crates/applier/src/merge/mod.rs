//! A group's row changes as few, large row events: what it changes in all, not how. Pure.
//!
//! Changes are taken in source order into a *stage*: as long as different rows touch no common key,
//! their order does not matter, and they are collected by table and operation. Repeated changes of
//! one row are folded into one. What can't be folded closes the stage and opens the next.

mod stage;
mod writer;

#[cfg(test)]
mod tests;

use csa_scheduler::AdmittedTransaction;

use stage::Stage;
use writer::StatementWriter;

/// A group's net changes, as row images for BINLOG statements.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    pub(crate) free: Vec<Vec<u8>>,
    /// To be sent behind the others, once the groups in the way are committed.
    pub(crate) late: Vec<Vec<u8>>,
}

/// Merges a group's changes into statements of at most about `limit` bytes of row images. Rows that
/// touch a key of which `is_late` come last, and with them all whose order to them matters.
pub(crate) fn merge(
    transactions: &[AdmittedTransaction],
    limit: usize,
    is_late: impl Fn(u64) -> bool,
) -> Merged {
    let rows: usize = transactions.iter().map(AdmittedTransaction::rows).sum();
    let mut free = StatementWriter::new(limit);
    let mut late = StatementWriter::new(limit);
    let mut stage = Stage::with_capacity(rows);
    let changes = transactions.iter().filter_map(|transaction| transaction.changes.as_ref());
    for changes in changes {
        for block in &changes.blocks {
            for row in block.rows.0..block.rows.1 {
                if !stage.take(changes, block, row as usize) {
                    stage.write(&mut free, &mut late, &is_late);
                    stage.clear();
                    // An empty stage takes anything.
                    stage.take(changes, block, row as usize);
                }
            }
        }
    }
    stage.write(&mut free, &mut late, &is_late);
    Merged { free: free.finish(), late: late.finish() }
}
