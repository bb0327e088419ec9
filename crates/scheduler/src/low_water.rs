//! The low-water mark: everything up to it is committed on the target. Groups wait for their turn to
//! commit in the applier (`CommitTurn`, crates/applier/src/group/commit_turn.rs).

use std::collections::VecDeque;

use csa_provider::binlog::CommitTimes;
use csa_provider::seams::planted::{Bug, is_planted};
use csa_relaystore::disk::RelayPosition;

use crate::group::Group;
use crate::sequence::Sequence;

/// The last group with nothing uncommitted below it, and everything that may be released up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LowWaterMark {
    pub sequence: Sequence,
    /// Everything below this position of the relay store is committed on the target.
    pub released: Option<RelayPosition>,
    /// Relay ordinal and cumulative event bytes of the last committed transaction.
    pub ordinal: u64,
    pub cumulative_bytes: u64,
}

impl LowWaterMark {
    fn after(group: &Group) -> Self {
        let last = group.transactions.last().map(|t| &t.relayed);
        Self {
            sequence: group.sequence,
            released: group.end(),
            ordinal: last.map_or(0, |t| t.ordinal),
            cumulative_bytes: last.map_or(0, |t| t.extent().cumulative_bytes),
        }
    }
}

/// Groups that were formed and are not yet committed, in commit order.
#[derive(Debug, Default)]
pub struct Uncommitted {
    groups: VecDeque<Formed>,
}

#[derive(Debug)]
struct Formed {
    mark: LowWaterMark,
    first_committed: CommitTimes,
    committed: bool,
}

impl Uncommitted {
    /// Registers a group that was formed. Groups come in sequence order.
    pub(crate) fn formed(&mut self, group: &Group) {
        self.groups.push_back(Formed {
            mark: LowWaterMark::after(group),
            first_committed: group
                .transactions
                .first()
                .map(|t| t.relayed.header.commit_times())
                .unwrap_or_default(),
            committed: false,
        });
    }

    /// Marks a group committed; returns the new low-water mark if it moved.
    pub(crate) fn committed(&mut self, group: &Group) -> Option<LowWaterMark> {
        let sequence = group.sequence;
        if let Some(formed) = self.groups.iter_mut().find(|g| g.mark.sequence == sequence) {
            // Once more: a transaction that was still being received has an end now.
            *formed = Formed { mark: LowWaterMark::after(group), committed: true, ..*formed };
        }
        if is_planted(Bug::MarkOverGap) {
            self.groups
                .iter_mut()
                .take_while(|g| g.mark.sequence <= sequence)
                .for_each(|g| g.committed = true);
        }
        // Without `preserve_commit_order` groups commit in any order: the oldest holds the mark.
        let mut mark = None;
        while self.groups.front().is_some_and(|g| g.committed) {
            mark = self.groups.pop_front().map(|g| g.mark);
        }
        mark
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty()
    }

    /// The source's commit time of the oldest transaction in a group that is not yet committed.
    #[must_use]
    pub fn oldest_commit(&self) -> Option<CommitTimes> {
        self.groups.front().map(|g| g.first_committed)
    }
}
