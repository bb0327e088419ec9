//! Executes statements that commit implicitly exactly once: definitions, accounts, CREATE TABLE … SELECT
//! with its rows, and the steps of distributed transactions.
//!
//! Each runs under `gtid_next = <its source GTID>`: the target records the GTID together with the
//! statement's effect, so after a crash its own `gtid_executed` shows whether it took effect
//! (<https://dev.mysql.com/doc/refman/en/replication-options-gtids.html>). Where that is not permitted
//! or not known, an entry in `csa.statement` at least records that it was begun. MySQL 5.7 records the GTID
//! after the effect, so there a statement has both.

use std::sync::Arc;

use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::sql_text::Statement;
use csa_scheduler::admission::Verdict;
use csa_scheduler::group::Group;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::attempts::{Attempts, Effect};
use super::execution::{execute, leave};
use super::failure::{Failure, named};
use super::next_steps::{by_hand, ended_otherwise};
use super::parts::Parts;
use super::source_statement::{self, SourceStatement};
use super::{not_transactional, progress};
use crate::error::{Error, ErrorClass, Result};
use crate::options::{ApplierOptions, TargetGtids};
use crate::ownership::intent::{self, Intent};
use crate::ownership::keeper::Keeper;
use crate::rows::discarded;
use crate::rows::executor::RowExecutor;
use crate::server::definitions::tables::TargetTables;
use crate::server::prelude::{DEFINITION_WAITS, LOCK_WAITS};
use crate::server::retry_pause;
use crate::server::session::Session;
use crate::server::target::Target;
use crate::status::ApplierStatus;

/// Executes statements on the session that keeps the channel.
#[derive(Debug)]
pub(crate) struct StatementExecutor {
    parts: Parts,
}

impl StatementExecutor {
    pub(crate) fn new(
        target: Target,
        options: ApplierOptions,
        status: Arc<ApplierStatus>,
        tables: Arc<TargetTables>,
    ) -> Self {
        Self { parts: Parts { target, options, status, tables } }
    }

    /// Executes the group's one transaction and writes the checkpoint.
    ///
    /// # Errors
    /// Errors that stop the channel.
    /// [`Error::Stopping`] where a stop ended its wait for a lock, and nothing of it is done.
    pub(crate) async fn apply(
        &self,
        keeper: &mut Keeper,
        group: &Arc<Group>,
        stop: &CancellationToken,
    ) -> Result<()> {
        if *group.verdict() == Verdict::ReturnedStatement {
            let outcome = self.pass_over(keeper, group, stop).await;
            self.parts.tables.forget();
            return outcome;
        }
        let statement = match group.verdict() {
            Verdict::NotTransactional => not_transactional::read(group)?,
            _ => {
                let Parts { target, options, .. } = &self.parts;
                let (collations, under_gtid) = (&target.collation_map, options.statement_gtids);
                let mut statement = source_statement::read(group, collations, under_gtid)?;
                let tables = options.converging.as_ref();
                let disturbs = tables.and_then(|tables| statement.disturbs(tables));
                statement.refusal = statement.refusal.or(disturbs);
                statement
            }
        };
        self.parts.status.statement_started(&statement.gtid, statement.words.clone());
        let outcome = self.execute_once(keeper, group, &statement, stop).await;
        self.parts.status.statement_ended();
        // Before the commit is reported: then the intake's barrier opens for rows that need this.
        if group.verdict().is_statement() || outcome.is_err() {
            self.parts.tables.forget();
        }
        outcome
    }

    /// Writes the checkpoint after a statement that the target's own server has executed.
    async fn pass_over(
        &self,
        keeper: &mut Keeper,
        group: &Group,
        stop: &CancellationToken,
    ) -> Result<()> {
        let (mut retries, limit) = (0, self.parts.options.transaction_retries);
        let mut conflicts = retry_pause::conflicts();
        let mut backoff = self.parts.options.backoff();
        loop {
            let Err(error) = self.write_unlogged(keeper, group).await else {
                keeper.reached();
                return Ok(());
            };
            match error.class() {
                _ if error.is_brief() && stop.is_cancelled() => return Err(Error::Stopping),
                class if class == ErrorClass::Retry || error.is_brief() && retries < limit => {
                    retries += 1;
                    retry_pause::pause(&mut conflicts, &*self.parts.options.chance).await;
                }
                ErrorClass::Unavailable => keeper.wait_and_regain(&error, &mut backoff).await?,
                _ => return Err(error),
            }
        }
    }

