//! Deletes segments that the target no longer needs. It runs after commits (`Purge` in
//! crates/daemon/src/channel/pipeline.rs), when the store is opened or a channel begins again on it (store.rs),
//! with each new segment, and when there is no room (room.rs). Released is everything up to the scheduler's
//! low-water mark, and at an opening what the target has (segments.rs), as far as the archive has it too. Segments that are damaged, lie on the
//! wrong side of a gap or do not follow what the target has are deleted by recovery.rs.

use csa_provider::seams::planted::{Bug, is_planted};
use tracing::{debug, warn};

use crate::disk::segment::RelayPosition;
use crate::state::segments::{Segment, released};
use crate::state::shared::{Shared, StoreState};

impl StoreState {
    pub(crate) fn is_released(&self, number: u64, segment: &Segment) -> bool {
        if is_planted(Bug::NeverPurged) {
            return false;
        }
        let released = self.passed();
        if is_planted(Bug::PurgedTooEarly) {
            return released.segment >= number;
        }
        let offset = segment.transactions_end;
        if offset > segment.header_len {
            return released >= RelayPosition { segment: number, offset };
        }
        // Without transactions: it was always empty, or a crash has taken those that were never synced.
        // Until the target is past it, only this segment shows that they are missing.
        let was_empty = self.segments.range(number + 1..).next().is_none_or(|(_, next)| {
            next.header.transactions_before == segment.header.transactions_before
        });
        was_empty || released.segment > number
    }

    /// Releases what was received although the target had it.
    fn release_ahead(&mut self) {
        let Some(executed) = self.ahead.take() else { return };
        let position = released(&self.segments, self.end, &self.received, &executed);
        self.released = self.released.max(position);
        if !executed.is_subset_of(&self.received) {
            self.ahead = Some(executed);
        }
    }

    /// Returns true if every whole transaction in the store is released.
    pub(crate) fn is_all_released(&self) -> bool {
        self.segments.iter().all(|(&number, segment)| self.is_released(number, segment))
    }
}

impl Shared {
    /// Deletes segments with a released last transaction, but never the one being written.
    ///
    /// While no other segment has a file, the last file stays.
    ///
    /// A file that can't be deleted is logged and left. Nothing but its space is lost, until the
    /// store is opened again.
    pub(crate) fn purge(&self) {
        let mut state = self.state.lock();
        state.release_ahead();
        let mut gone = Vec::new();
        while state.segments.len() > 1
            && let Some((&number, segment)) = state.segments.first_key_value()
            && state.is_released(number, segment)
        {
            // First here, so that readers no longer find it; a file left by a crash is deleted
            // after the next start.
            let Some(removed) = state.segments.remove(&number) else { break };
            if removed.unwritten.is_none() {
                gone.push((number, removed.len));
            }
            if let Some(mut next) = state.segments.first_entry() {
                // The smaller set is added to the larger one.
                let all = &mut next.get_mut().grown;
                let grown = std::mem::replace(all, removed.grown);
                all.union(&grown);
            }
        }
        let mut gone: Vec<_> = state.kept.take().into_iter().chain(gone).collect();
        if state.segments.values().all(|segment| segment.unwritten.is_some()) {
            state.kept = gone.pop();
        }
        drop(state);
        if gone.is_empty() {
            return;
        }
        for &(number, _) in &gone {
            match self.directory.remove(number) {
                Ok(()) => debug!(segment = number, "relay segment purged"),
                Err(error) => warn!(%error, "relay segment can't be purged"),
            }
        }
        if let Err(error) = self.directory.sync() {
            warn!(%error, "purging of relay segments is not durable yet");
        }
    }
}
