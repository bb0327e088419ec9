//! Applies one group in one target transaction, together with its checkpoint row.

use std::sync::Arc;

use csa_provider::{Backoff, GtidSet};
use csa_scheduler::Group;
use tracing::{info, warn};

use crate::activity::{Entered, SessionState, Sessions};
use crate::commits::Commits;
use crate::error::failing_row::FailingRow;
use crate::error::transaction::{NOT_TRANSACTIONAL, named};
use crate::group::attempt::Attempt;
use crate::group::commit_turn::CommitTurn;
use crate::group::unit::Unit;
use crate::options::ApplierOptions;
use crate::ownership::reconnect::worker_session;
use crate::reachability::{Party, Reachability};
use crate::rows::failing_row::Failed;
use crate::status::ApplierStatus;
use crate::target::definitions::tables::TargetTables;
use crate::target::generation::Generation;
use crate::target::port::Target;
use crate::target::retry;
use crate::target::session::Session;
use crate::{Error, ErrorClass, Result};

/// A worker owns one session and one checkpoint row.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) index: u16,
    pub(super) epoch: u64,
    pub(super) target: Target,
    pub(super) options: ApplierOptions,
    pub(super) shared: Shared,
    pub(super) session: Option<Session>,
    /// The generation that the session was last seen to belong to.
    pub(super) generation: u64,
    /// The worker found the target lost, and has committed nothing since.
    pub(super) is_lost: bool,
}

/// State that the workers of a channel share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) commits: Commits,
    pub(crate) target: Reachability,
    pub(crate) status: Arc<ApplierStatus>,
    pub(crate) turn: CommitTurn,
    pub(crate) sessions: Sessions,
    pub(crate) tables: Arc<TargetTables>,
    pub(crate) generation: Generation,
}

