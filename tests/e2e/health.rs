//! The throttle by health of the target and its replicas: it engages with its reason shown, leaves the
//! channel its least rate, and releases.

use std::time::{Duration, Instant};

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::{DRAIN, wait_state};

/// Transactions per second that the limits leave.
const LEAST: f64 = 20.0;
/// More than enough to fall to it from any rate, or to rise to any.
const SETTLED: Duration = Duration::from_secs(90);

fn view(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

fn rate(daemon: &Daemon) -> Option<f64> {
    view(daemon)["throttle_by"]["rate"].as_f64()
}

async fn waits_for(daemon: &Daemon, what: &str, holds: impl Fn(Option<f64>) -> bool) {
    eventually(what, SETTLED, async || holds(rate(daemon))).await;
}

/// The channel proceeds at its least rate, and not much faster.
async fn proceeds_at_its_least(daemon: &Daemon) {
    waits_for(daemon, "the least rate", |rate| rate == Some(LEAST)).await;
    let total = || view(daemon)["applied_transactions_total"].as_f64().expect("a number");
    let (before, started) = (total(), Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let applied = (total() - before) / started.elapsed().as_secs_f64();
    assert!(applied > 0.6 * LEAST && applied < 1.6 * LEAST, "{applied} per second");
}

fn assert_metric(daemon: &Daemon, line: &str) {
    let metrics = daemon.metrics();
    assert!(metrics.lines().any(|one| one.starts_with(line)), "{line}\n{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn sessions_on_the_target_throttle_and_those_of_the_daemon_do_not() {
    // In memory commits are so quick that few workers are busy at a time.
    let source = || Server::start("source", &[]);
    let (source, target) = Server::both(source, || Server::start_on_disk("target", &[]));
    let options = LoadOptions { rate: Some(400.0), changes: 1, ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.worker_count", 16)
        // Each transaction keeps a worker busy.
        .set("applier.commit", "one-to-one")
        .set("throttle_by.threads_running", 4)
        .set("throttle_by.at_least", LEAST as i64)
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let load = Load::start(&source, &options);
    daemon.commanded(&["pause"]);
    tokio::time::sleep(Duration::from_secs(4)).await;
    daemon.commanded(&["resume"]);
    // Workers that execute are not what the limit is about.
    let begun = Instant::now();
    let mut busiest = 0;
    while begun.elapsed() < Duration::from_secs(5) {
        busiest =
            busiest.max(view(&daemon)["applier"]["workers"].as_array().expect("a list").len());
        assert_eq!(rate(&daemon), None, "{:#}", view(&daemon)["throttle_by"]);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(busiest > 4, "{busiest} workers");
    load.stop().await;
    // More than the least rate lets pass, as long as the throttle lasts.
    let load = Load::start(&source, &LoadOptions { rate: Some(3.0 * LEAST), ..options });
    assert_eq!(view(&daemon)["throttle_by"]["limits"][0]["exceeded"], false);
    assert_metric(&daemon, "csa_throttle_rate{channel=\"test\",reason=\"health\"} 0");

    let mut sleepers = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let mut conn = target.conn().await;
        sleepers.spawn(async move {
            // Ends with an error: it is killed.
            let _ = conn.query_drop("SELECT SLEEP(1000)").await;
        });
    }
    let reason = format!("threads_running of 127.0.0.1:{} is 12, limit 4", target.port);
    // The first looks may come before the last sleeper.
    eventually("the throttle", SETTLED, async || {
        let shown = view(&daemon);
        let detail = shown["state_detail"].as_str().expect("text");
        detail.contains("throttled to ") && detail.contains(&reason)
    })
    .await;
    proceeds_at_its_least(&daemon).await;
    let shown = view(&daemon);
    assert_eq!(shown["bottleneck"]["cause"], "throttle", "{shown:#}");
    let detail = shown["bottleneck"]["detail"].as_str().expect("text");
    assert!(detail.contains(&reason), "{detail}");
    assert_eq!(shown["settings"]["throttle"], 0, "the key is as it was");
    for (name, value) in [("rate", "20"), ("exceeded", "1"), ("value", "12"), ("limit", "4")] {
        let reason = if name == "rate" { "health" } else { "threads_running" };
        let labels = format!("channel=\"test\",reason=\"{reason}\"");
        assert_metric(&daemon, &format!("csa_throttle_{name}{{{labels}}} {value}"));
    }
    assert!(
        daemon.log().contains("throttled for the health of the target"),
        "{}",
        daemon.log_tail()
    );
    // The lower of the two throttles applies.
    daemon.commanded(&["set", "throttle", "5"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let total = |view: Value| view["applied_transactions_total"].as_f64().expect("a number");
    let before = total(view(&daemon));
    tokio::time::sleep(Duration::from_secs(4)).await;
    let applied = total(view(&daemon)) - before;
    assert!((10.0..=32.0).contains(&applied), "{applied} in 4 s");
    daemon.commanded(&["set", "throttle", "0"]);

    let running = "SELECT GROUP_CONCAT(ID) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT SLEEP%'";
    let all: String = target.value(running).await;
    let kill: String = all.split(',').map(|id| format!("KILL {id};")).collect();
    target.exec(&kill).await;
    waits_for(&daemon, "the release", |rate| rate.is_none()).await;
    sleepers.join_all().await;
    // The file decides at once.
    daemon.set("throttle_by.threads_running", 1000);
    daemon.write_config();
    let said = daemon.commanded(&["reload"]);
    assert!(said.contains("channel \"test\": throttle_by.threads_running: 4 -> 1000\n"), "{said}");
    eventually("the new limit", DRAIN, async || {
        view(&daemon)["throttle_by"]["limits"][0]["limit"] == 1000.0
    })
    .await;
    daemon.unset("throttle_by.threads_running");
    daemon.write_config();
    let said = daemon.commanded(&["reload"]);
    assert_eq!(said, "channel \"test\": throttle_by.threads_running: 1000 -> none\n");
    eventually("no limit", DRAIN, async || view(&daemon)["throttle_by"].is_null()).await;
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_query_throttles_and_its_silence_releases() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { rate: Some(3.0 * LEAST), changes: 1, ..LoadOptions::default() };
    prepare(&source, &options).await;
    target.exec("CREATE DATABASE health; CREATE TABLE health.t (v INT)").await;
    target.exec("INSERT INTO health.t VALUES (1)").await;
    let daemon = Daemon::builder(&source, &target)
        .set("throttle_by.query", "SELECT v FROM health.t")
        .set("throttle_by.query_limit", 10)
        .set("throttle_by.at_least", LEAST as i64)
        .start();
    wait_state(&daemon, 0, "running").await;
    let load = Load::start(&source, &options);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(view(&daemon)["throttle_by"]["limits"][0]["value"], 1.0);
    assert_eq!(rate(&daemon), None);
    target.exec("UPDATE health.t SET v=100").await;
    proceeds_at_its_least(&daemon).await;

    // A question that fails holds the rate for a while, and then nothing up.
    target.exec("RENAME TABLE health.t TO health.u").await;
    let unanswered = || {
        let why = view(&daemon)["throttle_by"]["limits"][0]["unanswered"].clone();
        why.as_str().unwrap_or_default().to_owned()
    };
    eventually("the failure", DRAIN, async || unanswered().contains("health.t")).await;
    assert_eq!(rate(&daemon), Some(LEAST));
    assert_metric(&daemon, "csa_throttle_unanswered{channel=\"test\",reason=\"query\"} 1");
    waits_for(&daemon, "the release", |rate| rate.is_none()).await;
    assert!(unanswered().starts_with("not counted, because unanswered for "), "{}", unanswered());
    let detail = view(&daemon)["state_detail"].as_str().expect("text").to_owned();
    assert!(detail.contains("throttle_by.query of "), "{detail}");
    assert!(daemon.log().contains("no longer counts"), "{}", daemon.log_tail());
    target.exec("RENAME TABLE health.u TO health.t").await;
    waits_for(&daemon, "the throttle again", |rate| rate.is_some()).await;

    // It may only read, and only numbers count.
    for (query, why) in [
        ("DELETE FROM health.t", "READ ONLY"),
        ("SELECT 'secret'", "it returned something other than a number"),
        ("SELECT NULL", "it returned NULL"),
        ("SELECT 1 FROM DUAL WHERE FALSE", "it returned no row"),
    ] {
        daemon.set("throttle_by.query", query);
        daemon.write_config();
        daemon.commanded(&["reload"]);
        eventually(query, DRAIN, async || unanswered().contains(why)).await;
        assert_eq!(rate(&daemon), None, "{query}");
    }
    assert_eq!(target.value::<u64>("SELECT COUNT(*) FROM health.t").await, 1);
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec("DROP DATABASE health").await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_lags_throttles_and_one_that_stopped_stops_nothing() {
    let (source, target) = Server::pair(&[], &[]);
    let replica = Server::start("replica", &[]);
    replica.follow(&target).await;
    let options = LoadOptions { rate: Some(3.0 * LEAST), changes: 1, ..LoadOptions::default() };
    prepare(&source, &options).await;
    let servers = |port: u16| {
        let mut server = toml::Table::new();
        server.insert("host".to_owned(), "127.0.0.1".into());
        server.insert("port".to_owned(), i64::from(port).into());
        vec![toml::Value::from(server)]
    };
    let daemon = Daemon::builder(&source, &target)
        .set("throttle_by.replica_lag", "2s")
        .set("throttle_by.replicas", servers(replica.port))
        .set("throttle_by.at_least", LEAST as i64)
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let load = Load::start(&source, &options);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(rate(&daemon).is_none(), "{:#}", view(&daemon)["throttle_by"]);
    replica.exec("STOP REPLICA SQL_THREAD").await;
    waits_for(&daemon, "the throttle", |rate| rate.is_some()).await;
    let detail = view(&daemon)["state_detail"].as_str().expect("text").to_owned();
    let reason = format!("replica_lag of 127.0.0.1:{} is ", replica.port);
    assert!(detail.contains(&reason) && detail.contains("limit 2"), "{detail}");
    // However long it stands still.
    proceeds_at_its_least(&daemon).await;
    replica.exec("START REPLICA SQL_THREAD").await;
    waits_for(&daemon, "the release", |rate| rate.is_none()).await;
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    let wanted = target.gtid_executed().await;
    let waited = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{wanted}', 60)");
    assert_eq!(replica.value::<u64>(&waited).await, 0);
    compare(&source, &target).await;
    // A replica that is away holds nothing up either, and is named.
    replica.stop();
    eventually("a replica that is away is named", DRAIN, async || {
        let limit = view(&daemon)["throttle_by"]["limits"][0].clone();
        limit["unanswered"].as_str().is_some_and(|why| why.contains("replica"))
    })
    .await;
    assert_eq!(rate(&daemon), None);
}
