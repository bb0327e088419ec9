//! `[channel.verify]`: the daemon compares both servers on its own.

use std::time::{Duration, Instant};

use csa_tests::{
    Daemon, DaemonBuilder, Guide, Load, LoadOptions, Server, browse, eventually, prepare,
};
use serde_json::Value;

use crate::DRAIN;
use crate::notify::receiver::{Manner, Receiver};

/// A look at tables that differ is due after 6 s, and not after 10 minutes.
const HASTE: &str = "100";

/// Milliseconds after which the page shows a channel.
const PAGE: u32 = 3000;

pub(super) async fn servers(rows: u32) -> (Server, Server) {
    let (source, target) = Server::pair(&[], &[]);
    let rights = "SELECT, REPLICATION CLIENT, SHOW VIEW, TRIGGER, EVENT";
    source.exec(&format!("SET sql_log_bin = 0; GRANT {rights} ON *.* TO repl@'%'")).await;
    source
        .exec(&format!(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, s VARCHAR(60)); \
             USE d; SET SESSION cte_max_recursion_depth = 1000000; \
             INSERT INTO d.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) \
             SELECT i, SHA2(i, 224) FROM n"
        ))
        .await;
    (source, target)
}

pub(super) fn builder(source: &Server, target: &Server, every: &str, rate: i64) -> DaemonBuilder {
    Daemon::builder(source, target)
        .env("CSA_TEST_HASTE", HASTE)
        .set("verify.every", every)
        .set("verify.rows_per_second", rate)
}

fn verify(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0]["verify"].clone()
}

pub(super) async fn reaches(daemon: &Daemon, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    eventually(what, DRAIN, async || {
        last = verify(daemon);
        is(&last)
    })
    .await;
    last
}

