//! Copies in chunks: what changes meanwhile is applied afterwards, and the end is the source's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;
use tokio::task::JoinHandle;

use super::{busy, copy_log, ends, ends_well, start_copying};
use crate::{DRAIN, wait_state};

/// Tables in which nothing stays where it is.
const RESTLESS: &[&str] = &[
    "CREATE DATABASE restless",
    "CREATE TABLE restless.person (id INT PRIMARY KEY, email VARCHAR(40) UNIQUE, body VARCHAR(300), KEY body (body))",
    "CREATE TABLE restless.word (w VARCHAR(40) COLLATE utf8mb4_0900_ai_ci, n INT, body VARCHAR(300), \
     PRIMARY KEY (w, n))",
    "CREATE TABLE restless.item (id BIGINT AUTO_INCREMENT PRIMARY KEY, person INT, j JSON, b BLOB, \
     CONSTRAINT of_person FOREIGN KEY (person) REFERENCES person (id))",
    "CREATE TABLE restless.small (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE restless.parent (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE restless.child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parent (id) \
     ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE restless.keyless (a INT, b VARCHAR(20))",
    "SET cte_max_recursion_depth=100000",
    "INSERT INTO restless.person WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<6000) \
     SELECT i, CONCAT('e', i), REPEAT(CHAR(97 + i % 26), 200) FROM n",
    "INSERT INTO restless.word WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<6000) \
     SELECT CONCAT(CHAR(97 + i % 26), i), i % 7, REPEAT('w', 200) FROM n",
    "INSERT INTO restless.item (person, j, b) SELECT id, JSON_OBJECT('n', id, 'a', JSON_ARRAY(1, 2, id)), \
     REPEAT(UNHEX('00ff27'), 60) FROM restless.person WHERE id % 2",
    "INSERT INTO restless.parent SELECT id, 0 FROM restless.person WHERE id <= 400",
    "INSERT INTO restless.child SELECT id, id FROM restless.parent",
    "INSERT INTO restless.keyless SELECT id, 'x' FROM restless.parent",
];

/// Statements of which a client runs one after the other; `?` is a random number.
const CHANGES: &[&str] = &[
    "UPDATE restless.person SET body=CONCAT('n', ?) WHERE id=?",
    "UPDATE restless.person SET id=id+6000 WHERE id=?",
    "UPDATE restless.person SET id=id-6000 WHERE id=6000+?",
    "UPDATE restless.person SET id=-id WHERE id BETWEEN ? AND 20+?",
    "UPDATE restless.person SET id=-id WHERE id BETWEEN -20-? AND -?",
    "DELETE FROM restless.person WHERE id=?",
    "INSERT INTO restless.person VALUES (?, CONCAT('e', ?), 'again')",
    // Not of a person: MySQL 9.7 lets it pass where an item refers to the row, and no replica does.
    "REPLACE INTO restless.word VALUES (CONCAT(CHAR(97 + ? % 26), ?), ? % 7, 'replaced')",
    "SET @a=?, @b=?; BEGIN; SELECT email INTO @x FROM restless.person WHERE id=@a FOR UPDATE; \
     SELECT email INTO @y FROM restless.person WHERE id=@b FOR UPDATE; \
     UPDATE restless.person SET email=NULL WHERE id=@a; UPDATE restless.person SET email=@x WHERE id=@b; \
     UPDATE restless.person SET email=@y WHERE id=@a; COMMIT",
    "UPDATE restless.word SET w=UPPER(w) WHERE n=? % 7 AND w LIKE CONCAT(CHAR(97 + ? % 26), '%') LIMIT 3",
    "UPDATE restless.word SET w=CONCAT('z', ?) WHERE n=? % 7 LIMIT 1",
    "DELETE FROM restless.word WHERE w LIKE CONCAT(CHAR(97 + ? % 26), '%') LIMIT 2",
    "INSERT IGNORE INTO restless.word VALUES (CONCAT('A', ?), ? % 7, 'new')",
    "INSERT INTO restless.item (person, j) SELECT MAX(id), '{\"late\": true}' FROM restless.person WHERE id<?",
    "UPDATE restless.item SET j=JSON_SET(j, '$.n', ?) WHERE id=?",
    "DELETE FROM restless.item WHERE id=?",
    "UPDATE restless.item SET id=id+10000 WHERE id=?",
    "BEGIN; DELETE FROM restless.small; INSERT INTO restless.small VALUES (1, ?), (2, ?); COMMIT",
    "TRUNCATE restless.small",
    "DELETE FROM restless.parent WHERE id=? % 400",
    "UPDATE restless.parent SET id=id+1000 WHERE id=? % 400",
    "INSERT INTO restless.parent VALUES (? % 400, 1)",
    "INSERT INTO restless.child SELECT ? % 400, MAX(id) FROM restless.parent",
    "UPDATE restless.keyless SET b='y' WHERE a=? % 400 LIMIT 1",
    "DELETE FROM restless.keyless WHERE a=? % 400 LIMIT 1",
    "INSERT INTO restless.keyless VALUES (? % 400, 'z')",
    "BEGIN; INSERT INTO restless.person VALUES (20000+?, NULL, 'brief'); DELETE FROM restless.person WHERE id>=20000; COMMIT",
];

