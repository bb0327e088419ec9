//! Snapshots of several sessions that hold exactly a known GTID set, without a lock on the source.
//!
//! A session's snapshot shows what is committed at that moment, and no server says which transactions these
//! are. So the end of the binary log and `gtid_executed` are read before and after. Where both are the same,
//! nothing was committed in between, and two facts make the set exact. What is visible lies before the log's
//! end: a transaction is written to the log before the storage engine commits it. What is in `gtid_executed`
//! is visible: it is added after that commit. What could be wrong are transactions in the log whose commit has
//! not ended. They commit in the order of the log (`binlog_order_commits`), so there are none if the last one
//! in the log is in the set.
//!
//! A busy source leaves enough moments without a commit, because commits come in groups.

use std::time::Duration;

use csa_provider::binlog::{Gtid, GtidSet};
use csa_provider::seams::planted::{Bug, is_planted};
use csa_provider::sql_text::quote;
use tokio::time::Instant;

use super::error::{CopyError, Result};
use crate::verify::VerifySession;

/// Looks for a moment without a commit.
const ATTEMPTS: u32 = 2_000;
/// The longest wait before the next look; a time of its own for each, so that no rhythm of the source's meets ours.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A commit that ends later than this after it was written to the log is not expected. It counts only on a
/// source that writes nothing meanwhile.
const QUIET: Duration = Duration::from_secs(2);
const QUIET_POLL: Duration = Duration::from_millis(100);
/// Events of the log that are read at once.
const EVENTS: usize = 20_000;
/// So many bytes of the log are looked through quickly.
const NEAR: u64 = 1 << 20;
/// The first position in a file.
const BEGIN: u64 = 4;

/// No such statement: the server is older than 8.2.
const SYNTAX: u16 = 1064;
/// The last event of the log is not whole yet.
const HALF_WRITTEN: u16 = 1220;
const DENIED: [u16; 2] = [1227, 1045];

/// The end of the source's binary log, and what it has executed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogEnd {
    file: String,
    position: u64,
    executed: GtidSet,
}

/// The start of the transactions that are not yet known to be executed.
#[derive(Debug, Clone)]
struct Known {
    file: String,
    position: u64,
    /// Everything before is executed.
    is_executed: bool,
    since: Instant,
}

/// A part of the log.
#[derive(Debug, PartialEq, Eq)]
struct Logged {
    /// Those that begin in it, each with its place, in the log's order.
    transactions: Vec<(u64, Gtid)>,
    /// Its last event, if it does not reach the end.
    next: Option<u64>,
}

/// The last place in the log up to which everything is executed, if one is known. A source that is idle since then
/// need not be waited for.
#[derive(Debug, Default)]
pub(super) struct LastLook(Option<Known>);

