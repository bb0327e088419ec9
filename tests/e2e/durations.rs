//! Histograms of the steps of replication: what they count, and how they relate.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use csa_tests::{Daemon, Server, compare, eventually};
use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::DRAIN;

/// The time for which a row is locked on the target.
const LOCKED: Duration = Duration::from_secs(3);
/// Part of it that has to be seen: the rest is for the way of a transaction on a busy machine.
const SEEN: f64 = 2.0;

/// Seconds that a COMMIT with two fsyncs takes at least.
const COMMIT: f64 = 0.0002;

/// The values of a scrape, by name and labels.
pub(crate) struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    pub(crate) fn of(daemon: &Daemon) -> Self {
        let text = daemon.metrics();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(pairs.collect())
    }

    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> f64 {
        let name = format!("{name}{{channel=\"test\"}}");
        *self.0.get(&name).unwrap_or_else(|| panic!("{name} is not served"))
    }

    #[track_caller]
    pub(crate) fn count(&self, step: &str) -> f64 {
        self.value(&format!("csa_{step}_seconds_count"))
    }

    #[track_caller]
    fn sum(&self, step: &str) -> f64 {
        self.value(&format!("csa_{step}_seconds_sum"))
    }

    /// Returns the buckets of a step in the order of their bounds.
    fn buckets(&self, step: &str) -> Vec<(f64, f64)> {
        let prefix = format!("csa_{step}_seconds_bucket{{channel=\"test\",le=\"");
        let of_step = self.0.iter().filter_map(|(name, value)| {
            let bound = name.strip_prefix(&prefix)?.strip_suffix("\"}")?;
            Some((bound.parse().expect("a bound"), *value))
        });
        let mut buckets: Vec<(f64, f64)> = of_step.collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }
}

/// The parts of a group's time in the applier, which follow each other.
const PARTS: [&str; 6] = [
    "scheduler_group_formation",
    "applier_preparation",
    "applier_dependency_wait",
    "applier_statement",
    "applier_commit_order_wait",
    "applier_commit",
];
const OTHERS: [&str; 4] =
    ["provider_reception", "relaystore_sync", "scheduler_admission_wait", "end_to_end"];

/// Each counts what it should, and the parts are no more than the whole.
#[track_caller]
fn check(scrape: &Scrape) {
    let groups = scrape.value("csa_applier_groups_total");
    let of_rows = groups - scrape.value("csa_applier_statements_total");
    let received = scrape.value("csa_provider_transactions_total");
    assert_eq!(scrape.count("provider_reception"), received);
    assert_eq!(scrape.count("relaystore_sync"), scrape.value("csa_relaystore_syncs_total"));
    assert_eq!(
        scrape.count("scheduler_admission_wait"),
        scrape.value("csa_applier_transactions_total")
    );
    for of_groups in ["scheduler_group_formation", "applier_statement", "end_to_end"] {
        assert_eq!(scrape.count(of_groups), groups, "{of_groups}");
    }
    for part in ["preparation", "dependency_wait", "commit_order_wait", "commit"]
        .map(|p| format!("applier_{p}"))
    {
        assert_eq!(scrape.count(&part), of_rows, "{part}");
    }
    for step in PARTS.iter().chain(&OTHERS) {
        let buckets = scrape.buckets(step);
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{step}: {buckets:?}");
        let bounds = (buckets.first().map(|b| b.0), buckets.last().map(|b| b.0));
        assert_eq!(bounds, (Some(0.0002), Some(f64::INFINITY)), "{step}");
        assert_eq!(buckets.last().map(|bucket| bucket.1), Some(scrape.count(step)), "{step}");
        // The buckets and the sum are of the same durations.
        let filled = buckets.windows(2).filter(|pair| pair[1].1 > pair[0].1);
        let most: f64 = filled.map(|pair| (pair[1].1 - pair[0].1) * pair[1].0).sum();
        let most = most + buckets[0].1 * buckets[0].0;
        assert!(scrape.sum(step) <= most, "{step}: {} of {most}", scrape.sum(step));
    }
    let parts: f64 = PARTS.iter().map(|part| scrape.sum(part)).sum();
    assert!(parts <= scrape.sum("end_to_end"), "{parts} of {}", scrape.sum("end_to_end"));
    for busy in ["provider_reception", "relaystore_sync", "applier_statement", "applier_commit"] {
        assert!(scrape.sum(busy) > 0.0, "{busy}");
    }
}

