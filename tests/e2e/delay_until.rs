//! `source_delay` and `until`: the time at which transactions are applied, and the last one applied.

use std::time::{Duration, Instant};

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, wait_state};

/// The set in the newest checkpoint row: each worker has its own row, and sets have no order as text.
const NEWEST_CHECKPOINT: &str = "SELECT MAX(gtid_executed) FROM csa.checkpoint WHERE sequence = \
                                 (SELECT MAX(sequence) FROM csa.checkpoint)";

/// Returns the seconds from an INSERT on the source until it shows on the target.
async fn seconds_to_arrive(source: &Server, target: &Server, id: u32) -> f64 {
    source.exec(&format!("INSERT INTO d.t VALUES ({id})")).await;
    let started = Instant::now();
    eventually("the row arrives", DRAIN, async || {
        target.value::<u64>(&format!("SELECT COUNT(*) FROM d.t WHERE id={id}")).await == 1
    })
    .await;
    started.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_channel_applies_no_earlier_and_stops_at_once() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).set("applier.source_delay", "3s").start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let seconds = seconds_to_arrive(&source, &target, 1).await;
    assert!((2.5..6.0).contains(&seconds), "{seconds}");

    let delay = |text| daemon.put("/channels/test/source_delay", text).map(|answer| answer.0);
    assert_eq!(delay("soon"), Some(400));
    assert_eq!(delay("1h"), Some(200));
    let before = Instant::now();
    source.exec("INSERT INTO d.t VALUES (2),(3); INSERT INTO d.t VALUES (4)").await;
    wait_state(&daemon, 0, "waiting_for_delay").await;
    eventually("both are received", DRAIN, async || {
        daemon.status()["channels"][0]["backlog_transactions"] == 2
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let view = &daemon.status()["channels"][0];
    let lag = view["lag_seconds"].as_f64().expect("a number");
    let elapsed = before.elapsed().as_secs_f64();
    assert!((2.0..=elapsed + 0.1).contains(&lag), "{lag} after {elapsed}");
    let remaining = view["applier"]["remaining_delay"].as_f64().expect("a number");
    assert!((remaining + lag - 3600.0).abs() < 1.0, "{remaining} {lag}");
    assert_eq!(view["applier"]["desired_delay"], 3600.0);
    let detail = view["state_detail"].to_string();
    assert!(detail.contains("waiting for delay"), "{detail}");
    assert_eq!(daemon.get("/readyz").map(|answer| answer.0), Some(200));

    let stopping = Instant::now();
    assert!(daemon.terminate().success());
    assert!(stopping.elapsed() < Duration::from_secs(2), "{:?}", stopping.elapsed());
    daemon.set("applier.source_delay", "1h");
    daemon.start_again();
    wait_state(&daemon, 0, "waiting_for_delay").await;
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM d.t").await, 1);
    // The new delay also counts for a waiting transaction.
    assert_eq!(delay("0s"), Some(200));
    daemon.wait_drained(&source, &target, Duration::from_secs(5)).await;
    compare(&source, &target).await;
    wait_state(&daemon, 0, "running").await;
    let seconds = seconds_to_arrive(&source, &target, 5).await;
    assert!(seconds < 2.0, "{seconds}");
}

/// Transactions that are not due yet stay in the relay store, not in memory.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_delayed_backlog_is_received_and_drained_when_it_is_due() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let before = source.gtid_executed().await;
    assert!(daemon.terminate().success());
    daemon.set("applier.source_delay", "8s");
    daemon.start_again();
    let started = Instant::now();
    let report = Load::run(&source, &options, Duration::from_secs(3)).await;
    eventually("everything is received", Duration::from_secs(4), async || {
        daemon.status()["channels"][0]["backlog_transactions"] == report.committed
    })
    .await;
    let held = &daemon.status()["channels"][0]["event_memory"]["held_bytes"];
    assert_eq!(*held, 0, "held back transactions take no event memory");
    assert_eq!(target.value::<String>(NEWEST_CHECKPOINT).await, before);
    assert!(started.elapsed() < Duration::from_secs(8), "too slow to tell");
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(started.elapsed() > Duration::from_secs(10), "{:?}", started.elapsed());
    compare(&source, &target).await;
}

/// Rows that a load writes while `until` is already set.
async fn numbered(source: &Server, from: u32, to: u32) {
    let mut conn = source.conn().await;
    for id in from..=to {
        conn.query_drop(format!("INSERT INTO d.t VALUES ({id})")).await.expect("inserts");
    }
}

