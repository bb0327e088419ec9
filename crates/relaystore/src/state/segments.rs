//! A store's segments, and what follows from their headers alone. Pure.

use std::collections::BTreeMap;

use csa_provider::binlog::GtidSet;
use tokio::time::Instant;

use crate::disk::segment::RelayPosition;
use crate::disk::segment::SegmentHeader;

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
    /// GTIDs received since the segment before this one began; of the first one, everything received before it. Whole sets
    /// would be equal but for these, and with gaps each is large.
    pub(crate) grown: GtidSet,
    pub(crate) header_len: u64,
    /// Bytes written so far, including an unfinished transaction.
    pub(crate) len: u64,
    /// End of its last whole transaction; a format description may follow.
    pub(crate) transactions_end: u64,
    /// It has no file, and its first transaction came then: the memory tail has all of it.
    pub(crate) unwritten: Option<Instant>,
}

/// Returns true if the segments hold everything after `executed`, up to their end.
pub(crate) fn follows(segments: &BTreeMap<u64, Segment>, executed: &GtidSet) -> bool {
    last_begun(segments, executed).is_some() && holes(segments, executed) == u64::MAX
}

/// Returns everything received before the segment with this number.
pub(crate) fn received_before(segments: &BTreeMap<u64, Segment>, number: u64) -> GtidSet {
    let mut received = GtidSet::new();
    segments.range(..=number).for_each(|(_, segment)| received.union(&segment.grown));
    received
}

/// Returns the number of the last segment before which nothing is that `executed` lacks.
pub(crate) fn last_begun(segments: &BTreeMap<u64, Segment>, executed: &GtidSet) -> Option<u64> {
    let begun = segments.iter().take_while(|(_, segment)| segment.grown.is_subset_of(executed));
    begun.last().map(|(&number, _)| number)
}

/// Returns the number of the first segment with something missing before it, `u64::MAX` if there is none. If the
/// target was ahead of the store, a segment began after transactions that only the target had; a target restored
/// to an earlier state needs them again. The header of such a segment shows it: its GTID set grew by more than
/// the transactions received.
pub(crate) fn holes(segments: &BTreeMap<u64, Segment>, executed: &GtidSet) -> u64 {
    let pairs = segments.values().zip(segments.iter().skip(1));
    for (before, (&number, after)) in pairs {
        let before = before.header.transactions_before;
        let received = after.header.transactions_before.saturating_sub(before);
        // What came between them is missing, or in the first of them.
        if after.grown.count() != received && !after.grown.is_subset_of(executed) {
            return number;
        }
    }
    u64::MAX
}

/// Returns what comes before the first segment, and between two of them without being in the first of the two. The
/// headers show it: a segment that begins after what only the target had follows one without transactions.
pub(crate) fn passed_over(segments: &BTreeMap<u64, Segment>) -> GtidSet {
    let (mut passed, mut before) = (GtidSet::new(), None);
    for Segment { header, grown, .. } in segments.values() {
        if before.is_none_or(|before| before == header.transactions_before) {
            passed.union(grown);
        }
        before = Some(header.transactions_before);
    }
    passed
}

/// Returns the target's position in whole segments, found without reading them.
pub(crate) fn released(
    segments: &BTreeMap<u64, Segment>,
    end: RelayPosition,
    received: &GtidSet,
    executed: &GtidSet,
) -> RelayPosition {
    if received.is_subset_of(executed) {
        return end;
    }
    // The place within a segment is unknown, which only delays purging.
    RelayPosition { segment: last_begun(segments, executed).unwrap_or(0), offset: 0 }
}

#[cfg(test)]
#[path = "segments_tests.rs"]
mod tests;
