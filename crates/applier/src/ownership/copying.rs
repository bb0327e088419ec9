//! The claim of a copy: it holds the channel's lock while tables are copied, remembers on the target how far they
//! are, and ends with the channel's first checkpoint.
//!
//! `csa.copy` names the tables that the copy made, until it ends. For tables that are copied in chunks,
//! `csa.copy_range` has a row for each range of a table; each chunk moves it in its own transaction.
//! `csa.copy_state` has what the tables have in common: the transactions after which the copy began, and once all
//! rows are there, those after which the channel has applied what changed meanwhile.

mod history;
mod notes;

use std::time::Duration;

use csa_provider::binlog::{GtidSet, Uuid};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::seams::unhurried;
use csa_provider::sql_text::quote;
use tracing::info;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::ownership::bookkeeping::{self, RELOAD_AND_RESTART, by_hand, has_table};
use crate::ownership::{channel_record, checkpoint, intent, locks, target_servers};
use crate::server::lock_names::lock_name;
use crate::server::session::Session;
use crate::server::target::Target;
use csa_scheduler::sequence::Sequence;
pub use history::ExecutedBefore;
pub use notes::{Converging, CopiedTable, CopyRange, CopyState, locked_range, moved_range};
use notes::{NO_EPOCH, create_notes};
pub(crate) use notes::{forget_left, is_of_ranges, take_ranges};

/// An identity that no daemon has, so a session that holds a channel is never taken for our own and
/// ended.
const NOBODY: &str = "csa-daemon copy";

/// The holder pings far more often; later the server frees the lock of one whose host is gone.
const IDLE_LIMIT: Duration = Duration::from_secs(120);

/// A channel that a copy holds.
#[derive(Debug)]
pub struct CopyClaim {
    session: Session,
    channel: String,
}

impl CopyClaim {
    /// Takes a channel that has no checkpoint.
    ///
    /// # Errors
    /// A daemon or another copy has the channel, or it has a checkpoint; nothing is changed then.
    pub async fn take(target: &Target, channel: &str) -> Result<Self> {
        let mut session = hold(target, channel).await?;
        checkpoint::create(&mut session).await?;
        if let Some(found) = checkpoint::read(&mut session, channel, false).await? {
            return Err(Error::Checkpoint {
                channel: channel.to_owned(),
                what: format!(
                    "there is one, at {}: the target is the channel's copy already; to copy again, stop the \
                     daemon, drop the copied tables and run there: {}DELETE FROM csa.checkpoint WHERE channel={}",
                    found.executed.brief(),
                    by_hand(session.logs()),
                    quote(channel)
                ),
            });
        }
        // The channel's first start comes with a checkpoint, and would take the row for its own.
        channel_record::forget(&mut session, channel).await?;
        create_notes(&mut session).await?;
        Ok(Self { session, channel: channel.to_owned() })
    }

    /// Takes a channel that has a checkpoint and does not run, to copy tables of it again. Returns what it has
    /// applied.
    ///
    /// # Errors
    /// A daemon or another copy has the channel, or it has no checkpoint.
    pub async fn take_stopped(target: &Target, channel: &str) -> Result<(Self, GtidSet)> {
        let mut session = hold(target, channel).await?;
        let found = match has_table(&mut session, "checkpoint").await? {
            // A daemon that has lost the lock, and does not know it, must not apply what a chunk would undo.
            true => checkpoint::raise_epoch(&mut session, channel, NOBODY).await?,
            false => None,
        };
        let Some(found) = found else {
            return Err(Error::Checkpoint {
                channel: channel.to_owned(),
                what:
                    "there is none, so nothing is copied yet; run csa-daemon copy without --table"
                        .to_owned(),
            });
        };
        create_notes(&mut session).await?;
        Ok((Self { session, channel: channel.to_owned() }, found.executed))
    }

    /// Gives up a copy of tables of a channel that has a checkpoint and does not run, while rows are missing. Returns these
    /// tables, which stay as they are; `None` if there is no such copy.
    ///
    /// # Errors
    /// A daemon or another copy has the channel.
    pub async fn give_up_again(target: &Target, channel: &str) -> Result<Option<Vec<CopiedTable>>> {
        let mut session = hold(target, channel).await?;
        let has_checkpoint = has_table(&mut session, "checkpoint").await?
            && checkpoint::read(&mut session, channel, false).await?.is_some();
        if !has_checkpoint {
            session.close().await;
            return Ok(None);
        }
        create_notes(&mut session).await?;
        let mut claim = Self { session, channel: channel.to_owned() };
        let left = claim.converging().await?.filter(|converging| converging.until.is_none());
        if left.is_some() {
            claim.forget().await?;
        }
        claim.give_back().await;
        Ok(left.map(|converging| converging.tables))
    }

