//! Entries in `csa.statement`, for statements on targets that don't record them under their
//! source's GTID, and for rows that can't be rolled back.
//!
//! An entry is committed before the statement runs, and removed in the transaction that moves the
//! checkpoint past it. An entry that is found at a start means that it is unknown whether it took effect. If the target
//! has executed its GTID, it did. Only rows that can't be rolled back may be there in part with their GTID, so their entry
//! says whether all of them are.
//!
//! MySQL 5.7 records a statement's GTID, but after its effect: a crash in between leaves the effect alone. Until it
//! has restarted, its `gtid_executed` is true. So an entry there names the start of the server.

use csa_provider::binlog::{Gtid, GtidSet};
use csa_provider::server::Vendor;
use tracing::{info, warn};

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
     server_start BIGINT, \
     PRIMARY KEY (channel)) ENGINE=InnoDB";

/// `executed` of rows that were begun under their source's GTID, until the server has answered that all are there.
const PART: i8 = -1;
/// `executed` of rows that are all there if the target has executed their GTID.
const WHOLE: i8 = 2;

/// The state of a statement by its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It has not been begun.
    None,
    /// It took effect: an operator has set `executed`.
    Executed,
}

/// Readings of a server's start until the clock has stood still for one. If each answer takes half a second, it never does.
const READINGS: usize = 5;

/// Creates the table if it is missing.
pub(crate) async fn create(session: &mut Session) -> Result<()> {
    bookkeeping::create(session, TABLE, &[CREATE]).await
}

/// Creates the table where statements have entries.
pub(crate) async fn create_for_statements(session: &mut Session, by_gtid: bool) -> Result<()> {
    if by_gtid && !records_late(session) {
        return Ok(());
    }
    create(session).await
}

/// Returns true for servers that record a statement's GTID after its effect. Since 8.0 definitions are atomic.
pub(crate) fn records_late(session: &Session) -> bool {
    session.vendor() == Vendor::MySql57
}

/// Returns when the server was started, in seconds of its own clock. A clock that is set later changes nothing: the server
/// counts both from the same moment, in whole seconds. So two readings differ only if the server was started between them.
/// `None` where its answers take too long for that.
async fn server_start(session: &mut Session) -> Result<Option<i64>> {
    let mut before = now(session).await?;
    for _ in 0..READINGS {
        let up: Vec<(String, String)> = session.rows("SHOW GLOBAL STATUS LIKE 'Uptime'").await?;
        let up = up.first().and_then(|(_, seconds)| seconds.parse::<i64>().ok());
        let up = up.ok_or_else(|| session.server().unexpected("its uptime"))?;
        let after = now(session).await?;
        if before == after {
            return Ok(Some(after - up));
        }
        before = after;
    }
    Ok(None)
}

async fn now(session: &mut Session) -> Result<i64> {
    let now: Vec<i64> = session.rows("SELECT UNIX_TIMESTAMP()").await?;
    now.first().copied().ok_or_else(|| session.server().unexpected("its clock"))
}

/// Returns true if an entry was certainly made since the present start of the server. An operator is asked about others.
fn is_of_this_start(noted: Option<i64>, present: Option<i64>) -> bool {
    noted.is_some() && noted == present
}

/// Returns the GTID of the channel's entry, if there is one.
pub(crate) async fn begun(session: &mut Session, channel: &str) -> Result<Option<Gtid>> {
    let entry = entry_if_any(session, channel).await?;
    Ok(entry.and_then(|(gtid, _)| gtid.parse().ok()))
}

/// Removes the entry of a transaction that `source` does not have. An earlier channel of this name left it, and the first
/// statement of a new one would stop at it.
pub(crate) async fn forget(session: &mut Session, channel: &str, source: &GtidSet) -> Result<()> {
    match begun(session, channel).await? {
        Some(gtid) if !source.contains(&gtid) => session.run(withdraw(channel)).await.map(drop),
        _ => Ok(()),
    }
}

/// Removes the entry of rows that were left half way before the channel's first checkpoint: the target was provisioned again
/// since, or somebody has removed the checkpoint.
pub(crate) async fn forget_failed(session: &mut Session, channel: &str) -> Result<()> {
    let Some((gtid, PART)) = entry_if_any(session, channel).await? else { return Ok(()) };
    warn!(
        channel,
        gtid,
        "in an earlier life of the channel this transaction ended after some of its rows; its entry is removed from \
         csa.statement. If the target was not provisioned again since, compare the tables: csa-daemon verify"
    );
    session.run(withdraw(channel)).await.map(drop)
}