impl Worker {
    pub(crate) fn new(
        index: u16,
        epoch: u64,
        target: Target,
        options: ApplierOptions,
        shared: Shared,
    ) -> Self {
        Self { index, epoch, target, options, shared, session: None, generation: 0, is_lost: false }
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    /// Applies and commits a group of row transactions in its turn. `Ok` means that it is committed; if
    /// this is cancelled or fails, the group is not committed, or the checkpoint row has it.
    ///
    /// # Errors
    /// The error that stops the channel, once everything before the failing transaction is committed.
    pub(crate) async fn apply(&mut self, group: &Arc<Group>) -> Result<()> {
        let entered = self.shared.sessions.enter(self.index, group.sequence);
        let unit = Unit {
            group: Arc::clone(group),
            range: (0, group.transactions.len()),
            executed_after: self.executed_after(group),
        };
        let outcome = match self.apply_unit(&unit, &entered).await {
            Err(error) => {
                // A group that fails out of turn may have met a lock or a row of an earlier group; and
                // somebody may have changed a table on the target. The rollback comes first: the earlier
                // groups that are waited for may need its locks.
                self.rollback().await;
                self.shared.tables.forget();
                entered.now(SessionState::WaitingForTurn);
                self.shared.turn.wait_before(group.sequence).await;
                entered.now(SessionState::Applying);
                match is_of_one_transaction(&error) {
                    true => self.apply_singly(group, &entered, error).await,
                    false => Err(error),
                }
            }
            other => other,
        };
        self.reached();
        if outcome.is_ok() {
            self.shared.turn.committed(group.sequence);
        }
        outcome
    }

    pub(super) fn reached(&mut self) {
        if std::mem::take(&mut self.is_lost) {
            self.shared.target.reached(Party::Worker(self.index));
        }
    }

    /// Drops a lost session, asks for a check of the control session, and waits.
    pub(super) async fn lost(&mut self, error: &Error, backoff: &mut Backoff) {
        self.session = None;
        self.is_lost = true;
        if self.shared.target.lost(Party::Worker(self.index), error) {
            warn!(worker = self.index, %error, "target unavailable, waiting for it");
        }
        self.shared.generation.suspect();
        tokio::select! {
            () = tokio::time::sleep(backoff.pause()) => {}
            () = self.shared.generation.next() => {}
        }
    }

    /// The set that the checkpoint row states with the group. Out of commit order it can only state what
    /// is known to be committed, and the rows of all workers together are the checkpoint.
    pub(super) fn executed_after(&self, group: &Group) -> GtidSet {
        if self.options.preserve_commit_order {
            return group.executed_after.clone();
        }
        let mut executed = self.shared.commits.executed();
        for transaction in &group.transactions {
            executed.add(&transaction.relayed.header.gtid);
        }
        executed
    }

    /// Finds the failing transaction of a group by applying each one alone, in order.
    async fn apply_singly(
        &mut self,
        group: &Arc<Group>,
        entered: &Entered,
        error: Error,
    ) -> Result<()> {
        // The set without the group's own GTIDs: each is added when its turn comes.
        let mut executed = self.executed_after(group);
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
            let unit = Unit {
                group: Arc::clone(group),
                range: (index, index + 1),
                executed_after: executed.clone(),
            };
            if let Err(error) = self.apply_unit(&unit, entered).await {
                self.rollback().await;
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
        let (options, tables) = (self.options.clone(), Arc::clone(&self.shared.tables));
        let failed = Failed {
            group: &unit.group,
            range: unit.range,
            options: &options,
            tables: &tables,
            opening: self.own_opening(unit),
        };
        let session = self.session().await.ok()?;
        match failed.find(session).await {
            Ok(row) => row.map(Box::new),
            Err(error) => {
                self.session = None;
                info!(%error, "could not find the row at which it failed");
                None
            }
        }
    }

    async fn apply_unit(&mut self, unit: &Unit, entered: &Entered) -> Result<()> {
        let mut retries = 0;
        let mut conflicts = retry::conflicts();
        let mut backoff = self.options.backoff();
        let mut dependency = unit.group.dependency;
        loop {
            let error = match self.attempt(unit, dependency, entered).await {
                Ok(Attempt::Committed) => return Ok(()),
                Ok(Attempt::Yielded(earlier)) => {
                    dependency = dependency.max(earlier);
                    self.shared.status.yielded();
                    self.rollback().await;
                    continue;
                }
                Err(error) => error,
            };
            match error.class() {
                ErrorClass::Retry if retries < self.options.transaction_retries => {
                    retries += 1;
                    self.shared.status.retried();
                    self.rollback().await;
                    let sequence = unit.group.sequence.get();
                    info!(sequence, retries, %error, "rolled back, trying again");
                    retry::pause(&mut conflicts).await;
                }
                ErrorClass::Unavailable => {
                    self.lost(&error, &mut backoff).await;
                    if self.is_committed(unit).await? {
                        return Ok(());
                    }
                }
                _ => return Err(error),
            }
        }
    }

    pub(super) async fn session(&mut self) -> Result<&mut Session> {
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let generation = &self.shared.generation;
                let channel = &self.options.channel;
                let (session, number) =
                    worker_session(&self.target, generation, channel, self.index).await?;
                self.generation = number;
                info!(
                    worker = self.index,
                    connection = session.id(),
                    "session on the target opened"
                );
                session
            }
        };
        Ok(self.session.insert(session))
    }

    /// Rolls back and restores our settings; a session that can't do so is dropped.
    async fn rollback(&mut self) {
        if let Some(session) = self.session.as_mut()
            && (session.run("ROLLBACK").await.is_err() || session.leave_now().await.is_err())
        {
            self.session = None;
        }
    }

    pub(crate) async fn close(mut self) {
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}

/// True if an error is about the contents of a transaction, so that the group must be taken apart.
fn is_of_one_transaction(error: &Error) -> bool {
    error.code().is_some() && error.class() != ErrorClass::Unavailable
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