    /// Writes a checkpoint that would come back for ever from the target's binary log, and be written there again.
    async fn write_unlogged(&self, keeper: &mut Keeper, group: &Group) -> Result<()> {
        let is_logged = self.parts.target.gtids == TargetGtids::Own;
        if is_logged {
            keeper.session().log(false).await?;
        }
        keeper.write_checkpoint(group.sequence, &group.executed_after).await?;
        if is_logged {
            keeper.session().log(true).await?;
        }
        Ok(())
    }

    async fn execute_once(
        &self,
        keeper: &mut Keeper,
        group: &Arc<Group>,
        statement: &SourceStatement,
        stop: &CancellationToken,
    ) -> Result<()> {
        let mut retries = 0;
        let mut conflicts = retry_pause::conflicts();
        let mut backoff = self.parts.options.backoff();
        let mut attempts = Attempts::default();
        let mut has_warned = false;
        loop {
            self.parts.status.may_interrupt_statement(!attempts.is_decided());
            let error = match self.attempt(keeper, group, statement, &mut attempts).await {
                Ok(()) => {
                    keeper.reached();
                    // The statement and its checkpoint are committed, so the next start is after it. The
                    // server's own applier stops here, too (ER_INCONSISTENT_ERROR).
                    return attempts
                        .missing
                        .map_or(Ok(()), |code| Err(ended_otherwise(&statement.gtid, code)));
                }
                Err(failure) => Error::from(failure),
            };
            let is_decided = attempts.is_decided();
            let has_waited = error.is_lock_timeout() || error.is_interrupted();
            if stop.is_cancelled() && has_waited && !is_decided {
                return Err(Error::Stopping);
            }
            let may_retry = retries < self.parts.options.transaction_retries && error.is_brief()
                || is_decided && (error.class() == ErrorClass::Retry || has_waited);
            match error.class() {
                // Not counted: whoever holds it, a replica would wait as long as it takes.
                ErrorClass::Retry if error.is_lock_timeout() => {
                    self.parts.status.lock_timeout();
                    debug!(gtid = %statement.gtid, %error, "waiting for the lock again");
                }
                _ if may_retry => {
                    retries += 1;
                    self.parts.status.retried();
                    info!(gtid = %statement.gtid, retries, %error, "statement failed, trying again");
                    retry_pause::pause(&mut conflicts, &*self.parts.options.chance).await;
                }
                // A channel that is built again would not know the effect, and ask about it. What is missing for our own
                // tables, such as room on the disk, is waited for instead.
                ErrorClass::Slow if is_decided => {
                    if !std::mem::replace(&mut has_warned, true) {
                        warn!(gtid = %statement.gtid, %error,
                            "the checkpoint after a statement can't be written, trying again until it can");
                    }
                    self.parts.status.retried();
                    retry_pause::pause(&mut conflicts, &*self.parts.options.chance).await;
                }
                // Not counted as a retry, and the statement may have taken effect: its GTID or entry shows.
                ErrorClass::Unavailable => {
                    debug!(gtid = %statement.gtid, %error, "waiting for the target");
                    attempts.lost();
                    if let Err(error) = keeper.wait_and_regain(&error, &mut backoff).await {
                        let gtid = &statement.gtid;
                        return Err(self.parts.elsewhere(keeper, gtid, &attempts, error).await);
                    }
                }
                _ => {
                    let error = self.explained(error, keeper, group).await;
                    return Err(named(statement, error, keeper.session().vendor()));
                }
            }
        }
    }

    /// Returns the error with a reason that the server does not name.
    async fn explained(&self, error: Error, keeper: &mut Keeper, group: &Group) -> Error {
        let options = &self.parts.options;
        match group.transactions.first().filter(|_| discarded::may_be_why(&error, options)) {
            Some(first) => discarded::explained(error, first, keeper.session(), options).await,
            None => error,
        }
    }

