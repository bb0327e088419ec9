//! The verdict on a transaction: the one word by which intake, scheduler and applier treat it.

use crate::filter::StatementVerdict;

/// How a transaction is executed on the target, or why it is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Row changes between BEGIN and commit: may share a group.
    Rows,
    /// Row changes of which some can't be rolled back on the target, so that nothing else may be
    /// written with them: it runs alone.
    NotTransactional,
    /// A statement that commits implicitly and may change definitions (DDL, account management): it
    /// runs alone, and nothing after it is admitted before it is committed. CREATE TABLE … SELECT is followed by rows.
    Statement,
    /// A step of a distributed transaction, with a GTID of its own: as a statement, but for the definitions.
    Xa,
    /// A statement that the target's own server has executed: nothing of it is executed, but definitions are other ones
    /// after it. It runs alone, as a statement.
    ReturnedStatement,
    /// Nothing of it is executed; only its GTID counts, in a group with row changes.
    LeftOut(Omission),
    /// It must be neither executed nor left out, for this reason. It counts as a statement, so that it stops the
    /// channel in its turn, after everything before it is committed.
    Refused(String),
}

/// The reason why nothing of a transaction is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Omission {
    /// It changes nothing, or nothing that the filter rules keep.
    Nothing,
    /// It is account management, which this channel does not apply.
    Accounts,
    /// It is a statement about the schema in which the target keeps the channels' progress.
    Own,
    /// The target's own server made it.
    Returned,
}

impl Verdict {
    /// True if the transaction may share a group with others; every other one runs alone.
    #[must_use]
    pub const fn may_share_a_group(&self) -> bool {
        matches!(self, Self::Rows | Self::LeftOut(_))
    }

    /// Returns true if it is executed or passed over as a statement, and counted as one once it is committed.
    #[must_use]
    pub const fn is_statement(&self) -> bool {
        matches!(self, Self::Statement | Self::Xa | Self::ReturnedStatement | Self::Refused(_))
    }

    /// The reason why it must be neither executed nor left out.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused(why) => Some(why),
            _ => None,
        }
    }
}

impl From<StatementVerdict> for Verdict {
    fn from(verdict: StatementVerdict) -> Self {
        match verdict {
            StatementVerdict::Apply => Self::Statement,
            StatementVerdict::Skip => Self::LeftOut(Omission::Nothing),
            StatementVerdict::LeaveOutOwn => Self::LeftOut(Omission::Own),
            StatementVerdict::LeaveOutAccounts => Self::LeftOut(Omission::Accounts),
            StatementVerdict::Refuse(why) => Self::Refused(why),
        }
    }
}