async fn settled(daemon: &Daemon, source: &Server, target: &Server) -> Scrape {
    daemon.wait_drained(source, target, DRAIN).await;
    // A group is reported a moment after its commit can be seen.
    eventually("all groups are reported", DRAIN, async || {
        let scrape = Scrape::of(daemon);
        scrape.count("provider_reception") == scrape.value("csa_applier_transactions_total")
            && !daemon.metrics().contains("\"preparing\"} 1")
    })
    .await;
    Scrape::of(daemon)
}

async fn lock(target: &Server, id: u32) -> Conn {
    let mut conn = target.conn().await;
    conn.query_drop("BEGIN").await.expect("begins");
    let lock = format!("SELECT v FROM d.t WHERE id={id} FOR UPDATE");
    conn.query_drop(lock).await.expect("locks");
    conn
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_counts_and_the_parts_are_less_than_the_whole() {
    let source = || Server::start("source", &[]);
    let (source, target) = Server::both(source, || Server::start_on_disk("target", &[]));
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    let daemon = Daemon::builder(&source, &target).set("relay.sync", "transaction").start();
    let mut conn = source.conn().await;
    for id in 1..=10 {
        conn.query_drop(format!("INSERT INTO d.t VALUES ({id}, 0)")).await.expect("inserts");
        daemon.wait_drained(&source, &target, DRAIN).await;
    }
    let before = settled(&daemon, &source, &target).await;
    check(&before);
    assert!(before.count("applier_commit") >= 9.0, "one by one");
    // Each was one packet with its COMMIT, whose part is known all the same.
    let commit = before.sum("applier_commit") / before.count("applier_commit");
    assert!(commit >= COMMIT, "{commit} s");

    // The first group waits for a row lock in its statement, the second has applied its own row and waits
    // for the first, and the third can't be formed while two small ones run.
    let held = lock(&target, 1).await;
    for id in 1..=3 {
        conn.query_drop(format!("UPDATE d.t SET v=1 WHERE id={id}")).await.expect("updates");
        let begun = format!("group {id} is in the applier");
        eventually(&begun, DRAIN, async || {
            let view = &daemon.status()["channels"][0];
            view["applier"]["workers"].as_array().map(Vec::len) == Some(id.min(2))
                && view["applier"]["waiting_transactions"] == u64::from(id == 3)
        })
        .await;
    }
    tokio::time::sleep(LOCKED).await;
    drop(held);
    let after = settled(&daemon, &source, &target).await;
    check(&after);
    for step in [
        "applier_statement",
        "applier_commit_order_wait",
        "scheduler_group_formation",
        "end_to_end",
    ] {
        let grown = after.sum(step) - before.sum(step);
        assert!(grown >= SEEN, "{step} has grown by {grown} s");
    }
    for step in ["applier_preparation", "applier_dependency_wait", "applier_commit"] {
        let grown = after.sum(step) - before.sum(step);
        assert!(grown < SEEN, "{step} has grown by {grown} s");
    }

    // A row that a group in flight has changed as well waits for that group.
    let held = lock(&target, 1).await;
    for value in 2..=3 {
        conn.query_drop(format!("UPDATE d.t SET v={value} WHERE id=1")).await.expect("updates");
        eventually("it is in the applier", DRAIN, async || {
            let view = &daemon.status()["channels"][0];
            view["applier"]["workers"].as_array().map(Vec::len) == Some(value - 1)
        })
        .await;
    }
    tokio::time::sleep(LOCKED).await;
    drop(held);
    let last = settled(&daemon, &source, &target).await;
    check(&last);
    let grown = last.sum("applier_dependency_wait") - after.sum("applier_dependency_wait");
    assert!(grown >= SEEN, "the wait for the same row: {grown} s");

    // The same figures are in the status.
    let durations = &daemon.status()["channels"][0]["durations"];
    assert_eq!(durations["end_to_end"]["count"].as_f64(), Some(last.count("end_to_end")));
    compare(&source, &target).await;
    assert!(daemon.terminate().success());
}

/// Transactions wait for memory that others hold, and the histogram says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_memory_is_a_wait_for_admission() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)").await;
    source.exec("INSERT INTO d.t VALUES (1, '')").await;
    let daemon =
        Daemon::builder(&source, &target).set("applier.event_memory_limit", "64MiB").start();
    let before = settled(&daemon, &source, &target).await;
    assert!(before.sum("scheduler_admission_wait") < SEEN);
    let held = lock(&target, 1).await;
    source.exec("UPDATE d.t SET v='x' WHERE id=1").await;
    // Each takes several times its bytes, so eight do not fit.
    for id in 2..=9 {
        source.exec(&format!("INSERT INTO d.t VALUES ({id}, REPEAT('x', 6000000))")).await;
    }
    tokio::time::sleep(LOCKED).await;
    drop(held);
    let after = settled(&daemon, &source, &target).await;
    check(&after);
    let grown = after.sum("scheduler_admission_wait") - before.sum("scheduler_admission_wait");
    assert!(grown >= SEEN, "{grown} s");
    compare(&source, &target).await;
    assert!(daemon.terminate().success());
}

