//! Rules that the applier keeps itself, so that an error with one of them is a bug.

/// A rule that did not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invariant {
    #[error("a group without transactions")]
    GroupHasTransactions,
    #[error("a group without a worker")]
    GroupHasWorker,
    #[error("a transaction without rows")]
    TransactionHasRows,
    #[error("a row outside of its event")]
    RowLiesInItsEvent,
    #[error("a COMMIT without a session")]
    CommitHasSession,
    #[error("a transaction of a series that is not sent at once")]
    SeriesIsSentAtOnce,
}
