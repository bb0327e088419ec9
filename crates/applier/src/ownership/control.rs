//! The control session: holds the channel's lock, owns its epoch, runs statements that commit
//! implicitly.

use std::collections::BTreeSet;
use std::time::Duration;

use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::source::Foreign;
use csa_scheduler::sequence::Sequence;

use crate::checkpoint::Checkpoint;
use crate::commits::Commits;
use crate::error::{Error, Fence, Result};
use crate::ownership::channel_record::{self, ChannelIdentity};
use crate::ownership::checkpoint;
use crate::ownership::copying::Converging;
use crate::ownership::locks::{self, Claimant};
use crate::server::facts;
use crate::server::generation::Generation;
use crate::server::group;
use crate::server::reachability::Reachability;
use crate::server::search::primary;
use crate::server::session::Session;
use crate::server::target::Target;

/// `ER_CANT_SET_GTID_PURGED_DUE_SETS_CONSTRAINTS`.
const GTIDS_OVERLAP: u16 = 3546;
/// Together ten seconds, as long as another's lock is waited for.
const OVERLAP_ATTEMPTS: u32 = 100;
const OVERLAP_PAUSE: Duration = Duration::from_millis(100);

/// A lock held on the target for as long as this connection lives.
///
/// Statements that commit implicitly run here and nowhere else: a daemon that lost the lock has lost the
/// connection, and with it the means to send them.
#[derive(Debug)]
pub struct ControlSession {
    pub(crate) session: Session,
    pub(crate) channel: String,
    pub(crate) checkpoint: Checkpoint,
    pub(super) converging: Option<Converging>,
    pub(super) servers: RecordedServers,
    pub(crate) commits: Commits,
    pub(crate) reachability: Reachability,
    /// Number of workers that have checkpoint rows.
    pub(crate) workers: u16,
    pub(crate) generation: Generation,
    pub(crate) hold: Hold,
    /// The set last written to the row for readers, where that is not the checkpoint.
    pub(crate) noted: GtidSet,
}

/// The servers of a channel, as the target records them.
#[derive(Debug)]
pub(super) struct RecordedServers {
    /// Servers whose transactions the source need not have.
    pub(super) foreign: Foreign,
    /// The channel's row in `csa.channel`; `None` if it has none and its source was away.
    pub(super) follows: Option<ChannelIdentity>,
    /// Servers that have been the channel's target, the present one included.
    pub(super) own: BTreeSet<Uuid>,
}

impl RecordedServers {
    fn is_new(&self, server: &Uuid) -> bool {
        self.follows.as_ref().is_some_and(|record| record.is_new(server))
    }
}

/// How and where the channel's lock is held.
#[derive(Debug)]
pub(crate) struct Hold {
    /// This daemon's identity, which it keeps over restarts. Only a copy of its state directory has it, too.
    pub(crate) identity: String,
    /// The session that took the lock last.
    pub(super) connection: u32,
    /// The session holds the lock, on a target that has everything known to be committed.
    pub(crate) is_sure: bool,
    /// The time after which the target frees the lock of a session that does not ping.
    pub(super) idle_limit: Duration,
    /// The target's name for itself, as in `Place`.
    pub(super) server: String,
}

impl Hold {
    /// Returns this daemon as the lock's functions know it.
    pub(crate) fn claimant(&self) -> Claimant<'_> {
        Claimant { identity: &self.identity, earlier: Some(self.connection) }
    }
}

impl ControlSession {
    /// Returns the channel's progress when it was taken, and the epoch of this daemon.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns the changes that the channel has to apply before a copy of its tables is one.
    #[must_use]
    pub fn converging(&self) -> Option<Converging> {
        self.converging.clone()
    }

    /// Returns the channel's progress from the checkpoint on.
    #[must_use]
    pub fn commits(&self) -> Commits {
        self.commits.clone()
    }

    /// Returns the users of the target that have lost it.
    #[must_use]
    pub fn reachability(&self) -> Reachability {
        self.reachability.clone()
    }

    /// Number of workers that have checkpoint rows.
    #[must_use]
    pub fn workers(&self) -> u16 {
        self.workers
    }

    /// Servers whose transactions the source need not have, though the target has them.
    #[must_use]
    pub fn foreign(&self) -> Foreign {
        self.servers.foreign.clone()
    }

    /// Servers that have been the channel's target: what they made comes back from a source that another channel
    /// has brought it to.
    #[must_use]
    pub fn own_servers(&self) -> BTreeSet<Uuid> {
        self.servers.own.clone()
    }

