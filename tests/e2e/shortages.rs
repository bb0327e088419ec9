//! Shortages on the daemon's host: of space for the log.

use std::time::Duration;

use csa_tests::{Daemon, Load, LoadOptions, LogSink, Server, compare, prepare};

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
