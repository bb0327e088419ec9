//! Receiving is independent of the applier: whatever state that is in, the source may purge.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};
use serde_json::Value;

use crate::{DRAIN, wait_state};

fn view(daemon: &Daemon) -> Value {
    daemon.status()["channels"][0].clone()
}

async fn dumps(source: &Server) -> u64 {
    let query = "SELECT COUNT(*) FROM performance_schema.processlist \
                 WHERE command LIKE 'Binlog Dump%'";
    source.value(query).await
}

/// Waits until all writes are received, and has the source purge them.
async fn purge(daemon: &Daemon, source: &Server) {
    let executed = source.gtid_executed().await;
    eventually("all is received", DRAIN, async || {
        view(daemon)["received_transaction_set"] == executed.as_str()
    })
    .await;
    purge_all(source, &executed).await;
}

/// Has the source purge everything that it has executed.
async fn purge_all(source: &Server, executed: &str) {
    source.exec("FLUSH BINARY LOGS").await;
    let file = newest_log(source).await;
    // A log that a dump still reads is kept, with a warning.
    eventually("nothing is left on the source", DRAIN, async || {
        source.exec(&format!("PURGE BINARY LOGS TO '{file}'")).await;
        let purged: String = source.value("SELECT @@GLOBAL.gtid_purged").await;
        purged.replace('\n', "") == executed.replace('\n', "")
    })
    .await;
}

async fn newest_log(source: &Server) -> String {
    use mysql_async::prelude::Queryable as _;
    let mut conn = source.conn().await;
    let row: Option<mysql_async::Row> =
        conn.query_first("SHOW BINARY LOG STATUS").await.expect("a status");
    row.and_then(|row| row.get(0)).expect("a file name")
}

async fn insert(source: &Server, ids: std::ops::Range<u32>) {
    for id in ids {
        source.exec(&format!("INSERT INTO d.t VALUES ({id}, {id})")).await;
    }
}