    /// Attempts the statement, or what earlier attempts have left to do.
    async fn attempt(
        &self,
        keeper: &mut Keeper,
        group: &Arc<Group>,
        statement: &SourceStatement,
        attempts: &mut Attempts,
    ) -> std::result::Result<(), Failure> {
        let is_announced = *group.verdict() == Verdict::NotTransactional
            || !self.parts.options.statement_gtids
            || intent::records_late(keeper.session());
        self.restore(keeper.session(), statement, attempts).await?;
        // The COMMIT that wrote the checkpoint has removed the entry, so without this the next attempt
        // would take it for one that was not begun.
        if is_announced && attempts.may_be_committed && has_committed(keeper, group).await? {
            return Ok(());
        }
        if is_announced {
            return self.attempt_announced(keeper, group, statement, attempts).await;
        }
        let rows = RowExecutor::new(&self.parts.options, Arc::clone(&self.parts.tables));
        let patience = self.patience();
        let session = keeper.session();
        let hidden = self.parts.target.gtids.hides_bookkeeping();
        let is_assumed = attempts.may_be_committed
            && matches!(statement.kind, Statement::Xa(_))
            && is_planted(Bug::LostAnswerEndsXa);
        if is_assumed || session.has_executed(&statement.gtid).await? {
            info!(gtid = %statement.gtid, "the target has executed this statement already");
        } else {
            if let Some(refusal) = &statement.refusal {
                return Err(Failure::Statement(by_hand(&statement.gtid, true, refusal)));
            }
            // The server records a statement and its GTID together only with the binary log, so
            // statements are logged even where the rest is kept out of it.
            if hidden {
                session.log(true).await?;
            }
            let connection = session.id();
            // Its GTID shows what became of it.
            let mut sent = false;
            attempts.is_entered = true;
            let outcome = tokio::select! {
                biased;
                outcome = execute(session, group, statement, rows, patience, &mut sent) => outcome,
                never = progress::follow(&self.parts.target, connection, &self.parts.status) => match never {},
            };
            attempts.note(&outcome);
            // Before the outcome is looked at: a failed statement leaves the source's session, too.
            leave(session, true).await?;
            let outcome = match outcome {
                Ok(_) => consume_unused(session, &statement.gtid).await.map_err(Failure::Own),
                Err(error) => Err(Failure::Statement(error)),
            };
            // Before it is looked at, again: the session's later writes of the checkpoint must not get GTIDs
            // of the target's own, which its replicas could not apply.
            if hidden {
                session.log(false).await?;
            }
            attempts.is_entered = false;
            outcome?;
        }
        // A crash before this finds the GTID in gtid_executed, and only this is left to do.
        keeper.write_checkpoint(group.sequence, &group.executed_after).await?;
        Ok(())
    }

    /// Makes the session our own again where the last attempt could not. Our tables would be written in one like the
    /// source's otherwise.
    async fn restore(
        &self,
        session: &mut Session,
        statement: &SourceStatement,
        attempts: &mut Attempts,
    ) -> Result<()> {
        if !attempts.is_entered {
            return Ok(());
        }
        leave(session, statement.under_gtid).await?;
        if self.parts.target.gtids.hides_bookkeeping() {
            session.log(false).await?;
        }
        attempts.is_entered = false;
        Ok(())
    }

    /// Returns the seconds that a definition waits for its tables. A daemon that stands by can't tell a
    /// session with a wait of a year from one whose daemon is gone. With a short wait the server ends the latter
    /// after it.
    fn patience(&self) -> u32 {
        match self.parts.options.standby {
            true => LOCK_WAITS[1],
            false => DEFINITION_WAITS,
        }
    }

    /// Does what is left of a statement, or of rows, that the target does not record with the source's GTID, or only
    /// after them.
    async fn attempt_announced(
        &self,
        keeper: &mut Keeper,
        group: &Arc<Group>,
        statement: &SourceStatement,
        attempts: &mut Attempts,
    ) -> std::result::Result<(), Failure> {
        let gtid = &statement.gtid;
        if attempts.effect == Effect::Nothing {
            keeper.session().run(intent::withdraw(&self.parts.options.channel)).await?;
            attempts.effect = Effect::Unknown;
            self.parts.status.may_interrupt_statement(!attempts.is_decided());
        }
        if attempts.effect == Effect::Unknown {
            match group.verdict() {
                Verdict::NotTransactional => {
                    self.parts.write_group(keeper, group, gtid, attempts).await?;
                }
                _ => self.execute_announced(keeper, group, statement, attempts).await?,
            }
        }
        if statement.under_gtid {
            consume_unused(keeper.session(), gtid).await?;
        }
        self.parts.conclude(keeper, group, gtid).await.map_err(Failure::Own)
    }

