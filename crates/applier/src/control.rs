//! The control session: holds the channel's lock, owns its epoch, runs statements that commit by
//! themselves.

use std::time::Duration;

use csa_provider::GtidSet;
use csa_scheduler::Sequence;
use tracing::info;

use crate::checkpoint::{self, Checkpoint, StartFrom};
use crate::options::{TargetGtids, TargetOptions};
use crate::session::Session;
use crate::sql::quote;
use crate::statement_intent;
use crate::{Error, ErrorClass, Result, Vendor};

/// A lock held on the target for as long as this connection lives.
///
/// Statements that commit by themselves run here and nowhere else: a daemon that lost the lock has
/// lost the connection, and with it the way to send them.
#[derive(Debug)]
pub struct ControlSession {
    pub(crate) session: Session,
    pub(crate) channel: String,
    pub(crate) checkpoint: Checkpoint,
    /// Workers that have their rows.
    workers: u16,
}

impl ControlSession {
    /// Takes the channel: lock, checkpoint table and rows, a new epoch. Returns how far it is.
    ///
    /// `source_executed` is what the source has executed, for `start_from = "source"` and to tell the
    /// target's own transactions from the source's; without `statement_gtids` there will be entries in `csa.statement`.
    ///
    /// # Errors
    /// [`Error::Fenced`] when another daemon holds the channel.
    pub async fn open(
        target: &TargetOptions,
        channel: &str,
        workers: u16,
        start: &StartFrom,
        source_executed: Option<&GtidSet>,
        statement_gtids: bool,
    ) -> Result<Self> {
        let mut session = connect(target).await?;
        lock(&mut session, channel).await?;
        // Read before our own table adds to it.
        let provisioned = provisioned(&mut session, source_executed).await?;
        checkpoint::create(&mut session).await?;
        if !statement_gtids {
            statement_intent::create(&mut session).await?;
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
                    checkpoint.executed.union(&target_executed(&mut session).await?);
                    checkpoint::drop_progress(&mut session, channel, &checkpoint).await?;
                }
            }
        }
        info!(
            channel,
            epoch = checkpoint.epoch,
            sequence = checkpoint.sequence.get(),
            executed = %checkpoint.executed,
            "channel taken"
        );
        Ok(Self { session, channel: channel.to_owned(), checkpoint, workers })
    }

    /// Connects again after the session was lost, and makes sure the channel is still ours.
    pub(crate) async fn reopen(&mut self, target: &TargetOptions) -> Result<()> {
        let mut session = connect(target).await?;
        lock(&mut session, &self.channel).await?;
        let found = checkpoint::read(&mut session, &self.channel, false).await?;
        let epoch = found.map_or(0, |row| row.epoch);
        if epoch != self.checkpoint.epoch {
            return Err(fenced(
                &self.channel,
                format!("another daemon took it over (epoch {epoch})"),
            ));
        }
        self.session = session;
        Ok(())
    }

    /// How far the channel was when it was taken, and the epoch of this daemon.
    #[must_use]
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Makes sure that so many workers have their rows. Rows that are there are left alone: a worker
    /// in the middle of a group holds its own, and may wait for one that has not begun yet.
    pub(crate) async fn add_workers(&mut self, workers: u16) -> Result<()> {
        let new = self.workers..workers;
        if !new.is_empty() {
            add_rows(&mut self.session, &self.channel, new, &self.checkpoint).await?;
            self.workers = workers;
        }
        Ok(())
    }

    /// Brings the target's `gtid_executed` level with what the checkpoint says
    /// (<https://dev.mysql.com/doc/refman/en/replication-options-gtids.html#sysvar_gtid_purged>).
    pub(crate) async fn mirror(&mut self, executed: &GtidSet) -> Result<()> {
        level(&mut self.session, executed).await
    }

    /// Tells readers of the checkpoint how far the target's `gtid_executed` is.
    pub(crate) async fn note_progress(
        &mut self,
        sequence: Sequence,
        executed: &GtidSet,
    ) -> Result<()> {
        let epoch = self.checkpoint.epoch;
        let update =
            checkpoint::update(&self.channel, checkpoint::PROGRESS, epoch, sequence, executed);
        match self.session.run(update).await?.first() {
            Some(1) => Ok(()),
            _ => Err(fenced(&self.channel, "another daemon took it over".to_owned())),
        }
    }

    /// Asks the server for a sign of life; the lock lives as long as it answers.
    pub(crate) async fn ping(&mut self) -> Result<()> {
        self.session.run("DO 1").await.map(drop)
    }

    /// Gives the lock back.
    pub async fn close(mut self) {
        let release = format!("DO RELEASE_LOCK({})", quote(&lock_name(&self.channel)));
        if self.session.run(release).await.is_ok() {
            self.session.close().await;
        }
    }
}

/// The lock of a channel. Lock names end at 64 characters; a longer one keeps its start and a digest
/// of the whole.
#[must_use]
pub fn lock_name(channel: &str) -> String {
    const PREFIX: &str = "csa:";
    if PREFIX.len() + channel.len() <= 64 {
        return format!("{PREFIX}{channel}");
    }
    let digest = channel.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{PREFIX}{}#{digest:016x}", channel.get(..40).unwrap_or_default())
}

