//! One daemon owns a channel.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, wait_state};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_on_the_channel_waits_until_the_first_gives_it_up() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).start();
    wait_state(&daemon, 0, "running").await;
    let epoch = async || target.value::<u64>("SELECT MAX(epoch) FROM csa.checkpoint").await;
    let before = epoch().await;
    let holder: u64 = target.value("SELECT IS_USED_LOCK('csa:test')").await;
    let second = Daemon::builder(&source, &target).set("target.connect_retry", "100ms").start();
    wait_state(&second, 0, "waiting_for_target").await;
    let waits_for = format!("connection {holder} there");
    eventually("it says for whom it waits", Duration::from_secs(30), async || {
        let detail = second.status()["channels"][0]["state_detail"].to_string();
        detail.contains("another daemon holds it") && detail.contains(&waits_for)
    })
    .await;
    Load::run(&source, &options, Duration::from_secs(4)).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(daemon.status()["channels"][0]["state"], "running");
    assert_eq!(second.status()["channels"][0]["state"], "waiting_for_target");
    assert_eq!(epoch().await, before, "the second took nothing");
    daemon.terminate();
    wait_state(&second, 0, "running").await;
    Load::run(&source, &options, Duration::from_secs(1)).await;
    second.wait_drained(&source, &target, DRAIN).await;
    assert!(epoch().await > before);
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_daemon_whose_lock_was_lost_cannot_commit() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let stalled = Daemon::builder(&source, &target).start();
    stalled.wait_drained(&source, &target, DRAIN).await;
    stalled.signal("STOP");
    let holder: u64 = target.value("SELECT IS_USED_LOCK('csa:test')").await;
    target.exec(&format!("KILL {holder}")).await;
    Load::run(&source, &options, Duration::from_secs(1)).await;
    let second = Daemon::builder(&source, &target).start();
    second.wait_drained(&source, &target, DRAIN).await;
    // The stalled daemon would apply these transactions a second time.
    stalled.signal("CONT");
    eventually("the stalled daemon notices", Duration::from_secs(30), async || {
        stalled.try_status().is_some_and(|status| status["channels"][0]["state"] == "failed")
    })
    .await;
    let error = stalled.status()["channels"][0]["last_error"]["message"].to_string();
    assert!(error.contains("another daemon"), "{error}");
    Load::run(&source, &options, Duration::from_secs(1)).await;
    second.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// It vanished while a group was under way: the group's locks on the target remain.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_daemon_that_stalls_in_the_middle_of_a_group_is_replaced() {
    for (commit, gtids) in [("grouped", "own"), ("one-to-one", "source")] {
        // Its statement, which is a transaction under the source's GTID, ends before or after it is replaced.
        for is_early in [true, false] {
            stalls_in_the_middle(commit, gtids, is_early).await;
        }
    }
}

