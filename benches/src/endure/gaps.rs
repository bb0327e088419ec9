//! GTID sets with gaps on source and target, in each mode of `target_gtids`.

use std::time::Instant;

use anyhow::Result;
use csa_tests::Daemon;

use super::report::{MIB, Report};
use super::site;
use crate::process::{cpu_seconds, peak_rss_bytes};

/// A server that is gone.
const UUID: &str = "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";

pub(super) async fn run(gaps: u64, transactions: u64) -> Result<Report> {
    let mut report = Report::default();
    report.figure("transactions", transactions.to_string());
    for mode in ["own", "mirror", "source"] {
        let mut costs = Vec::new();
        for gaps in [0, gaps] {
            costs.push(measure(&mut report, mode, gaps, transactions).await?);
        }
        let [without, with] = costs[..] else { continue };
        report.figure(
            format!("{mode}: CPU of a transaction"),
            format!("{:.2} ms, without gaps {:.2} ms", with * 1000.0, without * 1000.0),
        );
    }
    Ok(report)
}

/// Returns the seconds of CPU for one transaction, the next after the answer of the one before.
async fn measure(report: &mut Report, mode: &str, gaps: u64, transactions: u64) -> Result<f64> {
    let (source, target) = site::servers(&["--max-allowed-packet=64M"]).await?;
    if gaps > 0 {
        let numbers: Vec<String> = (0..=gaps).map(|number| (2 * number + 1).to_string()).collect();
        let set = format!("SET GLOBAL gtid_purged='{UUID}:{}'", numbers.join(":"));
        source.exec(&set).await;
        target.exec(&set).await;
    }
    source.exec("CREATE DATABASE g; CREATE TABLE g.t (id INT PRIMARY KEY, v INT)").await;
    let commit = if mode == "source" { "one-to-one" } else { "grouped" };
    let daemon = Daemon::builder(&source, &target)
        .set("applier.target_gtids", mode)
        .set("applier.commit", commit)
        .build();
    let seconds = site::started(&daemon).await;
    daemon.wait_drained(&source, &target, site::PATIENCE).await;
    let pid = daemon.pid().expect("running");
    let before = cpu_seconds(pid)?;
    let begun = Instant::now();
    site::in_sessions(&source, 1, transactions, |number| {
        format!("INSERT INTO g.t VALUES ({number}, 1)")
    })
    .await?;
    daemon.wait_drained(&source, &target, site::PATIENCE).await;
    let elapsed = begun.elapsed().as_secs_f64();
    let cpu = (cpu_seconds(pid)? - before) / transactions as f64;
    if gaps > 0 {
        report.figure("gaps", gaps.to_string());
        report.seconds(format!("{mode}: start"), seconds);
        report.rule(seconds < 10.0, format!("{mode}: it starts within 10 s"));
        report.seconds(format!("{mode}: until all transactions are there"), elapsed);
        let peak = peak_rss_bytes(pid)?;
        report.mebibytes(format!("{mode}: peak memory"), peak);
        report.rule(peak <= 512 * MIB, format!("{mode}: memory stays under 512 MiB"));
    }
    site::finish(report, &daemon, &source, &target).await;
    Ok(cpu)
}
