//! Everything known to be committed on the target. Commits write it; the checkpoint, the levelling of
//! GTID sets, the DDL barrier, pauses and waits read it. The status only shows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use csa_provider::binlog::GtidSet;
use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::group::Group;
use csa_scheduler::sequence::Sequence;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The progress of a channel that is held, from its checkpoint on; cheap to clone.
#[derive(Debug, Clone)]
pub struct Commits {
    shared: Arc<SharedCommits>,
}

#[derive(Debug)]
struct SharedCommits {
    progress: Mutex<CommitProgress>,
    /// Statements committed so far.
    statements: watch::Sender<u64>,
    definitions_doubted: AtomicBool,
}

#[derive(Debug)]
struct CommitProgress {
    /// The last committed group in commit order.
    sequence: Sequence,
    executed: Arc<GtidSet>,
    /// Groups that were handed out and are not committed.
    in_flight: usize,
    /// The applier may be about to hand out a group: it may have looked at `paused` before a change.
    may_begin: bool,
}

impl Commits {
    /// Starts from a checkpoint.
    pub(crate) fn new(sequence: Sequence, executed: GtidSet) -> Self {
        let executed = Arc::new(executed);
        let progress =
            Mutex::new(CommitProgress { sequence, executed, in_flight: 0, may_begin: false });
        let statements = watch::Sender::new(0);
        let definitions_doubted = AtomicBool::new(false);
        Self { shared: Arc::new(SharedCommits { progress, statements, definitions_doubted }) }
    }

    /// Returns everything known to be committed.
    #[must_use]
    pub fn executed(&self) -> GtidSet {
        GtidSet::clone(&self.shared_executed())
    }

    /// Returns [`Self::executed`] without a copy. A commit while somebody has it costs one.
    pub(crate) fn shared_executed(&self) -> Arc<GtidSet> {
        Arc::clone(&self.shared.progress.lock().executed)
    }

    /// Returns true if everything in `set` is committed.
    #[must_use]
    pub fn has_executed(&self, set: &GtidSet) -> bool {
        set.is_subset_of(&self.shared.progress.lock().executed)
    }

    /// Returns the last group in commit order, and everything known to be committed.
    pub(crate) fn progress(&self) -> (Sequence, GtidSet) {
        let progress = self.shared.progress.lock();
        (progress.sequence, GtidSet::clone(&progress.executed))
    }

    /// No group and no statement is under way. After the channel was paused none will begin.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        let progress = self.shared.progress.lock();
        progress.in_flight == 0 && !progress.may_begin
    }

    /// To be called with `true` before the applier looks whether it is paused, and with `false` once it
    /// has handed out all groups that it may.
    pub(crate) fn may_begin(&self, may_begin: bool) {
        self.shared.progress.lock().may_begin = may_begin;
    }

    /// Statements committed so far; the DDL barrier waits for the next one.
    #[must_use]
    pub fn statements(&self) -> watch::Receiver<u64> {
        self.shared.statements.subscribe()
    }

    pub(crate) fn statements_total(&self) -> u64 {
        *self.shared.statements.borrow()
    }

    /// A group was refused and then committed one by one: keys that the scheduler does not know may be the reason.
    pub(crate) fn doubt_definitions(&self) {
        // Relaxed here and below, because nothing else depends on the order.
        self.shared.definitions_doubted.store(true, Ordering::Relaxed);
    }

    /// Returns true if there was such a group since the definitions were last read for one.
    pub(crate) fn are_definitions_doubted(&self) -> bool {
        self.shared.definitions_doubted.load(Ordering::Relaxed)
    }

    pub(crate) fn definitions_read_again(&self) {
        self.shared.definitions_doubted.store(false, Ordering::Relaxed);
    }

    pub(crate) fn handed_out(&self) {
        self.shared.progress.lock().in_flight += 1;
    }

    /// Records these as committed. A worker calls it while it holds the generation open, so the next
    /// one begins with them known.
    pub(crate) fn record(&self, transactions: &[AdmittedTransaction]) {
        let mut progress = self.shared.progress.lock();
        let executed = Arc::make_mut(&mut progress.executed);
        for transaction in transactions {
            executed.add(&transaction.relayed.header.gtid);
        }
    }

    /// A group is done: its transactions were recorded.
    pub(crate) fn finished(&self, group: &Group) {
        {
            let mut progress = self.shared.progress.lock();
            // Groups are reported as their tasks end, which need not be commit order.
            progress.sequence = progress.sequence.max(group.sequence);
            progress.in_flight = progress.in_flight.saturating_sub(1);
        }
        // Steps of XA are such groups and count too, as `Barrier::after` expects.
        if group.verdict().is_statement() {
            self.shared.statements.send_modify(|statements| *statements += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_may_begin_a_group_is_not_at_rest() {
        let commits = Commits::new(Sequence::default(), GtidSet::new());
        assert!(commits.is_at_rest());
        // A pause from here on may be seen too late for the next group.
        commits.may_begin(true);
        assert!(!commits.is_at_rest());
        commits.handed_out();
        commits.may_begin(false);
        assert!(!commits.is_at_rest(), "the group runs");
    }
}
