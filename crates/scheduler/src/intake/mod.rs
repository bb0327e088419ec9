//! Decides the next step for a transaction that was read from the relay store, until the applier
//! has it. Pure: the driver in csa-applier reads, waits and hands over.
//!
//! A transaction waits for its time (`source_delay`), then for event memory, and the transactions
//! after a statement wait until the statement is committed ([`Barrier`]). Nothing past the
//! channel's end is handed over.

mod barrier;
mod delay;
mod end;
mod room;
#[cfg(test)]
mod tests;

use std::time::Duration;

use csa_provider::binlog::CommitTimes;

pub use barrier::Barrier;
pub use delay::FutureCommits;
pub use end::IntakeEnd;
pub use room::{Room, inline_limit};

use crate::memory::Footprint;
use crate::until::Until;

/// Returns the bytes of a transaction that have to be there before it begins while the rest is being received;
/// `None` where a transaction begins only once it is whole. `from`: as configured.
///
/// A transaction that is to be applied later, or perhaps not at all, must hold no locks meanwhile.
#[must_use]
pub fn begins_from(
    from: Option<u64>,
    delay: Duration,
    has_end: bool,
    is_paused: bool,
) -> Option<u64> {
    from.filter(|_| delay.is_zero() && !has_end && !is_paused)
}

/// How far the intake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// No transaction is in hand.
    Empty,
    /// The relay store held nothing more. `reception_over` was read before the store was, so
    /// nothing that arrived before the end of reception is missed.
    Drained { reception_over: bool },
    /// A transaction was read, with these commit times.
    Read(CommitTimes),
    /// The memory it needs is known.
    Measured(Room),
    /// It has a place in the queue for memory.
    Queued(Room),
    /// Its memory was granted.
    Granted(Room),
    /// The verdict and its keys are known.
    Admitted,
    /// The applier has it.
    HandedOver(Barrier),
}

/// Everything outside the intake that a step depends on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// The pipeline ends, or nobody takes more transactions.
    pub stopped: bool,
    /// The channel's end, if it lies before the transaction in hand.
    pub until: Option<Until>,
    /// `source_delay`.
    pub delay: Duration,
    /// Our clock; microseconds since the epoch.
    pub now: u64,
    /// Microseconds by which the source's clock is ahead of ours.
    pub clock_ahead: i64,
    /// The time for which the transaction in hand is known to be committed, whatever the clocks show ([`FutureCommits`]).
    pub known: Duration,
    /// Statements that were committed on the target so far.
    pub statements: u64,
}

/// The driver's next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read the next transaction.
    Read,
    /// Wait at most this long, and ask again: the delay, the end or the clock may change.
    HoldBack(Duration),
    /// Find the memory that it needs.
    Measure,
    /// Take a place in the queue for this much memory.
    Queue(Footprint),
    /// Wait until the memory is granted.
    WaitForMemory,
    /// Find the verdict and its keys; `whole` is false for one that is streamed.
    Admit { whole: bool },
    /// Give it to the applier.
    HandOver,
    /// Wait until another statement is committed on the target.
    WaitForStatement,
    /// Forget the target's definitions, then read the next transaction.
    ForgetDefinitions,
    /// End: the pipeline ends.
    Stop,
    /// End: the transaction in hand is past the channel's end.
    EndAt(Until),
    /// End: reception has ended, and everything received was handed over.
    EndWithReception,
}

/// Returns the one decision of the intake.
#[must_use]
pub fn next_step(stage: Stage, seen: &Seen) -> Step {
    if seen.stopped {
        return Step::Stop;
    }
    match stage {
        // At the end of the store the driver's read waits for a moment, so this does not spin.
        Stage::Empty | Stage::Drained { reception_over: false } => Step::Read,
        Stage::Drained { reception_over: true } => Step::EndWithReception,
        // A transaction past the end need not become due. Groups end there anyway; reading further
        // would only hold memory.
        Stage::Read(committed) => match &seen.until {
            Some(until) => Step::EndAt(until.clone()),
            None => {
                let Seen { delay, now, clock_ahead, known, .. } = *seen;
                match delay::left(delay, committed, now, clock_ahead, known) {
                    Some(left) => Step::HoldBack(left),
                    None => Step::Measure,
                }
            }
        },
        Stage::Measured(room) => Step::Queue(room.footprint),
        Stage::Queued(_) => Step::WaitForMemory,
        Stage::Granted(room) => Step::Admit { whole: room.whole },
        Stage::Admitted => Step::HandOver,
        Stage::HandedOver(barrier) => match barrier {
            Barrier::None => Step::Read,
            _ if !barrier.is_passed(seen.statements) => Step::WaitForStatement,
            Barrier::Definitions { .. } => Step::ForgetDefinitions,
            Barrier::Statement { .. } => Step::Read,
        },
    }
}
