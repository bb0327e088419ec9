//! One try to apply and commit a unit; `Worker::apply_unit` (worker.rs) repeats it after a deadlock, a lock
//! wait timeout or a lost connection. Its transaction begins with the update of the channel's row in
//! `csa.checkpoint`, which matches nothing if another daemon has taken the channel over; under the source's
//! GTID that is the fence instead (unit.rs).

use std::sync::Arc;

use csa_provider::planted::{Bug, is_planted};
use csa_scheduler::{AdmittedTransaction, Sequence};

use super::commit_chain::{self, CommitChain};
use super::commit_turn::CommitTurn;
use super::late_tables::{late_rows, whole_tables};
use super::session::WorkerSession;
use super::unit::{Unit, UnitOpening};
use crate::activity::{Entered, SessionState};
use crate::error::{Error, Fence, Invariant, Result};
use crate::options::TargetGtids;
use crate::rows::binlog_statements::{RowImages, Step};
use crate::rows::executor::{Opening, RowExecutor};
use crate::rows::steps::Steps;
use crate::server::row_session;

const ACCESS_DENIED: u16 = 1227;
const WRONG_VALUE: u16 = 1231;

/// How an attempt ended.
pub(super) enum Attempt {
    Committed,
    /// Rolled back, so that an earlier group can have its locks.
    Yielded(Sequence),
}

impl WorkerSession {
    /// One try: everything up to and including the COMMIT.
    pub(super) async fn attempt(
        &mut self,
        unit: &Unit,
        dependency: Sequence,
        entered: &Entered,
    ) -> Result<Attempt> {
        entered.now(SessionState::Preparing);
        let sequence = unit.group.sequence;
        let format = Arc::clone(unit.group.format());
        let mut rows = RowExecutor::new(&self.options, Arc::clone(&self.shared.tables));
        let logs = self.logs(unit);
        let session = self.session().await?;
        session.log(logs).await.map_err(|error| may_not_log(unit, error))?;
        let limit = rows.step_bytes(session);
        rows.prepare(session, &format).await?;
        session.use_bytes(rows.takes_row_images()).await?;
        entered.connected(session.id());
        if unit.is_series() {
            self.attempt_series(unit, &rows, limit, entered).await?;
            return Ok(Attempt::Committed);
        }
        let turn = self.shared.turn.clone();
        if self.is_there(unit).await? {
            entered.waits(SessionState::WaitingForTurn, sequence.previous());
            turn.wait(sequence.previous()).await;
            self.commit(unit, None).await?;
            return Ok(Attempt::Committed);
        }
        entered.waits(SessionState::WaitingForDependency, dependency);
        if dependency > turn.low_water() {
            self.shared.status.held_back(whole_tables(&unit.group));
        }
        // Before BEGIN: the session holds no lock while it waits.
        turn.wait(dependency).await;
        entered.now(SessionState::Preparing);
        // One value for the attempt: rows late by it stay late, even if groups commit meanwhile.
        let low_water = turn.low_water();
        let size = (limit, rows.columns());
        let mut steps =
            Steps::of(&unit.group, unit.range, size, low_water, &entered.progress).await?;
        entered.now(SessionState::Applying);
        if self.may_commit_at_once(unit, &rows)
            && let Some(images) = steps.only()
        {
            let bytes = images.events.len();
            self.send_and_commit(unit, images, &mut rows, entered).await?;
            steps.sent(bytes);
            return Ok(Attempt::Committed);
        }
        self.send(unit, &mut steps, &mut rows, entered).await?;
        if let Some(dependency) = steps.late_dependency {
            entered.waits(SessionState::WaitingForDependency, dependency);
            if dependency > turn.low_water() {
                self.shared.status.held_back(late_rows(&unit.group, low_water));
            }
            if let Err(earlier) = or_yield(turn.wait(dependency), &turn, entered).await {
                return Ok(Attempt::Yielded(earlier));
            }
            entered.now(SessionState::Applying);
            self.send_late(&mut steps, &mut rows).await?;
        }
        // Frees the group's statements while it waits for its turn.
        drop(steps);
        if self.options.preserve_commit_order && !is_planted(Bug::CommitOutOfTurn) {
            let chain = CommitChain::of(unit, &self.options, &self.target);
            let earlier = chain.commits_after(&self.options);
            entered.waits(SessionState::WaitingForTurn, earlier);
            let wait = chain.wait(earlier, &turn, &self.shared.sending);
            let under_way = match or_yield(wait, &turn, entered).await {
                Ok(under_way) => under_way,
                Err(earlier) => return Ok(Attempt::Yielded(earlier)),
            };
            if let Some(previous) = under_way {
                entered.now(SessionState::Committing);
                let commit = commit_chain::commit_after(&previous);
                return match self.commit(unit, Some(&commit)).await {
                    Ok(()) => Ok(Attempt::Committed),
                    Err(error) if is_of_the_fence(&error) => {
                        Ok(Attempt::Yielded(sequence.previous()))
                    }
                    Err(error) => Err(error),
                };
            }
        }
        entered.now(SessionState::Committing);
        self.commit(unit, Some("COMMIT")).await?;
        Ok(Attempt::Committed)
    }