    /// Takes a channel whose copy a pipeline has met, to end it or to make its tables. Returns `None` if that is done, or
    /// the copy is another one by now: the channel had nobody for a moment.
    ///
    /// # Errors
    /// See [`Self::take`].
    pub async fn take_met(
        target: &Target,
        channel: &str,
        met: &Converging,
    ) -> Result<Option<Self>> {
        let session = hold(target, channel).await?;
        let mut claim = Self { session, channel: channel.to_owned() };
        let found = claim.converging().await?;
        if found.is_some_and(|found| found.until == met.until && found.later == met.later) {
            return Ok(Some(claim));
        }
        claim.give_back().await;
        Ok(None)
    }

    /// Returns the tables that an earlier copy of the channel made, and did not finish.
    ///
    /// # Errors
    /// The target is away, here and below.
    pub async fn unfinished(&mut self) -> Result<Vec<CopiedTable>> {
        unfinished(&mut self.session, &self.channel).await
    }

    /// Notes tables before they are made, in place of those of an earlier copy, and that their source is no target of the
    /// channel any more.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn note(&mut self, tables: &[CopiedTable], source: Option<Uuid>) -> Result<()> {
        self.session.run("BEGIN").await?;
        target_servers::forget(&mut self.session, &self.channel, source).await?;
        self.delete("copy").await?;
        for tables in tables.chunks(1000) {
            let channel = quote(&self.channel);
            let rows = tables.iter().map(|(schema, table)| {
                format!("({channel},{},{},NOW(6))", quote(schema), quote(table))
            });
            let rows = rows.collect::<Vec<String>>().join(",");
            let columns = "channel, table_schema, table_name, begun_at";
            self.session.run(format!("INSERT INTO csa.copy ({columns}) VALUES {rows}")).await?;
        }
        self.session.run("COMMIT").await.map(drop)
    }

    /// Forgets an earlier copy, once its tables are dropped.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn forget(&mut self) -> Result<()> {
        self.session.run("BEGIN").await?;
        self.delete("copy").await?;
        self.delete_ranges().await?;
        self.session.run("COMMIT").await.map(drop)
    }

    async fn delete_ranges(&mut self) -> Result<()> {
        self.delete("copy_range").await?;
        self.delete("copy_state").await
    }

    async fn delete(&mut self, table: &str) -> Result<()> {
        let channel = quote(&self.channel);
        self.session.run(format!("DELETE FROM csa.{table} WHERE channel={channel}")).await.map(drop)
    }

    /// Returns an earlier copy of which all tables are made, and those that are copied as a whole are filled.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn state(&mut self) -> Result<Option<CopyState>> {
        let query = format!(
            "SELECT source_uuid, definitions, gtid_executed, seen, has_tables, later FROM csa.copy_state \
             WHERE channel={}",
            quote(&self.channel)
        );
        let rows: Vec<(String, u64, String, String, bool, String)> =
            self.session.rows(&query).await?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let (source_uuid, definitions, executed, seen, has_tables, later) = row;
        let (executed, seen) = (self.set(&executed)?, self.set(&seen)?);
        Ok(Some(CopyState { source_uuid, definitions, executed, seen, has_tables, later }))
    }

    /// Returns what the channel has to apply before an earlier copy is one; `None` if nothing is left.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn converging(&mut self) -> Result<Option<Converging>> {
        converging(&mut self.session, &self.channel).await
    }

    fn set(&self, text: &str) -> Result<GtidSet> {
        gtid_set(&self.channel, text)
    }

    /// Notes the state and the ranges, before the first chunk is read, in place of an earlier copy's.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn note_ranges(&mut self, state: &CopyState, ranges: &[CopyRange]) -> Result<()> {
        let CopyState { source_uuid, definitions, executed, seen, has_tables, later } = state;
        let has_tables = u8::from(*has_tables);
        let channel = quote(&self.channel);
        self.session.run("BEGIN").await?;
        self.delete_ranges().await?;
        for ranges in ranges.chunks(1000) {
            let rows =
                ranges.iter().map(|CopyRange { table: (schema, table), number, left, rows }| {
                    let left = left.as_deref().map_or_else(|| "NULL".to_owned(), quote);
                    let (schema, table) = (quote(schema), quote(table));
                    format!("({channel},{schema},{table},{number},{left},{rows},{NO_EPOCH})")
                });
            let rows = rows.collect::<Vec<String>>().join(",");
            let columns =
                "channel, table_schema, table_name, number, left_to_copy, rows_copied, epoch";
            self.session
                .run(format!("INSERT INTO csa.copy_range ({columns}) VALUES {rows}"))
                .await?;
        }
        let state = format!(
            "INSERT INTO csa.copy_state (channel, source_uuid, definitions, gtid_executed, seen, until_gtids, \
             has_tables, later) VALUES ({channel},{},{definitions},'{executed}','{seen}',NULL,{has_tables},{})",
            quote(source_uuid),
            quote(later)
        );
        self.session.run(state).await?;
        self.session.run("COMMIT").await.map(drop)
    }

    /// Notes that the tables are made, and what is left for later.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn made_tables(&mut self, later: &str) -> Result<()> {
        self.change_state(&format!("has_tables=1,later={}", quote(later))).await
    }

    /// Notes what is left for later, and gives the channel back.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn leave(mut self, later: &str) -> Result<()> {
        self.change_state(&format!("later={}", quote(later))).await?;
        self.session.close().await;
        Ok(())
    }

    async fn change_state(&mut self, change: &str) -> Result<()> {
        let channel = quote(&self.channel);
        let update = format!("UPDATE csa.copy_state SET {change} WHERE channel={channel}");
        self.session.run(update).await.map(drop)
    }

    /// Forgets how far an earlier copy was, before its tables are dropped.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn forget_ranges(&mut self) -> Result<()> {
        self.session.run("BEGIN").await?;
        self.delete_ranges().await?;
        self.session.run("COMMIT").await.map(drop)
    }

    /// Takes the ranges over from whoever had them, whose chunks are refused from now on. Returns the ranges, and
    /// the epoch for [`moved_range`]. No two copies have the same one, also where a copy began again with new ranges.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn take_ranges(&mut self) -> Result<(Vec<CopyRange>, u64)> {
        let epoch = take_ranges(&mut self.session, &self.channel).await?;
        let channel = quote(&self.channel);
        let query = format!(
            "SELECT table_schema, table_name, number, left_to_copy, rows_copied FROM csa.copy_range \
             WHERE channel={channel} ORDER BY 1, 2, 3"
        );
        let rows: Vec<(String, String, u32, Option<String>, u64)> =
            self.session.rows(&query).await?;
        let range = |(schema, table, number, left, rows)| CopyRange {
            table: (schema, table),
            number,
            left,
            rows,
        };
        Ok((rows.into_iter().map(range).collect(), epoch))
    }

    /// Notes what the source has executed after chunks were read.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn saw(&mut self, seen: &GtidSet) -> Result<()> {
        self.change_state(&format!("seen='{seen}'")).await
    }

    /// Keeps the session, and with it the lock.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn ping(&mut self) -> Result<()> {
        self.session.run("DO 0").await.map(drop)
    }

    /// Returns a query that returns a row as long as this copy has the channel, for sessions that write rows of a
    /// snapshot. Asked after a chunk's rows and before its COMMIT: another copy drops the table before it copies, and
    /// waits for that COMMIT.
    #[must_use]
    pub fn held(&self) -> String {
        if is_planted(Bug::CopyLockIgnored) {
            return "SELECT 1".to_owned();
        }
        let (lock, id) = (quote(&lock_name(&self.channel)), self.session.id());
        format!("SELECT 1 FROM DUAL WHERE IS_USED_LOCK({lock}) <=> {id}")
    }

    /// Makes the copy the channel's start: its checkpoint, in one transaction with the end of the notes.
    ///
    /// # Errors
    /// See [`Self::unfinished`]. Where the answer to COMMIT was lost, the next copy finds the checkpoint.
    pub async fn finish(mut self, executed: &GtidSet) -> Result<()> {
        self.session.run("BEGIN").await?;
        self.add_checkpoint(executed).await?;
        self.delete("copy").await?;
        self.delete_ranges().await?;
        self.session.run("COMMIT").await?;
        info!(channel = self.channel, executed = %executed.brief(), "the copy is the channel's start");
        self.session.close().await;
        Ok(())
    }

    /// Lets the channel begin with what changed while chunks were read, up to `until`.
    ///
    /// # Errors
    /// See [`Self::finish`].
    pub async fn converge(mut self, executed: &GtidSet, until: &GtidSet) -> Result<()> {
        self.session.run("BEGIN").await?;
        self.add_checkpoint(executed).await?;
        self.delete("copy").await?;
        self.converge_until(until).await?;
        self.session.run("COMMIT").await?;
        info!(
            channel = self.channel, executed = %executed.brief(), until = %until.brief(),
            "all rows are copied; the channel applies what changed meanwhile"
        );
        self.session.close().await;
        Ok(())
    }

    /// Lets a channel with a checkpoint apply what changed while chunks were read, up to `until`.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn converge_again(mut self, until: &GtidSet) -> Result<()> {
        self.converge_until(until).await?;
        self.session.close().await;
        Ok(())
    }

    async fn converge_until(&mut self, until: &GtidSet) -> Result<()> {
        self.change_state(&format!("until_gtids='{until}'")).await
    }

    /// Gives the channel back; its tables are not whole yet.
    pub async fn give_back(self) {
        self.session.close().await;
    }

    /// Ends a copy whose tables have converged.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn end(mut self) -> Result<()> {
        self.forget().await?;
        self.session.close().await;
        Ok(())
    }

    async fn add_checkpoint(&mut self, executed: &GtidSet) -> Result<()> {
        // What the statement changed is not in tables that were made since.
        intent::forget(&mut self.session, &self.channel, &GtidSet::new()).await?;
        let base = Checkpoint {
            sequence: Sequence::default(),
            executed: executed.clone(),
            epoch: checkpoint::next_epoch(0, NOBODY),
        };
        checkpoint::add_rows(&mut self.session, &self.channel, 0..1, &base).await
    }
}

