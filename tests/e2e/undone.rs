//! Transactions that change nothing on the target, because they undo what they do or because the target has their
//! values: under the source's GTIDs each leaves its GTID there, before anything after it is executed.

use std::time::Duration;

use csa_tests::{Daemon, Server, compare, eventually};
use mysql_async::prelude::Queryable as _;

use crate::DRAIN;
use crate::gtids::{logged_gtids, same_gtids};
use crate::series::one_to_one;

/// The orders in which transactions of their own are committed: `preserve_commit_order`.
const ORDERS: [bool; 2] = [true, false];

/// Returns a transaction that sets the row's value and sets it back.
fn undone(table: &str, id: u32) -> String {
    let set = |value| format!("UPDATE {table} SET v={value} WHERE id={id};");
    format!("BEGIN;{}{}COMMIT;", set("v+1000"), set("v-1000"))
}

fn changed(table: &str, id: u32) -> String {
    format!("UPDATE {table} SET v=v+10 WHERE id={id};")
}

/// Tables whose rows are sent with all columns unless `row_image` says otherwise, with ten rows each.
async fn create(source: &Server) {
    for (table, more) in [("p", ""), ("c", ", CHECK (v > 0)"), ("g", ", w INT AS (v + 1) STORED")] {
        source.exec(&format!("CREATE DATABASE IF NOT EXISTS w; CREATE TABLE w.{table} (id INT PRIMARY KEY, v INT{more})")).await;
        let rows: Vec<String> = (0..10).map(|id| format!("({id}, 1)")).collect();
        source.exec(&format!("INSERT INTO w.{table} (id, v) VALUES {}", rows.join(","))).await;
    }
}

