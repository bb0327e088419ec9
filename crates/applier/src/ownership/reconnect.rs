//! Reopens the control session after it was lost: first it checks that the target still has everything
//! known to be committed, then the other sessions may follow.

use std::collections::BTreeSet;

use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::server::link::NO_TABLE;
use tracing::warn;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Fence, Result};
use crate::options::{TargetGtids, TargetOptions};
use crate::ownership::bookkeeping::{self, RELOAD_AND_RESTART};
use crate::ownership::checkpoint;
use crate::ownership::continuity::{Continuity, RecordedProgress, judge};
use crate::ownership::control::{ControlSession, level};
use crate::ownership::locks;
use crate::ownership::target_servers;
use crate::server::facts;
use crate::server::generation::{Generation, Place};
use crate::server::group;
use crate::server::session::Session;
use crate::server::target::Target;

impl ControlSession {
    /// Connects again after the session was lost, and begins a generation if the channel is still ours
    /// and everything known to be committed is there.
    ///
    /// # Errors
    /// Returns [`Error::Older`] if the target lacks some of it, and [`Error::Fenced`] if another daemon took
    /// the channel over. All other errors pass with time, [`Error::Connecting`] above all: a privilege that was
    /// revoked may be granted again.
    pub(crate) async fn reopen(&mut self, target: &Target) -> Result<()> {
        self.take_again(target).await.map_err(Error::connecting)
    }

    async fn take_again(&mut self, target: &Target) -> Result<()> {
        // From here to the end nothing may be stated as executed (`Keeper::level`).
        self.hold.is_sure = false;
        self.generation.doubt();
        let session =
            bookkeeping::connect(&target.in_room(self.reachability.room().of_session())).await?;
        // Closed before the lock is taken again: the old session may still live and hold it.
        std::mem::replace(&mut self.session, session).close().await;
        // Checked before the lock: a daemon that took the channel over may hold it for long.
        let said = self.said(target.gtids).await?;
        if let Continuity::TakenOver(epoch) = judge(self.checkpoint.epoch, &GtidSet::new(), &said) {
            return Err(self.taken_over(epoch));
        }
        locks::take(&mut self.session, &self.channel, self.hold.claimant()).await?;
        self.hold.connection = self.session.id();
        let generation = self.generation.clone();
        // An error below drops it, and no generation begins.
        let renewal = generation.renew().await;
        let place = Place::of(&mut self.session, &self.channel).await?;
        let is_gtids_only = target.gtids == TargetGtids::Source;
        if is_gtids_only && place.server == self.hold.server {
            self.restore_gtids().await?;
        }
        // Read after the last COMMIT has its answer, or the target would seem to lack it.
        let mut said = self.said(target.gtids).await?;
        let committed = self.commits.executed();
        let is_as_before = place.server == self.hold.server
            && judge(self.checkpoint.epoch, &committed, &said) == Continuity::Same;
        // Another node of a Galera cluster, and one that has restarted, can serve before it has everything.
        if !is_as_before && group::catch_up_in_galera(&mut self.session, &target.route).await? {
            said = self.said(target.gtids).await?;
        }
        match judge(self.checkpoint.epoch, &committed, &said) {
            Continuity::Same => {}
            Continuity::TakenOver(epoch) => return Err(self.taken_over(epoch)),
            Continuity::Older(missing) => {
                return Err(Error::Older {
                    channel: self.channel.clone(),
                    address: target.address(),
                    missing: missing.to_string(),
                });
            }
            Continuity::Gone => return Err(self.gone(target, &committed)),
        }
        // Elsewhere the row is missing or old: in this mode no binary log has our bookkeeping.
        if is_gtids_only && place.server == self.hold.server {
            self.check_engine(target).await?;
        }
        // Reads succeed on a read-only target too; no generation begins there.
        self.probe().await?;
        // Before anything is applied there: the next server that takes over has to know this one.
        let present = facts::own_uuids(Uuid::parse_str(&place.server).ok(), &target.route);
        let Self { session, channel, servers, .. } = self;
        target_servers::note(session, channel, present, &mut servers.own).await?;
        self.restore_rows(target.gtids, &said.executed).await?;
        self.limit_idleness().await?;
        // Last, because workers commit from here on.
        self.hold.server.clone_from(&place.server);
        renewal.begin(place);
        self.hold.is_sure = true;
        Ok(())
    }

    async fn said(&mut self, gtids: TargetGtids) -> Result<RecordedProgress> {
        let session = &mut self.session;
        let found = match checkpoint::read(session, &self.channel, false).await {
            Err(error) if error.code().is_some_and(|code| NO_TABLE.contains(&code)) => None,
            found => found?,
        };
        let epoch = found.as_ref().map(|found| found.epoch);
        let executed = match gtids {
            TargetGtids::Source => facts::executed(session).await?,
            _ => found.unwrap_or_default().executed,
        };
        Ok(RecordedProgress { epoch, executed })
    }