/// Takes the lock of a channel.
async fn hold(target: &Target, channel: &str) -> Result<Session> {
    let mut session = bookkeeping::connect_level(target).await?;
    session.end_when_idle(unhurried(IDLE_LIMIT)).await?;
    // Unlike a daemon, a copy has no sessions of an earlier life: whoever holds the lock may still write.
    let identity = format!("{NOBODY} {}", session.id());
    if !is_planted(Bug::CopyUnlocked) {
        locks::take(&mut session, channel, locks::Claimant::new(&identity)).await?;
    }
    Ok(session)
}

fn gtid_set(channel: &str, text: &str) -> Result<GtidSet> {
    text.parse().map_err(|source| Error::GtidSet {
        place: format!("copy of channel {channel}: a set in csa.copy_state"),
        source,
    })
}

/// Returns what a channel has to apply before its copy is one; `None` if nothing is left.
pub(crate) async fn converging(session: &mut Session, channel: &str) -> Result<Option<Converging>> {
    if !has_table(session, "copy_state").await? {
        return Ok(None);
    }
    let name = quote(channel);
    let states: Vec<(Option<String>, String)> = session
        .rows(&format!("SELECT until_gtids, later FROM csa.copy_state WHERE channel={name}"))
        .await?;
    let Some((until, later)) = states.into_iter().next() else { return Ok(None) };
    let tables = session
        .rows(&format!(
            "SELECT DISTINCT table_schema, table_name FROM csa.copy_range WHERE channel={name}"
        ))
        .await?;
    let until = until.map(|until| gtid_set(channel, &until)).transpose()?;
    Ok(Some(Converging { tables, until, later }))
}

/// Refuses the first start of a channel whose copy is not finished.
pub(crate) async fn check_finished(session: &mut Session, channel: &str) -> Result<()> {
    if !has_table(session, "copy").await? {
        return Ok(());
    }
    let tables = unfinished(session, channel).await?;
    let Some((schema, table)) = tables.first() else { return Ok(()) };
    Err(Error::Checkpoint {
        channel: channel.to_owned(),
        what: format!(
            "there is none, and a copy of {} tables ({schema}.{table} first) was begun and not finished; run \
             csa-daemon copy --channel {channel} again, which continues with them or drops them; if they are \
             another copy by now: {}DELETE FROM csa.copy WHERE channel={} there, set applier.start_from to that \
             copy's GTID set, then: {RELOAD_AND_RESTART}",
            tables.len(),
            by_hand(session.logs()),
            quote(channel)
        ),
    })
}

async fn unfinished(session: &mut Session, channel: &str) -> Result<Vec<CopiedTable>> {
    let query = format!(
        "SELECT table_schema, table_name FROM csa.copy WHERE channel={} ORDER BY 1, 2",
        quote(channel)
    );
    session.rows(&query).await
}