/// The pause of a client after each change, which leaves the processors to the copy.
const BREATH: Duration = Duration::from_millis(20);

/// Clients that change the restless tables until they are stopped.
pub(super) struct Restless {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<u64>>,
}

impl Restless {
    pub(super) async fn start(source: &Server, clients: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |seed: u64| {
            let (opts, stop) = (source.opts(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut conn = mysql_async::Conn::new(opts).await.expect("connects");
                let (mut state, mut done) = (seed * 7919 + 1, 0);
                let mut random = move || {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    state >> 33
                };
                while !stop.load(Ordering::Relaxed) {
                    let change = CHANGES[random() as usize % CHANGES.len()];
                    // Once in a while is enough: after it, all of a table's rows are new.
                    if change.starts_with("TRUNCATE") && random() % 20 > 0 {
                        continue;
                    }
                    let mut statement = String::new();
                    for part in change.split_inclusive('?') {
                        match part.strip_suffix('?') {
                            Some(text) => statement += &format!("{text}{}", random() % 6000),
                            None => statement += part,
                        }
                    }
                    // Duplicates, missing parents and deadlocks are part of it.
                    match conn.query_drop(&statement).await {
                        Ok(()) => done += 1,
                        Err(_) => conn.query_drop("ROLLBACK").await.expect("the source is there"),
                    }
                    tokio::time::sleep(BREATH).await;
                }
                done
            })
        };
        let clients = (0..clients).map(start).collect();
        Self { stop, clients }
    }

    /// Returns the number of changes.
    pub(super) async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let mut done = 0;
        for client in self.clients {
            done += client.await.expect("ends");
        }
        done
    }
}

pub(super) async fn restless_pair() -> (Server, Server) {
    let (source, target) = Server::pair(&[], &[]);
    make_restless(&source).await;
    (source, target)
}

