//! The checkpoint rows: the target's progress, written in each group's own transaction.

use csa_provider::binlog::{GtidSet, ParseGtidError};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_scheduler::sequence::Sequence;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::ownership::bookkeeping;
use crate::server::lock_names;
use crate::server::session::Session;
use csa_provider::sql_text::quote;

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

/// A group's UPDATE of its checkpoint row; it matches no row once another daemon took over.
pub(crate) fn update(
    channel: &str,
    worker: u16,
    epoch: u64,
    sequence: Sequence,
    executed: &GtidSet,
) -> String {
    // Not REPLACE: it takes a next-key lock even in READ COMMITTED, and workers would wait for each
    // other (measured on 9.7).
    format!(
        "UPDATE csa.checkpoint SET sequence={sequence},gtid_executed='{executed}',\
         updated_at=NOW(6) WHERE channel={} AND worker={worker}{}",
        quote(channel),
        of_epoch(epoch)
    )
}

fn of_epoch(epoch: u64) -> String {
    match is_planted(Bug::EpochIgnored) {
        true => String::new(),
        false => format!(" AND epoch={epoch}"),
    }
}

/// Number of the row that shows progress to readers where the target's `gtid_executed` is the
/// checkpoint; no worker has this number.
pub const PROGRESS: u16 = u16::MAX;
/// Number of the row that records commits out of the source's order (commit_order.rs); no worker has it.
pub(crate) const OUT_OF_ORDER: u16 = PROGRESS - 2;

/// Neither a worker nor [`PROGRESS`].
const NOBODY: u16 = u16::MAX - 1;

/// As [`update`], and changes nothing: for a planted bug, which writes the checkpoint later.
pub(crate) fn hold(channel: &str, worker: u16, epoch: u64) -> String {
    format!(
        "UPDATE csa.checkpoint SET epoch=epoch WHERE channel={} AND worker={worker}{}",
        quote(channel),
        of_epoch(epoch)
    )
}

/// Returns the epoch of a daemon that takes the channel over where `found` is the last one: higher, and no
/// other daemon's. A target that loses its last commits in a crash may lose an epoch. With a plain counter the
/// next daemon would then have the same epoch, and the first would take the channel for its own.
pub(crate) fn next_epoch(found: u64, identity: &str) -> u64 {
    ((found >> 32) + 1) << 32 | (lock_names::digest(identity) & 0xffff_ffff)
}

/// Creates the table, and the schema, if it is missing.
pub(crate) async fn create(session: &mut Session) -> Result<()> {
    bookkeeping::create(session, "checkpoint", &CREATE).await
}

