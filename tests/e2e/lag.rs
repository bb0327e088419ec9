//! Lag is never lower than the truth: on a slow link, and with clocks that differ.

use std::time::{Duration, Instant};

use csa_tests::{Daemon, Proxy, Server, compare, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::DRAIN;

/// The age at which a transaction may arrive and still count as the last.
const SOON: f64 = 1.0;
/// Seconds between a request to the daemon and its answer on a busy machine.
const SLACK: f64 = 0.5;

fn view(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

fn lag(daemon: &Daemon) -> Option<f64> {
    view(daemon)["lag_seconds"].as_f64()
}

async fn wait_for_no_lag(daemon: &Daemon) {
    eventually("no lag", Duration::from_secs(30), async || lag(daemon) == Some(0.0)).await;
}

/// Holds up the row with this id on the target.
async fn blocker(target: &Server, id: u64) -> Conn {
    let mut conn = target.conn().await;
    conn.query_drop("BEGIN").await.expect("begins");
    conn.query_drop(format!("INSERT INTO d.t VALUES ({id}, '')")).await.expect("inserts");
    conn
}

/// Makes the source report a time this many seconds from its own, and the daemon ask for it.
async fn set_clock(source: &Server, daemon: &Daemon, seconds: i64) {
    let connects = |daemon: &Daemon| view(daemon)["connection"]["connects_total"].as_u64();
    let before = connects(daemon);
    let init =
        format!("SET GLOBAL init_connect='SET timestamp=UNIX_TIMESTAMP(NOW(6))+({seconds})'");
    source.exec(&init).await;
    let dump = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'";
    let id: u64 = source.value(dump).await;
    source.exec(&format!("KILL {id}")).await;
    eventually("a new link", DRAIN, async || connects(daemon) > before).await;
    wait_for_no_lag(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_counts_what_is_on_the_way_and_what_clocks_hide() {
    let (source, target) = Server::pair(&["--sync-binlog=0"], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)").await;
    let proxy = Proxy::to(source.port);
    let daemon =
        Daemon::builder(&source, &target).set("source.port", i64::from(proxy.port)).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    wait_for_no_lag(&daemon).await;
    on_a_slow_link(&source, &target, &daemon, &proxy).await;
    by_other_clocks(&source, &target, &daemon).await;
    compare(&source, &target).await;
    assert!(daemon.terminate().success());
}

/// 200 transactions, then one as large as 100 of them, over a link that needs 10 s for them.
async fn on_a_slow_link(source: &Server, target: &Server, daemon: &Daemon, proxy: &Proxy) {
    proxy.set_rate(Some(300_000));
    let mut writer = source.conn().await;
    let mut committed = Vec::new();
    for id in 1..=200 {
        let insert = format!("INSERT INTO d.t VALUES ({id}, REPEAT('x', 10000))");
        writer.query_drop(insert).await.expect("inserts");
        committed.push(Instant::now());
    }
    let large = "INSERT INTO d.t VALUES (201, REPEAT('y', 1000000))";
    writer.query_drop(large).await.expect("inserts");
    committed.push(Instant::now());
    let mut reader = target.conn().await;
    let (mut highest, mut seen_arriving) = (0.0_f64, false);
    loop {
        let asked = Instant::now();
        let view = view(daemon);
        let applied: Option<usize> =
            reader.query_first("SELECT COUNT(*) FROM d.t").await.expect("a number");
        let Some(oldest) = committed.get(applied.expect("a row")) else { break };
        // It was already missing when the daemon was asked.
        let truth = asked.saturating_duration_since(*oldest).as_secs_f64();
        let lag = view["lag_seconds"].as_f64();
        let enough = lag.is_none_or(|lag| lag + SLACK >= truth) || truth < SOON + SLACK;
        assert!(enough, "{truth} s, and the daemon says {view:#}");
        let text = view["state_detail"].as_str().unwrap_or_default();
        let all_well = text.contains("everything received, waiting for more");
        assert!(!all_well || truth < SOON + SLACK, "{truth} s, and the daemon says {text}");
        seen_arriving |= text.contains("MiB are here");
        highest = lag.unwrap_or_default().max(highest);
        assert!(asked.duration_since(committed[0]) < DRAIN, "not applied in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(highest > 5.0, "the link was slow: {highest}");
    assert!(seen_arriving, "one transaction took seconds to arrive");
    proxy.set_rate(None);
    wait_for_no_lag(daemon).await;
}

async fn by_other_clocks(source: &Server, target: &Server, daemon: &Daemon) {
    // The transactions come from a server whose clock is an hour ahead; only that server knew them.
    let mut made_elsewhere = source.conn().await;
    let held = blocker(target, 301).await;
    let future = "SET SESSION original_commit_timestamp=(UNIX_TIMESTAMP()+3600)*1000000";
    made_elsewhere.query_drop(future).await.expect("allowed");
    made_elsewhere.query_drop("INSERT INTO d.t VALUES (301, '')").await.expect("inserts");
    grows(daemon, 0.0).await;
    drop(held);
    daemon.wait_drained(source, target, DRAIN).await;

    // The source's clock is fast, or slow; the daemon asks for it at each connect. The commit times are
    // true, so a commit that seems long ago or an hour ahead shows that the daemon believed the clock.
    for (id, ahead) in [(302, 3600), (303, -3600)] {
        set_clock(source, daemon, ahead).await;
        let held = blocker(target, id).await;
        source.exec(&format!("INSERT INTO d.t VALUES ({id}, '')")).await;
        grows(daemon, if ahead > 0 { 3590.0 } else { 0.0 }).await;
        drop(held);
        daemon.wait_drained(source, target, DRAIN).await;
        if ahead > 0 {
            // Nothing is left of the delay by our own clock, so the transaction is not held back.
            let changed = daemon.put("/channels/test/source_delay", "59m");
            assert_eq!(changed.map(|answer| answer.0), Some(200));
            source.exec("INSERT INTO d.t VALUES (1302, '')").await;
            daemon.wait_drained(source, target, DRAIN).await;
            daemon.put("/channels/test/source_delay", "0s").expect("an answer");
        }
    }
    // The question takes a while on a busy machine.
    let noticed =
        ["3600.", "3599."].map(|seconds| format!("the source's clock is fast by {seconds}"));
    let log = daemon.log();
    assert!(noticed.iter().any(|text| log.contains(text)), "{}", daemon.log_tail());
    source.exec("SET GLOBAL init_connect=''").await;
}

/// Lag is above `least`, by no more than a minute, and grows with the time.
async fn grows(daemon: &Daemon, least: f64) {
    // Lag is absent until the applier has read it, if the last one is from the future.
    eventually("lag with a backlog", DRAIN, async || {
        let view = view(daemon);
        view["backlog_transactions"] == 1 && !view["lag_seconds"].is_null()
    })
    .await;
    let first = lag(daemon).expect("lag is known with a backlog");
    assert!(first > least && first < least + 60.0, "{first}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = lag(daemon).expect("lag is known with a backlog");
    assert!(second > first + 0.9, "{first}, then {second}");
}
