//! Decides which transactions go into one group.

use csa_provider::GtidSet;

use super::Scheduler;
use crate::admission::AdmittedTransaction;
use crate::group::{Group, GroupKind};
use crate::keys::KeyMap;
use crate::sequence::Sequence;

/// Small groups beside each other only add commits: beyond this many, a group waits until full.
const SMALL_GROUPS_IN_FLIGHT: usize = 2;

impl Scheduler {
    /// Forms a group of waiting transactions; `false` if there are none or more should join first.
    pub(super) fn form(&mut self) -> bool {
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
        self.uncommitted.formed(&group);
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
}