    /// Adds workers' rows that are missing. Rows in which no group was committed can be lost without any
    /// GTID missing.
    async fn restore_rows(&mut self, gtids: TargetGtids, executed: &GtidSet) -> Result<()> {
        let Self { session, channel, checkpoint: taken, workers, .. } = self;
        let found = checkpoint::workers(session, channel).await?;
        let found: BTreeSet<u16> = found.into_iter().collect();
        let missing: Vec<u16> = (0..*workers).filter(|worker| !found.contains(worker)).collect();
        // Groups in flight hold only rows that are there, so this insertion waits for none.
        if !missing.is_empty() {
            warn!(?missing, "rows of workers are gone from csa.checkpoint, adding them again");
            checkpoint::add_rows(session, channel, missing.into_iter(), taken).await?;
        }
        if gtids == TargetGtids::Source && !found.contains(&checkpoint::PROGRESS) {
            let now = Checkpoint { executed: executed.clone(), ..taken.clone() };
            checkpoint::keep_progress(session, channel, &now).await?;
        }
        Ok(())
    }

    /// After a crash of the host of a server that does not sync its binary log, `gtid_executed` can lack
    /// transactions that its tables have. Transactions that changed nothing there, such as CREATE TABLE IF NOT
    /// EXISTS, have their GTID in the binary log only.
    async fn restore_gtids(&mut self) -> Result<()> {
        let row = match checkpoint::progress(&mut self.session, &self.channel).await {
            Err(error) if error.code().is_some_and(|code| NO_TABLE.contains(&code)) => None,
            row => row?,
        };
        // A row that has less than was written is that of an older copy.
        let Some(row) = row.filter(|row| self.noted.is_subset_of(row)) else { return Ok(()) };
        let executed = facts::executed(&mut self.session).await?;
        let lost = row.difference(&executed);
        let is_sure = lost.below_ends_of(&executed) == lost
            // Then nothing is applied a second time, whatever became of the GTIDs.
            || self.commits.executed().is_subset_of(&row);
        if lost.is_empty() || !is_sure {
            return Ok(());
        }
        warn!(%lost, "the target had lost GTIDs of transactions that its tables have");
        level(&mut self.session, &row).await
    }

    /// After a crash of a server that does not flush at each commit, its binary log, and so its
    /// `gtid_executed`, can have transactions that its tables lost. The row for readers is in a
    /// table, and was written after everything it names.
    async fn check_engine(&mut self, target: &TargetOptions) -> Result<()> {
        let row = checkpoint::progress(&mut self.session, &self.channel).await?;
        let missing = self.noted.difference(&row.unwrap_or_default());
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::Checkpoint {
            channel: self.channel.clone(),
            what: format!(
                "target {} lost transactions in a crash that its binary log and gtid_executed still \
                 name, {missing} and perhaps later ones; provision it again, and set \
                 innodb_flush_log_at_trx_commit=1 there: with target_gtids = \"source\" nothing else \
                 records what it has",
                target.address()
            ),
        })
    }

    fn taken_over(&self, epoch: u64) -> Error {
        Error::fenced(&self.channel, Fence::Epoch(epoch))
    }

    /// All rows are gone. Starting as if for the first time would apply history again.
    fn gone(&self, target: &TargetOptions, committed: &GtidSet) -> Error {
        let address = target.address();
        // In this mode the rows are only the fence, and a replica of the target, promoted, has none.
        if target.gtids == TargetGtids::Source {
            let missing = committed.to_string();
            return Error::Older { channel: self.channel.clone(), address, missing };
        }
        Error::Checkpoint {
            channel: self.channel.clone(),
            what: format!(
                "its rows in csa.checkpoint are gone from target {address}, which had {committed}; put \
                 the schema csa back as it was, or set applier.start_from to the GTID set that the \
                 target holds; then: {RELOAD_AND_RESTART}"
            ),
        }
    }
}

/// Returns a session for a worker, connected to the place where the channel is held, and its
/// generation. The transaction of the worker's earlier session there has ended.
pub(crate) async fn worker_session(
    target: &Target,
    generation: &Generation,
    channel: &str,
    worker: u16,
) -> Result<(Session, u64)> {
    let mut session = Session::connect(target).await?;
    let number = admit_worker(&mut session, generation, channel, worker).await;
    Ok((session, number.map_err(Error::connecting)?))
}

async fn admit_worker(
    session: &mut Session,
    generation: &Generation,
    channel: &str,
    worker: u16,
) -> Result<u64> {
    // The place first: on another server the lock below would be free and prove nothing.
    generation.admit(session, channel).await?;
    locks::take_worker(session, channel, worker).await?;
    // And again: a daemon that has taken the channel meanwhile ended only sessions with a worker's lock.
    generation.admit(session, channel).await
}
