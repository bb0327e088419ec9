//! The ways in which a daemon learns that the channel is no longer its own: at the beginning of a group
//! (group/attempt.rs), when the answer to a COMMIT was lost (group/lost_answer.rs), with a statement
//! (ownership/keeper.rs), when progress is noted (ownership/control.rs), after a packet that failed
//! (group/worker.rs), after a reconnection
//! (ownership/reconnect.rs), in a skip (ownership/skip.rs).

/// How it was learnt that another daemon took the channel over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fence {
    /// A row of the channel did not match this daemon's epoch.
    #[error("another daemon took it over")]
    TakenOver,
    /// The row had another daemon's epoch.
    #[error("another daemon took it over (epoch {0})")]
    Epoch(u64),
    /// As [`Self::TakenOver`], when a group's transaction began.
    #[error("another daemon took it over; nothing was committed")]
    NothingCommitted,
    /// As [`Self::TakenOver`], in a skip.
    #[error("another daemon took it over; nothing was skipped")]
    NothingSkipped,
    #[error("its row in csa.checkpoint was deleted")]
    RowGone,
}
