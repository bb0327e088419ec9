//! Distributed transactions (XA): prepared in one session, ended in another, whatever dies in between.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::{DRAIN, wait_state};

pub(crate) async fn run(conn: &mut Conn, statements: &[String]) {
    for statement in statements {
        if let Err(error) = conn.query_drop(statement.as_str()).await {
            panic!("{error}\n{statement}");
        }
    }
}

/// Runs the rows of branch `xid` and prepares it.
pub(crate) async fn prepare_branch(conn: &mut Conn, xid: &str, rows: &[String]) {
    run(conn, &[format!("XA START {xid}")]).await;
    run(conn, rows).await;
    run(conn, &[format!("XA END {xid}"), format!("XA PREPARE {xid}")]).await;
}

async fn prepared(server: &Server) -> Vec<String> {
    let mut conn = server.conn().await;
    let mut rows: Vec<(i64, i64, i64, String)> =
        conn.query("XA RECOVER CONVERT XID").await.expect("recovers");
    rows.sort();
    rows.into_iter().map(|row| format!("{row:?}")).collect()
}

pub(crate) fn change(random: &mut StdRng, number: u32) -> Vec<String> {
    let id = random.random_range(1..2000);
    vec![
        format!("INSERT INTO x.log (branch, v) VALUES ({number}, {id})"),
        format!("UPDATE x.counter SET n=n+1 WHERE id={}", number % 7),
        format!("INSERT INTO x.wide VALUES ({number}, REPEAT('w',{}))", id * 3),
    ]
}

pub(crate) async fn schema(source: &Server) {
    source.exec("CREATE DATABASE x").await;
    source
        .exec("CREATE TABLE x.log (id INT AUTO_INCREMENT PRIMARY KEY, branch INT UNIQUE, v INT)")
        .await;
    source.exec("CREATE TABLE x.counter (id INT PRIMARY KEY, n INT NOT NULL)").await;
    source.exec("CREATE TABLE x.wide (id INT PRIMARY KEY, c MEDIUMTEXT)").await;
    source.exec("INSERT INTO x.counter VALUES (0,0),(1,0),(2,0),(3,0),(4,0),(5,0),(6,0)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn branches_are_prepared_and_ended_whatever_dies() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { clients: 2, ..LoadOptions::default() };
    prepare(&source, &options).await;
    schema(&source).await;
    let daemon = Daemon::builder(&source, &target).set("target.connect_retry", "100ms").start();
    let load = Load::start(&source, &options);
    let mut random = StdRng::seed_from_u64(7);
    let mut conn = source.conn().await;
    for number in 0..60_u32 {
        // Bytes that are no text. One format only: MySQL 9.7 forgets prepared branches when it recovers
        // from a crash and its last binary log holds several formats.
        let xid = format!("X'00ff{number:04x}27',X'5c{number:02x}',3");
        prepare_branch(&mut conn, &xid, &change(&mut random, number)).await;
        match number {
            15 | 35 => {
                daemon.kill9();
                daemon.start_again();
            }
            25 => {
                target.kill9();
                target.restart();
            }
            45 => {
                source.kill9();
                source.restart();
                conn = source.conn().await;
            }
            _ => {}
        }
        let end = match number % 4 {
            0 => "XA ROLLBACK",
            _ => "XA COMMIT",
        };
        run(&mut conn, &[format!("{end} {xid}")]).await;
        if number % 5 == 0 {
            let xid = format!("'one','{number}'");
            let rows = change(&mut random, 1000 + number);
            run(&mut conn, &[format!("XA START {xid}")]).await;
            run(&mut conn, &rows).await;
            run(&mut conn, &[format!("XA END {xid}"), format!("XA COMMIT {xid} ONE PHASE")]).await;
        }
    }
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert!(prepared(&target).await.is_empty());
    let committed: u64 = target.value("SELECT COUNT(*) FROM x.log").await;
    assert_eq!(committed, 45 + 12);
}

/// One name for all branches, one after the other, with the daemon or the target killed at any moment of
/// PREPARE and end.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn the_same_branch_comes_again_and_again() {
    for (gtids, commit, executor) in [
        ("own", "grouped", "row-image"),
        ("source", "one-to-one", "row-image"),
        ("source", "one-to-one", "sql"),
        ("mirror", "grouped", "row-image"),
    ] {
        the_same_branch_again(gtids, commit, executor).await;
    }
}

async fn the_same_branch_again(gtids: &str, commit: &str, executor: &str) {
    let (source, target) = Server::pair(&[], &[]);
    schema(&source).await;
    let daemon = Daemon::builder(&source, &target)
        .set("target.connect_retry", "100ms")
        .set("applier.target_gtids", gtids)
        .set("applier.commit", commit)
        .set("applier.executor", executor)
        .start();
    let mut random = StdRng::seed_from_u64(3);
    let mut conn = source.conn().await;
    for number in 0..12_u32 {
        let end = ["XA COMMIT 'again'", "XA ROLLBACK 'again'"][usize::from(number % 3 == 0)];
        prepare_branch(&mut conn, "'again'", &change(&mut random, number)).await;
        for statement in [end, "UPDATE x.counter SET n=n+1 WHERE id=6"] {
            let wait = Duration::from_millis(random.random_range(0..40));
            match random.random_range(0..10) {
                0..4 => {
                    tokio::time::sleep(wait).await;
                    daemon.kill9();
                    daemon.start_again();
                    // The start is under way when the next statement comes.
                    tokio::time::sleep(wait * 8).await;
                }
                4 if number % 4 == 1 => {
                    tokio::time::sleep(wait).await;
                    target.kill9();
                    target.restart();
                }
                _ => {}
            }
            run(&mut conn, &[statement.to_owned()]).await;
        }
    }
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert!(prepared(&target).await.is_empty());
    let all = source.gtid_executed().await;
    eventually("the target has the source's GTIDs", DRAIN, async || {
        gtids == "own" || target.gtid_executed().await == all
    })
    .await;
}

