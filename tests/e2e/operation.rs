//! Operation: stop and start, damage in the relay store, space limits, status.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};

use crate::{DRAIN, wait_state};

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_quick_and_clean_and_the_next_start_resumes() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let load = Load::start(&source, &options);
    let daemon = Daemon::builder(&source, &target).start();
    wait_state(&daemon, 0, "running").await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let started = std::time::Instant::now();
        assert!(daemon.terminate().success(), "{}", daemon.log_tail());
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        daemon.start_again();
    }
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;

    // As soon as it can be reached.
    for _ in 0..10 {
        assert!(daemon.terminate().success(), "{}", daemon.log_tail());
        let starts = daemon.log().matches("admin port open").count();
        daemon.spawn();
        let begun = std::time::Instant::now();
        while daemon.log().matches("admin port open").count() == starts {
            assert!(begun.elapsed() < DRAIN, "{}", daemon.log_tail());
        }
    }
    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_relay_store_waits_and_a_damaged_one_is_fetched_again() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { rate: None, ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target)
        .set("relay.segment_size", "1MiB")
        .set("relay.space_limit", "4MiB")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    // With the target locked the store fills up.
    let mut lock = target.conn().await;
    mysql_async::prelude::Queryable::query_drop(&mut lock, "FLUSH TABLES WITH READ LOCK")
        .await
        .expect("locks");
    let load = Load::start(&source, &options);
    eventually("reception waits for space", Duration::from_secs(60), async || {
        !daemon.status()["channels"][0]["relay"]["waiting"].is_null()
    })
    .await;
    load.stop().await;
    let bytes = daemon.status()["channels"][0]["relay"]["bytes"].as_u64().expect("a number");
    assert!(bytes <= 4 << 20, "{bytes}");
    // Everything up to the newest, without a gap after the applied set.
    let view = &daemon.status()["channels"][0];
    let sets = ["received_transaction_set", "applied_transaction_set"]
        .map(|set| view[set].as_str().expect("a set").to_owned());
    assert!(sets[0] != sets[1] && sets[0].matches(':').count() == 1, "{sets:?}");
    daemon.kill9();
    // A byte in the middle of the store flips.
    let segments = segments(&daemon);
    assert!(segments.len() > 2, "{segments:?}");
    let path = &segments[1];
    let mut bytes = std::fs::read(path).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(path, bytes).expect("writable");
    drop(lock);
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.log().contains("damaged at byte"), "{}", daemon.log_tail());
    compare(&source, &target).await;
    let left = daemon.status()["channels"][0]["relay"]["segments"].as_u64().expect("a number");
    assert!(left <= 2, "{left} segments");
}

/// Larger than the memory for events, so that it is streamed from the relay store.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_large_transaction_that_is_damaged_on_disk_is_fetched_again() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGBLOB)").await;
    let daemon =
        Daemon::builder(&source, &target).set("applier.event_memory_limit", "64MiB").start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["stop"]);
    let rows = "SELECT 1 + i, REPEAT(CHAR(65 + i), 8 << 20) FROM JSON_TABLE('[0,1,2,3,4,5,6,7,8,9,10,11]', \
                '$[*]' COLUMNS (i INT PATH '$')) numbers";
    source.exec(&format!("INSERT INTO d.t {rows}")).await;
    let executed = source.gtid_executed().await;
    eventually("it is received", DRAIN, async || {
        daemon.status()["channels"][0]["received_transaction_set"] == executed.as_str()
    })
    .await;
    let path = segments(&daemon).pop().expect("a segment");
    let mut bytes = std::fs::read(&path).expect("readable");
    let middle = bytes.len() - (30 << 20);
    bytes[middle] ^= 4;
    std::fs::write(path, bytes).expect("writable");
    daemon.commanded(&["restart"]);
    daemon.wait_drained(&source, &target, DRAIN).await;
    assert!(daemon.log().contains("damaged at byte"), "{}", daemon.log_tail());
    compare(&source, &target).await;
}

