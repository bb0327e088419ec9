//! Whichever process dies: nothing is lost, nothing is applied twice.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::DRAIN;

fn options() -> LoadOptions {
    LoadOptions {
        clients: 4,
        changes: 3,
        transfers_percent: 50,
        rate: Some(600.0),
        ..LoadOptions::default()
    }
}

/// Waits until the daemon has something to lose.
pub(crate) async fn mid_drain(daemon: &Daemon) -> bool {
    let before = std::time::Instant::now();
    while before.elapsed() < Duration::from_secs(10) {
        let view = daemon.try_status().unwrap_or_default();
        let view = &view["channels"][0];
        if view["backlog_transactions"].as_u64().is_some_and(|backlog| backlog > 0)
            && view["applied_transactions_total"].as_u64().is_some_and(|applied| applied > 0)
        {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_daemon_killed_twenty_times_in_the_middle_of_a_drain() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &options()).await;
    let load = Load::start(&source, &options());
    let daemon = Daemon::builder(&source, &target).start();
    let mut random = StdRng::seed_from_u64(20);
    for kill in 0..20 {
        assert!(
            mid_drain(&daemon).await,
            "kill {kill} would not hit a drain\n{}",
            daemon.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
        daemon.kill9();
        // DDL is exactly once by another mechanism than rows.
        source.exec(&format!("CREATE TABLE sbtest.made_{kill} (id INT PRIMARY KEY)")).await;
        source.exec(&format!("ALTER TABLE sbtest.sbtest1 ADD COLUMN added_{kill} INT")).await;
        source
            .exec(&format!(
                "CREATE TABLE sbtest.copied_{kill} (PRIMARY KEY (id)) SELECT * FROM sbtest.sbtest2"
            ))
            .await;
        daemon.start_again();
    }
    let report = load.stop().await;
    assert_eq!(report.errors, 0, "{report:?}");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let counted: u64 = target.value("SELECT CAST(SUM(n) AS UNSIGNED) FROM sbtest.counter").await;
    assert_eq!(counted, report.committed);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_target_killed_in_the_middle_of_a_drain() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &options()).await;
    let load = Load::start(&source, &options());
    let daemon = Daemon::builder(&source, &target).set("target.connect_retry", "100ms").start();
    for kill in 0..4 {
        assert!(mid_drain(&daemon).await, "kill {kill}\n{}", daemon.log_tail());
        target.kill9();
        eventually("the loss is noticed", Duration::from_secs(20), async || {
            daemon.status()["channels"][0]["state"] == "waiting_for_target"
        })
        .await;
        target.restart();
        let applied = daemon.status()["channels"][0]["applied_transactions_total"].as_u64();
        eventually("it resumes on its own", Duration::from_secs(30), async || {
            daemon.status()["channels"][0]["applied_transactions_total"].as_u64() > applied
        })
        .await;
    }
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_killed_under_load() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &options()).await;
    let daemon = Daemon::builder(&source, &target).start();
    for kill in 0..4 {
        let load = Load::start(&source, &options());
        assert!(mid_drain(&daemon).await, "kill {kill}\n{}", daemon.log_tail());
        source.kill9();
        eventually("the loss is noticed", Duration::from_secs(20), async || {
            daemon.status()["channels"][0]["connection"]["service_state"] == "CONNECTING"
        })
        .await;
        eventually("lag is absent, not zero, once all is applied", DRAIN, async || {
            let view = &daemon.status()["channels"][0];
            view["backlog_transactions"] == 0 && view["lag_seconds"].is_null()
        })
        .await;
        source.restart();
        load.stop().await;
    }
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}
