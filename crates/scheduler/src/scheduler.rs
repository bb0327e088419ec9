//! The scheduler: groups, which of them may run beside each other, and their commit order.

use std::collections::VecDeque;

use csa_provider::{CommitTimes, GtidSet};

use crate::admission::AdmittedTransaction;
use crate::commit_order::{CommitOrder, LowWaterMark};
use crate::conflicts::Conflicts;
use crate::group::{Group, GroupKind, GroupLimits};
use crate::keys::KeyMap;
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
    waiting: VecDeque<AdmittedTransaction>,
    waiting_rows: usize,
    /// Formed and not yet handed out, in sequence order.
    formed: VecDeque<Group>,
    conflicts: Conflicts,
    order: CommitOrder,
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

/// Small groups beside each other only add commits: beyond this many, a group waits until full.
const SMALL_GROUPS_IN_FLIGHT: usize = 2;

/// The most full groups that wait here.
const FULL_GROUPS_AHEAD: usize = 4;

impl Scheduler {
    /// `last` is the checkpoint's sequence, `executed` its GTID set.
    #[must_use]
    pub fn new(limits: GroupLimits, workers: usize, last: Sequence, executed: GtidSet) -> Self {
        let mut scheduler = Self {
            limits,
            workers: 1,
            waiting: VecDeque::new(),
            waiting_rows: 0,
            formed: VecDeque::new(),
            conflicts: Conflicts::default(),
            order: CommitOrder::default(),
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

    /// The number of transactions that may still join groups.
    #[must_use]
    pub fn allowance(&self) -> usize {
        self.allowance
    }

    /// Takes the next transaction in source order.
    pub fn admit(&mut self, transaction: AdmittedTransaction) {
        self.waiting_rows += transaction.rows();
        self.waiting.push_back(transaction);
    }

    /// True if enough is waiting to fill every worker's next group; more would only hold memory.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let groups = self.workers.min(FULL_GROUPS_AHEAD) + 1;
        self.waiting.len() >= self.limits.transactions.saturating_mul(groups)
            || self.waiting_rows >= self.limits.rows.saturating_mul(groups)
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.formed.is_empty() && self.order.is_idle()
    }

    /// True if everything before the end is committed; transactions that still wait come after it.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.until.is_reached() && self.formed.is_empty() && self.order.is_idle()
    }

    /// The numbers of waiting transactions and of formed groups that are not handed out.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.waiting.len(), self.formed.len())
    }

    /// The next group for an idle worker, if there is one.
    ///
    /// If its [`Group::dependency`] is not committed yet, the worker prepares the group and waits.
    /// A later group that need not wait is handed out first, as long as a worker is left for the
    /// earliest: everything that waits for its commit turn waits for that one.
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
        if self.formed.front()?.kind != GroupKind::Rows {
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

    /// Forms a group of waiting transactions; `false` if there are none or more should join first.
    fn form(&mut self) -> bool {
        if self.allowance == 0 {
            return false;
        }
        let small =
            self.waiting.len() < self.limits.transactions && self.waiting_rows < self.limits.rows;
        if small && self.running + self.formed.len() >= SMALL_GROUPS_IN_FLIGHT {
            return false;
        }
        // `pass` counts the transaction as applied, so no check may follow it.
        if !self.waiting.front().is_some_and(|first| self.until.pass(&first.relayed.header)) {
            return false;
        }
        let Some(first) = self.waiting.pop_front() else { return false };
        let sequence = self.next;
        let mut late = KeyMap::default();
        let dependency = self.dependency(&first, &mut late);
        let mut group = Group {
            sequence,
            kind: GroupKind::from(first.kind),
            transactions: Vec::new(),
            rows: 0,
            dependency: Sequence::new(dependency),
            late: KeyMap::default(),
            executed_after: GtidSet::new(),
        };
        let mut bytes = 0;
        self.join(&mut group, first, &mut bytes);
        while group.kind == GroupKind::Rows
            && self.allowance > 0
            && self.fits(&group, bytes)
            && let Some(next) = self.waiting.front()
        {
            // If it does not join, its keys stay in `late`: rows here with the same keys may wait
            // longer.
            let dependency = Sequence::new(self.dependency(next, &mut late));
            if dependency > group.dependency && group.dependency <= self.low_water {
                // It would make the whole group wait.
                break;
            }
            if !self.until.pass(&next.relayed.header) {
                break;
            }
            group.dependency = group.dependency.max(dependency);
            let Some(next) = self.waiting.pop_front() else { break };
            self.join(&mut group, next, &mut bytes);
        }
        group.late = late;
        group.executed_after = self.planned.clone();
        self.next = sequence.next();
        // Registered here, because groups may be handed out in another order.
        self.order.started(&group);
        self.formed.push_back(group);
        true
    }

    /// True if limits and kinds let the front of the queue join.
    fn fits(&self, group: &Group, bytes: u64) -> bool {
        let Some(next) = self.waiting.front() else { return false };
        let Some(first) = group.transactions.first() else { return false };
        group.transactions.len() < self.limits.transactions
            && group.rows + next.rows() <= self.limits.rows
            && bytes.saturating_add(next.bytes) <= self.limits.bytes
            && GroupKind::from(next.kind) == GroupKind::Rows
            && first.changes.is_some()
            && next.changes.is_some()
            // A group is merged by keys or sent as logged, and read by one format description.
            && first.is_keyed() == next.is_keyed()
            && next.relayed.format.raw() == first.relayed.format.raw()
    }

    /// The group that a transaction as a whole waits for; single keys that have to wait go to
    /// `late`.
    fn dependency(&self, transaction: &AdmittedTransaction, late: &mut KeyMap<u64>) -> u64 {
        let changes = transaction.changes.as_ref();
        let own = self.next.get();
        if transaction.is_keyed() {
            return self.conflicts.dependency(changes, own, late);
        }
        // Events sent as logged keep their order, so no row of them can be late.
        let mut all = KeyMap::default();
        let dependency = self.conflicts.dependency(changes, own, &mut all);
        all.into_values().fold(dependency, u64::max)
    }

    fn join(&mut self, group: &mut Group, next: AdmittedTransaction, bytes: &mut u64) {
        group.rows += next.rows();
        *bytes += next.bytes;
        self.waiting_rows -= next.rows();
        self.allowance = self.allowance.saturating_sub(1);
        self.conflicts.add(next.changes.as_ref(), group.sequence.get());
        self.planned.add(&next.relayed.header.gtid);
        group.transactions.push(next);
    }

    /// Records that a group is committed on the target; returns the low-water mark if it moved.
    pub fn committed(&mut self, group: &Group) -> Option<LowWaterMark> {
        self.running = self.running.saturating_sub(1);
        let mark = self.order.committed(group.sequence)?;
        self.low_water = mark.sequence;
        self.conflicts.forget(mark.sequence.get());
        Some(mark)
    }

    /// The source's commit time of the oldest transaction known here and uncommitted on the target.
    #[must_use]
    pub fn oldest_commit(&self) -> Option<CommitTimes> {
        self.order
            .oldest_commit()
            .or_else(|| self.waiting.front().map(|t| t.relayed.header.commit_times()))
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
