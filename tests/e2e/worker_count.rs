//! Changes of the number of workers at awkward moments.

use csa_tests::{Daemon, Server, compare, eventually};
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, wait_state};

fn workers_with_a_group(daemon: &Daemon) -> usize {
    let status = daemon.status();
    status["channels"][0]["applier"]["workers"].as_array().map_or(0, Vec::len)
}

/// Applies `statements`, one group each, with the first of them held up on the target until
/// `workers` run; `meanwhile` happens before it may proceed.
async fn with_the_first_held_up(
    (source, target, daemon): (&Server, &Server, &Daemon),
    statements: &[&str],
    workers: usize,
    meanwhile: impl FnOnce(),
) {
    daemon.commanded(&["pause"]);
    for statement in statements {
        source.exec(statement).await;
    }
    eventually("all of them are here", DRAIN, async || {
        daemon.status()["channels"][0]["backlog_transactions"] == statements.len()
    })
    .await;
    let mut blocker = target.conn().await;
    blocker.query_drop("BEGIN").await.expect("begins");
    let lock = "SELECT * FROM d.t WHERE id=1 FOR UPDATE";
    blocker.query_drop(lock).await.expect("locks");
    daemon.commanded(&["resume"]);
    eventually(&format!("{workers} workers"), DRAIN, async || {
        workers_with_a_group(daemon) == workers
    })
    .await;
    meanwhile();
    blocker.query_drop("ROLLBACK").await.expect("lets go");
    daemon.wait_drained(source, target, DRAIN).await;
    compare(source, target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_workers_rises_during_a_start_and_falls_under_conflicts() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("CREATE TABLE d.keyless (a INT)").await;
    source.exec("INSERT INTO d.t VALUES (1,0), (2,0), (3,0), (4,0), (5,0)").await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.commit", "one-to-one")
        .set("applier.worker_count", 2)
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let all = (&source, &target, &daemon);

    // The start creates the rows of two workers, four are requested, and only then the applier begins.
    daemon.commanded(&["stop"]);
    let mut blocker = target.conn().await;
    blocker.query_drop("BEGIN").await.expect("begins");
    let lock = "SELECT * FROM csa.checkpoint WHERE worker=1 FOR UPDATE";
    blocker.query_drop(lock).await.expect("locks");
    daemon.commanded(&["restart"]);
    let waits = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";
    eventually("the start waits", DRAIN, async || target.value::<u64>(waits).await > 0).await;
    daemon.commanded(&["set", "worker_count", "4"]);
    blocker.query_drop("ROLLBACK").await.expect("lets go");
    wait_state(&daemon, 0, "running").await;
    let independent = [1, 2, 3, 4].map(|id| format!("UPDATE d.t SET v=1 WHERE id={id}"));
    let independent = independent.each_ref().map(String::as_str);
    with_the_first_held_up(all, &independent, 4, || ()).await;

    // The third has to wait for the second, and has no worker yet; the last two only wait for their
    // turn, which comes after the third's.
    let conflicts = [
        "BEGIN; INSERT INTO d.keyless VALUES (1); UPDATE d.t SET v=2 WHERE id=1; COMMIT",
        "INSERT INTO d.keyless VALUES (2)",
        "INSERT INTO d.keyless VALUES (3)",
        "UPDATE d.t SET v=2 WHERE id=2",
        "UPDATE d.t SET v=2 WHERE id=3",
    ];
    with_the_first_held_up(all, &conflicts, 4, || {
        daemon.commanded(&["set", "worker_count", "1"]);
    })
    .await;
    let rows: u64 = target.value("SELECT COUNT(*) FROM csa.checkpoint").await;
    assert_eq!(rows, 4);
    assert!(daemon.terminate().success());
}
