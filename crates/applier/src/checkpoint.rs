//! The checkpoint row: how far the target is, written in each group's own transaction.

use csa_provider::GtidSet;
use csa_scheduler::Sequence;

use crate::session::Session;
use crate::sql::quote;
use crate::{Error, Result};

/// One row per channel and worker, so that workers never meet on a row.
const CREATE: [&str; 2] = [
    "CREATE DATABASE IF NOT EXISTS csa DEFAULT CHARACTER SET utf8mb4",
    "CREATE TABLE IF NOT EXISTS csa.checkpoint (\
     channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     worker SMALLINT UNSIGNED NOT NULL, \
     sequence BIGINT UNSIGNED NOT NULL, \
     gtid_executed MEDIUMTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     epoch BIGINT UNSIGNED NOT NULL, \
     updated_at TIMESTAMP(6) NOT NULL, \
     PRIMARY KEY (channel, worker)) ENGINE=InnoDB",
];

/// Where a channel without a checkpoint begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFrom {
    /// The target's `gtid_executed`: it was provisioned by clone or dump.
    Target,
    /// What the source has executed at the first start.
    Source,
    /// A GTID set that the target already holds.
    Executed(GtidSet),
}

/// How far the channel is, and which daemon may move it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last committed group.
    pub sequence: Sequence,
    /// Everything executed on the target.
    pub executed: GtidSet,
    /// Raised by every daemon that takes the channel over.
    pub epoch: u64,
}

/// What a group writes into its checkpoint row; matches no row once another daemon took over.
pub(crate) fn update(
    channel: &str,
    worker: u16,
    epoch: u64,
    sequence: Sequence,
    executed: &GtidSet,
) -> String {
    format!(
        "UPDATE csa.checkpoint SET sequence={sequence},gtid_executed='{executed}',\
         updated_at=NOW(6) WHERE channel={} AND worker={worker} AND epoch={epoch}",
        quote(channel)
    )
}

/// The row that tells others how far a channel is whose truth is the target's `gtid_executed`; no
/// worker has this number.
pub(crate) const PROGRESS: u16 = u16::MAX;

/// Holds a worker's checkpoint row until the end of the transaction and changes nothing, so nothing is
/// logged; matches no row once another daemon took over.
pub(crate) fn hold(channel: &str, worker: u16, epoch: u64) -> String {
    format!(
        "UPDATE csa.checkpoint SET epoch=epoch WHERE channel={} AND worker={worker} \
         AND epoch={epoch}",
        quote(channel)
    )
}

/// Creates the table if it is missing.
pub(crate) async fn create(session: &mut Session) -> Result<()> {
    for statement in CREATE {
        session.run(statement).await?;
    }
    Ok(())
}

/// Makes sure of the row that tells others how far the channel is.
pub(crate) async fn keep_progress(
    session: &mut Session,
    channel: &str,
    checkpoint: &Checkpoint,
) -> Result<()> {
    let Checkpoint { sequence, executed, epoch } = checkpoint;
    let channel = quote(channel);
    let values =
        format!("sequence={sequence},gtid_executed='{executed}',epoch={epoch},updated_at=NOW(6)");
    session
        .run(format!(
            "INSERT INTO csa.checkpoint SET channel={channel},worker={PROGRESS},{values} \
             ON DUPLICATE KEY UPDATE {values}"
        ))
        .await
        .map(drop)
}

/// Whether the channel's truth was the target's `gtid_executed` when it last ran.
pub(crate) async fn has_progress(session: &mut Session, channel: &str) -> Result<bool> {
    let query = format!(
        "SELECT COUNT(*) FROM csa.checkpoint WHERE channel={} AND worker={PROGRESS}",
        quote(channel)
    );
    let found: Vec<u64> = session.rows(&query).await?;
    Ok(found.first().is_some_and(|&count| count > 0))
}

/// From now on the workers' rows are the truth again: `checkpoint` is what they have to say.
pub(crate) async fn drop_progress(
    session: &mut Session,
    channel: &str,
    checkpoint: &Checkpoint,
) -> Result<()> {
    let Checkpoint { sequence, executed, epoch } = checkpoint;
    for statement in [
        "BEGIN".to_owned(),
        update(channel, 0, *epoch, *sequence, executed),
        format!(
            "DELETE FROM csa.checkpoint WHERE channel={} AND worker={PROGRESS}",
            quote(channel)
        ),
        "COMMIT".to_owned(),
    ] {
        session.run(statement).await?;
    }
    Ok(())
}

/// Whether the checkpoint table is there, without touching it.
pub(crate) async fn exists(session: &mut Session) -> Result<bool> {
    let found: Vec<u64> = session
        .rows(
            "SELECT COUNT(*) FROM information_schema.tables \
             WHERE table_schema='csa' AND table_name='checkpoint'",
        )
        .await?;
    Ok(found.first().is_some_and(|&count| count > 0))
}

/// How far a channel is: all of its rows together. Each states what was committed with it and before,
/// so none says too much; out of commit order only all of them say everything.
///
/// Waits for transactions that hold the rows when `lock` is set.
pub(crate) async fn read(
    session: &mut Session,
    channel: &str,
    lock: bool,
) -> Result<Option<Checkpoint>> {
    let suffix = if lock { " FOR UPDATE" } else { "" };
    let query = format!(
        "SELECT sequence, gtid_executed, epoch FROM csa.checkpoint WHERE channel={}{suffix}",
        quote(channel)
    );
    let rows: Vec<(u64, String, u64)> = session.rows(&query).await?;
    let mut found: Option<Checkpoint> = None;
    for (sequence, executed, epoch) in rows {
        let executed: GtidSet = executed.parse().map_err(|error| Error::Checkpoint {
            channel: channel.to_owned(),
            what: format!("gtid_executed in csa.checkpoint is not a GTID set: {error}"),
        })?;
        let all = found.get_or_insert_default();
        all.sequence = all.sequence.max(Sequence::new(sequence));
        all.epoch = all.epoch.max(epoch);
        all.executed.union(&executed);
    }
    Ok(found)
}
