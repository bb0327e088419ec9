//! A channel's progress on the target, as a value.

use csa_provider::binlog::GtidSet;
use csa_scheduler::sequence::Sequence;

/// The start of a channel without a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFrom {
    /// The target's `gtid_executed`: it was provisioned by clone or dump.
    Target,
    /// The source's `gtid_executed` at the first start.
    Source,
    /// A GTID set that the target already holds.
    Executed(GtidSet),
}

/// The channel's progress, and the epoch of the daemon that may move it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last committed group.
    pub sequence: Sequence,
    /// Everything executed on the target.
    pub executed: GtidSet,
    /// Raised by every daemon that takes the channel over.
    pub epoch: u64,
}

impl Checkpoint {
    /// Adds another row of the channel. Each row states what was committed with it and before it,
    /// so none states too much; out of commit order only all of them together are complete.
    pub(crate) fn merge(&mut self, row: &Self) {
        self.sequence = self.sequence.max(row.sequence);
        self.epoch = self.epoch.max(row.epoch);
        self.executed.union(&row.executed);
    }
}
