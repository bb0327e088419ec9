//! Applies one group in one target transaction, together with its checkpoint row.

use std::sync::Arc;

use csa_provider::GtidSet;
use csa_provider::planted::{Bug, is_planted};
use csa_scheduler::Group;
use tracing::info;

use crate::activity::{Entered, SessionState};
use crate::error::failing_row::FailingRow;
use crate::error::transaction::{NOT_TRANSACTIONAL, named};
use crate::error::{Error, ErrorClass, Result};
use crate::group::attempt::Attempt;
use crate::group::session::WorkerSession;
use crate::group::unit::{Unit, UnitOpening};
use crate::rows::failing_row::Failed;
use crate::server::retry_pause;

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
        let unit = Unit {
            group: Arc::clone(group),
            range: (0, group.transactions.len()),
            executed_after: self.own.executed_after(group),
        };
        let outcome = match self.apply_unit(&unit, &entered).await {
            Err(error) if is_not_whole(group, &error) => {
                self.own.rollback().await;
                self.own.shared.turn.wait_before(group.sequence).await;
                Err(not_whole(group, &error))
            }
            Err(error) => {
                // A group that fails out of turn may have met a lock or a row of an earlier group; and
                // somebody may have changed a table on the target. The rollback comes first: the earlier
                // groups that are waited for may need its locks.
                self.own.rollback().await;
                self.own.shared.tables.forget();
                entered.waits(SessionState::WaitingForTurn, group.sequence.previous());
                self.own.shared.turn.wait_before(group.sequence).await;
                entered.now(SessionState::Applying);
                match is_of_one_transaction(&error) {
                    true => self.apply_singly(group, &entered, error).await,
                    false => Err(error),
                }
            }
            other => other,
        };
        self.own.reached();
        if outcome.is_ok() {
            let is_next = self.own.shared.committed(group.sequence);
            // Of COMMITs that the target keeps in order two answers may be read in any.
            let is_early = !is_next && !self.own.options.is_prefix();
            self.own.shared.status.committed_early(is_early);
            self.own.shared.status.durations().note_group(&entered.done());
        }
        outcome
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
            };
            if let Err(error) = self.apply_unit(&unit, entered).await {
                self.own.rollback().await;
                if is_of_one_transaction(&error) {
                    // Looking for the row repeats the changes, and must be able to roll them back.
                    let row = match error.code() {
                        Some(NOT_TRANSACTIONAL) => None,
                        _ => self.failing_row(&unit).await,
                    };
                    return Err(named(transaction, &error, row));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The row at which a transaction failed, if it can be found.
    async fn failing_row(&mut self, unit: &Unit) -> Option<Box<FailingRow>> {
        let (options, tables) = (self.own.options.clone(), Arc::clone(&self.own.shared.tables));
        let UnitOpening { text, statements, .. } = self.own.own_opening(unit);
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
        loop {
            let error = match self.own.attempt(unit, dependency, entered).await {
                Ok(Attempt::Committed) => return Ok(()),
                Ok(Attempt::Yielded(earlier)) => {
                    // Not counted as a retry: the next attempt begins after that group.
                    dependency = dependency.max(earlier);
                    self.own.shared.status.yielded();
                    self.own.rollback().await;
                    continue;
                }
                Err(error) => error,
            };
            match error.class() {
                ErrorClass::Retry if retries < self.own.options.transaction_retries => {
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
                }
                _ => return Err(self.fenced_rather_than(error).await),
            }
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

/// True if the group's transaction was begun while it was being received, and is not whole: whatever is
/// wrong with it shows again once it is, and if its end never comes, it was not wrong.
fn is_not_whole(group: &Group, error: &Error) -> bool {
    let is_fenced = matches!(error, Error::Fenced { .. });
    !is_fenced && group.followed().is_some_and(|followed| followed.give_up())
}

fn not_whole(group: &Group, error: &Error) -> Error {
    let gtid = group.span().0.to_string();
    info!(sequence = group.sequence.get(), %gtid, %error, "rolled back: its end has not come");
    Error::NotWhole { gtid, why: error.to_string() }
}

/// True if an error is about the contents of a transaction, so that the group must be taken apart.
fn is_of_one_transaction(error: &Error) -> bool {
    error.code().is_some() && error.class() != ErrorClass::Unavailable
}

#[cfg(test)]
#[path = "worker_tests.rs"]
pub(crate) mod tests;
