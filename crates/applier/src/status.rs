//! What the applier is doing, for those who watch it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use csa_provider::{GtidSet, TransactionHeader};
use csa_scheduler::{Group, GroupKind, LowWaterMark, Scheduler, Sequence};
use parking_lot::{Condvar, Mutex};

use crate::sessions::{SessionView, Sessions};
use crate::{Checkpoint, Error, Executor};

/// Shared by the applier, which writes it, and the status page, which reads it.
#[derive(Debug, Default)]
pub struct ApplierStatus {
    view: Mutex<ApplierView>,
    /// Groups that were handed out, for their times.
    running: Mutex<BTreeMap<Sequence, GroupView>>,
    sessions: Sessions,
    /// A statement was committed.
    statement: Condvar,
    /// Groups and rows that had to wait for others, by table.
    held_back: Mutex<BTreeMap<String, HeldBack>>,
}

/// Tables that are told apart in [`ApplierView::held_back`].
const TABLES_MAX: usize = 1000;

/// A snapshot.
#[derive(Debug, Clone, Default)]
pub struct ApplierView {
    /// Whether the last statement reached the target.
    pub target_connected: bool,
    /// How rows are written.
    pub executor: Option<Executor>,
    /// Everything executed on the target, as the checkpoint says.
    pub executed: GtidSet,
    pub sequence: Sequence,
    /// The first group that is running.
    pub applying: Option<GroupView>,
    /// What every worker with a group does.
    pub sessions: Vec<SessionView>,
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
    /// Groups that gave up their locks to an earlier one.
    pub lock_inversions_total: u64,
    /// Transactions read and not in a group, and groups that wait for another's commit.
    pub waiting_transactions: usize,
    pub waiting_groups: usize,
    /// Why the target can't be reached at the moment.
    pub target_error: Option<String>,
    /// What waits is held back by [`crate::Tuning::throttle`].
    pub throttled: bool,
    /// Connections on the target that hold locks for which the group whose turn it is waits.
    pub lock_holders: Vec<u32>,
    /// What had to wait for other groups since the start, most rows first.
    pub held_back: Vec<HeldBack>,
    /// The statement that is being executed.
    pub statement: Option<StatementView>,
}

/// What of one table had to wait for the commit of other groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// `schema.table`; `*` for groups that had to wait for everything before them.
    pub table: String,
    pub groups: u64,
    pub rows: u64,
}

/// A statement that commits by itself, while it runs.
#[derive(Debug, Clone)]
pub struct StatementView {
    pub gtid: String,
    /// Its first words; the rest may hold values.
    pub statement: String,
    pub since: Instant,
    /// As the target's `events_stages_current` has it, where that is switched on
    /// (<https://dev.mysql.com/doc/refman/en/monitor-alter-table-performance-schema.html>).
    pub work_completed: Option<u64>,
    pub work_estimated: Option<u64>,
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
    pub fn new(checkpoint: &Checkpoint, executor: Executor) -> Self {
        let view = ApplierView {
            target_connected: true,
            executor: Some(executor),
            executed: checkpoint.executed.clone(),
            sequence: checkpoint.sequence,
            ..ApplierView::default()
        };
        Self { view: Mutex::new(view), ..Self::default() }
    }

    #[must_use]
    pub fn view(&self) -> ApplierView {
        let mut view = self.view.lock().clone();
        view.applying = self.running.lock().first_key_value().map(|(_, group)| group.clone());
        view.sessions = self.sessions.views();
        view.held_back = self.held_back.lock().values().cloned().collect();
        view.held_back.sort_by_key(|held| std::cmp::Reverse((held.rows, held.groups)));
        view
    }

    /// Whether everything in `set` is committed on the target.
    #[must_use]
    pub fn has_executed(&self, set: &GtidSet) -> bool {
        set.is_subset_of(&self.view.lock().executed)
    }

    /// The group that was handed out under this number, while it runs.
    #[must_use]
    pub fn group(&self, sequence: Sequence) -> Option<GroupView> {
        self.running.lock().get(&sequence).cloned()
    }

    /// Everything known to be committed on the target.
    #[must_use]
    pub fn executed(&self) -> GtidSet {
        self.view.lock().executed.clone()
    }

