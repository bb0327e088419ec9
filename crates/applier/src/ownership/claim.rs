//! Takes a channel on the target: its lock, its checkpoint, and an epoch that fences whoever had it before.
//!
//! A second daemon is kept away by the lock (locks.rs). One that had the channel before is fenced by the
//! epoch in the first UPDATE of each group, or by the source's GTIDs (group/unit.rs, checkpoint.rs);
//! error/fence.rs lists all places. Statements run on the session that holds the lock. Two daemons with one state directory are
//! kept apart by locks of files (crates/daemon/src/channel/identity.rs,
//! crates/relaystore/src/disk/directory.rs).

use std::collections::BTreeSet;
use std::time::Duration;

use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_scheduler::sequence::Sequence;
use tracing::{info, warn};

use super::control::{ControlSession, Hold, RecordedServers, level};
use super::{
    audit, bookkeeping, channel_record, checkpoint, copying, intent, locks, target_servers,
};
use crate::checkpoint::{Checkpoint, StartFrom};
use crate::commits::Commits;
use crate::error::{Error, ErrorClass, Result};
use crate::options::TargetGtids;
use crate::server::facts;
use crate::server::generation::{Generation, Place};
use crate::server::lock_wait;
use crate::server::reachability::Reachability;
use crate::server::session::Session;
use crate::server::target::Target;

/// The daemon's claim to a channel.
#[derive(Debug, Clone, Copy)]
pub struct ChannelClaim<'a> {
    /// The daemon keeps it over restarts and shares it with no other: by it, a session that the daemon
    /// left behind on the target is recognised.
    pub identity: &'a str,
    /// The start of a channel without a checkpoint; `None` if it was seen to have one.
    pub start: Option<&'a StartFrom>,
    /// The source's `gtid_executed`, for `start_from = "source"` and to distinguish the target's own
    /// transactions from the source's.
    pub source_executed: Option<&'a GtidSet>,
    /// The source's `server_uuid`.
    pub source_uuid: Option<Uuid>,
    /// The channel's `replicate_*` settings, to be recorded in `csa.channel`.
    pub filters: &'a str,
    /// Other daemons stand by for the channel, or this one did.
    pub standby: bool,
    /// The channel is to apply transactions. A skip takes it to pass over the one that is in the way of that.
    pub is_run: bool,
}

impl ControlSession {
    /// Takes the channel: lock, checkpoint table and rows, a new epoch.
    ///
    /// Without `statement_gtids`, and on MySQL 5.7, it also creates `csa.statement`.
    ///
    /// # Errors
    /// [`Error::Held`] while somebody else holds the channel.
    /// [`Error::PartlyDone`] in a run, where a transaction that counts as executed may lack a part of its rows.
    pub async fn open(
        target: &Target,
        channel: &str,
        workers: u16,
        claim: &ChannelClaim<'_>,
        statement_gtids: bool,
    ) -> Result<Self> {
        let ChannelClaim { identity, standby, .. } = *claim;
        let reachability = Reachability::default();
        let target = &target.in_room(reachability.room().of_session());
        let mut session = bookkeeping::connect_level(target).await?;
        // The lock comes first: of two daemons that start at once, only one goes further.
        locks::take(&mut session, channel, locks::Claimant::new(identity)).await?;
        // A copy that held the lock until now may have left changes to apply, or ended.
        let mut converging = copying::converging(&mut session, channel).await?;
        let has_ranges = converging.is_some();
        let steps = Taking { channel, workers, claim, statement_gtids, has_ranges };
        let checkpoint = steps.checkpoint(&mut session, target).await?;
        // A first checkpoint ends what is left of a copy that was given up.
        if has_ranges {
            converging = copying::converging(&mut session, channel).await?;
        }
        let servers = steps.record(&mut session, target, &checkpoint.executed).await?;
        info!(
            epoch = checkpoint.epoch,
            sequence = checkpoint.sequence.get(),
            executed = %checkpoint.executed.brief(),
            "channel taken"
        );
        // No other session exists yet, so the first generation has no COMMIT to wait for.
        let generation = Generation::default();
        let place = Place::of(&mut session, channel).await?;
        let server = place.server.clone();
        let connection = session.id();
        generation.renew().await.begin(place);
        Ok(Self {
            session,
            channel: channel.to_owned(),
            commits: Commits::new(checkpoint.sequence, checkpoint.executed.clone()),
            reachability,
            checkpoint,
            converging,
            servers,
            workers,
            generation,
            hold: Hold {
                identity: identity.to_owned(),
                connection,
                is_sure: true,
                idle_limit: match standby && !is_planted(Bug::SilentHolderKept) {
                    true => bookkeeping::IDLE_LIMIT_WITH_STANDBY,
                    false => bookkeeping::IDLE_LIMIT,
                },
                server,
            },
            noted: GtidSet::new(),
        })
    }
}

