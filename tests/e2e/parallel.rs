//! Groups that run in parallel: the states that readers of the target see meanwhile, and locks between an
//! earlier group and a later one.

use std::time::{Duration, Instant};

use csa_tests::{Clients, Compare, Daemon, Server, compare, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rand::Rng as _;
use rand::rngs::StdRng;

use crate::DRAIN;
use crate::crash::mid_drain;

const CLIENTS: u32 = 8;
const ACCOUNTS: u32 = 20;
/// The rows of each client.
const WIDE_ROWS: u32 = 200;

/// Changes a counter and rows of its own, sometimes shared money. Wide rows fill groups early, so a
/// backlog makes many.
fn counted(client: u32, random: &mut StdRng) -> Vec<String> {
    let mut statements = vec![format!("UPDATE p.counter SET n=n+1 WHERE client={client}")];
    if random.random_bool(0.3) {
        let from = random.random_range(1..ACCOUNTS);
        let amount = random.random_range(-9..=9);
        for (account, change) in [(from, amount), (from + 1, -amount)] {
            statements
                .push(format!("UPDATE p.account SET balance=balance+{change} WHERE id={account}"));
        }
    }
    let first = client * WIDE_ROWS + random.random_range(1..WIDE_ROWS - 15);
    let (last, letter) = (first + 14, random.random_range(65..91));
    statements.push(format!(
        "UPDATE p.wide SET c=REPEAT(CHAR({letter}),1000) WHERE id BETWEEN {first} AND {last}"
    ));
    statements
}

async fn prepare_counted(source: &Server) {
    let numbers =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<1600) SELECT";
    for statement in [
        "CREATE DATABASE p".to_owned(),
        "CREATE TABLE p.counter (client INT PRIMARY KEY, n BIGINT NOT NULL)".to_owned(),
        "CREATE TABLE p.account (id INT PRIMARY KEY, balance INT NOT NULL)".to_owned(),
        "CREATE TABLE p.wide (id INT PRIMARY KEY, c VARCHAR(1000) NOT NULL)".to_owned(),
        "SET GLOBAL cte_max_recursion_depth=10000".to_owned(),
        format!("INSERT INTO p.counter {numbers} i-1, 0 FROM n WHERE i<={CLIENTS}"),
        format!("INSERT INTO p.account {numbers} i, 1000 FROM n WHERE i<={ACCOUNTS}"),
        format!("INSERT INTO p.wide {numbers} i, '' FROM n WHERE i<={}", CLIENTS * WIDE_ROWS),
    ] {
        source.exec(&statement).await;
    }
}

/// The clients in the order of their commits, as the source's binary log has them.
async fn commits_of(source: &Server) -> Vec<usize> {
    let mut conn = source.conn().await;
    let files: Vec<mysql_async::Row> = conn.query("SHOW BINARY LOGS").await.expect("a list");
    let mut clients = Vec::new();
    for file in files {
        let file: String = file.get(0).expect("a name");
        let events: Vec<mysql_async::Row> =
            conn.query(format!("SHOW BINLOG EVENTS IN '{file}'")).await.expect("events");
        let texts = events.iter().filter_map(|event| event.get::<String, _>("Info"));
        clients.extend(texts.filter_map(|text| {
            text.strip_prefix("# UPDATE p.counter SET n=n+1 WHERE client=")?.parse::<usize>().ok()
        }));
    }
    clients
}

/// Returns one snapshot of the target: the counters by client, and all the money.
async fn snapshot(conn: &mut Conn) -> (Vec<u64>, i64) {
    conn.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.expect("begins");
    let counters = conn.query("SELECT n FROM p.counter ORDER BY client").await.expect("counters");
    let money = conn.query_first("SELECT CAST(SUM(balance) AS SIGNED) FROM p.account").await;
    conn.query_drop("COMMIT").await.expect("commits");
    (counters, money.expect("a sum").expect("a row"))
}

/// Returns true if the counters are those after a prefix of the commits.
fn is_prefix(commits: &[usize], counters: &[u64]) -> bool {
    let len = counters.iter().sum::<u64>() as usize;
    let mut counted = vec![0; counters.len()];
    for &client in commits.iter().take(len) {
        counted[client] += 1;
    }
    counted == counters
}

