//! Everything that opens and closes something, again and again under load.

use std::time::{Duration, Instant};

use anyhow::Result;
use csa_tests::{Daemon, Load, LoadOptions, Server, eventually, prepare};
use mysql_async::prelude::Queryable as _;
use tokio::task::block_in_place;
use tokio::time::sleep;

use super::report::{MIB, Report};
use super::resources::Resources;
use super::site;

/// Part of the time after which nothing may grow any more.
const WARM_UP: f64 = 0.4;
/// Growth that counts as none, of the last quarter over the quarter after the warm-up: what the
/// allocator keeps differs, and a pool may be one smaller.
const RSS_GROWTH: u64 = 8 * MIB;
const COUNT_GROWTH: u64 = 2;

pub(super) async fn run(minutes: u64) -> Result<Report> {
    let mut report = Report::default();
    let (source, target) = site::servers(&[]).await?;
    let options = LoadOptions { rate: Some(300.0), changes: 2, ..LoadOptions::default() };
    prepare(&source, &options).await;
    let daemon = Daemon::builder(&source, &target)
        .set("applier.event_memory_limit", "64MiB")
        .set("relay.segment_size", "1MiB")
        .set("target.connect_retry", "100ms")
        .set("target.connect_retry_max", "1s")
        .build();
    site::started(&daemon).await;
    let length = Duration::from_secs(minutes * 60);
    let begun = Instant::now();
    let mut samples = Vec::new();
    let mut cycle = 0;
    while begun.elapsed() < length {
        let load = Load::start(&source, &options);
        disturb(&daemon, &source, &target, cycle).await?;
        load.stop().await;
        daemon.wait_drained(&source, &target, site::PATIENCE).await;
        // Sessions that were killed are gone, and new ones are there.
        sleep(Duration::from_secs(2)).await;
        let found = Resources::of(&daemon, &source, &target).await?;
        println!("{:6.0} s {found:?}", begun.elapsed().as_secs_f64());
        samples.push((begun.elapsed().as_secs_f64() / length.as_secs_f64(), found));
        cycle += 1;
    }
    report.figure("minutes", minutes.to_string());
    report.figure("cycles", cycle.to_string());
    let most = |from: f64, to: f64, value: fn(&Resources) -> u64| {
        let within = samples.iter().filter(|(at, _)| (from..to).contains(at));
        within.map(|(_, found)| value(found)).max().unwrap_or_default()
    };
    let mut flat = |name: &str, value: fn(&Resources) -> u64, growth: u64, unit: u64| {
        let (early, late) = (most(WARM_UP, WARM_UP + 0.25, value), most(0.75, 2.0, value));
        report.figure(
            name,
            format!("{} after the warm-up, {} in the last quarter", early / unit, late / unit),
        );
        report.rule(late <= early + growth, format!("{name} stays the same"));
    };
    flat("memory in MiB", |found| found.rss_bytes, RSS_GROWTH, MIB);
    flat("descriptors", |found| found.descriptors, COUNT_GROWTH, 1);
    flat("threads", |found| found.threads, COUNT_GROWTH, 1);
    flat("sessions on the target", |found| found.target_sessions, COUNT_GROWTH, 1);
    flat("sessions on the source", |found| found.source_sessions, COUNT_GROWTH, 1);
    report.rule(cycle >= 8, "at least eight cycles: run it longer");
    site::finish(&mut report, &daemon, &source, &target).await;
    Ok(report)
}

/// One of everything, and a restart of a server.
async fn disturb(daemon: &Daemon, source: &Server, target: &Server, cycle: u64) -> Result<()> {
    for (server, user) in [(source, "repl"), (target, "csa"), (source, "repl"), (target, "csa")] {
        kill_sessions(server, user).await?;
        sleep(Duration::from_millis(500)).await;
    }
    for (first, second) in [("pause", "resume"), ("stop", "restart")] {
        block_in_place(|| daemon.commanded(&[first]));
        sleep(Duration::from_millis(300)).await;
        block_in_place(|| daemon.commanded(&[second]));
    }
    for workers in [16, 8] {
        daemon.set("applier.worker_count", i64::from(workers));
        daemon.write_config();
        block_in_place(|| daemon.commanded(&["reload"]));
        sleep(Duration::from_millis(300)).await;
    }
    source
        .exec(
            "CREATE TABLE sbtest.extra (id INT PRIMARY KEY); INSERT INTO sbtest.extra VALUES (1);\
             ALTER TABLE sbtest.extra ADD COLUMN v INT; DROP TABLE sbtest.extra",
        )
        .await;
    let server = if cycle.is_multiple_of(2) { target } else { source };
    block_in_place(|| server.kill9());
    block_in_place(|| server.restart());
    eventually("the channel runs again", site::PATIENCE, async || {
        let status = block_in_place(|| daemon.try_status()).unwrap_or_default();
        status["channels"][0]["state"] == "running"
    })
    .await;
    Ok(())
}

async fn kill_sessions(server: &Server, user: &str) -> Result<()> {
    let mut conn = server.conn().await;
    let list = format!("SELECT id FROM performance_schema.processlist WHERE user='{user}'");
    for session in conn.query::<u64, _>(list).await? {
        // It may have ended on its own.
        let _ = conn.query_drop(format!("KILL {session}")).await;
    }
    conn.disconnect().await?;
    Ok(())
}
