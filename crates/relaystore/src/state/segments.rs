//! A store's segments, and what follows from their headers alone. Pure.

use std::collections::BTreeMap;

use csa_provider::binlog::GtidSet;
use tokio::time::Instant;

use crate::disk::segment::RelayPosition;
use crate::disk::segment::SegmentHeader;

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) header: SegmentHeader,
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
    segments.values().next().is_some_and(|first| first.header.previous.is_subset_of(executed))
        && holes(segments, executed) == u64::MAX
}

/// Returns the number of the first segment with something missing before it, `u64::MAX` if there is none. If the
/// target was ahead of the store, a segment began after transactions that only the target had; a target restored
/// to an earlier state needs them again. The header of such a segment shows it: its GTID set grew by more than
/// the transactions received.
pub(crate) fn holes(segments: &BTreeMap<u64, Segment>, executed: &GtidSet) -> u64 {
    let pairs = segments.values().zip(segments.values().skip(1));
    for (before, after) in pairs {
        let (before, after) = (&before.header, &after.header);
        let received = after.transactions_before.saturating_sub(before.transactions_before);
        let grown = after.previous.count().saturating_sub(before.previous.count());
        // What came between them is missing, or in `before`.
        if grown != received && !after.previous.difference(&before.previous).is_subset_of(executed)
        {
            return after.number;
        }
    }
    u64::MAX
}

/// Returns what comes before the first segment, and between two of them without being in the first of the two. The
/// headers show it: a segment that begins after what only the target had follows one without transactions.
pub(crate) fn passed_over(segments: &BTreeMap<u64, Segment>) -> GtidSet {
    let mut headers = segments.values().map(|segment| &segment.header);
    let Some(mut before) = headers.next() else { return GtidSet::new() };
    let mut passed = before.previous.clone();
    for after in headers {
        if after.transactions_before == before.transactions_before {
            passed.union(&after.previous.difference(&before.previous));
        }
        before = after;
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
    let segment = segments
        .iter()
        .rev()
        .find(|(_, segment)| segment.header.previous.is_subset_of(executed))
        .map_or(0, |(&number, _)| number);
    RelayPosition { segment, offset: 0 }
}