async fn stalls_in_the_middle(commit: &str, gtids: &str, is_early: bool) {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, n INT)").await;
    source.exec("INSERT INTO d.t VALUES (1,0),(2,0)").await;
    let daemon = || {
        let builder = Daemon::builder(&source, &target).set("applier.commit", commit);
        builder.set("applier.target_gtids", gtids).start()
    };
    let stalled = daemon();
    stalled.wait_drained(&source, &target, DRAIN).await;
    let mut blocker = target.conn().await;
    blocker.query_drop("BEGIN; UPDATE d.t SET n=n WHERE id=1").await.expect("locks the row");
    source.exec("UPDATE d.t SET n=n+1 WHERE id=1").await;
    // Not innodb_trx: its contents stay as they are while it is read more often than every 0.1 s.
    let groups = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";
    eventually("a group waits for the row", DRAIN, async || target.value::<u64>(groups).await == 1)
        .await;
    // The next group sends its COMMIT with its rows; one after it is left without, in a transaction.
    source.exec("UPDATE d.t SET n=n+1 WHERE id=2").await;
    eventually("a later group waits for its turn", DRAIN, async || {
        stalled.status().to_string().contains("waiting_for_turn")
    })
    .await;
    stalled.signal("STOP");
    let holder: u64 = target.value("SELECT IS_USED_LOCK('csa:test')").await;
    target.exec(&format!("KILL {holder}")).await;
    if is_early {
        blocker.query_drop("ROLLBACK").await.expect("unlocks the row");
    }
    let second = daemon();
    let left = ["ending a session that was left behind", "ending the worker's earlier session"];
    eventually("it ends what the first left behind", DRAIN, async || {
        left.iter().any(|&left| second.log().contains(left))
    })
    .await;
    blocker.query_drop("ROLLBACK").await.expect("unlocks the row");
    wait_state(&second, 0, "running").await;
    source.exec("UPDATE d.t SET n=n+2 WHERE id=2").await;
    second.wait_drained(&source, &target, DRAIN).await;
    stalled.signal("CONT");
    eventually("the stalled daemon notices", DRAIN, async || {
        stalled.try_status().is_some_and(|status| status["channels"][0]["state"] == "failed")
    })
    .await;
    compare(&source, &target).await;
}

/// An idle channel sends BEGIN, rows and COMMIT in one packet, before it knows whether the row matched.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_in_one_packet_is_refused_where_the_channel_was_taken_over() {
    for takeover in ["UPDATE csa.checkpoint SET epoch=epoch+1", "DELETE FROM csa.checkpoint"] {
        let (source, target) = Server::pair(&[], &[]);
        source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
        source.exec("INSERT INTO d.t VALUES (1)").await;
        let daemon = Daemon::builder(&source, &target).start();
        daemon.wait_drained(&source, &target, DRAIN).await;
        target.exec(takeover).await;
        source.exec("INSERT INTO d.t VALUES (2)").await;
        wait_state(&daemon, 0, "failed").await;
        let error = daemon.status()["channels"][0]["last_error"]["message"].to_string();
        assert!(error.contains("another daemon"), "{takeover}: {error}");
        assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM d.t").await, 1, "{takeover}");
    }
}

/// A copy of a whole host has its identity. The server sees it under another address: here that of a socket.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_the_state_directory_on_another_host_waits_for_the_original() {
    for standby in [false, true] {
        let (source, target) = Server::pair(&[], &["--skip-name-resolve"]);
        source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
        let builder = || {
            Daemon::builder(&source, &target)
                .set("standby", standby)
                .set("target.connect_retry", "100ms")
                .set("target.connect_retry_max", "1s")
        };
        let original = builder().start();
        original.wait_drained(&source, &target, DRAIN).await;
        let socket = target.socket.display().to_string();
        let copy = builder().set("target.socket", socket).start();
        let waits = if standby { "standby" } else { "waiting_for_target" };
        wait_state(&copy, 0, waits).await;
        copy.terminate();
        let uuid = |daemon: &Daemon| daemon.state_dir().join("test/replica_uuid");
        std::fs::copy(uuid(&original), uuid(&copy)).expect("copied");
        let epoch = async || target.value::<u64>("SELECT MAX(epoch) FROM csa.checkpoint").await;
        let before = epoch().await;
        copy.start_again();
        wait_state(&copy, 0, waits).await;
        eventually("it says who holds the channel", DRAIN, async || {
            let detail = copy.status()["channels"][0]["state_detail"].to_string();
            detail.contains("the same identity (a copy of this state directory)")
        })
        .await;
        source.exec("INSERT INTO d.t VALUES (1)").await;
        original.wait_drained(&source, &target, DRAIN).await;
        assert_eq!(original.status()["channels"][0]["state"], "running", "{standby}");
        assert_eq!(epoch().await, before, "the copy took nothing");
        original.terminate();
        wait_state(&copy, 0, "running").await;
        source.exec("INSERT INTO d.t VALUES (2)").await;
        copy.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
    }
}
