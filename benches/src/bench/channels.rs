//! `channels`: backlogs of several sources, each with a target of its own, drained at once by one process.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use csa_tests::{Compare, Daemon, Server};
use tokio::task::{block_in_place, spawn_blocking};

use super::producer::Producer;
use super::profile::Durability;
use super::shape::Shape;
use super::sizes::Sizes;
use super::stage::PATIENCE;
use super::statistics::median;
use super::table::Table;
use super::tables;
use crate::process::{cpu_seconds, peak_rss_bytes};

/// Options of every server, because many share the machine.
const SERVER_OPTIONS: [&str; 2] =
    ["--innodb-buffer-pool-size=128M", "--innodb-redo-log-capacity=128M"];

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// The load of every source.
    #[arg(long, value_enum, default_value = "updates-1")]
    load: Shape,
    /// Numbers of channels that share a backlog.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,4,8",
        value_parser = clap::value_parser!(u32).range(1..=16)
    )]
    channels: Vec<u32>,
    /// Rounds; medians count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Sessions that write on a source.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100))]
    producers: u32,
    #[command(flatten)]
    sizes: Sizes,
}

/// A source, its target, and the sessions that write on the source.
#[derive(Debug)]
struct Pair {
    source: Server,
    target: Server,
    producer: Producer,
}

/// A drain of the same number of transactions, over so many channels.
#[derive(Debug, Clone, Copy)]
struct Drained {
    tps: f64,
    /// Microseconds per changed row.
    daemon_cpu: f64,
    target_cpu: f64,
    peak_rss_bytes: u64,
}

/// Returns success when source and target of every pair were equal after each drain.
pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let load = options.load;
    let most = options.channels.iter().max().copied().unwrap_or(1);
    println!("{}: starting {most} sources and {most} targets, filling tables", load.name());
    let mut pairs = Vec::new();
    for number in 1..=most {
        pairs.push(Pair::start(number, options).await?);
    }
    let mut table = Table::new(&[
        "channels",
        "trx/s of all",
        "daemon, µs CPU per row",
        "targets, µs CPU per row",
        "peak memory, MiB",
    ]);
    // The first drain fills the new targets.
    drain(&mut pairs, options).await?;
    let mut drained = vec![Vec::new(); options.channels.len()];
    for round in 1..=options.rounds {
        for (count, results) in options.channels.iter().zip(&mut drained) {
            let result = drain(&mut pairs[..*count as usize], options).await?;
            println!("round {round}, {count} channels: {:.0} TPS; EQUAL", result.tps);
            results.push(result);
        }
    }
    for (count, results) in options.channels.iter().zip(&drained) {
        let over = |figure: fn(&Drained) -> f64| median(results.iter().map(figure));
        table.row(vec![
            count.to_string(),
            format!("{:.0}", over(|drained| drained.tps)),
            format!("{:.1}", over(|drained| drained.daemon_cpu)),
            format!("{:.1}", over(|drained| drained.target_cpu)),
            format!("{:.0}", over(|drained| drained.peak_rss_bytes as f64) / f64::from(1 << 20)),
        ]);
    }
    println!("\n{table}");
    Ok(ExitCode::SUCCESS)
}

impl Pair {
    async fn start(number: u32, options: &Options) -> Result<Self> {
        let servers = spawn_blocking(|| Server::pair(&SERVER_OPTIONS, &SERVER_OPTIONS));
        let (source, target) = servers.await.context("starting the servers")?;
        source.exec(&Durability::NONE.statement()).await;
        target.exec(&Durability::FULL.statement()).await;
        let mut sizes = options.sizes;
        sizes.seed += u64::from(number);
        tables::fill(&source, &sizes, &[options.load]).await?;
        Ok(Self {
            source,
            target,
            producer: Producer::new(options.load, &sizes, options.producers),
        })
    }
}

/// Writes a backlog on every source, and drains all with a new daemon.
async fn drain(pairs: &mut [Pair], options: &Options) -> Result<Drained> {
    let each = (options.load.backlog(&options.sizes) / pairs.len() as u64).max(1);
    let (mut transactions, mut rows) = (0, 0);
    for pair in pairs.iter_mut() {
        let produced = pair.producer.backlog(&pair.source, each).await?;
        transactions += produced.transactions;
        rows += produced.row_changes;
    }
    let (first, others) = pairs.split_first().context("at least one channel")?;
    let mut builder = Daemon::builder(&first.source, &first.target).set("name", "c0");
    for (number, pair) in others.iter().enumerate() {
        builder = builder.channel(&format!("c{}", number + 1), &pair.source, &pair.target);
    }
    let daemon = builder.build();
    let target_cpu =
        || pairs.iter().map(|pair| cpu_seconds(pair.target.pid())).sum::<Result<f64>>();
    let before = target_cpu()?;
    let begun = Instant::now();
    block_in_place(|| daemon.start_again());
    for (number, Pair { source, target, .. }) in pairs.iter().enumerate() {
        daemon.wait_channel_drained(&format!("c{number}"), source, target, PATIENCE).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let pid = daemon.pid().context("csa-daemon is gone")?;
    let per_row = |seconds: f64| seconds * 1e6 / rows as f64;
    let drained = Drained {
        tps: transactions as f64 / seconds,
        daemon_cpu: per_row(cpu_seconds(pid)?),
        target_cpu: per_row(target_cpu()? - before),
        peak_rss_bytes: peak_rss_bytes(pid)?,
    };
    let status = block_in_place(|| daemon.terminate());
    ensure!(status.success(), "csa-daemon ended with {status}");
    for Pair { source, target, .. } in pairs {
        Compare::new().run(source, target).await.map_err(anyhow::Error::msg)?;
    }
    Ok(drained)
}
