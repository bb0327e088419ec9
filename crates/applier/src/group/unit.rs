//! A unit of work that commits as one, and the statements that begin its transaction.

use std::sync::Arc;

use csa_provider::binlog::{GtidSet, TransactionHeader};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_scheduler::admission::{AdmittedTransaction, Verdict};
use csa_scheduler::group::Group;

use super::worker_session::WorkerSession;
use crate::options::{Executor, TargetGtids};
use crate::ownership::checkpoint;
use crate::server::as_source;

/// The transactions applied at once: a group, or one transaction of a failed group. They are one transaction
/// on the target, unless the group is a series.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    pub(super) group: Arc<Group>,
    /// First and last transaction, the last not included.
    pub(super) range: (usize, usize),
    pub(super) executed_after: GtidSet,
    /// Its rows are applied in the order in which the source logged them, and not merged.
    pub(super) is_as_logged: bool,
}

impl Unit {
    pub(super) fn transactions(&self) -> &[AdmittedTransaction] {
        self.group.transactions.get(self.range.0..self.range.1).unwrap_or_default()
    }

    /// Returns true if it is the whole group, not one of several transactions that the others
    /// follow.
    pub(super) fn is_whole(&self) -> bool {
        self.range == (0, self.group.transactions.len())
    }

    /// Returns true if it is a whole series, which commits one by one.
    pub(super) fn is_series(&self) -> bool {
        self.group.is_series() && self.is_whole() && !self.is_as_logged
    }

    /// Returns true if nothing but transactions that came back is in it, so that only the checkpoint changes.
    /// In the binary log that would come back as well, and never end.
    fn is_returned(&self) -> bool {
        let all = self.transactions();
        all.iter().all(|transaction| matches!(transaction.verdict, Verdict::LeftOut(_)))
            && all.iter().any(|transaction| transaction.is_returned())
    }
}

/// The statements before a unit's rows.
#[derive(Debug, Clone)]
pub(super) struct UnitOpening {
    pub(super) text: String,
    pub(super) statements: usize,
    /// The last is the UPDATE that has to match the checkpoint row, in the transaction of the rows. Else
    /// the transaction has not begun.
    pub(super) is_fenced: bool,
    /// The assignment that the rows need, too.
    pub(super) version: Option<String>,
}

impl UnitOpening {
    /// Returns the opening with a statement for the version before it.
    pub(super) fn with_version(mut self) -> Self {
        if let Some(version) = self.version.take() {
            self.text.insert_str(0, &format!("SET SESSION {version};"));
            self.statements += 1;
        }
        self
    }
}

/// Returns the statement that begins a transaction under the source's GTID.
pub(super) fn source_opening(header: &TransactionHeader) -> UnitOpening {
    let text = format!("SET SESSION {}", as_source::identity(header));
    UnitOpening { text, statements: 1, is_fenced: false, version: None }
}

impl WorkerSession {
    /// Returns true if the target's binary log gets the unit.
    pub(super) fn logs(&self, unit: &Unit) -> bool {
        match self.target.gtids {
            TargetGtids::Own => !unit.is_returned(),
            TargetGtids::Mirror => false,
            // The GTID has to be there, and ends where it began.
            TargetGtids::Source => true,
        }
    }

    /// Returns the statements that begin a unit's transaction. Under the source's GTID there is no UPDATE of
    /// the checkpoint row: nobody can execute the GTID twice, and who takes the channel over ends these
    /// sessions first (`ControlSession::open`).
    pub(super) fn opening(&self, unit: &Unit) -> UnitOpening {
        let header = unit.transactions().first().map(|transaction| &transaction.relayed.header);
        match (self.target.gtids, header) {
            (TargetGtids::Source, Some(header)) => source_opening(header),
            _ => self.own_opening(unit),
        }
    }

    /// Returns the UPDATE of the checkpoint row.
    pub(super) fn update(&self, unit: &Unit) -> String {
        let (sequence, executed) = (unit.group.sequence, &unit.executed_after);
        checkpoint::update(&self.options.channel, self.index, self.epoch, sequence, executed)
    }

    /// The opening of a transaction under a GTID of the target's own.
    pub(super) fn own_opening(&self, unit: &Unit) -> UnitOpening {
        let update = match is_planted(Bug::CheckpointAfterCommit) {
            true => checkpoint::hold(&self.options.channel, self.index, self.epoch),
            false => self.update(unit),
        };
        // Only images need it, and MariaDB and MySQL 5.7 lack the variable.
        let takes_images = self.options.executor == Executor::RowImage;
        let first = unit.transactions().first().filter(|_| takes_images);
        let version = first.and_then(|transaction| as_source::version(&transaction.relayed.header));
        let text = format!("BEGIN;{update}");
        UnitOpening { text, statements: 2, is_fenced: true, version }
    }
}
