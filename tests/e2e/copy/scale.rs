//! Copies of tables that are large in one way or another.

use std::time::{Duration, Instant};

use csa_tests::{Daemon, Proxy, Server, compare, eventually, peak_memory};

use super::{copied, start_copying};
use crate::{DRAIN, wait_state};

/// Fills a table, which takes no room in the binary log.
async fn filled(source: &Server, statements: &[&str]) {
    use mysql_async::prelude::Queryable as _;
    let mut conn = source.conn().await;
    for statement in ["SET sql_log_bin=0", "SET cte_max_recursion_depth=1000000"] {
        conn.query_drop(statement).await.expect("a setting");
    }
    for statement in statements {
        conn.query_drop(*statement).await.expect("a statement");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_table_without_a_key_is_read_once() {
    const ROWS: u64 = 200_000;
    let (source, target) = Server::pair(&[], &[]);
    let rows = format!(
        "INSERT INTO d.keyless WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<{ROWS}) \
         SELECT i % 1000, REPEAT('x', i % 90) FROM n"
    );
    filled(
        &source,
        &["CREATE DATABASE d", "CREATE TABLE d.keyless (a INT, b VARCHAR(100))", &rows],
    )
    .await;
    let daemon = Daemon::builder(&source, &target).set("copy.lanes", 3).build();
    assert!(copied(&daemon).contains(&format!("{ROWS} rows")));
    let reads = "FROM performance_schema.events_statements_summary_by_digest \
                 WHERE DIGEST_TEXT LIKE '%`keyless` USE INDEX%'";
    let queries: u64 = source.value(&format!("SELECT SUM(COUNT_STAR) {reads}")).await;
    let examined: u64 = source.value(&format!("SELECT SUM(SUM_ROWS_EXAMINED) {reads}")).await;
    assert_eq!((queries, examined), (1, ROWS));
    compare(&source, &target).await;
}

/// A chunk grows while rows are small, and would then hold more than one answer may have.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn rows_that_are_suddenly_large_are_read_in_parts() {
    const BYTES_MAX: u64 = 200 << 20;
    let (source, target) = Server::pair(&[], &[]);
    let rows = |from: u32, to: u32, length: u32| {
        format!(
            "INSERT INTO d.t WITH RECURSIVE n AS (SELECT {from} AS i UNION ALL SELECT i+1 FROM n WHERE i<{to}) \
             SELECT i, REPEAT(CHAR(97 + i % 26), {length}) FROM n"
        )
    };
    let table = "CREATE TABLE d.t (id INT PRIMARY KEY, body LONGTEXT)";
    let (small, large) = (rows(1, 5_000, 10), rows(5_001, 5_300, 1 << 20));
    filled(&source, &["CREATE DATABASE d", table, &small, &large]).await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    let mut copying = start_copying(&daemon, &["--no-verify"]);
    let mut peak = 0;
    eventually("the copy ends", DRAIN, async || {
        peak = peak_memory(copying.id()).unwrap_or(peak);
        copying.try_wait().expect("a child").is_some()
    })
    .await;
    assert!((1..BYTES_MAX).contains(&peak), "{} MiB", peak >> 20);
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    compare(&source, &target).await;
}

/// The target ends a session that is silent for too long, and with it the copy.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_keeps_its_channel_while_it_reads_many_definitions() {
    /// Divides the time after which that happens, and the one between two signs of life.
    const HASTE: &str = "24";
    const LONGER_THAN_A_SESSION_LIVES: Duration = Duration::from_secs(120 / 24 * 2);
    let (source, target) = Server::pair(&[], &[]);
    let tables: Vec<String> = (0..15)
        .flat_map(|n| {
            [
                format!("CREATE TABLE d.t{n} (id INT PRIMARY KEY, v INT)"),
                format!("INSERT INTO d.t{n} VALUES ({n}, 1)"),
            ]
        })
        .collect();
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    filled(&source, &[&["CREATE DATABASE d"], &tables[..]].concat()).await;
    let proxy = Proxy::to(source.port);
    proxy.set_latency(Duration::from_millis(50));
    let daemon = Daemon::builder(&source, &target)
        .set("source.port", i64::from(proxy.port))
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("applier.start_from", "copy")
        .env("CSA_TEST_HASTE", HASTE)
        .build();
    let begun = Instant::now();
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    assert!(begun.elapsed() > LONGER_THAN_A_SESSION_LIVES, "{:?}", begun.elapsed());
    compare(&source, &target).await;
}

/// An exporter has asked for the sizes of tables while they were empty, and the source keeps its answers for a day.
#[tokio::test(flavor = "multi_thread")]
async fn sizes_are_those_of_today() {
    let (source, target) = Server::pair(&[], &[]);
    let rows = "INSERT INTO d.t WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<20000) \
                SELECT i, REPEAT('x', 200) FROM n";
    let table = "CREATE TABLE d.t (id INT PRIMARY KEY, body VARCHAR(200))";
    let sizes =
        "SELECT TABLE_ROWS, DATA_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA='d'";
    filled(&source, &["CREATE DATABASE d", table, sizes, rows]).await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "1MiB").build();
    // The source counts rows in the background, and the statistics of InnoDB are up to 10 s late.
    eventually("the plan has the rows", DRAIN, async || {
        let arguments = super::arguments(&daemon);
        let mut planned: Vec<&str> = arguments.iter().map(String::as_str).collect();
        planned.push("--plan");
        let said = tokio::task::block_in_place(|| daemon.commanded(&planned));
        said.lines().any(|line| line.starts_with("d.t: ") && line.contains("in chunks"))
    })
    .await;
}