fn metric(daemon: &Daemon, name: &str) -> Option<f64> {
    let line = format!("csa_verify_{name}{{channel=\"test\"}} ");
    let metrics = daemon.metrics();
    metrics.lines().find_map(|one| one.strip_prefix(&line)?.parse().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_is_found_sent_repaired_and_gone() {
    let (source, target) = servers(5_000).await;
    let receiver = Receiver::start(Manner::Takes);
    let daemon = builder(&source, &target, "24h", 0).set("notify.url", receiver.url()).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let first = reaches(&daemon, "a result", |verify| !verify["last"].is_null()).await;
    assert_eq!(
        (&first["last"]["outcome"], &first["last"]["rows"]),
        (&"equal".into(), &5000.into())
    );
    assert_eq!(metric(&daemon, "differing_tables"), Some(0.0));
    assert!(metric(&daemon, "last_finished_timestamp_seconds").is_some_and(|at| at > 1.7e9));

    target.exec("SET sql_log_bin = 0; UPDATE d.t SET s = 'damaged' WHERE id IN (70, 90)").await;
    // The next round is due a day later, unless the file says otherwise.
    daemon.set("verify.every", "1s");
    daemon.write_config();
    assert!(daemon.commanded(&["reload"]).contains("verify.every"));
    let found =
        reaches(&daemon, "a difference", |verify| verify["last"]["outcome"] == "different").await;
    daemon.set("verify.every", "24h");
    daemon.write_config();
    daemon.commanded(&["reload"]);
    let table = &found["last"]["differing"][0];
    assert_eq!((&table["table"], &table["rows"]), (&"d.t".into(), &2.into()), "{found:#}");
    let command = table["command"].as_str().expect("a command");
    assert_eq!(command, "csa-daemon copy --channel test --table d.t --range 70..90");
    let sent = receiver.gets("verify_differs", DRAIN).await;
    assert!(sent["text"].as_str().is_some_and(|text| text.contains(command)), "{sent:#}");
    assert_eq!(metric(&daemon, "differing_rows"), Some(2.0));
    let said = daemon.commanded(&["status", "test"]);
    assert!(said.contains("DIFFERENT") && said.contains("d.t (2 rows"), "{said}");
    assert!(!daemon.log().contains("damaged"), "no values in the log");
    let (document, console) = browse(&daemon.url("/"), PAGE);
    assert_eq!(console, "");
    assert!(document.contains("Comparison with the source"), "{document}");
    assert!(
        document.contains("ago: the target differs from the source in d.t (2 rows"),
        "{document}"
    );

    // Killed, it knows what it has found.
    daemon.kill9();
    daemon.start_again();
    reaches(&daemon, "the result", |verify| verify["last"]["outcome"] == "different").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    daemon.commanded(&arguments);
    let last = reaches(&daemon, "the end", |verify| verify["last"]["outcome"] == "equal").await;
    assert_eq!(last["last"]["rows"], 5000, "a look at one table is no round: {last:#}");
    receiver.gets("verify_equal", DRAIN).await;
    // The command has stopped the channel for a moment.
    let sent: Vec<String> =
        receiver.names().into_iter().filter(|name| name.starts_with("verify")).collect();
    assert_eq!(sent, ["verify_differs", "verify_equal"]);
    assert_eq!(metric(&daemon, "differing_tables"), Some(0.0));
}

/// Its name is on neither side when the tables that differ are compared again.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_differs_is_equal_once_it_is_dropped() {
    let (source, target) = servers(100).await;
    let daemon = builder(&source, &target, "24h", 0).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    reaches(&daemon, "a result", |verify| verify["last"]["outcome"] == "equal").await;
    target.exec("SET sql_log_bin = 0; CREATE TABLE d.odd (id INT PRIMARY KEY)").await;
    daemon.set("verify.every", "1s");
    daemon.write_config();
    daemon.commanded(&["reload"]);
    reaches(&daemon, "a difference", |verify| verify["last"]["outcome"] == "different").await;
    daemon.set("verify.every", "24h");
    daemon.write_config();
    daemon.commanded(&["reload"]);
    target.exec("SET sql_log_bin = 0; DROP TABLE d.odd").await;
    reaches(&daemon, "the end", |verify| verify["last"]["outcome"] == "equal").await;
}

/// The daemon runs while a command makes the target again.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_was_copied_again_has_no_result_until_it_is_compared() {
    let (source, target) = servers(1_000).await;
    let daemon = builder(&source, &target, "24h", 0).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    reaches(&daemon, "a result", |verify| verify["last"]["outcome"] == "equal").await;
    daemon.commanded(&["stop", "--receiving"]);
    target.exec("DROP DATABASE d; DELETE FROM csa.checkpoint").await;
    let password = daemon.config_path().with_file_name("source.pw");
    std::fs::write(&password, "admin_pw\n").expect("writable");
    let password = password.display().to_string();
    let copy = ["copy", "--source-user", "admin", "--source-password-file", &password];
    tokio::task::block_in_place(|| daemon.commanded(&copy));
    reaches(&daemon, "nothing is known", |verify| verify["last"].is_null()).await;
    target.exec("SET sql_log_bin = 0; UPDATE d.t SET s = 'damaged' WHERE id = 70").await;
    daemon.commanded(&["restart"]);
    reaches(&daemon, "a difference", |verify| verify["last"]["outcome"] == "different").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_round_is_gentle_and_continues_after_a_kill_and_a_pause() {
    const ROWS: u32 = 20_000;
    const RATE: i64 = 1_000;
    let (source, target) = servers(ROWS).await;
    let daemon = builder(&source, &target, "24h", RATE).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let rows = |verify: &Value| verify["progress"]["rows"].as_u64().unwrap_or(0);
    reaches(&daemon, "the begin", |verify| rows(verify) > 0).await;
    let (before, begun) = (rows(&verify(&daemon)), Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let rate = (rows(&verify(&daemon)) - before) as f64 / begun.elapsed().as_secs_f64();
    assert!(rate < 1.3 * RATE as f64 && rate > 0.3 * RATE as f64, "{rate} rows a second");
    assert!(metric(&daemon, "progress_ratio").is_some_and(|share| share > 0.0 && share < 1.0));

    daemon.kill9();
    daemon.start_again();
    let resumed = reaches(&daemon, "it continues", |verify| rows(verify) > 0).await;
    assert!(rows(&resumed) > before, "{before} {resumed:#}");
    daemon.commanded(&["pause"]);
    let held = reaches(&daemon, "it is held", |verify| verify["state"] == "held").await;
    assert!(held["detail"].as_str().is_some_and(|why| why.contains("paused")), "{held:#}");
    let stands = rows(&verify(&daemon));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(rows(&verify(&daemon)), stands);
    daemon.commanded(&["resume"]);
    reaches(&daemon, "it continues", |verify| rows(verify) > stands).await;
    // An outage of both servers.
    target.kill9();
    source.kill9();
    source.restart();
    target.restart();
    let last = reaches(&daemon, "the end", |verify| !verify["last"].is_null()).await;
    assert_eq!((&last["last"]["outcome"], &last["last"]["rows"]), (&"equal".into(), &ROWS.into()));
    let took = last["last"]["seconds"].as_f64().expect("a time");
    assert!(took > 0.8 * f64::from(ROWS) / RATE as f64, "{took} s");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn rows_that_move_are_no_difference() {
    let (source, target) = servers(10).await;
    let options = LoadOptions { rate: Some(200.0), ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = builder(&source, &target, "1s", 20_000).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let load = Load::start(&source, &options);
    let mut rounds = std::collections::BTreeSet::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(25) || rounds.len() < 3 {
        assert!(begun.elapsed() < DRAIN, "{:#}", verify(&daemon));
        let last = verify(&daemon)["last"].clone();
        if !last.is_null() {
            assert_ne!(last["outcome"], "different", "{last:#}");
            rounds.insert(last["finished"].to_string());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    load.stop().await;
    println!("{} rounds", rounds.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_works_as_it_is_written() {
    let (source, target) = servers(10).await;
    let mut guide = Guide::section("verify.md", "Compare all the time");
    let toml = guide.take("toml into=/etc/csa-daemon/csa-daemon.toml");
    let daemon = Daemon::builder(&source, &target).append(&format!("\n{toml}")).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let shown = reaches(&daemon, "a state", |verify| verify["state"].is_string()).await;
    assert_eq!(shown["every_seconds"], 86400.0, "{shown:#}");
    for line in guide.take("sh").lines() {
        let arguments: Vec<&str> = line.split(' ').skip(1).collect();
        daemon.commanded(&arguments);
    }
    let said = daemon.command(&["status", "test"]);
    assert!(said.out.contains("comparison"), "{said:?}");
}
