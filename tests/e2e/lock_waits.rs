//! Locks that sessions of others hold on the target: the channel waits as long as a replica would, and says
//! for whom.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use csa_tests::{Daemon, DaemonBuilder, Server, compare, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::mariadb::equal;
use crate::{DRAIN, wait_state};

/// Longer than the `innodb_lock_wait_timeout` and `lock_wait_timeout` of the daemon's sessions.
const ROW_TIMEOUT: Duration = Duration::from_secs(13);
const TABLE_TIMEOUT: Duration = Duration::from_secs(64);
/// The time from a lock that is in the way to the state that says so.
const SHOWN: Duration = Duration::from_secs(20);

fn view(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

/// Without retries: one wait that counted would end the channel.
fn without_retries(source: &Server, target: &Server) -> DaemonBuilder {
    Daemon::builder(source, target).set("applier.transaction_retries", 0)
}

async fn holder(target: &Server, statements: &[&str]) -> Conn {
    let mut conn = target.conn().await;
    for statement in statements {
        conn.query_drop(*statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    conn
}

async fn release(mut holder: Conn, statement: &str) {
    holder.query_drop(statement).await.expect("releases");
    holder.disconnect().await.expect("disconnects");
}

/// The channel waits for a lock that this session holds, and all places that show it name it.
async fn waits_for(daemon: &Daemon, lock: &str, held_by: &Conn, statement: &str) {
    let mut last = Value::Null;
    eventually(&format!("a wait for {lock}"), SHOWN, async || {
        last = view(daemon);
        last["state"] == "waiting_for_lock"
            && last["applier"]["lock_wait"]["holders"][0]["connection"] == held_by.id()
    })
    .await;
    let wait = &last["applier"]["lock_wait"];
    assert_eq!(wait["lock"], lock, "{wait:#}");
    let one = &wait["holders"][0];
    assert_eq!(one["user"], "admin", "{wait:#}");
    assert!(one["host"].as_str().is_some_and(|host| !host.is_empty()), "{wait:#}");
    let said = one["statement"].as_str().expect("a text");
    assert!(said.contains(statement), "{wait:#}");
    let detail = last["state_detail"].as_str().expect("a text");
    let connection = format!("connection {}", held_by.id());
    for words in [lock, &connection, "admin@", statement, "since 20"] {
        assert!(detail.contains(words), "{words:?} is missing in {detail}");
    }
    let metrics = daemon.metrics();
    let seconds = metrics
        .lines()
        .find_map(|line| line.strip_prefix("csa_applier_lock_wait_seconds{channel=\"test\"} "));
    assert!(seconds.is_some_and(|text| text.parse::<f64>().expect("a number") > 0.0), "{metrics}");
    assert!(daemon.get("/readyz").is_some_and(|(code, _)| code == 200), "it does what it should");
}

/// It stays as it is, and never fails.
async fn stays(daemon: &Daemon, time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        let view = view(daemon);
        assert_ne!(view["state"], "failed", "after {:?}: {view:#}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// One line at the beginning of a wait and one at its end, whatever happened in between.
async fn logged_once(daemon: &Daemon, lock: &str) {
    let count = |words: &str| {
        let log = daemon.log();
        log.lines().filter(|line| line.contains(words) && line.contains(lock)).count()
    };
    eventually("the end is logged", SHOWN, async || {
        count("the lock of another session is free") == 1
    })
    .await;
    assert_eq!(count("waiting for a lock of another session"), 1, "{}", daemon.log_tail());
    assert!(!daemon.log().contains("trying again"), "{}", daemon.log_tail());
}

/// A drain does not wait for the lock: nothing of the statement is done, and it comes again.
fn stops_at_once(daemon: &Daemon) {
    let begun = Instant::now();
    daemon.commanded(&["stop"]);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

async fn started(source: &Server, target: &Server, builder: DaemonBuilder) -> Daemon {
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1,1),(2,2)").await;
    let daemon = builder.start();
    daemon.wait_drained(source, target, DRAIN).await;
    daemon
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_definition_waits_for_a_backup_as_a_replica_does() {
    let (source, target) = Server::pair(&[], &[]);
    // With a standby the wait is repeated every minute.
    let builder = without_retries(&source, &target).set("standby", true);
    let daemon = started(&source, &target, builder).await;
    let backup = holder(&target, &["LOCK INSTANCE FOR BACKUP"]).await;
    source.exec("ALTER TABLE d.t ADD COLUMN w INT; INSERT INTO d.t VALUES (3,3,3)").await;
    stays(&daemon, TABLE_TIMEOUT).await;
    waits_for(&daemon, "the backup lock", &backup, "LOCK INSTANCE FOR BACKUP").await;
    stops_at_once(&daemon);
    daemon.commanded(&["restart"]);
    waits_for(&daemon, "the backup lock", &backup, "LOCK INSTANCE FOR BACKUP").await;
    // A killed daemon leaves a session that waits, and may have hours of work in it: the next start says so.
    daemon.kill9();
    daemon.start_again();
    eventually("the start names the session", SHOWN, async || {
        let view = view(&daemon);
        let detail = view["state_detail"].as_str().unwrap_or_default().to_owned();
        view["state"] == "waiting_for_target" && detail.contains("Waiting for backup lock")
    })
    .await;
    release(backup, "UNLOCK INSTANCE").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    wait_state(&daemon, 0, "running").await;
    assert!(view(&daemon)["applier"]["lock_wait"].is_null());
    compare(&source, &target).await;
}

/// There a statement leaves an entry in `csa.statement` while it runs, and a start after a crash asks about it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_definition_waits_for_a_backup_of_mariadb_and_leaves_no_doubt_at_a_stop() {
    let (source, target) = Server::both(
        || Server::start("source", &[]),
        || Server::start_version("target", "mariadb-11.4", &[]),
    );
    let collation = "CREATE DATABASE d COLLATE utf8mb4_general_ci";
    source.exec(&format!("{collation}; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")).await;
    source.exec("INSERT INTO d.t VALUES (1,1),(2,2)").await;
    let daemon = without_retries(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let rows = holder(&target, &["BEGIN", "SELECT * FROM d.t WHERE id=1 FOR UPDATE"]).await;
    source.exec("UPDATE d.t SET v=v+1 WHERE id=1").await;
    stays(&daemon, ROW_TIMEOUT).await;
    waits_for(&daemon, "table d.t", &rows, "").await;
    release(rows, "ROLLBACK").await;
    daemon.wait_drained(&source, &target, DRAIN).await;

    let stages = ["BACKUP STAGE START", "BACKUP STAGE FLUSH", "BACKUP STAGE BLOCK_DDL"];
    let backup = holder(&target, &stages).await;
    source.exec("ALTER TABLE d.t ADD COLUMN w INT; INSERT INTO d.t VALUES (3,3,3)").await;
    let shown = async || {
        eventually("a wait for the backup lock", SHOWN, async || {
            let view = view(&daemon);
            let wait = &view["applier"]["lock_wait"];
            view["state"] == "waiting_for_lock" && wait["lock"] == "the backup lock"
        })
        .await;
    };
    shown().await;
    // It can't be seen who holds it without a plugin, and the state says so.
    let unseen = &view(&daemon)["applier"]["lock_wait"]["unseen"];
    assert_eq!(unseen, "INSTALL SONAME 'metadata_lock_info'");
    stops_at_once(&daemon);
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM csa.statement").await, 0);
    daemon.commanded(&["restart"]);
    shown().await;
    release(backup, "BACKUP STAGE END").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    equal(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn readers_and_table_locks_of_others_are_waited_for() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = started(&source, &target, without_retries(&source, &target)).await;
    // A transaction that has read the table keeps its definition from changing.
    let reader = holder(&target, &["BEGIN", "SELECT COUNT(*) FROM d.t"]).await;
    source.exec("ALTER TABLE d.t ADD COLUMN w INT").await;
    waits_for(&daemon, "table d.t", &reader, "SELECT COUNT").await;
    release(reader, "COMMIT").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // The definition is in the table; its rows are kept out.
    let tables = holder(&target, &["LOCK TABLES d.t READ"]).await;
    source.exec("UPDATE d.t SET v=v+10").await;
    waits_for(&daemon, "table d.t", &tables, "LOCK TABLES").await;
    release(tables, "UNLOCK TABLES").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // All commits are kept out, for longer than one wait takes.
    let all = holder(&target, &["FLUSH TABLES WITH READ LOCK"]).await;
    source.exec("UPDATE d.t SET v=v+10").await;
    stays(&daemon, TABLE_TIMEOUT).await;
    waits_for(&daemon, "the global read lock", &all, "FLUSH TABLES WITH READ LOCK").await;
    release(all, "UNLOCK TABLES").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    logged_once(&daemon, "the global read lock").await;
    compare(&source, &target).await;
}

/// Rows that somebody has locked, for longer than one wait takes.
async fn row_locks_are_waited_for(gtids: &str, commit: &str, executor: &str) {
    let (source, target) = Server::pair(&[], &[]);
    let builder = without_retries(&source, &target)
        .set("applier.target_gtids", gtids)
        .set("applier.commit", commit)
        .set("applier.executor", executor);
    let daemon = started(&source, &target, builder).await;
    let rows = holder(&target, &["BEGIN", "SELECT * FROM d.t WHERE id=1 FOR UPDATE"]).await;
    source.exec("UPDATE d.t SET v=v+1 WHERE id=1").await;
    source.exec("INSERT INTO d.t VALUES (3,3)").await;
    stays(&daemon, ROW_TIMEOUT).await;
    waits_for(&daemon, "table d.t", &rows, "FOR UPDATE").await;
    release(rows, "ROLLBACK").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    logged_once(&daemon, "table d.t").await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn row_locks_of_others_are_waited_for() {
    row_locks_are_waited_for("own", "grouped", "row-image").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_locks_of_others_are_waited_for_under_the_sources_gtids() {
    row_locks_are_waited_for("source", "one-to-one", "row-image").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_locks_of_others_are_waited_for_by_statements_of_rows() {
    row_locks_are_waited_for("mirror", "grouped", "sql").await;
}

/// An operator has locked the rows of the checkpoint.
async fn checkpoint_is_waited_for(gtids: &str, commit: &str) {
    let (source, target) = Server::pair(&[], &[]);
    let builder = without_retries(&source, &target)
        .set("applier.target_gtids", gtids)
        .set("applier.commit", commit);
    let daemon = started(&source, &target, builder).await;
    let rows = holder(&target, &["BEGIN", "SELECT * FROM csa.checkpoint FOR UPDATE"]).await;
    source.exec("INSERT INTO d.t VALUES (3,3)").await;
    stays(&daemon, ROW_TIMEOUT).await;
    if gtids == "own" {
        waits_for(&daemon, "table csa.checkpoint", &rows, "FOR UPDATE").await;
    } else {
        // The row is for readers only there: rows are applied meanwhile.
        assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM d.t").await, 3);
    }
    // A start waits too, and says for whom.
    let begun = Instant::now();
    daemon.terminate();
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    daemon.start_again();
    let connection = format!("connection {}", rows.id());
    eventually("the start names the holder", DRAIN, async || {
        let view = view(&daemon);
        let detail = view["state_detail"].as_str().unwrap_or_default().to_owned();
        view["state"] == "waiting_for_target" && detail.contains(&connection)
    })
    .await;
    release(rows, "ROLLBACK").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_row_of_the_checkpoint_that_an_operator_locked_is_waited_for() {
    checkpoint_is_waited_for("own", "grouped").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_row_for_readers_that_an_operator_locked_holds_nothing_up() {
    checkpoint_is_waited_for("source", "one-to-one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skip_that_waits_for_locked_rows_gives_way_to_a_stop() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = started(&source, &target, Daemon::builder(&source, &target)).await;
    target.exec("DELETE FROM d.t WHERE id = 1").await;
    source.exec("UPDATE d.t SET v = 10 WHERE id = 1").await;
    wait_state(&daemon, 0, "failed").await;
    let gtid = view(&daemon)["last_error"]["transaction"].as_str().expect("named").to_owned();
    let rows = holder(&target, &["BEGIN", "SELECT * FROM csa.checkpoint FOR UPDATE"]).await;
    let skip = Command::new(Daemon::executable())
        .arg("--config")
        .arg(daemon.config_path())
        .args(["skip", &gtid])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut skip = skip.expect("running skip");
    let waits = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";
    eventually("the skip waits", SHOWN, async || target.value::<u64>(waits).await > 0).await;
    let begun = Instant::now();
    // It says that the channel had failed.
    let _ = daemon.terminate();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(!skip.wait().expect("ended").success(), "nothing was skipped");
    release(rows, "ROLLBACK").await;

    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    daemon.commanded(&["skip", &gtid]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("INSERT INTO d.t VALUES (1, 10)").await;
    compare(&source, &target).await;
}
