//! The control session: holds the channel's lock, owns its epoch, runs statements that commit
//! implicitly.

use std::time::Duration;

use csa_provider::{Foreign, GtidSet};
use csa_scheduler::Sequence;
use tracing::info;

use crate::checkpoint::{Checkpoint, StartFrom};
use crate::commits::Commits;
use crate::options::TargetGtids;
use crate::ownership::audit;
use crate::ownership::bookkeeping;
use crate::ownership::channel_record;
use crate::ownership::checkpoint;
use crate::ownership::intent;
use crate::reachability::Reachability;
use crate::target::facts;
use crate::target::generation::{Generation, Place};
use crate::target::locks;
use crate::target::port::Target;
use crate::target::session::Session;
use crate::{Error, ErrorClass, Fence, Result};
use csa_provider::quote;

/// A lock held on the target for as long as this connection lives.
///
/// Statements that commit implicitly run here and nowhere else: a daemon that lost the lock has lost the
/// connection, and with it the means to send them.
#[derive(Debug)]
pub struct ControlSession {
    pub(crate) session: Session,
    pub(crate) channel: String,
    pub(crate) checkpoint: Checkpoint,
    foreign: Foreign,
    pub(crate) commits: Commits,
    pub(crate) reachability: Reachability,
    /// Number of workers that have checkpoint rows.
    pub(crate) workers: u16,
    /// This daemon's identity, which it keeps over restarts and shares with no other.
    pub(crate) identity: String,
    pub(crate) generation: Generation,
    /// The session holds the lock, on a target that has everything known to be committed.
    pub(crate) is_held: bool,
    /// The target's name for itself, as in [`Place`].
    pub(crate) server: String,
    /// The set last written to the row for readers, where that is not the checkpoint.
    pub(crate) noted: GtidSet,
}

/// The daemon's claim to a channel.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The daemon keeps it over restarts and shares it with no other: by it, a session that the daemon
    /// left behind on the target is recognised.
    pub identity: &'a str,
    /// The start of a channel without a checkpoint; `None` if it was seen to have one.
    pub start: Option<&'a StartFrom>,
    /// The source's `gtid_executed`, for `start_from = "source"` and to distinguish the target's own
    /// transactions from the source's.
    pub source_executed: Option<&'a GtidSet>,
    /// The channel's `replicate_*` settings, to be recorded in `csa.channel`.
    pub filters: &'a str,
}

impl ControlSession {
    /// Takes the channel: lock, checkpoint table and rows, a new epoch.
    ///
    /// Without `statement_gtids` it also creates `csa.statement`.
    ///
    /// # Errors
    /// [`Error::Held`] while somebody else holds the channel.
    pub async fn open(
        target: &Target,
        channel: &str,
        workers: u16,
        claim: &Claim<'_>,
        statement_gtids: bool,
    ) -> Result<Self> {
        let Claim { identity, start, source_executed, filters } = *claim;
        let mut session = bookkeeping::connect(target).await?;
        // The lock comes first: of two daemons that start at once, only one goes further.
        locks::take(&mut session, channel, identity).await?;
        // Read before creating our own tables adds to it.
        let provisioned = provisioned(&mut session, source_executed).await?;
        checkpoint::create(&mut session).await?;
        audit::create(&mut session, channel).await?;
        if !statement_gtids {
            intent::create(&mut session).await?;
        }
        let known = checkpoint::read(&mut session, channel, false).await?;
        let is_first = known.is_none();
        let base = match known {
            Some(found) => found,
            None => first_checkpoint(channel, start, source_executed, provisioned)?,
        };
        add_rows(&mut session, channel, 0..workers, &base).await?;
        let mut checkpoint = take_epoch(&mut session, channel).await?;
        match target.gtids {
            TargetGtids::Source => {
                if is_first {
                    level(&mut session, &checkpoint.executed).await?;
                }
                checkpoint.executed = as_target(&mut session, channel, &checkpoint).await?;
                checkpoint::keep_progress(&mut session, channel, &checkpoint).await?;
            }
            _ => {
                if checkpoint::has_progress(&mut session, channel).await? {
                    checkpoint.executed.union(&facts::executed(&mut session).await?);
                    checkpoint::drop_progress(&mut session, channel, &checkpoint).await?;
                }
            }
        }
        let all = channel_record::read_all(&mut session).await?;
        let own = all.iter().find(|record| record.channel == channel);
        let known = own.and_then(|record| record.identity.as_ref());
        let executed = &checkpoint.executed;
        let follows = channel_record::identity(known, executed, source_executed, filters);
        if let Some(follows) = follows.as_ref().filter(|follows| known != Some(follows)) {
            channel_record::note(&mut session, channel, follows).await?;
        }
        let own_uuid = facts::server_uuid(&mut session).await?;
        let foreign = channel_record::foreign(channel, follows.as_ref(), own_uuid, &all);
        info!(
            channel,
            epoch = checkpoint.epoch,
            sequence = checkpoint.sequence.get(),
            executed = %checkpoint.executed,
            "channel taken"
        );
        let generation = Generation::default();
        let place = Place::of(&mut session, channel).await?;
        let server = place.server.clone();
        generation.renew().await.begin(place);
        Ok(Self {
            session,
            channel: channel.to_owned(),
            commits: Commits::new(checkpoint.sequence, checkpoint.executed.clone()),
            reachability: Reachability::default(),
            checkpoint,
            foreign,
            workers,
            identity: identity.to_owned(),
            generation,
            is_held: true,
            server,
            noted: GtidSet::new(),
        })
    }

