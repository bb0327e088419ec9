//! `csa-bench endure`: loads that last long or are large, and the resources that the daemon takes for
//! them. A run that breaks a rule of its mode, or ends with a difference, fails.

mod backlog;
mod channels;
mod gaps;
mod leaks;
mod report;
mod resources;
mod site;
mod tables;
mod transaction;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Debug, Clone, Subcommand)]
enum Mode {
    /// Lost connections, pauses, reloads, definitions and restarts of servers under load, one after the
    /// other: memory, descriptors, threads and sessions have to stay the same.
    Leaks {
        #[arg(long, default_value_t = 60)]
        minutes: u64,
    },
    /// A backlog in the relay store, drained by a daemon that is killed again and again.
    Backlog {
        #[arg(long, default_value_t = 20)]
        gib: u64,
        /// Kills (kill -9) during the drain.
        #[arg(long, default_value_t = 5)]
        kills: u64,
    },
    /// One transaction of rows of 1 MiB.
    Transaction {
        #[arg(long, default_value_t = 5)]
        gib: u64,
    },
    /// Tables that all get rows: start and memory.
    Tables {
        #[arg(long, default_value_t = 10_000)]
        tables: u64,
    },
    /// Channels of one process: connections, threads, memory, and CPU while idle.
    Channels {
        #[arg(long, default_value_t = 64)]
        channels: u64,
    },
    /// GTID sets with gaps on source and target: start, and CPU for a transaction.
    Gaps {
        #[arg(long, default_value_t = 100_000)]
        gaps: u64,
        /// Transactions to measure.
        #[arg(long, default_value_t = 500)]
        transactions: u64,
    },
}

/// Returns success when no rule was broken.
pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let report = match options.mode {
        Mode::Leaks { minutes } => leaks::run(minutes).await?,
        Mode::Backlog { gib, kills } => backlog::run(gib, kills).await?,
        Mode::Transaction { gib } => transaction::run(gib).await?,
        Mode::Tables { tables } => tables::run(tables).await?,
        Mode::Channels { channels } => channels::run(channels).await?,
        Mode::Gaps { gaps, transactions } => gaps::run(gaps, transactions).await?,
    };
    Ok(report.print())
}
