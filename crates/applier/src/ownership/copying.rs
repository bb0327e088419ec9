//! The claim of a copy: it holds the channel's lock while tables are copied, remembers which tables of the
//! target it made, and ends with the channel's first checkpoint.

use std::time::Duration;

use csa_provider::binlog::GtidSet;
use csa_provider::sql_text::quote;
use tracing::info;

use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::ownership::checkpoint::{self, has_table};
use crate::ownership::control::add_rows;
use crate::ownership::{bookkeeping, locks};
use crate::server::port::Target;
use crate::server::session::Session;
use csa_scheduler::sequence::Sequence;

/// An identity that no daemon has, so a session that holds a channel is never taken for our own and
/// ended.
const NOBODY: &str = "csa-daemon copy";

/// The holder pings far more often; later the server frees the lock of one whose host is gone.
const IDLE_LIMIT: Duration = Duration::from_secs(600);

/// Tables of an unfinished copy, by their names on the target.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS csa.copy (\
    channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
    table_schema VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
    table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
    begun_at TIMESTAMP(6) NOT NULL, \
    PRIMARY KEY (channel, table_schema, table_name)) ENGINE=InnoDB";

/// A channel that a copy holds.
#[derive(Debug)]
pub struct CopyClaim {
    session: Session,
    channel: String,
}

/// A schema and a table in it.
pub type CopiedTable = (String, String);

impl CopyClaim {
    /// Takes a channel that has no checkpoint.
    ///
    /// # Errors
    /// A daemon or another copy has the channel, or it has a checkpoint; nothing is changed then.
    pub async fn take(target: &Target, channel: &str) -> Result<Self> {
        let mut session = bookkeeping::connect(target).await?;
        session.end_when_idle(IDLE_LIMIT).await?;
        locks::take(&mut session, channel, NOBODY).await?;
        checkpoint::create(&mut session).await?;
        if let Some(found) = checkpoint::read(&mut session, channel, false).await? {
            return Err(Error::Checkpoint {
                channel: channel.to_owned(),
                what: format!(
                    "there is one, at {}: the target is the channel's copy already; to copy again, stop the \
                     daemon, drop the copied tables and run there: DELETE FROM csa.checkpoint WHERE channel={}",
                    found.executed.brief(),
                    quote(channel)
                ),
            });
        }
        bookkeeping::create(&mut session, CREATE).await?;
        Ok(Self { session, channel: channel.to_owned() })
    }

    /// Returns the tables that an earlier copy of the channel made, and did not finish.
    ///
    /// # Errors
    /// The target is away, here and below.
    pub async fn unfinished(&mut self) -> Result<Vec<CopiedTable>> {
        unfinished(&mut self.session, &self.channel).await
    }

    /// Notes tables before they are made.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn note(&mut self, tables: &[CopiedTable]) -> Result<()> {
        for tables in tables.chunks(1000) {
            let channel = quote(&self.channel);
            let rows = tables.iter().map(|(schema, table)| {
                format!("({channel},{},{},NOW(6))", quote(schema), quote(table))
            });
            let rows = rows.collect::<Vec<String>>().join(",");
            self.session.run(format!("INSERT IGNORE INTO csa.copy VALUES {rows}")).await?;
        }
        Ok(())
    }

    /// Forgets the tables of an earlier copy, once they are dropped.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn forget(&mut self) -> Result<()> {
        let channel = quote(&self.channel);
        self.session.run(format!("DELETE FROM csa.copy WHERE channel={channel}")).await.map(drop)
    }

    /// Keeps the session, and with it the lock.
    ///
    /// # Errors
    /// See [`Self::unfinished`].
    pub async fn ping(&mut self) -> Result<()> {
        self.session.run("DO 0").await.map(drop)
    }

    /// Makes the copy the channel's start: its checkpoint, in one transaction with the end of the notes.
    ///
    /// # Errors
    /// See [`Self::unfinished`]. Where the answer to COMMIT was lost, the next copy finds the checkpoint.
    pub async fn finish(mut self, executed: &GtidSet) -> Result<()> {
        let Self { session, channel } = &mut self;
        let base = Checkpoint {
            sequence: Sequence::default(),
            executed: executed.clone(),
            epoch: checkpoint::next_epoch(0, NOBODY),
        };
        session.run("BEGIN").await?;
        add_rows(session, channel, 0..1, &base).await?;
        let forgotten = format!("DELETE FROM csa.copy WHERE channel={}", quote(channel));
        session.run(forgotten).await?;
        session.run("COMMIT").await?;
        info!(channel, executed = %executed.brief(), "the copy is the channel's start");
        self.session.close().await;
        Ok(())
    }
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
             csa-daemon copy --channel {channel} again, which drops them; if they are another copy by now: DELETE \
             FROM csa.copy WHERE channel={} there, and set applier.start_from to that copy's GTID set",
            tables.len(),
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