/// The state of the channel's next statement; `executed` has everything up to it and the statement
/// itself.
///
/// # Errors
/// [`Error::InDoubt`] if it is unknown whether it, or another statement, took effect.
/// [`Error::PartlyDone`] if another has ended after a part of it.
pub(crate) async fn find(
    session: &mut Session,
    channel: &str,
    gtid: &str,
    executed: &GtidSet,
) -> Result<Intent> {
    let is_passed =
        |known: &str| known.parse::<Gtid>().is_ok_and(|known| executed.contains(&known));
    match entry(session, channel).await? {
        None => Ok(Intent::None),
        Some((known, 1)) if known == gtid => Ok(Intent::Executed),
        // Its GTID says that a part of it is there, and not that an operator has skipped it.
        Some((known, PART)) if known != gtid && is_passed(&known) => {
            Err(partly_done(session, channel, known))
        }
        // An operator has skipped the transaction of that entry.
        Some((known, _)) if known != gtid && is_passed(&known) => {
            withdraw_passed(session, channel, &known).await?;
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

/// Returns the channel's entry: its GTID and `executed`.
async fn entry(session: &mut Session, channel: &str) -> Result<Option<(String, i8)>> {
    let query =
        format!("SELECT gtid, executed FROM csa.statement WHERE channel={}", quote(channel));
    let rows: Vec<(String, i8)> = session.rows(&query).await?;
    Ok(rows.into_iter().next())
}

/// Returns the same, on a target that need not have the table.
async fn entry_if_any(session: &mut Session, channel: &str) -> Result<Option<(String, i8)>> {
    match bookkeeping::has_table(session, TABLE).await? {
        true => entry(session, channel).await,
        false => Ok(None),
    }
}

/// Returns true if the transaction was begun, and its entry does not say that all of it is there.
pub(crate) async fn is_part(session: &mut Session, channel: &str, gtid: &str) -> Result<bool> {
    let entry = entry_if_any(session, channel).await?;
    Ok(entry.is_some_and(|(known, executed)| known == gtid && executed == PART))
}

/// Looks at the entry of a transaction that the target counts as executed, as `executed` shows. It is removed where the
/// transaction is complete by now.
///
/// # Errors
/// [`Error::PartlyDone`] if a part of it may be missing.
pub(crate) async fn check_complete(
    session: &mut Session,
    channel: &str,
    executed: &GtidSet,
) -> Result<()> {
    let Some((gtid, state)) = entry_if_any(session, channel).await? else { return Ok(()) };
    if !gtid.parse::<Gtid>().is_ok_and(|gtid| executed.contains(&gtid)) {
        return Ok(());
    }
    if state == PART {
        return Err(partly_done(session, channel, gtid));
    }
    withdraw_passed(session, channel, &gtid).await
}

/// Removes the entry of a transaction that counts as executed. It is the only trace of a transaction that was begun and
/// not concluded, so the log names it.
async fn withdraw_passed(session: &mut Session, channel: &str, gtid: &str) -> Result<()> {
    info!(channel, gtid, "executed or skipped by now: its entry is removed from csa.statement");
    session.run(withdraw(channel)).await.map(drop)
}

/// Returns the question about rows of which a part may be missing.
pub(crate) fn partly_done(session: &Session, channel: &str, gtid: String) -> Error {
    let if_done = if_done(channel, bookkeeping::by_hand(session.logs()));
    Error::PartlyDone { gtid, if_done }
}

/// Notes in the entry that all rows of its transaction are there.
pub(crate) fn note_whole(channel: &str) -> String {
    format!("UPDATE csa.statement SET executed={WHOLE} WHERE channel={}", quote(channel))
}

/// Returns the state as [`find`], for a statement whose GTID a server that [`records_late`] does not have. As long as the
/// server has not restarted, the statement had no effect. Its session has ended, because the lock is ours.
pub(crate) async fn find_unrecorded(
    session: &mut Session,
    channel: &str,
    gtid: &str,
    executed: &GtidSet,
) -> Result<Intent> {
    let query = format!(
        "SELECT server_start FROM csa.statement WHERE channel={} AND gtid={} AND executed=0",
        quote(channel),
        quote(gtid)
    );
    let noted: Vec<Option<i64>> = session.rows(&query).await?;
    if let Some(noted) = noted.into_iter().next()
        && is_of_this_start(noted, server_start(session).await?)
    {
        session.run(withdraw(channel)).await?;
    }
    find(session, channel, gtid, executed).await
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

/// Adds or replaces the entry of rows under their source's GTID, of which a part may be there. `is_one`: of a single row
/// there is no part.
pub(crate) fn announce_rows(channel: &str, gtid: &str, is_one: bool) -> String {
    let executed = if is_one { WHOLE } else { PART };
    format!(
        "REPLACE INTO csa.statement (channel, gtid, executed, started_at) VALUES ({}, {}, {executed}, NOW(6))",
        quote(channel),
        quote(gtid)
    )
}

/// Returns the statement of [`announce`], on a server that [`records_late`].
pub(crate) async fn announce_with_start(
    session: &mut Session,
    channel: &str,
    gtid: &str,
) -> Result<String> {
    let start = server_start(session).await?;
    let start = start.map_or_else(|| "NULL".to_owned(), |start| start.to_string());
    Ok(format!(
        "INSERT INTO csa.statement (channel, gtid, started_at, server_start) VALUES ({}, {}, NOW(6), {start})",
        quote(channel),
        quote(gtid)
    ))
}

/// Removes the entry: the statement failed, or the same transaction writes the checkpoint.
pub(crate) fn withdraw(channel: &str) -> String {
    format!("DELETE FROM csa.statement WHERE channel={}", quote(channel))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::scripted::Scripted;

    const SOURCE: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    #[tokio::test]
    async fn rows_that_ended_half_way_are_not_forgotten_with_their_gtid_executed() {
        let executed: GtidSet = format!("{SOURCE}:1-6").parse().expect("a set");
        let is_partly = |error| matches!(error, Error::PartlyDone { .. });
        for (state, is_failed) in [(PART, true), (0, false), (1, false), (WHOLE, false)] {
            let server = Scripted::default();
            server.state().has_tables = true;
            server.state().entry = Some((format!("{SOURCE}:5"), state));
            let mut session = Session::connect(&server.target()).await.expect("connects");
            let started = check_complete(&mut session, "c", &executed).await;
            assert_eq!(started.err().is_some_and(is_partly), is_failed, "{state}");
            let next = find(&mut session, "c", &format!("{SOURCE}:6"), &executed).await;
            assert_eq!(next.err().is_some_and(is_partly), is_failed, "{state}");
            let is_removal = |sent: &&String| **sent == withdraw("c");
            let removals = server.state().sent.iter().filter(is_removal).count();
            assert_eq!(removals, if is_failed { 0 } else { 2 }, "{state}");
            // A first start is another life of the channel.
            forget_failed(&mut session, "c").await.expect("answers");
            let removals = server.state().sent.iter().filter(is_removal).count();
            assert_eq!(removals, if is_failed { 1 } else { 2 }, "{state}");
        }
    }

    #[test]
    fn an_account_may_create_the_table_and_not_alter_it() {
        assert!(CREATE.contains(" server_start BIGINT, "), "{CREATE}");
        let grants = include_str!("../../../../config/grants-target.sql");
        let own = grants.lines().find(|line| line.contains(" ON csa.* TO ")).expect("a grant");
        assert!(own.contains("CREATE") && !own.contains("ALTER"), "{own}");
    }

    #[test]
    fn an_entry_is_of_the_start_of_the_server_that_it_names() {
        for (noted, present, expected) in [
            (Some(1000), Some(1000), true),
            // It was started again at once.
            (Some(1000), Some(1001), false),
            // Its clock was slow when it started again.
            (Some(1000), Some(400), false),
            (None, Some(1000), false),
            // Its answers took too long, at one time or at both.
            (Some(1000), None, false),
            (None, None, false),
        ] {
            assert_eq!(is_of_this_start(noted, present), expected, "{noted:?} {present:?}");
        }
    }

    /// The channel failed at each definition.
    #[tokio::test]
    async fn a_start_that_slow_answers_hide_is_unknown() {
        for (seconds, expected) in [(0, "NOW(6), 900)"), (1, "NOW(6), NULL)")] {
            let scripted = Scripted::default();
            scripted.state().seconds_between = seconds;
            let mut session = Session::connect(&scripted.target()).await.expect("connects");
            let entry = announce_with_start(&mut session, "c", "g:1").await.expect("answers");
            assert!(entry.ends_with(expected), "{entry}");
        }
    }
}
