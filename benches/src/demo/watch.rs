//! Looks at source and replicas from outside: marks on the source, and which of them each replica shows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use csa_tests::Daemon;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::options::SCHEMA;
use super::site::Site;
use super::standing::{Peak, Seen, Standing, Written, transactions_of};
use super::text;

/// The interval of marks and of looks.
const INTERVAL: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(1);
/// A replica that does not answer within this time counts as unreachable.
const ANSWER: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Shared {
    /// The source's.
    uuid: String,
    written: Mutex<Written>,
    csa: Mutex<Seen>,
    native: Mutex<Seen>,
    /// An applier has stopped, or the source is gone.
    failure: Mutex<Option<String>>,
    is_marking: AtomicBool,
}

/// Ends its tasks when it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
    marks: JoinHandle<()>,
    source: Opts,
    started: Instant,
    last_line: Instant,
    last_transactions: u64,
}

/// Both replicas at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) csa: Standing,
    pub(super) native: Standing,
    /// The source's transactions that csa-daemon's target has.
    pub(super) csa_has: u64,
    /// The time in this phase.
    pub(super) elapsed: Duration,
}

/// The peaks and the load of a phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Phase {
    pub(super) csa: Peak,
    pub(super) native: Peak,
    /// Committed on the source.
    pub(super) transactions: u64,
    pub(super) elapsed: Duration,
}

impl Watch {
    /// Starts to mark the source and to look at both replicas.
    pub(super) async fn start(site: &Site) -> Result<Self> {
        let shared = Arc::new(Shared {
            uuid: site.source.value("SELECT @@GLOBAL.server_uuid").await,
            written: Mutex::default(),
            csa: Mutex::default(),
            native: Mutex::default(),
            failure: Mutex::default(),
            is_marking: AtomicBool::new(true),
        });
        let executed = site.source.gtid_executed().await;
        let transactions = transactions_of(&shared.uuid, &executed);
        guard(&shared.written).transactions = transactions;
        let mut tasks = JoinSet::new();
        let csa = "(SELECT GROUP_CONCAT(gtid_executed) FROM csa.checkpoint)";
        tasks.spawn(look(Arc::clone(&shared), |shared| &shared.csa, site.target.opts(), csa));
        let native = "@@GLOBAL.gtid_executed";
        tasks.spawn(look(Arc::clone(&shared), |shared| &shared.native, site.native.opts(), native));
        tasks.spawn(check_daemon(Arc::clone(&shared), Arc::clone(&site.daemon)));
        tasks.spawn(check_native(Arc::clone(&shared), site.native.opts()));
        let marks = tokio::spawn(mark(Arc::clone(&shared), site.source.opts()));
        Ok(Self {
            shared,
            _tasks: tasks,
            marks,
            source: site.source.opts(),
            started: Instant::now(),
            last_line: Instant::now(),
            last_transactions: transactions,
        })
    }

    /// Returns the transactions on the source.
    pub(super) fn transactions(&self) -> u64 {
        guard(&self.shared.written).transactions
    }

    /// Prints a line each second until `is_over`; fails when an applier has stopped.
    pub(super) async fn follow(
        &mut self,
        name: &str,
        mut is_over: impl FnMut(&Look) -> bool,
    ) -> Result<Phase> {
        let (started, before) = (Instant::now(), self.transactions());
        let (mut csa, mut native) = (Peak::default(), Peak::default());
        let mut ticks = ticks(INTERVAL);
        loop {
            ticks.tick().await;
            let look = self.look(started);
            csa.add(look.csa);
            native.add(look.native);
            self.show(name, look);
            if let Some(failure) = guard(&self.shared.failure).clone() {
                bail!(failure);
            }
            if is_over(&look) {
                let transactions = self.transactions() - before;
                return Ok(Phase { csa, native, transactions, elapsed: look.elapsed });
            }
        }
    }

    fn look(&self, started: Instant) -> Look {
        let (csa, native) = (*guard(&self.shared.csa), *guard(&self.shared.native));
        let written = guard(&self.shared.written);
        let now = Instant::now();
        Look {
            csa: Standing::new(&written, csa, now),
            native: Standing::new(&written, native, now),
            csa_has: csa.transactions,
            elapsed: now - started,
        }
    }

