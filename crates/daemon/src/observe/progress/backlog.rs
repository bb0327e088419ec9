//! The backlog: transactions received and not committed on the target. Pure.

use csa_applier::ApplierView as Applied;
use csa_relaystore::read::RelayedTransaction;
use csa_relaystore::state::RelayUsage;

/// Transactions and bytes of events, counted from the beginning of the relay store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    pub transactions: u64,
    pub bytes: u64,
}

impl Count {
    /// Returns everything before a transaction.
    pub const fn before(relayed: &RelayedTransaction) -> Self {
        Self {
            transactions: relayed.ordinal - 1,
            bytes: relayed.cumulative_bytes - relayed.event_bytes,
        }
    }

    /// Returns everything committed on the target by the running pipeline; 0 before its first
    /// commit.
    pub const fn committed(applied: &Applied) -> Self {
        Self { transactions: applied.committed_ordinal, bytes: applied.committed_bytes }
    }

    pub const fn received(usage: &RelayUsage) -> Self {
        Self { transactions: usage.transactions_total, bytes: usage.event_bytes_total }
    }

    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            transactions: self.transactions.max(other.transactions),
            bytes: self.bytes.max(other.bytes),
        }
    }

    /// Returns the part of it that `done` does not cover.
    #[must_use]
    pub const fn without(self, done: Self) -> Self {
        Self {
            transactions: self.transactions.saturating_sub(done.transactions),
            bytes: self.bytes.saturating_sub(done.bytes),
        }
    }
}

/// The end of the relay store as the intake has read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadUpTo {
    /// Relay ordinal of the last transaction that was to be applied; 0 for none.
    pub last: u64,
    /// Everything, those included that were executed before.
    pub end: Count,
}

/// Returns everything committed on the target. Out of commit order, transactions after the last that a pipeline
/// applies can have been committed by the one before.
pub(super) fn done(
    base: Option<Count>,
    read: Option<ReadUpTo>,
    applied: &Applied,
) -> Option<Count> {
    let done = base?.max(Count::committed(applied));
    let read = read.filter(|read| done.transactions >= read.last);
    Some(read.map_or(done, |read| done.max(read.end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn count(transactions: u64, bytes: u64) -> Count {
        Count { transactions, bytes }
    }

    #[test]
    fn a_backlog_counts_from_the_base_until_something_is_committed() {
        let received = count(100, 5_000);
        for (base, committed, backlog) in [
            (count(40, 2_000), Count::default(), count(60, 3_000)),
            (count(40, 2_000), count(90, 4_900), count(10, 100)),
            (count(100, 5_000), Count::default(), Count::default()),
            // Received is read first, so a commit may be ahead of it.
            (count(40, 2_000), count(101, 5_100), Count::default()),
        ] {
            assert_eq!(received.without(base.max(committed)), backlog, "{base:?} {committed:?}");
        }
    }
    #[test]
    fn what_was_executed_before_is_done_once_everything_before_it_is() {
        let read = Some(ReadUpTo { last: 68, end: count(69, 7_000) });
        let applied = |ordinal| Applied { committed_ordinal: ordinal, ..Applied::default() };
        let base = Some(count(63, 6_000));
        let done = |ordinal| done(base, read, &applied(ordinal)).expect("known").transactions;
        assert_eq!([0, 64, 67, 68, 70].map(done), [63, 64, 67, 69, 70]);
        assert_eq!(super::done(None, read, &applied(68)), None);
    }
}
