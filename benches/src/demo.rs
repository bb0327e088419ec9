//! `csa-bench demo`: a copy, steady load, a burst in the middle, drain, compare.

mod progress;

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use csa_tests::{Burst, Compare, Daemon, Load, LoadOptions, LoadReport, Server, prepare};

use crate::topology::{Sample, servers};
use progress::{Progress, bytes};

const TICK: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// How long the load runs.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Transactions per second outside the burst.
    #[arg(long, default_value_t = 500.0)]
    rate: f64,
    /// Transactions per second in the burst; 0 is as fast as the source can.
    #[arg(long, default_value_t = 0.0)]
    burst_rate: f64,
    /// Length of the burst in the middle, in seconds.
    #[arg(long, default_value_t = 5)]
    burst_seconds: u64,
    /// Kill the daemon at the start of the burst and start it again after this many seconds.
    #[arg(long, default_value_t = 0)]
    outage_seconds: u64,
    /// Sessions on the source.
    #[arg(long, default_value_t = 32)]
    clients: u32,
    /// Changes per transaction.
    #[arg(long, default_value_t = 2)]
    changes: u32,
    #[arg(long, default_value_t = 4)]
    tables: u32,
    /// Rows in each table.
    #[arg(long, default_value_t = 20_000)]
    rows: u64,
    /// The daemon's worker count.
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// How long the daemon may take to apply the rest after the load, in seconds.
    #[arg(long, default_value_t = 300)]
    drain_seconds: u64,
}

impl Options {
    fn load(&self) -> LoadOptions {
        LoadOptions {
            tables: self.tables,
            rows: self.rows,
            clients: self.clients,
            changes: self.changes,
            rate: (self.rate > 0.0).then_some(self.rate),
            burst: Some(Burst {
                after: Duration::from_secs(self.seconds.saturating_sub(self.burst_seconds) / 2),
                length: Duration::from_secs(self.burst_seconds),
                rate: (self.burst_rate > 0.0).then_some(self.burst_rate),
            }),
            // A row that every transaction changes would dominate the demo.
            counter: false,
            ..LoadOptions::default()
        }
    }

    /// Returns the time in which the daemon is down, from the start of the load.
    fn outage(&self) -> Range<Duration> {
        let start = Duration::from_secs(self.seconds.saturating_sub(self.burst_seconds) / 2);
        start..start + Duration::from_secs(self.outage_seconds)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }
}

/// Returns success when both servers are equal in the end.
pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    println!("starting a source and a target");
    let (source, target) = servers().await?;
    println!("source on port {}, target on port {}", source.port, target.port);
    let load_options = options.load();
    println!("filling {} tables of {} rows", options.tables, options.rows);
    prepare(&source, &load_options).await;
    let daemon = Daemon::builder(&source, &target)
        .set("source.user", "admin")
        .set("source.password", "admin_pw")
        .set("applier.worker_count", i64::from(options.workers))
        .build();
    println!("$ csa-daemon copy");
    let copied = tokio::task::block_in_place(|| daemon.commanded(&["copy"]));
    print!("{copied}");
    println!("$ csa-daemon run");
    tokio::task::block_in_place(|| daemon.start_again());
    daemon.wait_drained(&source, &target, options.patience()).await;

    let mut progress = Progress::new();
    let load = Load::start(&source, &load_options);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(options.seconds) {
        tokio::time::sleep(TICK).await;
        // A start waits for the admin port, and a kill for the process.
        match (options.outage().contains(&started.elapsed()), daemon.pid()) {
            (true, Some(_)) => tokio::task::block_in_place(|| daemon.kill9()),
            (false, None) => tokio::task::block_in_place(|| daemon.start_again()),
            _ => {}
        }
        progress.tick(Sample::take(&daemon), load.committed());
    }
    let report = load.stop().await;
    if daemon.pid().is_none() {
        tokio::task::block_in_place(|| daemon.start_again());
    }
    let drain = drain(&daemon, &source, &target, options, &mut progress, &report).await;
    progress.finish();

    println!(
        "source: {} transactions in {:.1} s; peak lag {:.2} s, peak backlog {} transactions ({}); \
         fastest apply {:.0} trx/s",
        report.committed,
        report.elapsed.as_secs_f64(),
        progress.peak_lag(),
        progress.peak_backlog(),
        bytes(progress.peak_backlog_bytes()),
        progress.peak_applied_rate(),
    );
    println!("{drain}");
    let outcome = Compare::new().run(&source, &target).await;
    let ended = tokio::task::spawn_blocking(move || daemon.terminate()).await;
    let ended = ended.context("stopping the daemon")?;
    anyhow::ensure!(ended.success(), "csa-daemon ended with {ended}");
    Ok(match outcome {
        Ok(equal) => {
            println!("EQUAL: {} tables, {} rows", equal.tables, equal.rows);
            ExitCode::SUCCESS
        }
        Err(difference) => {
            let compared = difference.compared;
            println!("DIFFERENT: {} tables, {} rows", compared.tables, compared.rows);
            println!("{difference}");
            ExitCode::FAILURE
        }
    })
}

/// Waits until nothing is left, and reports the rate.
async fn drain(
    daemon: &Daemon,
    source: &Server,
    target: &Server,
    options: &Options,
    progress: &mut Progress,
    report: &LoadReport,
) -> String {
    let before = Sample::take(daemon);
    let started = Instant::now();
    let ticks = async {
        loop {
            tokio::time::sleep(TICK).await;
            progress.tick(Sample::take(daemon), report.committed);
        }
    };
    tokio::select! {
        () = daemon.wait_drained(source, target, options.patience()) => {}
        () = ticks => {}
    }
    let seconds = started.elapsed().as_secs_f64();
    let left = before.map_or(0, |sample| sample.backlog_transactions);
    if left == 0 {
        return "drain: nothing was left when the load ended".into();
    }
    format!(
        "drain: {left} transactions left when the load ended, applied in {seconds:.2} s \
         ({:.0} per second)",
        left as f64 / seconds
    )
}