#[test]
fn a_state_with_a_hole_is_no_prefix() {
    let commits = [0, 1, 0, 1, 1];
    assert!(is_prefix(&commits, &[0, 0]) && is_prefix(&commits, &[2, 1]));
    assert!(is_prefix(&commits, &[2, 3]));
    assert!(!is_prefix(&commits, &[1, 2]) && !is_prefix(&commits, &[0, 1]));
    assert!(!is_prefix(&commits, &[3, 3]));
}

/// Drains a backlog with the daemon killed in between; returns every state of the target seen.
async fn states_of_a_drain(source: &Server, target: &Server) -> Vec<Vec<u64>> {
    let daemon = Daemon::builder(source, target).set("applier.worker_count", 8).start();
    prepare_counted(source).await;
    daemon.wait_drained(source, target, DRAIN).await;
    daemon.kill9();
    let session = |_| "SET binlog_rows_query_log_events=ON";
    let committed =
        Clients::run(source, CLIENTS, session, counted, Duration::from_millis(3500)).await;
    let mut conn = target.conn().await;
    let mut states = vec![vec![0; CLIENTS as usize]];
    daemon.start_again();
    let started = Instant::now();
    let mut killed = false;
    loop {
        let (counters, money) = snapshot(&mut conn).await;
        assert_eq!(money, 1000 * i64::from(ACCOUNTS));
        let applied: u64 = counters.iter().sum();
        if states.last() != Some(&counters) {
            states.push(counters);
        }
        if applied == committed {
            break;
        }
        if !killed && applied > committed / 3 {
            assert!(mid_drain(&daemon).await, "nothing left to lose\n{}", daemon.log_tail());
            daemon.kill9();
            daemon.start_again();
            killed = true;
        }
        assert!(started.elapsed() < DRAIN, "{applied} of {committed}\n{}", daemon.log_tail());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    daemon.wait_drained(source, target, DRAIN).await;
    compare(source, target).await;
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_of_the_target_was_one_of_the_source() {
    let (source, target) = Server::pair(&[], &[]);
    let states = states_of_a_drain(&source, &target).await;
    let commits = commits_of(&source).await;
    assert!(states.len() > 8, "too few states seen: {states:?}");
    for state in &states {
        assert!(is_prefix(&commits, state), "{state:?} is no prefix");
    }
    for pair in states.windows(2) {
        let grows = pair[0].iter().zip(&pair[1]).all(|(earlier, later)| earlier <= later);
        assert!(grows, "{pair:?}");
    }
    println!("{} states of {} commits", states.len(), commits.len());
}

/// Half of the daemon's own lock wait timeout on the target, which is what would let the group pass otherwise. On an
/// idle machine it takes some hundredths of a second, and more than one where four programs share a processor.
const LET_PASS_WITHIN: Duration = Duration::from_secs(5);

/// A target on which a test session holds a row that the first group needs, so that later groups are
/// applied before it.
pub(crate) struct Inversion {
    source: Server,
    target: Server,
    /// The target is MariaDB, which shows its locks elsewhere, or its performance_schema is off.
    is_blind: bool,
    daemon: Daemon,
    holder: Conn,
}

impl Inversion {
    async fn start() -> Self {
        let (source, target) = Server::pair(&[], &[]);
        Self::between(source, target).await
    }

    pub(crate) async fn between(source: Server, target: Server) -> Self {
        let version: String = target.value("SELECT @@version").await;
        let is_off = target.value::<u8>("SELECT @@GLOBAL.performance_schema").await == 0;
        let is_blind = is_off || version.contains("MariaDB");
        source.exec("CREATE DATABASE i").await;
        for statement in [
            "CREATE TABLE i.held (id INT PRIMARY KEY, v INT)",
            "CREATE TABLE i.t (id INT PRIMARY KEY, u INT UNIQUE)",
            "CREATE TABLE i.second (id INT PRIMARY KEY, u INT UNIQUE)",
            "CREATE TABLE i.other (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
            "INSERT INTO i.held VALUES (1,0)",
            "INSERT INTO i.t VALUES (1,10),(2,20)",
            "INSERT INTO i.second VALUES (1,10),(2,20)",
        ] {
            source.exec(statement).await;
        }
        let daemon = Daemon::builder(&source, &target).start();
        daemon.wait_drained(&source, &target, DRAIN).await;
        let mut holder = target.conn().await;
        holder.query_drop("BEGIN").await.expect("begins");
        holder.query_drop("SELECT * FROM i.held FOR UPDATE").await.expect("locks");
        Self { source, target, is_blind, daemon, holder }
    }

    /// The first group: waits for the held row, then needs a gap in the index of `t`.
    pub(crate) async fn first_group(&self) {
        self.transaction("UPDATE i.held SET v=1; INSERT INTO i.t VALUES (3,15)").await;
        self.lock_waits(1).await;
    }

    pub(crate) async fn transaction(&self, statements: &str) {
        self.source.exec(&format!("BEGIN; {statements}; COMMIT")).await;
    }

    /// Waits until so many sessions of the target wait for a lock.
    async fn lock_waits(&self, count: u64) {
        let query = match self.is_blind {
            false => {
                "SELECT COUNT(DISTINCT REQUESTING_THREAD_ID) FROM performance_schema.data_lock_waits"
            }
            // The server refreshes this view no more often.
            true => {
                "SELECT COUNT(*)+SLEEP(0.2) FROM information_schema.INNODB_TRX WHERE trx_state='LOCK WAIT'"
            }
        };
        eventually("a group waits for a lock", Duration::from_secs(20), async || {
            self.target.value::<u64>(query).await == count
        })
        .await;
    }

    /// Has another session wait for the table, so that it keeps every group from it that comes later.
    pub(crate) async fn table_wanted(&self, table: &str) {
        let mut other = self.target.conn().await;
        let statements = format!("LOCK TABLES i.{table} WRITE; UNLOCK TABLES");
        tokio::spawn(async move { other.query_drop(statements).await.expect("locks") });
        let waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE \
             STATE='Waiting for table metadata lock'";
        eventually("a session waits for the table", Duration::from_secs(20), async || {
            self.target.value::<u64>(waits).await == 1
        })
        .await;
    }

    /// Waits until a later group waits for its turn.
    async fn parked(&self) {
        eventually("a group is parked", Duration::from_secs(20), async || {
            self.daemon.status().to_string().contains("waiting_for_turn")
        })
        .await;
    }

    /// Has another session lock the gap before 20 in `second`, and then wait for the row that a parked group has
    /// inserted there. It lets go of the gap as soon as it has waited.
    async fn gap_of_others(&self) {
        let mut other = self.target.conn().await;
        let gap =
            "BEGIN; SELECT * FROM i.second FORCE INDEX (u) WHERE u BETWEEN 16 AND 19 FOR UPDATE";
        other.query_drop(gap).await.expect("locks");
        let wait = "SELECT * FROM i.second WHERE id=3 FOR UPDATE; ROLLBACK";
        tokio::spawn(async move { other.query_drop(wait).await.expect("locks") });
    }

    /// Waits until a later group has the gaps around the index entry that it put back.
    pub(crate) async fn gap_taken(&self, table: &str) {
        if self.is_blind {
            self.parked().await;
            return;
        }
        let query = format!(
            "SELECT COUNT(*) FROM performance_schema.data_locks WHERE OBJECT_SCHEMA='i' AND \
             OBJECT_NAME='{table}' AND INDEX_NAME='u' AND LOCK_MODE LIKE 'S%' AND LOCK_STATUS='GRANTED'"
        );
        eventually("a gap is locked", Duration::from_secs(20), async || {
            self.target.value::<u64>(&query).await > 0
        })
        .await;
        // Its last statement ends, and it is parked.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    /// Lets the first group continue into the later groups' locks.
    pub(crate) async fn release(&mut self) {
        self.release_within(LET_PASS_WITHIN).await;
    }

    /// Does what [`Self::release`] does, where nobody can see whose locks they are.
    pub(crate) async fn release_within(&mut self, limit: Duration) {
        let inversions = self.inversions();
        self.holder.query_drop("ROLLBACK").await.expect("releases");
        let released = Instant::now();
        let mut reader = self.target.conn().await;
        let arrived = "SELECT COUNT(*) FROM i.t WHERE id=3";
        while reader.query_first::<u64, _>(arrived).await.expect("a count") != Some(1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert!(released.elapsed() < DRAIN, "{}", self.daemon.log_tail());
        }
        let took = released.elapsed();
        println!("let pass within {took:?}");
        assert!(took < limit, "{took:?}\n{}", self.daemon.log_tail());
        assert!(self.inversions() > inversions, "no group let go\n{}", self.daemon.log_tail());
    }

    fn inversions(&self) -> u64 {
        let view = &self.daemon.status()["channels"][0]["applier"];
        view["lock_inversions_total"].as_u64().expect("a number")
    }

    pub(crate) async fn ends_equal(self) {
        self.is_equal().await;
        let metrics = self.daemon.metrics();
        let retries = "csa_applier_retries_total{channel=\"test\"} 0";
        assert!(metrics.contains(retries), "a lock wait timed out\n{metrics}");
    }

    async fn is_equal(&self) {
        self.daemon.wait_drained(&self.source, &self.target, DRAIN).await;
        let what = if self.is_blind { Compare::contents() } else { Compare::new() };
        what.run(&self.source, &self.target).await.unwrap_or_else(|found| panic!("{found}"));
    }
}

/// Puts an index entry back under another primary key: that locks the gaps on both of its sides.
pub(crate) fn put_back(table: &str) -> String {
    format!("DELETE FROM i.{table} WHERE id=1; INSERT INTO i.{table} VALUES (4,10)")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_group_lets_an_earlier_one_pass() {
    let mut inversion = Inversion::start().await;
    inversion.first_group().await;
    inversion.transaction(&put_back("t")).await;
    inversion.gap_taken("t").await;
    inversion.release().await;
    inversion.ends_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_group_lets_an_earlier_one_pass_where_no_lock_is_shown() {
    let (source, target) = Server::pair(&[], &["--performance-schema=OFF"]);
    let mut inversion = Inversion::between(source, target).await;
    inversion.first_group().await;
    inversion.transaction(&put_back("t")).await;
    inversion.gap_taken("t").await;
    // The daemon's `innodb_lock_wait_timeout` is ten seconds.
    inversion.release_within(Duration::from_secs(15)).await;
    inversion.is_equal().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_group_lets_an_earlier_one_pass_while_more_arrives() {
    let mut inversion = Inversion::start().await;
    inversion.first_group().await;
    inversion.transaction(&put_back("t")).await;
    inversion.gap_taken("t").await;
    let trickle = |_, _: &mut StdRng| {
        std::thread::sleep(Duration::from_millis(3));
        vec!["INSERT INTO i.other (v) VALUES (1)".to_owned()]
    };
    let clients = Clients::start(&inversion.source, 1, |_| "DO 1", trickle);
    tokio::time::sleep(Duration::from_millis(300)).await;
    inversion.release().await;
    assert!(clients.stop().await > 20, "more arrived");
    inversion.ends_equal().await;
}

/// Takes the gap that the first group needs, then puts this row into `second`. Only a full group runs in parallel with two
/// others.
fn full_group(row: &str) -> String {
    let numbers =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<9000) SELECT";
    format!(
        "SET cte_max_recursion_depth=10000; {}; INSERT INTO i.second VALUES ({row}); \
         INSERT INTO i.other (v) {numbers} i FROM n",
        put_back("t")
    )
}

/// The group that holds the lock itself waits for one that is parked, through another session. The lock of that one is of
/// a row just inserted, so the server shows it under the session that waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_ends_at_an_inserted_row_lets_an_earlier_group_pass() {
    let mut inversion = Inversion::start().await;
    inversion.first_group().await;
    inversion.transaction("INSERT INTO i.second VALUES (3,15)").await;
    inversion.parked().await;
    inversion.gap_of_others().await;
    inversion.lock_waits(2).await;
    inversion.transaction(&full_group("5,18")).await;
    inversion.gap_taken("t").await;
    inversion.lock_waits(3).await;
    inversion.release().await;
    inversion.ends_equal().await;
}

/// The group that holds the lock itself waits for one that is parked.
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_later_groups_lets_an_earlier_one_pass() {
    let mut inversion = Inversion::start().await;
    inversion.first_group().await;
    inversion.transaction(&put_back("second")).await;
    inversion.gap_taken("second").await;
    inversion.transaction(&full_group("3,15")).await;
    inversion.gap_taken("t").await;
    inversion.lock_waits(2).await;
    inversion.release().await;
    inversion.ends_equal().await;
}
