//! Clients that write on whichever source is the primary, so that the rows themselves show what is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use csa_tests::Server;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;

use crate::servers::Servers;

pub(crate) const CLIENTS: u64 = 6;
pub(crate) const ACCOUNTS: u64 = 60;
pub(crate) const SEATS: u64 = 200;
/// Entries that each client keeps; it deletes its oldest one with each new one.
pub(crate) const ENTRIES: u64 = 50;
/// Rows of the table that one transaction changes as a whole.
const BULK: u64 = 4_000;

/// Transactions of the clients.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) committed: u64,
    pub(crate) definitions: u64,
    pub(crate) large: u64,
    pub(crate) errors: u64,
}

#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    definitions: AtomicU64,
    large: AtomicU64,
    errors: AtomicU64,
    /// The first error that no fault explains.
    unexpected: Mutex<Option<String>>,
}

/// Creates and fills the tables.
pub(crate) async fn prepare(source: &Server) {
    let list = |ids: u64, row: fn(u64) -> String| (1..=ids).map(row).collect::<Vec<_>>().join(",");
    source
        .exec(&format!(
            "CREATE DATABASE chaos; USE chaos;\
             CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL);\
             CREATE TABLE counter (client INT PRIMARY KEY, n BIGINT NOT NULL);\
             CREATE TABLE entry (client INT, n BIGINT, token VARCHAR(60) NOT NULL UNIQUE,\
                                 PRIMARY KEY (client, n));\
             CREATE TABLE seat (id INT PRIMARY KEY, token VARCHAR(60) NOT NULL UNIQUE);\
             CREATE TABLE bulk (id INT PRIMARY KEY, round INT NOT NULL, pad CHAR(100) NOT NULL);\
             CREATE TABLE scratch (id INT AUTO_INCREMENT PRIMARY KEY, t VARCHAR(40));\
             CREATE TABLE marker (id INT PRIMARY KEY);\
             INSERT INTO account VALUES {};\
             INSERT INTO counter VALUES {};\
             INSERT INTO seat VALUES {};\
             INSERT INTO bulk VALUES {}",
            list(ACCOUNTS, |id| format!("({id},1000)")),
            list(CLIENTS, |id| format!("({id},0)")),
            list(SEATS, |id| format!("({id},'seat {id}')")),
            list(BULK, |id| format!("({id},0,'{id}')")),
        ))
        .await;
}

pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    clients: JoinSet<()>,
}

impl Load {
    pub(crate) fn start(servers: &Arc<Servers>, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let mut clients = JoinSet::new();
        for number in 1..=CLIENTS + 2 {
            let client = Client {
                number,
                servers: Arc::clone(servers),
                random: StdRng::seed_from_u64(seed ^ number << 32),
                counts: Arc::clone(&counts),
            };
            clients.spawn(client.run(Arc::clone(&stop)));
        }
        Self { stop, counts, clients }
    }

    pub(crate) async fn stop(mut self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.expect("a client");
        }
        let unexpected = self.counts.unexpected.lock().take();
        assert_eq!(unexpected, None, "clients are refused what they should be able to do");
        let value = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Written {
            committed: value(&self.counts.committed),
            definitions: value(&self.counts.definitions),
            large: value(&self.counts.large),
            errors: value(&self.counts.errors),
        }
    }
}

/// The last two numbers are those of the client for large transactions and of that for definitions.
struct Client {
    number: u64,
    servers: Arc<Servers>,
    random: StdRng,
    counts: Arc<Counts>,
}