    /// The channel's progress when it was taken, and the epoch of this daemon.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The channel's progress from the checkpoint on.
    #[must_use]
    pub fn commits(&self) -> Commits {
        self.commits.clone()
    }

    /// The users of the target that have lost it.
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
        self.foreign.clone()
    }

    /// Adds checkpoint rows until so many workers have one. Existing rows are left alone: a worker in
    /// the middle of a group has its own locked, and may wait for a group that has not begun yet.
    pub(crate) async fn add_workers(&mut self, workers: u16) -> Result<()> {
        let new = self.workers..workers;
        if !new.is_empty() {
            add_rows(&mut self.session, &self.channel, new, &self.checkpoint).await?;
            self.workers = workers;
        }
        Ok(())
    }

    /// Brings the target's `gtid_executed` level with the checkpoint
    /// (<https://dev.mysql.com/doc/refman/en/replication-options-gtids.html#sysvar_gtid_purged>).
    pub(crate) async fn mirror(&mut self, executed: &GtidSet) -> Result<()> {
        level(&mut self.session, executed).await
    }

    /// Writes the target's `gtid_executed` to the row for readers.
    pub(crate) async fn note_progress(
        &mut self,
        sequence: Sequence,
        executed: &GtidSet,
    ) -> Result<()> {
        let epoch = self.checkpoint.epoch;
        let update =
            checkpoint::update(&self.channel, checkpoint::PROGRESS, epoch, sequence, executed);
        match self.session.run(update).await?.first() {
            Some(1) => {
                self.noted.clone_from(executed);
                Ok(())
            }
            _ => Err(Error::fenced(&self.channel, Fence::TakenOver)),
        }
    }

    /// Pings the server; the lock lives as long as the session answers.
    pub(crate) async fn ping(&mut self) -> Result<()> {
        self.session.run("DO 1").await.map(drop)
    }

    /// Fails if the target takes no writes.
    pub(crate) async fn probe(&mut self) -> Result<()> {
        self.session.run(checkpoint::probe(&self.channel)).await.map(drop)
    }

    /// For the channel's other sessions, which may commit only in the current generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation.clone()
    }

    /// Releases the lock and ends the session.
    pub async fn close(mut self) {
        let release = format!("DO RELEASE_LOCK({})", quote(&locks::lock_name(&self.channel)));
        if self.session.run(release).await.is_ok() {
            self.session.close().await;
        }
    }
}

/// Adds to the target's `gtid_executed` what it lacks.
async fn level(session: &mut Session, executed: &GtidSet) -> Result<()> {
    let missing = executed.difference(&facts::executed(session).await?);
    if missing.is_empty() {
        return Ok(());
    }
    session.run(format!("SET GLOBAL gtid_purged='+{missing}'")).await.map(drop)
}

