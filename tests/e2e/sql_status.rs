//! `csa.status` on the target: the state of each channel for clients that ask the target.

use std::time::{Duration, Instant};

use csa_tests::{Daemon, Guide, Server, compare, eventually};

use crate::{DRAIN, wait_state};

/// A row is older than this only if nobody writes it.
const FRESH: &str = "updated_at > NOW(6) - INTERVAL 5 SECOND";

async fn pair() -> (Server, Server) {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE shop; CREATE TABLE shop.item (id INT PRIMARY KEY)").await;
    (source, target)
}

async fn text(target: &Server, column: &str) -> String {
    let query = format!("SELECT CAST({column} AS CHAR) FROM csa.status WHERE channel = 'test'");
    target.value::<Option<String>>(&query).await.unwrap_or_else(|| "NULL".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_has_the_state_of_each_channel_outside_of_its_binary_log() {
    let (source, target) = pair().await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("a row", DRAIN, async || {
        target.value::<u64>("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'status' AND table_schema = 'csa'").await == 1
            && target.value::<u64>("SELECT COUNT(*) FROM csa.status").await == 1
    })
    .await;
    eventually("level", DRAIN, async || {
        text(&target, "backlog_transactions").await == "0"
            && text(&target, "lag_seconds").await == "0"
    })
    .await;
    assert_eq!(text(&target, "state").await, "running");
    assert!(text(&target, "reason").await.starts_with("has applied"));
    let executed = source.gtid_executed().await.replace('\n', "");
    assert_eq!(text(&target, "applied_transaction_set").await, executed);
    assert_eq!(text(&target, "received_transaction_set").await, executed);
    // It is written again and again, and uses up no GTID of the target.
    let before = target.gtid_executed().await;
    let seen = text(&target, "updated_at").await;
    eventually("a newer row", DRAIN, async || text(&target, "updated_at").await != seen).await;
    assert_eq!(target.gtid_executed().await, before);

    // Held back, its lag grows.
    daemon.commanded(&["pause"]);
    source.exec("INSERT INTO shop.item VALUES (1)").await;
    eventually("paused", DRAIN, async || {
        text(&target, "state").await == "paused"
            && text(&target, "backlog_transactions").await == "1"
            && text(&target, "lag_seconds > 1").await == "1"
    })
    .await;
    daemon.commanded(&["resume"]);
    daemon.wait_drained(&source, &target, DRAIN).await;

    // An error stays in the row, and so does the end of the channel.
    target.exec("SET sql_log_bin = 0; INSERT INTO shop.item VALUES (2)").await;
    source.exec("INSERT INTO shop.item VALUES (2)").await;
    wait_state(&daemon, 0, "failed").await;
    eventually("failed", DRAIN, async || text(&target, "state").await == "failed").await;
    assert_eq!(text(&target, "last_error_number").await, "1062");
    let error = text(&target, "last_error").await;
    assert!(error.contains("shop.item") && !error.contains("'2'"), "{error}");
    target.exec("SET sql_log_bin = 0; DELETE FROM shop.item WHERE id = 2").await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    eventually("running again", DRAIN, async || text(&target, "state").await == "running").await;
    daemon.commanded(&["stop"]);
    assert_eq!(text(&target, "state").await, "stopped");
    assert_eq!(text(&target, FRESH).await, "1");
    // Dropped, it is created again.
    target.exec("DROP TABLE csa.status").await;
    daemon.commanded(&["restart"]);
    eventually("a row again", DRAIN, async || {
        target.value::<u64>("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'status' AND table_schema = 'csa'").await == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_can_not_be_applied_is_a_failure() {
    let (source, target) = pair().await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    // Refused before the applier has it, which ends without an error of its own.
    source.exec("SET SESSION binlog_format=STATEMENT; INSERT INTO shop.item VALUES (1)").await;
    wait_state(&daemon, 0, "failed").await;
    assert_eq!(text(&target, "state").await, "failed");
    let shown = daemon.status()["channels"][0]["last_error"]["message"].clone();
    assert_eq!(shown, text(&target, "last_error").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_the_row_holds_nothing_up() {
    let (source, target) = pair().await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("a row", DRAIN, async || daemon.log().contains("channel started")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut lock = target.conn().await;
    let locks = "LOCK TABLES csa.status WRITE";
    mysql_async::prelude::Queryable::query_drop(&mut lock, locks).await.expect("locks");
    // At most one write of the row waits for a second; then none is tried for a while.
    let begun = Instant::now();
    for id in 10..60 {
        source.exec(&format!("INSERT INTO shop.item VALUES ({id})")).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    daemon.wait_drained(&source, &target, Duration::from_secs(10)).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(daemon.status()["channels"][0]["state"], "running");
    drop(lock);
    compare(&source, &target).await;
}

/// Such rows are written on the session that writes the row, and leave their own time there.
#[tokio::test(flavor = "multi_thread")]
async fn the_state_stays_fresh_after_rows_of_another_engine() {
    let (source, target) = pair().await;
    source.exec("CREATE TABLE shop.other (id INT PRIMARY KEY) ENGINE=MyISAM").await;
    let daemon = Daemon::builder(&source, &target).start();
    source.exec("INSERT INTO shop.other VALUES (1)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // Until the time of the rows is no longer fresh.
    tokio::time::sleep(Duration::from_secs(6)).await;
    eventually("a fresh row", DRAIN, async || text(&target, FRESH).await == "1").await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_table_of_that_name_only_warns() {
    let (source, target) = pair().await;
    target
        .exec(
            "SET sql_log_bin = 0; CREATE DATABASE IF NOT EXISTS csa; \
             CREATE TABLE csa.status (channel VARCHAR(64) PRIMARY KEY)",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("a warning", DRAIN, async || daemon.log().contains("csa.status can't be written"))
        .await;
    source.exec("INSERT INTO shop.item VALUES (1)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(daemon.log().matches("csa.status can't be written").count(), 1);
    wait_state(&daemon, 0, "running").await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_privilege_to_hide_it_no_row_is_written() {
    let (source, target) = pair().await;
    target
        .exec(
            "SET sql_log_bin = 0; REVOKE SESSION_VARIABLES_ADMIN ON *.* FROM csa; \
             REVOKE IF EXISTS SYSTEM_VARIABLES_ADMIN, SUPER ON *.* FROM csa",
        )
        .await;
    let daemon = Daemon::builder(&source, &target).set("applier.executor", "sql").start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("a warning", DRAIN, async || daemon.log().contains("csa.status not written")).await;
    assert!(daemon.log().contains("SESSION_VARIABLES_ADMIN"), "{}", daemon.log_tail());
    let before = target.gtid_executed().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(target.gtid_executed().await, before);
    source.exec("INSERT INTO shop.item VALUES (1)").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queries_of_the_document_answer() {
    let (source, target) = pair().await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let mut guide = Guide::section("monitoring.md", "State by SQL");
    let lag = guide.take("sql").replace("'shop'", "'test'");
    let view = guide.take("sql").replace("'shop'", "'test'");
    eventually("a lag by SQL", DRAIN, async || {
        let table = "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'status' AND table_schema = 'csa'";
        target.value::<u64>(table).await == 1
            && target.value::<u64>("SELECT COUNT(*) FROM csa.status WHERE lag_seconds IS NOT NULL").await == 1
    })
    .await;
    let query = lag.trim_end().trim_end_matches(';');
    let query = format!("SELECT COUNT(*) FROM ({query}) AS answer WHERE state = 'running'");
    assert_eq!(target.value::<u8>(&query).await, 1);
    target.exec(&view).await;
    let ts = "SELECT ts > NOW(6) - INTERVAL 5 SECOND FROM csa.heartbeat";
    assert_eq!(target.value::<u8>(ts).await, 1);
}
