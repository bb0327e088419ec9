//! Settles differences found at one moment: reads both sides again and again, the target always
//! after a position of the source, until every row is known to be equal, different or unstable.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use csa_provider::seams::Backoff;

use super::error::Result;
use super::event::Activity;
use super::executed::source_executed;
use super::expression::TableSql;
use super::ranges::RowKey;
use super::recheck::{Different, SourceValues, Suspect, Verdict};
use super::servers::{Servers, pass};
use super::session::VerifySession;

/// Rows in one statement: as many as the optimizer still finds ranges for.
const LOOKUP_ROWS: usize = 200;
/// Digests in one statement, which reads the whole table: as many as the smallest `max_allowed_packet` has room for.
const LOOKUP_DIGESTS: usize = 10_000;
/// Up to this many rows are read continually while the target catches up: a row that changes often
/// can then match a value that the source had in the meantime.
const WATCHED_ROWS: usize = 32;
/// Between these readings, first and after [`WATCH_CLOSELY`].
const WATCH: Duration = Duration::from_millis(1);
const WATCH_LATER: Duration = Duration::from_millis(20);
const WATCH_CLOSELY: Duration = Duration::from_secs(2);
/// Between rounds.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));

/// The SQL of a table on both sides.
#[derive(Debug)]
pub(super) struct PairedSql {
    pub(super) source: TableSql,
    pub(super) target: TableSql,
}

/// The meaning of a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lookup {
    /// A row by its key; its value is its digest.
    Row,
    /// The digest of rows without a key; its value is the number of those rows.
    Digest,
}

/// Suspects that turned out not to be equal.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) different: Vec<Different>,
    pub(super) unstable: Vec<RowKey>,
}

type Values = HashMap<RowKey, String>;

impl Lookup {
    /// Reads the values; keys without one are missing.
    async fn read(
        self,
        session: &mut VerifySession,
        sql: &TableSql,
        keys: &[RowKey],
    ) -> Result<Values> {
        let mut values = Values::new();
        let most = match self {
            Self::Row => LOOKUP_ROWS,
            Self::Digest => LOOKUP_DIGESTS,
        };
        for some in keys.chunks(most) {
            let query = match self {
                Self::Row => sql.lookup(some),
                Self::Digest => sql.digest_counts(&some.concat()),
            };
            let rows = session.values(&query).await?;
            values.extend(rows.into_iter().filter_map(split));
        }
        Ok(values)
    }

    /// A reading scans the whole table.
    fn is_costly(self) -> bool {
        matches!(self, Self::Digest)
    }
}

/// An answer's first column is the value, the others are the key.
pub(super) fn split(mut row: Vec<String>) -> Option<(RowKey, String)> {
    if row.is_empty() {
        return None;
    }
    let value = row.remove(0);
    Some((row, value))
}

/// Reads the keys until all are settled.
pub(super) async fn settle(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    lookup: Lookup,
    keys: Vec<RowKey>,
) -> Result<Settled> {
    let mut settled = Settled::default();
    let mut open: BTreeMap<RowKey, Suspect> =
        keys.into_iter().map(|key| (key, Suspect::default())).collect();
    if open.is_empty() {
        return Ok(settled);
    }
    servers.tell(Activity::Rechecking { rows: open.len() as u64 });
    // One wait settles all rows that are merely late.
    servers.catch_up().await?;
    let mut backoff = PAUSES;
    while !open.is_empty() {
        let keys: Vec<RowKey> = open.keys().cloned().collect();
        let started = Instant::now();
        let mut round = read_round(servers, sql, lookup, &keys).await?;
        for key in keys {
            let Some(suspect) = open.get_mut(&key) else { continue };
            let seen = round.source.remove(&key).unwrap_or_default();
            let verdict = suspect.round(&seen, round.target.remove(&key), round.is_quiet);
            if verdict == Verdict::Open {
                continue;
            }
            let (source, target) = suspect.values();
            let (source, target) = (source.map(str::to_owned), target.map(str::to_owned));
            match verdict {
                Verdict::Different => {
                    settled.different.push(Different { key: key.clone(), source, target });
                }
                Verdict::Unstable => settled.unstable.push(key.clone()),
                Verdict::Equal | Verdict::Open => {}
            }
            open.remove(&key);
        }
        servers.tell(Activity::Rechecking { rows: open.len() as u64 });
        servers.throttle(open.len() as u64, started).await?;
        if !open.is_empty() {
            tokio::time::sleep(backoff.pause()).await;
        }
    }
    servers.tell(Activity::Comparing);
    Ok(settled)
}

struct RereadSuspects {
    source: HashMap<RowKey, SourceValues>,
    target: Values,
    /// The source executed nothing meanwhile.
    is_quiet: bool,
}

async fn read_round(
    servers: &mut Servers<'_>,
    sql: &PairedSql,
    lookup: Lookup,
    keys: &[RowKey],
) -> Result<RereadSuspects> {
    let mut round = RereadSuspects {
        source: keys.iter().map(|key| (key.clone(), SourceValues::default())).collect(),
        target: Values::new(),
        is_quiet: false,
    };
    let options = servers.options;
    let (source, target) = (&mut servers.source, &mut servers.target);
    // Before the values: a commit between the two makes the round not quiet, which only costs a
    // round.
    let before = source_executed(source).await?;
    round.add(lookup.read(source, &sql.source, keys).await?);
    // After the values: a target that has passed the mark holds nothing older than they are.
    let mark = source_executed(source).await?;

    let is_read = AtomicBool::new(false);
    let read_target = async {
        let values = match pass(target, options, &mark).await {
            Ok(()) => lookup.read(target, &sql.target, keys).await,
            Err(error) => Err(error),
        };
        is_read.store(true, Ordering::Release);
        values
    };
    let watch_source = async {
        let started = Instant::now();
        loop {
            // Asked before the reading: the last one must begin after the target was read.
            let is_last = is_read.load(Ordering::Acquire);
            if is_last || (keys.len() <= WATCHED_ROWS && !lookup.is_costly()) {
                round.add(lookup.read(source, &sql.source, keys).await?);
            }
            if is_last {
                return source_executed(source).await;
            }
            let is_early = started.elapsed() < WATCH_CLOSELY;
            tokio::time::sleep(if is_early { WATCH } else { WATCH_LATER }).await;
        }
    };
    // Both run to their end: a query given up halfway would leave its session unusable.
    let (target, after) = tokio::join!(read_target, watch_source);
    round.target = target?;
    round.is_quiet = before == after?;
    Ok(round)
}

impl RereadSuspects {
    /// Adds one reading of the source.
    fn add(&mut self, mut values: Values) {
        for (key, seen) in &mut self.source {
            seen.add(values.remove(key));
        }
    }
}
