//! Copies while the channel moves to another daemon, and of large tables.

use std::time::Duration;

use csa_tests::{Daemon, Etcd, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;

use super::{copy_log, ends, ends_well, refused_with, start_copying};
use crate::{DRAIN, wait_state};

/// Makes a table of so many rows, which nobody changes.
async fn make_still(source: &Server, rows: u32) {
    let insert = format!(
        "SET SESSION cte_max_recursion_depth=1000000; INSERT INTO d.still WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL \
         SELECT i+1 FROM n WHERE i<{rows}) SELECT i, i % 7, 'still' FROM n; ANALYZE TABLE d.still"
    );
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.still (id INT PRIMARY KEY, v INT, body CHAR(100))",
        &insert,
    ] {
        source.exec(statement).await;
    }
}

async fn equals(source: &Server, daemon: &Daemon, target: &Server) {
    wait_state(daemon, 0, "running").await;
    daemon.wait_drained(source, target, DRAIN).await;
    compare(source, target).await;
    let left: u64 = target.value("SELECT COUNT(*) FROM csa.copy_state").await;
    assert_eq!(left, 0);
}

/// A large table is divided, which needs no snapshot.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_large_table_is_copied_again_in_several_ranges() {
    let (source, target) = Server::pair(&[], &[]);
    make_still(&source, 250_000).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("SET sql_log_bin=0; DELETE FROM d.still WHERE id % 3 = 0").await;
    let copying = start_copying(&daemon, &["--table", "d.still", "--lanes", "2"]);
    let mut conn = target.conn().await;
    eventually("the table is divided", DRAIN, async || {
        let ranges = "SELECT COUNT(*) > 1 FROM csa.copy_range";
        conn.query_first::<u64, _>(ranges).await.ok().flatten() == Some(1)
    })
    .await;
    ends_well(copying, &daemon).await;
    equals(&source, &daemon, &target).await;
}

/// The daemon that runs the channel dies in the middle of a copy; the one that stands by takes the channel, and the
/// copy is continued there.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_table_continues_where_the_channel_goes() {
    let (source, target) = Server::pair(&[], &[]);
    let load = LoadOptions { rows: 5_000, clients: 2, rate: Some(40.0), ..LoadOptions::default() };
    prepare(&source, &load).await;
    make_still(&source, 80_000).await;
    let start = || {
        let builder = Daemon::builder(&source, &target).set("standby", true);
        builder.set("target.connect_retry", "100ms").set("target.connect_retry_max", "1s").start()
    };
    let first = start();
    wait_state(&first, 0, "running").await;
    let second = start();
    wait_state(&second, 0, "standby").await;
    first.wait_drained(&source, &target, DRAIN).await;
    let clients = Load::start(&source, &load);
    target.exec("SET sql_log_bin=0; DELETE FROM d.still WHERE id % 3 = 0").await;
    let tables = ["--table", "d.still", "--table", "sbtest.sbtest1"];
    let slowly = ["--rows-per-second", "12000"];
    let mut copying = start_copying(&first, &[&tables[..], &slowly[..]].concat());
    eventually("rows are copied", DRAIN, async || {
        let ended = copying.try_wait().expect("a child");
        assert!(ended.is_none(), "{}", copy_log(&first));
        let mut conn = target.conn().await;
        let rows = "SELECT COALESCE(SUM(rows_copied), 0) > 6000 FROM csa.copy_range";
        conn.query_first::<u64, _>(rows).await.ok().flatten() == Some(1)
    })
    .await;
    first.kill9();
    // Well or not: the daemon may have died between two of its rounds.
    ends(copying, DRAIN).await;
    eventually("the other has the channel", DRAIN, async || {
        let status = second.try_status().unwrap_or_default();
        ["running", "starting", "failed"]
            .iter()
            .any(|state| status["channels"][0]["state"] == *state)
    })
    .await;
    first.start_again();
    wait_state(&first, 0, "standby").await;
    // The one that stands by does not copy under the other's hands.
    let error = refused_with(&first, &tables);
    assert!(error.contains("daemon"), "{error}");
    continued_by_whoever_has_it([&second, &first], &tables).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    clients.stop().await;
    // A restart frees the channel for a moment, in which the other one may take it.
    let runs = |daemon: &Daemon| {
        let status = daemon.try_status().unwrap_or_default();
        status["channels"][0]["state"] == "running"
    };
    eventually("one of them runs", DRAIN, async || runs(&first) || runs(&second)).await;
    let holder = if runs(&first) { &first } else { &second };
    equals(&source, holder, &target).await;
}