/// The target's `gtid_executed` where it is the checkpoint. It lacks what another `target_gtids`
/// applied.
async fn as_target(
    session: &mut Session,
    channel: &str,
    checkpoint: &Checkpoint,
) -> Result<GtidSet> {
    let executed = facts::executed(session).await?;
    let missing = checkpoint.executed.difference(&executed);
    if missing.is_empty() {
        return Ok(executed);
    }
    Err(Error::Checkpoint {
        channel: channel.to_owned(),
        what: format!(
            "it was applied with another target_gtids, so the target's gtid_executed lacks \
             {missing}; run there: SET GLOBAL gtid_purged='+{missing}', then start again"
        ),
    })
}

fn first_checkpoint(
    channel: &str,
    start: Option<&StartFrom>,
    source_executed: Option<&GtidSet>,
    provisioned: GtidSet,
) -> Result<Checkpoint> {
    let executed = match (start, source_executed) {
        (Some(StartFrom::Executed(set)), _) => set.clone(),
        (Some(StartFrom::Source), Some(set)) => set.clone(),
        (Some(StartFrom::Target), Some(_)) => provisioned,
        // Without the source nothing shows that a copy ends there.
        (Some(_), None) => {
            return Err(Error::Checkpoint {
                channel: channel.to_owned(),
                what: "there is none, and the source, which a first start needs, can't be reached"
                    .to_owned(),
            });
        }
        // Dropped, or adopted by another channel, just now.
        (None, _) => return Err(no_checkpoint(channel)),
    };
    Ok(Checkpoint { sequence: Sequence::default(), executed, epoch: 0 })
}

fn no_checkpoint(channel: &str) -> Error {
    Error::Checkpoint {
        channel: channel.to_owned(),
        what: "its rows in csa.checkpoint disappeared".to_owned(),
    }
}

/// The target's `gtid_executed` without its own transactions, such as the creation of accounts: no other
/// source has them, so with them none could take over from this one.
async fn provisioned(session: &mut Session, source: Option<&GtidSet>) -> Result<GtidSet> {
    let mut executed = facts::executed(session).await?;
    if executed.is_empty() {
        return Ok(executed);
    }
    if let Some(own) = facts::server_uuid(session).await?
        && source.is_some_and(|source| !source.has_uuid(&own))
    {
        executed.remove_uuid(&own);
    }
    Ok(executed)
}

/// Inserts workers' rows ahead: a worker's write is then an UPDATE by primary key, which locks one row.
pub(crate) async fn add_rows(
    session: &mut Session,
    channel: &str,
    workers: impl Iterator<Item = u16>,
    base: &Checkpoint,
) -> Result<()> {
    let rows: Vec<String> = workers
        .map(|worker| {
            format!(
                "({},{worker},{},'{}',{},NOW(6))",
                quote(channel),
                base.sequence,
                base.executed,
                base.epoch
            )
        })
        .collect();
    let insert = format!("INSERT IGNORE INTO csa.checkpoint VALUES {}", rows.join(","));
    session.run(insert).await.map(drop)
}

/// Raises the epoch of every row. Its locks wait for groups that an earlier daemon still has in
/// flight, so the progress read with it is final.
async fn take_epoch(session: &mut Session, channel: &str) -> Result<Checkpoint> {
    let mut attempts = 0;
    loop {
        match try_take_epoch(session, channel).await {
            Err(error) if error.class() == ErrorClass::Retry && attempts < 30 => {
                attempts += 1;
                session.run("ROLLBACK").await?;
                info!(channel, "an earlier daemon's transaction still holds the checkpoint row");
                // It had a whole lock wait timeout to end on its own: its client may be gone.
                let workers = checkpoint::workers(session, channel).await?;
                locks::end_workers(session, channel, workers.into_iter()).await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            other => return other,
        }
    }
}

async fn try_take_epoch(session: &mut Session, channel: &str) -> Result<Checkpoint> {
    session.run("BEGIN").await?;
    let found = checkpoint::read(session, channel, true).await?;
    let mut found = found.ok_or_else(|| no_checkpoint(channel))?;
    found.epoch += 1;
    session
        .run(format!(
            "UPDATE csa.checkpoint SET epoch={} WHERE channel={}",
            found.epoch,
            quote(channel)
        ))
        .await?;
    session.run("COMMIT").await?;
    Ok(found)
}