    /// True if the unit came back under a GTID of the target's own, or was committed in a series that
    /// failed later. Under that GTID the server would pass over every statement, the fence too.
    async fn is_there(&mut self, unit: &Unit) -> Result<bool> {
        let may_be_there = |of: &&AdmittedTransaction| of.is_returned || unit.group.is_series();
        match unit.transactions().first().filter(may_be_there) {
            Some(transaction) if self.target.gtids == TargetGtids::Source => {
                let gtid = transaction.relayed.header.gtid.to_string();
                self.session().await?.has_executed(&gtid).await
            }
            _ => Ok(false),
        }
    }

    /// Sends the rows that had to wait for other groups.
    async fn send_late(&mut self, steps: &mut Steps, rows: &mut RowExecutor) -> Result<()> {
        let session = self.session().await?;
        while let Some(images) = steps.next_late() {
            let bytes = images.events.len();
            rows.send(session, None, images).await?;
            steps.sent(bytes);
        }
        Ok(())
    }

    /// True if the unit need not wait for its turn, so that COMMIT can be sent with its rows.
    fn may_commit_at_once(&self, unit: &Unit, rows: &RowExecutor) -> bool {
        let is_next = unit.group.sequence.previous() <= self.shared.turn.low_water();
        rows.takes_row_images()
            && (is_next || !self.options.preserve_commit_order)
            && !is_planted(Bug::CheckpointAfterCommit)
    }

    /// Sends the whole unit in one packet: no round trip between rows and COMMIT.
    async fn send_and_commit(
        &mut self,
        unit: &Unit,
        images: RowImages,
        rows: &mut RowExecutor,
        entered: &Entered,
    ) -> Result<()> {
        let channel = self.options.channel.clone();
        let UnitOpening { mut text, mut statements, is_fenced } = self.opened(unit).await?;
        if is_fenced {
            // Nobody reads the number of matched rows before the COMMIT runs, so the server must: with any
            // other number ELT is NULL, which is an error, and an error ends the packet.
            text.push_str(";SET SESSION completion_type=ELT(ROW_COUNT(),'NO_CHAIN')");
            statements += 1;
        }
        let opening = Opening { text: text.into_bytes(), statements };
        let shared = self.shared.clone();
        let Self { session: Some(session), generation, .. } = self else {
            return Err(Error::Broken(Invariant::CommitHasSession));
        };
        let committing = shared.generation.commit(session, &channel, generation).await?;
        let sent = match is_fenced {
            true => rows.send_and_commit(session, opening, images).await,
            // Without BEGIN the statement is a transaction of its own.
            false => rows.send(session, Some(opening), images).await.map(|_| None),
        };
        let applied = sent.map_err(|error| match is_of_the_fence(&error) {
            true => Error::fenced(&channel, Fence::NothingCommitted),
            false => error,
        })?;
        if let Some(applied) = applied {
            entered.since(SessionState::Committing, applied);
        }
        shared.commits.record(unit.transactions());
        drop(committing);
        self.reached();
        Ok(())
    }

    /// The statements before the unit's rows on this session.
    async fn opened(&mut self, unit: &Unit) -> Result<UnitOpening> {
        let mut opening = self.opening(unit);
        // Our own statements need our own settings.
        if let Some(own) = self.session().await?.leave() {
            opening.text = format!("{own};{}", opening.text);
            opening.statements += row_session::count(&own);
        }
        Ok(opening)
    }

