//! Verify of tables without a key: each look reads all of their rows.

use std::process::{Command, Stdio};

use super::rounds::{builder, reaches, servers};
use super::*;

/// The server keeps the first number of rows that it was asked for, for a day.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_row_of_a_table_that_seemed_empty_is_named() {
    const ROWS: u32 = 30_000;
    let (source, target) = Server::pair(&[], &[]);
    let estimate =
        "SELECT COALESCE(TABLE_ROWS, 0) FROM information_schema.TABLES WHERE TABLE_NAME = 'bag'";
    source
        .exec(&format!(
            "CREATE DATABASE d; CREATE TABLE d.bag (a INT, s VARCHAR(64)) STATS_PERSISTENT=1 STATS_AUTO_RECALC=0; \
             {estimate}; SET SESSION cte_max_recursion_depth = 1000000; \
             INSERT INTO d.bag WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) \
             SELECT i, SHA2(i, 224) FROM n; \
             INSERT INTO d.bag SELECT 7, 'equal' FROM d.bag LIMIT 9000"
        ))
        .await;
    assert_eq!(source.value::<u64>(estimate).await, 0);
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let equal = verify(&daemon, &[]);
    assert_eq!(equal.assert_code(0).table("d.bag")["rows"], ROWS + 9000);

    target.exec("DELETE FROM d.bag WHERE a = 777").await;
    let one = verify(&daemon, &[]);
    let missing = BTreeSet::from(["d.bag count 1:0".to_owned()]);
    assert_eq!(one.assert_code(1).differences(), missing);
    assert_eq!(one.table("d.bag")["definition"], json!([]));
    target.exec("DELETE FROM d.bag WHERE s = 'equal' LIMIT 3").await;
    let two = BTreeSet::from(["d.bag count 1:0", "d.bag count 9000:8997"].map(str::to_owned));
    assert_eq!(verify(&daemon, &[]).assert_code(1).differences(), two);

    // Of all rows that differ, as many are named as asked for.
    target.exec("UPDATE d.bag SET s = CONCAT(s, 'x') WHERE a > 100").await;
    let few = verify(&daemon, &["--max-differences", "5"]);
    let bag = few.assert_code(1).table("d.bag");
    assert_eq!(bag["differences"].as_array().map(Vec::len), Some(5));
    assert_eq!(bag["definition"], json!([]));
}

/// Adds a table without a key whose rows take the servers minutes to read.
async fn slow_table(source: &Server) {
    source
        .exec(
            "CREATE TABLE d.a (s CHAR(60)); SET SESSION cte_max_recursion_depth = 100000; \
             INSERT INTO d.a WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) \
             SELECT RPAD(i, 60, 'x') FROM n; \
             ALTER TABLE d.a ADD v CHAR(64) AS (SHA2(REPEAT(s, 20000), 256)) VIRTUAL",
        )
        .await;
}

/// Returns true if a comparison has read a table without a key for so many seconds.
async fn is_read(server: &Server, seconds: u32) -> bool {
    let reading = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
         WHERE INFO LIKE 'SELECT CONCAT(COUNT(*)%' AND TIME >= {seconds}"
    );
    server.value::<u64>(&reading).await > 0
}

async fn is_read_on_both(source: &Server, target: &Server) -> bool {
    is_read(source, 2).await && is_read(target, 2).await
}

async fn is_left(source: &Server, target: &Server) -> bool {
    !is_read(source, 0).await && !is_read(target, 0).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn an_interrupted_comparison_leaves_no_query_and_lets_other_tables_pass() {
    let (source, target) = servers(1_000).await;
    slow_table(&source).await;
    let daemon = builder(&source, &target, "24h", 0).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("both are read", DRAIN, async || is_read_on_both(&source, &target).await).await;
    daemon.commanded(&["pause"]);
    reaches(&daemon, "it is held", |verify| verify["state"] == "held").await;
    let soon = Duration::from_secs(10);
    eventually("nothing is left", soon, async || is_left(&source, &target).await).await;

    daemon.commanded(&["resume"]);
    let file = daemon.state_dir().join("test/verify-rounds.json");
    eventually("the other table is compared", DRAIN, async || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let kept: Value = serde_json::from_str(&text).unwrap_or_default();
        let finished = kept["round"]["saved"]["finished"].as_array();
        finished.is_some_and(|tables| tables.iter().any(|one| one["report"]["table"] == "d.t"))
    })
    .await;
    for _ in 0..2 {
        eventually("both are read", DRAIN, async || is_read_on_both(&source, &target).await).await;
        daemon.commanded(&["pause"]);
        reaches(&daemon, "it is held", |verify| verify["state"] == "held").await;
        daemon.commanded(&["resume"]);
    }
    // Interrupted three times, the table does not keep the round from its end.
    let last = reaches(&daemon, "a result", |verify| !verify["last"].is_null()).await;
    assert_eq!(last["last"]["outcome"], "unstable", "{last:#}");
    let log = daemon.log();
    let said = "d.a is not compared in full: interrupted 3 times before it was compared";
    assert!(log.contains(said), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_ends_the_queries_of_its_comparison() {
    let (source, target) = servers(10).await;
    slow_table(&source).await;
    let daemon = builder(&source, &target, "24h", 0).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("both are read", DRAIN, async || is_read_on_both(&source, &target).await).await;
    let ended = tokio::task::block_in_place(|| daemon.terminate());
    assert!(ended.success(), "{ended}");
    let soon = Duration::from_secs(2);
    eventually("nothing is left", soon, async || is_left(&source, &target).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_interrupted_ends_its_queries() {
    let (source, target) = servers(10).await;
    slow_table(&source).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let mut run = Command::new(Daemon::executable());
    run.arg("--config").arg(daemon.config_path()).arg("verify");
    let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    // At once: a query that has just begun is ended, too.
    eventually("both are read", DRAIN, async || {
        is_read(&source, 0).await && is_read(&target, 0).await
    })
    .await;
    let killed = Command::new("kill").args(["-INT", &run.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    let said = tokio::task::block_in_place(|| run.wait_with_output()).expect("ends");
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(130), "{error}");
    assert!(error.contains("interrupted before it had compared anything"), "{error}");
    let soon = Duration::from_secs(5);
    eventually("nothing is left", soon, async || is_left(&source, &target).await).await;
}
