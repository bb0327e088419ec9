//! The applier's state, for the status page and metrics.

pub(crate) mod activity;

use std::collections::BTreeMap;
use std::time::SystemTime;

use csa_provider::{CommitTimes, GtidSet, TransactionHeader};
use csa_scheduler::{AdmittedTransaction, Group, GroupKind, LowWaterMark, Scheduler, Sequence};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::info;

use crate::checkpoint::Checkpoint;
use crate::{Error, Executor};
use activity::{SessionView, Sessions};

/// A user of the target that may have lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Control,
    Catalogue,
    Worker(u16),
}

/// Shared by the applier, which writes it, and the status page, which reads it.
#[derive(Debug, Default)]
pub struct ApplierStatus {
    view: Mutex<ApplierView>,
    /// Groups that workers have, with their times.
    running: Mutex<BTreeMap<Sequence, GroupView>>,
    sessions: Sessions,
    /// Statements committed so far.
    statements: watch::Sender<u64>,
    /// Groups and rows that had to wait for others, by table.
    held_back: Mutex<BTreeMap<String, HeldBack>>,
    /// Why the target can't be reached or written to, by party. That one can read proves nothing for
    /// another that can't write: each removes only its own entry.
    lost: Mutex<BTreeMap<Party, String>>,
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
    pub sequence: Sequence,
    /// The first group that is running.
    pub applying: Option<GroupView>,
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
    pub retries_total: u64,
    /// Groups that gave up their locks to an earlier one.
    pub lock_inversions_total: u64,
    /// Transactions read but not in a group yet, and groups that wait for the commit of another.
    pub waiting_transactions: usize,
    pub waiting_groups: usize,
    /// Why the target can't be reached at the moment.
    pub target_error: Option<String>,
    /// Transactions wait because of [`crate::Tuning::throttle`].
    pub throttled: bool,
    /// Connections on the target that hold locks for which the group whose turn it is waits.
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
    pub started: SystemTime,
    pub ended: Option<SystemTime>,
}

impl ApplierStatus {
    /// Starts from a checkpoint.
    #[must_use]
    pub fn new(checkpoint: &Checkpoint, executor: Executor) -> Self {
        let view = ApplierView {
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
        view.target_error = self.lost.lock().first_key_value().map(|(_, why)| why.clone());
        view.target_connected = view.target_error.is_none();
        view.applying = self.running.lock().first_key_value().map(|(_, group)| group.clone());
        view.sessions = self.sessions.views();
        view.held_back = self.held_back.lock().values().cloned().collect();
        view.held_back.sort_by_key(|held| std::cmp::Reverse((held.rows, held.groups)));
        view
    }

    /// True if everything in `set` is committed on the target.
    #[must_use]
    pub fn has_executed(&self, set: &GtidSet) -> bool {
        set.is_subset_of(&self.view.lock().executed)
    }

    /// The group with this number, while it runs.
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

    /// Statements committed so far.
    #[must_use]
    pub fn statements(&self) -> watch::Receiver<u64> {
        self.statements.subscribe()
    }

    /// True if the target is known to be away.
    #[must_use]
    pub fn is_target_lost(&self) -> bool {
        !self.lost.lock().is_empty()
    }

    /// Records these as committed on the target. A worker calls it while it holds the generation
    /// open, so the next one begins with them known.
    pub(crate) fn applied(&self, transactions: &[AdmittedTransaction]) {
        let mut view = self.view.lock();
        for transaction in transactions {
            view.executed.add(&transaction.relayed.header.gtid);
        }
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
            self.statements.send_modify(|statements| *statements += 1);
        }
    }

    pub(crate) fn yielded(&self) {
        self.view.lock().lock_inversions_total += 1;
    }

    pub(crate) fn retried(&self) {
        self.view.lock().retries_total += 1;
    }

    /// True if no other party knew it: the first to find out logs it.
    pub(crate) fn target_lost(&self, party: Party, error: &Error) -> bool {
        let mut lost = self.lost.lock();
        let is_news = lost.is_empty();
        lost.insert(party, error.to_string());
        is_news
    }

    pub(crate) fn target_reached(&self, party: Party) {
        self.lost.lock().remove(&party);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_does_not_speak_for_who_writes() {
        let status = ApplierStatus::new(&Checkpoint::default(), Executor::Sql);
        assert!(status.view().target_connected);
        let error = |text: &str| Error::Held { channel: "c".to_owned(), what: text.to_owned() };
        assert!(status.target_lost(Party::Worker(1), &error("read-only")), "news");
        assert!(!status.target_lost(Party::Control, &error("away")), "known already");
        status.target_reached(Party::Control);
        status.target_reached(Party::Catalogue);
        let view = status.view();
        assert!(!view.target_connected && status.is_target_lost());
        assert!(view.target_error.is_some_and(|why| why.contains("read-only")));
        status.target_reached(Party::Worker(1));
        assert!(status.view().target_connected && !status.is_target_lost());
    }
}
