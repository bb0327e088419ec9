//! Commands of an operator to a running daemon under a write load, and equality at the end.

use std::time::{Duration, Instant};

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use mysql_async::prelude::Queryable as _;
use serde_json::Value;

use crate::{DRAIN, wait_state};

/// Enough writes to hold something up, few enough to catch up with.
fn options() -> LoadOptions {
    LoadOptions { rate: Some(200.0), ..LoadOptions::default() }
}

fn view(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

pub(crate) fn number(view: &Value, field: &str) -> f64 {
    view[field].as_f64().unwrap_or_else(|| panic!("{field} of {view:#}"))
}

/// Returns the union of the checkpoint's rows.
async fn checkpoint(target: &Server) -> String {
    let mut conn = target.conn().await;
    let rows: Vec<String> =
        conn.query("SELECT gtid_executed FROM csa.checkpoint").await.expect("a checkpoint");
    conn.exec_first("SELECT GTID_SUBTRACT(?, '')", (rows.join(","),))
        .await
        .expect("a set")
        .expect("one")
}

/// Returns the GTIDs that the source has executed since `before`.
async fn gtids_since(source: &Server, before: &str) -> String {
    source.value(&format!("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, '{before}')")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_channel_continues_to_receive_and_resumes_where_it_was() {
    let (source, target) = Server::pair(&[], &[]);
    let options = options();
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target)
        .set("relay.segment_size", "1MiB")
        .set("relay.space_limit", "4MiB")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let load = Load::start(&source, &LoadOptions { rate: None, ..options });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let said = daemon.commanded(&["pause"]);
    assert!(said.contains("channel test is paused"), "{said}");
    let (before, executed) = (view(&daemon), checkpoint(&target).await);
    assert_eq!(daemon.get("/readyz").map(|answer| answer.0), Some(503));
    eventually("the relay store is full", Duration::from_secs(60), async || {
        !view(&daemon)["relay"]["waiting"].is_null()
    })
    .await;
    let after = view(&daemon);
    assert_eq!(after["state"], "paused");
    assert_eq!(after["applied_transactions_total"], before["applied_transactions_total"]);
    assert_eq!(checkpoint(&target).await, executed, "nothing is applied");
    assert!(number(&after, "backlog_transactions") > number(&before, "backlog_transactions"));
    assert!(number(&after, "lag_seconds") > 0.5, "{after:#}");
    let lag = number(&after, "lag_seconds");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(number(&view(&daemon), "lag_seconds") > lag + 0.9, "lag keeps growing");
    assert_eq!(view(&daemon)["bottleneck"]["cause"], "paused");
    load.stop().await;

    // A wait for transactions that are held up ends in time, and names the missing ones.
    let wanted = source.gtid_executed().await;
    let started = Instant::now();
    let said = daemon.command(&["wait", &wanted, "--timeout", "0.5"]);
    said.refused(1, &["not applied in time", "channel test is paused"]);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    daemon.command(&["wait", "nonsense"]).refused(2, &["nonsense", "GTID set"]);

    let said = daemon.commanded(&["resume"]);
    assert!(said.contains("channel test is running"), "{said}");
    assert_eq!(daemon.commanded(&["wait", &wanted, "--timeout", "120"]), "applied\n");
    compare(&source, &target).await;
    wait_state(&daemon, 0, "running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_stops_and_starts_again_with_an_exact_checkpoint() {
    let (source, target) = Server::pair(&[], &[]);
    let options = options();
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let load = Load::start(&source, &options);
    for how in [&["stop"][..], &["stop", "--now"], &["stop", "--timeout", "5"]] {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let started = Instant::now();
        let said = daemon.commanded(how);
        assert!(said.contains("channel test is stopped"), "{said}");
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        if how.contains(&"--now") {
            // The target rolls back the abandoned groups once it notices, a moment later.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let executed = checkpoint(&target).await;
        if !how.contains(&"--now") {
            assert_eq!(view(&daemon)["applied_transaction_set"], executed.replace('\n', ""));
        }
        // Each client's counter says how many of its transactions are here.
        let applied = "SELECT SUM(n) FROM sbtest.counter";
        let count: u64 = target.value(applied).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(checkpoint(&target).await, executed);
        assert_eq!(target.value::<u64>(applied).await, count, "nothing is applied");
        eventually("lag and backlog of what is received meanwhile", DRAIN, async || {
            let view = view(&daemon);
            number(&view, "backlog_transactions") > 0.0 && number(&view, "lag_seconds") > 0.0
        })
        .await;
        daemon.command(&["stop"]).refused(1, &["channel test is stopped", "restart"]);
        daemon.command(&["pause"]).refused(1, &["channel test is stopped", "restart"]);
        daemon.commanded(&["restart"]);
        wait_state(&daemon, 0, "running").await;
    }
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "running").await;
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let view = view(&daemon);
    assert_eq!(view["backlog_transactions"], 0);
    assert!(view["last_error"].is_null(), "{view:#}");
    assert!(daemon.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_stopped_the_channel_is_repaired_or_skipped() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1, 1), (2, 2), (3, 3)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let gtid = source.gtid_executed().await.replace(":1-", ":");
    daemon.command(&["skip", &gtid]).refused(1, &["channel test runs"]);

    // Repaired on the target, the channel resumes without a restart of the process.
    target.exec("DELETE FROM d.t WHERE id = 1").await;
    source.exec("UPDATE d.t SET v = 10 WHERE id = 1").await;
    wait_state(&daemon, 0, "failed").await;
    let pid = daemon.pid();
    daemon.commanded(&["restart"]);
    wait_state(&daemon, 0, "failed").await;
    target.exec("INSERT INTO d.t VALUES (1, 1)").await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;

    // Skips that transaction and no other.
    target.exec("DELETE FROM d.t WHERE id = 2").await;
    let before = source.gtid_executed().await;
    source.exec("UPDATE d.t SET v = 20 WHERE id = 2").await;
    let gtid = gtids_since(&source, &before).await;
    source.exec("UPDATE d.t SET v = 30 WHERE id = 3").await;
    wait_state(&daemon, 0, "failed").await;
    assert_eq!(view(&daemon)["last_error"]["transaction"], gtid.as_str());
    let other = gtids_since(&source, &format!("{before},{gtid}")).await;
    daemon.command(&["skip", &other]).refused(1, &[&gtid, "not at"]);
    daemon.command(&["skip", "all"]).refused(2, &["all"]);
    let number = view(&daemon)["last_error"]["number"].as_u64().filter(|&number| number > 0);
    for line in [
        format!("csa_channel_error_number{{channel=\"test\"}} {}\n", number.expect("a number")),
        "csa_applier_skipped_total{channel=\"test\"} 0\n".to_owned(),
    ] {
        assert!(daemon.metrics().contains(&line), "{line}: {}", daemon.metrics());
    }
    let said = daemon.commanded(&["skip", &gtid]);
    assert!(said.contains("csa.audit"), "{said}");
    daemon.wait_drained(&source, &target, DRAIN).await;
    let rows: u64 = target.value("SELECT COUNT(*) FROM d.t WHERE id = 2").await;
    assert_eq!(rows, 0, "nothing of it was applied");
    let audit = "SELECT CONCAT_WS('|', channel, action, gtid, `by`, peer LIKE 'uid %, pid %') \
                 FROM csa.audit WHERE action = 'skip'";
    let audited: String = target.value(audit).await;
    assert_eq!(audited, format!("test|skip|{gtid}|tester|1"));
    assert!(daemon.log().contains("transaction skipped"), "{}", daemon.log_tail());
    target.exec("INSERT INTO d.t VALUES (2, 20)").await;
    compare(&source, &target).await;

    // A transaction that can't even be received is skipped the same way.
    let before = source.gtid_executed().await;
    let mut conn = source.conn().await;
    conn.query_drop("SET SESSION binlog_format=MIXED").await.expect("allowed");
    let creation = "CREATE TABLE d.copied (id INT PRIMARY KEY) AS SELECT 4 AS id";
    conn.query_drop(creation).await.expect("creates");
    let gtid = gtids_since(&source, &before).await;
    source.exec("INSERT INTO d.t VALUES (5, 5)").await;
    wait_state(&daemon, 0, "failed").await;
    assert_eq!(view(&daemon)["last_error"]["transaction"], gtid.as_str());
    daemon.commanded(&["skip", &gtid]);
    let counted = "csa_applier_skipped_total{channel=\"test\"} 2\n";
    assert!(daemon.metrics().contains(counted), "{}", daemon.metrics());
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.exec(creation).await;
    compare(&source, &target).await;
    assert_eq!(
        target.value::<u64>("SELECT COUNT(*) FROM csa.audit WHERE action = 'skip'").await,
        2
    );
    assert_eq!(daemon.pid(), pid);
    wait_state(&daemon, 0, "running").await;
    assert!(daemon.terminate().success(), "what was overcome is no failure of the process");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn settings_change_under_load() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { rate: Some(300.0), ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).set("applier.worker_count", 2).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let load = Load::start(&source, &options);
    let second = Duration::from_secs(1);
    for count in ["16", "1", "2", "16", "1"] {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let said = daemon.commanded(&["set", "worker_count", count]);
        assert!(said.ends_with(&format!("-> {count}\n")), "{said}");
        let wanted: usize = count.parse().expect("a number");
        eventually("the number of workers", second, async || {
            let rows: u64 = target.value("SELECT COUNT(*) FROM csa.checkpoint").await;
            let workers = view(&daemon)["applier"]["workers"].as_array().expect("a list").len();
            workers <= wanted && rows as usize >= wanted
        })
        .await;
    }
    assert_eq!(view(&daemon)["settings"]["worker_count"], 1);
    daemon.commanded(&["set", "worker_count", "8"]);

    daemon.commanded(&["set", "throttle", "40"]);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let total = |view: &Value| number(view, "applied_transactions_total");
    let (before, started) = (total(&view(&daemon)), Instant::now());
    tokio::time::sleep(Duration::from_secs(6)).await;
    let throttled = view(&daemon);
    let allowed = 40.0 * started.elapsed().as_secs_f64();
    let applied = total(&throttled) - before;
    assert!(applied <= allowed + 20.0 && applied >= allowed * 0.7, "{applied} of {allowed}");
    assert_eq!(throttled["bottleneck"]["cause"], "throttle", "{throttled:#}");
    assert!(number(&throttled, "backlog_transactions") > 0.0);
    daemon.commanded(&["set", "throttle", "0"]);

    daemon.commanded(&["set", "event_memory_limit", "80MiB"]);
    assert_eq!(view(&daemon)["event_memory"]["limit_bytes"], 80 << 20);
    assert!(!daemon.log().contains("DEBUG"));
    daemon.commanded(&["set", "log_filter", "debug"]);
    eventually("debug lines", DRAIN, async || daemon.log().contains("DEBUG")).await;
    daemon.commanded(&["set", "log_filter", "info"]);
    assert_eq!(daemon.status()["daemon"]["log_filter"], "info");
    for (setting, value) in [
        ("worker_count", "0"),
        ("worker_count", "many"),
        ("event_memory_limit", "much"),
        ("throttle", "-1"),
        ("log_filter", "csa=loud"),
        ("source_host", "elsewhere"),
    ] {
        daemon.command(&["set", setting, "--", value]).refused(2, &[setting]);
    }
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let view = view(&daemon);
    assert!(view["last_error"].is_null(), "{view:#}");
    let rows: u64 = target.value("SELECT COUNT(*) FROM csa.checkpoint").await;
    assert_eq!(rows, 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_throttled_channel_comes_to_rest_once_what_runs_is_committed() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1, 0)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["set", "throttle", "1"]);
    for (rest, back) in [("pause", "resume"), ("stop", "restart")] {
        let mut lock = target.conn().await;
        lock.query_drop("BEGIN; UPDATE d.t SET v = -1").await.expect("a lock");
        // In one packet: the rate holds something back while the first group waits.
        source.exec(&"UPDATE d.t SET v = v + 1;".repeat(20)).await;
        let waits = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";
        eventually("a group waits", DRAIN, async || target.value::<u64>(waits).await > 0).await;
        let release = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            lock.query_drop("ROLLBACK").await.expect("let go");
        });
        // It fails where what runs does not end within `stop_timeout`.
        daemon.commanded(&[rest]);
        release.await.expect("let go");
        assert!(number(&view(&daemon), "backlog_transactions") > 0.0, "nothing was held back");
        daemon.commanded(&[back]);
        wait_state(&daemon, 0, "running").await;
    }
    daemon.commanded(&["set", "throttle", "0"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_relay_store_is_looked_into_and_values_are_shown_only_on_request() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d").await;
    source.exec("CREATE TABLE d.t (a INT, b INT, v VARCHAR(50), PRIMARY KEY (b, a))").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["pause"]);
    let before = source.gtid_executed().await;
    source.exec("INSERT INTO d.t VALUES (1, 2, 'tell nobody'), (3, 4, NULL)").await;
    let first = gtids_since(&source, &before).await;
    source.exec("UPDATE d.t SET v = 'other' WHERE a = 1").await;
    source.exec("DELETE FROM d.t WHERE a = 3").await;
    source.exec("CREATE USER somebody@'%' IDENTIFIED BY 'hidden words'").await;
    eventually("all is received", DRAIN, async || {
        number(&view(&daemon), "backlog_transactions") == 4.0
    })
    .await;
    let listed = daemon.commanded(&["relay", "ls"]);
    assert!(listed.lines().count() >= 2 && listed.starts_with("SEGMENT"), "{listed}");
    let dump = |arguments: &[&str]| daemon.commanded(&[&["relay", "dump"], arguments].concat());
    let since = gtids_since(&source, &before).await;
    let shown = dump(&["--gtid-set", &since]);
    for line in [
        "### INSERT d.t  2 rows  key @2,@1",
        "### UPDATE d.t  1 rows  key @2,@1",
        "### DELETE d.t  1 rows  key @2,@1",
        "### CREATE USER",
        "# 4 transactions",
    ] {
        assert!(shown.contains(line), "{line:?} is missing in\n{shown}");
    }
    for secret in ["tell nobody", "hidden words", "caching_sha2"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let shown = dump(&["--gtid-set", &first, "--rows"]);
    for line in ["@1=1", "@2=2", "@3='tell nobody'", "@3=NULL", "# 1 transaction\n"] {
        assert!(shown.contains(line), "{line:?} is missing in\n{shown}");
    }
    assert!(dump(&["--limit", "1"]).contains("there are more"));
    // The dump works in every state of the channel.
    daemon.commanded(&["stop"]);
    let shown = dump(&["--gtid-set", &since, "--rows"]);
    for line in ["### UPDATE d.t", "@3='other'", "###   WHERE", "IDENTIFIED", "# 4 transactions"] {
        assert!(shown.contains(line), "{line:?} is missing in\n{shown}");
    }
    daemon.commanded(&["restart"]);
    daemon.commanded(&["resume"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skip_fills_the_gap_in_a_target_with_the_sources_gtids() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    source.exec("INSERT INTO d.t VALUES (1, 1), (2, 2)").await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.commit", "one-to-one")
        .set("applier.target_gtids", "source")
        .start();
    let level = async || target.gtid_executed().await == source.gtid_executed().await;
    eventually("the same GTIDs", DRAIN, level).await;
    target.exec("SET sql_log_bin=0; DELETE FROM d.t WHERE id = 1").await;
    let before = source.gtid_executed().await;
    source.exec("UPDATE d.t SET v = 10 WHERE id = 1").await;
    let gtid = gtids_since(&source, &before).await;
    source.exec("UPDATE d.t SET v = 20 WHERE id = 2").await;
    wait_state(&daemon, 0, "failed").await;
    daemon.commanded(&["skip", &gtid]);
    eventually("the same GTIDs again", DRAIN, level).await;
    assert_eq!(target.value::<u64>("SELECT v FROM d.t WHERE id = 2").await, 20);
    assert_eq!(target.value::<String>("SELECT gtid FROM csa.audit").await, gtid);
    target.exec("SET sql_log_bin=0; INSERT INTO d.t VALUES (1, 10)").await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_says_that_it_gave_up_what_ran_on_a_target_that_is_away() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = Daemon::builder(&source, &target).start();
    let mut conn = source.conn().await;
    let rows = "CREATE SCHEMA app; CREATE TABLE app.t (id INT PRIMARY KEY, n INT); INSERT INTO app.t VALUES (1,0)";
    conn.query_drop(rows).await.expect("rows");
    daemon.wait_drained(&source, &target, DRAIN).await;
    let mut lock = target.conn().await;
    lock.query_drop("BEGIN; UPDATE app.t SET n=-1 WHERE id=1").await.expect("a lock");
    conn.query_drop("UPDATE app.t SET n=1 WHERE id=1").await.expect("an update");
    let waits = "SELECT COUNT(*) FROM performance_schema.data_lock_waits";
    eventually("a group waits", DRAIN, async || target.value::<u64>(waits).await > 0).await;
    target.kill9();
    wait_state(&daemon, 0, "waiting_for_target").await;
    daemon.command(&["stop"]).refused(1, &["channel test", "given up", "the next start"]);
    target.restart();
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert_eq!(target.value::<i64>("SELECT n FROM app.t").await, 1);
}
