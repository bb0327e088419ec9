//! Programs that run whole topologies: two sandboxed servers, load and the daemon between them.

mod bench;
mod demo;
mod endure;
mod process;
mod topology;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Runs csa-daemon between two throw-away MySQL servers.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replicate a load with a burst in it, watch lag and backlog, and compare both servers.
    Demo(demo::Options),
    /// Measure csa-daemon against the server's own multi-threaded applier under the same loads:
    /// draining a backlog, following a busy source, or following single transactions.
    Bench(bench::Options),
    /// Measure how fast one csa-daemon drains a backlog that is spread over several channels.
    Channels(bench::channels::Options),
    /// Let csa-daemon endure something long or large, and measure what it takes.
    Endure(endure::Options),
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    csa_tests::measure();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let program = async {
            match cli.command {
                Command::Demo(options) => demo::run(&options).await,
                Command::Bench(options) => bench::run(&options).await,
                Command::Channels(options) => bench::channels::run(&options).await,
                Command::Endure(options) => endure::run(&options).await,
            }
        };
        // Dropping the program ends its daemon and deletes its servers.
        tokio::select! {
            code = program => code,
            _ = interrupt.recv() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    })
}
