//! `until` as a command: set, moved and cleared while the channel runs.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;

use crate::{DRAIN, wait_state};

/// The set in the checkpoint; in commit order its newest row has all of it.
async fn checkpoint(target: &Server) -> String {
    let newest = "SELECT gtid_executed FROM csa.checkpoint WHERE channel = 'test' \
                  ORDER BY sequence DESC, LENGTH(gtid_executed) DESC LIMIT 1";
    target.value(newest).await
}

/// UUID and last number of the source's only interval.
async fn position(source: &Server) -> (String, u64) {
    let executed = source.gtid_executed().await;
    let (uuid, numbers) = executed.rsplit_once(':').expect("one interval");
    let last = numbers.rsplit('-').next().and_then(|last| last.parse().ok());
    (uuid.to_owned(), last.expect("a number"))
}

/// The set executed on the source and its time, with no commit under way.
async fn moment(source: &Server) -> (String, String) {
    let mut conn = source.conn().await;
    conn.query_drop("FLUSH TABLES WITH READ LOCK").await.expect("locks");
    let now = "SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', ''), \
               DATE_FORMAT(CONVERT_TZ(SYSDATE(6), @@time_zone, '+00:00'), '%Y-%m-%dT%H:%i:%s.%fZ')";
    let moment = conn.query_first(now).await.expect("answers").expect("a row");
    conn.query_drop("UNLOCK TABLES").await.expect("unlocks");
    moment
}

fn until(daemon: &Daemon) -> serde_json::Value {
    daemon.status()["channels"][0]["settings"]["until"].clone()
}