/// The steps by which a channel is taken once its lock is held.
#[derive(Clone, Copy)]
struct Taking<'a> {
    channel: &'a str,
    workers: u16,
    claim: &'a ChannelClaim<'a>,
    statement_gtids: bool,
    /// A copy has noted ranges of tables.
    has_ranges: bool,
}

impl Taking<'_> {
    /// Takes the checkpoint over from the daemon that had the channel, or begins one.
    async fn checkpoint(self, session: &mut Session, target: &Target) -> Result<Checkpoint> {
        let Self { channel, claim, statement_gtids, .. } = self;
        let ChannelClaim { start, source_executed, standby, .. } = *claim;
        // Read before creating our own tables adds to it.
        let provisioned = provisioned(session, target, source_executed).await?;
        checkpoint::create(session).await?;
        audit::create(session, channel).await?;
        intent::create_for_statements(session, statement_gtids).await?;
        let known = checkpoint::read(session, channel, false).await?;
        let is_first = known.is_none();
        let base = match known {
            Some(found) => found,
            None => {
                copying::check_finished(session, channel).await?;
                copying::forget_left(session, channel).await?;
                let first = first_checkpoint(channel, start, source_executed, provisioned)?;
                // Before the checkpoint is there: after a crash in between, the next start would take the row over.
                channel_record::forget(session, channel).await?;
                intent::forget_failed(session, channel).await?;
                if let Some(source) = source_executed {
                    intent::forget(session, channel, source).await?;
                }
                target_servers::forget(session, channel, claim.source_uuid).await?;
                first
            }
        };
        let left = checkpoint::workers(session, channel).await?.into_iter();
        if target.gtids == TargetGtids::Source {
            // Their groups hold no row that is waited for below. The daemon that opened these sessions
            // opens no others: it has lost the lock.
            locks::end_workers_now(session, channel, left).await?;
        } else if standby {
            // Not after a lock wait timeout: whoever had the channel has lost it, so its groups are not
            // worth waiting for.
            locks::end_workers(session, channel, left).await?;
        }
        let mut checkpoint = take_rows(session, target, self, &base).await?;
        let is_source = target.gtids == TargetGtids::Source;
        let was_source = !is_source && checkpoint::has_progress(session, channel).await?;
        if is_source {
            // Only then: later a GTID that the target lacks is one that it has not executed.
            if is_first {
                level(session, &checkpoint.executed).await?;
            }
            checkpoint.executed = as_target(session, channel, &checkpoint).await?;
        } else if was_source {
            // `gtid_executed` can be ahead of the row for readers.
            checkpoint.executed.union(&facts::executed(session).await?);
        }
        // Before the checkpoint is written, and with each `target_gtids`: a change of it does not complete the rows.
        if claim.is_run {
            intent::check_complete(session, channel, &checkpoint.executed).await?;
        }
        if is_source {
            checkpoint::keep_progress(session, channel, &checkpoint).await?;
        } else if was_source {
            checkpoint::drop_progress(session, channel, &checkpoint).await?;
        }
        Ok(checkpoint)
    }

    /// Notes which servers the channel follows and writes to, where that has changed.
    async fn record(
        self,
        session: &mut Session,
        target: &Target,
        executed: &GtidSet,
    ) -> Result<RecordedServers> {
        let Self { channel, claim, .. } = self;
        let ChannelClaim { source_executed, source_uuid, filters, .. } = *claim;
        let all = channel_record::read_all(session).await?;
        let own = all.iter().find(|record| record.channel == channel);
        let known = own.and_then(|record| record.identity.as_ref());
        let source: Option<BTreeSet<_>> =
            source_executed.map(|executed| executed.uuids().chain(source_uuid).collect());
        let follows = channel_record::identity(known, executed, source.as_ref(), filters);
        if let Some(follows) = follows.as_ref().filter(|follows| known != Some(follows)) {
            channel_record::create(session).await?;
            channel_record::note(session, channel, follows).await?;
        }
        let present = facts::own_uuids(facts::server_uuid(session).await?, &target.route);
        let foreign =
            channel_record::foreign(channel, follows.as_ref(), &present, source_uuid, &all);
        let mut own = own.map(|record| record.target_uuids.clone()).unwrap_or_default();
        target_servers::note(session, channel, present, &mut own).await?;
        Ok(RecordedServers { foreign, follows, own })
    }
}

