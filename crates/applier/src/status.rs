//! The applier's state, for the status page and metrics. Nothing is decided from it: [`Commits`] and
//! [`Reachability`] hold what others depend on, and this shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use csa_provider::{Clock, CommitTimes, GtidSet, SourceStatus, Span, Track, TransactionHeader};
use csa_scheduler::{Group, LowWaterMark, Scheduler, Sequence};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::info;

use crate::activity::{SessionView, Sessions, details};
use crate::commits::Commits;
use crate::durations::ApplierDurations;
use crate::options::Executor;
use crate::reachability::Reachability;

/// Shared by the applier, which writes it, and the status page, which reads it.
#[derive(Debug)]
pub struct ApplierStatus {
    clock: Arc<dyn Clock>,
    commits: Commits,
    target: Reachability,
    view: Mutex<ApplierView>,
    /// Groups that workers have, with their times.
    running: Mutex<BTreeMap<Sequence, GroupView>>,
    sessions: Sessions,
    durations: Arc<ApplierDurations>,
    /// Knows the source's clock.
    source: Arc<SourceStatus>,
    /// Groups and rows that had to wait for others, by table.
    held_back: Mutex<BTreeMap<String, HeldBack>>,
}

/// Most tables in [`ApplierView::held_back`].
const TABLES_MAX: usize = 1000;

/// A snapshot.
#[derive(Debug, Clone, Default)]
pub struct ApplierView {
    /// No party waits for the target.
    pub target_connected: bool,
    /// How rows are written.
    pub executor: Option<Executor>,
    /// Everything executed on the target, as in the checkpoint.
    pub executed: GtidSet,
    /// Groups that workers have, in commit order.
    pub groups: BTreeMap<Sequence, GroupView>,
    /// Every worker that has a group.
    pub sessions: Vec<SessionView>,
    pub last_applied: Option<GroupView>,
    /// Commit times of the oldest transaction known to the applier and not committed on the target, and
    /// the time since which it has been the oldest.
    pub oldest_pending: Option<(CommitTimes, Instant)>,
    /// Relay ordinal and cumulative bytes of the last committed transaction.
    pub committed_ordinal: u64,
    pub committed_bytes: u64,
    pub transactions_total: u64,
    pub groups_total: u64,
    pub statements_total: u64,
    /// Transactions whose account management was left out.
    pub accounts_left_out_total: u64,
    /// Statements about schema csa that were not applied.
    pub own_left_out_total: u64,
    /// Transactions of the target's own server that came back and were not applied again.
    pub returned_left_out_total: u64,
    pub retries_total: u64,
    /// Groups that gave up their locks to an earlier one.
    pub lock_inversions_total: u64,
    /// Groups whose COMMIT was answered before that of an earlier group.
    pub commit_inversions_total: u64,
    /// Transactions read but not in a group yet, and groups that wait for the commit of another.
    pub waiting_transactions: usize,
    pub waiting_groups: usize,
    /// Why the target can't be reached at the moment.
    pub target_error: Option<String>,
    /// Transactions wait because of [`crate::Tuning::throttle`].
    pub throttled: bool,
    /// Connections on the target that hold locks, or the GTID, for which the group whose turn it is waits.
    pub lock_holders: Vec<u32>,
    /// Tables whose rows had to wait for other groups since the start, most rows first.
    pub held_back: Vec<HeldBack>,
    /// The statement that is being executed.
    pub statement: Option<StatementView>,
}

/// Rows of one table that had to wait for the commit of other groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// `schema.table`; `*` for groups that had to wait for everything before them.
    pub table: String,
    pub groups: u64,
    pub rows: u64,
}

/// A statement that commits implicitly, while it runs.
#[derive(Debug, Clone)]
pub struct StatementView {
    pub gtid: String,
    /// Its first words; the rest may hold values.
    pub statement: String,
    pub since: Instant,
    /// From the target's `events_stages_current`, where that is enabled
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
    /// Microseconds since the epoch, as `ended`.
    pub started: u64,
    pub ended: Option<u64>,
}

impl ApplierStatus {
    /// Shows these.
    #[must_use]
    pub fn new(
        commits: Commits,
        target: Reachability,
        executor: Executor,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let view = ApplierView { executor: Some(executor), ..ApplierView::default() };
        Self {
            clock,
            commits,
            target,
            view: Mutex::new(view),
            running: Mutex::default(),
            sessions: Sessions::default(),
            durations: Arc::default(),
            source: Arc::default(),
            held_back: Mutex::default(),
        }
    }

    /// Counts durations there, and by the clock of this source.
    #[must_use]
    pub fn measuring(self, durations: Arc<ApplierDurations>, source: Arc<SourceStatus>) -> Self {
        let sessions = Sessions::recorded(source.recorder().clone());
        Self { durations, source, sessions, ..self }
    }

