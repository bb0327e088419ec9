//! The applier's state, for the status page and metrics. Nothing is decided from it: [`Commits`] and
//! [`Reachability`] hold what others depend on, and this shows it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use csa_provider::binlog::{CommitTimes, GtidSet, TransactionHeader};
use csa_provider::recorder::{Span, Track};
use csa_provider::seams::Clock;
use csa_provider::source::SourceStatus;
use csa_scheduler::admission::{AdmittedTransaction, Omission, Verdict};
use csa_scheduler::group::Group;
use csa_scheduler::low_water::LowWaterMark;
use csa_scheduler::scheduler::Scheduler;
use csa_scheduler::sequence::Sequence;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::info;

use crate::activity::durations::ApplierDurations;
use crate::activity::sessions::{SessionView, Sessions, Work, details};
use crate::commits::Commits;
use crate::options::Executor;
use crate::server::lock_wait::LockWait;
use crate::server::reachability::Reachability;
use crate::server::room::Shortage;

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
    lock_timeout: Mutex<Option<Instant>>,
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
    pub executed: Arc<GtidSet>,
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
    /// Transactions that came back to the target and were not applied again.
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
    /// The time of the next attempt to reach it.
    pub target_next_attempt: Option<Instant>,
    /// Sessions that the target refused with an error.
    pub refused_sessions_total: u64,
    /// Sessions that the channel has to make do with.
    pub shortage: Option<Shortage>,
    /// Transactions wait because of [`crate::Tuning::throttle`].
    pub throttled: bool,
    /// Connections on the target that hold the locks, or the GTID, for which the group in turn waits.
    pub lock_holders: Vec<u32>,
    /// The lock of others for which the channel waits.
    pub lock_wait: Option<LockWait>,
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
    /// The target's number of the connection, once it is being executed.
    pub connection: Option<u32>,
    /// A stop may end its wait for a lock: nothing of it is done then, or the next start finds out what is.
    pub(crate) may_be_interrupted: bool,
    /// The work that the target's `events_stages_current` reports, where that is enabled
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

impl ApplierView {
    /// Counts, and names in the log, what is left out of a transaction.
    fn count_left_out(&mut self, transaction: &AdmittedTransaction) {
        let gtid = &transaction.relayed.header.gtid;
        if transaction.leaves_out_accounts() {
            self.accounts_left_out_total += 1;
            // Not its text, and not the account: it may hold a password's digest.
            info!(%gtid, "account management left out (replicate_accounts = false)");
        }
        match transaction.verdict {
            Verdict::LeftOut(Omission::Own) => {
                self.own_left_out_total += 1;
                info!(%gtid, "statement about schema csa left out: the target keeps its own there");
            }
            Verdict::LeftOut(Omission::Returned) | Verdict::ReturnedStatement => {
                if self.returned_left_out_total == 0 {
                    info!(
                        %gtid,
                        "left out, because it comes from the target's own server; others are only counted"
                    );
                }
                self.returned_left_out_total += 1;
            }
            _ => {}
        }
    }
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
            lock_timeout: Mutex::default(),
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

    /// Counts a group that was executed since `begun` and that no worker has.
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
        view.executed = self.commits.shared_executed();
        view.statements_total = self.commits.statements_total();
        view.target_error = self.target.why_lost();
        view.target_next_attempt = self.target.next_attempt();
        view.refused_sessions_total = self.target.refused_total();
        view.shortage = self.target.room().shortage();
        view.target_connected = view.target_error.is_none();
        view.groups.clone_from(&self.running.lock());
        view.sessions = self.sessions.views();
        view.held_back = self.held_back.lock().values().cloned().collect();
        view.held_back.sort_by_key(|held| std::cmp::Reverse((held.rows, held.groups)));
        // The watch needs up to a second to see that a wait is over.
        if let Some(wait) = &view.lock_wait
            && self.oldest_work().is_none_or(|work| work.what != wait.what)
        {
            view.lock_wait = None;
        }
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

    /// Returns true if the last lookup has shown who has the lock for which the group in turn waits.
    pub(crate) fn is_lock_holder_known(&self) -> bool {
        !self.view.lock().lock_holders.is_empty()
    }

    pub(crate) fn lock_wait(&self, wait: Option<LockWait>) {
        self.view.lock().lock_wait = wait;
    }

    /// Returns the statement that is being executed, or the group whose turn it is.
    pub(crate) fn oldest_work(&self) -> Option<Work> {
        let statement = self.view.lock().statement.clone();
        let Some(view) = statement else { return self.sessions.oldest_work() };
        let StatementView { gtid, statement, since, connection, may_be_interrupted, .. } = view;
        let what = format!("{statement} of transaction {gtid}");
        Some(Work { what, connection, since, may_be_interrupted })
    }

    /// The target's numbers of connections that have work.
    pub(crate) fn connections(&self) -> Vec<u32> {
        let statement = self.view.lock().statement.as_ref().and_then(|one| one.connection);
        let workers = self.sessions.views().into_iter().filter_map(|one| one.connection);
        workers.chain(statement).collect()
    }

    /// Counts an attempt that ended because its time for a lock has passed.
    pub(crate) fn lock_timeout(&self) {
        *self.lock_timeout.lock() = Some(Instant::now());
        self.retried();
    }

    /// One ended so in this time.
    pub(crate) fn had_lock_timeout(&self, within: Duration) -> bool {
        self.lock_timeout.lock().is_some_and(|at| at.elapsed() <= within)
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
            connection: None,
            may_be_interrupted: true,
            work_completed: None,
            work_estimated: None,
        });
    }

    pub(crate) fn statement_begun(&self, connection: u32) {
        if let Some(statement) = self.view.lock().statement.as_mut() {
            statement.connection = Some(connection);
        }
    }

    /// See [`StatementView::may_be_interrupted`].
    pub(crate) fn may_interrupt_statement(&self, may: bool) {
        if let Some(statement) = self.view.lock().statement.as_mut() {
            statement.may_be_interrupted = may;
        }
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
            view.count_left_out(transaction);
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

    /// Counts a group that was rolled back for an earlier one that waits for its locks, or for its session
    /// where none is named.
    pub(crate) fn yielded(&self, earlier: Sequence) {
        self.view.lock().lock_inversions_total += u64::from(earlier > Sequence::default());
    }

    /// A group was committed, before an earlier one if `is_early`.
    pub(crate) fn committed_early(&self, is_early: bool) {
        self.view.lock().commit_inversions_total += u64::from(is_early);
    }

    pub(crate) fn retried(&self) {
        self.view.lock().retries_total += 1;
    }
}
