//! A router between the daemon and its target: the numbers of connections in its greetings are not the server's.

use std::time::{Duration, Instant};

use csa_tests::{Daemon, Gate, Server, compare, eventually};
use mysql_async::prelude::Queryable as _;

use super::copied;
use crate::{DRAIN, wait_state};

/// Longer than a silent session is left alone, and than the next look at it takes.
const HELD: Duration = Duration::from_secs(25);
/// The time from a lock that is in the way to the state that says so.
const SHOWN: Duration = Duration::from_secs(20);

/// A definition waits for a session that reads the table, and its own session is not taken for lost.
async fn slow_statement_is_waited_for(daemon: &Daemon, source: &Server, target: &Server) {
    let mut reader = target.conn().await;
    for statement in ["BEGIN", "SELECT COUNT(*) FROM d.t"] {
        reader.query_drop(statement).await.expect("reads");
    }
    source.exec("ALTER TABLE d.t ADD COLUMN w INT; INSERT INTO d.t VALUES (501, 1, 1)").await;
    let begun = Instant::now();
    // Who holds the lock is found by the number of the session that waits.
    eventually("the wait names its holder", SHOWN, async || {
        let view = &daemon.status()["channels"][0];
        view["state"] == "waiting_for_lock"
            && view["applier"]["lock_wait"]["holders"][0]["connection"] == reader.id()
    })
    .await;
    tokio::time::sleep(HELD.saturating_sub(begun.elapsed())).await;
    let log = daemon.log();
    assert!(!log.contains("no longer executes anything for it"), "{}", daemon.log_tail());
    reader.query_drop("ROLLBACK").await.expect("releases");
    daemon.wait_drained(source, target, DRAIN).await;
    wait_state(daemon, 0, "running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_and_a_slow_statement_work_through_a_router() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source
        .exec(
            "INSERT INTO d.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) \
             SELECT i, i FROM n",
        )
        .await;
    let gate = Gate::router(target.port);
    let port = i64::from(gate.port);
    let daemon = Daemon::builder(&source, &target).set("target.port", port).build();
    let said = copied(&daemon);
    assert!(said.contains("all rows equal those of the source's snapshot"), "{said}");
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    slow_statement_is_waited_for(&daemon, &source, &target).await;
    compare(&source, &target).await;
}
