//! Writes of the source arrive on the target.

use std::time::Duration;

use csa_tests::{Burst, Compare, Daemon, Load, LoadOptions, Server, compare, peak_memory, prepare};
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, EXECUTORS};

/// The statements of a fixture, in one session.
pub(crate) async fn run_script(server: &Server, script: &str) {
    let mut conn = server.conn().await;
    for statement in script.split("\n/\n") {
        conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    conn.disconnect().await.expect("disconnects");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_every_key_and_ddl_between_the_dml() {
    let (source, target) = Server::pair(&[], &[]);
    let script = include_str!("../fixtures/everything.sql");
    let accounts = "applier.replicate_accounts";
    let daemon = Daemon::builder(&source, &target).set(accounts, true).start();
    run_script(&source, script).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = Compare::new().users().run(&source, &target).await;
    let compared = compared.unwrap_or_else(|difference| panic!("{difference}"));
    assert!(compared.tables >= 16 && compared.rows >= 40, "{compared:?}");
    // The trigger's row came from the source; the target's own trigger must not fire.
    let fired: u64 =
        target.value("SELECT COUNT(*) FROM everything.keyless WHERE b = 'trigger'").await;
    assert_eq!(fired, 1);
    assert_eq!(daemon.status()["channels"][0]["state"], "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_from_a_backlog_and_with_compressed_transactions() {
    let (source, target) = Server::pair(&["--binlog-transaction-compression=ON"], &[]);
    run_script(&source, include_str!("../fixtures/everything.sql")).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_with_a_burst_in_it() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions {
        rate: Some(200.0),
        burst: Some(Burst {
            after: Duration::from_secs(2),
            length: Duration::from_secs(2),
            rate: None,
        }),
        ..LoadOptions::default()
    };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).start();
    let report = Load::run(&source, &options, Duration::from_secs(5)).await;
    assert!(report.committed > 500, "{report:?}");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let view = &daemon.status()["channels"][0];
    assert_eq!(view["backlog_transactions"], 0);
    let groups = view["applied_groups_total"].as_u64().expect("a number");
    let transactions = view["applied_transactions_total"].as_u64().expect("a number");
    assert!(groups < transactions, "transactions share groups: {groups} of {transactions}");
}

/// A gibibyte in one transaction passes without ever being in memory.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_transaction_of_one_gibibyte_is_streamed() {
    // 1000 rows of a little over 1 MiB, as one statement.
    streamed(EXECUTORS[0], 1000).await;
    streamed(EXECUTORS[1], 200).await;
}

async fn streamed(executor: &str, rows: u64) {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE large").await;
    source.exec("CREATE TABLE large.t (id INT PRIMARY KEY AUTO_INCREMENT, b LONGBLOB)").await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.executor", executor)
        .set("applier.event_memory_limit", "64MiB")
        .set("relay.segment_size", "32MiB")
        .start();
    let numbers =
        format!("WITH RECURSIVE n AS (SELECT 1 i UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    source
        .exec(&format!(
            "INSERT INTO large.t (b) {numbers} SELECT REPEAT(CHAR(i % 90 + 32), 1073742) FROM n"
        ))
        .await;
    daemon.wait_drained(&source, &target, Duration::from_secs(300)).await;
    let peak = peak_memory(daemon.pid().expect("running")).expect("running");
    let sum = "SELECT COUNT(*), SUM(CRC32(b)), SUM(LENGTH(b)) FROM large.t";
    let digest = |server: &Server| {
        let server = server.opts();
        async move {
            let mut conn = mysql_async::Conn::new(server).await.expect("connects");
            conn.query_first::<(u64, String, u64), _>(sum).await.expect("a digest")
        }
    };
    let (expected, found) = (digest(&source).await, digest(&target).await);
    assert_eq!(expected, found);
    assert!(found.as_ref().is_some_and(|f| f.2 > rows << 20), "{found:?}");
    let limit = (64 + 100) << 20;
    assert!(peak < limit, "peak RSS {} MiB", peak >> 20);
    println!("{executor}: peak RSS {} MiB", peak >> 20);
}
