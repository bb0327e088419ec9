//! Applies one group in one target transaction, together with its checkpoint row.

use std::sync::Arc;

use csa_provider::binlog::GtidSet;
use csa_provider::seams::planted::{Bug, is_planted};
use csa_scheduler::admission::AdmittedTransaction;
use csa_scheduler::group::Group;
use csa_scheduler::sequence::Sequence;
use tracing::{debug, info, warn};

use crate::activity::sessions::{Entered, SessionState};
use crate::error::failing_row::FailingRow;
use crate::error::transaction::{NOT_TRANSACTIONAL, named};
use crate::error::{Error, ErrorClass, Result};
use crate::group::attempt::Unfinished;
use crate::group::gtid_use::{Committed, is_unused};
use crate::group::lock_inversion;
use crate::group::unit::{Unit, UnitOpening};
use crate::group::worker_session::{SharedWorkerState, WorkerSession};
use crate::rows::discarded;
use crate::rows::dml::codes;
use crate::rows::failing_row::Failed;
use crate::server::retry_pause;

/// `ER_RUN_HOOK_ERROR`: a group's plugin refuses a COMMIT, for the size of the transaction or because the member is not
/// ready.
const REFUSED_BY_GROUP: u16 = 3100;
/// `ER_KEY_NOT_FOUND`, the duplicates (`ER_DUP_ENTRY`, `ER_DUP_UNIQUE`, `ER_DUP_ENTRY_WITH_KEY_NAME`) and the foreign
/// keys (`ER_ROW_IS_REFERENCED`, `ER_NO_REFERENCED_ROW`, both also with a 2).
const OF_ROWS_BEFORE: [u16; 8] = [1032, 1062, 1169, 1586, 1217, 1216, 1451, 1452];
/// `ER_WRITE_SET_EXCEEDS_LIMIT`.
const TOO_LARGE: u16 = 3231;

/// Applies groups, one after another.
#[derive(Debug)]
pub(crate) struct Worker {
    own: WorkerSession,
}

impl Worker {
    pub(crate) fn new(own: WorkerSession) -> Self {
        Self { own }
    }

    pub(crate) fn index(&self) -> u16 {
        self.own.index
    }

    /// Applies and commits a group of row transactions in its turn. `Ok` means that it is committed; if
    /// this is cancelled or fails, the group is not committed, or the checkpoint row has it.
    ///
    /// # Errors
    /// The error that stops the channel, once everything before the failing transaction is committed.
    pub(crate) async fn apply(&mut self, group: &Arc<Group>) -> Result<()> {
        let entered = self.own.shared.sessions.enter(self.own.index, group);
        self.own.sequence = group.sequence;
        let outcome = self.apply_entered(group, &entered).await;
        self.own.reached();
        if outcome.is_ok() {
            let is_next = self.own.shared.committed(group.sequence);
            // The answers to two COMMITs that the target keeps in order may be read in either order.
            let is_early = !is_next && !self.own.options.preserve_commit_order;
            self.own.shared.status.committed_early(is_early);
            self.own.shared.status.durations().note_group(&entered.done());
        }
        self.own.park().await;
        outcome
    }

    async fn apply_entered(&mut self, group: &Arc<Group>, entered: &Entered) -> Result<()> {
        let unit = Unit {
            group: Arc::clone(group),
            range: (0, group.transactions.len()),
            executed_after: self.own.executed_after(group),
            is_as_logged: false,
        };
        match self.apply_unit(&unit, entered).await {
            Err(error) if is_not_whole(group, &error) => {
                self.own.rollback().await;
                self.turn_of(group, entered).await;
                Err(not_whole(group, &error))
            }
            Err(error) => {
                // A group that fails out of turn may have met a lock or a row of an earlier group; and
                // somebody may have changed a table on the target. The rollback comes first: the earlier
                // groups that are waited for may need its locks.
                self.own.rollback().await;
                self.own.shared.tables.forget();
                entered.waits(SessionState::WaitingForTurn, group.sequence.previous());
                self.turn_of(group, entered).await;
                entered.now(SessionState::Applying);
                match error.is_of_transaction() {
                    true => self.apply_singly(group, entered, error).await,
                    false => Err(error),
                }
            }
            other => other,
        }
    }

    /// Waits for the turn of a group that has nothing open on the target.
    async fn turn_of(&mut self, group: &Group, entered: &Entered) {
        let (turn, waits) = (self.own.shared.turn.clone(), self.own.waits());
        while waits.or_yield(turn.wait_before(group.sequence), entered).await.is_err() {
            self.own.give_up().await;
        }
    }