/// A prepared branch holds its locks on the target as on the source, and lets everything else pass.
#[tokio::test(flavor = "multi_thread")]
async fn a_branch_stays_prepared_while_others_pass() {
    let (source, target) = Server::pair(&[], &[]);
    schema(&source).await;
    let daemon = Daemon::builder(&source, &target).start();
    let mut conn = source.conn().await;
    let rows = vec!["UPDATE x.counter SET n=n+100 WHERE id=3".to_owned()];
    prepare_branch(&mut conn, "'stays'", &rows).await;
    for id in [0, 1, 2, 4, 5, 6] {
        source.exec(&format!("UPDATE x.counter SET n=n+1 WHERE id={id}")).await;
    }
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(prepared(&target).await, prepared(&source).await);
    assert_eq!(prepared(&target).await.len(), 1);
    assert!(daemon.terminate().success());
    daemon.start_again();
    source.exec("UPDATE x.counter SET n=n+1 WHERE id=4").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // Any session may end it.
    source.exec("XA COMMIT 'stays'").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert_eq!(target.value::<i64>("SELECT n FROM x.counter WHERE id=3").await, 100);
}

/// Streamed from the relay store: larger than the event memory takes as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_branch_larger_than_memory() {
    let (source, target) = Server::pair(&[], &[]);
    schema(&source).await;
    let daemon =
        Daemon::builder(&source, &target).set("applier.event_memory_limit", "64MiB").start();
    let mut conn = source.conn().await;
    let rows: Vec<String> = (0..40)
        .map(|id| format!("INSERT INTO x.wide VALUES ({id}, REPEAT(CHAR(65+{id}%26),1000000))"))
        .collect();
    prepare_branch(&mut conn, "'large'", &rows).await;
    run(&mut conn, &["XA COMMIT 'large'".to_owned()]).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// The target was provisioned between a PREPARE and its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_the_target_does_not_know_stops_the_channel() {
    let (source, target) = Server::pair(&[], &[]);
    schema(&source).await;
    let mut conn = source.conn().await;
    let rows = vec!["UPDATE x.counter SET n=1 WHERE id=3".to_owned()];
    prepare_branch(&mut conn, "'unknown'", &rows).await;
    let daemon = Daemon::builder(&source, &target).set("applier.start_from", "source").start();
    wait_state(&daemon, 0, "running").await;
    run(&mut conn, &["XA COMMIT 'unknown'".to_owned()]).await;
    wait_state(&daemon, 0, "failed").await;
    let detail = daemon.status()["channels"][0]["state_detail"].to_string();
    let gtid: String = source.value("SELECT @@gtid_executed").await;
    let last = gtid.rsplit(['-', ':']).next().expect("a number").to_owned();
    for part in [&last, "1397", "between its PREPARE and its end"] {
        assert!(detail.contains(part), "{part} in {detail}");
    }
}

/// Format IDs and names of branches. MySQL 9.7 loses some of them when it recovers.
const LOST: [(u8, &str); 10] = [
    (9, "zzz"),
    (1, "a"),
    (5, "mm"),
    (3, "q"),
    (7, "b"),
    (2, "yy"),
    (8, "c"),
    (4, "x"),
    (6, "dd"),
    (10, "w"),
];

/// The server's own replica stops in the same way.
#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_the_targets_recovery_loses_stops_the_channel() {
    let (source, target) = Server::pair(&[], &[]);
    schema(&source).await;
    let daemon = Daemon::builder(&source, &target).set("target.connect_retry", "100ms").start();
    let mut sessions = Vec::new();
    for (format, name) in LOST {
        let mut conn = source.conn().await;
        let rows = vec![format!("INSERT INTO x.log (branch, v) VALUES ({format}, 1)")];
        prepare_branch(&mut conn, &format!("'{name}','1',{format}"), &rows).await;
        sessions.push(conn);
    }
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(prepared(&target).await.len(), LOST.len());
    target.kill9();
    target.restart();
    let left = prepared(&target).await;
    assert!(left.len() < LOST.len(), "a server that keeps them needs another test: {left:?}");
    for ((format, name), conn) in LOST.iter().zip(&mut sessions) {
        run(conn, &[format!("XA COMMIT '{name}','1',{format}")]).await;
    }
    wait_state(&daemon, 0, "failed").await;
    let detail = daemon.status()["channels"][0]["state_detail"].to_string();
    for part in ["1397", "the target has crashed meanwhile", "SET gtid_next="] {
        assert!(detail.contains(part), "{part} in {detail}");
    }
}
