//! Channels of one process, each with a schema of its own.

use std::time::{Duration, Instant};

use anyhow::Result;
use csa_tests::Daemon;

use super::report::{MIB, Report};
use super::resources::Resources;
use super::site;
use crate::process::cpu_seconds;

/// Workers of each channel, few enough for the sessions that a server has.
const WORKERS: u64 = 2;
/// Time for which the idle process is watched.
const IDLE: Duration = Duration::from_secs(20);

pub(super) async fn run(channels: u64) -> Result<Report> {
    let mut report = Report::default();
    let (source, target) = site::servers(&["--max-connections=2000"]).await?;
    site::in_sessions(&source, 4, channels, |number| {
        format!("CREATE DATABASE c{number}; USE c{number}; CREATE TABLE t (id INT PRIMARY KEY)")
    })
    .await?;
    let mut builder = Daemon::builder(&source, &target).set("name", "c0");
    for number in 0..channels {
        if number > 0 {
            builder = builder.channel(&format!("c{number}"), &source, &target);
        }
        builder = builder
            .set("applier.replicate_do_db", vec![format!("c{number}")])
            .set("applier.worker_count", WORKERS as i64);
    }
    let daemon = builder.build();
    report.figure("channels", channels.to_string());
    report.seconds("start", site::started(&daemon).await);
    let drained = async || {
        for number in 0..channels {
            let name = format!("c{number}");
            daemon.wait_channel_drained(&name, &source, &target, site::PATIENCE).await;
        }
    };
    drained().await;
    let begun = Instant::now();
    site::in_sessions(&source, 4, channels * 20, move |number| {
        format!("INSERT INTO c{}.t VALUES ({number})", number % channels)
    })
    .await?;
    drained().await;
    report.seconds("20 transactions for each", begun.elapsed().as_secs_f64());
    let pid = daemon.pid().expect("running");
    let before = cpu_seconds(pid)?;
    tokio::time::sleep(IDLE).await;
    let idle = (cpu_seconds(pid)? - before) / IDLE.as_secs_f64();
    report.figure("CPU while idle", format!("{:.1} % of a core", idle * 100.0));
    report.rule(idle < 0.005 * channels as f64, "an idle channel takes less than half a percent");
    let found = Resources::of(&daemon, &source, &target).await?;
    report.mebibytes("memory", found.rss_bytes);
    let permitted = 64 * MIB + channels * 8 * MIB;
    report
        .rule(found.rss_bytes <= permitted, format!("memory stays under {} MiB", permitted / MIB));
    report.figure("threads", found.threads.to_string());
    // The runtime's, its blocking threads, and a writer and an intake for each channel.
    report.rule(found.threads <= 64 + 4 * channels, "at most four threads for each channel");
    report.figure("descriptors", found.descriptors.to_string());
    report.figure("sessions on the target", found.target_sessions.to_string());
    report.rule(
        found.target_sessions <= channels * (WORKERS + 2),
        "at most two sessions for each channel in addition to its workers",
    );
    report.figure("sessions on the source", found.source_sessions.to_string());
    report.rule(found.source_sessions <= channels, "one session for each channel");
    site::finish(&mut report, &daemon, &source, &target).await;
    Ok(report)
}
