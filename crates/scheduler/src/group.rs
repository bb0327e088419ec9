//! A group: consecutive transactions that one session applies, and commits together or, as a *series*, one
//! by one. Which transactions go into one is decided in scheduler/forming.rs; the applier's `group` folder
//! applies it.

use std::sync::Arc;

use csa_provider::binlog::{FormatDescription, Gtid, GtidSet};
use csa_relaystore::disk::RelayPosition;
use csa_relaystore::state::Followed;

use crate::admission::{AdmittedTransaction, Verdict};
use crate::keys::KeyMap;
use crate::sequence::Sequence;

/// How large a group may grow while transactions are waiting.
#[derive(Debug, Clone, Copy)]
pub struct GroupLimits {
    /// Source transactions in one target transaction.
    pub transactions: usize,
    /// Rows that they change in total.
    pub rows: usize,
    /// Bytes of source events, decompressed, in one target transaction; a larger transaction is a
    /// group of its own.
    pub bytes: u64,
    pub commits: GroupCommits,
}

/// The commits of a group on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupCommits {
    /// All of its transactions share one.
    Shared,
    /// Each transaction has its own. Only short ones share a group, because nothing of a transaction begins
    /// before the one before it is committed.
    Each {
        /// A group begins once the one before it is committed.
        in_order: bool,
    },
}

impl Default for GroupLimits {
    /// Large enough that thousands of rows share a commit's fsync and repeated changes of a row
    /// merge, small enough that a group's locks and its statement (BASE64: 4/3 of the bytes) stay
    /// modest.
    fn default() -> Self {
        let commits = GroupCommits::Shared;
        Self { transactions: 4096, rows: 4096, bytes: 4 << 20, commits }
    }
}

/// A run of consecutive source transactions that one session applies on the target.
#[derive(Debug)]
pub struct Group {
    pub sequence: Sequence,
    pub commits: GroupCommits,
    pub transactions: Vec<AdmittedTransaction>,
    /// Rows that they change, as far as they were counted.
    pub rows: usize,
    /// The group may begin once everything up to this one is committed.
    pub dependency: Sequence,
    /// Keys that an uncommitted group touches too, with that group. Rows with these keys are sent
    /// last, once everything up to it is committed. The group's other rows need not wait.
    pub late: KeyMap<u64>,
    /// Everything executed on the target once this group is committed: the GTID set of the
    /// checkpoint.
    pub executed_after: GtidSet,
}

impl Group {
    /// Returns the verdict on its first transaction, by which the group is executed: others join it only if
    /// all of them have row changes or are left out.
    ///
    /// # Panics
    /// Never: a group is not built empty.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        &self.transactions.first().expect("a group is never empty").verdict
    }

    /// Returns the bytes of source events.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.transactions.iter().map(|t| t.relayed.extent().event_bytes).sum()
    }

    /// Returns true if keys identify all of its changes, so that only late rows need to wait.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.transactions.iter().all(AdmittedTransaction::is_keyed)
    }

    /// Returns true if its transactions are committed one by one.
    #[must_use]
    pub fn is_series(&self) -> bool {
        self.commits != GroupCommits::Shared && self.transactions.len() > 1
    }

    /// Returns the transactions of the target that commit it.
    #[must_use]
    pub fn target_transactions(&self) -> u64 {
        if self.is_series() { self.transactions.len() as u64 } else { 1 }
    }

    /// Returns the GTIDs of the first and the last transaction.
    ///
    /// # Panics
    /// Never: a group is not built empty.
    #[must_use]
    pub fn span(&self) -> (&Gtid, &Gtid) {
        let first = self.transactions.first().expect("a group is never empty");
        let last = self.transactions.last().expect("a group is never empty");
        (&first.relayed.header.gtid, &last.relayed.header.gtid)
    }

    /// Returns the format description that all of the group's events follow.
    ///
    /// # Panics
    /// Never: a group is not built empty.
    #[must_use]
    pub fn format(&self) -> &Arc<FormatDescription> {
        &self.transactions.first().expect("a group is never empty").relayed.format
    }

    /// Returns the reception of its one transaction, if that was not whole when the group was
    /// formed.
    #[must_use]
    pub fn followed(&self) -> Option<&Arc<Followed>> {
        self.transactions.first()?.relayed.followed()
    }

    /// End of the group in the relay store: once it is committed, nothing below is needed again.
    #[must_use]
    pub fn end(&self) -> Option<RelayPosition> {
        self.transactions.last().map(|t| t.relayed.extent().end)
    }
}