    /// Finds the failing transaction of a group by applying each one alone, in order.
    async fn apply_singly(
        &mut self,
        group: &Arc<Group>,
        entered: &Entered,
        error: Error,
    ) -> Result<()> {
        // The set without the group's own GTIDs: each is added when its turn comes.
        let mut executed = self.own.executed_after(group);
        for transaction in &group.transactions {
            let mut one = GtidSet::new();
            one.add(&transaction.relayed.header.gtid);
            executed.subtract(&one);
        }
        info!(
            sequence = group.sequence.get(),
            transactions = group.transactions.len(),
            %error,
            "group failed, applying its transactions one by one"
        );
        for (index, transaction) in group.transactions.iter().enumerate() {
            executed.add(&transaction.relayed.header.gtid);
            // All state the group's number: after a crash the GTID set decides what is left.
            let unit = Unit {
                group: Arc::clone(group),
                range: (index, index + 1),
                executed_after: executed.clone(),
                is_as_logged: false,
            };
            if let Err(error) = self.apply_merged_or_as_logged(&unit, entered).await {
                self.own.rollback().await;
                let error = self.explained(error, transaction).await;
                if error.is_of_transaction() {
                    // Looking for the row repeats the changes, and must be able to roll them back.
                    let row = match error.code() {
                        Some(NOT_TRANSACTIONAL | TOO_LARGE | codes::NOT_BY_ENGINE) => None,
                        _ => self.failing_row(&unit).await,
                    };
                    return Err(named(transaction, &error, row));
                }
                return Err(error);
            }
        }
        self.own.shared.commits.doubt_definitions();
        Ok(())
    }

    /// Applies one transaction, whose changes are merged. If the target refuses a row in their order, it may take the
    /// order of the source.
    async fn apply_merged_or_as_logged(&mut self, unit: &Unit, entered: &Entered) -> Result<()> {
        let refused = match self.apply_unit(unit, entered).await {
            Err(error) if unit.group.is_keyed() && may_be_of_order(&error) => error,
            other => return other,
        };
        self.own.rollback().await;
        let as_logged = Unit { is_as_logged: true, ..unit.clone() };
        let outcome = self.apply_unit(&as_logged, entered).await;
        if outcome.is_ok() {
            let gtid = unit.group.transactions.get(unit.range.0);
            let gtid = gtid.map(|transaction| transaction.relayed.header.gtid.to_string());
            warn!(gtid, %refused, "a row was refused in the order of the merge, and not in that of the source");
        }
        outcome
    }

    /// Returns the error with a reason that the server does not name.
    async fn explained(&mut self, error: Error, transaction: &AdmittedTransaction) -> Error {
        let options = self.own.options.clone();
        if !discarded::may_be_why(&error, &options) {
            return error;
        }
        match self.own.session().await {
            Ok(session) => discarded::explained(error, transaction, session, &options).await,
            Err(_) => error,
        }
    }

    /// Returns the row at which a transaction failed, if it can be found.
    async fn failing_row(&mut self, unit: &Unit) -> Option<Box<FailingRow>> {
        let (options, tables) = (self.own.options.clone(), Arc::clone(&self.own.shared.tables));
        let UnitOpening { text, statements, .. } = self.own.own_opening(unit).with_version();
        let failed = Failed {
            group: &unit.group,
            range: unit.range,
            options: &options,
            tables: &tables,
            opening: (text, statements - 1),
        };
        let session = self.own.session().await.ok()?;
        match failed.find(session).await {
            Ok(row) => row.map(Box::new),
            Err(error) => {
                self.own.session = None;
                info!(%error, "could not find the row at which it failed");
                None
            }
        }
    }