async fn make_restless(source: &Server) {
    let mut session = source.conn().await;
    for statement in RESTLESS {
        session.query_drop(*statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_change_while_chunks_are_read_end_as_on_the_source() {
    let (source, target) = restless_pair().await;
    let load = LoadOptions { rows: 60_000, ..busy() };
    prepare(&source, &load).await;
    let clients = Load::start(&source, &load);
    let restless = Restless::start(&source, 6).await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    let executed: String = source.value("SELECT @@GLOBAL.gtid_executed").await;
    ends_well(start_copying(&daemon, &["--lanes", "2"]), &daemon).await;
    let said = copy_log(&daemon);
    assert!(said.contains("its rows were read in chunks"), "{said}");
    // Nothing changes any more once the copy has ended: what is wrong then stays so.
    let changes = restless.stop().await;
    clients.stop().await;
    let during: u64 = source.value(&format!("SELECT @@GLOBAL.gtid_executed <> '{executed}'")).await;
    assert!(during == 1 && changes > 100, "{changes} changes");
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let left: u64 = target.value("SELECT COUNT(*) FROM csa.copy_range").await;
    assert_eq!(left, 0, "the copy has not ended");
    // From now on, rows are applied strictly.
    target.exec("SET sql_log_bin=0; DELETE FROM restless.keyless; DELETE FROM restless.word").await;
    source.exec("UPDATE restless.word SET body='strict'").await;
    wait_state(&daemon, 0, "failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_goes_on_where_it_was() {
    let (source, target) = restless_pair().await;
    let load = LoadOptions { rows: 60_000, ..busy() };
    prepare(&source, &load).await;
    let clients = Load::start(&source, &load);
    let restless = Restless::start(&source, 3).await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    let mut copied = 0;
    for _ in 0..4 {
        let mut copying = start_copying(&daemon, &["--lanes", "2"]);
        let more = format!("SELECT COALESCE(SUM(rows_copied), 0) > {copied} FROM csa.copy_range");
        let mut conn = target.conn().await;
        eventually("a chunk is copied", DRAIN, async || {
            conn.query_first(&more).await.unwrap_or_default() == Some(1)
        })
        .await;
        copying.kill().expect("kills");
        copying.wait().expect("ends");
        let rows: u64 =
            target.value("SELECT CAST(SUM(rows_copied) AS UNSIGNED) FROM csa.copy_range").await;
        assert!(rows > copied, "{rows} rows after {copied}: the copy began again");
        copied = rows;
    }
    // Another limit, or other guesses at sizes, do not change how an interrupted copy ends.
    let config = std::fs::read_to_string(daemon.config_path()).expect("readable");
    assert!(config.contains("0MiB"), "{config}");
    std::fs::write(daemon.config_path(), config.replace("0MiB", "1GiB")).expect("writable");
    // The target dies among chunks, too.
    let copying = start_copying(&daemon, &["--lanes", "1"]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    target.kill9();
    target.restart();
    let ended_well = ends(copying, DRAIN).await;
    let after_crash: u64 = target
        .value("SELECT CAST(COALESCE(SUM(rows_copied), 0) AS UNSIGNED) FROM csa.copy_range")
        .await;
    if !ended_well {
        assert!(after_crash >= copied, "{after_crash} rows after {copied}: chunks are lost");
        ends_well(start_copying(&daemon, &[]), &daemon).await;
    }
    daemon.start_again();
    tokio::time::sleep(Duration::from_secs(1)).await;
    restless.stop().await;
    clients.stop().await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The table is in no chunk, and was made before the copy began: the stream does not make it.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_copy_with_other_rules_begins_again() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { rows: 60_000, ..busy() }).await;
    source
        .exec("CREATE TABLE sbtest.item (id INT PRIMARY KEY); INSERT INTO sbtest.item VALUES (1)")
        .await;
    let daemon = Daemon::builder(&source, &target)
        .set("copy.snapshot_limit", "0MiB")
        .set("applier.replicate_ignore_table", vec!["sbtest.item"])
        .build();
    let mut copying = start_copying(&daemon, &["--lanes", "1", "--rows-per-second", "20000"]);
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        let more = "SELECT COALESCE(SUM(rows_copied), 0) > 0 FROM csa.copy_range";
        conn.query_first(more).await.unwrap_or_default() == Some(1)
    })
    .await;
    copying.kill().expect("kills");
    copying.wait().expect("ends");
    daemon.set("applier.replicate_ignore_table", vec!["sbtest.another"]);
    daemon.write_config();
    ends_well(start_copying(&daemon, &[]), &daemon).await;
    source.exec("INSERT INTO sbtest.item VALUES (2)").await;
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_of_an_older_source_end_as_it_does() {
    let source = Server::start_version("source", "8.0.15", &[]);
    let target = Server::start("target", &[]);
    make_restless(&source).await;
    let restless = Restless::start(&source, 4).await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.tls", "disabled")
        .set("source.get_public_key", true)
        .set("copy.snapshot_limit", "0MiB")
        .build();
    ends_well(start_copying(&daemon, &["--lanes", "1"]), &daemon).await;
    assert!(copy_log(&daemon).contains("in chunks"), "{}", copy_log(&daemon));
    daemon.start_again();
    restless.stop().await;
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = csa_tests::Compare::contents().run(&source, &target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
}

/// The number that the environment gives, so that a night can be longer than a test.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Ten tables under 64 clients. The daemon, which copies, and the target are killed in turn.
#[tokio::test(flavor = "multi_thread")]
async fn ten_tables_are_copied_while_daemon_and_target_are_killed() {
    let rows = number("CSA_COPY_ROWS", 10_000);
    let pause = Duration::from_secs(number("CSA_COPY_KILL_SECONDS", 1));
    let rate = Some(number("CSA_COPY_RATE", 100) as f64);
    let (source, target) = Server::pair(&[], &[]);
    let load = LoadOptions { tables: 10, rows, clients: 64, rate, ..busy() };
    prepare(&source, &load).await;
    let clients = Load::start(&source, &load);
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("target.connect_retry", "100ms")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", "0MiB")
        // At least five kills: a quick machine copies all in a second.
        .set("copy.rows_per_second", (2 * rows) as i64)
        .set("copy.lanes", 2)
        .build();
    daemon.spawn();
    let mut kills = 0;
    while !daemon.log().contains("all rows are copied") {
        assert!(kills < 40, "the copy begins again and again: {}", daemon.log_tail());
        // Longer and longer: on a busy machine, the begin of a copy takes its time.
        tokio::time::sleep(pause * (1 + kills / 4)).await;
        if kills % 2 == 0 {
            daemon.kill9();
            daemon.spawn();
        } else {
            target.kill9();
            target.restart();
        }
        kills += 1;
    }
    println!("{kills} kills");
    assert!(kills > 1, "nothing was killed while rows were copied");
    clients.stop().await;
    eventually("the copy is whole", Duration::from_secs(900), async || {
        daemon.try_status().is_some_and(|status| status["channels"][0]["state"] == "running")
    })
    .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let again = daemon.log().matches("begins again").count();
    assert_eq!(again, 0, "an interrupted copy began again: {}", daemon.log_tail());
}

/// Ten tables under 64 clients. One is altered, the daemon and the target are killed, and the source dies for good in
/// the middle: the copy begins again, from the replica that takes its place, and is interrupted there too.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_source_fails_over_is_made_from_the_next_one() {
    let rows = number("CSA_COPY_ROWS", 3_000);
    let pause = Duration::from_secs(number("CSA_COPY_KILL_SECONDS", 1));
    let (source, target) = Server::pair(&[], &[]);
    let replica = Server::start("replica", &[]);
    replica.follow(&source).await;
    let rate = Some(number("CSA_COPY_RATE", 100) as f64);
    let load = LoadOptions { tables: 10, rows, clients: 64, rate, ..busy() };
    prepare(&source, &load).await;
    let has_all = async || {
        eventually("the replica has all", Duration::from_secs(600), async || {
            replica.gtid_executed().await == source.gtid_executed().await
        })
        .await;
    };
    has_all().await;
    let failover = format!("a = [{{ host = \"127.0.0.1\", port = {} }}]", replica.port);
    let failover = failover.parse::<toml::Table>().expect("TOML")["a"].clone();
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("source.failover", failover)
        .set("target.connect_retry", "100ms")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", "0MiB")
        // All rows take 50 seconds: the source must die before the last one, on a busy machine too.
        .set("copy.rows_per_second", rows as i64 / 5)
        .build();
    let copied = async |share: f64| {
        let enough = rows as f64 * 10.0 * share;
        eventually("rows are copied", Duration::from_secs(600), async || {
            let Some(status) = daemon.try_status() else { return false };
            let channel = &status["channels"][0];
            assert_ne!(channel["state"], "running", "the copy has ended: {}", daemon.log_tail());
            channel["copy"]["rows"].as_f64().is_some_and(|rows| rows > enough)
        })
        .await;
    };
    let clients = Load::start(&source, &load);
    daemon.start_again();
    copied(0.2).await;
    source.exec("ALTER TABLE sbtest.sbtest3 ADD COLUMN late INT NOT NULL DEFAULT 7").await;
    tokio::time::sleep(pause).await;
    daemon.kill9();
    daemon.start_again();
    tokio::time::sleep(pause).await;
    target.kill9();
    target.restart();
    copied(0.3).await;
    clients.stop().await;
    has_all().await;
    source.kill9();
    replica.exec("STOP REPLICA; RESET REPLICA ALL").await;
    let clients = Load::start(&replica, &load);
    copied(0.1).await;
    daemon.kill9();
    daemon.set("copy.rows_per_second", 10_000.max(rows as i64));
    daemon.start_again();
    tokio::time::sleep(pause).await;
    target.kill9();
    target.restart();
    eventually("the copy is whole", Duration::from_secs(900), async || {
        daemon.try_status().is_some_and(|status| status["channels"][0]["state"] == "running")
    })
    .await;
    clients.stop().await;
    replica.exec("DELETE FROM sbtest.sbtest2 WHERE id % 11 = 0").await;
    daemon.wait_drained(&replica, &target, Duration::from_secs(300)).await;
    compare(&replica, &target).await;
    assert!(daemon.log().contains("the source is another server"), "{}", daemon.log_tail());
}

/// The tables have rows that the next source never had.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_last_changes_were_lost_with_their_source_says_so() {
    let (source, target) = Server::pair(&[], &[]);
    let replica = Server::start("replica", &[]);
    replica.follow(&source).await;
    prepare(&source, &LoadOptions { tables: 1, rows: 20_000, ..busy() }).await;
    let has_all = async || {
        eventually("the replica has all", DRAIN, async || {
            replica.gtid_executed().await == source.gtid_executed().await
        })
        .await;
    };
    has_all().await;
    replica.exec("STOP REPLICA").await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("copy.snapshot_limit", "0MiB")
        .set("copy.rows_per_second", 8_000)
        .build();
    let copying = start_copying(&daemon, &[]);
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        let rows = "SELECT COUNT(*) FROM csa.copy_range WHERE rows_copied > 0";
        conn.query_first::<u64, _>(rows).await.ok().flatten() > Some(0)
    })
    .await;
    source.exec("DELETE FROM sbtest.sbtest1 WHERE id > 19990").await;
    ends_well(copying, &daemon).await;
    daemon.set("source.port", i64::from(replica.port));
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(
        error.contains("it lacks") && error.contains("docs/provisioning.md#copy-again"),
        "{error}"
    );
    // Nothing was lost: it only was late.
    replica.exec("START REPLICA").await;
    has_all().await;
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&replica, &target, DRAIN).await;
    compare(&replica, &target).await;
}