impl Client {
    async fn run(mut self, stop: Arc<AtomicBool>) {
        let mut session = None;
        let mut burst = 0;
        while !stop.load(Ordering::Relaxed) {
            let (statements, pause, count) = match self.number {
                number if number == CLIENTS + 1 => (large(), 9_000, Arc::clone(&self.counts)),
                number if number == CLIENTS + 2 => {
                    (definition(&mut self.random), 2_500, Arc::clone(&self.counts))
                }
                _ => (self.transaction(), 40, Arc::clone(&self.counts)),
            };
            if burst == 0 {
                let pause = self.random.random_range(pause / 2..pause * 3 / 2);
                tokio::time::sleep(Duration::from_millis(pause)).await;
                // Now and then as fast as the source is.
                burst = if self.random.random_ratio(1, 200) { 60 } else { 0 };
            } else {
                burst -= 1;
            }
            match execute(&mut session, self.servers.primary(), &statements).await {
                Ok(()) => {
                    let count = match self.number {
                        number if number == CLIENTS + 1 => &count.large,
                        number if number == CLIENTS + 2 => &count.definitions,
                        _ => &count.committed,
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                }
                // The transaction may have been committed: it counts itself in the table.
                Err(error) => {
                    if !is_expected(&error) {
                        let unexpected = format!("client {}: {error}\n{statements}", self.number);
                        self.counts.unexpected.lock().get_or_insert(unexpected);
                    }
                    self.counts.errors.fetch_add(1, Ordering::Relaxed);
                    session = None;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn transaction(&mut self) -> String {
        let client = self.number;
        let mut text = format!(
            "BEGIN; UPDATE chaos.counter SET n=n+1 WHERE client={client};\
             INSERT INTO chaos.entry SELECT client, n, CONCAT(client, '-', n, '-', UUID()) \
                 FROM chaos.counter WHERE client={client};\
             DELETE FROM chaos.entry WHERE client={client} \
                 AND n = (SELECT n - {ENTRIES} FROM chaos.counter WHERE client={client})"
        );
        if self.random.random_bool(0.5) {
            let from = self.random.random_range(1..=ACCOUNTS);
            let to = from % ACCOUNTS + 1;
            let amount = self.random.random_range(1..10);
            let (first, second) = (from.min(to), from.max(to));
            text.push_str(&format!(
                ";UPDATE chaos.account SET balance=balance-{amount} WHERE id={first}\
                 ;UPDATE chaos.account SET balance=balance+{amount} WHERE id={second}"
            ));
        }
        if self.random.random_bool(0.4) {
            let seat = self.random.random_range(1..=SEATS);
            text.push_str(&format!(
                ";DELETE FROM chaos.seat WHERE id={seat}\
                 ;INSERT INTO chaos.seat VALUES ({seat}, UUID())"
            ));
        }
        text.push_str(";COMMIT");
        text
    }
}

/// Returns one transaction that changes every row of a table.
fn large() -> String {
    "UPDATE chaos.bulk SET round=round+1".into()
}

/// A statement that changes definitions; a source refuses some of them, depending on those before.
fn definition(random: &mut StdRng) -> String {
    let table = random.random_range(1..=3);
    let texts = [
        format!("CREATE TABLE chaos.made_{table} (id INT PRIMARY KEY, v INT)"),
        format!("CREATE TABLE chaos.made_{table} (PRIMARY KEY (id)) SELECT * FROM chaos.seat"),
        format!("DROP TABLE IF EXISTS chaos.made_{table}"),
        "INSERT INTO chaos.scratch (t) SELECT token FROM chaos.seat LIMIT 20".into(),
        "TRUNCATE TABLE chaos.scratch".into(),
        "ALTER TABLE chaos.entry ADD INDEX by_n (n)".into(),
        "ALTER TABLE chaos.entry DROP INDEX by_n".into(),
        "ALTER TABLE chaos.account ADD COLUMN note VARCHAR(20) DEFAULT 'a'".into(),
        "ALTER TABLE chaos.account DROP COLUMN note".into(),
        format!("RENAME TABLE chaos.made_{table} TO chaos.renamed_{table}"),
        format!("DROP TABLE IF EXISTS chaos.renamed_{table}"),
    ];
    texts[random.random_range(0..texts.len())].clone()
}

/// Sends all in one packet; rolls back after a failure.
async fn execute(conn: &mut Option<Conn>, primary: &Server, statements: &str) -> Result<(), Error> {
    let mut session = match conn.take() {
        Some(session) if session.opts().tcp_port() == primary.port => session,
        _ => Conn::new(primary.opts()).await?,
    };
    let outcome = session.query_drop(statements).await;
    if let Err(Error::Server(error)) = &outcome {
        session.query_drop("ROLLBACK").await?;
        // Refused by a source that is a replica now; other errors leave the session usable.
        if error.code == 1290 {
            return outcome;
        }
    }
    *conn = Some(session);
    outcome
}

/// A source that is away, is a replica now, or refuses what other clients' changes do not permit.
fn is_expected(error: &Error) -> bool {
    match error {
        Error::Server(error) => matches!(
            error.code,
            1050 | 1051 | 1053 | 1060 | 1061 | 1091 | 1146 | 1205 | 1213 | 1290 | 1836
        ),
        _ => true,
    }
}
