//! Load on a source: sysbench's write-only mix, bank transfers and a counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::Server;

/// Rows per INSERT while the tables are filled.
const FILL_BATCH: u64 = 500;
/// How far a client may fall behind the target rate and still catch up.
const CATCH_UP: Duration = Duration::from_millis(200);
/// The rate of a load that a test does not ask more of: what waits for nothing takes all processors from the tests
/// beside it.
const RATE: f64 = 200.0;
const DEADLOCK: u16 = 1213;
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// Weights of the kinds of change.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// `UPDATE` of the indexed column.
    pub index_update: u32,
    /// `UPDATE` of a column without index.
    pub non_index_update: u32,
    /// `DELETE` of a row and `INSERT` of another with its id.
    pub delete_insert: u32,
}

/// Another rate for part of the time.
#[derive(Debug, Clone, Copy)]
pub struct Burst {
    /// The time from the start of the load.
    pub after: Duration,
    pub length: Duration,
    /// Transactions per second; `None` is as fast as possible.
    pub rate: Option<f64>,
}

/// The load to run. The statements of each client depend on the seed alone.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    pub schema: String,
    /// sbtest1 … sbtestN.
    pub tables: u32,
    /// The rows in each table.
    pub rows: u64,
    /// Concurrent sessions.
    pub clients: u32,
    /// Changes per transaction.
    pub changes: u32,
    pub mix: Mix,
    /// Transactions per second of all clients together; `None` is as fast as possible.
    pub rate: Option<f64>,
    pub burst: Option<Burst>,
    /// Accounts of the bank; their balances always add up to 1000 for each.
    pub accounts: u64,
    /// The number of transactions out of 100 that also transfer money.
    pub transfers_percent: u32,
    /// Makes each transaction also increment its client's row of `counter`: the sum of `counter.n` is
    /// the number of committed transactions, and each client's form a chain.
    pub counter: bool,
    pub seed: u64,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            schema: "sbtest".into(),
            tables: 4,
            rows: 1_000,
            clients: 4,
            changes: 4,
            mix: Mix { index_update: 1, non_index_update: 1, delete_insert: 1 },
            rate: Some(RATE),
            burst: None,
            accounts: 100,
            transfers_percent: 10,
            counter: true,
            seed: 1,
        }
    }
}

/// The counts of a load.
#[derive(Debug, Clone, Copy)]
pub struct LoadReport {
    /// Transactions whose commit the server confirmed.
    pub committed: u64,
    /// Transactions repeated after a deadlock or a lock wait timeout.
    pub retries: u64,
    /// Other errors; after one the client opens a new session.
    pub errors: u64,
    pub elapsed: Duration,
}

/// Creates and fills the tables.
///
/// # Panics
/// If a statement fails.
pub async fn prepare(server: &Server, options: &LoadOptions) {
    let schema = &options.schema;
    server.exec(&format!("CREATE DATABASE IF NOT EXISTS {schema}")).await;
    let mut random = StdRng::seed_from_u64(options.seed);
    for table in 1..=options.tables {
        server
            .exec(&format!(
                "CREATE TABLE {schema}.sbtest{table} (id INT NOT NULL AUTO_INCREMENT, \
                 k INT NOT NULL DEFAULT 0, c CHAR(120) NOT NULL DEFAULT '', \
                 pad CHAR(60) NOT NULL DEFAULT '', PRIMARY KEY (id), KEY k_{table} (k))"
            ))
            .await;
        let row = |id, random: &mut StdRng| {
            let k = random.random_range(1..=options.rows);
            format!("({id},{k},'{}','{}')", digits(random, 10), digits(random, 5))
        };
        let into = format!("{schema}.sbtest{table} (id,k,c,pad)");
        fill(server, &into, options.rows, |id| row(id, &mut random)).await;
    }
    server
        .exec(&format!(
            "CREATE TABLE {schema}.account (id INT PRIMARY KEY, balance INT NOT NULL);\
             CREATE TABLE {schema}.counter (client INT PRIMARY KEY, n BIGINT NOT NULL)"
        ))
        .await;
    let account = format!("{schema}.account (id,balance)");
    fill(server, &account, options.accounts, |id| format!("({id},1000)")).await;
    let counter = format!("{schema}.counter (client,n)");
    fill(server, &counter, options.clients.into(), |client| format!("({client},0)")).await;
}

async fn fill(server: &Server, into: &str, rows: u64, mut row: impl FnMut(u64) -> String) {
    let mut conn = server.conn().await;
    let mut next = 1;
    while next <= rows {
        let last = rows.min(next + FILL_BATCH - 1);
        let values: Vec<String> = (next..=last).map(&mut row).collect();
        let statement = format!("INSERT INTO {into} VALUES {}", values.join(","));
        if let Err(error) = conn.query_drop(statement).await {
            panic!("filling {into} on {}: {error}", server.name);
        }
        next = last + 1;
    }
    let _ = conn.disconnect().await;
}

/// sysbench's strings: groups of eleven digits.
fn digits(random: &mut StdRng, groups: usize) -> String {
    let mut text = String::with_capacity(groups * 12);
    for group in 0..groups {
        if group > 0 {
            text.push('-');
        }
        let number: u64 = random.random_range(0..100_000_000_000);
        text.push_str(&format!("{number:011}"));
    }
    text
}

#[derive(Debug)]
struct Shared {
    options: LoadOptions,
    opts: Opts,
    started: Instant,
    stop: AtomicBool,
    committed: AtomicU64,
    retries: AtomicU64,
    errors: AtomicU64,
    next_slot: Mutex<Instant>,
}

/// A running load. Dropping it ends it at once; [`Load::stop`] lets open transactions finish.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

