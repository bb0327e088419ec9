//! Starts on a target that lacks a transaction of the source and has later ones, under the source's GTIDs.

use csa_tests::{Daemon, Server, compare, eventually};

use crate::DRAIN;
use crate::gtids::same_gtids;
use crate::series::one_to_one;

/// `w.t` on both; the daemon has received three changes of its row and is gone, and the target has executed the
/// first and the last: `v=1`, `v=2`, `v=3`. Returns the GTID of the second.
async fn with_hole(daemon: &Daemon, source: &Server, target: &Server) -> String {
    daemon.commanded(&["pause"]);
    let uuid: String = source.value("SELECT @@server_uuid").await;
    let last = async || -> u64 {
        let executed = source.gtid_executed().await;
        executed.rsplit(['-', ':']).next().expect("a number").parse().expect("one")
    };
    let before = last().await;
    for v in 1..=3 {
        source.exec(&format!("UPDATE w.t SET v={v}")).await;
    }
    assert_eq!(last().await, before + 3);
    eventually("they are received", DRAIN, async || {
        daemon.status()["channels"][0]["backlog_transactions"] == 3
    })
    .await;
    // This has everything written to files.
    daemon.commanded(&["relay", "ls"]);
    daemon.kill9();
    for v in [1, 3] {
        let gtid = format!("{uuid}:{}", before + v);
        target.exec(&format!("SET gtid_next='{gtid}'; UPDATE w.t SET v={v}")).await;
    }
    format!("{uuid}:{}", before + 2)
}

async fn create(source: &Server) {
    source.exec("CREATE DATABASE w; CREATE TABLE w.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO w.t VALUES (1, 0)").await;
}

/// Returns the text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{before:?} in {text}"));
    rest.split_once(after).unwrap_or_else(|| panic!("{after:?} in {rest}")).0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_in_commit_order_does_not_fill_a_hole_unasked() {
    let (source, target) = Server::pair(&[], &[]);
    create(&source).await;
    let daemon = one_to_one(&source, &target).start();
    for is_there in [true, false] {
        daemon.wait_drained(&source, &target, DRAIN).await;
        let hole = with_hole(&daemon, &source, &target).await;
        let detail = daemon.run_expect_exit(2);
        assert!(detail.contains(&format!("lacks {hole} ")), "{detail}");
        assert_eq!(target.value::<u32>("SELECT v FROM w.t").await, 3);
        let fix = match is_there {
            true => between(&detail, "these changes, run there: ", ". If they"),
            false => between(&detail, "later ones, run there: ", ". Otherwise"),
        };
        target.exec(fix).await;
        daemon.start_again();
        daemon.wait_drained(&source, &target, DRAIN).await;
        same_gtids(&source, &target).await;
        // Applied after the later one, as the operator wanted it.
        let v = if is_there { 3 } else { 2 };
        assert_eq!(target.value::<u32>("SELECT v FROM w.t").await, v, "{}", daemon.log_tail());
    }
    source.exec("UPDATE w.t SET v=4").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.terminate().success());
    let log = daemon.log();
    assert!(!log.contains("applies them now"), "{log}");
}

/// Holes are what such a channel leaves when it is killed.
#[tokio::test(flavor = "multi_thread")]
async fn holes_of_a_channel_out_of_commit_order_are_filled_and_named() {
    let (source, target) = Server::pair(&[], &[]);
    create(&source).await;
    let daemon = one_to_one(&source, &target).set("applier.preserve_commit_order", false).start();
    // Also by a start that commits in order from now on.
    for in_order in [false, true] {
        daemon.wait_drained(&source, &target, DRAIN).await;
        let hole = with_hole(&daemon, &source, &target).await;
        daemon.set("applier.preserve_commit_order", in_order);
        daemon.start_again();
        daemon.wait_drained(&source, &target, DRAIN).await;
        same_gtids(&source, &target).await;
        let log = daemon.log();
        assert!(log.contains(&format!("lacks {hole} and has executed later")), "{log}");
        // The rows are those of the transaction that came late.
        assert_eq!(target.value::<u32>("SELECT v FROM w.t").await, 2);
        source.exec("UPDATE w.t SET v=0").await;
    }
    // The change of the order is recorded: from here on a hole is refused.
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    daemon.terminate();
    daemon.start_again();
    let hole = with_hole(&daemon, &source, &target).await;
    let refused = daemon.run_expect_exit(2);
    assert!(refused.contains(&format!("lacks {hole} ")), "{refused}");
}

/// A replica that commits out of order had the target before, and was stopped in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_fills_holes_that_another_left_and_names_them() {
    let (source, target) = Server::pair(&[], &[]);
    create(&source).await;
    let daemon = one_to_one(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let hole = with_hole(&daemon, &source, &target).await;
    target.exec("SET sql_log_bin=0; DROP DATABASE csa").await;
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    same_gtids(&source, &target).await;
    let log = daemon.log();
    assert!(log.contains(&format!("lacks {hole} and has executed later")), "{log}");
}
