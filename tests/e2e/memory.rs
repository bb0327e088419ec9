//! Peak memory of the process, under loads that are much larger once decompressed.

use csa_tests::{Daemon, Server, compare, eventually, peak_memory};
use mysql_async::prelude::Queryable as _;

use crate::archive::archived;
use crate::{DRAIN, EXECUTORS};

const MIB: u64 = 1 << 20;
/// The smallest limit that can be set.
const LIMIT: u64 = 64 * MIB;
/// Allowance for code, threads, sessions, and freed memory that the allocator keeps.
const APART: u64 = 48 * MIB;

/// 160 MiB that take some 200 KiB on the wire: large rows, and many small ones.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn compressed_transactions_take_what_the_limit_says() {
    let (source, target) = Server::pair(
        &["--binlog-transaction-compression=ON"],
        &["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"],
    );
    source.exec("CREATE DATABASE m; CREATE TABLE m.large (id INT PRIMARY KEY, v LONGTEXT)").await;
    source.exec("CREATE TABLE m.small (id INT PRIMARY KEY AUTO_INCREMENT, v INT)").await;
    for executor in EXECUTORS {
        let daemon = Daemon::builder(&source, &target)
            .set("applier.event_memory_limit", "64MiB")
            .set("applier.executor", executor)
            .start();
        daemon.wait_drained(&source, &target, DRAIN).await;
        daemon.commanded(&["pause"]);
        let mut conn = source.conn().await;
        for sql in load() {
            conn.query_drop(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        daemon.commanded(&["resume"]);
        daemon.wait_drained(&source, &target, DRAIN).await;
        let peak = peak_memory(daemon.pid().expect("running")).expect("running");
        let held = daemon.status()["channels"][0]["event_memory"]["peak_bytes"].as_u64();
        println!("{executor}: peak RSS {} MiB, held {:?} MiB", peak / MIB, held.map(|h| h / MIB));
        assert!(peak <= LIMIT + APART, "{executor}: peak RSS {} MiB", peak / MIB);
        assert!(daemon.terminate().success());
        compare(&source, &target).await;
    }
}

/// A start compares a transaction of the relay store with the archived one, which needs its header only.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_transaction_is_compared_with_the_archived_one_in_little_memory() {
    let (source, target) =
        Server::pair(&[], &["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"]);
    let archive = tempfile::tempdir().expect("a directory");
    source.exec("CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY, v LONGTEXT)").await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.event_memory_limit", "64MiB")
        .set("relay.segment_size", "1MiB")
        .set("archive.url", format!("file://{}", archive.path().display()))
        .set("archive.interval", "1s")
        .set("daemon.log_filter", "info,csa_daemon::archive=debug")
        .start();
    // It fills a segment, so that the large transaction begins the next one, which stays as the last.
    source.exec("INSERT INTO m.t VALUES (0, REPEAT('x', 2000000))").await;
    source
        .exec(
            "INSERT INTO m.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<200) \
             SELECT i, REPEAT('y', 1000000) FROM n",
        )
        .await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    archived(&daemon, &source).await;
    assert!(daemon.terminate().success());
    daemon.start_again();
    let executed = source.gtid_executed().await;
    let (uuid, large) = executed.rsplit_once(":1-").expect("one interval");
    let large = format!("{uuid}:{large}");
    eventually("the large transaction is compared", DRAIN, async || {
        let log = daemon.log();
        let compared = |line: &str| line.contains("compared with the archived transaction");
        log.lines().any(|line| compared(line) && line.contains(&large))
    })
    .await;
    archived(&daemon, &source).await;
    let peak = peak_memory(daemon.pid().expect("running")).expect("running");
    println!("peak RSS {} MiB", peak / MIB);
    assert!(peak <= LIMIT + APART, "peak RSS {} MiB", peak / MIB);
    compare(&source, &target).await;
}

fn load() -> Vec<String> {
    let mut load = vec![
        "SET cte_max_recursion_depth=1000000".to_owned(),
        "DELETE FROM m.large".to_owned(),
        "DELETE FROM m.small".to_owned(),
    ];
    for number in 0..80 {
        load.push(format!(
            "INSERT INTO m.large WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<10) \
             SELECT {number}*10+i, REPEAT(CHAR(65+i), 100000) FROM n"
        ));
    }
    for _ in 0..3 {
        load.push(
            "INSERT INTO m.small (v) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n \
             WHERE i<100000) SELECT i FROM n"
                .to_owned(),
        );
    }
    load
}