    /// Sends BEGIN, the UPDATE of the checkpoint row and every change, in as few packets as possible.
    async fn send(
        &mut self,
        unit: &Unit,
        steps: &mut Steps,
        rows: &mut RowExecutor,
        entered: &Entered,
    ) -> Result<()> {
        let channel = self.options.channel.clone();
        let UnitOpening { mut text, mut statements, is_fenced } = self.opened(unit).await?;
        if !is_fenced {
            text.push_str(";BEGIN");
            statements += 1;
        }
        let fence = is_fenced.then(|| statements - 1);
        let session = self.session().await?;
        let mut opening = Some(Opening { text: text.into_bytes(), statements });
        while let Some(step) = next_step(unit, steps, entered).await {
            let opened = opening.is_some();
            let mut images_sent = 0;
            let matched = match step? {
                Step::RowImages(images) => {
                    images_sent = images.events.len();
                    rows.send(session, opening.take(), images).await?
                }
                Step::Statement(text) => {
                    let Opening { text: mut statements, .. } = opening.take().unwrap_or_default();
                    if opened {
                        statements.push(b';');
                    }
                    statements.extend_from_slice(&text);
                    let matched = session.run(&statements).await?;
                    session.settled();
                    matched
                }
            };
            steps.sent(images_sent);
            if let Some(fence) = fence.filter(|_| opened) {
                // The packet's rows have run by now; without the checkpoint row they roll back.
                owned(&channel, matched.get(fence))?;
            }
        }
        if let Some(Opening { text, .. }) = opening {
            let matched = session.run(&text).await?;
            session.settled();
            if let Some(fence) = fence {
                owned(&channel, matched.get(fence))?;
            }
        }
        Ok(())
    }

    /// Commits the session's transaction, and records it before a new generation can begin: a
    /// target that comes back without it is then recognised.
    async fn commit(&mut self, unit: &Unit, statement: Option<&str>) -> Result<()> {
        let late = is_planted(Bug::CheckpointAfterCommit).then(|| self.update(unit));
        let shared = self.shared.clone();
        let Self { session: Some(session), generation, options, target, .. } = self else {
            return Err(Error::Broken(Invariant::CommitHasSession));
        };
        let committing = shared.generation.commit(session, &options.channel, generation).await?;
        // If the answer is lost here, `is_committed` asks the checkpoint row.
        if let Some(statement) = statement {
            // One of several transactions of a group is followed by the others.
            let gtid = commit_chain::gtid_of(unit, target);
            let sent = || {
                if unit.is_whole() {
                    shared.sending.sent(unit.group.sequence, gtid);
                }
            };
            session.run_noting(statement, sent).await?;
        }
        if let Some(late) = late {
            session.run(late).await?;
        }
        shared.commits.record(unit.transactions());
        drop(committing);
        self.reached();
        Ok(())
    }
}

/// The next step, which may not have come from the source yet.
async fn next_step(unit: &Unit, steps: &mut Steps, entered: &Entered) -> Option<Result<Step>> {
    let is_growing = unit.group.followed().is_some_and(|followed| followed.is_growing());
    if !is_growing || !steps.is_awaited() {
        return steps.next().await;
    }
    entered.now(SessionState::WaitingForEvents);
    let next = steps.next().await;
    entered.now(SessionState::Applying);
    next
}

/// True if the statement failed that guards the rest of its packet: the one after the UPDATE of the checkpoint
/// row, or the one before a COMMIT that is sent early. Settings of the source's can have the same error.
fn is_of_the_fence(error: &Error) -> bool {
    error.code() == Some(WRONG_VALUE) && error.server_text().full().contains("completion_type")
}

/// The error for a target that does not permit to leave a unit out of its binary log.
fn may_not_log(unit: &Unit, error: Error) -> Error {
    match (error.code(), unit.transactions().first()) {
        (Some(ACCESS_DENIED), Some(transaction)) => Error::Unsupported {
            gtid: transaction.relayed.header.gtid.to_string(),
            what: format!(
                "it comes from the target's own server, and to pass over it needs another privilege \
                 there: GRANT SESSION_VARIABLES_ADMIN ON *.* TO the channel's account ({error})"
            ),
        },
        _ => error,
    }
}

/// Waits for a turn; fails with the earlier group if one asks for this group's locks meanwhile.
async fn or_yield<T>(
    wait: impl Future<Output = T>,
    turn: &CommitTurn,
    entered: &Entered,
) -> std::result::Result<T, Sequence> {
    tokio::pin!(wait);
    loop {
        tokio::select! {
            // A group whose turn has come need not yield any more.
            biased;
            waited = &mut wait => return Ok(waited),
            earlier = entered.yielding.asked() => {
                // The earlier group may have committed since it asked.
                if earlier > turn.low_water() {
                    return Err(earlier);
                }
            }
        }
    }
}

/// Checks that the UPDATE that opens the transaction matched the checkpoint row.
fn owned(channel: &str, matched: Option<&u64>) -> Result<()> {
    match matched {
        // Rows matched, as the link asks for, not rows changed.
        Some(1) => Ok(()),
        _ => Err(Error::fenced(channel, Fence::NothingCommitted)),
    }
}