/// Runs the command until it ends well. It frees the channel for each round, in which the other daemon may take it:
/// the command is then refused here, and continues there.
async fn continued_by_whoever_has_it(daemons: [&Daemon; 2], tables: &[&str]) {
    for attempt in 0..10 {
        let daemon = daemons[attempt % 2];
        let before = copy_log(daemon).len();
        if ends(start_copying(daemon, tables), 3 * DRAIN).await {
            return;
        }
        let log = copy_log(daemon);
        let said = &log[before..];
        assert!(said.contains("another daemon holds it on this target (connection "), "{said}");
        assert!(said.contains("run the same command on the daemon that has the channel"), "{said}");
    }
    panic!("{}\n{}", copy_log(daemons[0]), copy_log(daemons[1]));
}

/// The daemon that makes the first copy dies, and the one that stands by continues it.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_copy_continues_where_a_daemon_stands_by() {
    let (source, target) = Server::pair(&[], &[]);
    make_still(&source, 100_000).await;
    let start = |rows_per_second: i64| {
        let builder = Daemon::builder(&source, &target).set("standby", true);
        let builder = builder.set("target.connect_retry", "100ms");
        let builder = builder.set("source.user", "admin").set("source.password", "admin_pw");
        let builder = builder.set("applier.start_from", "copy").set("copy.snapshot_limit", "0MiB");
        builder.set("copy.rows_per_second", rows_per_second).start()
    };
    // The copy lasts longer than the other daemon takes to stand by.
    let first = start(4_000);
    eventually("rows are copied", DRAIN, async || {
        let status = first.try_status().unwrap_or_default();
        status["channels"][0]["copy"]["rows"].as_u64() > Some(6_000)
    })
    .await;
    let second = start(20_000);
    wait_state(&second, 0, "standby").await;
    first.kill9();
    let checkpoints: u64 = target.value("SELECT COUNT(*) FROM csa.checkpoint").await;
    assert_eq!(checkpoints, 0, "the copy has ended");
    wait_state(&second, 0, "running").await;
    let log = second.log();
    assert!(!log.contains("begins again"), "{log}");
    first.start_again();
    wait_state(&first, 0, "standby").await;
    equals(&source, &second, &target).await;
}

/// A fleet begins a channel with a copy. The daemon that makes it dies, another one claims the channel and continues.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_fleet_continues_the_first_copy_of_a_daemon_that_died() {
    let (source, target) = Server::pair(&[], &[]);
    let load = LoadOptions { rows: 5_000, clients: 4, rate: Some(40.0), ..LoadOptions::default() };
    prepare(&source, &load).await;
    make_still(&source, 80_000).await;
    let engine = Etcd::start();
    let join = |name: &str| {
        let builder = Daemon::builder(&source, &target).set("claims.engine", "etcd");
        let builder = builder.set("claims.endpoints", vec![engine.endpoint()]);
        let builder = builder.set("claims.name", name).set("claims.ttl", "6s");
        let builder = builder.set("source.user", "admin").set("source.password", "admin_pw");
        let builder = builder.set("applier.start_from", "copy").set("copy.snapshot_limit", "0MiB");
        builder.set("copy.rows_per_second", 12_000).start()
    };
    let clients = Load::start(&source, &load);
    let daemons = [join("one"), join("two")];
    let copies = |daemon: &Daemon| {
        let status = daemon.try_status().unwrap_or_default();
        status["channels"][0]["copy"]["rows"].as_u64().unwrap_or_default() > 12_000
    };
    eventually("one of them copies", DRAIN, async || daemons.iter().any(copies)).await;
    let (dying, other) = match copies(&daemons[0]) {
        true => (&daemons[0], &daemons[1]),
        false => (&daemons[1], &daemons[0]),
    };
    dying.kill9();
    wait_state(other, 0, "running").await;
    let log = other.log();
    assert!(!log.contains("begins again"), "{log}");
    dying.start_again();
    clients.stop().await;
    eventually("one of them runs", DRAIN, async || {
        let runs = |daemon: &&Daemon| {
            let status = daemon.try_status().unwrap_or_default();
            status["channels"][0]["state"] == "running"
        };
        [dying, other].iter().filter(|daemon| runs(daemon)).count() == 1
    })
    .await;
    let status = other.try_status().unwrap_or_default();
    let holder = if status["channels"][0]["state"] == "running" { other } else { dying };
    equals(&source, holder, &target).await;
}
