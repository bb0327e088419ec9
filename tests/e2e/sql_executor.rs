//! Rows written by INSERT, UPDATE and DELETE: what the row-image executor does, done by statements.

use std::time::Duration;

use csa_tests::{Compare, Daemon, DaemonBuilder, Load, LoadOptions, Server, compare, prepare};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::conflicts::{both_ways, conflicting};
use crate::crash::mid_drain;
use crate::replicate::run_script;
use crate::{DRAIN, conflicts, relations};

fn by_statements(source: &Server, target: &Server) -> DaemonBuilder {
    Daemon::builder(source, target).set("applier.executor", "sql")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_and_key_by_statements() {
    let (source, target) = Server::pair(&["--binlog-transaction-compression=ON"], &[]);
    let script = include_str!("../fixtures/everything.sql");
    // Triggers of the target would fire again.
    let script: Vec<&str> =
        script.split("\n/\n").filter(|text| !text.starts_with("CREATE TRIGGER")).collect();
    let (first, second) = script.split_at(script.len() / 2);
    run_script(&source, &first.join("\n/\n")).await;
    let daemon = by_statements(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    run_script(&source, &[&["USE everything"], second].concat().join("\n/\n")).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = Compare::new().users().run(&source, &target).await;
    let compared = compared.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(compared.tables >= 16 && compared.rows >= 40, "{compared:?}");
    let view = &daemon.status()["channels"][0];
    assert_eq!(view["applier"]["executor"], "sql");
    assert_eq!(view["state"], "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_in_conflict_by_statements() {
    let (source, target) = Server::pair(&[], &[]);
    conflicts::prepare(&source).await;
    relations::prepare(&source).await;
    let daemon = by_statements(&source, &target).start();
    relations::move_away(&source, &target, &daemon).await;
    both_ways(&source, &target, &daemon, |client, random| match client % 2 {
        0 => conflicting(client, random),
        _ => relations::related(client, random),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_in_the_middle_of_a_drain_by_statements() {
    let options =
        LoadOptions { clients: 4, changes: 3, transfers_percent: 50, ..LoadOptions::default() };
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &options).await;
    let load = Load::start(&source, &options);
    let daemon = by_statements(&source, &target).start();
    let mut random = StdRng::seed_from_u64(8);
    for kill in 0..8 {
        assert!(
            mid_drain(&daemon).await,
            "kill {kill} would not hit a drain\n{}",
            daemon.log_tail()
        );
        tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
        daemon.kill9();
        source.exec(&format!("ALTER TABLE sbtest.sbtest1 ADD COLUMN added_{kill} INT")).await;
        daemon.start_again();
    }
    let report = load.stop().await;
    assert_eq!(report.errors, 0, "{report:?}");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let counted: u64 = target.value("SELECT CAST(SUM(n) AS UNSIGNED) FROM sbtest.counter").await;
    assert_eq!(counted, report.committed);
}