    /// Groups that workers have at this moment, for the timeline.
    #[must_use]
    pub fn unfinished(&self) -> Vec<Span> {
        self.sessions.unfinished()
    }

    /// A group that no worker has was executed since `begun`.
    pub(crate) fn executed(&self, group: &Group, begun: Instant) {
        let ended = Instant::now();
        self.durations.note_statement(ended - begun);
        self.source.recorder().record(|| Span {
            track: Track::Statements,
            name: "statement",
            begun,
            ended,
            details: details(group),
        });
    }

    pub(crate) fn durations(&self) -> &ApplierDurations {
        &self.durations
    }

    #[must_use]
    pub fn view(&self) -> ApplierView {
        let mut view = self.view.lock().clone();
        view.executed = self.commits.executed();
        view.statements_total = self.commits.statements_total();
        view.target_error = self.target.why_lost();
        view.target_connected = view.target_error.is_none();
        view.groups.clone_from(&self.running.lock());
        view.sessions = self.sessions.views();
        view.held_back = self.held_back.lock().values().cloned().collect();
        view.held_back.sort_by_key(|held| std::cmp::Reverse((held.rows, held.groups)));
        view
    }

    pub(crate) fn sessions(&self) -> Sessions {
        self.sessions.clone()
    }

    pub(crate) fn pending(&self, scheduler: &Scheduler) {
        let mut view = self.view.lock();
        let oldest = scheduler.oldest_commit();
        if view.oldest_pending.map(|(committed, _)| committed) != oldest {
            view.oldest_pending = oldest.map(|committed| (committed, Instant::now()));
        }
        (view.waiting_transactions, view.waiting_groups) = scheduler.waiting();
    }

    pub(crate) fn throttled(&self, throttled: bool) {
        self.view.lock().throttled = throttled;
    }

    pub(crate) fn locked_by(&self, connections: Vec<u32>) {
        self.view.lock().lock_holders = connections;
    }

    /// Counts a group's rows that wait for another group, by table; with none, the whole group waits for
    /// all before it.
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
        if let Some(arrived) = group.transactions.first().and_then(|first| first.arrived) {
            self.durations.group_formation.note(arrived.elapsed());
        }
        let started = GroupView {
            sequence: group.sequence,
            last: last.relayed.header.clone(),
            transactions: group.transactions.len(),
            bytes: group.bytes(),
            started: self.clock.now_micros(),
            ended: None,
        };
        self.running.lock().insert(group.sequence, started);
    }

    pub(crate) fn committed(&self, group: &Group, mark: Option<LowWaterMark>) {
        // One lock at a time, here and in `view`, so that their order never matters.
        let started = self.running.lock().remove(&group.sequence);
        let now = self.clock.now_micros();
        let first = group.transactions.first().map(|first| &first.relayed.header);
        let age = first.and_then(|first| first.since_commit(now, self.source.clock_ahead()));
        if let Some(age) = age {
            self.durations.end_to_end.note(age);
        }
        let mut view = self.view.lock();
        view.lock_holders.clear();
        view.transactions_total += group.transactions.len() as u64;
        view.groups_total += group.target_transactions();
        for transaction in &group.transactions {
            if transaction.leaves_out_accounts {
                view.accounts_left_out_total += 1;
                // Not its text, and not the account: it may hold a password's digest.
                let gtid = &transaction.relayed.header.gtid;
                info!(%gtid, "account management left out (replicate_accounts = false)");
            }
        }
        for transaction in
            group.transactions.iter().filter(|transaction| transaction.leaves_out_own)
        {
            view.own_left_out_total += 1;
            let gtid = &transaction.relayed.header.gtid;
            info!(%gtid, "statement about schema csa left out: the target keeps its own there");
        }
        for transaction in group.transactions.iter().filter(|transaction| transaction.is_returned) {
            if view.returned_left_out_total == 0 {
                let gtid = &transaction.relayed.header.gtid;
                info!(
                    %gtid,
                    "left out, because it comes from the target's own server; others are only counted"
                );
            }
            view.returned_left_out_total += 1;
        }
        // Out of commit order, the last in that order is shown.
        if view.last_applied.as_ref().is_none_or(|last| group.sequence > last.sequence) {
            view.last_applied = started
                .map(|group| GroupView { ended: Some(now), ..group })
                .or_else(|| view.last_applied.take());
        }
        if let Some(mark) = mark {
            view.committed_ordinal = mark.ordinal;
            view.committed_bytes = mark.cumulative_bytes;
        }
    }

    pub(crate) fn yielded(&self) {
        self.view.lock().lock_inversions_total += 1;
    }

    /// A group was committed, before an earlier one if `is_early`.
    pub(crate) fn committed_early(&self, is_early: bool) {
        self.view.lock().commit_inversions_total += u64::from(is_early);
    }

    pub(crate) fn retried(&self) {
        self.view.lock().retries_total += 1;
    }
}
