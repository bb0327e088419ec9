//! Programs that run whole topologies: two sandboxed servers, load and the daemon between them.

mod bench;
mod demo;
mod endure;
mod process;
mod topology;

use std::io::{Write, stderr};
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
    /// Show csa-daemon and a native replica side by side in a burst of load, kill csa-daemon and its target,
    /// and compare all tables.
    Demo(demo::Options),
    /// Measure csa-daemon against the server's own multi-threaded applier under the same loads:
    /// draining a backlog, following a busy source, or following single transactions.
    Bench(bench::Options),
    /// Do the same with backlogs that sysbench writes, where it is installed.
    Sysbench(bench::sysbench::SysbenchOptions),
    /// Measure how fast one csa-daemon drains a backlog that is spread over several channels.
    Channels(bench::channels::Options),
    /// Make the table of drains in docs/performance.md of results that `bench` has kept.
    Publish(bench::publish::Options),
    /// Let csa-daemon endure something long or large, and measure what it takes.
    Endure(endure::Options),
}

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    csa_tests::measure();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let program = async {
            match cli.command {
                Command::Demo(options) => demo::run(&options).await,
                Command::Bench(options) => bench::run(&options).await,
                Command::Sysbench(options) => bench::sysbench::run(&options).await,
                Command::Channels(options) => bench::channels::run(&options).await,
                Command::Publish(options) => {
                    bench::publish::run(&options).map(|()| ExitCode::SUCCESS)
                }
                Command::Endure(options) => endure::run(&options).await,
            }
        };
        // Dropping the program ends its daemon and deletes its servers.
        let code = tokio::select! {
            code = program => return code,
            _ = hangup.recv() => 129,
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
        };
        // The terminal may be gone.
        let _ = writeln!(stderr(), "\nending servers and daemons, and removing their files");
        Ok(ExitCode::from(code))
    })
}
