//! Finds out whether a transaction was committed whose connection was lost, perhaps after its COMMIT was sent. If it was, the unit is done;
//! if not, the worker applies it again (`Worker::apply_unit`, worker.rs); if another daemon has taken the
//! channel over, it stops.
//!
//! For a statement, `StatementExecutor::attempt` (statement/executor.rs) looks for its GTID on the target, or
//! in the checkpoint, before it executes it again. A statement without a GTID there, or rows that can't be
//! rolled back, may have taken effect without the checkpoint. Then only the entry in `csa.statement` is found
//! (ownership/intent.rs), and the channel stops for the operator to decide (`Error::InDoubt`, or
//! `Error::HalfDone` and `Error::PartlyDone` in statement/not_transactional.rs).

use csa_provider::binlog::GtidSet;
use csa_provider::seams::planted::{Bug, is_planted};

use super::attempt::{Tried, Unfinished};
use super::unit::Unit;
use super::worker_session::WorkerSession;
use crate::error::{Error, ErrorClass, Fence, Invariant, Result};
use crate::options::TargetGtids;
use crate::ownership::checkpoint;
use crate::server::group;
use csa_provider::sql_text::quote;

impl WorkerSession {
    /// Finds out, after a lost connection, if the transaction was committed all the same.
    pub(super) async fn is_committed(&mut self, unit: &Unit) -> Result<bool> {
        let mut backoff = self.options.backoff();
        loop {
            match self.look_committed(unit).await {
                Err(error) if error.is_passing() => self.lost(&error, &mut backoff).await,
                other => return other,
            }
        }
    }

    /// Finds out, after an attempt that follows a lost connection, if the earlier one was committed only now. The nodes of a
    /// Galera cluster share no locks: another node can serve before it has that COMMIT.
    pub(super) async fn is_committed_late(&mut self, unit: &Unit, tried: &Tried) -> Result<bool> {
        match tried {
            Ok(()) => return Ok(false),
            // The look comes once the target is back.
            Err(Unfinished::Failed(error)) if error.class() == ErrorClass::Unavailable => {
                return Ok(false);
            }
            Err(_) => self.rollback().await,
        }
        self.is_committed(unit).await
    }

    /// Looks for the last GTID of the unit, once the earlier session has ended.
    async fn look_committed(&mut self, unit: &Unit) -> Result<bool> {
        // The unit was one transaction on the target, or was committed in order, so its last GTID stands for all.
        let last = match is_planted(Bug::FirstStandsForAll) {
            true => unit.transactions().first(),
            false => unit.transactions().last(),
        };
        let Some(last) = last else { return Ok(false) };
        let gtid = &last.relayed.header.gtid;
        // Opened again with the worker's lock, which the server frees only when the session has ended.
        let route = self.target.route.clone();
        group::catch_up_in_galera(self.session().await?, &route).await?;
        let executed = self.own_row().await?;
        if self.target.gtids == TargetGtids::Source {
            let executed = self.session().await?.has_executed(&gtid.to_string()).await?;
            return self.found(unit, executed).await;
        }
        let executed: GtidSet = executed
            .parse()
            .map_err(|source| checkpoint::unreadable(&self.options.channel, source))?;
        let executed = executed.contains(gtid);
        self.found(unit, executed).await
    }

    /// Returns `gtid_executed` of the worker's row, once no transaction holds it.
    ///
    /// # Errors
    /// [`Error::Fenced`] if the row has another daemon's epoch, or is gone.
    pub(super) async fn own_row(&mut self) -> Result<String> {
        let channel = self.options.channel.clone();
        let query = format!(
            "SELECT gtid_executed, epoch FROM csa.checkpoint WHERE channel={} AND worker={} FOR UPDATE",
            quote(&channel),
            self.index
        );
        let rows: Vec<(String, u64)> = self.session().await?.rows(&query).await?;
        match rows.into_iter().next() {
            None => Err(Error::fenced(&channel, Fence::RowGone)),
            Some((_, epoch)) if epoch != self.epoch => {
                Err(Error::fenced(&channel, Fence::Epoch(epoch)))
            }
            Some((executed, _)) => Ok(executed),
        }
    }

    /// Records what was found to be committed, if the session is still where the channel is held.
    async fn found(&mut self, unit: &Unit, committed: bool) -> Result<bool> {
        let shared = self.shared.clone();
        let Self { session: Some(session), generation, options, .. } = self else {
            return Err(Error::Broken(Invariant::CommitHasSession));
        };
        // Also where nothing was found: a server that lags would say so of any transaction.
        let committing = shared.generation.commit(session, &options.channel, generation).await?;
        if committed {
            shared.commits.record(unit.transactions());
        }
        drop(committing);
        Ok(committed)
    }
}