/// Bookkeeping must not show in a `gtid_executed` that is to be the source's.
async fn connect(target: &TargetOptions) -> Result<Session> {
    let mut session = Session::connect(target).await?;
    if target.gtids.hides_bookkeeping() {
        session.run("SET SESSION sql_log_bin=0").await?;
    }
    Ok(session)
}

/// Adds to the target's `gtid_executed` what it lacks.
async fn level(session: &mut Session, executed: &GtidSet) -> Result<()> {
    let missing = executed.difference(&target_executed(session).await?);
    if missing.is_empty() {
        return Ok(());
    }
    session.run(format!("SET GLOBAL gtid_purged='+{missing}'")).await.map(drop)
}

/// The target's `gtid_executed` where it is the checkpoint. What another mode applied is not in it.
async fn as_target(
    session: &mut Session,
    channel: &str,
    checkpoint: &Checkpoint,
) -> Result<GtidSet> {
    let executed = target_executed(session).await?;
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

async fn lock(session: &mut Session, channel: &str) -> Result<()> {
    let name = quote(&lock_name(channel));
    let query = format!("SELECT GET_LOCK({name}, 2), COALESCE(IS_USED_LOCK({name}), 0)");
    let rows: Vec<(Option<u8>, u64)> = session.rows(&query).await?;
    match rows.first() {
        Some((Some(1), _)) => Ok(()),
        Some((_, holder)) => Err(fenced(
            channel,
            format!(
                "another daemon holds it on this target (connection {holder} there); stop that one first"
            ),
        )),
        None => Err(fenced(channel, "the target did not answer GET_LOCK".to_owned())),
    }
}

fn first_checkpoint(
    channel: &str,
    start: &StartFrom,
    source_executed: Option<&GtidSet>,
    provisioned: GtidSet,
) -> Result<Checkpoint> {
    let executed = match (start, source_executed) {
        (StartFrom::Executed(set), _) => set.clone(),
        (StartFrom::Source, Some(set)) => set.clone(),
        (StartFrom::Source, None) => {
            return Err(Error::Checkpoint {
                channel: channel.to_owned(),
                what: "start_from = \"source\" needs the source, which can't be reached".to_owned(),
            });
        }
        (StartFrom::Target, _) => provisioned,
    };
    Ok(Checkpoint { sequence: Sequence::default(), executed, epoch: 0 })
}

/// What the target holds of the source: its `gtid_executed` without what it committed itself, such as
/// the making of accounts. No other source has that, so none could take over from this one.
async fn provisioned(session: &mut Session, source: Option<&GtidSet>) -> Result<GtidSet> {
    let mut executed = target_executed(session).await?;
    if executed.is_empty() {
        return Ok(executed);
    }
    let rows: Vec<String> = session.rows("SELECT @@GLOBAL.server_uuid").await?;
    if let Some(own) = rows.first().and_then(|text| text.parse().ok())
        && source.is_some_and(|source| !source.has_uuid(&own))
    {
        executed.remove_uuid(&own);
    }
    Ok(executed)
}

/// The target's own `gtid_executed`; nothing on a server that knows no GTIDs of MySQL.
pub(crate) async fn target_executed(session: &mut Session) -> Result<GtidSet> {
    if session.vendor() == Vendor::MariaDb {
        return Ok(GtidSet::default());
    }
    let rows: Vec<String> = session.rows("SELECT @@GLOBAL.gtid_executed").await?;
    let text = rows.into_iter().next().unwrap_or_default();
    text.parse().map_err(|error| Error::Checkpoint {
        channel: String::new(),
        what: format!("the target's gtid_executed can't be read: {error}"),
    })
}

/// Rows are inserted ahead: a worker's write is then an UPDATE by primary key, which locks one row.
async fn add_rows(
    session: &mut Session,
    channel: &str,
    workers: std::ops::Range<u16>,
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

/// Raises the epoch of every row; waits for what an earlier daemon still has in flight, so what is
/// read with it is final.
async fn take_epoch(session: &mut Session, channel: &str) -> Result<Checkpoint> {
    let mut attempts = 0;
    loop {
        match try_take_epoch(session, channel).await {
            Err(error) if error.class() == ErrorClass::Retry && attempts < 30 => {
                attempts += 1;
                session.run("ROLLBACK").await?;
                info!(channel, "an earlier daemon's transaction still holds the checkpoint row");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            other => return other,
        }
    }
}

async fn try_take_epoch(session: &mut Session, channel: &str) -> Result<Checkpoint> {
    session.run("BEGIN").await?;
    let missing = || Error::Checkpoint {
        channel: channel.to_owned(),
        what: "its rows in csa.checkpoint disappeared".to_owned(),
    };
    let mut found = checkpoint::read(session, channel, true).await?.ok_or_else(missing)?;
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

pub(crate) fn fenced(channel: &str, what: String) -> Error {
    Error::Fenced { channel: channel.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_names_fit_and_differ() {
        let long = "a".repeat(64);
        let other = format!("{}b", "a".repeat(63));
        assert_eq!(lock_name("orders"), "csa:orders");
        assert!(lock_name(&long).len() <= 64);
        assert_ne!(lock_name(&long), lock_name(&other));
    }
}
