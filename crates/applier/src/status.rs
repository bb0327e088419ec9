//! What the applier is doing, for those who watch it.

use std::time::SystemTime;

use csa_provider::{GtidSet, TransactionHeader};
use csa_scheduler::{Group, LowWaterMark, Sequence};
use parking_lot::Mutex;

use crate::{Checkpoint, Error};

/// Shared by the applier, which writes it, and the status page, which reads it.
#[derive(Debug, Default)]
pub struct ApplierStatus {
    view: Mutex<ApplierView>,
}

/// A snapshot.
#[derive(Debug, Clone, Default)]
pub struct ApplierView {
    /// Whether the last statement reached the target.
    pub target_connected: bool,
    /// Everything executed on the target, as the checkpoint says.
    pub executed: GtidSet,
    pub sequence: Sequence,
    /// The group that is running.
    pub applying: Option<GroupView>,
    pub last_applied: Option<GroupView>,
    /// Source commit time (microseconds since the epoch) of the oldest transaction known to the
    /// applier and not committed on the target.
    pub oldest_pending_commit_timestamp: Option<u64>,
    /// Relay ordinal and cumulative bytes of the last committed transaction.
    pub committed_ordinal: u64,
    pub committed_bytes: u64,
    pub transactions_total: u64,
    pub groups_total: u64,
    pub statements_total: u64,
    pub retries_total: u64,
    /// Why the target can't be reached at the moment.
    pub target_error: Option<String>,
}

/// A group in figures and times.
#[derive(Debug, Clone)]
pub struct GroupView {
    pub sequence: Sequence,
    /// Header of the group's last transaction.
    pub last: TransactionHeader,
    pub transactions: usize,
    pub bytes: u64,
    pub started: SystemTime,
    pub ended: Option<SystemTime>,
}

impl ApplierStatus {
    /// Starts from a checkpoint.
    #[must_use]
    pub fn new(checkpoint: &Checkpoint) -> Self {
        let view = ApplierView {
            target_connected: true,
            executed: checkpoint.executed.clone(),
            sequence: checkpoint.sequence,
            ..ApplierView::default()
        };
        Self { view: Mutex::new(view) }
    }

    #[must_use]
    pub fn view(&self) -> ApplierView {
        self.view.lock().clone()
    }

    /// Whether the target is known to be away.
    #[must_use]
    pub fn is_target_lost(&self) -> bool {
        !self.view.lock().target_connected
    }

    pub(crate) fn pending(&self, oldest_commit_timestamp: Option<u64>) {
        self.view.lock().oldest_pending_commit_timestamp = oldest_commit_timestamp;
    }

    pub(crate) fn started(&self, group: &Group) {
        let Some(last) = group.transactions.last() else { return };
        self.view.lock().applying = Some(GroupView {
            sequence: group.sequence,
            last: last.relayed.header.clone(),
            transactions: group.transactions.len(),
            bytes: group.bytes(),
            started: SystemTime::now(),
            ended: None,
        });
    }

    pub(crate) fn committed(&self, group: &Group, mark: Option<LowWaterMark>) {
        let mut view = self.view.lock();
        view.transactions_total += group.transactions.len() as u64;
        view.groups_total += 1;
        if group.kind == csa_scheduler::GroupKind::Statement {
            view.statements_total += 1;
        }
        view.executed = group.executed_after.clone();
        view.sequence = group.sequence;
        if let Some(mut applied) = view.applying.take() {
            applied.ended = Some(SystemTime::now());
            view.last_applied = Some(applied);
        }
        if let Some(mark) = mark {
            view.committed_ordinal = mark.ordinal;
            view.committed_bytes = mark.cumulative_bytes;
        }
    }

    pub(crate) fn retried(&self) {
        self.view.lock().retries_total += 1;
    }

    pub(crate) fn target_lost(&self, error: &Error) {
        let mut view = self.view.lock();
        view.target_connected = false;
        view.target_error = Some(error.to_string());
    }

    pub(crate) fn target_reached(&self) {
        let mut view = self.view.lock();
        view.target_connected = true;
        view.target_error = None;
    }
}