    /// Adds checkpoint rows until so many workers have one. Existing rows are left alone: a worker in
    /// the middle of a group has its own locked, and may wait for a group that has not begun yet.
    pub(crate) async fn add_workers(&mut self, workers: u16) -> Result<()> {
        let new = self.workers..workers;
        if !new.is_empty() {
            checkpoint::add_rows(&mut self.session, &self.channel, new, &self.checkpoint).await?;
            self.workers = workers;
        }
        Ok(())
    }

    /// Returns true if the record of the servers that the channel follows lacks this one, or has it as foreign.
    pub(crate) fn is_new(&self, server: &Uuid) -> bool {
        self.servers.is_new(server)
    }

    /// Adds a server to that record, unless it has it.
    pub(crate) async fn follow(&mut self, server: Uuid) -> Result<()> {
        let new = self.servers.follows.as_ref().filter(|record| record.is_new(&server));
        let Some(mut next) = new.cloned() else { return Ok(()) };
        next.follow(server);
        channel_record::note(&mut self.session, &self.channel, &next).await?;
        self.servers.follows = Some(next);
        self.servers.foreign.followed.insert(server);
        Ok(())
    }

    /// Brings the target's `gtid_executed` level with the checkpoint
    /// (<https://dev.mysql.com/doc/refman/en/replication-options-gtids.html#sysvar_gtid_purged>).
    pub(crate) async fn mirror(&mut self, executed: &GtidSet) -> Result<()> {
        level(&mut self.session, executed).await
    }

    /// Writes the target's `gtid_executed` to the row for readers, outside of a transaction.
    pub(crate) async fn note_progress(
        &mut self,
        sequence: Sequence,
        executed: &GtidSet,
    ) -> Result<()> {
        self.write_progress(sequence, executed).await?;
        self.noted.clone_from(executed);
        Ok(())
    }

    /// As [`Self::note_progress`], in a transaction that may still be rolled back: the target need not
    /// have it later.
    pub(crate) async fn write_progress(
        &mut self,
        sequence: Sequence,
        executed: &GtidSet,
    ) -> Result<()> {
        let epoch = self.checkpoint.epoch;
        let update =
            checkpoint::update(&self.channel, checkpoint::PROGRESS, epoch, sequence, executed);
        match self.session.run(update).await?.first() {
            Some(1) => Ok(()),
            _ => Err(Error::fenced(&self.channel, Fence::TakenOver)),
        }
    }

    /// Pings the server; the lock lives as long as the session answers.
    pub(crate) async fn ping(&mut self) -> Result<()> {
        self.session.run("DO 1").await.map(drop)
    }

    /// Pings the server, and finds out whether it still is the primary of its group where that is followed.
    pub(crate) async fn look(&mut self, target: &Target) -> Result<()> {
        if !target.route.discovers() {
            return self.ping().await;
        }
        match primary(&group::of(&mut self.session).await?, true) {
            Ok(()) => Ok(()),
            Err(why) => Err(Error::Unfit { address: self.session.address().to_owned(), why }),
        }
    }

    /// From here on the target frees the lock after `idle_limit`; call it where pings follow.
    pub(crate) async fn limit_idleness(&mut self) -> Result<()> {
        self.session.set_idle_limit(self.hold.idle_limit).await
    }

    /// Fails if the target takes no writes.
    pub(crate) async fn probe(&mut self) -> Result<()> {
        self.session.run(checkpoint::probe(&self.channel)).await.map(drop)
    }

    /// Returns the current generation for the channel's other sessions, which may commit only in
    /// it.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation.clone()
    }

    /// Releases the lock and ends the session.
    pub async fn close(mut self) {
        // Released explicitly: COM_QUIT has no answer, and the next start waits only briefly.
        if locks::release(&mut self.session, &self.channel).await.is_ok() {
            self.session.close().await;
        }
    }
}

/// Adds to the target's `gtid_executed` what it lacks.
pub(super) async fn level(session: &mut Session, executed: &GtidSet) -> Result<()> {
    let mut attempts = 0;
    loop {
        // The server refuses to add GTIDs that it has executed.
        let missing = executed.difference(&facts::executed(session).await?);
        if missing.is_empty() {
            return Ok(());
        }
        match session.run(format!("SET GLOBAL gtid_purged='+{missing}'")).await {
            // Another channel has just added some of them, or a session is executing one.
            Err(error) if error.code() == Some(GTIDS_OVERLAP) && attempts < OVERLAP_ATTEMPTS => {
                attempts += 1;
                tokio::time::sleep(OVERLAP_PAUSE).await;
            }
            other => return other.map(drop),
        }
    }
}
