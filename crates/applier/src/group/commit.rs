//! The ways to a commit. Each unit takes one of them:
//!
//! 1. `commit_series` (series.rs) sends many transactions that commit one by one.
//! 2. `pass_over` commits nothing: the target has the unit already, and only its turn is passed on.
//! 3. `commit_with_rows` sends the rows and their COMMIT in one packet, where the unit need not wait for its turn.
//! 4. `commit_with_last` does so with the last of the rows that had to wait for the group before.
//! 5. `commit_chained` sends COMMIT while the one before it is under way; the target keeps them in order
//!    (commit_chain.rs).
//! 6. `commit_in_turn` sends COMMIT once everything before it is committed, or, out of commit order, at once.
//!
//! Transactions that run alone, on the session that keeps the channel, end in crate::statement.

use csa_provider::seams::planted::{Bug, is_planted};

use super::attempt::{Tried, Unfinished};
use super::commit_chain::CommitChain;
use super::gtid_use::proof;
use super::unit::{Unit, UnitOpening};
use super::worker_session::WorkerSession;
use crate::activity::sessions::{Entered, SessionState};
use crate::error::{Error, Fence, Invariant, Result};
use crate::options::TargetGtids;
use crate::rows::binlog_statements::RowImages;
use crate::rows::executor::{Opening, RowExecutor};
use crate::server::session::Session;

const WRONG_VALUE: u16 = 1231;

impl WorkerSession {
    /// Passes over a unit that the target has, in its turn.
    pub(super) async fn pass_over(&mut self, unit: &Unit, entered: &Entered) -> Tried {
        self.wait_for_turn(&unit.group, entered).await?;
        Ok(self.commit(unit, None, None).await?)
    }

    /// Returns true if the unit need not wait for its turn, so that COMMIT can be sent with its rows.
    pub(super) fn may_commit_at_once(&self, unit: &Unit, rows: &RowExecutor) -> bool {
        let is_next = unit.group.sequence.previous() <= self.shared.turn.low_water();
        rows.takes_row_images()
            && (is_next || !self.options.preserve_commit_order)
            && !is_planted(Bug::CheckpointAfterCommit)
    }

    /// Sends the whole unit in one packet: no round trip between rows and COMMIT.
    pub(super) async fn commit_with_rows(
        &mut self,
        unit: &Unit,
        images: RowImages,
        rows: &mut RowExecutor,
        entered: &Entered,
    ) -> Result<()> {
        let channel = self.options.channel.clone();
        let opening = self.opening_here(unit).await?;
        let UnitOpening { mut text, mut statements, is_fenced, version } = opening;
        if is_fenced {
            // Nobody reads the number of matched rows before the COMMIT runs, so the server must: with any
            // other number ELT is NULL, which is an error, and an error ends the packet. Each statement of a
            // packet has an answer of its own, so one sets both.
            let version = version.map(|version| version + ",").unwrap_or_default();
            let fence = "completion_type=ELT(ROW_COUNT(),'NO_CHAIN')";
            text.push_str(&format!(";SET SESSION {version}{fence}"));
            statements += 1;
        }
        let opening = Opening { text: text.into_bytes(), statements };
        // Without BEGIN the rows are a transaction of their own.
        let end = if is_fenced { "COMMIT" } else { proof() };
        let send = async |session: &mut Session| {
            let sent = rows.send_and_end(session, opening, images, end).await;
            sent.map_err(|error| match is_of_the_fence(&error) {
                true => Error::fenced(&channel, Fence::NothingCommitted),
                false => error,
            })
        };
        let applied = self.record(unit, send).await?;
        if let Some(applied) = applied.filter(|_| is_fenced) {
            entered.since(SessionState::Committing, applied);
        }
        Ok(())
    }

    /// Returns true if the rows that are left can be sent with the COMMIT. Under the source's GTID that has to find out
    /// more.
    pub(super) fn may_commit_with_last(&self, unit: &Unit, rows: &RowExecutor) -> bool {
        self.target.gtids != TargetGtids::Source && self.may_commit_at_once(unit, rows)
    }