    /// The last group in commit order, and everything known to be committed.
    pub(crate) fn progress(&self) -> (Sequence, GtidSet) {
        let view = self.view.lock();
        (view.sequence, view.executed.clone())
    }

    pub(crate) fn sessions(&self) -> Sessions {
        self.sessions.clone()
    }

    /// Waits up to `wait` until more than `before` statements were committed.
    pub fn wait_for_statement(&self, before: u64, wait: Duration) -> bool {
        let mut view = self.view.lock();
        if view.statements_total <= before {
            self.statement.wait_for(&mut view, wait);
        }
        view.statements_total > before
    }

    /// Statements committed so far.
    #[must_use]
    pub fn statements_total(&self) -> u64 {
        self.view.lock().statements_total
    }

    /// Whether the target is known to be away.
    #[must_use]
    pub fn is_target_lost(&self) -> bool {
        !self.view.lock().target_connected
    }

    pub(crate) fn pending(&self, scheduler: &Scheduler) {
        let mut view = self.view.lock();
        view.oldest_pending_commit_timestamp = scheduler.oldest_commit_timestamp();
        (view.waiting_transactions, view.waiting_groups) = scheduler.waiting();
    }

    pub(crate) fn throttled(&self, throttled: bool) {
        self.view.lock().throttled = throttled;
    }

    pub(crate) fn locked_by(&self, connections: Vec<u32>) {
        self.view.lock().lock_holders = connections;
    }

    /// A group's rows wait for another group, by table; with none, all of it waits for all before.
    pub(crate) fn held_back(&self, mut rows: BTreeMap<String, u64>) {
        if rows.is_empty() {
            rows.insert("*".to_owned(), 0);
        }
        let mut all = self.held_back.lock();
        for (table, rows) in rows {
            if !all.contains_key(&table) && all.len() >= TABLES_MAX {
                continue;
            }
            let held = all.entry(table).or_insert_with_key(|table| HeldBack {
                table: table.clone(),
                ..HeldBack::default()
            });
            held.groups += 1;
            held.rows += rows;
        }
    }

    pub(crate) fn statement_started(&self, gtid: &str, statement: String) {
        self.view.lock().statement = Some(StatementView {
            gtid: gtid.to_owned(),
            statement,
            since: Instant::now(),
            work_completed: None,
            work_estimated: None,
        });
    }

    pub(crate) fn statement_progress(&self, completed: Option<u64>, estimated: Option<u64>) {
        if let Some(statement) = self.view.lock().statement.as_mut() {
            (statement.work_completed, statement.work_estimated) = (completed, estimated);
        }
    }

    pub(crate) fn statement_ended(&self) {
        self.view.lock().statement = None;
    }

    pub(crate) fn started(&self, group: &Group) {
        let Some(last) = group.transactions.last() else { return };
        let started = GroupView {
            sequence: group.sequence,
            last: last.relayed.header.clone(),
            transactions: group.transactions.len(),
            bytes: group.bytes(),
            started: SystemTime::now(),
            ended: None,
        };
        self.running.lock().insert(group.sequence, started);
    }

    pub(crate) fn committed(&self, group: &Group, mark: Option<LowWaterMark>) {
        let started = self.running.lock().remove(&group.sequence);
        let mut view = self.view.lock();
        view.lock_holders.clear();
        view.transactions_total += group.transactions.len() as u64;
        view.groups_total += 1;
        for transaction in &group.transactions {
            view.executed.add(&transaction.relayed.header.gtid);
        }
        if group.sequence > view.sequence {
            view.sequence = group.sequence;
            view.last_applied = started
                .map(|group| GroupView { ended: Some(SystemTime::now()), ..group })
                .or_else(|| view.last_applied.take());
        }
        if let Some(mark) = mark {
            view.committed_ordinal = mark.ordinal;
            view.committed_bytes = mark.cumulative_bytes;
        }
        if group.kind == GroupKind::Statement {
            view.statements_total += 1;
            self.statement.notify_all();
        }
    }

    pub(crate) fn yielded(&self) {
        self.view.lock().lock_inversions_total += 1;
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
