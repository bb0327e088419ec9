//! Shortages on the daemon's host: of space for the log and the state, of files of the relay store, of descriptors.

use std::time::Duration;

use csa_tests::{
    Daemon, Load, LoadOptions, LogSink, Mount, Server, compare, eventually, not_run, prepare,
};

use crate::{DRAIN, wait_state};

async fn replicates_with(log: LogSink) {
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions::default();
    prepare(&source, &options).await;
    let load = Load::start(&source, &options);
    let daemon = Daemon::builder(&source, &target).log_to(log).start();
    wait_state(&daemon, 0, "running").await;
    // What reception, the applier's sessions and the channel have to say of it is lost.
    for server in [&source, &target] {
        server.kill9();
        tokio::time::sleep(Duration::from_secs(2)).await;
        server.restart();
    }
    load.stop().await;
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    let metrics = daemon.metrics();
    let lost = metrics.lines().find_map(|line| line.strip_prefix("csa_log_lines_lost_total "));
    assert!(lost.is_some_and(|lost| lost.parse::<u64>().is_ok_and(|lost| lost > 3)), "{metrics}");
    assert!(daemon.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_space_stops_nothing() {
    replicates_with(LogSink::FullDisk).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_stops_nothing() {
    replicates_with(LogSink::ClosedPipe).await;
}

fn set_delay(daemon: &Daemon, delay: &str) {
    let answer = daemon.put("/channels/test/source_delay", delay);
    assert!(answer.as_ref().is_some_and(|(code, _)| *code == 200), "{answer:?}");
}

/// Returns a daemon that has received several segments, of which it has read the first at most.
async fn with_backlog(source: &Server, target: &Server) -> Daemon {
    let options = LoadOptions { rate: None, ..LoadOptions::default() };
    prepare(source, &options).await;
    let daemon = Daemon::builder(source, target)
        .env("CSA_TEST_HASTE", "10")
        .set("relay.segment_size", "1MiB")
        .start();
    daemon.wait_drained(source, target, DRAIN).await;
    set_delay(&daemon, "1h");
    let load = Load::start(source, &options);
    eventually("a backlog of several segments", DRAIN, async || daemon.relay_segments().len() > 4)
        .await;
    load.stop().await;
    let executed = source.gtid_executed().await;
    eventually("all of it is received", DRAIN, async || {
        daemon.status()["channels"][0]["received_transaction_set"] == executed.as_str()
    })
    .await;
    // Afterwards nothing of it is in memory.
    daemon.set("applier.source_delay", "1h");
    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
    daemon.start_again();
    wait_state(&daemon, 0, "waiting_for_delay").await;
    daemon
}

/// Waits until all is applied, whatever the channel meets before.
async fn applied(daemon: &Daemon, source: &Server) {
    let executed = source.gtid_executed().await;
    eventually("all of it is applied", DRAIN, async || {
        daemon.status()["channels"][0]["applied_transaction_set"] == executed.as_str()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_segment_that_is_gone_is_fetched_again() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = with_backlog(&source, &target).await;
    let lost = daemon.relay_segments()[2].clone();
    std::fs::remove_file(&lost).expect("removed");
    set_delay(&daemon, "0s");
    applied(&daemon, &source).await;
    compare(&source, &target).await;
    let name = lost.file_name().expect("a name").to_string_lossy().into_owned();
    let is_told = |line: &str| line.contains("fetching the rest") && line.contains(&name);
    assert!(daemon.log().lines().any(is_told), "{}", daemon.log_tail());
    wait_state(&daemon, 0, "running").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_relay_segment_that_the_source_has_purged_is_waited_for() {
    let (source, target) = Server::pair(&[], &[]);
    let daemon = with_backlog(&source, &target).await;
    source.exec("FLUSH BINARY LOGS").await;
    source.exec("PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY").await;
    let all = daemon.relay_segments();
    let aside = daemon.state_dir().join("aside");
    std::fs::rename(&all[2], &aside).expect("moved");
    set_delay(&daemon, "0s");
    eventually("it says what the source has purged", DRAIN, async || {
        daemon.status()["channels"][0]["last_error"]["message"].to_string().contains("purged")
    })
    .await;
    assert_eq!(daemon.relay_segments().last(), all.last(), "nothing is cut");
    std::fs::rename(&aside, &all[2]).expect("moved back");
    applied(&daemon, &source).await;
    compare(&source, &target).await;
}

/// The store fills the disk of `state_dir`; only the channel can make room there.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow"]
async fn a_daemon_whose_state_directory_is_full_starts_and_drains_it() {
    let disk = match Mount::memory("24M") {
        Ok(disk) => disk,
        Err(why) => return not_run("a full state directory (tests/e2e/shortages.rs)", &why),
    };
    let (source, target) = Server::pair(&[], &[]);
    let options = LoadOptions { rate: None, ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target)
        .set("daemon.state_dir", disk.path().to_string_lossy().into_owned())
        .set("relay.segment_size", "1MiB")
        .set("relay.space_limit", "16MiB")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    daemon.commanded(&["stop"]);
    let load = Load::start(&source, &options);
    tokio::time::sleep(Duration::from_secs(5)).await;
    load.stop().await;
    let executed = source.gtid_executed().await;
    eventually("a backlog is received", DRAIN, async || {
        let relay = &daemon.status()["channels"][0];
        relay["received_transaction_set"] == executed.as_str()
            || !relay["relay"]["waiting"].is_null()
    })
    .await;
    daemon.kill9();
    // No block and no inode is left.
    let mut filling = std::fs::File::create(disk.path().join("filling")).expect("a file");
    while std::io::Write::write_all(&mut filling, &[0; 4096]).is_ok() {}
    daemon.start_again();
    let is_told = |text: &str| daemon.log().contains(text);
    assert!(is_told("no space for the admin socket and the token"), "{}", daemon.log_tail());
    daemon.wait_drained(&source, &target, DRAIN).await;
    compare(&source, &target).await;
    drop(filling);
    std::fs::remove_file(disk.path().join("filling")).expect("removed");
    eventually("the files for the command line", DRAIN, async || {
        is_told("admin socket and token made")
    })
    .await;
    assert!(daemon.terminate().success(), "{}", daemon.log_tail());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_low_limit_of_descriptors_is_raised_for_the_daemon_alone() {
    let (source, target) = Server::pair(&[], &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let told = folder.path().join("limit");
    let script = format!("sleep 1; ulimit -S -n > {}", told.display());
    let command = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
    let daemon = Daemon::builder(&source, &target)
        .descriptors(64)
        .set("notify.command", command)
        .set("notify.after", "1s")
        .start();
    daemon.wait_drained(&source, &target, DRAIN).await;
    let pid = daemon.pid().expect("it runs");
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("readable");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    let fields: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(fields[3], fields[4], "{files}");
    target.kill9();
    eventually("an event", DRAIN, async || {
        std::fs::read_to_string(&told).is_ok_and(|limit| !limit.is_empty())
    })
    .await;
    assert_eq!(std::fs::read_to_string(&told).expect("written").trim(), "64");
}
