//! A backlog in the relay store, drained by a daemon that is killed again and again.

use std::time::{Duration, Instant};

use anyhow::Result;
use csa_tests::Daemon;
use serde_json::Value;
use tokio::task::block_in_place;

use super::report::{APART, GIB, MIB, Report};
use super::site;
use crate::process::peak_rss_bytes;

const LIMIT: u64 = 256 * MIB;
/// Bytes of a row's text.
const ROW: u64 = 64 << 10;
/// Rows of a transaction.
const ROWS: u64 = 4;

pub(super) async fn run(gib: u64, kills: u64) -> Result<Report> {
    let mut report = Report::default();
    let (source, target) = site::servers(&["--max-allowed-packet=64M"]).await?;
    source.exec("CREATE DATABASE b; CREATE TABLE b.t (id INT PRIMARY KEY, v LONGTEXT)").await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.target_gtids", "mirror")
        .set("relay.space_limit", format!("{}GiB", gib * 2))
        .build();
    site::started(&daemon).await;
    daemon.wait_drained(&source, &target, site::PATIENCE).await;
    block_in_place(|| daemon.commanded(&["stop"]));
    println!("writing {gib} GiB");
    // The same rows again and again: the tables stay small, the log does not.
    let transactions = gib * GIB / (ROW * ROWS);
    site::in_sessions(&source, 8, transactions, |number| {
        let rows: Vec<String> = (0..ROWS)
            .map(|row| {
                format!("({}, REPEAT('{:016x}', {}))", number % 800 * ROWS + row, number, ROW / 16)
            })
            .collect();
        format!("REPLACE INTO b.t VALUES {}", rows.join(","))
    })
    .await?;
    let written = source.gtid_executed().await;
    let view = || block_in_place(|| daemon.try_status()).unwrap_or_default()["channels"][0].clone();
    csa_tests::eventually("all of it is received", site::PATIENCE, async || {
        view()["received_transaction_set"] == written.as_str()
    })
    .await;
    let backlog = view()["backlog_transactions"].as_u64().unwrap_or_default();
    let used = used_bytes(&view());
    report.mebibytes("backlog in the relay store", used);
    report.rule(used >= gib * GIB, "the relay store holds the backlog");
    let mut peak = peak_rss_bytes(daemon.pid().expect("running"))?;
    block_in_place(|| daemon.commanded(&["restart"]));
    let begun = Instant::now();
    let mut starts = Vec::new();
    for kill in 1..=kills {
        let left = backlog - backlog * kill / (kills + 1);
        csa_tests::eventually("part of it is applied", site::PATIENCE, async || {
            view()["backlog_transactions"].as_u64().is_some_and(|now| now <= left)
        })
        .await;
        peak = peak.max(peak_rss_bytes(daemon.pid().expect("running"))?);
        block_in_place(|| daemon.kill9());
        starts.push(site::started(&daemon).await);
    }
    daemon.wait_drained(&source, &target, site::PATIENCE).await;
    peak = peak.max(peak_rss_bytes(daemon.pid().expect("running"))?);
    report.seconds("drained in", begun.elapsed().as_secs_f64());
    report.figure("transactions", backlog.to_string());
    report.figure("kills during the drain", kills.to_string());
    report.seconds("longest start after a kill", starts.into_iter().fold(0.0, f64::max));
    report.mebibytes("peak memory of all its lives, event_memory_limit 256MiB", peak);
    report.rule(peak <= LIMIT + APART, format!("memory stays under {} MiB", (LIMIT + APART) / MIB));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let left = used_bytes(&view());
    report.mebibytes("relay store after the drain", left);
    report.rule(left <= 256 * MIB, "no more than the last two segments is left");
    site::finish(&mut report, &daemon, &source, &target).await;
    Ok(report)
}

fn used_bytes(view: &Value) -> u64 {
    view["relay"]["bytes"].as_u64().unwrap_or_default()
}