async fn stopped_at(daemon: &Daemon, target: &Server, wanted: &str) {
    wait_state(daemon, 0, "stopped").await;
    let view = &daemon.status()["channels"][0];
    let detail = view["state_detail"].as_str().expect("a text").to_owned();
    let end = until(daemon);
    let end = end.as_str().expect("an end");
    assert_eq!(detail, format!("stopped: until {end} is reached; still receiving"));
    assert!(view["last_error"].is_null(), "{view:#}");
    assert_eq!(view["applied_transaction_set"], wanted);
    assert_eq!(checkpoint(target).await, wanted);
    let total: i64 = target.value("SELECT SUM(balance) FROM sbtest.account").await;
    assert_eq!(total, 100_000, "transactions are whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_set_moved_and_cleared_under_load() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { rate: Some(400.0), ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let (uuid, first) = position(&source).await;
    assert!(until(&daemon).is_null());
    let load = Load::start(&source, &options);

    // An end that has not arrived yet.
    let said = daemon.commanded(&["until", "--after-gtids", &format!("{uuid}:1-{}", first + 400)]);
    let after = format!("sql_after_gtids = {uuid}:1-{}", first + 400);
    assert_eq!(said, format!("until: none -> {after}\n"));
    stopped_at(&daemon, &target, &format!("{uuid}:1-{}", first + 400)).await;
    // The end is moved: the channel resumes on its own, and the source has kept writing.
    let before = format!("{uuid}:{}-{}", first + 800, first + 900);
    let said = daemon.commanded(&["until", "--before-gtids", &before]);
    assert_eq!(said, format!("until: {after} -> sql_before_gtids = {before}\n"));
    stopped_at(&daemon, &target, &format!("{uuid}:1-{}", first + 799)).await;

    // A past end is refused, even while the channel is stopped, and changes nothing.
    let past = format!("{uuid}:{}", first + 700);
    for arguments in [["until", "--before-gtids", &past], ["until", "--after-gtids", &past]] {
        daemon.command(&arguments).refused(1, &["channel test: until sql_", "is past", &past]);
    }
    let epoch = ["until", "--before-time", "2001-01-01T00:00:00Z"];
    daemon.command(&epoch).refused(1, &["sql_before_time", "is past", "the source committed at"]);
    for (arguments, words) in [
        (&["until", "--before-time", "noon"][..], "noon"),
        (&["until", "--before-time", "2026-01-01T00:00:00"], "offset"),
        (&["until", "--after-gtids", "x"], "sql_after_gtids"),
        (&["until", "--after-gtids", ""], "empty"),
    ] {
        daemon.command(arguments).refused(2, &["until.sql_", words]);
    }
    for arguments in [&["until"][..], &["until", "--clear", "--after-gtids", "x"]] {
        assert_eq!(daemon.command(arguments).code, Some(2), "one of them");
    }
    assert_eq!(until(&daemon), format!("sql_before_gtids = {before}"));
    assert_eq!(daemon.status()["channels"][0]["state"], "stopped");

    // A restart stays before it, as with the key in the file.
    daemon.commanded(&["restart"]);
    stopped_at(&daemon, &target, &format!("{uuid}:1-{}", first + 799)).await;

    // An end by time, among the transactions that the source has committed meanwhile.
    let (executed, time) = moment(&source).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    daemon.commanded(&["until", "--before-time", &time]);
    stopped_at(&daemon, &target, &executed).await;
    assert_ne!(source.gtid_executed().await, executed, "there was more");

    let said = daemon.commanded(&["until", "--clear"]);
    assert!(said.ends_with("-> none\n"), "{said}");
    wait_state(&daemon, 0, "running").await;
    // Clearing the end does not start a channel that did not stop there.
    daemon.commanded(&["until", "--after-gtids", &format!("{uuid}:1-99999999")]);
    daemon.commanded(&["stop"]);
    daemon.commanded(&["until", "--clear"]);
    assert_eq!(daemon.status()["channels"][0]["state"], "stopped");
    daemon.commanded(&["restart"]);
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let log = daemon.log();
    let audited: Vec<&str> = log.lines().filter(|line| line.contains("action=\"until\"")).collect();
    assert_eq!(audited.len(), 6, "{audited:#?}");
    let by = "by=\"tester\" peer=\"uid ";
    assert!(audited.iter().all(|line| line.contains(by)), "{audited:#?}");
    assert!(audited.first().is_some_and(|line| line.contains(&after)), "{audited:#?}");
}

/// A transaction that waits for a group is not past, however far the reader is ahead.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_may_lie_in_what_is_read_ahead_and_held_back() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let (uuid, base) = position(&source).await;
    let newest = async || target.value::<u64>("SELECT COALESCE(MAX(id), 0) FROM d.t").await;
    let insert = async |ids: std::ops::RangeInclusive<u64>| {
        let mut conn = source.conn().await;
        for id in ids {
            conn.query_drop(format!("INSERT INTO d.t VALUES ({id})")).await.expect("inserts");
        }
    };
    // Row n is transaction base + n.
    let command =
        |how: &str, row: u64| daemon.command(&["until", how, &format!("{uuid}:{}", base + row)]);
    let stopped = async |row: u64| {
        wait_state(&daemon, 0, "stopped").await;
        assert_eq!(newest().await, row);
    };
    daemon.commanded(&["pause"]);
    insert(1..=60).await;
    eventually("all are read ahead", DRAIN, async || {
        daemon.status()["channels"][0]["applier"]["waiting_transactions"] == 60
    })
    .await;
    assert_eq!(command("--before-gtids", 40).code, Some(0));
    assert_eq!(command("--before-gtids", 20).code, Some(0), "an earlier one");
    wait_state(&daemon, 0, "paused").await;
    daemon.commanded(&["resume"]);
    stopped(19).await;
    assert_eq!(command("--after-gtids", 30).code, Some(0));
    stopped(30).await;
    command("--before-gtids", 30).refused(1, &["is past"]);
    assert_eq!(command("--before-gtids", 31).code, Some(0));
    stopped(30).await;

    // Transactions after the end that are not due do not keep the channel from stopping.
    daemon.commanded(&["until", "--clear"]);
    eventually("row 60", DRAIN, async || newest().await == 60).await;
    daemon.commanded(&["set", "source_delay", "1h"]);
    insert(61..=62).await;
    wait_state(&daemon, 0, "waiting_for_delay").await;
    assert_eq!(command("--before-gtids", 61).code, Some(0));
    stopped(60).await;
    daemon.commanded(&["restart"]);
    stopped(60).await;
    daemon.commanded(&["until", "--clear"]);
    wait_state(&daemon, 0, "waiting_for_delay").await;
    daemon.commanded(&["set", "source_delay", "0s"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_in_the_file_is_an_end_and_another_file_another_end() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let load = Load::start(&source, &options);
    let mut moments = Vec::new();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        moments.push(moment(&source).await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    load.stop().await;
    let until = |time: &str| {
        let mut table = toml::Table::new();
        table.insert("sql_before_time".to_owned(), time.into());
        table
    };
    let [(first, early), (second, late)] = &moments[..] else { panic!("{moments:?}") };
    let daemon = Daemon::builder(&source, &target).set("applier.until", until(early)).start();
    stopped_at(&daemon, &target, first).await;
    daemon.set("applier.until", until(late));
    daemon.write_config();
    let said = daemon.commanded(&["reload"]);
    assert!(
        said.contains("applier.until has changed and needs a restart of the channel"),
        "{said}"
    );
    daemon.commanded(&["restart"]);
    stopped_at(&daemon, &target, second).await;
    // A value set by hand survives a restart.
    daemon.commanded(&["until", "--clear"]);
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}
