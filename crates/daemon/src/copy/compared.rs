//! The comparison that ends a copy of one snapshot. The source's rows are those of the snapshot, so whatever is written
//! there meanwhile makes no difference.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::error::{CopyError, Result};
use super::lanes::Lane;
use super::work::Work;
use crate::verify::{WholeDigestRow, has_all_digests};

/// Compares all tables over the sessions of the lanes, whose snapshots are still open.
///
/// # Errors
/// A table differs, or a server refuses or goes away.
pub(super) async fn compare(lanes: Vec<Lane>, work: &Arc<Work>) -> Result<Vec<Lane>> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut running = JoinSet::new();
    for lane in lanes {
        let (work, next) = (Arc::clone(work), Arc::clone(&next));
        running.spawn(compare_some(lane, work, next).in_current_span());
    }
    let mut lanes = Vec::new();
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(lane) => lanes.push(lane?),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
    Ok(lanes)
}

async fn compare_some(mut lane: Lane, work: Arc<Work>, next: Arc<AtomicUsize>) -> Result<Lane> {
    while let Some(table) = work.tables.get(next.fetch_add(1, Ordering::Relaxed)) {
        let query = table.rows.digest();
        let source: Vec<WholeDigestRow> = lane.source.rows_at_length(&query).await?;
        // DDL on the source need not wait for the end of the snapshot.
        lane.source.run("ROLLBACK TO SAVEPOINT csa").await?;
        table.rows.check_definition(&mut lane.source, &table.name).await?;
        let target: Vec<WholeDigestRow> = lane.target.asked_at_length(&query).await?;
        if !source.iter().chain(&target).all(has_all_digests) {
            return Err(CopyError::Refused(format!(
                "{} can't be compared after the copy: a server can't compute the digest of a row that is larger than \
                 max_allowed_packet; set max_allowed_packet=1073741824 on both, and copy again",
                table.name
            )));
        }
        if source != target {
            let rows = |found: &[WholeDigestRow]| found.first().map_or(0, |(rows, ..)| *rows);
            return Err(CopyError::Refused(format!(
                "{} on the target ({} rows) differs from what the copy read on the source ({} rows); see that nothing \
                 else writes there, and copy again. JSON is copied as text: numbers, dates and bytes in it that JSON \
                 text does not have become others, and --no-verify leaves this comparison out",
                table.name,
                rows(&target),
                rows(&source)
            )));
        }
    }
    Ok(lane)
}
