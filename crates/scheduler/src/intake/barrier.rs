//! The DDL barrier: no transaction is admitted until the statement before it is committed on the target.
//! `Reading::query` (admission/read.rs) says what is a statement, `next_step` (mod.rs) decides to wait for the
//! barrier, `Intake::pass_on` (crates/applier/src/intake/mod.rs) raises it and waits, `Commits::finished`
//! (crates/applier/src/commits.rs) counts what is committed. In the other half the statement itself waits for
//! all before it, in `Conflicts::dependency` (conflicts.rs). A transaction without known changes depends on the
//! last group, and `Scheduler::next_group` (scheduler.rs) hands a statement out only after that.
//!
//! Admission finds a transaction's keys, and so its conflicts, in the target's definitions. They
//! are those of the source at the time of the transaction only after every earlier statement was
//! executed there. Rows admitted earlier would be read with the columns and keys that a table had
//! before its ALTER.

use csa_provider::seams::planted::{Bug, is_planted};

use crate::admission::Verdict;

/// The barrier after a transaction that was handed over to the applier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// The next transaction can be admitted at once.
    None,
    /// The next transaction waits until more than `committed` statements are committed. The steps
    /// of a distributed transaction change no definitions, but they are executed and counted as
    /// statements: if one was still running, its commit would open the barrier of the DDL after it.
    Statement { committed: u64 },
    /// The same, and definitions are read again afterwards.
    Definitions { committed: u64 },
}

impl Barrier {
    /// Makes the barrier after a transaction; `committed` counts the statements that were committed
    /// on the target before this transaction was handed over. It is read before, because the
    /// applier may execute the transaction at once.
    #[must_use]
    pub fn after(verdict: &Verdict, committed: u64) -> Self {
        match verdict {
            _ if is_planted(Bug::BarrierIgnored) => Self::None,
            // One that is refused ends the channel instead of opening the barrier.
            Verdict::Statement | Verdict::ReturnedStatement | Verdict::Refused(_) => {
                Self::Definitions { committed }
            }
            Verdict::Xa => Self::Statement { committed },
            // Rows that can't be rolled back run alone, which the scheduler sees to; they change no
            // definitions.
            Verdict::Rows | Verdict::NotTransactional | Verdict::LeftOut(_) => Self::None,
        }
    }

    /// Returns true once `statements` committed on the target include the one of this barrier.
    #[must_use]
    pub const fn is_passed(self, statements: u64) -> bool {
        match self {
            Self::None => true,
            Self::Statement { committed } | Self::Definitions { committed } => {
                statements > committed
            }
        }
    }
}