/// Returns the target's `gtid_executed` where it is the checkpoint. It lacks what another
/// `target_gtids` applied, and what a crash of its host took from a binary log that was not synced.
async fn as_target(
    session: &mut Session,
    channel: &str,
    checkpoint: &Checkpoint,
) -> Result<GtidSet> {
    let mut executed = facts::executed(session).await?;
    let mut missing = checkpoint.executed.difference(&executed);
    if missing.is_empty() {
        return Ok(executed);
    }
    let was_source = checkpoint::has_progress(session, channel).await?;
    if was_source {
        // The row was written after everything it names. With later transactions of the same servers
        // there, the tables were not restored to an earlier time: only GTIDs were lost.
        let lost = missing.below_ends_of(&executed);
        level(session, &lost).await?;
        executed.union(&lost);
        missing.subtract(&lost);
        if missing.is_empty() {
            warn!(%lost, "the target had lost GTIDs of transactions that its tables have");
            return Ok(executed);
        }
    }
    let cause = match was_source {
        true => {
            "the target has lost GTIDs: its host crashed with sync_binlog other than 1, or GTIDs were \
             reset or not restored with the data; its gtid_executed"
        }
        false => "it was applied with another target_gtids, so the target's gtid_executed",
    };
    Err(Error::Checkpoint {
        channel: channel.to_owned(),
        what: format!(
            "{cause} lacks {missing}; if the tables have these transactions and none after them, run \
             there: SET GLOBAL gtid_purged='+{missing}', then start again"
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
async fn provisioned(
    session: &mut Session,
    target: &Target,
    source: Option<&GtidSet>,
) -> Result<GtidSet> {
    let mut executed = facts::executed(session).await?;
    if executed.is_empty() {
        return Ok(executed);
    }
    for own in facts::own_uuids(facts::server_uuid(session).await?, &target.route) {
        if source.is_some_and(|source| !source.has_uuid(&own)) {
            executed.remove_uuid(&own);
        }
    }
    Ok(executed)
}

/// Waits of `innodb_lock_wait_timeout` (10 s) for the rows: five minutes, for a large rollback.
const ROW_WAITS: u32 = 30;
/// Waits for them while it is known who has them, and that it is none of ours.
const NAMED_ROW_WAITS: u32 = 2;

/// Adds the workers' rows that are missing and raises the epoch of all, and of the ranges of a copy. All wait for the
/// locks of groups that an earlier daemon still has in flight, or of a copy's chunks.
///
/// # Errors
/// [`Error::Held`] names a session of others that has rows locked; the start is then tried again.
async fn take_rows(
    session: &mut Session,
    target: &Target,
    steps: Taking<'_>,
    base: &Checkpoint,
) -> Result<Checkpoint> {
    let channel = steps.channel;
    let mut attempts = 0;
    loop {
        let mut seen = None;
        let connection = session.id();
        let outcome = tokio::select! {
            biased;
            outcome = try_take_rows(session, steps, base) => outcome,
            never = lock_wait::follow(target, connection, &mut seen) => match never {},
        };
        match outcome {
            Err(error) if error.class() == ErrorClass::Retry && attempts < ROW_WAITS => {
                attempts += 1;
                session.run("ROLLBACK").await?;
                if let Some(found) = seen.as_ref().filter(|_| attempts >= NAMED_ROW_WAITS) {
                    let what = format!("its start needs {found}");
                    return Err(Error::Held {
                        channel: channel.to_owned(),
                        what,
                        by_another: false,
                    });
                }
                info!("an earlier transaction still holds the channel's rows");
                // It had a whole lock wait timeout to end on its own: its client may be gone.
                let workers = checkpoint::workers(session, channel).await?;
                locks::end_workers(session, channel, workers.into_iter()).await?;
                if let Some(chunks) = seen.filter(copying::is_of_ranges) {
                    locks::end_holders(session, &chunks).await?;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            other => return other,
        }
    }
}

/// See [`checkpoint::raise_epoch`]; takes the ranges of a copy, and makes the rows of the workers first.
async fn try_take_rows(
    session: &mut Session,
    Taking { channel, workers, claim, has_ranges, .. }: Taking<'_>,
    base: &Checkpoint,
) -> Result<Checkpoint> {
    if has_ranges {
        // Before anything is applied: a chunk of a copy that has lost the lock, and does not know it, would undo that.
        copying::take_ranges(session, channel).await?;
    }
    // Before the epoch is raised, which then is the same in all of them.
    checkpoint::add_rows(session, channel, 0..workers, base).await?;
    let found = checkpoint::raise_epoch(session, channel, claim.identity).await?;
    found.ok_or_else(|| no_checkpoint(channel))
}