impl Load {
    /// Starts the clients on tables that [`prepare`] made.
    #[must_use]
    pub fn start(server: &Server, options: &LoadOptions) -> Self {
        let shared = Arc::new(Shared {
            options: options.clone(),
            opts: server.opts(),
            started: Instant::now(),
            stop: AtomicBool::new(false),
            committed: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            next_slot: Mutex::new(Instant::now()),
        });
        let mut clients = JoinSet::new();
        for client in 1..=options.clients {
            clients.spawn(run_client(Arc::clone(&shared), client));
        }
        Self { shared, clients }
    }

    /// Runs for the time given, on tables already prepared.
    pub async fn run(server: &Server, options: &LoadOptions, length: Duration) -> LoadReport {
        let load = Self::start(server, options);
        tokio::time::sleep(length).await;
        load.stop().await
    }

    /// Returns the transactions committed so far.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.shared.committed.load(Ordering::Relaxed)
    }

    /// Ends the clients after their current transactions.
    ///
    /// # Panics
    /// If a client did.
    pub async fn stop(mut self) -> LoadReport {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("a load client");
        }
        LoadReport {
            committed: self.shared.committed.load(Ordering::Relaxed),
            retries: self.shared.retries.load(Ordering::Relaxed),
            errors: self.shared.errors.load(Ordering::Relaxed),
            elapsed: self.shared.started.elapsed(),
        }
    }
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn rate(&self) -> Option<f64> {
        let elapsed = self.started.elapsed();
        match self.options.burst {
            Some(burst) if (burst.after..burst.after + burst.length).contains(&elapsed) => {
                burst.rate
            }
            _ => self.options.rate,
        }
    }

    /// Waits for the next transaction's turn.
    async fn pace(&self) {
        let Some(rate) = self.rate() else { return };
        let slot = {
            let mut next = self.next_slot.lock().await;
            let earliest = Instant::now().checked_sub(CATCH_UP).unwrap_or(*next);
            let slot = (*next).max(earliest);
            *next = slot + Duration::from_secs_f64(1.0 / rate);
            slot
        };
        // In short steps, because the burst may begin and the load may end meanwhile.
        while !self.stopped() && self.rate() == Some(rate) {
            let left = slot.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(Duration::from_millis(50))).await;
        }
    }
}

async fn run_client(shared: Arc<Shared>, client: u32) {
    let mut random = StdRng::seed_from_u64(shared.options.seed ^ (u64::from(client) << 32));
    let mut conn = None;
    while !shared.stopped() {
        shared.pace().await;
        let transaction = transaction(&shared.options, client, &mut random);
        loop {
            if shared.stopped() {
                break;
            }
            match execute(&mut conn, &shared.opts, &transaction).await {
                Ok(()) => {
                    shared.committed.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                Err(Error::Server(error))
                    if error.code == DEADLOCK || error.code == LOCK_WAIT_TIMEOUT =>
                {
                    shared.retries.fetch_add(1, Ordering::Relaxed);
                }
                // The server is down, perhaps because the test stopped it. The transaction may have
                // been committed, so it is not repeated.
                Err(_) => {
                    shared.errors.fetch_add(1, Ordering::Relaxed);
                    conn = None;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    break;
                }
            }
        }
    }
    if let Some(conn) = conn {
        let _ = conn.disconnect().await;
    }
}

/// Sends the whole transaction in one packet; rolls back after a failure.
async fn execute(conn: &mut Option<Conn>, opts: &Opts, transaction: &str) -> Result<(), Error> {
    let mut session = match conn.take() {
        Some(session) => session,
        None => Conn::new(opts.clone()).await?,
    };
    let outcome = session.query_drop(transaction).await;
    if matches!(outcome, Err(Error::Server(_))) {
        session.query_drop("ROLLBACK").await?;
    }
    *conn = Some(session);
    outcome
}

fn transaction(options: &LoadOptions, client: u32, random: &mut StdRng) -> String {
    let schema = &options.schema;
    let mut text = String::from("BEGIN");
    for _ in 0..options.changes {
        text.push(';');
        text.push_str(&change(options, random));
    }
    if options.accounts > 1 && random.random_range(0..100) < options.transfers_percent {
        let from = random.random_range(1..=options.accounts);
        let to = from % options.accounts + 1;
        let amount = random.random_range(1..10);
        text.push_str(&format!(
            ";UPDATE {schema}.account SET balance=balance-{amount} WHERE id={from}\
             ;UPDATE {schema}.account SET balance=balance+{amount} WHERE id={to}"
        ));
    }
    if options.counter {
        text.push_str(&format!(";UPDATE {schema}.counter SET n=n+1 WHERE client={client}"));
    }
    text.push_str(";COMMIT");
    text
}

fn change(options: &LoadOptions, random: &mut StdRng) -> String {
    let Mix { index_update, non_index_update, delete_insert } = options.mix;
    let table =
        format!("{}.sbtest{}", options.schema, random.random_range(1..=options.tables.max(1)));
    let id = random.random_range(1..=options.rows.max(1));
    let choice = random.random_range(0..(index_update + non_index_update + delete_insert).max(1));
    if choice < index_update {
        format!("UPDATE {table} SET k=k+1 WHERE id={id}")
    } else if choice < index_update + non_index_update {
        format!("UPDATE {table} SET c='{}' WHERE id={id}", digits(random, 10))
    } else {
        let k = random.random_range(1..=options.rows.max(1));
        format!(
            "DELETE FROM {table} WHERE id={id};INSERT INTO {table} (id,k,c,pad) \
             VALUES ({id},{k},'{}','{}')",
            digits(random, 10),
            digits(random, 5)
        )
    }
}
