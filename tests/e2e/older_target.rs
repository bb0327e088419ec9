//! A target that comes back without its last transactions while the daemon runs.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, Server, compare, eventually, prepare};

use crate::DRAIN;

const MODES: [&str; 3] = ["own", "mirror", "source"];

fn rewinds(daemon: &Daemon, channel: usize) -> u64 {
    let view = &daemon.status()["channels"][channel];
    view["applier"]["target_rewinds_total"].as_u64().unwrap_or_default()
}

/// Waits for it to apply more.
async fn applies(daemon: &Daemon) {
    let applied = || daemon.status()["channels"][0]["applied_transactions_total"].as_u64();
    let before = applied();
    eventually("it applies", Duration::from_secs(60), async || applied() > before).await;
}

async fn drained(daemon: &Daemon, source: &Server, targets: &[Server]) {
    for (mode, target) in MODES.iter().zip(targets) {
        daemon.wait_channel_drained(mode, source, target, DRAIN).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn an_older_data_directory_is_put_back_under_a_running_daemon() {
    let source = Server::start("source", &[]);
    let targets: Vec<Server> = std::thread::scope(|scope| {
        let start = |_| scope.spawn(|| Server::start("target", &[]));
        let started: Vec<_> = MODES.iter().map(start).collect();
        started.into_iter().map(|target| target.join().expect("a target").borrowed()).collect()
    });
    let mut builder = Daemon::builder(&source, &targets[0]).set("name", MODES[0]);
    for (mode, target) in MODES.iter().zip(&targets) {
        if *mode != MODES[0] {
            builder = builder.channel(mode, &source, target);
        }
        builder = builder
            .set("applier.target_gtids", *mode)
            .set("target.connect_retry", "100ms")
            .set("target.connect_retry_max", "1s")
            // Segments are purged as soon as they are applied, so some of it is asked for again.
            .set("relay.segment_size", "1MiB");
        if *mode == "source" {
            builder = builder.set("applier.commit", "one-to-one");
        }
    }
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)").await;
    let insert = async |ids: std::ops::Range<u32>| {
        for id in ids {
            source.exec(&format!("INSERT INTO d.t VALUES ({id}, REPEAT('x', 100000))")).await;
        }
    };
    insert(0..10).await;
    let daemon = builder.start();
    drained(&daemon, &source, &targets).await;
    for target in &targets {
        target.stop();
        target.save_data();
        target.restart();
    }
    insert(10..30).await;
    source.exec("ALTER TABLE d.t ADD COLUMN w INT; CREATE TABLE d.u (id INT PRIMARY KEY)").await;
    source
        .exec("UPDATE d.t SET w=id; DELETE FROM d.t WHERE id<3; INSERT INTO d.u VALUES (1)")
        .await;
    drained(&daemon, &source, &targets).await;
    for target in &targets {
        target.stop();
        target.put_back_data();
    }
    // The next transaction would be committed on top of the missing ones.
    source.exec("INSERT INTO d.t (id, w) VALUES (100, 100)").await;
    for target in &targets {
        target.restart();
    }
    for (channel, (mode, target)) in MODES.iter().zip(&targets).enumerate() {
        eventually(&format!("{mode}: noticed"), Duration::from_secs(60), async || {
            rewinds(&daemon, channel) == 1
        })
        .await;
        source.exec(&format!("INSERT INTO d.u VALUES ({})", 10 + channel)).await;
        daemon.wait_channel_drained(mode, &source, target, DRAIN).await;
        compare(&source, target).await;
        let view = &daemon.status()["channels"][channel];
        assert_eq!(view["state"], "running", "{view}");
        let lost = view["applier"]["last_target_rewind_transaction_set"].to_string();
        let uuid: String = source.value("SELECT @@server_uuid").await;
        assert!(lost.contains(&uuid), "{lost}");
        let log = daemon.log();
        assert!(log.contains("came back older than it was: it lacks"), "{log}");
    }
    let metrics = daemon.metrics();
    for mode in MODES {
        let line = format!("csa_applier_target_rewinds_total{{channel=\"{mode}\"}} 1");
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_target_that_keeps_its_last_second_in_memory_is_killed_under_load() {
    for mode in ["own", "mirror"] {
        // Nothing is written to disk at a commit; the flush each second does that.
        let relaxed = ["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"];
        let (source, target) = Server::pair(&[], &relaxed);
        // Under full load the log's buffer would be written more often.
        let options = LoadOptions { rate: Some(150.0), changes: 2, ..LoadOptions::default() };
        prepare(&source, &options).await;
        let daemon = Daemon::builder(&source, &target)
            .set("applier.target_gtids", mode)
            .set("target.connect_retry", "100ms")
            .set("target.connect_retry_max", "1s")
            .start();
        let load = Load::start(&source, &options);
        for kill in 0..4 {
            applies(&daemon).await;
            tokio::time::sleep(Duration::from_millis(1300 + 171 * kill)).await;
            target.kill9();
            target.restart();
            applies(&daemon).await;
        }
        let report = load.stop().await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
        let counted: u64 =
            target.value("SELECT CAST(SUM(n) AS UNSIGNED) FROM sbtest.counter").await;
        assert_eq!(counted, report.committed, "{mode}");
        assert!(rewinds(&daemon, 0) > 0, "{mode}: no kill lost anything\n{}", daemon.log_tail());
    }
}

/// Removes all binary logs of a server that was stopped.
pub(crate) fn lose_binary_logs(server: &Server) {
    let files = std::fs::read_dir(server.data_directory()).expect("the data directory");
    for file in files.map(|file| file.expect("a file")) {
        if file.file_name().to_string_lossy().starts_with("binlog.") {
            std::fs::remove_file(file.path()).expect("removing a binary log");
        }
    }
}

/// A statement that changes nothing has its GTID in the binary log only. A server that does not
/// sync it loses the GTID in a crash of its host. The tables lose nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_lost_its_binary_log_keeps_the_gtids_of_what_its_tables_have() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = Daemon::builder(&source, &target)
        .set("applier.target_gtids", "source")
        .set("applier.commit", "one-to-one")
        .set("target.connect_retry", "100ms")
        .set("target.connect_retry_max", "1s")
        .start();
    source.exec("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)").await;
    let same = "CREATE TABLE IF NOT EXISTS d.t (id INT PRIMARY KEY)";
    // The row for readers has all of it a second later.
    let noted = async || {
        let executed = source.gtid_executed().await;
        let row = "SELECT gtid_executed FROM csa.checkpoint ORDER BY sequence DESC LIMIT 1";
        eventually("noted", Duration::from_secs(60), async || {
            target.value::<String>(row).await == executed
        })
        .await;
        executed
    };
    for (number, (last, is_running)) in
        [(false, true), (true, true), (false, false)].into_iter().enumerate()
    {
        let id = 10 * number;
        source.exec(&format!("INSERT INTO d.t VALUES ({id}); {same}")).await;
        if !last {
            source.exec(&format!("INSERT INTO d.t VALUES ({id}+1)")).await;
        }
        daemon.wait_drained(&source, &target, DRAIN).await;
        let before = noted().await;
        if !is_running {
            daemon.kill9();
        }
        target.kill9();
        lose_binary_logs(&target);
        target.restart();
        let lost = if is_running { String::new() } else { target.gtid_executed().await };
        assert_ne!(before, lost, "nothing was lost");
        if !is_running {
            daemon.start_again();
        }
        source.exec(&format!("INSERT INTO d.t VALUES ({id}+2)")).await;
        daemon.wait_drained(&source, &target, DRAIN).await;
        compare(&source, &target).await;
        eventually("the GTIDs are there", Duration::from_secs(10), async || {
            target.gtid_executed().await == source.gtid_executed().await
        })
        .await;
        let found = daemon.log().matches("the target had lost GTIDs").count();
        assert_eq!(found, number + 1, "{}", daemon.log_tail());
    }
    assert_eq!(rewinds(&daemon, 0), 0, "the tables lost nothing");
}
