use std::collections::VecDeque;

use csa_provider::GtidSet;

use crate::commit_order::{CommitOrder, LowWaterMark};
use crate::{AdmittedTransaction, Group, GroupKind, GroupLimits, Sequence};

/// Turns admitted transactions into groups and keeps their commit order.
///
/// Pure: the caller admits, asks for groups, and reports commits. One group runs at a time: without
/// writesets every group conflicts with its predecessor.
#[derive(Debug)]
pub struct Scheduler {
    limits: GroupLimits,
    waiting: VecDeque<AdmittedTransaction>,
    order: CommitOrder,
    next: Sequence,
    planned: GtidSet,
}

impl Scheduler {
    /// `last` is the checkpoint's sequence, `executed` its GTID set.
    #[must_use]
    pub fn new(limits: GroupLimits, last: Sequence, executed: GtidSet) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            order: CommitOrder::default(),
            next: last.next(),
            planned: executed,
        }
    }

    /// Takes the next transaction in source order.
    pub fn admit(&mut self, transaction: AdmittedTransaction) {
        self.waiting.push_back(transaction);
    }

    /// Whether enough is waiting to fill the next group; more would only hold memory.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= self.limits.transactions
    }

    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.order.is_idle()
    }

    /// The next group that may run now, if any: as many waiting transactions as fit its limits.
    pub fn next_group(&mut self) -> Option<Group> {
        if !self.order.is_idle() {
            return None;
        }
        let first = self.waiting.pop_front()?;
        let kind = GroupKind::from(first.kind);
        let mut bytes = first.relayed.event_bytes;
        let mut transactions = vec![first];
        if kind == GroupKind::Rows {
            while let Some(next) = self.waiting.front() {
                let size = next.relayed.event_bytes;
                if transactions.len() >= self.limits.transactions
                    || bytes.saturating_add(size) > self.limits.bytes
                    || GroupKind::from(next.kind) != GroupKind::Rows
                    || next.relayed.format.raw() != transactions[0].relayed.format.raw()
                {
                    break;
                }
                bytes += size;
                transactions.extend(self.waiting.pop_front());
            }
        }
        for transaction in &transactions {
            self.planned.add(&transaction.relayed.header.gtid);
        }
        let group =
            Group { sequence: self.next, kind, transactions, executed_after: self.planned.clone() };
        self.next = self.next.next();
        self.order.started(&group);
        Some(group)
    }

    /// Records that a group is committed on the target; the low-water mark if it moved.
    pub fn committed(&mut self, sequence: Sequence) -> Option<LowWaterMark> {
        self.order.committed(sequence)
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
mod tests;
