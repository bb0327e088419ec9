//! The two facts about a server on which snapshots of a known GTID set stand: what is visible lies before the end of the
//! binary log, and what is in `gtid_executed` is visible.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use csa_tests::Server;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Row};
use tokio::task::JoinSet;

/// Clients that insert rows, each row in a transaction of its own.
const CLIENTS: u64 = 24;
const LENGTH: Duration = Duration::from_secs(4);
/// The pause of a client after each commit: the table that is counted stays small.
const BREATH: Duration = Duration::from_millis(5);

/// Returns the number of transactions in a set of one server.
fn count(executed: &str) -> u64 {
    let intervals = executed.split([':', ',']).skip(1);
    let count = |interval: &str| {
        let (first, last) = interval.split_once('-').unwrap_or((interval, interval));
        Some(last.trim().parse::<u64>().ok()? - first.trim().parse::<u64>().ok()? + 1)
    };
    intervals.filter_map(count).sum()
}

/// Returns the number of transactions before the end of the log.
async fn logged(conn: &mut Conn) -> u64 {
    let status: Row =
        conn.query_first("SHOW BINARY LOG STATUS").await.expect("a status").expect("a row");
    let (file, end): (String, u64) =
        (status.get(0).expect("a file"), status.get(1).expect("an end"));
    let query = format!("SHOW BINLOG EVENTS IN '{file}'");
    // The server refuses to read an event that is half written.
    let events: Vec<Row> = loop {
        match conn.query(&query).await {
            Ok(events) => break events,
            Err(mysql_async::Error::Server(error)) if error.code == 1220 => {}
            Err(error) => panic!("{error}"),
        }
    };
    let is_transaction = |event: &&Row| {
        let (position, kind): (u64, String) =
            (event.get(1).expect("a position"), event.get(2).expect("a type"));
        kind == "Gtid" && position < end
    };
    events.iter().filter(is_transaction).count() as u64
}

async fn visible(conn: &mut Conn) -> u64 {
    conn.query_first("SELECT COUNT(*) FROM d.t").await.expect("a count").expect("a row")
}

async fn executed(conn: &mut Conn) -> u64 {
    let set: Option<String> =
        conn.query_first("SELECT @@GLOBAL.gtid_executed").await.expect("a set");
    count(&set.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn commits_in_groups_show_neither_too_early_nor_too_late() {
    for options in [
        ["--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1"],
        ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2"],
        ["--sync-binlog=1", "--binlog-group-commit-sync-delay=2000"],
    ] {
        let source = Server::start("source", &options);
        source.exec("CREATE DATABASE d; CREATE TABLE d.t (id BIGINT PRIMARY KEY)").await;
        let mut conn = source.conn().await;
        let before = executed(&mut conn).await;
        let before_in_log = logged(&mut conn).await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (opts, stop) = (source.opts(), Arc::clone(&stop));
            clients.spawn(async move {
                let mut conn = Conn::new(opts).await.expect("connects");
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let id = client * 1_000_000 + n;
                    conn.query_drop(format!("INSERT INTO d.t VALUES ({id})"))
                        .await
                        .expect("inserts");
                    tokio::time::sleep(BREATH).await;
                }
            });
        }
        let begun = Instant::now();
        let mut looks = 0;
        // A look takes its time on a busy machine.
        while begun.elapsed() < LENGTH || looks <= 5 {
            let set = executed(&mut conn).await - before;
            let seen = visible(&mut conn).await;
            assert!(set <= seen, "{options:?}: {set} executed, {seen} visible");
            let seen = visible(&mut conn).await;
            let in_log = logged(&mut conn).await - before_in_log;
            assert!(seen <= in_log, "{options:?}: {seen} visible, {in_log} in the log");
            looks += 1;
        }
        stop.store(true, Ordering::Relaxed);
        clients.join_all().await;
        let seen = visible(&mut conn).await;
        assert!(looks > 5 && seen > 100, "{options:?}: {looks} looks, {seen} rows");
    }
}

/// A commit is held where a semi-synchronous source waits for an acknowledgement: before the engine's commit
/// (`AFTER_SYNC`) or after it (`AFTER_COMMIT`).
#[tokio::test(flavor = "multi_thread")]
async fn commits_that_are_held_are_in_the_log() {
    for (point, is_visible) in [("AFTER_SYNC", false), ("AFTER_COMMIT", true)] {
        let wait_point = format!("--rpl-semi-sync-source-wait-point={point}");
        let source = Server::start(
            "source",
            &[
                "--plugin-load-add=semisync_source.so",
                "--rpl-semi-sync-source-enabled=ON",
                "--rpl-semi-sync-source-timeout=600000",
                "--loose-rpl-semi-sync-source-wait-no-replica=ON",
                &wait_point,
            ],
        );
        source.exec("SET GLOBAL rpl_semi_sync_source_enabled=OFF").await;
        source.exec("CREATE DATABASE d; CREATE TABLE d.t (id BIGINT PRIMARY KEY)").await;
        let mut conn = source.conn().await;
        let (before, before_in_log) = (executed(&mut conn).await, logged(&mut conn).await);
        source.exec("SET GLOBAL rpl_semi_sync_source_enabled=ON").await;
        let mut client = source.conn().await;
        let held =
            tokio::spawn(async move { client.query_drop("INSERT INTO d.t VALUES (1)").await });
        csa_tests::eventually("the commit is held", Duration::from_secs(60), async || {
            let waiting: Option<(String, u64)> = conn
                .query_first("SHOW STATUS LIKE 'Rpl_semi_sync_source_wait_sessions'")
                .await
                .expect("a status");
            waiting.is_some_and(|(_, sessions)| sessions == 1)
        })
        .await;
        let seen = visible(&mut conn).await;
        assert_eq!(seen == 1, is_visible, "{point}");
        assert_eq!(logged(&mut conn).await - before_in_log, 1, "{point}: not in the log");
        assert!(executed(&mut conn).await - before <= seen, "{point}: executed and not visible");
        source.exec("SET GLOBAL rpl_semi_sync_source_enabled=OFF").await;
        held.await.expect("ends").expect("commits");
        assert_eq!(visible(&mut conn).await, 1);
    }
}

/// A look at the end of the log reads on from the last event that it has seen, also within a transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_read_on_from_any_event() {
    const EVENTS: usize = 7;
    let source = Server::start("source", &["--binlog-rows-query-log-events=ON"]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let inserts: Vec<String> = (0..20).map(|id| format!("INSERT INTO d.t VALUES ({id})")).collect();
    source.exec(&format!("BEGIN; {}; COMMIT", inserts.join("; "))).await;
    source.exec("INSERT INTO d.t VALUES (100)").await;
    let mut conn = source.conn().await;
    let status: Row =
        conn.query_first("SHOW BINARY LOG STATUS").await.expect("a status").expect("a row");
    let file: String = status.get(0).expect("a file");
    let all: Vec<Row> =
        conn.query(format!("SHOW BINLOG EVENTS IN '{file}'")).await.expect("events");
    let position = |event: &Row| event.get::<u64, _>(1).expect("a position");
    let all: Vec<u64> = all.iter().map(position).collect();
    assert!(all.len() > 60, "{all:?}");
    let mut read: Vec<u64> = vec![4];
    loop {
        let from = read.pop().expect("an event");
        let query = format!("SHOW BINLOG EVENTS IN '{file}' FROM {from} LIMIT {EVENTS}");
        let events: Vec<Row> = conn.query(query).await.expect("events");
        read.extend(events.iter().map(position));
        if events.len() < EVENTS {
            break;
        }
    }
    assert_eq!(read, all);
}