/// Returns the files of the relay store, oldest first.
fn segments(daemon: &Daemon) -> Vec<std::path::PathBuf> {
    let relay = daemon.state_dir().join("test/relay");
    let mut segments: Vec<_> = std::fs::read_dir(&relay)
        .expect("readable")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "relay"))
        .collect();
    segments.sort();
    segments
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_zero_only_when_nothing_is_pending_and_the_source_is_heard() {
    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d").await;
    source.exec("CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("idle lag is 0", Duration::from_secs(10), async || {
        daemon.status()["channels"][0]["lag_seconds"] == 0.0
    })
    .await;
    assert!(daemon.metrics().contains("csa_lag_seconds{channel=\"test\"} 0\n"));
    // Another session's row lock on the target holds the channel up: lag grows.
    let mut blocker = target.conn().await;
    use mysql_async::prelude::Queryable as _;
    blocker.query_drop("BEGIN").await.expect("begins");
    blocker.query_drop("INSERT INTO d.t VALUES (1)").await.expect("inserts");
    source.exec("INSERT INTO d.t VALUES (1)").await;
    eventually("lag grows", Duration::from_secs(20), async || {
        let view = &daemon.status()["channels"][0];
        view["lag_seconds"].as_f64().is_some_and(|lag| lag > 2.0)
            && view["backlog_transactions"] == 1
    })
    .await;
    blocker.query_drop("ROLLBACK").await.expect("rolls back");
    daemon.wait_drained(&source, &target, DRAIN).await;
    eventually("lag is 0 again", Duration::from_secs(10), async || {
        daemon.status()["channels"][0]["lag_seconds"] == 0.0
    })
    .await;
    assert_eq!(daemon.get("/readyz").map(|answer| answer.0), Some(200));
    compare(&source, &target).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_count_changes_under_load() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let load = Load::start(&source, &options);
    let daemon = Daemon::builder(&source, &target).set("applier.worker_count", 2).start();
    wait_state(&daemon, 0, "running").await;
    for count in ["16", "1", "4"] {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let answer = daemon.put("/channels/test/worker_count", count);
        assert_eq!(answer.map(|answer| answer.0), Some(200));
    }
    for wrong in ["0", "1025", "many"] {
        let answer = daemon.put("/channels/test/worker_count", wrong).map(|answer| answer.0);
        assert_eq!(answer, Some(400));
    }
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let rows: u64 = target.value("SELECT COUNT(*) FROM csa.checkpoint").await;
    assert_eq!(rows, 16);
    assert_eq!(daemon.status()["channels"][0]["applier"]["count_transactions_retries"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirroring_target_has_the_sources_gtids_and_no_rows_in_its_binary_log() {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target).set("applier.target_gtids", "mirror").start();
    Load::run(&source, &options, Duration::from_secs(2)).await;
    source.exec("CREATE TABLE sbtest.later (id INT PRIMARY KEY)").await;
    daemon.kill9();
    Load::run(&source, &options, Duration::from_secs(1)).await;
    daemon.start_again();
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let executed = source.gtid_executed().await;
    eventually("the target has the source's GTIDs", DRAIN, async || {
        target.gtid_executed().await == executed
    })
    .await;
    // Statements have to be in it, under the source's GTIDs, which record them as executed.
    let events = binlog_events(&target).await;
    assert!(events.iter().any(|(_, info)| info.contains("sbtest.later")), "{events:?}");
    let rows: Vec<_> = events.iter().filter(|(name, _)| name.ends_with("_rows")).collect();
    assert!(rows.is_empty(), "{rows:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_did_not_change_are_not_sent_but_the_targets_own_log_has_them() {
    let (source, target) = Server::pair(&[], &[]);
    let last = Server::start("last", &[]);
    source
        .exec(
            "CREATE SCHEMA app; CREATE TABLE app.t (id INT PRIMARY KEY, n INT, rest TEXT NOT NULL)",
        )
        .await;
    source.exec("INSERT INTO app.t SELECT 1, 0, REPEAT('x', 50000)").await;
    source.exec("INSERT INTO app.t SELECT 2, 0, REPEAT('y', 50000)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let received = "SELECT VARIABLE_VALUE+0 FROM performance_schema.global_status \
                    WHERE VARIABLE_NAME='Bytes_received'";
    let mut bytes = Vec::new();
    for images in ["full", "minimal"] {
        assert!(daemon.terminate().success());
        daemon.set("applier.row_image", images);
        daemon.start_again();
        let before: u64 = target.value(received).await;
        source.exec("UPDATE app.t SET n=n+1 WHERE id=1").await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        bytes.push(target.value::<u64>(received).await - before);
    }
    assert!(bytes[0] > 100_000 && bytes[1] < 50_000, "{bytes:?}");
    source.exec("UPDATE app.t SET id=3, n=NULL WHERE id=1; DELETE FROM app.t WHERE id=2").await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    // A replica of the target makes its rows of the target's log.
    let next = Daemon::builder(&target, &last).start();
    next.wait_drained(&target, &last, DRAIN).await;
    compare(&source, &last).await;
    let logged = binlog_events(&target).await;
    let updates = logged.iter().filter(|(name, _)| name == "Update_rows").count();
    assert!(updates > 0, "{logged:?}");
}

/// Returns the types and contents of the events in the server's binary log.
async fn binlog_events(server: &Server) -> Vec<(String, String)> {
    use mysql_async::prelude::Queryable as _;
    let mut conn = server.conn().await;
    let rows: Vec<mysql_async::Row> = conn.query("SHOW BINLOG EVENTS").await.expect("answers");
    let text = |row: &mysql_async::Row, name| row.get(name).unwrap_or_default();
    rows.iter().map(|row| (text(row, "Event_type"), text(row, "Info"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_row_of_the_audit_is_not_written_at_the_stop_is_in_the_log() {
    use mysql_async::prelude::Queryable as _;

    let (source, target) = Server::pair(&[], &[]);
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let daemon = Daemon::builder(&source, &target).start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let mut other = target.conn().await;
    other.query_drop("LOCK TABLES csa.audit WRITE").await.expect("locked");
    daemon.commanded(&["pause"]);
    let only = |line: &&str| line.contains("this line is its only record");
    assert_eq!(daemon.log().lines().find(only), None, "it may be written still");
    let begun = std::time::Instant::now();
    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let log = daemon.log();
    let line = log.lines().find(only).unwrap_or_else(|| panic!("{}", daemon.log_tail()));
    assert!(line.contains("pause") && line.contains("tester"), "{line}");
    other.query_drop("UNLOCK TABLES").await.expect("unlocked");

    // One that is nearly written is waited for.
    daemon.start_again();
    wait_state(&daemon, 0, "running").await;
    other.query_drop("LOCK TABLES csa.audit WRITE").await.expect("locked");
    daemon.commanded(&["pause"]);
    daemon.signal("TERM");
    tokio::time::sleep(Duration::from_secs(1)).await;
    other.query_drop("UNLOCK TABLES").await.expect("unlocked");
    assert!(daemon.wait_exit(DRAIN).success(), "{}", daemon.log_tail());
    let rows = "SELECT COUNT(*) FROM csa.audit WHERE action = 'pause'";
    eventually("the row", DRAIN, async || target.value::<u64>(rows).await >= 1).await;
    assert_eq!(daemon.log().lines().filter(only).count(), 1, "{}", daemon.log_tail());
}
