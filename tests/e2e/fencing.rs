//! One daemon owns a channel.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};

use crate::{DRAIN, wait_state};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_on_the_channel_refuses_to_start() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = Daemon::builder(&source, &target).start();
    wait_state(&daemon, 0, "running").await;
    let said = Daemon::builder(&source, &target).run_expect_exit(2);
    assert!(said.contains("channel \"test\": another daemon holds it"), "{said}");
    assert_eq!(daemon.status()["channels"][0]["state"], "running");
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
    // What the stalled one receives now it would apply a second time.
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
