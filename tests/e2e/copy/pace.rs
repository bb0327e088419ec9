//! The pace of a copy, and its last look: rates, limits, pauses, the comparison at the end, and `--cancel`.

use std::time::{Duration, Instant};

use csa_tests::{
    Compare, Daemon, DaemonBuilder, LoadOptions, Server, compare, eventually, prepare,
};
use serde_json::Value;

use super::{busy, copied, copies_rows, copy_log, refused_with, start_copying};
use crate::{DRAIN, wait_state};

const ROWS: u64 = 90_000;

fn copying_first(source: &Server, target: &Server) -> DaemonBuilder {
    Daemon::builder(source, target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("applier.start_from", "copy")
        .set("copy.snapshot_limit", "0MiB")
}

fn channel(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

fn rows(daemon: &Daemon) -> u64 {
    channel(daemon)["copy"]["rows"].as_u64().expect("a number")
}

async fn is_held_by(daemon: &Daemon, why: &str) {
    eventually(&format!("it is held by {why}"), DRAIN, async || {
        channel(daemon)["copy"]["held"].to_string().contains(why)
    })
    .await;
}

async fn is_compared(daemon: &Daemon, outcome: &str) -> Value {
    eventually(&format!("the copy is {outcome}"), DRAIN, async || {
        channel(daemon)["copy_check"]["outcome"] == outcome
    })
    .await;
    channel(daemon)["copy_check"].clone()
}

/// Waits until the chunks that were read before a pause are written, and returns the number of rows.
async fn written(daemon: &Daemon) -> u64 {
    let begun = Instant::now();
    let mut before = rows(daemon);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = rows(daemon);
        if now == before {
            return now;
        }
        assert!(begun.elapsed() < DRAIN, "a paused copy copies");
        before = now;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_keeps_its_rate_pauses_and_is_compared_at_the_end() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    source.exec("ANALYZE TABLE sbtest.sbtest1, sbtest.sbtest2, sbtest.sbtest3").await;
    let daemon = copying_first(&source, &target).set("copy.rows_per_second", 15_000).build();
    let begun = Instant::now();
    daemon.start_again();
    copies_rows(&daemon).await;
    is_held_by(&daemon, "15000 rows/s by rows_per_second").await;
    eventually("tables are named", DRAIN, async || {
        let moving = channel(&daemon)["copy"]["moving"].clone();
        moving.to_string().contains("sbtest.sbtest")
    })
    .await;
    daemon.commanded(&["pause"]);
    wait_state(&daemon, 0, "paused").await;
    is_held_by(&daemon, "paused").await;
    let before = written(&daemon).await;
    assert!(before < ROWS, "all is copied");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rows(&daemon), before, "a paused copy copies");
    daemon.commanded(&["resume"]);
    wait_state(&daemon, 0, "running").await;
    assert!(
        begun.elapsed() > Duration::from_secs(8),
        "{:?}: the rate was exceeded",
        begun.elapsed()
    );
    let check = is_compared(&daemon, "equal").await;
    assert!(check["rows"].as_u64().expect("a number") >= ROWS, "{check}");
    let metrics = daemon.metrics();
    assert!(metrics.contains("csa_copy_differs{channel=\"test\"} 0"), "{metrics}");
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_that_differs_is_told_at_the_end() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    let daemon = copying_first(&source, &target).set("copy.rows_per_second", 15_000).build();
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    // The comparison takes six seconds.
    let last: u64 = target.value("SELECT MAX(id) FROM sbtest.sbtest3").await;
    target.exec(&format!("SET sql_log_bin=0; DELETE FROM sbtest.sbtest3 WHERE id={last}")).await;
    let check = is_compared(&daemon, "different").await;
    let text = check["text"].to_string();
    assert!(text.contains("sbtest.sbtest3") && text.contains("csa-daemon verify"), "{text}");
    let detail = channel(&daemon)["state_detail"].to_string();
    assert!(detail.contains("the copy differs from the source in sbtest.sbtest3"), "{detail}");
    assert!(daemon.metrics().contains("csa_copy_differs{channel=\"test\"} 1"));
}

/// A DECIMAL in JSON, as SQL functions put it there, has the text of a DOUBLE.
#[tokio::test(flavor = "multi_thread")]
async fn json_with_types_that_no_text_has_is_not_advised_to_be_copied() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)").await;
    source.exec("INSERT INTO d.t VALUES (1, JSON_OBJECT('p', 12.50)), (2, '{\"p\": 1}')").await;
    let daemon = copying_first(&source, &target).set("verify.every", "1h").build();
    daemon.start_again();
    let text = is_compared(&daemon, "different").await["text"].to_string();
    assert!(text.contains("d.t: csa-daemon verify") && text.contains("the JSON has"), "{text}");
    assert!(!text.contains("csa-daemon copy"), "{text}");
    eventually("a round is over", DRAIN, async || !channel(&daemon)["verify"]["last"].is_null())
        .await;
    let found = channel(&daemon)["verify"]["last"]["differing"][0].clone();
    assert!(found["command"].is_null() && found["rows"] == 1, "{found}");
    assert!(found["what"].to_string().contains("can't be copied: the JSON has"), "{found}");
    let said = daemon.command(&["verify"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("1 of these rows can't be copied: the JSON has"), "{said:?}");
    // The advice helps.
    for change in ["JSON_SET(j, '$.copied', true)", "JSON_REMOVE(j, '$.copied')"] {
        source.exec(&format!("UPDATE d.t SET j = {change} WHERE id = 1")).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
    }
    daemon.commanded(&["verify"]);
}