async fn newest(target: &Server) -> u32 {
    target.value("SELECT COALESCE(MAX(id), 0) FROM d.t").await
}

#[tokio::test(flavor = "multi_thread")]
async fn until_stops_exactly_there_and_stays_there() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let uuid: String = source.value("SELECT @@server_uuid").await;
    let base: u32 = {
        let executed = source.gtid_executed().await;
        executed.rsplit(['-', ':']).next().and_then(|n| n.parse().ok()).expect("a number")
    };
    // Row n is transaction base + n.
    numbered(&source, 1, 400).await;
    let until = |key: &str, rows: &str| {
        let mut table = toml::Table::new();
        table.insert(key.to_owned(), format!("{uuid}:{rows}").into());
        table
    };
    let rows = |first: u32, last: u32| format!("{}-{}", base + first, base + last);
    let second = Server::start("second", &[]);
    let daemon = Daemon::builder(&source, &second)
        .channel("ending", &source, &target)
        .set("applier.until", until("sql_before_gtids", &rows(151, 160)))
        .start();
    let stopped = async |words: &str| {
        wait_state(&daemon, 1, "stopped").await;
        let view = &daemon.status()["channels"][1];
        let detail = view["state_detail"].to_string();
        for words in ["until sql_", words] {
            assert!(detail.contains(words), "{words:?} is missing in {detail}");
        }
        assert!(view["last_error"].is_null(), "{view}");
        wait_state(&daemon, 0, "running").await;
    };
    stopped("sql_before_gtids").await;
    assert_eq!(newest(&target).await, 150);
    numbered(&source, 401, 410).await;
    for _ in 0..2 {
        assert!(daemon.terminate().success());
        daemon.start_again();
        stopped("is reached").await;
        assert_eq!(newest(&target).await, 150);
    }
    // After the last of a set with a gap; the transactions in the gap are applied.
    assert!(daemon.terminate().success());
    let set = format!("{}:{}", rows(100, 160), base + 300);
    daemon.set("applier.until", until("sql_after_gtids", &set));
    daemon.start_again();
    stopped("is reached").await;
    assert_eq!(newest(&target).await, 300);
    let applied = daemon.status()["channels"][1]["applied_transaction_set"].to_string();
    assert!(applied.contains(&format!("-{}\"", base + 300)), "{applied}");
    assert!(daemon.terminate().success());
    daemon.start_again();
    stopped("already reached").await;
    assert_eq!(newest(&target).await, 300);
    // Before transactions that are already applied.
    assert!(daemon.terminate().success());
    daemon.set("applier.until", until("sql_before_gtids", &rows(299, 350)));
    daemon.start_again();
    stopped("already reached").await;
    assert_eq!(newest(&target).await, 300);
    // A statement can be the end like rows, and the channel waits for an end that has not arrived.
    assert!(daemon.terminate().success());
    daemon.set("applier.until", until("sql_after_gtids", &(base + 411).to_string()));
    daemon.start_again();
    eventually("row 410 arrives", DRAIN, async || newest(&target).await == 410).await;
    wait_state(&daemon, 1, "running").await;
    source.exec("CREATE TABLE d.last (id INT); CREATE TABLE d.beyond (id INT)").await;
    stopped("is reached").await;
    let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='d'";
    assert_eq!(target.value::<u64>(tables).await, 2);
}

/// An end within a load, with many workers: no group contains a transaction after it.
#[tokio::test(flavor = "multi_thread")]
async fn until_holds_under_load() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    Load::run(&source, &options, Duration::from_secs(2)).await;
    let middle = source.gtid_executed().await;
    Load::run(&source, &options, Duration::from_secs(2)).await;
    let mut until = toml::Table::new();
    until.insert("sql_after_gtids".to_owned(), middle.clone().into());
    let daemon = Daemon::builder(&source, &target).set("applier.until", until).start();
    wait_state(&daemon, 0, "stopped").await;
    assert_eq!(target.value::<String>(NEWEST_CHECKPOINT).await, middle);
    let total: i64 = target.value("SELECT SUM(balance) FROM sbtest.account").await;
    assert_eq!(total, 100_000);
    assert!(daemon.terminate().success());
    daemon.set("applier.until", {
        let mut until = toml::Table::new();
        until.insert("sql_after_gtids".to_owned(), source.gtid_executed().await.into());
        until
    });
    daemon.start_again();
    wait_state(&daemon, 0, "stopped").await;
    compare(&source, &target).await;
}
