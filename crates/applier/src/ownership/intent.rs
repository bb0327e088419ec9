//! Entries in `csa.statement`, for statements on targets that don't record them under their
//! source's GTID, and for rows that can't be rolled back.
//!
//! An entry is committed before the statement runs, and removed in the transaction that moves the
//! checkpoint past it. An entry that is found at a start means that it is unknown whether it took
//! effect.

use csa_provider::binlog::{Gtid, GtidSet};

use crate::error::{Error, Result};
use crate::ownership::bookkeeping;
use crate::server::session::Session;
use csa_provider::sql_text::quote;

const TABLE: &str = "statement";
const CREATE: &str = "CREATE TABLE IF NOT EXISTS csa.statement (\
     channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     gtid VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, \
     executed TINYINT NOT NULL DEFAULT 0, \
     started_at TIMESTAMP(6) NOT NULL, \
     PRIMARY KEY (channel)) ENGINE=InnoDB";

/// The state of a statement by its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It has not been begun.
    None,
    /// It took effect: an operator has set `executed`.
    Executed,
}

/// Creates the table if it is missing.
pub(crate) async fn create(session: &mut Session) -> Result<()> {
    bookkeeping::create(session, TABLE, &[CREATE]).await
}

/// Returns the GTID of the channel's entry, if there is one.
pub(crate) async fn begun(session: &mut Session, channel: &str) -> Result<Option<Gtid>> {
    if !bookkeeping::has_table(session, TABLE).await? {
        return Ok(None);
    }
    let query = format!("SELECT gtid FROM csa.statement WHERE channel={}", quote(channel));
    let rows: Vec<String> = session.rows(&query).await?;
    Ok(rows.first().and_then(|gtid| gtid.parse().ok()))
}

/// Removes the entry of a transaction that `source` does not have. An earlier channel of this name left it, and the first
/// statement of a new one would stop at it.
pub(crate) async fn forget(session: &mut Session, channel: &str, source: &GtidSet) -> Result<()> {
    match begun(session, channel).await? {
        Some(gtid) if !source.contains(&gtid) => session.run(withdraw(channel)).await.map(drop),
        _ => Ok(()),
    }
}

/// The state of the channel's next statement; `executed` has everything up to it and the statement
/// itself.
///
/// # Errors
/// [`Error::InDoubt`] if it is unknown whether it, or another statement, took effect.
pub(crate) async fn find(
    session: &mut Session,
    channel: &str,
    gtid: &str,
    executed: &GtidSet,
) -> Result<Intent> {
    let query =
        format!("SELECT gtid, executed FROM csa.statement WHERE channel={}", quote(channel));
    let rows: Vec<(String, bool)> = session.rows(&query).await?;
    let is_passed =
        |known: &str| known.parse::<Gtid>().is_ok_and(|known| executed.contains(&known));
    match rows.into_iter().next() {
        None => Ok(Intent::None),
        Some((known, true)) if known == gtid => Ok(Intent::Executed),
        // An operator has skipped the transaction of that entry.
        Some((known, _)) if known != gtid && is_passed(&known) => {
            session.run(withdraw(channel)).await?;
            Ok(Intent::None)
        }
        Some((known, _)) => {
            let by_hand = bookkeeping::by_hand(session.logs());
            let if_done = match known == gtid {
                true => if_done(channel, by_hand),
                // Marked as executed, it would be in the way of this one all the same.
                false => format!("run: csa-daemon skip {known} --channel {channel}"),
            };
            Err(Error::InDoubt { gtid: known, channel: channel.to_owned(), by_hand, if_done })
        }
    }
}

/// Returns how an operator says that the transaction of the entry, whose turn it is, took effect.
pub(crate) fn if_done(channel: &str, by_hand: &str) -> String {
    format!(
        "run on the target: {by_hand}UPDATE csa.statement SET executed=1 WHERE channel='{channel}'"
    )
}

/// Adds the entry of a statement that is about to run.
pub(crate) fn announce(channel: &str, gtid: &str) -> String {
    format!(
        "INSERT INTO csa.statement (channel, gtid, started_at) VALUES ({}, {}, NOW(6))",
        quote(channel),
        quote(gtid)
    )
}

/// Removes the entry: the statement failed, or the same transaction writes the checkpoint.
pub(crate) fn withdraw(channel: &str) -> String {
    format!("DELETE FROM csa.statement WHERE channel={}", quote(channel))
}
