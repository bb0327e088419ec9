//! The scheduler: which groups may run beside each other, and what is committed. Which transactions
//! a group has is decided in forming.rs.

use std::collections::VecDeque;

use csa_provider::binlog::{CommitTimes, GtidSet};

use crate::admission::AdmittedTransaction;
use crate::conflicts::Conflicts;
use crate::group::{Group, GroupLimits};
use crate::low_water::{LowWaterMark, Uncommitted};
use crate::sequence::Sequence;
use crate::until::UntilGate;

/// Turns admitted transactions into groups, decides which may run beside each other, and keeps
/// their commit order.
///
/// Pure: the caller admits, asks for groups, and reports commits. Rows that conflict with a group
/// in flight are named in [`Group::late`], and only they wait. If keys can't identify them, a group
/// is closed rather than made to wait.
#[derive(Debug)]
pub struct Scheduler {
    limits: GroupLimits,
    workers: usize,
    waiting: Waiting,
    /// Formed and not yet handed out, in sequence order.
    formed: VecDeque<Group>,
    conflicts: Conflicts,
    uncommitted: Uncommitted,
    /// The number of groups handed out and not committed.
    running: usize,
    next: Sequence,
    low_water: Sequence,
    /// Executed once every formed group is committed.
    planned: GtidSet,
    /// Transactions that may still join groups.
    allowance: usize,
    until: UntilGate,
}

/// Transactions in no group yet, and the number of their rows.
#[derive(Debug, Default)]
struct Waiting {
    transactions: VecDeque<AdmittedTransaction>,
    rows: usize,
}

impl Waiting {
    fn push(&mut self, transaction: AdmittedTransaction) {
        self.rows += transaction.rows();
        self.transactions.push_back(transaction);
    }

    fn pop(&mut self) -> Option<AdmittedTransaction> {
        let first = self.transactions.pop_front()?;
        self.rows -= first.rows();
        Some(first)
    }

    fn front(&self) -> Option<&AdmittedTransaction> {
        self.transactions.front()
    }

    fn len(&self) -> usize {
        self.transactions.len()
    }

    fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }
}

/// The most full groups that wait here.
const FULL_GROUPS_AHEAD: usize = 4;

impl Scheduler {
    /// `last` is the checkpoint's sequence, `executed` its GTID set.
    #[must_use]
    pub fn new(limits: GroupLimits, workers: usize, last: Sequence, executed: GtidSet) -> Self {
        let mut scheduler = Self {
            limits,
            workers: 1,
            waiting: Waiting::default(),
            formed: VecDeque::new(),
            conflicts: Conflicts::default(),
            uncommitted: Uncommitted::default(),
            running: 0,
            next: last.next(),
            low_water: last,
            planned: executed,
            allowance: usize::MAX,
            until: UntilGate::default(),
        };
        // Everything up to the checkpoint's sequence is committed.
        scheduler.conflicts.forget(last.get());
        scheduler.set_workers(workers);
        scheduler
    }

    /// Sets the end of the stream.
    #[must_use]
    pub fn with_until(mut self, until: UntilGate) -> Self {
        self.until = until;
        self
    }

    /// Sets how many groups may run, from the next group on; the group whose commit turn it is
    /// always may.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers.max(1);
    }

    /// Sets how many transactions may still join groups, until the next call; at 0 the channel
    /// comes to rest. Formed groups are handed out even then: running ones may wait for them.
    pub fn allow(&mut self, transactions: usize) {
        self.allowance = transactions;
    }

    /// Returns the number of transactions that may still join groups.
    #[must_use]
    pub fn allowance(&self) -> usize {
        self.allowance
    }

    /// Takes the next transaction in source order.
    pub fn admit(&mut self, transaction: AdmittedTransaction) {
        self.waiting.push(transaction);
    }

    /// True if enough is waiting to fill every worker's next group; more would only hold memory.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let groups = self.workers.min(FULL_GROUPS_AHEAD) + 1;
        self.waiting.len() >= self.limits.transactions.saturating_mul(groups)
            || self.waiting.rows >= self.limits.rows.saturating_mul(groups)
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.formed.is_empty() && self.uncommitted.is_idle()
    }

    /// Returns true if everything before the end is committed; transactions that still wait come
    /// after it.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.until.is_reached() && self.formed.is_empty() && self.uncommitted.is_idle()
    }

    /// The numbers of waiting transactions and of formed groups that are not handed out.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.waiting.len(), self.formed.len())
    }

    /// Returns the next group for an idle worker, if there is one.
    ///
    /// If its [`Group::dependency`] is not committed yet, the worker prepares the group and waits.
    /// A later group that need not wait is handed out first, as long as a worker is left for the
    /// earliest: all others wait for its commit.
    ///
    /// The group whose commit turn it is gets a worker in any case: after the number of workers was
    /// lowered, later groups may hold all of them and wait for that group.
    pub fn next_group(&mut self) -> Option<Group> {
        if self.running >= self.workers {
            let is_next = |group: &Group| group.sequence == self.low_water.next();
            return if self.formed.front().is_some_and(is_next) { self.hand_out(0) } else { None };
        }
        if self.formed.is_empty() {
            self.form();
        }
        let first = self.formed.front()?;
        if self.is_free(first) {
            return self.hand_out(0);
        }
        // The last free worker is kept for the earliest group, for which all later ones wait.
        let spare = self.workers - self.running;
        if spare >= 2 {
            // Looking ahead for a group that need not wait is bounded: formed groups hold memory.
            while self.formed.len() < self.workers && !self.formed.iter().any(|g| self.is_free(g)) {
                if !self.form() {
                    break;
                }
            }
            if let Some(index) = self.formed.iter().position(|group| self.is_free(group)) {
                return self.hand_out(index);
            }
        }
        // A group that runs alone is not handed out early: nothing of it can be done before its turn.
        if !self.formed.front()?.verdict().may_share_a_group() {
            return None;
        }
        self.hand_out(0)
    }

    fn is_free(&self, group: &Group) -> bool {
        group.dependency <= self.low_water
    }

    fn hand_out(&mut self, index: usize) -> Option<Group> {
        let group = self.formed.remove(index)?;
        self.running += 1;
        Some(group)
    }

    /// Records that a group is committed on the target; returns the low-water mark if it moved.
    pub fn committed(&mut self, group: &Group) -> Option<LowWaterMark> {
        self.running = self.running.saturating_sub(1);
        let mark = self.uncommitted.committed(group)?;
        self.low_water = mark.sequence;
        self.conflicts.forget(mark.sequence.get());
        Some(mark)
    }

    /// The source's commit time of the oldest transaction known here and uncommitted on the target.
    #[must_use]
    pub fn oldest_commit(&self) -> Option<CommitTimes> {
        self.uncommitted
            .oldest_commit()
            .or_else(|| self.waiting.front().map(|t| t.relayed.header.commit_times()))
    }
}

mod forming;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
