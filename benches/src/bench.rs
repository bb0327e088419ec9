//! `bench`: drains the same backlog with the server's own applier and with csa-daemon, in turn.
//!
//! Both targets run on this machine beside the source. Absolute rates hold for one machine and one
//! day; the ratio is what to look at.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::topology::servers;
use anyhow::{Result, ensure};
use clap::Args;
use csa_tests::{Compare, Daemon, Load, LoadOptions, Mix, Server, prepare};

/// No drain takes longer.
const DRAIN: Duration = Duration::from_secs(600);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Source transactions in each round's backlog.
    #[arg(long, default_value_t = 20_000)]
    transactions: u64,
    /// Non-index updates in each transaction.
    #[arg(long, default_value_t = 1)]
    updates: u32,
    /// Tables, and rows in each.
    #[arg(long, default_value_t = 8)]
    tables: u32,
    #[arg(long, default_value_t = 10_000)]
    rows: u64,
    /// Rounds; each appliers' median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Workers of the server's own applier.
    #[arg(long, default_value_t = 16)]
    mta_workers: u32,
}

/// One applier's drains.
#[derive(Debug, Default)]
struct Figures {
    rates: Vec<f64>,
}

impl Figures {
    fn median(&self) -> f64 {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or_default()
    }
}

struct Topology {
    source: Server,
    mta: Server,
    csa: Server,
}

pub(crate) async fn run(args: &Options) -> Result<ExitCode> {
    let load = LoadOptions {
        tables: args.tables,
        rows: args.rows,
        clients: 8,
        changes: args.updates,
        mix: Mix { index_update: 0, non_index_update: 1, delete_insert: 0 },
        transfers_percent: 0,
        counter: false,
        ..LoadOptions::default()
    };
    println!("starting three servers …");
    let (source, mta) = servers().await?;
    let csa = tokio::task::spawn_blocking(|| Server::start("csa-target", &[])).await?;
    let servers = Topology { source, mta, csa };
    prepare(&servers.source, &load).await;
    servers.attach_mta(args.mta_workers).await?;
    let daemon = Daemon::builder(&servers.source, &servers.csa).start();
    daemon.wait_drained(&servers.source, &servers.csa, DRAIN).await;
    ensure!(daemon.terminate().success(), "csa-daemon did not stop in good order");
    let (mut mta, mut csa) = (Figures::default(), Figures::default());
    for round in 1..=args.rounds {
        let made = servers.backlog(&load, args.transactions).await;
        // In turn, so that a machine that slows down slows both.
        let (first, second) = if round % 2 == 1 {
            (servers.drain_mta().await?, servers.drain_csa(&daemon).await?)
        } else {
            let csa = servers.drain_csa(&daemon).await?;
            (servers.drain_mta().await?, csa)
        };
        mta.rates.push(made as f64 / first.as_secs_f64());
        csa.rates.push(made as f64 / second.as_secs_f64());
        println!(
            "round {round}: {made} transactions; server's own applier {:.0} TPS, csa-daemon {:.0} TPS",
            mta.rates[round - 1],
            csa.rates[round - 1]
        );
    }
    for target in [&servers.mta, &servers.csa] {
        let compared = Compare::new().run(&servers.source, target).await;
        let compared = compared.map_err(|difference| anyhow::anyhow!("{difference}"))?;
        println!("{}: EQUAL, {} tables, {} rows", target.name, compared.tables, compared.rows);
    }
    report(args, &mta, &csa);
    Ok(ExitCode::SUCCESS)
}

fn report(args: &Options, mta: &Figures, csa: &Figures) {
    println!("\nbacklog drain, {} update(s) per transaction, default durability", args.updates);
    println!("| applier | median TPS |");
    println!("| --- | --- |");
    println!(
        "| server's own, {} workers, commit order kept | {:.0} |",
        args.mta_workers,
        mta.median()
    );
    println!("| csa-daemon, reception from the source included | {:.0} |", csa.median());
    println!("| ratio | {:.2} |", csa.median() / mta.median());
}

impl Topology {
    async fn attach_mta(&self, workers: u32) -> Result<()> {
        let source = format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, \
             SOURCE_USER='repl', SOURCE_PASSWORD='repl_pw', SOURCE_AUTO_POSITION=1, \
             GET_SOURCE_PUBLIC_KEY=1",
            self.source.port
        );
        self.mta.exec(&format!("SET GLOBAL replica_parallel_workers={workers}")).await;
        self.mta.exec(&source).await;
        self.mta.exec("START REPLICA").await;
        self.wait_mta().await?;
        self.mta.exec("STOP REPLICA").await;
        Ok(())
    }

    /// Makes transactions while both appliers stand still.
    async fn backlog(&self, options: &LoadOptions, transactions: u64) -> u64 {
        let load = Load::start(&self.source, options);
        while load.committed() < transactions {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        load.stop().await.committed
    }

    /// From its relay log, which is complete before the clock starts.
    async fn drain_mta(&self) -> Result<Duration> {
        self.mta.exec("START REPLICA IO_THREAD").await;
        let executed = self.source.gtid_executed().await;
        let received = format!(
            "SELECT GTID_SUBSET('{executed}', GTID_UNION_OF) FROM (SELECT \
             CONCAT(received_transaction_set, ',', @@GLOBAL.gtid_executed) AS GTID_UNION_OF \
             FROM performance_schema.replication_connection_status) AS status"
        );
        let started = Instant::now();
        while !self.mta.value::<bool>(&received).await {
            ensure!(started.elapsed() < DRAIN, "the replica did not receive the backlog");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let started = Instant::now();
        self.mta.exec("START REPLICA SQL_THREAD").await;
        self.wait_mta().await?;
        let elapsed = started.elapsed();
        self.mta.exec("STOP REPLICA").await;
        Ok(elapsed)
    }

    async fn wait_mta(&self) -> Result<()> {
        let executed = self.source.gtid_executed().await;
        let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{executed}', {})", DRAIN.as_secs());
        let timed_out: u8 = self.mta.value(&wait).await;
        ensure!(timed_out == 0, "the server's own applier did not drain the backlog");
        Ok(())
    }

    /// From the start of the process: reception, spooling and apply together.
    async fn drain_csa(&self, daemon: &Daemon) -> Result<Duration> {
        let started = Instant::now();
        daemon.start_again();
        daemon.wait_drained(&self.source, &self.csa, DRAIN).await;
        let elapsed = started.elapsed();
        let status = daemon.terminate();
        ensure!(status.success(), "csa-daemon ended with {status}");
        Ok(elapsed)
    }
}