    /// Sends the rows that are left and COMMIT in one packet: all later groups wait for this one.
    pub(super) async fn commit_with_last(
        &mut self,
        unit: &Unit,
        last: RowImages,
        rows: &mut RowExecutor,
        entered: &Entered,
    ) -> Result<()> {
        let send = async |session: &mut Session| {
            rows.send_and_end(session, Opening::default(), last, "COMMIT").await
        };
        if let Some(applied) = self.record(unit, send).await? {
            entered.since(SessionState::Committing, applied);
        }
        Ok(())
    }

    /// Commits a unit whose rows were sent.
    pub(super) async fn commit_in_turn(&mut self, unit: &Unit, entered: &Entered) -> Tried {
        if self.options.preserve_commit_order && !is_planted(Bug::CommitOutOfTurn) {
            if let Some(chain) = CommitChain::of(unit, &self.options, &self.target) {
                return self.commit_chained(unit, chain, entered).await;
            }
            self.wait_for_turn(&unit.group, entered).await?;
        }
        entered.now(SessionState::Committing);
        Ok(self.commit(unit, Some("COMMIT"), None).await?)
    }

    /// Commits after the transaction before this one, whose COMMIT may still be under way.
    async fn commit_chained(
        &mut self,
        unit: &Unit,
        chain: CommitChain,
        entered: &Entered,
    ) -> Tried {
        entered.waits(SessionState::WaitingForTurn, chain.earlier());
        let wait = chain.commit(&self.shared.turn, &self.shared.sending);
        let statement = self.waits().or_yield(wait, entered).await?;
        entered.now(SessionState::Committing);
        match self.commit(unit, Some(&statement), Some(chain)).await {
            // The one before it did not commit, so this one begins again, after it.
            Err(error) if is_of_the_fence(&error) => {
                Err(Unfinished::Yielded(unit.group.sequence.previous()))
            }
            ended => Ok(ended?),
        }
    }

    /// Commits the session's transaction with this statement; `None` if nothing is open.
    async fn commit(
        &mut self,
        unit: &Unit,
        statement: Option<&str>,
        chain: Option<CommitChain>,
    ) -> Result<()> {
        let late = is_planted(Bug::CheckpointAfterCommit).then(|| self.update(unit));
        let sending = self.shared.sending.clone();
        let send = async |session: &mut Session| {
            // If the answer is lost here, `is_committed` asks the checkpoint row.
            if let Some(statement) = statement {
                let sent = || chain.into_iter().for_each(|chain| chain.sent(&sending));
                session.run_noting(statement, sent).await?;
            }
            if let Some(late) = late {
                session.run(late).await?;
            }
            Ok(())
        };
        self.record(unit, send).await
    }

    /// Commits the unit by `send`, and records it before a new generation can begin: a target that comes
    /// back without it is then recognised.
    pub(super) async fn record<T>(
        &mut self,
        unit: &Unit,
        send: impl AsyncFnOnce(&mut Session) -> Result<T>,
    ) -> Result<T> {
        let shared = self.shared.clone();
        let Self { session: Some(session), generation, options, .. } = self else {
            return Err(Error::Broken(Invariant::CommitHasSession));
        };
        let committing = shared.generation.commit(session, &options.channel, generation).await?;
        let answered = send(session).await?;
        shared.commits.record(unit.transactions());
        drop(committing);
        self.reached();
        Ok(answered)
    }
}

/// Returns true if the statement failed that guards the rest of its packet: the one after the UPDATE of the
/// checkpoint row, or the one before a COMMIT that is sent early. Settings of the source's can have the same
/// error.
fn is_of_the_fence(error: &Error) -> bool {
    error.code() == Some(WRONG_VALUE) && error.server_text().full().contains("completion_type")
}