/// The operator makes another copy in place of one that was interrupted.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_was_given_up_by_hand_leaves_nothing_to_wait_for() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(300))").await;
    source
        .exec(
            "SET SESSION cte_max_recursion_depth=100000; INSERT INTO d.t WITH RECURSIVE n AS \
             (SELECT 1 v UNION ALL SELECT v+1 FROM n WHERE v<60000) SELECT v, REPEAT('x', 200) FROM n",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    let mut copying = start_copying(&daemon, &["--rows-per-second", "1000"]);
    let mut conn = target.conn().await;
    eventually("a chunk is copied", DRAIN, async || {
        let some = "SELECT COALESCE(SUM(rows_copied), 0) > 0 FROM csa.copy_range";
        conn.query_first(some).await.unwrap_or_default() == Some(1)
    })
    .await;
    copying.kill().expect("killed");
    copying.wait().expect("ended");
    let error = daemon.start_refused().await;
    for words in ["DELETE FROM csa.copy WHERE channel='test'", "csa-daemon reload"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    // The source's binary logs have all.
    target.exec("DROP DATABASE d; DELETE FROM csa.copy WHERE channel='test'").await;
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    for table in ["copy_state", "copy_range"] {
        let left: u64 = target.value(&format!("SELECT COUNT(*) FROM csa.{table}")).await;
        assert_eq!(left, 0, "{table}");
    }
}
