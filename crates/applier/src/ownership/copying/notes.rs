//! The tables in which a copy notes how far it is, and the statements of a chunk on its range.

use csa_provider::binlog::GtidSet;
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::sql_text::quote;

use crate::error::Result;
use crate::ownership::bookkeeping;
use crate::server::lock_wait::FoundLock;
use crate::server::session::Session;

/// The epoch of ranges that nobody has taken.
pub(super) const NO_EPOCH: u64 = 0;

/// A schema and a table in it.
pub type CopiedTable = (String, String);

/// A copy that reads tables in chunks, as the target knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyState {
    /// The source's `server_uuid`.
    pub source_uuid: String,
    /// A digest of all definitions of the source, as they were at the begin, in the copy's own form.
    pub definitions: u64,
    /// The transactions that no chunk lacks.
    pub executed: GtidSet,
    /// Some of the transactions that chunks may show: a source that lost any of them in a crash is another one.
    pub seen: GtidSet,
    /// The tables are made: all rows in them are of this copy.
    pub has_tables: bool,
    /// The work that is left for the time when the tables have converged, in the copy's own form.
    pub later: String,
}

/// A range of a table's keys that is copied in chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRange {
    pub table: CopiedTable,
    pub number: u32,
    /// The part that is not copied yet, in the copy's own form; `None` if all is.
    pub left: Option<String>,
    pub rows: u64,
}

/// All rows of a copy are there; the channel applies what changed meanwhile, in the mode for tables that converge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converging {
    pub tables: Vec<CopiedTable>,
    /// Once these transactions are applied, the tables are what they are on the source; `None` while rows are
    /// missing.
    pub until: Option<GtidSet>,
    /// The statements to run then, in the copy's own form.
    pub later: String,
}

/// Tables of an unfinished copy, by their names on the target.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS csa.copy (\
    channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
    table_schema VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
    table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
    begun_at TIMESTAMP(6) NOT NULL, \
    PRIMARY KEY (channel, table_schema, table_name)) ENGINE=InnoDB";

const CREATE_STATE: &str = "CREATE TABLE IF NOT EXISTS csa.copy_state (\
    channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, \
    source_uuid CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
    definitions BIGINT UNSIGNED NOT NULL, \
    gtid_executed LONGTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
    seen LONGTEXT CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
    until_gtids LONGTEXT CHARACTER SET ascii COLLATE ascii_bin, \
    has_tables TINYINT NOT NULL, \
    later LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL) ENGINE=InnoDB";

const CREATE_RANGE: &str = "CREATE TABLE IF NOT EXISTS csa.copy_range (\
    channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
    table_schema VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
    table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \
    number INT UNSIGNED NOT NULL, \
    left_to_copy LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, \
    rows_copied BIGINT UNSIGNED NOT NULL, \
    epoch BIGINT UNSIGNED NOT NULL, \
    PRIMARY KEY (channel, table_schema, table_name, number)) ENGINE=InnoDB";

pub(super) async fn create_notes(session: &mut Session) -> Result<()> {
    for (table, statement) in
        [("copy", CREATE), ("copy_state", CREATE_STATE), ("copy_range", CREATE_RANGE)]
    {
        bookkeeping::create(session, table, &[statement]).await?;
    }
    Ok(())
}

/// Gives the ranges of a channel an epoch that no other has, and returns it. Waits for a chunk that is being written.
pub(crate) async fn take_ranges(session: &mut Session, channel: &str) -> Result<u64> {
    let unique: Vec<u64> = session.rows("SELECT UUID_SHORT()").await?;
    let epoch = unique.first().copied().unwrap_or(NO_EPOCH);
    let taken = format!("UPDATE csa.copy_range SET epoch={epoch} WHERE channel={}", quote(channel));
    session.run(taken).await?;
    Ok(epoch)
}

/// Returns true for a lock on ranges of a copy, which only its chunks hold.
pub(crate) fn is_of_ranges(found: &FoundLock) -> bool {
    found.lock == "table csa.copy_range"
}

/// Removes what a copy left that the operator gave up by deleting its tables from `csa.copy`. With it a channel that begins
/// without a checkpoint would wait for the rest of that copy.
pub(crate) async fn forget_left(session: &mut Session, channel: &str) -> Result<()> {
    for table in ["copy_range", "copy_state"] {
        if bookkeeping::has_table(session, table).await? {
            let channel = quote(channel);
            session.run(format!("DELETE FROM csa.{table} WHERE channel={channel}")).await?;
        }
    }
    Ok(())
}

/// Returns the query that locks a range before a chunk of it is written. It returns no row once another copy has
/// the ranges or the channel has been started, or the range is copied.
#[must_use]
pub fn locked_range(channel: &str, range: &CopyRange, epoch: u64) -> String {
    format!("SELECT 1 FROM csa.copy_range WHERE {} FOR UPDATE", is_range(channel, range, epoch))
}

/// Returns the statement that moves a range past a chunk of so many rows, in the chunk's own transaction.
#[must_use]
pub fn moved_range(channel: &str, range: &CopyRange, rows: u64, epoch: u64) -> String {
    let left = range.left.as_deref().map_or_else(|| "NULL".to_owned(), quote);
    format!(
        "UPDATE csa.copy_range SET left_to_copy={left}, rows_copied=rows_copied+{rows} WHERE {}",
        is_range(channel, range, epoch)
    )
}

fn is_range(channel: &str, range: &CopyRange, epoch: u64) -> String {
    let CopyRange { table: (schema, table), number, .. } = range;
    let epoch = match is_planted(Bug::RangeEpochIgnored) {
        true => "epoch".to_owned(),
        false => epoch.to_string(),
    };
    format!(
        "channel={} AND table_schema={} AND table_name={} AND number={number} AND epoch={epoch} \
         AND left_to_copy IS NOT NULL",
        quote(channel),
        quote(schema),
        quote(table)
    )
}
