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

/// Whether all of a group's changes are understood well enough to be merged.
pub(crate) fn is_mergeable(transactions: &[AdmittedTransaction]) -> bool {
    transactions.iter().all(|t| t.changes.as_ref().is_some_and(|changes| !changes.opaque))
}

/// The group's net changes as row images for BINLOG statements of at most about `limit` bytes each.
pub(crate) fn merge(transactions: &[AdmittedTransaction], limit: usize) -> Vec<Vec<u8>> {
    let rows: usize = transactions.iter().map(AdmittedTransaction::rows).sum();
    let mut writer = StatementWriter::new(limit);
    let mut stage = Stage::with_capacity(rows);
    let changes = transactions.iter().filter_map(|transaction| transaction.changes.as_ref());
    for changes in changes {
        for block in &changes.blocks {
            for row in block.rows.0..block.rows.1 {
                if !stage.take(changes, block, row as usize) {
                    stage.write(&mut writer);
                    stage.clear();
                    // An empty stage takes anything.
                    stage.take(changes, block, row as usize);
                }
            }
        }
    }
    stage.write(&mut writer);
    writer.finish()
}
