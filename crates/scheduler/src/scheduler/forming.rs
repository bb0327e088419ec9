//! Decides which transactions go into one group.

use csa_provider::binlog::GtidSet;

use super::Scheduler;
use crate::admission::AdmittedTransaction;
use crate::group::{Group, GroupCommits};
use crate::keys::KeyMap;
use crate::sequence::Sequence;

/// Small groups beside each other only add commits: beyond this many, a group waits until full.
const SMALL_GROUPS_IN_FLIGHT: usize = 2;

/// Rows, and bytes of events, of a transaction that joins a series. The rows of a larger one are better applied
/// beside others, before its turn to commit.
const SHORT_ROWS: usize = 16;
const SHORT_BYTES: u64 = 16 << 10;

impl Scheduler {
    /// Forms a group of waiting transactions; `false` if there are none or more should join first.
    pub(super) fn form(&mut self) -> bool {
        if self.allowance == 0 {
            return false;
        }
        let longest = self.longest();
        let small = self.waiting.len() < longest && self.waiting.rows < self.limits.rows;
        let is_alone = self.waiting.front().is_some_and(|first| self.is_alone(first));
        if small && !is_alone && self.running + self.formed.len() >= SMALL_GROUPS_IN_FLIGHT {
            return false;
        }
        // `pass` counts the transaction as applied, so no check may follow it.
        if !self.waiting.front().is_some_and(|first| self.until.pass(&first.relayed.header)) {
            return false;
        }
        let Some(first) = self.waiting.pop() else { return false };
        let sequence = self.next;
        let mut late = KeyMap::default();
        let dependency = self.dependency(&first, &mut late);
        let mut group = Group {
            sequence,
            commits: self.limits.commits,
            transactions: Vec::new(),
            rows: 0,
            dependency: Sequence::new(dependency),
            late: KeyMap::default(),
            executed_after: GtidSet::new(),
        };
        let waits_anyway = self.limits.commits == GroupCommits::Each { in_order: true };
        let mut bytes = 0;
        self.join(&mut group, first, &mut bytes);
        while group.verdict().may_share_a_group()
            && self.allowance > 0
            && self.fits(&group, bytes, longest)
            && let Some(next) = self.waiting.front()
        {
            // If it does not join, its keys stay in `late`: rows here with the same keys may wait
            // longer.
            let dependency = Sequence::new(self.dependency(next, &mut late));
            if dependency > group.dependency && group.dependency <= self.low_water && !waits_anyway
            {
                // It would make the whole group wait.
                break;
            }
            if !self.until.pass(&next.relayed.header) {
                break;
            }
            group.dependency = group.dependency.max(dependency);
            let Some(next) = self.waiting.pop() else { break };
            self.join(&mut group, next, &mut bytes);
        }
        group.late = late;
        group.executed_after = self.planned.clone();
        self.next = sequence.next();
        // Registered here, because groups may be handed out in another order.
        self.uncommitted.formed(&group);
        self.formed.push_back(group);
        true
    }

    /// Returns the transactions in the next group at most.
    fn longest(&self) -> usize {
        let limit = self.limits.transactions;
        match self.limits.commits {
            GroupCommits::Each { in_order: false } => {
                // What waits is shared out, so that no session waits while another has a long series.
                let busy = self.running + self.formed.len();
                let idle = self.workers.saturating_sub(busy).max(1);
                self.waiting.len().div_ceil(idle).clamp(1, limit.max(1))
            }
            GroupCommits::Shared | GroupCommits::Each { in_order: true } => limit,
        }
    }

    /// Returns the rows in a group at most.
    fn most_rows(&self) -> usize {
        match self.limits.commits {
            // Rows of a series that runs beside others are what these wait for, until all of it is committed.
            GroupCommits::Each { in_order: false } => self.limits.transactions,
            GroupCommits::Shared | GroupCommits::Each { in_order: true } => self.limits.rows,
        }
    }

    /// Returns true if no other transaction joins this one, nor it another.
    fn is_alone(&self, transaction: &AdmittedTransaction) -> bool {
        self.limits.commits != GroupCommits::Shared && !is_short(transaction)
    }

    /// Returns true if limits and kinds let the front of the queue join.
    fn fits(&self, group: &Group, bytes: u64, longest: usize) -> bool {
        let Some(next) = self.waiting.front() else { return false };
        let Some(first) = group.transactions.first() else { return false };
        group.transactions.len() < longest
            && group.rows + next.rows() <= self.most_rows()
            && bytes.saturating_add(next.bytes) <= self.limits.bytes
            && next.verdict.may_share_a_group()
            && first.changes.is_some()
            && next.changes.is_some()
            // A group is merged by keys or sent as logged, and read by one format description.
            && first.is_keyed() == next.is_keyed()
            && !self.is_alone(first)
            && !self.is_alone(next)
            && next.relayed.format.raw() == first.relayed.format.raw()
    }

    /// Returns the group that a transaction as a whole waits for; single keys that have to wait go
    /// to `late`.
    fn dependency(&self, transaction: &AdmittedTransaction, late: &mut KeyMap<u64>) -> u64 {
        let changes = transaction.changes.as_ref();
        let own = self.next.get();
        let is_in_series = self.limits.commits != GroupCommits::Shared && is_short(transaction);
        if transaction.is_keyed() && !is_in_series {
            return self.conflicts.dependency(changes, own, late);
        }
        // Events sent as logged keep their order, so no row of them can be late; nor can one of a series, whose
        // next transaction comes after a commit.
        let mut all = KeyMap::default();
        let dependency = self.conflicts.dependency(changes, own, &mut all);
        all.into_values().fold(dependency, u64::max)
    }

    fn join(&mut self, group: &mut Group, next: AdmittedTransaction, bytes: &mut u64) {
        group.rows += next.rows();
        *bytes += next.bytes;
        self.allowance = self.allowance.saturating_sub(1);
        self.conflicts.add(next.changes.as_ref(), group.sequence.get());
        self.planned.add(&next.relayed.header.gtid);
        group.transactions.push(next);
    }
}

/// Returns true if a transaction with a commit of its own may be part of a series.
fn is_short(transaction: &AdmittedTransaction) -> bool {
    transaction.is_keyed()
        && !transaction.is_returned()
        && transaction.session.is_none()
        && transaction.rows() <= SHORT_ROWS
        && transaction.bytes <= SHORT_BYTES
}