    /// Executes a statement, unless an operator says that it took effect.
    async fn execute_announced(
        &self,
        keeper: &mut Keeper,
        group: &Arc<Group>,
        statement: &SourceStatement,
        attempts: &mut Attempts,
    ) -> std::result::Result<(), Failure> {
        let channel = &self.parts.options.channel;
        let rows = RowExecutor::new(&self.parts.options, Arc::clone(&self.parts.tables));
        let patience = self.patience();
        let session = keeper.session();
        let under_gtid = statement.under_gtid;
        if known_of(session, channel, group, statement).await? == Intent::Executed {
            return Ok(());
        }
        if let Some(refusal) = &statement.refusal {
            return Err(Failure::Statement(by_hand(&statement.gtid, under_gtid, refusal)));
        }
        // Committed first: a crash until the checkpoint is written finds the entry, and the operator decides.
        announce(session, channel, statement, attempts).await?;
        let connection = session.id();
        let mut sent = false;
        attempts.is_entered = true;
        let outcome = tokio::select! {
            biased;
            outcome = execute(session, group, statement, rows, patience, &mut sent) => outcome,
            never = progress::follow(&self.parts.target, connection, &self.parts.status) => match never {},
        };
        attempts.note(&outcome);
        attempts.effect = match &outcome {
            Ok(_) => Effect::Whole,
            Err(error) if sent && !is_answer(error) => Effect::Unknown,
            Err(_) => Effect::Nothing,
        };
        leave(session, under_gtid).await?;
        attempts.is_entered = false;
        if let Err(error) = outcome {
            // `leave` succeeded, so the server still answers: the statement failed and had no effect.
            attempts.effect = Effect::Nothing;
            session.run(intent::withdraw(channel)).await?;
            attempts.effect = Effect::Unknown;
            return Err(Failure::Statement(error));
        }
        Ok(())
    }
}

/// Returns true if the checkpoint has the group's transaction.
async fn has_committed(keeper: &mut Keeper, group: &Group) -> Result<bool> {
    match group.transactions.first() {
        Some(first) if !is_planted(Bug::LostAnswerRepeatsStatement) => {
            keeper.has_committed(&first.relayed.header.gtid).await
        }
        _ => Ok(false),
    }
}

/// Returns true for an error that the server has sent, and after which it answers.
fn is_answer(error: &Error) -> bool {
    error.code().is_some() && error.class() != ErrorClass::Unavailable
}

/// Commits the entry of a statement that is about to run, except for one that may be executed again. From now on, and
/// until the statement is sent, an entry is no sign of an effect.
async fn announce(
    session: &mut Session,
    channel: &str,
    statement: &SourceStatement,
    attempts: &mut Attempts,
) -> Result<()> {
    if statement.is_repeatable() {
        attempts.effect = Effect::Nothing;
        return Ok(());
    }
    let entry = match statement.under_gtid {
        true => intent::announce_with_start(session, channel, &statement.gtid).await?,
        false => intent::announce(channel, &statement.gtid),
    };
    attempts.effect = Effect::Nothing;
    let announced = session.run(entry).await.map(drop);
    if announced.as_ref().is_err_and(is_answer) {
        // There is no entry.
        attempts.effect = Effect::Unknown;
    }
    announced
}

/// Returns the state of a statement that is announced.
async fn known_of(
    session: &mut Session,
    channel: &str,
    group: &Group,
    statement: &SourceStatement,
) -> Result<Intent> {
    let (gtid, executed) = (&statement.gtid, &group.executed_after);
    if !statement.under_gtid {
        return intent::find(session, channel, gtid, executed).await;
    }
    if session.has_executed(gtid).await? {
        return Ok(Intent::Executed);
    }
    intent::find_unrecorded(session, channel, gtid, executed).await
}

/// A statement that failed as on the source, or changed nothing, leaves its GTID unused.
async fn consume_unused(session: &mut Session, gtid: &str) -> Result<()> {
    match session.has_executed(gtid).await? {
        true => Ok(()),
        false => session.consume(gtid).await,
    }
}