/// The source refuses the stream for a while, and then serves it again.
async fn end_reception_for_a_while(daemon: &Daemon, source: &Server) {
    for mode in ["ON_PERMISSIVE", "OFF_PERMISSIVE"] {
        source.exec(&format!("SET GLOBAL gtid_mode={mode}")).await;
    }
    let dump: u64 = source
        .value("SELECT id FROM performance_schema.processlist WHERE command LIKE 'Binlog Dump%'")
        .await;
    source.exec(&format!("KILL {dump}")).await;
    eventually("reception ends", DRAIN, async || {
        view(daemon)["connection"]["service_state"] == "OFF"
    })
    .await;
    for mode in ["ON_PERMISSIVE", "ON"] {
        source.exec(&format!("SET GLOBAL gtid_mode={mode}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn reception_that_the_source_ended_for_a_while_begins_again() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    insert(&source, 1..3).await;
    let daemon = Daemon::builder(&source, &target)
        .set("target.connect_retry", "100ms")
        .env("CSA_TEST_HASTE", "200")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let received = async |what: &str, backlog: u64| {
        eventually(what, DRAIN, async || view(&daemon)["backlog_transactions"] == backlog).await;
    };

    // Something is left to apply, so the pipeline would not meet the end of reception for long.
    daemon.commanded(&["pause"]);
    insert(&source, 3..5).await;
    received("the backlog of a paused channel", 2).await;
    end_reception_for_a_while(&daemon, &source).await;
    insert(&source, 5..7).await;
    received("what came after the refusal", 4).await;

    daemon.commanded(&["stop"]);
    end_reception_for_a_while(&daemon, &source).await;
    insert(&source, 7..9).await;
    received("what came while the channel was stopped", 6).await;

    daemon.commanded(&["restart"]);
    daemon.commanded(&["resume"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.stop();
    wait_state(&daemon, 0, "waiting_for_target").await;
    end_reception_for_a_while(&daemon, &source).await;
    insert(&source, 9..11).await;
    received("what came while the target was away", 2).await;
    target.restart();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_failed_or_is_stopped_continues_to_receive() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    insert(&source, 1..3).await;
    let daemon = Daemon::builder(&source, &target).set("target.connect_retry", "100ms").start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let connects = view(&daemon)["connection"]["connects_total"].clone();

    // Failed: the figures stay, and the source may purge.
    target.exec("DELETE FROM d.t WHERE id = 1").await;
    source.exec("UPDATE d.t SET v = 10 WHERE id = 1").await;
    wait_state(&daemon, 0, "failed").await;
    insert(&source, 3..23).await;
    eventually("the backlog of a failed channel", DRAIN, async || {
        let view = view(&daemon);
        view["state"] == "failed"
            && view["backlog_transactions"] == 21
            && view["lag_seconds"].as_f64().is_some_and(|lag| lag > 0.5)
            && view["relay"]["bytes"].as_u64() > Some(2000)
    })
    .await;
    let failed = view(&daemon);
    assert_eq!(failed["connection"]["service_state"], "ON", "{failed:#}");
    let metrics = daemon.metrics();
    for line in [
        "csa_backlog_transactions{channel=\"test\"} 21\n",
        "csa_channel_state{channel=\"test\",state=\"failed\"} 1\n",
        "csa_provider_connected{channel=\"test\"} 1\n",
        "csa_lag_seconds{channel=\"test\"} ",
    ] {
        assert!(metrics.contains(line), "{line:?} is missing in\n{metrics}");
    }
    purge(&daemon, &source).await;
    target.exec("INSERT INTO d.t VALUES (1, 1)").await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let now = view(&daemon);
    assert!(now["last_error"].is_null(), "{now:#}");
    assert_eq!(now["connection"]["connects_total"], connects, "the link was never down");

    // Stopped: the same; ended with --all.
    let said = daemon.commanded(&["stop"]);
    assert!(said.contains("stopped on request; still receiving"), "{said}");
    insert(&source, 23..28).await;
    eventually("the backlog of a stopped channel", DRAIN, async || {
        let view = view(&daemon);
        view["backlog_transactions"] == 5 && view["lag_seconds"].as_f64().is_some()
    })
    .await;
    assert_eq!(dumps(&source).await, 1);
    daemon.command(&["stop"]).refused(1, &["channel test is stopped", "restart"]);
    purge(&daemon, &source).await;
    daemon.commanded(&["stop", "--receiving"]);
    daemon.command(&["stop", "--receiving"]).refused(1, &["channel test is stopped", "restart"]);
    let ended = view(&daemon);
    assert_eq!(ended["connection"]["service_state"], "OFF", "{ended:#}");
    assert_eq!(ended["backlog_transactions"], 5, "{ended:#}");
    eventually("the dump ends", DRAIN, async || dumps(&source).await == 0).await;
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;

    // Advice depends on the cause: a number in a GTID is no error number, although 1236 is the source's
    // error for purged binary logs.
    let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1236";
    source
        .exec(&format!(
            "SET SESSION binlog_format=STATEMENT; SET gtid_next='{gtid}'; \
             INSERT INTO d.t VALUES (100, 100); SET gtid_next=AUTOMATIC"
        ))
        .await;
    wait_state(&daemon, 0, "failed").await;
    let error = view(&daemon)["last_error"].clone();
    assert_eq!(error["transaction"], gtid, "{error:#}");
    assert!(error["message"].to_string().contains(":1236"), "{error:#}");
    let advice = error["ways_on"][0].as_str().expect("a text");
    assert!(advice.contains("what the message names"), "{error:#}");
    daemon.commanded(&["skip", gtid]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    // The skip is recorded before the channel starts, and reception resumes with the start.
    wait_state(&daemon, 0, "running").await;
    target.exec("INSERT INTO d.t VALUES (100, 100)").await;
    compare(&source, &target).await;

    // A process that starts while the target is down continues receiving after its relay store.
    target.stop();
    wait_state(&daemon, 0, "waiting_for_target").await;
    insert(&source, 28..31).await;
    purge(&daemon, &source).await;
    daemon.kill9();
    insert(&source, 31..36).await;
    daemon.start_again();
    wait_state(&daemon, 0, "waiting_for_target").await;
    purge(&daemon, &source).await;
    target.restart();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    eventually("the dump ends", Duration::from_secs(10), async || dumps(&source).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_limit_counts_while_the_target_is_away() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB)").await;
    insert(&source, 1..3).await;
    let daemon = Daemon::builder(&source, &target)
        .set("target.connect_retry", "100ms")
        .set("relay.segment_size", "1MiB")
        .set("relay.space_limit", "4MiB")
        .set("daemon.stop_timeout", "3s")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    target.stop();
    wait_state(&daemon, 0, "waiting_for_target").await;
    for id in 3..15 {
        source.exec(&format!("INSERT INTO d.t VALUES ({id}, REPEAT('x', 1 << 20))")).await;
    }
    eventually("the relay store is full", DRAIN, async || {
        !view(&daemon)["relay"]["waiting"].is_null()
    })
    .await;
    let executed = source.gtid_executed().await;
    assert_ne!(view(&daemon)["received_transaction_set"], executed.as_str());

    daemon.set("relay.space_limit", "64MiB");
    daemon.write_config();
    let said = daemon.commanded(&["reload"]);
    assert!(said.contains("relay.space_limit"), "{said}");
    // The target is still away.
    purge(&daemon, &source).await;
    let relay = view(&daemon)["relay"].clone();
    assert_eq!(relay["space_limit_bytes"], 64 << 20, "{relay:#}");
    assert!(relay["waiting"].is_null() && relay["bytes"].as_u64() > Some(8 << 20), "{relay:#}");
    target.restart();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

/// Files and folders under a folder that others than the owner could use, with their modes.
fn open_to_others(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("readable") {
        let path = entry.expect("an entry").path();
        let metadata = std::fs::metadata(&path).expect("there");
        let mode = metadata.permissions().mode() & 0o777;
        let wanted = if metadata.is_dir() { 0o700 } else { 0o600 };
        if mode != wanted {
            found.push(format!("{} {mode:o}", path.display()));
        }
        if metadata.is_dir() {
            found.extend(open_to_others(&path));
        }
    }
    found
}

fn chmod(modes: &str, path: &Path) {
    let done = Command::new("chmod").args(["-R", modes]).arg(path).status().expect("runs");
    assert!(done.success(), "chmod -R {modes} {}", path.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn state_is_for_its_owner_alone_whatever_the_umask() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    let daemon = Daemon::builder(&source, &target).umask(0).start();
    insert(&source, 1..3).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    // This has everything written to files.
    daemon.commanded(&["relay", "ls"]);
    let channel = daemon.state_dir().join("test");
    let own = std::fs::metadata(&channel).expect("a folder").permissions().mode() & 0o777;
    assert_eq!(own, 0o700);
    assert!(channel.join("relay").read_dir().expect("a folder").count() > 1);
    assert_eq!(open_to_others(&channel), Vec::<String>::new());
    // Files as an earlier version left them.
    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    chmod("a+rX", &channel);
    assert_ne!(open_to_others(&channel), Vec::<String>::new());
    daemon.start_again();
    insert(&source, 3..5).await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert_eq!(open_to_others(&channel), Vec::<String>::new());
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_keeps_up_writes_nothing() {
    let (source, target) = Server::pair(&[], &[]);
    let load = LoadOptions {
        tables: 2,
        rows: 200,
        clients: 2,
        rate: Some(200.0),
        ..LoadOptions::default()
    };
    prepare(&source, &load).await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let written = || view(&daemon)["relay"]["written_bytes_total"].as_u64().expect("a number");
    let running = Load::start(&source, &load);
    // Whoever else uses the machine may hold the target up for longer than the sync interval.
    let mut before = written();
    eventually("nothing is written while much is applied", DRAIN, async || {
        let applied_before = applied(&daemon);
        before = written();
        tokio::time::sleep(Duration::from_secs(2)).await;
        written() == before && applied(&daemon) > applied_before + 100
    })
    .await;

    daemon.commanded(&["pause"]);
    eventually("the backlog is written", DRAIN, async || written() > before + 10_000).await;
    let metrics = daemon.metrics();
    let line = "csa_relaystore_written_bytes_total{channel=\"test\"} ";
    let metric = metrics.lines().find_map(|one| one.strip_prefix(line)?.parse::<u64>().ok());
    assert!(metric > Some(before + 10_000), "{metrics}");
    daemon.kill9();
    daemon.start_again();
    running.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
}

fn applied(daemon: &Daemon) -> u64 {
    view(daemon)["applied_transactions_total"].as_u64().expect("a number")
}

/// Its own logs are gone, and a replica of it still has them.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_source_has_purged_comes_from_an_alternative() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)").await;
    let replica = Server::start("replica", &[]);
    replica.follow(&source).await;
    let failover = format!("a = [{{ host = \"127.0.0.1\", port = {} }}]", replica.port);
    let failover = failover.parse::<toml::Table>().expect("TOML")["a"].clone();
    let daemon = Daemon::builder(&source, &target).set("source.failover", failover).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.kill9();
    insert(&source, 1..10).await;
    let executed = source.gtid_executed().await;
    let has_all = async || replica.gtid_executed().await == executed;
    eventually("the replica has all", DRAIN, has_all).await;
    purge_all(&source, &executed).await;
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    assert!(view(&daemon)["connection"].to_string().contains(&replica.port.to_string()));
    // The start says so, and the source itself needs no action while the replica serves.
    assert!(daemon.log().contains("has purged transactions"), "{}", daemon.log());
}