/// Returns a channel that sends all columns, with the tables of [`create`] on both sides.
async fn with_full_images(in_order: bool) -> (Server, Server, Daemon) {
    let (source, target) = Server::pair(&[], &[]);
    create(&source).await;
    let daemon = one_to_one(&source, &target)
        .set("applier.preserve_commit_order", in_order)
        .set("applier.row_image", "full")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    (source, target, daemon)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_transaction_that_changes_nothing_leaves_its_gtid_on_an_idle_channel() {
    for in_order in ORDERS {
        let (source, target) = Server::pair(&[], &[]);
        create(&source).await;
        let daemon =
            one_to_one(&source, &target).set("applier.preserve_commit_order", in_order).start();
        daemon.wait_drained(&source, &target, DRAIN).await;
        target.exec("SET sql_log_bin=0; UPDATE w.p SET v=7 WHERE id=7").await;
        for (table, id) in [("w.p", 1), ("w.c", 2), ("w.g", 3)] {
            source.exec(&undone(table, id)).await;
            daemon.wait_drained(&source, &target, DRAIN).await;
            source.exec(&changed(table, id)).await;
        }
        source.exec("UPDATE w.p SET v=7 WHERE id=7").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        same_gtids(&source, &target).await;
        compare(&source, &target).await;
        assert_eq!(daemon.status()["channels"][0]["state"], "running", "in order: {in_order}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn transactions_of_a_backlog_that_change_nothing_leave_their_gtids() {
    for in_order in ORDERS {
        let (source, target) = Server::pair(&[], &[]);
        drain(&source, &target, in_order).await;
        // The target's own binary log has them too, so that its replicas have all GTIDs.
        if in_order {
            assert_eq!(logged_gtids(&target).await, logged_gtids(&source).await);
        }
    }
}

/// Without a binary log the server uses such a GTID.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn other_targets_get_the_gtids_of_transactions_that_change_nothing_too() {
    let without_log = ["--skip-log-bin", "--log-replica-updates=OFF"];
    let (source, target) = Server::pair(&[], &without_log);
    drain(&source, &target, ORDERS[0]).await;
    let start = |name| Server::start_version(name, "8.0.31", &[]);
    let (source, target) = Server::both(|| start("source"), || start("target"));
    drain(&source, &target, ORDERS[0]).await;
}

async fn drain(source: &Server, target: &Server, in_order: bool) {
    create(source).await;
    let daemon = one_to_one(source, target).set("applier.preserve_commit_order", in_order).start();
    daemon.wait_drained(source, target, DRAIN).await;
    daemon.terminate();
    target.exec("SET sql_log_bin=0; UPDATE w.p SET v=7 WHERE id=7").await;
    for round in 0..30 {
        let id = round % 5;
        let all = ["w.p", "w.p", "w.c", "w.g"]
            .map(|table| undone(table, id) + &changed(table, id) + &changed(table, id));
        source.exec(&all.concat()).await;
    }
    // The last, so that nothing after it shows that it is missing.
    source.exec("UPDATE w.p SET v=7 WHERE id=7").await;
    daemon.start_again();
    daemon.wait_drained(source, target, DRAIN).await;
    same_gtids(source, target).await;
    compare(source, target).await;
    // A crash between two attempts would leave a GTID executed and not logged, so there is a second one only for the
    // last transaction. Only the target shows that it changes nothing.
    let unused: u64 = target
        .value(
            "SELECT SUM_ERROR_RAISED FROM performance_schema.events_errors_summary_global_by_error \
             WHERE ERROR_NUMBER=1790",
        )
        .await;
    assert!(unused <= 1, "{unused} transactions left their GTIDs unused at first");
}

/// The row for readers states what was executed up to a second before, so at this moment only the target's
/// `gtid_executed` shows the transaction that was undone.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_undone_is_not_applied_again_after_later_ones() {
    for in_order in ORDERS {
        let (source, target, daemon) = with_full_images(in_order).await;
        for id in 0..5 {
            for table in ["w.p", "w.c", "w.g"] {
                source.exec(&undone(table, id)).await;
            }
            for table in ["w.p", "w.c", "w.g"] {
                source.exec(&changed(table, id)).await;
            }
            let there = format!(
                "SELECT (SELECT v FROM w.p WHERE id={id}) + (SELECT v FROM w.c WHERE id={id}) + \
                 (SELECT v FROM w.g WHERE id={id})"
            );
            eventually("it is applied", DRAIN, async || target.value::<u32>(&there).await == 33)
                .await;
            daemon.kill9();
            daemon.start_again();
            daemon.wait_drained(&source, &target, DRAIN).await;
            compare(&source, &target).await;
            same_gtids(&source, &target).await;
        }
    }
}

/// Kills the daemon, its sessions and the target, one after another, in the middle of a backlog of which every
/// second transaction changes nothing.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn no_undone_change_is_lost_or_repeated_whoever_is_killed() {
    const ROUNDS: u32 = 600;
    for in_order in ORDERS {
        let (source, target, daemon) = with_full_images(in_order).await;
        daemon.terminate();
        source.exec("SET GLOBAL sync_binlog=0; SET GLOBAL innodb_flush_log_at_trx_commit=0").await;
        for round in 0..ROUNDS {
            let id = round % 10;
            let all =
                ["w.p", "w.c", "w.p", "w.g"].map(|table| undone(table, id) + &changed(table, id));
            source.exec(&all.concat()).await;
        }
        daemon.start_again();
        let mut kills = 0;
        while kills < 12 && !target.gtid_executed().await.eq(&source.gtid_executed().await) {
            match kills % 3 {
                0 => daemon.kill9(),
                1 => kill_sessions(&target).await,
                _ => {
                    target.kill9();
                    target.restart();
                }
            }
            if kills % 3 == 0 {
                daemon.start_again();
            }
            kills += 1;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        assert!(kills > 3, "in order: {in_order}: {kills} kills");
        daemon.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
        same_gtids(&source, &target).await;
        if in_order {
            assert_eq!(logged_gtids(&target).await, logged_gtids(&source).await);
        }
    }
}

async fn kill_sessions(target: &Server) {
    let mut conn = target.conn().await;
    let ids = "SELECT ID FROM performance_schema.processlist WHERE USER='csa'";
    let ids: Vec<u64> = conn.query(ids).await.expect("sessions");
    for id in ids {
        // It may be gone already.
        let _ = conn.query_drop(format!("KILL {id}")).await;
    }
}
