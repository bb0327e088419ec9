//! Short transactions that are sent together and have commits of their own, each under its source's GTID.

use std::time::Duration;

use csa_tests::{Daemon, DaemonBuilder, Server, compare, eventually};
use mysql_async::prelude::Queryable as _;

use crate::durations::Scrape;
use crate::gtids::{logged_gtids, same_gtids};
use crate::{DRAIN, wait_state};

pub(crate) fn one_to_one(source: &Server, target: &Server) -> DaemonBuilder {
    Daemon::builder(source, target)
        .set("applier.commit", "one-to-one")
        .set("applier.target_gtids", "source")
        .set("target.connect_retry", "100ms")
}

/// Returns `w.t` on both, and on the source one transaction for each of these ids, which the daemon has not
/// received.
async fn with_backlog(
    builder: DaemonBuilder,
    source: &Server,
    target: &Server,
    ids: u32,
) -> Daemon {
    source.exec("CREATE DATABASE w; CREATE TABLE w.t (id INT PRIMARY KEY, v TEXT)").await;
    let daemon = builder.start();
    daemon.wait_drained(source, target, DRAIN).await;
    daemon.terminate();
    source.exec("SET GLOBAL sync_binlog=0; SET GLOBAL innodb_flush_log_at_trx_commit=0").await;
    let inserts =
        (1..=ids).map(|id| format!("INSERT INTO w.t VALUES ({id}, REPEAT('v', {id} % 2000));"));
    source.exec(&inserts.collect::<String>()).await;
    daemon
}

/// Waits until everything has arrived, in the source's order where that is kept, and in fewer groups than
/// transactions.
async fn wait_all(daemon: &Daemon, source: &Server, target: &Server, in_order: bool) {
    daemon.wait_drained(source, target, DRAIN).await;
    let scrape = Scrape::of(daemon);
    let groups = scrape.count("applier_commit");
    let transactions = scrape.value("csa_applier_groups_total");
    assert_eq!(transactions, scrape.value("csa_applier_transactions_total"));
    assert!(groups * 2.0 < transactions, "{groups} groups of {transactions}");
    compare(source, target).await;
    same_gtids(source, target).await;
    if in_order {
        assert_eq!(logged_gtids(target).await, logged_gtids(source).await);
    }
}

/// Everything before it is committed and nothing after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_ends_at_the_transaction_that_fails() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = with_backlog(one_to_one(&source, &target), &source, &target, 300).await;
    target.exec("SET sql_log_bin=0; INSERT INTO w.t VALUES (250, 'own')").await;
    daemon.start_again();
    wait_state(&daemon, 0, "failed").await;
    let detail = daemon.status()["channels"][0]["state_detail"].to_string();
    let logged = logged_gtids(&source).await;
    // The GTIDs of the inserts are the last.
    let failing = logged[logged.len() - 51].split('\'').nth(1).expect("a GTID");
    assert!(detail.contains(failing), "{failing}: {detail}");
    let rows = "SELECT GROUP_CONCAT(id) FROM w.t WHERE id >= 248";
    assert_eq!(target.value::<String>(rows).await, "248,249,250");
    assert_eq!(logged_gtids(&target).await[..], logged[..logged.len() - 51]);
    target.exec("SET sql_log_bin=0; DELETE FROM w.t WHERE id=250").await;
    daemon.terminate();
    daemon.start_again();
    wait_all(&daemon, &source, &target, true).await;
}

/// Transactions that are committed are passed over when the series is sent again.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_series_that_waited_too_long_for_a_lock_is_sent_again() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = with_backlog(one_to_one(&source, &target), &source, &target, 300).await;
    let mut other = target.conn().await;
    for statement in ["SET sql_log_bin=0", "BEGIN", "INSERT INTO w.t VALUES (250, 'own')"] {
        other.query_drop(statement).await.expect("executed");
    }
    daemon.start_again();
    // Our sessions wait for 10 s.
    eventually("it is sent again", DRAIN, async || {
        Scrape::of(&daemon).value("csa_applier_retries_total") > 0.0
    })
    .await;
    assert_eq!(target.value::<u32>("SELECT MAX(id) FROM w.t").await, 249);
    other.query_drop("ROLLBACK").await.expect("rolls back");
    wait_all(&daemon, &source, &target, true).await;
}

/// As many packets as the target's limit asks for.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_fits_the_targets_packets() {
    let (source, target) = Server::pair(&[], &["--max-allowed-packet=65536"]);
    let daemon = with_backlog(one_to_one(&source, &target), &source, &target, 3_000).await;
    daemon.start_again();
    wait_all(&daemon, &source, &target, true).await;
}

/// Sessions are killed in the middle of a series, in order and out of it, and the server too.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn no_transaction_of_a_series_is_lost_or_repeated_whoever_is_killed() {
    const ROWS: u32 = 8_000;
    for in_order in [true, false] {
        let (source, target) = Server::pair(&[], &[]);
        let builder = one_to_one(&source, &target).set("applier.preserve_commit_order", in_order);
        let daemon = with_backlog(builder, &source, &target, ROWS).await;
        daemon.start_again();
        let mut killed = 0;
        let mut conn = target.conn().await;
        while killed < 15 {
            let count = "SELECT COUNT(*) FROM w.t";
            if conn.query_first(count).await.expect("rows") == Some(ROWS) {
                break;
            }
            let found: Option<u64> = conn
                .query_first(
                    "SELECT ID FROM performance_schema.processlist \
                     WHERE USER='csa' AND INFO LIKE 'BINLOG%' ORDER BY RAND()",
                )
                .await
                .expect("sessions");
            if let Some(id) = found {
                // It may be gone already.
                killed += u32::from(conn.query_drop(format!("KILL {id}")).await.is_ok());
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        }
        assert!(killed >= 3, "{killed} killed\n{}", daemon.log_tail());
        target.kill9();
        target.restart();
        wait_all(&daemon, &source, &target, in_order).await;
    }
}