/// Opens a snapshot in each of the sessions. Returns the GTIDs of all transactions that they show.
///
/// # Errors
/// The source is away or lacks a privilege, or it has no moment without a commit.
pub(super) async fn open(
    watcher: &mut VerifySession,
    sessions: &mut [VerifySession],
    last: &mut LastLook,
) -> Result<GtidSet> {
    check_order(watcher).await?;
    for session in &mut *sessions {
        session.run("SET SESSION transaction_isolation='REPEATABLE-READ'").await?;
    }
    let first = log_end(watcher).await?;
    let is_near = |known: &Known| {
        known.file == first.file && first.position.saturating_sub(known.position) < NEAR
    };
    let last_known = last.0.take().filter(is_near);
    let mut known = last_known.unwrap_or_else(|| Known::from(first.file, first.position));
    for attempt in 0..ATTEMPTS {
        let before = log_end(watcher).await?;
        let opened: Vec<_> = sessions
            .iter_mut()
            .map(|session| session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"))
            .collect();
        for opened in join_all(opened).await {
            opened?;
        }
        if log_end(watcher).await? == before || is_planted(Bug::SnapshotInexact) {
            if known.file != before.file {
                known = Known::from(before.file.clone(), BEGIN);
            }
            if ends_executed(watcher, &mut known, &before).await? {
                last.0 = Some(known);
                return Ok(before.executed);
            }
        }
        let pause = match known.is_executed {
            true => PAUSE_MAX.mul_f64(f64::from(attempt % 7 + 1) / 7.0),
            false => QUIET_POLL,
        };
        tokio::time::sleep(pause).await;
    }
    Err(CopyError::Refused(watcher_says(
        watcher,
        "it commits without a pause, so no moment was found for a snapshot; try again with less load",
    )))
}

impl Known {
    fn from(file: String, position: u64) -> Self {
        Self { file, position, is_executed: false, since: Instant::now() }
    }

    /// Moves past transactions of the log if all of them are executed, and returns true if all so far are.
    fn passes(&mut self, logged: &Logged, executed: &GtidSet) -> bool {
        if let Some((last, _)) = logged.transactions.last() {
            self.is_executed = logged.transactions.iter().all(|(_, gtid)| executed.contains(gtid));
            if !self.is_executed {
                return false;
            }
            self.position = *last;
        }
        // One transaction can have more events than are read at once.
        if let Some(next) = logged.next {
            self.position = next;
        }
        self.is_executed || self.since.elapsed() >= QUIET
    }
}

/// Returns true if all transactions before the end of the log are executed.
async fn ends_executed(
    watcher: &mut VerifySession,
    known: &mut Known,
    end: &LogEnd,
) -> Result<bool> {
    loop {
        let Some(logged) = logged(watcher, known, end.position).await? else { return Ok(false) };
        let is_executed = known.passes(&logged, &end.executed);
        if !is_executed || logged.next.is_none() {
            return Ok(is_executed);
        }
    }
}

/// Waits for all, which run at the same time.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(context) {
                std::task::Poll::Ready(value) => *output = Some(value),
                std::task::Poll::Pending => pending = true,
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

async fn check_order(watcher: &mut VerifySession) -> Result<()> {
    let settings: Vec<(u8, u8)> =
        watcher.rows("SELECT @@GLOBAL.log_bin, @@GLOBAL.binlog_order_commits").await?;
    let why = match settings.first() {
        Some((1, 1)) => return Ok(()),
        Some((1, _)) => {
            "binlog_order_commits=OFF hides which transactions a snapshot holds; run there: SET GLOBAL \
             binlog_order_commits=ON"
        }
        _ => "it writes no binary log",
    };
    Err(CopyError::Refused(watcher_says(watcher, why)))
}

fn watcher_says(watcher: &VerifySession, why: &str) -> String {
    watcher.refused(why).to_string()
}

async fn log_end(watcher: &mut VerifySession) -> Result<LogEnd> {
    let rows = match watcher.texts("SHOW BINARY LOG STATUS").await {
        Err(error) if error.code() == Some(SYNTAX) => watcher.texts("SHOW MASTER STATUS").await,
        other => other,
    };
    let rows = rows.map_err(|error| match error.code() {
        Some(code) if DENIED.contains(&code) => {
            watcher.may_not("REPLICATION CLIENT", "see the end of its binary log")
        }
        _ => error,
    })?;
    // File, position, two filters, GTID set.
    let mut values =
        rows.into_iter().next().unwrap_or_default().into_iter().map(Option::unwrap_or_default);
    let end = (values.next(), values.next().and_then(|text| text.parse().ok()), values.nth(2));
    let (Some(file), Some(position), Some(executed)) = end else {
        return Err(CopyError::Refused(watcher_says(watcher, "it shows no end of a binary log")));
    };
    let executed = executed.replace('\n', "").parse();
    let executed = executed.map_err(|error| {
        CopyError::Refused(watcher_says(watcher, &format!("Executed_Gtid_Set: {error}")))
    })?;
    Ok(LogEnd { file, position, executed })
}

/// Returns the log from `known` up to a position, or as much of it as is read at once; `None` where it can't be
/// read because it is just being written.
async fn logged(watcher: &mut VerifySession, known: &Known, end: u64) -> Result<Option<Logged>> {
    if known.position >= end {
        return Ok(Some(Logged::of(&[], end, EVENTS)));
    }
    let query = format!(
        "SHOW BINLOG EVENTS IN {} FROM {} LIMIT {EVENTS}",
        quote(&known.file),
        known.position
    );
    let rows = match watcher.texts(&query).await {
        Ok(rows) => rows,
        Err(error) => {
            return match error.code() {
                Some(HALF_WRITTEN) => Ok(None),
                Some(code) if DENIED.contains(&code) => {
                    Err(watcher.may_not("REPLICATION SLAVE", "read its binary log").into())
                }
                _ => Err(error.into()),
            };
        }
    };
    Ok(Some(Logged::of(&rows, end, EVENTS)))
}

impl Logged {
    /// Reads events before a position; an answer of `limit` events may lack those that follow.
    fn of(rows: &[Vec<Option<String>>], end: u64, limit: usize) -> Self {
        let is_before = |position: &u64| *position < end;
        let transactions = rows.iter().filter_map(|row| transaction(row));
        let last = rows.last().filter(|_| rows.len() >= limit).and_then(|row| position(row));
        Self {
            transactions: transactions.filter(|(position, _)| is_before(position)).collect(),
            next: last.filter(is_before),
        }
    }
}

/// Returns the place and the GTID of an event that begins a transaction: name of the log, position, type,
/// server, end, text.
fn transaction(row: &[Option<String>]) -> Option<(u64, Gtid)> {
    let text = |place: usize| row.get(place)?.as_deref();
    if !text(2)?.starts_with("Gtid") {
        return None;
    }
    let gtid = text(5)?.split('\'').nth(1)?;
    Some((position(row)?, gtid.parse().ok()?))
}

fn position(row: &[Option<String>]) -> Option<u64> {
    row.get(1)?.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, text: &str) -> Vec<Option<String>> {
        ["binlog.000002", "157", kind, "1", "234", text].map(|text| Some(text.to_owned())).into()
    }

    #[test]
    fn transactions_are_found_among_the_events_of_a_log() {
        let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23";
        let event = row("Gtid", &format!("SET @@SESSION.GTID_NEXT= '{gtid}'"));
        assert_eq!(transaction(&event), Some((157, gtid.parse().expect("a GTID"))));
        let tagged = "3e11fa47-71ca-11e1-9e33-c80aa9429562:tag:5";
        let event = row("Gtid_tagged", &format!("SET @@SESSION.GTID_NEXT= '{tagged}'"));
        assert_eq!(transaction(&event), Some((157, tagged.parse().expect("a GTID"))));
        assert_eq!(transaction(&row("Query", "use `d`; it's 'x' /* Gtid */")), None);
        assert_eq!(transaction(&row("Gtid", "")), None);
    }

    /// Returns events at these places: with a number they begin that transaction.
    fn events(of: &[(u64, Option<u64>)]) -> Vec<Vec<Option<String>>> {
        let event = |(position, number): &(u64, Option<u64>)| {
            let (kind, text) = match number {
                Some(number) => ("Gtid", format!("SET @@SESSION.GTID_NEXT= '{SOURCE}:{number}'")),
                None => ("Write_rows", String::new()),
            };
            let mut row = row(kind, &text);
            row[1] = Some(position.to_string());
            row
        };
        of.iter().map(event).collect()
    }

    const SOURCE: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    /// The first transaction is longer than what is read at once, and the second is not executed.
    #[test]
    fn a_log_that_is_not_read_to_its_end_says_nothing_of_its_last_transaction() {
        let executed: GtidSet = format!("{SOURCE}:1").parse().expect("a set");
        let mut known = Known::from("binlog.000002".to_owned(), 100);
        let first = Logged::of(&events(&[(100, Some(1)), (150, None), (200, None)]), 500, 3);
        assert_eq!(first.next, Some(200));
        assert!(known.passes(&first, &executed));
        assert_eq!((known.position, known.is_executed), (200, true));
        let middle = Logged::of(&events(&[(200, None), (250, None), (300, None)]), 500, 3);
        assert_eq!(middle.next, Some(300));
        assert!(known.passes(&middle, &executed));
        assert_eq!((known.position, known.is_executed), (300, true));
        // What was written after the look at the end counts no more.
        let rest = events(&[(300, None), (350, Some(2)), (500, Some(3))]);
        let rest = Logged::of(&rest, 500, 3);
        assert_eq!((rest.next, rest.transactions.len()), (None, 1));
        assert!(!known.passes(&rest, &executed));
        assert_eq!((known.position, known.is_executed), (300, false));
        let executed = format!("{SOURCE}:1-2").parse().expect("a set");
        assert!(known.passes(&rest, &executed));
        assert_eq!((known.position, known.is_executed), (350, true));
        assert!(known.passes(&Logged::of(&events(&[(350, Some(2))]), 500, 3), &executed));
    }

    /// The middle of a transaction that may still be under way.
    #[test]
    fn a_log_in_which_no_transaction_begins_is_not_executed() {
        let mut known = Known::from("binlog.000002".to_owned(), 100);
        let middle = Logged::of(&events(&[(100, None), (150, None)]), 500, 2);
        assert!(!known.passes(&middle, &GtidSet::default()));
        assert_eq!((known.position, known.is_executed), (150, false));
    }
}
