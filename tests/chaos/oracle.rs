//! Looks at the target all the time. Each look is one consistent snapshot, whose rows alone show whether
//! parts of a transaction are missing. Samples are kept, to be compared with the source's binary log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use csa_provider::binlog::GtidSet;
use csa_tests::{Server, eventually};
use mysql_async::prelude::{FromRow, Queryable as _};
use mysql_async::{Conn, Error};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::load::{ACCOUNTS, CLIENTS, ENTRIES, SEATS};
use crate::servers::Servers;

/// Time between looks.
const INTERVAL: Duration = Duration::from_millis(60);

/// One look at the target.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// The checkpoint in the same snapshot.
    pub(crate) executed: GtidSet,
    /// The counter of each client, from 1.
    pub(crate) counters: Vec<u64>,
}

#[derive(Debug, Default)]
struct Seen {
    samples: Vec<Sample>,
    /// Looks that the target did not answer.
    missed: u64,
    violation: Option<String>,
}

/// All samples, in the order in which they were taken.
pub(crate) struct Samples {
    pub(crate) taken: Vec<Sample>,
    pub(crate) missed: u64,
}

pub(crate) struct Oracle {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Oracle {
    pub(crate) fn start(servers: &Arc<Servers>) -> Self {
        let (seen, stop) = (Arc::new(Mutex::default()), Arc::new(AtomicBool::new(false)));
        let task = tokio::spawn(look_on(Arc::clone(servers), Arc::clone(&seen), Arc::clone(&stop)));
        Self { seen, stop, task }
    }

    /// Returns the first thing that a look found wrong.
    pub(crate) fn violation(&self) -> Option<String> {
        self.seen.lock().violation.take()
    }

    /// Takes one more sample.
    pub(crate) async fn stop(self) -> Result<Samples, String> {
        let taken = self.seen.lock().samples.len();
        eventually("a last sample", Duration::from_secs(30), async || {
            // The sample under way at the call may be older.
            self.seen.lock().samples.len() > taken + 1
        })
        .await;
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the oracle");
        let mut seen = self.seen.lock();
        match seen.violation.take() {
            Some(violation) => Err(violation),
            None => Ok(Samples { taken: std::mem::take(&mut seen.samples), missed: seen.missed }),
        }
    }
}

async fn look_on(servers: Arc<Servers>, seen: Arc<Mutex<Seen>>, stop: Arc<AtomicBool>) {
    let mut conn = None;
    while !stop.load(Ordering::Relaxed) {
        let look = tokio::time::timeout(Duration::from_secs(5), look(&mut conn, &servers.target));
        match look.await {
            Ok(Ok(Ok(sample))) => {
                let mut seen = seen.lock();
                if let Some(wrong) = seen.samples.last().and_then(|last| backwards(last, &sample)) {
                    seen.violation.get_or_insert(wrong);
                }
                seen.samples.push(sample);
            }
            Ok(Ok(Err(wrong))) => {
                seen.lock().violation.get_or_insert(wrong);
            }
            Ok(Err(_)) | Err(_) => {
                conn = None;
                seen.lock().missed += 1;
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Describes a loss since the last look.
fn backwards(last: &Sample, now: &Sample) -> Option<String> {
    if !last.executed.is_subset_of(&now.executed) {
        let lost = last.executed.difference(&now.executed);
        return Some(format!("the checkpoint went back: {lost} is not in {}", now.executed));
    }
    let mut pairs = last.counters.iter().zip(&now.counters);
    pairs
        .any(|(last, now)| now < last)
        .then(|| format!("a counter went back: from {:?} to {:?}", last.counters, now.counters))
}

async fn rows<T: FromRow + Send + 'static>(conn: &mut Conn, sql: &str) -> Result<Vec<T>, Error> {
    conn.query(sql).await
}

/// A sample, or what is wrong in the snapshot.
async fn look(conn: &mut Option<Conn>, target: &Server) -> Result<Result<Sample, String>, Error> {
    let mut session = match conn.take() {
        Some(session) => session,
        None => {
            let mut session = Conn::new(target.opts()).await?;
            session.query_drop("SET lock_wait_timeout=2, time_zone='+00:00'").await?;
            session
        }
    };
    let s = &mut session;
    s.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY").await?;
    let checkpoint: Vec<String> =
        rows(s, "SELECT gtid_executed FROM csa.checkpoint WHERE channel='test'").await?;
    let counters: Vec<(u64, u64)> =
        rows(s, "SELECT client, n FROM chaos.counter ORDER BY client").await?;
    let entries: Vec<(u64, u64, u64, u64)> = rows(
        s,
        "SELECT client, COUNT(*), MIN(n), MAX(n) FROM chaos.entry GROUP BY client ORDER BY client",
    )
    .await?;
    let bank: Vec<(u64, i64)> =
        rows(s, "SELECT COUNT(*), CAST(SUM(balance) AS SIGNED) FROM chaos.account").await?;
    let seats: Vec<u64> = rows(s, "SELECT COUNT(*) FROM chaos.seat").await?;
    let bulk: Vec<(u64, u64)> = rows(s, "SELECT MIN(round), MAX(round) FROM chaos.bulk").await?;
    s.query_drop("COMMIT").await?;
    *conn = Some(session);

    let executed: GtidSet = checkpoint.join(",").parse().expect("a GTID set");
    let wrong = |what: &str| {
        format!(
            "{what}\ncheckpoint {executed}\ncounters {counters:?}\nentries {entries:?}\n\
             bank {bank:?}\nseats {seats:?}\nrounds {bulk:?}"
        )
    };
    if counters.len() as u64 != CLIENTS {
        return Ok(Err(wrong("not one counter for each client")));
    }
    for (client, n) in &counters {
        let expected =
            (*n > 0).then(|| (*client, (*n).min(ENTRIES), n.saturating_sub(ENTRIES) + 1, *n));
        let found = entries.iter().find(|entry| entry.0 == *client);
        if found != expected.as_ref() {
            return Ok(Err(wrong(&format!("entries of client {client} are not {expected:?}"))));
        }
    }
    if bank != [(ACCOUNTS, ACCOUNTS as i64 * 1000)] {
        return Ok(Err(wrong("the bank's sum has changed")));
    }
    if seats != [SEATS] {
        return Ok(Err(wrong("seats are missing")));
    }
    if bulk.iter().any(|(least, most)| least != most) {
        return Ok(Err(wrong("part of a large transaction is visible")));
    }
    let counters = counters.into_iter().map(|(_, n)| n).collect();
    Ok(Ok(Sample { executed, counters }))
}
