use std::collections::VecDeque;

use csa_provider::GtidSet;

use crate::commit_order::{CommitOrder, LowWaterMark};
use crate::history::KeyHistory;
use crate::packing::{GroupCost, Packing};
use crate::{AdmittedTransaction, Group, GroupKind, GroupLimits, Sequence};

/// Turns admitted transactions into groups, tells which may run beside each other, and keeps their
/// commit order.
///
/// Pure: the caller admits, asks for groups, and reports commits. A group is closed rather than made
/// to wait: a transaction that conflicts with a near predecessor begins a new one.
#[derive(Debug)]
pub struct Scheduler {
    limits: GroupLimits,
    workers: usize,
    waiting: VecDeque<AdmittedTransaction>,
    waiting_rows: usize,
    /// Formed and not handed out, in sequence order.
    formed: VecDeque<Group>,
    history: KeyHistory,
    packing: Packing,
    order: CommitOrder,
    /// Groups handed out and not committed, and rows in all that are formed and not committed.
    running: usize,
    rows_in_flight: usize,
    next: Sequence,
    low_water: Sequence,
    planned: GtidSet,
    closing: bool,
}

/// Small groups beside each other only add commits: another one waits until it is full.
const SMALL_GROUPS_IN_FLIGHT: usize = 2;

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
            history: KeyHistory::default(),
            packing: Packing::new(limits.rows),
            order: CommitOrder::default(),
            running: 0,
            rows_in_flight: 0,
            next: last.next(),
            low_water: last,
            planned: executed,
            closing: false,
        };
        scheduler.history.forget(last.get());
        scheduler.set_workers(workers);
        scheduler
    }

    /// How many groups may run; takes effect with the next group.
    pub fn set_workers(&mut self, workers: usize) {
        self.workers = workers.max(1);
        self.packing.set_parallel(self.workers);
    }

    /// From now on only groups that are formed already are handed out.
    pub fn form_no_more(&mut self) {
        self.closing = true;
    }

    /// Takes the next transaction in source order.
    pub fn admit(&mut self, transaction: AdmittedTransaction) {
        self.waiting_rows += transaction.rows();
        self.waiting.push_back(transaction);
    }

    /// Whether enough is waiting to fill every worker's next group; more would only hold memory.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let groups = self.workers + 1;
        self.waiting.len() >= self.limits.transactions.saturating_mul(groups)
            || self.waiting_rows >= self.limits.rows.saturating_mul(groups)
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.formed.is_empty() && self.order.is_idle()
    }

    /// Transactions that wait here, and groups that are formed and wait for another's commit.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.waiting.len(), self.formed.len())
    }

    /// Rows that groups are packed to while there is a backlog.
    #[must_use]
    pub fn group_rows(&self) -> usize {
        self.packing.target()
    }

    /// The next group for an idle worker, if there is one.
    ///
    /// Its [`Group::dependency`] may not be committed yet: it is then to be prepared and held back
    /// until it is. A later group that need not wait is handed out first, as long as a worker is left
    /// for the earliest: whatever waits for its turn waits for that one.
    pub fn next_group(&mut self) -> Option<Group> {
        if self.running >= self.workers {
            return None;
        }
        if self.formed.is_empty() {
            self.form();
        }
        let first = self.formed.front()?;
        if self.is_free(first) {
            return self.hand_out(0);
        }
        let spare = self.workers - self.running;
        if spare >= 2 {
            while self.formed.len() < self.workers && !self.formed.iter().any(|g| self.is_free(g)) {
                if !self.form() {
                    break;
                }
            }
            if let Some(index) = self.formed.iter().position(|group| self.is_free(group)) {
                return self.hand_out(index);
            }
        }
        if self.formed.front()?.kind == GroupKind::Statement {
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

    /// Forms a group from what waits; `false` when nothing does, or when it had better wait.
    fn form(&mut self) -> bool {
        if self.closing {
            return false;
        }
        let small = self.waiting.len() < self.limits.transactions
            && self.waiting_rows < self.packing.target();
        if small && self.running + self.formed.len() >= SMALL_GROUPS_IN_FLIGHT {
            return false;
        }
        let Some(first) = self.waiting.pop_front() else { return false };
        let sequence = self.next;
        let dependency = self.dependency(&first);
        let mut group = Group {
            sequence,
            kind: GroupKind::from(first.kind),
            transactions: Vec::new(),
            rows: 0,
            dependency: Sequence::default(),
            executed_after: GtidSet::new(),
        };
        let mut bytes = 0;
        self.join(&mut group, first, dependency, &mut bytes);
        while group.kind == GroupKind::Rows
            && self.fits(&group, bytes)
            && let Some(next) = self.waiting.front()
        {
            let dependency = self.dependency(next);
            if dependency > group.dependency.get() && !self.may_wait(&group, dependency) {
                break;
            }
            let Some(next) = self.waiting.pop_front() else { break };
            self.join(&mut group, next, dependency, &mut bytes);
        }
        group.executed_after = self.planned.clone();
        self.rows_in_flight += group.rows;
        self.next = sequence.next();
        self.order.started(&group);
        self.formed.push_back(group);
        true
    }

    /// Whether a group may be made to wait for a later group than it does. A group of its own for the
    /// transaction would cost another commit; a far predecessor is committed by the time it matters,
    /// and a group that waits anyway is better not tiny.
    fn may_wait(&self, group: &Group, dependency: u64) -> bool {
        let waits = group.dependency > self.low_water;
        let places = group.sequence.get() - dependency;
        waits && group.rows < self.packing.target() / 4
            || self.packing.may_depend(group.rows, places)
    }

    /// Whether the front of the queue may join as far as limits go.
    fn fits(&self, group: &Group, bytes: u64) -> bool {
        let Some(next) = self.waiting.front() else { return false };
        let Some(first) = group.transactions.first() else { return false };
        group.transactions.len() < self.limits.transactions
            && group.rows + next.rows() <= self.packing.target()
            && bytes.saturating_add(next.relayed.event_bytes) <= self.limits.bytes
            && GroupKind::from(next.kind) == GroupKind::Rows
            && first.changes.is_some() == next.changes.is_some()
            && first.changes.is_some()
            && next.relayed.format.raw() == first.relayed.format.raw()
    }

    fn dependency(&self, transaction: &AdmittedTransaction) -> u64 {
        self.history.dependency(transaction.changes.as_ref(), self.next.get())
    }

    fn join(
        &mut self,
        group: &mut Group,
        next: AdmittedTransaction,
        dependency: u64,
        bytes: &mut u64,
    ) {
        self.packing.examined(next.rows(), self.rows_in_flight, dependency > 0);
        group.dependency = group.dependency.max(Sequence::new(dependency));
        group.rows += next.rows();
        *bytes += next.relayed.event_bytes;
        self.waiting_rows -= next.rows();
        self.history.add(next.changes.as_ref(), group.sequence.get());
        self.planned.add(&next.relayed.header.gtid);
        group.transactions.push(next);
    }

    /// Records that a group is committed on the target; the low-water mark if it moved.
    pub fn committed(&mut self, group: &Group, cost: GroupCost) -> Option<LowWaterMark> {
        self.running = self.running.saturating_sub(1);
        self.rows_in_flight = self.rows_in_flight.saturating_sub(group.rows);
        self.packing.measured(cost);
        let mark = self.order.committed(group.sequence)?;
        self.low_water = mark.sequence;
        self.history.forget(mark.sequence.get());
        Some(mark)
    }

    /// Commit time on the source (microseconds since the epoch) of the oldest transaction known here
    /// and not committed on the target.
    #[must_use]
    pub fn oldest_commit_timestamp(&self) -> Option<u64> {
        self.order
            .oldest_commit_timestamp()
            .or_else(|| self.waiting.front().map(|t| t.relayed.header.original_commit_timestamp))
    }
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