    fn show(&mut self, phase: &str, look: Look) {
        let since = self.last_line.elapsed();
        if since < LINE_EVERY {
            return;
        }
        let transactions = self.transactions();
        let rate = (transactions - self.last_transactions) as f64 / since.as_secs_f64();
        // The time that this look came late does not delay the next line.
        let late = Duration::from_nanos(u64::from(since.subsec_nanos()));
        self.last_line = Instant::now().checked_sub(late).unwrap_or_else(Instant::now);
        self.last_transactions = transactions;
        println!("{}", text::line(self.started.elapsed(), phase, rate, look.csa, look.native));
    }

    /// Writes no more marks; from now on the backlog is that of a source that no longer changes.
    pub(super) async fn stop_marks(&mut self) -> Result<()> {
        self.shared.is_marking.store(false, Ordering::Relaxed);
        (&mut self.marks).await.context("marking the source")?;
        let mut conn = Conn::new(self.source.clone()).await?;
        let executed: Option<String> = conn.query_first("SELECT @@GLOBAL.gtid_executed").await?;
        let executed = executed.unwrap_or_default();
        guard(&self.shared.written).transactions = transactions_of(&self.shared.uuid, &executed);
        conn.disconnect().await?;
        Ok(())
    }
}

async fn mark(shared: Arc<Shared>, source: Opts) {
    let outcome = async {
        let mut conn = Conn::new(source).await?;
        let mut ticks = ticks(INTERVAL);
        while shared.is_marking.load(Ordering::Relaxed) {
            ticks.tick().await;
            conn.query_drop(format!("UPDATE {SCHEMA}.mark SET n=n+1")).await?;
            guard(&shared.written).marks.push(Instant::now());
            let executed: Option<String> =
                conn.query_first("SELECT @@GLOBAL.gtid_executed").await?;
            guard(&shared.written).transactions =
                transactions_of(&shared.uuid, &executed.unwrap_or_default());
        }
        conn.disconnect().await
    };
    if let Err(error) = outcome.await {
        shared.fail(format!("writing to the source: {error}"));
    }
}

/// Looks at a replica; `gtids` is where it keeps the source's transactions that it has.
async fn look(
    shared: Arc<Shared>,
    side: fn(&Shared) -> &Mutex<Seen>,
    replica: Opts,
    gtids: &'static str,
) {
    let query = format!("SELECT n, {gtids} FROM {SCHEMA}.mark");
    let mut ticks = ticks(INTERVAL);
    let mut conn = None;
    loop {
        ticks.tick().await;
        let answer = timeout(ANSWER, ask(&mut conn, &replica, &query)).await;
        if let Ok(Ok(Some((mark, executed)))) = answer {
            let transactions = transactions_of(&shared.uuid, &executed);
            *guard(side(&shared)) = Seen { mark, transactions, is_reachable: true };
        } else {
            conn = None;
            guard(side(&shared)).is_reachable = false;
        }
    }
}

async fn ask(
    conn: &mut Option<Conn>,
    replica: &Opts,
    query: &str,
) -> Result<Option<(u64, String)>, mysql_async::Error> {
    let mut session = match conn.take() {
        Some(session) => session,
        None => Conn::new(replica.clone()).await?,
    };
    let row = session.query_first(query).await?;
    *conn = Some(session);
    Ok(row)
}

/// A channel that has failed applies nothing more.
async fn check_daemon(shared: Arc<Shared>, daemon: Arc<Daemon>) {
    loop {
        tokio::time::sleep(LINE_EVERY).await;
        let daemon = Arc::clone(&daemon);
        let status = spawn_blocking(move || daemon.try_status()).await.ok().flatten();
        let status = status.unwrap_or_default();
        let channel = &status["channels"][0];
        if channel["state"] == "failed" {
            shared.fail(format!("csa-daemon's channel failed: {}", channel["state_detail"]));
        }
    }
}

async fn check_native(shared: Arc<Shared>, native: Opts) {
    let query = crate::bench::mta_error_query();
    let mut conn = None;
    loop {
        tokio::time::sleep(LINE_EVERY).await;
        match ask(&mut conn, &native, &format!("SELECT 0, ({query})")).await {
            Ok(Some((_, error))) if !error.is_empty() => {
                shared.fail(format!("the native replica stopped: {error}"));
            }
            Ok(_) => {}
            Err(error) => shared.fail(format!("the native replica does not answer: {error}")),
        }
    }
}

impl Shared {
    fn fail(&self, text: String) {
        guard(&self.failure).get_or_insert(text);
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// A panic in another thread leaves nothing half done under these locks.
fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