    async fn apply_unit(&mut self, unit: &Unit, entered: &Entered) -> Result<()> {
        let mut retries = 0;
        let mut conflicts = retry_pause::conflicts();
        let mut backoff = self.own.options.backoff();
        let mut dependency = unit.group.dependency;
        let mut committed = Committed::ByStatement;
        let (mut refusals, mut is_doubted) = (0, false);
        loop {
            let tried = self.own.attempt(unit, dependency, committed, entered).await;
            if is_doubted && self.own.is_committed_late(unit, &tried).await? {
                return Ok(());
            }
            let error = match tried {
                Ok(()) => return Ok(()),
                Err(Unfinished::Yielded(earlier)) => {
                    // Not counted as a retry: the next attempt begins after that group.
                    dependency = dependency.max(earlier);
                    self.own.shared.status.yielded(earlier);
                    self.own.rollback().await;
                    self.own.give_up().await;
                    continue;
                }
                // Not counted either: no row is in the way.
                Err(Unfinished::Failed(error))
                    if committed == Committed::ByStatement && is_unused(&error) =>
                {
                    committed = Committed::Explicitly;
                    self.own.rollback().await;
                    continue;
                }
                Err(Unfinished::Failed(error)) => error,
            };
            match error.class() {
                // Not counted: a session of others lets the lock go some day, and one of ours yields.
                ErrorClass::Retry if error.is_lock_timeout() => {
                    self.own.shared.status.lock_timeout();
                    self.have_others_yield(unit.group.sequence);
                    self.own.rollback().await;
                    let sequence = unit.group.sequence.get();
                    debug!(sequence, %error, "rolled back, waiting for the lock again");
                    retry_pause::pause(&mut conflicts, &*self.own.options.chance).await;
                }
                _ if error.is_brief() && retries < self.own.options.transaction_retries => {
                    retries += 1;
                    self.own.shared.status.retried();
                    self.own.rollback().await;
                    if is_planted(Bug::RolledBackNotRetried) {
                        return Ok(());
                    }
                    let sequence = unit.group.sequence.get();
                    info!(sequence, retries, %error, "rolled back, trying again");
                    retry_pause::pause(&mut conflicts, &*self.own.options.chance).await;
                }
                ErrorClass::Unavailable => {
                    // Not counted either: an outage says nothing about the transaction.
                    self.own.lost(&error, &mut backoff).await;
                    if !is_planted(Bug::LostAnswerIsFailure) && self.own.is_committed(unit).await? {
                        return Ok(());
                    }
                    is_doubted = !is_planted(Bug::LostAnswerIsFailure);
                    refusals += u32::from(error.code() == Some(REFUSED_BY_GROUP));
                    // The target was seen to take writes in between.
                    if refusals > 1 {
                        return Err(too_large_for_group());
                    }
                }
                _ => return Err(self.fenced_rather_than(error).await),
            }
        }
    }

    /// Has all later groups yield to one whose turn it is and whose wait for a lock has failed, if its holder is not known.
    /// Servers show no locks while performance_schema is off, and some never show those of tables.
    fn have_others_yield(&self, sequence: Sequence) {
        let SharedWorkerState { turn, status, sessions, .. } = &self.own.shared;
        if sequence.previous() <= turn.low_water() && !status.is_lock_holder_known() {
            lock_inversion::unseen(sequence, sessions);
        }
    }

    /// A packet's rows run before the answer to its fence is seen: rows of a daemon that has lost the channel
    /// may fail because its successor has written them. The operator must not take that for a conflict.
    async fn fenced_rather_than(&mut self, error: Error) -> Error {
        if error.code().is_none() {
            return error;
        }
        self.own.rollback().await;
        match self.own.own_row().await {
            Err(fenced @ Error::Fenced { .. }) => fenced,
            _ => error,
        }
    }

    pub(crate) async fn close(self) {
        self.own.close().await;
    }
}

/// Returns true if the group's transaction was begun while it was being received, and is not whole. Whatever is
/// wrong with it shows again once it is whole, and if its end never comes, it was not wrong.
fn is_not_whole(group: &Group, error: &Error) -> bool {
    let is_fenced = matches!(error, Error::Fenced { .. });
    !is_fenced && group.followed().is_some_and(|followed| followed.give_up())
}

/// Returns true for what the target says of a row that depends on the rows before it.
fn may_be_of_order(error: &Error) -> bool {
    error.code().is_some_and(|code| OF_ROWS_BEFORE.contains(&code))
}

fn too_large_for_group() -> Error {
    let message = "the target's group refused it twice at COMMIT (error 3100), and served in between: it is larger \
         than group_replication_transaction_size_limit. Raise the limit on each member; 0 leaves the protocol's own of 2 GiB";
    Error::Rows { code: TOO_LARGE, message: message.to_owned() }
}

fn not_whole(group: &Group, error: &Error) -> Error {
    let gtid = group.span().0.to_string();
    info!(sequence = group.sequence.get(), %gtid, %error, "rolled back: its end has not arrived");
    Error::NotWhole { gtid, why: error.to_string() }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
pub(crate) mod tests;
