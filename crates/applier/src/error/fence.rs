//! The ways in which a daemon learns that the channel is no longer its own. It does at the beginning of a group
//! (group/attempt.rs, group/commit.rs), after the lost answer to a COMMIT (group/lost_answer.rs), and with a
//! statement (ownership/keeper.rs). It also does when it notes progress (ownership/control.rs), after a packet
//! that failed (group/worker.rs), after a reconnection (ownership/reconnect.rs), and in a skip
//! (ownership/skip.rs).

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
    /// Another daemon took over, which showed when a group's transaction began.
    #[error("another daemon took it over; nothing was committed")]
    NothingCommitted,
    /// Another daemon took over, which showed in a skip.
    #[error("another daemon took it over; nothing was skipped")]
    NothingSkipped,
    #[error("its row in csa.checkpoint was deleted")]
    RowGone,
}