/// Writes the row that shows readers the channel's progress.
pub(crate) async fn keep_progress(
    session: &mut Session,
    channel: &str,
    checkpoint: &Checkpoint,
) -> Result<()> {
    let Checkpoint { sequence, executed, epoch } = checkpoint;
    let channel = quote(channel);
    // Only the control session writes this row, so the upsert's locks meet nobody.
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

/// Returns the GTID set in the row for readers, if it is there.
pub(crate) async fn progress(session: &mut Session, channel: &str) -> Result<Option<GtidSet>> {
    let query = format!(
        "SELECT gtid_executed FROM csa.checkpoint WHERE channel={} AND worker={PROGRESS}",
        quote(channel)
    );
    let rows: Vec<String> = session.rows(&query).await?;
    let Some(text) = rows.into_iter().next() else { return Ok(None) };
    text.parse().map(Some).map_err(|source| unreadable(channel, source))
}

/// Returns true if the target's `gtid_executed` was the channel's checkpoint when it last ran.
pub(crate) async fn has_progress(session: &mut Session, channel: &str) -> Result<bool> {
    let query = format!(
        "SELECT COUNT(*) FROM csa.checkpoint WHERE channel={} AND worker={PROGRESS}",
        quote(channel)
    );
    let found: Vec<u64> = session.rows(&query).await?;
    Ok(found.first().is_some_and(|&count| count > 0))
}

/// Makes the workers' rows the checkpoint again, with the contents of `checkpoint`. One
/// transaction, so a crash leaves either the row for readers or the new contents.
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

/// Returns the workers that have rows, and [`PROGRESS`].
pub(crate) async fn workers(session: &mut Session, channel: &str) -> Result<Vec<u16>> {
    let query = format!("SELECT worker FROM csa.checkpoint WHERE channel={}", quote(channel));
    session.rows(&query).await
}

/// Changes nothing and locks nothing, but fails where the target takes no writes.
pub(crate) fn probe(channel: &str) -> String {
    format!(
        "UPDATE csa.checkpoint SET epoch=epoch WHERE channel={} AND worker={NOBODY}",
        quote(channel)
    )
}

/// Returns a channel's progress: all of its rows together.
///
/// With `lock` it waits for the transactions that hold the rows.
pub(crate) async fn read(
    session: &mut Session,
    channel: &str,
    lock: bool,
) -> Result<Option<Checkpoint>> {
    let suffix = if lock { " FOR UPDATE" } else { "" };
    let condition = format!(" WHERE channel={}{suffix}", quote(channel));
    let mut found: Option<Checkpoint> = None;
    // The row for readers takes part: what it states was executed before it was written.
    for (_, _, row) in rows(session, &condition).await? {
        found.get_or_insert_default().merge(&row);
    }
    Ok(found)
}

/// Returns every row, with its channel and worker.
pub(crate) async fn read_rows(session: &mut Session) -> Result<Vec<(String, u16, Checkpoint)>> {
    rows(session, "").await
}

async fn rows(session: &mut Session, condition: &str) -> Result<Vec<(String, u16, Checkpoint)>> {
    let query = format!(
        "SELECT channel, worker, sequence, gtid_executed, epoch FROM csa.checkpoint{condition}"
    );
    let rows: Vec<(String, u16, u64, String, u64)> = session.rows(&query).await?;
    let checkpoint = |(channel, worker, sequence, executed, epoch): (String, _, _, String, _)| {
        let executed: GtidSet = executed.parse().map_err(|source| unreadable(&channel, source))?;
        Ok((channel, worker, Checkpoint { sequence: Sequence::new(sequence), executed, epoch }))
    };
    rows.into_iter().map(checkpoint).collect()
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
    // IGNORE, because rows that are there have progress of their own.
    let insert = format!(
        "INSERT IGNORE INTO csa.checkpoint (channel, worker, sequence, gtid_executed, epoch, updated_at) VALUES {}",
        rows.join(",")
    );
    session.run(insert).await.map(drop)
}

/// Waits for the groups in flight and fences all later ones of whoever had the channel. Returns the progress, which is
/// final; `None` if the channel has none.
pub(crate) async fn raise_epoch(
    session: &mut Session,
    channel: &str,
    identity: &str,
) -> Result<Option<Checkpoint>> {
    session.run("BEGIN").await?;
    let Some(mut found) = read(session, channel, true).await? else {
        session.run("ROLLBACK").await?;
        return Ok(None);
    };
    found.epoch = next_epoch(found.epoch, identity);
    session
        .run(format!(
            "UPDATE csa.checkpoint SET epoch={} WHERE channel={}",
            found.epoch,
            quote(channel)
        ))
        .await?;
    // If the answer is lost, the next start raises the epoch once more, which does no harm.
    session.run("COMMIT").await?;
    Ok(Some(found))
}

/// Returns the error for a row whose GTID set can't be read.
pub(crate) fn unreadable(channel: &str, source: ParseGtidError) -> Error {
    Error::GtidSet {
        place: format!("checkpoint of channel {channel}: gtid_executed in csa.checkpoint"),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::next_epoch;

    #[test]
    fn epochs_rise_and_no_two_daemons_have_the_same() {
        // The second is of a version that counted one by one.
        for found in [0, 7, next_epoch(0, "one"), next_epoch(7, "two")] {
            let (one, two) = (next_epoch(found, "one"), next_epoch(found, "two"));
            assert!(one > found && two > found && one != two, "{found}: {one} {two}");
        }
    }
}