/// Returns the steps of the last start, in order.
fn start(daemon: &Daemon) -> Vec<(String, f64)> {
    let view = &daemon.status()["channels"][0];
    let steps = view["start"].as_array().expect("steps").iter();
    let step = |step: &Value| {
        let (name, seconds) = (step["step"].as_str(), step["seconds"].as_f64());
        (name.expect("a name").to_owned(), seconds.expect("a time"))
    };
    steps.map(step).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_says_how_long_its_steps_took() {
    const BEFORE: [&str; 5] = ["target", "position", "source", "claim", "relay_store"];
    const AFTER: [&str; 3] = ["first_transaction", "definitions", "first_group"];
    let (source, target) = Server::pair(&[], &[]);
    let begun = Instant::now();
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let names = |steps: &[(String, f64)]| -> Vec<String> {
        steps.iter().map(|(name, _)| name.clone()).collect()
    };
    // Nothing has been applied yet.
    eventually("the channel is open", DRAIN, async || names(&start(&daemon)) == BEFORE).await;
    tokio::time::sleep(LOCKED).await;
    source.exec("CREATE DATABASE d").await;
    let all = [&BEFORE[..], &AFTER[..]].concat();
    eventually("the first group", DRAIN, async || names(&start(&daemon)) == all).await;
    let steps = start(&daemon);
    let sum: f64 = steps.iter().map(|(_, seconds)| seconds).sum();
    assert!(sum > SEEN && sum <= begun.elapsed().as_secs_f64(), "{steps:?}");
    assert!(steps[5].1 >= SEEN, "the wait for something to apply: {steps:?}");
    assert!(steps[0].1 > 0.0 && steps[3].1 > 0.0, "{steps:?}");
    let metrics = daemon.metrics();
    for (step, seconds) in &steps {
        let line = format!("csa_start_seconds{{channel=\"test\",step=\"{step}\"}} {seconds}");
        assert!(metrics.lines().any(|one| one == line), "{line}");
    }
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("first group committed since the start"));
    let line = line.unwrap_or_else(|| panic!("{}", daemon.log_tail()));
    for step in &all {
        assert!(line.contains(&format!("{step} ")), "{line}");
    }
    assert_eq!(log.matches("first group committed since the start").count(), 1);

    // Another start has steps of its own.
    daemon.commanded(&["restart"]);
    eventually("open again", DRAIN, async || names(&start(&daemon)) == BEFORE).await;
    source.exec("CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    eventually("its first group", DRAIN, async || names(&start(&daemon)) == all).await;
    assert_eq!(daemon.log().matches("first group committed since the start").count(), 2);
    compare(&source, &target).await;
}