/// The target's health and the source's own answers hold a copy back.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_copy_is_held_by_the_health_of_its_servers() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    target.exec("CREATE DATABASE health; CREATE TABLE health.t (v INT); INSERT INTO health.t VALUES (9)").await;
    let daemon = copying_first(&source, &target)
        .set("copy.source_slowdown", "0s")
        .set("copy.rows_per_second", 8_000)
        .set("throttle_by.query", "SELECT v FROM health.t")
        .set("throttle_by.query_limit", 5)
        .set("applier.replicate_ignore_db", vec!["health"])
        .build();
    daemon.start_again();
    is_held_by(&daemon, "query of 127.0.0.1").await;
    assert!(rows(&daemon) < ROWS / 2, "it was not held in time");
    target.exec("UPDATE health.t SET v=1").await;
    daemon.set("copy.rows_per_second", 0);
    daemon.commanded(&["reload", "--restart"]);
    wait_state(&daemon, 0, "running").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let compared = Compare::new().ignore_schema("health").run(&source, &target).await;
    compared.unwrap_or_else(|difference| panic!("{difference}"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_cancelled_copy_leaves_nothing() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &busy()).await;
    target.exec("CREATE DATABASE mine; CREATE TABLE mine.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).set("copy.snapshot_limit", "0MiB").build();
    let mut copying = start_copying(&daemon, &["--rows-per-second", "5000"]);
    eventually("rows are copied", DRAIN, async || copy_log(&daemon).contains("of about")).await;
    assert_eq!(copying.try_wait().expect("a child"), None, "{}", copy_log(&daemon));
    let said = refused_with(&daemon, &["--cancel"]);
    assert!(said.contains("another daemon holds it on this target (connection "), "{said}");
    copying.kill().expect("killed");
    copying.wait().expect("ended");
    let cancel = || {
        let said = tokio::task::block_in_place(|| daemon.command(&["copy", "--cancel"]));
        (said.code == Some(0)).then_some(said.out)
    };
    let mut said = None;
    eventually("the session of the killed copy ends", DRAIN, async || {
        said = cancel();
        said.is_some()
    })
    .await;
    assert!(said.is_some_and(|said| said.contains("tables are dropped")));
    assert_eq!(cancel().expect("works"), "channel test: there is no unfinished copy\n");
    let left: u64 = target
        .value("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA IN ('sbtest','mine')")
        .await;
    assert_eq!(left, 1);
    target.exec("DROP DATABASE mine").await;
    copied(&daemon);
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert!(daemon.terminate().success());
    let said = refused_with(&daemon, &["--cancel"]);
    assert!(said.contains("the target is the channel's copy already"), "{said}");
}

/// Chunks are as new as the source, whatever the delay, which counts for what comes after them.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_copy_converges_without_the_delay_and_is_not_compared() {
    let (source, target) = Server::pair(&[], &[]);
    prepare(&source, &LoadOptions { tables: 1, rows: 20_000, ..busy() }).await;
    let daemon = copying_first(&source, &target)
        .set("copy.rows_per_second", 4_000)
        .set("applier.source_delay", "1h")
        .build();
    daemon.start_again();
    copies_rows(&daemon).await;
    source.exec("UPDATE sbtest.sbtest1 SET k = k + 1 WHERE id <= 10").await;
    let check = is_compared(&daemon, "unfinished").await;
    assert!(check["text"].to_string().contains("source_delay is 3600 s"), "{check}");
    compare(&source, &target).await;
    source.exec("UPDATE sbtest.sbtest1 SET k = k + 1 WHERE id <= 10").await;
    wait_state(&daemon, 0, "waiting_for_delay").await;
    daemon.commanded(&["set", "source_delay", "0s"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}
